//! The connection to the own broker of the client that hands over one class.

use super::inbox::{Inbox, Input};
use super::links::{Out, carry, mark};
use crate::worker::Shared;
use socket2::SockRef;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two attempts to connect: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Keeps a connection until it is aborted.
pub(super) async fn keep(inbox: Inbox, shared: Arc<Shared>, class: u8) {
    let mut wait = RETRY.0;
    loop {
        let limit = Duration::from_millis(shared.limits.connect_ms);
        let why = match tokio::time::timeout(limit, shared.broker.connect()).await {
            Ok(Ok((mut stream, _, _))) => {
                mark(SockRef::from(stream.socket()), class);
                let began = Instant::now();
                let (out, mut outgoing) = Out::new();
                inbox.put(Input::BrokerOpened { class, out });
                let bytes = inbox.clone();
                let ended = carry(&mut stream, &mut outgoing, |heard| {
                    let bytes_heard = heard.to_vec();
                    bytes.put(Input::BrokerBytes {
                        class,
                        bytes: bytes_heard,
                    });
                    Ok(())
                });
                let ended = ended.await;
                inbox.put(Input::BrokerClosed { class });
                // A broker that refuses us is not asked at once again.
                if began.elapsed() > RETRY.1 {
                    wait = RETRY.0;
                }
                ended.err().map_or_else(String::new, |error| error.to_string())
            }
            Ok(Err(error)) => error.to_string(),
            Err(elapsed) => elapsed.to_string(),
        };
        wait = (wait * 2).min(RETRY.1);
        if !why.is_empty() {
            inbox.put(Input::BrokerTrouble { why });
        }
        tokio::time::sleep(wait).await;
    }
}

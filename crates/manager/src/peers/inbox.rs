//! What happens to the hub, and where tasks tell it.

use super::Order;
use super::links::Out;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use timebound_protocol::peer::PeerId;
use timebound_protocol::peer::control::Control;
use tokio::sync::mpsc::UnboundedSender;

/// What happens to the hub.
pub(super) enum Input {
    Order(Order),
    Datagram {
        from: Ipv4Addr,
        bytes: Vec<u8>,
    },
    Opened {
        link: u64,
        out: Out,
        /// To mark what is sent with a class.
        marker: socket2::Socket,
        address: Ipv4Addr,
        /// `None`: the other side connected.
        dialed: Option<(PeerId, u8)>,
    },
    Control {
        link: u64,
        control: Control,
    },
    Closed {
        link: u64,
    },
    Unreachable {
        peer: PeerId,
        why: String,
    },
    /// Who connected from there has not shown who it is.
    Refused {
        address: Ipv4Addr,
        why: String,
    },
    BrokerOpened {
        class: u8,
        out: Out,
    },
    BrokerBytes {
        class: u8,
        bytes: Vec<u8>,
    },
    BrokerClosed {
        class: u8,
    },
    BrokerTrouble {
        why: String,
    },
}

/// Where tasks tell the hub what happens.
#[derive(Clone)]
pub(super) struct Inbox {
    inputs: UnboundedSender<Input>,
    last: Arc<AtomicU64>,
}

impl Inbox {
    pub(super) fn new(inputs: UnboundedSender<Input>) -> Self {
        let last = Arc::new(AtomicU64::new(1));
        Self { inputs, last }
    }
    pub(super) fn put(&self, input: Input) {
        drop(self.inputs.send(input));
    }
    /// A number that nothing else has.
    pub(super) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed)
    }
}

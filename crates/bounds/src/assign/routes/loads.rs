//! Long-run load of streams on ports, in whole units of 10^-12 of a port's time, rounded up per stream.

use timebound_model::units::NANOS_PER_SECOND;
use timebound_model::{Arrival, Network, PortId, StreamId};

const PARTS: u128 = 1_000_000_000_000;

/// What every stream puts on a port. A stream that declares no arrival has no load that is known, and counts nothing.
pub(super) struct Loads<'a> {
    network: &'a Network,
}

impl<'a> Loads<'a> {
    pub(super) const fn of_network(network: &'a Network) -> Self {
        Self { network }
    }

    pub(super) fn of(&self, stream: StreamId, port: PortId) -> u64 {
        let rate = self.network.ports[port.index()].rate;
        let (time, period) = match &self.network.streams[stream.index()].arrival {
            // What a frame leaves of a nanosecond is the next one's.
            Arrival::Periodic { period, frames, .. } if self.network.carries(port) => {
                let bytes = frames.iter().map(|frame| u128::from(frame.0));
                let bits = bytes.fold(0, u128::saturating_add).saturating_mul(8);
                let period = u128::from(period.0) * u128::from(rate.0);
                (bits.saturating_mul(NANOS_PER_SECOND.into()), period)
            }
            Arrival::Periodic { period, frames, .. } => {
                let time = frames
                    .iter()
                    .map(|frame| u128::from(rate.transmission_time(*frame).0));
                (time.fold(0, u128::saturating_add), period.0.into())
            }
            Arrival::TokenBucket { rate: tokens, .. } => (u128::from(tokens.0), rate.0.into()),
            Arrival::Unbounded { .. } => return 0,
        };
        let parts = time.saturating_mul(PARTS).div_ceil(period.max(1));
        u64::try_from(parts).unwrap_or(u64::MAX)
    }
}

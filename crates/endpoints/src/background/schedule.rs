//! What each kind of background traffic releases when.

use crate::plan::{Pattern, Release, Traffic, Transport};
use crate::release::Releases;

/// How the bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    Udp,
    Tcp,
}

impl Traffic {
    pub(super) fn carrier(&self) -> Carrier {
        match self {
            Self::UdpConstant { .. } | Self::UdpPoisson { .. } | Self::UdpBurst { .. } => Carrier::Udp,
            Self::Video {
                transport: Transport::Udp,
                ..
            } => Carrier::Udp,
            Self::TcpBulk { .. } | Self::RequestResponse { .. } | Self::Video { .. } => Carrier::Tcp,
        }
    }
}

/// Payload of a full TCP segment on Ethernet (1500 less IP, TCP and the timestamp option): bulk data is written in multiples of
/// it, so that a slow rate does not make small segments.
const SEGMENT: u64 = 1448;
/// Bulk data at a rate is written about this often.
const BULK_GAP_NS: u64 = 1_000_000;

/// Bytes of one write of bulk data, and the gap that gives the rate.
pub(super) fn bulk(rate_bps: u64) -> (u64, u64) {
    let per_gap = u128::from(rate_bps) * u128::from(BULK_GAP_NS) / 8_000_000_000;
    let segments = (per_gap as u64 / SEGMENT).max(1);
    let bytes = segments * SEGMENT;
    (bytes, gap_ns(bytes, rate_bps))
}

/// Time that `bytes` take at a rate, rounded to the nearest ns and at least 1.
fn gap_ns(bytes: u64, rate_bps: u64) -> u64 {
    let bits = u128::from(bytes) * 8_000_000_000;
    let rate = u128::from(rate_bps);
    u64::try_from((bits + rate / 2) / rate).unwrap_or(u64::MAX).max(1)
}

/// The release times of a kind of traffic over `length_ns`; `None` where it is not clocked (as fast as possible, closed loop).
pub(super) fn releases(traffic: &Traffic, stream: u32, length_ns: u64) -> Option<Releases> {
    let (pattern, seed) = match traffic {
        Traffic::TcpBulk { rate_bps: 0 } | Traffic::RequestResponse { period_ns: 0, .. } => return None,
        Traffic::TcpBulk { rate_bps } => (
            Pattern::Periodic {
                period_ns: bulk(*rate_bps).1,
            },
            0,
        ),
        Traffic::UdpConstant {
            rate_bps,
            payload_bytes,
        } => (
            Pattern::Periodic {
                period_ns: gap_ns(u64::from(*payload_bytes), *rate_bps),
            },
            0,
        ),
        Traffic::UdpPoisson {
            mean_gap_ns, seed, ..
        } => (
            Pattern::Poisson {
                mean_gap_ns: *mean_gap_ns,
            },
            *seed,
        ),
        Traffic::UdpBurst { gap_ns, .. } => (Pattern::Periodic { period_ns: *gap_ns }, 0),
        Traffic::RequestResponse { period_ns, .. } => (
            Pattern::Periodic {
                period_ns: *period_ns,
            },
            0,
        ),
        Traffic::Video { picture_gap_ns, .. } => (
            Pattern::Periodic {
                period_ns: *picture_gap_ns,
            },
            0,
        ),
    };
    Some(Releases::new(
        Release {
            offset_ns: 0,
            jitter_ns: 0,
            pattern,
            seed,
        },
        stream,
        length_ns,
    ))
}

/// Bytes of the `index`-th picture: the first of each group is the I picture.
pub(super) fn picture_bytes(index: u64, group: u32, i_picture: u32, p_picture: u32) -> u64 {
    u64::from(if index.is_multiple_of(u64::from(group)) {
        i_picture
    } else {
        p_picture
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bulk_writes_give_the_rate(rate_bps in 1000u64..100_000_000_000) {
            let (bytes, gap_ns) = bulk(rate_bps);
            let given = bytes as f64 * 8e9 / gap_ns as f64;
            prop_assert!((given / rate_bps as f64 - 1.0).abs() < 1e-3, "{} for {}", given, rate_bps);
            prop_assert_eq!(bytes % SEGMENT, 0);
        }
    }

    #[test]
    fn a_group_has_one_large_picture() {
        let sizes: Vec<u64> = (0..6).map(|index| picture_bytes(index, 3, 900, 100)).collect();
        assert_eq!(sizes, [900, 100, 100, 900, 100, 100]);
    }
}

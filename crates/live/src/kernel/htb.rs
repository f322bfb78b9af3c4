//! One HTB class on an interface: a queue that lets frames out at a link's rate and makes senders wait (tc-htb(8)).

/// linux/rtnetlink.h, linux/pkt_sched.h
pub(crate) const NEW_QDISC: u16 = 36;
pub(crate) const NEW_CLASS: u16 = 40;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const PARAMETERS: u16 = 1;
const INIT: u16 = 2;
const RATE64: u16 = 6;
const CEIL64: u16 = 7;
const ROOT: u32 = 0xffff_ffff;
const QDISC: u32 = 0x0001_0000;
const CLASS: u32 = 0x0001_0001;
const LINKLAYER_ETHERNET: u8 = 1;
/// The scheduler's unit of time, ns (PSCHED_SHIFT 6).
const TICK_NS: u64 = 64;

/// How an interface is slowed down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rate_bps: u64,
    /// Wire bytes that may leave at once: what a late timer may catch up.
    pub(crate) burst_bytes: u64,
    /// What the wire adds to a frame as the kernel counts it: FCS 4, preamble 8, gap 12, and what its framing does.
    pub(crate) overhead_bytes: u16,
    /// The least a frame takes on the wire.
    pub(crate) least_bytes: u16,
    /// Bytes of the largest frame.
    pub(crate) largest_bytes: u32,
}

fn attribute(to: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    to.extend((4 + payload.len() as u16).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(payload);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// struct tcmsg and what kind it is.
fn header(interface: u32, handle: u32, parent: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    for word in [interface, handle, parent, 0] {
        body.extend(word.to_ne_bytes());
    }
    attribute(&mut body, KIND, b"htb\0");
    body
}

/// Body of the request for the queueing discipline; everything goes into its one class.
pub(crate) fn discipline(interface: u32) -> Vec<u8> {
    let mut body = header(interface, QDISC, ROOT);
    // struct tc_htb_glob: version, rate to quantum, default class, debug, direct packets
    let globals: Vec<u8> = [3u32, 10, CLASS & 0xffff, 0, 0]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let mut options = Vec::new();
    attribute(&mut options, INIT, &globals);
    attribute(&mut body, OPTIONS, &options);
    body
}

/// Body of the request for the class.
pub(crate) fn class(interface: u32, shape: Shape) -> Vec<u8> {
    // Rounded down: never faster than the link behind it.
    let rate = (shape.rate_bps / 8).max(1);
    let burst_ns = u128::from(shape.burst_bytes) * 1_000_000_000 / u128::from(rate);
    let ticks = u32::try_from(burst_ns / u128::from(TICK_NS)).unwrap_or(u32::MAX);
    let mut parameters = Vec::new();
    for _rate_and_ceiling in 0..2 {
        // struct tc_ratespec
        parameters.extend([0, LINKLAYER_ETHERNET]);
        parameters.extend(shape.overhead_bytes.to_ne_bytes());
        parameters.extend(0u16.to_ne_bytes());
        parameters.extend(shape.least_bytes.to_ne_bytes());
        parameters.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
    }
    for word in [ticks, ticks, shape.largest_bytes, 0, 0] {
        parameters.extend(word.to_ne_bytes());
    }
    let mut options = Vec::new();
    attribute(&mut options, PARAMETERS, &parameters);
    attribute(&mut options, RATE64, &rate.to_ne_bytes());
    attribute(&mut options, CEIL64, &rate.to_ne_bytes());
    let mut body = header(interface, CLASS, QDISC);
    attribute(&mut body, OPTIONS, &options);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_kernels_sizes() {
        // tcmsg 20, kind 8, options 4 + init (4 + 20)
        assert_eq!(discipline(2).len(), 20 + 8 + 4 + 24);
        let shape = Shape {
            rate_bps: 10_000_000,
            burst_bytes: 3_076,
            overhead_bytes: 24,
            least_bytes: 84,
            largest_bytes: 1_514,
        };
        // options 4 + parameters (4 + 44) + two of 12
        let body = class(2, shape);
        assert_eq!(body.len(), 20 + 8 + 4 + 48 + 24);
        let buffer = u32::from_ne_bytes(body[20 + 8 + 8 + 24..][..4].try_into().unwrap());
        assert_eq!(u64::from(buffer) * TICK_NS, 3_076 * 800);
    }
}

//! Deficit round robin: what other classes send while a class sends.
//!
//! While class `i` is backlogged and sends `x` bytes, it has at most `p = floor((x + d_i) / Q_i)` complete visits (each but the last
//! leaves a deficit below its next frame, `d_i`), and any other class `j` at most one visit more:
//!
//! ```text
//! psi_ij(x) = floor((x + d_i) / Q_i) Q_j + Q_j + d_j
//! ```
//!
//! Source: Tabatabaee and Le Boudec 2021 (Deficit Round Robin: A Second Network Calculus Analysis, eq. 7), which betters Boyer,
//! Stea and Mangoua Sofack 2012 and Stiliadis and Varma 1998. Two things differ here.
//!
//! - `x` is what the class has sent when our frame **starts**: nobody else sends during it.
//! - `d_j` is a whole frame, not one less a byte: our fabric sends a frame that finds its port idle without charging it to a deficit.
//!   When such a frame is under way at the start of our backlog, its class has no deficit, so it is that frame or the deficit.

/// A class at a weighted port, in bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) quantum: u64,
    pub(crate) largest: u64,
}

/// Most bytes that `other` sends between the start of our backlog and the start of our frame, before which we send `bytes`.
pub(crate) fn interference(bytes: u128, ours: Share, other: Share) -> u128 {
    let quantum = u128::from(ours.quantum.max(1));
    let visits = bytes.saturating_add(u128::from(ours.largest.saturating_sub(1))) / quantum;
    (visits + 1)
        .saturating_mul(u128::from(other.quantum))
        .saturating_add(u128::from(other.largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn share(quantum: u64, largest: u64) -> Share {
        Share { quantum, largest }
    }

    #[test]
    fn one_visit_of_the_others_for_each_of_ours() {
        let ours = share(1_538, 1_538);
        let other = share(3_000, 1_538);
        // Our first frame may just have missed its visit: the other one has a visit with the deficit it kept.
        assert_eq!(interference(0, ours, other), 3_000 + 1_538);
        assert_eq!(interference(1, ours, other), 2 * 3_000 + 1_538);
        assert_eq!(interference(1_538, ours, other), 2 * 3_000 + 1_538);
        assert_eq!(interference(1_539, ours, other), 3 * 3_000 + 1_538);
    }

    #[test]
    fn a_quantum_below_a_frame_takes_several_visits_to_send_it() {
        // 1000 bytes need ten visits of 100 bytes; the last of them is that in which it is sent.
        assert_eq!(interference(0, share(100, 1_000), share(50, 50)), 10 * 50 + 50);
    }
}

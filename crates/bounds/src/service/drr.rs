//! Deficit round robin: what other classes send while a class sends.
//!
//! While class `i` is backlogged and sends `x` bytes, it has at most `p = floor((x + d_i) / Q_i)` complete visits (each but the last
//! leaves a deficit below its next frame, `d_i`), and any other class `j` at most one visit more:
//!
//! ```text
//! psi_ij(x) = floor((x + d_i) / Q_i) Q_j + Q_j + d_j        d = largest frame - 1
//! ```
//!
//! Source: Tabatabaee and Le Boudec 2021 (Deficit Round Robin: A Second Network Calculus Analysis, eq. 7), which betters Boyer,
//! Stea and Mangoua Sofack 2012 and Stiliadis and Varma 1998. Two things differ here.
//!
//! - `x` is what the class has sent when our frame **starts**: nobody else sends during it.
//! - Where all frames of a class have one length `L`, it sends whole ones: the visits of `j` are charged for `n L <= psi` bytes, with the
//!   frame that was under way when our backlog started, of which only the rest counts.
//!
//! Why it holds in our fabric, whose visits end where the next frame does not fit or when a frame **has been sent** and its class is
//! empty (a visit that ended as its last frame starts would leave a class that stays backlogged without the rest of its quantum):
//!
//! - A backlog of `i` starts with a frame that finds none of its class waiting or under way, and its class without a deficit. Until it
//!   ends, `i` is not empty after any of its frames, so that `p` complete visits give it `p Q_i`, of which it keeps at most `d_i`.
//! - `j` may be within a visit at the start, and has at most one between two of `i`: `p + 1`, which started with at most `d_j`. That
//!   of a frame that finds the port idle is one too: as nobody waits, it is the last of as many as its length needs, so that
//!   the frame and what is left for more of its class are less than `Q_j` and the frame together.

/// A class at a weighted port, in bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) quantum: u64,
    pub(crate) largest: u64,
    /// No frame of it is shorter.
    pub(crate) least: u64,
}

/// Most bytes that `other` sends between the start of our backlog and the start of our frame, before which we send `bytes`.
pub(crate) fn interference(bytes: u128, ours: Share, other: Share) -> u128 {
    let quantum = u128::from(ours.quantum.max(1));
    let visits = bytes.saturating_add(u128::from(ours.largest.saturating_sub(1))) / quantum;
    let most = (visits + 1)
        .saturating_mul(u128::from(other.quantum))
        .saturating_add(u128::from(other.largest.saturating_sub(1)));
    if other.least == other.largest {
        most - most % u128::from(other.largest.max(1))
    } else {
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn share(quantum: u64, least: u64, largest: u64) -> Share {
        Share {
            quantum,
            largest,
            least,
        }
    }

    #[test]
    fn one_visit_of_the_others_for_each_of_ours() {
        let ours = share(1_538, 84, 1_538);
        let other = share(3_000, 84, 1_538);
        // Our first frame may just have missed its visit: the other one has a visit with the deficit it kept.
        assert_eq!(interference(0, ours, other), 3_000 + 1_537);
        assert_eq!(interference(1, ours, other), 2 * 3_000 + 1_537);
        assert_eq!(interference(1_538, ours, other), 2 * 3_000 + 1_537);
        assert_eq!(interference(1_539, ours, other), 3 * 3_000 + 1_537);
    }

    #[test]
    fn a_quantum_below_a_frame_takes_several_visits_to_send_it() {
        // 1000 bytes need ten visits of 100 bytes; the last of them is that in which it is sent.
        assert_eq!(
            interference(0, share(100, 1_000, 1_000), share(50, 40, 50)),
            10 * 50 + 49
        );
    }

    #[test]
    fn frames_of_one_length_are_sent_whole() {
        let ours = share(200, 100, 100);
        // One visit of 100 bytes lets one frame of 100 go, and nothing is kept; of 150 bytes two frames, with 50 that were kept.
        assert_eq!(interference(0, ours, share(100, 100, 100)), 100);
        assert_eq!(interference(0, ours, share(150, 100, 100)), 200);
        // Two visits of 150 bytes let three frames go.
        assert_eq!(interference(101, ours, share(150, 100, 100)), 300);
    }
}

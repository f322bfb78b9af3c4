//! The trajectory approach as printed: eq. 9-12 and algorithm 2, eq. 16-22 and algorithm 4.

use crate::options::Options;
use crate::paths::Costs;
use crate::safety::{Labelled, Safety};
use crate::trajectory::{Blocking, Form, Range, run};
use timebound_model::Network;

/// Latencies by eq. 9-12 (unicast) and 16-22 (behind a branch) as printed. **Unsafe.**
///
/// | printed | defect |
/// |---|---|
/// | eq. 9, 16: `SD_j`, the switching delay, where transmission times belong, and `\|L_i\| C_i` where the delays between ports belong | a star of ten sources at 123.04 us and SD = 10 us gives 346.08 us; the last frame takes 1363.44 us |
/// | eq. 11, 21: behind the first port only `SD_j - SD_i` of a lower-priority frame that came along | every port can block with a whole frame ([`Defect::ResidualBlocking`]) |
/// | no range of t beyond the first port's busy period | a later instance can suffer more ([`Defect::SourceBusyPeriod`]) |
/// | eq. 16: one `min` for the sum over the switches of a multicast path | smaller still |
///
/// Readings where the text leaves a choice: `sp_i` leaves the message itself out, but its own earlier instances are counted with the second
/// sum (without that the star gives 336.08 us); `(1 + x)+` is max(0, 1 + x); SD of a port is the greatest switching delay of its node, zero
/// at hosts; Smax starts as algorithms 2 and 4 print it and is then iterated, with release jitter once; `SD^RP` is the switching and replication delay of the
/// switch at the first branch, `J_mc` its spread; propagation delay, which the paper leaves out, is added to C on every link;
/// the stop at a deadline is not taken.
#[must_use]
pub fn trajectory_as_published(network: &Network, options: &Options) -> Labelled {
    let form = Form {
        costs: Costs::Switching,
        blocking: Blocking::Residual,
        range: Range::SourcePort,
        name: "the trajectory approach as published",
    };
    Labelled {
        method: "trajectory-as-published",
        safety: Safety::Unsafe,
        analysis: run(network, options, form),
    }
}

/// A defect of the printed trajectory approach by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// Eq. 11 and 21: behind the first port a lower-priority frame that came along blocks only by what it is longer than the own frame at the port
    /// before. But it can be held up in between and block again with all of its length.
    ResidualBlocking,
    /// The maximum is taken over t within the busy period of the source's port only. At later ports, where more flows meet, an instance beyond
    /// that can find more work before it.
    SourceBusyPeriod,
}

/// The standard form of the trajectory approach, with transmission times where they belong, but with some of the printed defects. **Unsafe**, unless
/// `defects` is empty, when it is [`crate::trajectory`] itself under another name.
///
/// With both it is the printed form under the reading that makes its figures comparable at all.
#[must_use]
pub fn trajectory_with(network: &Network, options: &Options, defects: &[Defect]) -> Labelled {
    let has = |defect| defects.contains(&defect);
    let form = Form {
        costs: Costs::Transmission,
        blocking: if has(Defect::ResidualBlocking) {
            Blocking::Residual
        } else {
            Blocking::EveryPort
        },
        range: if has(Defect::SourceBusyPeriod) {
            Range::SourcePort
        } else {
            Range::WholePath
        },
        name: "the trajectory approach with published defects",
    };
    Labelled {
        method: "trajectory-with-published-defects",
        safety: Safety::Unsafe,
        analysis: run(network, options, form),
    }
}

//! Which back end a run gets, and how many threads: what the plan says, what it declares, what the host allows.

use crate::failure::Failure;
use crate::kernel::{tap, uring};
use crate::plan::{BackEndPlan, Plan};
use std::io;
use timebound_model::declaration::{ArrivalDecl, Declaration, ReleaseDecl};

/// Frames per second (in and out, copies counted) that the packet ring is trusted with on one core. Measured by `bench-live` at
/// 150,000 to 200,000; what is left over is for bursts and for frames that nobody declared.
const RING_CARRIES: f64 = 100_000.0;
const MOST_THREADS: usize = 16;
/// With so few CPUs the nodes' own programs need the others.
const FEW_CPUS: usize = 3;

/// How frames are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackEnd {
    Ring,
    Tap,
}

impl BackEnd {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tap => "tap",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) back_end: BackEnd,
    pub(crate) threads: usize,
    pub(crate) back_pressure: bool,
    /// In words, for the report.
    pub(crate) reason: String,
}

/// Decides for a plan, in the sandbox.
///
/// # Errors
/// When the plan insists on what the host does not allow.
pub(crate) fn decide(plan: &Plan) -> Result<Choice, Failure> {
    // An interface that is not ours to read is seen by the packet ring alone.
    let hardware = plan.hosts.iter().find(|host| host.hardware.is_some());
    let (back_end, reason) = match plan.data_plane.back_end {
        BackEndPlan::Tap if plan.switches.is_some() => {
            return Err(Failure::Host(
                "the TAP back end carries light-weight nodes only, and there are real switches: take data-plane.back-end: ring".to_owned(),
            ));
        }
        BackEndPlan::Auto if plan.switches.is_some() => {
            (BackEnd::Ring, "real switches are attached".to_owned())
        }
        BackEndPlan::Tap if hardware.is_some() => {
            return Err(Failure::Host(
                "the TAP back end carries light-weight nodes only, and there is hardware or a virtual machine among them: take \
                 data-plane.back-end: ring"
                    .to_owned(),
            ));
        }
        BackEndPlan::Auto if hardware.is_some() => (
            BackEnd::Ring,
            "hardware or a virtual machine is attached".to_owned(),
        ),
        BackEndPlan::Ring => (BackEnd::Ring, "the scenario asks for it".to_owned()),
        BackEndPlan::Tap => {
            check_tap().map_err(|error| {
                Failure::Host(format!(
                    "the TAP back end is not possible here: {error}; it needs /dev/net/tun and io_uring (Linux 6.7, \
                     kernel.io_uring_disabled=0): take data-plane.back-end: ring"
                ))
            })?;
            (BackEnd::Tap, "the scenario asks for it".to_owned())
        }
        BackEndPlan::Auto => by_load(declared_load(&plan.network), check_tap),
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = match plan.data_plane.threads {
        Some(threads) if threads as usize > MOST_THREADS => {
            return Err(Failure::internal(
                "plan: data_plane.threads",
                format!("at most {MOST_THREADS}"),
            ));
        }
        Some(threads) => threads as usize,
        None => by_cpus(cpus),
    };
    Ok(Choice {
        back_end,
        threads,
        back_pressure: plan.data_plane.back_pressure,
        reason,
    })
}

fn by_load(load: f64, tap: impl FnOnce() -> io::Result<()>) -> (BackEnd, String) {
    if load <= RING_CARRIES {
        let reason =
            format!("{load:.0} frames/s are declared, which the ring carries with the better stamps");
        return (BackEnd::Ring, reason);
    }
    let more = format!("{load:.0} frames/s are declared, more than the ring carries ({RING_CARRIES:.0})");
    match tap() {
        Ok(()) => (BackEnd::Tap, more),
        Err(error) => (
            BackEnd::Ring,
            format!("{more}, but TAP is not possible here: {error}"),
        ),
    }
}

fn by_cpus(cpus: usize) -> usize {
    if cpus <= FEW_CPUS { 0 } else { (cpus - 2).min(4) }
}

fn check_tap() -> io::Result<()> {
    // An index that no device of ours has; it is gone when the descriptor is.
    tap::create("tbcheck", 9_999).map_err(|error| io::Error::other(format!("/dev/net/tun: {error}")))?;
    uring::check_host().map_err(|error| io::Error::other(format!("io_uring: {error}")))
}

/// Frames per second that come in and go out by what is declared; nothing is known of streams without a promise or a rate.
fn declared_load(network: &Declaration) -> f64 {
    let streams = network.streams.iter();
    streams
        .map(|stream| {
            let per_second = match (&stream.arrival, &stream.release) {
                (
                    ArrivalDecl::Periodic {
                        period_ns,
                        frames_bytes,
                        ..
                    },
                    _,
                ) => frames_bytes.len() as f64 * 1e9 / *period_ns.max(&1) as f64,
                (_, ReleaseDecl::Poisson { mean_gap_ns, .. }) => 1e9 / *mean_gap_ns.max(&1) as f64,
                (_, ReleaseDecl::Constant { gap_ns, .. }) => 1e9 / *gap_ns.max(&1) as f64,
                (_, ReleaseDecl::Burst { gap_ns, frames, .. }) => {
                    f64::from(*frames) * 1e9 / *gap_ns.max(&1) as f64
                }
                _ => 0.0,
            };
            per_second * (1 + stream.destinations.len()) as f64 / 2.0
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_left_only_for_what_it_cannot_carry_and_only_where_tap_works() {
        assert_eq!(by_load(99_000.0, || unreachable!("not asked")).0, BackEnd::Ring);
        assert_eq!(by_load(300_000.0, || Ok(())).0, BackEnd::Tap);
        let (back_end, reason) = by_load(300_000.0, || Err(io::Error::other("no such device")));
        assert_eq!(back_end, BackEnd::Ring);
        assert!(
            reason.contains("no such device") && reason.contains("300000"),
            "{reason}"
        );
    }

    #[test]
    fn few_cpus_get_no_threads() {
        assert_eq!([1, 2, 3, 4, 5, 8, 64].map(by_cpus), [0, 0, 0, 2, 3, 4, 4]);
    }

    #[test]
    fn the_load_is_that_of_all_copies() {
        let network: Declaration = serde_json::from_str(
            r#"{"nodes": [{"name": "a", "kind": "host"}, {"name": "b", "kind": "host"}, {"name": "c", "kind": "host"}], "links": [], "streams": [
                {"name": "x", "source": "a", "destinations": ["b"], "class": 1, "role": "data", "release": {"kind": "silent"},
                 "arrival": {"kind": "periodic", "period_ns": 1000000, "jitter_ns": 0, "frames_bytes": [1538, 200]}},
                {"name": "y", "source": "a", "destinations": ["b", "c"], "class": 0, "role": "background",
                 "arrival": {"kind": "unbounded", "max_frame_bytes": 1538}, "release": {"kind": "constant", "gap_ns": 100000, "frame_bytes": 500}}]}"#,
        )
        .unwrap();
        // One in and one out count as one frame carried, as in the benchmark; one in and two out as one and a half.
        assert!((declared_load(&network) - (2_000.0 + 15_000.0)).abs() < 1e-6);
    }
}

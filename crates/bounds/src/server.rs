//! The response time of one first-in-first-out server that is no port: a broker, through which packets of many flows pass.
//!
//! The server works on one packet at a time, in the order of their arrival, for at most the packet's declared work, and is never idle while
//! one waits. It is a port of one class without anything above or below it: with `S(t) = sum of (floor((t + J) / T) + 1) C`, a packet that
//! arrives `t` after the start of a busy period is done at `S(t)` at the latest, so that none stays longer than `max over t of
//! S(t) - t` (Martin and Minet 2006, with neither blocking nor higher priorities; see [`crate::level`] for which `t`). The maximum is one for
//! all packets: which of those that meet comes last is nobody's choice.

use crate::bundle::Bundle;
use crate::demand::{Demand, Effort, HORIZON, surely_fits};
use crate::level::{Level, Scratch};
use crate::result::Utilisation;
use serde::Serialize;
use timebound_model::Span;

/// Packets that pass the server again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Least time between two nominal arrivals; zero is taken as 1 ns.
    pub period: Span,
    /// How much later than its nominal time a packet can arrive.
    pub jitter: Span,
    /// The longest that the server works on one.
    pub work: Span,
}

/// How long packets stay in the server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Service {
    /// Every packet has been dealt with so long after its arrival.
    Response {
        response_ns: Span,
        utilisation: Utilisation,
    },
    /// The jobs need all of the server's time, or more: queues can grow without limit.
    Overloaded { utilisation: Utilisation },
    /// Some time lies above the analysis' horizon (about 31 years).
    TooLong,
}

/// The response time of a first-in-first-out server.
///
/// Ends on any input: beyond a limit of computing the staircases are replaced by the straight lines above them, which is safe.
#[must_use]
pub fn server(jobs: &[Job]) -> Service {
    let busy = || jobs.iter().filter(|job| job.work.0 > 0);
    if busy().any(|job| job.jitter.0 > HORIZON || job.work.0 > HORIZON) {
        return Service::TooLong;
    }
    // A shorter period only means more arrivals.
    let demands: Vec<Demand> = busy()
        .map(|job| Demand::new(job.period.0.clamp(1, HORIZON), job.work.0, job.jitter.0))
        .collect();
    let utilisation = Utilisation::of(&demands);
    let shares = demands.iter().map(|demand| u128::from(demand.share())).sum();
    if !surely_fits(shares) && utilisation.is_exhausted() {
        return Service::Overloaded { utilisation };
    }
    let packets = Level {
        blocking: 0,
        same: std::iter::once(Bundle::plain(&demands)),
        higher: std::iter::empty(),
    };
    let (mut scratch, mut effort) = (Scratch::default(), Effort::for_hops(demands.len()));
    let responses = packets.responses(&mut scratch, &mut effort);
    match responses.and_then(|responses| responses.pending()) {
        Some(response) => Service::Response {
            response_ns: Span(response),
            utilisation,
        },
        None => Service::TooLong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn job(period: u64, jitter: u64, work: u64) -> Job {
        Job {
            period: Span(period),
            jitter: Span(jitter),
            work: Span(work),
        }
    }

    fn response(jobs: &[Job]) -> u64 {
        match server(jobs) {
            Service::Response { response_ns, .. } => response_ns.0,
            other => panic!("{other:?}"),
        }
    }

    /// Serves these arrivals (time, work) one after another; the longest stay.
    fn longest_stay(mut arrivals: Vec<(u64, u64)>) -> u64 {
        arrivals.sort_unstable();
        let mut free = 0;
        let mut longest = 0;
        for (at, work) in arrivals {
            free = free.max(at) + work;
            longest = longest.max(free - at);
        }
        longest
    }

    /// Arrivals of a job whose nominal times start at `phase`: the first ones as late as the jitter allows, the others on time.
    fn bunched(job: &Job, phase: u64, late_until: u64, end: u64) -> Vec<(u64, u64)> {
        (0..)
            .map(|k| phase + k * job.period.0)
            .take_while(|nominal| *nominal < end)
            .map(|nominal| (nominal.max(late_until.min(nominal + job.jitter.0)), job.work.0))
            .collect()
    }

    #[test]
    fn packets_that_meet_wait_for_each_other() {
        assert_eq!(response(&[job(100, 0, 10), job(100, 0, 20), job(70, 0, 5)]), 35);
    }

    #[test]
    fn jitter_beyond_a_period_lets_packets_of_one_flow_meet() {
        // Jitter 250 of period 100: three at once, the next 50 later, when 120 - 50 are still to do.
        assert_eq!(response(&[job(100, 250, 40)]), 120);
    }

    #[test]
    fn a_later_packet_can_wait_longest() {
        // At 0 both come: 110. The short one comes again at 4: 110 + 2 - 4. At no other time is more pending.
        assert_eq!(
            response(&[job(1_000, 0, 100), job(4, 0, 2), job(1_000, 0, 8)]),
            110
        );
        // With 3 of every 4: grows while the long one is caught up with, but never above the start.
        assert_eq!(response(&[job(1_000, 0, 100), job(4, 3, 3)]), 103 + 2);
    }

    #[test]
    fn an_exhausted_server_has_no_response() {
        let full = server(&[job(10, 0, 5), job(10, 0, 5)]);
        assert!(matches!(full, Service::Overloaded { utilisation } if utilisation.value == 1.0));
        assert!(matches!(server(&[job(0, 0, 1)]), Service::Overloaded { .. }));
    }

    #[test]
    fn nothing_to_do_takes_no_time() {
        assert_eq!(response(&[]), 0);
        assert_eq!(response(&[job(0, u64::MAX, 0)]), 0);
    }

    #[test]
    fn extreme_values_are_answered() {
        let huge = u64::MAX;
        for jobs in [
            vec![job(huge, huge, huge)],
            vec![job(huge, 0, 1), job(1, huge, 1)],
            vec![job(huge, 0, HORIZON), job(huge, 0, HORIZON)],
            vec![job(3, HORIZON, 1)],
            (0..200)
                .map(|n| job(1_000_003 + n, 999_999_999_999, 4_999))
                .collect(),
        ] {
            let _ = server(&jobs);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Every phasing of two or three jobs on a coarse grid, arrivals bunched at every instant: none stays longer, and for two jobs the
        /// bound is reached.
        #[test]
        fn no_phasing_exceeds_the_response_and_one_reaches_it(
            jobs in prop::collection::vec((2u64..9, 0u64..14, 1u64..4), 1..4)
        ) {
            let jobs: Vec<Job> = jobs.into_iter().map(|(period, jitter, work)| job(period, jitter, work)).collect();
            let bound = match server(&jobs) {
                Service::Response { response_ns, .. } => response_ns.0,
                Service::Overloaded { utilisation } => {
                    prop_assert!(jobs.iter().map(|job| job.work.0 as f64 / job.period.0 as f64).sum::<f64>() > 1.0 - 1e-9);
                    prop_assert!(utilisation.value >= 1.0);
                    return Ok(());
                }
                Service::TooLong => return Err(TestCaseError::fail("small numbers are not too long")),
            };
            // Long enough for the busy period of such small numbers.
            let (latest, end) = (16, 700);
            let mut worst = 0;
            let phasings: u64 = jobs.iter().map(|job| job.period.0).product();
            for phasing in 0..phasings {
                let mut rest = phasing;
                let mut arrivals = Vec::new();
                for job in &jobs {
                    arrivals.extend(bunched(job, rest % job.period.0, latest, end));
                    rest /= job.period.0;
                }
                worst = worst.max(longest_stay(arrivals));
            }
            prop_assert!(worst <= bound, "{worst} > {bound}");
            prop_assert_eq!(worst, bound, "the bound is reached");
        }

        #[test]
        fn more_of_anything_never_shortens_the_response(
            jobs in prop::collection::vec((1u64..1_000_000, 0u64..3_000_000, 0u64..30_000), 1..12),
            which in any::<prop::sample::Index>(),
            jitter in 0u64..1_000_000,
            work in 0u64..1_000,
        ) {
            let before: Vec<Job> = jobs.into_iter().map(|(period, jitter, work)| job(period, jitter, work)).collect();
            let mut after = before.clone();
            let changed = &mut after[which.index(before.len())];
            changed.jitter.0 += jitter;
            changed.work.0 += work;
            let value = |service| match service {
                Service::Response { response_ns, .. } => response_ns.0,
                _ => u64::MAX,
            };
            prop_assert!(value(server(&before)) <= value(server(&after)));
        }
    }
}

//! Release times of one source: nominal times by its pattern, each late by a share of the jitter.

use crate::plan::{Pattern, Release};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// One release, in ns since the start of the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// What the pattern says.
    pub nominal_ns: u64,
    /// When to write: nominal plus the drawn share of the jitter, never before the message released before it.
    pub planned_ns: u64,
}

/// The releases of one source before a given end, in order; the same seed and flow give the same times.
#[derive(Debug, Clone)]
pub struct Releases {
    release: Release,
    random: Pcg64,
    next_nominal: u64,
    last_planned: u64,
    index: usize,
    end_ns: u64,
}

impl Releases {
    /// The releases with nominal times before `end_ns`. Each flow has its own stream of draws.
    #[must_use]
    pub fn new(release: Release, flow: u32, end_ns: u64) -> Self {
        let random = Pcg64::new(u128::from(release.seed), u128::from(flow));
        let mut releases = Self {
            next_nominal: release.offset_ns,
            release,
            random,
            last_planned: 0,
            index: 0,
            end_ns,
        };
        if matches!(releases.release.pattern, Pattern::Poisson { .. }) {
            // A Poisson process has no event at its origin: the first gap is exponential as well.
            releases.next_nominal = releases.release.offset_ns.saturating_add(releases.gap());
        }
        releases
    }

    /// Uniform in (0, 1]; never 0, so that its logarithm is finite.
    fn unit(&mut self) -> f64 {
        ((self.random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean_ns: u64) -> u64 {
        (-self.unit().ln() * mean_ns as f64) as u64
    }

    fn gap(&mut self) -> u64 {
        match self.release.pattern {
            Pattern::Periodic { period_ns } => period_ns,
            Pattern::Sporadic {
                period_ns,
                mean_extra_ns,
            } => period_ns.saturating_add(self.exponential(mean_extra_ns)),
            // Two releases at the very same time would be one burst; the least gap is 1 ns.
            Pattern::Poisson { mean_gap_ns } => self.exponential(mean_gap_ns).max(1),
            // `index` releases have been made.
            Pattern::TokenBucket { period_ns, burst } => {
                let burst = u64::from(burst.max(1));
                match self.index as u64 % (2 * burst) {
                    0 => period_ns.saturating_mul(burst),
                    done if done < burst => 0,
                    _ => period_ns,
                }
            }
            Pattern::Trace { .. } => 0,
        }
    }
}

impl Iterator for Releases {
    type Item = Due;

    fn next(&mut self) -> Option<Due> {
        let nominal_ns = match &self.release.pattern {
            Pattern::Trace { times_ns } => times_ns.get(self.index)?.saturating_add(self.release.offset_ns),
            _ => self.next_nominal,
        };
        if nominal_ns >= self.end_ns {
            return None;
        }
        self.index += 1;
        self.next_nominal = nominal_ns.saturating_add(self.gap());
        let late = match self.release.jitter_ns {
            0 => 0,
            // 128-bit product: a uniform integer in [0, jitter] without the bias of a remainder.
            jitter => ((u128::from(self.random.next_u64()) * (u128::from(jitter) + 1)) >> 64) as u64,
        };
        let planned_ns = nominal_ns.saturating_add(late).max(self.last_planned);
        self.last_planned = planned_ns;
        Some(Due {
            nominal_ns,
            planned_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn release(pattern: Pattern, jitter_ns: u64, seed: u64) -> Release {
        Release {
            offset_ns: 500,
            jitter_ns,
            pattern,
            seed,
        }
    }

    #[test]
    fn periodic_releases_fill_the_time_before_the_end() {
        let times: Vec<_> =
            Releases::new(release(Pattern::Periodic { period_ns: 1000 }, 0, 1), 0, 3500).collect();
        assert_eq!(
            times.iter().map(|due| due.nominal_ns).collect::<Vec<_>>(),
            [500, 1500, 2500]
        );
        assert!(times.iter().all(|due| due.planned_ns == due.nominal_ns));
    }

    #[test]
    fn a_token_bucket_empties_keeps_to_its_rate_and_fills_again() {
        let pattern = Pattern::TokenBucket {
            period_ns: 100,
            burst: 3,
        };
        let times: Vec<_> = Releases::new(release(pattern, 0, 1), 0, 1_650)
            .map(|due| due.nominal_ns)
            .collect();
        assert_eq!(
            times,
            [
                500, 500, 500, 600, 700, 800, 1_100, 1_100, 1_100, 1_200, 1_300, 1_400
            ]
        );
        // Four messages are never less than a period apart from the first of them.
        assert!(times.windows(4).all(|part| part[3] - part[0] >= 100));
    }

    #[test]
    fn a_poisson_source_has_its_mean_and_memoryless_gaps() {
        let end = 1_000_000_000;
        let times: Vec<_> =
            Releases::new(release(Pattern::Poisson { mean_gap_ns: 100_000 }, 0, 7), 3, end).collect();
        assert!((9_600..=10_400).contains(&times.len()), "{}", times.len());
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|pair| (pair[1].nominal_ns - pair[0].nominal_ns) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (0.9..1.1).contains(&(variance.sqrt() / mean)),
            "deviation over mean is 1 for exponential gaps"
        );
    }

    proptest! {
        #[test]
        fn releases_stay_in_their_windows(
            kind in 0..4, period_ns in 1u64..2000, extra in 0u64..500, jitter in 0u64..5000, seed: u64, flow: u32,
        ) {
            let pattern = match kind {
                0 => Pattern::Periodic { period_ns },
                1 => Pattern::Sporadic { period_ns, mean_extra_ns: extra },
                2 => Pattern::Poisson { mean_gap_ns: period_ns },
                _ => Pattern::Trace { times_ns: (0..50).map(|k| k * period_ns).collect() },
            };
            let least = match kind { 2 => 1, _ => period_ns };
            let all: Vec<_> = Releases::new(release(pattern.clone(), jitter, seed), flow, 50_000).collect();
            for due in &all {
                prop_assert!(due.nominal_ns < 50_000);
                prop_assert!((due.nominal_ns..=due.nominal_ns + jitter).contains(&due.planned_ns));
            }
            for pair in all.windows(2) {
                prop_assert!(pair[1].nominal_ns - pair[0].nominal_ns >= least);
                prop_assert!(pair[1].planned_ns >= pair[0].planned_ns);
            }
            let again: Vec<_> = Releases::new(release(pattern, jitter, seed), flow, 50_000).collect();
            prop_assert_eq!(all, again);
        }
    }
}

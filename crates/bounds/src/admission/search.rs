//! What would still be admitted: the largest rate, the smallest deadline, the lowest class.
//!
//! **Why bisection is right.** With a shorter period every staircase `floor((t + J) / T) + 1` is nowhere lower, so that no bound gets
//! shorter and no port less loaded: whatever is admitted at a period is admitted at every longer one. A token bucket lets
//! more pass at a higher token rate, and its staircase is no lower but for the rounding of its period; the rate that is
//! returned was itself admitted. A deadline changes nothing but the comparison with it, so that the smallest one is the bound. Classes
//! are not monotone (a higher one hurts others, a lower one itself): all eight are tried.

use super::Admission;
use crate::result::Outcome;
use serde::Serialize;
use timebound_model::{Arrival, Class, Rate, Span, Stream, StreamId};

/// The longest period that is tried, about 11.5 days: what a declaration may state.
const LONGEST: u64 = 1_000_000_000_000_000;

/// What would be admitted in the place of a stream, everything else of it as asked for. `None`: nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alternatives {
    /// The smallest period of a periodic stream.
    #[serde(rename = "smallest_period_ns")]
    pub smallest_period: Option<Span>,
    /// The largest token rate of a token bucket, bit/s.
    #[serde(rename = "largest_rate_bps")]
    pub largest_rate: Option<Rate>,
    /// The smallest deadline: the bound that it would have, if nothing else breaks.
    #[serde(rename = "smallest_deadline_ns")]
    pub smallest_deadline: Option<Span>,
    /// The lowest class.
    pub lowest_class: Option<Class>,
    /// Decisions that the search took.
    pub decisions: u32,
}

/// A search in the place of one stream or of none.
struct Search<'a> {
    admission: &'a mut Admission,
    replaced: Option<u32>,
    stream: &'a Stream,
    decisions: u32,
}

impl Admission {
    /// What would still be admitted in the place of `stream`, which may itself be admitted or refused, and of the one that is `replaced` by
    /// it; if none is named and one of its name is there, that is the one. Nothing changes. Takes at most 120 decisions.
    ///
    /// # Errors
    /// [`super::Misuse::Unknown`].
    pub fn alternatives(
        &mut self,
        stream: &Stream,
        replaced: Option<StreamId>,
    ) -> Result<Alternatives, super::Misuse> {
        if let Some(id) = replaced {
            self.stream(id).ok_or(super::Misuse::Unknown(id))?;
        }
        // Whoever is there would else be counted twice.
        let replaced = replaced.or_else(|| self.find(&stream.name));
        let mut search = Search {
            admission: self,
            replaced: replaced.map(|id| id.0),
            stream,
            decisions: 0,
        };
        Ok(Alternatives {
            smallest_period: search.smallest_period(),
            largest_rate: search.largest_rate(),
            smallest_deadline: search.smallest_deadline(),
            lowest_class: search.lowest_class(),
            decisions: search.decisions,
        })
    }
}

impl Search<'_> {
    fn admits(&mut self, change: impl FnOnce(&mut Stream)) -> bool {
        let mut stream = self.stream.clone();
        change(&mut stream);
        self.decisions += 1;
        (self.replaced.is_none() && self.admission.answer_ahead(&stream, false).is_some())
            || self.admission.exchange(self.replaced, stream, false).is_ok()
    }

    fn smallest_period(&mut self) -> Option<Span> {
        let Arrival::Periodic { period, .. } = self.stream.arrival else {
            return None;
        };
        let mut admits = |tried: u64| {
            self.admits(|stream| {
                if let Arrival::Periodic { period, .. } = &mut stream.arrival {
                    *period = Span(tried);
                }
            })
        };
        least(period.0.clamp(1, LONGEST), LONGEST, &mut admits).map(Span)
    }

    fn largest_rate(&mut self) -> Option<Rate> {
        let Arrival::TokenBucket { rate, .. } = self.stream.arrival else {
            return None;
        };
        // The largest rate is the least of its mirror image.
        const MOST: u64 = 10_000_000_000_000;
        let mut admits = |tried: u64| {
            self.admits(|stream| {
                if let Arrival::TokenBucket { rate, .. } = &mut stream.arrival {
                    *rate = Rate(MOST + 1 - tried);
                }
            })
        };
        let found = least(MOST + 1 - rate.0.clamp(1, MOST), MOST, &mut admits)?;
        Some(Rate(MOST + 1 - found))
    }

    fn smallest_deadline(&mut self) -> Option<Span> {
        let mut stream = self.stream.clone();
        stream.deadline = None;
        self.decisions += 1;
        let admitted = self.admission.exchange(self.replaced, stream, false).ok()?;
        let bounds = admitted.result.leaves.iter().map(|leaf| match leaf.outcome {
            Outcome::Bound { from_nominal, .. } => Some(from_nominal),
            Outcome::NoFiniteBound { .. } | Outcome::Unsupported { .. } => None,
        });
        bounds.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    fn lowest_class(&mut self) -> Option<Class> {
        (0..8)
            .map(Class)
            .find(|class| self.admits(|stream| stream.class = *class))
    }
}

/// The least value in `1..=most` that is admitted, where all above an admitted one are; begins at `first`.
fn least(first: u64, most: u64, admits: &mut impl FnMut(u64) -> bool) -> Option<u64> {
    // From the first, away by doubling steps until the answer turns.
    let (mut refused, mut admitted);
    let mut step = (first / 64).max(1);
    if admits(first) {
        (refused, admitted) = (0, first);
        while admitted > 1 {
            let tried = admitted.saturating_sub(step).max(1);
            if !admits(tried) {
                refused = tried;
                break;
            }
            admitted = tried;
            step = step.saturating_mul(2);
        }
    } else {
        refused = first;
        loop {
            if refused >= most {
                return None;
            }
            let tried = refused.saturating_add(step).min(most);
            if admits(tried) {
                admitted = tried;
                break;
            }
            refused = tried;
            step = step.saturating_mul(2);
        }
    }
    while admitted - refused > 1 {
        let middle = refused + (admitted - refused) / 2;
        if admits(middle) {
            admitted = middle;
        } else {
            refused = middle;
        }
    }
    Some(admitted)
}

#[cfg(test)]
mod tests {
    use super::least;

    #[test]
    fn bisection_finds_the_turn_in_few_steps() {
        let most = super::LONGEST;
        for turn in [1, 2, 3, 1_000, 123_456_789, most - 1, most] {
            for first in [1, 2, 999, 1_000_000, turn, most] {
                let mut steps = 0;
                let found = least(first, most, &mut |value| {
                    steps += 1;
                    value >= turn
                });
                assert_eq!(found, Some(turn));
                assert!(steps <= 105, "{steps} steps from {first} to {turn}");
            }
        }
        assert_eq!(least(5, most, &mut |_| false), None);
    }
}

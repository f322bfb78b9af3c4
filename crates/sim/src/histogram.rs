//! A histogram of durations with logarithmic buckets: bounded memory, relative error of a quantile below 1/64.

use timebound_model::Span;

/// Buckets per doubling, and the value up to which each nanosecond has its own.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// Counts of durations; holds only the range of buckets that occurred (at most about 3,800).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    first: usize,
    counts: Vec<u32>,
    total: u64,
}

fn bucket(nanos: u64) -> usize {
    if nanos < STEPS {
        return nanos as usize;
    }
    let octave = nanos.ilog2() - STEP_BITS;
    (u64::from(octave + 1) * STEPS + (nanos >> octave) - STEPS) as usize
}

/// Greatest value that falls into the bucket.
fn greatest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let octave = bucket / STEPS - 1;
    let above = u128::from(bucket % STEPS + STEPS + 1) << octave;
    u64::try_from(above - 1).unwrap_or(u64::MAX)
}

impl Histogram {
    pub fn record(&mut self, value: Span) {
        let bucket = bucket(value.0);
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let missing = self.first - bucket;
            self.counts.splice(0..0, std::iter::repeat_n(0, missing));
            self.first = bucket;
        }
        let index = bucket - self.first;
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] = self.counts[index].saturating_add(1);
        self.total += 1;
    }

    /// The least recorded value that at least this share of all values does not exceed, rounded up to the end of its bucket;
    /// `None` while empty.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Span> {
        let rank = ((share * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return Some(Span(greatest(self.first + index)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_at_most_a_bucket_too_high(mut values in proptest::collection::vec(0u64..u64::MAX / 2, 1..200), wide: bool, share in 0.0f64..=1.0) {
            if !wide {
                values.iter_mut().for_each(|value| *value %= 10_000_000);
            }
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.record(Span(*value)));
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            let found = histogram.quantile(share).unwrap().0;
            prop_assert!(found >= exact && found - exact <= exact / 64, "{} against {}", found, exact);
        }
    }

    #[test]
    fn empty_has_no_quantile() {
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}

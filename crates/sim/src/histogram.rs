//! A histogram of durations with logarithmic buckets: bounded memory, error of a quantile below 1/64 of what it has
//! above the least that is possible.

use timebound_model::Span;

/// Buckets per doubling, and the value up to which each nanosecond has its own.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// Counts by bucket; holds only the range that occurred (at most about 3,800).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Counts {
    first: usize,
    counts: Vec<u32>,
}

/// Counts of durations. From `base` on buckets refer to what a duration has above it: of a long way with little jitter that is what
/// differs. Below it they refer to the whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    base: u64,
    below: Counts,
    above: Counts,
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

impl Counts {
    fn record(&mut self, bucket: usize) {
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
    }

    /// Greatest value of each bucket, and how many there are.
    fn entries(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let buckets = self.counts.iter().enumerate();
        buckets.map(|(index, count)| (greatest(self.first + index), u64::from(*count)))
    }
}

impl Histogram {
    /// `base`: what durations have at least, as far as that is known.
    #[must_use]
    pub fn above(base: Span) -> Self {
        Self {
            base: base.0,
            ..Self::default()
        }
    }

    pub fn record(&mut self, value: Span) {
        match value.0.checked_sub(self.base) {
            Some(more) => self.above.record(bucket(more)),
            None => self.below.record(bucket(value.0)),
        }
        self.total += 1;
    }

    /// The least recorded value that at least this share of all values does not exceed, rounded up to the end of its bucket;
    /// `None` while empty.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Span> {
        let rank = ((share * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let below = self
            .below
            .entries()
            .map(|(most, count)| (most.min(self.base), count));
        let above = self
            .above
            .entries()
            .map(|(most, count)| (most.saturating_add(self.base), count));
        let mut seen = 0;
        below.chain(above).find_map(|(most, count)| {
            seen += count;
            (seen >= rank).then_some(Span(most))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_at_most_a_bucket_too_high(mut values in proptest::collection::vec(0u64..u64::MAX / 2, 1..200), (wide, base) in (any::<bool>(), 0u64..12_000_000), share in 0.0f64..=1.0) {
            if !wide {
                values.iter_mut().for_each(|value| *value %= 10_000_000);
            }
            let mut histogram = Histogram::above(Span(base));
            values.iter().for_each(|value| histogram.record(Span(*value)));
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            let found = histogram.quantile(share).unwrap().0;
            let part = exact.checked_sub(base).unwrap_or(exact);
            prop_assert!(found >= exact && found - exact <= part / 64, "{} against {}", found, exact);
        }
    }

    #[test]
    fn a_long_way_with_little_jitter_has_many_quantiles() {
        let base = 270_000_000;
        let mut histogram = Histogram::above(Span(base));
        (0..4_000).for_each(|step| histogram.record(Span(base + step * 1_000)));
        let mut found: Vec<u64> = (0..=100u32)
            .map(|percent| histogram.quantile(f64::from(percent) / 100.0).unwrap().0)
            .collect();
        found.dedup();
        assert_eq!(found.len(), 101, "once there were 3 values");
    }

    #[test]
    fn empty_has_no_quantile() {
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}

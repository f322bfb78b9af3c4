//! A histogram of times with constant relative width, so that every release can be entered without allocation.

use crate::summary::Lateness;

const SUB: u32 = 32;
const SUB_BITS: u32 = SUB.trailing_zeros();
const BUCKETS: usize = ((64 - SUB_BITS + 1) * SUB) as usize;

/// Buckets are exact below 32 ns and at most 1/32 of their value wide above.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: Box::new([0; BUCKETS]),
            count: 0,
            max: 0,
        }
    }
}

fn bucket(value: u64) -> usize {
    if value < u64::from(SUB) {
        return value as usize;
    }
    let octave = 63 - value.leading_zeros() - SUB_BITS;
    (octave * SUB) as usize + (value >> octave) as usize
}

/// The greatest value of a bucket: quantiles are never understated.
fn upper(bucket: usize) -> u64 {
    let (octave, sub) = (bucket as u32 / SUB, bucket as u64 % u64::from(SUB));
    if octave == 0 {
        return sub;
    }
    let octave = octave - 1;
    ((u64::from(SUB) + sub) << octave) + ((1u64 << octave) - 1)
}

impl Histogram {
    pub(crate) fn enter(&mut self, value: u64) {
        self.buckets[bucket(value)] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper(index).min(self.max);
            }
        }
        self.max
    }

    /// The buckets that are not empty, so that histograms of several processes can be added.
    #[must_use]
    pub(crate) fn buckets(&self) -> Vec<(u32, u64)> {
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, count)| **count > 0)
            .map(|(index, count)| (index as u32, *count))
            .collect()
    }

    /// Adds what another histogram counted.
    pub(crate) fn add(&mut self, buckets: &[(u32, u64)], max: u64) {
        for (index, count) in buckets {
            if let Some(bucket) = self.buckets.get_mut(*index as usize) {
                *bucket += count;
                self.count += count;
            }
        }
        self.max = self.max.max(max);
    }

    #[must_use]
    pub(crate) fn summary(&self) -> Lateness {
        Lateness {
            count: self.count,
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_close_and_never_too_small(mut values in proptest::collection::vec(any::<u64>(), 1..200), shift in 0u32..60) {
            let mut histogram = Histogram::default();
            for value in &mut values {
                *value >>= shift;
                histogram.enter(*value);
            }
            values.sort_unstable();
            for share in [0.5, 0.99] {
                let exact = values[((values.len() as f64 * share).ceil() as usize).max(1) - 1];
                let got = histogram.quantile(share);
                prop_assert!(got >= exact && got - exact <= exact / 32, "{} for {}", got, exact);
            }
            prop_assert_eq!(histogram.summary().max, *values.last().unwrap());
        }
    }
}

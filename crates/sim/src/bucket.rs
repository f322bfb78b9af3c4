//! A token bucket, exact: one byte is 8 10^9 tokens, of which `rate` (bit/s) come per nanosecond.

use timebound_model::Rate;

const TOKENS_PER_BYTE: u128 = 8_000_000_000;

/// Full at time zero. In any closed window of length `d` at most `burst + rate d / 8` bytes leave it.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    rate: u128,
    most: u128,
    tokens: u128,
    at: u64,
}

impl Bucket {
    pub(crate) fn new(rate: Rate, burst_bytes: u64) -> Self {
        let most = u128::from(burst_bytes) * TOKENS_PER_BYTE;
        Self {
            rate: u128::from(rate.0.max(1)),
            most,
            tokens: most,
            at: 0,
        }
    }

    /// Takes `bytes` at the earliest time from `wanted` on (and not before the last ones were taken); more than a burst at once
    /// counts as a burst.
    pub(crate) fn admit(&mut self, wanted: u64, bytes: u64) -> u64 {
        let need = (u128::from(bytes) * TOKENS_PER_BYTE).min(self.most);
        self.fill(wanted.max(self.at));
        if self.tokens < need {
            let wait = (need - self.tokens).div_ceil(self.rate);
            self.fill(self.at.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)));
        }
        self.tokens = self.tokens.saturating_sub(need);
        self.at
    }

    fn fill(&mut self, now: u64) {
        let gained = self.rate.saturating_mul(u128::from(now - self.at));
        self.tokens = self.tokens.saturating_add(gained).min(self.most);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_burst_at_once_then_at_the_rate() {
        // One byte per 8 ns.
        let mut bucket = Bucket::new(Rate(1_000_000_000), 350);
        let times: Vec<u64> = (0..6).map(|_| bucket.admit(40, 100)).collect();
        // 50 bytes are left after three: the fourth waits for 50, the others for 100 each.
        assert_eq!(times, [40, 40, 40, 440, 1_240, 2_040]);
        assert_eq!(bucket.admit(1_000_000, 350), 1_000_000);
        assert_eq!(bucket.admit(0, 1), 1_000_008, "never before the last one");
    }

    #[test]
    fn a_slow_bucket_never_overflows() {
        let mut bucket = Bucket::new(Rate(1), u64::from(u32::MAX));
        bucket.admit(0, u64::MAX);
        assert!(bucket.admit(0, u64::MAX) > 1 << 60);
        assert_eq!(bucket.admit(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(bucket.admit(u64::MAX, u64::MAX), u64::MAX);
    }
}

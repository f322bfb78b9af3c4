//! What one stream can bring to a port: a staircase.

/// No time in an analysis may exceed this (about 31 years): sums of two such times fit in 64 bits.
pub(crate) const HORIZON: u64 = 1_000_000_000_000_000_000;

/// Denominator of [`Demand::share`]. A port of ten thousand streams loses less than 10^-8 of its capacity to rounding.
pub(crate) const SHARE: u64 = 1 << 40;

/// Periodic work with jitter at a port, in nanoseconds; all times are at most [`HORIZON`]. In a closed window of length `d`:
/// `(floor((d + J) / T) + 1) C`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demand {
    period: u64,
    jitter: u64,
    weight: u64,
    /// Work that can arrive in one instant, `(floor(J / T) + 1) C`, cut just above the horizon.
    at_once: u64,
    /// Length of the window at which the next release fits in.
    first_step: u64,
    /// `C / T` in units of [`SHARE`], rounded up.
    share: u64,
}

impl Demand {
    /// `weight` is the work per period, which is not zero.
    pub(crate) fn new(period: u64, weight: u64, jitter: u64) -> Self {
        Self::with_share(period, weight, jitter, Self::share_of(period, weight))
    }
    /// The same where [`Demand::share_of`] is known already.
    pub(crate) fn with_share(period: u64, weight: u64, jitter: u64, share: u64) -> Self {
        let mut demand = Self {
            period,
            jitter,
            weight,
            at_once: 0,
            first_step: 0,
            share,
        };
        demand.set_jitter(jitter);
        demand
    }
    /// `C / T` in units of [`SHARE`], rounded up.
    pub(crate) fn share_of(period: u64, weight: u64) -> u64 {
        // Nearly every transmission time is below 16 ms; the wide division costs ten times the narrow one.
        if weight < 1 << 24 {
            return (weight * SHARE).div_ceil(period);
        }
        let scaled = (u128::from(weight) * u128::from(SHARE)).div_ceil(u128::from(period));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
    pub(crate) fn set_jitter(&mut self, jitter: u64) {
        // Within the same period nothing is divided. A new demand has no first step yet.
        let (up, down) = (
            jitter.saturating_sub(self.jitter),
            self.jitter.saturating_sub(jitter),
        );
        if up < self.first_step && self.first_step + down <= self.period {
            self.first_step = self.first_step - up + down;
            self.jitter = jitter;
            return;
        }
        self.jitter = jitter;
        if jitter < self.period {
            self.first_step = self.period - jitter;
            self.at_once = self.weight.min(HORIZON + 1);
            return;
        }
        let whole = jitter / self.period;
        self.first_step = self.period - (jitter - whole * self.period);
        self.at_once = cut(u128::from(whole) + 1, self.weight);
    }
    pub(crate) const fn jitter(&self) -> u64 {
        self.jitter
    }
    pub(crate) const fn period(&self) -> u64 {
        self.period
    }
    pub(crate) const fn weight(&self) -> u64 {
        self.weight
    }
    pub(crate) const fn at_once(&self) -> u64 {
        self.at_once
    }
    pub(crate) const fn first_step(&self) -> u64 {
        self.first_step
    }
    /// Length of the window at which the first release fits in that does not fit into this one.
    pub(crate) fn release_after(&self, window: u64) -> u64 {
        let (period, jitter) = (u128::from(self.period), u128::from(self.jitter));
        let next = ((u128::from(window) + jitter) / period + 1) * period - jitter;
        u64::try_from(next).unwrap_or(u64::MAX)
    }
    pub(crate) const fn share(&self) -> u64 {
        self.share
    }
    /// Work in a closed window of this length.
    pub(crate) fn within(&self, window: u64) -> u64 {
        let count = (u128::from(window) + u128::from(self.jitter)) / u128::from(self.period) + 1;
        cut(count, self.weight)
    }
}

/// Do demands with this sum of shares need less than the whole port, beyond doubt? `false` may also mean "nearly".
pub(crate) fn surely_fits(shares: u128) -> bool {
    shares < u128::from(SHARE)
}

/// `count * weight`, cut just above the horizon so that sums of a few cannot overflow.
fn cut(count: u128, weight: u64) -> u64 {
    count
        .saturating_mul(u128::from(weight))
        .min(u128::from(HORIZON) + 1) as u64
}

/// How much computing an analysis may still spend, so that none runs for ever.
#[derive(Debug)]
pub(crate) struct Effort {
    left: u64,
}

impl Effort {
    /// Ample for a network with so many hops of streams.
    pub(crate) const fn for_hops(hops: usize) -> Self {
        Self {
            left: (1 << 25) + 256 * hops as u64,
        }
    }
    pub(crate) const fn of(steps: u64) -> Self {
        Self { left: steps }
    }
    /// Takes `amount`, or all that is left.
    pub(crate) const fn spend(&mut self, amount: u64) {
        self.left = self.left.saturating_sub(amount);
    }
    pub(crate) const fn left(&self) -> u64 {
        self.left
    }
    pub(crate) const fn is_spent(&self) -> bool {
        self.left == 0
    }
}

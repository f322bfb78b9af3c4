//! Periodic work with jitter, and sums of it over windows.

/// In any closed window of length `d` at most `floor((d + jitter) / period) + 1` releases of `weight`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    /// In nanoseconds, at least 1.
    pub(crate) period: u64,
    pub(crate) jitter: u64,
    /// In nanoseconds of a port's time.
    pub(crate) weight: u64,
}

impl Work {
    pub(crate) fn in_window(&self, window: u64) -> u128 {
        let reach = u128::from(window) + u128::from(self.jitter);
        (reach / u128::from(self.period.max(1)) + 1).saturating_mul(u128::from(self.weight))
    }
    /// Length of the shortest window above `window` that holds one release more.
    pub(crate) fn next_step(&self, window: u64) -> u64 {
        let period = u128::from(self.period.max(1));
        let reach = u128::from(window) + u128::from(self.jitter);
        let next = (reach / period + 1) * period - u128::from(self.jitter);
        u64::try_from(next).unwrap_or(u64::MAX)
    }
    /// Share of the time in units of 2^-40, rounded up.
    pub(crate) fn share(&self) -> u128 {
        (u128::from(self.weight) << 40).div_ceil(u128::from(self.period.max(1)))
    }
}

/// The whole of the time, in the units of [`Work::share`].
pub(crate) const WHOLE: u128 = 1 << 40;

pub(crate) fn in_window(work: &[Work], window: u64) -> u128 {
    work.iter()
        .map(|work| work.in_window(window))
        .fold(0, u128::saturating_add)
}

pub(crate) fn share(work: &[Work]) -> u128 {
    work.iter().map(Work::share).sum()
}

/// The next window length at which any of them has a release more; `u64::MAX` where there is none.
pub(crate) fn next_step(work: &[Work], window: u64) -> u64 {
    work.iter()
        .map(|work| work.next_step(window))
        .min()
        .unwrap_or(u64::MAX)
}

//! Releases that are kept sorted from one evaluation to the next, and what moving them could change.

use super::steps::{Step, Steps};

/// A release after the first instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Release {
    pub(crate) at: u64,
    pub(crate) weight: u64,
    /// Its place among the bundles of its class.
    pub(crate) bundle: u32,
}

/// Releases come earlier by `by`, but none that is after `low` comes to be at or before `high`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shift {
    pub(crate) by: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Shift {
    pub(crate) const NONE: Self = Self {
        by: 0,
        low: 0,
        high: 0,
    };
    /// Never decreases with `at`, so that what is sorted stays so.
    fn of(self, at: u64) -> u64 {
        let moved = at.saturating_sub(self.by);
        if at <= self.low {
            moved.max(1)
        } else if at <= self.high {
            at
        } else {
            moved.max(self.high + 1)
        }
    }
}

/// Sorted releases, moved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sorted<'a> {
    pub(crate) list: &'a [Release],
    pub(crate) shift: Shift,
}

impl Steps for Sorted<'_> {
    fn next(&self) -> u64 {
        self.list
            .first()
            .map_or(u64::MAX, |release| self.shift.of(release.at))
    }
    fn take(&mut self, until: u64) -> Option<Step> {
        let (first, rest) = self.list.split_first()?;
        let at = self.shift.of(first.at);
        if at > until {
            return None;
        }
        self.list = rest;
        Some(Step {
            at,
            period: 0,
            weight: first.weight,
            bundle: first.bundle,
            left: u64::MAX,
        })
    }
}

/// Sorted releases as they are; some may be there in the first instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed<'a>(pub(crate) &'a [Release]);

impl Steps for Listed<'_> {
    fn next(&self) -> u64 {
        self.0.first().map_or(u64::MAX, |release| release.at)
    }
    fn take(&mut self, until: u64) -> Option<Step> {
        let (first, rest) = self.0.split_first()?;
        if first.at > until {
            return None;
        }
        self.0 = rest;
        Some(Step {
            at: first.at,
            period: 0,
            weight: first.weight,
            bundle: first.bundle,
            left: u64::MAX,
        })
    }
}

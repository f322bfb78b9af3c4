//! The latest starting time at the last port of a path, for every t that can be the worst.
//!
//! W(t) does not fall as t grows, so one sweep over rising t serves all of them: same-priority counts rise at known times t,
//! higher-priority ones at known values of W. All arithmetic is signed and 128 bits wide: sums of many times below the horizon fit.

use super::meeting::Meeting;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No time may exceed this (about 31 years).
const HORIZON: i128 = 1_000_000_000_000_000_000;

/// Denominator of shares of a port's time.
const SHARE: i128 = 1 << 40;

/// Why there is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The flows that meet the path need all of the time of one port, each counted at its slowest: t has no end.
    Endless,
    /// A time lies beyond the horizon.
    Horizon,
    /// The computing limit is reached.
    Effort,
}

/// How many steps an analysis may still take, so that none runs for ever.
#[derive(Debug)]
pub(crate) struct Effort(u64);

impl Effort {
    /// Ample for a network in which flows have so many ports altogether, and never more than some seconds.
    pub(crate) fn for_places(places: usize) -> Self {
        Self((1 << 22) + (65_536 * places as u64).min(1 << 29))
    }
    pub(crate) const fn spend(&mut self, steps: u64) {
        self.0 = self.0.saturating_sub(steps);
    }
    pub(crate) const fn is_spent(&self) -> bool {
        self.0 == 0
    }
}

/// A count `(1 + floor((x + shift) / period))+` of releases.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count {
    pub(crate) shift: i128,
    pub(crate) period: i128,
}

impl Count {
    fn at(&self, x: i128) -> i128 {
        ((x + self.shift).div_euclid(self.period) + 1).max(0)
    }
    /// The least x at which one more than `count` frames are counted.
    const fn next(&self, count: i128) -> i128 {
        count * self.period - self.shift
    }
}

/// What the formula adds up for one path, apart from t.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Same-priority meetings and the flow itself: counted at t. The cost of each by level.
    pub(crate) same: Vec<(Count, Vec<i128>)>,
    /// By level what does not depend on t.
    pub(crate) constant: Vec<i128>,
    /// By level the higher-priority counts at its W with their cost, and whether the count goes on behind the level.
    pub(crate) higher: Vec<Vec<(Count, i128, bool)>>,
    /// First t, and the length of the range.
    pub(crate) first: i128,
    pub(crate) range: i128,
}

/// The ends of the path's prefixes at which higher-priority flows leave it, and its own end: W has to be known there.
pub(crate) fn levels(path: &[u32], meetings: &[Meeting]) -> Vec<usize> {
    let mut levels: Vec<usize> = meetings
        .iter()
        .filter(|meeting| meeting.is_higher)
        .map(Meeting::last)
        .chain([path.len() - 1])
        .collect();
    levels.sort_unstable();
    levels.dedup();
    levels
}

/// The least positive fixed point of the sum of `ceil(BP / T) C` over (T, C): the length of the range of t.
pub(crate) fn busy_period(counts: &[(i128, i128)], effort: &mut Effort) -> Result<i128, Trouble> {
    let share = |(period, cost): &(i128, i128)| (cost * SHARE + period - 1).div_euclid(*period);
    if counts.iter().map(share).sum::<i128>() >= SHARE {
        return Err(Trouble::Endless);
    }
    let mut length: i128 = counts.iter().map(|(_, cost)| cost).sum();
    loop {
        if length > HORIZON {
            return Err(Trouble::Horizon);
        }
        effort.spend(counts.len() as u64);
        if effort.is_spent() {
            return Err(Trouble::Effort);
        }
        let rounded = |(period, cost): &(i128, i128)| (length + period - 1).div_euclid(*period) * cost;
        let next: i128 = counts.iter().map(rounded).sum();
        if next <= length {
            return Ok(length);
        }
        length = next;
    }
}

/// W at one level while t grows.
struct Level {
    /// Everything but the higher-priority counts that are still open here.
    base: i128,
    work: i128,
    /// Values of W at which a count rises, its index and the count so far.
    rises: BinaryHeap<Reverse<(i128, usize, i128)>>,
}

/// The maximum over t of `W(t) - t` at the last level.
pub(crate) fn latest_start(terms: &Terms, effort: &mut Effort) -> Result<i128, Trouble> {
    let mut t = terms.first;
    let end = terms.first.saturating_add(terms.range);
    let mut state: Vec<Level> = terms
        .constant
        .iter()
        .map(|constant| Level {
            base: *constant,
            work: 0,
            rises: BinaryHeap::new(),
        })
        .collect();
    let mut steps = BinaryHeap::new();
    for (index, (count, costs)) in terms.same.iter().enumerate() {
        let seen = count.at(t);
        for (level, cost) in state.iter_mut().zip(costs) {
            level.base = level.base.saturating_add(seen.saturating_mul(*cost));
        }
        steps.push(Reverse((count.next(seen), index, seen)));
    }
    let mut started = false;
    let mut worst = i128::MIN;
    loop {
        settle(terms, &mut state, &mut started, effort)?;
        let last = &state[state.len() - 1];
        worst = worst.max(last.base + last.work - t);
        let Some(Reverse((next, ..))) = steps.peek() else {
            return Ok(worst);
        };
        if *next >= end {
            return Ok(worst);
        }
        t = *next;
        while let Some(mut top) = steps.peek_mut() {
            let Reverse((at, index, seen)) = *top;
            if at > t {
                break;
            }
            let (count, costs) = &terms.same[index];
            *top = Reverse((count.next(seen + 1), index, seen + 1));
            for (level, cost) in state.iter_mut().zip(costs) {
                level.base += cost;
            }
            effort.spend(1);
        }
    }
}

/// Brings every level, nearest first, to its least fixed point.
fn settle(
    terms: &Terms,
    state: &mut [Level],
    started: &mut bool,
    effort: &mut Effort,
) -> Result<(), Trouble> {
    let begins = !std::mem::replace(started, true);
    for index in 0..state.len() {
        let (here, behind) = state[index..].split_at_mut(1);
        let level = &mut here[0];
        if level.base > HORIZON {
            return Err(Trouble::Horizon);
        }
        let mut add = |level: &mut Level, count: i128, (_, cost, goes_on): &(Count, i128, bool)| {
            let work = count.saturating_mul(*cost);
            level.work = level.work.saturating_add(work);
            if !goes_on {
                behind
                    .iter_mut()
                    .for_each(|later| later.base = later.base.saturating_add(work));
            }
        };
        if begins {
            let least = level.base;
            for (which, counted) in terms.higher[index].iter().enumerate() {
                let count = counted.0.at(least);
                add(level, count, counted);
                level.rises.push(Reverse((counted.0.next(count), which, count)));
                effort.spend(1);
            }
        }
        while let Some(Reverse((at, which, count))) = level.rises.peek().copied() {
            if at > level.base.saturating_add(level.work) {
                break;
            }
            let counted = &terms.higher[index][which];
            level.rises.pop();
            level
                .rises
                .push(Reverse((counted.0.next(count + 1), which, count + 1)));
            add(level, 1, counted);
            effort.spend(1);
            if level.base.saturating_add(level.work) > HORIZON {
                return Err(Trouble::Horizon);
            }
            if effort.is_spent() {
                return Err(Trouble::Effort);
            }
        }
        if level.base.saturating_add(level.work) > HORIZON {
            return Err(Trouble::Horizon);
        }
    }
    if effort.is_spent() {
        return Err(Trouble::Effort);
    }
    Ok(())
}

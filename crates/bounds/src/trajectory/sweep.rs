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
        Self((1 << 16) + (16_384 * places as u64).min(1 << 28))
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

/// A meeting with a more urgent flow: counted at W of every port that it shares with the path.
#[derive(Debug)]
pub(crate) struct Higher {
    pub(crate) period: i128,
    /// By level the shift of its count there, `None` where the flow is not met.
    pub(crate) shifts: Vec<Option<i128>>,
    /// By level what each release adds, 0 before they meet.
    pub(crate) costs: Vec<i128>,
}

/// What the formula adds up for one path, apart from t.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Same-priority meetings and the flow itself: counted at t. The cost of each by level.
    pub(crate) same: Vec<(Count, Vec<i128>)>,
    /// By level what does not depend on t.
    pub(crate) constant: Vec<i128>,
    pub(crate) higher: Vec<Higher>,
    /// First t, and the length of the range.
    pub(crate) first: i128,
    pub(crate) range: i128,
}

/// The ends of the path's prefixes at which W has to be known: every port at which a more urgent flow is met, and the last.
pub(crate) fn levels(path: &[u32], meetings: &[Meeting]) -> Vec<usize> {
    let is_met = |at: &usize| {
        meetings
            .iter()
            .any(|meeting| meeting.is_higher && meeting.first <= *at && *at <= meeting.last())
    };
    let last = path.len() - 1;
    (0..last).filter(is_met).chain([last]).collect()
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
    base: i128,
    /// Of more urgent flows, `counts` of them.
    work: i128,
    counts: Vec<i128>,
    /// Values of W at which a count rises, the meeting, and the count before.
    rises: BinaryHeap<Reverse<(i128, usize, i128)>>,
}

impl Level {
    const fn start(&self) -> i128 {
        self.base.saturating_add(self.work)
    }
    fn raise(&mut self, which: usize, count: i128, cost: i128) {
        let more = count - self.counts[which];
        if more > 0 {
            self.work = self.work.saturating_add(more.saturating_mul(cost));
            self.counts[which] = count;
        }
    }
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
            counts: vec![0; terms.higher.len()],
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
        worst = worst.max(last.start() - t);
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
///
/// A more urgent frame delays ours at some shared port, where it arrives before ours starts. So it is counted at W of each of them, and a count
/// holds at all later ports. Counted at `last_ij` alone, as the formula is usually written, it can be missing: where frames are
/// longer and the last port is faster, W without the frame may be a fixed point as well, at which the frame is not there yet.
fn settle(
    terms: &Terms,
    state: &mut [Level],
    started: &mut bool,
    effort: &mut Effort,
) -> Result<(), Trouble> {
    let begins = !std::mem::replace(started, true);
    for index in 0..state.len() {
        if state[index].start() > HORIZON {
            return Err(Trouble::Horizon);
        }
        if begins {
            open(terms, state, index, effort);
        }
        while let Some(Reverse((at, which, before))) = state[index].rises.peek().copied() {
            if at > state[index].start() {
                break;
            }
            let higher = &terms.higher[which];
            // A nearer port may have counted it already.
            let count = state[index].counts[which].max(before + 1);
            raise(state, index, which, count, higher);
            state[index].rises.pop();
            if let Some(count_here) = higher.count(index) {
                state[index]
                    .rises
                    .push(Reverse((count_here.next(count), which, count)));
            }
            effort.spend(1);
            if state[index].start() > HORIZON {
                return Err(Trouble::Horizon);
            }
            if effort.is_spent() {
                return Err(Trouble::Effort);
            }
        }
    }
    if effort.is_spent() {
        return Err(Trouble::Effort);
    }
    Ok(())
}

/// The first counts at a level, for the least that W can be there.
fn open(terms: &Terms, state: &mut [Level], index: usize, effort: &mut Effort) {
    let least = state[index].start();
    for (which, higher) in terms.higher.iter().enumerate() {
        let Some(here) = higher.count(index) else { continue };
        let count = here.at(least).max(state[index].counts[which]);
        raise(state, index, which, count, higher);
        state[index].rises.push(Reverse((here.next(count), which, count)));
        effort.spend(1);
    }
}

/// A count at a level, and at all behind it.
fn raise(state: &mut [Level], index: usize, which: usize, count: i128, higher: &Higher) {
    for (level, cost) in state[index..].iter_mut().zip(&higher.costs[index..]) {
        level.raise(which, count, *cost);
    }
}

impl Higher {
    fn count(&self, level: usize) -> Option<Count> {
        let shift = self.shifts[level]?;
        Some(Count {
            shift,
            period: self.period,
        })
    }
}

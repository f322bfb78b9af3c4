//! What comes in a growing window: staircases, and what links hold back of them.

use crate::bundle::{Bundle, Line, ONE};
use crate::demand::HORIZON;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Steps that a slow line of a higher class is cut into.
const PIECES: u64 = 32;

/// The next release of a demand; the earliest is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(super) at: u64,
    pub(super) period: u64,
    pub(super) weight: u64,
    pub(super) bundle: u32,
    /// Work that still comes; without end for a periodic demand.
    pub(super) left: u64,
}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A bundle whose link holds it back until `ends`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rising {
    pub(super) bundle: u32,
    pub(super) line: Line,
    pub(super) ends: u64,
}

pub(super) fn collect<'a>(
    bundles: impl Iterator<Item = Bundle<'a>>,
    reach: u64,
    steps: &mut BinaryHeap<Step>,
) {
    let mut list = std::mem::take(steps).into_vec();
    for (bundle, index) in bundles
        .zip(0u32..)
        .filter(|(bundle, _)| bundle.first_step <= reach)
    {
        let releases = bundle.demands.iter().map(|demand| {
            let first = match bundle.train {
                Some(train) => demand.release_after(train.until),
                None => demand.first_step(),
            };
            (first, demand)
        });
        let near = releases.filter(|(first, _)| *first <= reach);
        list.extend(near.map(|(first, demand)| Step {
            at: first,
            period: demand.period(),
            weight: demand.weight(),
            bundle: index,
            left: u64::MAX,
        }));
    }
    *steps = list.into();
}

/// The line of a higher class's bundle that is slow enough to count, and holds back what may come at once.
fn slow<'a>(bundle: &Bundle<'a>) -> Option<(Line, u64)> {
    let line = bundle.line.filter(|line| line.slope < ONE && line.slope > 0)?;
    let held = bundle.at_once.checked_sub(line.base).filter(|held| *held > 0)?;
    Some((line, held))
}

/// What comes at once of a bundle that comes in a train, or without any line.
pub(super) fn first_of_train(bundle: &Bundle<'_>) -> u64 {
    bundle.train.map_or(bundle.at_once, |train| train.first)
}

/// The frames of a train behind the first ones.
pub(super) fn rest_of_train<'a>(bundle: &Bundle<'a>, index: u32) -> impl Iterator<Item = Step> + use<'a> {
    let strides = bundle.train.map_or(&[][..], |train| &train.strides);
    strides.iter().map(move |stride| Step {
        at: stride.at,
        period: stride.period,
        weight: stride.weight,
        bundle: index,
        left: stride.work,
    })
}

/// What comes of it at once: the first of the steps above the line.
pub(super) fn first_piece(bundle: &Bundle<'_>) -> u64 {
    if bundle.train.is_some() {
        return first_of_train(bundle);
    }
    match slow(bundle) {
        Some((line, held)) => line.base.saturating_add(held.div_ceil(PIECES)),
        None => bundle.at_once,
    }
}

/// The other steps of a line. Each comes when the line has reached the one before, and so none comes too late.
pub(super) fn pieces(bundle: &Bundle<'_>) -> Option<Step> {
    if bundle.train.is_some() {
        return None;
    }
    let (line, held) = slow(bundle)?;
    let piece = held.div_ceil(PIECES);
    let period = ((u128::from(piece) << 32) / u128::from(line.slope)).min(u128::from(u64::MAX)) as u64;
    Some(Step {
        at: period,
        period,
        weight: piece,
        bundle: 0,
        left: held - piece,
    })
    .filter(|step| step.left > 0)
}

/// What the steps above the line of a higher class's bundle still hold back of `at_once` after `window`.
pub(crate) fn held_back(line: Line, at_once: u64, window: u64) -> u64 {
    let bundle = Bundle {
        demands: &[],
        at_once,
        first_step: u64::MAX,
        line: Some(line),
        train: None,
    };
    let held = at_once.saturating_sub(first_piece(&bundle));
    match pieces(&bundle) {
        Some(step) => held.saturating_sub((window / step.period.max(1)).saturating_mul(step.weight)),
        None => held,
    }
}

/// Releases in the order of their times.
pub(crate) trait Steps {
    /// When the next one comes; never if there is none.
    fn next(&self) -> u64;
    /// The next one that is not after `until`.
    fn take(&mut self, until: u64) -> Option<Step>;
}

impl Steps for &mut BinaryHeap<Step> {
    fn next(&self) -> u64 {
        self.peek().map_or(u64::MAX, |step| step.at)
    }
    /// Its successor takes its place.
    fn take(&mut self, until: u64) -> Option<Step> {
        let mut top = self.peek_mut().filter(|step| step.at <= until)?;
        let step = *top;
        if step.left <= step.weight {
            PeekMut::pop(top);
            return Some(Step {
                weight: step.left,
                ..step
            });
        }
        if step.left != u64::MAX {
            top.left -= step.weight;
        }
        top.at = step.at.saturating_add(step.period);
        Some(step)
    }
}

/// Work of all bundles within `t`. `None` beyond the horizon.
pub(super) fn risen(rising: &[Rising], stairs: &[(u64, Option<Line>)], t: u64, still: u64) -> Option<u64> {
    let work = rising.iter().fold(still, |sum, rising| {
        let (stair, _) = stairs[rising.bundle as usize];
        sum.saturating_add(rising.line.at(t).min(stair))
    });
    (work <= HORIZON).then_some(work)
}

/// A release at `t`: its bundle rests on its staircase or begins to rise, or rises longer. Returns the work of those that rest.
pub(super) fn climb(
    stairs: &mut [(u64, Option<Line>)],
    rising: &mut Vec<Rising>,
    step: Step,
    t: u64,
    still: u64,
) -> Option<u64> {
    let (stair, line) = &mut stairs[step.bundle as usize];
    let before = *stair;
    *stair = stair.checked_add(step.weight)?;
    let Some(line) = *line else {
        return still.checked_add(step.weight);
    };
    if let Some(rising) = rising.iter_mut().find(|rising| rising.bundle == step.bundle) {
        rising.ends = line.when(*stair);
        return Some(still);
    }
    if line.at(t) >= *stair {
        return still.checked_add(step.weight);
    }
    rising.push(Rising {
        bundle: step.bundle,
        line,
        ends: line.when(*stair),
    });
    Some(still - before)
}

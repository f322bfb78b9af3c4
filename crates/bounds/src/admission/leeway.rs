//! By how much releases may move before the responses of a level have to be worked out again.
//!
//! **The argument.** Responses never decrease with any jitter. Let `R` be those at jitters `J`, each found for a frame that arrives at
//! `t` and starts at `w` ("critical"). Suppose that since then every jitter has moved up by at most `up` or down by at most `down`, no
//! slot has more or fewer releases at once than before, and no release has passed over (or touched the span of) a critical `t` (releases
//! of the class) or `w` (those above it). Then the responses are still `R`:
//!
//! - Not more: the level was swept once more with every release earlier by `up`, but for those that would pass over a critical time,
//!   which stay behind it ([`Shift`]). Those staircases are nowhere below the present ones, and they gave `R`, too.
//! - Not less: as much as before has arrived at the critical `t`, and by `w` from above. No start before `w` is possible: the releases
//!   from above up to `w`, one after another, each came at least `down` before the work ahead of it would have been done.
//!
//! A release after `end`, the end of the busy period of that second sweep, counts only once it comes to be before it.

use super::state::RANKS;
use crate::bundle::Bundle;
use crate::demand::Effort;
use crate::level::{Level, Release, Scratch, Shift, Sorted};
use crate::settled::Outcome;

/// The most leeway that a level is tried with, in nanoseconds.
pub(super) const MOST: u64 = 1 << 20;

/// A move of all releases of a slot: where its first one was and is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Move {
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) period: u64,
}

impl Move {
    /// Does it count within the busy period?
    pub(super) fn is_before(&self, end: u64) -> bool {
        self.before.min(self.after) <= end
    }
}

/// What a level's responses bear.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leeway {
    up: u64,
    down: u64,
    /// The critical times of the class and of those above it: the first and the last.
    same: (u64, u64),
    higher: (u64, u64),
    /// How far slots of each level of the port may have moved by now.
    gone: [(u64, u64); RANKS],
}

impl Leeway {
    /// Do these moves of slots at the level `rank` of the port demand an evaluation? `own`: are they of this level itself? `end`: of the
    /// busy period.
    pub(super) fn is_left_by(&mut self, moves: &[Move], rank: usize, own: bool, end: u64) -> Left {
        let (low, high) = if own { self.same } else { self.higher };
        let (mut up, mut down) = (0, 0);
        for step in moves {
            let (a, b) = (step.before.min(step.after), step.before.max(step.after));
            if a > end {
                continue;
            }
            if step.before > end {
                return Left::Yes;
            }
            let way = if step.after < step.before {
                &mut up
            } else {
                &mut down
            };
            *way = (b - a).max(*way);
            // The last release that was or is at or before the last critical time.
            if a <= high && b + (high - a) / step.period * step.period > low {
                return Left::Yes;
            }
        }
        let gone = &mut self.gone[rank];
        gone.0 = gone.0.saturating_add(up);
        // Less before the critical time of the class itself does not count.
        gone.1 = gone.1.saturating_add(if own { 0 } else { down });
        if gone.0 > self.up || gone.1 > self.down {
            Left::Yes
        } else if up + down > 0 {
            Left::Moved
        } else {
            Left::No
        }
    }
}

/// Are the responses left?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// They are to be worked out again.
    Yes,
    /// They are the same; the case that leads to them may be another one.
    Moved,
    No,
}

/// The leeway that a level has with these releases (of the class, and above it; complete up to `horizon`), if it has as much as `up`,
/// and the end of the busy period that goes with it.
pub(super) fn leeway<'a, S, H>(
    level: &Level<S, H>,
    (same, higher): (&[Release], &[Release]),
    horizon: u64,
    (outcome, up): (&Outcome, u64),
    scratch: &mut Scratch,
) -> Option<(Leeway, u64)>
where
    S: Iterator<Item = Bundle<'a>> + Clone,
    H: Iterator<Item = Bundle<'a>> + Clone,
{
    let at_once = level
        .higher
        .clone()
        .fold(0u64, |sum, bundle| sum.saturating_add(bundle.at_once));
    let mut found = Leeway {
        up,
        down: u64::MAX,
        same: (u64::MAX, 0),
        higher: (u64::MAX, 0),
        gone: [(0, 0); RANKS],
    };
    for (own, worst) in &outcome.worst {
        let mut start = (level.blocking + worst.same).saturating_sub(*own);
        let last = start + worst.higher;
        found.same = (found.same.0.min(worst.window), found.same.1.max(worst.window));
        found.higher = (found.higher.0.min(last), found.higher.1.max(last));
        start += at_once;
        for release in higher.iter().take_while(|release| release.at <= last) {
            found.down = found.down.min(start.checked_sub(release.at)?);
            start += release.weight;
        }
        if start != last {
            return None;
        }
    }
    let moved = |list, (low, high)| Sorted {
        list,
        shift: Shift { by: up, low, high },
    };
    let lists = (moved(same, found.same), moved(higher, found.higher));
    let horizon = horizon.checked_sub(up)?;
    let responses = level.responses_of_lists(lists, horizon, scratch, &mut Effort::for_hops(0))?;
    for (own, worst) in &outcome.worst {
        if responses.of(*own)?.response != worst.response {
            return None;
        }
    }
    Some((found, responses.end()?))
}

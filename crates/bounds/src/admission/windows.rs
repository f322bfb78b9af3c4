//! Which part of a level's busy period can matter while its frames come a little later.
//!
//! **The argument.** Let every release of a level, and of those above it, be earlier by `limit`, and something of length `extra` block it besides.
//! Its work `S`, work above it `H` and with them its starts are then nowhere less than those of any level whose releases moved up by no more than
//! `limit`, and which had no more than `extra` added to it within the busy period. So a frame that even then takes no longer than what is kept of it
//! takes no longer in any such level. What is left is the part of the busy period around all others; mostly short, and often
//! nothing at all. A request that comes while this holds has to look at this part alone, with the releases as they are.
//!
//! It stays true when streams leave. It is forgotten when the responses that are kept become others, and when a stream joins the level itself,
//! which may be fed faster then. Streams that join above it, and longer blocking, are counted as what was added.

use super::Admission;
use super::state::{RANKS, State};
use super::sweep::{Shape, Span, Sweep, first_start};
use crate::level::Part;

/// By how much releases may move up at least, and how much may be added, in times of the longest frame: in the narrow window and in the wide
/// one.
const LEAST: [(u64, u64); 2] = [(24, 2), (64, 8)];

/// What is known of a level while releases move up by no more than `limit`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Window {
    limit: u64,
    extra: u64,
    /// Neither does anything count after this.
    end: u64,
    blocking: u64,
    /// Moves when it was made, see [`super::facts::Known::gone`].
    gone: u64,
    /// Work that joined since.
    joined: u64,
    /// No frame that arrives in it starts earlier.
    first: u64,
    /// None: all frames take as long as before.
    part: Option<Part>,
    is_there: bool,
}

/// The windows of a level, the narrower first.
#[derive(Debug, Clone, Default)]
pub(super) struct Windows([Window; 2]);

impl Window {
    /// Work of such demands (weight, period, jitter) that may count.
    fn work(&self, demands: impl Iterator<Item = (u64, u64, u64)>) -> u64 {
        demands.fold(0, |sum, (weight, period, jitter)| {
            let longest = self.end.saturating_add(jitter).saturating_add(self.limit);
            sum.saturating_add(weight.saturating_mul(longest / period + 1))
        })
    }

    /// Does it hold where releases come earlier by up to `by`, after all moves that are `gone`, with more `work` and this blocking?
    fn holds(&self, (by, gone): (u64, u64), work: u64, blocking: u64) -> bool {
        let earlier = by.saturating_add(gone.saturating_sub(self.gone));
        let longer = blocking.saturating_sub(self.blocking);
        let added = self.joined.saturating_add(work).saturating_add(longer);
        self.is_there && earlier <= self.limit && added <= self.extra
    }

    /// Is so much of it used up that another one is worth its while?
    fn is_used_up(&self, asked: u64, gone: u64) -> bool {
        let moved = gone.saturating_sub(self.gone);
        !self.is_there
            || moved > self.limit / 8
            || asked.saturating_add(moved) > self.limit
            || self.joined > self.extra / 4
    }
}

impl Windows {
    /// The responses of the level may be others now.
    pub(super) fn forget(&mut self) {
        self.0.iter_mut().for_each(|window| window.is_there = false);
    }

    /// Something that stands in memory where the rest does.
    pub(super) fn read(&self) -> u64 {
        self.0.iter().fold(0, |sum, window| sum ^ window.limit)
    }

    pub(super) fn is_any(&self) -> bool {
        self.0.iter().any(|window| window.is_there)
    }

    /// Work joined above the level.
    fn join(&mut self, demands: impl Iterator<Item = (u64, u64, u64)> + Clone) {
        for window in &mut self.0 {
            window.joined = window.joined.saturating_add(window.work(demands.clone()));
        }
    }
}

impl Admission {
    /// Makes the windows of a level that are used up, for releases that move up by `asked`.
    pub(super) fn make_windows(&mut self, level: usize, shape: &Shape, asked: u64) -> Option<()> {
        let (kept, gone) = (&self.state.levels[level], self.state.known[level].gone());
        let frame = kept.owns.last().map_or(0, |(frame, _)| *frame).max(kept.blocking);
        let mut limit = asked.saturating_mul(2) / 3;
        for (place, (least, frames)) in LEAST.into_iter().enumerate() {
            limit = limit.saturating_mul(3).max(frame.saturating_mul(least));
            let extra = frame.saturating_mul(frames);
            if !self.state.windows[level].0[place].is_used_up(asked, gone) {
                continue;
            }
            self.state.windows[level].0[place].is_there = false;
            let more = limit.saturating_add(extra).saturating_mul(4);
            let horizon = shape.likely.saturating_add(shape.likely / 4).saturating_add(more);
            let sweep = Sweep {
                extra,
                ..Sweep::all_earlier(horizon, limit)
            };
            let kept = &self.state.levels[level];
            let blocking = kept.blocking;
            let mut known = std::mem::take(&mut self.ahead.found);
            known.clear();
            let frames = kept.owns.iter().map(|(frame, _)| *frame);
            known.extend(frames.map(|frame| (frame, kept.now.response(frame))));
            let responses =
                self.ahead
                    .buffers
                    .sweep((&mut self.state, &self.ahead.above), level, (shape, sweep));
            let found = responses.and_then(|responses| {
                let part = responses.longer(&mut self.ahead.starts, &known)?;
                Some((part, responses.end()?))
            });
            self.ahead.found = known;
            let (part, end) = found?;
            if part.is_none() {
                self.state.known[level].learn(limit);
            }
            let first = part.map_or(0, |part| first_start(&self.state, level, (part.from, horizon)));
            self.state.windows[level].0[place] = Window {
                limit,
                extra,
                end,
                blocking,
                gone,
                joined: 0,
                first,
                part,
                is_there: true,
            };
        }
        Some(())
    }

    /// Raises what is `found` of a level's responses where they are longer, if one of its windows does for that.
    pub(super) fn look_through_window(&mut self, level: usize, by: u64, found: &mut [(u64, u64)]) -> bool {
        if self.state.levels[level].has_others || self.ahead.joins.iter().any(|(at, _)| *at as usize == level)
        {
            return false;
        }
        let Some(window) = self.window_for(level, by) else {
            return false;
        };
        let Some(part) = window.part else {
            debug_assert!(self.is_nowhere_below(level, by, found, found));
            return true;
        };
        let known = if cfg!(debug_assertions) {
            found.to_vec()
        } else {
            Vec::new()
        };
        let Some(shape) = self.shape(level) else {
            return false;
        };
        let span = Span::Part {
            from: part.from,
            to: part.to,
            first: window.first,
        };
        let sweep = Sweep::by_rises(part.reach, by, span);
        let ahead = &mut self.ahead;
        ahead.sweeps[1] += 1;
        let both = (&mut self.state, &ahead.above);
        let responses = ahead.buffers.sweep(both, level, (&shape, sweep));
        let done = responses
            .and_then(|responses| responses.longest(&mut ahead.starts, found))
            .is_some();
        debug_assert!(!done || self.is_nowhere_below(level, by, &known, found));
        done
    }

    /// Is what was `found` of a part no less than what all of the busy period says, beginning with what was `known`?
    fn is_nowhere_below(
        &mut self,
        level: usize,
        by: u64,
        known: &[(u64, u64)],
        found: &[(u64, u64)],
    ) -> bool {
        let mut all = known.to_vec();
        // Nothing is taken for granted of when frames start.
        let span = Span::Part {
            from: 0,
            to: u64::MAX,
            first: 0,
        };
        let swept = self.sweep_ahead(level, (by, span), &mut all);
        swept.is_none() || found.iter().zip(&all).all(|(found, all)| found.1 >= all.1)
    }

    /// The narrowest window that holds while releases move up by as much as `by`.
    fn window_for(&self, level: usize, by: u64) -> Option<Window> {
        let moves = (by, self.state.known[level].gone());
        let blocking = self.state.levels[level].blocking;
        let joins = self.state.demands_above(level, &self.ahead.joins);
        let mut windows = self.state.windows[level].0.iter();
        windows
            .find(|window| window.holds(moves, window.work(joins.clone()), blocking))
            .copied()
    }

    /// A stream joined for good, ahead of the bounds, and changed these levels.
    pub(super) fn join_windows(&mut self, dirty: &[u32]) {
        for &level in dirty {
            let joins = &self.ahead.joins;
            if joins.iter().any(|(at, _)| *at == level) {
                self.state.windows[level as usize].forget();
                continue;
            }
            let mut windows = std::mem::take(&mut self.state.windows[level as usize]);
            windows.join(self.state.demands_above(level as usize, joins));
            self.state.windows[level as usize] = windows;
        }
    }
}

impl State {
    /// Weight, period and jitter of those of these slots that are above a level at its port. `slots`: levels and slots.
    fn demands_above<'a>(
        &'a self,
        level: usize,
        slots: &'a [(u32, u32)],
    ) -> impl Iterator<Item = (u64, u64, u64)> + Clone + 'a {
        let above = level / RANKS * RANKS..level;
        slots
            .iter()
            .filter(move |(at, _)| above.contains(&(*at as usize)))
            .map(|(_, slot)| {
                let data = &self.slots[*slot as usize];
                let group = &self.levels[data.level as usize].groups[data.group as usize];
                let demand = &group.demands[data.place as usize];
                (demand.weight(), demand.period(), demand.jitter())
            })
    }
}

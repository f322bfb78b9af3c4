//! From a change to the numbers that follow from it: levels in order, each only if what it reads has changed.
//!
//! **What a level reads.** Its responses depend on its demands and on those above it through their work in an instant and their releases
//! up to the end of the busy period, nothing else ([`crate::level`]). So a change of jitter that moves neither costs one addition for
//! each slot behind it: the departure moves by as much as the arrival, and the responses stay. A departure that stays ends the matter.
//!
//! **Cycles.** What an analysis finds is the least fixed point. After an addition the old one lies below the new one, and iterating
//! upward from it ends at the new one, as every step is monotone. After a removal the old one lies above, and a cycle could hold itself up
//! there. Therefore a component of the order in which something may have become less begins again from below: a level whose responses
//! are what they would be at the least conceivable jitters keeps them (by monotonicity they are the same at all jitters
//! between), all others and those whose flows have changed begin at the responses of the least jitters.

use super::Admission;
use super::leeway::{Left, Move};
use super::state::{Now, RANKS};
use crate::demand::{Effort, HORIZON};
use crate::layout::NONE;
use crate::level::{Release, Scratch};
use crate::settled::NEVER;

/// How numbers may move in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moves {
    Up,
    UpAndDown,
}

/// The computing limit was reached before a fixed point.
#[derive(Debug)]
pub(super) struct Unsettled {
    /// A level of the cycle.
    pub(super) level: u32,
}

/// Buffers and counters of a transaction.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) scratch: Scratch,
    pub(super) effort: Effort,
    pub(super) evaluations: u64,
    pub(super) spared: u64,
    /// Releases above a level and its own, and moves.
    pub(super) higher: Vec<Release>,
    pub(super) same: Vec<Release>,
    pub(super) moves: Vec<Move>,
    /// Slots and their new arrivals or departures.
    times: Vec<(u32, u64)>,
}

impl Worker {
    pub(super) fn new() -> Self {
        Self {
            scratch: Scratch::default(),
            effort: Effort::for_hops(0),
            evaluations: 0,
            spared: 0,
            higher: Vec::new(),
            same: Vec::new(),
            moves: Vec::new(),
            times: Vec::new(),
        }
    }
    pub(super) fn begin(&mut self, hops: usize) {
        self.effort = Effort::for_hops(hops);
        self.evaluations = 0;
        self.spared = 0;
    }
}

impl Admission {
    /// Marks levels to be evaluated.
    pub(super) fn mark(&mut self, levels: &[u32]) {
        for &level in levels {
            self.state.levels[level as usize].must = true;
            self.queue.push(self.ranks.position[level as usize]);
        }
    }

    /// Marks a slot whose arrivals may have changed.
    pub(super) fn mark_slot(&mut self, slot: u32) {
        let data = &mut self.state.slots[slot as usize];
        if !std::mem::replace(&mut data.is_pending, true) {
            self.state.pending[data.level as usize].push(slot);
            self.queue.push(self.ranks.position[data.level as usize]);
        }
    }

    /// Forgets what is marked.
    pub(super) fn unmark(&mut self) {
        let mut from = 0;
        while let Some(position) = self.queue.next(from) {
            self.queue.remove(position);
            let level = self.ranks.order[position as usize] as usize;
            self.state.levels[level].must = false;
            for slot in std::mem::take(&mut self.state.pending[level]) {
                self.state.slots[slot as usize].is_pending = false;
            }
            from = position + 1;
        }
    }

    /// Follows what is marked to its end. With `give_up`, cycles that do not settle within the computing limit get no bound.
    pub(super) fn follow_all(&mut self, moves: Moves, give_up: bool) -> Result<(), Unsettled> {
        self.worker.begin(self.state.hops);
        let mut from = 0;
        while let Some(first) = self.queue.next(from) {
            let (start, end) = self.ranks.component[first as usize];
            if end - start == 1 {
                self.look_at(first);
                from = end;
                continue;
            }
            if moves == Moves::UpAndDown {
                self.begin_again(start, end);
            }
            self.go_round(start, end, give_up)?;
            from = end;
        }
        Ok(())
    }

    /// Round by round in the order of the component, in which inputs tend to come first.
    fn go_round(&mut self, start: u32, end: u32, give_up: bool) -> Result<(), Unsettled> {
        let (mut at, mut given_up) = (start, false);
        loop {
            let ahead = self.queue.next(at).filter(|found| *found < end);
            let found = ahead.or_else(|| self.queue.next(start).filter(|found| *found < end));
            let Some(position) = found else { return Ok(()) };
            if self.worker.effort.is_spent() && !given_up {
                if !give_up {
                    return Err(Unsettled {
                        level: self.ranks.order[position as usize],
                    });
                }
                given_up = true;
                self.give_up(start, end);
            }
            self.worker.effort.spend(1);
            self.look_at(position);
            at = position + 1;
        }
    }

    fn give_up(&mut self, start: u32, end: u32) {
        for position in start..end {
            let level = self.ranks.order[position as usize];
            if self.state.levels[level as usize].slots > 0 {
                let now = Now {
                    is_unbounded: true,
                    is_busy: true,
                    gave_up: true,
                    ..Now::default()
                };
                self.replace(level, now);
                let groups = &self.state.levels[level as usize].groups;
                let slots: Vec<u32> = groups.iter().flat_map(|group| &group.slots).copied().collect();
                slots.into_iter().for_each(|slot| self.mark_slot(slot));
            }
        }
    }

    /// Takes new arrivals of a level, evaluates it if they matter, and passes on what is news.
    ///
    /// Slots lie far apart. Short loops over all of them let the processor fetch many at a time.
    fn look_at(&mut self, position: u32) {
        let level = self.ranks.order[position as usize];
        let pending = std::mem::take(&mut self.state.pending[level as usize]);
        let is_other = self.arrive_all(level as usize, &pending);
        self.spread(level, is_other);
        self.queue.remove(position);
        let all = std::mem::take(&mut self.state.levels[level as usize].must) && self.evaluate(level);
        if all {
            let groups = std::mem::take(&mut self.state.levels[level as usize].groups);
            self.depart_all(groups.iter().flat_map(|group| &group.slots));
            self.state.levels[level as usize].groups = groups;
        } else {
            self.depart_all(pending.iter());
        }
        let kept = &mut self.state.pending[level as usize];
        if kept.is_empty() {
            *kept = pending;
            kept.clear();
        }
    }

    /// [`Admission::arrive`] of slots of one level.
    fn arrive_all(&mut self, level: usize, slots: &[u32]) -> bool {
        self.worker.moves.clear();
        let mut arrivals = std::mem::take(&mut self.worker.times);
        arrivals.clear();
        for &slot in slots {
            let data = &self.state.slots[slot as usize];
            let before = match data.parent {
                NONE => 0,
                parent => self.state.slots[parent as usize].departure,
            };
            let latest = before.saturating_add(data.traversal);
            let data = &mut self.state.slots[slot as usize];
            data.is_pending = false;
            if latest != data.latest {
                arrivals.push((slot, latest));
            }
        }
        // What comes next reads the demands at any rate.
        let groups = &self.state.levels[level].groups;
        let jitters = arrivals.iter().map(|(slot, _)| {
            let data = &self.state.slots[*slot as usize];
            groups[data.group as usize].demands[data.place as usize].jitter()
        });
        std::hint::black_box(jitters.fold(0, |all, jitter| all | jitter));
        let (mut is_other, mut up) = (false, 0);
        for &(slot, latest) in &arrivals {
            up = up.max(latest.saturating_sub(self.state.slots[slot as usize].latest));
            is_other |= self.arrive_at(slot, latest);
        }
        self.move_up(level, up);
        self.worker.times = arrivals;
        is_other
    }

    /// [`Admission::depart`] of slots of one level.
    fn depart_all<'a>(&mut self, slots: impl Iterator<Item = &'a u32>) {
        let mut departures = std::mem::take(&mut self.worker.times);
        departures.clear();
        for &slot in slots {
            let at = self.departure_of(slot);
            if at != self.state.slots[slot as usize].departure {
                departures.push((slot, at));
            }
        }
        for &(slot, at) in &departures {
            self.depart_at(slot, at);
        }
        self.worker.times = departures;
    }

    /// When frames reach a slot at the latest, from the slot before. True if that is more than a move of its releases, which are added to
    /// the moves.
    pub(super) fn arrive(&mut self, slot: u32) -> bool {
        let data = &self.state.slots[slot as usize];
        let before = match data.parent {
            NONE => 0,
            parent => self.state.slots[parent as usize].departure,
        };
        let latest = before.saturating_add(data.traversal);
        if latest == data.latest {
            return false;
        }
        let (level, up) = (data.level as usize, latest.saturating_sub(data.latest));
        self.move_up(level, up);
        self.arrive_at(slot, latest)
    }

    /// Slots of a level moved up by as much as `up`.
    fn move_up(&mut self, level: usize, up: u64) {
        if up > 0 {
            let last = (level / RANKS + 1) * RANKS;
            let transaction = self.journal.transaction;
            let (start, end) = self.ranks.component[self.ranks.position[level] as usize];
            for below in level..last {
                if end - start > 1 {
                    // Round by round moves add up.
                    self.state.known[below].forget();
                } else {
                    self.state.known[below].move_up(up, transaction);
                }
            }
        }
    }

    fn arrive_at(&mut self, slot: u32, latest: u64) -> bool {
        self.journal.slot(slot, &mut self.state);
        let data = &mut self.state.slots[slot as usize];
        data.latest = latest;
        if latest <= HORIZON {
            self.state.farthest = self.state.farthest.max(latest);
        }
        let jitter = (latest <= HORIZON).then(|| latest.saturating_sub(data.earliest));
        self.state
            .set_jitter(slot as usize, jitter, &mut self.worker.moves)
    }

    /// Marks this level and those below it at its port for which the moves of its slots matter; all, if there is more than that.
    pub(super) fn spread(&mut self, level: u32, is_other: bool) {
        if !is_other && self.worker.moves.is_empty() {
            return;
        }
        let rank = level as usize % RANKS;
        let last = (level as usize / RANKS + 1) * RANKS;
        for below in level as usize..last {
            let kept = &mut self.state.levels[below];
            if kept.slots == 0 || kept.must {
                continue;
            }
            let (end, moves) = (kept.now.end, &self.worker.moves);
            let left = match &mut kept.now.leeway {
                _ if is_other => Left::Yes,
                Some(leeway) => leeway.is_left_by(moves, rank, below == level as usize, end),
                None if moves.iter().any(|step| step.is_before(end)) => Left::Yes,
                None => Left::No,
            };
            if left == Left::Moved {
                kept.now.is_moved = true;
                self.worker.spared += 1;
            }
            if left == Left::Yes {
                kept.must = true;
                self.queue.push(self.ranks.position[below]);
            }
        }
    }

    /// The departure of a slot whose arrivals or responses changed; readers of it are marked if it did.
    pub(super) fn depart(&mut self, slot: u32) {
        let at = self.departure_of(slot);
        if at != self.state.slots[slot as usize].departure {
            self.depart_at(slot, at);
        }
    }

    fn departure_of(&self, slot: u32) -> u64 {
        let data = &self.state.slots[slot as usize];
        let now = &self.state.levels[data.level as usize].now;
        match now.response(data.own) {
            NEVER => NEVER,
            _ if data.is_late => NEVER,
            response => data.latest.max(data.earliest).saturating_add(response),
        }
    }

    fn depart_at(&mut self, slot: u32, at: u64) {
        self.journal.slot(slot, &mut self.state);
        let data = &mut self.state.slots[slot as usize];
        data.departure = at;
        if data.is_leaf {
            self.state.levels[data.level as usize].slack = None;
            let rest = &self.state.rest[slot as usize];
            self.journal.touch(rest.stream);
            if at > rest.limit {
                self.journal.suspects.push(rest.stream);
            }
        }
        if self.state.slots[slot as usize].is_chain {
            self.mark_slot(slot + 1);
            return;
        }
        let mut child = self.state.rest[slot as usize].first_child;
        while child != NONE {
            self.mark_slot(child);
            child = self.state.rest[child as usize].sibling;
        }
    }
}

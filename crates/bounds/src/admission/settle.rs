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
use super::state::{Level as Kept, Now, RANKS, Reach};
use crate::bundle::Bundle;
use crate::demand::{Effort, HORIZON};
use crate::layout::NONE;
use crate::level::{Level, Scratch};
use crate::settled::{NEVER, Outcome};

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
}

impl Worker {
    pub(super) fn new() -> Self {
        Self {
            scratch: Scratch::default(),
            effort: Effort::for_hops(0),
            evaluations: 0,
        }
    }
    pub(super) fn begin(&mut self, hops: usize) {
        self.effort = Effort::for_hops(hops);
        self.evaluations = 0;
    }
}

/// The bundles of some levels of a port.
fn bundles(levels: &[Kept], shaped: bool) -> impl Iterator<Item = Bundle<'_>> + Clone {
    let groups = levels.iter().flat_map(|level| &level.groups);
    groups.filter_map(move |group| group.bundle(shaped))
}

/// The outcome of a level and the end of its busy period.
pub(super) fn respond<'a, S, H>(
    level: &Level<S, H>,
    owns: &[(u64, u32)],
    scratch: &mut Scratch,
    effort: &mut Effort,
) -> Option<(Outcome, u64)>
where
    S: Iterator<Item = Bundle<'a>> + Clone,
    H: Iterator<Item = Bundle<'a>> + Clone,
{
    let responses = level.responses(scratch, effort)?;
    let mut worst = Vec::with_capacity(owns.len());
    for &(own, _) in owns {
        worst.push((own, responses.of(own)?));
    }
    let outcome = Outcome {
        worst,
        backlog: responses.backlog(),
        pending: responses.pending(),
    };
    Some((outcome, responses.end().unwrap_or(u64::MAX)))
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
            self.state.levels[data.level as usize].pending.push(slot);
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
            for slot in std::mem::take(&mut self.state.levels[level].pending) {
                self.state.slots[slot as usize].is_pending = false;
            }
            from = position + 1;
        }
    }

    /// Follows what is marked to its end. With `give_up`, cycles that do not settle within the computing limit get no bound.
    pub(super) fn settle(&mut self, moves: Moves, give_up: bool) -> Result<(), Unsettled> {
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
    fn look_at(&mut self, position: u32) {
        let level = self.ranks.order[position as usize];
        let pending = std::mem::take(&mut self.state.levels[level as usize].pending);
        let mut reach = Reach::NONE;
        for &slot in &pending {
            self.state.slots[slot as usize].is_pending = false;
            reach.join(self.arrive(slot));
        }
        self.spread(level, reach);
        self.queue.remove(position);
        let all = std::mem::take(&mut self.state.levels[level as usize].must) && self.evaluate(level);
        if all {
            let groups = std::mem::take(&mut self.state.levels[level as usize].groups);
            for slot in groups.iter().flat_map(|group| &group.slots) {
                self.depart(*slot);
            }
            self.state.levels[level as usize].groups = groups;
        } else {
            pending.iter().for_each(|slot| self.depart(*slot));
        }
        let kept = &mut self.state.levels[level as usize];
        if kept.pending.is_empty() {
            kept.pending = pending;
            kept.pending.clear();
        }
    }

    /// When frames reach a slot at the latest, from the slot before.
    pub(super) fn arrive(&mut self, slot: u32) -> Reach {
        let data = &self.state.slots[slot as usize];
        let before = match data.parent {
            NONE => 0,
            parent => self.state.slots[parent as usize].departure,
        };
        let latest = before.saturating_add(data.traversal);
        if latest == data.latest {
            return Reach::NONE;
        }
        self.journal.slot(slot, &mut self.state);
        let data = &mut self.state.slots[slot as usize];
        data.latest = latest;
        let jitter = (latest <= HORIZON).then(|| latest.saturating_sub(data.earliest));
        self.state.set_jitter(slot as usize, jitter)
    }

    /// Marks this level and those below it at its port for which the change matters.
    pub(super) fn spread(&mut self, level: u32, reach: Reach) {
        if !reach.at_once && reach.first_step == u64::MAX {
            return;
        }
        let last = (level as usize / RANKS + 1) * RANKS;
        for below in level as usize..last {
            let kept = &mut self.state.levels[below];
            if kept.slots > 0 && (reach.at_once || reach.first_step <= kept.now.end) {
                kept.must = true;
                self.queue.push(self.ranks.position[below]);
            }
        }
    }

    /// Works out the responses of a level; true if any of them is news.
    fn evaluate(&mut self, level: u32) -> bool {
        if self.state.levels[level as usize].slots == 0 {
            self.replace(level, Now::default());
            return false;
        }
        self.worker.evaluations += 1;
        let gave_up = self.state.levels[level as usize].now.gave_up;
        let now = if self.state.is_hopeless(level as usize) {
            Now {
                is_unbounded: true,
                gave_up,
                ..Now::default()
            }
        } else if gave_up
            || self.state.levels[level as usize].late > 0
            || self.state.is_unbounded_above(level as usize)
        {
            // Only a change of flows or of what is above can mend that; both evaluate the level.
            Now {
                is_unbounded: true,
                is_busy: true,
                gave_up,
                ..Now::default()
            }
        } else {
            self.analyse(level as usize)
        };
        self.replace(level, now)
    }

    /// Puts new responses in the place of the old ones; true if they differ.
    pub(super) fn replace(&mut self, level: u32, now: Now) -> bool {
        let kept = &mut self.state.levels[level as usize];
        let old = std::mem::replace(&mut kept.now, now);
        let turned = old.is_unbounded != kept.now.is_unbounded;
        let differs = turned || !same_responses(&old.outcome, &kept.now.outcome);
        self.journal.level(level, kept, old);
        if turned {
            // What is below it at the port has no bound either, or may have one again.
            let last = (level as usize / RANKS + 1) * RANKS;
            for below in level as usize + 1..last {
                if self.state.levels[below].slots > 0 {
                    self.mark(&[below as u32]);
                }
            }
        }
        differs
    }

    fn analyse(&mut self, index: usize) -> Now {
        let base = index / RANKS * RANKS;
        for level in &mut self.state.levels[base..=index] {
            level.groups.iter_mut().for_each(super::state::Group::refresh);
        }
        let (higher, same) = (&self.state.levels[base..index], &self.state.levels[index..=index]);
        let kept = &same[0];
        let mut found = |shaped: bool| {
            let level = Level {
                blocking: kept.blocking,
                same: bundles(same, shaped),
                higher: bundles(higher, shaped),
            };
            respond(
                &level,
                &kept.owns,
                &mut self.worker.scratch,
                &mut self.worker.effort,
            )
        };
        let is_slow = kept.groups.iter().any(super::state::Group::is_slow);
        let mut outcome = found(true);
        let slow_above = higher.iter().flat_map(|level| &level.groups);
        let any_slow = is_slow || slow_above.clone().any(super::state::Group::is_slow);
        if is_slow {
            outcome = least(outcome, found(false));
        }
        let Some((outcome, end)) = outcome else {
            return Now {
                is_unbounded: true,
                is_busy: true,
                end: u64::MAX,
                ..Now::default()
            };
        };
        let mut groups = higher.iter().chain(same).flat_map(|level| &level.groups);
        Now {
            outcome,
            is_unbounded: false,
            // Where a line rises slowly, what counts and what does not is not known so exactly.
            end: if any_slow { u64::MAX } else { end },
            is_busy: any_slow || groups.any(|group| group.has_steps(end)),
            gave_up: false,
        }
    }

    /// The departure of a slot whose arrivals or responses changed; readers of it are marked if it did.
    pub(super) fn depart(&mut self, slot: u32) {
        let data = &self.state.slots[slot as usize];
        let now = &self.state.levels[data.level as usize].now;
        let at = match now.response(data.own) {
            NEVER => NEVER,
            _ if data.is_late => NEVER,
            response => data.latest.max(data.earliest).saturating_add(response),
        };
        if at == data.departure {
            return;
        }
        self.journal.slot(slot, &mut self.state);
        let data = &mut self.state.slots[slot as usize];
        data.departure = at;
        if data.is_leaf {
            let flow = data.flow;
            self.journal.touch(flow, &mut self.state);
        }
        let mut child = self.state.slots[slot as usize].first_child;
        while child != NONE {
            self.mark_slot(child);
            child = self.state.slots[child as usize].sibling;
        }
    }
}

pub(super) fn same_responses(a: &Outcome, b: &Outcome) -> bool {
    let mut pairs = a.worst.iter().zip(&b.worst);
    a.worst.len() == b.worst.len() && pairs.all(|(a, b)| a.0 == b.0 && a.1.response == b.1.response)
}

pub(super) fn least(shaped: Option<(Outcome, u64)>, plain: Option<(Outcome, u64)>) -> Option<(Outcome, u64)> {
    match (shaped, plain) {
        (Some((shaped, end)), Some((plain, other))) => Some((shaped.or_less(plain), end.max(other))),
        (shaped, plain) => shaped.or(plain),
    }
}

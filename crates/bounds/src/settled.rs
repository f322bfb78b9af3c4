//! What an analysis has worked out so far; many threads may add to it, each at another port.

use crate::bundle::{Bundle, Sums};
use crate::cause::{Cause, Causes};
use crate::demand::Demand;
use crate::layout::{self, Layout, NONE};
use crate::level::{Level, Worst};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A departure that has no bound.
pub(crate) const NEVER: u64 = u64::MAX;

/// Demands of one port with the jitter they arrive with, and what follows from it.
#[derive(Debug, Default)]
pub(crate) struct PortWork {
    /// Where the port's slots, groups and levels begin among all.
    first_slot: usize,
    first_group: usize,
    first_level: usize,
    demands: Vec<Demand>,
    /// Per group.
    sums: Vec<Sums>,
    /// Per level.
    outcomes: Vec<Outcome>,
    /// Per slot.
    seen: Vec<Seen>,
}

/// What the report says of a slot.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) jitter: u64,
    pub(crate) response: u64,
    pub(crate) window: u64,
}

/// What a level's sweep found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// Transmission time and worst case, sorted by the former.
    pub(crate) worst: Vec<(u64, Worst)>,
    /// Work of the class that can wait, and that of all classes where none is below it; nanoseconds.
    pub(crate) backlog: Option<u64>,
    pub(crate) pending: Option<u64>,
}

/// A level's demands, and what came of them.
#[derive(Debug)]
pub(crate) struct State {
    demands: Vec<Demand>,
    sums: Vec<Sums>,
    outcome: Outcome,
}

impl State {
    pub(crate) const fn outcome(&self) -> &Outcome {
        &self.outcome
    }
}

impl Outcome {
    /// Is no response longer than that of `other`, which lists the same transmission times, but for what steps of slow lines are cut by?
    pub(crate) fn is_hardly_worse(&self, other: &Self) -> bool {
        let mut all = self.worst.iter().zip(&other.worst);
        self.worst.len() == other.worst.len()
            && all.all(|(mine, other)| mine.1.response <= other.1.response + other.1.response / 16 + 1)
    }
    /// The less of two that list the same transmission times.
    pub(crate) fn or_less(mut self, other: Self) -> Self {
        for (mine, other) in self.worst.iter_mut().zip(other.worst) {
            if other.1.response < mine.1.response {
                *mine = other;
            }
        }
        self.backlog = less(self.backlog, other.backlog);
        self.pending = less(self.pending, other.pending);
        self
    }
}

/// The less of two, where there are two.
fn less(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.zip(b).map(|(a, b)| a.min(b)).or(a).or(b)
}

impl PortWork {
    fn new(layout: &mut Layout, port: usize) -> Self {
        let demands = std::mem::take(&mut layout.demands[port]);
        let used = &layout.ports[port];
        let sums = layout.groups[used.groups.clone()].iter().map(|_| Sums::NONE);
        Self {
            first_slot: used.slots.start,
            first_group: used.groups.start,
            first_level: used.levels.start,
            seen: vec![Seen::default(); demands.len()],
            demands,
            sums: sums.collect(),
            outcomes: used.levels.clone().map(|_| Outcome::default()).collect(),
        }
    }
    pub(crate) fn demand(&self, slot: usize) -> &Demand {
        &self.demands[slot - self.first_slot]
    }
    pub(crate) fn demand_mut(&mut self, slot: usize) -> &mut Demand {
        &mut self.demands[slot - self.first_slot]
    }
    pub(crate) fn demands(&self, slots: Range<usize>) -> &[Demand] {
        &self.demands[slots.start - self.first_slot..slots.end - self.first_slot]
    }
    pub(crate) fn set_sums(&mut self, group: usize, sums: Sums) {
        self.sums[group - self.first_group] = sums;
    }
    pub(crate) fn outcome(&self, level: usize) -> &Outcome {
        &self.outcomes[level - self.first_level]
    }
    pub(crate) fn set_outcome(&mut self, level: usize, outcome: Outcome) {
        self.outcomes[level - self.first_level] = outcome;
    }
    /// What waits at a level, where another outcome says less.
    pub(crate) fn keep_less(&mut self, level: usize, other: &Outcome) {
        let outcome = &mut self.outcomes[level - self.first_level];
        outcome.backlog = less(outcome.backlog, other.backlog);
        outcome.pending = less(outcome.pending, other.pending);
    }
    pub(crate) fn set_seen(&mut self, slot: usize, seen: Seen) {
        self.seen[slot - self.first_slot] = seen;
    }
    pub(crate) fn seen(&self, slot: usize) -> Seen {
        self.seen[slot - self.first_slot]
    }
    /// What is known of a level, for [`PortWork::restore`].
    pub(crate) fn state(&self, level: &layout::Level, index: usize) -> State {
        State {
            demands: self.demands(level.start..level.end).to_vec(),
            sums: self.sums[self.groups_of(level)].to_vec(),
            outcome: self.outcome(index).clone(),
        }
    }
    pub(crate) fn restore(&mut self, level: &layout::Level, index: usize, state: State) {
        let slots = level.start - self.first_slot..level.end - self.first_slot;
        self.demands[slots].copy_from_slice(&state.demands);
        let groups = self.groups_of(level);
        self.sums[groups].copy_from_slice(&state.sums);
        self.set_outcome(index, state.outcome);
    }
    fn groups_of(&self, level: &layout::Level) -> Range<usize> {
        level.groups.start - self.first_group..level.groups.end - self.first_group
    }
    /// Largest response of a level.
    pub(crate) fn largest(&self, level: usize) -> Option<u64> {
        let worst = &self.outcome(level).worst;
        worst.iter().map(|(_, worst)| worst.response).max()
    }

    fn bundles<'a>(
        &'a self,
        layout: &'a Layout,
        groups: Range<usize>,
        shaped: bool,
    ) -> impl Iterator<Item = Bundle<'a>> + Clone {
        groups.map(move |index| {
            let group = &layout.groups[index];
            let sums = self.sums[index - self.first_group];
            Bundle {
                demands: self.demands(group.start..group.end),
                at_once: sums.at_once,
                first_step: sums.first_step,
                line: group.line.filter(|_| shaped),
                train: None,
            }
        })
    }

    /// A level as it stands, with or without line shaping.
    pub(crate) fn level<'a>(
        &'a self,
        layout: &'a Layout,
        index: usize,
        shaped: bool,
    ) -> Level<impl Iterator<Item = Bundle<'a>> + Clone, impl Iterator<Item = Bundle<'a>> + Clone> {
        let level = &layout.levels[index];
        Level {
            blocking: level.blocking,
            same: self.bundles(layout, level.groups.clone(), shaped),
            higher: self.bundles(layout, self.first_group..level.groups.start, shaped),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Settled {
    ports: Vec<Mutex<PortWork>>,
    /// Latest departure after the nominal release per slot, or [`NEVER`].
    departure: Vec<AtomicU64>,
    /// The same of frames that are numbered as they come, see `propagation/in_order.rs`; [`NEVER`] where nothing is known.
    in_order: Vec<AtomicU64>,
    /// Departures that are known from elsewhere not to be exceeded; empty where nothing is.
    caps: Vec<u64>,
    /// Why the arrivals of a slot have no bound, or [`NONE`].
    arrival_cause: Vec<AtomicU32>,
    /// Why the responses of a level have no bound, or [`NONE`].
    level_cause: Vec<AtomicU32>,
    causes: Mutex<Causes>,
}

impl Settled {
    pub(crate) fn new(layout: &mut Layout) -> Self {
        let none = |count: usize| (0..count).map(|_| AtomicU32::new(NONE)).collect();
        Self {
            ports: (0..layout.ports.len())
                .map(|port| Mutex::new(PortWork::new(layout, port)))
                .collect(),
            departure: layout
                .slots
                .iter()
                // The least conceivable, from which iterations start.
                .map(|slot| AtomicU64::new(slot.earliest.saturating_add(slot.own)))
                .collect(),
            in_order: layout.slots.iter().map(|_| AtomicU64::new(NEVER)).collect(),
            caps: Vec::new(),
            arrival_cause: none(layout.slots.len()),
            level_cause: none(layout.levels.len()),
            causes: Mutex::default(),
        }
    }
    pub(crate) fn port(&self, port: usize) -> MutexGuard<'_, PortWork> {
        self.ports[port].lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn causes(&self) -> MutexGuard<'_, Causes> {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn add_cause(&self, cause: Cause) -> u32 {
        self.causes().add(cause)
    }
    pub(crate) fn cap(&self, slot: usize) -> u64 {
        self.caps.get(slot).copied().unwrap_or(NEVER)
    }
    pub(crate) fn set_caps(&mut self, caps: Vec<u64>) {
        self.caps = caps;
    }
    pub(crate) fn departure(&self, slot: usize) -> u64 {
        self.departure[slot].load(Ordering::Relaxed)
    }
    pub(crate) fn in_order(&self, slot: usize) -> u64 {
        self.in_order[slot].load(Ordering::Relaxed)
    }
    pub(crate) fn set_in_order(&self, slot: usize, at: u64) {
        self.in_order[slot].store(at, Ordering::Relaxed);
    }
    /// What the next port takes as the latest departure from a slot.
    pub(crate) fn passed_on(&self, slot: usize) -> u64 {
        self.departure(slot).min(self.in_order(slot))
    }
    /// True if that is news.
    pub(crate) fn set_departure(&self, slot: usize, at: u64) -> bool {
        // One thread alone writes a slot, so load and store need not be one.
        let news = self.departure(slot) != at;
        self.departure[slot].store(at, Ordering::Relaxed);
        news
    }
    pub(crate) fn arrival_cause(&self, slot: usize) -> u32 {
        self.arrival_cause[slot].load(Ordering::Relaxed)
    }
    pub(crate) fn set_arrival_cause(&self, slot: usize, cause: u32) {
        self.arrival_cause[slot].store(cause, Ordering::Relaxed);
    }
    pub(crate) fn level_cause(&self, level: usize) -> u32 {
        self.level_cause[level].load(Ordering::Relaxed)
    }
    pub(crate) fn set_level_cause(&self, level: usize, cause: u32) {
        self.level_cause[level].store(cause, Ordering::Relaxed);
    }
    /// Why a frame's departure from a slot has no bound, or [`NONE`].
    pub(crate) fn departure_cause(&self, layout: &Layout, slot: usize) -> u32 {
        match self.arrival_cause(slot) {
            NONE => self.level_cause(layout.slots[slot].level as usize),
            cause => cause,
        }
    }
}

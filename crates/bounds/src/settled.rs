//! What an analysis has worked out so far; many threads may add to it, each at another port.

use crate::bundle::{Bundle, Sums};
use crate::cause::{Cause, Causes};
use crate::demand::Demand;
use crate::layout::{Layout, NONE};
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
    /// Per level: transmission time and worst case, sorted by the former.
    worst: Vec<Vec<(u64, Worst)>>,
}

impl PortWork {
    fn new(layout: &Layout, port: usize) -> Self {
        let used = &layout.ports[port];
        let demands = layout.demands[used.slots.clone()].to_vec();
        let sums = layout.groups[used.groups.clone()].iter().map(|_| Sums::NONE);
        Self {
            first_slot: used.slots.start,
            first_group: used.groups.start,
            first_level: used.levels.start,
            demands,
            sums: sums.collect(),
            worst: vec![Vec::new(); used.levels.len()],
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
    pub(crate) fn worst_mut(&mut self, level: usize) -> &mut Vec<(u64, Worst)> {
        &mut self.worst[level - self.first_level]
    }
    /// The worst case of a frame with this transmission time.
    pub(crate) fn worst(&self, level: usize, own: u64) -> Option<Worst> {
        let known = &self.worst[level - self.first_level];
        let place = known.binary_search_by_key(&own, |(own, _)| *own).ok()?;
        Some(known[place].1)
    }
    /// Largest response of a level.
    pub(crate) fn largest(&self, level: usize) -> Option<u64> {
        self.worst[level - self.first_level]
            .iter()
            .map(|(_, worst)| worst.response)
            .max()
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

    /// A level and all above it as one class.
    pub(crate) fn down_to<'a>(
        &'a self,
        layout: &'a Layout,
        index: usize,
    ) -> Level<impl Iterator<Item = Bundle<'a>> + Clone, std::iter::Empty<Bundle<'a>>> {
        let level = &layout.levels[index];
        Level {
            blocking: layout.best_effort[level.port.index()],
            same: self.bundles(layout, self.first_group..level.groups.end, true),
            higher: std::iter::empty(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Settled {
    ports: Vec<Mutex<PortWork>>,
    /// Latest departure after the nominal release per slot, or [`NEVER`].
    departure: Vec<AtomicU64>,
    /// Why the arrivals of a slot have no bound, or [`NONE`].
    arrival_cause: Vec<AtomicU32>,
    /// Why the responses of a level have no bound, or [`NONE`].
    level_cause: Vec<AtomicU32>,
    causes: Mutex<Causes>,
}

impl Settled {
    pub(crate) fn new(layout: &Layout) -> Self {
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
    pub(crate) fn departure(&self, slot: usize) -> u64 {
        self.departure[slot].load(Ordering::Relaxed)
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

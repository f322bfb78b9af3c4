//! Cycles in which something may have become less: where iterating upward may begin, see [`super::settle`].

use super::Admission;
use super::evaluate::{least, respond, same_responses};
use super::state::{Group, Now, RANKS};
use crate::bundle::{Bundle, Sums};
use crate::demand::{Demand, HORIZON};
use crate::layout::NONE;
use crate::level::Level;

impl Admission {
    /// Puts a component in a state from which iterating upward ends at the least fixed point.
    pub(super) fn begin_again(&mut self, start: u32, end: u32) {
        let mut low = Vec::new();
        let mut slots = Vec::new();
        for position in start..end {
            let level = self.ranks.order[position as usize];
            let kept = &self.state.levels[level as usize];
            slots.extend(&self.state.pending[level as usize]);
            if kept.slots == 0 || !(kept.must || kept.now.is_busy) || self.state.is_hopeless(level as usize) {
                continue;
            }
            let floor = self.floor(level as usize);
            let kept = &self.state.levels[level as usize];
            if !kept.must
                && !kept.now.is_unbounded
                && floor
                    .as_ref()
                    .is_some_and(|floor| same_responses(&floor.outcome, &kept.now.outcome))
            {
                continue;
            }
            if let Some(floor) = floor {
                self.replace(level, floor);
                low.push(level);
            }
        }
        for &level in &low {
            let groups = &self.state.levels[level as usize].groups;
            slots.extend(groups.iter().flat_map(|group| &group.slots));
        }
        for slot in slots {
            self.lower(slot, start, end);
        }
        self.mark(&low);
    }

    /// What a level answers at the least conceivable jitters.
    fn floor(&mut self, index: usize) -> Option<Now> {
        let base = index / RANKS * RANKS;
        let mut demands: Vec<Vec<Demand>> = Vec::new();
        for group in self.state.levels[base..=index]
            .iter()
            .flat_map(|level| &level.groups)
        {
            let slots = group.slots.iter().zip(&group.demands);
            let least = slots.map(|(slot, demand)| {
                let data = &self.state.slots[*slot as usize];
                let jitter = self.state.rest[*slot as usize]
                    .floor
                    .saturating_sub(data.earliest)
                    .saturating_sub(data.own);
                let mut demand = *demand;
                demand.set_jitter(jitter.min(HORIZON));
                demand
            });
            demands.push(least.collect());
        }
        let sum = |demands: &Vec<Demand>| {
            let mut sums = Sums::NONE;
            demands.iter().for_each(|demand| sums.add(demand));
            sums
        };
        let sums: Vec<_> = demands.iter().map(sum).collect();
        let own = self.state.levels[index].groups.len();
        let (above, kept) = (demands.len() - own, &self.state.levels[index]);
        let groups: Vec<_> = self.state.levels[base..=index]
            .iter()
            .flat_map(|level| &level.groups)
            .collect();
        let list = |range: std::ops::Range<usize>, shaped: bool| {
            let (demands, sums, groups) = (&demands, &sums, &groups);
            range
                .filter(|group| !demands[*group].is_empty())
                .map(move |group| Bundle {
                    demands: &demands[group],
                    at_once: sums[group].at_once,
                    first_step: sums[group].first_step,
                    line: groups[group].line.filter(|_| shaped),
                    train: None,
                })
        };
        let mut found = |shaped: bool| {
            let level = Level {
                blocking: kept.blocking,
                same: list(above..demands.len(), shaped),
                higher: list(0..above, shaped),
            };
            respond(
                &level,
                &kept.owns,
                &mut self.worker.scratch,
                &mut self.worker.effort,
            )
        };
        let mut outcome = found(true);
        if kept.groups.iter().any(Group::is_slow) {
            outcome = least(outcome, found(false));
        }
        outcome.map(|(outcome, _)| Now {
            outcome,
            is_unbounded: false,
            end: u64::MAX,
            is_busy: true,
            ..Now::default()
        })
    }

    /// Takes the arrivals of a slot as they are now, and follows its departure through the component without evaluating anything.
    fn lower(&mut self, slot: u32, start: u32, end: u32) {
        let mut todo = vec![slot];
        while let Some(slot) = todo.pop() {
            let level = self.state.slots[slot as usize].level;
            self.worker.moves.clear();
            let is_other = self.arrive(slot);
            self.spread(level, is_other);
            let before = self.state.slots[slot as usize].departure;
            self.depart(slot);
            if self.state.slots[slot as usize].departure == before {
                continue;
            }
            let mut child = self.state.rest[slot as usize].first_child;
            while child != NONE {
                let data = &self.state.slots[child as usize];
                if (start..end).contains(&self.ranks.position[data.level as usize]) {
                    todo.push(child);
                }
                child = self.state.rest[child as usize].sibling;
            }
        }
    }
}

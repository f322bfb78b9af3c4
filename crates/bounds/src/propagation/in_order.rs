//! Frames of a stream, numbered as they come.
//!
//! A stream whose jitter exceeds its period may release several frames at once. The last of them waits for all of the others, but it is not the
//! one that is released latest after its nominal time: of frames that come at once, the one with the lowest number is. Behind the port
//! such a burst is no longer than before.
//!
//! **Numbers.** Let the frames of a slot that come to a queue be numbered in the order in which they come. If frame `k` (by any numbering) comes within
//! `[n_k + Amin, n_k + Amin + J]`, where `n_k` grows by at least `T` from one to the next, so does the `k`-th that comes. A queue that is first
//! in, first out within a class keeps the order.
//!
//! **Departures.** Let frame `m` come at `t` after the start of the busy period, `u` the time at which it would come without any lateness, so
//! that `t` lies within `[u, u + J]`. Of its own slot frame `m - j` goes before it if that comes within the busy period: its latest arrival `u + J - j T`
//! is not negative. So no more than `floor((u + J) / T) + 1` of its own frames, and of everybody else what comes by `u + J`. With `x = u + J`
//! that is the work that [`crate::level`] counts for a frame that comes at `x`, if the slot itself had no jitter, and the frame leaves
//! at `x + R'` at the latest, `J + R'` after `u`. `R'` is the response with a jitter of 0 for the slot alone.
//!
//! That is how late the `k`-th frame leaves after the `k`-th nominal release, which is all that the next port asks. The bound of a frame counts from
//! its *own* release: it stays the sum of the responses along the way. Where the source has no jitter and nothing can overtake on the
//! way, the numbers are those of the releases, and both are the same.

use super::{Propagation, Worker};
use crate::bundle::Sums;
use crate::demand::{Demand, Effort};
use crate::layout::NONE;
use crate::level::Worst;
use crate::settled::{NEVER, PortWork};
use crate::special::{is_special, passes};

impl Propagation<'_> {
    /// Does the worst case of any slot count more of its own frames than would come of it without jitter?
    pub(super) fn is_bunched(&self) -> bool {
        self.layout.levels.iter().any(|level| {
            let work = self.settled.port(level.port.index());
            (level.start..level.end).any(|slot| {
                let seen = work.seen(slot);
                self.settled.departure(slot) != NEVER && is_bunched(work.demand(slot), seen.window)
            })
        })
    }

    /// By slot, see [`Propagation::keeps_order`].
    pub(super) fn ordered(&self) -> Vec<bool> {
        let mut ordered = vec![false; self.layout.slots.len()];
        for flow in self.layout.flows.iter().filter(|flow| flow.envelope.is_none()) {
            let hops = self.network.streams[flow.stream.index()].tree.hops.len();
            for slot in &self.layout.slot_of[flow.first_hop..flow.first_hop + hops] {
                let data = &self.layout.slots[*slot as usize];
                ordered[*slot as usize] = match data.parent {
                    NONE => data.traversal == 0,
                    parent => {
                        let before = &self.layout.slots[parent as usize];
                        let earliest = before.earliest.saturating_add(before.own);
                        ordered[parent as usize] && data.earliest == earliest.saturating_add(data.traversal)
                    }
                };
            }
        }
        ordered
    }

    /// The latest departure of a frame, where the numbers are those of the releases.
    pub(super) fn of_ordered(&self, slot: usize) -> u64 {
        match self.keeps_order.get(slot) {
            Some(true) => self.settled.in_order(slot),
            _ => NEVER,
        }
    }

    /// Departures of the slots of a level by number, where they are earlier than by response. Unless the level was `renewed`, those that are known
    /// stay.
    pub(super) fn number(
        &self,
        index: usize,
        work: &mut PortWork,
        renewed: bool,
        (worker, effort): (&mut Worker, &mut Effort),
    ) {
        let level = &self.layout.levels[index];
        let port = &self.network.ports[level.port.index()];
        if is_special(port) || passes(self.network, port) || self.settled.level_cause(index) != NONE {
            return;
        }
        for slot in level.start..level.end {
            let data = &self.layout.slots[slot];
            let known = self.settled.in_order(slot);
            let bucket = self.layout.flows[data.flow as usize].envelope.is_some();
            if bucket || self.settled.arrival_cause(slot) != NONE || (known != NEVER && !renewed) {
                continue;
            }
            let worst = &work.outcome(index).worst;
            let Ok(place) = worst.binary_search_by_key(&data.own, |(own, _)| *own) else {
                continue;
            };
            let (worst, demand) = (worst[place].1, *work.demand(slot));
            let response = if is_bunched(&demand, worst.window) && !effort.is_spent() {
                // Sweeps begin with all slots that are at the port, whether they send much or little.
                effort.spend((level.end - level.port_start) as u64);
                self.without_jitter(index, slot, work, (worker, effort))
                    .map_or(worst.response, |found| found.response.min(worst.response))
            } else {
                worst.response
            };
            let late = data
                .earliest
                .saturating_add(demand.jitter())
                .saturating_add(response);
            self.settled.set_in_order(slot, late.min(known));
        }
    }

    /// The worst case of a slot at this port if it had no jitter itself.
    fn without_jitter(
        &self,
        index: usize,
        slot: usize,
        work: &mut PortWork,
        (worker, effort): (&mut Worker, &mut Effort),
    ) -> Option<Worst> {
        let groups = self.layout.levels[index].groups.clone();
        let group = groups.into_iter().find(|group| {
            (self.layout.groups[*group].start..self.layout.groups[*group].end).contains(&slot)
        })?;
        let bounds = &self.layout.groups[group];
        let jitter = work.demand(slot).jitter();
        let set = |work: &mut PortWork, jitter: u64| {
            work.demand_mut(slot).set_jitter(jitter);
            let sums = Sums::of(work.demands(bounds.start..bounds.end));
            work.set_sums(group, sums);
        };
        set(work, 0);
        std::mem::swap(&mut worker.effort, effort);
        let own = self.layout.slots[slot].own;
        let found = self.least_outcome(index, work, worker);
        std::mem::swap(&mut worker.effort, effort);
        set(work, jitter);
        let worst = found?.worst;
        let place = worst.binary_search_by_key(&own, |(own, _)| *own).ok()?;
        Some(worst[place].1)
    }
}

/// Does a window hold more frames than would come in it without jitter?
fn is_bunched(demand: &Demand, window: u64) -> bool {
    demand.within(window) > Demand::new(demand.period(), demand.weight(), 0).within(window)
}

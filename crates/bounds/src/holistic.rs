//! The holistic approach, safe form: response times port by port, release jitter carried from port to port.
//!
//! ```text
//! start:     Amax = J, Amin = 0
//! each port: Amax += R + propagation + link jitter + SDmax;   Amin += C + propagation + SDmin
//! J at the next port = Amax - Amin
//! ```
//!
//! Source: Tindell and Clark 1994 (holistic analysis), with the corrections that ARCHITECTURE.md's order of truth asks for; see
//! [`crate::port`] for `R`. A branch of a multicast tree starts from the `Amax` and `Amin` of its own parent.
//!
//! **Order.** A class at a port reads the jitter of its own and of all higher classes there, never that of lower ones. Classes at
//! ports are therefore settled in the order of that relation: once each where it has no cycle, and by iteration from
//! below where routes close one. The iteration ends at a fixed point, and any fixed point is safe: were some frame the first of all to
//! exceed its `R`, everything that arrived before would have kept its jitter, and `R` covers exactly that. It is the least one because
//! every step is monotone. Where it does not end (a time above the horizon, or the computing limit) there is no bound, and the
//! reason says so.

use crate::cause::{self, Cause, Causes, Kind};
use crate::layout::{Layout, NONE};
use crate::options::Options;
use crate::order;
use crate::port::{self, Class, Effort, HORIZON};
use crate::report;
use crate::result::{Analysis, Utilisation};
use std::collections::BTreeSet;
use timebound_model::{Discipline, Network};

/// Worst-case latency bounds by the safe holistic approach.
///
/// A bound holds for every frame that is delivered, as long as each source keeps to its declared period and jitter, the classes carry what
/// is declared, and undeclared traffic stays below every declared class of a strict-priority port with frames of at most
/// [`Network::best_effort_frame`]. At a FIFO port nothing is below anything: one undeclared frame is allowed for, steady undeclared
/// traffic voids the bound unless it is declared.
#[must_use]
pub fn holistic(network: &Network, options: &Options) -> Analysis {
    let layout = Layout::new(network, options);
    let mut pass = Propagation::new(network, layout);
    for component in order::components(&pass.inputs()) {
        pass.settle_component(&component);
    }
    report::assemble(&mut pass)
}

/// Arrival and response times of every slot as far as they are settled.
#[derive(Debug)]
pub(crate) struct Propagation<'a> {
    pub(crate) network: &'a Network,
    pub(crate) layout: Layout,
    /// Latest arrival in the queue after the nominal release (Amax), per slot.
    pub(crate) latest: Vec<u64>,
    /// Response time per slot.
    pub(crate) response: Vec<u64>,
    /// Why the arrivals of a slot have no bound, or [`NONE`].
    pub(crate) arrival_cause: Vec<u32>,
    /// Why the responses of a level have no bound, or [`NONE`].
    pub(crate) level_cause: Vec<u32>,
    pub(crate) causes: Causes,
    pub(crate) effort: Effort,
    /// Slots that a slot feeds: `children[child_start[s]..child_start[s + 1]]`.
    child_start: Vec<u32>,
    children: Vec<u32>,
}

impl<'a> Propagation<'a> {
    fn new(network: &'a Network, layout: Layout) -> Self {
        let slots = layout.slots.len();
        let (child_start, children) = children(&layout);
        let mut pass = Self {
            network,
            latest: vec![0; slots],
            response: layout.slots.iter().map(|slot| slot.own).collect(),
            arrival_cause: vec![NONE; slots],
            level_cause: vec![NONE; layout.levels.len()],
            causes: Causes::default(),
            effort: Effort::for_hops(slots),
            child_start,
            children,
            layout,
        };
        pass.start();
        pass
    }

    /// Source jitter, the causes that no iteration changes, and the least conceivable arrivals from which iterations start.
    fn start(&mut self) {
        for index in 0..self.layout.levels.len() {
            if let Some(cause) = self.fixed_cause(index) {
                self.level_cause[index] = self.causes.add(cause);
            }
        }
        for hop in 0..self.layout.slot_of.len() {
            let slot = self.layout.slot_of[hop] as usize;
            let parent = self.layout.slots[slot].parent;
            if parent == NONE {
                let jitter = self.layout.demands[slot].jitter();
                self.arrive(slot, jitter);
            } else {
                self.depart(parent as usize, slot);
            }
        }
    }

    fn fixed_cause(&self, index: usize) -> Option<Cause> {
        let level = &self.layout.levels[index];
        if let Some(cause) = cause::unanalysable(self.network, level.port) {
            return Some(cause);
        }
        let sorts = self.network.ports[level.port.index()].discipline == Discipline::StrictPriority;
        match self.layout.ports[level.port.index()].unbounded {
            Some((class, stream)) if !sorts || class >= level.class => {
                return Some(cause::undeclared(self.network, level.port, stream));
            }
            _ => {}
        }
        let demands = self.layout.demands_down_to(level);
        if port::surely_fits(demands) {
            return None;
        }
        let load = Utilisation::of(demands);
        load.is_exhausted()
            .then(|| cause::overloaded(self.network, level, load))
    }

    /// For every level the levels that decide about it: those that feed it, and the next more urgent one at its port.
    fn inputs(&self) -> Vec<Vec<u32>> {
        let mut inputs = vec![Vec::new(); self.layout.levels.len()];
        for used in &self.layout.ports {
            for level in used.levels.clone().skip(1) {
                inputs[level].push(level as u32 - 1);
            }
        }
        for slot in self.layout.slots.iter().filter(|slot| slot.parent != NONE) {
            let (reader, input) = (slot.level as usize, self.layout.slots[slot.parent as usize].level);
            // Streams that come the same way are often neighbours.
            if inputs[reader].last() != Some(&input) {
                inputs[reader].push(input);
            }
        }
        for list in &mut inputs {
            list.sort_unstable();
            list.dedup();
        }
        inputs
    }

    fn settle_component(&mut self, component: &[u32]) {
        if let [level] = component
            && !self.feeds_itself(*level)
        {
            self.settle(*level as usize);
            return;
        }
        let inside: BTreeSet<u32> = component.iter().copied().collect();
        let mut dirty = inside.clone();
        while !dirty.is_empty() {
            for level in std::mem::take(&mut dirty) {
                if self.effort.is_spent() {
                    self.give_up(component);
                    return;
                }
                for changed in self.settle(level as usize) {
                    // Lower classes at that port read the same arrivals.
                    let port = self.layout.levels[changed as usize].port;
                    let readers = changed..self.layout.ports[port.index()].levels.end as u32;
                    dirty.extend(readers.filter(|reader| inside.contains(reader)));
                }
                self.effort.spend(1);
            }
        }
    }

    fn feeds_itself(&self, level: u32) -> bool {
        let level_data = &self.layout.levels[level as usize];
        self.layout.slots[level_data.start..level_data.end]
            .iter()
            .any(|slot| slot.parent != NONE && self.layout.slots[slot.parent as usize].level == level)
    }

    /// No fixed point was found in time: nothing in the cycle has a bound.
    fn give_up(&mut self, component: &[u32]) {
        for &level in component {
            if self.level_cause[level as usize] == NONE {
                let port = self.layout.levels[level as usize].port;
                let text = format!(
                    "routes form a cycle through port {}, and the jitter along it did not settle within the computing limit",
                    self.network.port_name(port)
                );
                self.level_cause[level as usize] =
                    self.causes.add(Cause::new(Kind::NoFiniteBound, port, text));
            }
        }
        for &level in component {
            self.settle(level as usize);
        }
    }

    /// Computes the responses of a level from what is known of its arrivals; returns the levels whose arrivals that changed.
    fn settle(&mut self, index: usize) -> Vec<u32> {
        self.spread_causes(index);
        if self.level_cause[index] == NONE && !self.respond(index) {
            let port = self.layout.levels[index].port;
            let text = format!(
                "delays at port {} exceed {HORIZON} ns",
                self.network.port_name(port)
            );
            self.level_cause[index] = self.causes.add(Cause::new(Kind::NoFiniteBound, port, text));
        }
        let mut changed = Vec::new();
        for slot in self.layout.levels[index].start..self.layout.levels[index].end {
            for child in self.child_start[slot]..self.child_start[slot + 1] {
                let child = self.children[child as usize] as usize;
                if self.depart(slot, child) {
                    changed.push(self.layout.slots[child].level);
                }
            }
        }
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// A level inherits the cause of the next more urgent one, or of the first of its slots that has one.
    fn spread_causes(&mut self, index: usize) {
        if self.level_cause[index] != NONE {
            return;
        }
        let level = &self.layout.levels[index];
        if index > self.layout.ports[level.port.index()].levels.start && self.level_cause[index - 1] != NONE {
            self.level_cause[index] = self.level_cause[index - 1];
            return;
        }
        if let Some(slot) = (level.start..level.end).find(|slot| self.arrival_cause[*slot] != NONE) {
            let flow = &self.layout.flows[self.layout.slots[slot].flow as usize];
            let rival = &self.network.streams[flow.stream.index()].name;
            self.level_cause[index] =
                self.causes
                    .spread(self.arrival_cause[slot], self.network, level.port, rival);
        }
    }

    /// Responses of all slots of a level; `false` beyond the horizon.
    fn respond(&mut self, index: usize) -> bool {
        let level = &self.layout.levels[index];
        let class = Class {
            blocking: level.blocking,
            same: &self.layout.demands[level.start..level.end],
            higher: &self.layout.demands[level.port_start..level.start],
        };
        let Some(responses) = class.responses(&mut self.effort) else {
            return false;
        };
        // Few sizes in a class: sorted and searched.
        let mut known: Vec<(u64, u64)> = Vec::new();
        for slot in level.start..level.end {
            let own = self.layout.slots[slot].own;
            let response = match known.binary_search_by_key(&own, |(own, _)| *own) {
                Ok(place) => known[place].1,
                Err(place) => {
                    let Some(response) = responses.of(own) else {
                        return false;
                    };
                    known.insert(place, (own, response));
                    response
                }
            };
            self.response[slot] = response;
        }
        true
    }

    /// Carries what is known of `slot` to its child; `true` if that is news.
    fn depart(&mut self, slot: usize, child: usize) -> bool {
        let own = self.arrival_cause[slot];
        let cause = if own == NONE {
            self.level_cause[self.layout.slots[slot].level as usize]
        } else {
            own
        };
        if cause != NONE {
            let news = self.arrival_cause[child] == NONE;
            if news {
                self.arrival_cause[child] = cause;
            }
            return news;
        }
        let latest = self.latest[slot]
            .saturating_add(self.response[slot])
            .saturating_add(self.layout.slots[child].traversal);
        self.arrive(child, latest)
    }

    fn arrive(&mut self, slot: usize, latest: u64) -> bool {
        if latest > HORIZON {
            let news = self.arrival_cause[slot] == NONE;
            if news {
                let port = self.layout.levels[self.layout.slots[slot].level as usize].port;
                let text = format!(
                    "arrivals at port {} are later than {HORIZON} ns",
                    self.network.port_name(port)
                );
                self.arrival_cause[slot] = self.causes.add(Cause::new(Kind::NoFiniteBound, port, text));
            }
            return news;
        }
        let news = self.latest[slot] != latest;
        self.latest[slot] = latest;
        let jitter = latest.saturating_sub(self.layout.slots[slot].earliest);
        self.layout.demands[slot].set_jitter(jitter);
        news
    }
}

/// The slots that each slot feeds, as one list with offsets.
fn children(layout: &Layout) -> (Vec<u32>, Vec<u32>) {
    let mut start = vec![0u32; layout.slots.len() + 1];
    for slot in layout.slots.iter().filter(|slot| slot.parent != NONE) {
        start[slot.parent as usize + 1] += 1;
    }
    for index in 1..start.len() {
        start[index] += start[index - 1];
    }
    let mut next = start.clone();
    let mut children = vec![0u32; start[layout.slots.len()] as usize];
    for (slot, index) in layout
        .slots
        .iter()
        .zip(0u32..)
        .filter(|(slot, _)| slot.parent != NONE)
    {
        let place = &mut next[slot.parent as usize];
        children[*place as usize] = index;
        *place += 1;
    }
    (start, children)
}

//! Response times port by port, release jitter carried from port to port.
//!
//! ```text
//! start:     Amax = J, Amin = 0
//! each port: Amax += R + propagation + link jitter + SDmax;   Amin += C + propagation + SDmin
//! J at the next port = Amax - Amin
//! ```
//!
//! Source: Tindell and Clark 1994 (holistic analysis), with the corrections that ARCHITECTURE.md's order of truth asks for; see
//! [`crate::level`] for `R`. In the words of network calculus: an arrival curve `a(d)` becomes `a(d + Amax - Amin)` behind a server
//! that delays by `Amin` to `Amax` (Le Boudec and Thiran 2001, theorem 1.4.3 for a delay jitter), which for the staircase of a
//! periodic stream is the same thing. A branch of a multicast tree starts from the `Amax` and `Amin` of its own parent.
//!
//! **Order.** A class at a port reads the jitter of its own and of all higher classes there, never that of lower ones. Classes at
//! ports are therefore settled in the order of that relation: once each where it has no cycle, and by iteration from
//! below where routes close one. The iteration ends at a fixed point, and any fixed point is safe: were some frame the first of all to
//! exceed its `R`, everything that arrived before would have kept its jitter, and `R` covers exactly that. It is the least one where
//! every step is monotone; the steps that a slow line of a higher class is cut into (see [`crate::level`]) are not strictly so, and a cycle
//! over such links may settle at a higher fixed point, or at none. Where it does not end (a time above the horizon, or the computing limit) there is no bound, and the
//! reason says so.

mod again;
mod in_order;

use crate::bundle::{Bundle, ONE, Sums};
use crate::cause::{self, Cause, Kind};
use crate::curves::Curves;
use crate::demand::{Effort, HORIZON, surely_fits};
use crate::layout::{Layout, NONE};
use crate::level::{Level, Scratch, Worst};
use crate::order::{self, Lists};
use crate::result::{LookedAt, Utilisation};
use crate::settled::{NEVER, Outcome, PortWork, Seen, Settled};
use crate::special::{Special, Unbounded, is_special, passes, sorts};
use timebound_model::{Discipline, Network, PortId};

/// One analysis.
#[derive(Debug)]
pub(crate) struct Propagation<'a> {
    pub(crate) network: &'a Network,
    pub(crate) layout: Layout,
    pub(crate) settled: Settled,
    /// Levels as they were settled.
    order: Lists,
    /// What slow links further back are known to hold back; nothing before [`Propagation::travel`].
    pub(crate) curves: Vec<Curves>,
    /// By slot, do frames come to it in the order of their nominal releases and nowhere later than the ports before say? Empty before
    /// [`Propagation::travel`].
    keeps_order: Vec<bool>,
    pub(crate) looked_at: Option<LookedAt>,
}

/// What one thread needs of its own.
#[derive(Debug)]
pub(crate) struct Worker {
    scratch: Scratch,
    pub(crate) effort: Effort,
}

impl Worker {
    fn new(layout: &Layout) -> Self {
        Self {
            scratch: Scratch::default(),
            effort: Effort::for_hops(layout.slots.len()),
        }
    }
}

/// What settling a level changed.
#[derive(Debug, Clone, Copy, Default)]
struct News {
    arrivals: bool,
    departures: bool,
}

impl<'a> Propagation<'a> {
    pub(crate) fn run(network: &'a Network, mut layout: Layout, threads: usize) -> Self {
        let settled = Settled::new(&mut layout);
        let mut pass = Self {
            network,
            layout,
            settled,
            order: Lists::with_capacity(0, 0),
            curves: Vec::new(),
            keeps_order: Vec::new(),
            looked_at: None,
        };
        for index in 0..pass.layout.levels.len() {
            if let Some(cause) = pass.fixed_cause(index) {
                pass.settled.set_level_cause(index, pass.settled.add_cause(cause));
            }
        }
        let inputs = pass.inputs();
        let components = order::components(&inputs);
        if threads <= 1 {
            let mut worker = Worker::new(&pass.layout);
            for component in components.iter() {
                pass.settle_component(component, &inputs, &mut worker);
            }
        } else {
            order::in_parallel(&inputs, &components, threads, |work| {
                let mut worker = Worker::new(&pass.layout);
                work.each(|component| pass.settle_component(component, &inputs, &mut worker));
            });
        }
        pass.order = components;
        pass
    }

    fn fixed_cause(&self, index: usize) -> Option<Cause> {
        let level = &self.layout.levels[index];
        if let Some(cause) = cause::unanalysable(self.network, level.port) {
            return Some(cause);
        }
        let port = &self.network.ports[level.port.index()];
        if passes(self.network, port) {
            return None;
        }
        if matches!(port.discipline, Discipline::Drr(_)) {
            // Other classes have no more than their share, whatever they promise.
            return cause::undeclared_in_class(self.network, level.port, level.class);
        }
        match self.layout.ports[level.port.index()].unbounded {
            Some((class, stream)) if !sorts(&port.discipline) || class >= level.class => {
                return Some(cause::undeclared(self.network, level.port, stream));
            }
            _ => {}
        }
        let work = self.settled.port(level.port.index());
        let demands = work.demands(level.port_start..level.end);
        if surely_fits(demands.iter().map(|demand| u128::from(demand.share())).sum()) {
            return None;
        }
        let load = Utilisation::of(demands);
        load.is_exhausted()
            .then(|| cause::overloaded(self.network, level, load))
    }

    /// For every level the levels that decide about it: those that feed it, and the next more urgent one at its port.
    fn inputs(&self) -> Lists {
        let mut lists = Lists::with_capacity(self.layout.levels.len(), self.layout.groups.len());
        for (index, level) in self.layout.levels.iter().enumerate() {
            let all = self.layout.ports[level.port.index()].levels.clone();
            if self.is_weighted(index) {
                all.filter(|other| *other != index)
                    .for_each(|other| lists.add(other as u32));
            } else if index > all.start {
                lists.add(index as u32 - 1);
            }
            for group in self.layout.groups[level.groups.clone()]
                .iter()
                .filter(|group| group.input != NONE)
            {
                // Where the port before sorts by class and this one does not, or the other way round, a group has several feeders.
                let mut last = NONE;
                let first = self.feeder(group.start);
                let alike = self.alike(group.input as usize, level.port.index());
                for slot in group.start..if alike { group.start } else { group.end } {
                    let feeder = self.feeder(slot);
                    if feeder != last {
                        lists.add(feeder);
                        last = feeder;
                    }
                }
                if alike {
                    lists.add(first);
                }
            }
            lists.close();
        }
        lists
    }

    fn alike(&self, input: usize, port: usize) -> bool {
        let sorts = |port: usize| sorts(&self.network.ports[port].discipline);
        !sorts(input) || sorts(port)
    }

    /// Does the level share its port with others by weights?
    fn is_weighted(&self, index: usize) -> bool {
        let port = &self.network.ports[self.layout.levels[index].port.index()];
        matches!(port.discipline, Discipline::Drr(_)) && !passes(self.network, port)
    }

    fn feeder(&self, slot: usize) -> u32 {
        self.layout.slots[self.layout.slots[slot].parent as usize].level
    }

    fn settle_component(&self, component: &[u32], inputs: &Lists, worker: &mut Worker) {
        if let [level] = component
            && !inputs.of(*level as usize).contains(level)
        {
            self.settle(*level as usize, worker);
            return;
        }
        // In the order of the component, in which inputs tend to come first, until nothing is new.
        let mut place = std::collections::BTreeMap::new();
        component.iter().zip(0usize..).for_each(|(level, at)| {
            place.insert(*level, at);
        });
        let mut readers = vec![Vec::new(); component.len()];
        for (at, level) in component.iter().enumerate() {
            for input in inputs.of(*level as usize) {
                if let Some(input) = place.get(input) {
                    readers[*input].push(at);
                }
            }
        }
        let mut dirty = vec![true; component.len()];
        while dirty.contains(&true) {
            for at in 0..component.len() {
                if !std::mem::take(&mut dirty[at]) {
                    continue;
                }
                if worker.effort.is_spent() {
                    self.give_up(component, worker);
                    return;
                }
                worker.effort.spend(1);
                let news = self.settle(component[at] as usize, worker);
                if news.arrivals || news.departures {
                    readers[at].iter().for_each(|reader| dirty[*reader] = true);
                    self.wake_below(component[at], &place, &mut dirty);
                }
            }
        }
    }

    /// All lower classes at a port read the arrivals of `level`, not only the next one.
    fn wake_below(&self, level: u32, place: &std::collections::BTreeMap<u32, usize>, dirty: &mut [bool]) {
        let port = self.layout.levels[level as usize].port;
        let below = level + 1..self.layout.ports[port.index()].levels.end as u32;
        below
            .filter_map(|below| place.get(&below))
            .for_each(|at| dirty[*at] = true);
    }

    /// No fixed point was found in time: nothing in the cycle has a bound.
    fn give_up(&self, component: &[u32], worker: &mut Worker) {
        for &level in component {
            if self.settled.level_cause(level as usize) == NONE {
                let port = self.layout.levels[level as usize].port;
                let text = format!(
                    "routes form a cycle through port {}, and the jitter along it did not settle within the computing limit",
                    self.network.port_name(port)
                );
                let cause = self
                    .settled
                    .add_cause(Cause::new(Kind::NoFiniteBound, port, text));
                self.settled.set_level_cause(level as usize, cause);
            }
        }
        for &level in component {
            self.settle(level as usize, worker);
        }
    }

    /// Computes the responses of a level from what is known of its arrivals.
    fn settle(&self, index: usize, worker: &mut Worker) -> News {
        let level = &self.layout.levels[index];
        let mut work = self.settled.port(level.port.index());
        let (arrivals, cause) = self.arrive(index, &mut work);
        self.spread_cause(index, cause);
        if self.settled.level_cause(index) == NONE
            && let Err(cause) = self.respond(index, &mut work, worker)
        {
            self.settled.set_level_cause(index, self.settled.add_cause(cause));
        }
        News {
            arrivals,
            departures: self.depart(index, &mut work, false),
        }
    }

    /// Takes the departures of the ports before as arrivals here. Returns whether that is news, and the first slot without a bound.
    fn arrive(&self, index: usize, work: &mut PortWork) -> (bool, Option<usize>) {
        let (mut news, mut without) = (false, None);
        for group in self.layout.levels[index].groups.clone() {
            let mut sums = Sums::NONE;
            let bounds = &self.layout.groups[group];
            for (slot, data) in (bounds.start..bounds.end).zip(&self.layout.slots[bounds.start..bounds.end]) {
                let before = match data.parent {
                    NONE => 0,
                    parent => self.settled.passed_on(parent as usize),
                };
                let latest = before.saturating_add(data.traversal);
                if latest > HORIZON {
                    self.late(slot, before);
                    without = without.or(Some(slot));
                    continue;
                }
                let demand = work.demand_mut(slot);
                let jitter = latest.saturating_sub(data.earliest);
                if demand.jitter() != jitter {
                    demand.set_jitter(jitter);
                    news = true;
                }
                sums.add(demand);
            }
            work.set_sums(group, sums);
        }
        (news, without)
    }

    /// A slot whose arrivals have no bound: because those before have none, or as times became too long.
    fn late(&self, slot: usize, before: u64) {
        if self.settled.arrival_cause(slot) != NONE {
            return;
        }
        let data = &self.layout.slots[slot];
        let cause = if before == NEVER && data.parent != NONE {
            self.settled.departure_cause(&self.layout, data.parent as usize)
        } else {
            let port = self.layout.levels[data.level as usize].port;
            let text = format!(
                "arrivals at port {} are later than {} ns",
                self.network.port_name(port),
                HORIZON / self.network.per_nano()
            );
            self.settled
                .add_cause(Cause::new(Kind::NoFiniteBound, port, text))
        };
        self.settled.set_arrival_cause(slot, cause);
    }

    /// A level inherits the cause of the next more urgent one, or of the first of its slots that has one.
    fn spread_cause(&self, index: usize, without: Option<usize>) {
        if self.settled.level_cause(index) != NONE {
            return;
        }
        let level = &self.layout.levels[index];
        if index > self.layout.ports[level.port.index()].levels.start && !self.is_weighted(index) {
            let above = self.settled.level_cause(index - 1);
            if above != NONE {
                self.settled.set_level_cause(index, above);
                return;
            }
        }
        if let Some(slot) = without {
            let flow = &self.layout.flows[self.layout.slots[slot].flow as usize];
            let rival = &self.network.streams[flow.stream.index()].name;
            let origin = self.settled.arrival_cause(slot);
            let cause = self
                .settled
                .causes()
                .spread(origin, self.network, level.port, rival);
            self.settled.set_level_cause(index, cause);
        }
    }

    /// Worst cases of every transmission time of a level, or why there are none.
    fn respond(&self, index: usize, work: &mut PortWork, worker: &mut Worker) -> Result<(), Cause> {
        let id = self.layout.levels[index].port;
        if is_special(&self.network.ports[id.index()]) {
            let special = self.special(id, work);
            let found = special.responses(index, &mut worker.effort);
            let outcome = found.map_err(|why| match why {
                Unbounded::Overloaded => cause::no_share(self.network, &self.layout.levels[index]),
                Unbounded::TooLong => cause::too_late(self.network, id),
            })?;
            work.set_outcome(index, outcome);
            return Ok(());
        }
        if self.respond_plainly(index, work, worker) {
            return Ok(());
        }
        Err(cause::too_late(self.network, id))
    }

    /// The service of a port that is more than strict priority at a constant rate.
    pub(crate) fn special<'b>(&'b self, port: PortId, work: &'b PortWork) -> Special<'b> {
        Special {
            network: self.network,
            layout: &self.layout,
            settled: &self.settled,
            port,
            work,
        }
    }

    /// `false` beyond the horizon.
    fn respond_plainly(&self, index: usize, work: &mut PortWork, worker: &mut Worker) -> bool {
        let found = self.least_outcome(index, work, worker);
        let bounded = found.is_some();
        work.set_outcome(index, found.unwrap_or_default());
        bounded
    }

    /// The least of all that is known of a level's worst cases.
    fn least_outcome(&self, index: usize, work: &PortWork, worker: &mut Worker) -> Option<Outcome> {
        let mut found = self.outcome(index, &work.level(&self.layout, index, true), worker);
        // A line of slope 1 or more never costs anything. A slower one is rounded up, and may.
        if self.layout.least && self.has_slow_line(index) {
            let other = self.outcome(index, &work.level(&self.layout, index, false), worker);
            found = least(found, other);
        }
        for curves in &self.curves {
            if let Some(shaped) = curves.shaped(self.network, &self.layout, work, index) {
                found = least(found, self.outcome(index, &shaped.level(), worker));
            }
        }
        found
    }

    fn has_slow_line(&self, index: usize) -> bool {
        let groups = &self.layout.groups[self.layout.levels[index].groups.clone()];
        groups
            .iter()
            .any(|group| group.line.is_some_and(|line| line.slope < ONE))
    }

    fn outcome<'b, S, H>(&self, index: usize, level_now: &Level<S, H>, worker: &mut Worker) -> Option<Outcome>
    where
        S: Iterator<Item = Bundle<'b>> + Clone,
        H: Iterator<Item = Bundle<'b>> + Clone,
    {
        let level = &self.layout.levels[index];
        let responses = level_now.responses(&mut worker.scratch, &mut worker.effort)?;
        let mut worst: Vec<(u64, Worst)> = Vec::new();
        let mut last = None;
        for slot in &self.layout.slots[level.start..level.end] {
            if last == Some(slot.own) {
                continue;
            }
            last = Some(slot.own);
            // Few sizes in a class: sorted and searched.
            if let Err(place) = worst.binary_search_by_key(&slot.own, |(own, _)| *own) {
                worst.insert(place, (slot.own, responses.of(slot.own)?));
            }
        }
        Some(Outcome {
            worst,
            backlog: responses.backlog(),
            pending: responses.pending(),
        })
    }

    /// When frames leave the slots of a level at the latest, or what was known of it where that is less and `again` says so; true if that is
    /// news.
    fn depart(&self, index: usize, work: &mut PortWork, again: bool) -> bool {
        let level = &self.layout.levels[index];
        let unbounded = self.settled.level_cause(index) != NONE;
        let (mut news, mut own, mut worst) = (false, None, Worst::default());
        for (slot, data) in (level.start..level.end).zip(&self.layout.slots[level.start..level.end]) {
            let at = if unbounded || self.settled.arrival_cause(slot) != NONE {
                NEVER
            } else {
                if own != Some(data.own) {
                    let known = &work.outcome(index).worst;
                    let Ok(place) = known.binary_search_by_key(&data.own, |(own, _)| *own) else {
                        continue;
                    };
                    (own, worst) = (Some(data.own), known[place].1);
                }
                let jitter = work.demand(slot).jitter();
                work.set_seen(
                    slot,
                    Seen {
                        jitter,
                        response: worst.response,
                        window: worst.window,
                    },
                );
                let before = match data.parent {
                    NONE => 0,
                    parent => self.settled.departure(parent as usize),
                };
                let late = before
                    .saturating_add(data.traversal)
                    .saturating_add(worst.response);
                late.min(self.of_ordered(slot))
            };
            let known = if again {
                self.settled.departure(slot)
            } else {
                NEVER
            };
            news |= self
                .settled
                .set_departure(slot, at.min(known).min(self.settled.cap(slot)));
        }
        news
    }
}

/// The less of two, where there are two.
fn least(one: Option<Outcome>, other: Option<Outcome>) -> Option<Outcome> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.or_less(other)),
        (one, other) => one.or(other),
    }
}

//! What an admission state keeps: flows in slots, slots in groups, groups in levels. Everything here is bookkeeping, and depends on
//! what is in the state alone, never on how it came to be there.

use super::facts::Known;
use super::leeway::{Leeway, Move};
use super::links::{Glance, Link, connect};
use super::slots::{Rest, Slot};
use super::windows::Windows;
use crate::bundle::{Bundle, Line, ONE};
use crate::demand::{Demand, surely_fits};
use crate::layout::{Flow, Frames, NONE, shaping};
use crate::result::Utilisation;
use crate::settled::{NEVER, Outcome};
use std::collections::BTreeMap;
use timebound_model::{Class, Discipline, Network, PortId, Stream, WireBytes};

/// Levels of a port: one for each class, most urgent first; a FIFO port uses the first.
pub(super) const RANKS: usize = 8;

/// Slots of a level that come over one link. What most looks need stands in its first cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Group {
    pub(super) at_once: u128,
    pub(super) first_step: u64,
    pub(super) line: Option<Line>,
    pub(super) input: u32,
    /// The ranks at `input` whose frames it has, one bit for each.
    pub(super) fed: u8,
    /// Is `first_step` to be looked for again?
    pub(super) is_stale: bool,
    pub(super) is_empty: bool,
    /// When it releases after the first instant, in order, complete up to `listed`; and the work of these releases with all before them.
    pub(super) releases: Vec<(u64, u64)>,
    pub(super) listed: u64,
    /// How far they were listed when they were last complete.
    pub(super) wanted: u64,
    pub(super) slots: Vec<u32>,
    pub(super) demands: Vec<Demand>,
    pub(super) weight: u128,
    frames: Frames,
}

impl Group {
    const fn new(input: u32) -> Self {
        Self {
            at_once: 0,
            first_step: u64::MAX,
            line: None,
            input,
            fed: 0,
            is_stale: false,
            is_empty: true,
            releases: Vec::new(),
            listed: 0,
            wanted: 0,
            slots: Vec::new(),
            demands: Vec::new(),
            weight: 0,
            frames: Frames::NONE,
        }
    }
    pub(super) fn refresh(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            let steps = self.demands.iter().map(Demand::first_step);
            self.first_step = steps.min().unwrap_or(u64::MAX);
        }
    }
    /// A release after `window` does not count; are there others than the first ones?
    pub(super) fn has_steps(&self, window: u64) -> bool {
        self.first_step <= window || self.at_once != self.weight
    }
}

/// Slots of one class at a port. What most looks need stands in its first two cache lines.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Level {
    pub(super) groups: Vec<Group>,
    pub(super) slots: usize,
    pub(super) blocking: u64,
    /// By how much departures to receivers may grow at least before one misses its deadline; none: to be looked for.
    pub(super) slack: Option<u64>,
    /// Slots before receivers, with how much later each may be served; as old as `slack`.
    pub(super) receivers: Vec<(u64, u32)>,
    /// Slots whose arrivals have no bound.
    pub(super) late: u32,
    /// To be evaluated, whatever its pending slots say.
    pub(super) must: bool,
    pub(super) now: Now,
    /// Transmission times of its frames and how many slots have them; sorted.
    pub(super) owns: Vec<(u64, u32)>,
    /// May they be others than those of `now`?
    pub(super) has_others: bool,
    /// Sum of [`Demand::share`].
    shares: u128,
    pub(super) saved: u32,
    /// The leeway to try next; 0: none was tried.
    pub(super) leeway: u64,
}

/// What an evaluation of a level found.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Now {
    pub(super) is_unbounded: bool,
    /// Its cycle was given up.
    pub(super) gave_up: bool,
    /// Could less jitter of the present flows make its responses shorter?
    pub(super) is_busy: bool,
    /// Did any release move? Then the responses are the same, and the cases that lead to them may be others.
    pub(super) is_moved: bool,
    /// Releases after this window do not count.
    pub(super) end: u64,
    /// No frame of the class starts earlier in its worst case; 0: nothing is known.
    pub(super) first: u64,
    pub(super) outcome: Outcome,
    /// Its responses alone, by transmission time; as old as `outcome`, see [`Now::settle`].
    pub(super) answers: Vec<(u64, u64)>,
    /// How far releases may move before the responses change; none: every move before `end` counts.
    pub(super) leeway: Option<Box<Leeway>>,
}

impl Now {
    pub(super) fn response(&self, own: u64) -> u64 {
        match self.answers.binary_search_by_key(&own, |(own, _)| *own) {
            Ok(place) if !self.is_unbounded => self.answers[place].1,
            _ => NEVER,
        }
    }

    /// Puts its responses side by side.
    pub(super) fn settle(&mut self) {
        let worst = self.outcome.worst.iter();
        self.answers = worst.map(|(own, worst)| (*own, worst.response)).collect();
    }
}

/// How many frames there are of each size, by size.
type Sizes = Vec<(u32, u32)>;

#[derive(Debug)]
pub(super) struct Port {
    pub(super) sorts: bool,
    pub(super) is_covered: bool,
    best_effort: u64,
    /// Largest frames of the streams of each class.
    sizes: [Sizes; RANKS],
    /// Streams of each class without a declared arrival.
    unbounded: [u32; RANKS],
}

impl Port {
    /// Its streams of this class without a declared arrival, and more urgent ones where it sorts.
    fn is_flooded(&self, class: usize) -> bool {
        let from = if self.sorts { class } else { 0 };
        self.unbounded[from..].iter().any(|count| *count > 0)
    }
}

/// A stream of the state.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stream: Stream,
    pub(super) flows: Vec<u32>,
    /// For each leaf: can frames be missing on the way?
    pub(super) is_incomplete: Vec<bool>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) ports: Vec<Port>,
    pub(super) levels: Vec<Level>,
    pub(super) slots: Vec<Slot>,
    pub(super) rest: Vec<Rest>,
    /// By level: slots to look at.
    pub(super) pending: Vec<Vec<u32>>,
    /// Blocks of slots that are free, by length.
    pub(super) free_slots: BTreeMap<usize, Vec<u32>>,
    pub(super) flows: Vec<Option<Flow>>,
    pub(super) free_flows: Vec<u32>,
    pub(super) streams: Vec<Option<Entry>>,
    pub(super) free_streams: Vec<u32>,
    /// Slots of all present flows.
    pub(super) hops: usize,
    /// By level.
    pub(super) known: Vec<Known>,
    pub(super) windows: Vec<Windows>,
    /// No slot's latest arrival was ever after that.
    pub(super) farthest: u64,
    /// By port: the ports whose frames come to it, and those to which its frames go.
    pub(super) inputs: Vec<Vec<Link>>,
    pub(super) outputs: Vec<Vec<Link>>,
    /// By port.
    pub(super) glances: Vec<Glance>,
}

/// Why the analysis of the state does not cover a port.
pub(super) fn uncovered(network: &Network, id: PortId) -> Option<&'static str> {
    let port = &network.ports[id.index()];
    if matches!(port.discipline, Discipline::Drr(_)) {
        return Some("serves its classes by deficit round robin");
    }
    if port.medium.is_some() {
        return Some("shares a half-duplex medium");
    }
    port.slots.is_some().then_some("sends in slots")
}

impl State {
    pub(super) fn new(network: &Network, assume_best_effort: bool) -> Self {
        let bytes = if assume_best_effort {
            network.best_effort_frame
        } else {
            WireBytes(0)
        };
        let ports = (0..network.ports.len()).map(|index| {
            let (id, port) = (PortId::new(index), &network.ports[index]);
            Port {
                sorts: port.discipline == Discipline::StrictPriority,
                is_covered: uncovered(network, id).is_none()
                    && crate::cause::unanalysable(network, id).is_none(),
                best_effort: port.transmission_time(bytes).0,
                sizes: Default::default(),
                unbounded: [0; RANKS],
            }
        });
        Self {
            ports: ports.collect(),
            levels: (0..network.ports.len() * RANKS)
                .map(|_| Level::default())
                .collect(),
            pending: vec![Vec::new(); network.ports.len() * RANKS],
            known: vec![Known::default(); network.ports.len() * RANKS],
            windows: vec![Windows::default(); network.ports.len() * RANKS],
            inputs: vec![Vec::new(); network.ports.len()],
            outputs: vec![Vec::new(); network.ports.len()],
            glances: vec![Glance::default(); network.ports.len()],
            ..Self::default()
        }
    }

    pub(super) fn level_of(&self, port: PortId, class: Class) -> usize {
        let rank = if self.ports[port.index()].sorts {
            7 - usize::from(class.0.min(7))
        } else {
            0
        };
        port.index() * RANKS + rank
    }

    /// Puts a stream that was allotted into its levels. `jitters` are those of its slots, flow by flow, or their floors. Returns the levels
    /// to evaluate.
    pub(super) fn attach(
        &mut self,
        network: &Network,
        id: u32,
        jitters: Option<&[u64]>,
        dirty: &mut Vec<u32>,
    ) {
        let Some(entry) = self.streams[id as usize].take() else {
            return;
        };
        let mut jitters = jitters.into_iter().flatten();
        for &index in &entry.flows {
            let Some(flow) = self.flows[index as usize].take() else {
                continue;
            };
            for slot in flow.first_hop..flow.first_hop + entry.stream.tree.hops.len() {
                let data = &self.slots[slot];
                let floor = self.rest[slot]
                    .floor
                    .saturating_sub(data.earliest)
                    .saturating_sub(data.own);
                let jitter = jitters.next().copied().unwrap_or(floor);
                self.attach_slot(network, &flow, slot, jitter);
            }
            self.flows[index as usize] = Some(flow);
        }
        self.count(network, &entry.stream, true, dirty);
        self.streams[id as usize] = Some(entry);
    }

    fn attach_slot(&mut self, network: &Network, flow: &Flow, slot: usize, jitter: u64) {
        let from = match self.slots[slot].parent {
            NONE => NONE,
            parent => self.slots[parent as usize].level,
        };
        let input = if from == NONE { NONE } else { from / RANKS as u32 };
        let data = &mut self.slots[slot];
        let port = &network.ports[data.level as usize / RANKS];
        let level = &mut self.levels[data.level as usize];
        let found = level.groups.iter().position(|group| group.input == input);
        let index = found.unwrap_or_else(|| {
            level.groups.push(Group::new(input));
            level.groups.len() - 1
        });
        let demand = Demand::new(flow.period, flow.passage(port.speed()).1, jitter);
        if !data.is_late {
            data.latest = data.earliest.saturating_add(jitter);
            self.farthest = self.farthest.max(data.latest);
        }
        level.slack = None;
        if from != NONE {
            let fed = connect(
                (&mut self.inputs, &mut self.outputs),
                &self.ports,
                (from, data.level),
                1,
            );
            level.groups[index].fed = fed;
        }
        let group = &mut level.groups[index];
        group.enlist(&demand);
        (data.group, data.place) = (index as u32, group.slots.len() as u32);
        group.is_empty = false;
        group.slots.push(slot as u32);
        group.demands.push(demand);
        group.at_once += u128::from(demand.at_once());
        group.weight += u128::from(demand.weight());
        group.first_step = group.first_step.min(demand.first_step());
        group.frames.add(flow, self.rest[slot].is_copied);
        group.draw_line(network, port);
        level.slots += 1;
        level.late += u32::from(data.is_late);
        level.shares += u128::from(demand.share());
        match level.owns.binary_search_by_key(&data.own, |(own, _)| *own) {
            Ok(place) => level.owns[place].1 += 1,
            Err(place) => {
                level.owns.insert(place, (data.own, 1));
                level.has_others = true;
            }
        }
        self.hops += 1;
    }

    /// Takes a stream out of its levels; it stays allotted. Returns the jitters of its slots.
    pub(super) fn detach(&mut self, network: &Network, id: u32, dirty: &mut Vec<u32>) -> Vec<u64> {
        let mut jitters = Vec::new();
        let Some(entry) = self.streams[id as usize].take() else {
            return jitters;
        };
        for &index in &entry.flows {
            let first = self.flows[index as usize]
                .as_ref()
                .map_or(0, |flow| flow.first_hop);
            for slot in first..first + entry.stream.tree.hops.len() {
                jitters.push(self.detach_slot(network, slot));
            }
        }
        self.count(network, &entry.stream, false, dirty);
        self.streams[id as usize] = Some(entry);
        jitters
    }

    fn detach_slot(&mut self, network: &Network, slot: usize) -> u64 {
        let data = self.slots[slot];
        let level = &mut self.levels[data.level as usize];
        level.slack = None;
        if data.parent != NONE {
            let from = self.slots[data.parent as usize].level;
            let fed = connect(
                (&mut self.inputs, &mut self.outputs),
                &self.ports,
                (from, data.level),
                -1,
            );
            level.groups[data.group as usize].fed = fed;
        }
        let group = &mut level.groups[data.group as usize];
        let demand = group.demands.swap_remove(data.place as usize);
        group.delist(&demand);
        group.slots.swap_remove(data.place as usize);
        group.is_empty = group.slots.is_empty();
        if let Some(moved) = group.slots.get(data.place as usize) {
            self.slots[*moved as usize].place = data.place;
        }
        group.at_once -= u128::from(demand.at_once());
        group.weight -= u128::from(demand.weight());
        group.is_stale |= demand.first_step() == group.first_step;
        level.slots -= 1;
        level.late -= u32::from(data.is_late);
        level.shares -= u128::from(demand.share());
        if let Ok(place) = level.owns.binary_search_by_key(&data.own, |(own, _)| *own) {
            level.owns[place].1 -= 1;
            if level.owns[place].1 == 0 {
                level.owns.remove(place);
                level.has_others = true;
            }
        }
        self.hops -= 1;
        group.frames = Frames::NONE;
        for &other in &group.slots {
            let other = &self.rest[other as usize];
            if let Some(flow) = &self.flows[other.flow as usize] {
                group.frames.add(flow, other.is_copied);
            }
        }
        group.draw_line(network, &network.ports[data.level as usize / RANKS]);
        demand.jitter()
    }

    /// Counts a stream at its ports, or no longer, and lists the levels that this changes.
    fn count(&mut self, network: &Network, stream: &Stream, present: bool, dirty: &mut Vec<u32>) {
        let bytes = stream.arrival.largest_frame().0;
        let class = usize::from(stream.class.0.min(7));
        let floods = matches!(stream.arrival, timebound_model::Arrival::Unbounded { .. });
        for hop in &stream.tree.hops {
            self.glances[hop.port.index()].transaction = 0;
            let port = &mut self.ports[hop.port.index()];
            tally(&mut port.sizes[class], bytes, present);
            if floods && present {
                port.unbounded[class] += 1;
            } else if floods {
                port.unbounded[class] -= 1;
            }
            let own = self.level_of(hop.port, stream.class);
            let base = hop.port.index() * RANKS;
            for level in base..base + RANKS {
                let blocking = self.blocking(network, level);
                let known = &mut self.levels[level];
                let differs = std::mem::replace(&mut known.blocking, blocking) != blocking;
                if !present && (level >= own || differs) {
                    // Frames may start earlier now.
                    known.now.first = 0;
                }
                let is_emptied = level == own && known.slots == 0;
                if is_emptied || (known.slots > 0 && (level >= own || differs)) {
                    dirty.push(level as u32);
                    if present {
                        self.known[level].forget();
                    }
                }
            }
        }
    }

    /// Longest transmission below a level.
    fn blocking(&self, network: &Network, level: usize) -> u64 {
        let port = &self.ports[level / RANKS];
        let class = if port.sorts { 7 - level % RANKS } else { 0 };
        let below = port.sizes[..class].iter().filter_map(|sizes| sizes.last());
        let largest = below.map(|(bytes, _)| *bytes).max().unwrap_or(0);
        let own = &network.ports[level / RANKS];
        own.transmission_time(WireBytes(largest)).0.max(port.best_effort)
    }

    /// Gives a slot this jitter; `None`: its arrivals have no bound. True if that is more than a move of its releases, which is added to
    /// `moves`.
    pub(super) fn set_jitter(&mut self, slot: usize, jitter: Option<u64>, moves: &mut Vec<Move>) -> bool {
        let data = &mut self.slots[slot];
        let level = &mut self.levels[data.level as usize];
        let mut is_other = false;
        if data.is_late != jitter.is_none() {
            data.is_late = jitter.is_none();
            is_other = true;
            level.late = if data.is_late {
                level.late + 1
            } else {
                level.late - 1
            };
        }
        let group = &mut level.groups[data.group as usize];
        let demand = &group.demands[data.place as usize];
        let Some(jitter) = jitter.filter(|jitter| *jitter != demand.jitter()) else {
            return is_other;
        };
        group.listed = 0;
        is_other | self.move_releases(slot, jitter, moves)
    }

    /// Gives a slot this jitter where its level's releases are listed, and they stay so.
    pub(super) fn place(&mut self, slot: usize, jitter: u64) {
        let data = self.slots[slot];
        let group = &mut self.levels[data.level as usize].groups[data.group as usize];
        let demand = group.demands[data.place as usize];
        if demand.jitter() == jitter {
            return;
        }
        group.delist(&demand);
        self.move_releases(slot, jitter, &mut Vec::new());
        let group = &mut self.levels[data.level as usize].groups[data.group as usize];
        let demand = group.demands[data.place as usize];
        group.enlist(&demand);
    }

    /// The move is added to `moves`; true if there is more to it.
    fn move_releases(&mut self, slot: usize, jitter: u64, moves: &mut Vec<Move>) -> bool {
        let data = &self.slots[slot];
        let group = &mut self.levels[data.level as usize].groups[data.group as usize];
        let demand = &mut group.demands[data.place as usize];
        let mut is_other = false;
        let old = *demand;
        demand.set_jitter(jitter);
        if old.at_once() != demand.at_once() {
            is_other = true;
            group.at_once = group.at_once - u128::from(old.at_once()) + u128::from(demand.at_once());
        }
        let (before, after) = (old.first_step(), demand.first_step());
        // Both sums are the next whole period.
        is_other |= old.jitter() + before != jitter + after;
        moves.push(Move {
            before,
            after,
            period: demand.period(),
        });
        if after <= group.first_step {
            group.first_step = after;
            group.is_stale = false;
        } else {
            group.is_stale |= before == group.first_step;
        }
        is_other
    }

    pub(super) fn jitter(&self, slot: usize) -> u64 {
        let data = &self.slots[slot];
        let group = &self.levels[data.level as usize].groups[data.group as usize];
        group.demands[data.place as usize].jitter()
    }

    /// Is there no bound at a level whatever arrives when?
    pub(super) fn is_hopeless(&self, level: usize) -> bool {
        let port = &self.ports[level / RANKS];
        let class = if port.sorts { 7 - level % RANKS } else { 0 };
        !port.is_covered || port.is_flooded(class) || self.is_exhausted(level)
    }

    /// Do a level and those above it need the whole port?
    pub(super) fn is_exhausted(&self, level: usize) -> bool {
        let levels = &self.levels[level / RANKS * RANKS..=level];
        !surely_fits(levels.iter().map(|level| level.shares).sum()) && self.utilisation(level).is_exhausted()
    }

    /// Of a level and those above it.
    pub(super) fn utilisation(&self, level: usize) -> Utilisation {
        let levels = &self.levels[level / RANKS * RANKS..=level];
        let groups = levels.iter().flat_map(|level| &level.groups);
        let demands: Vec<Demand> = groups.flat_map(|group| group.demands.iter().copied()).collect();
        Utilisation::of(&demands)
    }

    /// Is there no bound at a more urgent level of the same port?
    pub(super) fn is_unbounded_above(&self, level: usize) -> bool {
        let above = &self.levels[level / RANKS * RANKS..level];
        above
            .iter()
            .any(|above| above.slots > 0 && above.now.is_unbounded)
    }
}

impl Group {
    fn draw_line(&mut self, network: &Network, port: &timebound_model::Port) {
        let input = network.ports.get(self.input as usize);
        self.line = input.map(|input| shaping(network, input, port, self.frames));
    }
    pub(super) fn is_slow(&self) -> bool {
        !self.is_empty && self.line.is_some_and(|line| line.slope < ONE)
    }
    /// Nothing at all where it is empty, so that its place among the bundles is that among the groups.
    pub(super) fn bundle<'a>(&'a self, shaped: bool) -> Bundle<'a> {
        Bundle {
            demands: &self.demands,
            at_once: u64::try_from(self.at_once).unwrap_or(u64::MAX),
            first_step: if self.is_empty { u64::MAX } else { self.first_step },
            line: self.line.filter(|_| shaped && !self.is_empty),
            train: None,
        }
    }
}

fn tally(sizes: &mut Sizes, bytes: u32, present: bool) {
    match sizes.binary_search_by_key(&bytes, |(bytes, _)| *bytes) {
        Ok(place) if present => sizes[place].1 += 1,
        Ok(place) => {
            sizes[place].1 -= 1;
            if sizes[place].1 == 0 {
                sizes.remove(place);
            }
        }
        Err(place) if present => sizes.insert(place, (bytes, 1)),
        Err(_) => {}
    }
}

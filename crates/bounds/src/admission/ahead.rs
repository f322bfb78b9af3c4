//! Answering first: a proof that nobody will miss a deadline, before the new bounds are worked out.
//!
//! **The argument.** The bounds are the least solution of "every arrival is at least the departure before it, every response at least what
//! the analysis says for these arrivals"; all of it is monotone, so that any numbers that satisfy it lie nowhere below the bounds
//! (Knaster and Tarski). Let `A` be what is kept: bounds of the streams that were there when it was last settled. Numbers for the streams
//! that are there now are found level by level, not stream by stream:
//!
//! - `arrivals`: how much later than kept a frame reaches it at most, over each link that feeds it and over any;
//! - `responses`: how much longer than kept its responses are at most, from one sweep over its releases and those above it, with every
//!   release earlier by the rise of its link. What comes to the first instant counts there at once;
//! - `departures`, the sum of `arrivals` and `responses`, is what levels behind it read.
//!
//! A stream that joins gets numbers to keep, too: those that it would have with the responses that are kept, so that with the rises it is as late
//! as it may be. If every receiver is in time with the rises, it is in time with the bounds: the stream may join, and the bounds may be worked out later
//! ([`Admission::settle`]). If not, nothing is said: another way decides. Streams that leave make nothing later, and what was
//! proved stays proved; so requests may follow one another, and each rise begins at the last one. Only the excuse "it was late before" does not hold
//! after a stream has left, as what is kept is then too late.
//!
//! Only ports outside of cycles are followed, where a port is looked at once, its levels in the order of their urgency.

use super::Admission;
use super::links::Row;
use super::ranks::Queue;
use super::state::RANKS;
use super::sweep::{Above, Buffers, Span, Sweep};
use crate::demand::HORIZON;
use crate::layout::NONE;
use crate::level::Starts;
use crate::settled::NEVER;
use std::collections::BTreeMap;

/// What is proved about the streams that are there beyond what is kept of them.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// By port and rank: by how much responses and departures may lie above what is kept.
    responses: Vec<Row>,
    pub(super) departures: Vec<Row>,
    /// Responses to transmission times that a level did not know when it was settled, by transmission time.
    others: BTreeMap<(u32, u64), u64>,
    /// Ports with rises that may be more than nothing; some more than once.
    risen: Vec<u32>,
    /// Ports to look at, and from which rank on: by port, one bit for each rank.
    queue: Queue,
    woken: Vec<u8>,
    pub(super) buffers: Buffers,
    pub(super) above: Above,
    pub(super) found: Vec<(u64, u64)>,
    /// Ports that the present request looked at, with their responses and departures before.
    before: Vec<(u32, [Row; 2])>,
    pub(super) starts: Starts,
    /// Responses that are kept of a level, by transmission time.
    kept: Vec<(u64, u64)>,
    /// Sweeps so far: of all of a busy period, and of a part.
    pub(super) sweeps: [u64; 2],
    /// Levels and slots of the stream that asks.
    pub(super) joins: Vec<(u32, u32)>,
    /// Levels at which every receiver is in time by its own way alone, and by how much ways may still grow.
    tight: BTreeMap<u32, u64>,
    /// By how much responses have grown in this request, all together.
    grown: u64,
    /// Does a receiver miss its deadline by what is kept? None: nobody has looked.
    is_any_late: Option<bool>,
}

impl Ahead {
    /// Forgets what was proved: the bounds are kept again.
    pub(super) fn forget(&mut self) {
        for port in self.risen.drain(..) {
            self.responses[port as usize] = Row::default();
            self.departures[port as usize] = Row::default();
        }
        self.others.clear();
        self.tight.clear();
        self.is_any_late = None;
    }

    pub(super) fn begin(&mut self, ports: usize) {
        self.responses.resize(ports, Row::default());
        self.departures.resize(ports, Row::default());
        self.woken.resize(ports, 0);
        self.queue.fit(ports);
        self.before.clear();
        self.grown = 0;
    }

    /// A level answers later than was known.
    fn raise(&mut self, level: usize, (responses, departures): (u64, u64)) {
        let (port, rank) = (level / RANKS, level % RANKS);
        let known = &mut self.responses[port].0[rank];
        self.grown = self.grown.saturating_add(responses - *known);
        *known = responses;
        self.departures[port].0[rank] = departures;
    }

    /// As before the present request.
    fn undo(&mut self) {
        for (port, [responses, departures]) in self.before.drain(..).rev() {
            self.responses[port as usize] = responses;
            self.departures[port as usize] = departures;
        }
        let mut from = 0;
        while let Some(position) = self.queue.next(from) {
            self.queue.remove(position);
            from = position + 1;
        }
        self.woken.fill(0);
    }
}

impl Admission {
    /// Is it sure that with the stream `new`, which is attached, every receiver that is in time stays so, and its own are? `dirty`: the
    /// levels that it changes. Otherwise nothing is proved, and what was before is as it was.
    pub(super) fn is_sure(&mut self, new: u32, dirty: &[u32]) -> bool {
        self.ahead.begin(self.state.ports.len());
        let sure = self.follow(new, dirty).is_some();
        if !sure {
            self.retract(dirty);
        }
        sure
    }

    /// Takes back what the last request proved, whose stream leaves again.
    pub(super) fn retract(&mut self, dirty: &[u32]) {
        self.ahead.undo();
        for &level in dirty {
            self.state.known[level as usize].forget();
        }
    }

    /// `None` where the proof fails.
    fn follow(&mut self, new: u32, dirty: &[u32]) -> Option<()> {
        let entry = self.state.streams[new as usize].as_ref()?;
        if entry.is_incomplete.contains(&true) {
            return None;
        }
        let mut own = self.slots_of(new);
        own.sort_unstable();
        self.ahead.joins.clone_from(&own);
        for &level in dirty {
            if self.state.is_hopeless(level as usize) {
                return None;
            }
            self.wake(level as usize / RANKS, 1 << (level as usize % RANKS));
        }
        let mut from = 0;
        while let Some(position) = self.ahead.queue.next(from) {
            self.ahead.queue.remove(position);
            from = position + 1;
            self.look_at_port(self.ranks.ports[position as usize] as usize, &own)?;
        }
        self.look_again()
    }

    /// Levels of a port are to be looked at: those of these ranks, one bit for each, and what is below them.
    fn wake(&mut self, port: usize, ranks: u8) {
        self.ahead.woken[port] |= ranks;
        self.ahead.queue.push(self.ranks.port_position[port]);
    }

    /// Looks at the levels of a port that are woken. `own`: slots of the new stream, by level.
    fn look_at_port(&mut self, port: usize, own: &[(u32, u32)]) -> Option<()> {
        let base = port * RANKS;
        if self.ranks.is_cyclic[port] {
            return None;
        }
        let woken = std::mem::take(&mut self.ahead.woken[port]);
        self.state.read_glance(port, self.journal.transaction);
        let (sorts, present) = (self.state.glances[port].sorts, self.state.glances[port].present);
        let mut arrivals = [0; RANKS];
        for link in &self.state.inputs[port] {
            link.carry(sorts, &self.ahead.departures[link.port as usize], &mut arrivals);
        }
        self.ahead.above.forget();
        let from = woken.trailing_zeros() as usize;
        let mut later = 0;
        let glance = &self.state.glances[port];
        let swept = (0..RANKS).fold(0u8, |swept, rank| {
            later = arrivals[rank].max(later);
            let is_swept = rank >= from && present & 1 << rank != 0 && later >= glance.bears[rank];
            swept | u8::from(is_swept) << rank
        });
        if swept != 0 {
            self.state.touch(port, swept);
        }
        let before = [self.ahead.responses[port], self.ahead.departures[port]];
        self.ahead.before.push((port as u32, before));
        if before[1].0 == [0; RANKS] {
            self.ahead.risen.push(port as u32);
        }
        let first = own.partition_point(|(at, _)| (*at as usize) < base);
        let mut own = &own[first..];
        let (mut by, mut risen) = (0, 0);
        for (rank, &arrival) in arrivals.iter().enumerate() {
            by = arrival.max(by);
            if rank < from || present & 1 << rank == 0 {
                continue;
            }
            let level = base + rank;
            let count = own.iter().take_while(|(at, _)| *at as usize == level).count();
            let (slots, rest) = own.split_at(count);
            own = rest;
            let is_later = match self.pass_on((port, rank), (arrival, by), slots) {
                Some(is_later) => is_later,
                None => self.look_ahead(level, (arrival, by), slots)?,
            };
            risen |= u8::from(is_later) << rank;
        }
        if risen != 0 {
            for at in 0..self.state.outputs[port].len() {
                let link = &self.state.outputs[port][at];
                let (behind, ranks) = (link.port as usize, link.readers(sorts, risen));
                if ranks != 0 {
                    self.wake(behind, ranks);
                }
            }
        }
        Some(())
    }

    /// What [`Admission::look_ahead`] says of most levels: those that keep their responses, and at which nobody is new or could be late.
    fn pass_on(
        &mut self,
        (port, rank): (usize, usize),
        (arrivals, by): (u64, u64),
        own: &[(u32, u32)],
    ) -> Option<bool> {
        let glance = &mut self.state.glances[port];
        let departures = arrivals.checked_add(self.ahead.responses[port].0[rank])?;
        let known = &mut self.ahead.departures[port].0[rank];
        let is_quiet = own.is_empty() && glance.open & 1 << rank == 0 && by < glance.bears[rank];
        let most = departures.max(*known);
        if !is_quiet || most > glance.slack[rank] || self.state.farthest.saturating_add(most) > HORIZON {
            return None;
        }
        glance.asked[rank] = by.max(glance.asked[rank]);
        Some(std::mem::replace(known, most) < most)
    }

    /// Where a way may have grown by less than the longest to its end, nobody has looked again.
    fn look_again(&mut self) -> Option<()> {
        let mut tight = std::mem::take(&mut self.ahead.tight);
        let (grown, mut in_time) = (self.ahead.grown, true);
        for (level, spare) in &mut tight {
            // No way has grown by more than all of them together.
            *spare = match spare.checked_sub(grown) {
                Some(left) => left,
                None => self.spare(*level as usize, &[]).unwrap_or_else(|| {
                    in_time = false;
                    0
                }),
            };
        }
        self.ahead.tight = tight;
        in_time.then_some(())
    }

    /// Does any receiver miss its deadline by the bounds that are kept?
    pub(super) fn is_any_late(&mut self) -> bool {
        if let Some(known) = self.ahead.is_any_late {
            return known;
        }
        let streams = self.state.streams.iter().flatten();
        let mut flows = streams
            .flat_map(|entry| entry.flows.iter().map(move |flow| (flow, &entry.stream.tree)))
            .filter_map(|(flow, tree)| Some((self.state.flows[*flow as usize].as_ref()?, tree)));
        let late = flows.any(|(flow, tree)| {
            tree.leaves.iter().any(|leaf| {
                let slot = flow.first_hop + leaf.hop as usize;
                self.state.slots[slot].departure > self.state.rest[slot].limit
            })
        });
        self.ahead.is_any_late = Some(late);
        late
    }

    /// The slots of a stream with their levels.
    fn slots_of(&self, id: u32) -> Vec<(u32, u32)> {
        let Some(entry) = &self.state.streams[id as usize] else {
            return Vec::new();
        };
        let hops = entry.stream.tree.hops.len();
        let flows = entry
            .flows
            .iter()
            .filter_map(|flow| self.state.flows[*flow as usize].as_ref());
        flows
            .flat_map(|flow| flow.first_hop..flow.first_hop + hops)
            .map(|slot| (self.state.slots[slot].level, slot as u32))
            .collect()
    }

    /// Frames reach a level later by up to `arrivals`, those that count at it by up to `by`. True if its departures rise further.
    fn look_ahead(&mut self, level: usize, (arrivals, by): (u64, u64), own: &[(u32, u32)]) -> Option<bool> {
        let (port, rank) = (level / RANKS, level % RANKS);
        // A level at which there was nobody does not know what is above it.
        let is_open = self.state.glances[port].open & 1 << rank != 0;
        if is_open || (!own.is_empty() && self.state.is_unbounded_above(level)) {
            return None;
        }
        for (_, slot) in own {
            self.arrive_ahead(*slot)?;
        }
        let responses = self.responses_ahead(level, by)?;
        for (_, slot) in own {
            let frame = self.state.slots[*slot as usize].own;
            let response = self.response_kept(level, frame)?;
            let slot = &mut self.state.slots[*slot as usize];
            slot.departure = slot.latest.max(slot.earliest).checked_add(response)?;
            self.state.levels[level].slack = None;
            self.state.glances[port].slack[rank] = 0;
        }
        let departures = arrivals.checked_add(responses)?;
        let known = self.ahead.departures[port].0[rank];
        let (further, longer) = (departures > known, responses > self.ahead.responses[port].0[rank]);
        if further || longer {
            // Where a link has nobody any more, arrivals are less than they were: responses may be longer alone.
            self.ahead.raise(level, (responses, departures.max(known)));
        }
        if self.state.farthest.saturating_add(departures) > HORIZON {
            return None;
        }
        // Those that join may bear less than the others that are here.
        let most = self.ahead.departures[port].0[rank];
        let is_tight = (further || longer || !own.is_empty())
            && most > self.state.glances[port].slack[rank]
            && most > self.slack(level);
        if is_tight || !own.is_empty() {
            let spare = self.spare(level, own)?;
            if is_tight {
                self.ahead.tight.insert(level as u32, spare);
            }
        }
        Some(further)
    }

    /// What is kept of a slot of the new stream: with it, too, the rise of its level is to be added.
    fn arrive_ahead(&mut self, slot: u32) -> Option<()> {
        let data = self.state.slots[slot as usize];
        let before = match data.parent {
            NONE => 0,
            parent => self.state.slots[parent as usize].departure,
        };
        let latest = before.checked_add(data.traversal)?;
        if latest > HORIZON || data.is_late {
            return None;
        }
        self.state.farthest = self.state.farthest.max(latest);
        self.state
            .place(slot as usize, latest.saturating_sub(data.earliest));
        self.state.slots[slot as usize].latest = latest;
        Some(())
    }

    /// By how much the responses of a level may be longer than kept.
    fn responses_ahead(&mut self, level: usize, by: u64) -> Option<u64> {
        let (port, rank) = (level / RANKS, level % RANKS);
        let known = self.ahead.responses[port].0[rank];
        let glance = &mut self.state.glances[port];
        glance.asked[rank] = by.max(glance.asked[rank]);
        let has_window = glance.windowed & 1 << rank != 0;
        if by < glance.bears[rank] {
            return Some(known);
        }
        // What is known already need not be found again.
        let mut found = std::mem::take(&mut self.ahead.found);
        let mut kept = std::mem::take(&mut self.ahead.kept);
        self.read_kept(level, &mut kept);
        found.clear();
        found.extend(kept.iter().map(|(frame, kept)| match *kept {
            NEVER => (*frame, 0),
            kept => (*frame, kept.saturating_add(known)),
        }));
        let through = has_window && self.look_through_window(level, by, &mut found);
        if !through {
            self.ahead.sweeps[0] += 1;
            self.sweep_ahead(level, (by, Span::All), &mut found)?;
        }
        let both = || found.iter().zip(kept.iter().map(|(_, kept)| kept));
        let longer = both().filter(|(_, kept)| **kept != NEVER);
        let most = longer.fold(known, |most, ((_, response), kept)| {
            most.max(response.saturating_sub(*kept))
        });
        for ((frame, response), _) in both().filter(|(_, kept)| **kept == NEVER) {
            let kept = response.saturating_sub(most);
            self.ahead.others.insert((level as u32, *frame), kept);
        }
        (self.ahead.found, self.ahead.kept) = (found, kept);
        Some(most)
    }

    /// What is kept of the responses of a level, one for each transmission time; [`NEVER`] where nothing is.
    fn read_kept(&self, level: usize, kept: &mut Vec<(u64, u64)>) {
        kept.clear();
        let data = &self.state.levels[level];
        if !data.has_others && !data.now.is_unbounded {
            kept.extend_from_slice(&data.now.answers);
            return;
        }
        let frames = data.owns.iter().map(|(frame, _)| *frame);
        kept.extend(frames.map(|frame| (frame, self.response_kept(level, frame).unwrap_or(NEVER))));
    }

    /// The response to which the rise of a level is added.
    fn response_kept(&self, level: usize, frame: u64) -> Option<u64> {
        match self.state.levels[level].now.response(frame) {
            NEVER => self.ahead.others.get(&(level as u32, frame)).copied(),
            response => Some(response),
        }
    }

    /// The responses of a level with every release at its port earlier by the rise of its group, all at most `by`.
    pub(super) fn sweep_ahead(
        &mut self,
        index: usize,
        (by, span): (u64, Span),
        found: &mut [(u64, u64)],
    ) -> Option<()> {
        let shape = self.shape(index)?;
        let likely = shape.likely;
        let mut horizon = likely.saturating_add(likely / 8).saturating_add(by);
        for _ in 0..4 {
            let sweep = Sweep::by_rises(horizon, by, span);
            let ahead = &mut self.ahead;
            if let Some(responses) =
                ahead
                    .buffers
                    .sweep((&mut self.state, &ahead.above), index, (&shape, sweep))
            {
                responses.longest(&mut ahead.starts, found)?;
                return Some(());
            }
            horizon = horizon.checked_mul(2)?;
        }
        None
    }

    /// By how much all departures of a level to receivers may be later at least.
    fn slack(&mut self, level: usize) -> u64 {
        let slack = match self.state.levels[level].slack {
            Some(slack) => slack,
            None => self.state.read_receivers(level),
        };
        self.state.glances[level / RANKS].slack[level % RANKS] = slack;
        slack
    }

    /// The same receiver by receiver: each is later by no more than what the responses on its own way have grown. `None` if one may be
    /// too late.
    fn spare(&mut self, level: usize, own: &[(u32, u32)]) -> Option<u64> {
        self.slack(level);
        let rise = self.ahead.departures[level / RANKS].0[level % RANKS];
        let mut least = u64::MAX;
        for &(_, slot) in own {
            if self.state.slots[slot as usize].is_leaf {
                least = least.min(self.spare_of(slot, true)?);
            }
        }
        for &(slack, slot) in &self.state.levels[level].receivers {
            if slack >= rise {
                // So may all that follow.
                least = least.min(slack - rise);
                break;
            }
            if own.iter().all(|(_, new)| *new != slot) {
                least = least.min(self.spare_of(slot, false)?);
            }
        }
        Some(least)
    }

    fn spare_of(&self, slot: u32, is_new: bool) -> Option<u64> {
        let (mut at, mut later) = (slot, 0u64);
        while at != NONE {
            let data = &self.state.slots[at as usize];
            let (port, rank) = (data.level as usize / RANKS, data.level as usize % RANKS);
            later = later.saturating_add(self.ahead.responses[port].0[rank]);
            at = data.parent;
        }
        let end = self.state.slots[slot as usize].departure.saturating_add(later);
        match self.state.rest[slot as usize].limit.checked_sub(end) {
            Some(left) => Some(left),
            // What is late already may stay so.
            None if later == 0 && !is_new => Some(0),
            None => None,
        }
    }
}

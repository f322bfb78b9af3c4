//! Answering first: a proof that nobody will miss a deadline, before the new bounds are worked out.
//!
//! **The argument.** The bounds are the least solution of "every arrival is at least the departure before it, every response at least what
//! the analysis says for these arrivals"; all of it is monotone, so that any numbers that satisfy it lie nowhere below the bounds
//! (Knaster and Tarski). Let `A` be what is kept: bounds of the streams that were there when it was last settled. Numbers for the streams
//! that are there now are found level by level, not stream by stream:
//!
//! - `rises` of its groups: how much later than kept a frame reaches it over each link at most; `arrivals` is the largest;
//! - `responses`: how much longer than kept its responses are at most, from one sweep over its releases and those above it, with every
//!   release earlier by the rise of its group. What comes to the first instant counts there at once;
//! - `departures`, the sum of `arrivals` and `responses`, is what groups behind it read.
//!
//! A stream that joins gets numbers to keep, too: those that it would have with the responses that are kept, so that with the rises it is as late
//! as it may be. If every receiver is in time with the rises, it is in time with the bounds: the stream may join, and the bounds may be worked out later
//! ([`Admission::settle`]). If not, nothing is said: another way decides. Streams that leave make nothing later, and what was
//! proved stays proved; so requests may follow one another, and each rise begins at the last one. Only the excuse "it was late before" does not hold
//! after a stream has left, as what is kept is then too late.
//!
//! Only levels outside of cycles are followed, where a level is looked at once.

use super::Admission;
use super::ranks::Queue;
use super::state::RANKS;
use super::sweep::{Buffers, FEW, Sweep, first_start};
use crate::demand::HORIZON;
use crate::layout::NONE;
use crate::level::Starts;
use crate::settled::NEVER;
use std::collections::BTreeMap;

/// A level is made ready for jitters that move up by at least twice its busy period, but for no more than this if nobody asked, in
/// nanoseconds.
const UNASKED: u64 = 1 << 16;

/// Rises of one level: of its arrivals, its responses, its departures.
type Rise = [u64; 3];

/// What is proved about the streams that are there beyond what is kept of them.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// By level: by how much its numbers may lie above those that are kept.
    arrivals: Vec<u64>,
    rises: Vec<Rises>,
    /// Responses to transmission times that a level did not know when it was settled, by transmission time.
    others: BTreeMap<(u32, u64), u64>,
    /// Levels whose rises may be more than nothing.
    risen: Vec<u32>,
    queue: Queue,
    buffers: Buffers,
    found: Vec<(u64, u64)>,
    /// What the present request replaced, of levels and of their groups.
    before: Vec<(u32, Rise)>,
    groups_before: Vec<(u32, u64)>,
    /// Groups whose rises are more than nothing.
    risen_groups: Vec<u32>,
    starts: Starts,
    /// Levels at which every receiver is in time by its own way alone, and by how much ways may still grow.
    tight: BTreeMap<u32, u64>,
    /// By how much responses have grown in this request, all together.
    grown: u64,
    /// Does a receiver miss its deadline by what is kept? None: nobody has looked.
    is_any_late: Option<bool>,
}

/// By how much responses and departures of a level may lie above what is kept.
#[derive(Debug, Clone, Copy, Default)]
struct Rises {
    responses: u64,
    departures: u64,
    is_listed: bool,
}

impl Ahead {
    /// Forgets what was proved: the bounds are kept again.
    pub(super) fn forget(&mut self, rises: &mut [u64]) {
        for group in self.risen_groups.drain(..) {
            rises[group as usize] = 0;
        }
        for level in self.risen.drain(..) {
            let level = level as usize;
            self.arrivals[level] = 0;
            self.rises[level] = Rises::default();
        }
        self.others.clear();
        self.tight.clear();
        self.is_any_late = None;
    }

    fn begin(&mut self, levels: usize) {
        self.arrivals.resize(levels, 0);
        self.rises.resize(levels, Rises::default());
        self.queue.fit(levels);
        self.before.clear();
        self.groups_before.clear();
        self.grown = 0;
    }

    /// Slots of a group arrive later by up to `rise`. False if that was known.
    fn raise(&mut self, rises: &mut [u64], (level, group): (usize, u32), rise: u64) -> bool {
        let known = &mut rises[group as usize];
        if rise <= *known {
            return false;
        }
        self.groups_before.push((group, *known));
        if *known == 0 {
            self.risen_groups.push(group);
        }
        *known = rise;
        if rise > self.arrivals[level] {
            self.save(level);
            self.arrivals[level] = rise;
        }
        true
    }

    /// Before any rise of a level is changed.
    fn save(&mut self, level: usize) {
        let rises = &mut self.rises[level];
        if !std::mem::replace(&mut rises.is_listed, true) {
            self.risen.push(level as u32);
        }
        let rise = [self.arrivals[level], rises.responses, rises.departures];
        self.before.push((level as u32, rise));
    }

    /// As before the present request.
    fn undo(&mut self, rises: &mut [u64]) {
        for (group, rise) in self.groups_before.drain(..).rev() {
            rises[group as usize] = rise;
            if rise == 0 {
                // The last that rose from nothing is the last of the list.
                self.risen_groups.pop();
            }
        }
        for (level, rise) in self.before.drain(..).rev() {
            let level = level as usize;
            let rises = &mut self.rises[level];
            [self.arrivals[level], rises.responses, rises.departures] = rise;
        }
        let mut from = 0;
        while let Some(position) = self.queue.next(from) {
            self.queue.remove(position);
            from = position + 1;
        }
    }
}

impl Admission {
    /// Is it sure that with the stream `new`, which is attached, every receiver that is in time stays so, and its own are? `dirty`: the
    /// levels that it changes. Otherwise nothing is proved, and what was before is as it was.
    pub(super) fn is_sure(&mut self, new: u32, dirty: &[u32]) -> bool {
        self.ahead.begin(self.state.levels.len());
        let sure = self.follow(new, dirty).is_some();
        if !sure {
            self.retract(dirty);
        }
        sure
    }

    /// Takes back what the last request proved, whose stream leaves again.
    pub(super) fn retract(&mut self, dirty: &[u32]) {
        self.ahead.undo(&mut self.state.rises);
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
        for &level in dirty {
            if self.state.is_hopeless(level as usize) {
                return None;
            }
            self.ahead.queue.push(self.ranks.position[level as usize]);
        }
        let mut from = 0;
        while let Some(position) = self.ahead.queue.next(from) {
            self.ahead.queue.remove(position);
            let (start, end) = self.ranks.component[position as usize];
            if end - start > 1 {
                return None;
            }
            from = position + 1;
            let level = self.ranks.order[position as usize] as usize;
            if self.state.levels[level].slots > 0 {
                let first = own.partition_point(|(at, _)| (*at as usize) < level);
                let count = own[first..]
                    .iter()
                    .take_while(|(at, _)| *at as usize == level)
                    .count();
                self.look_ahead(level, &own[first..first + count])?;
            }
            // What counts here counts below, too.
            if level % RANKS + 1 < RANKS && self.state.ports[level / RANKS].sorts {
                self.ahead.queue.push(self.ranks.position[level + 1]);
            }
        }
        self.look_again()
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

    fn look_ahead(&mut self, level: usize, own: &[(u32, u32)]) -> Option<()> {
        let kept = &self.state.levels[level];
        let is_open = kept.late > 0 || kept.now.is_unbounded || kept.now.gave_up;
        // A level at which there was nobody does not know what is above it.
        if is_open || (!own.is_empty() && self.state.is_unbounded_above(level)) {
            return None;
        }
        for (_, slot) in own {
            self.arrive_ahead(*slot)?;
        }
        let responses = self.responses_ahead(level)?;
        for (_, slot) in own {
            let frame = self.state.slots[*slot as usize].own;
            let response = self.response_kept(level, frame)?;
            let slot = &mut self.state.slots[*slot as usize];
            slot.departure = slot.latest.max(slot.earliest).checked_add(response)?;
            self.state.levels[level].slack = None;
        }
        let departures = self.ahead.arrivals[level].checked_add(responses)?;
        let further = departures > self.ahead.rises[level].departures;
        if further {
            self.ahead.save(level);
            let grown = responses - self.ahead.rises[level].responses;
            self.ahead.grown = self.ahead.grown.saturating_add(grown);
            self.ahead.rises[level].responses = responses;
            self.ahead.rises[level].departures = departures;
        }
        if self.state.farthest.saturating_add(departures) > HORIZON {
            return None;
        }
        // Those that join may bear less than the others that are here.
        let is_tight = (further || !own.is_empty()) && self.ahead.rises[level].departures > self.slack(level);
        if is_tight || !own.is_empty() {
            let spare = self.spare(level, own)?;
            if is_tight {
                self.ahead.tight.insert(level as u32, spare);
            }
        }
        if further {
            self.push_behind(level, departures);
        }
        Some(())
    }

    /// What is kept of a slot of the new stream: with it, too, the rise of its level is to be added.
    fn arrive_ahead(&mut self, slot: u32) -> Option<()> {
        let data = self.state.slots[slot as usize];
        let mut before = 0;
        if data.parent != NONE {
            let parent = &self.state.slots[data.parent as usize];
            before = parent.departure;
            // The first that comes this way may be the first to hear of it.
            let later = self.ahead.rises[parent.level as usize].departures;
            let level = data.level as usize;
            let group = self.state.levels[level].groups[data.group as usize].id;
            self.ahead.raise(&mut self.state.rises, (level, group), later);
        }
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

    /// Levels that read the departures of this one.
    fn push_behind(&mut self, level: usize, departures: u64) {
        for at in 0..self.state.feeds[level].len() {
            let feed = self.state.feeds[level][at];
            let behind = feed.level as usize;
            if self
                .ahead
                .raise(&mut self.state.rises, (behind, feed.group), departures)
            {
                self.ahead.queue.push(self.ranks.position[behind]);
            }
        }
    }

    /// By how much the responses of a level may be longer than kept.
    fn responses_ahead(&mut self, level: usize) -> Option<u64> {
        let base = level / RANKS * RANKS;
        let by = *self.ahead.arrivals[base..=level].iter().max()?;
        let known = self.ahead.rises[level].responses;
        let asked = &mut self.state.known[level].asked;
        *asked = by.max(*asked);
        if self.state.known[level].stays(by) {
            return Some(known);
        }
        // What is known already need not be found again.
        let mut found = std::mem::take(&mut self.ahead.found);
        found.clear();
        let kept = &self.state.levels[level];
        for &(frame, _) in &kept.owns {
            let response = self.response_kept(level, frame);
            found.push((
                frame,
                response.map_or(0, |response| response.saturating_add(known)),
            ));
        }
        self.sweep_ahead(level, by, &mut found)?;
        let mut most = known;
        for &(frame, response) in &found {
            if let Some(kept) = self.response_kept(level, frame) {
                most = most.max(response.saturating_sub(kept));
            }
        }
        for &(frame, response) in &found {
            if self.response_kept(level, frame).is_none() {
                let kept = response.saturating_sub(most);
                self.ahead.others.insert((level as u32, frame), kept);
            }
        }
        self.ahead.found = found;
        Some(most)
    }

    /// The response to which the rise of a level is added.
    fn response_kept(&self, level: usize, frame: u64) -> Option<u64> {
        match self.state.levels[level].now.response(frame) {
            NEVER => self.ahead.others.get(&(level as u32, frame)).copied(),
            response => Some(response),
        }
    }

    /// The responses of a level with every release at its port earlier by the rise of its group, all at most `by`.
    fn sweep_ahead(&mut self, index: usize, by: u64, found: &mut [(u64, u64)]) -> Option<()> {
        let shape = self.shape(index)?;
        let likely = shape.likely;
        let mut horizon = likely.saturating_add(likely / 8).saturating_add(by);
        for _ in 0..4 {
            let sweep = Sweep {
                horizon,
                by,
                all: false,
            };
            if let Some(responses) = self.ahead.buffers.sweep(&mut self.state, index, (&shape, sweep)) {
                responses.longest(&mut self.ahead.starts, found)?;
                return Some(());
            }
            horizon = horizon.checked_mul(2)?;
        }
        None
    }

    /// Makes ready what the next proof reads.
    pub(super) fn prepare(&mut self) {
        self.ahead.begin(self.state.levels.len());
        for level in 0..self.state.levels.len() {
            let kept = &mut self.state.levels[level];
            for group in &mut kept.groups {
                if group.listed == 0 && group.wanted > 0 {
                    group.list(group.wanted);
                }
            }
            if kept.slots > 0 {
                self.slack(level);
                self.look_farther(level);
            }
        }
    }

    /// Finds out how far jitters may move up while the responses of a level stay, if that takes little.
    fn look_farther(&mut self, level: usize) -> Option<()> {
        let kept = &self.state.levels[level];
        let (start, end) = self.ranks.component[self.ranks.position[level] as usize];
        if end - start > 1 || kept.late > 0 || kept.now.is_unbounded || kept.now.gave_up {
            return None;
        }
        let unasked = match kept.now.end {
            u64::MAX => 0,
            end => end.saturating_mul(2).min(UNASKED),
        };
        let asked = std::mem::take(&mut self.state.known[level].asked).max(unasked);
        if self.state.known[level].stays(asked) {
            return None;
        }
        let shape = self.shape(level)?;
        if shape.releases > FEW && self.state.levels[level].now.first == 0 {
            let first = first_start(&self.state, level, shape.likely);
            self.state.levels[level].now.first = first;
        }
        if shape.first > shape.quiet {
            let stays = shape.first - shape.quiet - 1;
            self.state.known[level].learn(stays);
            if stays >= asked {
                return None;
            }
        }
        if shape.releases > FEW {
            return None;
        }
        let mut by = asked.saturating_mul(4);
        let mut found = std::mem::take(&mut self.ahead.found);
        for _ in 0..4 {
            if self.state.known[level].stays(by) {
                break;
            }
            let more = shape.likely.saturating_add(by.saturating_mul(2));
            let sweep = Sweep {
                horizon: more.saturating_add(shape.likely / 4),
                by,
                all: true,
            };
            let kept = &self.state.levels[level];
            found.clear();
            found.extend(
                kept.owns
                    .iter()
                    .map(|(frame, _)| (*frame, kept.now.response(*frame))),
            );
            let before = found.clone();
            let responses = self.ahead.buffers.sweep(&mut self.state, level, (&shape, sweep));
            let swept = responses.and_then(|responses| responses.longest(&mut self.ahead.starts, &mut found));
            let stay = swept.is_some() && found == before;
            if stay {
                self.state.known[level].learn(by);
                break;
            }
            by /= 4;
        }
        self.ahead.found = found;
        None
    }

    /// By how much all departures of a level to receivers may be later at least.
    fn slack(&mut self, level: usize) -> u64 {
        if let Some(slack) = self.state.levels[level].slack {
            return slack;
        }
        let slots = self.state.levels[level]
            .groups
            .iter()
            .flat_map(|group| &group.slots);
        let slack = slots
            .filter(|slot| self.state.slots[**slot as usize].is_leaf)
            .map(|slot| {
                let limit = self.state.rest[*slot as usize].limit;
                limit.saturating_sub(self.state.slots[*slot as usize].departure)
            })
            .min()
            .unwrap_or(u64::MAX);
        self.state.levels[level].slack = Some(slack);
        slack
    }

    /// The same receiver by receiver: each is later by no more than what the responses on its own way have grown. `None` if one may be
    /// too late.
    fn spare(&self, level: usize, own: &[(u32, u32)]) -> Option<u64> {
        let slots = self.state.levels[level]
            .groups
            .iter()
            .flat_map(|group| &group.slots);
        let mut least = u64::MAX;
        for slot in slots.filter(|slot| self.state.slots[**slot as usize].is_leaf) {
            let (mut at, mut later) = (*slot, 0u64);
            while at != NONE {
                let data = &self.state.slots[at as usize];
                later = later.saturating_add(self.ahead.rises[data.level as usize].responses);
                at = data.parent;
            }
            let end = self.state.slots[*slot as usize].departure.saturating_add(later);
            least = match self.state.rest[*slot as usize].limit.checked_sub(end) {
                Some(left) => least.min(left),
                // What is late already may stay so.
                None if later == 0 && own.iter().all(|(_, new)| new != slot) => 0,
                None => return None,
            };
        }
        Some(least)
    }
}

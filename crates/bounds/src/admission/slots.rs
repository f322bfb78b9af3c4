//! Room for streams that come and go: slots of a flow side by side, in blocks that are used again.

use super::state::{Entry, State};
use crate::layout::{Flow, NONE, crossing, soonest};
use timebound_model::{Network, Stream};

/// A flow at a port: what following a change needs, in one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Slot {
    /// Latest arrival after the nominal release.
    pub(super) latest: u64,
    /// Latest departure after the nominal release, or [`crate::settled::NEVER`].
    pub(super) departure: u64,
    pub(super) traversal: u64,
    pub(super) earliest: u64,
    pub(super) own: u64,
    pub(super) level: u32,
    /// Position among the level's groups, and in that group.
    pub(super) group: u32,
    pub(super) place: u32,
    /// The slot that feeds this one.
    pub(super) parent: u32,
    /// The transaction that saved it last; 0: none.
    pub(super) saved: u32,
    /// Does a receiver lie behind it?
    pub(super) is_leaf: bool,
    /// No bound on its arrivals.
    pub(super) is_late: bool,
    /// On its level's list of slots to look at.
    pub(super) is_pending: bool,
    /// Does it feed the slot that follows it in memory, and no other?
    pub(super) is_chain: bool,
}

/// The rest of a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    /// The slots that it feeds.
    pub(super) first_child: u32,
    pub(super) sibling: u32,
    pub(super) flow: u32,
    pub(super) stream: u32,
    /// Did the switch before it copy the frame?
    pub(super) is_copied: bool,
    /// The departure, were every response its own transmission: no solution is less.
    pub(super) floor: u64,
    /// Of a leaf: a departure up to this meets the deadline.
    pub(super) limit: u64,
}

impl State {
    /// Makes room for a stream and its flows; nothing is attached yet.
    pub(super) fn allot(&mut self, network: &Network, stream: Stream) -> u32 {
        let id = self.free_streams.pop().unwrap_or(self.streams.len() as u32);
        let mut found = Vec::new();
        let zero = timebound_model::Span::ZERO;
        let begins = crate::exact::begins(network, &stream.tree);
        crate::layout::flows_of_stream(
            &stream,
            timebound_model::StreamId(id),
            (zero, begins, network.per_nano()),
            &mut Vec::new(),
            &mut found,
        );
        let hops = stream.tree.hops.len();
        let mut flows = Vec::with_capacity(found.len());
        for mut flow in found {
            flow.first_hop = self.allot_slots(hops);
            let index = self.free_flows.pop().unwrap_or(self.flows.len() as u32);
            self.fill(network, &stream, &flow, (index, id));
            flows.push(index);
            put(&mut self.flows, index, flow);
        }
        let is_incomplete = stream.tree.leaves.iter().map(|leaf| {
            let path = stream.tree.path(*leaf);
            let mut ports = path.iter().map(|hop| stream.tree.hops[*hop as usize].port);
            ports.any(|port| crate::cause::incomplete(network, port).is_some())
        });
        let is_incomplete = is_incomplete.collect();
        put(
            &mut self.streams,
            id,
            Entry {
                stream,
                flows,
                is_incomplete,
            },
        );
        id
    }

    fn allot_slots(&mut self, count: usize) -> usize {
        if let Some(start) = self.free_slots.get_mut(&count).and_then(Vec::pop) {
            return start as usize;
        }
        let start = self.slots.len();
        self.slots.resize(start + count, BLANK);
        self.rest.resize(start + count, ALONE);
        start
    }

    fn fill(&mut self, network: &Network, stream: &Stream, flow: &Flow, (index, id): (u32, u32)) {
        let first = flow.first_hop;
        let tree = &stream.tree;
        for (position, hop) in tree.hops.iter().enumerate() {
            let port = &network.ports[hop.port.index()];
            let mut rest = Rest {
                flow: index,
                stream: id,
                ..ALONE
            };
            let mut slot = Slot {
                level: self.level_of(hop.port, stream.class) as u32,
                own: flow.passage(port.speed()).0,
                traversal: flow.jitter,
                ..BLANK
            };
            let mut before = 0;
            if let Some(parent) = hop.parent {
                let link = &network.ports[tree.hops[parent as usize].port.index()];
                let before_it = tree.hops[parent as usize];
                let (least, greatest) = network.switching(before_it);
                let from = &self.slots[first + parent as usize];
                rest.is_copied = before_it.forks;
                slot.parent = (first + parent as usize) as u32;
                slot.earliest = soonest(
                    from.earliest.saturating_add(least.0),
                    flow.quickest(from.own, link),
                    link,
                    port,
                );
                slot.traversal = crossing(link).saturating_add(greatest).0;
                let from = &mut self.rest[first + parent as usize];
                rest.sibling = std::mem::replace(&mut from.first_child, (first + position) as u32);
                before = from.floor;
            }
            rest.floor = before.saturating_add(slot.traversal).saturating_add(slot.own);
            slot.departure = rest.floor;
            self.rest[first + position] = rest;
            self.slots[first + position] = slot;
        }
        for slot in first..first + tree.hops.len() {
            let child = self.rest[slot].first_child as usize;
            self.slots[slot].is_chain = child == slot + 1 && self.rest[child].sibling == NONE;
        }
        for leaf in &tree.leaves {
            let crossed = crossing(&network.ports[tree.hops[leaf.hop as usize].port.index()]).0;
            self.slots[first + leaf.hop as usize].is_leaf = true;
            let early = flow.envelope.map_or(0, |_| flow.jitter);
            // As in the bound, which counts what crosses the link, and not what a token bucket's first frame may be early by.
            let rest = &mut self.rest[first + leaf.hop as usize];
            rest.limit = stream.deadline.map_or(u64::MAX, |deadline| {
                deadline.0.saturating_add(early).saturating_sub(crossed)
            });
        }
    }

    /// Gives back what [`State::allot`] took.
    pub(super) fn release(&mut self, id: u32) -> Option<Stream> {
        let entry = self.streams[id as usize].take()?;
        for index in entry.flows.into_iter().rev() {
            if let Some(flow) = self.flows[index as usize].take() {
                let blocks = self.free_slots.entry(entry.stream.tree.hops.len()).or_default();
                blocks.push(flow.first_hop as u32);
            }
            self.free_flows.push(index);
        }
        self.free_streams.push(id);
        Some(entry.stream)
    }
}

const BLANK: Slot = Slot {
    latest: 0,
    departure: 0,
    traversal: 0,
    earliest: 0,
    own: 0,
    level: NONE,
    group: 0,
    place: 0,
    parent: NONE,
    saved: 0,
    is_leaf: false,
    is_late: false,
    is_pending: false,
    is_chain: false,
};

const ALONE: Rest = Rest {
    first_child: NONE,
    sibling: NONE,
    flow: NONE,
    stream: NONE,
    is_copied: false,
    floor: 0,
    limit: u64::MAX,
};

fn put<T>(slab: &mut Vec<Option<T>>, index: u32, value: T) {
    if index as usize == slab.len() {
        slab.push(Some(value));
    } else {
        slab[index as usize] = Some(value);
    }
}

//! Room for streams that come and go: slots of a flow side by side, in blocks that are used again.

use super::state::{Entry, Slot, State};
use crate::layout::{Flow, NONE, crossing};
use timebound_model::{Network, Stream};

impl State {
    /// Makes room for a stream and its flows; nothing is attached yet.
    pub(super) fn allot(&mut self, network: &Network, stream: Stream) -> u32 {
        let id = self.free_streams.pop().unwrap_or(self.streams.len() as u32);
        let mut found = Vec::new();
        let zero = timebound_model::Span::ZERO;
        crate::layout::flows_of_stream(
            &stream,
            timebound_model::StreamId(id),
            zero,
            &mut Vec::new(),
            &mut found,
        );
        let hops = stream.tree.hops.len();
        let mut flows = Vec::with_capacity(found.len());
        for mut flow in found {
            flow.first_hop = self.allot_slots(hops);
            let index = self.free_flows.pop().unwrap_or(self.flows.len() as u32);
            self.fill(network, &stream, &flow, index);
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
                touched: 0,
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
        start
    }

    fn fill(&mut self, network: &Network, stream: &Stream, flow: &Flow, index: u32) {
        let first = flow.first_hop;
        let tree = &stream.tree;
        for (position, hop) in tree.hops.iter().enumerate() {
            let port = &network.ports[hop.port.index()];
            let mut slot = Slot {
                flow: index,
                level: self.level_of(hop.port, stream.class) as u32,
                own: flow.passage(port.rate).0,
                traversal: flow.jitter,
                ..BLANK
            };
            let mut before = 0;
            if let Some(parent) = hop.parent {
                let link = &network.ports[tree.hops[parent as usize].port.index()];
                let before_it = tree.hops[parent as usize];
                let (least, greatest) = network.switching(before_it);
                let from = &mut self.slots[first + parent as usize];
                slot.is_copied = before_it.forks;
                slot.parent = (first + parent as usize) as u32;
                slot.earliest = from
                    .earliest
                    .saturating_add(from.own)
                    .saturating_add(link.propagation.0)
                    .saturating_add(least.0);
                slot.traversal = crossing(link).saturating_add(greatest).0;
                slot.sibling = std::mem::replace(&mut from.first_child, (first + position) as u32);
                before = from.floor;
            }
            slot.floor = before.saturating_add(slot.traversal).saturating_add(slot.own);
            slot.departure = slot.floor;
            self.slots[first + position] = slot;
        }
        for leaf in &tree.leaves {
            self.slots[first + leaf.hop as usize].is_leaf = true;
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
    flow: NONE,
    level: NONE,
    group: 0,
    place: 0,
    parent: NONE,
    first_child: NONE,
    sibling: NONE,
    is_copied: false,
    is_leaf: false,
    is_late: false,
    is_pending: false,
    saved: 0,
    own: 0,
    earliest: 0,
    traversal: 0,
    floor: 0,
    latest: 0,
    departure: 0,
};

fn put<T>(slab: &mut Vec<Option<T>>, index: u32, value: T) {
    if index as usize == slab.len() {
        slab.push(Some(value));
    } else {
        slab[index as usize] = Some(value);
    }
}

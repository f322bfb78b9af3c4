//! In which order levels are looked at: every level after what it reads, those of a cycle side by side.
//!
//! The relation is that of all routes that the network can choose and of those that were stated, not that of the present flows: then
//! it does not change when one joins or leaves, and a cycle of the present flows is a cycle in it.

use super::state::{RANKS, State};
use crate::order::{self, Lists};
use timebound_model::{Network, NodeId, NodeKind, PortId, Tree};

/// Pairs of a node and a destination whose routes are looked at; what lies beyond is learnt from the flows.
const MOST_ROUTES: usize = 1 << 24;

#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// The ports that follow each port on a route.
    next: Vec<Vec<u32>>,
    /// Levels in order, and where each stands.
    pub(super) order: Vec<u32>,
    pub(super) position: Vec<u32>,
    /// By position: where the level's component starts and ends.
    pub(super) component: Vec<(u32, u32)>,
    /// Ports in order, as far as they are in no cycle, and where each stands.
    pub(super) ports: Vec<u32>,
    pub(super) port_position: Vec<u32>,
    /// By port: does a level of it read what it answers itself?
    pub(super) is_cyclic: Vec<bool>,
    is_stale: bool,
}

impl Ranks {
    pub(super) fn new(network: &Network) -> Self {
        let mut ranks = Self {
            next: vec![Vec::new(); network.ports.len()],
            is_stale: true,
            ..Self::default()
        };
        let hosts = (0..network.nodes.len()).filter(|node| network.nodes[*node].kind == NodeKind::Host);
        let most = MOST_ROUTES / network.nodes.len().max(1);
        for destination in hosts.take(most).map(NodeId::new) {
            for node in (0..network.nodes.len()).map(NodeId::new) {
                let Some(port) = network.routes.next_hop(node, destination) else {
                    continue;
                };
                let peer = network.ports[port.index()].peer;
                if peer != destination
                    && let Some(after) = network.routes.next_hop(peer, destination)
                {
                    ranks.add(port, after);
                }
            }
        }
        ranks
    }

    /// Does a level read what it answers itself, by way of others?
    pub(super) fn is_in_cycle(&self, level: u32) -> bool {
        let (start, end) = self.component[self.position[level as usize] as usize];
        end - start > 1
    }

    fn add(&mut self, port: PortId, after: PortId) {
        let next = &mut self.next[port.index()];
        if !next.contains(&after.0) {
            next.push(after.0);
            self.is_stale = true;
        }
    }

    /// Learns the ways of a stream. True if the order changed.
    pub(super) fn learn(&mut self, tree: &Tree) {
        for hop in &tree.hops {
            if let Some(parent) = hop.parent {
                self.add(tree.hops[parent as usize].port, hop.port);
            }
        }
    }

    /// Brings the order up to date; nobody may stand in it meanwhile.
    pub(super) fn sort(&mut self, state: &State) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        let ports = self.next.len();
        let mut before = vec![Vec::new(); ports];
        for (port, next) in (0u32..).zip(&self.next) {
            for after in next {
                before[*after as usize].push(port);
            }
        }
        let mut inputs = Lists::with_capacity(ports * RANKS, ports * RANKS * 4);
        for (port, before) in before.iter().enumerate() {
            for rank in 0..RANKS {
                if rank > 0 {
                    inputs.add((port * RANKS + rank - 1) as u32);
                }
                for &from in before {
                    let from = from as usize;
                    match (state.ports[from].sorts, state.ports[port].sorts) {
                        (true, true) => inputs.add((from * RANKS + rank) as u32),
                        (false, _) => inputs.add((from * RANKS) as u32),
                        (true, false) => (0..RANKS).for_each(|rank| inputs.add((from * RANKS + rank) as u32)),
                    }
                }
                inputs.close();
            }
        }
        let components = order::components(&inputs);
        self.order.clear();
        self.component.clear();
        self.position = vec![0; ports * RANKS];
        for component in components.iter() {
            let start = self.order.len() as u32;
            let end = start + component.len() as u32;
            for &level in component {
                self.position[level as usize] = self.order.len() as u32;
                self.order.push(level);
                self.component.push((start, end));
            }
        }
        // Whatever way leads from port to port, the first rank takes it, too.
        self.ports = (0..ports as u32).collect();
        self.ports
            .sort_unstable_by_key(|port| self.position[*port as usize * RANKS]);
        self.port_position = vec![0; ports];
        for (position, port) in (0u32..).zip(&self.ports) {
            self.port_position[*port as usize] = position;
        }
        let levels = |port: usize| (port * RANKS..(port + 1) * RANKS).map(|level| level as u32);
        self.is_cyclic = (0..ports)
            .map(|port| levels(port).any(|level| self.is_in_cycle(level)))
            .collect();
    }
}

/// Levels that wait, by position.
#[derive(Debug, Default)]
pub(super) struct Queue {
    words: Vec<u64>,
}

impl Queue {
    pub(super) fn fit(&mut self, positions: usize) {
        self.words.resize(positions.div_ceil(64), 0);
    }
    pub(super) fn push(&mut self, position: u32) {
        self.words[position as usize / 64] |= 1 << (position % 64);
    }
    pub(super) fn remove(&mut self, position: u32) {
        self.words[position as usize / 64] &= !(1 << (position % 64));
    }
    /// The first that waits at or after `from`.
    pub(super) fn next(&self, from: u32) -> Option<u32> {
        let first = from as usize / 64;
        let mut mask = u64::MAX << (from % 64);
        for (word, bits) in (first..).zip(self.words.get(first..)?) {
            let found = bits & mask;
            if found != 0 {
                return Some((word * 64) as u32 + found.trailing_zeros());
            }
            mask = u64::MAX;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_finds_what_waits_in_order() {
        let mut queue = Queue::default();
        queue.fit(300);
        [299, 0, 64, 63]
            .into_iter()
            .for_each(|position| queue.push(position));
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(position) = queue.next(from) {
            found.push(position);
            queue.remove(position);
            from = position + 1;
        }
        assert_eq!(found, [0, 63, 64, 299]);
        assert_eq!(
            (queue.next(0), queue.next(299), queue.next(5_000)),
            (None, None, None)
        );
    }
}

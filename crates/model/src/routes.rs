//! Static shortest paths: least total delay (propagation + greatest switching delay + transmission of a full frame), ties by
//! the fewest hops, then by the lower port id, so that every machine finds the same routes.

use crate::ids::{NodeId, PortId};
use crate::network::{Node, NodeKind, Port};
use crate::units::WireBytes;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Next-hop ports towards every host.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    nodes: usize,
    /// `next[destination * nodes + node]`, `NONE` where unreachable.
    next: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Routes {
    /// All next hops; hosts do not forward.
    pub(crate) fn compute(nodes: &[Node], ports: &[Port]) -> Self {
        let count = nodes.len();
        let mut next = vec![NONE; count * count];
        for destination in 0..count {
            if nodes[destination].kind != NodeKind::Host {
                continue;
            }
            towards(
                nodes,
                ports,
                destination,
                &mut next[destination * count..(destination + 1) * count],
            );
        }
        Self { nodes: count, next }
    }

    /// The port on which `node` sends what is meant for the host `destination`.
    #[inline]
    #[must_use]
    pub fn next_hop(&self, node: NodeId, destination: NodeId) -> Option<PortId> {
        match self.next.get(destination.index() * self.nodes + node.index()) {
            Some(&port) if port != NONE => Some(PortId(port)),
            _ => None,
        }
    }

    /// Ports from `source` to `destination`; `None` where there is no path.
    #[must_use]
    pub fn path(&self, ports: &[Port], source: NodeId, destination: NodeId) -> Option<Vec<PortId>> {
        let mut path = Vec::new();
        let mut at = source;
        while at != destination {
            let port = self.next_hop(at, destination)?;
            path.push(port);
            at = ports[port.index()].peer;
        }
        Some(path)
    }
}

/// Dijkstra backwards from one destination.
fn towards(nodes: &[Node], ports: &[Port], destination: usize, next: &mut [u32]) {
    let mut cost = vec![(u64::MAX, u32::MAX); nodes.len()];
    let mut heap = BinaryHeap::new();
    cost[destination] = (0, 0);
    heap.push(Reverse((0u64, 0u32, destination)));
    while let Some(Reverse((delay, hops, node))) = heap.pop() {
        if (delay, hops) != cost[node] || (node != destination && nodes[node].kind == NodeKind::Host) {
            continue;
        }
        for &outgoing in &nodes[node].ports {
            let incoming = ports[outgoing.index()].reverse;
            let port = &ports[incoming.index()];
            let neighbour = port.node.index();
            let step = port.propagation.0
                + port.rate.transmission_time(WireBytes::FULL).0
                + if node == destination {
                    0
                } else {
                    nodes[node].switching_max.0
                };
            let candidate = (delay.saturating_add(step), hops + 1);
            let current = (cost[neighbour].0, cost[neighbour].1);
            if candidate < current || (candidate == current && incoming.0 < next[neighbour]) {
                cost[neighbour] = candidate;
                next[neighbour] = incoming.0;
                heap.push(Reverse((candidate.0, candidate.1, neighbour)));
            }
        }
    }
}

//! Static shortest paths: least total delay (propagation + greatest switching delay + transmission of a full frame), ties by
//! the fewest hops, then by the lower port id, so that every machine finds the same routes.
//!
//! A table of all pairs would need gigabytes for networks that a short file declares. Hosts on one link share the row of the node that they are on, have no entry
//! in others', and rows are worked out when somebody asks for one.

use crate::ids::{NodeId, PortId};
use crate::network::{Node, NodeKind, Port};
use crate::units::WireBytes;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;

/// Next-hop ports towards every host.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    places: Vec<Place>,
    /// By core node: its position in [`Self::edges`], and one more for the end.
    starts: Vec<u32>,
    edges: Vec<Edge>,
    /// By core node: what its switching takes, ns; none of hosts, which do not forward.
    switching_ns: Vec<Option<u64>>,
    /// By core node: a row of next hops towards it by core node, [`NONE`] where there is no path.
    rows: Vec<OnceLock<Box<[u32]>>>,
}

const NONE: u32 = u32::MAX;

/// Where a node is.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Its number among the nodes that have rows and entries, and whether it is a host.
    Core { number: u32, is_host: bool },
    /// A host with one link: the core node at its other end, the port there and back.
    Leaf { at: u32, there: u32, back: u32 },
}

/// A way into a node from a neighbour.
#[derive(Debug, Clone, Copy)]
struct Edge {
    neighbour: u32,
    /// The neighbour's port.
    port: u32,
    delay_ns: u64,
}

impl Routes {
    /// Prepares the rows; hosts do not forward.
    pub(crate) fn compute(nodes: &[Node], ports: &[Port]) -> Self {
        let mut numbers = vec![NONE; nodes.len()];
        let leaf = |node: &Node| match node.ports[..] {
            [port] if node.kind == NodeKind::Host => {
                let peer = ports[port.index()].peer;
                (nodes[peer.index()].kind != NodeKind::Host).then_some((port, peer))
            }
            _ => None,
        };
        let mut core = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            if leaf(node).is_none() {
                numbers[index] = core.len() as u32;
                core.push(node);
            }
        }
        let places = nodes
            .iter()
            .enumerate()
            .map(|(index, node)| match leaf(node) {
                Some((port, peer)) => Place::Leaf {
                    at: numbers[peer.index()],
                    there: ports[port.index()].reverse.0,
                    back: port.0,
                },
                None => Place::Core {
                    number: numbers[index],
                    is_host: node.kind == NodeKind::Host,
                },
            })
            .collect();
        let (mut starts, mut edges) = (vec![0], Vec::new());
        for node in &core {
            for outgoing in &node.ports {
                let incoming = ports[outgoing.index()].reverse;
                let port = &ports[incoming.index()];
                let neighbour = numbers[port.node.index()];
                if neighbour != NONE {
                    edges.push(Edge {
                        neighbour,
                        port: incoming.0,
                        delay_ns: port.propagation.0 + port.rate.transmission_time(WireBytes::FULL).0,
                    });
                }
            }
            starts.push(edges.len() as u32);
        }
        let switching = |node: &&Node| (node.kind != NodeKind::Host).then_some(node.switching_max.0);
        Self {
            places,
            starts,
            edges,
            switching_ns: core.iter().map(switching).collect(),
            rows: core.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    /// Works out all rows that frames can need, so that nobody waits for one later.
    pub fn complete(&self) {
        for place in &self.places {
            match *place {
                Place::Leaf { at: number, .. }
                | Place::Core {
                    number,
                    is_host: true,
                } => {
                    self.row(number);
                }
                Place::Core { .. } => {}
            }
        }
    }

    /// The port on which `node` sends what is meant for the host `destination`.
    #[inline]
    #[must_use]
    pub fn next_hop(&self, node: NodeId, destination: NodeId) -> Option<PortId> {
        if node == destination {
            return None;
        }
        let (root, last) = match *self.places.get(destination.index())? {
            Place::Leaf { at, there, .. } => (at, there),
            Place::Core {
                number,
                is_host: true,
            } => (number, NONE),
            Place::Core { .. } => return None,
        };
        let port = match *self.places.get(node.index())? {
            Place::Core { number, .. } if number == root => last,
            Place::Core { number, .. } => self.row(root)[number as usize],
            Place::Leaf { at, back, .. } if at == root || self.row(root)[at as usize] != NONE => back,
            Place::Leaf { .. } => NONE,
        };
        (port != NONE).then_some(PortId(port))
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

    #[inline]
    fn row(&self, root: u32) -> &[u32] {
        self.rows[root as usize].get_or_init(|| self.towards(root as usize))
    }

    /// Dijkstra backwards from one core node. What a host behind it adds is the same for all ways.
    #[cold]
    fn towards(&self, root: usize) -> Box<[u32]> {
        let mut next = vec![NONE; self.rows.len()];
        let mut cost = vec![(u64::MAX, u32::MAX); self.rows.len()];
        let mut heap = BinaryHeap::new();
        cost[root] = (0, 0);
        heap.push(Reverse((0u64, 0u32, root)));
        while let Some(Reverse((delay, hops, node))) = heap.pop() {
            if (delay, hops) != cost[node] {
                continue;
            }
            let switching = match self.switching_ns[node] {
                _ if node == root => 0,
                Some(switching) => switching,
                None => continue,
            };
            for edge in &self.edges[self.starts[node] as usize..self.starts[node + 1] as usize] {
                let neighbour = edge.neighbour as usize;
                let candidate = (delay.saturating_add(edge.delay_ns + switching), hops + 1);
                let current = cost[neighbour];
                if candidate < current || (candidate == current && edge.port < next[neighbour]) {
                    cost[neighbour] = candidate;
                    next[neighbour] = edge.port;
                    heap.push(Reverse((candidate.0, candidate.1, neighbour)));
                }
            }
        }
        next.into()
    }
}

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;

//! What never changes while a fabric runs: tree children, the spanning tree for broadcast and groups, stream names.

use crate::draws::StreamName;
use crate::frame::NO_LEAF;
use crate::impairment::RuleNames;
use std::collections::VecDeque;
use timebound_model::{Network, NodeId, NodeKind, PortId, StreamId};

/// The name under which a direction of a link draws: `a->b`, numbered where links are parallel.
pub(crate) fn link_name(network: &Network, port: PortId) -> String {
    let this = &network.ports[port.index()];
    let twins = network.nodes[this.node.index()]
        .ports
        .iter()
        .filter(|other| **other < port && network.ports[other.index()].peer == this.peer)
        .count();
    let name = network.port_name(port);
    if twins == 0 {
        name
    } else {
        format!("{name}#{twins}")
    }
}

/// One hop of a stream's tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreeHop {
    pub(crate) port: u32,
    /// Index into the stream's leaves, [`NO_LEAF`] where the tree goes on.
    pub(crate) leaf: u32,
    /// Does the node behind it send copies?
    pub(crate) forks: bool,
    /// Range in [`Wiring::children`].
    children: (u32, u32),
}

#[derive(Debug)]
pub(crate) struct Wiring {
    hops: Vec<TreeHop>,
    children: Vec<u32>,
    /// Per stream the range of its first hops in `children`.
    roots: Vec<(u32, u32)>,
    /// Per stream the place of its first hop in `hops`.
    starts: Vec<u32>,
    /// Per node its ports on the spanning tree.
    spanning: Vec<Vec<u32>>,
    pub(crate) rule_names: Vec<RuleNames>,
    pub(crate) switching_names: Vec<StreamName>,
}

impl Wiring {
    pub(crate) fn new(network: &Network) -> Self {
        let names: Vec<String> = (0..network.ports.len())
            .map(|port| link_name(network, PortId::new(port)))
            .collect();
        let mut wiring = Self {
            hops: Vec::new(),
            children: Vec::new(),
            roots: Vec::new(),
            starts: Vec::new(),
            spanning: spanning_tree(network),
            rule_names: names
                .iter()
                .enumerate()
                .map(|(port, name)| RuleNames::new(name, &names[port & !1]))
                .collect(),
            switching_names: names
                .iter()
                .map(|name| StreamName::new(name, "switching"))
                .collect(),
        };
        for stream in &network.streams {
            wiring.add_tree(&stream.tree);
        }
        wiring
    }

    fn add_tree(&mut self, tree: &timebound_model::Tree) {
        let base = self.hops.len() as u32;
        self.starts.push(base);
        // Children of each hop (slot 0: of the source), gathered in one pass over the parent links.
        let mut children = vec![Vec::new(); tree.hops.len() + 1];
        for (index, hop) in (0u32..).zip(&tree.hops) {
            children[hop.parent.map_or(0, |parent| parent as usize + 1)].push(base + index);
        }
        let mut ranges = children.into_iter().map(|list| {
            let start = self.children.len() as u32;
            self.children.extend(list);
            (start, self.children.len() as u32)
        });
        self.roots.push(ranges.next().unwrap_or((0, 0)));
        for (hop, children) in tree.hops.iter().zip(ranges) {
            self.hops.push(TreeHop {
                port: hop.port.0,
                leaf: NO_LEAF,
                forks: hop.forks,
                children,
            });
        }
        for (index, leaf) in (0u32..).zip(&tree.leaves) {
            self.hops[(base + leaf.hop) as usize].leaf = index;
        }
    }

    #[inline]
    pub(crate) fn hop(&self, position: u32) -> &TreeHop {
        &self.hops[position as usize]
    }

    /// The place behind `port` in a stream's tree; `None` where the tree does not use that port.
    pub(crate) fn position(&self, stream: StreamId, port: PortId) -> Option<u32> {
        let start = *self.starts.get(stream.index())?;
        let end = self.starts.get(stream.index() + 1);
        let end = end.map_or(self.hops.len(), |end| *end as usize);
        let hops = &self.hops[start as usize..end];
        let place = hops.iter().position(|hop| hop.port == port.0)?;
        Some(start + place as u32)
    }

    /// Is `position` a place in a tree, behind `port`?
    pub(crate) fn leads(&self, position: u32, port: PortId) -> bool {
        self.hops
            .get(position as usize)
            .is_some_and(|hop| hop.port == port.0)
    }

    /// Indices into the children of the hop at `position`.
    #[inline]
    pub(crate) fn after(&self, position: u32) -> (u32, u32) {
        self.hop(position).children
    }

    #[inline]
    pub(crate) fn roots(&self, stream: StreamId) -> Option<(u32, u32)> {
        self.roots.get(stream.index()).copied()
    }

    #[inline]
    pub(crate) fn child(&self, index: u32) -> u32 {
        self.children[index as usize]
    }

    #[inline]
    pub(crate) fn spanning(&self, node: NodeId) -> &[u32] {
        self.spanning.get(node.index()).map_or(&[], Vec::as_slice)
    }

    /// For every node but `host` in its part of the network: the port that leads to `host` on the spanning tree.
    pub(crate) fn ports_towards(&self, network: &Network, host: NodeId) -> Vec<PortId> {
        let mut towards = Vec::new();
        let mut queue = VecDeque::from([(host, None)]);
        while let Some((node, came_by)) = queue.pop_front() {
            // Nothing reaches the host through another host.
            if node != host && network.nodes[node.index()].kind == NodeKind::Host {
                continue;
            }
            for &outgoing in self.spanning(node) {
                let port = &network.ports[outgoing as usize];
                if Some(outgoing) != came_by {
                    towards.push(port.reverse);
                    queue.push_back((port.peer, Some(port.reverse.0)));
                }
            }
        }
        towards
    }
}

/// A loop-free set of links over which every host hears every other (per connected part), breadth first from the switch
/// or segment with the least id. Hosts are always leaves: they do not forward. By node the indices of its ports on it.
#[must_use]
pub fn spanning_tree(network: &Network) -> Vec<Vec<u32>> {
    let is_host = |node: NodeId| network.nodes[node.index()].kind == NodeKind::Host;
    let mut tree = vec![Vec::new(); network.nodes.len()];
    let mut reached = vec![false; network.nodes.len()];
    let mut attach = |outgoing: PortId, reached: &mut Vec<bool>| {
        let port = &network.ports[outgoing.index()];
        tree[port.node.index()].push(outgoing.0);
        tree[port.peer.index()].push(port.reverse.0);
        reached[port.peer.index()] = true;
    };
    for root in (0..network.nodes.len()).map(NodeId::new) {
        if reached[root.index()] || is_host(root) {
            continue;
        }
        reached[root.index()] = true;
        let mut queue = VecDeque::from([root]);
        while let Some(node) = queue.pop_front() {
            for &outgoing in &network.nodes[node.index()].ports {
                let peer = network.ports[outgoing.index()].peer;
                if !reached[peer.index()] {
                    attach(outgoing, &mut reached);
                    if !is_host(peer) {
                        queue.push_back(peer);
                    }
                }
            }
        }
    }
    // Hosts that are joined to hosts only.
    for host in (0..network.nodes.len()).map(NodeId::new) {
        for &outgoing in &network.nodes[host.index()].ports {
            let peer = network.ports[outgoing.index()].peer;
            if is_host(host) && !reached[peer.index()] {
                reached[host.index()] = true;
                attach(outgoing, &mut reached);
            }
        }
    }
    for ports in &mut tree {
        ports.sort_unstable();
    }
    tree
}

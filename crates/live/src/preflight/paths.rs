//! Which pairs of hosts to probe so that every port is crossed, and what their paths' figures say.

use crate::nodes::Nodes;
use std::collections::BTreeSet;
use std::time::Duration;
use timebound_model::{Network, NodeId, NodeKind, PortId, Rate, WireBytes};

/// What a real switch may take for a probe: its first frames have to be looked up, and the machine may be busy.
const LONGEST_TRANSIT: u64 = 20_000_000;

/// A pair of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    /// Number of the pair.
    pub(super) flow: u32,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    /// Positions in [`Nodes::list`].
    pub(super) sender: usize,
    pub(super) receiver: usize,
    pub(super) ports: Vec<PortId>,
    /// Real switches on its way.
    pub(super) switches: Vec<NodeId>,
}

/// Pairs that together cross every port between hosts, greedily, and the ports that can be crossed at all.
pub(super) fn cover(network: &Network, nodes: &Nodes, switches: &[NodeId]) -> (Vec<Route>, BTreeSet<PortId>) {
    let mut covered = BTreeSet::new();
    let mut routes: Vec<Route> = Vec::new();
    // Devices and virtual machines cannot be asked to send or receive probes.
    let is_here = |port: PortId| {
        let port = &network.ports[port.index()];
        !nodes.remote.contains(&port.node) && !nodes.remote.contains(&port.peer)
    };
    let ours = || nodes.list.iter().enumerate().filter(|(_, node)| !node.external);
    for (sender, from) in ours() {
        loop {
            let fresh = |ports: &[PortId]| ports.iter().filter(|port| !covered.contains(*port)).count();
            let candidates = ours().filter(|(receiver, _)| *receiver != sender);
            let best = candidates
                .filter_map(|(receiver, to)| {
                    let ports = network.routes.path(&network.ports, from.id, to.id)?;
                    if ports.iter().any(|port| !is_here(*port)) {
                        return None;
                    }
                    Some((fresh(&ports), receiver, to.id, ports))
                })
                .max_by_key(|(fresh, receiver, _, _)| (*fresh, std::cmp::Reverse(*receiver)));
            let Some((fresh, receiver, to, ports)) = best.filter(|best| best.0 > 0) else {
                break;
            };
            debug_assert!(fresh > 0);
            covered.extend(ports.iter().copied());
            routes.push(Route {
                flow: routes.len() as u32,
                from: from.id,
                to,
                sender,
                receiver,
                switches: ports
                    .iter()
                    .map(|port| network.ports[port.index()].node)
                    .filter(|node| switches.contains(node))
                    .collect(),
                ports,
            });
        }
    }
    (routes, covered)
}

impl Route {
    pub(super) fn name(&self, network: &Network) -> String {
        format!(
            "{}->{}",
            network.nodes[self.from.index()].name,
            network.nodes[self.to.index()].name
        )
    }

    /// Least and greatest latency of a lone frame: transmission and propagation at every port, the switching delays between
    /// them, and whatever jitter may add. (Out of a shared segment nothing is transmitted a second time.)
    pub(super) fn latency(&self, network: &Network, wire: u32) -> (u64, u64) {
        let (mut least, mut greatest) = (0, 0);
        for (index, id) in self.ports.iter().enumerate() {
            let port = &network.ports[id.index()];
            let node = &network.nodes[port.node.index()];
            if index > 0 && self.switches.contains(&port.node) {
                // Its time is measured, and held against what is declared in the run itself.
                greatest += node.switching_max.0.max(LONGEST_TRANSIT);
            } else if index > 0 {
                least += node.switching_min.0;
                // The stream may be one that is copied here.
                greatest += node.switching_max.0 + node.replication_max.0;
            }
            let (fastest, slowest) = match (node.kind, &port.trace) {
                (NodeKind::Segment, _) => (0, 0),
                // By the moment at which it comes.
                (_, Some(trace)) => (1, trace.greatest_wait(WireBytes(wire)).0),
                (_, None) => {
                    let transmission = port.rate.transmission_time(WireBytes(wire)).0;
                    (transmission, transmission)
                }
            };
            least += fastest + port.propagation.0;
            greatest += slowest + port.propagation.0 + port.impairments.greatest_jitter().0;
        }
        (least, greatest)
    }

    pub(super) fn greatest_latency(&self, network: &Network, mtu: u32) -> u64 {
        self.latency(network, WireBytes::from_captured(mtu + 14).0).1
    }

    fn slowest(&self, network: &Network) -> Rate {
        let rates = self.ports.iter().map(|port| network.ports[port.index()].rate);
        rates.min_by_key(|rate| rate.0).unwrap_or(Rate(1_000_000_000))
    }

    /// The longest that a UDP probe of this payload takes at any port: probes further apart never wait.
    pub(super) fn slowest_transmission(&self, network: &Network, payload: usize) -> u64 {
        self.slowest(network)
            .transmission_time(WireBytes::from_captured(payload as u32 + 42))
            .0
    }

    /// What the path carries in this time.
    pub(super) fn bytes_within(&self, network: &Network, time: Duration) -> usize {
        (self.slowest(network).0 as f64 / 8.0 * time.as_secs_f64()) as usize
    }
}

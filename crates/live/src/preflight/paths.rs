//! Which pairs of hosts to probe so that every port is crossed, and what their paths' figures say.

use crate::nodes::Nodes;
use crate::plan::FramingPlan;
use std::collections::BTreeSet;
use std::time::Duration;
use timebound_model::{MediumId, Network, NodeId, NodeKind, Port, PortId, Rate, WireBytes};

/// What a real switch may take for a probe: its first frames have to be looked up, and the machine may be busy.
const LONGEST_TRANSIT: u64 = 20_000_000;

/// Up to this latency each probe is waited for.
const QUICK: u64 = 100_000_000;

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
    /// By which the sizes of its probes are reckoned.
    pub(super) framing: FramingPlan,
}

/// Pairs that together cross every port between hosts, and the ports that can be crossed at all.
///
/// First each host and the next one: with one switch that is all, and no pair is tried in vain. What these leave out is found by
/// walking from every host towards each other one, each walk up to where an earlier one with the same destination has been.
pub(super) fn cover(
    network: &Network,
    nodes: &Nodes,
    switches: &[NodeId],
    framing: FramingPlan,
) -> (Vec<Route>, BTreeSet<PortId>) {
    // Devices and virtual machines cannot be asked to send or receive probes.
    let ours = (nodes.list.iter().enumerate()).filter(|(_, node)| !node.external);
    let hosts: Vec<(usize, NodeId)> = ours.map(|(position, node)| (position, node.id)).collect();
    let (mut routes, coverable) = Cover::new(network, &nodes.remote, switches, hosts).pairs();
    for route in &mut routes {
        route.framing = framing;
    }
    (routes, coverable)
}

/// A cover in the making.
pub(super) struct Cover<'a> {
    network: &'a Network,
    remote: &'a BTreeSet<NodeId>,
    switches: &'a [NodeId],
    /// Position in [`Nodes::list`] and node of each host that takes part.
    hosts: Vec<(usize, NodeId)>,
    /// By port.
    covered: Vec<bool>,
    routes: Vec<Route>,
}

impl<'a> Cover<'a> {
    pub(super) fn new(
        network: &'a Network,
        remote: &'a BTreeSet<NodeId>,
        switches: &'a [NodeId],
        hosts: Vec<(usize, NodeId)>,
    ) -> Self {
        Self {
            network,
            remote,
            switches,
            hosts,
            covered: vec![false; network.ports.len()],
            routes: Vec::new(),
        }
    }

    pub(super) fn pairs(mut self) -> (Vec<Route>, BTreeSet<PortId>) {
        let count = self.hosts.len();
        let is_here = |port: &&Port| !self.is_away(port);
        let mut open = self.network.ports.iter().filter(is_here).count();
        for sender in 0..count {
            open -= self.consider(sender, (sender + 1) % count);
        }
        let mut reached = vec![usize::MAX; self.network.nodes.len()];
        for receiver in 0..count {
            if open == 0 {
                break;
            }
            for step in 1..count {
                // The next ones first: pairs that lie far apart are probed at the same time.
                let sender = (receiver + step) % count;
                if self.walk(sender, receiver, &mut reached) {
                    open -= self.consider(sender, receiver);
                }
            }
        }
        let covered = self.covered.iter().enumerate().filter(|(_, covered)| **covered);
        (
            self.routes,
            covered.map(|(index, _)| PortId::new(index)).collect(),
        )
    }

    /// Is it of the other machine of the run, or between the two?
    fn is_away(&self, port: &Port) -> bool {
        self.remote.contains(&port.node) || self.remote.contains(&port.peer)
    }

    /// Is there a port on this way that no pair crosses yet? Looks no further than where `reached` says that this was seen.
    fn walk(&self, sender: usize, receiver: usize, reached: &mut [usize]) -> bool {
        let (mut at, to) = (self.hosts[sender].1, self.hosts[receiver].1);
        let (mut fresh, mut away) = (false, false);
        let mut seen = Vec::new();
        while at != to && reached[at.index()] != receiver {
            let Some(port) = self.network.routes.next_hop(at, to) else {
                return false;
            };
            seen.push(at);
            fresh |= !self.covered[port.index()];
            let port = &self.network.ports[port.index()];
            at = port.peer;
            if self.is_away(port) {
                // This way is not taken, and what comes behind may be crossed by another one.
                away = true;
            }
        }
        if !away {
            seen.iter().for_each(|node| reached[node.index()] = receiver);
        }
        fresh && !away
    }

    /// Takes a pair in if its way crosses something new; how many ports that are.
    fn consider(&mut self, sender: usize, receiver: usize) -> usize {
        let ((sender, from), (receiver, to)) = (self.hosts[sender], self.hosts[receiver]);
        let ports = (self.network.routes.path(&self.network.ports, from, to)).unwrap_or_default();
        let fresh = ports.iter().filter(|port| !self.covered[port.index()]).count();
        let mut crossed = ports.iter().map(|port| &self.network.ports[port.index()]);
        if fresh == 0 || crossed.any(|port| self.is_away(port)) {
            return 0;
        }
        ports.iter().for_each(|port| self.covered[port.index()] = true);
        let real = ports.iter().map(|port| self.network.ports[port.index()].node);
        let switches = real.filter(|node| self.switches.contains(node)).collect();
        self.routes.push(Route {
            flow: self.routes.len() as u32,
            from,
            to,
            sender,
            receiver,
            switches,
            ports,
            framing: FramingPlan::default(),
        });
        fresh
    }
}

/// What only one frame has at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Resource {
    Port(PortId),
    Medium(MediumId),
}

/// Least and greatest time that a port takes to send a frame for which nothing waits.
fn transmission(kind: NodeKind, port: &Port, wire: u32) -> (u64, u64) {
    match (kind, &port.trace) {
        (NodeKind::Segment, _) => (0, 0),
        // By the moment at which it comes.
        (_, Some(trace)) => (1, trace.greatest_wait(WireBytes(wire)).0),
        (_, None) => {
            let bytes = WireBytes(wire);
            (
                port.rate.least_time(bytes).0,
                port.rate.transmission_time(bytes).0,
            )
        }
    }
}

/// Their headers around a probe's payload.
const UDP_AND_IP: u32 = 28;

impl Route {
    /// Bytes on the wire of a UDP probe with this payload.
    pub(super) fn wire(&self, payload: usize) -> u32 {
        self.framing.packet(payload as u32 + UDP_AND_IP).0
    }

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
            let (fastest, slowest) = transmission(node.kind, port, wire);
            least += fastest + port.propagation.0;
            greatest += slowest + port.propagation.0 + port.impairments.greatest_jitter().0;
        }
        (least, greatest)
    }

    /// Latency of a lone frame of this MTU at most.
    pub(super) fn greatest_latency(&self, network: &Network, mtu: u32) -> u64 {
        self.latency(network, self.framing.packet(mtu).0).1
    }

    /// How long after a frame of this size the next one on this way must come so as never to wait for it: all of its latency but
    /// what passes on the line. With second copies, all copies.
    pub(super) fn occupancy(&self, network: &Network, wire: u32) -> u64 {
        let on_the_line: u64 = (self.ports.iter())
            .map(|port| network.ports[port.index()].propagation.0)
            .sum();
        self.greatest_with_copies(network, wire)
            .saturating_sub(on_the_line)
    }

    /// Latency of the last copy of a frame that has the way to itself.
    pub(super) fn greatest_with_copies(&self, network: &Network, wire: u32) -> u64 {
        let (mut copies, mut waiting) = (1u64, 0u64);
        for id in &self.ports {
            let port = &network.ports[id.index()];
            let node = &network.nodes[port.node.index()];
            let each = transmission(node.kind, port, wire).1;
            waiting = waiting.saturating_add(each.saturating_mul(copies - 1));
            if port.impairments.duplication > 0.0 {
                copies = copies.saturating_mul(2);
            }
        }
        self.latency(network, wire).1.saturating_add(waiting)
    }

    /// Does it take too long to wait for one frame after the other?
    pub(super) fn is_slow(&self, network: &Network, wire: u32) -> bool {
        self.greatest_with_copies(network, wire) > QUICK
    }

    /// Copies that one frame can become.
    pub(super) fn most_copies(&self, network: &Network) -> u64 {
        let doubling = |port: &&PortId| network.ports[port.index()].impairments.duplication > 0.0;
        1 << self.ports.iter().filter(doubling).count().min(32)
    }

    /// What frames of this way share with those of others: ports, and media in place of their ports. Each once: a way into a
    /// segment and out of it passes one medium twice, and its frame is not in its own way there.
    pub(super) fn resources(&self, network: &Network) -> BTreeSet<Resource> {
        let resource = |port: &PortId| match network.ports[port.index()].medium {
            Some(medium) => Resource::Medium(medium),
            None => Resource::Port(*port),
        };
        self.ports.iter().map(resource).collect()
    }

    /// Can a frame get lost or damaged on this way?
    pub(super) fn loses(&self, network: &Network) -> bool {
        self.ports.iter().any(|port| {
            let impairments = &network.ports[port.index()].impairments;
            impairments.loss.is_some() || impairments.corruption > 0.0
        })
    }

    fn slowest(&self, network: &Network) -> Rate {
        let rates = self.ports.iter().map(|port| network.ports[port.index()].rate);
        rates.min_by_key(|rate| rate.0).unwrap_or(Rate(1_000_000_000))
    }

    /// The longest that a UDP probe of this payload takes at any port: probes further apart never wait.
    pub(super) fn slowest_transmission(&self, network: &Network, payload: usize) -> u64 {
        self.slowest(network)
            .transmission_time(WireBytes(self.wire(payload)))
            .0
    }

    /// What the path carries in this time.
    pub(super) fn bytes_within(&self, network: &Network, time: Duration) -> usize {
        (self.slowest(network).0 as f64 / 8.0 * time.as_secs_f64()) as usize
    }
}

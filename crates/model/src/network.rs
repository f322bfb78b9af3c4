//! The compiled network: immutable, dense, the one thing that bounds, simulator and emulator all read.

use crate::declaration::{DisconnectionsDecl, JitterDecl, JitterDistribution, LossDecl};
use crate::ids::{LinkId, MediumId, NodeId, PortId, StreamId};
use crate::routes::Routes;
use crate::slots::Slots;
use crate::trace::Trace;
use crate::units::{Class, Grain, Rate, Span, Speed, Time, WireBytes};
use serde::Serialize;

/// A checked network with its streams.
#[derive(Debug, Clone, Serialize)]
pub struct Network {
    pub nodes: Vec<Node>,
    /// Directed egress ports; port `2 l` is link `l` from a to b, port `2 l + 1` from b to a.
    pub ports: Vec<Port>,
    pub links: Vec<Link>,
    pub streams: Vec<Stream>,
    /// Number of shared transmission resources; [`Port::medium`] names them `0..media`.
    pub media: u32,
    /// The largest frame of undeclared best effort that is assumed on every port; 0 bytes: there is none.
    pub best_effort_frame: WireBytes,
    /// Next hops for unicast.
    #[serde(skip)]
    pub routes: Routes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    Host,
    Switch,
    Segment,
}

#[derive(Debug, Clone, Serialize)]
pub struct Node {
    pub name: String,
    pub kind: NodeKind,
    /// Switching delay (SDmin, SDmax): from the last bit of a frame in, to the frame in the egress queue.
    pub switching_min: Span,
    pub switching_max: Span,
    /// Added where a stream's tree branches here.
    pub replication_min: Span,
    pub replication_max: Span,
    /// Egress ports in order of declaration.
    pub ports: Vec<PortId>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Link {
    pub a: NodeId,
    pub b: NodeId,
    pub half_duplex: bool,
}

/// One direction of a link.
#[derive(Debug, Clone, Serialize)]
pub struct Port {
    /// The node whose egress this is.
    pub node: NodeId,
    /// Where its frames arrive.
    pub peer: NodeId,
    /// The other direction of the same link.
    pub reverse: PortId,
    pub link: LinkId,
    pub rate: Rate,
    /// The unit of this port's times: nanoseconds, but where an analysis looks closer.
    #[serde(skip)]
    pub grain: Grain,
    /// Propagation delay, one way.
    pub propagation: Span,
    pub discipline: Discipline,
    /// Wire bytes that may wait in the queue of each class (the frame in transmission does not count).
    pub buffer_bytes: u64,
    pub impairments: Impairments,
    /// Delivery opportunities in place of the rate.
    pub trace: Option<Trace>,
    /// Times in which it may send; `None`: always.
    pub slots: Option<Slots>,
    /// The transmission resource it shares, if any.
    pub medium: Option<MediumId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    StrictPriority,
    Fifo,
    /// Quantum in wire bytes per class.
    Drr([u32; 8]),
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Impairments {
    pub jitter: Option<JitterDecl>,
    pub loss: Option<LossDecl>,
    pub corruption: f64,
    pub corruption_drops: bool,
    pub duplication: f64,
    /// Sorted, disjoint `[from, to)`.
    pub outages: Vec<(Time, Time)>,
    pub disconnections: Option<DisconnectionsDecl>,
    /// Frames wait while the link carries nothing.
    pub held: bool,
}

impl Impairments {
    /// Can a frame be lost, damaged, or doubled here?
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.loss.is_some() || self.corruption > 0.0 || self.duplication > 0.0 || self.is_interrupted()
    }
    /// Does the link carry nothing at times?
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        !self.outages.is_empty() || self.disconnections.is_some()
    }
    /// Greatest delay that jitter can add; every distribution is truncated, so there always is one.
    #[must_use]
    pub fn greatest_jitter(&self) -> Span {
        self.jitter.as_ref().map_or(Span::ZERO, |jitter| {
            Span(match jitter.distribution {
                JitterDistribution::Uniform { max_ns }
                | JitterDistribution::Normal { max_ns, .. }
                | JitterDistribution::Pareto { max_ns, .. }
                | JitterDistribution::Exponential { max_ns, .. } => max_ns,
            })
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Data,
    Ack,
    Control,
    Background,
}

/// Frames from one source to one or more destinations along a tree.
#[derive(Debug, Clone, Serialize)]
pub struct Stream {
    pub name: String,
    pub source: NodeId,
    pub class: Class,
    pub role: Role,
    pub arrival: Arrival,
    /// Of a periodic arrival: each of its frames may really be as small as that.
    pub least_frame: Option<WireBytes>,
    pub release: Release,
    pub deadline: Option<Span>,
    pub tree: Tree,
}

impl Stream {
    /// The least that a frame may really be that is declared with this size.
    #[must_use]
    pub fn least_of(&self, declared: WireBytes) -> WireBytes {
        self.least_frame.map_or(declared, |least| least.min(declared))
    }
}

/// Arrival curve at the source's first port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// In any window of length `d` at most `ceil((d + jitter) / period)` bursts of `frames`.
    Periodic {
        period: Span,
        jitter: Span,
        frames: Vec<WireBytes>,
    },
    /// In any closed window of length `d` frames of `min_frame` to `max_frame` with at most `burst_bytes + rate d / 8` bytes in
    /// all. `min_frame <= max_frame <= burst_bytes`.
    TokenBucket {
        rate: Rate,
        burst_bytes: u64,
        min_frame: WireBytes,
        max_frame: WireBytes,
    },
    Unbounded {
        max_frame: WireBytes,
    },
}

impl Arrival {
    /// The largest single frame (for blocking).
    #[must_use]
    pub fn largest_frame(&self) -> WireBytes {
        match self {
            Self::Periodic { frames, .. } => frames.iter().copied().max().unwrap_or(WireBytes(0)),
            Self::TokenBucket { max_frame, .. } | Self::Unbounded { max_frame } => *max_frame,
        }
    }
}

/// How the simulator releases frames; see [`crate::declaration::ReleaseDecl`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    Periodic {
        offset: Option<Span>,
    },
    Sporadic {
        mean_extra: Span,
    },
    /// As fast as a token bucket allows, these frames at a time.
    Greedy {
        offset: Option<Span>,
        frames: Vec<WireBytes>,
    },
    Poisson {
        mean_gap: Span,
        frame: WireBytes,
    },
    Constant {
        gap: Span,
        frame: WireBytes,
    },
    Burst {
        gap: Span,
        frames: u32,
        frame: WireBytes,
    },
    Trace {
        times: Vec<Time>,
        frame: WireBytes,
    },
    Silent,
}

/// The ports a stream crosses, parents before children.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Tree {
    pub hops: Vec<Hop>,
    /// Where copies leave the network, in the order of the declared destinations.
    pub leaves: Vec<Leaf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Hop {
    pub port: PortId,
    /// Index of the hop that feeds this one; `None` at the source.
    pub parent: Option<u32>,
    /// Does the node behind this hop send its frames on over several ports?
    pub forks: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Leaf {
    pub node: NodeId,
    /// The last hop towards it.
    pub hop: u32,
}

impl Tree {
    /// Sets [`Hop::forks`] of all hops from who feeds whom.
    pub fn mark_forks(&mut self) {
        let mut fed = vec![0u32; self.hops.len()];
        for parent in self.hops.iter().filter_map(|hop| hop.parent) {
            fed[parent as usize] += 1;
        }
        for (hop, fed) in self.hops.iter_mut().zip(fed) {
            hop.forks = fed > 1;
        }
    }
    /// Hop indices from the source to `leaf`, in order.
    #[must_use]
    pub fn path(&self, leaf: Leaf) -> Vec<u32> {
        let mut path = vec![leaf.hop];
        while let Some(parent) = self.hops[path[path.len() - 1] as usize].parent {
            path.push(parent);
        }
        path.reverse();
        path
    }
    /// Indices of the hops that `hop` feeds (`None`: the hops at the source).
    pub fn children(&self, hop: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        (0u32..)
            .zip(&self.hops)
            .filter(move |(_, h)| h.parent == hop)
            .map(|(index, _)| index)
    }
}

impl Port {
    #[must_use]
    pub const fn speed(&self) -> Speed {
        Speed {
            rate: self.rate,
            grain: self.grain,
        }
    }
    /// See [`Speed::transmission_time`].
    #[must_use]
    pub fn transmission_time(&self, bytes: WireBytes) -> Span {
        self.speed().transmission_time(bytes)
    }
}

impl Network {
    /// Ticks per nanosecond of all times, see [`Grain`].
    #[must_use]
    pub fn per_nano(&self) -> u64 {
        self.ports.first().map_or(1, |port| port.grain.per_nano)
    }
    /// Do frames of this port take over what their predecessors leave of a nanosecond? Media and slots are given for whole ones, and out of a
    /// segment nothing is sent a second time.
    #[must_use]
    pub fn carries(&self, id: PortId) -> bool {
        !self.ports[id.index()].rate.is_whole() && self.may_carry(id)
    }
    /// The same at rates at which something is left.
    #[must_use]
    pub fn may_carry(&self, id: PortId) -> bool {
        let port = &self.ports[id.index()];
        port.medium.is_none()
            && port.slots.is_none()
            && port.trace.is_none()
            && self.nodes[port.node.index()].kind != NodeKind::Segment
    }
    /// The stream of this name.
    #[must_use]
    pub fn stream(&self, name: &str) -> Option<StreamId> {
        self.streams
            .iter()
            .position(|s| s.name == name)
            .map(StreamId::new)
    }
    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|n| n.name == name).map(NodeId::new)
    }
    /// Delay at the node behind `hop`, from the last bit in to the queues of its ports: least and greatest. Hosts take frames as they
    /// come, and a segment hands them on without storing.
    #[must_use]
    pub fn switching(&self, hop: Hop) -> (Span, Span) {
        let peer = &self.nodes[self.ports[hop.port.index()].peer.index()];
        match (peer.kind, hop.forks) {
            (NodeKind::Host | NodeKind::Segment, _) => (Span::ZERO, Span::ZERO),
            (NodeKind::Switch, false) => (peer.switching_min, peer.switching_max),
            (NodeKind::Switch, true) => (
                peer.switching_min.saturating_add(peer.replication_min),
                peer.switching_max.saturating_add(peer.replication_max),
            ),
        }
    }
    /// `a->b`, for messages.
    #[must_use]
    pub fn port_name(&self, port: PortId) -> String {
        let port = &self.ports[port.index()];
        format!(
            "{}->{}",
            self.nodes[port.node.index()].name,
            self.nodes[port.peer.index()].name
        )
    }
    /// The egress port of `from` towards the neighbour `to`; the first one declared where links are parallel.
    #[must_use]
    pub fn port_between(&self, from: NodeId, to: NodeId) -> Option<PortId> {
        self.nodes[from.index()]
            .ports
            .iter()
            .copied()
            .find(|p| self.ports[p.index()].peer == to)
    }
}

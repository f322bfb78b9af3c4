//! The network as the analysis wants it: one slot per frame size, stream and port, slots of a port side by side and sorted by
//! class, so that a class and everything above it are two slices.
//!
//! **Bursts.** A release of several frames is not treated as one block: behind the first switch its frames arrive apart, and
//! other traffic slips in between. Every frame of it is a flow of its own with the stream's period and jitter. That is safe:
//! the k-th frame of release n is sent within `[n T, n T + J]` and reaches a later port within `[n T + Amin, n T + Amax]` of its own
//! path, which is all that a demand with period `T` and jitter `Amax - Amin` says, and frames that are flows of their own may
//! be spread in any way, also in the ways of the real release. The bound of the release is that of its slowest frame. Frames of
//! equal size have equal bounds throughout, so they share a slot with a multiplicity.

use crate::options::Options;
use crate::port::Demand;
use crate::service::bucket::{Envelope, burst_time};
use std::collections::BTreeMap;
use timebound_model::{Arrival, Class, Discipline, Network, PortId, Span, Stream, StreamId, WireBytes};

/// No slot, level or cause.
pub(crate) const NONE: u32 = u32::MAX;

/// Frames of one size of one stream.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) stream: StreamId,
    pub(crate) period: u64,
    /// Release jitter.
    pub(crate) jitter: u64,
    pub(crate) bytes: WireBytes,
    /// Frames of this size per release.
    pub(crate) multiplicity: u64,
    /// Of a token bucket: what a release is (`bytes` is its least frame then, for which responses are longest).
    pub(crate) envelope: Option<Envelope>,
    /// Position of its first hop in [`Layout::slot_of`]; the others follow in the order of the tree.
    pub(crate) first_hop: usize,
}

/// A flow at a port.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) flow: u32,
    pub(crate) level: u32,
    /// Transmission time of one frame.
    pub(crate) own: u64,
    /// Earliest arrival in this queue after the nominal release (Amin).
    pub(crate) earliest: u64,
    /// The slot that feeds this one.
    pub(crate) parent: u32,
    /// Greatest time from the last bit sent at the parent to this queue.
    pub(crate) traversal: u64,
}

/// Slots of one class at one port (of all classes at a FIFO port).
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) port: PortId,
    pub(crate) class: Class,
    /// Slots `port_start..start` are more urgent, `start..end` are the level's own.
    pub(crate) port_start: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Longest transmission below the class.
    pub(crate) blocking: u64,
    /// Is there no declared class below?
    pub(crate) is_lowest: bool,
}

/// What is known of a port apart from its slots.
#[derive(Debug, Clone, Default)]
pub(crate) struct PortUse {
    /// Largest frame per class, of streams with and without a declared arrival.
    largest: [u32; 8],
    /// The most urgent stream without a declared arrival.
    pub(crate) unbounded: Option<(Class, StreamId)>,
    /// Its levels, most urgent first.
    pub(crate) levels: std::ops::Range<usize>,
}

impl PortUse {
    /// The classes of the streams that cross the port, most urgent first.
    pub(crate) fn classes(&self) -> impl Iterator<Item = Class> + '_ {
        (0u8..8)
            .rev()
            .map(Class)
            .filter(|class| self.largest[usize::from(class.0)] > 0)
    }
}

#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) flows: Vec<Flow>,
    /// The flows of every stream.
    pub(crate) flows_of: Vec<std::ops::Range<usize>>,
    pub(crate) slot_of: Vec<u32>,
    pub(crate) slots: Vec<Slot>,
    /// Demand of every slot; the jitter at the source's port is set, that behind it is zero until the analysis sets it.
    pub(crate) demands: Vec<Demand>,
    pub(crate) levels: Vec<Level>,
    pub(crate) ports: Vec<PortUse>,
    /// Transmission time of assumed best effort per port.
    pub(crate) best_effort: Vec<u64>,
}

/// Does the class matter at this port?
fn sorts(network: &Network, port: PortId) -> bool {
    network.ports[port.index()].discipline == Discipline::StrictPriority
}

impl Layout {
    pub(crate) fn new(network: &Network, options: &Options) -> Self {
        let ports = port_uses(network);
        let (flows, flows_of) = flows(network, options);
        let hops = flows.last().map_or(0, |f| f.first_hop + hops_of(network, f));
        let best_effort = network
            .ports
            .iter()
            .map(|port| {
                let bytes = if options.assume_best_effort {
                    network.best_effort_frame
                } else {
                    WireBytes(0)
                };
                port.rate.transmission_time(bytes).0
            })
            .collect();
        let mut layout = Self {
            flows,
            flows_of,
            slot_of: vec![NONE; hops],
            slots: Vec::with_capacity(hops),
            demands: Vec::with_capacity(hops),
            levels: Vec::new(),
            ports,
            best_effort,
        };
        layout.place(network);
        layout.link(network);
        layout
    }

    /// Gives every hop of every flow its slot (counting sort by port and falling class).
    fn place(&mut self, network: &Network) {
        let key = |port: PortId, class: Class| {
            port.index() * 8
                + if sorts(network, port) {
                    usize::from(7 - class.0.min(7))
                } else {
                    0
                }
        };
        let mut starts = vec![0usize; network.ports.len() * 8 + 1];
        for flow in &self.flows {
            let stream = &network.streams[flow.stream.index()];
            stream
                .tree
                .hops
                .iter()
                .for_each(|hop| starts[key(hop.port, stream.class) + 1] += 1);
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut level_of = vec![NONE; starts.len()];
        for port in 0..network.ports.len() {
            let first = self.levels.len();
            for rank in 0..8 {
                let place = port * 8 + rank;
                if starts[place] < starts[place + 1] {
                    level_of[place] = self.levels.len() as u32;
                    self.levels
                        .push(self.level(network, PortId::new(port), rank, &starts));
                }
            }
            self.ports[port].levels = first..self.levels.len();
        }
        let blank = Slot {
            flow: NONE,
            level: NONE,
            own: 0,
            earliest: 0,
            parent: NONE,
            traversal: 0,
        };
        self.slots = vec![blank; self.slot_of.len()];
        self.demands = vec![Demand::new(1, 0, 0); self.slot_of.len()];
        let mut next = starts;
        for (flow, index) in self.flows.iter().zip(0u32..) {
            let stream = &network.streams[flow.stream.index()];
            for (position, hop) in stream.tree.hops.iter().enumerate() {
                let place = key(hop.port, stream.class);
                let slot = next[place];
                next[place] += 1;
                self.slot_of[flow.first_hop + position] = slot as u32;
                let own = network.ports[hop.port.index()]
                    .rate
                    .transmission_time(flow.bytes)
                    .0;
                self.slots[slot].flow = index;
                self.slots[slot].level = level_of[place];
                self.slots[slot].own = own;
                let weight = match &flow.envelope {
                    Some(envelope) => envelope.weight(network.ports[hop.port.index()].rate),
                    None => own.saturating_mul(flow.multiplicity),
                };
                self.demands[slot] = Demand::new(flow.period, weight, 0);
            }
        }
    }

    fn level(&self, network: &Network, port: PortId, rank: usize, starts: &[usize]) -> Level {
        let strict = sorts(network, port);
        let class = if strict { 7 - rank } else { 0 };
        let below = if strict {
            &self.ports[port.index()].largest[..class]
        } else {
            &[]
        };
        let largest = below.iter().copied().max().unwrap_or(0);
        let frame = network.ports[port.index()]
            .rate
            .transmission_time(WireBytes(largest))
            .0;
        Level {
            port,
            class: Class(class as u8),
            port_start: starts[port.index() * 8],
            start: starts[port.index() * 8 + rank],
            end: starts[port.index() * 8 + rank + 1],
            blocking: frame.max(self.best_effort[port.index()]),
            is_lowest: largest == 0,
        }
    }

    /// Joins every slot to its parent; parents come before children in a tree.
    fn link(&mut self, network: &Network) {
        for flow in &self.flows {
            let stream = &network.streams[flow.stream.index()];
            for (position, hop) in stream.tree.hops.iter().enumerate() {
                let slot = self.slot_of[flow.first_hop + position] as usize;
                let Some(parent) = hop.parent else {
                    self.demands[slot].set_jitter(flow.jitter);
                    continue;
                };
                let parent = self.slot_of[flow.first_hop + parent as usize];
                let link = &network.ports[self.levels[self.slots[parent as usize].level as usize]
                    .port
                    .index()];
                let node = &network.nodes[network.ports[hop.port.index()].node.index()];
                let before = &self.slots[parent as usize];
                let earliest = before
                    .earliest
                    .saturating_add(before.own)
                    .saturating_add(link.propagation.0)
                    .saturating_add(node.switching_min.0);
                let traversal = crossing(link).saturating_add(node.switching_max).0;
                let slot = &mut self.slots[slot];
                (slot.parent, slot.earliest, slot.traversal) = (parent, earliest, traversal);
            }
        }
    }

    /// The slots of `level` and everything above it at its port.
    pub(crate) fn demands_down_to(&self, level: &Level) -> &[Demand] {
        &self.demands[level.port_start..level.end]
    }
}

/// Greatest time from the last bit sent to the last bit received.
pub(crate) fn crossing(port: &timebound_model::Port) -> Span {
    port.propagation
        .saturating_add(port.impairments.greatest_jitter())
}

fn hops_of(network: &Network, flow: &Flow) -> usize {
    network.streams[flow.stream.index()].tree.hops.len()
}

fn port_uses(network: &Network) -> Vec<PortUse> {
    let mut uses = vec![PortUse::default(); network.ports.len()];
    for (index, stream) in network.streams.iter().enumerate() {
        let frame = stream.arrival.largest_frame().0;
        for hop in &stream.tree.hops {
            let used = &mut uses[hop.port.index()];
            let largest = &mut used.largest[usize::from(stream.class.0.min(7))];
            *largest = (*largest).max(frame);
            if matches!(stream.arrival, Arrival::Unbounded { .. })
                && used.unbounded.is_none_or(|(class, _)| class < stream.class)
            {
                used.unbounded = Some((stream.class, StreamId::new(index)));
            }
        }
    }
    uses
}

fn flows(network: &Network, options: &Options) -> (Vec<Flow>, Vec<std::ops::Range<usize>>) {
    let mut flows = Vec::with_capacity(network.streams.len());
    let mut flows_of = Vec::with_capacity(network.streams.len());
    let mut first_hop = 0;
    for (index, stream) in network.streams.iter().enumerate() {
        let first = flows.len();
        if let Arrival::Periodic {
            period,
            jitter,
            frames,
        } = &stream.arrival
        {
            let id = StreamId::new(index);
            let observed = options.jitter_override.get(&id).copied().unwrap_or(Span::ZERO);
            let mut sizes: BTreeMap<WireBytes, u64> = BTreeMap::new();
            frames
                .iter()
                .for_each(|bytes| *sizes.entry(*bytes).or_default() += 1);
            for (bytes, multiplicity) in sizes {
                flows.push(Flow {
                    stream: id,
                    period: period.0.max(1),
                    jitter: (*jitter).max(observed).0,
                    bytes,
                    multiplicity,
                    envelope: None,
                    first_hop,
                });
                first_hop += stream.tree.hops.len();
            }
        }
        if let Some(flow) = bucket(stream, StreamId::new(index), options, first_hop) {
            first_hop += stream.tree.hops.len();
            flows.push(flow);
        }
        flows_of.push(first..flows.len());
    }
    (flows, flows_of)
}

/// The flow that covers a token bucket; its jitter stands for the burst, and is no lateness.
fn bucket(stream: &Stream, id: StreamId, options: &Options, first_hop: usize) -> Option<Flow> {
    let Arrival::TokenBucket {
        rate,
        burst_bytes,
        min_frame,
        max_frame,
    } = stream.arrival
    else {
        return None;
    };
    let observed = options.jitter_override.get(&id).copied().unwrap_or(Span::ZERO);
    let burst = burst_time(rate, burst_bytes).max(observed.0);
    let envelope = Envelope::new(rate, burst, min_frame, max_frame);
    Some(Flow {
        stream: id,
        period: envelope.period,
        jitter: envelope.jitter,
        bytes: min_frame,
        multiplicity: 1,
        envelope: Some(envelope),
        first_hop,
    })
}

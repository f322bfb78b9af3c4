//! Gathers latencies while the fabric runs. Memory grows with what is under way, not with the simulated time.

use crate::histogram::Histogram;
use crate::outcome::{Latency, LeafOutcome, StreamOutcome};
use crate::source::Released;
use timebound_fabric::{DropReason, Frame, NO_LEAF, Route, Sink};
use timebound_model::{Arrival, Network, NodeId, NodeKind, PortId, Span, StreamId, Time, WireBytes};

/// A release that is under way.
#[derive(Debug, Clone)]
struct Flight {
    released: Released,
    frames: u32,
    /// Copies of its frames inside the fabric; the slot is free at zero.
    copies: u32,
    measured: bool,
    /// Bit `leaf * frames + frame`: that frame arrived at that leaf.
    arrived: Vec<u64>,
}

impl Flight {
    /// True if the frame had not arrived there before.
    fn mark(&mut self, leaf: u32, frame: u64) -> bool {
        let bit = u64::from(leaf) * u64::from(self.frames) + frame;
        let word = &mut self.arrived[(bit / 64) as usize];
        let fresh = *word & (1 << (bit % 64)) == 0;
        *word |= 1 << (bit % 64);
        fresh
    }

    fn is_complete(&self, leaf: u32) -> bool {
        let first = u64::from(leaf) * u64::from(self.frames);
        (first..first + u64::from(self.frames))
            .all(|bit| self.arrived[(bit / 64) as usize] & (1 << (bit % 64)) != 0)
    }
}

#[derive(Debug, Clone, Default)]
struct LeafTally {
    received: u64,
    duplicates: u64,
    damaged: u64,
    min: u64,
    max: u64,
    max_from_nominal: u64,
    sum: u128,
    histogram: Histogram,
}

#[derive(Debug)]
pub(crate) struct Tally {
    flights: Vec<Flight>,
    free: Vec<u32>,
    leaves: Vec<LeafTally>,
    /// Per stream its first entry in `leaves`, and one past the last.
    bases: Vec<usize>,
    released: Vec<u64>,
    measured_from: Time,
}

impl Tally {
    pub(crate) fn new(network: &Network, measured_from: Time) -> Self {
        let mut bases = vec![0];
        let mut leaves = Vec::new();
        for (index, stream) in network.streams.iter().enumerate() {
            bases.push(bases[bases.len() - 1] + stream.tree.leaves.len());
            leaves.extend((0..stream.tree.leaves.len()).map(|leaf| LeafTally {
                histogram: Histogram::above(shortest(network, StreamId::new(index), leaf)),
                ..LeafTally::default()
            }));
        }
        Self {
            flights: Vec::new(),
            free: Vec::new(),
            leaves,
            released: vec![0; network.streams.len()],
            bases,
            measured_from,
        }
    }

    /// Books a release of `frames` frames; the slot is the handle of each of them.
    pub(crate) fn open(&mut self, stream: StreamId, released: Released, frames: u32) -> u32 {
        let leaves = self.bases[stream.index() + 1] - self.bases[stream.index()];
        let measured = released.actual >= self.measured_from;
        self.released[stream.index()] += u64::from(measured);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.flights.push(Flight {
                released,
                frames,
                copies: 0,
                measured,
                arrived: Vec::new(),
            });
            (self.flights.len() - 1) as u32
        });
        let flight = &mut self.flights[slot as usize];
        (flight.released, flight.frames, flight.copies, flight.measured) =
            (released, frames, frames, measured);
        flight.arrived.clear();
        flight.arrived.resize((leaves * frames as usize).div_ceil(64), 0);
        slot
    }

    fn close(&mut self, slot: u32) {
        let flight = &mut self.flights[slot as usize];
        flight.copies -= 1;
        if flight.copies == 0 {
            self.free.push(slot);
        }
    }

    /// Slots for releases under way that were ever needed.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        self.flights.len()
    }

    pub(crate) fn outcome(&self, network: &Network) -> Vec<StreamOutcome> {
        let stream = |index: usize| {
            let released = self.released[index];
            let leaves = &self.leaves[self.bases[index]..self.bases[index + 1]];
            let nodes = network.streams[index].tree.leaves.iter().map(|leaf| leaf.node);
            StreamOutcome {
                stream: StreamId::new(index),
                released,
                leaves: nodes
                    .zip(leaves)
                    .map(|(node, leaf)| leaf.outcome(node, released))
                    .collect(),
            }
        };
        (0..network.streams.len()).map(stream).collect()
    }
}

/// What the way to a receiver takes at least under the conditions of the declaration: delays and transmission times of the smallest frame.
fn shortest(network: &Network, stream: StreamId, leaf: usize) -> Span {
    let declared = &network.streams[stream.index()];
    let frame = match &declared.arrival {
        Arrival::Periodic { frames, .. } => frames.iter().copied().min().unwrap_or_default(),
        Arrival::TokenBucket { min_frame, .. } => *min_frame,
        Arrival::Unbounded { .. } => WireBytes(0),
    };
    let time = |hop: &u32| {
        let port = &network.ports[declared.tree.hops[*hop as usize].port.index()];
        // Delivery opportunities stand for a rate, and the way out of a segment is no second transmission.
        let passes = port.trace.is_some() || network.nodes[port.node.index()].kind == NodeKind::Segment;
        let sending = if passes {
            Span::ZERO
        } else {
            port.rate.least_time(frame)
        };
        let peer = &network.nodes[port.peer.index()];
        let switching = match peer.kind {
            NodeKind::Switch => peer.switching_min,
            NodeKind::Host | NodeKind::Segment => Span::ZERO,
        };
        sending.saturating_add(port.propagation).saturating_add(switching)
    };
    let hops = declared.tree.path(declared.tree.leaves[leaf]);
    hops.iter().map(time).fold(Span::ZERO, Span::saturating_add)
}

impl LeafTally {
    fn record(&mut self, latency: Span, from_nominal: Span) {
        self.min = if self.received == 0 {
            latency.0
        } else {
            self.min.min(latency.0)
        };
        self.max = self.max.max(latency.0);
        self.max_from_nominal = self.max_from_nominal.max(from_nominal.0);
        self.sum += u128::from(latency.0);
        self.received += 1;
        self.histogram.record(latency);
    }

    fn outcome(&self, node: NodeId, released: u64) -> LeafOutcome {
        let quantile = |percent: u32| {
            let found = self
                .histogram
                .quantile(f64::from(percent) / 100.0)
                .unwrap_or_default()
                .0;
            Span(if percent == 0 {
                self.min
            } else {
                found.clamp(self.min, self.max)
            })
        };
        let latency = (self.received > 0).then(|| Latency {
            min: Span(self.min),
            mean: Span((self.sum / u128::from(self.received)) as u64),
            p50: quantile(50),
            p99: quantile(99),
            max: Span(self.max),
            max_from_nominal: Span(self.max_from_nominal),
            quantiles: (0..=100).map(quantile).collect(),
        });
        LeafOutcome {
            node,
            received: self.received,
            lost: released - self.received,
            duplicates: self.duplicates,
            damaged: self.damaged,
            latency,
        }
    }
}

impl Sink for Tally {
    fn delivered(&mut self, at: Time, _: NodeId, leaf: u32, frame: &Frame, damaged: bool) {
        let flight = &mut self.flights[frame.handle as usize];
        if flight.measured && leaf != NO_LEAF {
            let tally = &mut self.leaves[self.bases[frame.stream as usize] + leaf as usize];
            if damaged {
                tally.damaged += 1;
            } else if !flight.mark(leaf, frame.tag) {
                tally.duplicates += 1;
            } else if flight.frames == 1 || flight.is_complete(leaf) {
                tally.record(
                    at.since(flight.released.actual),
                    at.since(flight.released.nominal),
                );
            }
        }
        self.close(frame.handle);
    }

    fn dropped(&mut self, _: Time, _: Option<PortId>, frame: &Frame, _: DropReason) {
        self.close(frame.handle);
    }

    fn copied(&mut self, handle: u32, extra: u32) {
        self.flights[handle as usize].copies += extra;
    }
}

/// Frame `position` of a release of `stream`.
pub(crate) fn frame_of(
    network: &Network,
    stream: StreamId,
    handle: u32,
    position: u64,
    wire: WireBytes,
) -> Frame {
    Frame {
        handle,
        wire,
        class: network.streams[stream.index()].class,
        route: Route::Tree(stream),
        stream: stream.0,
        tag: position,
    }
}

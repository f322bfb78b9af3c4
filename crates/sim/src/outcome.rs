//! What a simulation found.

use serde::Serialize;
use timebound_model::{NodeId, PortId, Span, StreamId};

/// Latencies count from the ACTUAL release (the frames enter the source's first port) to the arrival of the last frame of
/// the release, unless a name says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// In order of the network's streams.
    pub streams: Vec<StreamOutcome>,
    /// In order of the network's ports; the measured part only.
    pub ports: Vec<PortOutcome>,
    /// Length of one interval of [`PortOutcome::series`]: as asked for, doubled as often as the memory limit needs.
    pub interval: Span,
    /// Frames sent by all ports, warm-up and the time after the last release included.
    pub frame_hops: u64,
    /// False where the progress callback stopped the simulation: then `simulated` tells how far it came.
    pub complete: bool,
    /// Length of the measured part.
    pub simulated: Span,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamOutcome {
    pub stream: StreamId,
    /// Measured releases.
    pub released: u64,
    /// In order of the tree's leaves.
    pub leaves: Vec<LeafOutcome>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeafOutcome {
    pub node: NodeId,
    /// Releases of which every frame arrived.
    pub received: u64,
    /// Releases of which a frame was lost or damaged.
    pub lost: u64,
    /// Frames that arrived again.
    pub duplicates: u64,
    /// Frames that arrived damaged.
    pub damaged: u64,
    /// `None` where nothing was received.
    pub latency: Option<Latency>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Latency {
    pub min: Span,
    pub mean: Span,
    pub p50: Span,
    pub p99: Span,
    pub max: Span,
    /// From the nominal release, which is what a deadline is compared with.
    pub max_from_nominal: Span,
    /// 0 %, 1 %, ... 100 %; exact at both ends, at most 1/64 too high between them.
    pub quantiles: Vec<Span>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortOutcome {
    pub port: PortId,
    pub frames: u64,
    pub wire_bytes: u64,
    /// Full buffer.
    pub dropped_buffer: u64,
    /// Loss, corruption, outage.
    pub dropped_link: u64,
    pub largest_queue_bytes: u64,
    /// Of the queue of each class (FIFO ports have one, the first), warm-up included.
    pub largest_class_queue_bytes: [u64; 8],
    /// Share of the rate that was used, 0 to 1.
    pub utilisation: f64,
    pub series: Vec<Interval>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Interval {
    pub frames: u64,
    pub wire_bytes: u64,
    pub dropped: u64,
    pub largest_queue_bytes: u64,
}

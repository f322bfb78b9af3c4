//! What an analysis returns. Serialises to JSON with times in nanoseconds (`_ns`) and sizes in wire bytes.

use serde::{Serialize, Serializer};
use std::sync::Arc;
use timebound_model::{Class, NodeId, PortId, Span};

/// Bounds for every stream and port of a network, in the order of the network's own vectors.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Analysis {
    /// Indexed by [`timebound_model::StreamId`].
    pub streams: Vec<StreamResult>,
    /// Indexed by [`PortId`].
    pub ports: Vec<PortResult>,
    /// For how many streams the effort was enough to look at several ports at once, where it was not enough for all. The bounds of the others are safe,
    /// and those port by port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked_at: Option<LookedAt>,
}

/// See [`Analysis::looked_at`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LookedAt {
    pub streams: usize,
    /// Streams over several ports with a bound.
    pub of: usize,
}

/// One stream: a result for each leaf of its tree, in the order of the declared destinations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamResult {
    /// The stream's name.
    pub stream: String,
    pub leaves: Vec<LeafResult>,
}

/// One receiver of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeafResult {
    pub node: NodeId,
    /// The receiving node's name.
    pub receiver: String,
    pub outcome: Outcome,
}

/// A bound, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outcome {
    /// Every frame that is delivered arrives within these times. With several frames in a release, the bounds cover the
    /// slowest of them and the best case the fastest.
    Bound {
        /// Last bit at the receiver, counted from the nominal release: what a deadline is compared with.
        #[serde(rename = "from_nominal_ns")]
        from_nominal: Span,
        /// The same counted from the frame's actual release: what a measured network latency is compared with.
        #[serde(rename = "from_actual_ns")]
        from_actual: Span,
        /// No frame is faster than this, from its actual release.
        #[serde(rename = "best_case_ns")]
        best_case: Span,
        /// No release has come whole before this, from its actual release: all of its frames pass every port of the path one after the other.
        #[serde(rename = "best_whole_ns")]
        best_whole: Span,
        /// The path of the slowest frame; `from_actual` is the sum of its responses and traversals, less what they count again.
        hops: Vec<HopResult>,
    },
    /// The method applies, but delays can grow without limit.
    NoFiniteBound {
        /// Where the cause lies; not necessarily a port of this stream.
        port: PortId,
        reason: String,
    },
    /// The method does not apply to a port that this stream crosses, or to one that decides about its rivals.
    Unsupported { reason: String },
}

/// One port of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HopResult {
    pub port: PortId,
    /// `a->b`.
    #[serde(serialize_with = "text")]
    pub name: Arc<str>,
    /// Worst time from the frame's arrival in the queue to its last bit sent.
    #[serde(rename = "response_ns")]
    pub response: Span,
    /// The part of the response that earlier ports have counted already (rivals that go the same way, see [`crate::Method::Bound`]): the
    /// frame leaves `response - counted_before` after its latest arrival at the latest. It may be the larger of the two, where a later port
    /// tells that the arrival cannot have been that late.
    #[serde(rename = "counted_before_ns")]
    pub counted_before: Span,
    /// From the start of the busy period to the frame's arrival in the queue, in the case that has this response: the `t` at which
    /// the maximum lies.
    #[serde(rename = "window_ns")]
    pub window: Span,
    /// Worst minus best arrival in this queue, relative to the nominal release.
    #[serde(rename = "jitter_in_ns")]
    pub jitter_in: Span,
    /// Greatest time from the last bit sent to the next queue (or to the receiver): propagation, link jitter, switching.
    #[serde(rename = "traversal_ns")]
    pub traversal: Span,
}

/// One port.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortResult {
    pub port: PortId,
    /// `a->b`.
    pub name: String,
    /// Share of the port's time that the declared periodic streams need in the long run.
    pub utilisation: Utilisation,
    /// Greatest number of wire bytes of declared streams that can wait (the frame in transmission does not count).
    pub backlog_bytes: Option<u64>,
    /// Could the queue of a class exceed its declared room? Latency bounds hold for what is delivered even then.
    pub exceeds_buffer: bool,
    /// The classes that declared streams use here, most urgent first.
    pub classes: Vec<ClassResult>,
    /// Why there is no backlog bound.
    pub reason: Option<String>,
}

/// One class at a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClassResult {
    pub class: Class,
    /// Largest response of any frame of the class.
    #[serde(rename = "largest_delay_ns")]
    pub largest_delay: Option<Span>,
    /// Greatest number of wire bytes that can wait in the class's queue. A buffer of that size loses nothing.
    pub backlog_bytes: Option<u64>,
    /// Is that more than the queue has room for? Then frames of the class can be lost.
    pub exceeds_buffer: bool,
    /// Why there is none.
    pub reason: Option<String>,
}

/// A utilisation as an exact fraction. Where the common denominator of all periods would exceed 64 bits it is rounded up to
/// a multiple of 10^-15 per period.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Utilisation {
    /// The fraction as a float, rounded up.
    pub value: f64,
    pub numerator: u128,
    pub denominator: u128,
}

fn text<S: Serializer>(value: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value)
}

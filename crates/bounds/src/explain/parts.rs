//! What an explanation is made of. Serialises to JSON with times in nanoseconds (`_ns`) and sizes in wire bytes.

use crate::options::Method;
use crate::result::Utilisation;
use serde::Serialize;
use timebound_model::{Class, PortId, Span, WireBytes};

/// What the bound of one stream at one receiver is made of.
///
/// `from_actual` is the sum over the hops of [`HopExplanation::response`] and [`HopExplanation::traversal`]; `from_nominal` is
/// `source_jitter` more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    pub stream: String,
    pub receiver: String,
    pub class: Class,
    pub method: Method,
    /// The slowest frame of a release; its way is the one explained. Of a token bucket the least frame.
    pub frame_bytes: WireBytes,
    /// How much later than the nominal release a frame may be released. Zero for token buckets, which have no nominal release.
    #[serde(rename = "source_jitter_ns")]
    pub source_jitter: Span,
    #[serde(rename = "from_nominal_ns")]
    pub from_nominal: Span,
    #[serde(rename = "from_actual_ns")]
    pub from_actual: Span,
    /// No release has come whole before this, from its actual release.
    #[serde(rename = "best_case_ns")]
    pub best_case: Span,
    pub hops: Vec<HopExplanation>,
}

/// One port of the way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HopExplanation {
    pub port: PortId,
    /// `a->b`.
    pub name: String,
    /// Of the whole port.
    pub utilisation: Utilisation,
    /// [`Method::Calculus`] where line shaping makes the response shorter, else [`Method::Holistic`].
    pub method: Method,
    #[serde(rename = "jitter_in_ns")]
    pub jitter_in: Span,
    /// The bound here, from the arrival in the queue to the last bit sent: the sum of the parts.
    #[serde(rename = "response_ns")]
    pub response: Span,
    /// See [`crate::HopResult::counted_before`].
    #[serde(rename = "counted_before_ns")]
    pub counted_before: Span,
    /// The response for the same arrivals if frames over one link could come all at once. `None` where that has no bound.
    #[serde(rename = "unshaped_ns")]
    pub unshaped: Option<Span>,
    #[serde(flatten)]
    pub parts: Parts,
    /// From the last bit sent to the next queue or the receiver: `propagation + link_jitter + switching`.
    #[serde(rename = "traversal_ns")]
    pub traversal: Span,
    #[serde(rename = "propagation_ns")]
    pub propagation: Span,
    #[serde(rename = "link_jitter_ns")]
    pub link_jitter: Span,
    /// Of the next node.
    #[serde(rename = "switching_ns")]
    pub switching: Span,
}

/// A response time in parts: all that is sent between the start of the busy period and the end of the frame, less the time that
/// has passed when the frame arrives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parts {
    pub blocking: Blocking,
    /// Frames of more urgent classes, by stream, longest time first.
    pub higher: Vec<Interference>,
    /// Frames of the same class that are sent before, by stream, longest time first; the stream's own other frames among them.
    pub same: Vec<Interference>,
    /// The frame itself.
    #[serde(rename = "own_ns")]
    pub own: Span,
    /// What cannot have come yet, because the link over which it comes is not that fast. To be subtracted.
    pub shaping: Vec<Credit>,
    /// Times in which the port serves nobody of these or somebody else in turn: slots, weighted classes, a shared medium.
    #[serde(rename = "service_ns")]
    pub service: Span,
    /// Nanoseconds by which rounding in the analysis differs from these parts.
    #[serde(rename = "rounding_ns")]
    pub rounding: i64,
    /// From the start of the busy period to the arrival of the frame. To be subtracted.
    #[serde(rename = "window_ns")]
    pub window: Span,
    /// Are frames counted one by one? If not, the analysis took straight lines in place of staircases, as there were too many
    /// steps: counts are then absent and times those of the lines.
    pub counted: bool,
}

impl Parts {
    /// The sum of the parts in nanoseconds: the response time.
    #[must_use]
    pub fn total(&self) -> i128 {
        let sum = |list: &[Interference]| list.iter().map(|one| i128::from(one.time.0)).sum::<i128>();
        let credit: i128 = self.shaping.iter().map(|credit| i128::from(credit.time.0)).sum();
        i128::from(self.blocking.time.0)
            + sum(&self.higher)
            + sum(&self.same)
            + i128::from(self.own.0)
            + i128::from(self.service.0)
            + i128::from(self.rounding)
            - credit
            - i128::from(self.window.0)
    }
}

/// The frame of a lower class that is being sent when the busy period starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocking {
    #[serde(rename = "time_ns")]
    pub time: Span,
    #[serde(flatten)]
    pub by: BlockedBy,
}

/// Whose frame is the largest below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum BlockedBy {
    Nobody,
    /// One frame of undeclared traffic, which is assumed on every port.
    BestEffort {
        bytes: WireBytes,
    },
    /// The first declared stream with the largest frame.
    Stream {
        stream: String,
        class: Class,
        bytes: WireBytes,
    },
}

/// What one stream sends before the frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interference {
    pub stream: String,
    pub class: Class,
    /// Absent for token buckets whose frames differ in size, and where [`Parts::counted`] is false.
    pub frames: Option<u64>,
    #[serde(rename = "time_ns")]
    pub time: Span,
}

/// What one link holds back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Credit {
    /// The port at the other end of the link: `a->b`.
    pub link: String,
    #[serde(rename = "time_ns")]
    pub time: Span,
}

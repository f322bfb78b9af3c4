//! What Python says: names and integers, checked for shape by serde and for meaning by [`crate::compile`].
//!
//! All times are nanoseconds, all rates bit/s, all frame sizes bytes on the wire.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A whole network with its streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    pub nodes: Vec<NodeDecl>,
    pub links: Vec<LinkDecl>,
    #[serde(default)]
    pub streams: Vec<StreamDecl>,
    /// Best effort that nobody declared is assumed on every port with frames up to this size (timing.md: one maximum frame);
    /// 0: everything is declared.
    #[serde(default = "default_best_effort")]
    pub best_effort_frame_bytes: u32,
    /// Delivery opportunities in milliseconds by name, see [`crate::Trace`]; directions of links refer to them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub traces: BTreeMap<String, Vec<u64>>,
}

fn default_best_effort() -> u32 {
    1538
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKindDecl {
    /// An end system; forwards nothing.
    Host,
    /// A store-and-forward switch.
    Switch,
    /// A shared half-duplex segment: every attached link is one medium, forwarded without storing.
    Segment,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeDecl {
    pub name: String,
    pub kind: NodeKindDecl,
    /// Switching delay, least and greatest (SDmin, SDmax); zero for hosts.
    #[serde(default)]
    pub switching_min_ns: u64,
    #[serde(default)]
    pub switching_max_ns: u64,
    /// What it adds for a stream whose frames it sends on over several ports, least and greatest (the rendezvous point of a
    /// multicast group copies them).
    #[serde(default)]
    pub replication_min_ns: u64,
    #[serde(default)]
    pub replication_max_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkDecl {
    pub a: String,
    pub b: String,
    /// From `a` to `b`.
    pub forward: DirectionDecl,
    /// From `b` to `a`.
    pub backward: DirectionDecl,
    /// Both directions share one transmission resource.
    #[serde(default)]
    pub half_duplex: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionDecl {
    pub rate_bps: u64,
    #[serde(default)]
    pub delay_ns: u64,
    pub queue: QueueDecl,
    /// Room of each egress queue in wire bytes; the frame in transmission does not count. Every class has a queue of its own
    /// (with FIFO service there is one), so that a flood of a lower class cannot take the room of a higher one.
    pub buffer_bytes: u64,
    #[serde(default)]
    pub impairments: ImpairmentsDecl,
    /// Name of the trace whose opportunities take the place of the rate (which then is for figures only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Times in which this end may send; always where absent. On a half-duplex medium either every sender has slots or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<SlotsDecl>,
}

/// Time division, see [`crate::Slots`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotsDecl {
    /// The cycles start at the start of the run.
    pub cycle_ns: u64,
    /// (start within the cycle, length) in ns.
    pub slots_ns: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum QueueDecl {
    /// Non-preemptive strict priority over eight classes, FIFO in each.
    StrictPriority,
    /// One queue.
    Fifo,
    /// Deficit round robin (Shreedhar and Varghese 1996): quantum in bytes for each of the eight classes.
    Drr { quanta_bytes: [u32; 8] },
}

/// What happens to a frame on a link beyond rate and propagation delay.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImpairmentsDecl {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterDecl>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossDecl>,
    /// Probability that a frame has one bit flipped. The receiver's card would drop it (FCS); here it is delivered damaged
    /// unless `corruption_drops` is set.
    #[serde(default)]
    pub corruption: f64,
    #[serde(default)]
    pub corruption_drops: bool,
    /// Probability that a frame is delivered twice.
    #[serde(default)]
    pub duplication: f64,
    /// Times in which the link carries nothing: `[from, to)` in ns since the start of the run.
    #[serde(default)]
    pub outages: Vec<(u64, u64)>,
    /// Times at random in which the link carries nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disconnections: Option<DisconnectionsDecl>,
    /// While the link carries nothing (outage, disconnection, set down), frames wait instead of being sent into nothing. The
    /// frame in transmission is lost in either case.
    #[serde(default)]
    pub held: bool,
}

/// The link is up and down in turns, up first. Both directions of a link draw from one stream, named after the link: with the
/// same parameters they are down at the same times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisconnectionsDecl {
    pub mean_up_ns: u64,
    pub mean_down_ns: u64,
    pub distribution: DisconnectionDistribution,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DisconnectionDistribution {
    /// Every time is drawn from an exponential distribution with its mean.
    Exponential,
    /// Every time is its mean.
    Fixed,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JitterDecl {
    pub distribution: JitterDistribution,
    /// May a later frame overtake an earlier one on the same link?
    #[serde(default)]
    pub reorder: bool,
}

/// Delay added to the propagation delay of each frame (never negative).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum JitterDistribution {
    /// Uniform on `[0, max_ns]`.
    Uniform { max_ns: u64 },
    /// Normal, truncated to `[0, max_ns]`.
    Normal {
        mean_ns: u64,
        deviation_ns: u64,
        max_ns: u64,
    },
    /// Pareto with shape `alpha` and least value `scale_ns`, less `scale_ns`, truncated at `max_ns`.
    Pareto { scale_ns: u64, alpha: f64, max_ns: u64 },
    /// Exponential, truncated at `max_ns`.
    Exponential { mean_ns: u64, max_ns: u64 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum LossDecl {
    Bernoulli {
        probability: f64,
    },
    /// Two states; per frame first the state may change, then the frame is lost with the state's probability
    /// (Gilbert 1960, Elliott 1963).
    GilbertElliott {
        good_to_bad: f64,
        bad_to_good: f64,
        loss_in_good: f64,
        loss_in_bad: f64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleDecl {
    Data,
    Ack,
    Control,
    Background,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamDecl {
    pub name: String,
    pub source: String,
    pub destinations: Vec<String>,
    pub class: u8,
    pub role: RoleDecl,
    pub arrival: ArrivalDecl,
    /// Of a periodic arrival: frames may really be smaller than those declared, but none is smaller than this; exactly as declared
    /// where absent. Only bounds look at it: simulation sends what is declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_frame_bytes: Option<u32>,
    pub release: ReleaseDecl,
    /// Only for the report and for deadline checks; counted from the nominal release.
    #[serde(default)]
    pub deadline_ns: Option<u64>,
    /// An explicit path per destination (node names, source first); shortest path where absent.
    #[serde(default)]
    pub route: Option<Vec<Vec<String>>>,
}

/// The declared arrival curve at the source's first port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum ArrivalDecl {
    /// At every period (or minimum inter-arrival) at most one burst of these frames, released up to `jitter_ns` late.
    Periodic {
        period_ns: u64,
        jitter_ns: u64,
        frames_bytes: Vec<u32>,
    },
    /// In any closed window of length `d` frames of at most `burst_bytes + rate_bps d / 8` in all, each of `min_frame_bytes` to
    /// `max_frame_bytes`. There is no nominal release: a deadline counts from the actual one.
    TokenBucket {
        rate_bps: u64,
        burst_bytes: u64,
        min_frame_bytes: u32,
        max_frame_bytes: u32,
    },
    /// Nothing is promised but the largest frame.
    Unbounded { max_frame_bytes: u32 },
}

/// How the simulator releases frames (always within the declared arrival curve where there is one).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum ReleaseDecl {
    /// Every period from a random (or given) offset, each late by a random share of the jitter.
    Periodic {
        #[serde(default)]
        offset_ns: Option<u64>,
    },
    /// Gaps of one period plus an exponential extra with this mean.
    Sporadic { mean_extra_ns: u64 },
    /// Poisson with this mean gap; for `Unbounded` and `TokenBucket` arrivals, as the next two.
    Poisson { mean_gap_ns: u64, frame_bytes: u32 },
    /// All that a `TokenBucket` allows, at once: its burst (from a random or given time on), then at its rate. Each release
    /// consists of these frames.
    Greedy {
        #[serde(default)]
        offset_ns: Option<u64>,
        frames_bytes: Vec<u32>,
    },
    /// Constant bit rate with this gap; for `Unbounded` arrivals.
    Constant { gap_ns: u64, frame_bytes: u32 },
    /// Bursts: `frames` back to back every `gap_ns`; for `Unbounded` arrivals.
    Burst {
        gap_ns: u64,
        frames: u32,
        frame_bytes: u32,
    },
    /// These very times.
    Trace { times_ns: Vec<u64>, frame_bytes: u32 },
    /// Nothing is released in simulation (stays in the bounds).
    Silent,
}

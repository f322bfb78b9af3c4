//! Streams as the analysis sees them: one flow for each frame size, and what links and switches do to it on its way.

use crate::bundle::Line;
use crate::exact;
use crate::options::Options;
use crate::service::bucket::{Envelope, burst_time};
use timebound_model::{Arrival, Network, Port, Span, Speed, Stream, StreamId, WireBytes};

/// Frames of one size of one stream.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) stream: StreamId,
    pub(crate) period: u64,
    /// Release jitter.
    pub(crate) jitter: u64,
    pub(crate) bytes: WireBytes,
    /// The least that any of them may really be: it arrives earlier, and so the others vary by more. `bytes` where they are exact.
    pub(crate) least: WireBytes,
    /// Frames of this size per release.
    pub(crate) multiplicity: u64,
    /// The largest of its frames.
    pub(crate) largest: WireBytes,
    /// Of a token bucket: what a release is (`bytes` is its least frame then, for which responses are longest).
    pub(crate) envelope: Option<Envelope>,
    /// Position of its first hop in [`crate::layout::Layout::slot_of`]; the others follow in the order of the tree.
    pub(crate) first_hop: usize,
}

impl Flow {
    /// Transmission time of a frame and of all that a release brings.
    pub(crate) fn passage(&self, speed: Speed) -> (u64, u64) {
        let own = speed.transmission_time(self.bytes).0;
        let weight = match &self.envelope {
            Some(envelope) => envelope.weight(speed),
            None => own.saturating_mul(self.multiplicity),
        };
        (own, weight)
    }
    /// Transmission time at a port of the least that a frame may really be, where that of the declared one is `own`: no time at all where
    /// that is none.
    pub(crate) fn quickest(&self, own: u64, port: &Port) -> u64 {
        if self.least == self.bytes {
            return own;
        }
        port.transmission_time(self.least).0.min(own)
    }
}

/// What comes over a link to a level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frames {
    /// Bytes of the largest frame and of the least.
    largest: u32,
    least: u32,
    /// Does the switch between copy any of them, or all?
    any_copied: bool,
    all_copied: bool,
}

impl Frames {
    pub(crate) const NONE: Self = Self {
        largest: 0,
        least: u32::MAX,
        any_copied: false,
        all_copied: true,
    };
    pub(crate) fn add(&mut self, flow: &Flow, copied: bool) {
        self.largest = self.largest.max(flow.largest.0);
        self.least = self.least.min(flow.least.0);
        self.any_copied |= copied;
        self.all_copied &= copied;
    }
}

/// What the link of `input` can deliver of these frames to `port`.
pub(crate) fn shaping(network: &Network, input: &Port, port: &Port, frames: Frames) -> Line {
    let node = &network.nodes[port.node.index()];
    let only = |yes: bool, span: Span| if yes { span } else { Span::ZERO };
    let spread = input
        .impairments
        .greatest_jitter()
        .saturating_add(input.speed().slack())
        .saturating_add(port.speed().slack())
        .saturating_add(node.switching_max.saturating_sub(node.switching_min))
        .saturating_add(only(frames.any_copied, node.replication_max))
        .saturating_sub(only(frames.all_copied, node.replication_min));
    Line::new(
        port.transmission_time(WireBytes(frames.largest)).0,
        WireBytes(frames.least),
        spread.0,
        input.speed(),
        port.speed(),
    )
}

/// Greatest time from the last bit sent to the last bit received.
pub(crate) fn crossing(port: &timebound_model::Port) -> Span {
    port.propagation
        .saturating_add(port.impairments.greatest_jitter())
        .saturating_add(port.speed().slack())
}

/// The earliest arrival in the queue of `next`, but for switching, of a frame that begins to be sent over `link` at this time and takes `own`. No frame
/// is there before its release.
pub(crate) fn soonest(begins: u64, own: u64, link: &Port, next: &Port) -> u64 {
    let early = link.speed().early().saturating_add(next.speed().slack().0);
    begins
        .saturating_add(own)
        .saturating_add(link.propagation.0)
        .saturating_sub(early)
}

pub(crate) fn flows(network: &Network, options: &Options) -> (Vec<Flow>, Vec<std::ops::Range<usize>>) {
    let mut flows = Vec::with_capacity(network.streams.len());
    let mut flows_of = Vec::with_capacity(network.streams.len());
    let mut first_hop = 0;
    let mut sizes: Vec<WireBytes> = Vec::new();
    for (index, stream) in network.streams.iter().enumerate() {
        let first = flows.len();
        let id = StreamId::new(index);
        let observed = options.jitter_override.get(&id).copied().unwrap_or(Span::ZERO);
        let begins = exact::begins(network, &stream.tree);
        flows_of_stream(
            stream,
            id,
            (observed, begins, network.per_nano()),
            &mut sizes,
            &mut flows,
        );
        for flow in &mut flows[first..] {
            flow.first_hop = first_hop;
            first_hop += stream.tree.hops.len();
        }
        flows_of.push(first..flows.len());
    }
    (flows, flows_of)
}

/// Adds the flows of one stream, in ticks; where their hops lie is up to the caller. `begins` is by how much its frames can begin earlier than whole
/// nanoseconds say, which `observed` and a declared jitter know of already.
pub(crate) fn flows_of_stream(
    stream: &Stream,
    id: StreamId,
    (observed, begins, per_nano): (Span, Span, u64),
    sizes: &mut Vec<WireBytes>,
    flows: &mut Vec<Flow>,
) {
    if let Arrival::Periodic {
        period,
        jitter,
        frames,
    } = &stream.arrival
    {
        sizes.clear();
        sizes.extend(frames);
        sizes.sort_unstable();
        for same in sizes.chunk_by(|a, b| a == b) {
            flows.push(Flow {
                stream: id,
                period: period.0.max(1),
                jitter: (*jitter).max(observed).0,
                bytes: same[0],
                least: stream.least_of(same[0]),
                multiplicity: same.len() as u64,
                largest: same[0],
                envelope: None,
                first_hop: 0,
            });
        }
    }
    flows.extend(bucket(stream, id, (observed, begins), per_nano));
}

/// The flow that covers a token bucket; its jitter stands for the burst, and is no lateness.
fn bucket(stream: &Stream, id: StreamId, (observed, begins): (Span, Span), per_nano: u64) -> Option<Flow> {
    let Arrival::TokenBucket {
        rate,
        burst_bytes,
        min_frame,
        max_frame,
    } = stream.arrival
    else {
        return None;
    };
    let declared = burst_time(rate, burst_bytes, per_nano).saturating_add(begins.0);
    let burst = declared.max(observed.0);
    let envelope = Envelope::new(rate, (burst, per_nano), min_frame, max_frame);
    Some(Flow {
        stream: id,
        period: envelope.period,
        jitter: envelope.jitter,
        bytes: min_frame,
        least: min_frame,
        multiplicity: 1,
        largest: max_frame,
        envelope: Some(envelope),
        first_hop: 0,
    })
}

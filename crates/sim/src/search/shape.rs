//! What the search needs to know about a network, computed once.

use timebound_model::units::NANOS_PER_SECOND;
use timebound_model::{Arrival, Network, NodeKind, Rate, Release, Span, StreamId, WireBytes};

/// A stream whose phasing the search may choose.
#[derive(Debug, Clone)]
pub(super) struct Mover {
    pub(super) stream: StreamId,
    pub(super) period: u64,
    pub(super) jitter: u64,
    /// Has it no nominal releases, so that its lateness is none (a token bucket)?
    pub(super) unscheduled: bool,
    pub(super) class: u8,
    pub(super) frames: Vec<WireBytes>,
}

impl Mover {
    /// A token bucket that releases these frames at a time: at most `floor((d + J) / T) + 1` of them in a closed window `d`, with T the
    /// time of one release at the token rate and `J + T` that of the burst, both rounded so that the bucket is kept to.
    fn of_bucket(stream: StreamId, class: u8, (rate, burst): (Rate, u64), frames: &[WireBytes]) -> Self {
        let bytes: u64 = frames.iter().map(|frame| u64::from(frame.0)).sum();
        let tokens = |bytes: u64| u128::from(bytes) * 8 * u128::from(NANOS_PER_SECOND);
        let nanos = |time: u128| u64::try_from(time).unwrap_or(u64::MAX).max(1);
        let period = nanos(tokens(bytes).div_ceil(u128::from(rate.0)));
        Self {
            stream,
            period,
            jitter: nanos(tokens(burst) / u128::from(rate.0)).saturating_sub(period),
            unscheduled: true,
            class,
            frames: frames.to_vec(),
        }
    }
}

/// A receiver for which a chunk climbs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    /// Index into the movers.
    pub(super) mover: usize,
    pub(super) leaf: u32,
}

#[derive(Debug)]
pub(super) struct Shape<'a> {
    pub(super) network: &'a Network,
    pub(super) movers: Vec<Mover>,
    /// Streams that promise nothing and release by their own pattern.
    pub(super) others: Vec<StreamId>,
    pub(super) targets: Vec<Target>,
    /// Per port: (mover, its hop there).
    pub(super) users: Vec<Vec<(u32, u32)>>,
    /// Per stream its first entry in the list of all leaves.
    pub(super) bases: Vec<usize>,
    pub(super) leaves: usize,
    /// The time before which nobody is released: jitter and alignment reach back from here.
    pub(super) base: u64,
    /// Length of the simulated time after that.
    pub(super) horizon: u64,
}

/// Releases in one evaluation, in so far as the number of streams allows: a search lives on many short evaluations.
const RELEASES: u128 = 2_000;

impl<'a> Shape<'a> {
    pub(super) fn new(network: &'a Network) -> Self {
        let mut shape = Self {
            network,
            movers: Vec::new(),
            others: Vec::new(),
            targets: Vec::new(),
            users: vec![Vec::new(); network.ports.len()],
            bases: Vec::new(),
            leaves: 0,
            base: 0,
            horizon: 0,
        };
        for (index, stream) in network.streams.iter().enumerate() {
            shape.bases.push(shape.leaves);
            shape.leaves += stream.tree.leaves.len();
            match &stream.arrival {
                _ if stream.release == Release::Silent || stream.tree.leaves.is_empty() => {}
                Arrival::Unbounded { .. } => shape.others.push(StreamId::new(index)),
                Arrival::TokenBucket {
                    rate, burst_bytes, ..
                } => match &stream.release {
                    Release::Greedy { frames, .. } => shape.movers.push(Mover::of_bucket(
                        StreamId::new(index),
                        stream.class.0,
                        (*rate, *burst_bytes),
                        frames,
                    )),
                    _ => shape.others.push(StreamId::new(index)),
                },
                Arrival::Periodic {
                    period,
                    jitter,
                    frames,
                } => shape.movers.push(Mover {
                    stream: StreamId::new(index),
                    period: period.0,
                    jitter: jitter.0,
                    unscheduled: false,
                    class: stream.class.0,
                    frames: frames.clone(),
                }),
            }
        }
        for (mover, who) in shape.movers.iter().enumerate() {
            let tree = &network.streams[who.stream.index()].tree;
            for (hop, place) in (0u32..).zip(&tree.hops) {
                shape.users[place.port.index()].push((mover as u32, hop));
            }
            shape
                .targets
                .extend((0..tree.leaves.len() as u32).map(|leaf| Target { mover, leaf }));
        }
        (shape.base, shape.horizon) = shape.window();
        shape
    }

    /// Twice the longest period and the greatest jitter, or less where that would make too many releases.
    fn window(&self) -> (u64, u64) {
        let longest = self.movers.iter().map(|m| m.period).max().unwrap_or(0);
        let jitter = self.movers.iter().map(|m| m.jitter).max().unwrap_or(0);
        let wanted = u128::from(longest) * 2 + u128::from(jitter);
        // Releases in the window, in millionths to keep slow streams in the sum.
        let releases = |window: u128| {
            self.movers
                .iter()
                .map(|m| window * 1_000_000 / u128::from(m.period))
                .sum::<u128>()
        };
        let most = RELEASES.max(4 * self.movers.len() as u128) * 1_000_000;
        let horizon = match releases(wanted) {
            total if total > most => wanted * most / total,
            _ => wanted,
        };
        let horizon = u64::try_from(horizon).unwrap_or(u64::MAX / 4).max(1);
        (jitter + horizon, horizon)
    }

    /// How long the first frame of a release takes to the queue of `hop` if nothing delays it; `switching` chooses each
    /// switch's delay from its range.
    pub(super) fn travel(&self, mover: usize, hop: u32, mut switching: impl FnMut(Span, Span) -> u64) -> u64 {
        let who = &self.movers[mover];
        let tree = &self.network.streams[who.stream.index()].tree;
        let mut at = tree.hops[hop as usize].parent;
        let mut time = 0;
        while let Some(hop) = at {
            let hop = &tree.hops[hop as usize];
            time += self.sending(mover, hop.port.index());
            let port = &self.network.ports[hop.port.index()];
            let peer = &self.network.nodes[port.peer.index()];
            time += port.propagation.0;
            if peer.kind == NodeKind::Switch {
                time += switching(peer.switching_min, peer.switching_max);
            }
            at = hop.parent;
        }
        time
    }

    /// Transmission time of the first frame at a port; zero out of a shared segment.
    pub(super) fn sending(&self, mover: usize, port: usize) -> u64 {
        let port = &self.network.ports[port];
        let frame = self.movers[mover]
            .frames
            .first()
            .copied()
            .unwrap_or(WireBytes::MIN);
        match self.network.nodes[port.node.index()].kind {
            NodeKind::Segment => 0,
            _ => port.rate.transmission_time(frame).0,
        }
    }
}

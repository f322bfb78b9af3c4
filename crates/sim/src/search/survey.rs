//! What the search needs to know about the whole network, gathered once: who uses which port, and who is a target.

use timebound_model::units::NANOS_PER_SECOND;
use timebound_model::{
    Arrival, Discipline, Network, NodeKind, Port, PortId, Rate, Release, StreamId, WireBytes,
};

/// A stream's most demanding conforming releases: at most one per period in the long run, each up to `jitter` late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) period: u64,
    pub(super) jitter: u64,
    pub(super) frames: Vec<WireBytes>,
    /// Only one release in an evaluation: one frame that is in the way.
    pub(super) once: bool,
    /// Has it no nominal releases, so that its lateness is none (a token bucket)?
    pub(super) unscheduled: bool,
}

impl Pattern {
    /// One frame, at any time.
    pub(super) fn once(frame: WireBytes, period: u64) -> Self {
        Self {
            period,
            jitter: 0,
            frames: vec![frame],
            once: true,
            unscheduled: true,
        }
    }

    /// A token bucket that releases these frames at a time: at most `floor((d + J) / T) + 1` of them in a closed window `d`, with T the
    /// time of one release at the token rate and `J + T` that of the burst, both rounded so that the bucket is kept to.
    fn of_bucket(rate: Rate, burst_bytes: u64, frames: Vec<WireBytes>) -> Self {
        let bytes: u64 = frames.iter().map(|frame| u64::from(frame.0)).sum();
        let tokens = |bytes: u64| u128::from(bytes) * 8 * u128::from(NANOS_PER_SECOND);
        let nanos = |time: u128| u64::try_from(time).unwrap_or(u64::MAX).max(1);
        let period = nanos(tokens(bytes).div_ceil(u128::from(rate.0.max(1))));
        let jitter = nanos(tokens(burst_bytes) / u128::from(rate.0.max(1))).saturating_sub(period);
        Self {
            period,
            jitter,
            frames,
            once: false,
            unscheduled: true,
        }
    }
}

/// A receiver for which the search climbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) stream: StreamId,
    pub(super) leaf: u32,
}

#[derive(Debug)]
pub(super) struct Survey<'a> {
    pub(super) network: &'a Network,
    pub(super) targets: Vec<Target>,
    /// Per port: (stream, its hop there).
    users: Vec<Vec<(StreamId, u32)>>,
    /// Per shared medium its ports.
    media: Vec<Vec<PortId>>,
    /// Per stream its first receiver in the list of all.
    pub(super) bases: Vec<usize>,
    pub(super) leaves: usize,
}

impl<'a> Survey<'a> {
    pub(super) fn new(network: &'a Network) -> Self {
        let mut survey = Self {
            network,
            targets: Vec::new(),
            users: vec![Vec::new(); network.ports.len()],
            media: vec![Vec::new(); network.media as usize],
            bases: Vec::new(),
            leaves: 0,
        };
        for (index, port) in network.ports.iter().enumerate() {
            if let Some(medium) = port.medium {
                survey.media[medium.index()].push(PortId::new(index));
            }
        }
        for (index, stream) in network.streams.iter().enumerate() {
            let id = StreamId::new(index);
            survey.bases.push(survey.leaves);
            survey.leaves += stream.tree.leaves.len();
            for (hop, place) in (0u32..).zip(&stream.tree.hops) {
                survey.users[place.port.index()].push((id, hop));
            }
            let is_target = stream.release != Release::Silent
                && survey
                    .pattern(id)
                    .is_some_and(|pattern| !pattern.frames.is_empty() && !pattern.once);
            if is_target {
                let leaves = 0..stream.tree.leaves.len() as u32;
                survey
                    .targets
                    .extend(leaves.map(|leaf| Target { stream: id, leaf }));
            }
        }
        survey
    }

    /// How a stream may release; `None` for one that promises nothing.
    pub(super) fn pattern(&self, stream: StreamId) -> Option<Pattern> {
        match &self.network.streams[stream.index()].arrival {
            Arrival::Periodic {
                period,
                jitter,
                frames,
            } => Some(Pattern {
                period: period.0.max(1),
                jitter: jitter.0,
                frames: frames.clone(),
                once: false,
                unscheduled: false,
            }),
            Arrival::TokenBucket {
                rate,
                burst_bytes,
                max_frame,
                ..
            } => Some(Pattern::of_bucket(*rate, *burst_bytes, vec![*max_frame])),
            Arrival::Unbounded { .. } => None,
        }
    }

    /// All who can keep frames of `port` waiting: its own users, and those of every port with which it shares a medium.
    pub(super) fn users(&self, port: PortId) -> impl Iterator<Item = (StreamId, u32)> + '_ {
        let (own, shared) = match self.network.ports[port.index()].medium {
            Some(medium) => (None, self.media[medium.index()].as_slice()),
            None => (Some(port), [].as_slice()),
        };
        own.into_iter()
            .chain(shared.iter().copied())
            .flat_map(|port| self.users[port.index()].iter().copied())
    }

    /// Does the class decide who is served at this port, so that a lower one is only in the way with one frame?
    pub(super) fn sorts(&self, port: PortId) -> bool {
        let port = &self.network.ports[port.index()];
        let arbitrated = port.medium.is_some() && port.slots.is_none();
        port.discipline == Discipline::StrictPriority && !arbitrated && !self.passes(port)
    }

    /// The way out of a shared segment: nothing waits there.
    pub(super) fn passes(&self, port: &Port) -> bool {
        self.network.nodes[port.node.index()].kind == NodeKind::Segment
    }

    /// Greatest time from the last bit sent to the next queue.
    pub(super) fn crossing(&self, port: &Port) -> u64 {
        let peer = &self.network.nodes[port.peer.index()];
        let switching = match peer.kind {
            NodeKind::Switch => peer.switching_max.0.saturating_add(peer.replication_max.0),
            NodeKind::Host | NodeKind::Segment => 0,
        };
        port.propagation
            .saturating_add(port.impairments.greatest_jitter())
            .0
            .saturating_add(switching)
    }

    /// Transmission time of a frame at a port; zero out of a shared segment.
    pub(super) fn sending(&self, frame: WireBytes, port: PortId) -> u64 {
        let port = &self.network.ports[port.index()];
        if self.passes(port) {
            0
        } else {
            port.rate.transmission_time(frame).0
        }
    }

    /// How long the first frame of a release takes to the queue of `hop` if nothing but the greatest delays is in its way.
    pub(super) fn travel(&self, stream: StreamId, hop: u32, frame: WireBytes) -> u64 {
        let tree = &self.network.streams[stream.index()].tree;
        let mut at = tree.hops[hop as usize].parent;
        let mut time = 0u64;
        while let Some(hop) = at {
            let hop = &tree.hops[hop as usize];
            time = time
                .saturating_add(self.sending(frame, hop.port))
                .saturating_add(self.crossing(&self.network.ports[hop.port.index()]));
            at = hop.parent;
        }
        time
    }
}

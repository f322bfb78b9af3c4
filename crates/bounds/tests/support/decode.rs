//! Any bytes as a network: the fuzzer's way and the property tests' to networks that nobody would write down. Also part of `fuzz`.

use std::time::{Duration, Instant};
use timebound_bounds::{Analysis, Exact, Explainer, Method, Options, Outcome, published, trajectory};
use timebound_model::declaration::{
    ArrivalDecl, Declaration, DirectionDecl, ImpairmentsDecl, JitterDecl, JitterDistribution, LinkDecl,
    LossDecl, NodeDecl, NodeKindDecl, QueueDecl, ReleaseDecl, RoleDecl, SlotsDecl, StreamDecl,
};
use timebound_model::{Arrival, Network, Rate, Span, StreamId, WireBytes, compile};

/// A reader that answers zero where the bytes end.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Bytes<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }
    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit.max(1)
    }
    fn one_in(&mut self, many: u8) -> bool {
        self.byte() % many == many - 1
    }
    fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.byte()))
    }
    /// Ordinary and small, seldom at the edge of what compiles, hardly ever beyond.
    fn nanos(&mut self) -> u64 {
        match self.byte() {
            0..60 => 0,
            60..80 => 1,
            80..120 => u64::from(self.byte()),
            120..180 => u64::from(self.byte()) * 1_000,
            180..230 => u64::from(self.byte()) * 20_000,
            230..240 => self.word() % 1_000_000_000,
            240..246 => self.word() % 1_000_000_000_000_000,
            246..250 => 1_000_000_000_000_000 - u64::from(self.byte()),
            _ if self.one_in(32) => u64::MAX >> (self.byte() % 8),
            _ => 1_000_000_000_000_000,
        }
    }
    fn period(&mut self) -> u64 {
        match self.byte() {
            0..200 => 300_000 + u64::from(self.byte()) * 20_000 + u64::from(self.byte()),
            200..210 => 1 + u64::from(self.byte()),
            _ => self.nanos(),
        }
    }
    fn rate(&mut self) -> u64 {
        match self.byte() {
            0..200 => 10u64.pow(8 + u32::from(self.byte() % 2)),
            200..220 => 10_000_000 + self.word() % 100_000_000,
            220..230 => 10_000_000_000_000,
            230..240 => 1_000_000_000_000,
            240..250 => 100,
            _ if self.one_in(32) => 1,
            _ => self.word() % 10_000_000_000,
        }
    }
    fn frame(&mut self) -> u32 {
        match self.byte() {
            0..120 => 84,
            120..220 => 84 + u32::from(self.byte()) * 5,
            220..240 => 1_538,
            240..245 => 9_300,
            245..250 => 1,
            _ if self.one_in(32) => u32::MAX,
            _ => 1 + (self.word() % 9_300) as u32,
        }
    }
}

/// Hosts and switches on a chain with more links across it, and streams between any of them.
pub(crate) fn declaration(bytes: &mut Bytes<'_>) -> Declaration {
    let nodes = 2 + bytes.below(9);
    let kind = |bytes: &mut Bytes<'_>, index: usize| match bytes.byte() % 64 {
        0 => NodeKindDecl::Segment,
        1..9 => NodeKindDecl::Switch,
        _ if index % 3 == 1 => NodeKindDecl::Switch,
        _ => NodeKindDecl::Host,
    };
    let mut declaration = Declaration {
        nodes: Vec::new(),
        links: Vec::new(),
        streams: Vec::new(),
        best_effort_frame_bytes: bytes.frame(),
        traces: std::collections::BTreeMap::new(),
    };
    for index in 0..nodes {
        let (a, b) = if bytes.one_in(3) {
            (bytes.nanos(), bytes.nanos())
        } else {
            (0, 5_000)
        };
        declaration.nodes.push(NodeDecl {
            name: format!("n{index}"),
            kind: kind(bytes, index),
            switching_min_ns: a.min(b),
            switching_max_ns: a.max(b),
            replication_min_ns: a.min(b) / 2,
            replication_max_ns: a.max(b) / 2,
        });
    }
    for index in 1..nodes + bytes.below(4) {
        // Every third node is a switch of the backbone, the others are at the one before them.
        let usual = match index {
            0 | 1 => 0,
            _ if index % 3 == 1 => index - 3,
            _ => (index - 1) / 3 * 3 + 1,
        };
        let (a, b) = match index < nodes {
            true if bytes.one_in(8) => (index, bytes.below(index)),
            true => (index, usual),
            false => (bytes.below(nodes), bytes.below(nodes)),
        };
        declaration.links.push(LinkDecl {
            a: format!("n{a}"),
            b: format!("n{b}"),
            forward: direction(bytes),
            backward: direction(bytes),
            half_duplex: bytes.one_in(64),
        });
    }
    for index in 0..bytes.below(24) {
        declaration.streams.push(stream(bytes, index, nodes));
    }
    declaration
}

fn direction(bytes: &mut Bytes<'_>) -> DirectionDecl {
    let queue = match bytes.byte() % 32 {
        0..3 => QueueDecl::Fifo,
        3 => QueueDecl::Drr {
            quanta_bytes: std::array::from_fn(|_| bytes.frame()),
        },
        _ => QueueDecl::StrictPriority,
    };
    let mut impairments = ImpairmentsDecl::default();
    if bytes.one_in(6) {
        impairments.jitter = Some(JitterDecl {
            distribution: JitterDistribution::Uniform {
                max_ns: bytes.nanos(),
            },
            reorder: bytes.one_in(2),
        });
    }
    if bytes.one_in(64) {
        impairments.loss = Some(LossDecl::Bernoulli { probability: 0.5 });
    }
    let slots = bytes.one_in(64).then(|| SlotsDecl {
        cycle_ns: bytes.nanos(),
        slots_ns: (0..=bytes.below(3))
            .map(|_| (bytes.nanos(), bytes.nanos()))
            .collect(),
    });
    DirectionDecl {
        rate_bps: bytes.rate(),
        delay_ns: bytes.nanos(),
        queue,
        buffer_bytes: bytes.word(),
        impairments,
        trace: None,
        slots,
    }
}

fn stream(bytes: &mut Bytes<'_>, index: usize, nodes: usize) -> StreamDecl {
    let arrival = match bytes.byte() % 12 {
        0 => ArrivalDecl::Unbounded {
            max_frame_bytes: bytes.frame(),
        },
        1 | 2 => ArrivalDecl::TokenBucket {
            rate_bps: bytes.rate(),
            burst_bytes: if bytes.one_in(3) { bytes.word() } else { 20_000 },
            min_frame_bytes: 84,
            max_frame_bytes: bytes.frame(),
        },
        _ => ArrivalDecl::Periodic {
            period_ns: bytes.period(),
            jitter_ns: bytes.nanos(),
            frames_bytes: (0..=bytes.below(3)).map(|_| bytes.frame()).collect(),
        },
    };
    StreamDecl {
        name: format!("f{index}"),
        source: format!("n{}", bytes.below(nodes)),
        destinations: (0..=bytes.below(2))
            .map(|_| format!("n{}", bytes.below(nodes)))
            .collect(),
        class: bytes.byte() % 8,
        role: RoleDecl::Data,
        arrival,
        release: ReleaseDecl::Silent,
        deadline_ns: None,
        least_frame_bytes: None,
        route: None,
    }
}

/// What compiles of it: what does not fit is taken out, stream by stream.
pub(crate) fn network(mut declaration: Declaration) -> Option<Network> {
    let streams = std::mem::take(&mut declaration.streams);
    compile(&declaration).ok()?;
    for stream in streams {
        declaration.streams.push(stream);
        if compile(&declaration).is_err() {
            declaration.streams.pop();
        }
    }
    compile(&declaration).ok()
}

/// Values that no declaration can have: the analyses take any `Network`, whoever made it.
pub(crate) fn distort(network: &mut Network, bytes: &mut Bytes<'_>) {
    for port in &mut network.ports {
        match bytes.byte() % 10 {
            0 => port.rate = Rate(1),
            1 => port.rate = Rate(u64::MAX),
            2 => port.propagation = Span(u64::MAX),
            _ => {}
        }
    }
    for stream in &mut network.streams {
        if let Arrival::Periodic {
            period,
            jitter,
            frames,
        } = &mut stream.arrival
        {
            match bytes.byte() % 10 {
                0 => *period = Span(u64::MAX),
                1 => *jitter = Span(u64::MAX),
                2 => frames.push(WireBytes(u32::MAX)),
                3 => *period = Span(1),
                _ => {}
            }
        }
    }
    if bytes.one_in(4) {
        network.best_effort_frame = WireBytes(u32::MAX);
    }
}

/// No analysis of so small a network may take longer: its computing limit is to end it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Everything public, and what must hold between the answers.
///
/// # Panics
/// If something does not hold.
pub(crate) fn examine(network: &Network, bytes: &mut Bytes<'_>) -> usize {
    let started = Instant::now();
    let jitter_override = if bytes.one_in(3) {
        (0..network.streams.len())
            .map(|stream| (StreamId::new(stream), Span(bytes.nanos())))
            .collect()
    } else {
        Default::default()
    };
    let options = |method| Options {
        method,
        assume_best_effort: !bytes.0.len().is_multiple_of(4),
        jitter_override: Clone::clone(&jitter_override),
        threads: 1 + bytes.0.len() % 2,
        effort: Options::EFFORT,
    };
    let exact = Exact::of(network);
    let explainers = [Method::Bound, Method::Holistic, Method::Calculus]
        .map(|method| Explainer::new(&exact, &options(method)));
    let mut bounds = 0;
    for explainer in &explainers {
        bounds += explained(explainer, network);
    }
    let [least, parts @ ..] = &explainers;
    for part in parts {
        not_above(least.analysis(), part.analysis());
    }
    for other in [
        trajectory(network, &options(Method::Bound)),
        published::holistic_as_published(network, &options(Method::Bound)),
    ] {
        assert_eq!(other.analysis.streams.len(), network.streams.len());
    }
    assert!(
        started.elapsed() < PATIENCE,
        "{:?} for {} streams",
        started.elapsed(),
        network.streams.len()
    );
    bounds
}

/// Every bound has an explanation that adds up, and no frame is faster than possible.
fn explained(explainer: &Explainer<'_>, network: &Network) -> usize {
    let mut bounds = 0;
    for (stream, result) in explainer.analysis().streams.iter().enumerate() {
        assert_eq!(result.leaves.len(), network.streams[stream].tree.leaves.len());
        for (leaf, found) in result.leaves.iter().enumerate() {
            let explanation = explainer.explain(StreamId::new(stream), leaf);
            let (from_nominal, from_actual, best_case) = match &found.outcome {
                Outcome::Bound {
                    from_nominal,
                    from_actual,
                    best_case,
                    ..
                } => (from_nominal, from_actual, best_case),
                Outcome::NoFiniteBound { reason, .. } | Outcome::Unsupported { reason } => {
                    assert!(!reason.is_empty() && explanation.is_err());
                    continue;
                }
            };
            assert!(
                best_case <= from_actual && from_actual <= from_nominal,
                "{found:?}"
            );
            let explanation = explanation.expect("a bound has an explanation");
            let mut sum = 0i128;
            for hop in &explanation.hops {
                assert_eq!(hop.parts.total(), i128::from(hop.response.0), "{hop:?}");
                sum += i128::from(hop.response.0) + i128::from(hop.traversal.0);
                sum -= i128::from(hop.counted_before.0);
            }
            assert_eq!(sum, i128::from(from_actual.0), "{explanation:?}");
            bounds += 1;
        }
    }
    bounds
}

/// The least of all methods is above none of them, and has a bound wherever one of them has.
fn not_above(least: &Analysis, part: &Analysis) {
    let leaves = |analysis: &Analysis| -> Vec<Option<u64>> {
        let outcomes = analysis
            .streams
            .iter()
            .flat_map(|stream| &stream.leaves)
            .map(|leaf| &leaf.outcome);
        outcomes
            .map(|outcome| match outcome {
                Outcome::Bound { from_actual, .. } => Some(from_actual.0),
                _ => None,
            })
            .collect()
    };
    for (least, part) in leaves(least).into_iter().zip(leaves(part)) {
        assert!(
            part.is_none_or(|part| least.is_some_and(|least| least <= part)),
            "{least:?} above {part:?}"
        );
    }
    for (least, part) in least.ports.iter().zip(&part.ports) {
        let (least, part) = (least.backlog_bytes, part.backlog_bytes);
        assert!(
            part.is_none_or(|part| least.is_some_and(|least| least <= part)),
            "{least:?} waits, above {part:?}"
        );
    }
}

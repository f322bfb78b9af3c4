//! What the tests share: small networks in which one byte takes one nanosecond, and a simulator of their own.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test binary includes it and uses its own part"
)]

pub mod admission;
pub mod methods;
pub mod random;
pub mod simulator;

use timebound_bounds::{Analysis, LeafResult, Options, Outcome, holistic};
use timebound_model::declaration::{
    ArrivalDecl, Declaration, DirectionDecl, ImpairmentsDecl, LinkDecl, NodeDecl, NodeKindDecl, QueueDecl,
    ReleaseDecl, RoleDecl, StreamDecl,
};
use timebound_model::{Network, Span, compile};

/// One byte per nanosecond.
pub const BYTE_PER_NANO: u64 = 8_000_000_000;

pub fn direction(rate_bps: u64, delay_ns: u64) -> DirectionDecl {
    DirectionDecl {
        rate_bps,
        delay_ns,
        queue: QueueDecl::StrictPriority,
        buffer_bytes: 1 << 40,
        impairments: ImpairmentsDecl::default(),
        trace: None,
        slots: None,
    }
}

/// A network under construction; every link has the same rate and delay unless changed afterwards.
#[derive(Debug, Clone)]
pub struct Builder {
    pub declaration: Declaration,
    pub rate_bps: u64,
    pub delay_ns: u64,
}

impl Builder {
    pub fn new(rate_bps: u64, delay_ns: u64) -> Self {
        let declaration = Declaration {
            nodes: Vec::new(),
            links: Vec::new(),
            streams: Vec::new(),
            best_effort_frame_bytes: 1,
            traces: std::collections::BTreeMap::new(),
        };
        Self {
            declaration,
            rate_bps,
            delay_ns,
        }
    }
    pub fn host(mut self, name: &str) -> Self {
        let node = NodeDecl {
            name: name.into(),
            kind: NodeKindDecl::Host,
            switching_min_ns: 0,
            switching_max_ns: 0,
            replication_min_ns: 0,
            replication_max_ns: 0,
        };
        self.declaration.nodes.push(node);
        self
    }
    pub fn switch(mut self, name: &str, switching_min_ns: u64, switching_max_ns: u64) -> Self {
        let kind = NodeKindDecl::Switch;
        self.declaration.nodes.push(NodeDecl {
            name: name.into(),
            kind,
            switching_min_ns,
            switching_max_ns,
            replication_min_ns: 0,
            replication_max_ns: 0,
        });
        self
    }
    pub fn link(mut self, a: &str, b: &str) -> Self {
        self.declaration.links.push(LinkDecl {
            a: a.into(),
            b: b.into(),
            forward: direction(self.rate_bps, self.delay_ns),
            backward: direction(self.rate_bps, self.delay_ns),
            half_duplex: false,
        });
        self
    }
    /// The last declared link, both directions.
    pub fn change(mut self, change: impl Fn(&mut DirectionDecl)) -> Self {
        let link = self.declaration.links.last_mut().expect("a link");
        change(&mut link.forward);
        change(&mut link.backward);
        self
    }
    /// A stream; `shape` is period, jitter and the frames of a release.
    pub fn stream(mut self, name: &str, class: u8, path: (&str, &[&str]), shape: (u64, u64, &[u32])) -> Self {
        let (period_ns, jitter_ns, frames) = shape;
        let arrival = ArrivalDecl::Periodic {
            period_ns,
            jitter_ns,
            frames_bytes: frames.to_vec(),
        };
        self.declaration
            .streams
            .push(stream_decl(name, class, path, arrival));
        self
    }
    pub fn unbounded(mut self, name: &str, class: u8, path: (&str, &[&str]), max_frame_bytes: u32) -> Self {
        let arrival = ArrivalDecl::Unbounded { max_frame_bytes };
        self.declaration
            .streams
            .push(stream_decl(name, class, path, arrival));
        self
    }
    pub fn route(mut self, route: &[&[&str]]) -> Self {
        let route = route
            .iter()
            .map(|path| path.iter().map(|&n| n.to_owned()).collect())
            .collect();
        self.declaration.streams.last_mut().expect("a stream").route = Some(route);
        self
    }
    pub fn network(&self) -> Network {
        compile(&self.declaration).expect("a valid network")
    }
}

fn stream_decl(name: &str, class: u8, (source, to): (&str, &[&str]), arrival: ArrivalDecl) -> StreamDecl {
    StreamDecl {
        name: name.into(),
        source: source.into(),
        destinations: to.iter().map(|&d| d.into()).collect(),
        class,
        role: RoleDecl::Data,
        arrival,
        release: ReleaseDecl::Silent,
        deadline_ns: None,
        least_frame_bytes: None,
        route: None,
    }
}

/// No best effort is assumed: nothing is there that was not declared.
pub fn alone() -> Options {
    Options {
        assume_best_effort: false,
        ..Options::default()
    }
}

/// The analysis of a network in which everything is declared.
pub fn analyse_alone(builder: &Builder) -> Analysis {
    holistic(&builder.network(), &alone())
}

/// The only leaf of a stream.
pub fn leaf<'a>(analysis: &'a Analysis, stream: &str) -> &'a LeafResult {
    let found = analysis
        .streams
        .iter()
        .find(|s| s.stream == stream)
        .expect("a stream of this name");
    &found.leaves[0]
}

/// The bounds of a leaf: from the nominal and from the actual release, and the best case.
pub fn bound(leaf: &LeafResult) -> Option<(Span, Span, Span)> {
    match &leaf.outcome {
        Outcome::Bound {
            from_nominal,
            from_actual,
            best_case,
            ..
        } => Some((*from_nominal, *from_actual, *best_case)),
        Outcome::NoFiniteBound { .. } | Outcome::Unsupported { .. } => None,
    }
}

/// The bound from the actual release in nanoseconds.
pub fn from_actual(analysis: &Analysis, stream: &str) -> u64 {
    bound(leaf(analysis, stream)).expect("a bound").1.0
}

/// A small generator of its own (Knuth's MMIX constants), so that sweeps are the same everywhere.
#[derive(Debug, Clone)]
pub struct Draws(pub u64);

impl Draws {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 >> 20) * u128::from(limit)) >> 44) as u64
    }
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

//! What the benchmarks share: the networks that they measure, and CPU time.

#![allow(
    unreachable_pub,
    dead_code,
    reason = "every benchmark includes it and uses its own part"
)]

use timebound_model::declaration::{
    ArrivalDecl, Declaration, DirectionDecl, ImpairmentsDecl, LinkDecl, NodeDecl, NodeKindDecl, QueueDecl,
    ReleaseDecl, RoleDecl, StreamDecl,
};
use timebound_model::{Network, compile};

/// Numbers that look random and are the same everywhere.
pub struct Draws(pub u64);

impl Draws {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn direction() -> DirectionDecl {
    DirectionDecl {
        rate_bps: 1_000_000_000,
        delay_ns: 5_000,
        queue: QueueDecl::StrictPriority,
        buffer_bytes: 1 << 20,
        impairments: ImpairmentsDecl::default(),
        trace: None,
        slots: None,
    }
}

fn link(a: String, b: String) -> LinkDecl {
    LinkDecl {
        a,
        b,
        forward: direction(),
        backward: direction(),
        half_duplex: false,
    }
}

/// A tree of switches in which each has up to three children (feed-forward), or with extra links that close cycles.
pub fn network(switches: usize, flows: usize, extra_links: usize) -> Network {
    let mut draws = Draws(7);
    let mut declaration = Declaration {
        nodes: Vec::new(),
        links: Vec::new(),
        streams: Vec::new(),
        best_effort_frame_bytes: 1538,
        traces: std::collections::BTreeMap::new(),
    };
    for index in 0..switches {
        let node = |name: String, kind, most| NodeDecl {
            name,
            kind,
            switching_min_ns: 0,
            switching_max_ns: most,
            replication_min_ns: 0,
            replication_max_ns: 0,
        };
        declaration
            .nodes
            .push(node(format!("s{index}"), NodeKindDecl::Switch, 10_000));
        declaration
            .nodes
            .push(node(format!("h{index}"), NodeKindDecl::Host, 0));
        declaration
            .links
            .push(link(format!("h{index}"), format!("s{index}")));
        if index > 0 {
            declaration
                .links
                .push(link(format!("s{index}"), format!("s{}", (index - 1) / 3)));
        }
    }
    for _ in 0..extra_links {
        let (a, b) = (draws.below(switches), draws.below(switches));
        if a != b {
            declaration.links.push(link(format!("s{a}"), format!("s{b}")));
        }
    }
    // The load stays the same when there are more flows: their periods grow with their number.
    let periods = [5, 10, 20, 50, 100].map(|period| period * flows as u64 * 110);
    for index in 0..flows {
        let from = draws.below(switches);
        let to = (from + 1 + draws.below(switches - 1)) % switches;
        let period_ns = periods[draws.below(periods.len())];
        let size = [84, 146, 512, 1538][draws.below(4)];
        declaration.streams.push(StreamDecl {
            name: format!("f{index}"),
            source: format!("h{from}"),
            destinations: vec![format!("h{to}")],
            class: draws.below(8) as u8,
            role: RoleDecl::Data,
            arrival: ArrivalDecl::Periodic {
                period_ns,
                jitter_ns: period_ns / 20,
                frames_bytes: vec![size],
            },
            release: ReleaseDecl::Silent,
            deadline_ns: None,
            least_frame_bytes: None,
            route: None,
        });
    }
    compile(&declaration).expect("a valid network")
}

/// CPU time of this thread in seconds; the kernel brings it up to date when the thread is scheduled.
pub fn cpu() -> Option<f64> {
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<u64>().ok()? as f64 / 1e9)
}

//! Time of one analysis on a network of 200 switches: median of several runs, compiled network in, analysis out.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::Instant;
use timebound_bounds::{Options, Outcome, holistic};
use timebound_model::declaration::{
    ArrivalDecl, Declaration, DirectionDecl, ImpairmentsDecl, LinkDecl, NodeDecl, NodeKindDecl, QueueDecl,
    ReleaseDecl, RoleDecl, StreamDecl,
};
use timebound_model::{Network, compile};

const SWITCHES: usize = 200;
const RUNS: usize = 9;

/// Numbers that look random and are the same everywhere.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
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
fn network(flows: usize, extra_links: usize) -> Network {
    let mut draws = Draws(7);
    let mut declaration = Declaration {
        nodes: Vec::new(),
        links: Vec::new(),
        streams: Vec::new(),
        best_effort_frame_bytes: 1538,
        traces: std::collections::BTreeMap::new(),
    };
    for index in 0..SWITCHES {
        let node = |name: String, kind, most| NodeDecl {
            name,
            kind,
            switching_min_ns: 0,
            switching_max_ns: most,
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
        let (a, b) = (draws.below(SWITCHES), draws.below(SWITCHES));
        if a != b {
            declaration.links.push(link(format!("s{a}"), format!("s{b}")));
        }
    }
    // The load stays the same when there are more flows: their periods grow with their number.
    let periods = [5, 10, 20, 50, 100].map(|period| period * flows as u64 * 110);
    for index in 0..flows {
        let from = draws.below(SWITCHES);
        let to = (from + 1 + draws.below(SWITCHES - 1)) % SWITCHES;
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
            route: None,
        });
    }
    compile(&declaration).expect("a valid network")
}

fn measure(title: &str, network: &Network) {
    let mut times = Vec::new();
    let mut analysis = holistic(network, &Options::default());
    for _ in 0..RUNS {
        let start = Instant::now();
        analysis = holistic(network, &Options::default());
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let hops: usize = network.streams.iter().map(|stream| stream.tree.hops.len()).sum();
    let leaves = analysis.streams.iter().flat_map(|stream| &stream.leaves);
    let bounded = leaves
        .filter(|leaf| matches!(leaf.outcome, Outcome::Bound { .. }))
        .count();
    let load = analysis
        .ports
        .iter()
        .map(|port| port.utilisation.value)
        .fold(0.0, f64::max);
    println!(
        "holistic, {SWITCHES} switches, {title}: {} flows, {hops} hops, highest load {load:.2}, {bounded} bounds: median {:.1} ms, best {:.1} ms of {RUNS} runs",
        network.streams.len(),
        times[RUNS / 2],
        times[0]
    );
}

fn main() {
    for flows in [1_000, 10_000] {
        measure("tree", &network(flows, 0));
        measure("mesh with cyclic dependencies", &network(flows, 150));
    }
}

//! Time and memory of one analysis, compiled network in, analysis with every flow, hop, port and class out.
//!
//! Per method: CPU time of the thread per run (mean over the runs; what others do on the machine is not ours), the median wall time
//! on one and on two threads, and the most memory that was in use above what was there before, per flow-hop.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(unsafe_code, reason = "an allocator that counts is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use timebound_bounds::{Analysis, Method, Options, Outcome, analyse};
use timebound_model::declaration::{
    ArrivalDecl, Declaration, DirectionDecl, ImpairmentsDecl, LinkDecl, NodeDecl, NodeKindDecl, QueueDecl,
    ReleaseDecl, RoleDecl, StreamDecl,
};
use timebound_model::{Network, compile};

/// Counts what is in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes on to the system's allocator as it came; the counters are not part of the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
fn network(switches: usize, flows: usize, extra_links: usize) -> Network {
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
            route: None,
        });
    }
    compile(&declaration).expect("a valid network")
}

/// CPU time of this thread in seconds; the kernel brings it up to date when the thread is scheduled.
fn cpu() -> Option<f64> {
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<u64>().ok()? as f64 / 1e9)
}

/// Median wall time of some runs and the last result; what a result takes to be thrown away does not count.
fn times(network: &Network, options: &Options, runs: usize) -> (f64, Option<Analysis>) {
    let (mut times, mut last) = (Vec::new(), None);
    for _ in 0..runs {
        drop(last.take());
        let start = Instant::now();
        last = Some(analyse(network, options));
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    (times[runs / 2], last)
}

fn measure(title: &str, switches: usize, network: &Network, runs: usize) {
    let hops: usize = network.streams.iter().map(|stream| stream.tree.hops.len()).sum();
    for method in [Method::Holistic, Method::Calculus, Method::Bound] {
        let options = Options {
            method,
            ..Options::default()
        };
        let before = IN_USE.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let start = cpu();
        let (one, analysis) = times(network, &options, runs);
        let used = cpu()
            .zip(start)
            .map_or(f64::NAN, |(end, start)| (end - start) * 1e3 / runs as f64);
        let memory = (MOST.load(Ordering::Relaxed) - before) / hops;
        let analysis = analysis.expect("at least one run");
        let (two, _) = times(
            network,
            &Options {
                threads: 2,
                ..options
            },
            runs,
        );
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
            "{method:?}, {switches} switches, {title}: {} flows, {hops} hops, highest load {load:.2}, {bounded} bounds: \
             {used:.1} ms CPU per run; wall, median of {runs}: {one:.1} ms on one thread, {two:.1} ms on two ({:.2}x); {memory} bytes per hop",
            network.streams.len(),
            one / two
        );
    }
}

fn main() {
    for flows in [1_000, 10_000] {
        measure("tree", 200, &network(200, flows, 0), 11);
        measure(
            "mesh with cyclic dependencies",
            200,
            &network(200, flows, 150),
            11,
        );
    }
    measure("tree", 1_000, &network(1_000, 100_000, 0), 3);
    measure(
        "mesh with cyclic dependencies",
        1_000,
        &network(1_000, 100_000, 750),
        3,
    );
}

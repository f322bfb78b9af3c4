//! Time and memory of one analysis, compiled network in, analysis with every flow, hop, port and class out.
//!
//! Per method: CPU time of the thread per run (mean over the runs; what others do on the machine is not ours), the median wall time
//! on one and on two threads, and the most memory that was in use above what was there before, per flow-hop.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(unsafe_code, reason = "an allocator that counts is an unsafe trait")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use support::{cpu, network};
use timebound_bounds::{Analysis, Method, Options, Outcome, analyse};
use timebound_model::Network;

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
    for method in [
        Method::Holistic,
        Method::Calculus,
        Method::PortByPort,
        Method::Bound,
    ] {
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

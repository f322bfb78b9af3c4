//! Does every simulated latency stay at or under its bound, and every queue under its own?

use crate::generate::network;
use crate::witness;
use std::sync::Arc;
use timebound_bounds::{Analysis, Method, Options as BoundOptions, Outcome, analyse};
use timebound_model::{Network, Span};
use timebound_sim::{Options, SearchOptions, search, simulate};

/// Every method whose bounds are called safe.
pub const METHODS: [Method; 4] = [
    Method::Holistic,
    Method::Calculus,
    Method::PortByPort,
    Method::Bound,
];
/// Longest time that is simulated plainly, and most releases in it.
const LONGEST: u64 = 2_000_000_000;
const MOST_RELEASES: u64 = 4_000;

/// What one network showed.
#[derive(Debug, Default, Clone)]
pub struct Held {
    /// Receivers with a bound (by the method that is printed).
    pub bounded: u64,
    /// Receivers without one.
    pub unbounded: u64,
    /// Evaluations of the search.
    pub evaluations: u64,
    /// Bound / worst found of each receiver with both, by the method that is printed.
    pub tightness: Vec<f64>,
    /// What broke: a text for each receiver or queue, and method.
    pub broken: Vec<String>,
}

impl Held {
    pub fn add(&mut self, other: Self) {
        self.bounded += other.bounded;
        self.unbounded += other.unbounded;
        self.evaluations += other.evaluations;
        self.tightness.extend(other.tightness);
        self.broken.extend(other.broken);
    }
}

/// The worst that was seen: from the actual and from the nominal release, per stream and receiver.
type Worst = Vec<Vec<(u64, u64)>>;

/// No release that was simulated came whole sooner than its best case says.
fn soonest(held: &mut Held, network: u64, analysis: &Analysis, plain: &timebound_sim::Outcome) {
    for stream in &plain.streams {
        let result = &analysis.streams[stream.stream.index()];
        for (leaf, seen) in result.leaves.iter().zip(&stream.leaves) {
            if let (Outcome::Bound { best_whole, .. }, Some(latency)) = (&leaf.outcome, &seen.latency)
                && latency.min < *best_whole
            {
                held.broken.push(format!(
                    "network {network}, {} at {}: simulated {} ns, sooner than {} ns",
                    result.stream, leaf.receiver, latency.min.0, best_whole.0
                ));
            }
        }
    }
}

/// [`hold`] for network `index` of the random ones.
#[must_use]
pub fn check(seed: u64, index: u64, evaluations: u64) -> Held {
    hold(&Arc::new(network(seed, index)), index, evaluations)
}

/// Bounds by every safe method, one plain simulation and a search with so many evaluations for each receiver.
#[must_use]
pub fn hold(network: &Arc<Network>, seed: u64, evaluations: u64) -> Held {
    hold_with(network, seed, evaluations, true)
}

/// The same with or without undeclared best effort on every port.
#[must_use]
pub fn hold_with(network: &Arc<Network>, seed: u64, evaluations: u64, best_effort: bool) -> Held {
    let analyses = METHODS.map(|method| {
        analyse(
            network,
            &BoundOptions {
                method,
                assume_best_effort: best_effort,
                ..BoundOptions::default()
            },
        )
    });
    let plain = simulate(
        network,
        &Options {
            duration: duration(network),
            seed,
            ..Options::default()
        },
    );
    let leaves: usize = network
        .streams
        .iter()
        .map(|stream| stream.tree.leaves.len())
        .sum();
    let found = search(
        network,
        &SearchOptions {
            evaluations: evaluations * leaves as u64,
            seed,
            witness: witness::of(&analyses[3]),
            best_effort,
            ..SearchOptions::default()
        },
    );
    let mut worst: Worst = network
        .streams
        .iter()
        .map(|s| vec![(0, 0); s.tree.leaves.len()])
        .collect();
    for stream in &plain.streams {
        for (leaf, outcome) in stream.leaves.iter().enumerate() {
            if let Some(latency) = &outcome.latency {
                worst[stream.stream.index()][leaf] = (latency.max.0, latency.max_from_nominal.0);
            }
        }
    }
    for entry in &found.worst {
        let place = &mut worst[entry.stream.index()][entry.leaf as usize];
        place.0 = place.0.max(entry.latency.unwrap_or_default().0);
        place.1 = place.1.max(entry.from_nominal.unwrap_or_default().0);
    }
    let mut held = Held {
        evaluations: found.evaluations,
        ..Held::default()
    };
    soonest(&mut held, seed, &analyses[3], &plain);
    for (method, analysis) in METHODS.iter().zip(&analyses) {
        latencies(&mut held, (*method, seed), analysis, &worst);
        for (bound, simulated) in analysis.ports.iter().zip(&plain.ports) {
            queues(&mut held, (*method, seed), bound, simulated);
        }
    }
    held
}

/// Some periods of the slowest stream, unless that were too many releases of the others.
fn duration(network: &Network) -> Span {
    let periods = || network.streams.iter().map(period).filter(|period| *period > 0);
    let wanted = periods().max().unwrap_or(0).saturating_mul(8).min(LONGEST);
    let releases: u64 = periods().map(|period| wanted / period + 1).sum();
    Span(wanted.saturating_mul(MOST_RELEASES) / releases.max(MOST_RELEASES))
}

fn period(stream: &timebound_model::Stream) -> u64 {
    match &stream.arrival {
        timebound_model::Arrival::Periodic { period, .. } => period.0,
        // Its burst comes again after twice this time.
        timebound_model::Arrival::TokenBucket {
            rate, burst_bytes, ..
        } => burst_bytes.saturating_mul(8_000_000_000) / rate.0,
        timebound_model::Arrival::Unbounded { .. } => 0,
    }
}

fn latencies(held: &mut Held, (method, network): (Method, u64), analysis: &Analysis, worst: &Worst) {
    let printed = method == Method::Bound;
    for (result, worst) in analysis.streams.iter().zip(worst) {
        for (leaf, &(actual, nominal)) in result.leaves.iter().zip(worst) {
            let Outcome::Bound {
                from_nominal,
                from_actual,
                ..
            } = &leaf.outcome
            else {
                held.unbounded += u64::from(printed);
                continue;
            };
            held.bounded += u64::from(printed);
            if actual > 0 && printed {
                held.tightness.push(from_actual.0 as f64 / actual as f64);
            }
            if actual > from_actual.0 || nominal > from_nominal.0 {
                held.broken.push(format!(
                    "network {network}, {} at {}: simulated {actual} ns (from nominal {nominal} ns) above the bound {} ns ({} ns) by {method:?}",
                    result.stream, leaf.receiver, from_actual.0, from_nominal.0
                ));
            }
        }
    }
}

fn queues(
    held: &mut Held,
    (method, network): (Method, u64),
    bound: &timebound_bounds::PortResult,
    simulated: &timebound_sim::PortOutcome,
) {
    let total = (
        simulated.largest_queue_bytes,
        bound.backlog_bytes,
        "all queues".to_owned(),
    );
    let classes = bound.classes.iter().map(|class| {
        let index = usize::from(class.class.0.min(7));
        (
            simulated.largest_class_queue_bytes[index],
            class.backlog_bytes,
            format!("queue {index}"),
        )
    });
    for (seen, limit, what) in classes.chain([total]) {
        if limit.is_some_and(|limit| seen > limit) {
            held.broken.push(format!(
                "network {network}, port {}, {what}: {seen} bytes above the bound {limit:?} by {method:?}",
                bound.name
            ));
        }
    }
}

//! Does every simulated latency stay at or under its bound?

use crate::generate::{Limits, network};
use std::sync::Arc;
use timebound_bounds::{Options as BoundOptions, Outcome, holistic};
use timebound_model::{Network, Span, compile};
use timebound_sim::{Options, SearchOptions, search, simulate};

/// What one network showed.
#[derive(Debug, Default, Clone)]
pub struct Held {
    /// Receivers with a bound.
    pub bounded: u64,
    /// Receivers without one.
    pub unbounded: u64,
    /// bound / worst found, for each receiver with both.
    pub tightness: Vec<f64>,
    /// What broke: a text for each receiver or port.
    pub broken: Vec<String>,
}

/// Bounds, one plain simulation and a short search of network `index` of a corpus.
///
/// # Panics
/// If the generator makes a network that does not compile.
#[must_use]
pub fn check(seed: u64, index: u64, limits: &Limits, evaluations: u64) -> Held {
    let network = Arc::new(compile(&network(seed, index, limits)).expect("generated networks compile"));
    let analysis = holistic(&network, &BoundOptions::default());
    let slowest = network.streams.iter().map(period).max().unwrap_or_default();
    let duration = Span(slowest.saturating_mul(8).min(2_000_000_000));
    let plain = simulate(
        &network,
        &Options {
            duration,
            seed: index,
            ..Options::default()
        },
    );
    let found = search(
        &network,
        &SearchOptions {
            evaluations,
            seed: index,
            threads: 1,
            ..SearchOptions::default()
        },
    );
    let mut held = Held::default();
    let mut worst: Vec<Vec<(u64, u64)>> = network
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
    for (stream, result) in analysis.streams.iter().enumerate() {
        for (leaf, outcome) in result.leaves.iter().enumerate() {
            compare(
                &mut held,
                index,
                &result.stream,
                &outcome.receiver,
                &outcome.outcome,
                worst[stream][leaf],
            );
        }
    }
    for (bound, simulated) in analysis.ports.iter().zip(&plain.ports) {
        if bound
            .backlog_bytes
            .is_some_and(|backlog| simulated.largest_queue_bytes > backlog)
        {
            held.broken.push(format!(
                "network {index}, port {}: queue of {} bytes above the bound {:?}",
                bound.name, simulated.largest_queue_bytes, bound.backlog_bytes
            ));
        }
    }
    held
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

fn compare(held: &mut Held, index: u64, stream: &str, receiver: &str, outcome: &Outcome, worst: (u64, u64)) {
    let Outcome::Bound {
        from_nominal,
        from_actual,
        ..
    } = outcome
    else {
        held.unbounded += 1;
        return;
    };
    held.bounded += 1;
    if worst.0 > 0 {
        held.tightness.push(from_actual.0 as f64 / worst.0 as f64);
    }
    if worst.0 > from_actual.0 || worst.1 > from_nominal.0 {
        held.broken.push(format!(
            "network {index}, {stream} at {receiver}: simulated {} ns (from nominal {} ns) above the bound {} ns ({} ns)",
            worst.0, worst.1, from_actual.0, from_nominal.0
        ));
    }
}

/// A network of the corpus by itself, to look into.
///
/// # Panics
/// As [`check`].
#[must_use]
pub fn compiled(seed: u64, index: u64, limits: &Limits) -> Network {
    compile(&network(seed, index, limits)).expect("generated networks compile")
}

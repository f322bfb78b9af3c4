//! `tightness [NETWORKS] [EVALUATIONS] [SEED]`: bound / worst found on the corpus of `corpus.rs`, with EVALUATIONS for each receiver.
//!
//! Everything is declared, or undeclared best effort is assumed on every port by the bounds and injected there by the search.
//! The worst receivers are listed with the part of the gap that each port of their path has.

use std::time::Instant;
use timebound_benches::corpus::{Service, network};
use timebound_benches::spread::Spread;
use timebound_benches::witness;
use timebound_bounds::{Analysis, Method, Options, Outcome, analyse};
use timebound_model::Network;
use timebound_sim::{SearchOptions, search};

const METHODS: [(&str, Method); 4] = [
    ("holistic", Method::Holistic),
    ("calculus", Method::Calculus),
    ("port by port", Method::PortByPort),
    ("bound", Method::Bound),
];
/// Receivers that are listed one by one.
const LISTED: usize = 5;

/// One receiver: bounds by the methods, the worst found, and a name.
struct Receiver {
    bounds: [u64; 4],
    found: u64,
    name: String,
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| {
        a.parse::<u64>()
            .expect("NETWORKS, EVALUATIONS and SEED are numbers")
    });
    let networks = arguments.next().unwrap_or(30);
    let evaluations = arguments.next().unwrap_or(400);
    let seed = arguments.next().unwrap_or(1);
    let mut broken = false;
    for service in [Service::Fifo, Service::ThreeClasses] {
        for best_effort in [false, true] {
            let started = Instant::now();
            let (receivers, made) = measure(networks, evaluations, seed, (service, best_effort));
            let seconds = started.elapsed().as_secs_f64();
            println!(
                "{service:?}, {}: {} receivers, {:.0} evaluations/s",
                if best_effort {
                    "undeclared best effort on every port"
                } else {
                    "everything declared"
                },
                receivers.len(),
                made as f64 / seconds
            );
            broken |= print(receivers);
        }
    }
    std::process::exit(i32::from(broken));
}

fn measure(
    networks: u64,
    evaluations: u64,
    seed: u64,
    (service, best_effort): (Service, bool),
) -> (Vec<Receiver>, u64) {
    let (mut receivers, mut made) = (Vec::new(), 0);
    for index in 0..networks {
        let network = std::sync::Arc::new(network(seed, index, service));
        let analyses = METHODS.map(|(_, method)| {
            analyse(
                &network,
                &Options {
                    method,
                    assume_best_effort: best_effort,
                    ..Options::default()
                },
            )
        });
        let leaves: usize = network
            .streams
            .iter()
            .map(|stream| stream.tree.leaves.len())
            .sum();
        let found = search(
            &network,
            &SearchOptions {
                evaluations: evaluations * leaves as u64,
                seed: index,
                threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
                best_effort,
                witness: witness::of(&analyses[3]),
                ..SearchOptions::default()
            },
        );
        made += found.evaluations;
        for worst in &found.worst {
            let place = (worst.stream.index(), worst.leaf as usize);
            let bounds = analyses.each_ref().map(|analysis| bound(analysis, place));
            if let ([Some(a), Some(b), Some(c), Some(d)], Some(latency)) = (bounds, worst.latency) {
                let name = format!("network {index}, {}", name(&network, &analyses[3], place));
                receivers.push(Receiver {
                    bounds: [a, b, c, d],
                    found: latency.0,
                    name,
                });
            }
        }
    }
    (receivers, made)
}

fn bound(analysis: &Analysis, (stream, leaf): (usize, usize)) -> Option<u64> {
    match &analysis.streams[stream].leaves[leaf].outcome {
        Outcome::Bound { from_actual, .. } => Some(from_actual.0),
        Outcome::NoFiniteBound { .. } | Outcome::Unsupported { .. } => None,
    }
}

fn name(network: &Network, analysis: &Analysis, (stream, leaf): (usize, usize)) -> String {
    let result = &analysis.streams[stream];
    let ports = match &result.leaves[leaf].outcome {
        Outcome::Bound { hops, .. } => hops
            .iter()
            .map(|hop| {
                format!(
                    "{} {} (t {}, J {})",
                    hop.name, hop.response, hop.window, hop.jitter_in
                )
            })
            .collect(),
        Outcome::NoFiniteBound { .. } | Outcome::Unsupported { .. } => Vec::new(),
    };
    format!(
        "{} of class {}: {}",
        result.stream,
        network.streams[stream].class.0,
        ports.join(", ")
    )
}

/// True if a bound is broken.
fn print(mut receivers: Vec<Receiver>) -> bool {
    let ratio = |receiver: &Receiver, method: usize| receiver.bounds[method] as f64 / receiver.found as f64;
    let mut broken = false;
    for (method, (name, _)) in METHODS.iter().enumerate() {
        let spread = Spread::new(receivers.iter().map(|receiver| ratio(receiver, method)).collect());
        println!("  {name:12} bound / worst found: {spread}");
        for receiver in receivers
            .iter()
            .filter(|receiver| receiver.bounds[method] < receiver.found)
        {
            println!(
                "  BROKEN {name}: {} ns found, {} ns bound: {}",
                receiver.found, receiver.bounds[method], receiver.name
            );
            broken = true;
        }
    }
    receivers.sort_by(|a, b| ratio(b, 3).total_cmp(&ratio(a, 3)));
    for receiver in receivers.iter().take(LISTED) {
        println!(
            "  {:.3}: {} ns found; {}",
            ratio(receiver, 3),
            receiver.found,
            receiver.name
        );
    }
    broken
}

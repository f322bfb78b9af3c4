//! What tests of admission share: streams to draw from, and a full analysis to judge by.

use super::{Builder, Draws};
use timebound_bounds::{
    Admission, AdmissionOptions, Analysis, Method, Options, Outcome, PortResult, StreamResult, analyse,
};
use timebound_model::declaration::{ArrivalDecl, Declaration, StreamDecl};
use timebound_model::{Network, compile};

/// Switches of the trees: each has up to three below it and one host.
pub const SWITCHES: usize = 13;
/// Their streams.
pub const FLOWS: usize = 150;

/// The streams of a tree, between any two hosts.
pub fn add_flows(mut builder: Builder, draws: &mut Draws) -> Builder {
    for index in 0..FLOWS {
        let from = draws.below(SWITCHES as u64) as usize;
        let to = (from + 1 + draws.below(SWITCHES as u64 - 1) as usize) % SWITCHES;
        let period = [30_000, 60_000, 150_000][draws.below(3) as usize];
        let size = [84, 146, 512, 1_538][draws.below(4) as usize];
        builder = builder.stream(
            &format!("f{index}"),
            draws.below(8) as u8,
            (&format!("h{from}"), &[&format!("h{to}")]),
            (period, period / 20, &[size]),
        );
    }
    builder
}

pub fn full(declaration: &Declaration) -> (Network, Analysis) {
    let network = compile(declaration).expect("a valid network");
    let options = Options {
        method: Method::PortByPort,
        ..Options::default()
    };
    let analysis = analyse(&network, &options);
    (network, analysis)
}

pub fn buffers() -> AdmissionOptions {
    AdmissionOptions {
        check_buffers: true,
        ..AdmissionOptions::default()
    }
}

/// The same numbers; why there are none may be worded in another way.
pub fn same(ours: &StreamResult, theirs: &StreamResult) -> bool {
    ours.stream == theirs.stream
        && ours.leaves.len() == theirs.leaves.len()
        && ours.leaves.iter().zip(&theirs.leaves).all(|(a, b)| {
            let outcomes = match (&a.outcome, &b.outcome) {
                (Outcome::Bound { .. }, _) | (_, Outcome::Bound { .. }) => a.outcome == b.outcome,
                (Outcome::Unsupported { .. }, other) => matches!(other, Outcome::Unsupported { .. }),
                (Outcome::NoFiniteBound { .. }, other) => matches!(other, Outcome::NoFiniteBound { .. }),
            };
            (a.node, &a.receiver) == (b.node, &b.receiver) && outcomes
        })
}

/// Compares all streams and ports with a fresh analysis.
pub fn check(admission: &mut Admission, declaration: &Declaration, step: &str) {
    let (network, analysis) = full(declaration);
    assert_eq!(admission.len(), network.streams.len(), "{step}");
    for theirs in &analysis.streams {
        let id = admission.find(&theirs.stream).expect("the stream is there");
        let ours = admission.result(id).expect("a result");
        assert!(
            same(&ours, theirs),
            "{step}: {ours:#?} and not {theirs:#?} in {declaration:?}"
        );
    }
    for port in &analysis.ports {
        assert_eq!(admission.utilisation(port.port), port.utilisation, "{step}");
    }
}

/// What is broken in a network, by the full analysis.
pub fn is_broken(network: &Network, analysis: &Analysis, with_buffers: bool) -> bool {
    let missed = network.streams.iter().zip(&analysis.streams).any(|(stream, result)| {
        stream.deadline.is_some_and(|deadline| {
            !result.leaves.iter().all(
                |leaf| matches!(leaf.outcome, Outcome::Bound { from_nominal, .. } if from_nominal <= deadline),
            )
        })
    });
    let overloaded = |port: &PortResult| port.utilisation.numerator >= port.utilisation.denominator;
    let full = |port: &PortResult| {
        port.classes
            .iter()
            .any(|class| class.exceeds_buffer || (with_buffers && class.backlog_bytes.is_none()))
    };
    missed
        || analysis
            .ports
            .iter()
            .any(|port| overloaded(port) || (with_buffers && full(port)))
}

/// Streams to draw from: those of the builder, some with deadlines, token buckets or no declared arrival.
pub fn pool(draws: &mut Draws, declaration: &mut Declaration, floods: bool) -> Vec<StreamDecl> {
    let mut pool = std::mem::take(&mut declaration.streams);
    for (index, stream) in pool.iter_mut().enumerate() {
        if draws.chance(20) {
            let least = draws.within(1, 15) as u32;
            let most = least + draws.below(8) as u32;
            stream.arrival = ArrivalDecl::TokenBucket {
                rate_bps: draws.within(1, 40) * 10_000_000,
                burst_bytes: u64::from(most) + draws.below(40),
                min_frame_bytes: least,
                max_frame_bytes: most,
            };
        } else if floods && draws.chance(6) {
            stream.arrival = ArrivalDecl::Unbounded { max_frame_bytes: 9 };
        } else if index % 3 == 0 {
            stream.least_frame_bytes = Some(1);
        }
        if draws.chance(30) {
            stream.deadline_ns = Some(draws.within(20, 900));
        }
    }
    pool
}

/// Another shape for a stream that is there.
pub fn altered(stream: &StreamDecl, draws: &mut Draws) -> StreamDecl {
    let mut altered = stream.clone();
    match draws.below(4) {
        0 => altered.class = draws.below(4) as u8,
        1 => altered.deadline_ns = draws.chance(50).then(|| draws.within(20, 900)),
        _ => {
            if let ArrivalDecl::Periodic {
                period_ns,
                jitter_ns,
                frames_bytes,
            } = &mut altered.arrival
            {
                *period_ns = draws.within(20, 300);
                *jitter_ns = draws.below(2 * *period_ns);
                frames_bytes[0] = draws.within(1, 15) as u32;
            }
        }
    }
    altered
}

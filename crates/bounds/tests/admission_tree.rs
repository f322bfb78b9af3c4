//! Admission in a loaded tree, where busy periods are long and most levels keep their responses while releases move.

mod support;

use support::admission::{FLOWS, SWITCHES, add_flows};
use support::{BYTE_PER_NANO, Builder, Draws};
use timebound_bounds::{Admission, AdmissionOptions, Method, Options, Outcome, StreamResult, analyse};
use timebound_model::declaration::StreamDecl;
use timebound_model::{compile, compile_stream};

/// Every switch has up to three below it and one host.
fn tree(draws: &mut Draws) -> Builder {
    let mut builder = Builder::new(BYTE_PER_NANO, 500);
    for index in 0..SWITCHES {
        let (switch, host) = (format!("s{index}"), format!("h{index}"));
        builder = builder.switch(&switch, 0, 1_000).host(&host).link(&host, &switch);
        if index > 0 {
            builder = builder.link(&switch, &format!("s{}", (index - 1) / 3));
        }
    }
    add_flows(builder, draws)
}

/// Response and window of every hop, and the bounds.
fn same(ours: &StreamResult, theirs: &StreamResult) -> bool {
    let pairs = ours.leaves.iter().zip(&theirs.leaves);
    ours.leaves.len() == theirs.leaves.len()
        && pairs.into_iter().all(|(a, b)| match (&a.outcome, &b.outcome) {
            (Outcome::Bound { .. }, _) | (_, Outcome::Bound { .. }) => a.outcome == b.outcome,
            _ => true,
        })
}

#[test]
fn what_leeway_spares_is_what_an_analysis_would_find_again() {
    let (mut joined, mut spared) = (0, 0);
    for seed in 0..4 {
        let mut draws = Draws(seed);
        let mut declaration = tree(&mut draws).declaration;
        let mut waiting: Vec<StreamDecl> = declaration.streams.split_off(FLOWS * 4 / 5);
        let mut admission = Admission::new(
            &compile(&declaration).expect("a valid network"),
            AdmissionOptions::default(),
        );
        for step in 0..40 {
            let leaves = waiting.is_empty() || draws.chance(50);
            let from = if leaves {
                &mut declaration.streams
            } else {
                &mut waiting
            };
            let stream = from.swap_remove(draws.below(from.len() as u64) as usize);
            if leaves {
                let id = admission.find(&stream.name).expect("it is there");
                admission.remove(id).expect("it leaves");
                waiting.push(stream);
            } else {
                let compiled = compile_stream(admission.network(), &stream).expect("a valid stream");
                if admission.add(compiled).expect("no misuse").is_ok() {
                    declaration.streams.push(stream);
                    joined += 1;
                } else {
                    waiting.push(stream);
                }
            }
            let options = Options {
                method: Method::PortByPort,
                ..Options::default()
            };
            let analysis = analyse(&compile(&declaration).expect("a valid network"), &options);
            for theirs in &analysis.streams {
                let id = admission.find(&theirs.stream).expect("it is there");
                let ours = admission.result(id).expect("a result");
                assert!(
                    same(&ours, theirs),
                    "seed {seed}, step {step}: {ours:?} and not {theirs:?}"
                );
            }
            spared += admission.spared();
        }
    }
    assert!(joined > 20 && spared > 200, "{joined} joined, {spared} spared");
}

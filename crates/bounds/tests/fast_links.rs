//! Links whose frames take no whole nanoseconds: what one leaves of a nanosecond the next one takes over.

mod support;

use support::admission::{check, pool};
use support::random::{Findings, builder, compare};
use support::{Builder, Draws, alone, bound, leaf};
use timebound_bounds::{Admission, AdmissionOptions, Exact, Explainer, Method, Options, Outcome, analyse};
use timebound_model::declaration::ArrivalDecl;
use timebound_model::{StreamId, compile, compile_stream};

/// 90 bytes every 16 ns from each of two hosts: 90 % of 100 Gbit/s.
#[test]
fn two_sources_that_use_nine_tenths_of_a_fast_link_have_bounds() {
    let network = Builder::new(100_000_000_000, 0)
        .host("a")
        .host("b")
        .host("c")
        .switch("s", 0, 0)
        .link("a", "s")
        .link("b", "s")
        .link("s", "c")
        .stream("a", 0, ("a", &["c"]), (16, 0, &[90]))
        .stream("b", 0, ("b", &["c"]), (16, 0, &[90]))
        .network();
    for method in [
        Method::Bound,
        Method::PortByPort,
        Method::Calculus,
        Method::Holistic,
    ] {
        let analysis = analyse(&network, &Options { method, ..alone() });
        let load = analysis.ports[4].utilisation;
        assert_eq!((load.numerator, load.denominator), (9, 10));
        // To the switch 7.2 ns, which may vary by 3 there (a nanosecond at the source, one behind and one before a port). Of frames that
        // come 13 ns into a busy period, four are over at 28.8: 9.2 + 15.8 are 25. Two hops of 7.2 ns, each up to one less, are more than 12.4.
        let (nominal, actual, best) = bound(leaf(&analysis, "a")).expect("a bound");
        assert_eq!((nominal.0, actual.0, best.0), (25, 25, 13), "{method:?}");
    }
}

/// Seven frames of 7.2 ns are over after 50.4 ns, not after 56.
#[test]
fn a_burst_is_rounded_once() {
    let network = Builder::new(100_000_000_000, 0)
        .host("a")
        .host("b")
        .link("a", "b")
        .stream("burst", 0, ("a", &["b"]), (1_000, 0, &[90; 7]))
        .network();
    let analysis = analyse(&network, &alone());
    assert_eq!(bound(leaf(&analysis, "burst")).expect("a bound").0.0, 51);
    // The last one may count as there a nanosecond before its event: later than 49.4.
    let Outcome::Bound { best_whole, .. } = leaf(&analysis, "burst").outcome else {
        panic!("a bound");
    };
    assert_eq!(best_whole.0, 50);
}

/// Whole and fractional rates side by side, frames of about 64 to 1,538 bytes.
fn fast(draws: &mut Draws) -> Builder {
    const RATES: [u64; 8] = [
        10_000_000_000,
        25_000_000_000,
        40_000_000_000,
        100_000_000_000,
        400_000_000_000,
        8_000_000_000,
        8_333_333_333,
        33_333_333_333,
    ];
    let mut builder = builder(draws);
    let rate = RATES[draws.below(8) as usize];
    let longer = (rate / 8_000_000_000).max(1) as u32;
    for link in &mut builder.declaration.links {
        let own = if draws.chance(70) {
            rate
        } else {
            RATES[draws.below(8) as usize].max(rate)
        };
        (link.forward.rate_bps, link.backward.rate_bps) = (own, own);
    }
    for stream in &mut builder.declaration.streams {
        if let ArrivalDecl::Periodic { frames_bytes, .. } = &mut stream.arrival {
            frames_bytes
                .iter_mut()
                .for_each(|bytes| *bytes = *bytes * longer + draws.below(u64::from(longer)) as u32);
        }
    }
    builder.declaration.best_effort_frame_bytes = 1 + draws.below(40 * u64::from(longer)) as u32;
    builder
}

#[test]
fn no_run_over_fast_links_exceeds_a_bound() {
    let mut draws = Draws(400);
    let mut findings = Findings::default();
    while findings.networks < 1_000 {
        let builder = fast(&mut draws);
        compare(&builder, &mut draws, 8, &mut findings);
    }
}

/// Parts of bounds are in whole nanoseconds and add up all the same.
#[test]
fn explanations_of_fast_links_add_up() {
    let (mut draws, mut explained) = (Draws(10), 0);
    while explained < 500 {
        let network = fast(&mut draws).network();
        let exact = Exact::of(&network);
        let explainer = Explainer::new(&exact, &Options::default());
        for stream in 0..network.streams.len() {
            let Ok(found) = explainer.explain(StreamId::new(stream), 0) else {
                continue;
            };
            explained += 1;
            let mut all = 0i128;
            for hop in &found.hops {
                assert_eq!(hop.parts.total(), i128::from(hop.response.0));
                assert_eq!(
                    hop.traversal.0,
                    hop.propagation.0 + hop.link_jitter.0 + hop.switching.0
                );
                all += hop.parts.total() - i128::from(hop.counted_before.0) + i128::from(hop.traversal.0);
            }
            assert_eq!(all, i128::from(found.from_actual.0));
        }
    }
}

/// Streams that join over fast links have the numbers of a full analysis, and are kept as they were declared.
#[test]
fn admission_over_fast_links_says_what_the_analysis_says() {
    let (mut draws, mut admitted) = (Draws(7), 0);
    for _ in 0..150 {
        let mut declaration = fast(&mut draws).declaration;
        let streams = pool(&mut draws, &mut declaration, false);
        let network = compile(&declaration).expect("a valid network");
        let mut admission = Admission::new(&network, AdmissionOptions::default());
        for stream in streams {
            let compiled = compile_stream(admission.network(), &stream).expect("a valid stream");
            let Ok(Ok(joined)) = admission.decide(compiled.clone()) else {
                continue;
            };
            admitted += 1;
            let kept = admission.stream(joined.id).expect("it joined");
            assert_eq!(
                (&kept.arrival, kept.deadline),
                (&compiled.arrival, compiled.deadline)
            );
            declaration.streams.push(stream);
            check(&mut admission, &declaration, "after it joined");
        }
    }
    assert!(admitted > 150, "{admitted}");
}

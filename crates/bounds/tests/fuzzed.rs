//! A slice of the fuzz target `bounds`: whatever the bytes say, every method answers in time, without overflow or panic, and the
//! answers agree with each other.

#[path = "support/decode.rs"]
mod decode;
mod support;

use decode::{Bytes, declaration, distort, examine, network};
use support::{Builder, Draws};
use timebound_bounds::{Method, Options, Outcome, analyse};

/// So many bytes that look random.
fn noise(draws: &mut Draws, length: u64) -> Vec<u8> {
    (0..length).map(|_| draws.below(256) as u8).collect()
}

#[test]
fn whatever_compiles_is_analysed_and_explained() {
    let mut draws = Draws(4_711);
    let (mut networks, mut bounds) = (0, 0);
    for _ in 0..600 {
        let noise = noise(&mut draws, 1_500);
        let mut bytes = Bytes(&noise);
        if let Some(network) = network(declaration(&mut bytes)) {
            networks += 1;
            bounds += examine(&network, &mut bytes);
        }
    }
    assert!(
        networks > 100 && bounds > 300,
        "{networks} networks, {bounds} bounds: the cases are too wild"
    );
}

/// `u64::MAX`, one bit per second, frames of 4 GiB: no declaration compiles to that, but a `Network` can be made of it.
#[test]
fn values_beyond_every_declaration_do_not_overflow() {
    let mut draws = Draws(815);
    let mut networks = 0;
    for _ in 0..600 {
        let noise = noise(&mut draws, 1_500);
        let mut bytes = Bytes(&noise);
        if let Some(mut network) = network(declaration(&mut bytes)) {
            distort(&mut network, &mut bytes);
            networks += 1;
            examine(&network, &mut bytes);
        }
    }
    assert!(networks > 100, "{networks}");
}

#[test]
fn a_sum_that_does_not_fit_is_no_bound() {
    let mut network = Builder::new(1_000_000_000, 0)
        .host("a")
        .host("b")
        .link("a", "b")
        .stream("f", 1, ("a", &["b"]), (1_000_000, 0, &[84]))
        .network();
    network.ports[0].propagation = timebound_model::Span(u64::MAX - 100);
    let analysis = analyse(&network, &Options::default());
    let Outcome::NoFiniteBound { reason, .. } = &analysis.streams[0].leaves[0].outcome else {
        panic!("{analysis:?}");
    };
    assert!(reason.contains("a->b"), "{reason}");
}

/// Thousands of streams, each with a period of a nanosecond: hopeless, and said so at once.
#[test]
fn thousands_of_streams_of_one_nanosecond_are_refused() {
    let mut builder = Builder::new(10_000_000_000_000, 0)
        .host("a")
        .host("b")
        .link("a", "b");
    for index in 0..4_000 {
        builder = builder.stream(
            &format!("f{index}"),
            (index % 8) as u8,
            ("a", &["b"]),
            (1, 0, &[84]),
        );
    }
    let network = builder.network();
    for method in [Method::Holistic, Method::Calculus, Method::Bound] {
        let analysis = analyse(
            &network,
            &Options {
                method,
                ..Options::default()
            },
        );
        let refused = |outcome: &Outcome| matches!(outcome, Outcome::NoFiniteBound { reason, .. } if reason.contains("utilisation"));
        assert!(
            analysis
                .streams
                .iter()
                .all(|stream| refused(&stream.leaves[0].outcome))
        );
    }
}

/// Nearly all of the port, periods that share nothing, jitters of days: the computing limit ends it, and a bound comes out.
#[test]
fn busy_periods_without_end_have_a_bound() {
    // A frame takes one nanosecond.
    let mut builder = Builder::new(672_000_000_000, 0)
        .host("a")
        .host("b")
        .link("a", "b");
    for index in 0..2_000u64 {
        let shape = (2_050 + index % 97, 1_000_000_000_000_000 - index, &[84_u32][..]);
        builder = builder.stream(&format!("f{index}"), (index % 3) as u8, ("a", &["b"]), shape);
    }
    let network = builder.network();
    let mut last = None;
    for method in [Method::Bound, Method::Holistic] {
        let analysis = analyse(
            &network,
            &Options {
                method,
                ..Options::default()
            },
        );
        let utilisation = analysis.ports[0].utilisation.value;
        assert!(utilisation > 0.9 && utilisation < 1.0, "{utilisation}");
        let bounds: Vec<u64> = analysis
            .streams
            .iter()
            .map(|stream| match &stream.leaves[0].outcome {
                Outcome::Bound { from_actual, .. } => from_actual.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(bounds.iter().all(|bound| *bound > 900_000_000_000_000 / 3));
        assert!(
            last.is_none_or(|last: Vec<u64>| last.iter().zip(&bounds).all(|(least, plain)| least <= plain))
        );
        last = Some(bounds);
    }
}

//! Explanations: the parts add up to the bound, and are what they are called.

mod support;

use support::random::builder;
use support::{BYTE_PER_NANO, Builder, Draws};
use timebound_bounds::{
    BlockedBy, Exact, Explainer, Explanation, Interference, Method, NotExplained, Options, Outcome, analyse,
    explain,
};
use timebound_model::{Class, Network, Span, StreamId, WireBytes};

const METHODS: [Method; 3] = [Method::Holistic, Method::Calculus, Method::Bound];

fn options(method: Method, assume_best_effort: bool) -> Options {
    Options {
        method,
        assume_best_effort,
        ..Options::default()
    }
}

fn of(network: &Network, options: &Options, stream: &str) -> Explanation {
    let stream = network.stream(stream).expect("a stream of this name");
    explain(network, options, stream, 0).expect("an explanation")
}

fn interference(stream: &str, class: u8, frames: u64, time: u64) -> Interference {
    Interference {
        stream: stream.into(),
        class: Class(class),
        frames: Some(frames),
        time: Span(time),
    }
}

/// Every sum that an explanation promises.
fn adds_up(explained: &Explanation, analysis: &Outcome) {
    let Outcome::Bound {
        from_nominal,
        from_actual,
        best_whole,
        hops,
        ..
    } = analysis
    else {
        panic!("explained without a bound: {explained:?}");
    };
    assert_eq!(
        (explained.from_nominal, explained.from_actual, explained.best_case),
        (*from_nominal, *from_actual, *best_whole)
    );
    assert_eq!(explained.hops.len(), hops.len());
    let mut whole = 0;
    for (hop, result) in explained.hops.iter().zip(hops) {
        assert_eq!(
            (hop.port, hop.response, hop.traversal),
            (result.port, result.response, result.traversal)
        );
        assert_eq!(
            (hop.jitter_in, hop.parts.window),
            (result.jitter_in, result.window)
        );
        assert_eq!(hop.parts.total(), i128::from(hop.response.0), "{hop:?}");
        assert_eq!(
            hop.propagation.0 + hop.link_jitter.0 + hop.switching.0,
            hop.traversal.0
        );
        assert_eq!(result.counted_before, hop.counted_before);
        whole += hop.response.0 + hop.traversal.0;
        whole -= hop.counted_before.0;
    }
    assert_eq!(whole, from_actual.0);
    assert_eq!(whole + explained.source_jitter.0, from_nominal.0);
}

#[test]
fn the_parts_add_up_for_random_networks_and_every_method() {
    let mut draws = Draws(61);
    let (mut bounds, mut shaped, mut rounded) = (0, 0, 0);
    for _ in 0..500 {
        let network = builder(&mut draws).network();
        let assume = draws.chance(50);
        for method in METHODS {
            let options = options(method, assume);
            let exact = Exact::of(&network);
            let explainer = Explainer::new(&exact, &options);
            let analysis = analyse(&network, &options);
            assert_eq!(&analysis, explainer.analysis());
            for (stream, result) in analysis.streams.iter().enumerate() {
                for (leaf, found) in result.leaves.iter().enumerate() {
                    let explained = match explainer.explain(StreamId::new(stream), leaf) {
                        Ok(explained) => explained,
                        Err(error) => {
                            assert_eq!(error, NotExplained::NoBound(found.outcome.clone()));
                            continue;
                        }
                    };
                    adds_up(&explained, &found.outcome);
                    bounds += 1;
                    for hop in &explained.hops {
                        let links = hop.parts.shaping.len() as u64;
                        assert!(hop.parts.counted, "so few streams are always counted: {hop:?}");
                        // A link that was held back may have risen by a nanosecond that the sum has not, or the other way round.
                        assert!(
                            hop.parts.rounding.unsigned_abs() <= 2 + 2 * network.ports.len() as u64,
                            "{hop:?}"
                        );
                        assert!(method != Method::Holistic || (links == 0 && hop.parts.rounding == 0));
                        assert!(
                            hop.unshaped
                                .is_none_or(|plain| method == Method::Calculus || hop.response <= plain)
                        );
                        assert_eq!(
                            hop.method == Method::Calculus,
                            hop.unshaped.is_none_or(|plain| hop.response < plain)
                        );
                        shaped += usize::from(links > 0);
                        rounded += usize::from(hop.parts.rounding != 0);
                    }
                }
            }
        }
    }
    assert!(
        bounds > 4_000 && shaped > 400,
        "{bounds} bounds, {shaped} hops with shaping"
    );
    assert!(
        rounded * 20 < bounds,
        "{rounded} of {bounds} hops with a remainder"
    );
}

/// Three messages of falling priority of the specification, with lower traffic declared.
#[test]
fn a_response_is_blocking_and_counted_frames() {
    let switch = Builder::new(BYTE_PER_NANO, 0).host("a").host("b").link("a", "b");
    let network = switch
        .stream("high", 5, ("a", &["b"]), (2_500, 0, &[1_000]))
        .stream("middle", 4, ("a", &["b"]), (3_500, 0, &[1_000]))
        .stream("low", 3, ("a", &["b"]), (3_500, 0, &[1_000]))
        .unbounded("bulk", 1, ("a", &["b"]), 700)
        .network();
    let high = of(&network, &options(Method::Bound, false), "high");
    let parts = &high.hops[0].parts;
    assert_eq!(high.from_actual, Span(2_000));
    assert_eq!(
        (parts.own, parts.window, parts.counted),
        (Span(1_000), Span(0), true)
    );
    let below = BlockedBy::Stream {
        stream: "middle".into(),
        class: Class(4),
        bytes: WireBytes(1_000),
    };
    assert_eq!((parts.blocking.time, &parts.blocking.by), (Span(1_000), &below));
    assert!(parts.higher.is_empty() && parts.same.is_empty());

    let low = of(&network, &options(Method::Bound, false), "low");
    let parts = &low.hops[0].parts;
    // Blocked until 700, it lets both others pass until 2,700, the second of `high` until 3,700 and that of `middle` until 4,700.
    assert_eq!(low.from_actual, Span(5_700));
    assert_eq!(
        parts.higher,
        [
            interference("high", 5, 2, 2_000),
            interference("middle", 4, 2, 2_000)
        ][..]
            .to_vec()
    );
    let bulk = BlockedBy::Stream {
        stream: "bulk".into(),
        class: Class(1),
        bytes: WireBytes(700),
    };
    assert_eq!((parts.blocking.time, &parts.blocking.by), (Span(700), &bulk));
}

/// The vector of the specification: C = 1 ms, T = 2.5, 3.5, 3.5 ms, all in one class: the worst frame is not the first.
#[test]
fn the_window_is_subtracted_where_a_later_frame_is_the_worst() {
    let network = Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .host("b")
        .link("a", "b")
        .stream("first", 5, ("a", &["b"]), (250, 0, &[100]))
        .stream("second", 5, ("a", &["b"]), (350, 0, &[100]))
        .stream("low", 3, ("a", &["b"]), (350, 0, &[100]))
        .network();
    let low = of(&network, &options(Method::Bound, false), "low");
    let parts = &low.hops[0].parts;
    // Its second frame comes 350 after the start of the busy period and ends at 700.
    assert_eq!((low.from_actual, parts.window), (Span(350), Span(350)));
    assert_eq!(
        parts.higher,
        vec![
            interference("first", 5, 3, 300),
            interference("second", 5, 2, 200)
        ]
    );
    assert_eq!(parts.same, vec![interference("low", 3, 1, 100)]);
    assert_eq!(
        (parts.own, parts.blocking.by.clone()),
        (Span(100), BlockedBy::Nobody)
    );
    let utilisation = low.hops[0].utilisation;
    assert_eq!((utilisation.numerator, utilisation.denominator), (34, 35));
}

/// Two streams over one link and one over another meet at a switch.
#[test]
fn what_a_link_holds_back_is_named() {
    let network = Builder::new(BYTE_PER_NANO, 5)
        .host("a")
        .host("b")
        .host("c")
        .switch("s", 0, 3)
        .link("a", "s")
        .link("b", "s")
        .link("s", "c")
        .stream("one", 2, ("a", &["c"]), (10_000, 40, &[100]))
        .stream("two", 2, ("a", &["c"]), (10_000, 0, &[100]))
        .stream("three", 2, ("b", &["c"]), (10_000, 0, &[300]))
        .network();
    let by = |method| of(&network, &options(method, true), "one");
    let plain = by(Method::Holistic);
    let at_switch = &plain.hops[1];
    let effort = BlockedBy::BestEffort {
        bytes: network.best_effort_frame,
    };
    assert_eq!(
        (at_switch.parts.blocking.time.0, &at_switch.parts.blocking.by),
        (u64::from(network.best_effort_frame.0), &effort)
    );
    assert_eq!(
        at_switch.parts.same,
        vec![interference("three", 2, 1, 300), interference("two", 2, 1, 100)]
    );
    assert_eq!(at_switch.response.0, u64::from(network.best_effort_frame.0) + 500);
    assert_eq!(
        (at_switch.method, at_switch.unshaped),
        (Method::Holistic, Some(at_switch.response))
    );

    // Of a's two frames the second is 100 later, less what switching varies by: the last one has had that time of the busy period.
    let shaped = by(Method::Bound);
    let at_switch = &shaped.hops[1];
    assert_eq!(at_switch.method, Method::Calculus);
    assert_eq!(at_switch.unshaped, Some(plain.hops[1].response));
    assert_eq!(at_switch.response.0, plain.hops[1].response.0 - 97);
    let parts = &at_switch.parts;
    let held: u64 = parts.shaping.iter().map(|credit| credit.time.0).sum();
    assert_eq!(held + parts.window.0, 97);
    assert!(parts.shaping.iter().all(|credit| credit.link == "a->s"));
    assert_eq!(shaped.hops[0].switching, Span(3));
    assert_eq!(
        (shaped.hops[0].propagation, shaped.source_jitter),
        (Span(5), Span(40))
    );
}

/// A link of a tenth of the port's rate brings three urgent frames: most of them is not there yet when the low frame starts.
#[test]
fn what_a_slow_link_holds_back_of_higher_classes_is_named() {
    let network = Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .host("b")
        .host("c")
        .switch("s", 0, 0)
        .link("a", "s")
        .change(|direction| direction.rate_bps = BYTE_PER_NANO / 10)
        .link("b", "s")
        .link("s", "c")
        .stream("one", 5, ("a", &["c"]), (100_000, 0, &[100]))
        .stream("two", 5, ("a", &["c"]), (100_000, 0, &[100]))
        .stream("three", 5, ("a", &["c"]), (100_000, 0, &[100]))
        .stream("low", 1, ("b", &["c"]), (100_000, 0, &[10]))
        .network();
    let plain = of(&network, &options(Method::Holistic, false), "low");
    assert_eq!(plain.hops[1].response, Span(310));
    let shaped = of(&network, &options(Method::Bound, false), "low");
    let hop = &shaped.hops[1];
    // 100 and a step of 7 at once, another 7 within 69 ns: it starts at 114.
    assert_eq!(
        (hop.response, hop.unshaped, hop.method),
        (Span(124), Some(Span(310)), Method::Calculus)
    );
    assert_eq!(hop.parts.higher.iter().map(|one| one.time.0).sum::<u64>(), 300);
    assert!(hop.parts.counted && hop.parts.rounding == 0);
    let held: Vec<_> = hop
        .parts
        .shaping
        .iter()
        .map(|credit| (credit.link.as_str(), credit.time.0))
        .collect();
    assert_eq!(held, [("a->s", 186)]);
}

#[test]
fn every_frame_of_a_burst_is_counted() {
    let network = Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .host("b")
        .link("a", "b")
        .stream("burst", 5, ("a", &["b"]), (10_000, 0, &[100, 100, 100, 400]))
        .stream("other", 5, ("a", &["b"]), (1_000, 1_500, &[50]))
        .network();
    let burst = of(&network, &options(Method::Bound, false), "burst");
    let parts = &burst.hops[0].parts;
    assert_eq!(
        parts.same,
        vec![
            interference("burst", 5, 3, 700 - u64::from(burst.frame_bytes.0)),
            interference("other", 5, 2, 100)
        ]
    );
    assert_eq!(burst.from_actual, Span(800));
}

#[test]
fn token_buckets_of_different_frames_have_no_count_and_no_nominal_release() {
    let mut builder = Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .host("b")
        .link("a", "b")
        .stream("flow", 5, ("a", &["b"]), (10_000, 0, &[100]))
        .stream("bucket", 5, ("a", &["b"]), (10_000, 0, &[100]));
    let bucket = builder.declaration.streams.last_mut().expect("a stream");
    bucket.arrival = timebound_model::declaration::ArrivalDecl::TokenBucket {
        rate_bps: 80_000_000,
        burst_bytes: 1_000,
        min_frame_bytes: 84,
        max_frame_bytes: 500,
    };
    let network = builder.network();
    let flow = of(&network, &options(Method::Bound, false), "flow");
    let [other] = &flow.hops[0].parts.same[..] else {
        panic!("{flow:?}")
    };
    assert_eq!((other.stream.as_str(), other.frames), ("bucket", None));
    assert!(other.time >= Span(1_000));
    let bucket = of(&network, &options(Method::Bound, false), "bucket");
    assert_eq!(bucket.source_jitter, Span::ZERO);
    assert_eq!(
        bucket.hops[0].parts.total(),
        i128::from(bucket.hops[0].response.0)
    );
}

/// So many steps that the analysis takes lines in place of staircases: nothing is counted, and the sum still holds.
#[test]
fn lines_in_place_of_staircases_add_up_too() {
    let mut builder = Builder::new(1_000_000_000_000, 0)
        .host("a")
        .host("b")
        .link("a", "b");
    for index in 0..40 {
        let shape = (1_000 + index, 900_000_000_000_000, &[84_u32][..]);
        builder = builder.stream(&format!("f{index}"), (index % 3) as u8, ("a", &["b"]), shape);
    }
    let network = builder.network();
    let mut lines = 0;
    for method in METHODS {
        let options = options(method, true);
        let exact = Exact::of(&network);
        let explainer = Explainer::new(&exact, &options);
        for stream in 0..40 {
            let explained = explainer.explain(StreamId::new(stream), 0).expect("a bound");
            adds_up(
                &explained,
                &explainer.analysis().streams[stream].leaves[0].outcome,
            );
            let parts = &explained.hops[0].parts;
            if !parts.counted {
                lines += 1;
                assert!(
                    parts
                        .same
                        .iter()
                        .chain(&parts.higher)
                        .all(|one| one.frames.is_none())
                );
                assert!(parts.rounding >= 0 && parts.rounding < 100, "{}", parts.rounding);
            }
        }
    }
    assert!(lines > 0, "the case is made for it");
}

#[test]
fn what_is_not_there_is_not_explained() {
    let network = Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .host("b")
        .link("a", "b")
        .stream("flow", 5, ("a", &["b"]), (100, 0, &[60]))
        .stream("more", 5, ("a", &["b"]), (100, 0, &[60]))
        .network();
    let options = Options::default();
    assert_eq!(
        explain(&network, &options, StreamId(9), 0),
        Err(NotExplained::NoSuchLeaf)
    );
    assert_eq!(
        explain(&network, &options, StreamId(0), 1),
        Err(NotExplained::NoSuchLeaf)
    );
    let error = explain(&network, &options, StreamId(0), 0).expect_err("overload");
    assert!(
        error.to_string().contains("utilisation 1.20 of port a->b"),
        "{error}"
    );
}

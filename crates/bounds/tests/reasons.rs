//! Where there is no bound, and what is said about it.

mod support;

use std::collections::BTreeMap;
use support::{BYTE_PER_NANO, Builder, analyse_alone, bound, leaf};
use timebound_bounds::{Analysis, Options, Outcome, holistic};
use timebound_model::declaration::{ArrivalDecl, DirectionDecl, LossDecl, QueueDecl, SlotsDecl};
use timebound_model::{Span, StreamId};

/// a, b - s - t - y, z; each link is changed by its own function.
fn line(change: impl Fn(&str, &mut DirectionDecl)) -> Builder {
    let mut builder = Builder::new(BYTE_PER_NANO, 1);
    for host in ["a", "b", "y", "z"] {
        builder = builder.host(host);
    }
    builder = builder.switch("s", 1, 2).switch("t", 1, 2);
    for (a, b) in [("a", "s"), ("b", "s"), ("s", "t"), ("t", "y"), ("t", "z")] {
        builder = builder
            .link(a, b)
            .change(|direction| change(&format!("{a}-{b}"), direction));
    }
    builder
}

fn plain() -> Builder {
    line(|_, _| ())
}

const SHAPE: (u64, u64, &[u32]) = (100, 0, &[10]);

fn reason(analysis: &Analysis, stream: &str) -> String {
    match &leaf(analysis, stream).outcome {
        Outcome::Bound { .. } => panic!("{stream} has a bound"),
        Outcome::NoFiniteBound { reason, .. } => format!("no finite bound: {reason}"),
        Outcome::Unsupported { reason } => format!("unsupported: {reason}"),
    }
}

fn has_bound(analysis: &Analysis, stream: &str) -> bool {
    bound(leaf(analysis, stream)).is_some()
}

#[test]
fn overload_names_the_port_and_what_it_spares() {
    let analysis = analyse_alone(
        &plain()
            .stream("high", 6, ("a", &["z"]), SHAPE)
            .stream("low", 2, ("b", &["z"]), (50, 0, &[49]))
            .stream("behind", 1, ("a", &["y"]), SHAPE)
            .stream("apart", 1, ("z", &["y"]), SHAPE),
    );
    assert!(
        has_bound(&analysis, "high"),
        "only lower classes overload the port"
    );
    assert_eq!(
        reason(&analysis, "low"),
        "no finite bound: utilisation 1.08 of port s->t by class 2 and above is 1 or more"
    );
    assert_eq!(
        reason(&analysis, "behind"),
        "no finite bound: utilisation 1.18 of port s->t is 1 or more"
    );
    let apart = reason(&analysis, "apart");
    assert!(
        apart.starts_with("no finite bound: it shares port t->y with stream \"behind\""),
        "{apart}"
    );
    let port = analysis
        .ports
        .iter()
        .find(|port| port.name == "s->t")
        .expect("the port");
    assert_eq!(
        (port.utilisation.numerator, port.utilisation.denominator),
        (59, 50)
    );
    assert_eq!(port.backlog_bytes, None);
    assert_eq!(
        port.classes
            .iter()
            .map(|c| (c.class.0, c.largest_delay.is_some()))
            .collect::<Vec<_>>(),
        [(6, true), (2, false), (1, false)]
    );
}

#[test]
fn undeclared_arrivals_spare_only_higher_classes() {
    let analysis = analyse_alone(
        &plain()
            .stream("high", 6, ("a", &["z"]), SHAPE)
            .unbounded("bulk", 2, ("b", &["z"]), 30)
            .stream("equal", 2, ("a", &["z"]), SHAPE)
            .stream("low", 1, ("a", &["z"]), SHAPE)
            .stream("elsewhere", 0, ("a", &["y"]), SHAPE),
    );
    // It waits for one whole frame of the bulk at s and at t, not at its source, where only its own lower frames block it.
    let (_, from_actual, _) = bound(leaf(&analysis, "high")).expect("a bound");
    assert_eq!(
        from_actual.0,
        (10 + 10) + 1 + 2 + (30 + 10) + 1 + 2 + (30 + 10) + 1
    );
    for stream in ["bulk", "equal", "low", "elsewhere"] {
        assert!(
            reason(&analysis, stream).contains("stream \"bulk\" has no declared arrival"),
            "{stream}"
        );
    }
    let port = analysis
        .ports
        .iter()
        .find(|port| port.name == "b->s")
        .expect("the port");
    assert_eq!(
        (
            port.classes.len(),
            port.classes[0].largest_delay,
            port.backlog_bytes
        ),
        (1, None, None)
    );
}

#[test]
fn unbounded_on_a_fifo_port_spoils_everybody() {
    let fifo = line(|_, direction| direction.queue = QueueDecl::Fifo);
    let analysis = analyse_alone(&fifo.stream("high", 7, ("a", &["z"]), SHAPE).unbounded(
        "bulk",
        0,
        ("b", &["z"]),
        30,
    ));
    assert!(!has_bound(&analysis, "high"));
}

#[test]
fn loss_takes_the_number_only_from_those_who_cross_it() {
    let lossy = line(|link, direction| {
        if link == "a-s" {
            direction.impairments.loss = Some(LossDecl::Bernoulli { probability: 0.01 });
        }
    });
    let analysis = analyse_alone(&lossy.stream("f", 5, ("a", &["z"]), SHAPE).stream(
        "g",
        5,
        ("b", &["z"]),
        SHAPE,
    ));
    assert_eq!(
        reason(&analysis, "f"),
        "unsupported: port a->s loses frames, which the analysis does not cover"
    );
    assert!(has_bound(&analysis, "g"), "what is lost cannot delay others");
    assert!(analysis.ports[0].reason.is_some() && analysis.ports[0].backlog_bytes.is_none());
}

#[test]
fn what_cannot_be_analysed_spreads_to_its_rivals() {
    type Change = fn(&mut DirectionDecl);
    let cases: [(Change, &str); 2] = [
        (|d| d.impairments.duplication = 0.1, "duplicates frames"),
        (|d| d.impairments.outages = vec![(5, 10)], "out of service"),
    ];
    for (change, expected) in cases {
        let network = line(|link, direction| {
            if link == "a-s" {
                change(direction);
            }
        });
        let analysis = analyse_alone(
            &network
                .stream("f", 5, ("a", &["z"]), SHAPE)
                .stream("equal", 5, ("b", &["z"]), SHAPE)
                .stream("higher", 6, ("b", &["z"]), SHAPE)
                .stream("third", 5, ("y", &["z"]), SHAPE),
        );
        assert!(
            reason(&analysis, "f").contains(expected),
            "{}",
            reason(&analysis, "f")
        );
        assert!(
            has_bound(&analysis, "higher"),
            "{expected}: one frame of f at most blocks a higher class"
        );
        let equal = reason(&analysis, "equal");
        assert!(
            equal.starts_with("unsupported: it shares port s->t with stream \"f\"")
                && equal.contains(expected)
        );
        assert!(
            reason(&analysis, "third").contains("t->z"),
            "{}",
            reason(&analysis, "third")
        );
    }
}

#[test]
fn weighted_ports_of_a_half_duplex_medium_are_unsupported() {
    let mut builder = plain().stream("f", 5, ("a", &["z"]), SHAPE);
    builder.declaration.links[0].half_duplex = true;
    assert!(has_bound(&analyse_alone(&builder), "f"));
    builder.declaration.links[0].forward.queue = QueueDecl::Drr {
        quanta_bytes: [1500; 8],
    };
    assert_eq!(
        reason(&analyse_alone(&builder), "f"),
        "unsupported: port a->s serves its classes by deficit round robin on a half-duplex medium, which the analysis does not cover"
    );
}

#[test]
fn services_that_are_too_slow_say_whose_they_are() {
    let weighted = line(|link, direction| {
        if link == "s-t" {
            direction.queue = QueueDecl::Drr {
                quanta_bytes: [10, 10, 10, 10, 10, 10, 10, 10],
            };
        }
    });
    // Class 5 wants 0.6 where class 6, which promises nothing, may take every other turn.
    let mut builder =
        weighted
            .stream("f", 5, ("a", &["z"]), (100, 0, &[60]))
            .stream("g", 6, ("b", &["z"]), SHAPE);
    builder.declaration.streams[1].arrival = ArrivalDecl::Unbounded { max_frame_bytes: 10 };
    let analysis = analyse_alone(&builder);
    assert_eq!(
        reason(&analysis, "f"),
        "no finite bound: class 5 can need more than its share of port s->t"
    );
    builder.declaration.streams[0].arrival = ArrivalDecl::Periodic {
        period_ns: 100,
        jitter_ns: 0,
        frames_bytes: vec![40],
    };
    let analysis = analyse_alone(&builder);
    assert!(
        reason(&analysis, "f").contains("crosses port t->z"),
        "the weighted port itself bounds it: {}",
        reason(&analysis, "f")
    );
    let mut slotted = plain().stream("f", 5, ("a", &["z"]), (100, 0, &[60]));
    slotted.declaration.links[2].forward.slots = Some(SlotsDecl {
        cycle_ns: 1_000,
        slots_ns: vec![(0, 500)],
    });
    assert_eq!(
        reason(&analyse_alone(&slotted), "f"),
        "no finite bound: the slots of port s->t are too few for class 5 and above"
    );
    let mut shared = plain().stream("f", 5, ("a", &["z"]), (100, 0, &[60])).stream(
        "back",
        5,
        ("z", &["a"]),
        (1_000, 0, &[60]),
    );
    shared.declaration.links[2].half_duplex = true;
    assert!(
        reason(&analyse_alone(&shared), "f").contains("than the half-duplex medium leaves them"),
        "{}",
        reason(&analyse_alone(&shared), "f")
    );
}

#[test]
fn observed_jitter_replaces_the_declared_one_where_it_is_larger() {
    let network = plain().stream("f", 5, ("a", &["z"]), (100, 40, &[10])).network();
    let with = |observed: u64| {
        let jitter_override = BTreeMap::from([(StreamId(0), Span(observed))]);
        let analysis = holistic(
            &network,
            &Options {
                jitter_override,
                ..Options::default()
            },
        );
        bound(&analysis.streams[0].leaves[0]).expect("a bound")
    };
    let declared = bound(&holistic(&network, &Options::default()).streams[0].leaves[0]).expect("a bound");
    assert_eq!(with(39), declared);
    assert_eq!(with(60).0.0, declared.0.0 + 20, "from the nominal release");
    assert_eq!(with(60).1, declared.1, "one frame at a time still");
    assert!(with(150).1 > declared.1, "now two releases can meet");
}

#[test]
fn best_effort_blocks_once_at_every_port() {
    let mut builder = plain().stream("f", 5, ("a", &["z"]), (1_000, 0, &[10]));
    builder.declaration.best_effort_frame_bytes = 77;
    let network = builder.network();
    let with = bound(&holistic(&network, &Options::default()).streams[0].leaves[0]).expect("a bound");
    let without = bound(&analyse_alone(&builder).streams[0].leaves[0]).expect("a bound");
    assert_eq!(with.1.0, without.1.0 + 3 * 77);
    assert_eq!(with.2, without.2);
}

#[test]
fn a_cycle_that_feeds_itself_has_no_bound() {
    let mut ring = Builder::new(BYTE_PER_NANO, 0);
    const SIZE: usize = 8;
    for index in 0..SIZE {
        let (host, switch) = (format!("h{index}"), format!("s{index}"));
        ring = ring.host(&host).switch(&switch, 0, 0).link(&host, &switch);
    }
    for index in 0..SIZE {
        ring = ring.link(&format!("s{index}"), &format!("s{}", (index + 1) % SIZE));
    }
    for index in 0..SIZE {
        let (from, to) = (format!("h{index}"), format!("h{}", (index + SIZE - 1) % SIZE));
        let mut path = vec![from.clone()];
        path.extend((0..SIZE).map(|step| format!("s{}", (index + step) % SIZE)));
        path.push(to.clone());
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        ring = ring
            .stream(&format!("f{index}"), 5, (&from, &[&to]), (100, 0, &[14]))
            .route(&[&path]);
    }
    let analysis = analyse_alone(&ring);
    for index in 0..SIZE {
        let reason = reason(&analysis, &format!("f{index}"));
        assert!(
            reason.contains("exceed") || reason.contains("cycle") || reason.contains("later than"),
            "{reason}"
        );
    }
}

/// A million million releases may come at once: too many to walk through one by one.
#[test]
fn a_jitter_of_a_million_million_periods_still_gets_a_bound() {
    const JITTER: u64 = 1_000_000_000_000_000;
    let analysis = analyse_alone(
        &plain()
            .stream("f", 5, ("a", &["z"]), (1_000, JITTER, &[400]))
            .stream("g", 5, ("b", &["z"]), (999, 0, &[400])),
    );
    // All at once at the source, and at s again: the second time behind twice the jitter.
    let (_, from_actual, _) = bound(leaf(&analysis, "f")).expect("a bound");
    assert!(
        (JITTER / 1_000 * 400..10 * JITTER).contains(&from_actual.0),
        "{from_actual}"
    );
}

#[test]
fn delays_beyond_the_horizon_are_no_bound() {
    let network = plain().stream("f", 5, ("a", &["z"]), (100, 0, &[10])).network();
    let jitter_override = BTreeMap::from([(StreamId(0), Span::MAX)]);
    let analysis = holistic(
        &network,
        &Options {
            jitter_override,
            ..Options::default()
        },
    );
    assert!(
        reason(&analysis, "f").contains("arrivals at port a->s are later than"),
        "{}",
        reason(&analysis, "f")
    );
}

#[test]
fn json_is_what_python_reads() {
    let analysis = analyse_alone(&plain().stream("f", 5, ("a", &["y"]), SHAPE).unbounded(
        "bulk",
        1,
        ("b", &["z"]),
        30,
    ));
    let json = serde_json::to_value(&analysis).expect("serialisable");
    let outcome = &json["streams"][0]["leaves"][0]["outcome"];
    assert_eq!(
        (&outcome["kind"], &outcome["from_nominal_ns"]),
        (&"bound".into(), &67.into())
    );
    assert_eq!(outcome["hops"][1]["name"], "s->t");
    assert_eq!(outcome["hops"][1]["response_ns"], 40);
    assert_eq!(
        json["streams"][1]["leaves"][0]["outcome"]["kind"],
        "no-finite-bound"
    );
    assert_eq!(json["streams"][1]["leaves"][0]["receiver"], "z");
    assert_eq!(
        json["ports"][0]["utilisation"],
        serde_json::json!({"value": json["ports"][0]["utilisation"]["value"], "numerator": 1, "denominator": 10})
    );
    assert_eq!(
        json["ports"][0]["classes"][0],
        serde_json::json!({
            "class": 5, "largest_delay_ns": 10, "backlog_bytes": 10, "exceeds_buffer": false, "reason": null
        })
    );
}

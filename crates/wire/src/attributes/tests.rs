use super::*;
use proptest::prelude::*;

fn of(pairs: &[(&str, &str)]) -> Reading {
    read(pairs.iter().copied())
}

fn whys(pairs: &[(&str, &str)]) -> Vec<Why> {
    of(pairs)
        .problems
        .into_iter()
        .map(|problem| problem.why)
        .collect()
}

#[test]
fn every_attribute_is_read() {
    let found = of(&[
        ("colour", "red"),
        ("rt-version", "1"),
        ("rt-deadline", "20 ms"),
        ("rt-period", "15ms"),
        ("rt-jitter", "0.4 us"),
        ("rt-size", "1 kB"),
        ("rt-transmission-time", "123.04 us"),
        ("rt-priority", "5"),
        ("rt-bandwidth", "1 Mbit/s..2 Mbit/s"),
        ("rt-qos", "1"),
        ("rt-strict", "yes"),
        ("rt-withdraw", "no"),
    ]);
    assert_eq!(found.problems, []);
    assert_eq!(
        found.request.all,
        Requirements {
            deadline_ns: Some(20_000_000),
            period_ns: Some(15_000_000),
            jitter_ns: Some(400),
            size_bytes: Some(1_000),
            transmission_ns: Some(123_040),
            priority: Some(5),
            bandwidth_bps: Some((1_000_000, 2_000_000)),
            qos: Some(1),
            strict: Some(true),
            withdraw: Some(false),
        }
    );
}

#[test]
fn the_authors_interface_is_read_in_its_own_units() {
    let found = of(&[
        ("deadline", "0.02"),
        ("max_bw", "2"),
        ("min_bw", "0.5"),
        ("flow_priority", "3"),
    ]);
    assert_eq!(found.problems, []);
    let all = &found.request.all;
    assert_eq!((all.deadline_ns, all.priority), (Some(20_000_000), Some(3)));
    assert_eq!(all.bandwidth_bps, Some((500_000, 2_000_000)));
}

#[test]
fn jitter_is_rounded_up_and_may_be_none_at_all() {
    let jitter = |value| of(&[("rt-jitter", value)]).request.all.jitter_ns;
    assert_eq!(jitter("0 ns"), Some(0));
    assert_eq!(jitter("1.1 ns"), Some(2));
    assert_eq!(jitter("3"), None);
    assert!(of(&[("rt-jitter", "0 ns")]).request.all.asks());
    assert!(!of(&[("rt-strict", "yes"), ("rt-qos", "1")]).request.all.asks());
}

#[test]
fn the_authors_rates_are_held_against_each_other_in_any_order() {
    let rates = |pairs: &[(&str, &str)]| (of(pairs).request.all.bandwidth_bps, whys(pairs));
    let mega = |least: u64, most: u64| Some((least * 1_000_000, most * 1_000_000));
    assert_eq!(rates(&[("min_bw", "1")]), (mega(1, 1), vec![]));
    assert_eq!(rates(&[("min_bw", "1"), ("max_bw", "2")]), (mega(1, 2), vec![]));
    assert_eq!(rates(&[("max_bw", "2"), ("min_bw", "1")]), (mega(1, 2), vec![]));
    assert_eq!(
        rates(&[("max_bw", "1"), ("min_bw", "2")]),
        (mega(1, 1), vec![Why::Backwards])
    );
    assert_eq!(
        rates(&[("min_bw", "2"), ("max_bw", "1")]),
        (mega(2, 2), vec![Why::Backwards])
    );
    assert_eq!(
        rates(&[("min_bw", "1"), ("min_bw", "2"), ("max_bw", "3"), ("max_bw", "4")]),
        (mega(1, 3), vec![Why::Twice, Why::Twice])
    );
    assert_eq!(
        rates(&[("rt-bandwidth", "5 Mbit/s"), ("min_bw", "1")]),
        (mega(5, 5), vec![Why::Twice])
    );
    // Of other topics they are others.
    let found = of(&[
        ("rt-topic", "a"),
        ("max_bw", "1"),
        ("rt-topic", "b"),
        ("min_bw", "2"),
    ]);
    assert_eq!(found.problems, []);
    assert_eq!(found.request.of("b").bandwidth_bps, mega(2, 2));
}

#[test]
fn topics_have_attributes_of_their_own() {
    let request = of(&[
        ("rt-period", "10 ms"),
        ("rt-topic", "plant/+/alarm"),
        ("rt-deadline", "5 ms"),
        ("rt-topic", "plant/#"),
        ("rt-deadline", "50 ms"),
        ("rt-priority", "2"),
    ])
    .request;
    let asked = |name: &str| {
        let asked = request.of(name);
        (asked.period_ns, asked.deadline_ns, asked.priority)
    };
    let ms = |ms: u64| Some(ms * 1_000_000);
    assert_eq!(asked("office"), (ms(10), None, None));
    assert_eq!(asked("plant/1/pressure"), (ms(10), ms(50), Some(2)));
    // The last one that matches and says so.
    assert_eq!(asked("plant/1/alarm"), (ms(10), ms(50), Some(2)));
}

#[test]
fn what_cannot_be_read_is_told_and_leaves_the_rest() {
    let found = of(&[
        ("rt-deadline", "20"),
        ("rt-priority", "9"),
        ("rt-period", "0 ms"),
        ("rt-bandwidth", "2 Mbit/s..1 Mbit/s"),
        ("rt-colour", "red"),
        ("rt-size", "10 B"),
        ("rt-size", "20 B"),
        ("rt-strict", "perhaps"),
    ]);
    assert_eq!(
        found.request.all,
        Requirements {
            size_bytes: Some(10),
            ..Requirements::default()
        }
    );
    let told: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "rt-deadline '20': the unit is missing; use ns, us, ms or s",
            "rt-priority '9': use 0 to 7",
            "rt-period '0 ms': it must be more than nothing",
            "rt-bandwidth '2 Mbit/s..1 Mbit/s': the range ends before it begins",
            "rt-colour 'red': version 1 of the vocabulary has no such attribute",
            "rt-size '20 B': it is given twice for the same topics; the first one counts",
            "rt-strict 'perhaps': use yes or no",
        ]
    );
}

#[test]
fn attributes_behind_topics_that_cannot_be_read_are_for_nobody() {
    let found = of(&[
        ("rt-topic", "a/#/b"),
        ("rt-priority", "7"),
        ("rt-topic", "a"),
        ("rt-priority", "1"),
    ]);
    assert_eq!(found.problems.len(), 1);
    assert!(found.request.all.is_empty());
    assert_eq!(found.request.of("a").priority, Some(1));
    assert_eq!(found.request.of("b"), Requirements::default());
}

#[test]
fn another_version_is_not_guessed_at() {
    let found = of(&[("rt-deadline", "1 ms"), ("rt-version", "2"), ("rt-priority", "1")]);
    assert!(found.request.is_empty());
    assert_eq!(
        found.problems[0].to_string(),
        "rt-version '2': this side speaks version 1"
    );
}

#[test]
fn a_flood_is_cut() {
    let flood = |key: &'static str, value: &'static str| read(std::iter::repeat_n((key, value), 100_000));
    let many = flood("rt-deadline", "1 ms");
    assert_eq!(many.request.all.deadline_ns, Some(1_000_000));
    assert_eq!(many.problems.len(), MOST_PROBLEMS);
    let topics = flood("rt-topic", "a");
    assert_eq!(topics.request.topics.len(), MOST_TOPICS);
    assert_eq!(topics.problems[0].why, Why::TooMany);
    assert!(flood("colour", "red").problems.is_empty());
    let long = "x".repeat(65_535);
    let told = &of(&[("rt-size", &long)]).problems[0];
    assert!(told.to_string().len() < 200);
}

#[test]
fn why_in_the_order_of_the_packet() {
    assert_eq!(
        whys(&[
            ("rt-qos", "3"),
            ("rt-topic", ""),
            ("rt-qos", "4"),
            ("rt-topic", "a"),
            ("rt-qos", "-1")
        ]),
        [
            Why::NotOneOf("0, 1 or 2"),
            Why::NoFilter,
            Why::NotOneOf("0, 1 or 2"),
            Why::NotOneOf("0, 1 or 2")
        ]
    );
}

fn requirements() -> impl Strategy<Value = Requirements> {
    let some = || proptest::option::of(1..u64::MAX);
    (
        (
            some(),
            some(),
            proptest::option::of(any::<u64>()),
            proptest::option::of(any::<u64>()),
            some(),
        ),
        proptest::option::of(0u8..8),
        proptest::option::of((1u64..1 << 60, 0u64..1 << 60)),
        proptest::option::of(0u8..3),
        (
            proptest::option::of(any::<bool>()),
            proptest::option::of(any::<bool>()),
        ),
    )
        .prop_map(
            |((deadline, period, jitter, size, time), priority, rate, qos, (strict, withdraw))| {
                Requirements {
                    deadline_ns: deadline,
                    period_ns: period,
                    jitter_ns: jitter,
                    size_bytes: size,
                    transmission_ns: time,
                    priority,
                    bandwidth_bps: rate.map(|(least, more)| (least, least + more)),
                    qos,
                    strict,
                    withdraw,
                }
            },
        )
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        all in requirements(),
        topics in proptest::collection::vec(("[a-z/+]{1,3}", requirements()), 0..4),
    ) {
        let topics: Vec<_> = topics.into_iter().filter(|(filter, _)| topic::is_filter(filter)).collect();
        let request = Request { all, topics };
        let pairs = write(&request);
        let found = read(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        prop_assert_eq!(found.problems, vec![]);
        prop_assert_eq!(found.request, request);
    }

    #[test]
    fn nothing_that_arrives_is_too_much(
        pairs in proptest::collection::vec(
            (prop_oneof!["rt-[a-z]{1,8}", Just("rt-deadline".to_owned()), Just("rt-topic".to_owned()), Just("min_bw".to_owned()), Just("max_bw".to_owned())], any::<String>()),
            0..40,
        ),
    ) {
        let found = read(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        prop_assert!(found.problems.len() <= MOST_PROBLEMS);
        // What was understood can be said again.
        let again = write(&found.request);
        let again = read(again.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        prop_assert_eq!(again.request, found.request);
    }
}

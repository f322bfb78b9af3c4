use super::support::*;
use crate::intermediary::{Event, FlowState, HoldEnd, Side, Step, Verdict};
use timebound_model::{Span, Time};
use timebound_wire::mqtt::Kind;

fn v5() -> Line {
    Line::open(&connect(&[], &[]))
}

#[test]
fn a_publish_is_held_until_its_verdict_and_everything_behind_it() {
    let mut line = v5();
    let first = publish("plant/alarm", 1, 7, MILD, b"on");
    let second = publish("office", 0, 0, &[], b"later");
    line.client(&[first.clone(), second.clone(), vec![0xc0, 0]].concat());
    assert_eq!((line.last.clone(), line.to_broker.len()), (Step::Hold, 0));
    assert_eq!(line.session.timeout(), Some(Time(500_000_000)));
    let asked = line.asked();
    assert_eq!(asked, [(1, 1, Side::Publish, "plant/alarm".to_owned())]);
    line.now = Time(3_000_000);
    line.decide(1, 1, granted(5));
    assert_eq!(line.to_broker, [first, second, vec![0xc0, 0]].concat());
    let events = line.events();
    assert!(events.contains(&Event::Class(5)));
    assert!(events.contains(&Event::Released(HoldEnd::Verdict, Span(3_000_000))));
    line.broker(&puback(7));
    assert_eq!(said(&line.to_client, "rt-granted").as_deref(), Some("yes"));
    assert_eq!(said(&line.to_client, "rt-class").as_deref(), Some("5"));
    assert_eq!(said(&line.to_client, "rt-bound").as_deref(), Some("12500 us"));
    assert_eq!(said(&line.to_client, "rt-reason"), None);
}

#[test]
fn the_same_attributes_again_cost_no_request_and_no_waiting() {
    let mut line = v5();
    line.client(&publish("a", 1, 1, MILD, b"on"));
    line.asked();
    line.decide(1, 1, granted(5));
    line.broker(&puback(1));
    line.forget();
    for id in 2..50 {
        line.client(&publish("a", 1, id, MILD, b"on"));
        assert_eq!(line.asked(), []);
        line.broker(&puback(id));
        assert_eq!(said(&line.to_client, "rt-granted").as_deref(), Some("yes"));
        line.forget();
    }
    // Without attributes: they count from then on, and the client knows what became of them.
    line.client(&publish("a", 1, 50, &[], b"of"));
    line.broker(&puback(50));
    assert_eq!((line.asked(), line.to_client.clone()), (vec![], puback(50)));
    // Others ask again, with the next revision; so does a larger message.
    line.client(&publish("a", 1, 51, &[("rt-deadline", "10 ms")], b"on"));
    assert_eq!(line.asked(), [(1, 2, Side::Publish, "a".to_owned())]);
    assert_eq!(line.last, Step::Hold);
    assert!(!line.session.verdict(1, 1, granted(4)), "of the revision before");
    line.decide(1, 2, granted(4));
    line.client(&publish("a", 1, 52, &[], b"longer"));
    assert_eq!(line.asked(), [(1, 3, Side::Publish, "a".to_owned())]);
}

#[test]
fn what_comes_late_goes_on_at_its_time_and_says_so_and_the_verdict_counts_from_then_on() {
    let mut line = v5();
    line.client(&publish("a", 1, 1, STRICT, b"on"));
    line.now = Time(499_999_999);
    line.turn();
    assert_eq!(line.last, Step::Hold);
    line.now = Time(500_000_000);
    line.turn();
    line.broker(&puback(1));
    assert_eq!(said(&line.to_client, "rt-granted").as_deref(), Some("no"));
    assert_eq!(
        said(&line.to_client, "rt-reason").as_deref(),
        Some("unavailable: no verdict in time")
    );
    assert!(
        line.events()
            .contains(&Event::Released(HoldEnd::Timeout, Span(500_000_000)))
    );
    // Nothing is held for it again.
    line.forget();
    line.client(&publish("a", 1, 2, STRICT, b"on"));
    assert!(!line.to_broker.is_empty());
    line.decide(1, 1, granted(3));
    line.broker(&puback(2));
    assert_eq!(said(&line.to_client, "rt-granted").as_deref(), Some("yes"));
}

#[test]
fn nobody_there_who_decides_holds_nothing() {
    let mut line = v5();
    line.control = false;
    line.client(&publish("a", 1, 1, STRICT, b"on"));
    assert_eq!(line.asked().len(), 1);
    line.broker(&puback(1));
    let reason = said(&line.to_client, "rt-reason");
    assert_eq!(reason.as_deref(), Some("unavailable: nobody decides at present"));
    // And who held when they left goes on.
    line.control = true;
    line.client(&publish("b", 1, 2, STRICT, b"on"));
    assert_eq!(line.last, Step::Hold);
    line.control = false;
    line.forget();
    line.turn();
    assert_eq!(line.to_broker, publish("b", 1, 2, STRICT, b"on"));
}

#[test]
fn strict_and_refused_is_answered_with_quota_exceeded_and_not_sent_on() {
    let mut line = v5();
    for (qos, kind) in [(1, Kind::Puback), (2, Kind::Pubrec)] {
        let before = publish("before", 0, 0, &[], b"x");
        let payload = vec![7; 5_000];
        line.client(&[before.clone(), publish("a", qos, 9, STRICT, &payload)].concat());
        // Another quality of service is another request.
        line.decide(1, u32::from(qos), refused());
        line.client(&[0xc0, 0]);
        assert_eq!(line.to_broker, [before, vec![0xc0, 0]].concat());
        let answers = acknowledgements(&line.to_client);
        assert_eq!((answers[0].0, answers[0].1), (kind, 0x97));
        assert_eq!(
            said(&line.to_client, "rt-offer-deadline").as_deref(),
            Some("35 ms")
        );
        assert_eq!(
            said(&line.to_client, "rt-reason").as_deref(),
            Some("a deadline of 20 ms would be missed")
        );
        assert_eq!(line.waiting(), 0);
        line.forget();
    }
    // QoS 0 is dropped: nothing can be answered.
    line.events();
    line.client(&publish("a", 0, 0, &[], b"x"));
    assert_eq!((line.to_broker.len(), line.to_client.len()), (0, 0));
    assert_eq!(
        line.events(),
        [Event::Refused {
            packet: Kind::Publish,
            dropped: true
        }]
    );
    // What may be at the broker already is taken to its end.
    let mut again = publish("a", 1, 9, STRICT, b"x");
    again[0] |= 8;
    line.client(&again);
    assert_eq!(line.to_broker, again);
    // A better verdict for the same revision lets it through.
    line.forget();
    line.decide(1, 2, granted(2));
    line.client(&publish("a", 1, 10, STRICT, b"x"));
    assert!(!line.to_broker.is_empty());
}

#[test]
fn not_strict_and_refused_is_best_effort() {
    let mut line = v5();
    line.client(&publish("a", 2, 9, MILD, b"on"));
    line.decide(1, 1, refused());
    assert_eq!(line.to_broker, publish("a", 2, 9, MILD, b"on"));
    line.broker(&packet(0x50, &[&9u16.to_be_bytes()]));
    let answer = &acknowledgements(&line.to_client)[0];
    assert_eq!((answer.0, answer.1), (Kind::Pubrec, 0));
    assert_eq!(said(&line.to_client, "rt-granted").as_deref(), Some("no"));
}

#[test]
fn subscriptions_ask_per_filter_and_are_refused_together() {
    let mut line = v5();
    let pairs: Pairs<'_> = &[
        ("rt-deadline", "20 ms"),
        ("rt-topic", "$share/g/b/#"),
        ("rt-strict", "yes"),
        ("rt-topic", "b/#"),
        ("rt-priority", "3"),
    ];
    let bytes = subscribe(4, pairs, &["a", "b/#"]);
    line.client(&bytes);
    let asked = line.asked();
    assert_eq!(
        asked,
        [
            (1, 1, Side::Subscribe, "a".to_owned()),
            (2, 1, Side::Subscribe, "b/#".to_owned())
        ]
    );
    line.decide(1, 1, granted(1));
    assert_eq!(line.last, Step::Hold);
    line.decide(2, 1, refused());
    assert_eq!(line.to_broker, bytes);
    line.broker(&suback(4, &[1, 0x87]));
    let answers = acknowledgements(&line.to_client);
    let keys: Vec<_> = answers[0]
        .2
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(keys[0..2], [("rt-topic", "a"), ("rt-granted", "yes")]);
    // The broker refused the second one: it is given back.
    assert!(line.events().contains(&Event::Withdrawn { number: 2 }));
    line.forget();
    line.client(&subscribe(5, STRICT, &["c", "d"]));
    line.asked();
    line.decide(3, 1, granted(1));
    line.decide(4, 1, refused());
    assert_eq!(line.to_broker, []);
    assert_eq!(
        line.to_client[..5],
        [0x90, line.to_client[1], line.to_client[2], 0, 5][..5]
    );
    assert!(line.to_client.ends_with(&[0x97, 0x97]));
    let events = line.events();
    for number in [3, 4] {
        assert!(events.contains(&Event::Withdrawn { number }), "{events:?}");
    }
}

#[test]
fn a_shared_subscription_asks_for_its_filter() {
    let mut line = v5();
    line.client(&subscribe(4, MILD, &["$share/group/a/+"]));
    assert_eq!(line.asked(), [(1, 1, Side::Subscribe, "a/+".to_owned())]);
    line.decide(1, 1, granted(1));
    line.client(&unsubscribe(5, "$share/group/a/+"));
    assert!(line.events().contains(&Event::Withdrawn { number: 1 }));
}

#[test]
fn what_is_given_back_is_withdrawn() {
    let mut line = v5();
    let withdraw: Pairs<'_> = &[("rt-withdraw", "yes")];
    line.client(&publish("a", 1, 1, MILD, b"x"));
    line.decide(1, 1, granted(6));
    line.events();
    line.client(&publish("a", 1, 2, withdraw, b"x"));
    assert_eq!(line.events(), [Event::Withdrawn { number: 1 }, Event::Class(0)]);
    line.broker(&puback(2));
    assert_eq!(said(&line.to_client, "rt-reason").as_deref(), Some("withdrawn"));
    // By UNSUBSCRIBE, DISCONNECT and the end.
    line.client(&[subscribe(3, MILD, &["s"]), unsubscribe(4, "s")].concat());
    line.decide(2, 1, granted(1));
    assert!(line.events().contains(&Event::Withdrawn { number: 2 }));
    line.client(&publish("a", 0, 0, MILD, b"x"));
    line.decide(3, 1, granted(1));
    line.client(&[0xe0, 0]);
    assert!(line.events().contains(&Event::Withdrawn { number: 3 }));
    line.session.closed(line.now);
    assert_eq!(line.events(), []);
}

#[test]
fn defaults_of_the_connection_ask_for_each_topic_and_can_be_given_back_for_one() {
    let mut line = Line::open(&connect(&[], MILD));
    line.control = false;
    line.client(
        &[
            publish("a", 0, 0, &[], b"x"),
            publish("b", 0, 0, &[], b"x"),
            publish("a", 0, 0, &[], b"x"),
        ]
        .concat(),
    );
    let topics: Vec<_> = line.asked().into_iter().map(|asked| asked.3).collect();
    assert_eq!(topics, ["a", "b"]);
    line.client(
        &[
            publish("a", 0, 0, &[("rt-withdraw", "yes")], b"x"),
            publish("a", 0, 0, &[], b"x"),
        ]
        .concat(),
    );
    assert_eq!(line.events(), [Event::Withdrawn { number: 1 }]);
    line.client(&publish("a", 0, 0, &[("rt-priority", "1")], b"x"));
    assert_eq!(line.asked(), [(1, 2, Side::Publish, "a".to_owned())]);
    // For many at once.
    line.client(&publish(
        "c",
        0,
        0,
        &[("rt-topic", "#"), ("rt-withdraw", "yes")],
        b"x",
    ));
    let events = line.events();
    assert!(
        events.contains(&Event::Withdrawn { number: 1 }) && events.contains(&Event::Withdrawn { number: 2 })
    );
}

#[test]
fn rules_for_topics_count_from_then_on() {
    let mut line = v5();
    line.control = false;
    line.client(&publish(
        "x",
        0,
        0,
        &[("rt-topic", "plant/+"), ("rt-priority", "4")],
        b"x",
    ));
    assert_eq!(line.asked(), []);
    line.client(
        &[
            publish("plant/1", 0, 0, &[], b"x"),
            publish("office", 0, 0, &[], b"x"),
        ]
        .concat(),
    );
    assert_eq!(line.asked(), [(1, 1, Side::Publish, "plant/1".to_owned())]);
    // A rule that changes asks again for what it is about, when that is next published.
    line.client(&publish(
        "x",
        0,
        0,
        &[("rt-topic", "plant/+"), ("rt-priority", "5")],
        b"x",
    ));
    line.client(&publish("plant/1", 0, 0, &[], b"x"));
    assert_eq!(line.asked(), [(1, 2, Side::Publish, "plant/1".to_owned())]);
}

#[test]
fn topic_aliases_stand_for_their_topics() {
    let mut line = v5();
    line.control = false;
    let alias = |topic: &str, pairs: Pairs<'_>| {
        publish_with(topic, 0, 0, &[vec![0x23, 0, 3], user(pairs)].concat(), b"x")
    };
    let all = [alias("a", &[]), alias("", MILD), alias("b", &[]), alias("", MILD)].concat();
    line.client(&all);
    let topics: Vec<_> = line.asked().into_iter().map(|asked| asked.3).collect();
    assert_eq!(topics, ["a", "b"]);
    assert_eq!(line.to_broker, all);
    // One that stands for nothing is the broker's to judge.
    let unknown = publish_with("", 0, 0, &[vec![0x23, 0, 9], user(MILD)].concat(), b"x");
    line.forget();
    line.client(&unknown);
    assert_eq!((line.asked(), line.to_broker.clone()), (vec![], unknown));
}

#[test]
fn a_connect_that_names_what_it_publishes_asks_at_once() {
    let pairs: Pairs<'_> = &[
        ("rt-strict", "yes"),
        ("rt-topic", "a"),
        ("rt-deadline", "5 ms"),
        ("rt-size", "10 B"),
        // Wildcards and topics without a size wait for messages.
        ("rt-topic", "b/#"),
        ("rt-size", "10 B"),
        ("rt-topic", "c"),
        ("rt-deadline", "5 ms"),
    ];
    for is_refused in [false, true] {
        let mut line = Line::new();
        let bytes = connect(&[], pairs);
        line.client(&bytes);
        assert_eq!(line.asked(), [(1, 1, Side::Publish, "a".to_owned())]);
        assert_eq!((line.last.clone(), line.to_broker.len()), (Step::Hold, 0));
        line.decide(1, 1, if is_refused { refused() } else { granted(7) });
        if is_refused {
            assert_eq!((line.to_broker.len(), line.last.clone()), (0, Step::End));
            assert_eq!(acknowledgements(&line.to_client)[0].1, 0x97);
        } else {
            assert_eq!(line.to_broker, bytes);
            line.broker(CONNACK);
        }
        let granted = said(&line.to_client, "rt-granted");
        assert_eq!(granted.as_deref(), Some(if is_refused { "no" } else { "yes" }));
    }
}

#[test]
fn clients_that_want_no_information_or_small_packets_get_what_the_broker_said() {
    // Request Problem Information 0; Maximum Packet Size 20.
    for property in [&[0x17, 0][..], &[0x27, 0, 0, 0, 20]] {
        let mut line = Line::open(&connect(property, &[]));
        line.client(&publish("a", 1, 1, STRICT, b"x"));
        line.decide(1, 1, granted(1));
        line.broker(&puback(1));
        assert_eq!(line.to_client, puback(1));
        line.forget();
        line.decide(1, 1, refused());
        line.client(&publish("a", 1, 2, STRICT, b"x"));
        assert_eq!(acknowledgements(&line.to_client), [(Kind::Puback, 0x97, vec![])]);
    }
}

#[test]
fn attributes_that_cannot_be_read_are_told() {
    let mut line = v5();
    line.client(&publish(
        "a",
        1,
        1,
        &[("rt-priority", "9"), ("colour", "red")],
        b"x",
    ));
    let problems = line.events();
    assert!(matches!(&problems[..], [Event::Problems(told)] if told == &["rt-priority '9': use 0 to 7"]));
    line.broker(&puback(1));
    assert_eq!(
        said(&line.to_client, "rt-problem").as_deref(),
        Some("rt-priority '9': use 0 to 7")
    );
    assert_eq!(said(&line.to_client, "rt-granted"), None);
}

#[test]
fn a_verdict_that_changes_is_told_with_the_next_acknowledgement() {
    let mut line = v5();
    line.client(&publish("a", 1, 1, MILD, b"x"));
    line.decide(1, 1, granted(1));
    line.broker(&puback(1));
    line.forget();
    line.decide(
        1,
        1,
        Verdict::Unavailable {
            reason: "a link is down".to_owned(),
        },
    );
    assert!(line.events().contains(&Event::Class(0)));
    for (id, told) in [(2, Some("unavailable: a link is down")), (3, None)] {
        line.client(&publish("a", 1, id, &[], b"x"));
        line.broker(&puback(id));
        assert_eq!(said(&line.to_client, "rt-reason").as_deref(), told);
        line.forget();
    }
}

#[test]
fn topics_that_share_the_connection_are_named() {
    let mut line = v5();
    line.client(&publish("a", 1, 1, MILD, b"x"));
    let verdict = Verdict::Granted {
        class: timebound_model::Class(2),
        bound_ns: None,
        reason: String::new(),
        shared_with: vec!["b".to_owned(), "c".to_owned()],
    };
    line.decide(1, 1, verdict);
    line.broker(&puback(1));
    let shared = &acknowledgements(&line.to_client)[0].2;
    let shared: Vec<_> = shared.iter().filter(|(key, _)| key == "rt-shared-with").collect();
    assert_eq!(shared.len(), 2);
}

#[test]
fn the_broker_chooses_a_name() {
    let mut line = Line::new();
    let anonymous = packet(0x10, &[&text("MQTT"), &[5, 2, 0, 60, 0], &text("")]);
    line.client(&anonymous);
    let chosen = sized(&[vec![0x12], text("auto-1")].concat());
    line.broker(&packet(0x20, &[&[0, 0], &chosen]));
    assert_eq!(
        line.session.client().map(|client| client.id.as_str()),
        Some("auto-1")
    );
    assert_eq!(
        crate::intermediary::next_flow_state(FlowState::Asked, crate::intermediary::FlowInput::Expire),
        FlowState::Late
    );
}

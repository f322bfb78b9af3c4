use super::support::*;
use crate::intermediary::{Event, Offence, Phase, Session, Step};
use timebound_model::Time;
use timebound_wire::mqtt::Kind;

fn v5() -> Line {
    Line::open(&connect(&[], &[]))
}

/// The client is told why, and nothing more goes on.
fn is_thrown_out(line: &mut Line, offence: Offence, kind: Kind) {
    assert_eq!(line.last, Step::End);
    assert_eq!(line.session.phase(), Phase::Closing);
    assert!(line.events().contains(&Event::Offence(offence)));
    assert_eq!(
        acknowledgements(&line.to_client),
        [(kind, offence.reason(), vec![])]
    );
    line.forget();
    line.client(&publish("a", 0, 0, &[], b"x"));
    line.broker(&[0xd0, 0]);
    assert_eq!((line.to_broker.len(), line.to_client.len()), (0, 0));
}

#[test]
fn bytes_in_which_no_packet_ends() {
    let good = publish("a", 0, 0, &[], b"x");
    // Whatever the first byte is.
    for bad in [
        &[0x30, 0xff, 0xff, 0xff, 0xff][..],
        &[0x29, 0xff, 0xff, 0xff, 0xff],
    ] {
        let mut line = v5();
        line.client(&[&good, bad].concat());
        assert_eq!(line.to_broker, good);
        is_thrown_out(&mut line, Offence::Malformed, Kind::Disconnect);
    }
}

#[test]
fn types_and_flags_that_are_none_are_the_brokers_to_judge() {
    for bad in [
        &[0x01, 0][..],
        &[0x29, 2, 0, 1],
        &[0x83, 0],
        &[0x36, 0],
        &[0xe1, 0],
    ] {
        let mut line = v5();
        let good = publish("a", 0, 0, &[], b"x");
        line.client(&[&good, bad, &good].concat());
        assert_eq!(line.to_broker, [&good, bad, &good].concat());
        // mosquitto closes without a word after some of them, before it has read what follows: so do we.
        line.session.broker_gone();
        line.turn();
        assert_eq!((&line.to_client[..], &line.last), (&[][..], &Step::End));
        assert!(line.events().is_empty());
    }
}

#[test]
fn headers_and_packets_that_are_too_large() {
    let flood: Vec<(&str, &str)> = vec![("colour", "red"); 100_000];
    let topic = "x".repeat(5_000);
    for bad in [
        publish("a", 1, 1, &flood, b"x"),
        publish(&topic, 1, 1, &[], b"x"),
        publish("a", 0, 0, &[], &vec![0; 100_001]),
        subscribe(1, &flood, &["a"]),
    ] {
        let mut line = v5();
        // It is known before it is there.
        line.client(&bad[..4_500]);
        is_thrown_out(&mut line, Offence::TooLarge, Kind::Disconnect);
    }
    let mut line = Line::new();
    line.client(&connect(&[], &flood)[..1_000]);
    is_thrown_out(&mut line, Offence::TooLarge, Kind::Connack);
}

/// All five fields of a CONNECT with 65,535 bytes.
fn largest_connect(version: u8, pairs: Pairs<'_>) -> Vec<u8> {
    let properties = |pairs| match version {
        5 => sized(&user(pairs)),
        _ => vec![],
    };
    let field = text(&"x".repeat(65_535));
    let fields = [&field[..], &properties(&[]), &field, &field, &field, &field].concat();
    packet(
        0x10,
        &[
            &text("MQTT"),
            &[version, 0b1100_0110, 0, 60],
            &properties(pairs),
            &fields,
        ],
    )
}

#[test]
fn a_connect_with_the_longest_fields_of_the_standard_goes_on() {
    let (some, many) = ("x".repeat(4_000), "x".repeat(5_000));
    for connect in [
        largest_connect(4, &[]),
        largest_connect(5, &[]),
        largest_connect(5, &[("k", &some)]),
    ] {
        let mut line = Line::new();
        line.limits.packet_bytes = 1_000_000;
        line.client(&connect);
        assert!(line.to_broker == connect, "{}", connect.len());
        assert_eq!(line.session.client().map(|client| client.id.len()), Some(65_535));
    }
    // Properties are what a header may have, and known to be too long before they are there.
    let mut line = Line::new();
    line.limits.packet_bytes = 1_000_000;
    line.client(&largest_connect(5, &[("k", &many)])[..1_000]);
    is_thrown_out(&mut line, Offence::TooLarge, Kind::Connack);
}

#[test]
fn too_many_requests_and_too_many_in_a_second() {
    for (pause, offence, most) in [(0, Offence::Rate, 20), (1_000_000_000, Offence::Quota, 8)] {
        let mut line = v5();
        line.control = false;
        line.limits.requests = if pause == 0 { 100 } else { 8 };
        let mut asked = 0;
        for number in 0..200 {
            line.now = Time(line.now.0 + pause);
            line.client(&publish(&format!("t/{number}"), 0, 0, MILD, b"x"));
            let events = line.events();
            asked += events
                .iter()
                .filter(|event| matches!(event, Event::Ask { .. }))
                .count();
            if events.contains(&Event::Offence(offence)) {
                break;
            }
        }
        assert!((most..=most + 1).contains(&asked), "{asked}");
        assert_eq!(
            acknowledgements(&line.to_client),
            [(Kind::Disconnect, offence.reason(), vec![])]
        );
    }
}

#[test]
fn aliases_for_more_than_is_kept() {
    let mut line = v5();
    let alias = |number: u8| {
        publish_with(
            &format!("topic/of/thirty/bytes/{number:07}"),
            0,
            0,
            &[0x23, 0, number],
            b"x",
        )
    };
    // The same again costs nothing.
    line.client(&[alias(1), alias(1), alias(2), alias(1), alias(2)].concat());
    assert_eq!(line.session.phase(), Phase::Open);
    line.client(&[alias(3), alias(4)].concat());
    is_thrown_out_of(&line, Offence::Quota);
}

fn is_thrown_out_of(line: &Line, offence: Offence) {
    let answers = acknowledgements(&line.to_client);
    assert_eq!(answers, [(Kind::Disconnect, offence.reason(), vec![])]);
}

#[test]
fn a_last_packet_waits_for_the_end_of_the_one_that_is_under_way() {
    let mut line = v5();
    let message = publish("a", 0, 0, &[], &[1; 50]);
    line.broker(&message[..20]);
    line.client(&[0x30, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(line.to_client, message[..20]);
    line.broker(&[&message[20..], &message].concat());
    assert_eq!(line.to_client, [&message[..], &[0xe0, 1, 0x81]].concat());
}

#[test]
fn what_is_refused_and_not_read_stops_the_client_who_causes_it() {
    let mut line = v5();
    let mut hidden = Line::open(&connect(&[], &[]));
    std::mem::swap(&mut line, &mut hidden);
    line.client(&publish("a", 1, 1, STRICT, b"x"));
    line.decide(1, 1, refused());
    // A client that does not read: its direction never comes to be asked.
    let flood: Vec<u8> = (2..4_000)
        .flat_map(|id| publish("a", 1, id, STRICT, b"x"))
        .collect();
    let context = crate::intermediary::Context {
        now: line.now,
        control: true,
        limits: &line.limits,
        groups: None,
        interests: true,
        connection: 0,
    };
    let (mut at, mut last) = (0, Step::More);
    while at < flood.len() {
        last = line.session.client_bytes(&flood[at..], &context);
        match last {
            Step::Forward(count) | Step::Replace { take: count, .. } => at += count,
            _ => break,
        }
    }
    assert_eq!(last, Step::Hold);
    assert!(at < flood.len() && line.session.has_insert());
}

#[test]
fn a_first_packet_that_is_not_understood_is_the_brokers_to_judge() {
    for first in [
        &[0xc0, 0][..],
        b"GET / HTTP/1.1\r\n",
        &packet(0x10, &[&text("MQTT"), &[9, 2, 0, 0]]),
        &[0x10, 0xff, 0xff, 0xff, 0xff],
    ] {
        let mut line = Line::new();
        line.client(first);
        assert_eq!(line.session.phase(), Phase::Tunnel, "{first:?}");
        line.broker(b"anything");
        line.client(b" more");
        assert_eq!(line.to_broker, [first, b" more"].concat());
        assert_eq!(line.to_client, b"anything");
        // Unless the manager answers for who it is.
        let mut session = Session::new(Some("press-1"));
        let context = crate::intermediary::Context {
            now: Time(0),
            control: true,
            limits: &limits(),
            groups: None,
            interests: true,
            connection: 0,
        };
        let mut at = 0;
        loop {
            match session.client_bytes(&first[at..], &context) {
                Step::Replace { take, with } if with.is_empty() => at += take,
                step => {
                    assert_eq!(step, Step::End);
                    break;
                }
            }
        }
        assert_eq!(session.broker(&[], &context), Step::End);
    }
}

#[test]
fn a_certificate_names_the_user() {
    for connect in [connect(&[], MILD), connect_3()] {
        let mut line = Line::new();
        line.session = Session::new(Some("press-1"));
        line.client(&connect);
        let found = timebound_wire::mqtt::Connect::read(&line.to_broker[2..]).unwrap();
        assert_eq!((found.user, found.client_id), (Some("press-1"), "press"));
        assert_eq!(
            line.session.client().and_then(|client| client.user.as_deref()),
            Some("press-1")
        );
    }
}

#[test]
fn a_broker_that_is_not_there_or_goes() {
    for (first, expected) in [
        (connect(&[], &[]), &[0x20, 3, 0, 0x88, 0][..]),
        (connect_3(), &[0x20, 2, 0, 3]),
    ] {
        let mut session = Session::new(None);
        let limits = limits();
        let context = crate::intermediary::Context {
            now: Time(0),
            control: true,
            limits: &limits,
            groups: None,
            interests: true,
            connection: 0,
        };
        assert_eq!(session.client_bytes(&first, &context), Step::Dial);
        session.unreachable();
        assert_eq!(
            session.broker(&[], &context),
            Step::Replace {
                take: 0,
                with: expected.to_vec()
            }
        );
        assert_eq!(session.broker(&[], &context), Step::End);
        assert_eq!(session.client_bytes(&first, &context), Step::End);
    }
    for (first, expected) in [(connect(&[], &[]), &[0xe0, 1, 0x8b][..]), (connect_3(), &[])] {
        let mut line = Line::open(&first);
        line.session.broker_gone();
        line.turn();
        assert_eq!((&line.to_client[..], &line.last), (expected, &Step::End));
    }
    // A broker that just closes (mosquitto, when another client takes the session over) says nothing, and neither do we.
    let mut line = v5();
    line.session.broker_closed();
    line.turn();
    assert_eq!((&line.to_client[..], &line.last), (&[][..], &Step::End));
    // Nobody waits any more for what was held.
    let mut line = v5();
    line.client(&publish("a", 1, 1, STRICT, b"x"));
    assert!(line.session.timeout().is_some());
    line.session.broker_gone();
    assert_eq!(line.session.timeout(), None);
    // Who said good-bye is told nothing more.
    let mut line = v5();
    line.client(&[0xe0, 0]);
    line.session.broker_gone();
    line.turn();
    assert!(line.to_client.is_empty());
}

#[test]
fn bytes_of_the_broker_that_are_no_packets() {
    let mut line = v5();
    line.broker(&[0xd0, 0, 0xff, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(line.to_client, [0xd0, 0, 0xe0, 1, 0x8b]);
    assert!(line.events().contains(&Event::BrokenBroker));
}

//! The client against a broker that the test plays.

use super::*;
use timebound_wire::mqtt::{Connect, Publish, Version};

fn token(end: u64) -> Token {
    Token {
        peer: 0,
        stream: StreamId { life: 1, number: 1 },
        end,
        key: end,
    }
}

fn message(qos: u8, text: &str) -> Vec<u8> {
    [&[0x30 | qos << 1, 0, 1, b't', 0], text.as_bytes()].concat()
}

/// Kind, identifier, DUP and payload of each packet.
fn said(injector: &mut Injector) -> Vec<(Kind, u16, bool, String)> {
    let output = injector.take_output();
    let (mut rest, mut found) = (&output[..], Vec::new());
    while let Some((head, body)) = mqtt::next(rest).unwrap() {
        rest = &rest[head.whole()..];
        found.push(match head.kind {
            Kind::Publish => {
                let publish = Publish::read(&head, body, Version::V5).unwrap();
                let text = String::from_utf8(publish.payload.to_vec()).unwrap();
                (head.kind, publish.packet, publish.duplicate, text)
            }
            Kind::Connect => {
                let connect = Connect::read(body).unwrap();
                (head.kind, 0, connect.clean, String::new())
            }
            _ => (
                head.kind,
                u16::from_be_bytes([body[0], body[1]]),
                false,
                String::new(),
            ),
        });
    }
    found
}

fn publish(identifier: u16, again: bool, text: &str) -> (Kind, u16, bool, String) {
    (Kind::Publish, identifier, again, text.to_owned())
}

/// Connected to a broker that has the session or not, and takes two messages at a time.
fn connect(injector: &mut Injector, session: u8) -> Vec<Effect> {
    let mut effects = Vec::new();
    injector.connected();
    assert_eq!(said(injector)[0].0, Kind::Connect);
    let connack = [0x20, 6, session, 0, 3, 0x21, 0, 2];
    injector.bytes(&connack, &mut effects).unwrap();
    effects
}

fn answer(injector: &mut Injector, kind: u8, identifier: u8, reason: u8) -> Vec<Effect> {
    let mut effects = Vec::new();
    injector
        .bytes(&[kind << 4, 3, 0, identifier, reason], &mut effects)
        .unwrap();
    effects
}

fn client() -> Injector {
    Injector::new("timebound/m1/5".to_owned(), None, None)
}

#[test]
fn each_quality_has_its_handshake_and_the_window_is_kept() {
    let mut client = client();
    let mut effects = Vec::new();
    client.deliver(token(1), message(1, "one"), &mut effects);
    client.deliver(token(2), message(2, "two"), &mut effects);
    client.deliver(token(3), message(1, "three"), &mut effects);
    assert!(effects.is_empty());
    let packet = 2;
    let record = Effect::Record(Record::Published {
        packet,
        token: token(2),
    });
    assert_eq!(connect(&mut client, 0), [record]);
    assert_eq!(
        said(&mut client),
        [publish(1, false, "one"), publish(2, false, "two")]
    );
    assert_eq!(answer(&mut client, 4, 1, 0), [Effect::Taken(token(1))]);
    assert_eq!(said(&mut client), [publish(3, false, "three")]);
    let released = Effect::Record(Record::Released { packet });
    assert_eq!(answer(&mut client, 5, 2, 0), [released]);
    assert_eq!(said(&mut client)[0], (Kind::Pubrel, 2, false, String::new()));
    let completed = Effect::Record(Record::Completed {
        packet,
        delivered: true,
    });
    assert_eq!(answer(&mut client, 7, 2, 0), [completed, Effect::Taken(token(2))]);
    assert_eq!(answer(&mut client, 4, 3, 0x87), [Effect::Refused(token(3), 0x87)]);
    assert_eq!(client.pending(), 0);
}

#[test]
fn what_was_in_flight_goes_on_over_a_new_connection() {
    for has_session in [true, false] {
        let mut client = client();
        connect(&mut client, 0);
        let mut effects = Vec::new();
        client.deliver(token(1), message(2, "one"), &mut effects);
        client.deliver(token(2), message(2, "two"), &mut effects);
        answer(&mut client, 5, 1, 0);
        said(&mut client);
        client.disconnected(None, &mut effects);
        let effects = connect(&mut client, u8::from(has_session));
        if has_session {
            // Carefully, one at a time, since one of them may be to blame.
            assert_eq!(said(&mut client), [(Kind::Pubrel, 1, false, String::new())]);
            answer(&mut client, 7, 1, 0);
        } else {
            // It had been given to the broker (4.3.3), which has lost it.
            assert!(effects.contains(&Effect::Taken(token(1))), "{effects:?}");
        }
        assert_eq!(said(&mut client), [publish(2, has_session, "two")]);
    }
}

#[test]
fn a_session_that_nobody_knows_of_is_ended_first() {
    let mut client = client();
    client.connected();
    assert!(!said(&mut client)[0].2, "Clean Start");
    let connack = [0x20, 3, 1, 0, 0];
    assert_eq!(client.bytes(&connack, &mut Vec::new()), Err(Ending::Again));
    client.disconnected(Some(Ending::Again), &mut Vec::new());
    client.connected();
    assert!(said(&mut client)[0].2, "Clean Start");
    assert_eq!(
        client.bytes(&[0x20, 3, 0, 0, 0], &mut Vec::new()),
        Err(Ending::Again)
    );
    client.disconnected(Some(Ending::Again), &mut Vec::new());
    connect(&mut client, 0);
    assert!(client.is_up());
}

#[test]
fn a_message_of_a_former_life_keeps_its_identifier() {
    let mut client = client();
    client.resume_published(0, 7, 1);
    client.resume_released(2);
    connect(&mut client, 1);
    assert_eq!(said(&mut client), [(Kind::Pubrel, 2, false, String::new())]);
    let mut effects = Vec::new();
    answer(&mut client, 7, 2, 0x92);
    client.deliver(token(9), message(2, "new"), &mut effects);
    client.deliver(token(7), message(2, "old"), &mut effects);
    assert_eq!(
        said(&mut client),
        [publish(2, false, "new"), publish(1, true, "old")]
    );
}

#[test]
fn a_message_that_ends_connections_is_found_and_refused_and_no_other() {
    let mut client = client();
    let mut effects = Vec::new();
    for end in 1..=3 {
        client.deliver(token(end), message(1, &end.to_string()), &mut effects);
    }
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for round in 0..30 {
        let mut effects = connect(&mut client, u8::from(round > 0));
        let mut ended = false;
        while !ended && client.pending() > 0 {
            for (_, identifier, _, text) in said(&mut client) {
                if text == "2" {
                    client.disconnected(None, &mut effects);
                    ended = true;
                    break;
                }
                effects.extend(answer(&mut client, 4, identifier as u8, 0));
            }
        }
        for effect in effects {
            match effect {
                Effect::Taken(token) => taken.push(token.end),
                Effect::Refused(token, _) => refused.push(token.end),
                _ => {}
            }
        }
    }
    taken.sort_unstable();
    assert_eq!((taken, refused), (vec![1, 3], vec![2]));
}

#[test]
fn what_the_broker_does_not_take_is_not_sent() {
    let mut client = client();
    client.connected();
    said(&mut client);
    // Packets of 20 bytes at most, no QoS 2, nothing retained.
    let connack = [0x20, 12, 0, 0, 9, 0x27, 0, 0, 0, 20, 0x24, 1, 0x25, 0];
    let mut effects = Vec::new();
    client.bytes(&connack, &mut effects).unwrap();
    client.deliver(token(1), message(1, &"x".repeat(30)), &mut effects);
    assert_eq!(effects, [Effect::Refused(token(1), 0x95)]);
    let mut retained = message(2, "y");
    retained[0] |= 1;
    client.deliver(token(2), retained, &mut effects);
    let output = client.take_output();
    assert_eq!(output[0], 0x32);
}

#[test]
fn without_a_connection_quality_0_is_dropped() {
    let mut client = client();
    let mut effects = Vec::new();
    client.pass(&message(0, "x"), &mut effects);
    assert_eq!(effects, [Effect::Dropped]);
    connect(&mut client, 0);
    client.pass(&message(0, "x"), &mut effects);
    assert_eq!(said(&mut client), [publish(0, false, "x")]);
    assert_eq!(effects.len(), 1);
}

#[test]
fn a_broker_that_breaks_the_rules_is_left() {
    let ends = |bytes: &[u8]| {
        let mut client = client();
        client.connected();
        client.bytes(bytes, &mut Vec::new()).unwrap_err()
    };
    assert_eq!(ends(&[0x20, 3, 0, 0x87, 0]), Ending::Refused(0x87));
    assert!(matches!(ends(&[0x20, 2, 0, 5]), Ending::Malformed(_)));
    assert_eq!(ends(&[0x40, 2, 0, 1]), Ending::Protocol);
    assert_eq!(ends(&[0xe0, 1, 0x8b]), Ending::Disconnected(0x8b));
}

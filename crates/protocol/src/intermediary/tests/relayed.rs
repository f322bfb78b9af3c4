//! Messages for networks that no group reaches, and what clients of this one are subscribed to.

use super::support::*;
use crate::intermediary::{Group, Groups, Outgoing, Relay, Room};
use std::sync::Arc;

fn relay(number: u32, interests: &[&str]) -> Relay {
    Relay {
        number,
        interests: interests.iter().map(|one| (*one).to_owned()).collect(),
        room: Arc::new(Room::default()),
    }
}

fn group(number: u32, topic: &str) -> Group {
    Group {
        number,
        topic: topic.to_owned(),
        priority: 5,
        owner: None,
        room: Arc::new(Room::default()),
    }
}

fn outgoing(line: &mut Line) -> Vec<Outgoing> {
    std::iter::from_fn(|| line.session.poll_outgoing()).collect()
}

/// Group and relays of each message.
fn routes(line: &mut Line) -> Vec<(Option<u32>, Vec<u32>)> {
    let told = outgoing(line).into_iter().filter_map(|one| match one {
        Outgoing::Message { group, relays, .. } => Some((group, relays)),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_message_goes_to_its_group_and_to_whoever_is_interested_and_its_answer_waits_once() {
    let mut line = Line::open(&connect(&[], &[]));
    let relays = vec![relay(2, &["plant/#"]), relay(4, &["x", "plant/b"])];
    line.groups = Some(Groups::new(vec![group(8, "plant/a")], relays));
    for (topic, expected) in [
        ("plant/a", Some((Some(8), vec![2]))),
        ("plant/b", Some((None, vec![2, 4]))),
        ("x", Some((None, vec![4]))),
        ("y", None),
    ] {
        line.client(&publish(topic, 1, 5, &[], b"hello"));
        assert_eq!(routes(&mut line), Vec::from_iter(expected.clone()), "{topic}");
        line.broker(&puback(5));
        assert_eq!(line.to_client.is_empty(), expected.is_some(), "{topic}");
        line.session.taken(5);
        line.turn();
        assert_eq!(line.to_client, puback(5), "{topic}");
        line.forget();
    }
    // Nobody has asked for a broker's own names, whatever the filter is.
    line.groups = Some(Groups::new(vec![], vec![relay(2, &["#", "+/a"])]));
    line.client(&publish("$own/a", 0, 0, &[], b"x"));
    assert!(routes(&mut line).is_empty());
}

#[test]
fn a_relay_that_is_full_holds_back_who_has_no_group_and_nobody_else() {
    let mut line = Line::open(&connect(&[], &[]));
    let full = relay(2, &["#"]);
    full.room.set(false);
    let room = Arc::clone(&full.room);
    line.groups = Some(Groups::new(vec![group(8, "a")], vec![full]));
    line.client(&publish("a", 1, 1, &[], b"x"));
    assert_eq!(routes(&mut line), [(Some(8), vec![2])]);
    line.forget();
    line.client(&publish("b", 1, 2, &[], b"x"));
    assert!(routes(&mut line).is_empty() && line.to_broker.is_empty());
    room.set(true);
    line.turn();
    assert_eq!(routes(&mut line), [(None, vec![2])]);
}

fn suback_3(identifier: u16, codes: &[u8]) -> Vec<u8> {
    packet(0x90, &[&identifier.to_be_bytes(), codes])
}

#[test]
fn what_the_broker_accepts_is_told_until_it_is_taken_back() {
    for is_old in [false, true] {
        let mut line = Line::new();
        line.interests = true;
        line.client(&if is_old { connect_3() } else { connect(&[], &[]) });
        line.broker(if is_old { &[0x20, 2, 0, 0] } else { CONNACK });
        let greeted = Outgoing::Greeted {
            client_id: "press".to_owned(),
            resumed: false,
            expiry_s: 0,
        };
        assert_eq!(outgoing(&mut line), [greeted]);
        line.forget();
        let filters: Vec<u8> = ["a", "b/#", "c"]
            .iter()
            .flat_map(|one| [text(one), vec![1]].concat())
            .collect();
        let (asked, answer) = match is_old {
            true => (packet(0x82, &[&[0, 3], &filters]), suback_3(3, &[1, 0x80, 0])),
            false => (subscribe(3, &[], &["a", "b/#", "c"]), suback(3, &[1, 0x87, 0])),
        };
        let (first, last) = asked.split_at(6);
        line.client(first);
        line.client(last);
        assert!(outgoing(&mut line).is_empty() && line.to_broker == asked);
        line.broker(&answer);
        assert_eq!(line.to_client, answer);
        let filters = vec!["a".to_owned(), "c".to_owned()];
        assert_eq!(outgoing(&mut line), [Outgoing::Subscribed { filters }]);
        line.client(&match is_old {
            true => packet(0xa2, &[&[0, 4], &text("a")]),
            false => unsubscribe(4, "a"),
        });
        let filters = vec!["a".to_owned()];
        assert_eq!(outgoing(&mut line), [Outgoing::Unsubscribed { filters }]);
        // Too long to be looked at: it may be anything.
        if is_old {
            let long = "x".repeat(line.limits.header_bytes);
            let asked = packet(0x82, &[&[0, 5], &text(&long), &[0]]);
            line.client(&asked[..100]);
            let filters = vec!["#".to_owned()];
            assert_eq!(outgoing(&mut line), [Outgoing::Subscribed { filters }]);
        }
    }
}

#[test]
fn who_reads_no_answers_to_subscriptions_takes_little_memory() {
    let mut line = Line::new();
    line.interests = true;
    line.client(&connect(&[], &[]));
    line.broker(CONNACK);
    outgoing(&mut line);
    let long = "x".repeat(3_000);
    for packet in 1..=100 {
        line.client(&subscribe(packet, &[], &[&long]));
    }
    // 64 KiB wait for their answers; the others count at once.
    assert_eq!(outgoing(&mut line).len(), 79);
    line.broker(&suback(1, &[0]));
    line.broker(&suback(50, &[0]));
    assert_eq!(
        outgoing(&mut line),
        [Outgoing::Subscribed { filters: vec![long] }]
    );
}

#[test]
fn a_session_that_goes_on_is_told_with_how_long_it_stays() {
    let expiry = [0x11, 0, 0, 0, 60];
    let mut line = Line::new();
    line.interests = true;
    line.client(&connect(&expiry, &[]));
    // The broker takes the session up, and keeps it for 9 s.
    line.broker(&packet(0x20, &[&[1, 0], &sized(&[0x11, 0, 0, 0, 9])]));
    let greeted = Outgoing::Greeted {
        client_id: "press".to_owned(),
        resumed: true,
        expiry_s: 9,
    };
    assert_eq!(outgoing(&mut line), [greeted]);
    // Nobody asks: nothing is told.
    let mut line = Line::open(&connect(&expiry, &[]));
    line.client(&subscribe(3, &[], &["a"]));
    line.broker(&suback(3, &[0]));
    assert!(outgoing(&mut line).is_empty());
}

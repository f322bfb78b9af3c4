//! Messages for other networks: copies, and acknowledgements that wait for members.

use super::support::*;
use crate::intermediary::{Group, Groups, Outgoing, Room, Step};
use crate::peer::message::{self, Message};
use proptest::prelude::*;
use std::sync::Arc;

fn group(number: u32, topic: &str, priority: u8, owner: Option<u64>) -> Group {
    Group {
        number,
        topic: topic.to_owned(),
        priority,
        owner,
        room: Arc::new(Room::default()),
    }
}

fn line(connect: &[u8], groups: Vec<Group>) -> Line {
    let mut line = Line::open(connect);
    line.groups = Some(Groups::new(groups, vec![]));
    line
}

fn outgoing(line: &mut Line) -> Vec<Outgoing> {
    std::iter::from_fn(|| line.session.poll_outgoing()).collect()
}

/// Group, QoS, topic, payload of each message.
fn messages(line: &mut Line) -> Vec<(u32, u8, String, Vec<u8>)> {
    let told = outgoing(line).into_iter().filter_map(|one| match one {
        Outgoing::Message {
            group, qos, message, ..
        } => {
            let read = Message::read(&message).unwrap();
            assert_eq!(read.qos(), qos);
            Some((group.unwrap(), qos, read.topic.to_owned(), read.payload.to_vec()))
        }
        _ => None,
    });
    told.collect()
}

#[test]
fn a_message_goes_to_its_broker_as_it_came_and_to_the_group_when_it_is_whole() {
    for connect in [connect(&[], &[]), connect_3()] {
        let mut line = line(&connect, vec![group(3, "plant/+", 5, None)]);
        let packet = match connect == connect_3() {
            true => packet(0x32, &[&text("plant/a"), &[0, 9], b"hello"]),
            false => publish("plant/a", 1, 9, &[("k", "v")], b"hello"),
        };
        let (first, last) = packet.split_at(packet.len() - 2);
        line.client(first);
        assert!(outgoing(&mut line).is_empty());
        line.client(last);
        assert_eq!(line.to_broker, packet);
        let expected = (3, 1, "plant/a".to_owned(), b"hello".to_vec());
        assert_eq!(messages(&mut line), [expected]);
        // What is for no group passes, and is nobody's business.
        line.client(&publish("other", 0, 0, &[], b"x"));
        assert!(outgoing(&mut line).is_empty());
    }
}

#[test]
fn an_acknowledgement_waits_for_the_members_and_those_behind_it_for_their_turn() {
    let mut line = line(&connect(&[], &[]), vec![group(0, "a", 5, None)]);
    line.client(&publish("a", 1, 1, &[], b"x"));
    line.client(&publish("b", 1, 2, &[], b"x"));
    line.client(&publish("a", 2, 3, &[], b"x"));
    line.broker(&puback(1));
    line.broker(&puback(2));
    line.broker(&packet(0x50, &[&[0, 3]]));
    // What is no acknowledgement of a PUBLISH does not wait.
    line.broker(&[0xd0, 0]);
    assert_eq!(line.to_client, [0xd0, 0]);
    line.forget();
    line.session.taken(1);
    line.turn();
    assert_eq!(line.to_client, [puback(1), puback(2)].concat());
    line.forget();
    line.session.taken(3);
    line.turn();
    assert_eq!(line.to_client, packet(0x50, &[&[0, 3]]));
    // Taken before the broker has said anything: nothing waits.
    line.forget();
    line.client(&publish("a", 1, 4, &[], b"x"));
    line.session.taken(4);
    line.broker(&puback(4));
    assert_eq!(line.to_client, puback(4));
}

#[test]
fn an_answer_to_a_request_is_in_the_acknowledgement_that_waited() {
    let mut line = line(&connect(&[], &[]), vec![group(0, "a", 5, None)]);
    line.client(&publish("a", 1, 1, MILD, b"x"));
    assert_eq!(line.last, Step::Hold);
    assert!(line.session.verdict(1, 1, granted(5)));
    line.turn();
    assert_eq!(messages(&mut line).len(), 1);
    line.broker(&puback(1));
    assert!(line.to_client.is_empty());
    line.session.taken(1);
    line.turn();
    let said = String::from_utf8_lossy(&line.to_client).into_owned();
    assert!(said.contains("rt-granted") && said.contains("rt-class"), "{said}");
}

#[test]
fn a_refused_message_goes_nowhere() {
    let mut line = line(&connect(&[], &[]), vec![group(0, "a", 5, None)]);
    line.client(&publish("a", 1, 1, STRICT, b"x"));
    line.session.verdict(1, 1, refused());
    line.turn();
    assert!(line.to_broker.is_empty() && outgoing(&mut line).is_empty());
}

#[test]
fn without_room_a_message_waits_and_so_does_what_is_behind_it() {
    let full = group(0, "a", 5, None);
    let room = Arc::clone(&full.room);
    assert!(room.set(false) && !room.set(false));
    let mut line = line(&connect(&[], &[]), vec![full]);
    line.client(&publish("b", 0, 0, &[], b"before"));
    line.client(&publish("a", 0, 0, &[], b"x"));
    line.client(&publish("b", 0, 0, &[], b"behind"));
    assert_eq!(line.to_broker, publish("b", 0, 0, &[], b"before"));
    assert_eq!(line.last, Step::Hold);
    assert!(room.set(true));
    line.turn();
    assert_eq!(line.waiting(), 0);
    assert_eq!(messages(&mut line).len(), 1);
}

#[test]
fn what_the_owner_has_not_got_yet_takes_room_as_well() {
    let fast = group(0, "a", 5, None);
    let room = Arc::clone(&fast.room);
    let mut line = line(&connect(&[], &[]), vec![fast]);
    for id in 1..=10 {
        line.client(&publish("a", 1, id, &[], &[0; 60_000]));
    }
    let told = messages(&mut line).len();
    assert!((4..=6).contains(&told), "{told}");
    assert_eq!(line.last, Step::Hold);
    // As soon as there is room for another one, and no sooner.
    while !room.arrived(30_000) {
        line.turn();
        assert!(messages(&mut line).is_empty());
    }
    line.turn();
    assert_eq!(messages(&mut line).len(), 1);
}

#[test]
fn before_the_broker_accepts_a_client_nothing_of_it_goes_to_a_group() {
    let mut line = Line::new();
    line.groups = Some(Groups::new(vec![group(0, "a", 5, None)], vec![]));
    line.client(&connect(&[], &[]));
    line.client(&publish("a", 0, 0, &[], b"x"));
    assert!(line.waiting() > 0 && outgoing(&mut line).is_empty());
    line.broker(CONNACK);
    line.turn();
    assert_eq!(messages(&mut line).len(), 1);
}

#[test]
fn an_alias_is_resolved() {
    let mut line = line(&connect(&[], &[]), vec![group(0, "a/#", 5, None)]);
    line.client(&publish_with("a/b", 1, 1, &[0x23, 0, 1], b"one"));
    line.client(&publish_with("", 1, 2, &[0x23, 0, 1], b"two"));
    let told = messages(&mut line);
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|(_, _, topic, _)| topic == "a/b"));
}

#[test]
fn one_group_carries_a_message_the_clients_own_before_the_most_urgent() {
    let groups = vec![
        group(1, "a", 3, None),
        group(2, "a", 6, None),
        group(3, "+", 1, Some(7)),
        group(4, "a", 7, Some(8)),
    ];
    let mut own = line(&connect(&[], &[]), groups.clone());
    own.client(&publish("a", 0, 0, &[], b"x"));
    let mut other = line(
        &connect(&[], &[]),
        groups.into_iter().filter(|group| group.number != 3).collect(),
    );
    other.client(&publish("a", 0, 0, &[], b"x"));
    assert_eq!((messages(&mut own)[0].0, messages(&mut other)[0].0), (3, 4));
}

#[test]
fn keys_are_those_of_client_and_packet_and_go_with_the_release() {
    let mut line = line(&connect(&[], &[]), vec![group(0, "a", 5, None)]);
    line.client(&publish("a", 2, 3, &[], b"x"));
    line.client(&publish("a", 1, 4, &[], b"x"));
    line.client(&packet(0x62, &[&[0, 3]]));
    let keys: Vec<u64> = outgoing(&mut line)
        .iter()
        .map(|one| match one {
            Outgoing::Message { key, .. } | Outgoing::Release { key } => *key,
            other => panic!("{other:?}"),
        })
        .collect();
    let key = message::key("press", 3);
    assert_eq!(keys, [key, 0, key]);
    // A broker that does not want it ends it: no PUBREL comes.
    line.client(&publish("a", 2, 5, &[], b"x"));
    outgoing(&mut line);
    line.broker(&packet(0x50, &[&[0, 5, 0x87]]));
    assert_eq!(
        outgoing(&mut line),
        [Outgoing::Release {
            key: message::key("press", 5)
        }]
    );
}

proptest! {
    #[test]
    fn however_bytes_are_cut_copies_are_whole_and_in_order(
        sizes in proptest::collection::vec((0usize..3_000, any::<bool>(), 0u8..3), 1..12), cuts in proptest::collection::vec(1usize..2_000, 1..40),
    ) {
        let mut line = line(&connect(&[], &[]), vec![group(0, "a", 5, None)]);
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for (number, (size, to_group, qos)) in sizes.iter().enumerate() {
            let payload = vec![number as u8; *size];
            let topic = if *to_group { "a" } else { "b" };
            stream.extend(publish(topic, *qos, number as u16 + 1, &[], &payload));
            if *to_group {
                expected.push((0, *qos, "a".to_owned(), payload));
            }
        }
        let mut rest = &stream[..];
        for cut in cuts.iter().cycle() {
            let (piece, behind) = rest.split_at((*cut).min(rest.len()));
            line.client(piece);
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(&line.to_broker, &stream);
        prop_assert_eq!(messages(&mut line), expected);
    }
}

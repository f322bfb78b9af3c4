use super::super::packet::{Key, TCP, TcpSegment, UDP};
use super::*;
use proptest::prelude::*;
use timebound_wire::short;

fn plan(flow: u32, payload_bytes: u32, topic: Option<&str>) -> ShortPlan {
    ShortPlan {
        flow,
        payload_bytes,
        topic: topic.map(str::to_owned),
    }
}

fn packet(tcp: Option<(u32, bool)>, payload: &[u8]) -> Ipv4<'_> {
    Ipv4 {
        key: Key {
            source: 1,
            destination: 2,
            protocol: if tcp.is_some() { TCP } else { UDP },
            source_port: 3,
            destination_port: 4,
        },
        dscp: 0,
        identification: 0,
        more_fragments: false,
        later_fragment: false,
        tcp: tcp.map(|(sequence, syn)| TcpSegment {
            sequence,
            syn,
            ..TcpSegment::default()
        }),
        payload,
    }
}

/// A PUBLISH of QoS 1 and MQTT 5.
fn publish(topic: &str, sequence: u32, size: usize) -> Vec<u8> {
    let mut payload = vec![b'T'; size];
    short::write(sequence, &mut payload);
    let mut bytes = vec![0x32, (2 + topic.len() + 3 + size) as u8];
    bytes.extend((topic.len() as u16).to_be_bytes());
    bytes.extend(topic.as_bytes());
    bytes.extend([1, 2, 0]);
    bytes.extend(payload);
    bytes
}

/// CONNECT of 33 bytes, then messages with a PUBREL and a PINGREQ between them.
fn stream(size: usize, count: u32) -> Vec<u8> {
    let mut bytes = vec![0x10, 31];
    bytes.resize(33, 0);
    for sequence in 0..count {
        bytes.extend(publish("a/b", sequence, size));
        bytes.extend([0x62, 2, 0, 1]);
        bytes.extend([0xc0, 0]);
    }
    bytes
}

#[test]
fn short_messages_are_followed_across_segments_of_any_size() {
    for size in 0..24 {
        for cut in [1, 2, 5, 7, 20, 33, 100, 1448] {
            let mut messages = Messages::new(&[plan(7, size as u32, Some("a/b"))]);
            let bytes = stream(size, 300);
            let mut at = u32::MAX - 1000; // the sequence number wraps
            assert_eq!(
                messages.find(&packet(Some((at.wrapping_sub(1), true)), &[])),
                Found::default()
            );
            let mut seen = Vec::new();
            for segment in bytes.chunks(cut) {
                let found = messages.find(&packet(Some((at, false)), segment));
                let (Some((flow, first)), begins) = (found.first.or(Some((7, 0))), found.count) else {
                    unreachable!()
                };
                assert_eq!(flow, 7);
                if found.continued && begins == 0 {
                    seen.push(first);
                } else if found.continued {
                    seen.push(first - 1);
                }
                seen.extend((0..begins).map(|more| first + more));
                at = at.wrapping_add(segment.len() as u32);
            }
            seen.dedup();
            assert_eq!(
                seen,
                (0..300).collect::<Vec<_>>(),
                "{size} B in segments of {cut}"
            );
        }
    }
}

#[test]
fn what_is_sent_again_has_its_number_and_counts_once() {
    for size in [0, 1, 23] {
        let mut messages = Messages::new(&[plan(7, size as u32, Some("a/b"))]);
        let parts: Vec<_> = (0..4).map(|sequence| publish("a/b", sequence, size)).collect();
        let length = parts[0].len() as u32;
        let mut number = |part: usize, count: usize| {
            let bytes: Vec<u8> = parts[part..part + count].concat();
            let found = messages.find(&packet(Some((1000 + length * part as u32, false)), &bytes));
            (found.first.unwrap().1, found.count)
        };
        assert_eq!([number(0, 1), number(1, 1)], [(0, 1), (1, 1)]);
        assert_eq!(number(0, 1), (0, 1));
        // A segment that repeats one message and brings the next.
        assert_eq!(number(1, 2), (1, 2));
        assert_eq!(number(3, 1), (3, 1));
    }
}

#[test]
fn flows_of_one_connection_are_told_apart_by_topic() {
    let plans = [plan(1, 0, Some("a")), plan(2, 3, Some("b"))];
    let mut messages = Messages::new(&plans);
    let mut at = 0;
    let mut number = |bytes: &[u8]| {
        let found = messages.find(&packet(Some((at, false)), bytes));
        at += bytes.len() as u32;
        found.first
    };
    assert_eq!(number(&publish("a", 0, 0)), Some((1, 0)));
    assert_eq!(number(&publish("b", 0, 3)), Some((2, 0)));
    assert_eq!(number(&publish("other", 0, 3)), None);
    assert_eq!(number(&publish("a", 1, 0)), Some((1, 1)));
    assert_eq!(number(&publish("b", 1, 3)), Some((2, 1)));
}

#[test]
fn bytes_that_are_no_packets_or_missing_do_not_hide_the_next_message() {
    let mut messages = Messages::new(&[plan(7, 2, Some("a/b"))]);
    let mut at = 0u32;
    for bytes in [
        &[0u8; 40][..],
        &[0xff; 9],
        &[0x30, 0xff, 0xff, 0xff, 0x7f],
        &[0x30, 200, 1, 5],
    ] {
        assert_eq!(messages.find(&packet(Some((at, false)), bytes)).first, None);
        at += bytes.len() as u32 + 100;
        let next = publish("a/b", at, 2);
        let found = messages.find(&packet(Some((at, false)), &next));
        assert_eq!(found.count, 1);
        at += next.len() as u32;
    }
}

#[test]
fn datagrams_are_known_by_their_size() {
    for size in 0..24u32 {
        let mut messages = Messages::new(&[plan(5, size, None)]);
        for sequence in 0..600 {
            let mut payload = vec![0; size as usize];
            short::write(sequence, &mut payload);
            let found = messages.find(&packet(None, &payload));
            assert_eq!((found.first, found.count), (Some((5, sequence)), 1));
        }
        assert_eq!(messages.find(&packet(None, &[0; 30])), Found::default());
    }
}

#[test]
fn the_next_connection_of_a_bridge_goes_on_counting() {
    for size in [0, 1] {
        let mut messages = Messages::new(&[plan(7, size, Some("a/b"))]);
        let number = |messages: &mut Messages, sequence: u32| {
            let bytes = publish("a/b", sequence, size as usize);
            messages
                .find(&packet(Some((100 * sequence, false)), &bytes))
                .first
        };
        for sequence in 0..300 {
            assert_eq!(number(&mut messages, sequence), Some((7, sequence)));
        }
        let mut messages = Messages::after(&messages);
        assert_eq!(number(&mut messages, 300), Some((7, 300)));
    }
}

#[test]
fn a_thousand_messages_under_way_are_known_when_they_are_sent_again() {
    let mut messages = Messages::new(&[plan(7, 0, Some("a/b"))]);
    let bytes = publish("a/b", 0, 0);
    let at = |sequence: u32| 50 + bytes.len() as u32 * sequence;
    for again in [0, 1] {
        for sequence in 0..1000 {
            let found = messages.find(&packet(Some((at(sequence), false)), &bytes));
            assert_eq!(
                (found.first, found.count),
                (Some((7, sequence)), 1),
                "round {again}"
            );
        }
    }
}

proptest! {
    #[test]
    fn outside_bytes_never_panic(
        segments in proptest::collection::vec((any::<u32>(), any::<bool>(), proptest::collection::vec(any::<u8>(), 0..60)), 0..60),
    ) {
        let mut messages = Messages::new(&[plan(7, 2, Some("")), plan(8, 0, Some("a")), plan(9, 3, None)]);
        for (sequence, syn, payload) in segments {
            messages.find(&packet(Some((sequence, syn)), &payload));
            messages.find(&packet(None, &payload));
            prop_assert!(messages.begun.len() <= LONGEST + payload.len());
        }
    }
}

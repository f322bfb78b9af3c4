use super::super::packet::{TCP, TcpSegment, UDP};
use super::*;

const DATA: u32 = 10;
const ACK: u32 = 20;

fn entry(flow: u32, role: OwnRole, topic: Option<&str>) -> Entry {
    Entry {
        plan: OwnPlan {
            flow,
            role,
            topic: topic.map(str::to_owned),
            qos: 1,
            version5: true,
            payload_bytes: None,
        },
        data: DATA + flow,
        ack: ACK + flow,
    }
}

fn key(protocol: u8, source_port: u16) -> Key {
    Key {
        source: 1,
        destination: 2,
        protocol,
        source_port,
        destination_port: 4,
    }
}

fn packet(tcp: Option<(u32, bool)>, payload: &[u8]) -> Ipv4<'_> {
    Ipv4 {
        key: key(if tcp.is_some() { TCP } else { UDP }, 3),
        dscp: 0,
        identification: 0,
        more_fragments: false,
        later_fragment: false,
        tcp: tcp.map(|(sequence, syn)| TcpSegment {
            sequence,
            syn,
            window: 9,
            ..TcpSegment::default()
        }),
        payload,
    }
}

/// A PUBLISH of MQTT 5, or 3.1.1 without properties.
fn publish(topic: &str, payload: &[u8], qos: u8, version5: bool) -> Vec<u8> {
    let mut body = (topic.len() as u16).to_be_bytes().to_vec();
    body.extend(topic.as_bytes());
    body.extend(if qos > 0 { &[0, 7][..] } else { &[] });
    body.extend(if version5 { &[0][..] } else { &[] });
    body.extend(payload);
    let mut bytes = vec![0x30 | qos << 1];
    let mut length = body.len();
    while length > 127 {
        bytes.push((length & 127) as u8 | 128);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(body);
    bytes
}

fn connect(level: u8) -> Vec<u8> {
    let mut bytes = vec![0x10, 12, 0, 4];
    bytes.extend(b"MQTT");
    bytes.extend([level, 2, 0, 60, 0, 0]);
    bytes
}

/// A program that publishes `a` and `b` and one that subscribes to both.
struct Rig {
    own: Own,
    /// Publisher to broker, back, broker to subscriber.
    sides: [Side; 3],
    at: [u32; 3],
}

impl Rig {
    fn new() -> Self {
        let mut own = Own::default();
        let mut add = |role, topics: bool| {
            let topic = |name| topics.then_some(name);
            let set = own.add(None, entry(0, role, topic("a")));
            own.add(Some(set), entry(1, role, topic("b")))
        };
        let there = add(OwnRole::Source, true);
        let back = add(OwnRole::Answers, false);
        let onward = add(OwnRole::Onward, true);
        let first = own.open(there, key(TCP, 3), None);
        let back = own.open(back, key(TCP, 3).reversed(), Some(first));
        let sides = [first, back, own.open(onward, key(TCP, 5), None)];
        Self {
            own,
            sides,
            at: [1000; 3],
        }
    }

    /// A SYN, so that nothing of the direction is missed.
    fn open(&mut self, side: usize) {
        self.own
            .judge(self.sides[side], &packet(Some((self.at[side] - 1, true)), &[]), 0);
    }

    fn send(&mut self, side: usize, bytes: &[u8]) -> Told {
        let told = self.own.judge(
            self.sides[side],
            &packet(Some((self.at[side], false)), bytes),
            u64::from(self.at[side]),
        );
        self.at[side] += bytes.len() as u32;
        told
    }
}

fn first(told: Told) -> (u32, Option<(u32, u32)>, u32) {
    (told.stream, told.found.first, told.found.count)
}

#[test]
fn a_message_is_told_by_its_topic_and_keeps_its_number_behind_the_broker() {
    let mut rig = Rig::new();
    assert_eq!(rig.send(0, &connect(4)).stream, NO_STREAM);
    // 3.1.1 on one side of the broker, 5 on the other, and another QoS.
    for number in 0..3u8 {
        let told = rig.send(0, &publish("b", &[number; 9], 1, false));
        assert_eq!(first(told), (DATA + 1, Some((1, u32::from(number))), 1));
    }
    for number in [0u8, 2] {
        let told = rig.send(2, &publish("b", &[number; 9], 0, true));
        assert_eq!(first(told), (DATA + 1, Some((1, u32::from(number))), 1));
    }
    assert_eq!(rig.send(2, &publish("other", b"x", 0, true)).stream, NO_STREAM);
    let known = rig.own.report().flows[&1];
    assert_eq!((known.published, known.unmatched, known.ambiguous), (3, 0, 0));
}

#[test]
fn equal_messages_go_by_order_and_are_ambiguous_while_several_are_missing() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        rig.send(0, &publish("a", b"on", 0, true));
        let told = rig.send(2, &publish("a", b"on", 0, true));
        assert_eq!(told.found.count, 1);
    }
    assert_eq!(rig.own.report().flows[&0].ambiguous, 0);
    // The broker dropped one: which of the two comes nobody can say.
    rig.send(0, &publish("a", b"on", 0, true));
    rig.send(0, &publish("a", b"on", 0, true));
    assert_eq!(
        rig.send(2, &publish("a", b"on", 0, true)).found.first,
        Some((0, 3))
    );
    assert_eq!(rig.own.report().flows[&0].ambiguous, 1);
}

#[test]
fn who_subscribes_late_gets_none_of_what_was_sent_before() {
    let mut rig = Rig::new();
    for _ in 0..4 {
        rig.send(0, &publish("a", b"on", 0, true));
    }
    rig.send(2, &[0x90, 4, 0, 1, 0, 0]);
    // A retained message is none of now.
    let mut kept = publish("a", b"on", 0, true);
    kept[0] |= 1;
    // It is in the network all the same: it counts as an arrival.
    assert_eq!(first(rig.send(2, &kept)), (DATA, None, 1));
    rig.send(0, &publish("a", b"on", 0, true));
    assert_eq!(
        rig.send(2, &publish("a", b"on", 0, true)).found.first,
        Some((0, 4))
    );
    let report = rig.own.report();
    assert_eq!(report.flows[&0].unmatched, 0);
    assert_eq!(
        report.ends.iter().map(|end| end.retained).collect::<Vec<_>>(),
        [1]
    );
}

#[test]
fn a_message_that_was_under_way_when_its_receiver_subscribed_is_no_stranger() {
    let mut rig = Rig::new();
    for number in 0..3u8 {
        rig.send(0, &publish("a", &[number], 0, true));
    }
    rig.send(2, &[0x90, 4, 0, 1, 0, 0]);
    // The broker had subscribed it before the last one came there, though its SUBACK was seen after that one's first port.
    assert_eq!(
        rig.send(2, &publish("a", &[2], 0, true)).found.first,
        Some((0, 2))
    );
    rig.send(0, &publish("a", &[3], 0, true));
    assert_eq!(
        rig.send(2, &publish("a", &[3], 0, true)).found.first,
        Some((0, 3))
    );
    assert_eq!(rig.own.report().flows[&0].unmatched, 0);
}

#[test]
fn answers_belong_to_the_flow_that_was_published_last() {
    let mut rig = Rig::new();
    let bare = |rig: &mut Rig| {
        rig.own
            .judge(rig.sides[1], &packet(Some((rig.at[1], false)), &[]), 0)
            .stream
    };
    assert_eq!(bare(&mut rig), NO_STREAM);
    rig.send(0, &publish("a", b"1", 1, true));
    assert_eq!(
        (rig.send(1, &[0x40, 2, 0, 7]).stream, bare(&mut rig)),
        (DATA, ACK)
    );
    rig.send(0, &publish("b", b"1", 1, true));
    assert_eq!(
        (rig.send(1, &[0x40, 2, 0, 7]).stream, bare(&mut rig)),
        (DATA + 1, ACK + 1)
    );
    assert_eq!(rig.send(0, &[0xc0, 0]).stream, DATA + 1);
    // Of a flow of QoS 0 nothing is acknowledged, whatever the program asks for.
    rig.own
        .sets
        .iter_mut()
        .flatten()
        .for_each(|entry| entry.plan.qos = 0);
    assert_eq!(rig.send(1, &[0x40, 2, 0, 7]).stream, NO_STREAM);
    assert_eq!(rig.send(1, &[0xd0, 0]).stream, DATA + 1);
    assert_eq!(rig.send(1, &[0x90, 4, 0, 1, 0, 0]).stream, NO_STREAM);
}

#[test]
fn a_message_of_several_segments_is_told_by_its_first_and_goes_on() {
    let mut rig = Rig::new();
    let bytes = publish("a", &[7; 4000], 0, true);
    assert_eq!(first(rig.send(0, &bytes[..1460])), (DATA, Some((0, 0)), 1));
    for part in [&bytes[1460..2920], &bytes[2920..]] {
        let told = rig.send(0, part);
        assert_eq!(
            (first(told), told.found.continued),
            ((DATA, Some((0, 0)), 0), true)
        );
    }
    // Sent again: the same message, and no new number.
    rig.at[0] = 1000;
    assert_eq!(rig.send(0, &bytes[..1460]).found.first, Some((0, 0)));
    rig.at[0] = 1000 + bytes.len() as u32;
    assert_eq!(
        rig.send(0, &publish("a", b"x", 0, true)).found.first,
        Some((0, 1))
    );
}

#[test]
fn messages_of_one_segment_are_counted_and_those_of_other_flows_written_down() {
    let mut rig = Rig::new();
    let same = [publish("a", b"1", 0, true), publish("a", b"2", 0, true)].concat();
    assert_eq!(first(rig.send(0, &same)), (DATA, Some((0, 0)), 2));
    let both = [publish("a", b"3", 0, true), publish("b", b"4", 0, true)].concat();
    assert_eq!(first(rig.send(0, &both)), (DATA, Some((0, 2)), 1));
    let joined = rig.own.report().joined;
    let found: Vec<_> = joined
        .iter()
        .map(|each| (each.stream, each.flow, each.sequence, each.in_sequence))
        .collect();
    assert_eq!(found, [(DATA + 1, 1, 0, 2)]);
}

#[test]
fn a_connection_that_is_encrypted_is_told() {
    let mut rig = Rig::new();
    rig.open(0);
    assert_eq!(rig.send(0, &[22, 3, 1, 2, 0, 1, 0, 1]).stream, NO_STREAM);
    rig.send(0, &[22, 3, 3, 0, 40, 1]);
    assert_eq!(rig.own.report().flows[&0].encrypted, 1);
}

#[test]
fn bytes_that_are_no_mqtt_end_what_can_be_read_of_a_connection() {
    for garbage in [
        &b"GET / HTTP/1.1"[..],
        &[0x36, 4, 0, 1, b'a', 0],
        &[0x30, 4, 0, 9, b'a', 0],
        &[0xc0, 1, 0],
    ] {
        let mut rig = Rig::new();
        rig.open(0);
        rig.send(0, &connect(4));
        assert_eq!(
            rig.send(0, &publish("a", b"1", 0, false)).found.first,
            Some((0, 0))
        );
        let at = u64::from(rig.at[0]);
        rig.send(0, garbage);
        // What would be a message is none: the broker has closed the connection.
        let told = rig.send(0, &publish("a", b"2", 0, false));
        assert_eq!((told.stream, told.found.first), (NO_STREAM, None), "{garbage:?}");
        let report = rig.own.report();
        let (unread, bytes) = (&report.unread[0], (garbage.len() + 6) as u64);
        assert_eq!(
            (unread.source_port, unread.destination_port, &unread.flows[..]),
            (3, 4, &[0][..])
        );
        assert_eq!(
            (unread.bytes, unread.first_ns, report.flows[&0].published),
            (bytes, at, 1)
        );
        rig.own.reset_counts();
        assert_eq!(rig.own.report().unread, []);
        // Another connection on the same ports is another one.
        rig.open(0);
        rig.send(0, &connect(4));
        assert_eq!(
            rig.send(0, &publish("a", b"3", 0, false)).found.first,
            Some((0, 1))
        );
    }
}

#[test]
fn a_connection_that_begins_with_something_else_is_not_read() {
    let mut rig = Rig::new();
    rig.open(0);
    assert_eq!(rig.send(0, &publish("a", b"1", 0, false)).stream, NO_STREAM);
    assert_eq!(rig.own.report().unread.len(), 1);
}

#[test]
fn a_bridge_of_mosquitto_is_a_client_like_others() {
    let mut rig = Rig::new();
    rig.open(0);
    rig.send(0, &connect(0x84));
    assert_eq!(
        rig.send(0, &publish("a", b"1", 0, false)).found.first,
        Some((0, 0))
    );
    assert_eq!(rig.own.report().unread, []);
}

#[test]
fn where_a_segment_was_missed_the_next_packet_is_read() {
    let mut rig = Rig::new();
    rig.open(0);
    rig.send(0, &connect(4));
    rig.at[0] += 2920;
    rig.send(0, &[0; 40]);
    assert_eq!(
        rig.send(0, &publish("a", b"1", 0, false)).found.first,
        Some((0, 0))
    );
    assert_eq!(rig.own.report().unread[0].bytes, 40);
}

#[test]
fn an_alias_stands_for_the_topic_it_was_given_with() {
    let mut rig = Rig::new();
    let aliased = |topic: &str, alias: u8, payload: u8| {
        let mut bytes = vec![0x30, (topic.len() + 7) as u8, 0, topic.len() as u8];
        bytes.extend(topic.as_bytes());
        bytes.extend([3, 0x23, 0, alias, payload]);
        bytes
    };
    for (number, topic) in ["a", "", ""].iter().enumerate() {
        let told = rig.send(0, &aliased(topic, 7, number as u8));
        assert_eq!(told.found.first, Some((0, number as u32)));
    }
    for (topic, stream) in [
        ("other", NO_STREAM),
        ("", NO_STREAM),
        ("b", DATA + 1),
        ("", DATA + 1),
    ] {
        assert_eq!(rig.send(0, &aliased(topic, 8, 1)).stream, stream);
    }
    assert_eq!(rig.own.report().unread, []);
    // Nobody knows what this one is.
    assert_eq!(rig.send(0, &aliased("", 9, 1)).stream, NO_STREAM);
    assert_eq!(rig.own.report().unread.len(), 1);
}

#[test]
fn the_qos_of_messages_is_counted_for_each_end() {
    let mut rig = Rig::new();
    rig.send(0, &publish("a", b"1", 2, true));
    rig.send(2, &publish("a", b"1", 1, true));
    rig.send(2, &publish("a", b"1", 1, true));
    let ends = rig.own.report().ends;
    assert_eq!(
        ends.iter().map(|end| (end.flow, end.qos)).collect::<Vec<_>>(),
        [(0, [0, 2, 1])]
    );
}

/// UNSUBSCRIBE of 5.0.
fn unsubscribe(topic: &str) -> Vec<u8> {
    let mut bytes = vec![0xa2, 5 + topic.len() as u8, 0, 9, 0, 0, topic.len() as u8];
    bytes.extend(topic.as_bytes());
    bytes
}

#[test]
fn who_leaves_is_told_and_who_answers_that_is_not() {
    let mut rig = Rig::new();
    let set = rig.own.add(None, entry(0, OwnRole::Answers, None));
    let answers = rig.own.open(set, key(TCP, 5).reversed(), Some(rig.sides[2]));
    rig.send(0, &publish("a", b"1", 1, true));
    rig.send(2, &publish("a", b"1", 1, true));
    let judge = |rig: &mut Rig, side, sequence, payload: &[u8], fin, now| {
        let tcp = TcpSegment {
            sequence,
            fin,
            ..TcpSegment::default()
        };
        let packet = Ipv4 {
            tcp: Some(tcp),
            ..packet(Some((0, false)), payload)
        };
        rig.own.judge(side, &packet, now);
    };
    judge(&mut rig, answers, 500, &unsubscribe("a"), false, 7);
    judge(&mut rig, answers, 600, &unsubscribe("of another"), false, 8);
    judge(&mut rig, answers, 700, &[0xe0, 0], false, 9);
    judge(&mut rig, answers, 702, &[], true, 10);
    let broker = rig.sides[2];
    let at = rig.at[2];
    judge(&mut rig, broker, at, &[], true, 11);
    let left: Vec<_> = rig.own.report().left;
    let found: Vec<_> = left
        .iter()
        .map(|left| (left.source_port, left.how, left.at_ns, &left.flows[..]))
        .collect();
    assert_eq!(
        found,
        [
            (4, Leaving::Unsubscribed, 7, &[0][..]),
            (4, Leaving::Disconnected, 9, &[0][..])
        ]
    );
    // A broker that ends it first is told as well, and a connection that carried nothing of ours is not.
    let publisher = rig.sides[1];
    judge(&mut rig, publisher, 1, &[], true, 12);
    assert_eq!(rig.own.report().left[2].how, Leaving::Closed);
    assert_eq!(rig.own.report().left.len(), 3);
}

/// A program that subscribes, with the way back to its broker: messages of a flow (QoS 1), and what it answers at some time with some window.
fn subscriber() -> (Rig, impl FnMut(&mut Rig, &[u8], u16, u64)) {
    let mut rig = Rig::new();
    let set = rig.own.add(None, entry(0, OwnRole::Answers, None));
    let answers = rig.own.open(set, key(TCP, 5).reversed(), Some(rig.sides[2]));
    let mut sequence = 500;
    let answer = move |rig: &mut Rig, payload: &[u8], window, now| {
        let tcp = TcpSegment {
            sequence,
            window,
            ..TcpSegment::default()
        };
        let packet = Ipv4 {
            tcp: Some(tcp),
            ..packet(Some((0, false)), payload)
        };
        rig.own.judge(answers, &packet, now);
        sequence += payload.len() as u32;
    };
    (rig, answer)
}

fn held(rig: &Rig) -> Vec<(held::Holding, Option<u32>, u64, u64, bool)> {
    let held = rig.own.report().held;
    assert!(held.iter().all(|held| held.source_port == 4 && held.flows == [0]));
    held.iter()
        .map(|held| (held.why, held.number, held.from_ns, held.until_ns, held.is_over))
        .collect()
}

#[test]
fn who_does_not_acknowledge_lets_the_broker_wait() {
    let (mut rig, mut answer) = subscriber();
    rig.at = [0, 0, 0];
    rig.send(0, &publish("a", b"1", 1, true));
    rig.send(2, &publish("a", b"1", 1, true));
    // At once; a PUBREC is no end of it, unless it refuses.
    answer(&mut rig, &[0x40, 2, 0, 7], 9, 1_000_000);
    assert_eq!(held(&rig), []);
    rig.send(0, &publish("a", b"2", 1, true));
    rig.send(2, &publish("a", b"2", 2, true));
    answer(&mut rig, &[0x50, 2, 0, 7], 9, 20_000_000);
    let why = held::Holding::Acknowledgement;
    assert_eq!(held(&rig), [(why, Some(1), 9, 20_000_000, false)]);
    answer(&mut rig, &[0x70, 2, 0, 7], 9, 30_000_000);
    let first = (why, Some(1), 9, 30_000_000, true);
    assert_eq!(held(&rig), [first]);
    rig.send(2, &publish("a", b"2", 2, true));
    answer(&mut rig, &[0x50, 3, 0, 7, 0x97], 9, 31_000_000);
    let refused = (why, None, 18, 31_000_000, true);
    rig.send(2, &publish("a", b"2", 1, true));
    answer(&mut rig, &[0xe0, 0], 9, 90_000_000);
    let gone = (why, None, 27, 90_000_000, false);
    answer(&mut rig, &[], 9, 99_000_000);
    assert_eq!(held(&rig), [first, refused, gone]);
    // What was before the start is no loss of the run.
    rig.own.reset_counts();
    assert_eq!(held(&rig), []);
}

#[test]
fn a_closed_window_is_told_until_it_opens_or_the_connection_ends() {
    let (mut rig, mut answer) = subscriber();
    rig.send(0, &publish("a", b"1", 0, true));
    rig.send(2, &publish("a", b"1", 0, true));
    for (window, at) in [(0, 1), (0, 2), (1, 3), (0, 4), (0, 5), (9, 8)] {
        answer(&mut rig, &[], window, at * 5_000_000);
    }
    let why = held::Holding::Window;
    let ended = (why, None, 20_000_000, 40_000_000, true);
    assert_eq!(held(&rig), [(why, None, 5_000_000, 15_000_000, true), ended]);
    answer(&mut rig, &[], 0, 50_000_000);
    assert_eq!(held(&rig).len(), 2);
    answer(&mut rig, &[], 0, 70_000_000);
    let under_way = (why, None, 50_000_000, 70_000_000, false);
    assert_eq!(held(&rig)[2..], [under_way]);
    answer(&mut rig, &[0xe0, 0], 0, 71_000_000);
    answer(&mut rig, &[], 0, 99_000_000);
    assert_eq!(held(&rig)[2..], [(why, None, 50_000_000, 71_000_000, false)]);
}

#[test]
fn datagrams_are_counted() {
    let mut own = Own::default();
    let set = own.add(None, entry(5, OwnRole::Source, None));
    let side = own.open(set, key(UDP, 3), None);
    let told = [0, 1].map(|_| own.judge(side, &packet(None, b"any"), 0));
    assert_eq!(
        told.map(first),
        [(DATA + 5, Some((5, 0)), 1), (DATA + 5, Some((5, 1)), 1)]
    );
}

proptest::proptest! {
    #[test]
    fn outside_bytes_never_panic(parts in proptest::collection::vec((proptest::num::u32::ANY, proptest::collection::vec(proptest::num::u8::ANY, 0..80)), 0..30)) {
        let mut rig = Rig::new();
        for (number, (at, bytes)) in parts.iter().enumerate() {
            rig.own.judge(rig.sides[number % 3], &packet(Some((*at, false)), bytes), 0);
        }
    }
}

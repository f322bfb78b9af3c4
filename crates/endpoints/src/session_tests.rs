use super::*;
use crate::plan::{MqttRole, Pattern, Release, Subscription};
use mqtt5_protocol::packet::suback::SubAckReasonCode;
use mqtt5_protocol::{Packet, ReasonCode};
use proptest::prelude::*;

fn client(protocol: Protocol, role: MqttRole) -> MqttClient {
    MqttClient {
        name: "c".into(),
        node: "h1".into(),
        client_id: "c".into(),
        protocol,
        broker: std::net::Ipv4Addr::LOCALHOST,
        port: 1883,
        local_address: None,
        local_port: 0,
        dscp: 0,
        keep_alive_s: 60,
        username: Some("user".into()),
        password: Some("secret".into()),
        connect_at_ns: None,
        connect_delay_ns: None,
        user_properties: Vec::new(),
        role,
    }
}

fn publisher(qos: Qos) -> MqttRole {
    let release = Release {
        offset_ns: 0,
        jitter_ns: 0,
        pattern: Pattern::Periodic { period_ns: 1 },
        seed: 0,
    };
    MqttRole::Publish(Publication {
        topic: "a/b".into(),
        qos,
        flow: 7,
        payload_bytes: 100,
        content: Some("<x/>".into()),
        release,
    })
}

fn subscriber(qos: Qos) -> MqttRole {
    MqttRole::Subscribe(Subscription {
        filter: "a/#".into(),
        qos,
        flow: 7,
        more_flows: Vec::new(),
        short: Vec::new(),
        receiver: 3,
        user_properties: Vec::new(),
    })
}

fn bytes(packet: &impl MqttPacket) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(&mut out).unwrap();
    out
}

fn read(mut bytes: &[u8], level: u8) -> Vec<Packet> {
    let mut packets = Vec::new();
    while !bytes.is_empty() {
        let framed = next_packet(bytes).unwrap().unwrap();
        let mut body = framed.body;
        let packet = Packet::decode_from_body_with_version(
            framed.header.packet_type,
            &framed.header,
            &mut body,
            level,
        );
        packets.push(packet.unwrap());
        bytes = &bytes[framed.bytes..];
    }
    packets
}

fn connack(protocol: Protocol) -> Vec<u8> {
    match protocol {
        Protocol::V4 => vec![0x20, 2, 0, 0],
        Protocol::V5 => bytes(&ConnAckPacket::new(false, ReasonCode::Success).with_receive_maximum(2)),
    }
}

fn ready(protocol: Protocol, role: MqttRole) -> Session {
    let mut out = Vec::new();
    let subscribes = role.subscription().is_some();
    let mut session = Session::open(&client(protocol, role), &mut out).unwrap();
    let level = u8::from(protocol);
    assert!(matches!(&read(&out, level)[..], [Packet::Connect(packet)] if packet.protocol_version == level));
    out.clear();
    session.receive(&connack(protocol), &mut out, |_| ()).unwrap();
    if subscribes {
        assert!(!session.is_ready());
        assert!(matches!(&read(&out, level)[..], [Packet::Subscribe(_)]));
        let suback = match protocol {
            Protocol::V4 => SubAckPacket::new_v311(SUBSCRIBE_ID),
            Protocol::V5 => SubAckPacket::new(SUBSCRIBE_ID),
        };
        session
            .receive(
                &bytes(&suback.add_granted_qos(QoS::ExactlyOnce)),
                &mut out,
                |_| (),
            )
            .unwrap();
    }
    assert!(session.is_ready());
    session
}

#[test]
fn user_properties_go_out_in_their_order() {
    let pairs = vec![
        ("rt-topic".to_owned(), "a/b".to_owned()),
        ("rt-deadline".to_owned(), "20 ms".to_owned()),
    ];
    let MqttRole::Subscribe(mut subscription) = subscriber(Qos::AtLeastOnce) else {
        unreachable!()
    };
    subscription.user_properties.clone_from(&pairs);
    let mut plan = client(Protocol::V5, MqttRole::Subscribe(subscription));
    plan.user_properties.clone_from(&pairs);
    let mut out = Vec::new();
    let mut session = Session::open(&plan, &mut out).unwrap();
    let Packet::Connect(connect) = &read(&out, 5)[0] else {
        panic!("no CONNECT")
    };
    let wanted: Vec<_> = pairs
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(user(&connect.properties), wanted);
    out.clear();
    session.receive(&connack(Protocol::V5), &mut out, |_| ()).unwrap();
    let Packet::Subscribe(subscribe) = &read(&out, 5)[0] else {
        panic!("no SUBSCRIBE")
    };
    assert_eq!(user(&subscribe.properties), wanted);
}

fn user(properties: &mqtt5_protocol::Properties) -> Vec<(&str, &str)> {
    use mqtt5_protocol::{PropertyId, PropertyValue};
    let values = properties.get_all(PropertyId::UserProperty).unwrap_or_default();
    let pairs = values.iter().map(|value| match value {
        PropertyValue::Utf8StringPair(key, value) => (key.as_str(), value.as_str()),
        other => panic!("{other:?}"),
    });
    pairs.collect()
}

const BOTH: [Protocol; 2] = [Protocol::V4, Protocol::V5];

#[test]
fn a_qos_2_message_takes_the_four_way_handshake_and_is_delivered_once() {
    for protocol in BOTH {
        let (mut source, mut sink) = (
            ready(protocol, publisher(Qos::ExactlyOnce)),
            ready(protocol, subscriber(Qos::ExactlyOnce)),
        );
        let frame = source.publish(5, 1000, 1234).unwrap().to_vec();
        let (mut back, mut forth, mut seen) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..2 {
            sink.receive(&frame, &mut back, |event| {
                let Event::Message { payload, .. } = event else {
                    panic!("{event:?}")
                };
                seen.push(Header::read(payload).unwrap());
            })
            .unwrap();
        }
        assert_eq!(
            seen,
            [Header {
                flow: 7,
                sequence: 5,
                sent_ns: 1234
            }]
        );
        back.truncate(back.len() / 2);
        source
            .receive(&back, &mut forth, |event| panic!("{event:?}"))
            .unwrap();
        back.clear();
        sink.receive(&forth, &mut back, |event| panic!("{event:?}"))
            .unwrap();
        let mut done = Vec::new();
        source
            .receive(&back, &mut forth, |event| {
                let Event::Acknowledged(message) = event else {
                    panic!("{event:?}")
                };
                done.push(message);
            })
            .unwrap();
        assert_eq!(
            done,
            [InFlight {
                sequence: 5,
                nominal_ns: 1000
            }]
        );
        assert_eq!((source.unacknowledged(), sink.unreleased.len()), (0, 0));
    }
}

#[test]
fn the_receive_maximum_of_the_broker_is_kept() {
    let mut session = ready(Protocol::V5, publisher(Qos::AtLeastOnce));
    assert!(session.publish(0, 0, 0).is_some());
    assert!(session.publish(1, 0, 0).is_some());
    assert!(session.publish(2, 0, 0).is_none());
    session
        .receive(&bytes(&PubAckPacket::new(1)), &mut Vec::new(), |_| ())
        .unwrap();
    assert!(session.publish(2, 0, 0).is_some());
}

#[test]
fn packet_identifiers_in_flight_are_not_used_again() {
    let mut session = ready(Protocol::V4, publisher(Qos::AtLeastOnce));
    session.publish(0, 0, 0).unwrap();
    for sequence in 1..70_000u32 {
        let frame = session.publish(sequence, 0, 0).unwrap();
        let id = PublishView::read(&next_packet(frame).unwrap().unwrap(), Protocol::V4)
            .unwrap()
            .packet_id
            .unwrap();
        assert_ne!((id, id), (1, 0));
        session
            .receive(&bytes(&PubAckPacket::new(id)), &mut Vec::new(), |_| ())
            .unwrap();
    }
    assert_eq!(session.unacknowledged(), 1);
}

#[test]
fn refusals_are_told_with_their_reason() {
    for protocol in BOTH {
        let mut session =
            Session::open(&client(protocol, subscriber(Qos::AtMostOnce)), &mut Vec::new()).unwrap();
        let refusal = match protocol {
            Protocol::V4 => vec![0x20, 2, 0, 5],
            Protocol::V5 => bytes(&ConnAckPacket::new(false, ReasonCode::NotAuthorized)),
        };
        let error = session.receive(&refusal, &mut Vec::new(), |_| ()).unwrap_err();
        assert!(error.contains("NotAuthorized"), "{error}");
    }
    let mut session = Session::open(
        &client(Protocol::V5, subscriber(Qos::AtMostOnce)),
        &mut Vec::new(),
    )
    .unwrap();
    session
        .receive(&connack(Protocol::V5), &mut Vec::new(), |_| ())
        .unwrap();
    let refusal = SubAckPacket::new(SUBSCRIBE_ID).add_reason_code(SubAckReasonCode::NotAuthorized);
    let error = session
        .receive(&bytes(&refusal), &mut Vec::new(), |_| ())
        .unwrap_err();
    assert!(error.contains("subscription"), "{error}");
}

#[test]
fn an_unanswered_ping_ends_the_session() {
    let mut session = ready(Protocol::V4, publisher(Qos::AtMostOnce));
    let mut out = Vec::new();
    session.ping(&mut out).unwrap();
    assert_eq!(out, [0xC0, 0]);
    session.receive(&[0xD0, 0], &mut out, |_| ()).unwrap();
    session.ping(&mut out).unwrap();
    assert!(session.ping(&mut out).is_err());
}

proptest! {
    #[test]
    fn outside_bytes_never_panic(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..6),
        subscribes: bool, level in 4u8..6, connected: bool,
    ) {
        let protocol = Protocol::try_from(level).unwrap();
        let role = if subscribes { subscriber(Qos::ExactlyOnce) } else { publisher(Qos::ExactlyOnce) };
        let mut session = match connected {
            true => ready(protocol, role),
            false => Session::open(&client(protocol, role), &mut Vec::new()).unwrap(),
        };
        for chunk in chunks {
            match session.receive(&chunk, &mut Vec::new(), |_| ()) {
                Ok(consumed) => prop_assert!(consumed <= chunk.len()),
                Err(_) => break,
            }
        }
    }

    #[test]
    fn any_cut_of_the_stream_gives_the_same_messages(cuts in proptest::collection::vec(1usize..90, 1..40)) {
        let mut source = ready(Protocol::V5, publisher(Qos::AtMostOnce));
        let stream: Vec<u8> = (0..20).flat_map(|k| source.publish(k, 0, 0).unwrap().to_vec()).collect();
        let mut sink = ready(Protocol::V5, subscriber(Qos::AtMostOnce));
        let (mut kept, mut rest, mut seen) = (Vec::new(), &stream[..], Vec::new());
        for cut in cuts.into_iter().cycle() {
            let (head, tail) = rest.split_at(cut.min(rest.len()));
            rest = tail;
            kept.extend_from_slice(head);
            let done = sink.receive(&kept, &mut Vec::new(), |event| {
                if let Event::Message { payload, .. } = event {
                    seen.push(Header::read(payload).unwrap().sequence);
                }
            }).unwrap();
            kept.drain(..done);
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(seen, (0..20).collect::<Vec<u32>>());
    }
}

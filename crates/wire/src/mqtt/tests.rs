use super::*;
use proptest::prelude::*;

fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u16).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn user(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in pairs {
        bytes.push(0x26);
        bytes.extend(text(key));
        bytes.extend(text(value));
    }
    bytes
}

fn sized(properties: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_integer(properties.len(), &mut bytes);
    bytes.extend(properties);
    bytes
}

fn packet(first: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    bytes.extend(sized(rest));
    bytes
}

#[test]
fn packets_are_found_in_a_stream() {
    let mut stream = packet(0xc0, &[]);
    stream.extend(packet(0x30, &[text("a"), b"hello".to_vec()].concat()));
    let (head, rest) = next(&stream).unwrap().unwrap();
    assert_eq!((head.kind, head.whole(), rest.len()), (Kind::Pingreq, 2, 0));
    let (head, rest) = next(&stream[2..]).unwrap().unwrap();
    let found = Publish::read(&head, rest, Version::V3).unwrap();
    assert_eq!((found.topic, found.qos, found.payload), ("a", 0, &b"hello"[..]));
    for end in 0..stream.len() - 2 {
        assert_eq!(next(&stream[2..2 + end]).unwrap(), None);
    }
}

#[test]
fn headers_that_the_standard_rules_out() {
    for first in [0x00, 0x01, 0x36, 0x37, 0x60, 0x61, 0x80, 0xa0, 0x11, 0xc1, 0xf2] {
        assert_eq!(Head::read(&[first, 0]), Err(Malformed::Header), "{first:#x}");
    }
    assert_eq!(Head::read(&[0x30, 0xff, 0xff, 0xff]), Ok(None));
    assert_eq!(
        Head::read(&[0x30, 0xff, 0xff, 0xff, 0xff]),
        Err(Malformed::Integer)
    );
    let head = Head::read(&[0x30, 0xff, 0xff, 0xff, 0x7f]).unwrap().unwrap();
    assert_eq!((head.length, head.rest), (5, 268_435_455));
}

#[test]
fn a_connect_with_everything() {
    let rest = [
        text("MQTT"),
        vec![5, 0b1100_1110, 0, 60],
        sized(
            &[
                vec![0x11, 0, 0, 0, 10],
                user(&[("rt-deadline", "20 ms"), ("colour", "red")]),
            ]
            .concat(),
        ),
        text("client"),
        sized(&[vec![0x18, 0, 0, 0, 1], user(&[("rt-deadline", "1 ms")])].concat()),
        text("gone"),
        text("bye"),
        text("user"),
        text("secret"),
    ]
    .concat();
    let found = Connect::read(&rest).unwrap();
    assert_eq!(
        (found.version, found.clean, found.keep_alive, found.client_id),
        (Version::V5, true, 60, "client")
    );
    assert_eq!((found.will, found.user), (Some("gone"), Some("user")));
    // Those of the will are the will's.
    let pairs: Vec<_> = found.properties.user().collect();
    assert_eq!(pairs, [("rt-deadline", "20 ms"), ("colour", "red")]);
    for end in 0..rest.len() {
        assert!(Connect::read(&rest[..end]).is_err(), "{end}");
    }
    assert_eq!(
        Connect::read(&[rest, vec![0]].concat()).unwrap_err(),
        Malformed::Value
    );
}

#[test]
fn connects_that_the_standard_rules_out() {
    let connect = |name: &str, level: u8, flags: u8| {
        Connect::read(&[text(name), vec![level, flags, 0, 0], text("c")].concat()).map(|found| found.version)
    };
    assert_eq!(connect("MQTT", 4, 2), Ok(Version::V3));
    assert_eq!(connect("MQIsdp", 3, 0), Ok(Version::V3));
    for (name, level, flags) in [
        ("MQTT", 3, 2),
        ("MQTT", 6, 2),
        ("mqtt", 4, 2),
        ("MQTT", 4, 1),
        ("MQTT", 4, 0x08),
        ("MQTT", 4, 0x20),
        ("MQTT", 4, 0x1c),
    ] {
        assert_eq!(
            connect(name, level, flags),
            Err(Malformed::Value),
            "{name} {level} {flags:#x}"
        );
    }
}

#[test]
fn what_a_client_writes_is_read_again() {
    let greeting = Greeting {
        client_id: "timebound/m1/5",
        clean: true,
        keep_alive: 10,
        session_expiry: 3_600,
        user: Some("timebound"),
        password: Some("secret"),
    };
    let bytes = greeting.packet().unwrap();
    let (head, rest) = next(&bytes).unwrap().unwrap();
    let found = Connect::read(rest).unwrap();
    assert_eq!(
        (head.kind, found.version, found.clean, found.keep_alive),
        (Kind::Connect, Version::V5, true, 10)
    );
    assert_eq!(
        (found.client_id, found.user),
        ("timebound/m1/5", Some("timebound"))
    );
    let expiry: Vec<_> = found.properties.iter().map(|one| one.value).collect();
    assert_eq!(expiry, [Value::Four(3_600)]);
    let long = "x".repeat(70_000);
    assert_eq!(
        Greeting {
            client_id: &long,
            ..greeting
        }
        .packet(),
        None
    );
    assert_eq!(publish(0, &long, None, &[], &[]), None);
    let (head, _) = next(&release(0x102))
        .unwrap()
        .map(|(head, _)| (head, ()))
        .unwrap();
    assert_eq!(
        (head.kind, release(0x102)[2..].to_vec()),
        (Kind::Pubrel, vec![1, 2])
    );
}

proptest! {
    #[test]
    fn a_publish_is_read_again(
        flags in 0u8..16, topic in "[a-z/]{1,20}", identifier in 1u16.., key in "[a-z]{0,9}", payload in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        prop_assume!(flags & 6 != 6);
        let properties = [vec![0x23, 0, 4, 0x0b, 7], user(&[(&key, "v")]), vec![0x01, 1]].concat();
        let identifier = (flags & 6 > 0).then_some(identifier);
        let bytes = publish(flags, &topic, identifier, &properties, &payload).unwrap();
        let (head, rest) = next(&bytes).unwrap().unwrap();
        let found = Publish::read(&head, rest, Version::V5).unwrap();
        prop_assert_eq!((found.topic, found.packet), (&topic[..], identifier.unwrap_or(0)));
        prop_assert_eq!((found.qos, found.retain, found.duplicate), (flags >> 1 & 3, flags & 1 != 0, flags & 8 != 0));
        prop_assert_eq!((found.properties.bytes(), found.payload), (&properties[..], &payload[..]));
        let kept = [user(&[(&key, "v")]), vec![0x01, 1]].concat();
        prop_assert_eq!(found.properties.without(&[0x23, 0x0b]), kept);
    }
}

#[test]
fn publishes() {
    let read = |first: u8, rest: &[u8]| {
        let bytes = packet(first, rest);
        let (head, rest) = next(&bytes).unwrap().unwrap();
        Publish::read(&head, rest, Version::V5)
            .map(|found| (found.topic.to_owned(), found.qos, found.packet, found.alias()))
    };
    let named = [text("t/1"), vec![0, 7], sized(&user(&[("rt-period", "1 s")]))].concat();
    assert_eq!(read(0x32, &named), Ok(("t/1".to_owned(), 1, 7, None)));
    let alias = [text(""), sized(&[0x23, 0, 4])].concat();
    assert_eq!(read(0x30, &alias), Ok((String::new(), 0, 0, Some(4))));
    for (first, rest) in [
        (0x30, [text(""), sized(&[])].concat()),
        (0x30, [text("a/#"), sized(&[])].concat()),
        (0x32, [text("a"), vec![0, 0], sized(&[])].concat()),
    ] {
        assert_eq!(read(first, &rest), Err(Malformed::Value));
    }
    // Twice, not in a PUBLISH, unknown.
    for properties in [
        &[0x01, 1, 0x01, 0][..],
        &[0x13, 0, 1],
        &[0x77, 0],
        &[0x80, 0x01, 0],
    ] {
        assert_eq!(
            read(0x30, &[text("a"), sized(properties)].concat()),
            Err(Malformed::Property)
        );
    }
    // Of subscription identifiers there may be several.
    let several = [text("a"), sized(&[0x0b, 1, 0x0b, 0x80, 1])].concat();
    assert!(read(0x30, &several).is_ok());
}

#[test]
fn subscriptions() {
    let rest = [
        vec![0, 9],
        sized(&user(&[("rt-topic", "a/#"), ("rt-deadline", "5 ms")])),
        text("a/#"),
        vec![1],
        text("+/b"),
        vec![0x2c | 2],
    ]
    .concat();
    let bytes = packet(0x82, &rest);
    let (head, rest) = next(&bytes).unwrap().unwrap();
    let found = Subscribe::read(&head, rest, Version::V5).unwrap();
    assert_eq!(found.packet, 9);
    assert_eq!(
        found.filters.iter().collect::<Vec<_>>(),
        [("a/#", 1), ("+/b", 0x2e)]
    );
    assert_eq!(found.properties.user().count(), 2);
    let unsubscribe = packet(0xa2, &[vec![0, 9], sized(&[]), text("a/#"), text("b")].concat());
    let (head, rest) = next(&unsubscribe).unwrap().unwrap();
    let found = Subscribe::read(&head, rest, Version::V5).unwrap();
    assert_eq!(found.filters.iter().collect::<Vec<_>>(), [("a/#", 0), ("b", 0)]);
    for rest in [
        vec![0, 9, 0],
        [vec![0, 0, 0], text("a"), vec![0]].concat(),
        [vec![0, 9, 0], text("a#"), vec![0]].concat(),
        [vec![0, 9, 0], text("a"), vec![3]].concat(),
    ] {
        let bytes = packet(0x82, &rest);
        let (head, rest) = next(&bytes).unwrap().unwrap();
        assert_eq!(
            Subscribe::read(&head, rest, Version::V5).unwrap_err(),
            Malformed::Value
        );
    }
}

#[test]
fn acknowledgements_take_user_properties() {
    let pairs = [("rt-granted".to_owned(), "yes".to_owned())];
    for (first, rest) in [
        (0x20, [vec![1, 0], sized(&[0x21, 0, 20])].concat()),
        (0x40, vec![0, 5]),
        (0x40, vec![0, 5, 0x10]),
        (0x62, [vec![0, 5, 0], sized(&user(&[("a", "b")]))].concat()),
        (0x90, vec![0, 5, 0, 1, 2]),
        (0xe0, vec![]),
    ] {
        let bytes = packet(first, &rest);
        let (head, rest) = next(&bytes).unwrap().unwrap();
        let before = Ack::read(&head, rest).unwrap();
        let changed = with_user_properties(&head, rest, 0x97, &pairs).unwrap().unwrap();
        let (head, rest) = next(&changed).unwrap().unwrap();
        let after = Ack::read(&head, rest).unwrap();
        assert_eq!((after.packet, after.codes), (before.packet, before.codes));
        let suback = head.kind == Kind::Suback;
        assert_eq!(after.reason, if suback { 0 } else { 0x97 });
        let user: Vec<_> = before.properties.user().chain([("rt-granted", "yes")]).collect();
        assert_eq!(after.properties.user().collect::<Vec<_>>(), user);
    }
    let head = Head::read(&[0x40, 2]).unwrap().unwrap();
    let long = [("x".repeat(65_536), String::new())];
    assert_eq!(with_user_properties(&head, &[0, 1], 0, &long), Ok(None));
}

#[test]
fn a_publish_is_measured_before_its_payload_is_there() {
    let rest = [
        text("a/b"),
        vec![0, 7],
        sized(&user(&[("rt-period", "1 s")])),
        b"payload".to_vec(),
    ]
    .concat();
    let bytes = packet(0x32, &rest);
    let head = Head::read(&bytes).unwrap().unwrap();
    let measured = |end: usize, version| PublishHeader::measure(&head, &rest[..end], version);
    let length = rest.len() - 7;
    let expected = PublishHeader {
        length,
        properties: length - 8,
    };
    for end in 0..=rest.len() {
        // The length of the properties is the eighth byte.
        assert_eq!(
            measured(end, Version::V5),
            Ok((end >= 8).then_some(expected)),
            "{end}"
        );
        let v3 = PublishHeader {
            length: 7,
            properties: 0,
        };
        assert_eq!(measured(end, Version::V3), Ok((end >= 2).then_some(v3)), "{end}");
    }
    let found = Publish::read(&head, &rest[..length], Version::V5).unwrap();
    assert_eq!((found.topic, found.packet, found.payload), ("a/b", 7, &b""[..]));
}

#[test]
fn publishes_whose_headers_are_longer_than_they() {
    let measure = |rest: usize, arrived: &[u8]| {
        let head = Head {
            kind: Kind::Publish,
            flags: 0,
            length: 2,
            rest,
        };
        PublishHeader::measure(&head, arrived, Version::V5)
    };
    assert_eq!(measure(1, &[0]), Err(Malformed::Short));
    assert_eq!(measure(4, &[0, 9, 1]), Ok(None));
    assert_eq!(measure(3, &[0, 9, 1]), Err(Malformed::Short));
    assert_eq!(measure(9, &[0, 1, b'a', 6]), Err(Malformed::Short));
    assert_eq!(measure(10, &[0, 1, b'a', 6]).unwrap().unwrap().length, 10);
    assert_eq!(
        measure(99, &[0, 0, 0xff, 0xff, 0xff, 0xff]),
        Err(Malformed::Integer)
    );
}

#[test]
fn answers_of_an_intermediary() {
    let pairs = [("rt-granted".to_owned(), "no".to_owned())];
    for (kind, codes) in [
        (Kind::Connack, &[][..]),
        (Kind::Puback, &[]),
        (Kind::Pubrec, &[]),
        (Kind::Suback, &[0x97, 0x97]),
        (Kind::Disconnect, &[]),
    ] {
        for pairs in [&pairs[..], &[]] {
            let bytes = answer(kind, 9, 0x97, codes, pairs).unwrap();
            let (head, rest) = next(&bytes).unwrap().unwrap();
            let found = Ack::read(&head, rest).unwrap();
            assert_eq!((head.kind, head.whole(), found.codes), (kind, bytes.len(), codes));
            assert_eq!(found.properties.user().count(), pairs.len());
            if kind != Kind::Suback {
                assert_eq!(found.reason, 0x97);
            }
            if matches!(kind, Kind::Puback | Kind::Pubrec | Kind::Suback) {
                assert_eq!(found.packet, 9);
            }
        }
    }
    assert_eq!(answer(Kind::Publish, 1, 0, &[], &[]), None);
}

#[test]
fn a_connect_gets_another_user_name() {
    for (level, flags, user, password) in [
        (4, 0x02, None, None),
        (4, 0xc2, Some("u"), Some("p")),
        (5, 0x82, Some(""), None),
        (5, 0x46, None, Some("p")),
    ] {
        let mut rest = [text("MQTT"), vec![level, flags, 0, 60]].concat();
        let properties = if level == 5 { vec![0] } else { vec![] };
        rest.extend(&properties);
        rest.extend(text("client"));
        if flags & 4 != 0 {
            rest.extend(&properties);
            rest.extend([text("will"), text("gone")].concat());
        }
        rest.extend([user, password].into_iter().flatten().flat_map(text));
        let bytes = with_user_name(&rest, "press-1").unwrap().unwrap();
        let (head, changed) = next(&bytes).unwrap().unwrap();
        assert_eq!((head.kind, head.whole()), (Kind::Connect, bytes.len()));
        let (before, after) = (Connect::read(&rest).unwrap(), Connect::read(changed).unwrap());
        assert_eq!(after.user, Some("press-1"));
        assert_eq!((after.client_id, after.will), (before.client_id, before.will));
        assert!(changed.ends_with(&password.map(text).unwrap_or_default()));
        assert_eq!(
            changed.len(),
            rest.len() + 9 - user.map_or(0, |user| user.len() + 2)
        );
    }
    assert_eq!(
        with_user_name(
            &[text("MQTT"), vec![4, 2, 0, 0], text("c")].concat(),
            &"x".repeat(65_536)
        ),
        Ok(None)
    );
}

proptest! {
    #[test]
    fn a_measured_publish_is_the_one_that_is_read(bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0x26), any::<u8>()], 0..60), flags in 0u8..6) {
        for version in [Version::V3, Version::V5] {
            let head = Head { kind: Kind::Publish, flags, length: 2, rest: bytes.len() };
            let measured = PublishHeader::measure(&head, &bytes, version);
            if let Ok(found) = Publish::read(&head, &bytes, version) {
                let length = measured.unwrap().unwrap().length;
                prop_assert_eq!(length, bytes.len() - found.payload.len());
                let alone = Publish::read(&head, &bytes[..length], version).unwrap();
                prop_assert_eq!((alone.topic, alone.packet, alone.properties.bytes()), (found.topic, found.packet, found.properties.bytes()));
            }
        }
    }

    #[test]
    fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 1u8..16, body in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(4), Just(5), Just(0x26), any::<u8>()], 0..60)) {
        for stream in [bytes, packet(kind << 4 | if matches!(kind, 6 | 8 | 10) { 2 } else { 0 }, &body)] {
            let Ok(Some((head, rest))) = next(&stream) else { continue };
            prop_assert!(head.whole() <= stream.len());
            let _ = Connect::read(rest);
            for version in [Version::V3, Version::V5] {
                if let Ok(found) = Publish::read(&head, rest, version) {
                    prop_assert!(found.payload.len() <= rest.len());
                }
                if let Ok(found) = Subscribe::read(&head, rest, version) {
                    prop_assert!(found.filters.iter().count() > 0);
                }
            }
            if let Ok(Some(changed)) = with_user_properties(&head, rest, 0, &[("k".to_owned(), "v".to_owned())]) {
                let (head, rest) = next(&changed).unwrap().unwrap();
                prop_assert_eq!(Ack::read(&head, rest).unwrap().properties.user().last(), Some(("k", "v")));
            }
        }
    }
}

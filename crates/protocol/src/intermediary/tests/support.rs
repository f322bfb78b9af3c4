//! Packets, and a connection whose both ends are byte strings.

use crate::intermediary::{Context, Event, Groups, Limits, Session, Side, Step, Verdict};
use timebound_model::{Class, Span, Time};
use timebound_wire::mqtt::{Ack, Head, Kind};

pub(super) fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u16).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn integer(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

pub(super) fn sized(bytes: &[u8]) -> Vec<u8> {
    [integer(bytes.len()), bytes.to_vec()].concat()
}

pub(super) fn packet(first: u8, parts: &[&[u8]]) -> Vec<u8> {
    [vec![first], sized(&parts.concat())].concat()
}

pub(super) type Pairs<'p> = &'p [(&'p str, &'p str)];

pub(super) fn user(pairs: Pairs<'_>) -> Vec<u8> {
    let pair = |(key, value): &(&str, &str)| [vec![0x26], text(key), text(value)].concat();
    pairs.iter().flat_map(pair).collect()
}

/// A CONNECT of MQTT 5 with these user properties behind other properties.
pub(super) fn connect(other: &[u8], pairs: Pairs<'_>) -> Vec<u8> {
    let properties = sized(&[other.to_vec(), user(pairs)].concat());
    packet(
        0x10,
        &[&text("MQTT"), &[5, 2, 0, 60], &properties, &text("press")],
    )
}

pub(super) fn connect_3() -> Vec<u8> {
    packet(0x10, &[&text("MQTT"), &[4, 2, 0, 60], &text("press")])
}

pub(super) const CONNACK: &[u8] = &[0x20, 3, 0, 0, 0];

pub(super) fn publish(topic: &str, qos: u8, identifier: u16, pairs: Pairs<'_>, payload: &[u8]) -> Vec<u8> {
    publish_with(topic, qos, identifier, &user(pairs), payload)
}

pub(super) fn publish_with(
    topic: &str,
    qos: u8,
    identifier: u16,
    properties: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let id = identifier.to_be_bytes();
    let id = if qos > 0 { &id[..] } else { &[] };
    packet(0x30 | qos << 1, &[&text(topic), id, &sized(properties), payload])
}

pub(super) fn subscribe(identifier: u16, pairs: Pairs<'_>, filters: &[&str]) -> Vec<u8> {
    let filters = filters.iter().flat_map(|filter| [text(filter), vec![1]].concat());
    let filters: Vec<u8> = filters.collect();
    packet(0x82, &[&identifier.to_be_bytes(), &sized(&user(pairs)), &filters])
}

pub(super) fn unsubscribe(identifier: u16, filter: &str) -> Vec<u8> {
    packet(0xa2, &[&identifier.to_be_bytes(), &[0], &text(filter)])
}

pub(super) fn puback(identifier: u16) -> Vec<u8> {
    packet(0x40, &[&identifier.to_be_bytes()])
}

pub(super) fn suback(identifier: u16, codes: &[u8]) -> Vec<u8> {
    packet(0x90, &[&identifier.to_be_bytes(), &[0], codes])
}

pub(super) const STRICT: Pairs<'_> = &[
    ("rt-deadline", "20 ms"),
    ("rt-period", "100 ms"),
    ("rt-strict", "yes"),
];
pub(super) const MILD: Pairs<'_> = &[("rt-deadline", "20 ms"), ("rt-period", "100 ms")];

pub(super) fn granted(class: u8) -> Verdict {
    Verdict::Granted {
        class: Class(class),
        bound_ns: Some(12_500_000),
        reason: String::new(),
        shared_with: vec![],
    }
}

pub(super) fn refused() -> Verdict {
    Verdict::Refused {
        reason: "a deadline of 20 ms would be missed".to_owned(),
        offer_deadline_ns: Some(35_000_000),
        offer_period_ns: None,
    }
}

pub(super) fn limits() -> Limits {
    Limits {
        hold: Span(500_000_000),
        header_bytes: 4_096,
        packet_bytes: 100_000,
        requests: 8,
        requests_per_second: 10,
        alias_bytes: 100,
    }
}

/// A session with what each side was sent, and what has not been passed over.
pub(super) struct Line {
    pub(super) session: Session,
    pub(super) limits: Limits,
    pub(super) now: Time,
    pub(super) control: bool,
    pub(super) groups: Option<Groups>,
    pub(super) interests: bool,
    from_client: Vec<u8>,
    from_broker: Vec<u8>,
    pub(super) to_broker: Vec<u8>,
    pub(super) to_client: Vec<u8>,
    /// What the client's direction said last.
    pub(super) last: Step,
}

impl Line {
    pub(super) fn new() -> Self {
        Self {
            session: Session::new(None),
            limits: limits(),
            now: Time(0),
            control: true,
            groups: None,
            interests: false,
            from_client: vec![],
            from_broker: vec![],
            to_broker: vec![],
            to_client: vec![],
            last: Step::More,
        }
    }

    /// One that is connected.
    pub(super) fn open(connect: &[u8]) -> Self {
        let mut line = Self::new();
        line.client(connect);
        let connack = if line
            .session
            .client()
            .is_some_and(|client| client.version == timebound_wire::mqtt::Version::V3)
        {
            &[0x20, 2, 0, 0]
        } else {
            CONNACK
        };
        line.broker(connack);
        line.forget();
        line
    }

    pub(super) fn forget(&mut self) {
        self.to_broker.clear();
        self.to_client.clear();
    }

    pub(super) fn client(&mut self, bytes: &[u8]) {
        self.from_client.extend(bytes);
        self.turn();
    }
    pub(super) fn broker(&mut self, bytes: &[u8]) {
        self.from_broker.extend(bytes);
        self.turn();
    }

    /// Lets both directions go on as far as they can.
    pub(super) fn turn(&mut self) {
        let Self {
            session,
            limits,
            now,
            control,
            groups,
            interests,
            from_client,
            from_broker,
            to_broker,
            to_client,
            last,
        } = self;
        let context = Context {
            now: *now,
            control: *control,
            limits,
            groups: groups.as_ref(),
            interests: *interests,
            connection: 7,
        };
        loop {
            *last = session.client_bytes(from_client, &context);
            if *last == Step::Dial {
                session.dialed();
                continue;
            }
            let up = apply(last, from_client, to_broker);
            let step = session.broker(from_broker, &context);
            let down = apply(&step, from_broker, to_client);
            if !up && !down {
                break;
            }
        }
    }

    /// Bytes that are not passed over yet.
    pub(super) fn waiting(&self) -> usize {
        self.from_client.len()
    }

    pub(super) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    /// Requests since somebody asked: number, revision, topic.
    pub(super) fn asked(&mut self) -> Vec<(u32, u32, Side, String)> {
        let asked = self.events().into_iter().filter_map(|event| match event {
            Event::Ask {
                number,
                revision,
                side,
                topic,
                ..
            } => Some((number, revision, side, topic)),
            _ => None,
        });
        asked.collect()
    }

    pub(super) fn decide(&mut self, number: u32, revision: u32, verdict: Verdict) {
        assert!(self.session.verdict(number, revision, verdict));
        self.turn();
    }
}

fn apply(step: &Step, from: &mut Vec<u8>, to: &mut Vec<u8>) -> bool {
    match step {
        Step::Forward(count) => {
            assert!(*count > 0);
            to.extend(from.drain(..*count));
        }
        Step::Replace { take, with } => {
            assert!(*take > 0 || !with.is_empty());
            from.drain(..*take);
            to.extend(with);
        }
        _ => return false,
    }
    true
}

/// Kind, reason, user properties.
type Acknowledgement = (Kind, u8, Vec<(String, String)>);

/// Kind, reason (of a SUBACK: its first code) and user properties of the acknowledgements in a stream.
pub(super) fn acknowledgements(mut bytes: &[u8]) -> Vec<Acknowledgement> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let head = Head::read(bytes).unwrap().expect("whole packets");
        let ack = Ack::read(&head, &bytes[head.length..head.whole()]).unwrap();
        let pairs = ack.properties.user();
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let reason = ack.codes.first().copied().unwrap_or(ack.reason);
        found.push((head.kind, reason, pairs.collect()));
        bytes = &bytes[head.whole()..];
    }
    found
}

/// The value of a property of the only acknowledgement.
pub(super) fn said(bytes: &[u8], key: &str) -> Option<String> {
    let found = acknowledgements(bytes);
    assert_eq!(found.len(), 1, "{found:?}");
    let pairs = found.into_iter().flat_map(|(_, _, pairs)| pairs);
    pairs
        .into_iter()
        .find_map(|(name, value)| (name == key).then_some(value))
}

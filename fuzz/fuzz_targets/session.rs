#![no_main]
//! A client and a broker that say anything, in pieces, through the manager: first a byte that says how it begins, then pieces, each behind
//! a byte with its direction and length.

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use timebound_model::{Class, Span, Time};
use timebound_protocol::intermediary::{Context, Event, Group, Groups, Limits, Outgoing, Phase, Relay, Room, Session, Step, Verdict};
use timebound_protocol::peer::message::Message;

const CONNECT: &[u8] = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01c";

fuzz_target!(|data: &[u8]| {
    let Some((&how, mut data)) = data.split_first() else {
        return;
    };
    let limits = Limits {
        hold: Span(1_000),
        header_bytes: 512,
        packet_bytes: 4_096,
        requests: 8,
        requests_per_second: 100,
        alias_bytes: 64,
    };
    let room = Arc::new(Room::default());
    room.set(how & 16 == 0);
    let groups = Groups::new(
        vec![Group { number: 0, topic: "+".to_owned(), priority: 5, owner: None, room: Arc::clone(&room) }],
        vec![Relay { number: 2, interests: vec!["a/#".to_owned()], room }],
    );
    let mut session = Session::new((how & 1 != 0).then_some("name"));
    let (mut up, mut down): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
    if how & 2 != 0 {
        up.extend(CONNECT);
    }
    let mut now = 0;
    while let [first, rest @ ..] = data {
        let (piece, after) = rest.split_at(usize::from(first >> 1).min(rest.len()));
        data = after;
        if first & 1 == 0 { &mut up } else { &mut down }.extend(piece);
        now += 300;
        let context = Context {
            now: Time(now),
            control: how & 4 == 0,
            limits: &limits,
            groups: (how & 8 == 0).then_some(&groups),
            interests: how & 32 == 0,
            connection: 1,
        };
        loop {
            let step = session.client_bytes(&up, &context);
            if step == Step::More {
                // What is not passed over is a header that has not come to its end.
                let most = match session.phase() {
                    Phase::Fresh | Phase::Dialing | Phase::Greeting => limits.connect_bytes(),
                    _ => limits.header_bytes + 5,
                };
                assert!(up.len() <= most);
            }
            match step {
                Step::Dial if how & 8 == 0 => session.dialed(),
                Step::Dial => session.unreachable(),
                step => {
                    let moved = apply(&step, &mut up);
                    if !(apply(&session.broker(&down, &context), &mut down) || moved) {
                        break;
                    }
                }
            }
        }
        while let Some(outgoing) = session.poll_outgoing() {
            if let Outgoing::Message { packet, message, .. } = outgoing {
                assert!(Message::read(&message).is_ok());
                session.taken(packet);
            }
        }
        while let Some(event) = session.poll_event() {
            if let Event::Ask { number, revision, .. } = event {
                session.verdict(number, revision, verdict(number ^ u32::from(how >> 4)));
            }
        }
    }
    session.closed(Time(now));
});

fn verdict(number: u32) -> Verdict {
    match number % 3 {
        0 => Verdict::Granted {
            class: Class(5),
            bound_ns: Some(1),
            reason: String::new(),
            shared_with: vec!["b".to_owned()],
        },
        1 => Verdict::Refused {
            reason: "no".to_owned(),
            offer_deadline_ns: Some(9),
            offer_period_ns: None,
        },
        _ => Verdict::Unavailable {
            reason: "nobody".to_owned(),
        },
    }
}

fn apply(step: &Step, bytes: &mut Vec<u8>) -> bool {
    match step {
        Step::Forward(count) => {
            assert!(*count > 0);
            bytes.drain(..*count);
        }
        Step::Replace { take, with } => {
            assert!(take + with.len() > 0);
            bytes.drain(..*take);
        }
        _ => return false,
    }
    true
}

#![no_main]
//! Datagrams and control messages as a peer that means harm may send them, to both ends of a stream; what a broker may say to the client
//! that hands messages over; messages.

use libfuzzer_sys::fuzz_target;
use std::net::Ipv4Addr;
use timebound_model::units::Time;
use timebound_protocol::peer::StreamId;
use timebound_protocol::peer::control::Control;
use timebound_protocol::peer::datagram::Datagram;
use timebound_protocol::peer::injector::{Injector, Token};
use timebound_protocol::peer::message::Message;
use timebound_protocol::peer::receiver::{self, Receiver};
use timebound_protocol::peer::seal::{self, Seen};
use timebound_protocol::peer::sender::{self, Sender};

fuzz_target!(|data: &[u8]| {
    let mut receiver = Receiver::new(receiver::Limits {
        waiting: 16,
        message: 4_000,
        keys: 8,
    });
    let stream = StreamId { life: 1, number: 1 };
    let mut sender = Sender::new(stream, true, sender::Limits::default());
    let (mut effects, mut here) = (Vec::new(), Vec::new());
    let invitation = Control::Invite {
        stream,
        group: Ipv4Addr::new(239, 192, 0, 1),
        port: 1,
        class: 1,
        reliable: true,
        topic: String::new(),
    };
    sender.invite(Time(0), 1, invitation, &mut effects);
    if let Ok(message) = Message::read(data) {
        assert!(message.packet(message.qos(), message.retain(), 1).is_some());
    }
    let mut seen = Seen::default();
    for piece in data.chunks(seal::HEADER + seal::TAG) {
        if let Some(number) = seal::number(piece)
            && seen.is_new(number)
        {
            seen.note(number);
            assert!(!seen.is_new(number));
        }
    }
    let mut injector = Injector::new("timebound/m/1".to_owned(), None, None);
    let mut said = Vec::new();
    let token = |end| Token { peer: 1, stream, end, key: end };
    for (end, piece) in (1..).zip(data.chunks(7)) {
        if !injector.is_up() && end % 2 == 1 {
            injector.connected();
            let _ = injector.bytes(&[0x20, 3, end as u8 & 1, 0, 0], &mut said);
        }
        injector.deliver(token(end), [&[0x30 | (end as u8 % 3) << 1, 0, 1, b't', 0], piece].concat(), &mut said);
        if let Err(why) = injector.bytes(piece, &mut said) {
            injector.disconnected(Some(why), &mut said);
        }
        injector.take_output();
    }
    let mut rest = data;
    let mut now = 0;
    while let Some((&step, more)) = rest.split_first() {
        now += u64::from(step) * 1_000_000;
        rest = more;
        if step & 1 == 0 {
            let take = usize::from(step).min(rest.len());
            if let Ok(datagram) = Datagram::read(&rest[..take]) {
                receiver.join(datagram.stream, datagram.reliable);
                receiver.datagram(&datagram, &mut here);
            }
            rest = &rest[take..];
        } else if let Ok(Some((control, taken))) = Control::read(rest) {
            match control {
                Control::Joined { .. } => sender.has_joined(Time(now), 1, &mut effects),
                Control::Arrived(arrived) => {
                    let _ = sender.arrived(Time(now), 1, &arrived, &mut effects);
                }
                Control::From { stream, sequence } => receiver.from(stream, sequence, &mut here),
                Control::Leave { stream } => receiver.leave(stream, &mut here),
                Control::Release { stream, end, key } => {
                    receiver.release(stream, end, key, &mut here);
                }
                Control::Invite { stream, reliable, .. } => receiver.join(stream, reliable),
                Control::Hello { .. } | Control::Key(_) => {}
            }
            rest = &rest[taken..];
        }
        let _ = sender.publish(Time(now), rest, u64::from(step), &mut effects);
        sender.timeout(Time(now), &mut effects);
        effects.clear();
        here.clear();
    }
});

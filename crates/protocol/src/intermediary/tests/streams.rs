use super::support::*;
use crate::intermediary::{Context, Session, Step};
use proptest::prelude::*;
use timebound_model::Time;
use timebound_wire::mqtt::Head;

/// Packets of a client that asks for nothing, some of them of no use.
fn quiet_packet() -> impl Strategy<Value = Vec<u8>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..300);
    prop_oneof![
        ("[a-c/]{1,4}", 0u8..3, 1u16..9, payload.clone()).prop_map(|(topic, qos, id, payload)| publish(
            &topic,
            qos,
            id,
            &[("colour", "red")],
            &payload
        )),
        (0u8..3, 1u16..9, payload.clone()).prop_map(|(qos, id, payload)| publish(
            "a",
            qos,
            id,
            &[],
            &payload
        )),
        (1u16..4, "[ab]{0,3}").prop_map(|(alias, topic)| {
            publish_with(&topic, 0, 0, &[&[0x23][..], &alias.to_be_bytes()].concat(), b"x")
        }),
        (1u16..9).prop_map(|id| subscribe(id, &[("a", "b")], &["a/#", "b"])),
        (1u16..9).prop_map(|id| unsubscribe(id, "b")),
        (1u16..9).prop_map(puback),
        Just(vec![0xc0, 0]),
        // Whole, but nothing that can be read.
        payload.clone().prop_map(|bytes| packet(0x30, &[&bytes])),
        payload.clone().prop_map(|bytes| packet(0x82, &[&bytes])),
        payload.clone().prop_map(|bytes| packet(0x10, &[&bytes])),
        // Of no type that there is, or with flags that its type does not allow.
        (any::<u8>(), payload)
            .prop_filter("it begins a packet", |(first, _)| Head::read(&[*first, 0])
                .is_err())
            .prop_map(|(first, bytes)| packet(first, &[&bytes])),
    ]
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(1usize..400, 1..40)
}

fn pieces<'b>(bytes: &'b [u8], cuts: &'b [usize]) -> impl Iterator<Item = &'b [u8]> {
    let mut rest = bytes;
    let mut cuts = cuts.iter().cycle();
    std::iter::from_fn(move || {
        let take = rest.len().min(*cuts.next()?);
        let (piece, after) = rest.split_at(take);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

proptest! {
    #[test]
    fn who_asks_for_nothing_gets_every_byte_through_in_both_directions(
        up in proptest::collection::vec(quiet_packet(), 0..20),
        down in proptest::collection::vec(quiet_packet(), 0..20),
        cuts in cuts(),
        is_5 in any::<bool>(),
    ) {
        let connect = if is_5 { connect(&[], &[("colour", "red")]) } else { connect_3() };
        let mut line = Line::open(&connect);
        line.limits.alias_bytes = 10_000;
        let (up, down) = (up.concat(), down.concat());
        for piece in pieces(&up, &cuts) {
            line.client(piece);
        }
        for piece in pieces(&down, &cuts) {
            line.broker(piece);
        }
        prop_assert_eq!(&line.to_broker, &up);
        prop_assert_eq!(&line.to_client, &down);
        prop_assert_eq!(line.waiting(), 0);
        prop_assert!(line.events().is_empty());
    }

    #[test]
    fn what_asks_is_held_but_never_changed_and_never_overtaken(
        packets in proptest::collection::vec((0usize..4, 0u8..3, any::<bool>(), 0u8..5), 1..30),
        cuts in cuts(),
    ) {
        let mut line = Line::open(&connect(&[], &[]));
        (line.limits.requests, line.limits.requests_per_second) = (100, 10_000);
        let mut sent = Vec::new();
        for (number, (topic, qos, asks, deadline)) in packets.into_iter().enumerate() {
            let deadline = format!("{} ms", deadline + 1);
            let pairs: Pairs<'_> = if asks { &[("rt-deadline", &deadline)] } else { &[] };
            let topic = ["a", "b", "c/d", "e"][topic];
            sent.extend(publish(topic, qos, number as u16 + 1, pairs, &[number as u8; 40]));
        }
        for (turn, piece) in pieces(&sent, &cuts).enumerate() {
            line.client(piece);
            prop_assert!(sent.starts_with(&line.to_broker));
            // Some are decided, some run into their time.
            for (number, revision, ..) in line.asked() {
                if turn % 3 == 0 {
                    line.session.verdict(number, revision, if number % 2 == 0 { granted(1) } else { refused() });
                }
            }
            line.now = Time(line.now.0 + 300_000_000);
            line.turn();
        }
        for _ in 0..100 {
            line.now = Time(line.now.0 + 600_000_000);
            line.turn();
        }
        prop_assert_eq!(&line.to_broker, &sent);
        // One waits for another that waits: never longer than its own time.
        prop_assert_eq!(line.session.timeout(), None);
    }

    #[test]
    fn whatever_comes_nothing_breaks_and_what_is_kept_is_bounded(
        up in proptest::collection::vec(prop_oneof![3 => any::<u8>().boxed(), 1 => Just(0x30).boxed(), 1 => Just(0x26).boxed(), 2 => (0u8..6).boxed()], 0..600),
        down in proptest::collection::vec(any::<u8>(), 0..200),
        opened in 0usize..3,
        cuts in cuts(),
    ) {
        let mut session = Session::new((opened == 2).then_some("name"));
        let mut first = if opened == 0 { Vec::new() } else { connect(&[], MILD) };
        first.extend(&up);
        let limits = limits();
        let mut context = Context { now: Time(0), control: true, limits: &limits, groups: None, interests: false, connection: 0 };
        let mut waiting: Vec<u8> = Vec::new();
        for piece in pieces(&first, &cuts) {
            waiting.extend(piece);
            loop {
                match session.client_bytes(&waiting, &context) {
                    Step::Forward(count) => {
                        prop_assert!(0 < count && count <= waiting.len());
                        waiting.drain(..count);
                    }
                    Step::Replace { take, with } => {
                        prop_assert!(take <= waiting.len() && take + with.len() > 0);
                        waiting.drain(..take);
                    }
                    Step::Dial => session.dialed(),
                    Step::More => {
                        prop_assert!(waiting.len() <= limits.connect_bytes());
                        break;
                    }
                    Step::Hold => context.now = session.timeout().expect("it waits for something"),
                    Step::End => {
                        waiting.clear();
                        break;
                    }
                }
            }
        }
        let mut at = 0;
        loop {
            match session.broker(&down[at..], &context) {
                Step::Forward(count) => at += count,
                Step::Replace { take, .. } => at += take,
                _ => break,
            }
        }
    }
}

//! Two ends and a network between them that loses, doubles and delays.

use super::control::{Arrived, Control};
use super::datagram::Datagram;
use super::receiver::{self, Receiver};
use super::sender::{self, Effect, Refused, Sender, To};
use super::{PART, PeerId, StreamId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::Ipv4Addr;
use timebound_model::units::{Span, Time};

const STREAM: StreamId = StreamId { life: 7, number: 1 };

fn invitation(reliable: bool) -> Control {
    Control::Invite {
        stream: STREAM,
        group: Ipv4Addr::new(239, 192, 0, 1),
        port: 7_883,
        class: 5,
        reliable,
        topic: "plant/alarm".to_owned(),
    }
}

/// What is under way, by time and number.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Travelling {
    Datagram(PeerId, Vec<u8>),
    ToPeer(PeerId, Control),
    ToSender(PeerId, Control),
    /// The peer's broker confirms.
    Confirmed(PeerId, u64, u64),
}

#[derive(Debug, PartialEq, Eq)]
struct Due(std::cmp::Reverse<(Time, u64)>, Travelling);

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// How a network treats datagrams; TCP between peers keeps order and loses nothing.
#[derive(Debug, Clone, Copy)]
struct Network {
    seed: u64,
    loss: u64,
    doubling: u64,
    reordering: u64,
}

struct World {
    network: Network,
    now: Time,
    number: u64,
    due: BinaryHeap<Due>,
    sender: Sender,
    receivers: BTreeMap<PeerId, Receiver>,
    delivered: BTreeMap<PeerId, Vec<Vec<u8>>>,
    taken: Vec<u64>,
    undelivered: Vec<(PeerId, std::ops::Range<u64>)>,
    sent: u64,
    meter: Option<Meter>,
}

/// Drops what comes faster than its rate, as the first switch of a channel does.
struct Meter {
    per_second: u64,
    most: u64,
    /// Billionths of a datagram.
    held: u64,
    at: Time,
}

impl Meter {
    fn passes(&mut self, now: Time) -> bool {
        let since = now.since(self.at).0;
        self.held = (self.held + since * self.per_second).min(self.most * 1_000_000_000);
        self.at = now;
        let passes = self.held >= 1_000_000_000;
        self.held -= if passes { 1_000_000_000 } else { 0 };
        passes
    }
}

impl World {
    fn new(network: Network, peers: PeerId, reliable: bool) -> Self {
        let mut world = Self {
            network,
            now: Time(0),
            number: 0,
            due: BinaryHeap::new(),
            sender: Sender::new(STREAM, reliable, sender::Limits::default()),
            receivers: (0..peers)
                .map(|peer| (peer, Receiver::new(receiver::Limits::default())))
                .collect(),
            delivered: BTreeMap::new(),
            taken: Vec::new(),
            undelivered: Vec::new(),
            sent: 0,
            meter: None,
        };
        for peer in 0..peers {
            let mut effects = Vec::new();
            world
                .sender
                .invite(world.now, peer, invitation(reliable), &mut effects);
            world.carry_out(effects);
        }
        world
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.network.seed = self
            .network
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.network.seed >> 33) % below
    }

    fn later(&mut self, after: Span, what: Travelling) {
        self.number += 1;
        self.due
            .push(Due(std::cmp::Reverse((self.now.after(after), self.number)), what));
    }

    fn datagram(&mut self, peer: PeerId, bytes: &[u8]) {
        self.sent += 1;
        let now = self.now;
        if self.meter.as_mut().is_some_and(|meter| !meter.passes(now)) {
            return;
        }
        let copies = 1 + u64::from(self.draw(100) < self.network.doubling);
        for _ in 0..copies {
            if self.draw(100) >= self.network.loss {
                let extra = match self.draw(100) < self.network.reordering {
                    true => Span::from_micros(self.draw(5_000)),
                    false => Span::ZERO,
                };
                let delay = Span::from_millis(1).saturating_add(extra);
                self.later(delay, Travelling::Datagram(peer, bytes.to_vec()));
            }
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { to, sequence } => {
                    let bytes = self.sender.datagram(sequence).to_vec();
                    assert!(!bytes.is_empty(), "a datagram that is not there");
                    let peers: Vec<PeerId> = match to {
                        To::Group => self.receivers.keys().copied().collect(),
                        To::Peer(peer) => vec![peer],
                    };
                    peers.into_iter().for_each(|peer| self.datagram(peer, &bytes));
                }
                Effect::Tell(peer, control) => {
                    self.later(Span::from_millis(2), Travelling::ToPeer(peer, control));
                }
                Effect::Taken { message } => self.taken.push(message),
                Effect::Undelivered { peer, messages } => self.undelivered.push((peer, messages)),
                Effect::Open | Effect::Lost(_) => {}
            }
        }
    }

    fn at_peer(&mut self, peer: PeerId, effects: Vec<receiver::Effect>) {
        for effect in effects {
            match effect {
                receiver::Effect::Deliver {
                    message, end, key, ..
                } => {
                    self.delivered.entry(peer).or_default().push(message);
                    let delay = Span::from_micros(self.draw(3_000));
                    self.later(delay, Travelling::Confirmed(peer, end, key));
                }
                receiver::Effect::Pass { message, .. } => {
                    self.delivered.entry(peer).or_default().push(message);
                }
                receiver::Effect::Tell(arrived) => {
                    self.later(
                        Span::from_millis(2),
                        Travelling::ToSender(peer, Control::Arrived(arrived)),
                    );
                }
            }
        }
    }

    /// Until nothing is due before `end`.
    fn run(&mut self, end: Time) {
        loop {
            let arrival = self.due.peek().map(|due| due.0.0.0);
            let timeout = self.sender.next_timeout();
            let Some(next) = arrival
                .into_iter()
                .chain(timeout)
                .min()
                .filter(|next| *next <= end)
            else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let Due(_, what) = self.due.pop().unwrap();
                self.happen(what);
            } else {
                let mut effects = Vec::new();
                self.sender.timeout(self.now, &mut effects);
                assert!(
                    self.sender.next_timeout().is_none_or(|next| next > self.now),
                    "a time-out that does not pass"
                );
                self.carry_out(effects);
            }
        }
    }

    fn happen(&mut self, what: Travelling) {
        let mut here = Vec::new();
        match what {
            Travelling::Datagram(peer, bytes) => {
                let datagram = Datagram::read(&bytes).unwrap();
                if let Some(receiver) = self.receivers.get_mut(&peer) {
                    receiver.datagram(&datagram, &mut here);
                }
                self.at_peer(peer, here);
            }
            Travelling::Confirmed(peer, end, key) => {
                if let Some(receiver) = self.receivers.get_mut(&peer) {
                    receiver.taken(STREAM, end, key, &mut here);
                }
                self.at_peer(peer, here);
            }
            Travelling::ToPeer(peer, control) => {
                let Some(receiver) = self.receivers.get_mut(&peer) else {
                    return;
                };
                match control {
                    Control::Invite { stream, reliable, .. } => {
                        receiver.join(stream, reliable);
                        let joined = Control::Joined { stream };
                        self.later(Span::from_millis(2), Travelling::ToSender(peer, joined));
                    }
                    Control::From { stream, sequence } => receiver.from(stream, sequence, &mut here),
                    Control::Release { stream, end, key } => {
                        receiver.release(stream, end, key, &mut here);
                    }
                    other => panic!("{other:?}"),
                }
                self.at_peer(peer, here);
            }
            Travelling::ToSender(peer, control) => {
                let mut effects = Vec::new();
                match control {
                    Control::Joined { .. } => self.sender.has_joined(self.now, peer, &mut effects),
                    Control::Arrived(arrived) => {
                        self.sender
                            .arrived(self.now, peer, &arrived, &mut effects)
                            .unwrap();
                    }
                    other => panic!("{other:?}"),
                }
                self.carry_out(effects);
            }
        }
    }

    fn publish(&mut self, message: &[u8], key: u64) -> Result<u64, Refused> {
        let mut effects = Vec::new();
        let number = self.sender.publish(self.now, message, key, &mut effects);
        self.carry_out(effects);
        number
    }
}

fn message(number: usize, size: usize) -> Vec<u8> {
    (0..size.max(8))
        .map(|at| {
            if at < 8 {
                number.to_be_bytes()[at]
            } else {
                (at * 7 + number) as u8
            }
        })
        .collect()
}

fn perfect(seed: u64) -> Network {
    Network {
        seed,
        loss: 0,
        doubling: 0,
        reordering: 0,
    }
}

#[test]
fn data_waits_until_all_who_were_invited_have_joined() {
    let mut world = World::new(perfect(1), 3, true);
    assert_eq!(world.publish(b"early", 0), Err(Refused::NotOpen));
    world.run(Time(10_000_000));
    assert!(world.sender.is_open());
    assert_eq!(world.publish(b"now", 0), Ok(0));
    world.run(Time(1_000_000_000));
    assert_eq!(world.taken, [0]);
    assert_eq!(world.delivered.len(), 3);
    assert_eq!(world.sent, 3, "nothing is sent again where nothing is lost");
}

#[test]
fn who_does_not_join_is_not_waited_for_longer_than_allowed() {
    let mut world = World::new(perfect(1), 1, true);
    let mut effects = Vec::new();
    world.sender.invite(world.now, 9, invitation(true), &mut effects);
    world.carry_out(effects);
    world.run(Time(1_900_000_000));
    assert!(!world.sender.is_open());
    world.run(Time(2_100_000_000));
    assert_eq!(world.publish(b"now", 0), Ok(0));
    world.run(Time(3_000_000_000));
    assert_eq!(world.taken, [0]);
}

#[test]
fn a_lost_member_is_told_with_what_it_did_not_take() {
    let mut world = World::new(perfect(3), 2, true);
    world.run(Time(100_000_000));
    world.publish(b"one", 0).unwrap();
    world.run(Time(200_000_000));
    world.receivers.remove(&1);
    world.publish(b"two", 0).unwrap();
    world.publish(b"three", 0).unwrap();
    world.run(Time(20_000_000_000));
    assert_eq!(world.taken, [0], "it is waited for");
    world.run(Time(40_000_000_000));
    assert_eq!(world.taken, [0, 1, 2]);
    assert_eq!(world.undelivered, [(1, 1..3)]);
}

#[test]
fn a_lost_member_that_joins_again_goes_on_with_what_is_sent_then() {
    let mut world = World::new(perfect(3), 1, true);
    world.run(Time(100_000_000));
    world.publish(b"one", 0).unwrap();
    world.run(Time(200_000_000));
    let away = world.receivers.remove(&0).unwrap();
    world.publish(b"two", 0).unwrap();
    world.run(Time(40_000_000_000));
    assert_eq!(world.undelivered, [(0, 1..2)]);
    world.receivers.insert(0, away);
    let mut effects = Vec::new();
    world.sender.invite(world.now, 0, invitation(true), &mut effects);
    world.carry_out(effects);
    world.run(Time(41_000_000_000));
    world.publish(b"three", 0).unwrap();
    world.run(Time(42_000_000_000));
    assert_eq!(world.delivered[&0], [b"one".to_vec(), b"three".to_vec()]);
    assert_eq!(world.taken, [0, 1, 2]);
}

#[test]
fn what_was_not_sent_cannot_be_acknowledged() {
    let mut world = World::new(perfect(1), 1, true);
    world.run(Time(10_000_000));
    world.publish(b"one", 0).unwrap();
    let report = |next, beyond, taken| Arrived {
        stream: STREAM,
        next,
        beyond,
        taken,
    };
    for wrong in [
        report(2, 0, 0),
        report(0, 1, 0),
        report(1, 1, 1),
        report(0, 1 << 63, 0),
    ] {
        let found = world.sender.arrived(world.now, 0, &wrong, &mut Vec::new());
        assert!(found.is_err(), "{wrong:?}");
    }
    assert!(
        world
            .sender
            .arrived(world.now, 0, &report(1, 0, 1), &mut Vec::new())
            .is_ok()
    );
}

#[test]
fn a_gap_of_many_datagrams_is_filled_without_a_second_for_each_few() {
    let mut world = World::new(perfect(1), 1, true);
    world.run(Time(10_000_000));
    // All of it is lost, and then a tenth of what is sent again.
    world.network.loss = 100;
    assert_eq!(world.publish(&vec![0; PART * 4_000], 0), Ok(0));
    world.network.loss = 10;
    // 63 bursts, of which hardly one arrives whole.
    world.run(Time(8_000_000_000));
    assert_eq!(world.taken, [0]);
}

/// What is sent again goes through the meter, too: faster than that it only takes the place of what is new.
#[test]
fn what_a_meter_drops_is_sent_again_no_faster_than_it_lets_pass() {
    let mut world = World::new(perfect(1), 1, true);
    world.run(Time(10_000_000));
    world.meter = Some(Meter {
        per_second: 300,
        most: 30,
        held: 0,
        at: world.now,
    });
    let mut expected = Vec::new();
    // A burst beyond the meter, then two thirds of its rate.
    for number in 0..600 {
        let bytes = message(number, 1_000);
        world.publish(&bytes, 0).unwrap();
        expected.push(bytes);
        if number >= 200 {
            world.run(world.now.after(Span::from_millis(5)));
        }
    }
    world.run(world.now.after(Span::from_secs(2)));
    assert_eq!(world.delivered[&0], expected);
    assert!(world.sent < 3 * 600, "{} datagrams for 600", world.sent);
}

#[test]
fn a_window_that_is_full_holds_the_publisher_back() {
    let mut world = World::new(perfect(1), 1, true);
    world.run(Time(10_000_000));
    let long = vec![0; PART * 4_000];
    assert_eq!(world.publish(&long, 0), Ok(0));
    assert_eq!(world.publish(&long, 0), Err(Refused::Full));
    assert_eq!(world.publish(&vec![0; PART * 5_000], 0), Err(Refused::TooLong));
    world.run(Time(10_000_000_000));
    assert_eq!(world.publish(&long, 0), Ok(1));
}

/// A QoS 2 message; `again`: with DUP.
fn exactly_once(again: bool, text: &[u8]) -> Vec<u8> {
    let flags = if again { 0x3c } else { 0x34 };
    [&[flags, 0, 1, b't', 0], text].concat()
}

impl World {
    fn release(&mut self, peer: PeerId, end: u64, key: u64) {
        let stream = STREAM;
        self.later(
            Span::from_millis(2),
            Travelling::ToPeer(peer, Control::Release { stream, end, key }),
        );
    }
}

#[test]
fn a_key_is_delivered_once_until_it_is_released() {
    let mut world = World::new(perfect(1), 1, true);
    world.run(Time(10_000_000));
    world.publish(&exactly_once(false, b"once"), 5).unwrap();
    world.publish(&exactly_once(true, b"once"), 5).unwrap();
    world.run(Time(1_000_000_000));
    assert_eq!((world.delivered[&0].len(), &world.taken[..]), (1, &[0, 1][..]));
    world.release(0, 1, 5);
    world.run(Time(2_000_000_000));
    world.publish(&exactly_once(true, b"another"), 5).unwrap();
    world.run(Time(3_000_000_000));
    assert_eq!(world.delivered[&0].len(), 2);
    assert_eq!(world.receivers[&0].counts().known, 1);
}

#[test]
fn a_new_message_that_overtakes_the_release_of_the_one_before_is_delivered_and_remembered() {
    let mut world = World::new(perfect(1), 1, true);
    world.run(Time(10_000_000));
    world.publish(&exactly_once(false, b"one"), 5).unwrap();
    world.publish(&exactly_once(false, b"two"), 5).unwrap();
    world.run(Time(1_000_000_000));
    world.release(0, 1, 5);
    world.run(Time(2_000_000_000));
    world.publish(&exactly_once(true, b"two"), 5).unwrap();
    world.run(Time(3_000_000_000));
    let expected = [exactly_once(false, b"one"), exactly_once(false, b"two")];
    assert_eq!(world.delivered[&0], expected);
    assert_eq!(world.taken, [0, 1, 2]);
}

#[test]
fn a_repetition_is_taken_when_the_first_one_is_and_not_before() {
    let mut receiver = Receiver::new(receiver::Limits::default());
    let other = StreamId { life: 8, number: 1 };
    let mut effects = Vec::new();
    for (stream, again) in [(STREAM, false), (other, true)] {
        receiver.join(stream, true);
        receiver.from(stream, 0, &mut effects);
        let part = exactly_once(again, b"x");
        let datagram = Datagram {
            stream,
            sequence: 0,
            first: true,
            last: true,
            reliable: true,
            again: false,
            key: 5,
            part: &part,
        };
        receiver.datagram(&datagram, &mut effects);
    }
    let taken = |effects: &[receiver::Effect]| {
        let told = effects.iter().filter_map(|effect| match effect {
            receiver::Effect::Tell(arrived) => Some((arrived.stream, arrived.taken)),
            _ => None,
        });
        told.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(taken(&effects), BTreeMap::from([(STREAM, 0), (other, 0)]));
    receiver.taken(STREAM, 1, 5, &mut effects);
    assert_eq!(taken(&effects), BTreeMap::from([(STREAM, 1), (other, 1)]));
    let delivered = effects
        .iter()
        .filter(|effect| matches!(effect, receiver::Effect::Deliver { .. }));
    assert_eq!(delivered.count(), 1);
}

#[test]
fn what_its_sender_sends_again_to_another_life_of_the_receiver_is_not_delivered_twice() {
    let mut world = World::new(perfect(1), 1, true);
    world.run(Time(10_000_000));
    world
        .receivers
        .insert(0, Receiver::new(receiver::Limits::default()));
    world.publish(&exactly_once(false, b"one"), 5).unwrap();
    // The life before had handed it over and written that down, and had no time to say so.
    world.receivers.get_mut(&0).unwrap().remember(5, STREAM, 1);
    let mut effects = Vec::new();
    world.sender.invite(world.now, 0, invitation(true), &mut effects);
    world.carry_out(effects);
    world.run(Time(2_000_000_000));
    assert!(!world.delivered.contains_key(&0));
    assert_eq!(world.taken, [0]);
}

#[test]
fn beyond_the_keys_that_are_remembered_messages_wait_for_a_release() {
    let mut world = World::new(perfect(1), 1, true);
    world.receivers.insert(
        0,
        Receiver::new(receiver::Limits {
            keys: 2,
            ..receiver::Limits::default()
        }),
    );
    world.run(Time(10_000_000));
    for key in 1..=4 {
        world
            .publish(&exactly_once(false, &[key]), u64::from(key))
            .unwrap();
    }
    world.run(Time(500_000_000));
    assert_eq!((world.delivered[&0].len(), &world.taken[..]), (2, &[0, 1][..]));
    world.release(0, 1, 1);
    world.run(Time(1_000_000_000));
    assert_eq!((world.delivered[&0].len(), &world.taken[..]), (3, &[0, 1, 2][..]));
    world.release(0, 2, 2);
    world.release(0, 3, 3);
    world.run(Time(2_000_000_000));
    assert_eq!(
        (world.delivered[&0].len(), &world.taken[..]),
        (4, &[0, 1, 2, 3][..])
    );
}

#[test]
fn a_member_whose_process_was_started_again_gets_what_its_broker_has_not_confirmed() {
    let mut world = World::new(perfect(1), 2, true);
    world.run(Time(10_000_000));
    world.publish(b"one", 0).unwrap();
    world.run(Time(100_000_000));
    world.publish(b"two", 0).unwrap();
    // It has arrived and was reported, and the broker had no time to confirm it.
    while !world.delivered[&1].contains(&b"two".to_vec()) {
        world.run(world.now.after(Span::from_micros(100)));
    }
    world
        .due
        .retain(|due| !matches!(due.1, Travelling::Confirmed(1, ..)));
    world.run(world.now.after(Span::from_millis(3)));
    world
        .receivers
        .insert(1, Receiver::new(receiver::Limits::default()));
    world.sender.restarted(world.now, 1);
    let mut effects = Vec::new();
    world.sender.invite(world.now, 1, invitation(true), &mut effects);
    world.carry_out(effects);
    world.run(Time(2_000_000_000));
    assert_eq!(world.delivered[&1], [&b"one"[..], b"two", b"two"]);
    assert_eq!((&world.taken[..], world.undelivered.len()), (&[0, 1][..], 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_message_is_delivered_once_and_in_order(
        seed in any::<u64>(), loss in 0u64..30, doubling in 0u64..20, reordering in 0u64..20, peers in 1u32..4,
        messages in proptest::collection::vec((0usize..5_000, 0u64..20), 1..40),
    ) {
        let mut world = World::new(Network { seed, loss, doubling, reordering }, peers, true);
        world.run(Time(50_000_000));
        let mut expected = Vec::new();
        for (number, (size, gap)) in messages.iter().enumerate() {
            let bytes = message(number, *size);
            prop_assert_eq!(world.publish(&bytes, 0), Ok(number as u64));
            expected.push(bytes);
            world.run(world.now.after(Span::from_millis(*gap)));
        }
        world.run(world.now.after(Span::from_secs(25)));
        for peer in 0..peers {
            prop_assert_eq!(&world.delivered[&peer], &expected);
        }
        prop_assert_eq!(&world.taken, &(0..expected.len() as u64).collect::<Vec<_>>());
        prop_assert!(world.undelivered.is_empty());
        prop_assert_eq!(world.sender.next_timeout(), None, "nothing is due any more");
    }

    #[test]
    fn without_acknowledgements_order_is_kept_and_nothing_comes_twice(
        seed in any::<u64>(), loss in 0u64..30, doubling in 0u64..20, reordering in 0u64..20,
        sizes in proptest::collection::vec(0usize..4_000, 1..60),
    ) {
        let mut world = World::new(Network { seed, loss, doubling, reordering }, 2, false);
        world.run(Time(50_000_000));
        let mut expected = Vec::new();
        for (number, size) in sizes.iter().enumerate() {
            let bytes = message(number, *size);
            world.publish(&bytes, 0).unwrap();
            expected.push(bytes);
            world.run(world.now.after(Span::from_millis(2)));
        }
        world.run(world.now.after(Span::from_secs(1)));
        for found in world.delivered.values() {
            let mut rest = expected.iter();
            prop_assert!(found.iter().all(|message| rest.any(|other| other == message)));
        }
        if loss == 0 && reordering == 0 {
            prop_assert_eq!(world.delivered[&0].len(), expected.len());
        }
    }
}

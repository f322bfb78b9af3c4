//! Two ends and a network between them that loses, doubles and delays.

use super::control::{Arrived, Control};
use super::datagram::Datagram;
use super::pacing::{Pacer, Reservation, Transmit, wire_bytes};
use super::receiver::{self, Receiver};
use super::sender::{self, Effect, Refused, Sender, To};
use super::{PART, PeerId, StreamId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use timebound_model::units::{Span, Time};

const STREAM: StreamId = StreamId { life: 7, number: 1 };
/// Of the same group, without acknowledgements.
const LOOSE: StreamId = StreamId { life: 7, number: 0 };

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
    /// The other stream of the group.
    loose: Sender,
    pacer: Pacer,
    /// When how many bytes left, on the wire.
    left: Vec<(Time, u64)>,
    receivers: BTreeMap<PeerId, Receiver>,
    delivered: BTreeMap<PeerId, Vec<Vec<u8>>>,
    taken: Vec<u64>,
    undelivered: Vec<(PeerId, std::ops::Range<u64>)>,
    returned: Vec<(u64, Vec<u8>)>,
    sent: u64,
    meter: Option<Meter>,
    metered: u64,
}

/// Drops what comes faster than its rate, as the first switch of a channel does.
struct Meter {
    per_second: u64,
    most: u64,
    /// Billionths of what is counted.
    held: u64,
    at: Time,
    /// What a datagram counts.
    counts: fn(&[u8]) -> u64,
}

impl Meter {
    fn passes(&mut self, now: Time, datagram: &[u8]) -> bool {
        let since = now.since(self.at).0;
        self.held = (self.held + since * self.per_second).min(self.most * 1_000_000_000);
        self.at = now;
        let needed = (self.counts)(datagram) * 1_000_000_000;
        let passes = self.held >= needed;
        self.held -= if passes { needed } else { 0 };
        passes
    }
}

impl World {
    fn new(network: Network, peers: PeerId, reliable: bool) -> Self {
        let mut sender = Sender::new(STREAM, reliable, sender::Limits::default());
        let mut loose = Sender::new(LOOSE, false, sender::Limits::default());
        let mut world = Self {
            network,
            now: Time(0),
            number: 0,
            due: BinaryHeap::new(),
            pacer: Pacer::new(Time(0), None, 0, [&mut sender, &mut loose]),
            sender,
            loose,
            left: Vec::new(),
            receivers: (0..peers)
                .map(|peer| (peer, Receiver::new(receiver::Limits::default())))
                .collect(),
            delivered: BTreeMap::new(),
            taken: Vec::new(),
            undelivered: Vec::new(),
            returned: Vec::new(),
            sent: 0,
            meter: None,
            metered: 0,
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
                Effect::Tell(peer, control) => {
                    self.later(Span::from_millis(2), Travelling::ToPeer(peer, control));
                }
                Effect::Taken { message } => self.taken.push(message),
                Effect::Undelivered { peer, messages } => self.undelivered.push((peer, messages)),
                Effect::Returned { messages, .. } => self.returned.extend(messages),
                Effect::Open | Effect::Lost(_) => {}
            }
        }
        self.transmit();
    }

    fn transmit(&mut self) {
        loop {
            let streams = [&mut self.sender, &mut self.loose];
            let Some(Transmit { which, to, sequence }) = self.pacer.transmit(self.now, streams) else {
                return;
            };
            let sender = if which == 0 { &self.sender } else { &self.loose };
            let bytes = sender.datagram(sequence).to_vec();
            assert!(!bytes.is_empty(), "a datagram that is not there");
            self.left.push((self.now, wire_bytes(bytes.len())));
            let peers: Vec<PeerId> = match to {
                To::Group => self.receivers.keys().copied().collect(),
                To::Peer(peer) => vec![peer],
            };
            self.sent += peers.len() as u64;
            let now = self.now;
            if self
                .meter
                .as_mut()
                .is_some_and(|meter| !meter.passes(now, &bytes))
            {
                self.metered += 1;
                continue;
            }
            peers.into_iter().for_each(|peer| self.datagram(peer, &bytes));
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
            let paced = self.pacer.next_timeout(self.now, [&self.sender, &self.loose]);
            assert!(
                paced.is_none_or(|next| next > self.now),
                "what may leave has not left"
            );
            let timeout = timeout.into_iter().chain(paced).min();
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
                self.transmit();
            } else {
                let mut effects = Vec::new();
                if self.sender.next_timeout() == Some(next) {
                    self.sender.timeout(self.now, &mut effects);
                }
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

#[test]
fn a_time_out_sends_nothing_again_that_has_just_left() {
    let mut world = World::new(perfect(1), 1, true);
    world.run(Time(10_000_000));
    world.network.loss = 100;
    world.publish(b"lost", 0).unwrap();
    // Just before the first time-out.
    world.run(world.now.after(Span::from_micros(49_500)));
    world.network.loss = 0;
    world.publish(b"under way", 0).unwrap();
    world.run(world.now.after(Span::from_secs(1)));
    assert_eq!((&world.taken[..], world.sent), (&[0, 1][..], 3));
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
        counts: |_| 1,
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

/// As a switch has it (`openflow/channels.py`, `meter_of`): kbit/s and kbit rounded up, counted without preamble, check sequence and gap.
fn meter_of(reservation: Reservation, now: Time) -> Meter {
    let most = (reservation.burst_bytes * 8).div_ceil(1_000) * 1_000;
    Meter {
        per_second: reservation.rate_bps.get().div_ceil(1_000) * 1_000,
        most,
        held: most * 1_000_000_000,
        at: now,
        counts: |datagram| (wire_bytes(datagram.len()) - 24) * 8,
    }
}

fn reservation(rate_bps: u64, burst_bytes: u64) -> Reservation {
    Reservation {
        rate_bps: NonZeroU64::new(rate_bps).unwrap(),
        burst_bytes,
    }
}

impl World {
    /// A world whose group has a reservation, and a switch with a meter for it.
    fn reserved(network: Network, peers: PeerId, reserved: Reservation) -> Self {
        let mut world = Self::new(network, peers, true);
        let streams = [&mut world.sender, &mut world.loose];
        world.pacer = Pacer::new(world.now, Some(reserved), 0, streams);
        world.meter = Some(meter_of(reserved, world.now));
        world.run(Time(50_000_000));
        world
    }

    /// As soon as it may be: the publisher is held back as long as something waits.
    fn publish_when_possible(&mut self, message: &[u8]) {
        let end = self.now.after(Span::from_secs(600));
        loop {
            match self.publish(message, 0) {
                Ok(_) => return,
                Err(Refused::Paced | Refused::Full) => {}
                Err(other) => panic!("{other}"),
            }
            assert!(self.now < end, "a publisher that waits for ever");
            self.run(self.now.after(Span::from_millis(1)));
        }
    }

    fn publish_loose(&mut self, message: &[u8]) -> Result<u64, Refused> {
        let number = self.loose.publish(self.now, message, 0, &mut Vec::new());
        self.transmit();
        number
    }

    /// What left within any window is at most its length times the rate, and the burst.
    fn holds_to(&self, reserved: Reservation) {
        for (first, (from, _)) in self.left.iter().enumerate() {
            let mut sum = 0;
            for (at, bytes) in &self.left[first..] {
                sum += u128::from(*bytes) * 8 * 1_000_000_000;
                let window = u128::from(at.since(*from).0) * u128::from(reserved.rate_bps.get());
                let burst = u128::from(reserved.burst_bytes) * 8 * 1_000_000_000;
                assert!(sum <= window + burst, "{from:?} to {at:?}");
            }
        }
    }
}

/// 36,000 datagrams for 2,500 had been sent where everything beyond the meter was sent again beyond the meter.
#[test]
fn what_is_reserved_is_sent_hardly_more_often_than_losses_need() {
    for (loss, seed, mbps) in [
        (0, 1, 2),
        (5, 2, 2),
        (10, 3, 2),
        (20, 4, 2),
        (10, 5, 20),
        (20, 6, 20),
    ] {
        let reserved = reservation(mbps * 1_000_000, 6_000);
        let network = Network {
            loss,
            ..perfect(seed)
        };
        let mut world = World::reserved(network, 1, reserved);
        let mut expected = Vec::new();
        // At once ten times the burst, and then two thirds of the rate.
        for number in 0..1_500 {
            let bytes = message(number, 1_000);
            world.publish_when_possible(&bytes);
            expected.push(bytes);
            if number >= 60 {
                world.run(world.now.after(Span::from_micros(13_200 / mbps)));
            }
        }
        world.run(world.now.after(Span::from_secs(2)));
        assert_eq!(world.delivered[&0], expected);
        assert_eq!(world.metered, 0, "the meter drops nothing");
        let needed = 1_500 * 100 / (100 - loss);
        assert!(
            world.sent <= needed * 107 / 100,
            "{} datagrams; {needed} are needed with {loss} % lost",
            world.sent
        );
        world.holds_to(reserved);
    }
}

/// Latency is promised to who keeps to the reservation, whatever is lost.
#[test]
fn repetitions_never_hold_back_what_is_within_the_reservation() {
    let network = Network {
        loss: 30,
        ..perfect(5)
    };
    let size = wire_bytes(1_032);
    // A message every 10 ms, and a full frame more, as the planner reserves them.
    let mut world = World::reserved(network, 3, reservation(size * 8 * 100, size + 1_538));
    for number in 0..500 {
        assert_eq!(world.publish(&message(number, 1_000), 0), Ok(number as u64));
        assert_eq!(world.sender.first_unsent(), None, "message {number} waits");
        // A pause now and then, in which repetitions find their place before they lose patience.
        let pause = if number % 4 == 3 { 100 } else { 10 };
        world.run(world.now.after(Span::from_millis(pause)));
    }
    world.run(world.now.after(Span::from_secs(120)));
    assert_eq!(world.taken.len(), 500);
}

#[test]
fn a_repetition_does_not_wait_for_ever_for_a_publisher_who_sends_too_much() {
    let mut world = World::reserved(perfect(1), 1, reservation(1_000_000, 4_000));
    world.network.loss = 100;
    world.publish(b"lost", 0).unwrap();
    world.run(world.now.after(Span::from_millis(1)));
    world.network.loss = 0;
    let began = world.now;
    while world.taken.is_empty() {
        assert!(world.now < began.after(Span::from_secs(1)), "it waits for ever");
        let full = world.publish_loose(&message(1, 1_300));
        assert!(matches!(full, Ok(_) | Err(Refused::Paced)));
        world.run(world.now.after(Span::from_millis(1)));
    }
    assert!(
        world.now > began.after(Span::from_millis(500)),
        "what is sent for the first time goes first"
    );
}

/// What is smaller would leave before it, and later could not.
#[test]
fn a_repetition_that_nothing_may_precede_keeps_its_place_when_the_clock_goes_back() {
    let mut world = World::reserved(perfect(1), 1, reservation(100_000, 2_000));
    world.network.loss = 100;
    world.publish(&message(1, 1_300), 0).unwrap();
    world.run(world.now.after(Span::from_millis(1)));
    world.network.loss = 0;
    let end = world.now.after(Span::from_secs(5));
    while world.taken.is_empty() {
        assert!(world.now < end, "it waits for ever");
        let small = world.publish_loose(b"x");
        assert!(matches!(small, Ok(_) | Err(Refused::Paced)));
        let (now, left) = (world.now, world.left.len());
        world.now = Time(now.0 - 30_000_000);
        world.transmit();
        assert_eq!(world.left.len(), left, "at {now:?}");
        world.now = now;
        world.run(world.now.after(Span::from_millis(1)));
    }
}

#[test]
fn who_joins_while_something_waits_gets_what_is_published_then() {
    let mut world = World::reserved(perfect(1), 1, reservation(100_000, 2_000));
    let long = message(1, 20_000);
    world.publish(&long, 0).unwrap();
    world
        .receivers
        .insert(1, Receiver::new(receiver::Limits::default()));
    let mut effects = Vec::new();
    world.sender.invite(world.now, 1, invitation(true), &mut effects);
    world.carry_out(effects);
    world.run(world.now.after(Span::from_millis(100)));
    assert_eq!(world.publish(b"next", 0), Err(Refused::Paced));
    world.publish_when_possible(b"next");
    world.run(world.now.after(Span::from_secs(2)));
    assert_eq!(world.delivered[&0], [long, b"next".to_vec()]);
    assert_eq!(world.delivered[&1], [b"next".to_vec()]);
    assert_eq!(world.taken, [0, 1]);
}

#[test]
fn a_reservation_that_changes_paces_from_then_on_and_one_that_goes_lets_go() {
    let mut world = World::reserved(perfect(1), 1, reservation(100_000_000, 100_000));
    let reserve = |world: &mut World, reserved| {
        let streams = [&mut world.sender, &mut world.loose];
        world.pacer.reserve(world.now, reserved, streams);
        world.transmit();
    };
    let less = reservation(1_000_000, 2_000);
    reserve(&mut world, Some(less));
    world.left.clear();
    world.publish(&message(1, 30_000), 0).unwrap();
    world.run(world.now.after(Span::from_millis(50)));
    world.holds_to(less);
    assert!(world.sender.first_unsent().is_some());
    reserve(&mut world, None);
    assert_eq!(world.sender.first_unsent(), None);
    // Nobody knows what has gone before, so there is no burst to begin with.
    reserve(&mut world, Some(less));
    world.left.clear();
    world.publish_when_possible(&message(2, 30_000));
    assert!(world.left.is_empty());
    world.run(world.now.after(Span::from_secs(2)));
    world.holds_to(less);
    assert_eq!(world.taken, [0, 1]);
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
    world.sender.restarted(world.now, 1, &mut Vec::new());
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

    /// Over random traffic in both streams, losses, acknowledgements and a clock that steps back.
    #[test]
    fn no_window_has_more_than_its_reservation_and_nothing_is_lost(
        seed in any::<u64>(), loss in 0u64..30, doubling in 0u64..20, reordering in 0u64..20, peers in 1u32..4,
        rate in 200_000u64..50_000_000, burst in 1_538u64..20_000,
        messages in proptest::collection::vec((0usize..5_000, 0u64..20, 0usize..3_000, 0u64..3), 1..60),
    ) {
        let reserved = reservation(rate, burst);
        let mut world = World::reserved(Network { seed, loss, doubling, reordering }, peers, reserved);
        let mut expected = Vec::new();
        for (number, (size, gap, loose, back)) in messages.iter().enumerate() {
            let bytes = message(number, *size);
            world.publish_when_possible(&bytes);
            expected.push(bytes);
            match world.publish_loose(&vec![0; *loose]) {
                Ok(_) | Err(Refused::Paced) => {}
                Err(other) => prop_assert!(false, "{}", other),
            }
            // Asked with a time of before, it gives nothing that it would not give later.
            let now = world.now;
            world.now = Time(now.0.saturating_sub(*back * 3_000_000));
            let left = world.left.len();
            world.transmit();
            prop_assert_eq!(world.left.len(), left);
            world.now = now;
            world.run(world.now.after(Span::from_millis(*gap)));
        }
        world.run(world.now.after(Span::from_secs(200)));
        for peer in 0..peers {
            prop_assert_eq!(&world.delivered[&peer], &expected);
        }
        prop_assert_eq!(&world.taken, &(0..expected.len() as u64).collect::<Vec<_>>());
        prop_assert!(world.undelivered.is_empty());
        prop_assert_eq!(world.metered, 0);
        prop_assert_eq!(world.sender.next_timeout(), None, "nothing is due any more");
        prop_assert_eq!(world.pacer.next_timeout(world.now, [&world.sender, &world.loose]), None);
        world.holds_to(reserved);
    }
}

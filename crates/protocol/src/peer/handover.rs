//! A peer that comes to a group and leaves it, while what is published goes on by the group or by a relay to it, over a network that loses datagrams.

use super::control::Control;
use super::datagram::Datagram;
use super::message;
use super::receiver::{self, Receiver};
use super::sender::{Effect, Limits, Sender};
use super::{PeerId, StreamId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use timebound_model::units::{Span, Time};
use timebound_wire::mqtt::Properties;

const PEER: PeerId = 3;
const GROUP: usize = 0;
const RELAY: usize = 1;

const fn id(which: usize) -> StreamId {
    StreamId {
        life: 7,
        number: which as u32 * 2 + 1,
    }
}

/// Both ends. TCP keeps order and has its own delay; datagrams are lost, doubled, and overtake each other.
struct World {
    now: Time,
    state: u64,
    loss: u64,
    senders: [Sender; 2],
    /// For the relay: key and message.
    waiting: VecDeque<(u64, Vec<u8>)>,
    receiver: Receiver,
    joined: BTreeSet<StreamId>,
    invited: Option<StreamId>,
    datagrams: BTreeMap<(Time, u64), Vec<u8>>,
    to_peer: VecDeque<(Time, Control)>,
    to_sender: VecDeque<(Time, Control)>,
    confirms: BTreeMap<(Time, u64), (StreamId, u64, u64)>,
    number: u64,
    delivered: Vec<u64>,
    lost: usize,
}

impl World {
    fn new(seed: u64, loss: u64) -> Self {
        Self {
            now: Time(0),
            state: seed,
            loss,
            senders: [GROUP, RELAY].map(|which| Sender::new(id(which), true, Limits::default())),
            waiting: VecDeque::new(),
            receiver: Receiver::new(receiver::Limits::default()),
            joined: BTreeSet::new(),
            invited: None,
            datagrams: BTreeMap::new(),
            to_peer: VecDeque::new(),
            to_sender: VecDeque::new(),
            confirms: BTreeMap::new(),
            number: 0,
            delivered: Vec::new(),
            lost: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 33) % below
    }
    fn later(&mut self) -> (Time, u64) {
        self.number += 1;
        (self.now.after(Span(100_000 + self.draw(3_000_000))), self.number)
    }
    fn over_tcp(queue: &VecDeque<(Time, Control)>, at: Time) -> Time {
        queue.back().map_or(at, |(last, _)| at.max(*last))
    }

    fn invite(&mut self, which: usize) {
        let mut effects = Vec::new();
        let invitation = Control::Invite {
            stream: id(which),
            group: Ipv4Addr::new(239, 192, 0, 1),
            port: 1,
            class: 0,
            reliable: true,
            topic: "#".to_owned(),
        };
        self.senders[which].invite(self.now, PEER, invitation, &mut effects);
        self.apply(which, effects);
    }
    fn part(&mut self) {
        let mut effects = Vec::new();
        self.senders[GROUP].part(self.now, PEER, &mut effects);
        self.apply(GROUP, effects);
    }

    /// As the hub decides.
    fn publish(&mut self, number: u64, has_key: bool) {
        let flags = if has_key { 4 } else { 2 };
        let mut bytes = message::header(flags, "t", &Properties::default()).unwrap();
        // Some take several datagrams.
        let size = if number.is_multiple_of(5) { 4_000 } else { 8 };
        bytes.extend(number.to_be_bytes());
        bytes.resize(bytes.len() + size, 0);
        let key = if has_key { number + 1 } else { 0 };
        if self.senders[GROUP].joined().next().is_none() {
            return self.waiting.push_back((key, bytes));
        }
        let mut effects = Vec::new();
        self.senders[GROUP]
            .publish(self.now, &bytes, key, &mut effects)
            .unwrap();
        self.apply(GROUP, effects);
    }

    fn flush(&mut self) {
        while !self.senders[GROUP].is_leaving(PEER) {
            let Some((key, bytes)) = self.waiting.front().cloned() else {
                break;
            };
            let mut effects = Vec::new();
            if self.senders[RELAY]
                .publish(self.now, &bytes, key, &mut effects)
                .is_err()
            {
                break;
            }
            self.waiting.pop_front();
            self.apply(RELAY, effects);
        }
    }

    fn apply(&mut self, which: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Tell(_, control) => {
                    let (at, _) = self.later();
                    let at = Self::over_tcp(&self.to_peer, at);
                    self.to_peer.push_back((at, control));
                }
                Effect::Returned { messages, .. } => self.waiting.extend(messages),
                Effect::Undelivered { .. } | Effect::Lost(_) => self.lost += 1,
                Effect::Open | Effect::Taken { .. } => {}
            }
        }
        while let Some(sequence) = self.senders[which].leaves(self.now) {
            self.travel(which, sequence);
        }
        while let Some((_, peer, _)) = self.senders[which].first_again() {
            let Some(sequence) = self.senders[which].leaves_again(self.now, peer) else {
                break;
            };
            self.travel(which, sequence);
        }
    }
    fn travel(&mut self, which: usize, sequence: u64) {
        let bytes = self.senders[which].datagram(sequence).to_vec();
        for _ in 0..1 + u64::from(self.draw(10) == 0) {
            if self.draw(100) >= self.loss {
                let at = self.later();
                self.datagrams.insert(at, bytes.clone());
            }
        }
    }

    fn tell(&mut self, control: Control) {
        let (at, _) = self.later();
        let at = Self::over_tcp(&self.to_sender, at);
        self.to_sender.push_back((at, control));
    }
    fn received(&mut self, effects: Vec<receiver::Effect>) {
        for effect in effects {
            match effect {
                receiver::Effect::Deliver {
                    stream,
                    message,
                    key,
                    end,
                } => {
                    let read = message::Message::read(&message).unwrap();
                    self.delivered
                        .push(u64::from_be_bytes(*read.payload.first_chunk().unwrap()));
                    let at = self.later();
                    self.confirms.insert(at, (stream, end, key));
                }
                receiver::Effect::Pass { .. } => unreachable!(),
                receiver::Effect::Tell(report) => self.tell(Control::Arrived(report)),
            }
        }
    }
    fn leave(&mut self, stream: StreamId) {
        self.joined.remove(&stream);
        self.invited = self.invited.filter(|one| *one != stream);
        let mut effects = Vec::new();
        self.receiver.leave(stream, &mut effects);
        self.received(effects);
        self.tell(Control::Leave { stream });
    }

    fn heard(&mut self, control: &Control) {
        let (Control::Joined { stream } | Control::Leave { stream }) = control else {
            let Control::Arrived(report) = control else {
                unreachable!()
            };
            let which = usize::from(report.stream == id(RELAY));
            let mut effects = Vec::new();
            self.senders[which]
                .arrived(self.now, PEER, report, &mut effects)
                .unwrap();
            return self.apply(which, effects);
        };
        let which = usize::from(*stream == id(RELAY));
        let mut effects = Vec::new();
        match control {
            Control::Joined { .. } => self.senders[which].has_joined(self.now, PEER, &mut effects),
            _ => self.senders[which].left(self.now, PEER, &mut effects),
        }
        self.apply(which, effects);
    }

    /// A millisecond passes.
    fn pass(&mut self) {
        self.now = self.now.after(Span(1_000_000));
        while let Some(entry) = self.datagrams.first_entry().filter(|one| one.key().0 <= self.now) {
            let bytes = entry.remove();
            let mut effects = Vec::new();
            self.receiver
                .datagram(&Datagram::read(&bytes).unwrap(), &mut effects);
            self.received(effects);
        }
        while let Some(entry) = self.confirms.first_entry().filter(|one| one.key().0 <= self.now) {
            let (stream, end, key) = entry.remove();
            let mut effects = Vec::new();
            self.receiver.taken(stream, end, key, &mut effects);
            self.received(effects);
        }
        while self.to_peer.front().is_some_and(|(at, _)| *at <= self.now) {
            let Some((_, control)) = self.to_peer.pop_front() else {
                break;
            };
            match control {
                Control::Invite { stream, .. } if self.joined.contains(&stream) => {
                    self.tell(Control::Joined { stream });
                }
                // It may have yet to take the rest of before.
                Control::Invite { stream, .. } => self.invited = Some(stream),
                Control::From { stream, sequence } => {
                    let mut effects = Vec::new();
                    self.receiver.from(stream, sequence, &mut effects);
                    self.received(effects);
                }
                Control::Leave { stream } => self.leave(stream),
                _ => {}
            }
        }
        if let Some(stream) = self.invited.take_if(|stream| !self.receiver.has(*stream)) {
            self.receiver.join(stream, true);
            self.joined.insert(stream);
            self.tell(Control::Joined { stream });
        }
        while self.to_sender.front().is_some_and(|(at, _)| *at <= self.now) {
            let Some((_, control)) = self.to_sender.pop_front() else {
                break;
            };
            self.heard(&control);
        }
        for which in [GROUP, RELAY] {
            let mut effects = Vec::new();
            if self.senders[which]
                .next_timeout()
                .is_some_and(|due| due <= self.now)
            {
                self.senders[which].timeout(self.now, &mut effects);
            }
            self.apply(which, effects);
        }
        self.flush();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    /// Whatever the group does, each message comes once; and in order, but where the peer has come to the group: what goes by it may overtake.
    #[test]
    fn each_message_comes_once_however_often_it_changes_its_way(
        seed in any::<u64>(), loss in 0u64..40, has_key in any::<bool>(),
        steps in proptest::collection::vec(0u8..12, 1..150),
    ) {
        let mut world = World::new(seed, loss);
        world.invite(RELAY);
        (0..20).for_each(|_| world.pass());
        let (mut count, mut in_group, mut came) = (0, false, 0);
        for step in steps {
            match step {
                0 if !in_group => {
                    world.invite(GROUP);
                    (in_group, came) = (true, came + 1);
                }
                0 => {
                    world.part();
                    in_group = false;
                }
                1..=4 => world.pass(),
                _ => {
                    world.publish(count, has_key);
                    count += 1;
                }
            }
        }
        for _ in 0..60_000 {
            if world.delivered.len() as u64 >= count && world.confirms.is_empty() && world.to_sender.is_empty() {
                break;
            }
            world.pass();
        }
        // What is under way comes, too: nothing may be there twice.
        (0..100).for_each(|_| world.pass());
        let mut sorted = world.delivered.clone();
        sorted.sort_unstable();
        prop_assert_eq!(&sorted, &(0..count).collect::<Vec<_>>());
        prop_assert_eq!(world.lost, 0);
        if came == 0 {
            prop_assert_eq!(&world.delivered, &sorted);
        }
    }
}

#[test]
fn who_leaves_a_group_gets_the_rest_behind_what_it_has_taken() {
    let mut world = World::new(1, 30);
    world.invite(GROUP);
    (0..20).for_each(|_| world.pass());
    world.invite(RELAY);
    (0..20).for_each(|_| world.pass());
    for number in 0..200 {
        world.publish(number, true);
        if number == 100 {
            world.part();
        }
        world.pass();
    }
    (0..20_000).for_each(|_| world.pass());
    assert_eq!(world.delivered, (0..200).collect::<Vec<_>>());
    assert_eq!((world.lost, world.senders[GROUP].peers().count()), (0, 0));
    assert_eq!(world.senders[RELAY].peers().collect::<Vec<_>>(), [PEER]);
}

#[test]
fn who_is_told_to_leave_and_is_gone_is_lost_and_one_that_is_started_again_gets_the_rest_marked() {
    for restarts in [false, true] {
        let mut world = World::new(1, 0);
        world.invite(GROUP);
        (0..20).for_each(|_| world.pass());
        world.publish(0, true);
        world.part();
        assert!(world.senders[GROUP].is_leaving(PEER));
        let mut effects = Vec::new();
        if restarts {
            world.senders[GROUP].restarted(world.now, PEER, &mut effects);
            let Some(Effect::Returned { messages, .. }) = effects.first() else {
                panic!("{effects:?}");
            };
            assert!(message::is_duplicate(&messages[0].1) && messages[0].0 == 1);
        } else {
            let late = world.now.after(Limits::default().silence);
            world.senders[GROUP].timeout(late, &mut effects);
            assert!(effects.contains(&Effect::Undelivered {
                peer: PEER,
                messages: 0..1
            }));
        }
        assert!(effects.contains(&Effect::Taken { message: 0 }), "{effects:?}");
        assert_eq!(world.senders[GROUP].peers().count(), 0);
    }
}

//! What this manager sends to groups.

use super::hub::Hub;
use crate::contract::{self, GroupState, Send};
use crate::worker;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use timebound_model::{Span, Time};
use timebound_protocol::intermediary::{Outgoing, Room};
use timebound_protocol::peer::control::Control;
use timebound_protocol::peer::pacing::{Pacer, Reservation, Transmit};
use timebound_protocol::peer::sender::{Effect, Refused, Sender, To};
use timebound_protocol::peer::{PeerId, StreamId};
use tokio::task::AbortHandle;

/// A connection to a member for a class.
pub(super) struct Dial {
    pub(super) task: AbortHandle,
    /// While it is open and the other side has said who it is.
    pub(super) link: Option<u64>,
    /// `None`: it is open, or its streams have lost the member.
    pub(super) down_since: Option<Time>,
    pub(super) releases: VecDeque<Control>,
}

/// A message for a group.
pub(super) struct Publication {
    pub(super) connection: u64,
    pub(super) packet: u16,
    pub(super) key: u64,
    pub(super) message: Vec<u8>,
}

/// One of the two streams of a group.
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) sender: Sender,
    pub(super) waiting: VecDeque<Publication>,
    /// Who waits for messages that were sent, in order: connection and packet identifier.
    pub(super) under_way: VecDeque<(u64, u16)>,
}

/// A group to which is sent.
pub(super) struct Sending {
    pub(super) said: Send,
    pub(super) members: BTreeSet<PeerId>,
    /// QoS 0, and the others.
    pub(super) streams: [Stream; 2],
    pub(super) pacer: Pacer,
    pub(super) room: Arc<Room>,
    /// As it was told last.
    pub(super) told: Option<(GroupState, Vec<String>, Vec<String>)>,
}

impl Sending {
    /// When something is to be done next.
    pub(super) fn due(&self, now: Time) -> Option<Time> {
        let [one, other] = &self.streams;
        let due = self
            .streams
            .iter()
            .filter_map(|stream| stream.sender.next_timeout());
        due.chain(self.pacer.next_timeout(now, [&one.sender, &other.sender]))
            .min()
    }
    /// What may leave now.
    fn transmit(&mut self, now: Time) -> Option<Transmit> {
        let [one, other] = &mut self.streams;
        self.pacer.transmit(now, [&mut one.sender, &mut other.sender])
    }
    pub(super) fn reserve(&mut self, now: Time, reservation: Option<contract::Reservation>) {
        let [one, other] = &mut self.streams;
        let streams = [&mut one.sender, &mut other.sender];
        self.pacer.reserve(now, reservation.map(reserved), streams);
    }
    pub(super) fn waiting(&self) -> usize {
        self.streams.iter().map(|stream| stream.waiting.len()).sum()
    }
    pub(super) fn restarted(&mut self, now: Time, peer: PeerId) {
        for stream in &mut self.streams {
            stream.sender.restarted(now, peer);
        }
    }
    pub(super) fn is_same(&self, said: &Send) -> bool {
        let old = &self.said;
        (&old.id, &old.topic, old.priority, old.address)
            == (&said.id, &said.topic, said.priority, said.address)
    }
    pub(super) fn invitation(&self, stream: &Stream, port: u16) -> Control {
        Control::Invite {
            stream: stream.id,
            group: self.said.address,
            port,
            class: self.said.priority,
            reliable: stream.id.number & 1 == 1,
            topic: self.said.topic.clone(),
        }
    }
}

/// As the pacer knows it.
pub(super) const fn reserved(said: contract::Reservation) -> Reservation {
    Reservation {
        rate_bps: said.rate_bps,
        burst_bytes: said.burst_bytes,
    }
}

impl Hub {
    /// What a member says; `false`: what it may not.
    pub(super) fn heard_from_member(&mut self, peer: PeerId, control: &Control) -> bool {
        let (Control::Joined { stream }
        | Control::Leave { stream }
        | Control::Arrived(timebound_protocol::peer::control::Arrived { stream, .. })) = control
        else {
            return false;
        };
        // It may not have heard yet that a stream is over.
        let found = self
            .streams
            .get(&stream.number)
            .filter(|_| stream.life == self.life);
        let Some((group, reliable)) = found.copied() else {
            return true;
        };
        let (now, which) = (self.now(), usize::from(reliable));
        let mut effects = Vec::new();
        let Some(sending) = self.sends.get_mut(&group) else {
            return true;
        };
        let sender = &mut sending.streams[which].sender;
        let mut fits = true;
        match control {
            Control::Joined { .. } => {
                self.members_changed = true;
                sender.has_joined(now, peer, &mut effects);
            }
            // It does not want it now; when it does again it says so.
            Control::Leave { .. } => sender.lost(peer, &mut effects),
            Control::Arrived(report) => fits = sender.arrived(now, peer, report, &mut effects).is_ok(),
            _ => {}
        }
        self.apply(group, which, effects);
        self.flush(group, which);
        fits
    }

    pub(super) fn outgoing(&mut self, connection: u64, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Message {
                group,
                packet,
                qos,
                key,
                message,
            } => {
                let which = usize::from(qos > 0);
                let publication = Publication {
                    connection,
                    packet,
                    key,
                    message,
                };
                let Some(sending) = self.sends.get_mut(&group) else {
                    // It was closed meanwhile.
                    if qos > 0 {
                        self.is_taken(connection, packet);
                    }
                    return;
                };
                let goes_on = sending.room.arrived(publication.message.len());
                sending.streams[which].waiting.push_back(publication);
                self.flush(group, which);
                if goes_on {
                    self.look();
                }
            }
            Outgoing::Release { key } => self.release(key),
        }
    }

    /// Every member that may remember a key is told.
    pub(super) fn release(&mut self, key: u64) {
        let life = StreamId {
            life: self.life,
            number: 0,
        };
        let (stream, end) = self.unreleased.remove(&key).unwrap_or((life, 0));
        let control = Control::Release { stream, end, key };
        let mut told = BTreeSet::new();
        let dials: Vec<_> = self.dials.keys().copied().collect();
        for dial in dials {
            if told.insert(dial.0) {
                self.tell_member(dial, &control);
            }
        }
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self, group: u32, which: usize) {
        loop {
            let now = self.now();
            let Some(sending) = self.sends.get_mut(&group) else {
                return;
            };
            let stream = &mut sending.streams[which];
            let Some(first) = stream.waiting.front() else {
                break;
            };
            let mut effects = Vec::new();
            let result = stream
                .sender
                .publish(now, &first.message, first.key, &mut effects);
            if matches!(result, Err(Refused::NotOpen | Refused::Full | Refused::Paced)) {
                break;
            }
            let Some(publication) = stream.waiting.pop_front() else {
                break;
            };
            let (connection, packet) = (publication.connection, publication.packet);
            if which == 1 {
                if result.is_ok() {
                    stream.under_way.push_back((connection, packet));
                }
                let key = (publication.key, stream.id, stream.sender.end());
                self.not_for_the_lost(group, result.is_err());
                if key.0 != 0 && result.is_ok() {
                    self.unreleased.insert(key.0, (key.1, key.2));
                }
            }
            match result {
                Ok(_) => self.counters.sent.add(1),
                Err(_) if which == 1 => self.is_taken(connection, packet),
                Err(_) => {}
            }
            self.apply(group, which, effects);
        }
        self.look_for_room(group);
    }

    /// A message is sent (or, too long, is not) while some members do not get it.
    pub(super) fn not_for_the_lost(&mut self, group: u32, too_long: bool) {
        let Some(sending) = self.sends.get(&group) else {
            return;
        };
        let (lost, reason) = match too_long {
            true => (
                sending.members.iter().copied().collect(),
                "it is too long for a group",
            ),
            false => (sending.streams[1].sender.absent().1, "the member is lost"),
        };
        let id = sending.said.id.clone();
        for peer in lost {
            self.not_delivered(&id, peer, 1, reason);
        }
    }

    pub(super) fn not_delivered(&mut self, group: &str, peer: PeerId, messages: u64, reason: &str) {
        self.counters.undelivered.add(messages);
        let place = (group.to_owned(), self.name_of(peer), reason.to_owned());
        *self.undelivered.entry(place).or_default() += messages;
    }

    /// Publishers go on as soon as nothing of theirs waits here.
    pub(super) fn look_for_room(&self, group: u32) {
        let Some(sending) = self.sends.get(&group) else {
            return;
        };
        let room = sending.waiting() == 0;
        if sending.room.set(room) && room {
            self.look();
        }
    }

    /// Connections look whether they may go on.
    fn look(&self) {
        for worker in &self.workers {
            drop(worker.send(worker::Order::Look));
        }
    }

    pub(super) fn is_taken(&self, number: u64, packet: u16) {
        let worker = usize::try_from(number % self.workers.len().max(1) as u64).unwrap_or(0);
        if let Some(worker) = self.workers.get(worker) {
            drop(worker.send(worker::Order::Taken { number, packet }));
        }
    }

    pub(super) fn apply(&mut self, group: u32, which: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Open => {}
                Effect::Tell(peer, control) => {
                    let class = self.sends.get(&group).map_or(0, |sending| sending.said.priority);
                    self.tell_member((peer, class), &control);
                }
                Effect::Taken { .. } => {
                    let sending = self.sends.get_mut(&group);
                    let first = sending.and_then(|sending| sending.streams[which].under_way.pop_front());
                    if let Some((connection, packet)) = first {
                        self.is_taken(connection, packet);
                    }
                }
                Effect::Undelivered { peer, messages } => {
                    let id = self.sends.get(&group).map(|sending| sending.said.id.clone());
                    let count = messages.end - messages.start;
                    self.not_delivered(&id.unwrap_or_default(), peer, count, "the member is lost");
                }
                Effect::Lost(peer) => self.lost(group, which, peer),
            }
        }
        self.transmit(group);
    }

    /// Sends what the group's reservation lets leave now.
    fn transmit(&mut self, group: u32) {
        loop {
            let now = self.now();
            let next = self
                .sends
                .get_mut(&group)
                .and_then(|sending| sending.transmit(now));
            let Some(Transmit { which, to, sequence }) = next else {
                return;
            };
            self.send(group, which, to, sequence);
        }
    }

    /// It is told so, so that it does not take itself for a member: when it can it joins again.
    pub(super) fn lost(&mut self, group: u32, which: usize, peer: PeerId) {
        self.counters.members_lost.add(u64::from(which == 1));
        self.members_changed = true;
        let found = self.sends.get(&group);
        let found = found.map(|sending| (sending.said.priority, sending.streams[which].id));
        if let Some((class, stream)) = found {
            self.tell_member((peer, class), &Control::Leave { stream });
        }
    }

    pub(super) fn send(&self, group: u32, which: usize, to: To, sequence: u64) {
        let Some(sending) = self.sends.get(&group) else {
            return;
        };
        let bytes = sending.streams[which].sender.datagram(sequence);
        let address = match to {
            To::Group => Some((sending.said.address, self.said.port)),
            To::Peer(peer) => self.peers.get(&peer).and_then(|peer| peer.address),
        };
        if let (Some(address), false) = (address, bytes.is_empty()) {
            self.counters.datagrams_again.add(u64::from(to != To::Group));
            self.sockets
                .send(sending.said.priority, SocketAddr::from(address), bytes);
        }
    }

    /// Time has passed.
    pub(super) fn look_at_sends(&mut self, now: Time) {
        let silence = Span::from_millis(self.said.silence_ms);
        let mut gone = Vec::new();
        for (place, dial) in &mut self.dials {
            if dial.down_since.is_some_and(|since| now >= since.after(silence)) {
                dial.down_since = None;
                gone.push(*place);
            }
        }
        let groups: Vec<u32> = self.sends.keys().copied().collect();
        for group in groups {
            for which in 0..2 {
                let mut effects = Vec::new();
                let Some(sending) = self.sends.get_mut(&group) else {
                    continue;
                };
                let class = sending.said.priority;
                let sender = &mut sending.streams[which].sender;
                for (peer, _) in gone.iter().filter(|(_, of)| *of == class) {
                    sender.lost(*peer, &mut effects);
                }
                if sender.next_timeout().is_some_and(|due| now >= due) {
                    sender.timeout(now, &mut effects);
                }
                self.apply(group, which, effects);
            }
            // What has left, or is over, may have made room.
            (0..2).for_each(|which| self.flush(group, which));
        }
    }
}

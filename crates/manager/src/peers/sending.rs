//! What this manager sends to groups.

use super::hub::Hub;
use crate::contract::{self, GroupState, Send};
use crate::worker;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use timebound_model::{Span, Time};
use timebound_protocol::intermediary::{Outgoing, Room};
use timebound_protocol::peer::control::Control;
use timebound_protocol::peer::message;
use timebound_protocol::peer::pacing::{Pacer, Reservation, Transmit};
use timebound_protocol::peer::sender::{Effect, Refused, Sender, To};
use timebound_protocol::peer::{PeerId, StreamId};
use tokio::sync::mpsc::UnboundedSender;
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

/// A message that waits for its turn.
pub(super) struct Publication {
    /// Who waits for it.
    pub(super) ack: Option<Rc<Ack>>,
    /// Interested peers: what a group does not carry to them they take.
    pub(super) relays: Vec<u32>,
    pub(super) key: u64,
    /// Its publisher did not wait for it, and has released it.
    pub(super) released: bool,
    pub(super) message: Rc<Vec<u8>>,
}

/// A publisher that waits for its message to be taken: when the last part of it is dropped, taken or not, it is told. So nobody waits for ever.
/// Only where all this ends it is not: its publisher sends it again to the next life.
pub(super) struct Ack {
    worker: Option<UnboundedSender<worker::Order>>,
    shared: Arc<worker::Shared>,
    connection: u64,
    packet: u16,
}

impl Drop for Ack {
    fn drop(&mut self) {
        let (number, packet) = (self.connection, self.packet);
        // What ends with this process nobody has taken.
        if self.shared.stopping.load(Ordering::Relaxed) || std::thread::panicking() {
            return;
        }
        if let Some(worker) = &self.worker {
            drop(worker.send(worker::Order::Taken { number, packet }));
        }
    }
}

/// One of the two streams of a group.
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) sender: Sender,
    pub(super) waiting: VecDeque<Publication>,
    /// Who waits for messages that were sent, in order.
    pub(super) under_way: VecDeque<Option<Rc<Ack>>>,
    /// Ends and keys of messages that were released before they were taken.
    pub(super) late: Vec<(u64, u64)>,
}

/// A group to which is sent.
pub(super) struct Sending {
    pub(super) said: Send,
    pub(super) members: BTreeSet<PeerId>,
    /// QoS 0, and the others.
    pub(super) streams: [Stream; 2],
    pub(super) pacer: Pacer,
    pub(super) room: Arc<Room>,
    /// It takes nothing new: members have yet to take what was sent.
    pub(super) closing: bool,
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
    pub(super) const fn is_relay(&self) -> bool {
        self.said.interests.is_some()
    }
    pub(super) fn waiting(&self) -> usize {
        self.streams.iter().map(|stream| stream.waiting.len()).sum()
    }
    /// Is a peer leaving it, with messages that it may still take, or is it all over?
    pub(super) fn is_leaving(&self, peer: PeerId) -> bool {
        self.streams[1].sender.is_leaving(peer)
    }
    /// Peers to whom there is something to say.
    pub(super) fn peers(&self) -> BTreeSet<PeerId> {
        let leaving = self.streams.iter().flat_map(|stream| stream.sender.peers());
        leaving.chain(self.members.iter().copied()).collect()
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
            Control::Leave { .. } => {
                self.members_changed = true;
                sender.left(now, peer, &mut effects);
            }
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
                relays,
                packet,
                qos,
                key,
                message,
            } => {
                let publication = Publication {
                    ack: (qos > 0).then(|| Rc::new(self.ack(connection, packet))),
                    relays,
                    key,
                    released: false,
                    message: Rc::new(message),
                };
                self.publication(group, usize::from(qos > 0), publication);
            }
            Outgoing::Release { key } => self.release(key),
            Outgoing::Greeted {
                client_id,
                resumed,
                expiry_s,
            } => self
                .interests
                .of
                .greeted(connection, &client_id, resumed, expiry_s),
            Outgoing::Subscribed { filters } => self.interests.of.subscribed(connection, filters),
            Outgoing::Unsubscribed { filters } => self.interests.of.unsubscribed(connection, &filters),
        }
    }

    fn ack(&self, connection: u64, packet: u16) -> Ack {
        let at = connection % self.workers.len().max(1) as u64;
        let worker = usize::try_from(at).ok().and_then(|at| self.workers.get(at));
        Ack {
            worker: worker.cloned(),
            shared: Arc::clone(&self.shared),
            connection,
            packet,
        }
    }

    /// A message has come from a connection: it goes to its group, or else to all relays that want it, and these are waited for.
    fn publication(&mut self, group: Option<u32>, which: usize, publication: Publication) {
        let bytes = publication.message.len();
        let goes_to = match group {
            Some(group) => vec![group],
            None => publication.relays.clone(),
        };
        let mut goes_on = false;
        for number in &goes_to {
            let sending = self.sends.get(number);
            goes_on |= sending.is_some_and(|sending| sending.room.arrived(bytes));
        }
        match group.and_then(|group| Some((group, self.sends.get_mut(&group)?))) {
            Some((group, sending)) if !sending.closing => {
                sending.streams[which].waiting.push_back(publication);
                self.flush(group, which);
            }
            // It was closed meanwhile, or there is none.
            _ => self.relay(which, publication, &BTreeSet::new()),
        }
        if goes_on {
            self.look();
        }
    }

    /// A publisher has released a message: members that remember its key are told once they have taken it.
    pub(super) fn release(&mut self, key: u64) {
        self.mark_released(key);
        let Some(sent) = self.unreleased.remove(&key) else {
            let stream = StreamId {
                life: self.life,
                number: 0,
            };
            return self.tell_release(&[(stream, 0)], key);
        };
        let mut taken = Vec::new();
        for (id, end) in sent {
            let group = self.streams.get(&id.number).map(|(group, _)| *group);
            let stream = group.and_then(|group| Some(&mut self.sends.get_mut(&group)?.streams[1]));
            match stream.filter(|stream| stream.sender.taken_to() < end) {
                Some(stream) => stream.late.push((end, key)),
                None => taken.push((id, end)),
            }
        }
        self.tell_release(&taken, key);
    }

    /// Tells everybody who may have got it by these streams.
    pub(super) fn tell_release(&mut self, sent: &[(StreamId, u64)], key: u64) {
        for (stream, end) in sent {
            let control = Control::Release {
                stream: *stream,
                end: *end,
                key,
            };
            let sending = self
                .streams
                .get(&stream.number)
                .and_then(|(group, _)| self.sends.get(group));
            // Who was a member of a group when it was sent may be none any more.
            let members = sending
                .filter(|sending| sending.is_relay())
                .map(|sending| sending.members.clone());
            let mut told = BTreeSet::new();
            let dials: Vec<_> = self.dials.keys().copied().collect();
            for dial in dials {
                let is_meant = members.as_ref().is_none_or(|members| members.contains(&dial.0));
                if is_meant && told.insert(dial.0) {
                    self.tell_member(dial, &control);
                }
            }
        }
    }

    /// Messages that were released before they were taken, and have been taken now.
    fn release_late(&mut self, group: u32) {
        let Some(sending) = self.sends.get_mut(&group) else {
            return;
        };
        let stream = &mut sending.streams[1];
        let (id, taken) = (stream.id, stream.sender.taken_to());
        let late = std::mem::take(&mut stream.late);
        let (over, left): (Vec<_>, Vec<_>) = late.into_iter().partition(|(end, _)| *end <= taken);
        stream.late = left;
        for (end, key) in over {
            self.tell_release(&[(id, end)], key);
        }
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self, group: u32, which: usize) {
        loop {
            let now = self.now();
            let Some(sending) = self.sends.get(&group) else {
                return;
            };
            let stream = &sending.streams[which];
            let Some(first) = stream.waiting.front() else {
                break;
            };
            // Whoever has it under that key must not take this one for it.
            if first.key != 0 && stream.late.iter().any(|(_, key)| *key == first.key) {
                break;
            }
            if which == 1 && sending.is_relay() && self.is_waited_for(group) {
                break;
            }
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
            let reached: BTreeSet<PeerId> = stream.sender.joined().collect();
            let (id, end) = (stream.id, stream.sender.end());
            if which == 1 && result.is_ok() {
                stream.under_way.push_back(publication.ack.clone());
            }
            if which == 1 {
                self.not_for_the_lost(group, result.is_err(), &publication.relays);
            }
            if result.is_ok() {
                self.remember_key(&publication, id, end);
                self.count_sent(group);
            }
            self.apply(group, which, effects);
            // What is guaranteed does not wait for what is best effort.
            let publication = Publication {
                ack: None,
                ..publication
            };
            self.relay(which, publication, &reached);
        }
        self.look_for_room(group);
    }

    fn remember_key(&mut self, publication: &Publication, stream: StreamId, end: u64) {
        if publication.key == 0 {
            return;
        }
        if publication.released {
            let group = self.streams.get(&stream.number).map(|(group, _)| *group);
            let sending = group.and_then(|group| self.sends.get_mut(&group));
            return sending
                .into_iter()
                .for_each(|sending| sending.streams[1].late.push((end, publication.key)));
        }
        let sent = self.unreleased.entry(publication.key).or_default();
        if !message::is_duplicate(&publication.message) {
            // It is another one, which whoever gets it remembers in the place of the one before.
            sent.retain(|(other, _)| *other != stream);
        }
        sent.push((stream, end));
    }

    /// A message is sent (or, too long, is not) while some members do not get it, unless by a relay.
    pub(super) fn not_for_the_lost(&mut self, group: u32, too_long: bool, relays: &[u32]) {
        let Some(sending) = self.sends.get(&group) else {
            return;
        };
        let (lost, reason) = match too_long {
            true => (sending.members.clone(), "it is too long for a group"),
            false => (
                sending.streams[1].sender.absent().1.into_iter().collect(),
                "the member is lost",
            ),
        };
        let id = sending.said.id.clone();
        let by_relay: BTreeSet<PeerId> = relays
            .iter()
            .filter(|_| !too_long)
            .filter_map(|number| self.sends.get(number))
            .flat_map(|sending| sending.members.iter().copied())
            .collect();
        for peer in lost.difference(&by_relay).copied() {
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

    pub(super) fn apply(&mut self, group: u32, which: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Open => {}
                Effect::Tell(peer, control) => {
                    let class = self.sends.get(&group).map_or(0, |sending| sending.said.priority);
                    self.tell_member((peer, class), &control);
                }
                Effect::Taken { .. } => {
                    // Whoever waits for it is told when it is dropped.
                    let sending = self.sends.get_mut(&group);
                    drop(sending.and_then(|sending| sending.streams[which].under_way.pop_front()));
                }
                Effect::Undelivered { peer, messages } => {
                    let id = self.sends.get(&group).map(|sending| sending.said.id.clone());
                    let count = messages.end - messages.start;
                    self.not_delivered(&id.unwrap_or_default(), peer, count, "the member is lost");
                }
                Effect::Lost(peer) => self.lost(group, which, peer),
                Effect::Returned { peer, messages } => self.returned(group, peer, messages),
            }
        }
        self.release_late(group);
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

    pub(super) fn send(&mut self, group: u32, which: usize, to: To, sequence: u64) {
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
            let bytes = match &mut self.sealer {
                Some(sealer) => sealer.seal(bytes),
                None => bytes,
            };
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
        self.look_at_closing();
    }
}

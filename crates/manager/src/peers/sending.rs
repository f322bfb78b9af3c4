//! What this manager sends to groups.

use super::hub::Hub;
use super::links;
use crate::contract::{Event, GroupState, Send};
use crate::worker;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use timebound_model::{Span, Time};
use timebound_protocol::intermediary::{Group, Groups, Outgoing};
use timebound_protocol::peer::control::Control;
use timebound_protocol::peer::sender::{Effect, Refused, Sender, To};
use timebound_protocol::peer::{PeerId, StreamId};
use tokio::task::AbortHandle;

/// Releases that wait for the connection to a member.
const MOST_RELEASES: usize = 100_000;

/// A connection to a member for a class.
pub(super) struct Dial {
    task: AbortHandle,
    /// While it is open and the other side has said who it is.
    pub(super) link: Option<u64>,
    /// `None`: it is open, or its streams have lost the member.
    pub(super) down_since: Option<Time>,
    releases: VecDeque<Control>,
}

/// A message for a group.
struct Publication {
    connection: u64,
    packet: u16,
    key: u64,
    message: Vec<u8>,
}

/// One of the two streams of a group.
struct Stream {
    id: StreamId,
    sender: Sender,
    waiting: VecDeque<Publication>,
    /// Who waits for messages that were sent, in order: connection and packet identifier.
    under_way: VecDeque<(u64, u16)>,
}

/// A group to which is sent.
pub(super) struct Sending {
    said: Send,
    members: BTreeSet<PeerId>,
    /// QoS 0, and the others.
    streams: [Stream; 2],
    room: Arc<AtomicBool>,
    /// As it was told last.
    told: Option<(GroupState, Vec<String>, Vec<String>)>,
}

impl Sending {
    /// When something is to be done next.
    pub(super) fn due(&self) -> Option<Time> {
        let due = self
            .streams
            .iter()
            .filter_map(|stream| stream.sender.next_timeout());
        due.min()
    }
    pub(super) fn waiting(&self) -> usize {
        self.streams.iter().map(|stream| stream.waiting.len()).sum()
    }
    pub(super) fn restarted(&mut self, now: Time, peer: PeerId) {
        for stream in &mut self.streams {
            stream.sender.restarted(now, peer);
        }
    }
    fn is_same(&self, said: &Send) -> bool {
        let old = &self.said;
        (&old.id, &old.topic, old.priority, old.address)
            == (&said.id, &said.topic, said.priority, said.address)
    }
    fn invitation(&self, stream: &Stream, port: u16) -> Control {
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

impl Hub {
    pub(super) fn wanted_sends(&mut self, wanted: Vec<Send>) {
        let gone: Vec<u32> = self
            .sends
            .iter()
            .filter(|(_, sending)| !wanted.iter().any(|said| sending.is_same(said)))
            .map(|(number, _)| *number)
            .collect();
        gone.into_iter().for_each(|number| self.close_group(number));
        for said in wanted {
            let members: BTreeSet<PeerId> = said.members.iter().map(|name| self.peer_id(name)).collect();
            let found = self.sends.iter().find(|(_, sending)| sending.is_same(&said));
            let number = found.map(|(number, _)| *number);
            let number = number.unwrap_or_else(|| self.open_group(&said));
            self.change_members(number, said, members);
        }
        let needed: BTreeSet<(PeerId, u8)> = self
            .sends
            .values()
            .flat_map(|sending| sending.members.iter().map(|peer| (*peer, sending.said.priority)))
            .collect();
        let idle: Vec<_> = self
            .dials
            .keys()
            .copied()
            .filter(|dial| !needed.contains(dial))
            .collect();
        idle.into_iter().for_each(|dial| self.hang_up(dial));
        needed.into_iter().for_each(|dial| self.dial(dial));
        let list: Vec<Group> = self
            .sends
            .iter()
            .map(|(number, sending)| Group {
                number: *number,
                topic: sending.said.topic.clone(),
                priority: sending.said.priority,
                owner: sending
                    .said
                    .request
                    .as_ref()
                    .and_then(|id| Some(self.shared.parse(id)?.0)),
                room: Arc::clone(&sending.room),
            })
            .collect();
        let groups = (!list.is_empty()).then(|| Arc::new(Groups::new(list)));
        for worker in &self.workers {
            drop(worker.send(worker::Order::Groups(groups.clone())));
        }
    }

    fn open_group(&mut self, said: &Send) -> u32 {
        let group = self.last_number + 2;
        self.last_number = group;
        let limits = self.sender_limits();
        // Odd numbers are those of reliable streams.
        let streams = [(group, false), (group + 1, true)].map(|(number, reliable)| {
            let id = StreamId {
                life: self.life,
                number,
            };
            self.streams.insert(number, (group, reliable));
            Stream {
                id,
                sender: Sender::new(id, reliable, limits),
                waiting: VecDeque::new(),
                under_way: VecDeque::new(),
            }
        });
        let sending = Sending {
            said: said.clone(),
            members: BTreeSet::new(),
            streams,
            room: Arc::new(AtomicBool::new(true)),
            told: None,
        };
        self.sends.insert(group, sending);
        group
    }

    fn change_members(&mut self, group: u32, said: Send, members: BTreeSet<PeerId>) {
        let (now, port) = (self.now(), self.said.port);
        self.members_changed = true;
        for which in 0..2 {
            let mut effects = Vec::new();
            let Some(sending) = self.sends.get_mut(&group) else {
                return;
            };
            for peer in members.difference(&sending.members) {
                let invitation = sending.invitation(&sending.streams[which], port);
                sending.streams[which]
                    .sender
                    .invite(now, *peer, invitation, &mut effects);
            }
            let left: Vec<PeerId> = sending.members.difference(&members).copied().collect();
            let stream = sending.streams[which].id;
            for peer in left {
                effects.push(Effect::Tell(peer, Control::Leave { stream }));
                sending.streams[which].sender.leave(peer, &mut effects);
            }
            self.apply(group, which, effects);
        }
        if let Some(sending) = self.sends.get_mut(&group) {
            (sending.said, sending.members) = (said, members);
        }
        (0..2).for_each(|which| self.flush(group, which));
    }

    /// A group is no more: members are let go, and nobody waits for it any longer.
    fn close_group(&mut self, group: u32) {
        let Some(sending) = self.sends.get(&group) else {
            return;
        };
        let said = sending.said.clone();
        self.change_members(group, said, BTreeSet::new());
        if let Some(sending) = self.sends.remove(&group) {
            for stream in sending.streams {
                self.streams.remove(&stream.id.number);
                let waiting = stream.waiting.into_iter().map(|one| (one.connection, one.packet));
                let left: Vec<(u64, u16)> = stream.under_way.into_iter().chain(waiting).collect();
                left.into_iter()
                    .for_each(|(connection, packet)| self.is_taken(connection, packet));
            }
        }
    }

    fn dial(&mut self, (peer, class): (PeerId, u8)) {
        let address = self.peers.get(&peer).and_then(|peer| peer.address);
        let (Some(address), false) = (address, self.dials.contains_key(&(peer, class))) else {
            return;
        };
        let task = links::keep(
            self.inbox.clone(),
            Arc::clone(&self.said),
            peer,
            class,
            SocketAddrV4::new(address.0, address.1),
        );
        let dial = Dial {
            task: tokio::task::spawn_local(task).abort_handle(),
            link: None,
            down_since: Some(self.now()),
            releases: VecDeque::new(),
        };
        self.dials.insert((peer, class), dial);
    }

    pub(super) fn hang_up(&mut self, dial: (PeerId, u8)) {
        if let Some(dial) = self.dials.remove(&dial) {
            dial.task.abort();
            dial.link.and_then(|link| self.links.remove(&link));
        }
    }

    /// A member is there (again): it is told of all streams for it.
    pub(super) fn invite_all(&mut self, now: Time, (peer, class): (PeerId, u8)) {
        let groups: Vec<u32> = self
            .sends
            .iter()
            .filter(|(_, sending)| sending.said.priority == class && sending.members.contains(&peer))
            .map(|(number, _)| *number)
            .collect();
        let port = self.said.port;
        self.members_changed = true;
        for group in groups {
            for which in 0..2 {
                let mut effects = Vec::new();
                if let Some(sending) = self.sends.get_mut(&group) {
                    let invitation = sending.invitation(&sending.streams[which], port);
                    sending.streams[which]
                        .sender
                        .invite(now, peer, invitation, &mut effects);
                }
                self.apply(group, which, effects);
            }
        }
        let dial = self.dials.get_mut(&(peer, class));
        for release in dial
            .map(|dial| std::mem::take(&mut dial.releases))
            .unwrap_or_default()
        {
            self.tell_member((peer, class), &release);
        }
    }

    fn tell_member(&mut self, dial: (PeerId, u8), control: &Control) {
        let Some(found) = self.dials.get_mut(&dial) else {
            return;
        };
        match found.link {
            Some(link) => self.tell_link(link, control),
            // Everything else is said again when the connection is there.
            None if matches!(control, Control::Release { .. }) && found.releases.len() < MOST_RELEASES => {
                found.releases.push_back(control.clone());
            }
            None => {}
        }
    }

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
                sending.streams[which].waiting.push_back(publication);
                self.flush(group, which);
            }
            Outgoing::Release { key } => self.release(key),
        }
    }

    /// Every member that may remember a key is told.
    fn release(&mut self, key: u64) {
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
    fn flush(&mut self, group: u32, which: usize) {
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
            if matches!(result, Err(Refused::NotOpen | Refused::Full)) {
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
    fn not_for_the_lost(&mut self, group: u32, too_long: bool) {
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

    fn not_delivered(&mut self, group: &str, peer: PeerId, messages: u64, reason: &str) {
        self.counters.undelivered.add(messages);
        let place = (group.to_owned(), self.name_of(peer), reason.to_owned());
        *self.undelivered.entry(place).or_default() += messages;
    }

    /// Publishers go on as soon as nothing of theirs waits here.
    fn look_for_room(&self, group: u32) {
        let Some(sending) = self.sends.get(&group) else {
            return;
        };
        let room = sending.waiting() == 0;
        if sending.room.swap(room, Ordering::AcqRel) != room && room {
            for worker in &self.workers {
                drop(worker.send(worker::Order::Look));
            }
        }
    }

    fn is_taken(&self, number: u64, packet: u16) {
        let worker = usize::try_from(number % self.workers.len().max(1) as u64).unwrap_or(0);
        if let Some(worker) = self.workers.get(worker) {
            drop(worker.send(worker::Order::Taken { number, packet }));
        }
    }

    fn apply(&mut self, group: u32, which: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Open => {}
                Effect::Send { to, sequence } => self.send(group, which, to, sequence),
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
    }

    /// It is told so, so that it does not take itself for a member: when it can it joins again.
    fn lost(&mut self, group: u32, which: usize, peer: PeerId) {
        self.counters.members_lost.add(u64::from(which == 1));
        self.members_changed = true;
        let found = self.sends.get(&group);
        let found = found.map(|sending| (sending.said.priority, sending.streams[which].id));
        if let Some((class, stream)) = found {
            self.tell_member((peer, class), &Control::Leave { stream });
        }
    }

    fn send(&self, group: u32, which: usize, to: To, sequence: u64) {
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
                if !effects.is_empty() {
                    self.apply(group, which, effects);
                    self.flush(group, which);
                }
            }
        }
    }

    /// Groups whose state has changed are told.
    pub(super) fn tell_groups(&mut self) {
        let names: BTreeMap<PeerId, String> = self
            .peers
            .iter()
            .map(|(id, peer)| (*id, peer.name.clone()))
            .collect();
        let mut events = Vec::new();
        for sending in self.sends.values_mut() {
            let (mut missing, mut lost) = (BTreeSet::new(), BTreeSet::new());
            for stream in &sending.streams {
                let absent = stream.sender.absent();
                missing.extend(absent.0);
                lost.extend(absent.1);
            }
            let named = |peers: BTreeSet<PeerId>| {
                let found = peers.iter().filter_map(|peer| names.get(peer).cloned());
                found.collect::<Vec<_>>()
            };
            let is_open = sending.streams.iter().all(|stream| stream.sender.is_open());
            let state = if is_open {
                GroupState::Open
            } else {
                GroupState::Waiting
            };
            let now = (state, named(missing), named(lost));
            if sending.told.as_ref() != Some(&now) {
                sending.told = Some(now.clone());
                events.push(Event::Group {
                    id: sending.said.id.clone(),
                    state: now.0,
                    missing: now.1,
                    lost: now.2,
                });
            }
        }
        events.into_iter().for_each(|event| self.event(event));
    }
}

//! Groups to which this manager sends, and their members: who is asked to join, let go, or lost.

use super::hub::Hub;
use super::links;
use super::sending::{self, Dial, Sending, Stream};
use crate::contract::{Event, GroupState, Send};
use crate::worker;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddrV4;
use std::sync::Arc;
use timebound_model::Time;
use timebound_protocol::intermediary::{Group, Groups, Room};
use timebound_protocol::peer::control::Control;
use timebound_protocol::peer::pacing::Pacer;
use timebound_protocol::peer::seal;
use timebound_protocol::peer::sender::Sender;
use timebound_protocol::peer::{PeerId, StreamId};

/// Releases that wait for the connection to a member.
const MOST_RELEASES: usize = 100_000;

impl Hub {
    pub(super) fn wanted_sends(&mut self, wanted: Vec<Send>) {
        let gone: Vec<u32> = self
            .sends
            .iter()
            .filter(|(_, sending)| !sending.closing && !wanted.iter().any(|said| sending.is_same(said)))
            .map(|(number, _)| *number)
            .collect();
        gone.into_iter().for_each(|number| self.close_group(number));
        for said in wanted {
            let members: BTreeSet<PeerId> = said.members.iter().map(|name| self.peer_id(name)).collect();
            let found = self
                .sends
                .iter()
                .find(|(_, sending)| !sending.closing && sending.is_same(&said));
            let number = found.map(|(number, _)| *number);
            let number = number.unwrap_or_else(|| self.open_group(&said));
            self.change_members(number, said, members);
        }
        self.look_at_dials();
        self.tell_connections();
    }

    /// Connections that are needed are there, and no others.
    fn look_at_dials(&mut self) {
        let needed: BTreeSet<(PeerId, u8)> = self
            .sends
            .values()
            .flat_map(|sending| {
                let class = sending.said.priority;
                sending.peers().into_iter().map(move |peer| (peer, class))
            })
            .collect();
        let idle: Vec<_> = self
            .dials
            .keys()
            .copied()
            .filter(|dial| !needed.contains(dial))
            .collect();
        idle.into_iter().for_each(|dial| self.hang_up(dial));
        needed.into_iter().for_each(|dial| self.dial(dial));
    }

    /// Connections of clients are told where what they publish goes.
    fn tell_connections(&self) {
        let list: Vec<Group> = self
            .sends
            .iter()
            .filter(|(_, sending)| !sending.is_relay() && !sending.closing)
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
        let relays = self.relays();
        let groups = (!list.is_empty() || !relays.is_empty()).then(|| Arc::new(Groups::new(list, relays)));
        for worker in &self.workers {
            drop(worker.send(worker::Order::Groups(groups.clone())));
        }
    }

    pub(super) fn open_group(&mut self, said: &Send) -> u32 {
        let group = self.last_number + 2;
        self.last_number = group;
        let limits = self.sender_limits();
        // Odd numbers are those of reliable streams.
        let mut streams = [(group, false), (group + 1, true)].map(|(number, reliable)| {
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
                late: Vec::new(),
            }
        });
        let [one, other] = &mut streams;
        let reservation = said.reservation.map(sending::reserved);
        let longer = if self.sealer.is_some() { seal::OVERHEAD } else { 0 };
        let pacer = Pacer::new(
            self.now(),
            reservation,
            longer,
            [&mut one.sender, &mut other.sender],
        );
        let sending = Sending {
            said: said.clone(),
            members: BTreeSet::new(),
            streams,
            pacer,
            room: Arc::new(Room::default()),
            closing: false,
            told: None,
        };
        self.sends.insert(group, sending);
        group
    }

    pub(super) fn change_members(&mut self, group: u32, said: Send, members: BTreeSet<PeerId>) {
        let (now, port) = (self.now(), self.said.port);
        self.members_changed = true;
        if let Some(sending) = self.sends.get_mut(&group)
            && sending.said.reservation != said.reservation
        {
            sending.reserve(now, said.reservation);
        }
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
            for peer in left {
                sending.streams[which].sender.part(now, peer, &mut effects);
            }
            self.apply(group, which, effects);
        }
        if let Some(sending) = self.sends.get_mut(&group) {
            (sending.said, sending.members) = (said, members);
        }
        (0..2).for_each(|which| self.flush(group, which));
    }

    /// A group is no more: what was sent its members may still take, what was not goes another way.
    pub(super) fn close_group(&mut self, group: u32) {
        let Some(sending) = self.sends.get_mut(&group) else {
            return;
        };
        sending.closing = true;
        let said = sending.said.clone();
        let waiting = [0, 1].map(|which: usize| std::mem::take(&mut sending.streams[which].waiting));
        self.change_members(group, said, BTreeSet::new());
        for (which, publication) in waiting
            .into_iter()
            .enumerate()
            .flat_map(|(which, waiting)| waiting.into_iter().map(move |publication| (which, publication)))
        {
            self.relay(which, publication, &BTreeSet::new());
        }
        self.look_at_closing();
    }

    /// Groups that are no more, and of which nobody has anything to take, go.
    pub(super) fn look_at_closing(&mut self) {
        let is_over = |sending: &Sending| {
            sending.closing
                && sending
                    .streams
                    .iter()
                    .all(|stream| stream.sender.peers().next().is_none())
        };
        let over = self.sends.iter().filter(|(_, sending)| is_over(sending));
        let over: Vec<u32> = over.map(|(number, _)| *number).collect();
        for group in &over {
            self.forget_group(*group);
        }
        if !over.is_empty() {
            self.look_at_dials();
        }
    }

    fn forget_group(&mut self, group: u32) {
        if let Some(sending) = self.sends.remove(&group) {
            // Publishers of what is under way are told when it is dropped here.
            for stream in sending.streams {
                self.streams.remove(&stream.id.number);
                for (end, key) in stream.late {
                    self.tell_release(&[(stream.id, end)], key);
                }
            }
        }
    }

    pub(super) fn dial(&mut self, (peer, class): (PeerId, u8)) {
        let address = self.peers.get(&peer).and_then(|peer| peer.address);
        let (Some(address), false) = (address, self.dials.contains_key(&(peer, class))) else {
            return;
        };
        let task = links::keep(
            self.inbox.clone(),
            Arc::clone(&self.said),
            self.secure.clone(),
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
            .filter(|(_, sending)| sending.said.priority == class && sending.peers().contains(&peer))
            .map(|(number, _)| *number)
            .collect();
        let port = self.said.port;
        self.members_changed = true;
        for group in groups {
            for which in 0..2 {
                let mut effects = Vec::new();
                let sending = self.sends.get_mut(&group);
                if let Some(sending) = sending.filter(|sending| !sending.members.contains(&peer)) {
                    // It may not have heard that it is to leave.
                    sending.streams[which].sender.reconnected(now, peer, &mut effects);
                } else if let Some(sending) = self.sends.get_mut(&group) {
                    sending.streams[which].sender.reconnected(now, peer, &mut effects);
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

    pub(super) fn tell_member(&mut self, dial: (PeerId, u8), control: &Control) {
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

    /// Groups whose state has changed are told.
    pub(super) fn tell_groups(&mut self) {
        let names: BTreeMap<PeerId, String> = self
            .peers
            .iter()
            .map(|(id, peer)| (*id, peer.name.clone()))
            .collect();
        let mut events = Vec::new();
        for sending in self.sends.values_mut().filter(|sending| !sending.closing) {
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

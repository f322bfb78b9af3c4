//! Who is at the other end of a connection, and what becomes of it.

use super::hub::Hub;
use super::links::{self, Out};
use super::sealing::Opener;
use std::net::Ipv4Addr;
use timebound_model::Time;
use timebound_protocol::peer::PeerId;
use timebound_protocol::peer::control::{Control, VERSION};
use timebound_protocol::peer::receiver::{self, Receiver};

/// Bytes that a peer has yet to read, beyond which its connection is of no use.
const MOST_QUEUED: usize = 16 << 20;

/// Another manager.
pub(super) struct Peer {
    pub(super) name: String,
    /// `None`: it is not known at present.
    pub(super) address: Option<(Ipv4Addr, u16)>,
    /// Of its process, as far as it has said.
    pub(super) life: Option<u64>,
    pub(super) receiver: Receiver,
    /// Of what its present life sends; `None`: it has not said how.
    pub(super) opener: Option<Opener>,
}

/// A TCP connection with a peer.
pub(super) struct Link {
    pub(super) out: Out,
    pub(super) marker: socket2::Socket,
    pub(super) address: Ipv4Addr,
    pub(super) dialed: Option<(PeerId, u8)>,
    /// Who is there, once it has said so.
    pub(super) peer: Option<PeerId>,
}

impl Hub {
    /// The number of a manager, by which streams and messages know it.
    pub(super) fn peer_id(&mut self, name: &str) -> PeerId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = PeerId::try_from(self.ids.len()).unwrap_or(PeerId::MAX);
        self.ids.insert(name.to_owned(), id);
        let peer = Peer {
            name: name.to_owned(),
            address: None,
            life: None,
            receiver: Receiver::new(receiver::Limits::default()),
            opener: None,
        };
        self.peers.insert(id, peer);
        id
    }

    pub(super) fn name_of(&self, peer: PeerId) -> String {
        let found = self.peers.get(&peer);
        found.map_or_else(String::new, |peer| peer.name.clone())
    }

    /// Closes all connections with a peer.
    pub(super) fn disconnect(&mut self, peer: PeerId) {
        let dials: Vec<_> = self.dials.keys().copied().filter(|(id, _)| *id == peer).collect();
        dials.into_iter().for_each(|dial| self.hang_up(dial));
        self.links.retain(|_, link| link.peer != Some(peer));
    }

    /// What is said first. Members are told there how to open what they will be sent.
    pub(super) fn hello(&self, to_member: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let hello = Control::Hello {
            version: VERSION,
            life: self.life,
            name: self.shared.name.clone(),
        };
        hello.write(&mut bytes);
        if let (Some(sealer), true) = (&self.sealer, to_member) {
            Control::Key(sealer.key.clone()).write(&mut bytes);
        }
        bytes
    }

    pub(super) fn tell_link(&mut self, link: u64, control: &Control) {
        let Some(found) = self.links.get(&link) else {
            return;
        };
        let mut bytes = Vec::new();
        control.write(&mut bytes);
        found.out.send(bytes);
        if found.out.queued() > MOST_QUEUED {
            self.closed(link);
        }
    }

    pub(super) fn closed(&mut self, link: u64) {
        let Some(gone) = self.links.remove(&link) else {
            return;
        };
        let now = self.now();
        if let Some(dial) = gone.dialed.and_then(|dialed| self.dials.get_mut(&dialed))
            && dial.link == Some(link)
        {
            (dial.link, dial.down_since) = (None, Some(now));
        }
    }

    pub(super) fn control(&mut self, link: u64, control: Control) {
        let Some(found) = self.links.get(&link) else {
            return;
        };
        let (dialed, peer) = (found.dialed, found.peer);
        if let Control::Hello { version, life, name } = control {
            if peer.is_some() || version != VERSION || !self.is_who_it_says(link, &name) {
                self.counters.foreign.add(1);
                return self.closed(link);
            }
            return self.greeted(link, life, &name);
        }
        let Some(peer) = peer else {
            return self.closed(link);
        };
        let fits = match dialed {
            Some(_) => self.heard_from_member(peer, &control),
            None => self.heard_from_sender(link, peer, control),
        };
        if !fits {
            self.counters.foreign.add(1);
            self.closed(link);
        }
    }

    /// Who connected from there has not shown who it is.
    pub(super) fn refused(&mut self, address: Ipv4Addr, why: &str) {
        self.counters.foreign.add(1);
        // Of others it is counted alone: anybody may connect.
        if let Some(name) = self.name_at(address) {
            self.trouble(&name, format!("{address} connects: {why}"));
        }
    }

    /// The manager that has this address.
    pub(super) fn name_at(&self, address: Ipv4Addr) -> Option<String> {
        let is_there = |peer: &&Peer| peer.address.is_some_and(|(known, _)| known == address);
        self.peers.values().find(is_there).map(|peer| peer.name.clone())
    }

    /// Is it the manager of this name that has this address?
    pub(super) fn is_who_it_says(&self, link: u64, name: &str) -> bool {
        let (Some(link), Some(id)) = (self.links.get(&link), self.ids.get(name)) else {
            return false;
        };
        let known = self.peers.get(id).and_then(|peer| peer.address);
        known.is_some_and(|(address, _)| address == link.address)
            && link.dialed.is_none_or(|(peer, _)| peer == *id)
    }

    pub(super) fn greeted(&mut self, link: u64, life: u64, name: &str) {
        let peer = self.peer_id(name);
        let now = self.now();
        let before = self
            .peers
            .get_mut(&peer)
            .and_then(|known| known.life.replace(life));
        if before.is_some_and(|before| before != life) {
            self.peer_restarted(now, peer, life);
        }
        let mut dialed = None;
        if let Some(found) = self.links.get_mut(&link) {
            found.peer = Some(peer);
            dialed = found.dialed;
        }
        let Some(dialed) = dialed else {
            return;
        };
        if let Some(dial) = self.dials.get_mut(&dialed) {
            (dial.link, dial.down_since) = (Some(link), None);
        }
        self.trouble(name, String::new());
        self.invite_all(now, dialed);
    }

    /// Its process is another one: what it had is gone but for what its broker has.
    pub(super) fn peer_restarted(&mut self, now: Time, peer: PeerId, life: u64) {
        if let Some(known) = self.peers.get_mut(&peer) {
            known.receiver.restarted(life);
            known.opener = None;
        }
        self.incoming
            .retain(|stream, incoming| incoming.peer != peer || stream.life == life);
        let groups: Vec<u32> = self.sends.keys().copied().collect();
        for (group, which) in groups.into_iter().flat_map(|group| [(group, 0), (group, 1)]) {
            let mut effects = Vec::new();
            if let Some(sending) = self.sends.get_mut(&group) {
                sending.streams[which].sender.restarted(now, peer, &mut effects);
            }
            self.apply(group, which, effects);
        }
    }

    /// Marks what is sent on a connection that the other side has made with the class that it is for.
    pub(super) fn mark_link(&self, link: u64, class: u8) {
        if let Some(link) = self.links.get(&link) {
            links::mark(socket2::SockRef::from(&link.marker), class);
        }
    }
}

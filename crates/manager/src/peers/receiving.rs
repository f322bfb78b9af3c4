//! What this manager receives from groups and hands to its broker.

use super::hub::Hub;
use super::links::Out;
use super::sealing::Opener;
use super::{broker, datagrams};
use crate::contract::Receive;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use timebound_model::{Span, Time};
use timebound_protocol::peer::control::Control;
use timebound_protocol::peer::datagram::Datagram;
use timebound_protocol::peer::injector::{Effect, Ending, Injector, KEEP_ALIVE, Record, Token};
use timebound_protocol::peer::receiver;
use timebound_protocol::peer::{PeerId, StreamId};
use tokio::task::AbortHandle;

/// Streams of one sender.
const MOST_STREAMS: usize = 4_096;
/// Who was let go by a sender waits so long before it joins again.
const AGAIN: Span = Span(1_000_000_000);
/// Bytes of QoS 0 that wait for the broker to read them; beyond, messages are dropped.
const MOST_LOOSE: usize = 4 << 20;

/// A stream that another manager has told us to join.
pub(super) struct Incoming {
    pub(super) peer: PeerId,
    pub(super) link: u64,
    group: Ipv4Addr,
    class: u8,
    reliable: bool,
    joined: bool,
    not_before: Time,
}

/// The client at the own broker for one class.
pub(super) struct Broker {
    injector: Injector,
    out: Option<Out>,
    task: AbortHandle,
    ping_at: Time,
    heard: Time,
}

impl Hub {
    /// What a former life has left on disk.
    pub(super) fn remember(&mut self) {
        let Some(journal) = &self.journal else {
            return;
        };
        let entries: Vec<_> = journal
            .entries()
            .map(|(origin, key, entry)| (origin.to_owned(), key, entry.clone()))
            .collect();
        for (origin, key, entry) in entries {
            let peer = self.peer_id(&origin);
            let has_broker = entry.stage != super::journal::Stage::Published;
            if has_broker && let Some(known) = self.peers.get_mut(&peer) {
                known.receiver.remember(key, entry.stream, entry.end);
            }
            if entry.stage == super::journal::Stage::Completed {
                continue;
            }
            let injector = &mut self.broker(entry.class).injector;
            match has_broker {
                true => injector.resume_released(entry.packet),
                false => injector.resume_published(peer, key, entry.packet),
            }
        }
    }

    pub(super) fn wanted_receives(&mut self, wanted: Vec<Receive>) {
        self.receives = wanted;
        let classes: BTreeSet<u8> = self.receives.iter().map(|one| one.priority).collect();
        for class in classes {
            self.broker(class);
        }
        // Who sends lets us go when its table says so, too: until then what is under way comes. Of whom nothing is known any more nothing comes.
        let unwanted: Vec<StreamId> = self
            .incoming
            .iter()
            .filter(|(_, incoming)| incoming.joined && !self.is_wanted(incoming))
            .filter(|(_, incoming)| {
                let peer = self.peers.get(&incoming.peer);
                peer.is_none_or(|peer| peer.address.is_none())
            })
            .map(|(stream, _)| *stream)
            .collect();
        for stream in unwanted {
            self.leave(stream, Time(0));
        }
    }

    fn is_wanted(&self, incoming: &Incoming) -> bool {
        let name = self.peers.get(&incoming.peer).map(|peer| peer.name.as_str());
        let same = |one: &Receive| {
            Some(one.origin.as_str()) == name
                && (one.address, one.priority) == (incoming.group, incoming.class)
        };
        self.receives.iter().any(same)
    }

    /// Nothing more of a stream is for us, until it is joined again. Its sender is told up to where it was, and later what the broker has of that.
    fn leave(&mut self, stream: StreamId, not_before: Time) {
        let Some(incoming) = self.incoming.get_mut(&stream) else {
            return;
        };
        (incoming.joined, incoming.not_before) = (false, not_before);
        let (peer, group, link) = (incoming.peer, incoming.group, incoming.link);
        let mut effects = Vec::new();
        if let Some(known) = self.peers.get_mut(&peer) {
            known.receiver.leave(stream, &mut effects);
        }
        // In this order: it counts from the last report on.
        self.reports.remove(&stream);
        for effect in effects {
            if let receiver::Effect::Tell(report) = effect {
                self.tell_link(link, &Control::Arrived(report));
            }
        }
        self.tell_link(link, &Control::Leave { stream });
        let others = self
            .incoming
            .values()
            .any(|other| other.joined && other.group == group);
        if !others && let Some(task) = self.joined.remove(&group) {
            task.abort();
        }
    }

    /// What a sender says; `false`: what it may not.
    pub(super) fn heard_from_sender(&mut self, link: u64, peer: PeerId, control: Control) -> bool {
        let life = self.peers.get(&peer).and_then(|peer| peer.life);
        let of_its_life = |stream: StreamId| life == Some(stream.life);
        let mut effects = Vec::new();
        match control {
            Control::Invite {
                stream,
                group,
                port,
                class,
                reliable,
                ..
            } => {
                let streams = self.incoming.values().filter(|one| one.peer == peer).count();
                if !of_its_life(stream)
                    || port != self.said.port
                    || !(group.is_multicast() || group == self.said.address)
                    || streams >= MOST_STREAMS
                {
                    return false;
                }
                self.mark_link(link, class);
                // Over a new connection it answers again, and the sender says from where on.
                if self.incoming.get(&stream).is_none_or(|known| !known.joined) {
                    let incoming = Incoming {
                        peer,
                        link,
                        group,
                        class,
                        reliable,
                        joined: false,
                        not_before: Time(0),
                    };
                    self.incoming.insert(stream, incoming);
                } else {
                    if let Some(known) = self.incoming.get_mut(&stream) {
                        known.link = link;
                    }
                    self.tell_link(link, &Control::Joined { stream });
                }
            }
            Control::From { stream, sequence } => {
                if let Some(known) = self.peers.get_mut(&peer).filter(|_| of_its_life(stream)) {
                    known.receiver.from(stream, sequence, &mut effects);
                }
            }
            Control::Leave { stream } if of_its_life(stream) => {
                let again = self.now().after(AGAIN);
                if self.incoming.contains_key(&stream) {
                    self.leave(stream, again);
                } else {
                    self.tell_link(link, &Control::Leave { stream });
                }
            }
            Control::Release { stream, end, key } if of_its_life(stream) => {
                let known = self.peers.get_mut(&peer);
                let removed =
                    known.is_some_and(|known| known.receiver.release(stream, end, key, &mut effects));
                if removed {
                    let origin = self.name_of(peer);
                    self.write_down(|journal| journal.forget(&origin, key));
                }
            }
            // Without TLS it would be no secret.
            Control::Key(key) if self.secure.is_some() => {
                if let Some(known) = self.peers.get_mut(&peer)
                    && !known.opener.as_ref().is_some_and(|opener| opener.has(&key))
                {
                    known.opener = Opener::new(key);
                }
            }
            _ => return false,
        }
        self.apply_received(peer, effects);
        true
    }

    fn write_down(&mut self, what: impl FnOnce(&mut super::journal::Journal) -> std::io::Result<()>) {
        let written = self.journal.as_mut().map(what);
        if let Some(Err(error)) = written {
            let path = self.said.state.clone().unwrap_or_default();
            self.trouble("state", format!("{}: {error}", path.display()));
        }
    }

    pub(super) fn datagram(&mut self, from: Ipv4Addr, bytes: &mut [u8]) {
        let found = self
            .peers
            .iter_mut()
            .find(|(_, peer)| peer.address.is_some_and(|(address, _)| address == from));
        let Some((id, peer)) = found else {
            return self.counters.foreign.add(1);
        };
        let opened = match (&self.secure, &mut peer.opener) {
            (None, _) => Some(&*bytes),
            (Some(_), Some(opener)) => opener.open(bytes),
            (Some(_), None) => None,
        };
        let Some(Ok(datagram)) = opened.map(Datagram::read) else {
            return self.counters.foreign.add(1);
        };
        if peer.life != Some(datagram.stream.life) {
            return self.counters.foreign.add(1);
        }
        let mut effects = Vec::new();
        peer.receiver.datagram(&datagram, &mut effects);
        let id = *id;
        self.apply_received(id, effects);
    }

    fn apply_received(&mut self, peer: PeerId, effects: Vec<receiver::Effect>) {
        for effect in effects {
            match effect {
                receiver::Effect::Deliver {
                    stream,
                    message,
                    key,
                    end,
                } => {
                    self.counters.received.add(1);
                    let token = Token {
                        peer,
                        stream,
                        end,
                        key,
                    };
                    let mut effects = Vec::new();
                    let class = self.class_of(stream);
                    self.broker(class).injector.deliver(token, message, &mut effects);
                    self.apply_injected(class, effects);
                }
                receiver::Effect::Pass { stream, message } => {
                    self.counters.received.add(1);
                    let class = self.class_of(stream);
                    let mut effects = Vec::new();
                    let broker = self.broker(class);
                    if broker.out.as_ref().is_none_or(|out| out.queued() < MOST_LOOSE) {
                        broker.injector.pass(&message, &mut effects);
                    } else {
                        effects.push(Effect::Dropped);
                    }
                    self.counters.injected.add(u64::from(effects.is_empty()));
                    self.apply_injected(class, effects);
                }
                receiver::Effect::Tell(report) => {
                    self.reports.insert(report.stream, report);
                }
            }
        }
    }

    fn class_of(&self, stream: StreamId) -> u8 {
        self.incoming.get(&stream).map_or(0, |incoming| incoming.class)
    }

    fn apply_injected(&mut self, class: u8, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Record(record) => {
                    let origin = match &record {
                        Record::Published { token, .. } => self.name_of(token.peer),
                        _ => String::new(),
                    };
                    self.write_down(|journal| journal.record(class, &record, &origin));
                }
                Effect::Taken(token) => {
                    self.counters.injected.add(1);
                    self.has_taken(token);
                }
                Effect::Refused(token, reason) => {
                    self.counters.refused.add(1);
                    let group = self.group_of(token.stream);
                    let why = format!("the broker does not want it: reason {reason:#04x}");
                    let place = (group, self.shared.name.clone(), why);
                    *self.undelivered.entry(place).or_default() += 1;
                    self.has_taken(token);
                }
                Effect::Dropped => self.counters.dropped.add(1),
            }
        }
    }

    fn group_of(&self, stream: StreamId) -> String {
        let Some(incoming) = self.incoming.get(&stream) else {
            return String::new();
        };
        let origin = self.name_of(incoming.peer);
        let is_it = |one: &&Receive| one.address == incoming.group && one.origin == origin;
        let found = self.receives.iter().find(is_it);
        found.map_or_else(String::new, |one| one.id.clone())
    }

    fn has_taken(&mut self, token: Token) {
        let mut effects = Vec::new();
        if let Some(peer) = self.peers.get_mut(&token.peer) {
            peer.receiver
                .taken(token.stream, token.end, token.key, &mut effects);
        }
        self.apply_received(token.peer, effects);
    }

    /// The client for a class; it connects as soon as there is one.
    fn broker(&mut self, class: u8) -> &mut Broker {
        let Self {
            brokers,
            said,
            shared,
            inbox,
            ..
        } = self;
        brokers.entry(class).or_insert_with(|| {
            let id = format!("timebound/{}/{class}", shared.name);
            let task = broker::keep(inbox.clone(), Arc::clone(shared), class);
            Broker {
                injector: Injector::new(id, said.user.clone(), said.password.clone()),
                out: None,
                task: tokio::task::spawn_local(task).abort_handle(),
                ping_at: Time(0),
                heard: Time(0),
            }
        })
    }

    pub(super) fn broker_opened(&mut self, class: u8, out: Out) {
        let now = self.now();
        let broker = self.broker(class);
        broker.injector.connected();
        (broker.out, broker.heard) = (Some(out), now);
        broker.ping_at = now;
    }

    pub(super) fn broker_bytes(&mut self, class: u8, bytes: &[u8]) {
        let now = self.now();
        let broker = self.broker(class);
        if broker.out.is_none() {
            return;
        }
        broker.heard = now;
        let was_up = broker.injector.is_up();
        let mut effects = Vec::new();
        let result = broker.injector.bytes(bytes, &mut effects);
        let is_up = broker.injector.is_up();
        self.apply_injected(class, effects);
        match result {
            Err(why) => {
                if why != Ending::Again {
                    self.trouble("broker", why.to_string());
                }
                self.broker_closed(class, Some(why));
            }
            Ok(()) if is_up && !was_up => self.trouble("broker", String::new()),
            Ok(()) => {}
        }
    }

    pub(super) fn broker_closed(&mut self, class: u8, why: Option<Ending>) {
        let broker = self.broker(class);
        if broker.out.take().is_none() {
            return;
        }
        let mut effects = Vec::new();
        broker.injector.disconnected(why, &mut effects);
        self.apply_injected(class, effects);
    }

    /// What clients have to say goes to the broker, and those of whom nothing is heard are connected anew.
    pub(super) fn flush_brokers(&mut self, now: Time) {
        let alive = Span(u64::from(KEEP_ALIVE) * 1_000_000_000);
        let mut silent = Vec::new();
        for (class, broker) in &mut self.brokers {
            if now >= broker.ping_at {
                broker.injector.ping();
                broker.ping_at = now.after(Span(alive.0 / 3));
            }
            let bytes = broker.injector.take_output();
            match &broker.out {
                Some(_) if now >= broker.heard.after(alive) => silent.push(*class),
                Some(out) if !bytes.is_empty() => out.send(bytes),
                _ => {}
            }
        }
        for class in silent {
            self.trouble("broker", "it does not answer".to_owned());
            self.broker_closed(class, None);
        }
    }

    /// Streams that can be joined now are.
    pub(super) fn look_at_receives(&mut self, now: Time) {
        let ready: Vec<(StreamId, Ipv4Addr)> = self
            .incoming
            .iter()
            .filter(|(stream, incoming)| {
                !incoming.joined
                    && now >= incoming.not_before
                    && self.is_wanted(incoming)
                    && !self
                        .peers
                        .get(&incoming.peer)
                        .is_some_and(|peer| peer.receiver.has(**stream))
                    && self.links.contains_key(&incoming.link)
                    && self
                        .brokers
                        .get(&incoming.class)
                        .is_some_and(|broker| broker.injector.is_up())
            })
            .map(|(stream, incoming)| (*stream, incoming.group))
            .collect();
        for (stream, group) in ready {
            if group.is_multicast() && !self.joined.contains_key(&group) {
                let (inbox, loss) = (self.inbox.clone(), self.loss.clone());
                match datagrams::join(&self.said, group, inbox, loss) {
                    Ok(task) => drop(self.joined.insert(group, task)),
                    Err(error) => {
                        self.trouble(&group.to_string(), error.to_string());
                        let again = now.after(AGAIN);
                        self.incoming
                            .entry(stream)
                            .and_modify(|one| one.not_before = again);
                        continue;
                    }
                }
            }
            let Some(incoming) = self.incoming.get_mut(&stream) else {
                continue;
            };
            incoming.joined = true;
            let (peer, link, reliable) = (incoming.peer, incoming.link, incoming.reliable);
            if let Some(known) = self.peers.get_mut(&peer) {
                known.receiver.join(stream, reliable);
            }
            self.tell_link(link, &Control::Joined { stream });
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

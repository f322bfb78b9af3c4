//! Messages to and from managers of other edge networks: sockets, timers and the disk around `timebound_protocol::peer`.
//!
//! One thread does all of it ([`hub`]); connections' threads hand it what they publish and are told what was taken. Whoever sends to a group
//! opens one TCP connection for each member and class ([`links`]), marked with the class, for everything that is no data:
//!
//! ```text
//! sender   Hello, Key, Invite, From, Release, Leave  -->  receiver's peer port
//! sender   <--  Hello, Joined, Arrived, Leave
//! ```
//!
//! Data goes by UDP from the sender's peer address and port to the group's address and the members' peer port, and to a member's own address
//! where it is sent again ([`datagrams`]), all of it no faster than is reserved for the group (`timebound_protocol::peer::pacing`). What no group
//! carries to a member goes to its own address the first time, too, as best effort ([`relays`]). What arrives is handed to the own broker by one client for each class ([`broker`]), and what must not be
//! handed over twice is written down before ([`journal`]).
//!
//! Only addresses of known peers are heard. With `Peering::tls` connections are TLS on which both show a certificate for their address, and a sender's datagrams
//! are sealed with a key that it tells members there ([`sealing`]): who has no certificate neither reads nor writes anything, but one member could write as
//! another. Without, connections between peers belong into a network of their own, or a tunnel.

mod broker;
mod datagrams;
mod greeting;
mod hub;
mod inbox;
mod journal;
mod links;
mod members;
mod receiving;
mod relays;
mod sealing;
mod sending;

pub(crate) use hub::{Prepared, prepare, run};

use crate::contract::Groups;
use crate::counters::Counter;
use crate::start::StartError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use timebound_protocol::intermediary::Outgoing;
use timebound_protocol::peer::pacing::FULL_FRAME;
use timebound_wire::topic;
use tokio::sync::mpsc::UnboundedSender;

/// Which datagrams that arrive are lost before anybody sees them; for tests.
pub type Loss = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// What other threads tell the hub.
pub(crate) enum Order {
    Wanted(Box<Groups>),
    Outgoing {
        connection: u64,
        outgoing: Outgoing,
    },
    /// A connection of a client has ended.
    Closed {
        connection: u64,
    },
    Stop,
}

/// The way to the hub.
#[derive(Clone)]
pub(crate) struct Handle {
    orders: UnboundedSender<Order>,
    /// Does it pass on what no group carries, and so want to know what clients are subscribed to?
    pub(crate) relays: bool,
    pub(crate) counters: Arc<Counters>,
}

impl Handle {
    pub(crate) fn order(&self, order: Order) {
        // A hub that has ended does nothing more, and so does everybody else.
        drop(self.orders.send(order));
    }
}

/// As `contract::Peers` has them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: Counter,
    pub(crate) sent: Counter,
    pub(crate) relayed: Mutex<BTreeMap<String, u64>>,
    pub(crate) datagrams_again: Counter,
    pub(crate) undelivered: Counter,
    pub(crate) members_lost: Counter,
    pub(crate) waiting: Counter,
    pub(crate) received: Counter,
    pub(crate) injected: Counter,
    pub(crate) refused: Counter,
    pub(crate) dropped: Counter,
    pub(crate) repeated: Counter,
    pub(crate) datagrams_repeated: Counter,
    pub(crate) datagrams_missed: Counter,
    pub(crate) foreign: Counter,
}

impl Counters {
    pub(crate) fn stats(&self) -> crate::contract::Peers {
        crate::contract::Peers {
            connections: self.connections.get(),
            sent: self.sent.get(),
            relayed: self
                .relayed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            datagrams_again: self.datagrams_again.get(),
            undelivered: self.undelivered.get(),
            members_lost: self.members_lost.get(),
            waiting: self.waiting.get(),
            received: self.received.get(),
            injected: self.injected.get(),
            refused: self.refused.get(),
            dropped: self.dropped.get(),
            repeated: self.repeated.get(),
            datagrams_repeated: self.datagrams_repeated.get(),
            datagrams_missed: self.datagrams_missed.get(),
            foreign: self.foreign.get(),
        }
    }
}

/// Refuses what cannot be wanted, before any of it is done.
pub(crate) fn check(groups: &Groups) -> Result<(), StartError> {
    let value = |what, why| Err(StartError::Value { what, why });
    let unique = |ids: Vec<&str>| {
        let is_text = |id: &&&str| !id.is_empty() && !id.contains(char::is_control);
        let different: BTreeSet<_> = ids.iter().filter(is_text).collect();
        different.len() == ids.len()
    };
    if !unique(groups.peers.iter().map(|peer| peer.name.as_str()).collect()) {
        return value("peers[].name", "each peer has a name of its own");
    }
    if !unique(groups.sends.iter().map(|send| send.id.as_str()).collect()) {
        return value("sends[].id", "each group has an id of its own");
    }
    let addresses: BTreeSet<_> = groups.peers.iter().map(|peer| peer.address).collect();
    if addresses.len() < groups.peers.len() {
        return value("peers[].address", "each peer has an address of its own");
    }
    let sends = groups
        .sends
        .iter()
        .map(|one| (one.address, one.priority, &one.topic, one.interests.is_some()));
    let receives = groups
        .receives
        .iter()
        .map(|one| (one.address, one.priority, &one.topic, one.relay));
    for (address, priority, topic, is_relay) in sends.chain(receives) {
        if address.is_multicast() == is_relay {
            return value(
                "address",
                "a group has an address of 224.0.0.0/4, and a relay none of these",
            );
        }
        if priority > 7 {
            return value("priority", "0 to 7");
        }
        if !topic::is_filter(topic) {
            return value("topic", "a topic name or filter");
        }
    }
    let filters = groups
        .sends
        .iter()
        .filter_map(|one| one.interests.as_ref())
        .flatten();
    if !filters.into_iter().all(|filter| topic::is_filter(filter)) {
        return value("sends[].interests", "topic names or filters");
    }
    let relays = groups.sends.iter().filter(|one| one.interests.is_some());
    if relays.into_iter().any(|one| one.members.len() != 1) {
        return value("sends[].members", "a relay has one");
    }
    let reserved = groups.sends.iter().filter_map(|one| one.reservation);
    if reserved.into_iter().any(|one| one.burst_bytes < FULL_FRAME) {
        return value(
            "sends[].reservation.burst_bytes",
            "a full frame has 1,538 bytes, and could never be sent",
        );
    }
    Ok(())
}

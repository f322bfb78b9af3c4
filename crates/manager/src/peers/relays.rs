//! What no group carries to another network goes there as best effort: one stream pair for each manager that has said what is wanted there.
//!
//! A relay is a group of one member whose datagrams go to that member's own address. Whether a message goes by it is decided at the moment at which
//! the message leaves for its group: a relay takes it if the member is not in the group's stream just then. So nobody gets a message both ways, and
//! nobody neither way, whatever comes and goes.
//!
//! A publisher whose message has a group waits for the group's members alone; what its relays cannot take then is told as undelivered.

use super::hub::Hub;
use super::sending::Publication;
use crate::contract::Event;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use timebound_model::{Span, Time};
use timebound_protocol::intermediary::Relay;
use timebound_protocol::peer::PeerId;
use timebound_protocol::peer::interests::Interests;
use timebound_protocol::peer::message::Message;
use timebound_wire::topic;

/// A storm of subscriptions is told so often.
const TELL: Span = Span(250_000_000);
/// Messages for which nobody waits that wait for a relay, and their bytes; beyond, they are not delivered.
const MOST_WAITING: (usize, usize) = (1_024, 16 << 20);

/// What clients of this manager are subscribed to, and what was told of it.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) of: Interests,
    filters: Vec<String>,
    at: Option<Time>,
}

impl Told {
    pub(super) const fn due(&self) -> Option<Time> {
        self.at
    }
}

fn is_full(waiting: &VecDeque<Publication>) -> bool {
    let bytes = || {
        waiting
            .iter()
            .map(|publication| publication.message.len())
            .sum::<usize>()
    };
    waiting.len() >= MOST_WAITING.0 || bytes() >= MOST_WAITING.1
}

impl Hub {
    /// What has changed of subscriptions is told, now and then.
    pub(super) fn look_at_interests(&mut self, now: Time) {
        let told = &mut self.interests;
        if told.of.has_changed(now) {
            told.at.get_or_insert(now.after(TELL));
        }
        if told.at.is_none_or(|at| now < at) {
            return;
        }
        told.at = None;
        let filters = told.of.told();
        if filters == told.filters {
            return;
        }
        if self.shared.queue.push(Event::Interests {
            filters: filters.clone(),
        }) {
            told.filters = filters;
        } else {
            told.at = Some(now.after(TELL));
        }
    }

    /// As connections know them.
    pub(super) fn relays(&self) -> Vec<Relay> {
        let found = self.sends.iter().filter_map(|(number, sending)| {
            let interests = sending.said.interests.clone().filter(|_| !sending.closing)?;
            Some(Relay {
                number: *number,
                interests,
                room: Arc::clone(&sending.room),
            })
        });
        found.collect()
    }

    /// A message goes to those of its relays that have not got it another way.
    pub(super) fn relay(&mut self, which: usize, publication: Publication, reached: &BTreeSet<PeerId>) {
        for number in &publication.relays {
            let Some(sending) = self.sends.get_mut(number).filter(|sending| sending.is_relay()) else {
                continue;
            };
            let Some(peer) = sending
                .members
                .first()
                .copied()
                .filter(|peer| !reached.contains(peer))
            else {
                continue;
            };
            let stream = &mut sending.streams[which];
            if publication.ack.is_none() && is_full(&stream.waiting) {
                if which == 1 {
                    let id = sending.said.id.clone();
                    self.not_delivered(&id, peer, 1, "too much waits for it");
                }
                continue;
            }
            stream.waiting.push_back(Publication {
                ack: publication.ack.clone(),
                relays: Vec::new(),
                key: publication.key,
                released: publication.released,
                message: Rc::clone(&publication.message),
            });
            self.flush(*number, which);
        }
    }

    /// Does a relay have to wait until its member has taken the last ones of a group that it leaves? They come first.
    pub(super) fn is_waited_for(&self, relay: u32) -> bool {
        let Some(peer) = self.sends.get(&relay).and_then(|sending| sending.members.first()) else {
            return false;
        };
        let mut groups = self.sends.values().filter(|sending| !sending.is_relay());
        groups.any(|sending| sending.is_leaving(*peer))
    }

    /// What a peer that has left a group did not take goes by its relay, if it wants it.
    pub(super) fn returned(&mut self, group: u32, peer: PeerId, messages: Vec<(u64, Vec<u8>)>) {
        let Some(sending) = self.sends.get(&group).filter(|sending| !sending.is_relay()) else {
            // Nobody there is subscribed any more.
            return;
        };
        let id = sending.said.id.clone();
        let relays = self
            .sends
            .iter()
            .filter(|(_, sending)| sending.is_relay() && !sending.closing && sending.members.contains(&peer));
        let relay = relays
            .map(|(number, sending)| (*number, sending.said.interests.clone()))
            .next();
        for (key, message) in messages {
            let interests = relay.as_ref().and_then(|(_, interests)| interests.as_ref());
            let wants = Message::read(&message).is_ok_and(|read| {
                let mut filters = interests.into_iter().flatten();
                filters.any(|filter| topic::matches(filter, read.topic))
            });
            let Some((relay, _)) = relay.as_ref().filter(|_| wants) else {
                self.not_delivered(&id, peer, 1, "the member has left");
                continue;
            };
            let publication = Publication {
                ack: None,
                relays: vec![*relay],
                key,
                released: key != 0 && !self.unreleased.contains_key(&key),
                message: Rc::new(message),
            };
            self.relay(1, publication, &BTreeSet::new());
        }
    }

    /// A publisher has released a message of which copies still wait.
    pub(super) fn mark_released(&mut self, key: u64) {
        for sending in self.sends.values_mut().filter(|sending| sending.is_relay()) {
            let waiting = sending.streams[1].waiting.iter_mut();
            waiting
                .filter(|publication| publication.key == key && publication.ack.is_none())
                .for_each(|publication| publication.released = true);
        }
    }

    /// A message was sent.
    pub(super) fn count_sent(&self, group: u32) {
        let Some(sending) = self.sends.get(&group) else {
            return;
        };
        match sending.members.first().filter(|_| sending.is_relay()) {
            Some(peer) => {
                let relayed = self.counters.relayed.lock();
                let mut relayed = relayed.unwrap_or_else(PoisonError::into_inner);
                *relayed.entry(self.name_of(*peer)).or_default() += 1;
            }
            None => self.counters.sent.add(1),
        }
    }
}

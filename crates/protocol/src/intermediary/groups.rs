//! What a connection publishes goes to other networks, too, where a group carries its topic (MRT-MQTT, section V), or where somebody is subscribed to it.
//!
//! A PUBLISH goes on to the broker as ever, and a copy of it comes out as [`Outgoing`] once it is all there, with the group that carries it and the relays
//! to networks that are interested: a relay takes it where the group does not reach, which its owner knows. Its PUBACK or PUBREC is kept until the owner
//! says that everybody who is waited for has taken the copy ([`Session::taken`]), so a publisher is answered for all networks at once; acknowledgements behind it wait,
//! since they go in the order of their messages (MQTT 5.0, section 4.6). Where there is a group, relays are neither waited for nor asked for room: what
//! is best effort may not hold up what is guaranteed. While a group (or else a relay) has no room, what is for it is not taken from
//! the client, nor anything behind it. Where there are no groups ([`Context::groups`] is `None`) nothing of this happens.

use crate::intermediary::context::Context;
use crate::intermediary::phase::Phase;
use crate::intermediary::session::Session;
use crate::intermediary::uplink::Judgement;
use crate::peer::message;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use timebound_wire::mqtt::{Head, Kind, Publish, PublishHeader, Version};
use timebound_wire::topic;

/// Bytes of messages on their way to the owner, of one group, beyond which no more are taken from clients.
const MOST_QUEUED: usize = 256 * 1024;

/// Whether more may be sent to a group: its owner says whether it can, and what it has not got yet is counted, so that a fast client
/// cannot fill the memory between the two.
#[derive(Debug, Default)]
pub struct Room {
    full: AtomicBool,
    queued: AtomicUsize,
}

impl Room {
    /// The owner has room, or has none; true if that has changed.
    pub fn set(&self, has_room: bool) -> bool {
        self.full.swap(!has_room, Ordering::AcqRel) == has_room
    }
    /// The owner has got a message of so many bytes; true if clients who waited for that may go on.
    pub fn arrived(&self, bytes: usize) -> bool {
        let before = self.queued.fetch_sub(bytes, Ordering::AcqRel);
        before > MOST_QUEUED && before - bytes <= MOST_QUEUED
    }
    fn leaves(&self, bytes: usize) {
        self.queued.fetch_add(bytes, Ordering::AcqRel);
    }
    fn is_there(&self) -> bool {
        !self.full.load(Ordering::Acquire) && self.queued.load(Ordering::Acquire) <= MOST_QUEUED
    }
}

/// A group to which this manager sends.
#[derive(Debug, Clone)]
pub struct Group {
    pub number: u32,
    /// Topic name or filter of the request that it was made for.
    pub topic: String,
    pub priority: u8,
    /// The connection whose request that is, where it is known.
    pub owner: Option<u64>,
    pub room: Arc<Room>,
}

/// The way to one other manager for what no group carries to it: best effort.
#[derive(Debug, Clone)]
pub struct Relay {
    pub number: u32,
    /// Filters to which its clients are subscribed.
    pub interests: Vec<String>,
    pub room: Arc<Room>,
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    list: Vec<Group>,
    relays: Vec<Relay>,
}

/// Where a message goes.
struct Route<'g> {
    group: Option<&'g Group>,
    relays: Vec<&'g Relay>,
}

impl Route<'_> {
    fn rooms(&self) -> Vec<Arc<Room>> {
        match self.group {
            Some(group) => vec![Arc::clone(&group.room)],
            None => self.relays.iter().map(|relay| Arc::clone(&relay.room)).collect(),
        }
    }
}

impl Groups {
    #[must_use]
    pub fn new(mut list: Vec<Group>, relays: Vec<Relay>) -> Self {
        list.sort_by_key(|group| (std::cmp::Reverse(group.priority), group.number));
        Self { list, relays }
    }

    /// `None`: nobody elsewhere wants what is published under this name, as far as is known.
    fn route(&self, name: &str, connection: u64) -> Option<Route<'_>> {
        let wants = |relay: &&Relay| relay.interests.iter().any(|filter| topic::matches(filter, name));
        let (group, relays) = (self.find(name, connection), self.relays.iter().filter(wants));
        let route = Route {
            group,
            relays: relays.collect(),
        };
        (route.group.is_some() || !route.relays.is_empty()).then_some(route)
    }

    /// The group for what a connection publishes under this name: its own, else the most urgent one. One alone: their members may be the same.
    fn find(&self, name: &str, connection: u64) -> Option<&Group> {
        let carries = |group: &&Group| topic::matches(&group.topic, name);
        let own = |group: &&Group| group.owner == Some(connection);
        let list = &self.list;
        let mine = list.iter().filter(own).find(carries);
        mine.or_else(|| list.iter().find(carries))
    }
}

/// What other networks are to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outgoing {
    /// A message. [`Session::taken`] is due, once, where `qos` is not 0.
    Message {
        group: Option<u32>,
        /// Those that are interested; members of the group among them.
        relays: Vec<u32>,
        packet: u16,
        qos: u8,
        /// [`message::key`] with QoS 2, 0 otherwise.
        key: u64,
        message: Vec<u8>,
    },
    /// The publisher has released the message with this key, if it was one of a group.
    Release {
        key: u64,
    },
    /// The broker has accepted the client; `resumed`: with the subscriptions of its session. An empty identifier is one that nobody knows.
    Greeted {
        client_id: String,
        resumed: bool,
        expiry_s: u32,
    },
    /// The broker has accepted these subscriptions.
    Subscribed {
        filters: Vec<String>,
    },
    Unsubscribed {
        filters: Vec<String>,
    },
}

/// A PUBLISH that is passing.
#[derive(Debug)]
struct Copying {
    group: Option<u32>,
    relays: Vec<u32>,
    packet: u16,
    qos: u8,
    key: u64,
    message: Vec<u8>,
    /// Bytes before the payload that have yet to pass.
    skip: usize,
    /// Of those that are waited for.
    rooms: Vec<Arc<Room>>,
}

/// Of a connection that has published to a group.
#[derive(Debug, Default)]
pub(crate) struct Grouped {
    copying: Option<Copying>,
    outgoing: VecDeque<Outgoing>,
    /// Packet identifiers with the number of copies that are not taken.
    waiting: BTreeMap<u16, u32>,
    /// Acknowledgements that wait, in order.
    acknowledgements: VecDeque<(u16, Vec<u8>)>,
}

/// What a packet of the client is to groups.
enum Concern {
    Nothing,
    /// It is not all there that must be.
    Short,
    /// It has to wait.
    Waits,
    Copy(Copying),
    Release(u64),
}

impl Grouped {
    /// Bytes of a packet that goes on; `last`: it ends with them.
    pub(crate) fn pass(&mut self, bytes: &[u8], last: bool) {
        let Some(copying) = &mut self.copying else {
            return;
        };
        let skipped = copying.skip.min(bytes.len());
        copying.skip -= skipped;
        copying.message.extend_from_slice(&bytes[skipped..]);
        if !last {
            return;
        }
        if let Some(done) = self.copying.take() {
            let bytes = done.message.len();
            done.rooms.iter().for_each(|room| room.leaves(bytes));
            if done.qos > 0 {
                *self.waiting.entry(done.packet).or_default() += 1;
            }
            self.outgoing.push_back(Outgoing::Message {
                group: done.group,
                relays: done.relays,
                packet: done.packet,
                qos: done.qos,
                key: done.key,
                message: done.message,
            });
        }
    }

    /// Must an acknowledgement of this packet wait?
    pub(crate) fn keeps(&self, packet: u16) -> bool {
        !self.acknowledgements.is_empty() || self.waiting.contains_key(&packet)
    }
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.acknowledgements.is_empty()
    }
    pub(crate) fn keep(&mut self, packet: u16, bytes: Vec<u8>) {
        self.acknowledgements.push_back((packet, bytes));
    }

    pub(crate) fn tell(&mut self, outgoing: Outgoing) {
        self.outgoing.push_back(outgoing);
    }

    /// A message with this key ended before its members were asked: the broker did not want it.
    pub(crate) fn release(&mut self, key: u64) {
        self.outgoing.push_back(Outgoing::Release { key });
    }
}

impl Session {
    /// What other networks are to be told next.
    pub fn poll_outgoing(&mut self) -> Option<Outgoing> {
        self.grouped.as_mut()?.outgoing.pop_front()
    }

    /// All members of its group have taken a message with this packet identifier, or are lost: its acknowledgement may go on.
    pub fn taken(&mut self, packet: u16) {
        let Some(grouped) = self.grouped.as_mut() else {
            return;
        };
        if let Some(left) = grouped.waiting.get_mut(&packet) {
            *left -= 1;
            if *left == 0 {
                grouped.waiting.remove(&packet);
            }
        }
        while let Some((packet, _)) = grouped.acknowledgements.front() {
            if grouped.waiting.contains_key(packet) {
                return;
            }
            let bytes = grouped.acknowledgements.pop_front().map(|(_, bytes)| bytes);
            self.insert.extend(bytes.unwrap_or_default());
        }
    }

    /// Must a packet be looked at because of groups?
    pub(crate) fn may_concern_groups(
        &self,
        head: Option<&Head>,
        bytes: &[u8],
        context: &Context<'_>,
    ) -> bool {
        match (context.groups, head) {
            (Some(_), Some(head)) => !matches!(self.concern(head, bytes, context), Concern::Nothing),
            _ => false,
        }
    }

    /// [`Self::judge`] for a packet that may concern groups.
    pub(crate) fn judge_for_groups(&mut self, head: &Head, bytes: &[u8], context: &Context<'_>) -> Judgement {
        let concern = self.concern(head, bytes, context);
        match concern {
            Concern::Nothing => return self.judge(head, bytes, context),
            Concern::Short => return Judgement::Short,
            Concern::Waits => return Judgement::Held,
            Concern::Copy(_) | Concern::Release(_) => {}
        }
        let judgement = self.judge(head, bytes, context);
        if matches!(judgement, Judgement::Pass) {
            let grouped = self.grouped.get_or_insert_default();
            match concern {
                Concern::Copy(copying) => grouped.copying = Some(copying),
                Concern::Release(key) => grouped.release(key),
                _ => {}
            }
        }
        judgement
    }

    fn concern(&self, head: &Head, bytes: &[u8], context: &Context<'_>) -> Concern {
        let Some(groups) = context.groups else {
            return Concern::Nothing;
        };
        let arrived = &bytes[head.length.min(bytes.len())..bytes.len().min(head.whole())];
        match head.kind {
            Kind::Pubrel => {
                let Some(identifier) = arrived.first_chunk::<2>() else {
                    return if head.rest < 2 {
                        Concern::Nothing
                    } else {
                        Concern::Short
                    };
                };
                match self.key_of(u16::from_be_bytes(*identifier)) {
                    0 => Concern::Nothing,
                    key => Concern::Release(key),
                }
            }
            Kind::Publish => self.publish_for(groups, head, arrived, context),
            _ => Concern::Nothing,
        }
    }

    /// A client without an identifier of its own has no session in which it could send anything again.
    pub(crate) fn key_of(&self, packet: u16) -> u64 {
        match self.client() {
            Some(client) if !client.id.is_empty() => message::key(&client.id, packet),
            _ => 0,
        }
    }

    fn publish_for(&self, groups: &Groups, head: &Head, arrived: &[u8], context: &Context<'_>) -> Concern {
        let version = self.version();
        let length = match PublishHeader::measure(head, arrived, version) {
            Ok(Some(header)) => header.length,
            Ok(None) if arrived.len() < context.limits.header_bytes => return Concern::Short,
            // What is too long, or no PUBLISH, is judged as ever.
            Ok(None) | Err(_) => return Concern::Nothing,
        };
        if length > context.limits.header_bytes {
            return Concern::Nothing;
        }
        let Some(header) = arrived.get(..length) else {
            return Concern::Short;
        };
        let Ok(publish) = Publish::read(head, header, version) else {
            return Concern::Nothing;
        };
        let name = match publish.alias() {
            Some(alias) if publish.topic.is_empty() => self.aliases.get(&alias).map(String::as_str),
            _ => Some(publish.topic),
        };
        let found = name.and_then(|name| Some((name, groups.route(name, context.connection)?)));
        let Some((name, route)) = found.filter(|_| version == Version::V5 || publish.alias().is_none())
        else {
            return Concern::Nothing;
        };
        // Before the broker has accepted the client nothing that it says is worth anything.
        let rooms = route.rooms();
        if self.phase() == Phase::Greeting || !rooms.iter().all(|room| room.is_there()) {
            return Concern::Waits;
        }
        if self.phase() != Phase::Open {
            return Concern::Nothing;
        }
        let Some(mut message) = message::header(head.flags, name, &publish.properties) else {
            return Concern::Nothing;
        };
        message.reserve(head.rest - length);
        Concern::Copy(Copying {
            group: route.group.map(|group| group.number),
            relays: route.relays.iter().map(|relay| relay.number).collect(),
            packet: publish.packet,
            qos: publish.qos,
            key: if publish.qos == 2 {
                self.key_of(publish.packet)
            } else {
                0
            },
            message,
            skip: head.length + length,
            rooms,
        })
    }
}

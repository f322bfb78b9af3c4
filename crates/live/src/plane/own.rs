//! Connections of programs that are not ours: which message is in a frame, told by topic and order.
//!
//! Such a program connects from a port of its own choice, publishes and receives several topics on one connection, and its payloads are
//! its own. So both directions are read as MQTT packets (MQTT 5.0 and 3.1.1, section 2.1). A message is numbered where its publisher
//! sends it; what a broker sends on is the next one with these bytes that this connection has not had yet.

use super::packet::Ipv4;
use super::short::{Found, measure};
use crate::plan::{OwnPlan, OwnRole};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use timebound_fabric::NO_STREAM;
use timebound_wire::short::{Follower, HEADER_BYTES};

/// Messages remembered of a flow, to know them again on the other side of a broker.
const REMEMBERED: usize = 4096;
/// Bytes of a payload by which it is known again, with its length.
const PREFIX: usize = 256;
/// Messages remembered in a direction, to know them again when they are sent again.
const PLACED: usize = 1024;
/// Longest part of a packet that is kept until it says what it is: a PUBLISH with the longest topic and properties that go with it.
const LONGEST_HEAD: usize = 140_000;
/// Frames with messages of several flows that are written down.
const MOST_JOINED: usize = 1 << 16;

const CONNECT: u8 = 1;
const PUBLISH: u8 = 3;
const SUBACK: u8 = 9;
/// First byte of a TLS record with a handshake (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// One marker of such a connection.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) plan: OwnPlan,
    pub(super) data: u32,
    pub(super) ack: u32,
}

/// What one frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) stream: u32,
    pub(super) found: Found,
}

/// One direction of a connection; a UDP sender has one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Side {
    connection: u32,
    is_second: bool,
}

impl Side {
    /// The other direction.
    pub(super) fn other(self) -> Self {
        Self {
            is_second: !self.is_second,
            ..self
        }
    }
}

/// What became of the messages of a flow between programs that are not ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct OwnFlow {
    /// Messages that their publisher sent, since the start of the programs.
    pub published: u32,
    /// Messages from a broker that nobody had sent.
    pub unmatched: u32,
    /// Messages from a broker that could be any of several with these bytes.
    pub ambiguous: u32,
    /// Connections on which it could have been that are encrypted.
    pub encrypted: u32,
}

/// A message that travelled in a frame with one of another flow, which is the one that the frame's record names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Joined {
    pub stream: u32,
    pub flow: u32,
    pub sequence: u32,
    pub in_stream: u32,
    pub in_flow: u32,
    pub in_sequence: u32,
}

/// What the data plane says of them in the end.
#[derive(Debug, Default, Serialize)]
pub struct OwnReport {
    pub flows: BTreeMap<u32, OwnFlow>,
    pub joined: Vec<Joined>,
}

#[derive(Debug, PartialEq, Eq)]
struct Sent {
    number: u32,
    payload_bytes: usize,
    prefix: Box<[u8]>,
}

impl Sent {
    /// Can these be the same? Segments show more or less of the start of a payload.
    fn is(&self, payload_bytes: usize, prefix: &[u8]) -> bool {
        let common = self.prefix.len().min(prefix.len());
        self.payload_bytes == payload_bytes && self.prefix[..common] == prefix[..common]
    }
}

#[derive(Debug, Default)]
struct Flow {
    told: OwnFlow,
    sent: VecDeque<Sent>,
}

/// A message in its TCP stream, by sequence numbers; no number where none was found.
#[derive(Debug, Clone, Copy)]
struct Placed {
    start: u32,
    end: u32,
    entry: usize,
    number: Option<u32>,
}

#[derive(Debug, Default)]
struct Direction {
    /// Position in [`Own::sets`].
    set: usize,
    started: bool,
    /// TCP sequence number behind the last byte read.
    next: u32,
    /// The packet that has not said yet what it is.
    head: Vec<u8>,
    /// Bytes to come of one that has.
    rest: usize,
    is_encrypted: bool,
    placed: VecDeque<Placed>,
    /// The entry of its last message.
    last: Option<usize>,
    /// By entry: the number from which on the next message is looked for.
    due: Vec<u32>,
    /// By entry: the number behind the last one that came.
    floor: Vec<u32>,
    /// By entry: of messages numbered by our own publisher.
    followers: Vec<Follower>,
}

#[derive(Debug, Default)]
struct Connection {
    ways: [Direction; 2],
    version5: Option<bool>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Own {
    sets: Vec<Vec<Entry>>,
    flows: BTreeMap<u32, Flow>,
    connections: Vec<Connection>,
    joined: Vec<Joined>,
}

impl Own {
    /// Adds a marker to those of one 5-tuple (`set`, none yet); the position of that set.
    pub(super) fn add(&mut self, set: Option<u32>, entry: Entry) -> u32 {
        self.flows.entry(entry.plan.flow).or_default();
        let position = set.map_or(self.sets.len(), |set| set as usize);
        if position == self.sets.len() {
            self.sets.push(Vec::new());
        }
        self.sets[position].push(entry);
        position as u32
    }

    /// A 5-tuple that came by for the first time; `back` is its other direction, where that did.
    pub(super) fn open(&mut self, set: u32, back: Option<Side>) -> Side {
        let side = back.map_or(
            Side {
                connection: self.connections.len() as u32,
                is_second: false,
            },
            Side::other,
        );
        if back.is_none() {
            self.connections.push(Connection::default());
        }
        let entries = self.sets[set as usize].len();
        let way = &mut self.connections[side.connection as usize].ways[usize::from(side.is_second)];
        (way.set, way.due, way.floor) = (set as usize, vec![0; entries], vec![0; entries]);
        way.followers = vec![Follower::default(); entries];
        side
    }

    pub(super) fn report(&self) -> OwnReport {
        OwnReport {
            flows: self
                .flows
                .iter()
                .map(|(flow, known)| (*flow, known.told))
                .collect(),
            joined: self.joined.clone(),
        }
    }

    pub(super) fn judge(&mut self, side: Side, packet: &Ipv4<'_>) -> Told {
        let Some(segment) = packet.tcp else {
            return self.datagram(side);
        };
        if segment.syn {
            self.connections[side.connection as usize].version5 = None;
            let way = self.way(side);
            (way.started, way.next, way.rest) = (true, segment.sequence.wrapping_add(1), 0);
            way.head.clear();
            way.placed.clear();
            (way.last, way.is_encrypted) = (None, false);
            return undeclared();
        }
        if packet.payload.is_empty() {
            let way = self.way(side);
            let (set, last) = (way.set, way.last);
            let answered = self.answered(side).map(|entry| entry.ack);
            let stream = answered.or_else(|| Some(self.sets[set][last?].ack));
            let stream = stream.unwrap_or(NO_STREAM);
            return Told {
                stream,
                found: Found::default(),
            };
        }
        let first = self.read(side, segment.sequence, packet.payload);
        self.tell(side, segment.sequence, packet.payload.len(), first)
    }

    fn datagram(&mut self, side: Side) -> Told {
        let set = self.way(side).set;
        let Some(entry) = self.sets[set].first() else {
            return undeclared();
        };
        let (stream, number) = (entry.data, entry.plan.flow);
        let flow = self.flows.entry(number).or_default();
        let sequence = flow.told.published;
        flow.told.published += 1;
        Told {
            stream,
            found: Found {
                first: Some((number, sequence)),
                count: 1,
                continued: false,
            },
        }
    }

    fn way(&mut self, side: Side) -> &mut Direction {
        &mut self.connections[side.connection as usize].ways[usize::from(side.is_second)]
    }

    /// The marker of answers to what the other direction brought last.
    fn answered(&mut self, side: Side) -> Option<&Entry> {
        let set = self.way(side).set;
        let back = self.way(side.other());
        let (asked, last) = (back.set, back.last?);
        let flow = self.sets[asked][last].plan.flow;
        self.sets[set]
            .iter()
            .find(|entry| entry.plan.flow == flow && entry.plan.role == OwnRole::Answers)
    }

    /// Reads what is new of a segment; the type of the first packet that begins in it.
    fn read(&mut self, side: Side, sequence: u32, payload: &[u8]) -> Option<u8> {
        let way = self.way(side);
        if way.is_encrypted {
            return None;
        }
        let ahead = if way.started {
            sequence.wrapping_sub(way.next).cast_signed()
        } else {
            0
        };
        let known = usize::try_from(-i64::from(ahead)).unwrap_or(0);
        let fresh = payload.get(known..).filter(|fresh| !fresh.is_empty())?;
        if ahead > 0 || !way.started {
            // Bytes are missing: senders write whole packets, so the next one begins with this segment.
            way.rest = 0;
            way.head.clear();
        }
        let start = sequence.wrapping_add(known as u32);
        let is_first = !way.started || way.next == start && way.placed.is_empty() && way.head.is_empty();
        (way.started, way.next) = (true, start.wrapping_add(fresh.len() as u32));
        let skipped = way.rest.min(fresh.len());
        way.rest -= skipped;
        let fresh = &fresh[skipped..];
        let mut bytes = std::mem::take(&mut way.head);
        let begun = bytes.len();
        bytes.extend_from_slice(fresh);
        let at = start.wrapping_add(skipped as u32).wrapping_sub(begun as u32);
        if is_first && bytes.first() == Some(&TLS_HANDSHAKE) {
            self.note_encrypted(side);
            return None;
        }
        let (done, first) = self.packets(side, at, &bytes);
        bytes.drain(..done);
        if bytes.len() <= LONGEST_HEAD {
            self.way(side).head = bytes;
        }
        first
    }

    fn note_encrypted(&mut self, side: Side) {
        let way = self.way(side);
        way.is_encrypted = true;
        let set = way.set;
        for entry in self.sets[set]
            .iter()
            .filter(|entry| entry.plan.role != OwnRole::Answers)
        {
            if let Some(flow) = self.flows.get_mut(&entry.plan.flow) {
                flow.told.encrypted += 1;
            }
        }
    }

    /// Takes the packets at the start of `bytes` that say what they are: how many bytes are done with, and the first one's type.
    fn packets(&mut self, side: Side, start: u32, bytes: &[u8]) -> (usize, Option<u8>) {
        let (mut done, mut first) = (0, None);
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let Some((head, length)) = measure(rest) else {
                // The length is not there yet; or no packet begins here.
                return (if rest.len() < 5 { done } else { bytes.len() }, first);
            };
            let body = &rest[head..rest.len().min(head + length)];
            if self
                .packet(side, start.wrapping_add(done as u32), rest[0], head, length, body)
                .is_none()
                && body.len() < length
            {
                return (done, first);
            }
            first = first.or(Some(rest[0] >> 4));
            done += (head + length).min(rest.len());
            self.way(side).rest = (head + length).saturating_sub(rest.len());
        }
        (done, first)
    }

    /// What there is to know of a packet; `None` where too little of it has come (or it is none).
    fn packet(
        &mut self,
        side: Side,
        start: u32,
        kind: u8,
        head: usize,
        length: usize,
        body: &[u8],
    ) -> Option<()> {
        match kind >> 4 {
            CONNECT => {
                let name = 2 + usize::from(u16_at(body, 0)?);
                let version = *body.get(name)?;
                self.connections[side.connection as usize].version5 = Some(version == 5);
            }
            SUBACK => {
                // What was sent before is not for this subscriber, or comes as a retained message.
                let set = self.way(side).set;
                for (position, entry) in self.sets[set].iter().enumerate() {
                    let published = self
                        .flows
                        .get(&entry.plan.flow)
                        .map_or(0, |flow| flow.told.published);
                    let way =
                        &mut self.connections[side.connection as usize].ways[usize::from(side.is_second)];
                    way.due[position] = way.due[position].max(published);
                }
            }
            PUBLISH => return self.publish(side, start, kind, head, length, body),
            _ => {}
        }
        Some(())
    }

    fn publish(
        &mut self,
        side: Side,
        start: u32,
        kind: u8,
        head: usize,
        length: usize,
        body: &[u8],
    ) -> Option<()> {
        let topic_end = 2 + usize::from(u16_at(body, 0)?);
        let topic = body.get(2..topic_end)?;
        let set = self.way(side).set;
        let is_it = |entry: &Entry| {
            entry.plan.role != OwnRole::Answers
                && entry.plan.topic.as_deref().map(str::as_bytes) == Some(topic)
        };
        let Some(position) = self.sets[set].iter().position(is_it) else {
            return Some(());
        };
        let mut payload = topic_end + if kind & 6 == 0 { 0 } else { 2 };
        let version5 = self.connections[side.connection as usize].version5;
        if version5.unwrap_or(self.sets[set][position].plan.version5) {
            let (bytes, properties) = variable(body.get(payload..)?)?;
            payload += bytes + properties;
        }
        let shown = body.get(payload..)?;
        let payload_bytes = length.checked_sub(payload)?;
        let number = self.number(side, position, kind & 1 != 0, payload_bytes, shown);
        let way = self.way(side);
        if way.placed.len() == PLACED {
            way.placed.pop_front();
        }
        way.last = Some(position);
        way.placed.push_back(Placed {
            start,
            end: start.wrapping_add((head + length) as u32),
            entry: position,
            number,
        });
        Some(())
    }

    /// The number of a message with this payload, of which so much is `shown`.
    fn number(
        &mut self,
        side: Side,
        position: usize,
        is_retained: bool,
        payload_bytes: usize,
        shown: &[u8],
    ) -> Option<u32> {
        let set = self.way(side).set;
        let (plan, prefix) = (&self.sets[set][position].plan, &shown[..shown.len().min(PREFIX)]);
        let flow = self.flows.get_mut(&plan.flow)?;
        let way = &mut self.connections[side.connection as usize].ways[usize::from(side.is_second)];
        if let Some(bytes) = plan.payload_bytes {
            if payload_bytes != bytes as usize {
                flow.told.unmatched += 1;
                return None;
            }
            if payload_bytes < HEADER_BYTES {
                return (shown.len() == payload_bytes).then(|| way.followers[position].read(shown));
            }
            return super::flows::header_at(shown, 0)
                .filter(|(number, _)| *number == plan.flow)
                .map(|(_, sequence)| sequence);
        }
        if plan.role == OwnRole::Source {
            let number = flow.told.published;
            flow.told.published += 1;
            if flow.sent.len() == REMEMBERED {
                flow.sent.pop_front();
            }
            flow.sent.push_back(Sent {
                number,
                payload_bytes,
                prefix: prefix.into(),
            });
            return Some(number);
        }
        let (due, floor) = (way.due[position], way.floor[position]);
        let is_it = |sent: &&Sent| sent.is(payload_bytes, prefix);
        let mut fitting = flow.sent.iter().filter(|sent| sent.number >= due).filter(is_it);
        let next = fitting.next();
        flow.told.ambiguous += u32::from(next.is_some() && fitting.next().is_some());
        // On its way when this connection subscribed, and in time for it.
        let under_way = || {
            flow.sent
                .iter()
                .rev()
                .filter(|sent| sent.number >= floor && !is_retained)
                .find(is_it)
        };
        let Some(found) = next.or_else(under_way) else {
            // Kept by the broker for whoever subscribes later: no message of now.
            flow.told.unmatched += u32::from(!is_retained);
            return None;
        };
        way.floor[position] = found.number + 1;
        way.due[position] = due.max(found.number + 1);
        Some(found.number)
    }

    /// What a segment with payload is, once it is read.
    fn tell(&mut self, side: Side, sequence: u32, length: usize, first: Option<u8>) -> Told {
        let way = self.way(side);
        let (set, last) = (way.set, way.last);
        let mut inside = Vec::new();
        for placed in way.placed.iter().rev() {
            let from = placed.start.wrapping_sub(sequence).cast_signed();
            if placed.end.wrapping_sub(sequence).cast_signed() <= 0 {
                break;
            }
            if i64::from(from) < length as i64 {
                inside.push((*placed, from < 0));
            }
        }
        inside.reverse();
        if !inside.is_empty() {
            return self.messages(set, &inside);
        }
        let entry = match (first, last) {
            // PUBREL, PINGREQ, PINGRESP go the way of messages or against it.
            (Some(6 | 12 | 13), Some(last)) => Some(&self.sets[set][last]),
            (Some(4..=7 | 12 | 13), _) => self.answered(side),
            _ => None,
        };
        let acknowledges = matches!(first, Some(4..=7));
        let entry = entry.filter(|entry| entry.plan.qos > 0 || !acknowledges);
        Told {
            stream: entry.map_or(NO_STREAM, |entry| entry.data),
            found: Found::default(),
        }
    }

    /// A frame that holds these messages (and whether they began before it): it is a frame of the first one's stream.
    fn messages(&mut self, set: usize, inside: &[(Placed, bool)]) -> Told {
        let entries = &self.sets[set];
        let follows = |before: &Placed, after: &Placed| {
            before.entry == after.entry
                && after.number.is_some()
                && after.number == before.number.map(|number| number + 1)
        };
        let (primary, continued) = inside[0];
        let begins = match inside.get(1) {
            Some((next, _)) if continued && follows(&primary, next) => 1,
            _ => 0,
        };
        let named = inside[begins].0;
        let run = inside[begins..]
            .windows(2)
            .take_while(|pair| follows(&pair[0].0, &pair[1].0))
            .count();
        let begun = if continued && begins == 0 { 0 } else { 1 + run };
        let stream = entries[primary.entry].data;
        let flow = entries[named.entry].plan.flow;
        if let Some(in_sequence) = named.number {
            for (other, _) in &inside[begins + begun.max(1)..] {
                let entry = &entries[other.entry];
                if let Some(sequence) = other.number.filter(|_| self.joined.len() < MOST_JOINED) {
                    self.joined.push(Joined {
                        stream: entry.data,
                        flow: entry.plan.flow,
                        sequence,
                        in_stream: stream,
                        in_flow: flow,
                        in_sequence,
                    });
                }
            }
        }
        Told {
            stream,
            found: Found {
                first: named.number.map(|number| (flow, number)),
                count: if named.number.is_some() { begun as u32 } else { 0 },
                continued,
            },
        }
    }
}

fn undeclared() -> Told {
    Told {
        stream: NO_STREAM,
        found: Found::default(),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// A variable byte integer (MQTT 5.0, section 1.5.5): its bytes and its value.
fn variable(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0usize;
    for (index, byte) in bytes.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((index + 1, value));
        }
    }
    None
}

#[cfg(test)]
#[path = "own_tests.rs"]
mod tests;

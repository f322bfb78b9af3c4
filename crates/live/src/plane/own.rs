//! Connections of programs that are not ours: which message is in a frame, told by topic and order.
//!
//! Such a program connects from a port of its own choice, publishes and receives several topics on one connection, and its payloads are
//! its own. So both directions are read as MQTT packets (MQTT 5.0 and 3.1.1, section 2.1). A message is numbered where its publisher
//! sends it; what a broker sends on is the next one with these bytes that this connection has not had yet.

mod held;
mod read;
mod report;

pub(crate) use report::OwnReport;

use super::packet::{Ipv4, Key};
use super::short::Found;
use crate::plan::{OwnPlan, OwnRole};
use held::{Open, OwnHeld};
use report::{Joined, Leaving, OwnEnd, OwnFlow, OwnLeft, Unread};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use timebound_fabric::NO_STREAM;
use timebound_wire::mqtt::Kind;
use timebound_wire::short::{Follower, HEADER_BYTES};

/// Messages remembered of a flow, to know them again on the other side of a broker.
const REMEMBERED: usize = 4096;
/// Bytes of a payload by which it is known again, with its length.
const PREFIX: usize = 256;
/// Messages remembered in a direction, to know them again when they are sent again.
const PLACED: usize = 1024;
/// Frames with messages of several flows that are written down.
const MOST_JOINED: usize = 1 << 16;

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
    /// Nothing of it was missed since the connection was opened: what cannot be read then is no MQTT, and so is all that follows.
    in_step: bool,
    /// A packet has come; the first one opens the session.
    is_open: bool,
    is_lost: bool,
    /// Its sender has said that it ends the session, or the connection.
    has_left: bool,
    unread: Option<Unread>,
    /// By packet identifier: messages of this direction that are not acknowledged.
    open: BTreeMap<u16, Open>,
    /// Since when its sender offers no window.
    shut_ns: Option<u64>,
    /// MQTT 5.0, section 3.3.2.3.4: alias -> the entry of its topic, where it has one.
    aliases: BTreeMap<u16, Option<usize>>,
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

#[derive(Debug)]
struct Connection {
    /// Of its first way.
    key: Key,
    ways: [Direction; 2],
    version5: Option<bool>,
    /// Those whose messages it carried.
    flows: BTreeSet<u32>,
}

impl Connection {
    fn key(&self, side: Side) -> Key {
        if side.is_second {
            self.key.reversed()
        } else {
            self.key
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Own {
    sets: Vec<Vec<Entry>>,
    flows: BTreeMap<u32, Flow>,
    connections: Vec<Connection>,
    joined: Vec<Joined>,
    /// Who left, the first of both ends of a connection.
    left: Vec<OwnLeft>,
    /// How long programs let their brokers wait.
    held: Vec<OwnHeld>,
    /// By flow, source and destination.
    ends: BTreeMap<(u32, u32, u32), OwnEnd>,
    now_ns: u64,
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
    pub(super) fn open(&mut self, set: u32, key: Key, back: Option<Side>) -> Side {
        let side = back.map_or(
            Side {
                connection: self.connections.len() as u32,
                is_second: false,
            },
            Side::other,
        );
        if back.is_none() {
            self.connections.push(Connection {
                key,
                ways: Default::default(),
                version5: None,
                flows: BTreeSet::new(),
            });
        }
        let entries = self.sets[set as usize].len();
        let way = &mut self.connections[side.connection as usize].ways[usize::from(side.is_second)];
        (way.set, way.due, way.floor) = (set as usize, vec![0; entries], vec![0; entries]);
        way.followers = vec![Follower::default(); entries];
        side
    }

    /// `now_ns`: run time at which the frame was at its first port.
    pub(super) fn judge(&mut self, side: Side, packet: &Ipv4<'_>, now_ns: u64) -> Told {
        self.now_ns = now_ns;
        let Some(segment) = packet.tcp else {
            return self.datagram(side);
        };
        if segment.syn {
            self.connections[side.connection as usize].version5 = None;
            self.end_held(side);
            let way = self.way(side);
            (way.started, way.next, way.rest) = (true, segment.sequence.wrapping_add(1), 0);
            way.head.clear();
            way.placed.clear();
            way.aliases.clear();
            (way.last, way.is_encrypted) = (None, false);
            (way.in_step, way.is_open, way.is_lost, way.has_left) = (true, false, false, false);
            return undeclared();
        }
        let told = self.segment(side, packet, segment.sequence);
        if !segment.rst {
            self.offered(side, segment.window);
        }
        if segment.fin || segment.rst {
            let how = if segment.rst {
                Leaving::Reset
            } else {
                Leaving::Closed
            };
            self.note_left(side, how);
            self.end_held(side);
        }
        told
    }

    fn segment(&mut self, side: Side, packet: &Ipv4<'_>, sequence: u32) -> Told {
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
        let first = self.read(side, sequence, packet.payload);
        self.tell(side, sequence, packet.payload.len(), first)
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
            self.note_retained(side, position, is_retained);
            return None;
        };
        way.floor[position] = found.number + 1;
        way.due[position] = due.max(found.number + 1);
        Some(found.number)
    }

    /// What a segment with payload is, once it is read.
    fn tell(&mut self, side: Side, sequence: u32, length: usize, first: Option<Kind>) -> Told {
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
        let acknowledges = matches!(
            first,
            Some(Kind::Puback | Kind::Pubrec | Kind::Pubrel | Kind::Pubcomp)
        );
        let entry = match (first, last) {
            // PUBREL, PINGREQ, PINGRESP go the way of messages or against it.
            (Some(Kind::Pubrel | Kind::Pingreq | Kind::Pingresp), Some(last)) => Some(&self.sets[set][last]),
            (Some(Kind::Pingreq | Kind::Pingresp), _) => self.answered(side),
            _ if acknowledges => self.answered(side),
            _ => None,
        };
        let entry = entry.filter(|entry| entry.plan.qos > 0 || !acknowledges);
        Told {
            stream: entry.map_or(NO_STREAM, |entry| entry.data),
            found: Found::default(),
        }
    }

    /// A frame that holds these messages (and whether they began before it): it is a frame of the first one's stream.
    fn messages(&mut self, set: usize, inside: &[(Placed, bool)]) -> Told {
        let entries = &self.sets[set];
        // What bears no number of its publisher (a retained message, a stranger's) is in the network all the same.
        let follows = |before: &Placed, after: &Placed| {
            before.entry == after.entry && after.number == before.number.map(|number| number + 1)
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
                count: begun as u32,
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

#[cfg(test)]
#[path = "own_tests.rs"]
mod tests;

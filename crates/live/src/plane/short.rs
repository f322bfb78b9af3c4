//! Messages without room for a measurement header, as they come by at the first port.
//!
//! A datagram is a message. A TCP stream is read as MQTT packets (MQTT 5.0 and 3.1.1, section 2.1: type, length, the rest), since nothing
//! in such a message marks it: PUBLISH packets on a known topic are messages, and their payload is what stands at their end.

use super::packet::Ipv4;
use crate::plan::ShortPlan;
use std::collections::VecDeque;
use timebound_wire::short::Follower;

/// Messages remembered, to know them again when they are sent again: more than can be under way on a long link.
const REMEMBERED: usize = 1024;
/// Longest packet that is kept until it is whole: a PUBLISH with the longest topic.
const LONGEST: usize = 66_000;
const PUBLISH: u8 = 3;

/// Messages in one frame: the first that begins in it (or goes on, where none begins), how many begin, and whether one goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) first: Option<(u32, u32)>,
    pub(super) count: u32,
    pub(super) continued: bool,
}

#[derive(Debug)]
struct Flow {
    number: u32,
    payload_bytes: usize,
    topic: Option<Box<[u8]>>,
    follower: Follower,
}

/// A message in its TCP stream, by sequence numbers.
#[derive(Debug, Clone, Copy)]
struct Placed {
    start: u32,
    end: u32,
    message: (u32, u32),
}

/// What is known of one 5-tuple.
#[derive(Debug)]
pub(super) struct Messages {
    flows: Vec<Flow>,
    started: bool,
    /// TCP sequence number behind the last byte read.
    next: u32,
    /// The packet that is not whole yet.
    begun: Vec<u8>,
    /// Bytes to skip of a packet too long to be a message.
    skip: usize,
    placed: VecDeque<Placed>,
}

impl Messages {
    pub(super) fn new(plans: &[ShortPlan]) -> Self {
        let flow = |plan: &ShortPlan| Flow {
            number: plan.flow,
            payload_bytes: plan.payload_bytes as usize,
            topic: plan.topic.as_ref().map(|topic| topic.as_bytes().into()),
            follower: Follower::default(),
        };
        Self {
            flows: plans.iter().map(flow).collect(),
            started: false,
            next: 0,
            begun: Vec::new(),
            skip: 0,
            placed: VecDeque::new(),
        }
    }

    /// A connection in the place of another one (a bridge's next one has another port): its numbers go on.
    pub(super) fn after(other: &Self) -> Self {
        let again = |flow: &Flow| Flow {
            topic: flow.topic.clone(),
            ..*flow
        };
        Self {
            flows: other.flows.iter().map(again).collect(),
            ..Self::new(&[])
        }
    }

    pub(super) fn find(&mut self, packet: &Ipv4<'_>) -> Found {
        let payload = packet.payload;
        let Some(segment) = packet.tcp else {
            return self.datagram(payload);
        };
        if segment.syn {
            // A new connection: what was under way on the one before is gone, and numbers go on.
            (self.started, self.next, self.skip) = (true, segment.sequence.wrapping_add(1), 0);
            self.begun.clear();
            self.placed.clear();
            return Found::default();
        }
        if payload.is_empty() {
            return Found::default();
        }
        self.read(segment.sequence, payload);
        self.within(segment.sequence, payload.len())
    }

    fn datagram(&mut self, payload: &[u8]) -> Found {
        let is_it = |flow: &&mut Flow| flow.topic.is_none() && flow.payload_bytes == payload.len();
        let first = self.flows.iter_mut().find(is_it);
        let first = first.map(|flow| (flow.number, flow.follower.read(payload)));
        Found {
            first,
            count: u32::from(first.is_some()),
            continued: false,
        }
    }

    /// Reads what is new of a segment.
    fn read(&mut self, sequence: u32, payload: &[u8]) {
        let ahead = if self.started {
            sequence.wrapping_sub(self.next).cast_signed()
        } else {
            0
        };
        let known = usize::try_from(-i64::from(ahead)).unwrap_or(0);
        let Some(fresh) = payload.get(known..).filter(|fresh| !fresh.is_empty()) else {
            return;
        };
        if ahead > 0 || !self.started {
            // Bytes are missing: senders write whole packets, so the next one begins with this segment.
            self.skip = 0;
            self.begun.clear();
        }
        let start = sequence.wrapping_add(known as u32);
        self.started = true;
        self.next = start.wrapping_add(fresh.len() as u32);
        let skipped = self.skip.min(fresh.len());
        self.skip -= skipped;
        let fresh = &fresh[skipped..];
        if self.begun.is_empty() {
            let done = self.packets(start.wrapping_add(skipped as u32), fresh);
            self.begun
                .extend_from_slice(fresh.get(done..).unwrap_or_default());
        } else {
            let mut bytes = std::mem::take(&mut self.begun);
            let start = start.wrapping_sub(bytes.len() as u32);
            bytes.extend_from_slice(fresh);
            let done = self.packets(start, &bytes).min(bytes.len());
            bytes.drain(..done);
            self.begun = bytes;
        }
    }

    /// Takes the whole packets at the start of `bytes`; how many bytes are done with.
    fn packets(&mut self, start: u32, bytes: &[u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let Some((head, length)) = measure(rest) else {
                return match rest.len() {
                    // The length is not there yet.
                    0..5 => done,
                    // No packet begins here.
                    _ => bytes.len(),
                };
            };
            let Some(packet) = rest.get(..head + length) else {
                if head + length > LONGEST {
                    self.skip = head + length - rest.len();
                    return bytes.len();
                }
                return done;
            };
            let at = start.wrapping_add(done as u32);
            self.packet(at, packet, head);
            done += packet.len();
        }
        done
    }

    fn packet(&mut self, start: u32, packet: &[u8], head: usize) {
        let body = &packet[head..];
        if packet[0] >> 4 != PUBLISH || body.len() < 2 {
            return;
        }
        let topic_end = 2 + usize::from(u16::from_be_bytes([body[0], body[1]]));
        let Some(topic) = body.get(2..topic_end) else {
            return;
        };
        let is_it = |flow: &&mut Flow| flow.topic.as_deref() == Some(topic);
        let Some(flow) = self.flows.iter_mut().find(is_it) else {
            return;
        };
        let rest = &body[topic_end..];
        let Some(payload) = rest
            .len()
            .checked_sub(flow.payload_bytes)
            .and_then(|at| rest.get(at..))
        else {
            return;
        };
        if self.placed.len() == REMEMBERED {
            self.placed.pop_front();
        }
        self.placed.push_back(Placed {
            start,
            end: start.wrapping_add(packet.len() as u32),
            message: (flow.number, flow.follower.read(payload)),
        });
    }

    /// The known messages in these bytes of the stream.
    fn within(&self, sequence: u32, length: usize) -> Found {
        let mut found = Found::default();
        let mut before = None;
        // They are in order, and the latest ones are asked for.
        for placed in self.placed.iter().rev() {
            let from = placed.start.wrapping_sub(sequence).cast_signed();
            let to = placed.end.wrapping_sub(sequence).cast_signed();
            if to <= 0 {
                break;
            }
            if from < 0 {
                (found.continued, before) = (true, Some(placed.message));
            } else if i64::from(from) < length as i64 {
                found.first = Some(placed.message);
                found.count += 1;
            }
        }
        found.first = found.first.or(before);
        found
    }
}

/// Bytes of a packet's fixed header and of what follows; `None` where they do not say so.
pub(super) fn measure(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0usize;
    for (index, byte) in bytes.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return (bytes[0] >> 4 > 0).then_some((index + 2, length));
        }
    }
    None
}

#[cfg(test)]
#[path = "short_tests.rs"]
mod tests;

//! What a receiver of measured messages counts and records, whatever carried them.

use crate::arrivals::Arrivals;
use crate::plan::Qos;
use crate::record::{FLAG_DUPLICATE, Kind, Record, Recorder};
use crate::summary::ReceiverSummary;
use crate::wire::{HEADER_BYTES, Header};
use timebound_wire::short::Follower;

/// Flows beyond the expected ones that one receiver tells apart; messages of further ones (a broken or hostile sender) are foreign.
const MOST_FLOWS: usize = 1024;

#[derive(Debug)]
pub(super) struct ReceiverState {
    pub(super) receiver: u32,
    /// The expected flows first.
    flows: Vec<(u32, Arrivals)>,
    expected: usize,
    short: Vec<Short>,
    foreign: u64,
}

/// A flow whose messages have no room for a header.
#[derive(Debug)]
struct Short {
    flow: u32,
    /// Empty where datagrams bring them.
    topic: Box<[u8]>,
    payload_bytes: usize,
    follower: Follower,
    /// Of a program that is not ours: of any size, counted as they come.
    is_own: bool,
}

/// One message as it was decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) payload: &'a [u8],
    /// Empty for a datagram.
    pub(super) topic: &'a [u8],
    pub(super) qos: Qos,
    pub(super) duplicate: bool,
    pub(super) time_ns: i64,
}

impl ReceiverState {
    pub(super) fn new(receiver: u32, expected: impl IntoIterator<Item = u32>) -> Self {
        let flows: Vec<_> = expected
            .into_iter()
            .map(|flow| (flow, Arrivals::default()))
            .collect();
        Self {
            receiver,
            expected: flows.len(),
            flows,
            short: Vec::new(),
            foreign: 0,
        }
    }

    /// An expected flow is known by topic and size.
    pub(super) fn expect_short(&mut self, flow: u32, topic: &[u8], payload_bytes: u32) {
        self.short.push(Short {
            flow,
            topic: topic.into(),
            payload_bytes: payload_bytes as usize,
            follower: Follower::default(),
            is_own: false,
        });
    }

    /// An expected flow of a program that is not ours is known by its topic.
    pub(super) fn expect_own(&mut self, flow: u32, topic: &[u8]) {
        self.expect_short(flow, topic, 0);
        self.short
            .iter_mut()
            .rev()
            .take(1)
            .for_each(|short| short.is_own = true);
    }

    /// Where a payload has no room for a send time, the time of its arrival stands for it.
    fn header(&mut self, message: &Message<'_>) -> Option<Header> {
        let is_own = |short: &&mut Short| short.is_own && *short.topic == *message.topic;
        if let Some(own) = self.short.iter_mut().find(is_own) {
            return Some(Header {
                flow: own.flow,
                sequence: own.follower.read(&[]),
                sent_ns: message.time_ns,
            });
        }
        if message.payload.len() >= HEADER_BYTES {
            return Header::read(message.payload);
        }
        let is_it = |short: &&mut Short| {
            short.payload_bytes == message.payload.len() && *short.topic == *message.topic
        };
        let short = self.short.iter_mut().find(is_it)?;
        Some(Header {
            flow: short.flow,
            sequence: short.follower.read(message.payload),
            sent_ns: message.time_ns,
        })
    }

    /// Each expected flow with the number of its different messages that arrived.
    pub(super) fn distinct(&self) -> impl Iterator<Item = (u32, u64)> {
        self.flows[..self.expected]
            .iter()
            .map(|(flow, arrivals)| (*flow, arrivals.distinct()))
    }

    pub(super) fn message(&mut self, message: &Message<'_>, recorder: &mut Recorder) {
        let Some(header) = self.header(message) else {
            self.foreign += 1;
            return;
        };
        let position = match self.flows.iter().position(|(flow, _)| *flow == header.flow) {
            Some(position) => position,
            None if self.flows.len() - self.expected < MOST_FLOWS => {
                self.flows.push((header.flow, Arrivals::default()));
                self.flows.len() - 1
            }
            None => {
                self.foreign += 1;
                return;
            }
        };
        self.flows[position].1.enter(header.sequence);
        recorder.push(&Record {
            kind: Kind::Received,
            qos: message.qos.into(),
            flags: if message.duplicate { FLAG_DUPLICATE } else { 0 },
            flow: header.flow,
            receiver: self.receiver,
            sequence: header.sequence,
            size: u32::try_from(message.payload.len()).unwrap_or(u32::MAX),
            nominal_ns: header.sent_ns,
            time_ns: message.time_ns,
        });
    }

    pub(super) fn summarise(&self, name: &str, node: &str, local_port: u16, into: &mut Vec<ReceiverSummary>) {
        for (index, (flow, arrivals)) in self.flows.iter().enumerate() {
            into.push(ReceiverSummary {
                name: name.to_owned(),
                node: node.to_owned(),
                flow: *flow,
                receiver: self.receiver,
                expected: index < self.expected,
                received: arrivals.received,
                duplicates: arrivals.duplicates,
                reordered: arrivals.reordered,
                foreign: if index == 0 { self.foreign } else { 0 },
                local_port,
            });
        }
    }
}

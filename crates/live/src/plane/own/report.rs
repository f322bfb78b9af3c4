//! What the data plane says of programs' messages in the end.

use super::held::OwnHeld;
use super::{Own, Side};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Connections that are listed with what of them could not be read.
const MOST_UNREAD: usize = 1024;
/// Times that somebody left.
const MOST_LEFT: usize = 1024;

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

/// Messages of a flow from one host to another, one of which is a broker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OwnEnd {
    pub flow: u32,
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    /// How many had QoS 0, 1 and 2.
    pub qos: [u32; 3],
    /// How many the broker had kept from before, and nobody had sent since.
    pub retained: u32,
}

/// Bytes that are no MQTT, in one direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unread {
    pub(super) bytes: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}

/// A connection with bytes that are no MQTT, since the start of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnUnread {
    pub source: Ipv4Addr,
    pub source_port: u16,
    pub destination: Ipv4Addr,
    pub destination_port: u16,
    /// Whose messages it had carried, in either direction.
    pub flows: Vec<u32>,
    pub bytes: u64,
    /// Run time.
    pub first_ns: u64,
    pub last_ns: u64,
}

/// How a program left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leaving {
    /// A DISCONNECT.
    Disconnected,
    /// A FIN.
    Closed,
    /// A RST.
    Reset,
    /// An UNSUBSCRIBE, of the flows that are named.
    Unsubscribed,
}

/// Who left a connection, or the topics of some flows on it, the first time that it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnLeft {
    pub source: Ipv4Addr,
    pub source_port: u16,
    pub destination: Ipv4Addr,
    pub destination_port: u16,
    pub flows: Vec<u32>,
    pub how: Leaving,
    /// Run time.
    pub at_ns: u64,
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
    pub ends: Vec<OwnEnd>,
    pub unread: Vec<OwnUnread>,
    pub left: Vec<OwnLeft>,
    pub held: Vec<OwnHeld>,
}

impl Own {
    /// The run starts: what was not read before is nobody's loss.
    pub(in super::super) fn reset_counts(&mut self) {
        for connection in &mut self.connections {
            for way in &mut connection.ways {
                way.unread = None;
            }
        }
        for left in &mut self.left {
            left.at_ns = 0;
        }
        self.reset_held();
    }

    pub(in super::super) fn report(&self) -> OwnReport {
        OwnReport {
            flows: self
                .flows
                .iter()
                .map(|(flow, known)| (*flow, known.told))
                .collect(),
            joined: self.joined.clone(),
            ends: self.ends.values().copied().collect(),
            unread: self.unread().take(MOST_UNREAD).collect(),
            left: self.left.clone(),
            held: self.held(),
        }
    }

    /// The sender of this direction leaves; what the other end does then is its answer.
    pub(super) fn note_left(&mut self, side: Side, how: Leaving) {
        let connection = &mut self.connections[side.connection as usize];
        let has_left = connection.ways.iter().any(|way| way.has_left);
        connection.ways[usize::from(side.is_second)].has_left = true;
        if !has_left {
            let flows = connection.flows.iter().copied().collect();
            self.write_left(side, how, flows);
        }
    }

    pub(super) fn write_left(&mut self, side: Side, how: Leaving, flows: Vec<u32>) {
        let key = self.connections[side.connection as usize].key(side);
        if flows.is_empty() || self.left.len() >= MOST_LEFT {
            return;
        }
        self.left.push(OwnLeft {
            source: key.source.into(),
            source_port: key.source_port,
            destination: key.destination.into(),
            destination_port: key.destination_port,
            flows,
            how,
            at_ns: self.now_ns,
        });
    }

    fn unread(&self) -> impl Iterator<Item = OwnUnread> {
        self.connections.iter().flat_map(|connection| {
            let keys = [connection.key, connection.key.reversed()];
            let ways = connection.ways.iter().zip(keys);
            ways.filter_map(|(way, key)| {
                let unread = way.unread?;
                Some(OwnUnread {
                    source: key.source.into(),
                    source_port: key.source_port,
                    destination: key.destination.into(),
                    destination_port: key.destination_port,
                    flows: connection.flows.iter().copied().collect(),
                    bytes: unread.bytes,
                    first_ns: unread.first_ns,
                    last_ns: unread.last_ns,
                })
            })
        })
    }
}

//! Programs that keep their broker waiting: they do not acknowledge, or do not read.
//!
//! A broker sends no more than so many messages of QoS 1 and 2 that are not acknowledged (MQTT 5.0, section 4.9; most have a limit for 3.1.1, too), and none
//! while the receive window is closed (RFC 9293, section 3.8.6). What is behind them waits in the broker, or is dropped there: not by its doing.

use super::{Own, Side};
use crate::plan::OwnRole;
use serde::Serialize;
use std::net::Ipv4Addr;
use timebound_wire::mqtt::{Head, Kind, Malformed, Publish, Version};

/// Shorter ones are nobody's complaint.
const LEAST_NS: u64 = 10_000_000;
/// Times that are listed.
const MOST_HELD: usize = 1 << 14;
/// Reason codes of PUBREC from here on end the exchange (MQTT 5.0, section 3.5.2.1).
const REFUSED: u8 = 0x80;

/// What a broker waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holding {
    /// PUBACK, or PUBCOMP, of a message.
    Acknowledgement,
    /// A receive window that is not 0.
    Window,
}

/// A time for which a program let its broker wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnHeld {
    /// The program's end.
    pub source: Ipv4Addr,
    pub source_port: u16,
    pub destination: Ipv4Addr,
    pub destination_port: u16,
    /// Of an acknowledgement that of its message, of a window those of the connection.
    pub flows: Vec<u32>,
    /// Of a message that is known.
    pub number: Option<u32>,
    pub why: Holding,
    /// Run time at which the message, or the closed window, was at its first port.
    pub from_ns: u64,
    /// That of what ended it.
    pub until_ns: u64,
    /// It ended with what the broker waited for, not with the connection or the run.
    pub is_over: bool,
}

/// A message that is not acknowledged yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    flow: u32,
    number: Option<u32>,
    since_ns: u64,
}

impl Own {
    /// A broker has sent a message that is to be acknowledged.
    pub(super) fn expect(&mut self, side: Side, position: usize, publish: &Publish<'_>, number: Option<u32>) {
        let since_ns = self.now_ns;
        let way = &mut self.connections[side.connection as usize].ways[usize::from(side.is_second)];
        let plan = &self.sets[way.set][position].plan;
        if publish.qos > 0 && plan.role == OwnRole::Onward {
            let flow = plan.flow;
            way.open.entry(publish.packet).or_insert(Open {
                flow,
                number,
                since_ns,
            });
        }
    }

    /// PUBACK, PUBREC or PUBCOMP; false where too little of it has come.
    pub(super) fn acknowledged(
        &mut self,
        side: Side,
        head: &Head,
        body: &[u8],
        version: Version,
    ) -> Result<bool, Malformed> {
        if body.len() < head.rest.min(3) {
            return Ok(false);
        }
        let &[high, low, ref more @ ..] = body else {
            return Err(Malformed::Short);
        };
        let is_refusal = version == Version::V5 && more.first().is_some_and(|reason| *reason >= REFUSED);
        if head.kind == Kind::Pubrec && !is_refusal {
            return Ok(true);
        }
        let packet = u16::from_be_bytes([high, low]);
        if let Some(open) = self.way(side.other()).open.remove(&packet) {
            self.hold(side, Wait::from(open), true);
        }
        Ok(true)
    }

    /// The window that the sender of this direction offers.
    pub(super) fn offered(&mut self, side: Side, window: u16) {
        let now = self.now_ns;
        let way = self.way(side);
        if window == 0 && !way.has_left {
            way.shut_ns.get_or_insert(now);
        } else if let Some(since) = way.shut_ns.take() {
            self.hold(side, Wait::window(since), true);
        }
    }

    /// The connection is gone, and nobody waits any longer.
    pub(super) fn end_held(&mut self, side: Side) {
        for side in [side, side.other()] {
            for (side, wait) in self.under_way(side) {
                self.hold(side, wait, false);
            }
            let way = self.way(side);
            way.open.clear();
            way.shut_ns = None;
        }
    }

    /// What this direction is waited for, or waits for, with the side of who lets wait.
    fn under_way(&self, side: Side) -> Vec<(Side, Wait)> {
        let way = &self.connections[side.connection as usize].ways[usize::from(side.is_second)];
        let open = way.open.values().map(|open| (side.other(), Wait::from(*open)));
        open.chain(way.shut_ns.map(|since| (side, Wait::window(since))))
            .collect()
    }

    fn hold(&mut self, side: Side, wait: Wait, is_over: bool) {
        if self.held.len() < MOST_HELD {
            let held = self.told(side, wait, is_over);
            self.held.extend(held);
        }
    }

    fn told(&self, side: Side, wait: Wait, is_over: bool) -> Option<OwnHeld> {
        let connection = &self.connections[side.connection as usize];
        let key = connection.key(side);
        let flows: Vec<u32> = wait
            .flow
            .map_or_else(|| connection.flows.iter().copied().collect(), |flow| vec![flow]);
        let is_long = self.now_ns.saturating_sub(wait.since_ns) >= LEAST_NS;
        (is_long && !flows.is_empty()).then(|| OwnHeld {
            source: key.source.into(),
            source_port: key.source_port,
            destination: key.destination.into(),
            destination_port: key.destination_port,
            flows,
            number: wait.number,
            why: wait.why,
            from_ns: wait.since_ns,
            until_ns: self.now_ns,
            is_over,
        })
    }

    /// The run starts: what was before is nobody's loss.
    pub(super) fn reset_held(&mut self) {
        self.held.clear();
        for way in self
            .connections
            .iter_mut()
            .flat_map(|connection| &mut connection.ways)
        {
            way.open.values_mut().for_each(|open| open.since_ns = 0);
            way.shut_ns = way.shut_ns.map(|_| 0);
        }
    }

    /// All of them, with those that nothing has ended.
    pub(super) fn held(&self) -> Vec<OwnHeld> {
        let sides = (0..self.connections.len() as u32).flat_map(|connection| {
            [false, true].map(|is_second| Side {
                connection,
                is_second,
            })
        });
        let under_way = sides
            .flat_map(|side| self.under_way(side))
            .filter_map(|(side, wait)| self.told(side, wait, false));
        self.held
            .iter()
            .cloned()
            .chain(under_way)
            .take(MOST_HELD)
            .collect()
    }
}

/// What is waited for, and since when.
#[derive(Debug, Clone, Copy)]
struct Wait {
    why: Holding,
    flow: Option<u32>,
    number: Option<u32>,
    since_ns: u64,
}

impl Wait {
    fn window(since_ns: u64) -> Self {
        Self {
            why: Holding::Window,
            flow: None,
            number: None,
            since_ns,
        }
    }
}

impl From<Open> for Wait {
    fn from(open: Open) -> Self {
        Self {
            why: Holding::Acknowledgement,
            flow: Some(open.flow),
            number: open.number,
            since_ns: open.since_ns,
        }
    }
}

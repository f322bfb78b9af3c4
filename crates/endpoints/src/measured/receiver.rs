//! What a receiver of measured messages counts and records, whatever carried them.

use crate::arrivals::Arrivals;
use crate::plan::Qos;
use crate::record::{FLAG_DUPLICATE, Kind, Record, Recorder};
use crate::summary::ReceiverSummary;
use crate::wire::Header;

/// Flows beyond the expected ones that one receiver tells apart; messages of further ones (a broken or hostile sender) are foreign.
const MOST_FLOWS: usize = 1024;

#[derive(Debug)]
pub(super) struct ReceiverState {
    pub(super) receiver: u32,
    /// The expected flows first.
    flows: Vec<(u32, Arrivals)>,
    expected: usize,
    foreign: u64,
}

/// One message as it was decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) payload: &'a [u8],
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
            foreign: 0,
        }
    }

    /// Each expected flow with the number of its different messages that arrived.
    pub(super) fn distinct(&self) -> impl Iterator<Item = (u32, u64)> {
        self.flows[..self.expected]
            .iter()
            .map(|(flow, arrivals)| (*flow, arrivals.distinct()))
    }

    pub(super) fn message(&mut self, message: &Message<'_>, recorder: &mut Recorder) {
        let Some(header) = Header::read(message.payload) else {
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

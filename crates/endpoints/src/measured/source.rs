//! What a sender of measured messages has to send when, and what it counts.

use crate::plan::Release;
use crate::record::{Kind, NO_RECEIVER, Record};
use crate::release::{Due, Releases};
use crate::summary::SenderSummary;

/// A message whose time has come; times in ns since the epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing {
    pub(super) sequence: u32,
    pub(super) nominal_ns: i64,
    pub(super) planned_ns: i64,
    /// It waits for room, in the socket or at the broker.
    pub(super) held: bool,
}

#[derive(Debug)]
pub(super) struct SourceState {
    pub(super) flow: u32,
    pub(super) payload_bytes: u32,
    release: Release,
    releases: Option<Releases>,
    next: Option<Due>,
    start_ns: i64,
    sequence: u32,
    pub(super) sent: u64,
    pub(super) acknowledged: u64,
    pub(super) deferred: u64,
    pub(super) dropped: u64,
    pub(super) errors: u64,
}

impl SourceState {
    pub(super) fn new(flow: u32, payload_bytes: u32, release: &Release) -> Self {
        Self {
            flow,
            payload_bytes,
            release: release.clone(),
            releases: None,
            next: None,
            start_ns: 0,
            sequence: 0,
            sent: 0,
            acknowledged: 0,
            deferred: 0,
            dropped: 0,
            errors: 0,
        }
    }

    /// Starts the releases; returns when the first is due. Those before `from_ns` are passed over with their sequence numbers:
    /// nobody was there to send them.
    pub(super) fn start(&mut self, start_ns: i64, length_ns: u64, from_ns: i64) -> Option<i64> {
        let mut releases = Releases::new(self.release.clone(), self.flow, length_ns);
        self.start_ns = start_ns;
        self.next = releases.next();
        while self.due_ns().is_some_and(|due_ns| due_ns < from_ns) {
            self.sequence = self.sequence.wrapping_add(1);
            self.next = releases.next();
        }
        self.releases = Some(releases);
        self.due_ns()
    }

    fn due_ns(&self) -> Option<i64> {
        self.next.map(|due| since(self.start_ns, due.planned_ns))
    }

    /// Are there no more releases to come?
    pub(super) fn is_exhausted(&self) -> bool {
        self.releases.is_some() && self.next.is_none()
    }

    /// Takes the message that is due, and says when the next one is.
    pub(super) fn take(&mut self) -> Option<(Outgoing, Option<i64>)> {
        let due = self.next?;
        let outgoing = Outgoing {
            sequence: self.sequence,
            nominal_ns: since(self.start_ns, due.nominal_ns),
            planned_ns: since(self.start_ns, due.planned_ns),
            held: false,
        };
        self.sequence = self.sequence.wrapping_add(1);
        self.next = self.releases.as_mut().and_then(Iterator::next);
        Some((outgoing, self.due_ns()))
    }

    pub(super) fn record(&self, kind: Kind, qos: u8, sequence: u32, nominal_ns: i64, time_ns: i64) -> Record {
        Record {
            kind,
            qos,
            flags: 0,
            flow: self.flow,
            receiver: NO_RECEIVER,
            sequence,
            size: self.payload_bytes,
            nominal_ns,
            time_ns,
        }
    }

    pub(super) fn summarise(&self, name: &str, node: &str, local_port: u16) -> SenderSummary {
        SenderSummary {
            name: name.to_owned(),
            node: node.to_owned(),
            flow: self.flow,
            sent: self.sent,
            acknowledged: self.acknowledged,
            deferred: self.deferred,
            dropped: self.dropped,
            errors: self.errors,
            local_port,
        }
    }
}

fn since(start_ns: i64, after_ns: u64) -> i64 {
    start_ns.saturating_add(i64::try_from(after_ns).unwrap_or(i64::MAX))
}

//! What is counted: each thread has counters of its own, which are added up when somebody asks.

use crate::contract::{
    Both, HOLD_CLASSES_MS, Holds, Offences, Peers, Refusals, Stats, Strangers, Verdicts, WebSocketViolations,
};
use std::sync::atomic::{AtomicU64, Ordering};
use timebound_model::Span;
use timebound_protocol::intermediary::{HoldEnd, Offence};
use timebound_wire::mqtt::Kind;
use timebound_wire::websocket::Violation;

/// A number that one thread writes and others read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
    pub(crate) fn subtract(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }
    pub(crate) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Those of one thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) connections: Counter,
    pub(crate) connections_total: Counter,
    pub(crate) connections_refused: Counter,
    pub(crate) bytes: [Counter; 2],
    pub(crate) packets: [Counter; 2],
    pub(crate) held: Counter,
    ends: [Counter; 3],
    classes: [Counter; HOLD_CLASSES_MS.len() + 1],
    hold_ns: Counter,
    pub(crate) requests: Counter,
    pub(crate) requests_now: Counter,
    pub(crate) verdicts: [Counter; 3],
    refusals: [Counter; 4],
    offences: [Counter; 4],
    violations: [Counter; 3],
    pub(crate) broker_failures: Counter,
    pub(crate) handshake_failures: Counter,
    pub(crate) handshake_timeouts: Counter,
    pub(crate) events_lost: Counter,
}

impl Counters {
    pub(crate) fn released(&self, end: HoldEnd, time: Span) {
        self.held.subtract(1);
        let end = match end {
            HoldEnd::Verdict => 0,
            HoldEnd::Timeout => 1,
            HoldEnd::Unavailable => 2,
        };
        self.ends[end].add(1);
        let class = HOLD_CLASSES_MS
            .iter()
            .position(|class| time.0 <= class * 1_000_000);
        self.classes[class.unwrap_or(HOLD_CLASSES_MS.len())].add(1);
        self.hold_ns.add(time.0);
    }

    pub(crate) fn refused(&self, packet: Kind, dropped: bool) {
        let which = match packet {
            Kind::Connect => 0,
            Kind::Publish if dropped => 2,
            Kind::Publish => 1,
            _ => 3,
        };
        self.refusals[which].add(1);
    }

    pub(crate) fn offended(&self, offence: Offence) {
        let which = match offence {
            Offence::Malformed => 0,
            Offence::TooLarge => 1,
            Offence::Quota => 2,
            Offence::Rate => 3,
        };
        self.offences[which].add(1);
    }

    pub(crate) fn violated(&self, violation: Violation) {
        let which = match violation.code() {
            1003 => 1,
            1009 => 2,
            _ => 0,
        };
        self.violations[which].add(1);
    }
}

/// The sum of all.
pub(crate) fn sum(all: &[&Counters], control: bool) -> Stats {
    let of = |pick: fn(&Counters) -> &Counter| all.iter().map(|one| pick(one).get()).sum::<u64>();
    let counts =
        (0..=HOLD_CLASSES_MS.len()).map(|class| all.iter().map(|one| one.classes[class].get()).sum());
    Stats {
        connections: of(|one| &one.connections),
        connections_total: of(|one| &one.connections_total),
        connections_refused: of(|one| &one.connections_refused),
        bytes: Both {
            up: of(|one| &one.bytes[0]),
            down: of(|one| &one.bytes[1]),
        },
        packets: Both {
            up: of(|one| &one.packets[0]),
            down: of(|one| &one.packets[1]),
        },
        holds: Holds {
            now: of(|one| &one.held),
            verdict: of(|one| &one.ends[0]),
            timeout: of(|one| &one.ends[1]),
            unavailable: of(|one| &one.ends[2]),
            classes_ms: HOLD_CLASSES_MS.to_vec(),
            counts: counts.collect(),
            total_ns: of(|one| &one.hold_ns),
        },
        requests: of(|one| &one.requests),
        requests_now: of(|one| &one.requests_now),
        verdicts: Verdicts {
            granted: of(|one| &one.verdicts[0]),
            refused: of(|one| &one.verdicts[1]),
            unavailable: of(|one| &one.verdicts[2]),
        },
        refusals: Refusals {
            connect: of(|one| &one.refusals[0]),
            publish: of(|one| &one.refusals[1]),
            dropped: of(|one| &one.refusals[2]),
            subscribe: of(|one| &one.refusals[3]),
        },
        offences: Offences {
            malformed: of(|one| &one.offences[0]),
            too_large: of(|one| &one.offences[1]),
            quota: of(|one| &one.offences[2]),
            rate: of(|one| &one.offences[3]),
        },
        websocket_violations: WebSocketViolations {
            protocol: of(|one| &one.violations[0]),
            text: of(|one| &one.violations[1]),
            too_large: of(|one| &one.violations[2]),
        },
        broker_failures: of(|one| &one.broker_failures),
        handshake_failures: of(|one| &one.handshake_failures),
        handshake_timeouts: of(|one| &one.handshake_timeouts),
        events_lost: of(|one| &one.events_lost),
        control,
        strangers: Strangers::default(),
        peers: Peers::default(),
    }
}

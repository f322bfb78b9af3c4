//! What a run of endpoints says at its end, as JSON.

use crate::histogram::Histogram;
use serde::{Deserialize, Serialize};

/// Counts of one run. Times are ns since the epoch of the run's clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// When the sources started and when the last socket was closed.
    pub start_ns: i64,
    pub end_ns: i64,
    /// Did the caller stop it before its time?
    pub stopped: bool,
    /// Does the traffic thread run under SCHED_FIFO?
    pub fifo: bool,
    pub senders: Vec<SenderSummary>,
    pub receivers: Vec<ReceiverSummary>,
    pub background: Vec<BackgroundSummary>,
    /// Lost and reopened connections, in order.
    pub events: Vec<ConnectionEvent>,
    /// How late releases were written (written - (nominal + drawn jitter)), over all senders.
    pub lateness_ns: Lateness,
    /// The histogram behind it, so that summaries of several processes can be merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lateness_buckets: Vec<(u32, u64)>,
}

impl Summary {
    /// One summary of several processes that shared a run.
    #[must_use]
    pub fn merge(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts = parts.into_iter();
        let Some(mut all) = parts.next() else {
            return Self::default();
        };
        let mut lateness = Histogram::default();
        lateness.add(&all.lateness_buckets, all.lateness_ns.max);
        for part in parts {
            lateness.add(&part.lateness_buckets, part.lateness_ns.max);
            all.start_ns = all.start_ns.min(part.start_ns);
            all.end_ns = all.end_ns.max(part.end_ns);
            all.stopped |= part.stopped;
            all.fifo &= part.fifo;
            all.senders.extend(part.senders);
            all.receivers.extend(part.receivers);
            all.background.extend(part.background);
            all.events.extend(part.events);
        }
        all.events.sort_by_key(|event| event.time_ns);
        all.lateness_ns = lateness.summary();
        all.lateness_buckets.clear();
        all
    }
}

/// A publisher or UDP sender.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SenderSummary {
    pub name: String,
    pub node: String,
    pub flow: u32,
    pub sent: u64,
    /// PUBACK (QoS 1) or PUBCOMP (QoS 2); 0 otherwise.
    pub acknowledged: u64,
    /// Releases that could not be written at their time: the socket or the broker's receive maximum was full.
    pub deferred: u64,
    /// Releases given up: the connection was down, or too many were waiting.
    pub dropped: u64,
    /// Datagrams that the kernel refused.
    pub errors: u64,
    /// The local port in use.
    pub local_port: u16,
}

/// A subscriber or UDP receiver; one entry per flow that arrived there (and one for the expected flow in any case).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReceiverSummary {
    pub name: String,
    pub node: String,
    pub flow: u32,
    pub receiver: u32,
    /// Is it the flow that the plan expects here?
    pub expected: bool,
    /// Messages, duplicates included.
    pub received: u64,
    /// Messages whose sequence number had arrived before.
    pub duplicates: u64,
    /// Messages whose sequence number is below the greatest one that had arrived (duplicates not counted).
    pub reordered: u64,
    /// Messages without a valid measurement header (on the entry of the expected flow).
    pub foreign: u64,
    pub local_port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BackgroundSummary {
    pub name: String,
    pub sent_bytes: u64,
    /// Datagrams (of bursts and video over UDP too), requests, pictures over TCP; for bulk TCP the number of writes.
    pub sent_messages: u64,
    pub received_bytes: u64,
    /// Likewise what arrived (whole requests and pictures); for bulk TCP the number of reads.
    pub received_messages: u64,
    /// Answers that came back to the source (request-response).
    pub responses: u64,
    pub response_bytes: u64,
    /// Datagrams that the kernel refused.
    pub errors: u64,
    /// Why it ended before its time.
    pub failure: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionEvent {
    pub time_ns: i64,
    /// Name of the client.
    pub client: String,
    pub kind: ConnectionEventKind,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionEventKind {
    Lost,
    Reconnected,
}

/// Quantiles from a histogram whose buckets are at most 1/32 of their value wide; `max` is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lateness {
    pub count: u64,
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_lateness_is_that_of_all_messages_together() {
        let part = |values: &[u64]| {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.enter(*value));
            Summary {
                lateness_ns: histogram.summary(),
                lateness_buckets: histogram.buckets(),
                ..Summary::default()
            }
        };
        let whole = part(&[1, 2, 3, 1000, 50_000]);
        let merged = Summary::merge([part(&[1000, 2]), part(&[]), part(&[50_000, 1, 3])]);
        assert_eq!(merged.lateness_ns, whole.lateness_ns);
        assert!(merged.lateness_buckets.is_empty());
        assert_eq!(Summary::merge([]), Summary::default());
    }
}

//! The recorded stamps once more through a fresh fabric of the same seed: same verdicts, same times.

use crate::plane::FROM_SWITCH;
use crate::records::{DeliveryRecord, IngressRecord, reason_code};
use crate::report::Check;
use crate::writer::ProbeLog;
use std::sync::Arc;
use timebound_fabric::{Change, DropReason, Fabric, Frame, NO_LEAF, Reentry, Route, Sink};
use timebound_model::{Class, Network, NodeId, PortId, StreamId, Time, WireBytes};

#[derive(Default)]
struct Recorder {
    deliveries: Vec<DeliveryRecord>,
    transmitted: Vec<(PortId, u64)>,
}

impl Sink for Recorder {
    const TRANSMISSIONS: bool = true;

    fn delivered(&mut self, at: Time, host: NodeId, leaf: u32, frame: &Frame, damaged: bool) {
        let outcome = u32::from(damaged);
        let (tag, time, host, port) = (frame.tag, at.0, host.0, u32::MAX);
        self.deliveries.push(DeliveryRecord {
            tag,
            time,
            host,
            leaf,
            outcome,
            port,
        });
    }

    fn dropped(&mut self, at: Time, port: Option<PortId>, frame: &Frame, reason: DropReason) {
        let outcome = 16 + reason_code(reason);
        let port = port.map_or(u32::MAX, |port| port.0);
        let (tag, time) = (frame.tag, at.0);
        self.deliveries.push(DeliveryRecord {
            tag,
            time,
            host: u32::MAX,
            leaf: NO_LEAF,
            outcome,
            port,
        });
    }

    fn copied(&mut self, _handle: u32, _extra: u32) {}

    fn transmitted(&mut self, port: PortId, _started: Time, _ended: Time, frame: &Frame) {
        self.transmitted.push((port, frame.tag));
    }
}

fn replay(fabric: &mut Fabric, ingress: &[IngressRecord]) -> Recorder {
    let mut recorder = Recorder::default();
    for record in ingress {
        let (host, argument) = (NodeId(record.host), record.argument);
        let from_switch = record.kind >= FROM_SWITCH;
        let route = match if from_switch {
            record.kind - FROM_SWITCH
        } else {
            record.kind
        } {
            0 => Route::Tree(StreamId(argument)),
            1 => Route::Unicast(NodeId(argument)),
            2 => Route::Multicast(argument),
            3 => Route::Broadcast,
            kind => {
                // At once, but nothing happens at that time before it.
                let change = if kind == 4 {
                    Change::Join(argument, host)
                } else {
                    Change::Leave(argument, host)
                };
                fabric.schedule(Time(record.time), change);
                continue;
            }
        };
        let (wire, class) = (WireBytes(record.wire), Class(record.class));
        let frame = Frame {
            handle: 0,
            wire,
            class,
            route,
            stream: record.stream,
            tag: record.tag,
        };
        if from_switch {
            let (port, damaged) = (PortId(record.host), record.damaged);
            fabric.reentry(Time(record.time), Reentry { port, frame, damaged });
        } else {
            fabric.ingress(Time(record.time), host, frame);
        }
    }
    fabric.advance(Time::MAX, &mut recorder);
    recorder
}

/// What the model makes of the recorded stamps.
pub(super) struct Replayed {
    deliveries: Vec<DeliveryRecord>,
    transmitted: Vec<(PortId, u64)>,
}

/// Replays what the log holds through a fabric of this seed.
pub(super) fn run(seed: u64, network: &Arc<Network>, switches: &[NodeId], log: &ProbeLog) -> Replayed {
    let mut fabric = Fabric::new(Arc::clone(network), seed);
    fabric.hand_over(switches);
    let Recorder {
        mut deliveries,
        transmitted,
    } = replay(&mut fabric, &log.ingress);
    deliveries.sort_unstable();
    Replayed {
        deliveries,
        transmitted,
    }
}

impl Replayed {
    /// Frames that `port` sent, lost ones included.
    pub(super) fn sent_by(&self, port: PortId) -> usize {
        self.transmitted.iter().filter(|(at, _)| *at == port).count()
    }

    /// Does the recorded run equal its replay?
    pub(super) fn line(&self, log: &ProbeLog) -> Check {
        let mut found = log.deliveries.clone();
        found.sort_unstable();
        let equal = self
            .deliveries
            .iter()
            .zip(&found)
            .filter(|(expected, found)| expected == found)
            .count();
        let all = self.deliveries.len().max(found.len());
        super::judge::line(
            "replay",
            format!("{all} verdicts and virtual times as the model computes them from the stamps"),
            format!("{equal} equal"),
            equal == all && all > 0,
        )
    }
}

//! Recorded ingress through the same network: the parity test between emulator and simulator.

use std::sync::Arc;
use timebound_fabric::{Change, DropReason, Fabric, Frame, Reentry, Sink};
use timebound_model::{Network, NodeId, PortId, Time};

/// How a copy of a frame ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    Delivered {
        at: Time,
        host: NodeId,
        leaf: u32,
        frame: Frame,
        damaged: bool,
    },
    Dropped {
        at: Time,
        port: Option<PortId>,
        frame: Frame,
        reason: DropReason,
    },
}

/// Collects departures in order; also of use to whoever drives a [`Fabric`] and wants to compare.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorder {
    pub departures: Vec<Departure>,
}

impl Sink for Recorder {
    fn delivered(&mut self, at: Time, host: NodeId, leaf: u32, frame: &Frame, damaged: bool) {
        self.departures.push(Departure::Delivered {
            at,
            host,
            leaf,
            frame: *frame,
            damaged,
        });
    }
    fn dropped(&mut self, at: Time, port: Option<PortId>, frame: &Frame, reason: DropReason) {
        self.departures.push(Departure::Dropped {
            at,
            port,
            frame: *frame,
            reason,
        });
    }
    fn copied(&mut self, _: u32, _: u32) {}
}

/// The departures of a run, given the effective stamps that [`Fabric::ingress`] and [`Fabric::schedule`] returned in it,
/// each in the order of the calls.
#[must_use]
pub fn replay(
    network: &Arc<Network>,
    seed: u64,
    schedule: &[(Time, Change)],
    ingress: &[(Time, NodeId, Frame)],
) -> Vec<Departure> {
    replay_with_switches(network, seed, schedule, ingress, &[], &[])
}

/// The same of a run in which `switches` were real ones ([`Fabric::hand_over`]): what they sent, with the effective stamps that
/// [`Fabric::reentry`] returned, in the order of the calls.
#[must_use]
pub fn replay_with_switches(
    network: &Arc<Network>,
    seed: u64,
    schedule: &[(Time, Change)],
    ingress: &[(Time, NodeId, Frame)],
    switches: &[NodeId],
    reentries: &[(Time, Reentry)],
) -> Vec<Departure> {
    let mut fabric = Fabric::new(Arc::clone(network), seed);
    fabric.hand_over(switches);
    for (at, change) in schedule {
        fabric.schedule(*at, change.clone());
    }
    for (at, host, frame) in ingress {
        fabric.ingress(*at, *host, *frame);
    }
    for (at, reentry) in reentries {
        fabric.reentry(*at, *reentry);
    }
    let mut recorder = Recorder::default();
    fabric.advance(Time::MAX, &mut recorder);
    recorder.departures
}

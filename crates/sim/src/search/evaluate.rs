//! Simulates one phasing and measures every stream in it; nothing is allocated again from one evaluation to the next.

use super::moments::Moment;
use super::phasing::{Phasing, Planned};
use super::shape::Shape;
use crate::source::{Released, Source};
use crate::tally::frame_of;
use std::sync::Arc;
use timebound_fabric::{DropReason, Fabric, Frame, NO_LEAF, Sink};
use timebound_model::{Network, NodeId, PortId, Time};

/// One transmission of the target's frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passage {
    pub(super) port: PortId,
    handle: u32,
    pub(super) ended: Time,
}

#[derive(Debug)]
struct Worsts<'a> {
    shape: &'a Shape<'a>,
    /// Per leaf the worst of all evaluations: from the actual and from the nominal release.
    worst: Vec<(u64, u64)>,
    releases: Vec<Released>,
    target_stream: u32,
    target_leaf: u32,
    /// Worst latency of the target in this evaluation, and the release that had it.
    target: (u64, u32),
    passages: Vec<Passage>,
}

impl Sink for Worsts<'_> {
    const TRANSMISSIONS: bool = true;

    fn delivered(&mut self, at: Time, _: NodeId, leaf: u32, frame: &Frame, damaged: bool) {
        if damaged || leaf == NO_LEAF {
            return;
        }
        let released = self.releases[frame.handle as usize];
        let (latency, nominal) = (at.since(released.actual).0, at.since(released.nominal).0);
        let worst = &mut self.worst[self.shape.bases[frame.stream as usize] + leaf as usize];
        *worst = (worst.0.max(latency), worst.1.max(nominal));
        if frame.stream == self.target_stream && leaf == self.target_leaf && latency > self.target.0 {
            self.target = (latency, frame.handle);
        }
    }

    fn dropped(&mut self, _: Time, _: Option<PortId>, _: &Frame, _: DropReason) {}
    fn copied(&mut self, _: u32, _: u32) {}

    fn transmitted(&mut self, port: PortId, _: Time, ended: Time, frame: &Frame) {
        if frame.stream == self.target_stream {
            self.passages.push(Passage {
                port,
                handle: frame.handle,
                ended,
            });
        }
    }
}

#[derive(Debug)]
pub(super) struct Evaluator<'a> {
    fabric: Fabric,
    sink: Worsts<'a>,
    planned: Vec<Planned>,
    moment: Moment,
}

/// What an evaluation says about its target.
#[derive(Debug, Clone, Default)]
pub(super) struct Finding {
    /// 0 where it never arrived.
    pub(super) latency: u64,
    /// Actual release of the frames that took longest.
    pub(super) released: u64,
    /// Their way through the network.
    pub(super) passages: Vec<Passage>,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(network: &Arc<Network>, shape: &'a Shape<'a>) -> Self {
        let sink = Worsts {
            shape,
            worst: vec![(0, 0); shape.leaves],
            releases: Vec::new(),
            target_stream: 0,
            target_leaf: 0,
            target: (0, 0),
            passages: Vec::new(),
        };
        Self {
            fabric: Fabric::new(Arc::clone(network), 0),
            sink,
            planned: Vec::new(),
            moment: Moment::default(),
        }
    }

    /// Evaluations from now on run at this moment of the schedule.
    pub(super) fn set_moment(&mut self, moment: Moment) {
        self.moment = moment;
    }

    pub(super) fn into_worst(self) -> Vec<(u64, u64)> {
        self.sink.worst
    }

    /// Simulates the phasing for the receiver `leaf` of the mover `target`.
    pub(super) fn evaluate(&mut self, phasing: &Phasing, target: usize, leaf: u32) -> Finding {
        let shape = self.sink.shape;
        self.sink.target_stream = shape.movers[target].stream.0;
        self.sink.target_leaf = leaf;
        self.sink.target = (0, 0);
        self.sink.releases.clear();
        self.sink.passages.clear();
        self.fabric.reset(phasing.seed);
        self.fabric.set_switching(phasing.switching);
        for change in &self.moment.before {
            self.fabric.schedule(Time(0), change.clone());
        }
        // The changes come where the releases are aligned, so that frames wait and are under way.
        for change in &self.moment.at {
            self.fabric.schedule(Time(shape.base), change.clone());
        }
        phasing.releases(shape, target, &mut self.planned);
        for &(at, _, mover, released) in &self.planned {
            let mover = &shape.movers[mover as usize];
            enter(
                &mut self.fabric,
                &mut self.sink,
                mover.stream,
                at,
                released,
                &mover.frames,
            );
        }
        let end = shape.base.saturating_add(shape.horizon);
        for &stream in &shape.others {
            let source = Source::new(&shape.network.streams[stream.index()], phasing.seed);
            let frames = source.frames().to_vec();
            if frames.is_empty() {
                continue;
            }
            for released in source.take_while(|released| released.actual.0 < end) {
                enter(
                    &mut self.fabric,
                    &mut self.sink,
                    stream,
                    released.actual,
                    released,
                    &frames,
                );
            }
        }
        self.fabric.advance(Time::MAX, &mut self.sink);
        let (latency, handle) = self.sink.target;
        if latency == 0 {
            return Finding::default();
        }
        Finding {
            latency,
            released: self.sink.releases[handle as usize].actual.0,
            passages: self
                .sink
                .passages
                .iter()
                .copied()
                .filter(|p| p.handle == handle)
                .collect(),
        }
    }
}

fn enter(
    fabric: &mut Fabric,
    sink: &mut Worsts,
    stream: timebound_model::StreamId,
    at: Time,
    released: Released,
    frames: &[timebound_model::WireBytes],
) {
    let network = sink.shape.network;
    let handle = sink.releases.len() as u32;
    sink.releases.push(released);
    for (position, wire) in (0u64..).zip(frames) {
        let frame = frame_of(network, stream, handle, position, *wire);
        fabric.ingress(at, network.streams[stream.index()].source, frame);
    }
}

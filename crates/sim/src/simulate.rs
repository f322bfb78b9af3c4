//! The fabric under a virtual clock, fed by the streams' release patterns.

use crate::outcome::Outcome;
use crate::series::Series;
use crate::source::{Released, Source};
use crate::tally::{Tally, frame_of};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::sync::Arc;
use timebound_fabric::{Change, Fabric};
use timebound_model::{Network, PortId, Span, StreamId, Time};

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Options {
    /// Length of the measured part, which starts after the warm-up.
    pub duration: Span,
    /// Releases before this time are simulated, but not measured.
    pub warmup: Span,
    pub seed: u64,
    /// Conditions that change, at times since the start of the simulation (warm-up included).
    pub schedule: Vec<(Time, Change)>,
    /// Interval of the ports' series and of the progress callback.
    pub interval: Span,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            duration: Span::from_secs(10),
            warmup: Span::ZERO,
            seed: 1,
            schedule: Vec::new(),
            interval: Span::from_millis(100),
        }
    }
}

/// Simulates; bit-for-bit the same for the same network and options on every machine.
#[must_use]
pub fn simulate(network: &Arc<Network>, options: &Options) -> Outcome {
    simulate_with(network, options, &mut |_| ControlFlow::Continue(()))
}

/// Simulates and calls `progress` with the virtual time after each interval; what was found is kept when it breaks off.
pub fn simulate_with(
    network: &Arc<Network>,
    options: &Options,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Outcome {
    let interval = options.interval.0.max(1);
    let start = Time(options.warmup.0);
    let end = start.after(options.duration);
    let mut run = Run::new(network, options, start);
    let mut flow = ControlFlow::Continue(());
    let mut now = Time(0);
    while now < start && flow.is_continue() {
        now = now.after(Span(interval)).min(start);
        run.until(now);
        flow = progress(now);
    }
    let mut series = Series::begin(&mut run.fabric, Span(interval));
    while now < end && flow.is_continue() {
        now = now.after(Span(interval)).min(end);
        run.until(now);
        series.sample(&mut run.fabric);
        flow = progress(now);
    }
    // Nothing is released any more: let what is under way arrive, so that what is missing is lost.
    run.fabric.advance(Time::MAX, &mut run.tally);
    let simulated = now.since(start);
    let (interval, ports) = series.finish(network, simulated);
    Outcome {
        streams: run.tally.outcome(network),
        ports,
        interval,
        frame_hops: (0..network.ports.len())
            .map(|p| run.fabric.counters(PortId::new(p)).frames)
            .sum(),
        complete: flow.is_continue() || now == end,
        simulated,
    }
}

struct Run<'a> {
    network: &'a Network,
    fabric: Fabric,
    tally: Tally,
    sources: Vec<Source>,
    /// The next release of every stream: by time, then by stream.
    next: BinaryHeap<Reverse<(Time, u32, Time)>>,
}

impl<'a> Run<'a> {
    fn new(network: &'a Arc<Network>, options: &Options, measured_from: Time) -> Self {
        let mut fabric = Fabric::new(Arc::clone(network), options.seed);
        for (at, change) in &options.schedule {
            fabric.schedule(*at, change.clone());
        }
        let sources = network
            .streams
            .iter()
            .map(|stream| Source::new(stream, options.seed))
            .collect();
        let tally = Tally::new(network, measured_from);
        let mut run = Self {
            network,
            fabric,
            tally,
            sources,
            next: BinaryHeap::new(),
        };
        for stream in 0..run.sources.len() {
            run.plan(StreamId::new(stream));
        }
        run
    }

    fn plan(&mut self, stream: StreamId) {
        let source = &mut self.sources[stream.index()];
        if source.frames().is_empty() || self.network.streams[stream.index()].tree.leaves.is_empty() {
            return;
        }
        if let Some(released) = source.next() {
            self.next
                .push(Reverse((released.actual, stream.0, released.nominal)));
        }
    }

    /// Everything before `end`.
    fn until(&mut self, end: Time) {
        while let Some(&Reverse((actual, stream, nominal))) = self.next.peek() {
            if actual >= end {
                break;
            }
            self.next.pop();
            if actual > Time(0) {
                self.fabric.advance(Time(actual.0 - 1), &mut self.tally);
            }
            let stream = StreamId(stream);
            let frames = self.sources[stream.index()].frames();
            let handle = self
                .tally
                .open(stream, Released { nominal, actual }, frames.len() as u32);
            for (position, wire) in (0u64..).zip(frames) {
                let frame = frame_of(self.network, stream, handle, position, *wire);
                self.fabric
                    .ingress(actual, self.network.streams[stream.index()].source, frame);
            }
            self.plan(stream);
        }
        if end > Time(0) {
            self.fabric.advance(Time(end.0 - 1), &mut self.tally);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timebound_model::declaration::*;
    use timebound_model::{Declaration, compile};

    #[test]
    fn memory_does_not_grow_with_the_simulated_time() {
        let host = |name: &str| NodeDecl {
            name: name.to_owned(),
            kind: NodeKindDecl::Host,
            switching_min_ns: 0,
            switching_max_ns: 0,
            replication_min_ns: 0,
            replication_max_ns: 0,
        };
        let direction = DirectionDecl {
            rate_bps: 100_000_000,
            delay_ns: 1_000_000,
            queue: QueueDecl::StrictPriority,
            buffer_bytes: 100_000,
            impairments: ImpairmentsDecl {
                duplication: 0.1,
                ..ImpairmentsDecl::default()
            },
            trace: None,
            slots: None,
        };
        let (a, b) = ("a".to_owned(), "b".to_owned());
        let link = LinkDecl {
            a: a.clone(),
            b: b.clone(),
            forward: direction.clone(),
            backward: direction,
            half_duplex: false,
        };
        let stream = StreamDecl {
            name: "f".to_owned(),
            source: a,
            destinations: vec![b],
            class: 0,
            role: RoleDecl::Data,
            arrival: ArrivalDecl::Periodic {
                period_ns: 100_000,
                jitter_ns: 50_000,
                frames_bytes: vec![500, 84],
            },
            release: ReleaseDecl::Periodic { offset_ns: None },
            deadline_ns: None,
            least_frame_bytes: None,
            route: None,
        };
        let declaration = Declaration {
            nodes: vec![host("a"), host("b")],
            links: vec![link],
            streams: vec![stream],
            best_effort_frame_bytes: 1538,
            traces: std::collections::BTreeMap::new(),
        };
        let network = Arc::new(compile(&declaration).unwrap());
        let mut run = Run::new(&network, &Options::default(), Time(0));
        run.until(Time(2_000_000_000));
        // 20,000 releases; about a dozen are within the link's millisecond at a time.
        assert!(run.tally.slots() < 20, "{}", run.tally.slots());
        assert!(run.fabric.frames_inside() < 50 && run.next.len() == 1);
    }
}

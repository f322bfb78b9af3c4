//! Delivery opportunities against a reference written from mahimahi's `LinkQueue` (src/frontend/link_queue.cc), in its terms.

mod common;
use common::{direction, host, link};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use timebound_fabric::{Change, DropReason, Fabric, Frame, NO_STREAM, Route, Sink};
use timebound_model::declaration::QueueDecl;
use timebound_model::{Class, Declaration, Network, NodeId, PortId, Time, Trace, WireBytes, compile};

const MILLI: u64 = 1_000_000;

/// mahimahi's link queue with its unlimited queue: `rationalize`, then `read_packet`; times in milliseconds.
struct Mahimahi {
    schedule: Vec<u64>,
    base: u64,
    next: usize,
    queue: VecDeque<(u64, u32)>,
    transit: Option<(u64, u32)>,
    /// (Packet, departure).
    departures: Vec<(u64, u64)>,
}

impl Mahimahi {
    fn new(schedule: &[u64]) -> Self {
        Self {
            schedule: schedule.to_vec(),
            base: 0,
            next: 0,
            queue: VecDeque::new(),
            transit: None,
            departures: Vec::new(),
        }
    }

    fn rationalize(&mut self, now: u64) {
        while self.base + self.schedule[self.next] <= now {
            let time = self.base + self.schedule[self.next];
            self.next += 1;
            if self.next == self.schedule.len() {
                self.next = 0;
                self.base += self.schedule[self.schedule.len() - 1];
            }
            let mut left = 1504;
            while left > 0 {
                let Some((packet, bytes)) = self.transit.take().or_else(|| self.queue.pop_front()) else {
                    break;
                };
                let sent = left.min(bytes);
                left -= sent;
                if sent == bytes {
                    self.departures.push((packet, time));
                } else {
                    self.transit = Some((packet, bytes - sent));
                }
            }
        }
    }

    fn read_packet(&mut self, now: u64, packet: u64, bytes: u32) {
        self.rationalize(now);
        self.queue.push_back((packet, bytes));
    }
}

#[derive(Default)]
struct Log {
    delivered: Vec<(u64, u64)>,
    dropped: Vec<(u64, DropReason)>,
}

impl Sink for Log {
    fn delivered(&mut self, at: Time, _: NodeId, _: u32, frame: &Frame, _: bool) {
        self.delivered.push((frame.tag, at.0));
    }
    fn dropped(&mut self, _: Time, _: Option<PortId>, frame: &Frame, reason: DropReason) {
        self.dropped.push((frame.tag, reason));
    }
    fn copied(&mut self, _: u32, _: u32) {}
}

fn traced(millis: &[u64], held: bool) -> Arc<Network> {
    let mut way = direction(1_000_000, 0);
    way.queue = QueueDecl::Fifo;
    way.trace = Some("t".to_owned());
    way.impairments.held = held;
    let declaration = Declaration {
        nodes: vec![host("a"), host("b")],
        links: vec![link("a", "b", way)],
        streams: vec![],
        best_effort_frame_bytes: 1538,
        traces: [("t".to_owned(), millis.to_vec())].into(),
    };
    Arc::new(compile(&declaration).expect("a valid network"))
}

fn frame(tag: u64, wire: u32) -> Frame {
    Frame {
        handle: 0,
        wire: WireBytes(wire),
        class: Class(0),
        route: Route::Unicast(NodeId(1)),
        stream: NO_STREAM,
        tag,
    }
}

/// Frames (time in ns, wire bytes) over a trace, advanced in steps of `step` ns.
fn run(network: &Arc<Network>, changes: &[(u64, Change)], frames: &[(u64, u32)], step: u64) -> Log {
    let mut fabric = Fabric::new(Arc::clone(network), 1);
    for (at, change) in changes {
        fabric.schedule(Time(*at), change.clone());
    }
    for (tag, (at, wire)) in (0u64..).zip(frames) {
        fabric.ingress(Time(*at), NodeId(0), frame(tag, *wire));
    }
    let mut log = Log::default();
    for turn in 0..20 {
        fabric.advance(Time(turn * step), &mut log);
    }
    fabric.advance(Time::MAX, &mut log);
    log
}

fn trace() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(0u64..12, 1..40).prop_map(|gaps| {
        let mut time = 0;
        let mut millis: Vec<u64> = gaps
            .into_iter()
            .map(|gap| {
                time += gap.saturating_sub(6);
                time
            })
            .collect();
        // It must last.
        millis.push(time + 1);
        millis
    })
}

proptest! {
    #[test]
    fn departures_are_those_of_mahimahi(
        millis in trace(),
        mut frames in proptest::collection::vec((0u64..300, 84u32..=1_538), 1..150),
        step in 1u64..40_000_000,
    ) {
        frames.sort_by_key(|frame| frame.0);
        let mut reference = Mahimahi::new(&millis);
        for (tag, (at, wire)) in (0u64..).zip(&frames) {
            reference.read_packet(*at, tag, Trace::bytes_of(WireBytes(*wire)));
        }
        reference.rationalize(1_000_000);
        let timed: Vec<(u64, u32)> = frames.iter().map(|(at, wire)| (at * MILLI, *wire)).collect();
        let log = run(&traced(&millis, false), &[], &timed, step);
        let expected: Vec<(u64, u64)> = reference.departures.iter().map(|(tag, at)| (*tag, at * MILLI)).collect();
        prop_assert_eq!(log.delivered, expected);
    }

    #[test]
    fn what_comes_between_opportunities_waits_for_the_next(millis in trace(), at in 0u64..100_000_000, wire in 84u32..=1_538) {
        let log = run(&traced(&millis, false), &[], &[(at, wire)], MILLI);
        let checked = Trace::new(&millis).expect("a trace");
        let expected = checked.time(checked.first_after(Time(at)));
        prop_assert_eq!(&log.delivered, &[(0, expected.0)]);
        prop_assert!(expected.since(Time(at)) <= checked.greatest_wait(WireBytes(wire)));
    }
}

#[test]
fn a_backlog_gets_the_capacity_of_the_trace() {
    let millis = [1, 2, 2, 9, 10];
    let frames = vec![(0, 1_538); 2_000];
    let log = run(&traced(&millis, false), &[], &frames, MILLI);
    // Five full packets in each 10 ms, the last of them with the last opportunity of its round.
    assert_eq!(log.delivered.len(), 2_000);
    assert_eq!(log.delivered[1_999], (1_999, 400 * 10 * MILLI));
    assert_eq!(log.delivered[4], (4, 10 * MILLI));
}

#[test]
fn small_frames_share_an_opportunity_and_a_large_one_takes_several() {
    // 84 bytes on the wire count 50: thirty of them and a third of a thirty-first; 3008 bytes take two.
    let small = run(&traced(&[5], false), &[], &vec![(0, 84); 31], MILLI);
    assert_eq!(small.delivered[29], (29, 5 * MILLI));
    assert_eq!(small.delivered[30], (30, 10 * MILLI));
    let large = run(&traced(&[5], false), &[], &[(0, 3_008 + 34), (0, 84)], MILLI);
    assert_eq!(large.delivered, [(0, 10 * MILLI), (1, 15 * MILLI)]);
}

#[test]
fn a_link_that_is_down_wastes_opportunities_or_loses_frames() {
    let changes = [
        (4 * MILLI + 1, Change::PortDown(PortId(0))),
        (7 * MILLI + 1, Change::PortUp(PortId(0))),
    ];
    let frames = vec![(0, 1_538); 9];
    let held = run(&traced(&[1], true), &changes, &frames, MILLI);
    let times: Vec<u64> = held.delivered.iter().map(|(_, at)| at / MILLI).collect();
    assert_eq!(times, [1, 2, 3, 4, 8, 9, 10, 11, 12]);
    let dropped = run(&traced(&[1], false), &changes, &frames, MILLI);
    let times: Vec<u64> = dropped.delivered.iter().map(|(_, at)| at / MILLI).collect();
    assert_eq!(times, [1, 2, 3, 4, 8, 9]);
    assert_eq!(
        dropped.dropped,
        [
            (4, DropReason::Outage),
            (5, DropReason::Outage),
            (6, DropReason::Outage)
        ]
    );
}

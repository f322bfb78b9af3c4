//! Time division: when a port with slots sends what.

mod common;
use common::{TICKS, direction, host, link, network};
use proptest::prelude::*;
use std::sync::Arc;
use timebound_fabric::{DropReason, Fabric, Frame, NO_STREAM, Route, Sink};
use timebound_model::declaration::{DirectionDecl, NodeDecl, NodeKindDecl, QueueDecl, SlotsDecl};
use timebound_model::{Class, Network, NodeId, PortId, Time, WireBytes};

#[derive(Default)]
struct Log {
    /// (Tag, port, started, ended).
    sent: Vec<(u64, u32, u64, u64)>,
    dropped: Vec<(u64, DropReason)>,
}

impl Sink for Log {
    const TRANSMISSIONS: bool = true;
    fn delivered(&mut self, _: Time, _: NodeId, _: u32, _: &Frame, _: bool) {}
    fn dropped(&mut self, _: Time, _: Option<PortId>, frame: &Frame, reason: DropReason) {
        self.dropped.push((frame.tag, reason));
    }
    fn copied(&mut self, _: u32, _: u32) {}
    fn transmitted(&mut self, port: PortId, started: Time, ended: Time, frame: &Frame) {
        self.sent.push((frame.tag, port.0, started.0, ended.0));
    }
}

fn slotted(cycle_ns: u64, slots_ns: &[(u64, u64)], queue: QueueDecl) -> DirectionDecl {
    DirectionDecl {
        queue,
        slots: Some(SlotsDecl {
            cycle_ns,
            slots_ns: slots_ns.to_vec(),
        }),
        ..direction(TICKS, 0)
    }
}

/// Frames (time, source, class, bytes) to the last node.
fn run(network: &Arc<Network>, frames: &[(u64, u32, u8, u32)]) -> Log {
    let last = NodeId(network.nodes.len() as u32 - 1);
    let mut fabric = Fabric::new(Arc::clone(network), 3);
    for (tag, (at, source, class, bytes)) in (0u64..).zip(frames) {
        let frame = Frame {
            handle: 0,
            wire: WireBytes(*bytes),
            class: Class(*class),
            route: Route::Unicast(last),
            stream: NO_STREAM,
            tag,
        };
        fabric.ingress(Time(*at), NodeId(*source), frame);
    }
    let mut log = Log::default();
    fabric.advance(Time::MAX, &mut log);
    assert_eq!(fabric.frames_inside(), 0);
    log
}

fn wire(direction: DirectionDecl) -> Arc<Network> {
    network(
        vec![host("a"), host("z")],
        vec![link("a", "z", direction)],
        vec![],
    )
}

#[test]
fn frames_start_where_they_end_within_their_slot() {
    // Slots 100..300 and 600..700 of every 1000 ns; one byte takes one nanosecond.
    let slots: &[(u64, u64)] = &[(100, 200), (600, 100)];
    let drr = QueueDecl::Drr {
        quanta_bytes: [90, 90, 90, 90, 90, 90, 90, 180],
    };
    type Case<'a> = (&'a str, QueueDecl, &'a [(u64, u8, u32)], &'a [(u64, u64)]);
    let cases: [Case<'_>; 9] = [
        ("before its slot", QueueDecl::Fifo, &[(0, 0, 100)], &[(0, 100)]),
        ("within it", QueueDecl::Fifo, &[(150, 0, 150)], &[(0, 150)]),
        (
            "a nanosecond too late",
            QueueDecl::Fifo,
            &[(151, 0, 150)],
            &[(0, 1_100)],
        ),
        ("the short slot", QueueDecl::Fifo, &[(250, 0, 100)], &[(0, 600)]),
        (
            "back to back, then the next slot",
            QueueDecl::Fifo,
            &[(0, 0, 90), (0, 0, 90), (0, 0, 90)],
            &[(0, 100), (1, 190), (2, 600)],
        ),
        (
            "a shorter one behind it does not go before it",
            QueueDecl::StrictPriority,
            &[(200, 5, 101), (201, 5, 90)],
            &[(0, 1_100), (1, 1_201)],
        ),
        (
            "a more urgent one that comes while it waits does",
            QueueDecl::StrictPriority,
            &[(201, 3, 100), (550, 5, 90)],
            &[(1, 600), (0, 1_100)],
        ),
        (
            "and a more urgent one that does not fit keeps the slot empty",
            QueueDecl::StrictPriority,
            &[(301, 3, 90), (550, 5, 150)],
            &[(1, 1_100), (0, 1_600)],
        ),
        (
            "deficit round robin, two of the first class for one of the next",
            drr,
            &[(0, 7, 90), (0, 7, 90), (0, 7, 90), (0, 6, 90), (0, 6, 90)],
            &[(0, 100), (1, 190), (3, 600), (2, 1_100), (4, 1_190)],
        ),
    ];
    for (what, queue, frames, expected) in cases {
        let frames: Vec<_> = frames
            .iter()
            .map(|(at, class, bytes)| (*at, 0, *class, *bytes))
            .collect();
        let log = run(&wire(slotted(1_000, slots, queue)), &frames);
        let starts: Vec<(u64, u64)> = log.sent.iter().map(|sent| (sent.0, sent.2)).collect();
        assert_eq!(starts, expected, "{what}");
    }
}

#[test]
fn what_fits_no_slot_is_dropped_and_holds_nobody_up() {
    let network = wire(slotted(1_000, &[(100, 200)], QueueDecl::Fifo));
    let log = run(&network, &[(0, 0, 0, 201), (0, 0, 0, 200), (0, 0, 0, 300)]);
    assert_eq!(log.dropped, [(0, DropReason::Outage), (2, DropReason::Outage)]);
    assert_eq!(log.sent, [(1, 0, 100, 300)]);
    let counters = run(&network, &[(0, 0, 0, 201)]);
    assert!(counters.sent.is_empty());
}

/// Hosts a, b and z on one segment, each with its share of a cycle of 1,000 ns.
fn shared() -> Arc<Network> {
    let segment = NodeDecl {
        kind: NodeKindDecl::Segment,
        ..host("g")
    };
    let member = |name: &str, slots: &[(u64, u64)]| {
        let mut link = link(name, "g", direction(TICKS, 0));
        link.forward = slotted(1_000, slots, QueueDecl::StrictPriority);
        link
    };
    network(
        vec![host("a"), host("b"), segment, host("z")],
        vec![
            member("a", &[(0, 200), (500, 200)]),
            member("b", &[(200, 300)]),
            member("z", &[(700, 300)]),
        ],
        vec![],
    )
}

proptest! {
    #[test]
    fn every_transmission_lies_in_a_slot_of_its_port_and_none_meets_another(
        mut frames in proptest::collection::vec((0u64..5_000, 0u32..2, 0u8..8, 84u32..290), 1..60)
    ) {
        frames.sort_by_key(|frame| frame.0);
        let network = shared();
        let log = run(&network, &frames);
        let on_air: Vec<_> = log.sent.iter().filter(|sent| sent.2 < sent.3).collect();
        let fits = |frame: &&(u64, u32, u8, u32)| frame.3 <= if frame.1 == 0 { 200 } else { 300 };
        prop_assert_eq!(on_air.len(), frames.iter().filter(fits).count());
        prop_assert_eq!(log.dropped.len(), frames.len() - on_air.len());
        for sent in &on_air {
            let slots = network.ports[sent.1 as usize].slots.as_ref().expect("slots");
            let (start, end) = (sent.2 % 1_000, sent.2 % 1_000 + (sent.3 - sent.2));
            prop_assert!(slots.ranges().iter().any(|slot| slot.0 <= start && end <= slot.1), "{sent:?}");
            let frame = &frames[sent.0 as usize];
            prop_assert!(sent.2 >= frame.0);
        }
        for (position, sent) in on_air.iter().enumerate() {
            for other in &on_air[position + 1..] {
                prop_assert!(sent.3 <= other.2 || other.3 <= sent.2, "{sent:?} meets {other:?}");
            }
        }
    }
}

/// The more urgent of two that come at one instant goes first, also where it does not fit into the slot and the other one would.
#[test]
fn of_one_instant_the_most_urgent_keeps_its_turn() {
    let network = wire(slotted(1_000, &[(0, 300)], QueueDecl::StrictPriority));
    let sent = |frames: &[(u64, u32, u8, u32)]| -> Vec<(u64, u64)> {
        run(&network, frames)
            .sent
            .iter()
            .map(|sent| (sent.0, sent.2))
            .collect()
    };
    assert_eq!(
        sent(&[(100, 0, 1, 100), (100, 0, 3, 250)]),
        [(1, 1_000), (0, 2_000)]
    );
    assert_eq!(sent(&[(100, 0, 1, 100), (100, 0, 3, 90)]), [(1, 100), (0, 190)]);
}

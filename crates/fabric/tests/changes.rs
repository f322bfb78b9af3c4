//! What a change means for the frames that are there when it comes, and links that are down at random.

mod common;
use common::{TICKS, direction, host, link, network, switch};
use proptest::prelude::*;
use std::sync::Arc;
use timebound_fabric::{Change, DropReason, Fabric, Frame, NO_STREAM, Route, Sink};
use timebound_model::declaration::{
    DirectionDecl, DisconnectionDistribution, DisconnectionsDecl, JitterDecl, JitterDistribution,
};
use timebound_model::{Class, Network, NodeId, PortId, Rate, Span, Time, WireBytes};

const OUT: PortId = PortId(0);
const BACK: PortId = PortId(1);

#[derive(Default, Debug, PartialEq, Eq)]
struct Log {
    /// (Tag, arrival).
    delivered: Vec<(u64, u64)>,
    /// (Tag, time, reason).
    dropped: Vec<(u64, u64, DropReason)>,
}

impl Sink for Log {
    fn delivered(&mut self, at: Time, _: NodeId, _: u32, frame: &Frame, _: bool) {
        self.delivered.push((frame.tag, at.0));
    }
    fn dropped(&mut self, at: Time, _: Option<PortId>, frame: &Frame, reason: DropReason) {
        self.dropped.push((frame.tag, at.0, reason));
    }
    fn copied(&mut self, _: u32, _: u32) {}
}

fn wire(direction: DirectionDecl) -> Arc<Network> {
    network(
        vec![host("a"), host("b")],
        vec![link("a", "b", direction)],
        vec![],
    )
}

/// Frames from `from` to the other host: (time, wire bytes).
fn send(fabric: &mut Fabric, from: u32, first_tag: u64, frames: &[(u64, u32)]) {
    for (tag, (at, wire)) in (first_tag..).zip(frames) {
        let frame = Frame {
            handle: 0,
            wire: WireBytes(*wire),
            class: Class(0),
            route: Route::Unicast(NodeId(1 - from)),
            stream: NO_STREAM,
            tag,
        };
        fabric.ingress(Time(*at), NodeId(from), frame);
    }
}

fn run(network: &Arc<Network>, changes: &[(u64, Change)], frames: &[(u64, u32)]) -> Log {
    let mut fabric = Fabric::new(Arc::clone(network), 7);
    for (at, change) in changes {
        fabric.schedule(Time(*at), change.clone());
    }
    send(&mut fabric, 0, 0, frames);
    let mut log = Log::default();
    fabric.advance(Time::MAX, &mut log);
    log
}

#[test]
fn the_frame_in_transmission_ends_at_the_old_rate_and_those_that_wait_use_the_new_one() {
    let changes = [
        (50, Change::Rate(OUT, Rate(TICKS / 4))),
        (520, Change::Rate(OUT, Rate(TICKS))),
    ];
    let log = run(
        &wire(direction(TICKS, 0)),
        &changes,
        &[(0, 100), (1, 100), (2, 100), (3, 100)],
    );
    // 0..100 as it began; 100..500 at a quarter; 500..900 began at a quarter; then full again.
    assert_eq!(log.delivered, [(0, 100), (1, 500), (2, 900), (3, 1_000)]);
}

#[test]
fn a_shorter_delay_keeps_the_order_unless_the_link_reorders() {
    let changes = [(150, Change::Propagation(OUT, Span(10)))];
    let frames = [(0, 100), (100, 100), (200, 100)];
    let ordered = run(&wire(direction(TICKS, 1_000)), &changes, &frames);
    assert_eq!(ordered.delivered, [(0, 1_100), (1, 1_100), (2, 1_100)]);
    let mut way = direction(TICKS, 1_000);
    way.impairments.jitter = Some(JitterDecl {
        distribution: JitterDistribution::Uniform { max_ns: 0 },
        reorder: true,
    });
    let free = run(&wire(way), &changes, &frames);
    assert_eq!(free.delivered, [(1, 210), (2, 310), (0, 1_100)]);
}

#[test]
fn a_link_that_stops_reordering_keeps_the_order_of_what_is_under_way() {
    let mut way = direction(TICKS, 1_000);
    way.impairments.jitter = Some(JitterDecl {
        distribution: JitterDistribution::Uniform { max_ns: 0 },
        reorder: true,
    });
    let network = wire(way);
    let changes = [
        (
            150,
            Change::Impairments(OUT, timebound_model::Impairments::default()),
        ),
        (150, Change::Propagation(OUT, Span(0))),
    ];
    let log = run(&network, &changes, &[(0, 100), (150, 100)]);
    assert_eq!(log.delivered, [(0, 1_100), (1, 1_100)]);
}

#[test]
fn a_smaller_buffer_throws_nothing_out() {
    let changes = [(10, Change::Buffer(OUT, 100)), (250, Change::Buffer(OUT, 300))];
    let frames = [(0, 100), (0, 100), (0, 100), (20, 100), (260, 100), (261, 100)];
    let log = run(&wire(direction(TICKS, 0)), &changes, &frames);
    // Two wait when the room becomes that of one; the fourth finds none, the fifth and sixth find enough again.
    assert_eq!(log.dropped, [(3, 20, DropReason::Buffer)]);
    assert_eq!(log.delivered, [(0, 100), (1, 200), (2, 300), (4, 400), (5, 500)]);
}

#[test]
fn one_direction_alone_goes_down() {
    let network = wire(direction(TICKS, 0));
    let mut fabric = Fabric::new(Arc::clone(&network), 1);
    fabric.schedule(Time(50), Change::PortDown(OUT));
    fabric.schedule(Time(350), Change::PortUp(OUT));
    send(&mut fabric, 0, 0, &[(0, 100), (200, 100), (300, 100), (400, 100)]);
    send(&mut fabric, 1, 10, &[(0, 100), (200, 100)]);
    let mut log = Log::default();
    fabric.advance(Time::MAX, &mut log);
    log.delivered.sort_unstable();
    assert_eq!(log.delivered, [(3, 500), (10, 100), (11, 300)]);
    let lost: Vec<u64> = log.dropped.iter().map(|drop| drop.0).collect();
    assert_eq!(
        lost,
        [0, 1, 2],
        "a frame of which any part was sent while it was down"
    );
}

#[test]
fn held_frames_go_when_the_link_is_back_and_the_one_under_way_is_lost() {
    let mut way = direction(TICKS, 0);
    way.impairments.held = true;
    way.impairments.outages = vec![(50, 400), (450, 1_000)];
    way.buffer_bytes = 300;
    let frames = [
        (0, 100),
        (10, 100),
        (100, 100),
        (200, 100),
        (210, 100),
        (1_200, 100),
    ];
    let log = run(&wire(way), &[], &frames);
    // The second starts at 400 and meets the second outage; the buffer held three.
    assert_eq!(
        log.dropped,
        [
            (0, 100, DropReason::Outage),
            (4, 210, DropReason::Buffer),
            (1, 500, DropReason::Outage)
        ]
    );
    assert_eq!(log.delivered, [(2, 1_100), (3, 1_200), (5, 1_300)]);
}

#[test]
fn a_held_port_lets_others_have_the_medium() {
    let mut way = direction(TICKS, 0);
    way.impairments.held = true;
    let mut shared = link("a", "b", way);
    shared.half_duplex = true;
    let network = network(vec![host("a"), host("b")], vec![shared], vec![]);
    let mut fabric = Fabric::new(network, 1);
    fabric.schedule(Time(20), Change::PortDown(OUT));
    fabric.schedule(Time(1_000), Change::PortUp(OUT));
    send(&mut fabric, 1, 10, &[(0, 100), (5, 100), (500, 100)]);
    // It has asked for the medium before its link went down.
    send(&mut fabric, 0, 0, &[(10, 100), (300, 100)]);
    let mut log = Log::default();
    fabric.advance(Time::MAX, &mut log);
    assert_eq!(log.dropped, []);
    assert_eq!(
        log.delivered,
        [(10, 100), (11, 200), (12, 600), (0, 1_100), (1, 1_200)]
    );
}

fn disconnected(distribution: DisconnectionDistribution, held: bool) -> Arc<Network> {
    let mut way = direction(TICKS, 0);
    way.impairments.held = held;
    way.impairments.disconnections = Some(DisconnectionsDecl {
        mean_up_ns: 3_000_000,
        mean_down_ns: 1_000_000,
        distribution,
    });
    wire(way)
}

#[test]
fn fixed_disconnections_lose_or_hold_what_falls_into_them() {
    let frames: Vec<(u64, u32)> = (0..80).map(|index| (index * 100_000 + 7, 100)).collect();
    let lost = run(
        &disconnected(DisconnectionDistribution::Fixed, false),
        &[],
        &frames,
    );
    let tags: Vec<u64> = lost.dropped.iter().map(|drop| drop.0).collect();
    assert_eq!(tags, (30..40).chain(70..80).collect::<Vec<u64>>());
    let held = run(
        &disconnected(DisconnectionDistribution::Fixed, true),
        &[],
        &frames,
    );
    assert_eq!(held.dropped, []);
    let at = |tag: usize| held.delivered[tag];
    assert_eq!(at(29), (29, 2_900_107));
    assert_eq!(at(30), (30, 4_000_100));
    assert_eq!(at(39), (39, 4_001_000));
    assert_eq!(at(40), (40, 4_001_100), "behind those that waited");
    assert_eq!(at(41), (41, 4_100_107));
}

#[test]
fn both_directions_are_disconnected_together() {
    let network = disconnected(DisconnectionDistribution::Exponential, false);
    let frames: Vec<(u64, u32)> = (0..2_000).map(|index| (index * 50_000, 100)).collect();
    let mut fabric = Fabric::new(network, 3);
    send(&mut fabric, 0, 0, &frames);
    send(&mut fabric, 1, 10_000, &frames);
    let mut log = Log::default();
    fabric.advance(Time::MAX, &mut log);
    let lost = |from: u64| -> Vec<u64> {
        log.dropped
            .iter()
            .filter(|drop| drop.0 / 10_000 == from)
            .map(|drop| drop.0 % 10_000)
            .collect()
    };
    assert_eq!(lost(0), lost(1));
    assert!((300..700).contains(&lost(0).len()), "{} of 2000", lost(0).len());
}

proptest! {
    #[test]
    fn disconnections_depend_on_time_alone(seed: u64, changed in 0u64..50_000_000, load in 1usize..400) {
        // The same change on both directions of a link that carry different loads: they stay together.
        let network = disconnected(DisconnectionDistribution::Exponential, false);
        let other = timebound_model::Impairments {
            disconnections: Some(DisconnectionsDecl {
                mean_up_ns: 1_000_000,
                mean_down_ns: 2_000_000,
                distribution: DisconnectionDistribution::Exponential,
            }),
            ..timebound_model::Impairments::default()
        };
        let mut fabric = Fabric::new(network, seed);
        for port in [OUT, BACK] {
            fabric.schedule(Time(changed), Change::Impairments(port, other.clone()));
        }
        let probes: Vec<(u64, u32)> = (0..200).map(|index| (100_000_000 + index * 100_000, 84)).collect();
        let before: Vec<(u64, u32)> = (0..load as u64).map(|index| (index * 40_000, 84)).collect();
        send(&mut fabric, 0, 1_000_000, &before);
        send(&mut fabric, 0, 0, &probes);
        send(&mut fabric, 1, 10_000, &probes);
        let mut log = Log::default();
        fabric.advance(Time::MAX, &mut log);
        let lost = |from: u64| -> Vec<u64> {
            log.dropped.iter().filter(|drop| drop.0 / 10_000 == from).map(|drop| drop.0 % 10_000).collect()
        };
        prop_assert_eq!(lost(0), lost(1));
    }
}

#[test]
fn a_change_of_other_conditions_leaves_a_burst_of_losses_where_it_is() {
    use timebound_model::declaration::LossDecl;
    let mut way = direction(TICKS, 0);
    way.impairments.loss = Some(LossDecl::GilbertElliott {
        good_to_bad: 0.05,
        bad_to_good: 0.05,
        loss_in_good: 0.0,
        loss_in_bad: 1.0,
    });
    let network = wire(way);
    let frames: Vec<(u64, u32)> = (0..400).map(|index| (index * 1_000, 84)).collect();
    let plain = run(&network, &[], &frames);
    let mut later = network.ports[0].impairments.clone();
    later.corruption_drops = true;
    let changes: Vec<(u64, Change)> = (1..40)
        .map(|index| (index * 10_000 + 500, Change::Impairments(OUT, later.clone())))
        .collect();
    assert_eq!(run(&network, &changes, &frames), plain);
    assert!(plain.dropped.len() > 50);
}

#[test]
fn a_bridge_between_two_segments_stores_and_forwards() {
    use timebound_model::declaration::{NodeDecl, NodeKindDecl};
    let segment = |name: &str| NodeDecl {
        name: name.to_owned(),
        kind: NodeKindDecl::Segment,
        switching_min_ns: 0,
        switching_max_ns: 0,
        replication_min_ns: 0,
        replication_max_ns: 0,
    };
    let way = direction(TICKS, 0);
    let network = network(
        vec![
            host("a"),
            host("b"),
            segment("n1"),
            segment("n2"),
            switch("bridge", 5, 5),
        ],
        ["a n1", "n1 bridge", "bridge n2", "n2 b"]
            .iter()
            .filter_map(|ends| ends.split_once(' '))
            .map(|(from, to)| link(from, to, way.clone()))
            .collect(),
        vec![],
    );
    let log = run(&network, &[], &[(0, 100), (0, 100)]);
    // Once over each segment: 100 on the first, 5 within the bridge, 100 on the second.
    assert_eq!(log.delivered, [(0, 205), (1, 305)]);
}

//! One port: disciplines, buffers, links, changes.

mod common;
use common::{TICKS, direction, host, link, network};
use proptest::prelude::*;
use std::sync::Arc;
use timebound_fabric::{Change, DropReason, Fabric, Frame, NO_STREAM, Route, Sink, Ties, loss_verdicts};
use timebound_model::declaration::{DirectionDecl, JitterDecl, JitterDistribution, LossDecl, QueueDecl};
use timebound_model::{Class, LinkId, Network, NodeId, PortId, Rate, Span, Time, WireBytes};

const OUT: PortId = PortId(0);
const SOURCE: NodeId = NodeId(0);

fn wire(direction: DirectionDecl) -> Arc<Network> {
    network(
        vec![host("a"), host("b")],
        vec![link("a", "b", direction)],
        vec![],
    )
}

fn frame(tag: u64, class: u8, bytes: u32) -> Frame {
    let route = Route::Unicast(NodeId(1));
    Frame {
        handle: 0,
        wire: WireBytes(bytes),
        class: Class(class),
        route,
        stream: NO_STREAM,
        tag,
    }
}

#[derive(Default)]
struct Log {
    /// (Tag, started, ended).
    sent: Vec<(u64, u64, u64)>,
    /// (Tag, arrival, damaged).
    delivered: Vec<(u64, u64, bool)>,
    dropped: Vec<(u64, DropReason)>,
}

impl Sink for Log {
    const TRANSMISSIONS: bool = true;
    fn delivered(&mut self, at: Time, _: NodeId, _: u32, frame: &Frame, damaged: bool) {
        self.delivered.push((frame.tag, at.0, damaged));
    }
    fn dropped(&mut self, _: Time, _: Option<PortId>, frame: &Frame, reason: DropReason) {
        self.dropped.push((frame.tag, reason));
    }
    fn copied(&mut self, _: u32, _: u32) {}
    fn transmitted(&mut self, _: PortId, started: Time, ended: Time, frame: &Frame) {
        self.sent.push((frame.tag, started.0, ended.0));
    }
}

fn run(network: &Arc<Network>, changes: &[(u64, Change)], frames: &[(u64, u8, u32)]) -> Log {
    run_with(network, Ties::ByClass, changes, frames)
}

fn run_with(network: &Arc<Network>, ties: Ties, changes: &[(u64, Change)], frames: &[(u64, u8, u32)]) -> Log {
    let mut fabric = Fabric::new(Arc::clone(network), 7);
    fabric.set_ties(ties);
    for (at, change) in changes {
        fabric.schedule(Time(*at), change.clone());
    }
    for (tag, (at, class, bytes)) in (0u64..).zip(frames) {
        fabric.ingress(Time(*at), SOURCE, frame(tag, *class, *bytes));
    }
    let mut log = Log::default();
    fabric.advance(Time::MAX, &mut log);
    log
}

proptest! {
    #[test]
    fn strict_priority_never_serves_a_lower_class_while_a_higher_waits(
        mut frames in proptest::collection::vec((0u64..20_000, 0u8..8, 84u32..1_538), 1..60)
    ) {
        frames.sort_by_key(|frame| frame.0);
        let log = run(&wire(direction(TICKS, 0)), &[], &frames);
        prop_assert_eq!(log.sent.len(), frames.len());
        let mut free_at = None;
        // Whoever has entered when a frame starts, be it at that instant, goes before those of lower classes.
        for (position, &(tag, started, ended)) in log.sent.iter().enumerate() {
            let class = frames[tag as usize].1;
            for &(other, _, _) in &log.sent[position + 1..] {
                let (entered, other_class, _) = frames[other as usize];
                let waited = entered <= started;
                prop_assert!(!(waited && other_class > class), "{other} waited for {tag}");
                prop_assert!(!(waited && other_class == class && other < tag), "{other} came before {tag}");
            }
            // Work conserving: it starts when it enters or when the port gets free.
            prop_assert!(started == frames[tag as usize].0 || free_at == Some(started));
            free_at = Some(ended);
        }
    }

    #[test]
    fn fifo_ignores_classes(mut frames in proptest::collection::vec((0u64..20_000, 0u8..8, 84u32..1_538), 1..60)) {
        frames.sort_by_key(|frame| frame.0);
        let log = run(&wire(DirectionDecl { queue: QueueDecl::Fifo, ..direction(TICKS, 0) }), &[], &frames);
        prop_assert!(log.sent.iter().map(|sent| sent.0).eq(0..frames.len() as u64));
    }

    #[test]
    fn deficit_round_robin_shares_by_quanta(quanta_bytes in proptest::array::uniform8(1u32..4_000), bytes in proptest::array::uniform8(84u32..1_538)) {
        // All classes always wait: each gets its share, give or take a quantum and a frame per round of service.
        let queue = QueueDecl::Drr { quanta_bytes };
        let frames: Vec<(u64, u8, u32)> =
            (0..1_600usize).map(|index| (0, (index % 8) as u8, bytes[index % 8])).collect();
        let log = run(&wire(DirectionDecl { queue, ..direction(TICKS, 0) }), &[], &frames);
        let mut served = [0u64; 8];
        let mut left = [200; 8];
        for &(tag, _, _) in &log.sent {
            let class = (tag % 8) as usize;
            served[class] += u64::from(bytes[class]);
            left[class] -= 1;
            if left[class] == 0 {
                break;
            }
        }
        // Shreedhar and Varghese 1996, lemma 2: |served / quantum - rounds| stays below 1 + largest frame / quantum.
        let rounds = |class: usize| served[class] as f64 / f64::from(quanta_bytes[class]);
        let slack = |class: usize| 1.0 + f64::from(bytes[class]) / f64::from(quanta_bytes[class]);
        for one in 0..8 {
            for other in 0..8 {
                let apart = (rounds(one) - rounds(other)).abs();
                prop_assert!(apart <= slack(one) + slack(other), "classes {one} and {other}: {apart} rounds apart");
            }
        }
    }

    #[test]
    fn the_buffer_drops_the_tail(buffer_bytes in 0u64..5_000, sizes in proptest::collection::vec(84u32..1_538, 1..30)) {
        let frames: Vec<(u64, u8, u32)> = sizes.iter().map(|bytes| (0, 0, *bytes)).collect();
        let log = run(&wire(DirectionDecl { buffer_bytes, ..direction(TICKS, 0) }), &[], &frames);
        let mut waiting = 0;
        let mut dropped = Vec::new();
        for (tag, bytes) in (0u64..).zip(&sizes).skip(1) {
            if waiting + u64::from(*bytes) > buffer_bytes {
                dropped.push((tag, DropReason::Buffer));
            } else {
                waiting += u64::from(*bytes);
            }
        }
        prop_assert_eq!(log.dropped, dropped);
    }
}

#[test]
fn a_frame_that_finds_a_weighted_port_idle_has_had_its_turn() {
    let mut way = direction(TICKS, 0);
    way.queue = QueueDecl::Drr {
        quanta_bytes: [100; 8],
    };
    // Behind 1, which waited, it is the turn of the classes below. 2 finds the port idle and takes it, so that 4 goes before 3.
    let frames = [
        (0, 5, 100),
        (50, 5, 100),
        (250, 3, 100),
        (260, 3, 100),
        (270, 5, 100),
    ];
    let log = run(&wire(way), &[], &frames);
    let order: Vec<(u64, u64)> = log.sent.iter().map(|sent| (sent.0, sent.2)).collect();
    assert_eq!(order, [(0, 100), (1, 200), (2, 350), (4, 450), (3, 550)]);
}

#[test]
fn a_frame_that_comes_while_the_last_of_its_class_is_under_way_belongs_to_its_visit() {
    let mut way = direction(TICKS, 0);
    let mut quanta_bytes = [1_000; 8];
    quanta_bytes[5] = 3_000;
    way.queue = QueueDecl::Drr { quanta_bytes };
    // 5 finds 4 under way, and its class with most of a quantum. If it had to wait for the visit of 2 and 3, it would be there 2198 ns after it
    // came, where no more than a visit of 1000 bytes, the 1000 that a class of frames of 1001 can keep, and 5 itself were to go.
    let frames = [
        (0, 7, 100),
        (1, 3, 1_001),
        (2, 3, 1_000),
        (3, 3, 999),
        (1_001, 5, 100),
        (1_102, 5, 100),
    ];
    let log = run(&wire(way), &[], &frames);
    let order: Vec<(u64, u64)> = log.sent.iter().map(|sent| (sent.0, sent.2)).collect();
    assert_eq!(
        order,
        [
            (0, 100),
            (1, 1_101),
            (4, 1_201),
            (5, 1_301),
            (2, 2_301),
            (3, 3_300)
        ]
    );
}

#[test]
fn a_flood_of_a_lower_class_takes_no_room_from_a_higher_one() {
    let room = 3_000;
    let mut frames: Vec<(u64, u8, u32)> = (0..20).map(|_| (0, 0, 1_000)).collect();
    frames.extend([(1, 7, 1_000), (1, 7, 1_000), (1, 7, 1_000), (1, 7, 1_000)]);
    let log = run(
        &wire(DirectionDecl {
            buffer_bytes: room,
            ..direction(TICKS, 0)
        }),
        &[],
        &frames,
    );
    let urgent: Vec<_> = log.dropped.iter().filter(|(tag, _)| *tag >= 20).collect();
    assert_eq!(
        urgent,
        [&(23, DropReason::Buffer)],
        "three frames of 1000 bytes fit into 3000"
    );
    assert_eq!(log.dropped.len(), 16 + 1);
}

#[test]
fn late_stamps_enter_after_the_time_reached() {
    let network = wire(direction(TICKS, 0));
    let mut fabric = Fabric::new(network, 1);
    let mut log = Log::default();
    assert_eq!(
        fabric.ingress(Time(0), SOURCE, frame(0, 0, 100)),
        Time(0),
        "nothing has happened yet"
    );
    fabric.advance(Time(50), &mut log);
    assert_eq!(fabric.next_timeout(), Some(Time(100)));
    assert_eq!(fabric.ingress(Time(50), SOURCE, frame(1, 0, 100)), Time(51));
    assert_eq!(fabric.ingress(Time(20), SOURCE, frame(2, 0, 100)), Time(51));
    assert_eq!(fabric.ingress(Time(51), SOURCE, frame(3, 0, 100)), Time(51));
    assert_eq!(fabric.next_timeout(), Some(Time(51)));
    fabric.advance(Time::MAX, &mut log);
    assert_eq!(
        log.delivered,
        [(0, 100, false), (1, 200, false), (2, 300, false), (3, 400, false)]
    );
}

#[test]
fn equal_stamps_enter_in_the_order_of_calls() {
    let mut fabric = Fabric::new(wire(direction(TICKS, 0)), 1);
    for (tag, at) in (0..).zip([500, 100, 100, 50, 100]) {
        fabric.ingress(Time(at), SOURCE, frame(tag, 0, 84));
    }
    let mut log = Log::default();
    fabric.advance(Time::MAX, &mut log);
    assert!(log.sent.iter().map(|sent| sent.0).eq([3, 1, 2, 4, 0]));
}

#[test]
fn changes_take_effect_at_their_time() {
    let network = wire(direction(TICKS, 10));
    let changes = [
        (100, Change::Rate(OUT, Rate(TICKS / 2))),
        (400, Change::Propagation(OUT, Span(1_000))),
        (2_000, Change::LinkDown(LinkId(0))),
        (2_500, Change::LinkUp(LinkId(0))),
    ];
    let frames = [
        (0, 0, 100),
        (0, 0, 100),
        (350, 0, 100),
        (1_900, 0, 100),
        (2_450, 0, 100),
        (3_000, 0, 100),
    ];
    let log = run(&network, &changes, &frames);
    // The first still at the old rate; the second starts at 100, when the change comes first; the third ends at 550.
    assert_eq!(
        log.delivered,
        [
            (0, 110, false),
            (1, 310, false),
            (2, 1_550, false),
            (5, 4_200, false)
        ]
    );
    assert_eq!(
        log.dropped,
        [(3, DropReason::Outage), (4, DropReason::Outage)],
        "any part under an outage is lost"
    );
}

#[test]
fn losses_are_exactly_the_seeded_verdicts() {
    let mut way = direction(TICKS, 0);
    way.impairments.loss = Some(LossDecl::Bernoulli { probability: 0.3 });
    way.impairments.duplication = 0.2;
    let network = wire(way);
    let frames: Vec<(u64, u8, u32)> = (0..500)
        .map(|index| (index * 10, (index % 8) as u8, 84))
        .collect();
    let log = run(&network, &[], &frames);
    let lost: Vec<u64> = log.dropped.iter().map(|drop| drop.0).collect();
    let verdicts = loss_verdicts(&network, 7, OUT, frames.len());
    let expected: Vec<u64> = log
        .sent
        .iter()
        .zip(&verdicts)
        .filter(|(_, lost)| **lost)
        .map(|(sent, _)| sent.0)
        .collect();
    assert_eq!(lost, expected);
    assert!((100..200).contains(&lost.len()));
    assert_ne!(verdicts, loss_verdicts(&network, 8, OUT, frames.len()));
    assert_ne!(
        verdicts,
        loss_verdicts(&network, 7, PortId(1), frames.len()),
        "directions draw apart"
    );
}

#[test]
fn jitter_keeps_the_order_unless_it_may_not() {
    for reorder in [false, true] {
        let mut way = direction(TICKS, 100);
        way.impairments.jitter = Some(JitterDecl {
            distribution: JitterDistribution::Uniform { max_ns: 5_000 },
            reorder,
        });
        let frames: Vec<(u64, u8, u32)> = (0..300).map(|index| (index * 100, 0, 84)).collect();
        let log = run(&wire(way), &[], &frames);
        let in_order = log.delivered.iter().map(|delivered| delivered.0).is_sorted();
        assert_eq!(in_order, !reorder);
        assert!(log.delivered.iter().map(|delivered| delivered.1).is_sorted());
        for (tag, at, _) in log.delivered {
            let least = tag * 100 + 84 + 100;
            assert!((least..=least + 5_000).contains(&at), "{tag} arrived at {at}");
        }
    }
}

#[test]
fn corruption_damages_or_drops() {
    for drops in [false, true] {
        let mut way = direction(TICKS, 0);
        (way.impairments.corruption, way.impairments.corruption_drops) = (0.5, drops);
        let frames: Vec<(u64, u8, u32)> = (0..200).map(|index| (index * 100, 0, 84)).collect();
        let log = run(&wire(way), &[], &frames);
        let damaged = log.delivered.iter().filter(|delivered| delivered.2).count();
        let hit = if drops { log.dropped.len() } else { damaged };
        assert!((70..130).contains(&hit), "{hit}");
        assert_eq!(damaged == 0, drops);
        assert_eq!(log.dropped.is_empty(), !drops);
    }
}

/// Each frame by itself would take 20,161 ns: the last one would be over 13 us late.
#[test]
fn sixteen_thousand_packets_on_an_overloaded_line_end_when_their_bits_do() {
    let frames: Vec<(u64, u8, u32)> = (0..16_000).map(|_| (0, 0, 84)).collect();
    let log = run(&wire(direction(33_333_333, 0)), &[], &frames);
    // 16,000 x 672 bits at 33.333333 Mbit/s are 322,560,003.2256 ns.
    assert_eq!(log.sent.last(), Some(&(15_999, log.sent[15_998].2, 322_560_004)));
    assert_eq!(log.sent[0], (0, 0, 20_161));
}

/// 90 bytes take 7.2 ns at 100 Gbit/s: after the fifth frame nothing is left over.
#[test]
fn what_a_frame_leaves_of_a_nanosecond_is_the_next_ones() {
    let ended = |changes: &[(u64, Change)], frames: &[(u64, u8, u32)]| -> Vec<u64> {
        let log = run(&wire(direction(100_000_000_000, 0)), changes, frames);
        log.sent.iter().map(|sent| sent.2).collect()
    };
    let frame = |at: u64| (at, 0, 90);
    assert_eq!(ended(&[], &[frame(0); 6]), [8, 15, 22, 29, 36, 44]);
    // A pause begins anew, and so does another rate.
    assert_eq!(ended(&[], &[frame(0), frame(0), frame(16)]), [8, 15, 24]);
    let twice = [(3, Change::Rate(OUT, Rate(200_000_000_000)))];
    assert_eq!(ended(&twice, &[frame(0); 3]), [8, 12, 16]);
}

/// The first bits of all come at one instant: the class decides who goes first, not the order in which somebody declared them.
#[test]
fn of_one_instant_the_most_urgent_goes_first() {
    let order = |ties: Ties, frames: &[(u64, u8, u32)]| -> Vec<(u64, u64, u64)> {
        run_with(&wire(direction(TICKS, 0)), ties, &[], frames).sent
    };
    let idle = [(5, 1, 100), (5, 3, 200), (5, 3, 84), (5, 7, 300), (5, 1, 84)];
    assert_eq!(
        order(Ties::ByClass, &idle),
        [
            (3, 5, 305),
            (1, 305, 505),
            (2, 505, 589),
            (0, 589, 689),
            (4, 689, 773)
        ]
    );
    assert_eq!(
        order(Ties::ByArrival, &idle),
        [
            (0, 5, 105),
            (3, 105, 405),
            (1, 405, 605),
            (2, 605, 689),
            (4, 689, 773)
        ]
    );
    // The end of one that had to go back is not that of the one in its place: equal, longer, shorter.
    for bytes in [100, 150, 84] {
        let two = [(5, 1, 100), (5, 3, bytes)];
        let end = 5 + u64::from(bytes);
        assert_eq!(order(Ties::ByClass, &two), [(1, 5, end), (0, end, end + 100)]);
    }
}

#[test]
fn one_that_goes_back_needs_no_room_and_leaves_no_rest() {
    // Room for one frame: the first to come is under way, the other one waits, whoever is which.
    let narrow = wire(DirectionDecl {
        buffer_bytes: 100,
        ..direction(TICKS, 0)
    });
    let log = run(&narrow, &[], &[(0, 1, 100), (0, 2, 100), (0, 1, 84)]);
    assert_eq!(log.sent, [(1, 0, 100), (0, 100, 200)]);
    assert_eq!(log.dropped.len(), 1);
    // 90 bytes take 7.2 ns: what the one that went back would have left of its last nanosecond is not there.
    let fast = wire(direction(100_000_000_000, 0));
    let ends = |frames: &[(u64, u8, u32)]| -> Vec<u64> {
        run(&fast, &[], frames).sent.iter().map(|sent| sent.2).collect()
    };
    assert_eq!(ends(&[(0, 1, 90), (0, 2, 90), (0, 2, 90)]), [8, 15, 22]);
}

//! Switches that are not ours: handed over at the virtual arrival, taken back at the stamp, delays in between theirs alone.

mod common;
use common::{direction, host, link, network, stream, switch};
use proptest::prelude::*;
use std::sync::Arc;
use timebound_fabric::{Fabric, Frame, Handed, NO_LEAF, NO_STREAM, Reentry, Route, Sink};
use timebound_model::{Class, Network, NodeId, PortId, StreamId, Time, WireBytes};

#[derive(Default)]
struct Log {
    delivered: Vec<(Time, NodeId, u32, u64)>,
    handed: Vec<Handed>,
    dropped: usize,
    copied: u32,
}

impl Sink for Log {
    fn delivered(&mut self, at: Time, host: NodeId, leaf: u32, frame: &Frame, _: bool) {
        self.delivered.push((at, host, leaf, frame.tag));
    }
    fn dropped(&mut self, _: Time, _: Option<PortId>, _: &Frame, _: timebound_fabric::DropReason) {
        self.dropped += 1;
    }
    fn copied(&mut self, _: u32, extra: u32) {
        self.copied += extra;
    }
    fn handed(&mut self, handed: &Handed) {
        self.handed.push(*handed);
    }
}

/// h1 - s1 - s2 - h2, h3 at s2; a stream to one receiver and one to both. 1 byte takes 800 ns on every link.
fn line() -> Arc<Network> {
    let slow = || direction(10_000_000, 1_000);
    network(
        vec![
            host("h1"),
            host("h2"),
            host("h3"),
            switch("s1", 50_000, 2_000_000),
            switch("s2", 7_000, 7_000),
        ],
        vec![
            link("h1", "s1", slow()),
            link("s1", "s2", slow()),
            link("s2", "h2", slow()),
            link("s2", "h3", slow()),
        ],
        vec![
            stream("one", "h1", &["h2"], 5, (10_000_000, 0), 100),
            stream("both", "h1", &["h3", "h2"], 3, (10_000_000, 0), 100),
        ],
    )
}

const S1: NodeId = NodeId(3);
const S2: NodeId = NodeId(4);

fn frame(route: Route, class: u8, tag: u64) -> Frame {
    let stream = match route {
        Route::Tree(stream) => stream.0,
        _ => NO_STREAM,
    };
    Frame {
        handle: 0,
        wire: WireBytes(100),
        class: Class(class),
        route,
        stream,
        tag,
    }
}

fn port(network: &Network, from: NodeId, to: NodeId) -> PortId {
    network.port_between(from, to).expect("neighbours")
}

/// A real switch that takes `transit` and sends every frame along its tree.
fn forward(fabric: &mut Fabric, log: &mut Log, transit: u64, ways: &[(NodeId, PortId)]) {
    for handed in std::mem::take(&mut log.handed) {
        let switch = fabric.network().ports[handed.port.index()].peer;
        for (_, port) in ways.iter().filter(|(at, _)| *at == switch) {
            let reentry = Reentry {
                port: *port,
                frame: handed.frame,
                damaged: handed.damaged,
            };
            assert_eq!(
                fabric.reentry(Time(handed.at.0 + transit), reentry),
                Some(Time(handed.at.0 + transit))
            );
        }
    }
}

#[test]
fn a_frame_is_handed_over_when_its_last_bit_is_there_and_goes_on_when_the_switch_sends_it() {
    let network = line();
    let mut fabric = Fabric::new(Arc::clone(&network), 1);
    fabric.hand_over(&[S1]);
    let mut log = Log::default();
    fabric.ingress(Time(0), NodeId(0), frame(Route::Tree(StreamId(0)), 5, 1));
    fabric.advance(Time(90_000), &mut log);
    // 100 bytes and the cable; nothing of the declared 50 us to 2 ms.
    assert_eq!(log.handed.len(), 1);
    assert_eq!((log.handed[0].at, fabric.frames_inside()), (Time(81_000), 0));
    forward(&mut fabric, &mut log, 123_456, &[(S1, port(&network, S1, S2))]);
    fabric.advance(Time::MAX, &mut log);
    // Its leaf is that of the tree, behind a switch of ours with its own delay.
    let arrived = 81_000 + 123_456 + 81_000 + 7_000 + 81_000;
    assert_eq!(log.delivered, [(Time(arrived), NodeId(1), 0, 1)]);
}

#[test]
fn copies_that_a_switch_makes_reach_their_leaves() {
    let network = line();
    let mut fabric = Fabric::new(Arc::clone(&network), 1);
    fabric.hand_over(&[S1, S2]);
    let mut log = Log::default();
    fabric.ingress(Time(0), NodeId(0), frame(Route::Tree(StreamId(1)), 3, 9));
    let ways = [
        (S1, port(&network, S1, S2)),
        (S2, port(&network, S2, NodeId(1))),
        (S2, port(&network, S2, NodeId(2))),
    ];
    for step in 1..20 {
        fabric.advance(Time(step * 100_000), &mut log);
        forward(&mut fabric, &mut log, 200_000, &ways);
    }
    fabric.advance(Time::MAX, &mut log);
    let (both, at) = (&log.delivered, Time(3 * 81_000 + 2 * 200_000));
    assert_eq!(both[..], [(at, NodeId(1), 1, 9), (at, NodeId(2), 0, 9)]);
    assert_eq!((log.copied, log.dropped), (0, 0));
}

#[test]
fn the_class_at_the_port_is_that_with_which_the_frame_came_back() {
    let network = line();
    let mut fabric = Fabric::new(Arc::clone(&network), 1);
    fabric.hand_over(&[S1]);
    let mut log = Log::default();
    let to_s2 = port(&network, S1, S2);
    for (tag, class) in [(1, 0), (2, 0), (3, 6)] {
        let frame = frame(Route::Unicast(NodeId(1)), class, tag);
        fabric.reentry(
            Time(10 + tag),
            Reentry {
                port: to_s2,
                frame,
                damaged: false,
            },
        );
    }
    fabric.advance(Time::MAX, &mut log);
    assert_eq!(
        log.delivered.iter().map(|found| found.3).collect::<Vec<_>>(),
        [1, 3, 2]
    );
    assert!(log.delivered.iter().all(|found| found.2 == NO_LEAF));
}

#[test]
fn a_controller_may_send_a_stream_another_way_than_its_tree() {
    // h1 - s1 - s3 - s2 - h2 besides s1 - s2, along which the tree goes; s3 and s2 are ours.
    let slow = || direction(10_000_000, 1_000);
    let network = network(
        vec![
            host("h1"),
            host("h2"),
            switch("s1", 0, 0),
            switch("s2", 0, 0),
            switch("s3", 0, 0),
        ],
        vec![
            link("h1", "s1", slow()),
            link("s1", "s2", slow()),
            link("s2", "h2", slow()),
            link("s1", "s3", slow()),
            link("s3", "s2", slow()),
        ],
        vec![stream("one", "h1", &["h2"], 5, (10_000_000, 0), 100)],
    );
    let mut fabric = Fabric::new(Arc::clone(&network), 1);
    fabric.hand_over(&[NodeId(2)]);
    let mut log = Log::default();
    let detour = port(&network, NodeId(2), NodeId(4));
    let reentry = Reentry {
        port: detour,
        frame: frame(Route::Tree(StreamId(0)), 5, 4),
        damaged: false,
    };
    fabric.reentry(Time(0), reentry);
    fabric.advance(Time::MAX, &mut log);
    assert_eq!(log.delivered, [(Time(3 * 81_000), NodeId(1), 0, 4)]);
    // Straight to the wrong host: it is there, and its leaf is nobody's.
    let back = port(&network, NodeId(2), NodeId(0));
    fabric.reentry(
        Time(10_000_000),
        Reentry {
            port: back,
            ..reentry
        },
    );
    fabric.advance(Time::MAX, &mut log);
    assert_eq!(log.delivered[1].1, NodeId(0));
    assert_eq!((log.delivered[1].2, log.dropped), (NO_LEAF, 0));
}

#[test]
fn what_no_switch_of_the_network_can_have_sent_does_not_enter() {
    let network = line();
    let mut fabric = Fabric::new(Arc::clone(&network), 1);
    fabric.hand_over(&[S1]);
    let sound = Reentry {
        port: port(&network, S1, S2),
        frame: frame(Route::Broadcast, 0, 0),
        damaged: false,
    };
    assert_eq!(fabric.reentry(Time(5), sound), Some(Time(5)));
    let with = |port, route| Reentry {
        port,
        frame: Frame { route, ..sound.frame },
        damaged: false,
    };
    for wrong in [
        with(PortId(99), Route::Broadcast),
        with(port(&network, S2, S1), Route::Broadcast),
        with(sound.port, Route::Tree(StreamId(2))),
        with(sound.port, Route::Unicast(NodeId(99))),
    ] {
        assert_eq!(fabric.reentry(Time(5), wrong), None, "{wrong:?}");
    }
    let mut log = Log::default();
    fabric.advance(Time(1_000), &mut log);
    assert_eq!(
        fabric.reentry(Time(5), sound),
        Some(Time(1_001)),
        "late ones enter as soon as they can"
    );
}

#[test]
fn a_host_leaves_the_choice_to_a_switch_that_is_not_ours() {
    let network = line();
    let mut log = Log::default();
    for real in [false, true] {
        let mut fabric = Fabric::new(Arc::clone(&network), 1);
        if real {
            fabric.hand_over(&[S1]);
        }
        fabric.ingress(Time(0), NodeId(0), frame(Route::Multicast(0xef01_0203), 0, 1));
        fabric.advance(Time::MAX, &mut log);
        assert_eq!(
            (log.handed.len(), log.dropped),
            (usize::from(real), 1),
            "no member anywhere"
        );
    }
}

proptest! {
    /// A real switch that always takes what a switch of ours is declared to take is that switch.
    #[test]
    fn with_the_same_delay_it_is_a_switch_of_ours(
        frames in proptest::collection::vec((0u64..3_000_000, 0u8..8, any::<bool>()), 1..60),
        delay in 1u64..500_000,
    ) {
        let slow = || direction(10_000_000, 1_000);
        let network = network(
            vec![host("h1"), host("h2"), host("h3"), switch("s1", delay, delay)],
            vec![link("h1", "s1", slow()), link("h3", "s1", slow()), link("s1", "h2", slow())],
            Vec::new(),
        );
        let mut logs = [Log::default(), Log::default()];
        for (real, log) in logs.iter_mut().enumerate() {
            let mut fabric = Fabric::new(Arc::clone(&network), 1);
            if real == 1 {
                fabric.hand_over(&[S1]);
            }
            for (tag, (at, class, third)) in frames.iter().enumerate() {
                let host = NodeId(if *third { 2 } else { 0 });
                fabric.ingress(Time(*at), host, frame(Route::Unicast(NodeId(1)), *class, tag as u64));
            }
            // Up to each arrival and no further, as under a clock: what the switch sends must not come too late.
            while let Some(next) = fabric.next_timeout() {
                fabric.advance(next, log);
                for handed in std::mem::take(&mut log.handed) {
                    let port = PortId(4);
                    let reentry = Reentry { port, frame: handed.frame, damaged: false };
                    let at = Time(handed.at.0 + delay);
                    prop_assert_eq!(fabric.reentry(at, reentry), Some(at));
                }
            }
            log.delivered.sort_unstable();
        }
        let [ours, real] = logs;
        let times = |log: &Log| log.delivered.iter().map(|found| found.0).collect::<Vec<_>>();
        prop_assert_eq!(times(&ours), times(&real));
    }
}

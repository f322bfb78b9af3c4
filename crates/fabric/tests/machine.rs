//! What must hold on every network, whatever the traffic.

mod common;
use common::random;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use timebound_fabric::{Draws, DropReason, Fabric, Frame, Route, Sink};
use timebound_model::{Network, NodeId, NodeKind, PortId, Time};

#[derive(Default)]
struct Log {
    delivered: Vec<(Time, NodeId, Frame)>,
    dropped: Vec<(Time, Option<PortId>, DropReason)>,
    copies: u64,
    sent: Vec<(PortId, Time, Time, Frame)>,
}

impl Sink for Log {
    const TRANSMISSIONS: bool = true;
    fn delivered(&mut self, at: Time, host: NodeId, _: u32, frame: &Frame, _: bool) {
        self.delivered.push((at, host, *frame));
    }
    fn dropped(&mut self, at: Time, port: Option<PortId>, _: &Frame, reason: DropReason) {
        self.dropped.push((at, port, reason));
    }
    fn copied(&mut self, _: u32, extra: u32) {
        self.copies += u64::from(extra);
    }
    fn transmitted(&mut self, port: PortId, started: Time, ended: Time, frame: &Frame) {
        self.sent.push((port, started, ended, *frame));
    }
}

/// (Effective stamp, source) of every frame by tag; frames are numbered in the order in which they enter.
fn run(network: &Arc<Network>, draws: &mut Draws, changes: bool) -> (Fabric, Log, Vec<(Time, NodeId)>) {
    let mut fabric = Fabric::new(Arc::clone(network), draws.bits());
    for host in random::hosts(network) {
        fabric.join(draws.up_to(2) as u32, host);
    }
    if changes {
        for (at, change) in random::schedule(network, draws) {
            fabric.schedule(at, change);
        }
    }
    let mut log = Log::default();
    let (mut now, mut entered) = (0, Vec::new());
    for tag in 0..150 {
        now += [0, 0, 500, 20_000][draws.up_to(3) as usize];
        let (source, frame) = random::frame(network, draws, tag);
        entered.push((fabric.ingress(Time(now), source, frame), source));
    }
    fabric.advance(Time::MAX, &mut log);
    (fabric, log, entered)
}

proptest! {
    #[test]
    fn copies_balance_and_counters_agree(seed: u64) {
        let mut draws = Draws::named(seed, "test", "conservation");
        let network = random::network(&mut draws, true);
        let (fabric, log, entered) = run(&network, &mut draws, true);
        prop_assert_eq!(entered.len() as u64 + log.copies, (log.delivered.len() + log.dropped.len()) as u64);
        prop_assert_eq!(fabric.frames_inside(), 0);
        prop_assert_eq!(fabric.next_timeout(), None);
        for port in (0..network.ports.len()).map(PortId::new) {
            let counters = fabric.counters(port);
            let sent = log.sent.iter().filter(|s| s.0 == port);
            prop_assert_eq!(counters.wire_bytes, sent.map(|s| u64::from(s.3.wire.0)).sum::<u64>());
            let lost = log.dropped.iter().filter(|d| d.1 == Some(port));
            prop_assert_eq!(counters.dropped_buffer + counters.dropped_link, lost.count() as u64);
            prop_assert_eq!(counters.queued_bytes, 0);
        }
    }

    #[test]
    fn one_frame_at_a_time_on_every_port_and_medium(seed: u64) {
        let mut draws = Draws::named(seed, "test", "overlap");
        let network = random::network(&mut draws, true);
        let (_, log, _) = run(&network, &mut draws, true);
        let (mut ports, mut media) = (BTreeMap::new(), BTreeMap::new());
        for (port, started, ended, frame) in log.sent {
            let state = &network.ports[port.index()];
            if network.nodes[state.node.index()].kind == NodeKind::Segment {
                prop_assert_eq!(started, ended, "a segment serialised a second time");
                continue;
            }
            prop_assert!(ended > started, "{:?}", frame);
            prop_assert!(ports.insert(port, ended).is_none_or(|before| before <= started));
            if let Some(medium) = state.medium {
                prop_assert!(media.insert(medium, ended).is_none_or(|before| before <= started), "overlap");
            }
        }
    }

    #[test]
    fn no_reordering_within_class_and_way(seed: u64) {
        let mut draws = Draws::named(seed, "test", "order");
        let mut network = random::network(&mut draws, true);
        for port in &mut Arc::make_mut(&mut network).ports {
            if let Some(jitter) = &mut port.impairments.jitter {
                jitter.reorder = false;
            }
        }
        let (_, log, entered) = run(&network, &mut draws, false);
        let mut last = BTreeMap::new();
        for (_, host, frame) in log.delivered {
            let route = match frame.route {
                Route::Tree(stream) => (0, stream.0),
                Route::Unicast(node) => (1, node.0),
                Route::Multicast(group) => (2, group),
                Route::Broadcast => (3, 0),
            };
            let way = (host, entered[frame.tag as usize].1, frame.class, route);
            let before = last.insert(way, frame.tag);
            prop_assert!(before.is_none_or(|before| before <= frame.tag), "{} after {:?}", frame.tag, before);
        }
    }

    #[test]
    fn groups_and_broadcast_reach_each_receiver_once(seed: u64, group in 0u32..3) {
        let mut draws = Draws::named(seed, "test", "flood");
        let network = random::network(&mut draws, false);
        let hosts = random::hosts(&network);
        let mut fabric = Fabric::new(Arc::clone(&network), 1);
        let mut members = Vec::new();
        for host in &hosts {
            let (joined, left) = (draws.up_to(1) == 0, draws.up_to(3) == 0);
            if joined {
                prop_assert!(fabric.join(group, *host));
                prop_assert!(!fabric.join(group, *host), "joins count once");
            }
            if left {
                prop_assert_eq!(fabric.leave(group, *host), joined);
            }
            if joined && !left {
                members.push(*host);
            }
        }
        for (route, wanted) in [(Route::Multicast(group), &members), (Route::Broadcast, &hosts)] {
            for source in &hosts {
                let (_, mut frame) = random::frame(&network, &mut draws, 0);
                frame.route = route;
                let mut log = Log::default();
                fabric.ingress(Time(0), *source, frame);
                fabric.advance(Time::MAX, &mut log);
                let mut reached: Vec<NodeId> = log.delivered.iter().map(|d| d.1).collect();
                reached.sort_unstable();
                let expected: Vec<NodeId> = wanted.iter().copied().filter(|host| host != source).collect();
                prop_assert_eq!(reached, expected);
            }
        }
    }

    #[test]
    fn a_reset_fabric_is_a_new_one(seed: u64) {
        let mut draws = Draws::named(seed, "test", "reset");
        let network = random::network(&mut draws, true);
        let (mut used, _, _) = run(&network, &mut draws, true);
        used.reset(5);
        let mut fresh = Fabric::new(Arc::clone(&network), 5);
        let (mut one, mut other) = (Log::default(), Log::default());
        for tag in 0..100 {
            let (source, frame) = random::frame(&network, &mut draws, tag);
            used.ingress(Time(tag * 3_000), source, frame);
            fresh.ingress(Time(tag * 3_000), source, frame);
        }
        used.advance(Time::MAX, &mut one);
        fresh.advance(Time::MAX, &mut other);
        prop_assert_eq!(one.delivered, other.delivered);
        prop_assert_eq!(one.dropped, other.dropped);
    }
}

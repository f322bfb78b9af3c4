//! A network cut in two gives the verdicts of the whole one: the same frames at the same virtual times.

mod common;
use common::{direction, host, switch};
use std::sync::Arc;
use timebound_fabric::{Crossing, Fabric, Frame, NO_STREAM, Route, Sink};
use timebound_model::declaration::{ImpairmentsDecl, LinkDecl, LossDecl};
use timebound_model::{Class, Declaration, Network, NodeId, PortId, Time, WireBytes, compile};

#[derive(Default)]
struct Log {
    delivered: Vec<(Time, NodeId, u64)>,
    crossed: Vec<Crossing>,
    dropped: usize,
}

impl Sink for Log {
    fn delivered(&mut self, at: Time, host: NodeId, _: u32, frame: &Frame, _: bool) {
        self.delivered.push((at, host, frame.tag));
    }
    fn dropped(&mut self, _: Time, _: Option<PortId>, _: &Frame, _: timebound_fabric::DropReason) {
        self.dropped += 1;
    }
    fn copied(&mut self, _: u32, _: u32) {}
    fn crossed(&mut self, crossing: &Crossing) {
        self.crossed.push(*crossing);
    }
}

/// h1 - s1 = s2 - h2, the middle slow, lossy and 5 ms long.
fn network() -> Arc<Network> {
    let fast = direction(1_000_000_000, 1_000);
    let mut slow = direction(10_000_000, 5_000_000);
    slow.impairments = ImpairmentsDecl {
        loss: Some(LossDecl::Bernoulli { probability: 0.1 }),
        ..ImpairmentsDecl::default()
    };
    let link = |a: &str, b: &str, both: &timebound_model::declaration::DirectionDecl| LinkDecl {
        a: a.to_owned(),
        b: b.to_owned(),
        forward: both.clone(),
        backward: both.clone(),
        half_duplex: false,
    };
    let declaration = Declaration {
        nodes: vec![
            host("h1"),
            host("h2"),
            switch("s1", 1_000, 9_000),
            switch("s2", 1_000, 9_000),
        ],
        links: vec![
            link("h1", "s1", &fast),
            link("s1", "s2", &slow),
            link("s2", "h2", &fast),
        ],
        streams: Vec::new(),
        best_effort_frame_bytes: 1538,
        traces: std::collections::BTreeMap::new(),
    };
    Arc::new(compile(&declaration).expect("a sound network"))
}

fn frame(to: u32, tag: u64) -> Frame {
    Frame {
        handle: 0,
        wire: WireBytes(500),
        class: Class(0),
        route: Route::Unicast(NodeId(to)),
        stream: NO_STREAM,
        tag,
    }
}

#[test]
fn cut_or_whole_the_deliveries_are_the_same() {
    let network = network();
    let ends = |port: usize| (network.ports[port].node.0, network.ports[port].peer.0);
    let is_left = |node: u32| node == 0 || node == 2;
    let cut = |left: bool| -> Vec<PortId> {
        let ports = 0..network.ports.len();
        ports
            .filter(|port| is_left(ends(*port).0) == left && is_left(ends(*port).1) != left)
            .map(PortId::new)
            .collect()
    };
    let mut whole = (Fabric::new(Arc::clone(&network), 3), Log::default());
    let mut halves = [true, false].map(|left| {
        let mut fabric = Fabric::new(Arc::clone(&network), 3);
        fabric.cut(&cut(left));
        (fabric, Log::default())
    });
    for tag in 0..400u64 {
        let (from, to) = if tag % 3 == 0 { (1, 0) } else { (0, 1) };
        let at = Time(tag * 250_000);
        whole.0.ingress(at, NodeId(from), frame(to, tag));
        halves[from as usize].0.ingress(at, NodeId(from), frame(to, tag));
    }
    whole.0.advance(Time::MAX, &mut whole.1);
    // In steps shorter than the cut link, as two clocks would go.
    for step in 1..=400u64 {
        for half in 0..2 {
            let (fabric, log) = &mut halves[half];
            fabric.advance(Time(step * 1_000_000), log);
            for crossing in std::mem::take(&mut log.crossed) {
                assert!(crossing.at.0 > crossing.sent.0 + 5_000_000);
                assert_eq!(halves[1 - half].0.arrival(crossing), Some(crossing.at), "in time");
            }
        }
    }
    let [left, right] = halves;
    let mut together: Vec<_> = [left.1.delivered, right.1.delivered].concat();
    together.sort_unstable();
    whole.1.delivered.sort_unstable();
    assert_eq!(together, whole.1.delivered);
    assert!(
        together.len() > 300 && left.1.dropped + right.1.dropped == whole.1.dropped && whole.1.dropped > 10
    );
    assert_eq!((left.0.frames_inside(), right.0.frames_inside()), (0, 0));
}

#[test]
fn what_no_fabric_of_the_network_can_have_sent_does_not_enter() {
    let network = network();
    let mut fabric = Fabric::new(network, 3);
    let sound = Crossing {
        port: PortId(2),
        sent: Time(0),
        at: Time(10),
        frame: frame(1, 0),
        position: u32::MAX,
        damaged: false,
    };
    assert_eq!(fabric.arrival(sound), Some(Time(10)));
    let with = |port, position, route| Crossing {
        port: PortId(port),
        position,
        frame: Frame { route, ..sound.frame },
        ..sound
    };
    for wrong in [
        with(99, u32::MAX, Route::Broadcast),
        with(2, 0, Route::Broadcast),
        with(2, u32::MAX, Route::Unicast(NodeId(99))),
        with(2, 7, Route::Tree(timebound_model::StreamId(0))),
    ] {
        assert_eq!(fabric.arrival(wrong), None, "{wrong:?}");
    }
}

//! A switch that copies a stream's frames takes longer for them, and for no others.

mod common;
use common::{TICKS, direction, host, link, network, switch};
use std::sync::Arc;
use timebound_fabric::{DropReason, Fabric, Frame, Route, Sink};
use timebound_model::{Class, NodeId, PortId, StreamId, Time, WireBytes};

#[derive(Default)]
struct Arrivals(Vec<(u64, u32, u64)>);

impl Sink for Arrivals {
    const TRANSMISSIONS: bool = false;
    fn delivered(&mut self, at: Time, node: NodeId, _: u32, frame: &Frame, _: bool) {
        self.0.push((frame.tag, node.0, at.0));
    }
    fn dropped(&mut self, _: Time, _: Option<PortId>, _: &Frame, reason: DropReason) {
        panic!("nothing is lost here: {reason:?}");
    }
    fn copied(&mut self, _: u32, _: u32) {}
    fn transmitted(&mut self, _: PortId, _: Time, _: Time, _: &Frame) {}
}

#[test]
fn a_frame_that_is_not_copied_overtakes() {
    let mut copying = switch("s", 2, 2);
    (copying.replication_min_ns, copying.replication_max_ns) = (100, 140);
    let nodes = vec![host("a"), copying, host("y"), host("z")];
    let links = ["a", "y", "z"]
        .map(|name| link(name, "s", direction(TICKS, 0)))
        .to_vec();
    let streams = vec![
        common::stream("both", "a", &["y", "z"], 5, (10_000, 0), 10),
        common::stream("one", "a", &["z"], 5, (10_000, 0), 10),
    ];
    let network = network(nodes, links, streams);
    let mut latest = 0;
    for seed in 0..50 {
        let mut fabric = Fabric::new(Arc::clone(&network), seed);
        for (tag, stream) in [(0, 0), (1, 0), (2, 1)] {
            let frame = Frame {
                handle: 0,
                wire: WireBytes(10),
                class: Class(5),
                route: Route::Tree(StreamId(stream)),
                stream,
                tag,
            };
            fabric.ingress(Time(0), NodeId(0), frame);
        }
        let mut arrivals = Arrivals::default();
        fabric.advance(Time::MAX, &mut arrivals);
        let at = |tag, node| {
            let found: Vec<u64> = arrivals
                .0
                .iter()
                .filter(|a| (a.0, a.1) == (tag, node))
                .map(|a| a.2)
                .collect();
            assert_eq!(found.len(), 1, "{arrivals:?}", arrivals = arrivals.0);
            found[0]
        };
        // Third on the way in, first on the way out.
        assert_eq!(at(2, 3), 30 + 2 + 10);
        for node in [2, 3] {
            assert!((10 + 2 + 100 + 10..=10 + 2 + 140 + 10).contains(&at(0, node)));
            assert!((20 + 2 + 100 + 10..=20 + 2 + 140 + 10).contains(&at(1, node)));
            assert!(at(1, node) >= at(0, node) + 10, "copies keep their order");
        }
        latest = latest.max(at(0, 2));
    }
    assert!(latest > 10 + 2 + 130 + 10, "the range is used: {latest}");
}

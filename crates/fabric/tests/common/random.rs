//! Random networks with every discipline and impairment, and random traffic over them.

use super::{host, switch};
use std::sync::Arc;
use timebound_fabric::{Change, Draws, Frame, NO_STREAM, Route};
use timebound_model::declaration::{
    DirectionDecl, DisconnectionDistribution, DisconnectionsDecl, ImpairmentsDecl, JitterDecl,
    JitterDistribution, LinkDecl, LossDecl, NodeDecl, NodeKindDecl, QueueDecl, SlotsDecl,
};
use timebound_model::{
    Class, LinkId, Network, NodeId, NodeKind, PortId, Rate, Span, StreamId, Time, WireBytes,
};

fn one_in(draws: &mut Draws, n: u64) -> bool {
    draws.up_to(n - 1) == 0
}

fn impairments(draws: &mut Draws) -> ImpairmentsDecl {
    let max_ns = draws.up_to(50_000);
    let distribution = match draws.up_to(3) {
        0 => JitterDistribution::Uniform { max_ns },
        1 => JitterDistribution::Normal {
            mean_ns: 10_000,
            deviation_ns: 5_000,
            max_ns,
        },
        2 => JitterDistribution::Pareto {
            scale_ns: 5_000,
            alpha: 2.5,
            max_ns,
        },
        _ => JitterDistribution::Exponential {
            mean_ns: 8_000,
            max_ns,
        },
    };
    let loss = match draws.up_to(1) {
        0 => LossDecl::Bernoulli { probability: 0.2 },
        _ => LossDecl::GilbertElliott {
            good_to_bad: 0.1,
            bad_to_good: 0.3,
            loss_in_good: 0.01,
            loss_in_bad: 0.7,
        },
    };
    ImpairmentsDecl {
        jitter: one_in(draws, 2).then(|| JitterDecl {
            distribution,
            reorder: one_in(draws, 2),
        }),
        loss: one_in(draws, 2).then_some(loss),
        corruption: if one_in(draws, 3) { 0.1 } else { 0.0 },
        corruption_drops: one_in(draws, 2),
        duplication: if one_in(draws, 3) { 0.1 } else { 0.0 },
        outages: if one_in(draws, 3) {
            vec![(100_000, 150_000), (300_000, 310_000)]
        } else {
            Vec::new()
        },
        disconnections: one_in(draws, 3).then_some(DisconnectionsDecl {
            mean_up_ns: 200_000,
            mean_down_ns: 100_000,
            distribution: DisconnectionDistribution::Exponential,
        }),
        held: one_in(draws, 2),
    }
}

fn direction(draws: &mut Draws, impaired: bool) -> DirectionDecl {
    let queue = match draws.up_to(2) {
        0 => QueueDecl::StrictPriority,
        1 => QueueDecl::Fifo,
        _ => QueueDecl::Drr {
            quanta_bytes: [300, 1, 1538, 40, 900, 84, 2_000, 500],
        },
    };
    DirectionDecl {
        rate_bps: [10_000_000, 100_000_000, 1_000_000_000, 33_333_333][draws.up_to(3) as usize],
        delay_ns: draws.up_to(3) * 2_500,
        queue,
        buffer_bytes: [0, 2_000, 6_000, 1 << 20][draws.up_to(3) as usize],
        impairments: if impaired && one_in(draws, 2) {
            impairments(draws)
        } else {
            ImpairmentsDecl::default()
        },
        trace: None,
        slots: None,
    }
}

/// All frames fit at 100 Mbit/s; where the rate changes, some are dropped.
fn slots(slots_ns: &[(u64, u64)]) -> Option<SlotsDecl> {
    Some(SlotsDecl {
        cycle_ns: 500_000,
        slots_ns: slots_ns.to_vec(),
    })
}

/// Switches in a ring (with a chord now and then), a shared segment on some, hosts on each.
pub(crate) fn network(draws: &mut Draws, impaired: bool) -> Arc<Network> {
    let (mut nodes, mut links) = (Vec::new(), Vec::new());
    let mut join = |draws: &mut Draws, a: &str, b: &str, shared: bool| {
        let (forward, backward) = (direction(draws, impaired), direction(draws, impaired));
        let half_duplex = shared || one_in(draws, 4);
        let (mut forward, mut backward) = (forward, backward);
        let fast = forward.rate_bps.min(backward.rate_bps) >= 100_000_000;
        if fast && !half_duplex && !a.starts_with('g') && !b.starts_with('g') && one_in(draws, 4) {
            forward.slots = slots(&[(100_000, 400_000)]);
            backward.slots = slots(&[(0, 90_000), (90_000, 330_000)]);
        }
        links.push(LinkDecl {
            a: a.to_owned(),
            b: b.to_owned(),
            forward,
            backward,
            half_duplex,
        });
    };
    let switches = 1 + draws.up_to(3);
    for index in 0..switches {
        let least = draws.up_to(2) * 3_000;
        nodes.push(switch(
            &format!("s{index}"),
            least,
            least + draws.up_to(2) * 4_000,
        ));
    }
    for index in 0..switches {
        let next = (index + 1) % switches;
        if index < next || (switches > 2 && next == 0) {
            join(draws, &format!("s{index}"), &format!("s{next}"), false);
        }
        let mut anchor = format!("s{index}");
        if one_in(draws, 3) {
            let segment = format!("g{index}");
            let (switching_min_ns, switching_max_ns) = (0, 0);
            nodes.push(NodeDecl {
                name: segment.clone(),
                kind: NodeKindDecl::Segment,
                switching_min_ns,
                switching_max_ns,
                replication_min_ns: 0,
                replication_max_ns: 0,
            });
            join(draws, &anchor, &segment, true);
            anchor = segment;
        }
        for place in 0..1 + draws.up_to(2) {
            let name = format!("h{index}{place}");
            nodes.push(host(&name));
            join(draws, &name, &anchor, false);
        }
    }
    let hosts: Vec<String> = nodes
        .iter()
        .filter(|n| n.kind == NodeKindDecl::Host)
        .map(|n| n.name.clone())
        .collect();
    let mut streams = Vec::new();
    for (index, source) in hosts.iter().enumerate() {
        let to: Vec<&str> = hosts
            .iter()
            .filter(|h| *h != source && one_in(draws, 2))
            .map(String::as_str)
            .collect();
        if !to.is_empty() {
            let (period, class) = (100_000 + 10_000 * draws.up_to(20), draws.up_to(7) as u8);
            streams.push(super::stream(
                &format!("f{index}"),
                source,
                &to,
                class,
                (period, draws.up_to(1) * 50_000),
                400,
            ));
        }
    }
    super::network(nodes, links, streams)
}

/// A frame at a random host, on a random way.
pub(crate) fn frame(network: &Network, draws: &mut Draws, tag: u64) -> (NodeId, Frame) {
    let hosts = hosts(network);
    let pick = |draws: &mut Draws| hosts[draws.up_to(hosts.len() as u64 - 1) as usize];
    let mut source = pick(draws);
    let route = match draws.up_to(5) {
        0 => Route::Broadcast,
        1 => Route::Multicast(draws.up_to(2) as u32),
        2..=3 if !network.streams.is_empty() => {
            let stream = StreamId::new(draws.up_to(network.streams.len() as u64 - 1) as usize);
            source = network.streams[stream.index()].source;
            Route::Tree(stream)
        }
        _ => Route::Unicast(pick(draws)),
    };
    let wire = WireBytes(84 + draws.up_to(1_454) as u32);
    let class = Class(draws.up_to(7) as u8);
    (
        source,
        Frame {
            handle: tag as u32,
            wire,
            class,
            route,
            stream: NO_STREAM,
            tag,
        },
    )
}

pub(crate) fn hosts(network: &Network) -> Vec<NodeId> {
    let is_host = |node: &NodeId| network.nodes[node.index()].kind == NodeKind::Host;
    (0..network.nodes.len())
        .map(NodeId::new)
        .filter(is_host)
        .collect()
}

/// Changed conditions within the first half millisecond.
pub(crate) fn schedule(network: &Network, draws: &mut Draws) -> Vec<(Time, Change)> {
    let hosts = hosts(network);
    let mut changes = Vec::new();
    for _ in 0..draws.up_to(12) {
        let port = PortId::new(draws.up_to(network.ports.len() as u64 - 1) as usize);
        let link = LinkId::new(draws.up_to(network.links.len() as u64 - 1) as usize);
        let host = hosts[draws.up_to(hosts.len() as u64 - 1) as usize];
        let other = PortId::new(draws.up_to(network.ports.len() as u64 - 1) as usize);
        let change = match draws.up_to(10) {
            0 => Change::Impairments(port, network.ports[other.index()].impairments.clone()),
            1 => Change::Rate(port, Rate(5_000_000)),
            2 => Change::Propagation(port, Span(draws.up_to(20_000))),
            3 => Change::LinkDown(link),
            4 => Change::LinkUp(link),
            8 => Change::PortDown(port),
            9 => Change::PortUp(port),
            10 => Change::Buffer(port, draws.up_to(5_000)),
            5 => Change::Leave(draws.up_to(2) as u32, host),
            _ => Change::Join(draws.up_to(2) as u32, host),
        };
        changes.push((Time(draws.up_to(500_000)), change));
    }
    // What is held waits for ever where nothing comes back.
    let up = (0..network.links.len()).map(|link| (Time(600_000), Change::LinkUp(LinkId::new(link))));
    changes.extend(up);
    changes
}

use super::*;
use crate::compile;
use crate::declaration::{
    Declaration, DirectionDecl, ImpairmentsDecl, LinkDecl, NodeDecl, NodeKindDecl, QueueDecl,
};
use crate::network::Network;
use proptest::prelude::*;

/// A node and links by number, with a rate and a delay of each direction; what links nothing, or the same twice, is left out.
type Link = (usize, usize, [(u64, u64); 2]);

fn network(hosts: &[bool], links: &[Link]) -> Network {
    let nodes = hosts.iter().enumerate().map(|(number, is_host)| NodeDecl {
        name: number.to_string(),
        kind: if *is_host {
            NodeKindDecl::Host
        } else {
            NodeKindDecl::Switch
        },
        switching_min_ns: 0,
        switching_max_ns: 1000 * (number as u64 % 3),
        replication_min_ns: 0,
        replication_max_ns: 0,
    });
    let direction = |(rate, delay): (u64, u64)| DirectionDecl {
        rate_bps: rate,
        delay_ns: delay,
        queue: QueueDecl::StrictPriority,
        buffer_bytes: 262_144,
        impairments: ImpairmentsDecl::default(),
        trace: None,
        slots: None,
    };
    let links = links
        .iter()
        .filter(|(a, b, _)| a % hosts.len() != b % hosts.len());
    let declaration = Declaration {
        nodes: nodes.collect(),
        links: links
            .map(|(a, b, ways)| LinkDecl {
                a: (a % hosts.len()).to_string(),
                b: (b % hosts.len()).to_string(),
                forward: direction(ways[0]),
                backward: direction(ways[1]),
                half_duplex: false,
            })
            .collect(),
        streams: Vec::new(),
        best_effort_frame_bytes: 1538,
        traces: Default::default(),
    };
    compile(&declaration).expect("compiles")
}

/// The table of all pairs: Dijkstra backwards from each host, over all nodes.
fn every(nodes: &[Node], ports: &[Port], destination: usize) -> Vec<u32> {
    let mut next = vec![NONE; nodes.len()];
    let mut cost = vec![(u64::MAX, u32::MAX); nodes.len()];
    let mut heap = BinaryHeap::new();
    cost[destination] = (0, 0);
    heap.push(Reverse((0u64, 0u32, destination)));
    while let Some(Reverse((delay, hops, node))) = heap.pop() {
        if (delay, hops) != cost[node] || (node != destination && nodes[node].kind == NodeKind::Host) {
            continue;
        }
        for &outgoing in &nodes[node].ports {
            let incoming = ports[outgoing.index()].reverse;
            let port = &ports[incoming.index()];
            let neighbour = port.node.index();
            let switching = if node == destination {
                0
            } else {
                nodes[node].switching_max.0
            };
            let step = port.propagation.0 + port.rate.transmission_time(WireBytes::FULL).0 + switching;
            let candidate = (delay + step, hops + 1);
            if candidate < cost[neighbour] || (candidate == cost[neighbour] && incoming.0 < next[neighbour]) {
                cost[neighbour] = candidate;
                next[neighbour] = incoming.0;
                heap.push(Reverse((candidate.0, candidate.1, neighbour)));
            }
        }
    }
    next
}

proptest! {
    /// With few rates and delays there are many ties; hosts with several links, links between hosts, and parts that nobody reaches.
    #[test]
    fn rows_say_what_a_table_of_all_pairs_does(
        hosts in prop::collection::vec(any::<bool>(), 2..14),
        links in prop::collection::vec((0..14usize, 0..14usize, [(1..3u64, 0..2u64), (1..3u64, 0..2u64)]), 0..24),
    ) {
        let links: Vec<Link> = links
            .into_iter()
            .map(|(a, b, ways)| (a, b, ways.map(|(rate, delay)| (rate * 10_000_000, delay * 5000))))
            .collect();
        let network = network(&hosts, &links);
        network.routes.complete();
        for destination in 0..hosts.len() {
            let expected = match hosts[destination] {
                true => every(&network.nodes, &network.ports, destination),
                false => vec![NONE; hosts.len()],
            };
            for (node, port) in expected.into_iter().enumerate() {
                let found = network.routes.next_hop(NodeId::new(node), NodeId::new(destination));
                prop_assert_eq!(found, (port != NONE).then_some(PortId(port)), "from {} to {}", node, destination);
            }
        }
    }
}

#[test]
fn hosts_on_one_switch_share_a_row_and_have_no_entries() {
    let hosts: Vec<bool> = (0..5000).map(|number| number > 1).collect();
    let way = [(1_000_000_000, 0); 2];
    let mut links: Vec<Link> = (2..5000).map(|number| (number, number % 2, way)).collect();
    links.push((0, 1, way));
    let network = network(&hosts, &links);
    network.routes.complete();
    let rows: Vec<usize> = network
        .routes
        .rows
        .iter()
        .filter_map(|row| row.get().map(|row| row.len()))
        .collect();
    assert_eq!(rows, [2, 2]);
    let path = network.routes.path(&network.ports, NodeId(2), NodeId(4999));
    assert_eq!(path.expect("a path").len(), 3);
}

//! Loop-free ways between two nodes, the shortest first (J. Y. Yen, "Finding the K Shortest Loopless Paths in a Network",
//! Management Science 17, 1971), by the measure of [`timebound_model::Routes`]: delay, then hops, then node ids.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use timebound_model::{Network, NodeId, NodeKind, PortId, WireBytes};

/// A way with its length: delay in ns, hops, nodes.
type Long = (u64, u32, Vec<u32>);

/// The network as nodes and the first link between any two.
pub(super) struct Graph {
    /// For each node its neighbours, rising: neighbour, port, delay.
    next: Vec<Vec<(u32, PortId, u64)>>,
    forwards: Vec<bool>,
}

impl Graph {
    pub(super) fn of(network: &Network) -> Self {
        let neighbours = |node: &timebound_model::Node| {
            let mut found: Vec<(u32, PortId, u64)> = Vec::new();
            for id in &node.ports {
                let port = &network.ports[id.index()];
                if found.iter().all(|(peer, ..)| *peer != port.peer.0) {
                    let delay = port
                        .propagation
                        .0
                        .saturating_add(port.rate.transmission_time(WireBytes::FULL).0)
                        .saturating_add(network.nodes[port.peer.index()].switching_max.0);
                    found.push((port.peer.0, *id, delay));
                }
            }
            found.sort_unstable();
            found
        };
        Self {
            next: network.nodes.iter().map(neighbours).collect(),
            forwards: network
                .nodes
                .iter()
                .map(|node| node.kind != NodeKind::Host)
                .collect(),
        }
    }

    /// Ports along a way of neighbours; nothing where two are none.
    pub(super) fn ports(&self, way: &[u32]) -> Option<Vec<PortId>> {
        way.windows(2)
            .map(|pair| {
                let next = &self.next[pair[0] as usize];
                let place = next.binary_search_by_key(&pair[1], |(peer, ..)| *peer).ok()?;
                Some(next[place].1)
            })
            .collect()
    }

    /// At most `most` ways, the shortest first, and whether these are all.
    pub(super) fn ways(&self, source: NodeId, target: NodeId, most: usize) -> (Vec<Vec<u32>>, bool) {
        let mut found: Vec<Long> = Vec::new();
        let mut waiting: BTreeSet<Long> = BTreeSet::new();
        let everything = Without::default();
        waiting.extend(self.shortest(source.0, target.0, &everything));
        while let Some(shortest) = waiting.pop_first() {
            if found.len() == most {
                return (found.into_iter().map(|way| way.2).collect(), false);
            }
            found.push(shortest);
            self.branch(&found, target.0, &mut waiting);
        }
        (found.into_iter().map(|way| way.2).collect(), true)
    }

    /// Yen's step: ways that leave the newest one at each of its nodes, and none of the others at the same place.
    fn branch(&self, found: &[Long], target: u32, waiting: &mut BTreeSet<Long>) {
        let last = &found[found.len() - 1].2;
        for spur in 0..last.len() - 1 {
            let root = &last[..=spur];
            let mut without = Without {
                nodes: root[..spur].iter().copied().collect(),
                first: BTreeSet::new(),
            };
            for (_, _, way) in found
                .iter()
                .filter(|way| way.2.len() > spur + 1 && way.2[..=spur] == *root)
            {
                without.first.insert(way[spur + 1]);
            }
            if let Some((_, _, rest)) = self.shortest(root[spur], target, &without) {
                let mut way = root[..spur].to_vec();
                way.extend(rest);
                let length = self.length(&way);
                waiting.insert((length, way.len() as u32 - 1, way));
            }
        }
    }

    fn length(&self, way: &[u32]) -> u64 {
        let step = |pair: &[u32]| {
            let next = &self.next[pair[0] as usize];
            let place = next.binary_search_by_key(&pair[1], |(peer, ..)| *peer);
            place.map_or(u64::MAX, |place| next[place].2)
        };
        way.windows(2).map(step).fold(0, u64::saturating_add)
    }

    /// Dijkstra from `source`, which may be a host; other hosts do not forward.
    fn shortest(&self, source: u32, target: u32, without: &Without) -> Option<Long> {
        let mut best: Vec<(u64, u32, u32)> = vec![(u64::MAX, u32::MAX, u32::MAX); self.next.len()];
        let mut heap = BinaryHeap::new();
        best[source as usize] = (0, 0, u32::MAX);
        heap.push(Reverse((0u64, 0u32, source)));
        while let Some(Reverse((delay, hops, node))) = heap.pop() {
            if node == target {
                break;
            }
            let known = best[node as usize];
            if (delay, hops) != (known.0, known.1) || (node != source && !self.forwards[node as usize]) {
                continue;
            }
            for (peer, _, step) in &self.next[node as usize] {
                let barred = without.nodes.contains(peer) || (node == source && without.first.contains(peer));
                let reached = (delay.saturating_add(*step), hops + 1, node);
                if !barred && reached < best[*peer as usize] && *peer != source {
                    let again = (reached.0, reached.1) != (best[*peer as usize].0, best[*peer as usize].1);
                    best[*peer as usize] = reached;
                    if again {
                        heap.push(Reverse((reached.0, reached.1, *peer)));
                    }
                }
            }
        }
        let (delay, hops, _) = best[target as usize];
        if hops == u32::MAX || hops == 0 {
            return None;
        }
        let mut way = vec![target];
        while way[way.len() - 1] != source {
            way.push(best[way[way.len() - 1] as usize].2);
        }
        way.reverse();
        Some((delay, hops, way))
    }
}

/// What a way must not use: nodes, and first steps from its source.
#[derive(Default)]
struct Without {
    nodes: BTreeSet<u32>,
    first: BTreeSet<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use timebound_model::{Declaration, compile};

    /// Switches in a ring with chords and a host at each, delays from a small generator (Knuth's MMIX constants).
    fn network(mut seed: u64) -> Network {
        let mut draw = |limit: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % limit
        };
        let count = 4 + draw(3);
        let mut nodes = Vec::new();
        let mut links = Vec::new();
        let mut link = |a: String, b: String, delay: u64| {
            let way = serde_json::json!({
                "rate_bps": 1_000_000_000u64, "delay_ns": delay, "queue": {"kind": "strict-priority"}, "buffer_bytes": 1_000_000,
            });
            links.push(serde_json::json!({"a": a, "b": b, "forward": way, "backward": way}));
        };
        for index in 0..count {
            nodes.push(serde_json::json!({"name": format!("s{index}"), "kind": "switch"}));
            nodes.push(serde_json::json!({"name": format!("h{index}"), "kind": "host"}));
            link(format!("h{index}"), format!("s{index}"), 0);
            link(
                format!("s{index}"),
                format!("s{}", (index + 1) % count),
                draw(4) * 1000,
            );
        }
        link("s0".to_owned(), "s2".to_owned(), draw(4) * 1000);
        let declaration = serde_json::json!({"nodes": nodes, "links": links});
        let declaration: Declaration = serde_json::from_value(declaration).expect("a declaration");
        compile(&declaration).expect("a network")
    }

    fn every(graph: &Graph, way: &mut Vec<u32>, target: u32, out: &mut Vec<Long>) {
        let at = way[way.len() - 1];
        if at == target {
            out.push((graph.length(way), way.len() as u32 - 1, way.clone()));
            return;
        }
        if way.len() > 1 && !graph.forwards[at as usize] {
            return;
        }
        for (peer, ..) in &graph.next[at as usize] {
            if !way.contains(peer) {
                way.push(*peer);
                every(graph, way, target, out);
                way.pop();
            }
        }
    }

    #[test]
    fn the_ways_are_the_shortest_of_all_loop_free_ones_in_order() {
        for seed in 0..200 {
            let network = network(seed);
            let graph = Graph::of(&network);
            let (source, target) = (
                network.node("h0").expect("a host"),
                network.node("h2").expect("a host"),
            );
            let mut all = Vec::new();
            every(&graph, &mut vec![source.0], target.0, &mut all);
            all.sort_unstable();
            for most in [1, 3, 100] {
                let (found, complete) = graph.ways(source, target, most);
                assert_eq!(complete, most >= all.len());
                let lengths = |ways: &[Vec<u32>]| -> Vec<(u64, usize)> {
                    ways.iter().map(|way| (graph.length(way), way.len())).collect()
                };
                let wanted: Vec<Vec<u32>> = all.iter().take(most).map(|way| way.2.clone()).collect();
                assert_eq!(lengths(&found), lengths(&wanted));
                assert!(found.iter().all(|way| all.iter().any(|known| known.2 == *way)));
            }
        }
    }

    #[test]
    fn there_is_no_way_to_where_no_link_leads() {
        let declaration =
            r#"{"nodes": [{"name": "a", "kind": "host"}, {"name": "b", "kind": "host"}], "links": []}"#;
        let declaration: Declaration = serde_json::from_str(declaration).expect("a declaration");
        let network = compile(&declaration).expect("a network");
        assert_eq!(
            Graph::of(&network).ways(NodeId(0), NodeId(1), 3),
            (Vec::new(), true)
        );
    }
}

//! The ways that a bundle could go, as trees of its streams.

use super::loads::Loads;
use super::paths::Graph;
use crate::assign::task::Bundle;
use std::collections::BTreeMap;
use timebound_model::{Hop, Leaf, Network, NodeId, PortId, StreamId, Tree};

/// One way of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) trees: Vec<(StreamId, Tree)>,
    /// Load that it puts on ports, by port.
    pub(super) loads: Vec<(u32, u64)>,
    pub(super) hops: u32,
}

/// Ways already worked out between two nodes, and whether they are all that there are.
pub(super) type Known = BTreeMap<(NodeId, NodeId), (Vec<Vec<u32>>, bool)>;

/// All candidates of a bundle, the present way first, and whether these are all loop-free ways.
pub(super) fn candidates(
    network: &Network,
    graph: &Graph,
    loads: &Loads,
    bundle: &Bundle,
    most: usize,
    known: &mut Known,
) -> (Vec<Candidate>, bool) {
    let present = bundle.forward.iter().chain(&bundle.backward);
    let trees = present
        .map(|id| (*id, network.streams[id.index()].tree.clone()))
        .collect();
    let mut found = vec![Candidate::new(trees, loads)];
    if bundle.fixed {
        return (found, true);
    }
    let first = &network.streams[bundle.forward[0].index()];
    let targets: Vec<NodeId> = first.tree.leaves.iter().map(|leaf| leaf.node).collect();
    let mut all = true;
    let ways: Vec<Vec<Vec<u32>>> = targets
        .iter()
        .map(|target| {
            let (ways, complete) = known
                .entry((first.source, *target))
                .or_insert_with(|| graph.ways(first.source, *target, most));
            all &= *complete;
            ways.clone()
        })
        .collect();
    let (combined, complete) = combine(&ways, most);
    all &= complete;
    for ways in combined {
        let Some(candidate) = lay(graph, loads, bundle, &targets, &ways) else {
            continue;
        };
        if found.len() < most && !found.contains(&candidate) {
            found.push(candidate);
        } else if !found.contains(&candidate) {
            all = false;
        }
    }
    (found, all)
}

/// Parent of every node reached so far, and the ways to the destinations so far.
type Partial<'a> = (BTreeMap<u32, u32>, Vec<&'a Vec<u32>>);

/// Ways to several destinations that form a tree: every node is entered from one neighbour only. A beam of the shortest partial trees.
fn combine(ways: &[Vec<Vec<u32>>], most: usize) -> (Vec<Vec<&Vec<u32>>>, bool) {
    let width = most.saturating_mul(4).max(1);
    let mut all = true;
    let mut partial: Vec<Partial<'_>> = vec![(BTreeMap::new(), Vec::new())];
    for choice in ways {
        let mut longer = Vec::new();
        for (parents, chosen) in &partial {
            for way in choice {
                if let Some(parents) = join(parents, way) {
                    let mut chosen = chosen.clone();
                    chosen.push(way);
                    longer.push((parents, chosen));
                }
            }
        }
        // Fewest hops first; candidates come shortest first, so a stable sort keeps their order.
        longer.sort_by_key(|(parents, _)| parents.len());
        all &= longer.len() <= width;
        longer.truncate(width);
        partial = longer;
    }
    (partial.into_iter().map(|(_, chosen)| chosen).collect(), all)
}

/// The tree with one more way, or nothing where that would enter a node from two sides or come back to its source.
fn join(parents: &BTreeMap<u32, u32>, way: &[u32]) -> Option<BTreeMap<u32, u32>> {
    let mut joined = parents.clone();
    for pair in way.windows(2) {
        if *joined.entry(pair[1]).or_insert(pair[0]) != pair[0] {
            return None;
        }
    }
    Some(joined)
}

/// The trees of all streams of a bundle along these ways.
fn lay(
    graph: &Graph,
    loads: &Loads,
    bundle: &Bundle,
    targets: &[NodeId],
    ways: &[&Vec<u32>],
) -> Option<Candidate> {
    let there: Option<Vec<Vec<PortId>>> = ways.iter().map(|way| graph.ports(way)).collect();
    let tree = tree(&there?, targets);
    let mut trees: Vec<(StreamId, Tree)> = bundle.forward.iter().map(|id| (*id, tree.clone())).collect();
    if !bundle.backward.is_empty() {
        let way = ways.first()?;
        let mirrored: Vec<u32> = way.iter().rev().copied().collect();
        let back = graph.ports(&mirrored)?;
        let tree = self::tree(&[back], &[NodeId(*way.first()?)]);
        trees.extend(bundle.backward.iter().map(|id| (*id, tree.clone())));
    }
    Some(Candidate::new(trees, loads))
}

/// Joins ways as the compiler joins stated routes.
fn tree(ways: &[Vec<PortId>], targets: &[NodeId]) -> Tree {
    let mut tree = Tree::default();
    let mut places: BTreeMap<PortId, u32> = BTreeMap::new();
    for (way, node) in ways.iter().zip(targets) {
        let mut parent = None;
        for port in way {
            let place = *places.entry(*port).or_insert_with(|| {
                tree.hops.push(Hop {
                    port: *port,
                    parent,
                    forks: false,
                });
                tree.hops.len() as u32 - 1
            });
            parent = Some(place);
        }
        if let Some(hop) = parent {
            tree.leaves.push(Leaf { node: *node, hop });
        }
    }
    tree.mark_forks();
    tree
}

impl Candidate {
    fn new(trees: Vec<(StreamId, Tree)>, loads: &Loads) -> Self {
        let mut ports: BTreeMap<u32, u64> = BTreeMap::new();
        let mut hops = 0u32;
        for (stream, tree) in &trees {
            hops = hops.saturating_add(tree.hops.len() as u32);
            for hop in &tree.hops {
                let load = ports.entry(hop.port.0).or_default();
                *load = load.saturating_add(loads.of(*stream, hop.port));
            }
        }
        Self {
            trees,
            loads: ports.into_iter().collect(),
            hops,
        }
    }
}

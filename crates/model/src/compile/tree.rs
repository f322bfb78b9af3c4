//! The tree of a stream: shortest paths or stated routes, joined.

use super::{Checker, Names};
use crate::declaration::StreamDecl;
use crate::ids::{NodeId, PortId};
use crate::network::{Hop, Leaf, Network, NodeKind, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// Joins the paths to all destinations into one tree; a path that meets the tree again continues in it.
pub(super) fn compile_tree(
    decl: &StreamDecl,
    path: &str,
    network: &Network,
    names: &Names<'_>,
    source: NodeId,
    destinations: &[(usize, NodeId)],
    check: &mut Checker,
) -> Tree {
    let mut tree = Tree::default();
    let mut by_port: BTreeMap<PortId, u32> = BTreeMap::new();
    let mut reached: BTreeSet<NodeId> = BTreeSet::new();
    for &(index, destination) in destinations {
        let place = format!("{path}.destinations[{index}]");
        let name = &network.nodes[destination.index()].name;
        if destination == source {
            check.error(
                place,
                format!("{name:?} sends to itself"),
                "a receiver on the same host needs no network",
            );
            continue;
        }
        if !reached.insert(destination) {
            check.error(
                place,
                format!("destination {name:?} twice"),
                "name every receiver once",
            );
            continue;
        }
        let ports = match &decl.route {
            Some(routes) => explicit_route(routes.get(index), network, names, source, destination),
            None => network
                .routes
                .path(&network.ports, source, destination)
                .ok_or_else(|| {
                    (
                        format!("{name:?} cannot be reached from {:?}", decl.source),
                        "add the missing link".to_owned(),
                    )
                }),
        };
        let ports = match ports {
            Ok(ports) => ports,
            Err((message, hint)) => {
                let place = if decl.route.is_some() {
                    format!("{path}.route[{index}]")
                } else {
                    place
                };
                check.error(place, message, hint);
                continue;
            }
        };
        let mut parent = None;
        for port in ports {
            let hop = *by_port.entry(port).or_insert_with(|| {
                tree.hops.push(Hop {
                    port,
                    parent,
                    forks: false,
                });
                u32::try_from(tree.hops.len() - 1).unwrap_or(u32::MAX)
            });
            if tree.hops[hop as usize].parent != parent {
                check.error(
                    format!("{path}.route"),
                    "two routes of one stream meet again after they part",
                    "give destinations that share a port the same route up to it",
                );
            }
            parent = Some(hop);
        }
        if let Some(hop) = parent {
            tree.leaves.push(Leaf {
                node: destination,
                hop,
            });
        }
    }
    tree.mark_forks();
    tree
}

fn explicit_route(
    route: Option<&Vec<String>>,
    network: &Network,
    names: &Names<'_>,
    source: NodeId,
    destination: NodeId,
) -> Result<Vec<PortId>, (String, String)> {
    let hint = || "write the route from the source to the destination, neighbour by neighbour".to_owned();
    let route = route.ok_or_else(|| ("no route for this destination".to_owned(), hint()))?;
    let mut ids = Vec::new();
    for name in route {
        ids.push(
            *names
                .get(name.as_str())
                .ok_or_else(|| (format!("unknown node {name:?} in the route"), hint()))?,
        );
    }
    if ids.first() != Some(&source) || ids.last() != Some(&destination) {
        return Err((
            "the route does not lead from the source to the destination".to_owned(),
            hint(),
        ));
    }
    let mut seen = BTreeSet::new();
    let mut ports = Vec::new();
    for (position, pair) in ids.windows(2).enumerate() {
        let [from, to] = [pair[0], pair[1]];
        if !seen.insert(from) {
            return Err((format!("the route visits {:?} twice", route[position]), hint()));
        }
        if position > 0 && network.nodes[from.index()].kind == NodeKind::Host {
            return Err((
                format!("the route passes through the host {:?}", route[position]),
                hint(),
            ));
        }
        ports.push(network.port_between(from, to).ok_or_else(|| {
            (
                format!("no link from {:?} to {:?}", route[position], route[position + 1]),
                hint(),
            )
        })?);
    }
    Ok(ports)
}

//! The part of a network in which one receiver's worst case is searched: only the ports that matter, renumbered, so that an
//! evaluation touches nothing else.

use super::survey::Survey;
use std::collections::{BTreeMap, BTreeSet};
use timebound_fabric::Change;
use timebound_model::{
    Class, Discipline, Hop, Impairments, Leaf, Link, LinkId, Network, Node, NodeId, Port, PortId, Release,
    Stream, StreamId, Time, Tree,
};

/// One stream of the part, with the hops that matter (their ancestors are kept as well).
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) stream: StreamId,
    pub(super) hops: BTreeSet<u32>,
    /// The target's receiver.
    pub(super) leaf: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Cutout {
    pub(super) network: Network,
    /// Port of the whole network -> here.
    ports: BTreeMap<PortId, PortId>,
    links: BTreeMap<LinkId, LinkId>,
    nodes: BTreeMap<NodeId, NodeId>,
    /// Is there a class below every declared one?
    pub(super) has_lowest: bool,
    classes: [u8; 8],
}

impl Cutout {
    pub(super) fn new(survey: &Survey, parts: &[Part]) -> Self {
        let whole = survey.network;
        let kept: Vec<(StreamId, BTreeSet<u32>)> = parts
            .iter()
            .map(|part| (part.stream, with_ancestors(whole, part)))
            .collect();
        let links: BTreeSet<LinkId> = kept
            .iter()
            .flat_map(|(stream, hops)| {
                hops.iter()
                    .map(|hop| whole.streams[stream.index()].tree.hops[*hop as usize].port)
            })
            .map(|port| whole.ports[port.index()].link)
            .collect();
        let (has_lowest, classes) =
            squeeze(parts.iter().map(|part| whole.streams[part.stream.index()].class));
        let mut cut = Self {
            network: empty(whole),
            ports: BTreeMap::new(),
            links: BTreeMap::new(),
            nodes: BTreeMap::new(),
            has_lowest,
            classes,
        };
        for link in links {
            cut.add_link(whole, link);
        }
        for (part, (stream, hops)) in parts.iter().zip(&kept) {
            let stream = cut.stream(&whole.streams[stream.index()], hops, part.leaf);
            cut.network.streams.push(stream);
        }
        cut
    }

    /// The part itself; what is left still knows the numbers.
    pub(super) fn take_network(&mut self) -> Network {
        let empty = empty(&self.network);
        std::mem::replace(&mut self.network, empty)
    }

    /// The port's number here; ports that nobody uses have none.
    pub(super) fn port(&self, port: PortId) -> Option<PortId> {
        self.ports.get(&port).copied()
    }

    /// A stream of single frames that one port sends, and nobody else ever sees.
    pub(super) fn add_local(&mut self, port: PortId, class: Class) -> StreamId {
        let node = self.network.ports[port.index()].node;
        let tree = Tree {
            hops: vec![Hop {
                port,
                parent: None,
                forks: false,
            }],
            leaves: Vec::new(),
        };
        self.network.streams.push(Stream {
            name: String::new(),
            source: node,
            class,
            role: timebound_model::Role::Background,
            arrival: timebound_model::Arrival::Unbounded {
                max_frame: self.network.best_effort_frame,
            },
            release: Release::Silent,
            deadline: None,
            least_frame: None,
            tree,
        });
        StreamId::new(self.network.streams.len() - 1)
    }

    /// The changes that concern this part, in its numbers.
    pub(super) fn changes(&self, changes: &[Change]) -> Vec<Change> {
        changes.iter().filter_map(|change| self.change(change)).collect()
    }

    fn change(&self, change: &Change) -> Option<Change> {
        let port = |id: &PortId| self.ports.get(id).copied();
        let link = |id: &LinkId| self.links.get(id).copied();
        Some(match change {
            Change::Impairments(id, impairments) => Change::Impairments(port(id)?, impairments.clone()),
            Change::Rate(id, rate) => Change::Rate(port(id)?, *rate),
            Change::Buffer(id, bytes) => Change::Buffer(port(id)?, *bytes),
            Change::Propagation(id, span) => Change::Propagation(port(id)?, *span),
            Change::PortUp(id) => Change::PortUp(port(id)?),
            Change::PortDown(id) => Change::PortDown(port(id)?),
            Change::LinkUp(id) => Change::LinkUp(link(id)?),
            Change::LinkDown(id) => Change::LinkDown(link(id)?),
            // Everything here goes along trees.
            Change::Join(..) | Change::Leave(..) => return None,
        })
    }

    fn add_link(&mut self, whole: &Network, id: LinkId) {
        let link = &whole.links[id.index()];
        let (a, b) = (self.node(whole, link.a), self.node(whole, link.b));
        let here = LinkId::new(self.network.links.len());
        self.links.insert(id, here);
        self.network.links.push(Link {
            a,
            b,
            half_duplex: link.half_duplex,
        });
        for way in 0..2 {
            let old = PortId(id.0 * 2 + way);
            let new = PortId(here.0 * 2 + way);
            self.ports.insert(old, new);
            let port = &whole.ports[old.index()];
            let (node, peer) = if way == 0 { (a, b) } else { (b, a) };
            self.network.nodes[node.index()].ports.push(new);
            self.network.ports.push(Port {
                node,
                peer,
                reverse: PortId(here.0 * 2 + 1 - way),
                link: here,
                discipline: self.discipline(&port.discipline),
                impairments: harmless(&port.impairments),
                ..port.clone()
            });
        }
    }

    fn node(&mut self, whole: &Network, id: NodeId) -> NodeId {
        let nodes = &mut self.network.nodes;
        *self.nodes.entry(id).or_insert_with(|| {
            nodes.push(Node {
                ports: Vec::new(),
                ..whole.nodes[id.index()].clone()
            });
            NodeId::new(nodes.len() - 1)
        })
    }

    /// The class of undeclared best effort at a port: below all, or at a weighted port that of declared class 0, with its share.
    pub(super) fn best_effort_class(&self, discipline: &Discipline) -> Class {
        match discipline {
            Discipline::Drr(_) => self.class(Class(0)),
            Discipline::StrictPriority | Discipline::Fifo => Class(0),
        }
    }

    fn class(&self, class: Class) -> Class {
        Class(self.classes[usize::from(class.0.min(7))])
    }

    fn discipline(&self, discipline: &Discipline) -> Discipline {
        let Discipline::Drr(quanta) = discipline else {
            return discipline.clone();
        };
        let mut moved = [1; 8];
        for (class, quantum) in quanta.iter().enumerate() {
            // Classes that nobody here uses share a number with one that is used, and must not decide about it.
            if class == 0 || self.classes[class] != self.classes[class - 1] {
                moved[usize::from(self.classes[class])] = *quantum;
            }
        }
        Discipline::Drr(moved)
    }

    fn stream(&self, stream: &Stream, hops: &BTreeSet<u32>, leaf: Option<u32>) -> Stream {
        let place = |hop: u32| hops.range(..hop).count() as u32;
        let kept = hops.iter().filter_map(|&hop| {
            let old = stream.tree.hops[hop as usize];
            Some(Hop {
                port: self.port(old.port)?,
                parent: old.parent.map(place),
                forks: old.forks,
            })
        });
        let leaves = leaf.map(|leaf| {
            let leaf = stream.tree.leaves[leaf as usize];
            Leaf {
                node: self.nodes[&leaf.node],
                hop: place(leaf.hop),
            }
        });
        Stream {
            name: stream.name.clone(),
            source: self.nodes[&stream.source],
            class: self.class(stream.class),
            role: stream.role,
            arrival: stream.arrival.clone(),
            release: stream.release.clone(),
            deadline: stream.deadline,
            least_frame: stream.least_frame,
            tree: Tree {
                hops: kept.collect(),
                leaves: leaves.into_iter().collect(),
            },
        }
    }
}

/// A network like this one with nothing in it.
fn empty(like: &Network) -> Network {
    Network {
        nodes: Vec::new(),
        ports: Vec::new(),
        links: Vec::new(),
        streams: Vec::new(),
        media: like.media,
        best_effort_frame: like.best_effort_frame,
        routes: timebound_model::routes::Routes::default(),
    }
}

fn with_ancestors(whole: &Network, part: &Part) -> BTreeSet<u32> {
    let tree = &whole.streams[part.stream.index()].tree;
    let mut kept = BTreeSet::new();
    for &hop in &part.hops {
        let mut at = Some(hop);
        while let Some(hop) = at {
            if !kept.insert(hop) {
                break;
            }
            at = tree.hops[hop as usize].parent;
        }
    }
    kept
}

/// The classes in use without gaps, in their order, and class 0 left free unless all eight are in use.
fn squeeze(used: impl Iterator<Item = Class>) -> (bool, [u8; 8]) {
    let mut present = [false; 8];
    used.for_each(|class| present[usize::from(class.0.min(7))] = true);
    if present.iter().all(|used| *used) {
        return (false, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
    let mut classes = [0; 8];
    let mut next = 0;
    for (class, used) in present.into_iter().enumerate() {
        next += u8::from(used);
        classes[class] = next;
    }
    (true, classes)
}

/// Nothing is lost or damaged by chance: that every frame arrives is one of the things that can happen.
fn harmless(impairments: &Impairments) -> Impairments {
    Impairments {
        loss: None,
        corruption: 0.0,
        ..impairments.clone()
    }
}

/// Times at which conditions of the part repeat or end: where in them a release falls is a choice of its own.
pub(super) fn cycle(network: &Network) -> u64 {
    let of = |port: &Port| {
        let trace = port.trace.as_ref().map_or(0, |trace| trace.period().0);
        let outages = port
            .impairments
            .outages
            .last()
            .map_or(0, |(_, end)| end.0.min(Time(1 << 40).0));
        let slots = port.slots.as_ref().map_or(0, |slots| slots.cycle().0);
        trace.max(outages).max(slots)
    };
    network.ports.iter().map(of).max().unwrap_or(0)
}

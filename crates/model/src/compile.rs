//! Declaration -> network. All errors are collected, each with the path of the offending part.

use crate::declaration::{
    ArrivalDecl, Declaration, DirectionDecl, ImpairmentsDecl, JitterDistribution, LossDecl, NodeKindDecl,
    QueueDecl, ReleaseDecl, RoleDecl, StreamDecl,
};
use crate::ids::{LinkId, MediumId, NodeId, PortId};
use crate::network::{
    Arrival, Discipline, Hop, Impairments, Leaf, Link, Network, Node, NodeKind, Port, Release, Role, Stream,
    Tree,
};
use crate::routes::Routes;
use crate::units::{Class, Rate, Span, Time, WireBytes};
use std::collections::{BTreeMap, BTreeSet};

/// One thing that is wrong in a declaration.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[error("{path}: {message} (hint: {hint})")]
pub struct CompileError {
    /// Where, as `streams[3].destinations[0]`.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// Everything that is wrong in a declaration, in order of appearance.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[error("{} error(s) in the network, first: {}", .0.len(), .0[0])]
pub struct CompileErrors(pub Vec<CompileError>);

/// Longest time that a declaration may state: about 11.5 days, so that sums of many of them cannot overflow.
const LONGEST: u64 = 1_000_000_000_000_000;
/// Largest frame on a wire (jumbo frames with headers).
const LARGEST_FRAME: u32 = 9_300;
/// Slowest and fastest link.
const RATES: std::ops::RangeInclusive<u64> = 100..=10_000_000_000_000;
const MOST_NODES: usize = 20_000;

struct Checker {
    errors: Vec<CompileError>,
}

impl Checker {
    fn error(&mut self, path: impl Into<String>, message: impl Into<String>, hint: impl Into<String>) {
        self.errors.push(CompileError {
            path: path.into(),
            message: message.into(),
            hint: hint.into(),
        });
    }
    fn time(&mut self, path: &str, nanos: u64) -> Span {
        if nanos > LONGEST {
            self.error(
                path,
                format!("{nanos} ns is longer than {LONGEST} ns"),
                "state a time of at most 11 days",
            );
        }
        Span(nanos.min(LONGEST))
    }
    fn frame(&mut self, path: &str, bytes: u32) -> WireBytes {
        if bytes == 0 || bytes > LARGEST_FRAME {
            self.error(
                path,
                format!("a frame of {bytes} bytes on the wire is impossible"),
                format!("frames are between 1 and {LARGEST_FRAME} bytes on the wire"),
            );
        }
        WireBytes(bytes.clamp(1, LARGEST_FRAME))
    }
    fn probability(&mut self, path: &str, value: f64) -> f64 {
        if !(0.0..=1.0).contains(&value) {
            self.error(
                path,
                format!("{value} is no probability"),
                "state a share between 0 % and 100 %",
            );
            return 0.0;
        }
        value
    }
}

/// Compiles a declaration.
///
/// # Errors
/// Everything that is wrong, all at once: duplicate or unknown names, times, rates, sizes and probabilities out of
/// range, self-links, destinations that cannot be reached, explicit routes that are no paths.
pub fn compile(declaration: &Declaration) -> Result<Network, CompileErrors> {
    let mut check = Checker { errors: Vec::new() };
    let (mut nodes, names) = compile_nodes(declaration, &mut check);
    let (links, ports, media) = compile_links(declaration, &mut nodes, &names, &mut check);
    if !check.errors.is_empty() {
        return Err(CompileErrors(check.errors));
    }
    let routes = Routes::compute(&nodes, &ports);
    let best_effort_frame = check.frame("best_effort_frame_bytes", declaration.best_effort_frame_bytes);
    let mut network = Network {
        nodes,
        ports,
        links,
        streams: Vec::new(),
        media,
        best_effort_frame,
        routes,
    };
    let mut seen = BTreeSet::new();
    for (index, stream) in declaration.streams.iter().enumerate() {
        let path = format!("streams[{index}]");
        if !seen.insert(stream.name.as_str()) {
            check.error(
                format!("{path}.name"),
                format!("duplicate stream {:?}", stream.name),
                "rename one of them",
            );
        }
        if let Some(stream) = compile_stream(stream, &path, &network, &names, &mut check) {
            network.streams.push(stream);
        }
    }
    if check.errors.is_empty() {
        Ok(network)
    } else {
        Err(CompileErrors(check.errors))
    }
}

fn compile_nodes<'a>(
    declaration: &'a Declaration,
    check: &mut Checker,
) -> (Vec<Node>, BTreeMap<&'a str, NodeId>) {
    let mut names = BTreeMap::new();
    let mut nodes = Vec::with_capacity(declaration.nodes.len());
    if declaration.nodes.len() > MOST_NODES {
        check.error(
            "nodes",
            format!("more than {MOST_NODES} nodes"),
            "split the network",
        );
        return (nodes, names);
    }
    for (index, node) in declaration.nodes.iter().enumerate() {
        let path = format!("nodes[{index}]");
        if names.insert(node.name.as_str(), NodeId::new(index)).is_some() {
            check.error(
                format!("{path}.name"),
                format!("duplicate node {:?}", node.name),
                "rename one of them",
            );
        }
        let switching_min = check.time(&format!("{path}.switching_min_ns"), node.switching_min_ns);
        let switching_max = check.time(&format!("{path}.switching_max_ns"), node.switching_max_ns);
        if switching_min > switching_max {
            check.error(
                format!("{path}.switching_min_ns"),
                "the least switching delay exceeds the greatest",
                "write the range as least..greatest",
            );
        }
        nodes.push(Node {
            name: node.name.clone(),
            kind: match node.kind {
                NodeKindDecl::Host => NodeKind::Host,
                NodeKindDecl::Switch => NodeKind::Switch,
                NodeKindDecl::Segment => NodeKind::Segment,
            },
            switching_min,
            switching_max,
            ports: Vec::new(),
        });
    }
    (nodes, names)
}

fn compile_links(
    declaration: &Declaration,
    nodes: &mut [Node],
    names: &BTreeMap<&str, NodeId>,
    check: &mut Checker,
) -> (Vec<Link>, Vec<Port>, u32) {
    let mut links = Vec::with_capacity(declaration.links.len());
    let mut ports = Vec::with_capacity(declaration.links.len() * 2);
    let mut media = 0u32;
    let mut segment_medium: BTreeMap<NodeId, MediumId> = BTreeMap::new();
    for (index, link) in declaration.links.iter().enumerate() {
        let path = format!("links[{index}]");
        let mut end = |field: &str, name: &str| {
            let found = names.get(name).copied();
            if found.is_none() {
                check.error(
                    format!("{path}.{field}"),
                    format!("unknown node {name:?}"),
                    "declare it under network.nodes",
                );
            }
            found
        };
        let (Some(a), Some(b)) = (end("a", &link.a), end("b", &link.b)) else {
            continue;
        };
        if a == b {
            check.error(
                path.as_str(),
                "a link from a node to itself",
                "name two different nodes",
            );
            continue;
        }
        let segments = [a, b]
            .into_iter()
            .filter(|n| nodes[n.index()].kind == NodeKind::Segment)
            .collect::<Vec<_>>();
        if segments.len() == 2 {
            check.error(
                path.as_str(),
                "two segments joined directly",
                "put a switch between two shared segments",
            );
            continue;
        }
        let mut fresh = || {
            media += 1;
            MediumId(media - 1)
        };
        let medium = match segments.first() {
            Some(segment) => Some(*segment_medium.entry(*segment).or_insert_with(&mut fresh)),
            None if link.half_duplex => Some(fresh()),
            None => None,
        };
        let id = LinkId::new(links.len());
        let (out, back) = (PortId::new(ports.len()), PortId::new(ports.len() + 1));
        ports.push(compile_port(
            &link.forward,
            &format!("{path}.forward"),
            (a, b),
            back,
            id,
            medium,
            check,
        ));
        ports.push(compile_port(
            &link.backward,
            &format!("{path}.backward"),
            (b, a),
            out,
            id,
            medium,
            check,
        ));
        nodes[a.index()].ports.push(out);
        nodes[b.index()].ports.push(back);
        links.push(Link {
            a,
            b,
            half_duplex: medium.is_some(),
        });
    }
    (links, ports, media)
}

fn compile_port(
    direction: &DirectionDecl,
    path: &str,
    (node, peer): (NodeId, NodeId),
    reverse: PortId,
    link: LinkId,
    medium: Option<MediumId>,
    check: &mut Checker,
) -> Port {
    if !RATES.contains(&direction.rate_bps) {
        check.error(
            format!("{path}.rate_bps"),
            format!("a rate of {} bit/s is impossible", direction.rate_bps),
            "state a rate between 100 bit/s and 10 Tbit/s",
        );
    }
    let discipline = match direction.queue {
        QueueDecl::StrictPriority => Discipline::StrictPriority,
        QueueDecl::Fifo => Discipline::Fifo,
        QueueDecl::Drr { quanta_bytes } => {
            if quanta_bytes.contains(&0) {
                check.error(
                    format!("{path}.queue.quanta_bytes"),
                    "a quantum of 0 bytes",
                    "give every class a share",
                );
            }
            Discipline::Drr(quanta_bytes.map(|q| q.max(1)))
        }
    };
    Port {
        node,
        peer,
        reverse,
        link,
        rate: Rate(direction.rate_bps.max(1)),
        propagation: check.time(&format!("{path}.delay_ns"), direction.delay_ns),
        discipline,
        buffer_bytes: direction.buffer_bytes,
        impairments: compile_impairments(&direction.impairments, &format!("{path}.impairments"), check),
        medium,
    }
}

/// Compiles impairments by themselves, for conditions that change during a run; `path` names them in errors.
///
/// # Errors
/// As [`compile`].
pub fn compile_conditions(decl: &ImpairmentsDecl, path: &str) -> Result<Impairments, CompileErrors> {
    let mut check = Checker { errors: Vec::new() };
    let impairments = compile_impairments(decl, path, &mut check);
    if check.errors.is_empty() {
        Ok(impairments)
    } else {
        Err(CompileErrors(check.errors))
    }
}

fn compile_impairments(decl: &ImpairmentsDecl, path: &str, check: &mut Checker) -> Impairments {
    if let Some(jitter) = &decl.jitter {
        let (times, alpha) = match jitter.distribution {
            JitterDistribution::Uniform { max_ns } => (vec![max_ns], 1.0),
            JitterDistribution::Normal {
                mean_ns,
                deviation_ns,
                max_ns,
            } => (vec![mean_ns, deviation_ns, max_ns], 1.0),
            JitterDistribution::Pareto {
                scale_ns,
                alpha,
                max_ns,
            } => (vec![scale_ns, max_ns], alpha),
            JitterDistribution::Exponential { mean_ns, max_ns } => (vec![mean_ns, max_ns], 1.0),
        };
        for nanos in times {
            check.time(&format!("{path}.jitter.distribution"), nanos);
        }
        if !(alpha.is_finite() && alpha > 0.0) {
            check.error(
                format!("{path}.jitter.distribution"),
                "the Pareto shape must be positive",
                "try alpha 3",
            );
        }
    }
    if let Some(loss) = &decl.loss {
        let path = format!("{path}.loss");
        match *loss {
            LossDecl::Bernoulli { probability } => {
                check.probability(&path, probability);
            }
            LossDecl::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_in_good,
                loss_in_bad,
            } => {
                for value in [good_to_bad, bad_to_good, loss_in_good, loss_in_bad] {
                    check.probability(&path, value);
                }
            }
        }
    }
    let mut outages: Vec<(Time, Time)> = Vec::new();
    let mut sorted = decl.outages.clone();
    sorted.sort_unstable();
    for (from, to) in sorted {
        if from >= to {
            check.error(
                format!("{path}.outages"),
                "an outage that ends before it starts",
                "write it as from..to",
            );
        } else {
            match outages.last_mut() {
                Some(last) if from <= last.1.0 => last.1 = last.1.max(Time(to)),
                _ => outages.push((Time(from), Time(to))),
            }
        }
    }
    Impairments {
        jitter: decl.jitter.clone(),
        loss: decl.loss.clone(),
        corruption: check.probability(&format!("{path}.corruption"), decl.corruption),
        corruption_drops: decl.corruption_drops,
        duplication: check.probability(&format!("{path}.duplication"), decl.duplication),
        outages,
    }
}

fn compile_stream(
    decl: &StreamDecl,
    path: &str,
    network: &Network,
    names: &BTreeMap<&str, NodeId>,
    check: &mut Checker,
) -> Option<Stream> {
    let errors_before = check.errors.len();
    let mut host = |field: String, name: &str| {
        match names.get(name).copied() {
            None => check.error(
                field,
                format!("unknown node {name:?}"),
                "declare it under network.nodes",
            ),
            Some(id) if network.nodes[id.index()].kind != NodeKind::Host => {
                check.error(
                    field,
                    format!("{name:?} is no host"),
                    "streams start and end at hosts",
                );
            }
            Some(id) => return Some(id),
        }
        None
    };
    let source = host(format!("{path}.source"), &decl.source);
    let mut destinations = Vec::new();
    for (index, name) in decl.destinations.iter().enumerate() {
        if let Some(id) = host(format!("{path}.destinations[{index}]"), name) {
            destinations.push((index, id));
        }
    }
    if decl.destinations.is_empty() {
        check.error(
            format!("{path}.destinations"),
            "no destination",
            "name at least one receiver",
        );
    }
    if decl.class > 7 {
        check.error(
            format!("{path}.class"),
            format!("class {} does not exist", decl.class),
            "classes are 0 to 7",
        );
    }
    let arrival = compile_arrival(&decl.arrival, path, check);
    let release = compile_release(&decl.release, path, check);
    let source = source?;
    let tree = compile_tree(decl, path, network, names, source, &destinations, check);
    if check.errors.len() > errors_before {
        return None;
    }
    Some(Stream {
        name: decl.name.clone(),
        source,
        class: Class(decl.class),
        role: match decl.role {
            RoleDecl::Data => Role::Data,
            RoleDecl::Ack => Role::Ack,
            RoleDecl::Control => Role::Control,
            RoleDecl::Background => Role::Background,
        },
        arrival,
        release,
        deadline: decl.deadline_ns.map(Span),
        tree,
    })
}

fn compile_arrival(decl: &ArrivalDecl, path: &str, check: &mut Checker) -> Arrival {
    match decl {
        ArrivalDecl::Periodic {
            period_ns,
            jitter_ns,
            frames_bytes,
        } => {
            if *period_ns == 0 {
                check.error(
                    format!("{path}.arrival.period_ns"),
                    "a period of zero",
                    "state the least time between releases",
                );
            }
            if frames_bytes.is_empty() {
                check.error(
                    format!("{path}.arrival.frames_bytes"),
                    "no frame",
                    "a release sends at least one frame",
                );
            }
            let at = format!("{path}.arrival.frames_bytes");
            Arrival::Periodic {
                period: check.time(&format!("{path}.arrival.period_ns"), (*period_ns).max(1)),
                jitter: check.time(&format!("{path}.arrival.jitter_ns"), *jitter_ns),
                frames: frames_bytes
                    .iter()
                    .map(|bytes| check.frame(&at, *bytes))
                    .collect(),
            }
        }
        ArrivalDecl::Unbounded { max_frame_bytes } => Arrival::Unbounded {
            max_frame: check.frame(&format!("{path}.arrival.max_frame_bytes"), *max_frame_bytes),
        },
    }
}

fn compile_release(decl: &ReleaseDecl, path: &str, check: &mut Checker) -> Release {
    let at = format!("{path}.release");
    let gap = |check: &mut Checker, nanos: u64| {
        if nanos == 0 {
            check.error(
                at.as_str(),
                "a gap of zero between releases",
                "state a positive gap",
            );
        }
        check.time(&at, nanos.max(1))
    };
    match decl {
        ReleaseDecl::Periodic { offset_ns } => Release::Periodic {
            offset: offset_ns.map(|n| check.time(&at, n)),
        },
        ReleaseDecl::Sporadic { mean_extra_ns } => Release::Sporadic {
            mean_extra: check.time(&at, *mean_extra_ns),
        },
        ReleaseDecl::Poisson {
            mean_gap_ns,
            frame_bytes,
        } => Release::Poisson {
            mean_gap: gap(check, *mean_gap_ns),
            frame: check.frame(&at, *frame_bytes),
        },
        ReleaseDecl::Constant { gap_ns, frame_bytes } => Release::Constant {
            gap: gap(check, *gap_ns),
            frame: check.frame(&at, *frame_bytes),
        },
        ReleaseDecl::Burst {
            gap_ns,
            frames,
            frame_bytes,
        } => Release::Burst {
            gap: gap(check, *gap_ns),
            frames: *frames,
            frame: check.frame(&at, *frame_bytes),
        },
        ReleaseDecl::Trace {
            times_ns,
            frame_bytes,
        } => {
            if !times_ns.is_sorted() {
                check.error(at.as_str(), "the times of a trace are not in order", "sort them");
            }
            Release::Trace {
                times: times_ns.iter().copied().map(Time).collect(),
                frame: check.frame(&at, *frame_bytes),
            }
        }
        ReleaseDecl::Silent => Release::Silent,
    }
}

/// Joins the paths to all destinations into one tree; a path that meets the tree again continues in it.
fn compile_tree(
    decl: &StreamDecl,
    path: &str,
    network: &Network,
    names: &BTreeMap<&str, NodeId>,
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
                tree.hops.push(Hop { port, parent });
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
    tree
}

fn explicit_route(
    route: Option<&Vec<String>>,
    network: &Network,
    names: &BTreeMap<&str, NodeId>,
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

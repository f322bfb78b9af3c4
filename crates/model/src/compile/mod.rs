//! Declaration -> network. All errors are collected, each with the path of the offending part.

mod links;
mod streams;
mod tree;

use crate::declaration::{Declaration, NodeKindDecl, StreamDecl};
use crate::ids::NodeId;
use crate::network::{Network, Node, NodeKind, Stream};
use crate::routes::Routes;
use crate::units::{Span, WireBytes};
use std::collections::{BTreeMap, BTreeSet};

pub use links::compile_conditions;

/// Node names and their ids.
type Names<'a> = BTreeMap<&'a str, NodeId>;

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

const MOST_NODES: usize = 20_000;
/// Hops of all streams together: 100,000 streams over 15 ports each.
const MOST_HOPS: usize = 1_500_000;

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
    let (links, ports, media) = links::compile_links(declaration, &mut nodes, &names, &mut check);
    if !check.errors.is_empty() {
        return Err(CompileErrors(check.errors));
    }
    let routes = Routes::compute(&nodes, &ports);
    // Of nothing that is not declared there is no frame either.
    let best_effort_frame = match declaration.best_effort_frame_bytes {
        0 => WireBytes(0),
        bytes => check.frame("best_effort_frame_bytes", bytes),
    };
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
    let mut hops = 0;
    for (index, stream) in declaration.streams.iter().enumerate() {
        let path = format!("streams[{index}]");
        if !seen.insert(stream.name.as_str()) {
            check.error(
                format!("{path}.name"),
                format!("duplicate stream {:?}", stream.name),
                "rename one of them",
            );
        }
        if let Some(stream) = streams::compile_stream(stream, &path, &network, &names, &mut check) {
            hops += stream.tree.hops.len();
            network.streams.push(stream);
        }
        if hops > MOST_HOPS {
            check.error(
                path,
                format!("up to this stream there are more than {MOST_HOPS} hops on the ways of all streams"),
                "declare fewer flows, or split the network",
            );
            break;
        }
    }
    if check.errors.is_empty() {
        Ok(network)
    } else {
        Err(CompileErrors(check.errors))
    }
}

/// Compiles one stream more for a network, whose own streams it may repeat. Paths of errors begin with `stream`.
///
/// # Errors
/// As [`compile`], for this stream.
pub fn compile_stream(network: &Network, stream: &StreamDecl) -> Result<Stream, CompileErrors> {
    let route = stream.route.iter().flatten().flatten();
    let mentioned: BTreeSet<&str> = std::iter::once(&stream.source)
        .chain(&stream.destinations)
        .chain(route)
        .map(String::as_str)
        .collect();
    let nodes = network.nodes.iter().enumerate();
    let names: Names<'_> = nodes
        .filter(|(_, node)| mentioned.contains(node.name.as_str()))
        .map(|(index, node)| (node.name.as_str(), NodeId::new(index)))
        .collect();
    let mut check = Checker { errors: Vec::new() };
    match streams::compile_stream(stream, "stream", network, &names, &mut check) {
        Some(stream) if check.errors.is_empty() => Ok(stream),
        _ => Err(CompileErrors(check.errors)),
    }
}

fn compile_nodes<'a>(declaration: &'a Declaration, check: &mut Checker) -> (Vec<Node>, Names<'a>) {
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
        let replication_min = check.time(&format!("{path}.replication_min_ns"), node.replication_min_ns);
        let replication_max = check.time(&format!("{path}.replication_max_ns"), node.replication_max_ns);
        if replication_min > replication_max {
            check.error(
                format!("{path}.replication_min_ns"),
                "the least replication delay exceeds the greatest",
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
            replication_min,
            replication_max,
            ports: Vec::new(),
        });
    }
    (nodes, names)
}

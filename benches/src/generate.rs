//! Random networks, to hold bounds against what can happen: 1 to 30 switches (mostly few) in trees, trees with extra links, rings and
//! grids, the last two with explicit routes that close cycles; FIFO or strict priority with one to eight classes; jitter up to two periods, token
//! buckets, several frames in a release, multicast; ranges of switching and replication delay, bounded link jitter; 10 Mbit/s to 1 Gbit/s. The
//! busiest port is loaded to between 10 and 99 per cent.

use crate::draw::Draw;
use crate::parts::{link, loaded, node};
use timebound_model::Network;
use timebound_model::declaration::{
    ArrivalDecl, Declaration, ImpairmentsDecl, JitterDecl, JitterDistribution, LinkDecl, NodeDecl,
    NodeKindDecl, QueueDecl, ReleaseDecl, RoleDecl, StreamDecl,
};

/// Where switches stand and how frames find their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A random tree, with or without some extra links; shortest paths.
    Tree,
    /// A ring; every stream goes around one way, so that the routes close a cycle.
    Ring,
    /// A grid with paths that wander.
    Grid { width: u64 },
}

struct Plan {
    layout: Layout,
    switches: u64,
    /// The switch of every host.
    hosts: Vec<u64>,
    classes: u64,
    queue: QueueDecl,
    /// Pairs of switches that are joined.
    joined: Vec<(u64, u64)>,
}

/// Network `index` of a corpus.
///
/// # Panics
/// If the generator makes a network that does not compile.
#[must_use]
pub fn network(seed: u64, index: u64) -> Network {
    let (declaration, utilisation) = declaration(seed, index);
    loaded(declaration, utilisation)
}

/// What [`network`] is made of: periods that are yet to be stretched, and the utilisation that the busiest port is to have.
#[must_use]
pub fn declaration(seed: u64, index: u64) -> (Declaration, f64) {
    let mut draw = Draw::of(seed, index);
    let plan = plan(&mut draw);
    let mut declaration = Declaration {
        nodes: nodes(&mut draw, &plan),
        links: links(&mut draw, &plan),
        streams: Vec::new(),
        best_effort_frame_bytes: 1538,
        traces: std::collections::BTreeMap::new(),
    };
    let most = if plan.switches > 8 { 40 } else { 14 };
    let count = draw.between(1, most);
    declaration.streams = (0..count)
        .map(|number| stream(&mut draw, &plan, number))
        .collect();
    let percent = draw.between(10, 99);
    (declaration, percent as f64 / 100.0)
}

fn plan(draw: &mut Draw) -> Plan {
    let most = if draw.one_in(10) { 30 } else { 6 };
    let mut switches = draw.between(1, most);
    let layout = match draw.between(0, 3) {
        0 if switches >= 3 => Layout::Ring,
        1 if switches >= 4 => {
            let width = draw.between(2, 5).min(switches / 2);
            switches -= switches % width;
            Layout::Grid { width }
        }
        _ => Layout::Tree,
    };
    let hosts = draw.between(2, 4 + switches.min(10));
    let queue = if draw.one_in(3) {
        QueueDecl::Fifo
    } else {
        QueueDecl::StrictPriority
    };
    let mut plan = Plan {
        layout,
        switches,
        hosts: (0..hosts).map(|_| draw.between(0, switches - 1)).collect(),
        classes: draw.between(1, 8),
        queue,
        joined: Vec::new(),
    };
    plan.joined = joined(draw, &plan);
    plan
}

fn joined(draw: &mut Draw, plan: &Plan) -> Vec<(u64, u64)> {
    let count = plan.switches;
    match plan.layout {
        Layout::Ring => (0..count).map(|s| (s, (s + 1) % count)).collect(),
        Layout::Grid { width } => {
            let right = (0..count).filter(|s| (s + 1) % width != 0).map(|s| (s, s + 1));
            right.chain((0..count - width).map(|s| (s, s + width))).collect()
        }
        Layout::Tree => {
            let mut pairs: Vec<(u64, u64)> = (1..count).map(|s| (draw.between(0, s - 1), s)).collect();
            let extra = if draw.one_in(2) { count / 3 } else { 0 };
            for _ in 0..extra {
                let (a, b) = (draw.between(0, count - 1), draw.between(0, count - 1));
                if a != b && !pairs.contains(&(a, b)) && !pairs.contains(&(b, a)) {
                    pairs.push((a, b));
                }
            }
            pairs
        }
    }
}

fn nodes(draw: &mut Draw, plan: &Plan) -> Vec<NodeDecl> {
    let switches = (0..plan.switches).map(|s| {
        let least = draw.between(0, 20_000);
        let range = if draw.one_in(2) {
            draw.between(0, 30_000)
        } else {
            0
        };
        let copying = if draw.one_in(3) {
            draw.between(0, 20_000)
        } else {
            0
        };
        NodeDecl {
            replication_min_ns: copying / 2,
            replication_max_ns: copying,
            ..node(format!("s{s}"), NodeKindDecl::Switch, least, least + range)
        }
    });
    let mut nodes: Vec<NodeDecl> = switches.collect();
    nodes.extend((0..plan.hosts.len()).map(|h| node(format!("h{h}"), NodeKindDecl::Host, 0, 0)));
    nodes
}

fn links(draw: &mut Draw, plan: &Plan) -> Vec<LinkDecl> {
    let between = plan
        .joined
        .iter()
        .map(|(a, b)| (format!("s{a}"), format!("s{b}")));
    let edge = plan
        .hosts
        .iter()
        .enumerate()
        .map(|(h, s)| (format!("h{h}"), format!("s{s}")));
    let ends: Vec<(String, String)> = between.chain(edge).collect();
    let one = |(a, b): (String, String)| {
        let rate = *draw.choose(&[10_000_000, 100_000_000, 100_000_000, 1_000_000_000]);
        let delay = draw.between(0, 50_000);
        let jitter = draw.one_in(6).then(|| JitterDecl {
            distribution: JitterDistribution::Uniform {
                max_ns: draw.between(1, 200_000),
            },
            reorder: false,
        });
        link(
            a,
            b,
            rate,
            delay,
            &plan.queue,
            ImpairmentsDecl {
                jitter,
                ..ImpairmentsDecl::default()
            },
        )
    };
    ends.into_iter().map(one).collect()
}

fn stream(draw: &mut Draw, plan: &Plan, number: u64) -> StreamDecl {
    let hosts = plan.hosts.len() as u64;
    let source = draw.between(0, hosts - 1);
    let mut destinations: Vec<u64> = Vec::new();
    let several = plan.layout == Layout::Tree && draw.one_in(3);
    for _ in 0..if several { draw.between(2, 4) } else { 1 } {
        let to = draw.between(0, hosts - 1);
        if to != source && !destinations.contains(&to) {
            destinations.push(to);
        }
    }
    if destinations.is_empty() {
        destinations.push((source + 1) % hosts);
    }
    let route = (plan.layout != Layout::Tree).then(|| vec![route(draw, plan, source, destinations[0])]);
    let (arrival, release) = arrival(draw);
    StreamDecl {
        name: format!("f{number}"),
        source: format!("h{source}"),
        destinations: destinations.iter().map(|to| format!("h{to}")).collect(),
        class: draw.between(0, plan.classes - 1) as u8,
        role: RoleDecl::Data,
        arrival,
        release,
        deadline_ns: None,
        least_frame_bytes: None,
        route,
    }
}

/// Around the ring, or by steps that never come back to where they were.
fn route(draw: &mut Draw, plan: &Plan, from: u64, to: u64) -> Vec<String> {
    let (start, goal) = (plan.hosts[from as usize], plan.hosts[to as usize]);
    let mut switches = vec![start];
    while let (Layout::Ring, Some(&at)) = (plan.layout, switches.last())
        && at != goal
    {
        switches.push((at + 1) % plan.switches);
    }
    if plan.layout != Layout::Ring {
        switches = wander(draw, plan, start, goal);
    }
    let mut path = vec![format!("h{from}")];
    path.extend(switches.iter().map(|s| format!("s{s}")));
    path.push(format!("h{to}"));
    path
}

fn wander(draw: &mut Draw, plan: &Plan, start: u64, goal: u64) -> Vec<u64> {
    // Depth first with neighbours in random order: a path without loops, and often a long one.
    let mut path = vec![start];
    let mut seen = vec![false; plan.switches as usize];
    seen[start as usize] = true;
    while let Some(&at) = path.last()
        && at != goal
    {
        let near = plan.joined.iter().filter_map(|&(a, b)| match at {
            _ if a == at => Some(b),
            _ if b == at => Some(a),
            _ => None,
        });
        let free: Vec<u64> = near.filter(|next| !seen[*next as usize]).collect();
        if free.is_empty() {
            path.pop();
            continue;
        }
        let next = if free.contains(&goal) && draw.one_in(2) {
            goal
        } else {
            *draw.choose(&free)
        };
        seen[next as usize] = true;
        path.push(next);
    }
    path
}

fn arrival(draw: &mut Draw) -> (ArrivalDecl, ReleaseDecl) {
    let frames = if draw.one_in(5) { draw.between(2, 4) } else { 1 };
    let frames_bytes: Vec<u32> = (0..frames).map(|_| draw.between(84, 1538) as u32).collect();
    let sum: u64 = frames_bytes.iter().map(|bytes| u64::from(*bytes)).sum();
    // All weights from one to thirty; the load is set for all streams together.
    let period_ns = sum * 800 * draw.between(10, 300);
    let jitter_ns = match draw.between(0, 3) {
        0 => 0,
        1 => draw.between(0, period_ns / 10),
        2 => draw.between(0, period_ns),
        _ => draw.between(0, 2 * period_ns),
    };
    if !draw.one_in(5) {
        let arrival = ArrivalDecl::Periodic {
            period_ns,
            jitter_ns,
            frames_bytes,
        };
        return (arrival, ReleaseDecl::Periodic { offset_ns: None });
    }
    // A token bucket of the same rate whose burst holds one to four releases.
    let arrival = ArrivalDecl::TokenBucket {
        rate_bps: (sum * 8_000_000_000 / period_ns).max(1),
        burst_bytes: sum * draw.between(1, 4) + draw.between(0, sum),
        min_frame_bytes: frames_bytes.iter().copied().min().unwrap_or(84),
        max_frame_bytes: frames_bytes.iter().copied().max().unwrap_or(1538),
    };
    (
        arrival,
        ReleaseDecl::Greedy {
            offset_ns: None,
            frames_bytes,
        },
    )
}

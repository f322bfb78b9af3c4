//! Links become pairs of ports; what happens on them becomes impairments.

use super::{Checker, CompileErrors, Names};
use crate::declaration::{
    Declaration, DirectionDecl, DisconnectionsDecl, ImpairmentsDecl, JitterDistribution, LossDecl, QueueDecl,
    SlotsDecl,
};
use crate::ids::{LinkId, MediumId, NodeId, PortId};
use crate::network::{Discipline, Impairments, Link, Node, NodeKind, Port};
use crate::slots::Slots;
use crate::trace::Trace;
use crate::units::{Grain, Rate, Time};
use std::collections::BTreeMap;

/// Slowest and fastest link.
const RATES: std::ops::RangeInclusive<u64> = 100..=10_000_000_000_000;

pub(super) fn compile_links(
    declaration: &Declaration,
    nodes: &mut [Node],
    names: &Names<'_>,
    check: &mut Checker,
) -> (Vec<Link>, Vec<Port>, u32) {
    let mut links = Vec::with_capacity(declaration.links.len());
    let mut ports = Vec::with_capacity(declaration.links.len() * 2);
    let traces = compile_traces(&declaration.traces, check);
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
            &traces,
            check,
        ));
        ports.push(compile_port(
            &link.backward,
            &format!("{path}.backward"),
            (b, a),
            out,
            id,
            medium,
            &traces,
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
    if check.errors.is_empty() {
        check_media(nodes, &ports, media, check);
    }
    (links, ports, media)
}

fn compile_traces<'a>(
    declared: &'a BTreeMap<String, Vec<u64>>,
    check: &mut Checker,
) -> BTreeMap<&'a str, Trace> {
    let mut traces = BTreeMap::new();
    for (name, millis) in declared {
        match Trace::new(millis) {
            Ok(trace) => {
                traces.insert(name.as_str(), trace);
            }
            Err(message) => check.error(
                format!("traces.{name}"),
                message,
                "write one time in milliseconds per line, in order, the last one above 0",
            ),
        }
    }
    traces
}

fn compile_trace(
    name: Option<&str>,
    path: &str,
    medium: Option<MediumId>,
    traces: &BTreeMap<&str, Trace>,
    check: &mut Checker,
) -> Option<Trace> {
    let name = name?;
    if medium.is_some() {
        check.error(
            format!("{path}.trace"),
            "a trace on a shared or half-duplex medium",
            "make the link full duplex: the two directions of a cellular link have a trace each",
        );
    }
    let found = traces.get(name).cloned();
    if found.is_none() {
        check.error(
            format!("{path}.trace"),
            format!("unknown trace {name:?}"),
            "declare it under traces",
        );
    }
    found
}

fn compile_slots(direction: &DirectionDecl, path: &str, check: &mut Checker) -> Option<Slots> {
    let SlotsDecl { cycle_ns, slots_ns } = direction.slots.as_ref()?;
    let path = format!("{path}.slots");
    if direction.trace.is_some() {
        check.error(
            path.as_str(),
            "slots beside a trace",
            "a link has either slots or a trace of opportunities",
        );
    }
    let cycle = check.time(&path, *cycle_ns);
    let found = Slots::new(cycle, slots_ns);
    if let Err(message) = &found {
        check.error(
            path,
            *message,
            "slots have a start and a length within the cycle, and do not overlap",
        );
    }
    found.ok()
}

/// Senders of one medium take turns by slots, all of them or none, or the medium would have to arbitrate between both.
fn check_media(nodes: &[Node], ports: &[Port], media: u32, check: &mut Checker) {
    let path = |port: usize| {
        let side = if port.is_multiple_of(2) {
            "forward"
        } else {
            "backward"
        };
        format!("links[{}].{side}.slots", port / 2)
    };
    let mut senders: Vec<Vec<usize>> = vec![Vec::new(); media as usize];
    for (index, port) in ports.iter().enumerate() {
        if nodes[port.node.index()].kind == NodeKind::Segment {
            if port.slots.is_some() {
                check.error(
                    path(index),
                    "slots of a shared segment",
                    "slots belong to those who send on it: state them for the other direction",
                );
            }
        } else if let Some(medium) = port.medium {
            senders[medium.0 as usize].push(index);
        }
    }
    for senders in senders {
        let Some(&first) = senders.iter().find(|port| ports[**port].slots.is_some()) else {
            continue;
        };
        let mut known: Vec<usize> = Vec::new();
        for port in senders {
            let name = &nodes[ports[port].node.index()].name;
            let Some(slots) = &ports[port].slots else {
                check.error(
                    path(port),
                    format!("{name:?} has no slots on a medium where others have"),
                    "give every sender of the medium its slots",
                );
                continue;
            };
            if ports[first].slots.as_ref().map(Slots::cycle) != Some(slots.cycle()) {
                check.error(
                    path(port),
                    "two cycles on one medium",
                    "state one cycle for all of them",
                );
                continue;
            }
            let overlaps = |other: &&usize| ports[**other].slots.as_ref().is_some_and(|s| s.overlap(slots));
            if let Some(other) = known.iter().find(overlaps) {
                let rival = &nodes[ports[*other].node.index()].name;
                check.error(
                    path(port),
                    format!("slots of {name:?} and {rival:?} overlap"),
                    "on one medium one sends at a time",
                );
            }
            known.push(port);
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "one port's parts; they are said once")]
fn compile_port(
    direction: &DirectionDecl,
    path: &str,
    (node, peer): (NodeId, NodeId),
    reverse: PortId,
    link: LinkId,
    medium: Option<MediumId>,
    traces: &BTreeMap<&str, Trace>,
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
        grain: Grain::default(),
        propagation: check.time(&format!("{path}.delay_ns"), direction.delay_ns),
        discipline,
        buffer_bytes: direction.buffer_bytes,
        impairments: compile_impairments(&direction.impairments, &format!("{path}.impairments"), check),
        trace: compile_trace(direction.trace.as_deref(), path, medium, traces, check),
        slots: compile_slots(direction, path, check),
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
        disconnections: compile_disconnections(decl.disconnections, path, check),
        held: decl.held,
    }
}

/// Shortest mean time of a disconnection: less than a frame takes has no meaning, and costs a draw each.
const LEAST_TURN: u64 = 100_000;

fn compile_disconnections(
    decl: Option<DisconnectionsDecl>,
    path: &str,
    check: &mut Checker,
) -> Option<DisconnectionsDecl> {
    let decl = decl?;
    for (part, nanos) in [
        ("mean_up_ns", decl.mean_up_ns),
        ("mean_down_ns", decl.mean_down_ns),
    ] {
        let path = format!("{path}.disconnections.{part}");
        check.time(&path, nanos);
        if nanos < LEAST_TURN {
            check.error(
                path,
                "disconnections shorter than 100 us",
                "state times from 100 us up",
            );
        }
    }
    Some(decl)
}

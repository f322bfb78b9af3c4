//! From settled slots to results.

use crate::cause;
use crate::holistic::Propagation;
use crate::layout::{Flow, Level, NONE, crossing};
use crate::port;
use crate::result::{
    Analysis, ClassResult, HopResult, LeafResult, Outcome, PortResult, StreamResult, Utilisation,
};
use timebound_model::{Class, Discipline, Leaf, PortId, Span, StreamId};

const NANOS_PER_SECOND_AND_BYTE: u128 = 8_000_000_000;

pub(crate) fn assemble(pass: &mut Propagation<'_>) -> Analysis {
    let network = pass.network;
    let names: Vec<String> = (0..network.ports.len())
        .map(|p| network.port_name(PortId::new(p)))
        .collect();
    let streams = (0..network.streams.len())
        .map(|s| stream_result(pass, StreamId::new(s), &names))
        .collect();
    let ports = (0..network.ports.len())
        .map(|p| port_result(pass, PortId::new(p), &names[p]))
        .collect();
    Analysis { streams, ports }
}

fn stream_result(pass: &Propagation<'_>, id: StreamId, names: &[String]) -> StreamResult {
    let stream = &pass.network.streams[id.index()];
    let leaf_result = |leaf: &Leaf| LeafResult {
        node: leaf.node,
        receiver: pass.network.nodes[leaf.node.index()].name.clone(),
        outcome: outcome(pass, id, *leaf, names),
    };
    StreamResult {
        stream: stream.name.clone(),
        leaves: stream.tree.leaves.iter().map(leaf_result).collect(),
    }
}

fn outcome(pass: &Propagation<'_>, id: StreamId, leaf: Leaf, names: &[String]) -> Outcome {
    let tree = &pass.network.streams[id.index()].tree;
    let path = tree.path(leaf);
    let port_at = |hop: u32| tree.hops[hop as usize].port;
    let flows = &pass.layout.flows[pass.layout.flows_of[id.index()].clone()];
    let last_slot = |flow: &Flow| pass.layout.slot_of[flow.first_hop + leaf.hop as usize] as usize;
    let end = |flow: &Flow| pass.latest[last_slot(flow)] + pass.response[last_slot(flow)];
    let Some(slowest) = flows.iter().max_by_key(|flow| end(flow)) else {
        return cause::undeclared(pass.network, port_at(path[0]), id).outcome();
    };
    let cause = flows
        .iter()
        .map(|flow| departure_cause(pass, last_slot(flow)))
        .find(|cause| *cause != NONE);
    if let Some(cause) = cause.and_then(|id| pass.causes.get(id)) {
        return cause.outcome();
    }
    if let Some(cause) = path
        .iter()
        .find_map(|hop| cause::incomplete(pass.network, port_at(*hop)))
    {
        return cause.outcome();
    }
    let best_case = flows
        .iter()
        .map(|flow| earliest_at_leaf(pass, last_slot(flow)))
        .min()
        .unwrap_or_default();
    let hops: Vec<HopResult> = (0..path.len())
        .map(|position| hop_result(pass, slowest, &path, position, names))
        .collect();
    let crossed = crossing(&pass.network.ports[port_at(leaf.hop).index()]);
    let latest = Span(end(slowest)).saturating_add(crossed);
    let from_actual = latest.saturating_sub(Span(slowest.jitter));
    // A token bucket has no nominal releases.
    let from_nominal = if slowest.envelope.is_some() {
        from_actual
    } else {
        latest
    };
    Outcome::Bound {
        from_nominal,
        from_actual,
        best_case,
        hops,
    }
}

/// Why a frame's departure from a slot has no bound, or [`NONE`].
fn departure_cause(pass: &Propagation<'_>, slot: usize) -> u32 {
    match pass.arrival_cause[slot] {
        NONE => pass.level_cause[pass.layout.slots[slot].level as usize],
        cause => cause,
    }
}

fn earliest_at_leaf(pass: &Propagation<'_>, slot: usize) -> Span {
    let slot = &pass.layout.slots[slot];
    let port = &pass.network.ports[pass.layout.levels[slot.level as usize].port.index()];
    Span(slot.earliest)
        .saturating_add(Span(slot.own))
        .saturating_add(port.propagation)
}

fn hop_result(
    pass: &Propagation<'_>,
    flow: &Flow,
    path: &[u32],
    position: usize,
    names: &[String],
) -> HopResult {
    let slot_at = |hop: u32| pass.layout.slot_of[flow.first_hop + hop as usize] as usize;
    let slot = slot_at(path[position]);
    let port = pass.layout.levels[pass.layout.slots[slot].level as usize].port;
    let traversal = match path.get(position + 1) {
        Some(next) => Span(pass.layout.slots[slot_at(*next)].traversal),
        None => crossing(&pass.network.ports[port.index()]),
    };
    HopResult {
        port,
        name: names[port.index()].clone(),
        response: Span(pass.response[slot]),
        jitter_in: Span(pass.layout.demands[slot].jitter()),
        traversal,
    }
}

fn port_result(pass: &mut Propagation<'_>, id: PortId, name: &str) -> PortResult {
    let levels = pass.layout.ports[id.index()].levels.clone();
    let lowest = levels.clone().next_back();
    let utilisation = match lowest {
        Some(lowest) => Utilisation::of(pass.layout.demands_down_to(&pass.layout.levels[lowest])),
        None => Utilisation::of(&[]),
    };
    let reason = port_reason(pass, id, lowest);
    let backlog_bytes = if reason.is_none() {
        backlog(pass, id, lowest)
    } else {
        None
    };
    let classes = class_results(pass, id);
    PortResult {
        port: id,
        name: name.to_owned(),
        utilisation,
        backlog_bytes,
        exceeds_buffer: classes.iter().any(|class| class.exceeds_buffer),
        classes,
        reason,
    }
}

fn port_reason(pass: &Propagation<'_>, id: PortId, lowest: Option<usize>) -> Option<String> {
    let used = &pass.layout.ports[id.index()];
    let fixed = cause::unanalysable(pass.network, id).or_else(|| cause::incomplete(pass.network, id));
    let undeclared = || {
        used.unbounded
            .map(|(_, stream)| cause::undeclared(pass.network, id, stream))
    };
    if let Some(cause) = fixed.or_else(undeclared) {
        return Some(cause.into_text());
    }
    lowest.and_then(|level| pass.causes.text(pass.level_cause[level]))
}

/// All classes together are one queue as far as its length is concerned. Of a frame in transmission the unsent rest is counted, so the
/// result covers what waits.
fn backlog(pass: &mut Propagation<'_>, id: PortId, lowest: Option<usize>) -> Option<u64> {
    let Some(lowest) = lowest else { return Some(0) };
    let level = &pass.layout.levels[lowest];
    let all = port::Class {
        blocking: pass.layout.best_effort[id.index()],
        same: pass.layout.demands_down_to(level),
        higher: &[],
    };
    let pending = all.responses(&mut pass.effort)?.pending()?;
    let rate = pass.network.ports[id.index()].rate;
    // Every transmission time is rounded up, so the bytes sent in `pending` at the full rate are no fewer than those that wait.
    u64::try_from(u128::from(pending) * u128::from(rate.0) / NANOS_PER_SECOND_AND_BYTE).ok()
}

fn class_results(pass: &mut Propagation<'_>, id: PortId) -> Vec<ClassResult> {
    let classes: Vec<Class> = pass.layout.ports[id.index()].classes().collect();
    let mut results = class_delays(pass, id, &classes);
    let one_queue = pass.network.ports[id.index()].discipline != Discipline::StrictPriority;
    let room = pass.network.ports[id.index()].buffer_bytes;
    for result in results.iter_mut().filter(|result| result.reason.is_none()) {
        let mut levels = pass.layout.ports[id.index()].levels.clone();
        let level = levels.find(|level| one_queue || pass.layout.levels[*level].class == result.class);
        result.backlog_bytes = level.and_then(|level| backlog(pass, id, Some(level)));
        result.exceeds_buffer = result.backlog_bytes.is_some_and(|bytes| bytes > room);
    }
    results
}

fn class_delays(pass: &Propagation<'_>, id: PortId, classes: &[Class]) -> Vec<ClassResult> {
    let used = &pass.layout.ports[id.index()];
    let unusable = cause::incomplete(pass.network, id).map(cause::Cause::into_text);
    let one_queue = pass.network.ports[id.index()].discipline != Discipline::StrictPriority;
    let result = |class: &Class| {
        let class = *class;
        let level = used
            .levels
            .clone()
            .find(|level| one_queue || pass.layout.levels[*level].class == class);
        let reason = match level {
            Some(level) => pass.causes.text(pass.level_cause[level]),
            None => used
                .unbounded
                .map(|(_, stream)| cause::undeclared(pass.network, id, stream).into_text()),
        };
        let reason = reason.or_else(|| unusable.clone());
        let largest = |level: &Level| {
            pass.response[level.start..level.end]
                .iter()
                .copied()
                .max()
                .map(Span)
        };
        let largest_delay = if reason.is_none() {
            level.and_then(|l| largest(&pass.layout.levels[l]))
        } else {
            None
        };
        ClassResult {
            class,
            largest_delay,
            backlog_bytes: None,
            exceeds_buffer: false,
            reason,
        }
    };
    classes.iter().map(result).collect()
}

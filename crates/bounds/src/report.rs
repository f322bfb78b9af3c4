//! From settled slots to results.

use crate::cause;
use crate::layout::{Flow, NONE, crossing};
use crate::propagation::Propagation;
use crate::result::{
    Analysis, ClassResult, HopResult, LeafResult, Outcome, PortResult, StreamResult, Utilisation,
};
use crate::settled::PortWork;
use crate::special::{is_special, passes, sorts};
use std::ops::Range;
use std::sync::Arc;
use timebound_model::{Class, Leaf, Network, PortId, Span, Speed, StreamId, WireBytes};

/// On so many threads; the result does not depend on it.
pub(crate) fn assemble(pass: &Propagation<'_>, threads: usize) -> Analysis {
    let network = pass.network;
    let names: Vec<Arc<str>> = (0..network.ports.len())
        .map(|p| network.port_name(PortId::new(p)).into())
        .collect();
    let ports: Vec<_> = (0..network.ports.len())
        .map(|port| pass.settled.port(port))
        .collect();
    let part = &|range: Range<usize>| {
        let report = Report {
            pass,
            ports: &ports,
            names: &names,
            path: Vec::new(),
        };
        report.streams(range)
    };
    let count = network.streams.len();
    let chunk = count.div_ceil(threads.max(1)).max(1);
    let streams = std::thread::scope(|scope| {
        let starts = (chunk..count).step_by(chunk);
        let others: Vec<_> = starts
            .map(|start| scope.spawn(move || part(start..(start + chunk).min(count))))
            .collect();
        let mut all = part(0..chunk.min(count));
        for other in others {
            all.extend(
                other
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            );
        }
        all
    });
    let ports = (0..network.ports.len())
        .map(|port| port_result(pass, &ports[port], PortId::new(port), &names[port]))
        .collect();
    Analysis {
        streams,
        ports,
        looked_at: pass.looked_at,
    }
}

struct Report<'a, P> {
    pass: &'a Propagation<'a>,
    ports: &'a [P],
    names: &'a [Arc<str>],
    /// Hops towards a leaf.
    path: Vec<u32>,
}

impl<P: std::ops::Deref<Target = PortWork>> Report<'_, P> {
    fn streams(mut self, range: Range<usize>) -> Vec<StreamResult> {
        let network = self.pass.network;
        let mut results = Vec::with_capacity(range.len());
        for index in range {
            let stream = &network.streams[index];
            let mut leaves = Vec::with_capacity(stream.tree.leaves.len());
            for leaf in &stream.tree.leaves {
                leaves.push(LeafResult {
                    node: leaf.node,
                    receiver: network.nodes[leaf.node.index()].name.clone(),
                    outcome: self.outcome(StreamId::new(index), *leaf),
                });
            }
            results.push(StreamResult {
                stream: stream.name.clone(),
                leaves,
            });
        }
        results
    }

    fn outcome(&mut self, id: StreamId, leaf: Leaf) -> Outcome {
        let pass = self.pass;
        let tree = &pass.network.streams[id.index()].tree;
        self.path.clear();
        let mut at = Some(leaf.hop);
        while let Some(hop) = at {
            self.path.push(hop);
            at = tree.hops[hop as usize].parent;
        }
        self.path.reverse();
        let port_at = |hop: u32| tree.hops[hop as usize].port;
        let flows = &pass.layout.flows[pass.layout.flows_of[id.index()].clone()];
        let last_slot = |flow: &Flow| pass.layout.slot_of[flow.first_hop + leaf.hop as usize] as usize;
        let Some(slowest) = flows
            .iter()
            .max_by_key(|flow| pass.settled.departure(last_slot(flow)))
        else {
            return cause::undeclared(pass.network, port_at(self.path[0]), id).outcome();
        };
        let cause = flows
            .iter()
            .map(|flow| pass.settled.departure_cause(&pass.layout, last_slot(flow)))
            .find(|cause| *cause != NONE);
        if let Some(cause) = cause.and_then(|id| pass.settled.causes().get(id).map(cause::Cause::outcome)) {
            return cause;
        }
        if let Some(cause) = self
            .path
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
        let hops = (0..self.path.len())
            .map(|position| self.hop(slowest, position))
            .collect();
        let crossed = crossing(&pass.network.ports[port_at(leaf.hop).index()]);
        let latest = Span(pass.settled.departure(last_slot(slowest))).saturating_add(crossed);
        // A sum that was cut would be no bound. No declared network comes near.
        if latest == Span::MAX {
            return cause::endless(pass.network, port_at(leaf.hop)).outcome();
        }
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
            best_whole: whole(
                best_case,
                pass.network,
                flows,
                self.path.iter().map(|hop| port_at(*hop)),
            ),
            hops,
        }
    }

    fn hop(&self, flow: &Flow, position: usize) -> HopResult {
        let layout = &self.pass.layout;
        let slot_at = |hop: u32| layout.slot_of[flow.first_hop + hop as usize] as usize;
        let tree = &self.pass.network.streams[flow.stream.index()].tree;
        let port = tree.hops[self.path[position] as usize].port;
        let slot = slot_at(self.path[position]);
        let seen = self.ports[port.index()].seen(slot);
        let traversal = match self.path.get(position + 1) {
            Some(next) => Span(layout.slots[slot_at(*next)].traversal),
            None => crossing(&self.pass.network.ports[port.index()]),
        };
        HopResult {
            port,
            name: Arc::clone(&self.names[port.index()]),
            response: Span(seen.response),
            counted_before: counted_before(self.pass, slot, seen.response),
            window: Span(seen.window),
            jitter_in: Span(seen.jitter),
            traversal,
        }
    }
}

/// What a response counts that ports before have counted, see [`HopResult::counted_before`].
pub(crate) fn counted_before(pass: &Propagation<'_>, slot: usize, response: u64) -> Span {
    let data = &pass.layout.slots[slot];
    let before = match data.parent {
        NONE => 0,
        parent => pass.settled.departure(parent as usize),
    };
    let alone = before.saturating_add(data.traversal).saturating_add(response);
    Span(alone.saturating_sub(pass.settled.departure(slot)))
}

fn earliest_at_leaf(pass: &Propagation<'_>, slot: usize) -> Span {
    let slot = &pass.layout.slots[slot];
    let port = &pass.network.ports[pass.layout.levels[slot.level as usize].port.index()];
    let flow = &pass.layout.flows[slot.flow as usize];
    Span(slot.earliest)
        .saturating_add(Span(
            flow.quickest(slot.own, port).saturating_sub(port.speed().early()),
        ))
        .saturating_add(port.propagation)
}

/// When the last frame of a release can be there at the earliest, if the first can at `best_case`.
///
/// At every port of the path the least frame comes first at the earliest, all are sent one after the other, and the last of them has at least
/// that way to go which the least frame has. So a port adds what it takes to send all but the least one. (The whole is rounded down once: a
/// port that carries fractions of a nanosecond on from frame to frame takes no less.)
pub(crate) fn whole<'f>(
    best_case: Span,
    network: &Network,
    flows: impl IntoIterator<Item = &'f Flow>,
    path: impl Iterator<Item = PortId>,
) -> Span {
    let (mut bytes, mut least) = (0u64, WireBytes(u32::MAX));
    for flow in flows {
        // A token bucket has no releases.
        let frames = if flow.envelope.is_some() {
            1
        } else {
            flow.multiplicity
        };
        bytes = bytes.saturating_add(u64::from(flow.least.0).saturating_mul(frames));
        least = least.min(flow.least);
    }
    let behind_the_first = |port: PortId| {
        let port = &network.ports[port.index()];
        if passes(network, port) {
            return 0;
        }
        let all = u128::from(bytes) * port.speed().ticks_per_byte() / u128::from(port.rate.0.max(1));
        let all = u64::try_from(all).unwrap_or(u64::MAX);
        all.saturating_sub(port.transmission_time(least).0)
    };
    best_case.saturating_add(Span(path.map(behind_the_first).max().unwrap_or(0)))
}

fn port_result(pass: &Propagation<'_>, work: &PortWork, id: PortId, name: &str) -> PortResult {
    let used = &pass.layout.ports[id.index()];
    let lowest = used.levels.clone().next_back();
    let utilisation = Utilisation::of(work.demands(used.slots.clone()));
    let reason = port_reason(pass, id, lowest);
    let backlog_bytes = match lowest {
        Some(_) if reason.is_none() && is_special(&pass.network.ports[id.index()]) => {
            let mut all = used.levels.clone().map(|level| work.outcome(level).backlog);
            let pending = all.try_fold(0u64, |sum, level| sum.checked_add(level?));
            pending.and_then(|pending| bytes(pass, id, pending))
        }
        Some(lowest) if reason.is_none() => {
            let pending = work.outcome(lowest).pending;
            pending.and_then(|pending| bytes(pass, id, pending))
        }
        None if reason.is_none() => Some(0),
        _ => None,
    };
    let classes = class_results(pass, work, id);
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
    lowest.and_then(|level| pass.settled.causes().text(pass.settled.level_cause(level)))
}

/// Work in ticks as bytes that wait. Of a frame in transmission the unsent rest is counted, so the result covers what waits. Every
/// transmission time is rounded up, so the bytes sent in that time at the full rate are no fewer than those that wait.
fn bytes(pass: &Propagation<'_>, id: PortId, pending: u64) -> Option<u64> {
    bytes_at(pass.network.ports[id.index()].speed(), pending)
}

pub(crate) fn bytes_at(speed: Speed, pending: u64) -> Option<u64> {
    u64::try_from(u128::from(pending) * u128::from(speed.rate.0) / speed.ticks_per_byte()).ok()
}

fn class_results(pass: &Propagation<'_>, work: &PortWork, id: PortId) -> Vec<ClassResult> {
    let used = &pass.layout.ports[id.index()];
    let unusable = cause::incomplete(pass.network, id).map(cause::Cause::into_text);
    let port = &pass.network.ports[id.index()];
    let strict = sorts(&port.discipline);
    let room = pass.network.ports[id.index()].buffer_bytes;
    let result = |class: Class| {
        let level = pass.layout.level_at(id.index(), class, strict);
        let reason = match level {
            Some(level) => pass.settled.causes().text(pass.settled.level_cause(level)),
            None => used
                .unbounded
                .map(|(_, stream)| cause::undeclared(pass.network, id, stream).into_text()),
        };
        let reason = reason.or_else(|| unusable.clone());
        let (mut largest_delay, mut backlog_bytes) = (None, None);
        if let (Some(level), None) = (level, &reason) {
            largest_delay = work.largest(level).map(Span);
            backlog_bytes = work
                .outcome(level)
                .backlog
                .and_then(|waiting| bytes(pass, id, waiting));
        }
        ClassResult {
            class,
            largest_delay,
            backlog_bytes,
            exceeds_buffer: backlog_bytes.is_some_and(|bytes| bytes > room),
            reason,
        }
    };
    used.classes().map(result).collect()
}

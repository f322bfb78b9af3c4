//! What is said about a change: what it would break, where, and by how much.

use super::Admission;
use crate::exact;
use crate::layout::{NONE, crossing};
use crate::report::bytes_at;
use crate::result::Utilisation;
use crate::settled::NEVER;
use serde::Serialize;
use std::collections::BTreeSet;
use timebound_model::{Arrival, Class, Leaf, PortId, Span, StreamId};

/// Breaches that a refusal lists; the rest is counted.
const LISTED: usize = 16;

/// Why a change is refused: what it would break.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Refusal {
    /// The gravest first: overloaded ports, then deadlines by how much they would be missed, then queues. At most 16.
    pub breaches: Vec<Breach>,
    /// How many there are in all.
    pub total: usize,
}

/// One thing that a change would break.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Breach {
    /// The port could not carry what it is given in the long run.
    Overload {
        port: PortId,
        /// `a->b`.
        name: String,
        utilisation: Utilisation,
    },
    /// A stream could miss its deadline at a receiver.
    Deadline {
        stream: String,
        receiver: String,
        #[serde(rename = "deadline_ns")]
        deadline: Span,
        /// From the nominal release; none if there would be no bound.
        #[serde(rename = "bound_ns")]
        bound: Option<Span>,
        /// The bound as it is; none without one, and for a stream that is not there yet.
        #[serde(rename = "before_ns")]
        before: Option<Span>,
        /// By how much the bound would exceed the deadline.
        #[serde(rename = "excess_ns")]
        excess: Option<Span>,
        /// The port of its path at which the response would grow most; of a new stream, where it is longest; without a bound,
        /// the first port that has none.
        port: PortId,
        /// `a->b`.
        name: String,
        /// The response there as it would be, and by how much it would grow.
        #[serde(rename = "response_ns")]
        response: Option<Span>,
        #[serde(rename = "growth_ns")]
        growth: Option<Span>,
        /// Why there would be no bound.
        reason: Option<String>,
    },
    /// A queue could exceed its room, and lose frames.
    Buffer {
        port: PortId,
        /// `a->b`.
        name: String,
        class: Class,
        /// Wire bytes that could wait; none if there is no bound on them.
        backlog_bytes: Option<u64>,
        room_bytes: u64,
    },
    /// The bounds along a cycle of routes did not settle within the computing limit.
    Unsettled { port: PortId, name: String },
}

impl Breach {
    /// Overloads first, then what exceeds its deadline most.
    fn rank(&self) -> (u8, u64) {
        match self {
            Self::Overload { .. } => (0, 0),
            Self::Unsettled { .. } => (1, 0),
            Self::Deadline { excess, .. } => (2, u64::MAX - excess.map_or(u64::MAX, |excess| excess.0)),
            Self::Buffer { .. } => (3, 0),
        }
    }
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Overload {
                name, utilisation, ..
            } => {
                write!(f, "port {name} would have utilisation {:.3}", utilisation.value)
            }
            Self::Deadline {
                stream,
                receiver,
                deadline,
                excess,
                name,
                growth,
                reason,
                ..
            } => {
                write!(
                    f,
                    "stream {stream:?} could miss its deadline of {deadline} at {receiver}"
                )?;
                match (excess, growth, reason) {
                    (Some(excess), Some(growth), _) => {
                        write!(
                            f,
                            " by {excess}; its response grows most at port {name}, by {growth}"
                        )
                    }
                    (Some(excess), None, _) => {
                        write!(f, " by {excess}; its response is longest at port {name}")
                    }
                    (None, _, reason) => {
                        write!(f, ": no bound at port {name}")?;
                        reason.iter().try_for_each(|reason| write!(f, ", as {reason}"))
                    }
                }
            }
            Self::Buffer {
                name,
                class,
                backlog_bytes,
                room_bytes,
                ..
            } => {
                let most = match backlog_bytes {
                    Some(bytes) => format!("up to {bytes} bytes"),
                    None => "bytes without bound".into(),
                };
                write!(
                    f,
                    "{most} of class {} could wait at port {name}, which has room for {room_bytes}",
                    class.0
                )
            }
            Self::Unsettled { name, .. } => {
                write!(
                    f,
                    "the bounds along the cycle of routes through port {name} do not settle"
                )
            }
        }
    }
}

impl Refusal {
    pub(super) fn of(mut breaches: Vec<Breach>) -> Result<(), Self> {
        let total = breaches.len();
        breaches.sort_by_key(Breach::rank);
        breaches.truncate(LISTED);
        if total == 0 {
            return Ok(());
        }
        Err(Self { breaches, total })
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(first) = self.breaches.first() {
            first.fmt(f)?;
        }
        match self.total {
            0 | 1 => Ok(()),
            total => write!(f, " (and {} more)", total - 1),
        }
    }
}

impl std::error::Error for Refusal {}

impl Admission {
    /// The ports on the way of a stream that are overloaded, and were not or were less so before.
    pub(super) fn overloads(&self, id: u32, before: &[(PortId, f64)]) -> Vec<Breach> {
        let Some(entry) = &self.state.streams[id as usize] else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for hop in &entry.stream.tree.hops {
            let level = self.lowest(hop.port);
            let passes = crate::special::passes(&self.network, &self.network.ports[hop.port.index()]);
            if passes || !self.state.is_exhausted(level) {
                continue;
            }
            let utilisation = self.state.utilisation(level);
            let known = before.iter().find(|(port, _)| *port == hop.port);
            if known.is_none_or(|(_, value)| *value < utilisation.value) {
                found.push(Breach::Overload {
                    port: hop.port,
                    name: self.network.port_name(hop.port),
                    utilisation,
                });
            }
        }
        found
    }

    /// The level that together with those above it is the whole port.
    pub(super) fn lowest(&self, port: PortId) -> usize {
        self.state.level_of(port, Class(0))
    }

    /// What the settled transaction broke; `new` is the stream that it added.
    pub(super) fn breaches(&self, new: Option<u32>) -> Vec<Breach> {
        let mut found = Vec::new();
        let suspects: BTreeSet<u32> = self.journal.suspects.iter().copied().collect();
        let others = suspects.into_iter().filter(|id| Some(*id) != new);
        for id in others.chain(new) {
            self.missed(id, Some(id) == new, &mut found);
        }
        if self.options.check_buffers {
            self.overflows(&mut found);
            found.extend(new.into_iter().flat_map(|id| self.floods(id)));
        }
        found
    }

    fn missed(&self, id: u32, is_new: bool, found: &mut Vec<Breach>) {
        let Some(entry) = &self.state.streams[id as usize] else {
            return;
        };
        let Some(deadline) = entry.stream.deadline else {
            return;
        };
        for leaf in &entry.stream.tree.leaves {
            let bound = self.bound_at(id, *leaf, |slot| self.state.slots[slot as usize].departure);
            if bound.is_some_and(|bound| bound <= deadline) {
                continue;
            }
            let before = if is_new {
                None
            } else {
                self.bound_at(id, *leaf, |slot| self.journal.departure_before(slot, &self.state))
            };
            let got_worse = match (before, bound) {
                (Some(before), Some(bound)) => bound > before,
                (Some(_), None) => true,
                (None, _) => is_new,
            };
            if got_worse {
                found.push(self.miss(id, *leaf, deadline, bound, before, is_new));
            }
        }
    }

    fn miss(
        &self,
        id: u32,
        leaf: Leaf,
        deadline: Span,
        bound: Option<Span>,
        before: Option<Span>,
        is_new: bool,
    ) -> Breach {
        let (stream, receiver) = self.state.streams[id as usize].as_ref().map_or_else(
            || (String::new(), String::new()),
            |entry| {
                (
                    entry.stream.name.clone(),
                    self.network.nodes[leaf.node.index()].name.clone(),
                )
            },
        );
        let (port, response, growth) = self.worst_hop(id, leaf, is_new);
        let tree = self.state.streams[id as usize]
            .as_ref()
            .map(|entry| &entry.stream.tree);
        let nanos = |time: Span| tree.map_or(time, |tree| exact::nanos(&self.network, tree, time));
        let (deadline, bound, before) = (nanos(deadline), bound.map(nanos), before.map(nanos));
        Breach::Deadline {
            stream,
            receiver,
            deadline,
            bound,
            before,
            excess: bound.map(|bound| bound.saturating_sub(deadline)),
            port,
            name: self.network.port_name(port),
            response: response.map(|response| {
                let slack = self.network.ports[port.index()].speed().slack();
                Span(response.saturating_add(slack.0) / self.network.per_nano())
            }),
            growth: growth.map(|growth| Span(growth.div_ceil(self.network.per_nano()))),
            reason: bound.is_none().then(|| self.reason(id, leaf).1),
        }
    }

    /// The hop of a path at which the response grew most, or is longest, or is without bound.
    fn worst_hop(&self, id: u32, leaf: Leaf, is_new: bool) -> (PortId, Option<u64>, Option<u64>) {
        let mut most: Option<(u64, PortId, u64)> = None;
        for slot in self.path(id, leaf) {
            let data = &self.state.slots[slot as usize];
            let level = &self.state.levels[data.level as usize];
            let port = PortId(data.level / super::state::RANKS as u32);
            let now = level.now.response(data.own);
            if now == NEVER || data.is_late {
                return (port, None, None);
            }
            let was = self.journal.response_before(slot, &self.state);
            let measure = if is_new { now } else { now.saturating_sub(was) };
            if most.is_none_or(|(known, ..)| measure > known) {
                most = Some((measure, port, now));
            }
        }
        match most {
            Some((measure, port, now)) => (port, Some(now), (!is_new).then_some(measure)),
            None => {
                let entry = self.state.streams[id as usize].as_ref();
                let first = entry.and_then(|entry| entry.stream.tree.hops.first());
                (first.map_or(PortId(0), |hop| hop.port), None, None)
            }
        }
    }

    /// The slots of the slowest flow of a stream towards a receiver, source first.
    pub(super) fn path(&self, id: u32, leaf: Leaf) -> Vec<u32> {
        let mut path = Vec::new();
        let Some(entry) = &self.state.streams[id as usize] else {
            return path;
        };
        let last = entry
            .flows
            .iter()
            .filter_map(|flow| self.state.flows[*flow as usize].as_ref())
            .map(|flow| (flow.first_hop + leaf.hop as usize) as u32)
            .max_by_key(|slot| self.state.slots[*slot as usize].departure);
        let mut at = last.unwrap_or(NONE);
        while at != NONE {
            path.push(at);
            at = self.state.slots[at as usize].parent;
        }
        path.reverse();
        path
    }

    /// A stream's bound at a receiver, from the nominal release, where slots have these departures.
    pub(super) fn bound_at(&self, id: u32, leaf: Leaf, departure: impl Fn(u32) -> u64) -> Option<Span> {
        let entry = self.state.streams[id as usize].as_ref()?;
        let tree = &entry.stream.tree;
        let place = tree.leaves.iter().position(|known| *known == leaf)?;
        if entry.is_incomplete[place] {
            return None;
        }
        let flows = entry
            .flows
            .iter()
            .filter_map(|flow| self.state.flows[*flow as usize].as_ref());
        // Of equal ones the last, as in the report.
        let (latest, flow) = flows
            .map(|flow| (departure((flow.first_hop + leaf.hop as usize) as u32), flow))
            .max_by_key(|(latest, _)| *latest)?;
        if latest == NEVER {
            return None;
        }
        let crossed = crossing(&self.network.ports[tree.hops[leaf.hop as usize].port.index()]);
        let latest = Span(latest).saturating_add(crossed);
        Some(match flow.envelope {
            Some(_) => latest.saturating_sub(Span(flow.jitter)),
            None => latest,
        })
    }

    /// Queues that the transaction may have filled beyond their room.
    fn overflows(&self, found: &mut Vec<Breach>) {
        let mut seen = BTreeSet::new();
        for (level, before_it) in self.journal.levels() {
            let port = PortId(*level / super::state::RANKS as u32);
            let room = self.network.ports[port.index()].buffer_bytes;
            let speed = self.network.ports[port.index()].speed();
            let kept = &self.state.levels[*level as usize];
            if kept.slots == 0 || !seen.insert(*level) {
                continue;
            }
            let bytes = |now: &super::state::Now| {
                let waiting = now.outcome.backlog.filter(|_| !now.is_unbounded)?;
                bytes_at(speed, waiting)
            };
            let (after, before) = (bytes(&kept.now), bytes(before_it));
            let fits = after.is_some_and(|after| after <= room);
            let was_no_better = match (before, after) {
                (Some(before), Some(after)) => after <= before,
                (None, None) => before_it.is_unbounded,
                _ => false,
            };
            if !fits && !was_no_better {
                let rank = (*level as usize % super::state::RANKS) as u8;
                found.push(Breach::Buffer {
                    port,
                    name: self.network.port_name(port),
                    class: Class(if self.state.ports[port.index()].sorts {
                        7 - rank
                    } else {
                        0
                    }),
                    backlog_bytes: after,
                    room_bytes: room,
                });
            }
        }
    }

    /// The queues of a stream that promises nothing: no room is enough.
    fn floods(&self, id: u32) -> Vec<Breach> {
        let entry = self.state.streams[id as usize].as_ref();
        let Some(stream) = entry.map(|entry| &entry.stream) else {
            return Vec::new();
        };
        if !matches!(stream.arrival, Arrival::Unbounded { .. }) {
            return Vec::new();
        }
        let hops = stream.tree.hops.iter();
        hops.map(|hop| Breach::Buffer {
            port: hop.port,
            name: self.network.port_name(hop.port),
            class: stream.class,
            backlog_bytes: None,
            room_bytes: self.network.ports[hop.port.index()].buffer_bytes,
        })
        .collect()
    }
}

/// A stream of the state.
pub(super) const fn public(id: u32) -> StreamId {
    StreamId(id)
}

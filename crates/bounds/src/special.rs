//! Ports whose service is more than strict priority (or one queue) at a constant rate: weighted ones, ports with slots, those of a
//! half-duplex medium, and the ways out of a shared segment.
//!
//! Arrivals are taken as staircases here, without line shaping: that is the holistic form, which every method may use.

mod weighted;

use crate::demand::{Effort, HORIZON};
use crate::layout::{Layout, Level};
use crate::level::Worst;
use crate::service::level::{self, Failure, Response};
use crate::service::tdma::Tdma;
use crate::service::work::{Work, in_window};
use crate::settled::{Outcome, PortWork, Settled};
use std::ops::Range;
use timebound_model::{Discipline, Network, NodeKind, Port, PortId, WireBytes};

/// Steps that one level may cost before straight lines take the place of its staircases.
const STEPS: u64 = 1 << 20;
/// With more sizes than this in a class, all get the response of the least one, which is the longest.
const MOST_SIZES: usize = 8;

/// Does a queue of its own serve each class? (With one queue for all there is one level.)
pub(crate) fn sorts(discipline: &Discipline) -> bool {
    matches!(discipline, Discipline::StrictPriority | Discipline::Drr(_))
}

/// Is the port a way out of a shared segment, on which nothing is sent a second time?
pub(crate) fn passes(network: &Network, port: &Port) -> bool {
    network.nodes[port.node.index()].kind == NodeKind::Segment
}

/// Is the service of the port none that [`crate::level`] knows?
pub(crate) fn is_special(port: &Port) -> bool {
    matches!(port.discipline, Discipline::Drr(_)) || port.medium.is_some() || port.slots.is_some()
}

/// Why a level of a special port has no responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unbounded {
    Overloaded,
    TooLong,
}

impl From<Failure> for Unbounded {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Overloaded => Self::Overloaded,
            Failure::TooLong => Self::TooLong,
        }
    }
}

/// A special port with its demands as they stand.
pub(crate) struct Special<'a> {
    pub(crate) network: &'a Network,
    pub(crate) layout: &'a Layout,
    pub(crate) settled: &'a Settled,
    pub(crate) port: PortId,
    pub(crate) work: &'a PortWork,
}

impl Special<'_> {
    fn port(&self) -> &Port {
        &self.network.ports[self.port.index()]
    }

    fn time(&self, bytes: u64) -> u64 {
        let bytes = WireBytes(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.port().transmission_time(bytes).0
    }

    /// What each frame waits for on a half-duplex medium: the largest frame of every other sender, best effort included.
    fn turn(&self) -> u64 {
        let port = self.port();
        let Some(medium) = port.medium.filter(|_| port.slots.is_none()) else {
            return 0;
        };
        let others = self.network.ports.iter().zip(0usize..).filter(|(other, index)| {
            *index != self.port.index() && other.medium == Some(medium) && !passes(self.network, other)
        });
        let longest = others.map(|(other, index)| {
            let declared = self.layout.ports[index].largest_frame();
            let declared = other.transmission_time(WireBytes(declared)).0;
            declared.max(self.layout.best_effort[index])
        });
        longest.fold(0, u64::saturating_add)
    }

    /// The demands of some slots with what each frame costs beside its transmission.
    fn demands(&self, slots: Range<usize>, turn: u64) -> Vec<Work> {
        let work_of = |slot: usize| {
            let demand = self.work.demand(slot);
            let flow = &self.layout.flows[self.layout.slots[slot].flow as usize];
            let weight = match &flow.envelope {
                Some(envelope) => envelope.weight_with(self.port().speed(), turn),
                None => demand
                    .weight()
                    .saturating_add(turn.saturating_mul(flow.multiplicity)),
            };
            Work {
                period: demand.period(),
                jitter: demand.jitter(),
                weight,
            }
        };
        slots.map(work_of).collect()
    }

    /// Best effort that nobody declared, if any is assumed: its largest frame in bytes for which a slot is long enough.
    fn best_effort(&self) -> u64 {
        if self.layout.best_effort[self.port.index()] == 0 {
            return 0;
        }
        let port = self.port();
        let room = port.slots.as_ref().map_or(u128::MAX, |slots| {
            u128::from(slots.longest().0) * u128::from(port.rate.0) / port.speed().ticks_per_byte()
        });
        let fits = u64::try_from(room).unwrap_or(u64::MAX);
        u64::from(self.network.best_effort_frame.0).min(fits)
    }

    /// Worst case of every transmission time of a level, sorted by the latter, and what can wait.
    pub(crate) fn responses(&self, index: usize, effort: &mut Effort) -> Result<Outcome, Unbounded> {
        if passes(self.network, self.port()) {
            return Ok(Outcome {
                worst: vec![(0, Worst::default())],
                backlog: Some(0),
                pending: None,
            });
        }
        let mut steps = STEPS.min(effort.left());
        let before = steps;
        let found = match &self.port().discipline {
            Discipline::Drr(quanta) => self.weighted(index, quanta, &mut steps),
            Discipline::StrictPriority | Discipline::Fifo => self.ordered(index, &mut steps),
        };
        // Adding up work in a window takes a fraction of what a step of other levels does.
        effort.spend((before - steps) / 4);
        let worst = found?;
        Ok(Outcome {
            backlog: self.backlog(index, &worst),
            worst,
            pending: None,
        })
    }

    /// Strict priority or one queue, on a medium or with slots.
    fn ordered(&self, index: usize, steps: &mut u64) -> Result<Vec<(u64, Worst)>, Failure> {
        let level = &self.layout.levels[index];
        let turn = self.turn();
        let same = self.demands(level.start..level.end, turn);
        let higher = self.demands(level.port_start..level.start, turn);
        let one_queue = !sorts(&self.port().discipline);
        let slots = self.tdma(level.port_start..level.end, one_queue)?;
        // Undeclared frames below our class may be under way; in one queue with ours they wait for their own turn or slot.
        let (blocking, ahead) = match (one_queue, level.blocking) {
            (false, blocking) => (blocking, 0),
            (true, 0) => (0, 0),
            (true, frame) => (0, frame.saturating_add(turn)),
        };
        let server = level::Level {
            blocking,
            ahead,
            same: &same,
            higher: &higher,
            weighted: None,
            slots: slots.as_ref(),
        };
        let own = self.sizes(level);
        let found = server.responses(&own, HORIZON, steps)?;
        Ok(self.by_size(level, &own, &found))
    }

    /// The slots for the frames of these flows, with best effort where that is in the same queue.
    fn tdma(&self, of: Range<usize>, with_best_effort: bool) -> Result<Option<Tdma>, Failure> {
        let Some(slots) = &self.port().slots else {
            return Ok(None);
        };
        let flows = || {
            self.layout.slots[of.clone()]
                .iter()
                .map(|slot| &self.layout.flows[slot.flow as usize])
        };
        let mut largest = flows().map(|flow| flow.largest.0).max().map_or(0, u64::from);
        let mut least = flows().map(|flow| flow.least.0).min().map_or(1, u64::from);
        if with_best_effort && self.best_effort() > 0 {
            largest = largest.max(self.best_effort());
            least = least.min(u64::from(WireBytes::MIN.0));
        }
        let tdma = Tdma::new(slots, self.time(least), self.time(largest));
        tdma.map(Some).ok_or(Failure::Overloaded)
    }

    /// Transmission times for which responses are worked out, in rising order.
    fn sizes(&self, level: &Level) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.layout.slots[level.start..level.end]
            .iter()
            .map(|slot| slot.own)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() > MOST_SIZES {
            sizes.truncate(1);
        }
        sizes
    }

    /// The responses of all sizes of the level; those that were not worked out get that of the least size.
    fn by_size(&self, level: &Level, own: &[u64], found: &[Response]) -> Vec<(u64, Worst)> {
        let mut all: Vec<u64> = self.layout.slots[level.start..level.end]
            .iter()
            .map(|slot| slot.own)
            .collect();
        all.sort_unstable();
        all.dedup();
        let of = |size: u64| {
            let place = own.binary_search(&size).unwrap_or(0);
            let found = found.get(place).copied().unwrap_or_default();
            // What it is made of is counted where it is explained.
            Worst {
                response: found.response,
                window: found.window,
                ..Worst::default()
            }
        };
        all.into_iter().map(|size| (size, of(size))).collect()
    }

    /// Work of a level that can wait at once, in nanoseconds: all that can arrive within its longest response.
    fn backlog(&self, index: usize, worst: &[(u64, Worst)]) -> Option<u64> {
        let level = &self.layout.levels[index];
        let longest = worst.iter().map(|(_, worst)| worst.response).max()?;
        let work = in_window(&self.demands(level.start..level.end, 0), longest);
        u64::try_from(work).ok().filter(|work| *work <= HORIZON)
    }
}

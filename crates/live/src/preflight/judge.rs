//! What the probes showed, held against what the conditions say: no sockets and no clock.

use super::blame::{Blame, Line};
use super::paths::{Resource, Route};
use super::probe::{Arrival, Single};
use super::replay::Replayed;
use crate::records::{DAMAGED, DROPPED, DeliveryRecord, FrameRecord, reason_code};
use crate::report::Check;
use crate::writer::ProbeLog;
use std::collections::{BTreeMap, BTreeSet};
use timebound_fabric::DropReason;
use timebound_model::declaration::LossDecl;
use timebound_model::{Network, PortId};

/// Error of converting a kernel stamp between clocks.
const CLOCK_ERROR: u64 = 20_000;
/// Half-width of the interval of a share in standard deviations: 99.99 % of a normal distribution lie within.
const DEVIATIONS: f64 = 3.891;
/// With fewer probes than this an interval of their losses says nothing.
pub(super) const FEWEST: u32 = 20;

/// A line that holds or does not.
pub(super) fn line(check: &str, expected: String, measured: String, ok: bool) -> Check {
    Check {
        check: check.to_owned(),
        expected,
        measured,
        ok: Some(ok),
    }
}

/// A line of what could not be tried.
pub(super) fn not_checked(check: &str, expected: String, why: String) -> Check {
    Check {
        check: check.to_owned(),
        expected,
        measured: why,
        ok: None,
    }
}

type Probe = (u32, u32);

/// All that one attempt of the check has seen.
pub(super) struct Seen<'a> {
    pub(super) network: &'a Network,
    pub(super) routes: &'a [Route],
    /// Probes that were sent one at a time.
    pub(super) single: &'a [Single],
    pub(super) arrivals: &'a [Arrival],
    pub(super) log: &'a ProbeLog,
    /// CLOCK_MONOTONIC at the fabric's time zero.
    pub(super) origin: u64,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC.
    pub(super) offset: i64,
    /// What a probe may be later than the model at the median.
    pub(super) tolerance: u64,
}

/// What a way's figures say of a frame of one size.
#[derive(Clone, Copy)]
struct Figures {
    least: u64,
    greatest: u64,
    with_copies: u64,
    occupancy: u64,
}

/// Until when earlier probes may be at a port.
#[derive(Clone, Copy, Default)]
struct Busy {
    flow: u32,
    /// For the next frame of the same way.
    same: u64,
    /// For one of another way, by the last way's frames.
    own: u64,
    /// By those of the ways before.
    others: u64,
}

impl Seen<'_> {
    /// The records of each probe: one for each of its copies, lost ones included.
    fn records(&self) -> BTreeMap<Probe, Vec<&FrameRecord>> {
        let mut all: BTreeMap<Probe, Vec<&FrameRecord>> = BTreeMap::new();
        for record in self.log.frames.iter().filter(|r| self.route(r).is_some()) {
            all.entry((record.flow, record.sequence))
                .or_default()
                .push(record);
        }
        all
    }

    fn route(&self, record: &FrameRecord) -> Option<&Route> {
        self.routes.get(record.flow as usize)
    }

    /// Probes that came when nothing before them could be where they went, by the stamps: whatever made them follow each other.
    fn alone(&self, figures: &mut Book<'_>) -> BTreeSet<Probe> {
        let mut entered: Vec<(i64, Probe, u32)> = (self.log.frames.iter())
            .filter(|record| self.route(record).is_some())
            .map(|record| (record.ingress_ns, (record.flow, record.sequence), record.wire))
            .collect();
        entered.sort_unstable();
        entered.dedup();
        let mut busy: BTreeMap<Resource, Busy> = BTreeMap::new();
        let mut alone = BTreeSet::new();
        for (ingress, probe, wire) in entered {
            let route = &self.routes[probe.0 as usize];
            let of = figures.of(route, wire);
            let now = ingress.max(0) as u64;
            let mut free = true;
            for resource in route.resources(self.network) {
                let state = busy.entry(resource).or_insert(Busy {
                    flow: probe.0,
                    ..Busy::default()
                });
                if state.flow != probe.0 {
                    *state = Busy {
                        flow: probe.0,
                        others: state.others.max(state.own),
                        ..Busy::default()
                    };
                }
                free &= now >= state.others && now >= state.same;
                state.same = state.same.max(now.saturating_add(of.occupancy));
                state.own = state.own.max(now.saturating_add(of.with_copies));
            }
            if free {
                alone.insert(probe);
            }
        }
        alone
    }

    /// Probes that had the network to themselves took exactly the time that their path's figures say.
    pub(super) fn latency(&self) -> Line {
        let mut figures = Book {
            network: self.network,
            known: BTreeMap::new(),
        };
        let (records, alone) = (self.records(), self.alone(&mut figures));
        let (mut right, mut wrong, mut lost) = (0u32, Vec::new(), 0u32);
        // What a real switch takes too long for is no condition of ours: the machine kept it waiting.
        let mut excused = true;
        for probe in self.single.iter().map(|single| (single.flow, single.sequence)) {
            let Some(copies) = records.get(&probe).filter(|_| alone.contains(&probe)) else {
                continue;
            };
            let route = &self.routes[probe.0 as usize];
            match self.wrong(route, copies, figures.of(route, copies[0].wire)) {
                Some((text, late)) => {
                    excused &= !route.switches.is_empty() && late;
                    wrong.push(text);
                }
                None if copies.iter().all(|copy| copy.flags & DROPPED != 0) => lost += 1,
                None => right += 1,
            }
        }
        let expected = "virtual latency of every probe as rates, delays and switching say".to_owned();
        if wrong.is_empty() && right == 0 && lost > 0 {
            let why = format!("not checked: all {lost} probes were lost on their way, as links here may do");
            return not_checked("latency", expected, why).or_blame(Blame::Machine);
        }
        let measured = match wrong.first() {
            None => format!("{right} of {right}"),
            Some(first) => format!("{} of {}, {first}", right, right as usize + wrong.len()),
        };
        let unseen = wrong.is_empty() && records.is_empty();
        let kept = excused && !wrong.is_empty();
        // Seen, but never alone: it was kept from sending them one by one.
        let crowded = wrong.is_empty() && right == 0;
        let blame = if unseen || kept || crowded {
            Blame::Machine
        } else {
            Blame::Condition
        };
        line("latency", expected, measured, wrong.is_empty() && right > 0).or_blame(blame)
    }

    /// What is wrong with the copies of a lone probe, if anything, and whether it is one that is late.
    fn wrong(&self, route: &Route, copies: &[&FrameRecord], figures: Figures) -> Option<(String, bool)> {
        let name = || route.name(self.network);
        let dropped = |copy: &&&FrameRecord| copy.flags & DROPPED != 0;
        if let Some(lost) = copies.iter().find(dropped)
            && !route.loses(self.network)
            && lost.lateness_or_reason != reason_code(DropReason::Buffer)
        {
            return Some((
                format!("{} lost a probe, though nothing there does", name()),
                false,
            ));
        }
        // Who came first can have waited for one that was lost later on.
        let intact = !copies.iter().any(|copy| copy.flags & DROPPED != 0);
        let mut taken: Vec<u64> = (copies.iter().filter(|copy| copy.flags & DROPPED == 0))
            .map(|copy| (copy.delivered_ns - copy.ingress_ns) as u64)
            .collect();
        taken.sort_unstable();
        for (index, latency) in taken.into_iter().enumerate() {
            let greatest = if index == 0 && intact {
                figures.greatest
            } else {
                figures.with_copies
            };
            if !(figures.least..=greatest).contains(&latency) {
                let text = format!("{} took {latency} ns, not {}..{greatest}", name(), figures.least);
                return Some((text, latency > greatest));
            }
        }
        None
    }

    /// What the model delivered has arrived at the sockets, large frames included, and nothing else has.
    pub(super) fn handover(&self) -> Line {
        let mut delivered: BTreeMap<Probe, usize> = BTreeMap::new();
        for record in self.log.frames.iter().filter(is_intact) {
            *delivered.entry((record.flow, record.sequence)).or_insert(0) += 1;
        }
        let mut got: BTreeMap<Probe, usize> = BTreeMap::new();
        for arrival in self.arrivals {
            *got.entry((arrival.flow, arrival.sequence)).or_insert(0) += 1;
        }
        let sum = |counts: &BTreeMap<_, usize>| counts.values().sum::<usize>();
        let expected = format!("{} probes arrive at their sockets", sum(&delivered));
        let nothing = self.log.frames.is_empty();
        let blame = if nothing { Blame::Machine } else { Blame::Either };
        if delivered.is_empty() && got.is_empty() && !nothing {
            let why = "not checked: the model delivered none intact".to_owned();
            return not_checked("handover", expected, why).or_blame(blame);
        }
        line(
            "handover",
            expected,
            format!("{}", sum(&got)),
            delivered == got && !got.is_empty(),
        )
        .or_blame(blame)
    }

    /// How much later than the model each copy reached its socket. The copies of one probe look alike: the first that arrived is
    /// the first that was delivered, and so on.
    fn lateness(&self) -> Vec<i64> {
        let mut due: BTreeMap<Probe, Vec<i64>> = BTreeMap::new();
        for record in self.log.frames.iter().filter(is_intact) {
            let probe = (record.flow, record.sequence);
            due.entry(probe).or_default().push(record.delivered_ns);
        }
        let mut stamps: BTreeMap<Probe, Vec<i64>> = BTreeMap::new();
        for arrival in self.arrivals {
            let stamp = arrival.stamp as i64 - self.offset - self.origin as i64;
            stamps
                .entry((arrival.flow, arrival.sequence))
                .or_default()
                .push(stamp);
        }
        let mut lateness = Vec::new();
        for (probe, mut stamps) in stamps {
            let mut due = due.remove(&probe).unwrap_or_default();
            due.sort_unstable();
            stamps.sort_unstable();
            lateness.extend(stamps.iter().zip(&due).map(|(stamp, due)| stamp - due));
        }
        lateness.sort_unstable();
        lateness
    }

    /// Real receivers got what the model delivered never early, and about in time.
    pub(super) fn timeliness(&self) -> [Line; 2] {
        let us = |nanos: i64| format!("{:.1} us", nanos as f64 / 1_000.0);
        let lateness = self.lateness();
        let never = format!(
            "no probe more than {} before its virtual arrival",
            us(CLOCK_ERROR as i64)
        );
        let about = format!("median at most {} above the model", us(self.tolerance as i64));
        let (Some(earliest), Some(latest)) = (lateness.first(), lateness.last()) else {
            // Whether anything should have arrived is the handover's question.
            let why = || "not checked: no probe arrived".to_owned();
            return [
                not_checked("never early", never, why()).or_blame(Blame::Condition),
                not_checked("real latency", about, why()).or_blame(Blame::Machine),
            ];
        };
        let median = lateness[lateness.len() / 2];
        [
            line(
                "never early",
                never,
                format!("earliest {}", us(*earliest)),
                *earliest >= -(CLOCK_ERROR as i64),
            )
            .or_blame(Blame::Condition),
            line(
                "real latency",
                about,
                format!("{} (worst {})", us(median), us(*latest)),
                median <= self.tolerance as i64,
            )
            .or_blame(Blame::Machine),
        ]
    }

    /// Share of probes lost on one link against the declared probability. Losses of the Gilbert-Elliott kind come in bursts, to
    /// which the interval of independent losses does not apply; for these the replay alone decides.
    pub(super) fn losses(&self, port: PortId, replayed: &Replayed) -> Line {
        let is_lost = |delivery: &&DeliveryRecord| {
            delivery.outcome == 16 + reason_code(DropReason::Loss) && delivery.port == port.0
        };
        let sent = replayed.sent_by(port);
        let lost = self.log.deliveries.iter().filter(is_lost).count();
        let name = format!("loss {}", self.network.port_name(port));
        let measured = format!("{lost} of {sent} probes");
        let Some(LossDecl::Bernoulli { probability }) = self.network.ports[port.index()].impairments.loss
        else {
            return line(&name, "verdicts as replayed".to_owned(), measured, true).or_blame(Blame::Either);
        };
        let share = format!("{} %", probability * 100.0);
        if sent < FEWEST as usize {
            let why = format!("not checked: only {sent} probes got as far");
            return not_checked(&name, share, why).or_blame(Blame::Either);
        }
        let n = sent as f64;
        let half = DEVIATIONS * (n * probability * (1.0 - probability)).sqrt() + 1.0;
        let (least, most) = (
            (n * probability - half).max(0.0).floor(),
            (n * probability + half).min(n).ceil(),
        );
        let ok = (least..=most).contains(&(lost as f64));
        line(
            &name,
            format!("{least} to {most} of {sent} probes ({share})"),
            measured,
            ok,
        )
        .or_blame(Blame::Either)
    }

    /// Ports that probes crossed: all of a way on which one came through, and of another one those up to where the last was lost.
    fn crossed(&self) -> BTreeSet<PortId> {
        let mut crossed = BTreeSet::new();
        for record in &self.log.frames {
            let Some(route) = self.route(record) else {
                continue;
            };
            if record.flags & DROPPED == 0 {
                crossed.extend(route.ports.iter().copied());
            } else if let Some(at) = (route.ports.iter()).position(|port| port.0 == record.messages_or_port) {
                crossed.extend(route.ports[..=at].iter().copied());
            }
        }
        crossed
    }

    /// A large, slow or lossy network is not fully covered in the time there is; that is said, not refused.
    pub(super) fn coverage(&self, coverable: &BTreeSet<PortId>) -> Line {
        let crossed = self.crossed();
        let missing: Vec<PortId> = coverable.difference(&crossed).copied().collect();
        let expected = "ports on routes between hosts".to_owned();
        let counted = format!("{} of {}", coverable.len() - missing.len(), coverable.len());
        if missing.is_empty() {
            return line("coverage", expected, counted, true).or_blame(Blame::Machine);
        }
        let names: Vec<String> = (missing.iter().take(5))
            .map(|port| self.network.port_name(*port))
            .collect();
        let more = match missing.len() - names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let measured = format!("{counted}; not {}{more}", names.join(", "));
        not_checked("coverage", expected, measured).or_blame(Blame::Machine)
    }
}

fn is_intact(record: &&FrameRecord) -> bool {
    record.flags & (DROPPED | DAMAGED) == 0 && record.delivered_ns >= 0
}

/// Conditions of the run that the probes did not meet: said, not refused.
pub(super) fn unprobed(left_out: &[String]) -> Option<Line> {
    let first = left_out[..left_out.len().min(5)].join(", ");
    let measured = match left_out.len() {
        0 => return None,
        1..=5 => format!("not probed: {first}"),
        all => format!("not probed: {first} and {} more", all - 5),
    };
    let expected =
        "conditions that only time brings, or that take too long (the replay of the run shows them)";
    Some(not_checked("not probed", expected.to_owned(), measured).or_blame(Blame::Either))
}

/// Figures of ways, each worked out once: those of a long trace take a while.
struct Book<'a> {
    network: &'a Network,
    known: BTreeMap<(u32, u32), Figures>,
}

impl Book<'_> {
    fn of(&mut self, route: &Route, wire: u32) -> Figures {
        *self.known.entry((route.flow, wire)).or_insert_with(|| {
            let (least, greatest) = route.latency(self.network, wire);
            Figures {
                least,
                greatest,
                with_copies: route.greatest_with_copies(self.network, wire),
                occupancy: route.occupancy(self.network, wire),
            }
        })
    }
}

//! Weighted ports: a class by its share, by what departs from the others, or by all that arrives, whichever says least.

use super::Special;
use crate::demand::HORIZON;
use crate::layout::NONE;
use crate::level::Worst;
use crate::service::drr::Share;
use crate::service::level::{self, Failure, Rival, Weighted};
use crate::service::tdma::Tdma;
use crate::service::work::Work;
use timebound_model::WireBytes;

/// Classes first know only their shares and what arrives, then what departs from the others; each round knows the others' delays of the
/// round before. All of them are bounds, so that any number is safe.
const ROUNDS: usize = 6;

impl Special<'_> {
    /// Deficit round robin, perhaps in slots.
    pub(super) fn weighted(
        &self,
        index: usize,
        quanta: &[u32; 8],
        steps: &mut u64,
    ) -> Result<Vec<(u64, Worst)>, Failure> {
        let levels = self.layout.ports[self.port.index()].levels.clone();
        let slots = match &self.port().slots {
            Some(slots) => {
                let largest = u64::from(self.layout.ports[self.port.index()].largest_frame());
                let largest = largest.max(self.best_effort());
                Some(Tdma::new(slots, 1, self.time(largest)).ok_or(Failure::Overloaded)?)
            }
            None => None,
        };
        let mut departures: [Option<Vec<Work>>; 8] = Default::default();
        // What is left is for the class itself.
        let mut rounds = *steps / 2;
        *steps -= rounds;
        for _ in 1..ROUNDS {
            let mut next: [Option<Vec<Work>>; 8] = Default::default();
            for other in levels.clone().filter(|other| self.has_bounded_arrivals(*other)) {
                if let Ok(worst) = self.least(other, quanta, &departures, slots.as_ref(), &mut rounds) {
                    let class = usize::from(self.layout.levels[other].class.0);
                    next[class] = Some(self.departures(other, &worst));
                }
            }
            if next == departures {
                break;
            }
            departures = next;
        }
        *steps += rounds;
        self.least(index, quanta, &departures, slots.as_ref(), steps)
    }

    /// One class by its share or by all that arrives, whichever says less.
    fn least(
        &self,
        index: usize,
        quanta: &[u32; 8],
        departures: &[Option<Vec<Work>>; 8],
        slots: Option<&Tdma>,
        steps: &mut u64,
    ) -> Result<Vec<(u64, Worst)>, Failure> {
        let mut half = *steps / 2;
        *steps -= half;
        let together = self.together(index, slots, &mut half);
        *steps += half;
        let share = self.share(index, quanta, departures, slots, steps);
        match (share, together) {
            (Ok(share), Some(Ok(together))) => {
                let less = |(one, other): ((u64, Worst), (u64, Worst))| {
                    if other.1.response < one.1.response {
                        other
                    } else {
                        one
                    }
                };
                Ok(share.into_iter().zip(together).map(less).collect())
            }
            (Err(_), Some(Ok(together))) => Ok(together),
            (share, _) => share,
        }
    }

    /// One class, if all others had the port before it. `None` where somebody may come without limit.
    ///
    /// Safe for every order of service in which the port is never idle while something waits, and a class keeps its own order: counted from the
    /// last instant at which nothing was waiting or under way, at time `w` the port has sent `w`, of nothing but what others brought up to
    /// `w` and what the class brought before our frame. As soon as that is no more than `w`, our frame has started. (Slots: with what the
    /// port surely does in them in place of `w`.)
    fn together(
        &self,
        index: usize,
        slots: Option<&Tdma>,
        steps: &mut u64,
    ) -> Option<Result<Vec<(u64, Worst)>, Failure>> {
        let used = &self.layout.ports[self.port.index()];
        let others = used.levels.clone().filter(|other| *other != index);
        if self.best_effort() > 0
            || used.unbounded.is_some()
            || !others.clone().all(|other| self.has_bounded_arrivals(other))
        {
            return None;
        }
        let level = &self.layout.levels[index];
        let same = self.demands(level.start..level.end, 0);
        let others = others.map(|other| &self.layout.levels[other]);
        let others: Vec<Work> = others
            .flat_map(|other| self.demands(other.start..other.end, 0))
            .collect();
        let server = level::Level {
            blocking: 0,
            ahead: 0,
            same: &same,
            higher: &others,
            weighted: None,
            slots,
        };
        let own = self.sizes(level);
        let found = server.responses(&own, HORIZON, steps);
        Some(found.map(|found| self.by_size(level, &own, &found)))
    }

    /// One class by its share, and by what is known of the departures of the others.
    fn share(
        &self,
        index: usize,
        quanta: &[u32; 8],
        departures: &[Option<Vec<Work>>; 8],
        slots: Option<&Tdma>,
        steps: &mut u64,
    ) -> Result<Vec<(u64, Worst)>, Failure> {
        let level = &self.layout.levels[index];
        let class = usize::from(level.class.0);
        let same = self.demands(level.start..level.end, 0);
        let ahead = match (class, self.best_effort()) {
            (0, bytes) if bytes > 0 => self.time(bytes),
            _ => 0,
        };
        let rivals = (0..8usize).filter(|other| *other != class);
        let rivals = rivals.filter_map(|other| self.rival(other, quanta, departures[other].clone()));
        let server = level::Level {
            blocking: 0,
            ahead,
            same: &same,
            higher: &[],
            weighted: Some(Weighted {
                speed: self.port().speed(),
                ours: self.class_share(class, quanta),
                rivals: rivals.collect(),
            }),
            slots,
        };
        let own = self.sizes(level);
        let found = server.responses(&own, HORIZON, steps)?;
        Ok(self.by_size(level, &own, &found))
    }

    /// Quantum, largest and least frame of a class; undeclared best effort is of class 0.
    fn class_share(&self, class: usize, quanta: &[u32; 8]) -> Share {
        let used = &self.layout.ports[self.port.index()];
        let undeclared = if class == 0 { self.best_effort() } else { 0 };
        let largest = u64::from(used.largest_of(class)).max(undeclared);
        // The most urgent stream that promises nothing is of class `most`.
        let any_length = undeclared > 0
            || used
                .unbounded
                .is_some_and(|(most, _)| class <= usize::from(most.0));
        let levels = used.levels.clone().map(|level| &self.layout.levels[level]);
        let declared = levels
            .filter(|level| usize::from(level.class.0) == class)
            .flat_map(|level| level.start..level.end)
            .map(|slot| self.layout.flows[self.layout.slots[slot].flow as usize].least.0);
        // Those that promise no size have at least that of Ethernet.
        let least = declared.fold(if any_length { WireBytes::MIN.0 } else { u32::MAX }, u32::min);
        Share {
            quantum: u64::from(quanta[class]),
            largest,
            least: u64::from(least).min(largest),
        }
    }

    fn rival(&self, class: usize, quanta: &[u32; 8], departures: Option<Vec<Work>>) -> Option<Rival> {
        let share = self.class_share(class, quanta);
        let undeclared = class == 0 && self.best_effort() > 0;
        (share.largest > 0).then(|| Rival {
            share,
            // Best effort may come at any time, as much as its share lets through.
            departures: departures.filter(|_| !undeclared),
        })
    }

    fn has_bounded_arrivals(&self, index: usize) -> bool {
        let level = &self.layout.levels[index];
        self.settled.level_cause(index) == NONE
            && (level.start..level.end).all(|slot| self.settled.arrival_cause(slot) == NONE)
    }

    /// What departs from a level: its arrivals, later by what a frame takes at most, earlier by what it takes at least.
    fn departures(&self, index: usize, worst: &[(u64, Worst)]) -> Vec<Work> {
        let level = &self.layout.levels[index];
        let mut work = self.demands(level.start..level.end, 0);
        for (slot, work) in (level.start..level.end).zip(&mut work) {
            let data = &self.layout.slots[slot];
            let own = data.own;
            let response = worst
                .iter()
                .find(|(size, _)| *size == own)
                .map_or(HORIZON, |(_, worst)| worst.response);
            let least = self.layout.flows[data.flow as usize].quickest(own, self.port());
            work.jitter = work.jitter.saturating_add(response.saturating_sub(least));
        }
        work
    }
}

//! One phasing of all streams: what an evaluation simulates.

use super::shape::Shape;
use crate::source::Released;
use timebound_fabric::{Draws, Switching};
use timebound_model::Time;

/// How a stream uses its jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lateness {
    /// The first release late by the whole jitter, its successors as soon as they may: the critical instant.
    First,
    None,
    Random,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Gene {
    /// Actual time of the first release.
    pub(super) start: u64,
    pub(super) lateness: Lateness,
}

#[derive(Debug, Clone)]
pub(super) struct Phasing {
    /// In order of the movers.
    pub(super) genes: Vec<Gene>,
    pub(super) switching: Switching,
    /// Of the fabric's draws and of random lateness.
    pub(super) seed: u64,
}

/// A release in an evaluation: time, ties (the target last), mover, nominal time.
pub(super) type Planned = (Time, bool, u32, Released);

impl Phasing {
    /// All releases until the end of the window, in the order in which they enter.
    pub(super) fn releases(&self, shape: &Shape, target: usize, planned: &mut Vec<Planned>) {
        planned.clear();
        let end = shape.base.saturating_add(shape.horizon);
        let mut draws = Draws::named(self.seed, "phasing", "lateness");
        for (index, (gene, mover)) in self.genes.iter().zip(&shape.movers).enumerate() {
            let first = match gene.lateness {
                Lateness::First => gene.start.saturating_sub(mover.jitter),
                Lateness::None | Lateness::Random => gene.start,
            };
            let mut nominal = first;
            let mut last = gene.start;
            while nominal.max(gene.start) < end {
                let late = if gene.lateness == Lateness::Random {
                    draws.up_to(mover.jitter)
                } else {
                    0
                };
                last = last.max(nominal + late);
                let released = Released {
                    nominal: Time(if mover.unscheduled { last } else { nominal }),
                    actual: Time(last),
                };
                planned.push((Time(last), index == target, index as u32, released));
                nominal += mover.period;
            }
        }
        planned.sort_unstable_by_key(|release| (release.0, release.1, release.2, release.3.nominal));
    }
}

//! Hill climbing over phasings: alignment moves towards one receiver.

use super::evaluate::{Evaluator, Finding};
use super::phasing::{Gene, Lateness, Phasing};
use super::shape::{Shape, Target};
use timebound_fabric::{Draws, Switching};
use timebound_model::{NodeKind, Span};

/// A stream that shares a port with the target's path.
#[derive(Debug, Clone, Copy)]
struct Rival {
    mover: usize,
    hop: u32,
    /// Position of the shared port on the target's path.
    place: usize,
}

/// Do all rivals meet the target with their first frame at once, or here and there?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spread {
    Together,
    Scattered,
}

pub(super) struct Climber<'a> {
    shape: &'a Shape<'a>,
    target: Target,
    /// Ports from the target's source to its leaf.
    path: Vec<usize>,
    /// Hops of the target's tree along the path.
    hops: Vec<u32>,
    rivals: Vec<Rival>,
    /// The target's first chunk starts at the likeliest phasing.
    first: bool,
    draws: Draws,
}

impl<'a> Climber<'a> {
    pub(super) fn new(shape: &'a Shape<'a>, seed: u64, chunk: u64) -> Self {
        let target = shape.targets[(chunk % shape.targets.len() as u64) as usize];
        let tree = &shape.network.streams[shape.movers[target.mover].stream.index()].tree;
        let hops = tree.path(tree.leaves[target.leaf as usize]);
        let path: Vec<usize> = hops
            .iter()
            .map(|hop| tree.hops[*hop as usize].port.index())
            .collect();
        let mut rivals = Vec::new();
        for (place, port) in path.iter().enumerate() {
            for &(mover, hop) in &shape.users[*port] {
                if mover as usize != target.mover {
                    rivals.push(Rival {
                        mover: mover as usize,
                        hop,
                        place,
                    });
                }
            }
        }
        let draws = Draws::named(seed, &format!("chunk {chunk}"), "search");
        Self {
            shape,
            target,
            path,
            hops,
            rivals,
            first: chunk < shape.targets.len() as u64,
            draws,
        }
    }

    /// Starts at an aligned (or, for variety, a random) phasing and climbs.
    pub(super) fn climb(mut self, evaluator: &mut Evaluator, evaluations: u64) {
        let mut best = self.random();
        match if self.first { 3 } else { self.draws.up_to(3) } {
            0 => {}
            1 => self.align_all(&mut best, Spread::Scattered),
            _ => self.align_all(&mut best, Spread::Together),
        }
        let mut found = evaluator.evaluate(&best, self.target.mover, self.target.leaf);
        let mut candidate = best.clone();
        for _ in 1..evaluations {
            candidate.clone_from(&best);
            self.mutate(&mut candidate, &found);
            let new = evaluator.evaluate(&candidate, self.target.mover, self.target.leaf);
            if new.latency >= found.latency {
                std::mem::swap(&mut best, &mut candidate);
                found = new;
            }
        }
    }

    fn random(&mut self) -> Phasing {
        let shape = self.shape;
        let mut gene = |mover: usize| Gene {
            start: shape.base
                + self
                    .draws
                    .up_to(shape.movers[mover].period.min(shape.horizon) - 1),
            lateness: lateness(&mut self.draws),
        };
        let genes = (0..shape.movers.len()).map(&mut gene).collect();
        let switching = self.switching();
        Phasing {
            genes,
            switching,
            seed: self.draws.bits(),
        }
    }

    fn switching(&mut self) -> Switching {
        [
            Switching::Extremes,
            Switching::Greatest,
            Switching::Least,
            Switching::Uniform,
        ][self.draws.up_to(3) as usize]
    }

    /// Every rival meets the target's first release at one of the ports that they share.
    fn align_all(&mut self, phasing: &mut Phasing, spread: Spread) {
        let shape = self.shape;
        if spread == Spread::Together {
            // The critical instant of a single port, for all of them.
            phasing
                .genes
                .iter_mut()
                .for_each(|gene| gene.lateness = Lateness::First);
        }
        // Early in the window: what the meeting causes must be seen to its end.
        phasing.genes[self.target.mover].start = shape.base + shape.horizon / 8;
        let mut order = self.rivals.clone();
        for index in (1..order.len()).rev() {
            order.swap(index, self.draws.up_to(index as u64) as usize);
        }
        for rival in order {
            let meeting = self.expected(phasing, rival.place);
            self.align(phasing, rival, meeting, spread);
        }
    }

    /// When the target's first release reaches the queue at `place` if nothing delays it.
    fn expected(&mut self, phasing: &Phasing, place: usize) -> u64 {
        let draws = &mut self.draws;
        let switching = phasing.switching;
        let travel = self
            .shape
            .travel(self.target.mover, self.hops[place], |least, greatest| {
                estimate(switching, least, greatest, draws)
            });
        phasing.genes[self.target.mover].start + travel
    }

    /// When the worst release reached the queue at `place`.
    fn measured(&mut self, phasing: &Phasing, found: &Finding, place: usize) -> Option<u64> {
        let Some(before) = place.checked_sub(1) else {
            return Some(found.released);
        };
        let port = &self.shape.network.ports[self.path[before]];
        let left = found
            .passages
            .iter()
            .find(|p| p.port.index() == self.path[before])?
            .ended;
        let peer = &self.shape.network.nodes[port.peer.index()];
        let switching = match peer.kind {
            NodeKind::Switch => estimate(
                phasing.switching,
                peer.switching_min,
                peer.switching_max,
                &mut self.draws,
            ),
            NodeKind::Host | NodeKind::Segment => 0,
        };
        Some(left.0 + port.propagation.0 + switching)
    }

    /// Shifts the rival so that its frame is in the way of what reaches the shared port at `meeting`.
    fn align(&mut self, phasing: &mut Phasing, rival: Rival, meeting: u64, spread: Spread) {
        let shape = self.shape;
        let switching = phasing.switching;
        let draws = &mut self.draws;
        let travel = shape.travel(rival.mover, rival.hop, |least, greatest| {
            estimate(switching, least, greatest, draws)
        });
        let sending = shape.sending(rival.mover, self.path[rival.place]);
        let mover = &shape.movers[rival.mover];
        let lower = mover.class < shape.movers[self.target.mover].class;
        // A lower class must have started: at the same tick (ties fall against the target) or, where the target is faster
        // into its queue, one before. Or a frame ends just then and lets another one start.
        let choice = if spread == Spread::Together {
            self.draws.up_to(3)
        } else {
            self.draws.up_to(7)
        };
        let lead = match choice {
            0..=2 => 0,
            3 => u64::from(lower),
            4 => 1,
            5 => sending + 1,
            6 => sending,
            _ => self.draws.up_to(sending),
        };
        // Mostly its first frame, sometimes a later one.
        let instance = if spread == Spread::Together {
            0
        } else {
            self.draws.up_to(7).saturating_sub(5)
        };
        let earlier = mover.period.saturating_mul(instance);
        let start = meeting.saturating_sub(travel + lead);
        let start = if start.saturating_sub(earlier) > mover.jitter {
            start - earlier
        } else {
            start
        };
        phasing.genes[rival.mover].start = start.max(mover.jitter);
    }

    fn mutate(&mut self, phasing: &mut Phasing, found: &Finding) {
        for _ in 0..=self.draws.up_to(2) {
            let kind = self.draws.up_to(19);
            if kind == 0 {
                phasing.seed = self.draws.bits();
            } else if kind == 1 {
                phasing.switching = self.switching();
            } else if kind == 2 || self.rivals.is_empty() {
                phasing.genes[self.target.mover].lateness = lateness(&mut self.draws);
            } else {
                let rival = self.rivals[self.draws.up_to(self.rivals.len() as u64 - 1) as usize];
                match kind {
                    3..=4 => phasing.genes[rival.mover].lateness = lateness(&mut self.draws),
                    5..=8 => self.shift(phasing, rival.mover),
                    _ => {
                        if let Some(meeting) = self.measured(phasing, found, rival.place) {
                            self.align(phasing, rival, meeting, Spread::Scattered);
                        }
                    }
                }
            }
        }
    }

    /// By a random step of a random order of magnitude.
    fn shift(&mut self, phasing: &mut Phasing, mover: usize) {
        let who = &self.shape.movers[mover];
        let magnitude = self.draws.up_to(u64::from(who.period.ilog2()));
        let step = self.draws.up_to(1 << magnitude);
        let gene = &mut phasing.genes[mover];
        gene.start = match self.draws.bits() & 1 {
            0 => gene.start.saturating_sub(step).max(who.jitter),
            _ => gene.start + step,
        };
    }
}

fn lateness(draws: &mut Draws) -> Lateness {
    match draws.up_to(7) {
        0..=4 => Lateness::First,
        5..=6 => Lateness::None,
        _ => Lateness::Random,
    }
}

/// A switching delay that the policy may choose.
fn estimate(switching: Switching, least: Span, greatest: Span, draws: &mut Draws) -> u64 {
    match switching {
        Switching::Least => least.0,
        Switching::Greatest => greatest.0,
        Switching::Uniform => least.0 + draws.up_to(greatest.0 - least.0),
        Switching::Extremes => [least.0, greatest.0][(draws.bits() & 1) as usize],
    }
}

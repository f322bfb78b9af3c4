//! Climbing towards the worst case of one receiver: seeds, alignment moves, annealing.
//!
//! The seeds are built from the witness of an analysis or from undisturbed travel times, and then settled: where the simulation says the target really
//! comes to each queue, there its rivals are moved. From there moves shift single rivals or all that come over one
//! link; a worse phasing is kept with a chance that falls with the budget (Kirkpatrick, Gelatt and Vecchi 1983).

use super::evaluate::{Evaluator, Finding};
use super::moves::Mover;
use super::phasing::{Gene, Lateness, Phasing};
use super::scene::{Rank, Scene};
use super::upstream::FAR;
use timebound_fabric::{Draws, Switching};
use timebound_model::Span;

/// What is known of a receiver between two rounds.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) latency: u64,
    pub(super) from_nominal: u64,
    best: Option<Phasing>,
}

pub(super) struct Climber<'a> {
    evaluator: Evaluator<'a>,
    scene: &'a Scene,
    /// Arrivals in each queue after the release and, for each, how long before it the busy period begins, as an analysis sees them.
    witness: Option<Vec<(u64, u64)>>,
    draws: Draws,
    left: u64,
    /// Is the search to be broken off? Asked after each evaluation, of which one can take long where a network is overloaded.
    stop: &'a dyn Fn() -> bool,
    stopped: bool,
    made: u64,
    known: Known,
    current: Phasing,
    found: Finding,
    candidate: Phasing,
    tried: Finding,
    spare: Finding,
    scratch: Vec<u64>,
    /// The best start.
    champion: (Phasing, Finding),
}

impl<'a> Climber<'a> {
    pub(super) fn new(
        evaluator: Evaluator<'a>,
        witness: Option<Vec<(u64, u64)>>,
        known: Known,
        draws: Draws,
        stop: &'a dyn Fn() -> bool,
    ) -> Self {
        let scene = evaluator.scene;
        let blank = Phasing {
            genes: vec![
                Gene {
                    offset: 0,
                    lateness: Lateness::First
                };
                scene.actors.len()
            ],
            arrivals: Vec::new(),
            releases: 1,
            turn: 0,
            switching: Switching::Greatest,
            seed: 0,
        };
        Self {
            evaluator,
            scene,
            witness: witness.filter(|hops| hops.len() == scene.places.len()),
            draws,
            left: 0,
            stop,
            stopped: false,
            made: 0,
            known,
            current: blank.clone(),
            champion: (blank.clone(), Finding::default()),
            found: Finding::default(),
            candidate: blank,
            tried: Finding::default(),
            spare: Finding::default(),
            scratch: Vec::new(),
        }
    }

    /// Spends the evaluations; returns what is known then and how many were made.
    pub(super) fn climb(mut self, evaluations: u64) -> (Known, u64) {
        self.left = evaluations;
        // Few starts where there are few evaluations: the likeliest comes first.
        let starts = (evaluations / START).clamp(1, MOST_STARTS);
        let held = u64::from(!self.scene.holds.is_empty());
        for attempt in 0..starts + held {
            if self.stopped || (attempt > 0 && self.left == 0) {
                break;
            }
            if attempt < starts {
                self.seed(attempt);
            } else {
                self.seed_held();
            }
            self.settle();
            if attempt == 0 || self.found.latency > self.champion.1.latency {
                std::mem::swap(&mut self.champion.0, &mut self.current);
                std::mem::swap(&mut self.champion.1, &mut self.found);
            }
        }
        std::mem::swap(&mut self.champion.0, &mut self.current);
        std::mem::swap(&mut self.champion.1, &mut self.found);
        self.anneal();
        let made = if self.stopped { self.made } else { evaluations };
        (self.known, made)
    }

    /// Simulates the candidate into `tried`.
    fn evaluate(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.made += 1;
        if (self.stop)() {
            (self.stopped, self.left) = (true, 0);
        }
        self.evaluator
            .evaluate(&self.candidate, &mut self.tried, self.stop);
        self.known.from_nominal = self.known.from_nominal.max(self.tried.from_nominal);
        if self.tried.latency > self.known.latency {
            self.known.latency = self.tried.latency;
            match &mut self.known.best {
                Some(best) => best.clone_from(&self.candidate),
                None => self.known.best = Some(self.candidate.clone()),
            }
            self.evaluator.expect(self.known.latency);
        }
    }

    /// Takes the candidate as the place to go on from.
    fn accept(&mut self) {
        std::mem::swap(&mut self.current, &mut self.candidate);
        std::mem::swap(&mut self.found, &mut self.tried);
    }

    fn seed(&mut self, attempt: u64) {
        if let (0, Some(best)) = (attempt, &self.known.best) {
            self.candidate.clone_from(best);
            return;
        }
        let scene = self.scene;
        let origin = scene.origin;
        self.candidate.turn = if scene.cycle > 0 {
            self.draws.up_to(scene.cycle)
        } else {
            0
        };
        self.candidate.seed = self.draws.bits();
        self.candidate.switching = if attempt < 2 {
            Switching::Greatest
        } else {
            switching(&mut self.draws)
        };
        self.candidate.releases = if attempt < 2 {
            self.certain_releases()
        } else {
            self.releases()
        };
        let own = &scene.actors[0].pattern;
        let start = origin.saturating_add(self.candidate.turn);
        // When the last of the target's releases comes, of which the first is late by the jitter.
        let last = u64::from(self.candidate.releases - 1)
            .saturating_mul(own.period)
            .saturating_sub(own.jitter);
        self.candidate.arrivals.clear();
        let use_witness = attempt.is_multiple_of(2);
        for (place, at) in scene.places.iter().enumerate() {
            let after = match &self.witness {
                Some(hops) if use_witness => hops[place].0,
                _ => at.travel,
            };
            let release = if place == 0 { 0 } else { last };
            self.candidate
                .arrivals
                .push(start.saturating_add(release).saturating_add(after));
        }
        for actor in 1..scene.holds.first {
            let offset = self.first_offset(actor, attempt);
            self.candidate.genes[actor] = Gene {
                offset,
                lateness: if attempt < 2 {
                    Lateness::First
                } else {
                    lateness(&mut self.draws)
                },
            };
        }
        for gene in &mut self.candidate.genes[scene.holds.first..] {
            gene.offset = FAR;
        }
        self.candidate.genes[0].lateness = Lateness::First;
        self.meet_partners();
    }

    /// As the likeliest start, with everybody held back on his way by best effort.
    fn seed_held(&mut self) {
        let best = self.known.best.take();
        self.seed(0);
        self.known.best = best;
        let mut mover = Mover {
            scene: self.scene,
            draws: &mut self.draws,
            phasing: &mut self.candidate,
        };
        mover.hold_all();
    }

    /// Where the rival comes in the first phasing of an attempt, against the target's arrival.
    fn first_offset(&mut self, actor: usize, attempt: u64) -> i64 {
        let Some(meeting) = self.scene.actors[actor].meetings.first() else {
            return 0;
        };
        let window = match &self.witness {
            Some(hops) if attempt.is_multiple_of(2) => hops[meeting.place].1,
            _ => 0,
        };
        let sending = meeting.sending;
        let early = match meeting.rank {
            // It must have started, or the target would be first.
            Rank::Lower if meeting.place == 0 => 1,
            Rank::Lower => window.saturating_add(1),
            // At the first port its own first release starts the window.
            _ if attempt < 2 && meeting.place == 0 => 0,
            _ if attempt < 2 => window,
            // Scattered over a few frames around the target.
            _ => self.draws.up_to(sending.saturating_mul(2)),
        };
        -i64::try_from(early).unwrap_or(0)
    }

    /// Those who only delay rivals come when one of these does.
    fn meet_partners(&mut self) {
        for actor in 1..self.scene.holds.first {
            if self.scene.actors[actor].meetings.is_empty() {
                Mover {
                    scene: self.scene,
                    draws: &mut self.draws,
                    phasing: &mut self.candidate,
                }
                .meet_partner(actor);
            }
        }
    }

    /// Releases of the target from the start of the busy period that the witness has at its first port (without one, in one instant).
    fn certain_releases(&self) -> u32 {
        let pattern = &self.scene.actors[0].pattern;
        let window = self.witness.as_ref().map_or(0, |hops| hops[0].1);
        u32::try_from(window.saturating_add(pattern.jitter) / pattern.period)
            .unwrap_or(u32::MAX)
            .saturating_add(1)
            .min(MOST_OWN)
    }

    fn releases(&mut self) -> u32 {
        let period = self.scene.actors[0].pattern.period;
        // A busy period can be longer than any response in it. (Releases that it does not span cannot matter to one another.)
        let during = self.known.latency.saturating_mul(2) / period;
        let most = u64::from(self.certain_releases())
            .saturating_add(during)
            .min(u64::from(MOST_OWN));
        1 + u32::try_from(self.draws.up_to(most - 1)).unwrap_or(0)
    }

    /// Moves all rivals to where the target really comes, until nothing changes.
    fn settle(&mut self) {
        self.evaluate();
        self.accept();
        for _ in 0..2 * self.scene.places.len() + 4 {
            if self.left == 0 {
                return;
            }
            self.candidate.clone_from(&self.current);
            let mut arrivals = std::mem::take(&mut self.scratch);
            if !self.found.arrivals(&mut arrivals) {
                self.scratch = arrivals;
                return;
            }
            let mut mover = Mover {
                scene: self.scene,
                draws: &mut self.draws,
                phasing: &mut self.candidate,
            };
            let mut changed = mover.gather(&self.found);
            changed |= self.candidate.arrivals != arrivals;
            self.candidate.arrivals.clone_from(&arrivals);
            self.scratch = arrivals;
            if !changed {
                return;
            }
            self.evaluate();
            if self.tried.latency < self.found.latency && self.found.latency >= self.known.latency {
                // What was best is kept; the annealing goes on from there.
                return;
            }
            self.accept();
        }
    }

    fn anneal(&mut self) {
        let total = self.left.max(1);
        let sending = self
            .scene
            .places
            .iter()
            .map(|place| place.sending)
            .max()
            .unwrap_or(0);
        while self.left > 0 {
            self.candidate.clone_from(&self.current);
            let cooled = self.left as f64 / total as f64;
            let heat = (sending as f64 * 0.5 * cooled * cooled) as u64 + 1;
            let mut mover = Mover {
                scene: self.scene,
                draws: &mut self.draws,
                phasing: &mut self.candidate,
            };
            mover.mutate(&self.found);
            if self.draws.up_to(31) == 0 {
                self.candidate.releases = self.releases();
            }
            if self.draws.up_to(31) == 0 {
                self.candidate.switching = switching(&mut self.draws);
            }
            self.evaluate();
            if self.tried.latency.saturating_add(heat.saturating_mul(2)) >= self.found.latency {
                self.follow();
            }
            let loss = self.found.latency.saturating_sub(self.tried.latency);
            if self.tried.latency >= self.found.latency || loss < self.draws.exponential(Span(heat)).0 {
                self.accept();
            }
            if cooled < 0.3 && self.found.latency < self.known.latency && self.draws.up_to(15) == 0 {
                self.return_to_best();
            }
        }
    }

    fn return_to_best(&mut self) {
        if let Some(best) = &self.known.best
            && self.left > 0
        {
            self.candidate.clone_from(best);
            self.evaluate();
            self.accept();
        }
    }

    /// If the candidate holds the target longer somewhere, all who wait for it further on come later by as much: that is
    /// simulated too, and taken where it is no worse.
    fn follow(&mut self) {
        for _ in 0..2 {
            if self.left == 0
                || !self.tried.arrivals(&mut self.scratch)
                || self.scratch == self.candidate.arrivals
            {
                return;
            }
            let before = self.tried.latency;
            std::mem::swap(&mut self.scratch, &mut self.candidate.arrivals);
            std::mem::swap(&mut self.tried, &mut self.spare);
            self.evaluate();
            if self.tried.latency < before {
                std::mem::swap(&mut self.scratch, &mut self.candidate.arrivals);
                std::mem::swap(&mut self.tried, &mut self.spare);
                return;
            }
        }
    }
}

/// Evaluations for each start, and starts in a round at most.
const START: u64 = 40;
const MOST_STARTS: u64 = 6;
/// Own releases in one evaluation at most.
const MOST_OWN: u32 = 256;

fn lateness(draws: &mut Draws) -> Lateness {
    match draws.up_to(7) {
        0..=4 => Lateness::First,
        5..=6 => Lateness::Even,
        _ => Lateness::Random,
    }
}

/// The target always takes the greatest delays.
fn switching(draws: &mut Draws) -> Switching {
    [
        Switching::Greatest,
        Switching::Greatest,
        Switching::Extremes(0),
        Switching::ExtremesByStream(0),
    ][draws.up_to(3) as usize]
}

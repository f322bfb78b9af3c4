//! Search for worst cases from below: many short simulations with chosen phasings (timing.md, "Checking from below").
//!
//! Each receiver of each stream is a target of its own. Its scene holds only those who can be in its way and the part of the network
//! between them; an evaluation simulates one phasing of these and watches the target. Targets are independent of one another, and each
//! has random streams of its own: what is found depends on the network, the number of evaluations and the seed, never on the threads.

mod cast;
mod climb;
#[cfg(test)]
#[path = "../../../fabric/tests/common/mod.rs"]
mod common;
mod cutout;
mod evaluate;
mod machine;
mod moments;
mod moves;
#[cfg(test)]
mod overload;
#[cfg(test)]
mod parity;
mod phasing;
mod relevance;
mod scene;
mod survey;
mod upstream;

use climb::{Climber, Known};
use evaluate::Evaluator;
use moments::{Moment, Moments};
use scene::Scene;
use serde::Serialize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use survey::{Survey, Target};
use timebound_fabric::{Change, Draws};
use timebound_model::{Network, NodeId, Span, StreamId, Time};

/// How hard to search.
#[derive(Debug, Clone)]
pub struct SearchOptions {
    /// Phasings to simulate, shared by all receivers; rounded up so that all get as many.
    pub evaluations: u64,
    pub seed: u64,
    /// Threads to use, at least one.
    pub threads: usize,
    /// Conditions that change during a run: every round of evaluations runs at another moment of it, see [`Moments`].
    pub schedule: Vec<(Time, Change)>,
    /// One frame of undeclared best effort ([`Network::best_effort_frame`]) at every port of a target's path and of its rivals' ways to it, as
    /// the bounds assume it.
    pub best_effort: bool,
    /// What an analysis says about every stream, in their order; none where it says nothing.
    pub witness: Vec<StreamWitness>,
}

/// Per receiver of a stream what an analysis says about each port of the path; empty where it says nothing.
pub type StreamWitness = Vec<Vec<HopWitness>>;

/// What an analysis says about a frame at one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HopWitness {
    /// From the start of the busy period to the arrival of the frame that waits longest.
    pub window: Span,
    /// From its arrival in the queue to its last bit sent.
    pub response: Span,
    /// From there to the next queue.
    pub traversal: Span,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            evaluations: 10_000,
            seed: 1,
            threads: 1,
            schedule: Vec::new(),
            best_effort: true,
            witness: Vec::new(),
        }
    }
}

/// The worst that was found for one receiver of one stream; a lower bound on the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Worst {
    pub stream: StreamId,
    /// Index of the leaf in the stream's tree.
    pub leaf: u32,
    pub node: NodeId,
    /// From the actual release to the arrival of its last frame; `None` where no frame arrived in any evaluation.
    pub latency: Option<Span>,
    /// From the nominal release.
    pub from_nominal: Option<Span>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// By stream, then by leaf.
    pub worst: Vec<Worst>,
    pub evaluations: u64,
}

/// Evaluations for each receiver in the first round; each further round has twice as many.
const FIRST_ROUND: u64 = 32;
/// Evaluations for each receiver in any round at most.
const LONGEST_ROUND: u64 = 2_048;

/// Searches; the same for the same network, evaluations and seed, whatever the number of threads.
#[must_use]
pub fn search(network: &Arc<Network>, options: &SearchOptions) -> Found {
    search_with(network, options, &|_| ControlFlow::Continue(()))
}

/// Searches and reports the number of evaluations done after each receiver's turn, from any of the threads. Breaking off (a limit of
/// time, for example) keeps what was found; how much that is then depends on the machine.
pub fn search_with(
    network: &Arc<Network>,
    options: &SearchOptions,
    progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> Found {
    let survey = Survey::new(network);
    let moments = Moments::new(&options.schedule);
    let known: Vec<Mutex<Known>> = survey.targets.iter().map(|_| Mutex::default()).collect();
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let targets = survey.targets.len() as u64;
    let mut left = if targets > 0 {
        options.evaluations.div_ceil(targets)
    } else {
        0
    };
    let mut round = 0;
    while left > 0 && !stop.load(Ordering::Relaxed) {
        let budget = rounds_budget(round, left, &moments);
        left -= budget;
        let job = Job {
            survey: &survey,
            options,
            moment: moments.of(round),
            round,
            budget,
        };
        let next = AtomicU64::new(0);
        let work = || {
            while !stop.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= targets {
                    break;
                }
                let broken_off = || {
                    if progress(done.load(Ordering::Relaxed)).is_break() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    stop.load(Ordering::Relaxed)
                };
                let made = job.run(index as usize, &known[index as usize], &broken_off);
                if progress(done.fetch_add(made, Ordering::Relaxed) + made).is_break() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            let helpers: Vec<_> = (1..options.threads.max(1)).map(|_| scope.spawn(work)).collect();
            work();
            for helper in helpers {
                helper
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        });
        round += 1;
    }
    Found {
        worst: report(&survey, &known),
        evaluations: done.into_inner(),
    }
}

/// Evaluations of each receiver in a round. A schedule's moments share what there is.
fn rounds_budget(round: u64, left: u64, moments: &Moments) -> u64 {
    let usual = FIRST_ROUND
        .checked_shl(round.min(16) as u32)
        .unwrap_or(LONGEST_ROUND)
        .min(LONGEST_ROUND);
    let turns = moments.count().saturating_sub(round).max(1);
    match left {
        left if turns > 1 => left.div_ceil(turns).min(usual),
        // No short round at the end.
        left if left < usual + usual / 2 => left,
        _ => usual,
    }
}

struct Job<'a> {
    survey: &'a Survey<'a>,
    options: &'a SearchOptions,
    moment: Moment,
    round: u64,
    budget: u64,
}

impl Job<'_> {
    /// One receiver's turn; the evaluations that were made.
    fn run(&self, index: usize, known: &Mutex<Known>, stop: &dyn Fn() -> bool) -> u64 {
        let target = self.survey.targets[index];
        let (scene, cutout) = Scene::new(self.survey, target, self.options.best_effort);
        let moment = Moment {
            before: cutout.changes(&self.moment.before),
            at: cutout.changes(&self.moment.at),
        };
        let draws = Draws::named(
            self.options.seed,
            &format!("target {index}, round {}", self.round),
            "search",
        );
        let mut known = known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let witness = self.witness(target);
        let climber = Climber::new(
            Evaluator::new(&scene, moment, self.longest(target)),
            witness,
            std::mem::take(&mut *known),
            draws,
            stop,
        );
        let (found, made) = climber.climb(self.budget);
        *known = found;
        made
    }

    fn hops(&self, target: Target) -> Option<&[HopWitness]> {
        let leaves = self.options.witness.get(target.stream.index())?;
        leaves.get(target.leaf as usize).map(Vec::as_slice)
    }

    /// The longest that the analysis says any frame takes.
    fn longest(&self, target: Target) -> Option<u64> {
        let hops = self.hops(target)?.iter();
        let times = hops.map(|hop| hop.response.0.saturating_add(hop.traversal.0));
        times.reduce(u64::saturating_add)
    }

    /// For each port of the path: the arrival after the release, and the window before it.
    fn witness(&self, target: Target) -> Option<Vec<(u64, u64)>> {
        let hops = self.hops(target)?;
        let mut at = 0u64;
        let arrivals = hops.iter().map(|hop| {
            let here = (at, hop.window.0);
            at = at.saturating_add(hop.response.0).saturating_add(hop.traversal.0);
            here
        });
        Some(arrivals.collect())
    }
}

fn report(survey: &Survey, known: &[Mutex<Known>]) -> Vec<Worst> {
    let places = survey
        .network
        .streams
        .iter()
        .enumerate()
        .flat_map(|(index, stream)| {
            (0u32..).zip(&stream.tree.leaves).map(move |(leaf, place)| Worst {
                stream: StreamId::new(index),
                leaf,
                node: place.node,
                latency: None,
                from_nominal: None,
            })
        });
    let mut worst: Vec<Worst> = places.collect();
    for (target, known) in survey.targets.iter().zip(known) {
        let known = known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let entry = &mut worst[survey.bases[target.stream.index()] + target.leaf as usize];
        // No latency is zero: every frame takes time to send.
        let some = |nanos: u64| (nanos > 0).then_some(Span(nanos));
        (entry.latency, entry.from_nominal) = (some(known.latency), some(known.from_nominal));
    }
    worst
}

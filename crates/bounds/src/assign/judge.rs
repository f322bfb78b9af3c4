//! Are the requirements met? One analysis after the other, until the jitters of answers no longer change.

use super::task::{Follow, Task};
use super::{Analyse, Watch};
use crate::options::Options;
use crate::result::{Analysis, Outcome};
use std::collections::BTreeMap;
use timebound_model::{Arrival, Class, Network, Span, StreamId, Tree};

/// Answers that have not settled by then promise nothing, as in the product's prediction.
const MOST_ROUNDS: u32 = 200;
/// Nor do those whose jitter has grown to this: the longest time that a declaration may state.
const LONGEST: Span = Span(1_000_000_000_000_000);

/// The bound of one requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Latency {
    /// Sum over its parts, from the nominal release.
    Bound(Span),
    /// There is none, for this reason.
    None(String),
}

/// Bounds of all requirements.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// In the order of the task's requirements.
    pub latencies: Vec<Latency>,
    /// Requirements whose deadline is not promised, rising.
    pub missed: Vec<usize>,
    pub analysis: Analysis,
}

impl Judged {
    /// Requirements that are worse off than `before`: missed and met then, or missed by more. What has no deadline asks for nothing.
    pub(super) fn worse_than(&self, before: &Self) -> Vec<usize> {
        let later = |index: &usize| match (&self.latencies[*index], &before.latencies[*index]) {
            (Latency::Bound(now), Latency::Bound(then)) => now > then,
            (Latency::None(_), Latency::Bound(_)) => true,
            (_, Latency::None(_)) => false,
        };
        let worse = |index: &usize| before.missed.binary_search(index).is_err() || later(index);
        self.missed.iter().copied().filter(worse).collect()
    }
}

/// A network that is changed and judged again and again.
pub(super) struct Judge<'a> {
    pub(super) network: Network,
    pub(super) task: &'a Task,
    pub(super) analyses: u64,
    pub(super) stopped: bool,
    analyse: Analyse<'a>,
    watch: Watch<'a>,
}

impl<'a> Judge<'a> {
    /// Starts from the network as it is; `task` must fit it ([`Task::check`]).
    pub(super) fn new(network: &Network, task: &'a Task, analyse: Analyse<'a>, watch: Watch<'a>) -> Self {
        Self {
            network: network.clone(),
            task,
            analyses: 0,
            stopped: false,
            analyse,
            watch,
        }
    }

    /// Gives every unit its class.
    pub(super) fn set_classes(&mut self, classes: &[Class]) {
        for (unit, class) in self.task.units.iter().zip(classes) {
            for id in &unit.streams {
                self.network.streams[id.index()].class = *class;
            }
        }
    }

    pub(super) fn trees(&self) -> Vec<Tree> {
        self.network
            .streams
            .iter()
            .map(|stream| stream.tree.clone())
            .collect()
    }

    pub(super) fn set_trees(&mut self, trees: &[Tree]) {
        for (stream, tree) in self.network.streams.iter_mut().zip(trees) {
            stream.tree.clone_from(tree);
        }
    }

    /// Tells whoever watches; true when the work is to be broken off.
    pub(super) fn ask(&mut self, phase: &'static str) -> bool {
        self.stopped = self.stopped || (self.watch)(phase, self.analyses).is_break();
        self.stopped
    }

    /// The bounds of the network as it is now.
    pub(super) fn judge(&mut self) -> Judged {
        let (analysis, reasons) = self.settle();
        let latencies: Vec<Latency> = self
            .task
            .requirements
            .iter()
            .map(|requirement| {
                let mut total = requirement.extra;
                for (position, part) in requirement.parts.iter().enumerate() {
                    match outcome(&analysis, *part) {
                        Outcome::Bound {
                            from_nominal,
                            from_actual,
                            ..
                        } => {
                            let bound = if position == 0 { from_nominal } else { from_actual };
                            total = total.saturating_add(*bound);
                        }
                        other => {
                            let reason = reasons.get(part).cloned();
                            return Latency::None(reason.unwrap_or_else(|| reason_of(other)));
                        }
                    }
                }
                Latency::Bound(total)
            })
            .collect();
        let late = |index: &usize| match (&latencies[*index], self.task.requirements[*index].deadline) {
            (_, None) => false,
            (Latency::Bound(bound), Some(deadline)) => *bound > deadline,
            (Latency::None(_), Some(_)) => true,
        };
        Judged {
            missed: (0..latencies.len()).filter(late).collect(),
            latencies,
            analysis,
        }
    }

    /// The least fixed point of the jitters of answers around the analysis. An answer to what has no bound promises nothing but its
    /// largest frame, for this judgement alone. Also the first reason of every part without a bound: later ones are its consequence.
    fn settle(&mut self) -> (Analysis, BTreeMap<(StreamId, usize), String>) {
        let mut options = self.task.options.clone();
        let mut follows: Vec<&Follow> = self.task.follows.iter().collect();
        let mut declared: Vec<(StreamId, Arrival)> = Vec::new();
        let mut reasons = BTreeMap::new();
        let mut rounds = 0;
        let analysis = loop {
            let analysis = self.analyse(&options);
            rounds += 1;
            self.note(&analysis, &mut reasons);
            let mut changed = false;
            let mut broken = Vec::new();
            for (follow, arrival) in follows.iter().zip(self.arrivals(&analysis, &options, &follows)) {
                match arrival {
                    None => broken.push(follow.stream),
                    Some(jitter) if jitter > self.jitter(&options, follow.stream) => {
                        // Any fixed point is safe, so those that settle keep their bounds.
                        if rounds > MOST_ROUNDS || jitter > LONGEST {
                            broken.push(follow.stream);
                        }
                        options.jitter_override.insert(follow.stream, jitter);
                        changed = true;
                    }
                    Some(_) => {}
                }
            }
            if broken.is_empty() && !changed {
                break analysis;
            }
            follows.retain(|follow| !broken.contains(&follow.stream));
            for id in broken {
                let arrival = &mut self.network.streams[id.index()].arrival;
                let max_frame = arrival.largest_frame();
                declared.push((id, std::mem::replace(arrival, Arrival::Unbounded { max_frame })));
            }
        };
        for (id, arrival) in declared.into_iter().rev() {
            self.network.streams[id.index()].arrival = arrival;
        }
        (analysis, reasons)
    }

    fn analyse(&mut self, options: &Options) -> Analysis {
        self.analyses += 1;
        (self.analyse)(&self.network, options)
    }

    /// The jitters with which answers are sent, or nothing where what they answer has no bound. What leaves later than was analysed arrives later by as
    /// much at least: what follows it is told at once, so a chain of answers takes one analysis, not one for each link (as in the product's prediction).
    fn arrivals(&self, analysis: &Analysis, options: &Options, follows: &[&Follow]) -> Vec<Option<Span>> {
        let mut later: BTreeMap<StreamId, Span> = BTreeMap::new();
        let of = |follow: &Follow, later: &BTreeMap<StreamId, Span>| {
            let more = later.get(&follow.after.0).copied().unwrap_or(Span::ZERO);
            arriving(analysis, follow).map(|jitter| jitter.saturating_add(more))
        };
        // No chain is longer than that, and answers that answer themselves end at the limit of rounds.
        for _ in follows {
            let mut told = false;
            for follow in follows {
                let more = of(follow, &later).map_or(Span::ZERO, |jitter| {
                    jitter.saturating_sub(self.jitter(options, follow.stream))
                });
                let known = later.entry(follow.stream).or_insert(Span::ZERO);
                if more > *known {
                    *known = more;
                    told = true;
                }
            }
            if !told {
                break;
            }
        }
        follows.iter().map(|follow| of(follow, &later)).collect()
    }

    /// The jitter that the analysis takes for a stream.
    fn jitter(&self, options: &Options, id: StreamId) -> Span {
        let declared = match &self.network.streams[id.index()].arrival {
            Arrival::Periodic { jitter, .. } => *jitter,
            Arrival::TokenBucket { .. } | Arrival::Unbounded { .. } => Span::MAX,
        };
        options
            .jitter_override
            .get(&id)
            .map_or(declared, |known| declared.max(*known))
    }

    fn note(&self, analysis: &Analysis, reasons: &mut BTreeMap<(StreamId, usize), String>) {
        for part in self
            .task
            .requirements
            .iter()
            .flat_map(|requirement| &requirement.parts)
        {
            let found = outcome(analysis, *part);
            if !matches!(found, Outcome::Bound { .. }) {
                reasons.entry(*part).or_insert_with(|| reason_of(found));
            }
        }
    }
}

fn outcome(analysis: &Analysis, (stream, leaf): (StreamId, usize)) -> &Outcome {
    &analysis.streams[stream.index()].leaves[leaf].outcome
}

fn reason_of(outcome: &Outcome) -> String {
    match outcome {
        Outcome::NoFiniteBound { reason, .. } | Outcome::Unsupported { reason } => reason.clone(),
        Outcome::Bound { .. } => String::new(),
    }
}

/// The jitter with which an answer is sent, or nothing where what it answers has no bound.
fn arriving(analysis: &Analysis, follow: &Follow) -> Option<Span> {
    match outcome(analysis, follow.after) {
        Outcome::Bound {
            from_nominal,
            best_case,
            ..
        } => Some(
            from_nominal
                .saturating_sub(*best_case)
                .saturating_add(follow.extra),
        ),
        _ => None,
    }
}

//! Search for worst cases from below: many short simulations with chosen phasings (timing.md, "Checking from below").
//!
//! One evaluation simulates one phasing of all streams and measures every stream in it. The work is cut into chunks, each
//! with a seed of its own and one (stream, leaf) as its target, for which it climbs: what is found depends on the number of
//! evaluations and the seed, not on the number of threads.

mod evaluate;
mod moments;
mod moves;
mod phasing;
mod shape;

use evaluate::Evaluator;
use moments::Moments;
use moves::Climber;
use serde::Serialize;
use shape::Shape;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use timebound_fabric::Change;
use timebound_model::{Network, NodeId, Span, StreamId, Time};

/// How hard to search.
#[derive(Debug, Clone)]
pub struct SearchOptions {
    /// Phasings to simulate; rounded up to whole chunks.
    pub evaluations: u64,
    pub seed: u64,
    /// Threads to use, at least one.
    pub threads: usize,
    /// Conditions that change during a run: every chunk of evaluations runs at another moment of it, see [`Moments`].
    pub schedule: Vec<(Time, Change)>,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            evaluations: 10_000,
            seed: 1,
            threads: 1,
            schedule: Vec::new(),
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

/// Searches; the same for the same network, evaluations and seed, whatever the number of threads.
#[must_use]
pub fn search(network: &Arc<Network>, options: &SearchOptions) -> Found {
    search_with(network, options, &|_| ControlFlow::Continue(()))
}

/// Searches and reports the number of evaluations done after each chunk, from any of the threads. Breaking off (a limit of
/// time, for example) keeps what was found; how much that is then depends on the machine.
pub fn search_with(
    network: &Arc<Network>,
    options: &SearchOptions,
    progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> Found {
    let shape = Shape::new(network);
    let moments = Moments::new(&options.schedule);
    let mut found = vec![(0, 0); shape.leaves];
    let (done, next, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    if !shape.targets.is_empty() {
        // Long climbs where there is time for them, short ones where there are many targets.
        let chunk = (options.evaluations / shape.targets.len() as u64).clamp(16, 200);
        let chunks = options.evaluations.div_ceil(chunk);
        let work = || {
            let mut evaluator = Evaluator::new(network, &shape);
            while !stop.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= chunks {
                    break;
                }
                // Over the rounds every target meets every moment.
                evaluator.set_moment(moments.of(index + index / shape.targets.len() as u64));
                Climber::new(&shape, options.seed, index).climb(&mut evaluator, chunk);
                let total = done.fetch_add(chunk, Ordering::Relaxed) + chunk;
                if progress(total).is_break() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            evaluator.into_worst()
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..options.threads.max(1)).map(|_| scope.spawn(work)).collect();
            for thread in threads {
                let worst = thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                for (best, new) in found.iter_mut().zip(worst) {
                    *best = (best.0.max(new.0), best.1.max(new.1));
                }
            }
        });
    }
    Found {
        worst: report(network, &found),
        evaluations: done.into_inner(),
    }
}

fn report(network: &Network, found: &[(u64, u64)]) -> Vec<Worst> {
    let places = network.streams.iter().enumerate().flat_map(|(index, stream)| {
        (0u32..)
            .zip(&stream.tree.leaves)
            .map(move |(leaf, place)| (StreamId::new(index), leaf, place.node))
    });
    // No latency is zero: every frame takes time to send.
    let some = |nanos: u64| (nanos > 0).then_some(Span(nanos));
    places
        .zip(found)
        .map(|((stream, leaf, node), worst)| Worst {
            stream,
            leaf,
            node,
            latency: some(worst.0),
            from_nominal: some(worst.1),
        })
        .collect()
}

//! Routes that lower the worst utilisation: candidates for every bundle, exact choice where the search can be finished, else
//! greedy choice and seeded local search. Nothing here is worse than what was there before.

mod candidates;
mod exact;
mod loads;
mod local;
mod paths;
mod space;

use super::judge::{Judge, Judged};
use super::task::Task;
use space::Space;
use std::collections::BTreeSet;
use timebound_model::{PortId, StreamId, Tree};

/// How far to look. All limits are counts, so that the same task gives the same routes on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Ways per bundle, the present one included.
    pub candidates: usize,
    /// Steps of the exact search before it is given up.
    pub exact_steps: u64,
    /// Kicks of the local search.
    pub kicks: u32,
    /// How often routes that made streams miss their deadlines are taken back and the rest chosen anew.
    pub repairs: u32,
    pub seed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            candidates: 8,
            exact_steps: 200_000,
            kicks: 30,
            repairs: 4,
            seed: 1,
        }
    }
}

/// The port with the greatest declared utilisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worst {
    pub port: PortId,
    /// In units of 10^-12, every stream rounded up.
    pub parts: u64,
}

/// Routes and what they achieve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    /// Over all ports; `None` in a network without declared traffic.
    pub before: Option<Worst>,
    pub after: Option<Worst>,
    /// Over the ports that some choice of routes can relieve or burden.
    pub movable_before: Option<Worst>,
    pub movable_after: Option<Worst>,
    /// Proven: no other choice among the candidates has a lower worst utilisation of the movable ports.
    pub exact: bool,
    /// Were the candidates of every bundle all loop-free ways that there are?
    pub all_ways: bool,
    /// Bundles that go another way now.
    pub ways: Vec<Way>,
}

/// A bundle's new way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// Index in [`Task::bundles`].
    pub bundle: usize,
    pub trees: Vec<(StreamId, Tree)>,
}

impl Routing {
    pub(super) fn changes(&self) -> bool {
        !self.ways.is_empty()
    }

    /// `old` with the new ways laid over it.
    pub(super) fn trees(&self, old: &[Tree]) -> Vec<Tree> {
        let mut trees = old.to_vec();
        for (stream, tree) in self.ways.iter().flat_map(|way| &way.trees) {
            trees[stream.index()].clone_from(tree);
        }
        trees
    }

    /// The same search with its outcome not taken.
    pub(super) fn unchanged(mut self) -> Self {
        self.ways.clear();
        self.after = self.before;
        self.movable_after = self.movable_before;
        self.exact = false;
        self
    }

    /// Bundles whose new way may be why requirements are worse off than before: their own, else those that now share a port with them.
    /// `trees`: all ways as they are with the new ones.
    pub(super) fn moved_for(&self, task: &Task, now: &Judged, before: &Judged, trees: &[Tree]) -> Vec<usize> {
        let streams: Vec<StreamId> = now
            .worse_than(before)
            .iter()
            .flat_map(|index| task.requirements[*index].parts.iter().map(|part| part.0))
            .collect();
        let own = |way: &&Way| way.trees.iter().any(|(stream, _)| streams.contains(stream));
        let moved: Vec<usize> = self.ways.iter().filter(own).map(|way| way.bundle).collect();
        if !moved.is_empty() {
            return moved;
        }
        let ports: BTreeSet<PortId> = streams
            .iter()
            .flat_map(|stream| trees[stream.index()].hops.iter().map(|hop| hop.port))
            .collect();
        let beside = |way: &&Way| {
            let mut hops = way.trees.iter().flat_map(|(_, tree)| &tree.hops);
            hops.any(|hop| ports.contains(&hop.port))
        };
        self.ways.iter().filter(beside).map(|way| way.bundle).collect()
    }
}

/// The best routes that are found for the network as the judge has it; bundles in `pinned` stay where they are.
pub(super) fn search(judge: &mut Judge<'_>, limits: &Limits, pinned: &[usize]) -> Routing {
    let space = Space::build(judge, limits, pinned);
    let present = vec![0u32; space.choices.len()];
    let mut best = local::search(judge, &space, limits);
    let exact = exact::search(judge, &space, limits, &mut best);
    if !space.is_better(&best, &present) {
        best.clone_from(&present);
    }
    let ways = space
        .choices
        .iter()
        .zip(&best)
        .filter(|(_, chosen)| **chosen != 0)
        .map(|(choice, chosen)| Way {
            bundle: choice.bundle,
            trees: choice.candidates[*chosen as usize].trees.clone(),
        })
        .collect();
    Routing {
        before: space.worst(&present, false),
        after: space.worst(&best, false),
        movable_before: space.worst(&present, true),
        movable_after: space.worst(&best, true),
        exact,
        all_ways: space.all_ways,
        ways,
    }
}

//! Branch and bound: proves that a choice is the best one, where that takes few enough steps.

use super::Limits;
use super::local::State;
use super::space::Space;
use crate::assign::judge::Judge;

/// Deeper searches could not be finished anyway, and each bundle is a level of the stack.
const MOST_BUNDLES: usize = 200;
const LOOK: u64 = 4096;

struct Search<'a, 'j, 'n> {
    judge: &'j mut Judge<'n>,
    space: &'a Space,
    state: State<'a>,
    order: Vec<usize>,
    /// Fewest hops of the bundles from this place of the order on.
    rest: Vec<u64>,
    best: &'j mut Vec<u32>,
    cost: (u64, u64),
    left: u64,
}

/// Improves `best`; true when no other choice is better.
pub(super) fn search(judge: &mut Judge<'_>, space: &Space, limits: &Limits, best: &mut Vec<u32>) -> bool {
    let count = space.choices.len();
    if count > MOST_BUNDLES || judge.stopped {
        return false;
    }
    let heaviest = |index: usize| {
        space.choices[index]
            .extra
            .iter()
            .flatten()
            .map(|(_, load)| *load)
            .max()
    };
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|index| (std::cmp::Reverse(heaviest(*index)), *index));
    let fewest = |index: &usize| {
        let hops = space.choices[*index]
            .candidates
            .iter()
            .map(|candidate| candidate.hops);
        u64::from(hops.min().unwrap_or(0))
    };
    let mut rest = vec![0; count + 1];
    for place in (0..count).rev() {
        rest[place] = rest[place + 1] + fewest(&order[place]);
    }
    let mut state = State::new(space, vec![0; count]);
    for index in 0..count {
        state.lift(index);
    }
    let cost = space.cost(best);
    let mut search = Search {
        judge,
        space,
        state,
        order,
        rest,
        best,
        cost,
        left: limits.exact_steps,
    };
    search.down(0)
}

impl Search<'_, '_, '_> {
    /// Decides from this place of the order on; false when it was broken off.
    fn down(&mut self, place: usize) -> bool {
        if self.left == 0 || (self.left.is_multiple_of(LOOK) && self.judge.ask("proof")) {
            return false;
        }
        self.left -= 1;
        // What is not yet decided puts nothing on a port that some way of it avoids, and goes no shorter than its shortest way.
        if (self.state.most(), self.state.hops() + self.rest[place]) >= self.cost {
            return true;
        }
        let Some(index) = self.order.get(place).copied() else {
            self.cost = (self.state.most(), self.state.hops());
            self.best.clone_from(&self.state.chosen);
            return true;
        };
        let mut options: Vec<(u64, u32)> = (0..self.space.choices[index].candidates.len() as u32)
            .map(|candidate| {
                self.state.lay(index, candidate);
                let most = self.state.most();
                self.state.lift(index);
                (most, candidate)
            })
            .collect();
        options.sort_unstable();
        for (_, candidate) in options {
            self.state.lay(index, candidate);
            let finished = self.down(place + 1);
            self.state.lift(index);
            if !finished {
                return false;
            }
        }
        true
    }
}

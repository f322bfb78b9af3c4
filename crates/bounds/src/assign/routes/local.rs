//! Greedy choice, then steepest descent at the busiest port with seeded kicks.

use super::Limits;
use super::space::Space;
use crate::assign::judge::Judge;
use std::collections::BTreeSet;

/// Steps of one descent at most; each lowers the cost, so this only cuts off what would take for ever.
const MOST_STEPS: u32 = 100_000;

/// A choice with the loads that it gives, kept up to date move by move.
pub(super) struct State<'a> {
    space: &'a Space,
    pub(super) chosen: Vec<u32>,
    loads: Vec<u64>,
    /// Movable ports by load: the last one is the busiest.
    order: BTreeSet<(u64, u32)>,
    squares: u128,
    hops: u64,
}

impl<'a> State<'a> {
    pub(super) fn new(space: &'a Space, chosen: Vec<u32>) -> Self {
        let mut state = Self {
            space,
            hops: space.hops(&chosen),
            chosen,
            loads: space.base.clone(),
            order: BTreeSet::new(),
            squares: 0,
        };
        for (port, load) in state
            .loads
            .iter()
            .enumerate()
            .filter(|(port, _)| space.movable[*port])
        {
            state.order.insert((*load, port as u32));
            state.squares = state.squares.saturating_add(square(*load));
        }
        for index in 0..state.chosen.len() {
            state.put(index, true);
        }
        state
    }

    /// Adds or takes away what a choice puts on its ports.
    fn put(&mut self, index: usize, add: bool) {
        let space = self.space;
        for (port, load) in &space.choices[index].extra[self.chosen[index] as usize] {
            let known = self.loads[*port as usize];
            let now = if add {
                known.saturating_add(*load)
            } else {
                known.saturating_sub(*load)
            };
            self.loads[*port as usize] = now;
            self.order.remove(&(known, *port));
            self.order.insert((now, *port));
            self.squares = self
                .squares
                .saturating_sub(square(known))
                .saturating_add(square(now));
        }
    }

    /// Takes a bundle out of the network; what it had chosen is nothing until it is laid again.
    pub(super) fn lift(&mut self, index: usize) {
        self.put(index, false);
        self.hops -= u64::from(self.space.choices[index].candidates[self.chosen[index] as usize].hops);
    }

    /// Lays a bundle that was taken out.
    pub(super) fn lay(&mut self, index: usize, candidate: u32) {
        self.chosen[index] = candidate;
        self.put(index, true);
        self.hops += u64::from(self.space.choices[index].candidates[candidate as usize].hops);
    }

    pub(super) fn set(&mut self, index: usize, candidate: u32) {
        self.lift(index);
        self.lay(index, candidate);
    }

    pub(super) const fn hops(&self) -> u64 {
        self.hops
    }

    pub(super) fn most(&self) -> u64 {
        self.order.last().map_or(0, |(load, _)| *load)
    }

    /// Busiest port, then evenness, then length: the second lets a descent cross plateaus of the first.
    fn cost(&self) -> (u64, u128, u64) {
        (self.most(), self.squares, self.hops)
    }
}

const fn square(load: u64) -> u128 {
    (load as u128) * (load as u128)
}

/// The best choice found; never worse than all present ways.
pub(super) fn search(judge: &mut Judge<'_>, space: &Space, limits: &Limits) -> Vec<u32> {
    let present = vec![0u32; space.choices.len()];
    let mut best = present.clone();
    if present.is_empty() {
        return best;
    }
    for start in [present, greedy(space)] {
        let found = settled(judge, space, start);
        if space.is_better(&found, &best) {
            best = found;
        }
    }
    let mut random = Random(limits.seed);
    for _ in 0..limits.kicks {
        if judge.ask("routes") {
            break;
        }
        let found = settled(judge, space, kicked(space, &best, &mut random));
        if space.is_better(&found, &best) {
            best = found;
        }
    }
    best
}

/// Heaviest bundles first, each where the busiest port gets least.
fn greedy(space: &Space) -> Vec<u32> {
    let count = space.choices.len();
    let weight = |index: &usize| {
        let loads = space.choices[*index]
            .extra
            .iter()
            .flatten()
            .map(|(_, load)| *load);
        std::cmp::Reverse(loads.max().unwrap_or(0))
    };
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|index| (weight(index), *index));
    let mut state = State::new(space, vec![0; count]);
    for index in &order {
        state.lift(*index);
    }
    for index in order {
        state.lay(index, 0);
        let options = 0..space.choices[index].candidates.len() as u32;
        let best = options.min_by_key(|candidate| {
            state.set(index, *candidate);
            (state.cost(), *candidate)
        });
        state.set(index, best.unwrap_or(0));
    }
    state.chosen
}

/// Descends, then takes back every detour that the busiest port does not need.
fn settled(judge: &mut Judge<'_>, space: &Space, start: Vec<u32>) -> Vec<u32> {
    let mut state = State::new(space, start);
    for _ in 0..MOST_STEPS {
        if judge.ask("routes") || !descend(&mut state) {
            break;
        }
    }
    let most = state.most();
    for index in 0..state.chosen.len() {
        let present = state.chosen[index];
        let hops = |candidate: u32| space.choices[index].candidates[candidate as usize].hops;
        let mut shorter: Vec<u32> = (0..space.choices[index].candidates.len() as u32)
            .filter(|candidate| (hops(*candidate), *candidate) < (hops(present), present))
            .collect();
        shorter.sort_by_key(|candidate| (hops(*candidate), *candidate));
        for candidate in shorter {
            state.set(index, candidate);
            if state.most() <= most {
                break;
            }
            state.set(index, present);
        }
    }
    state.chosen
}

/// The best move of a bundle that the busiest port carries; false where none lowers the cost.
fn descend(state: &mut State<'_>) -> bool {
    let Some((_, worst)) = state.order.last().copied() else {
        return false;
    };
    let before = state.cost();
    let mut best: Option<((u64, u128, u64), usize, u32)> = None;
    for index in 0..state.chosen.len() {
        let present = state.chosen[index];
        let choice = &state.space.choices[index];
        if !choice.extra[present as usize]
            .iter()
            .any(|(port, _)| *port == worst)
        {
            continue;
        }
        for candidate in (0..choice.candidates.len() as u32).filter(|candidate| *candidate != present) {
            state.set(index, candidate);
            let cost = state.cost();
            if cost < before && best.is_none_or(|(known, ..)| cost < known) {
                best = Some((cost, index, candidate));
            }
        }
        state.set(index, present);
    }
    match best {
        None => false,
        Some((_, index, candidate)) => {
            state.set(index, candidate);
            true
        }
    }
}

/// The same choice with about a tenth of the bundles sent another way at random.
fn kicked(space: &Space, chosen: &[u32], random: &mut Random) -> Vec<u32> {
    let mut kicked = chosen.to_vec();
    for _ in 0..1 + chosen.len() / 10 {
        let index = random.below(chosen.len() as u64) as usize;
        kicked[index] = random.below(space.choices[index].candidates.len() as u64) as u32;
    }
    kicked
}

/// `SplitMix64` (Steele, Lea and Flood, 2014): the one random stream of the search.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }
}

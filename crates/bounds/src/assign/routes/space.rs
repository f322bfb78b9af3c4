//! The choices of a search: what each costs on the ports that a choice can change.

use super::Limits;
use super::Worst;
use super::candidates::{Candidate, Known, candidates};
use super::loads::Loads;
use super::paths::Graph;
use crate::assign::judge::Judge;
use std::collections::{BTreeMap, BTreeSet};
use timebound_model::PortId;

/// A bundle that can go several ways.
pub(super) struct Choice {
    pub(super) bundle: usize,
    pub(super) candidates: Vec<Candidate>,
    /// Load of every candidate above that which all of them put on a port, by port.
    pub(super) extra: Vec<Vec<(u32, u64)>>,
}

/// All choices, and the load that does not depend on them.
pub(super) struct Space {
    pub(super) choices: Vec<Choice>,
    /// Per port, with what every candidate of a bundle puts there.
    pub(super) base: Vec<u64>,
    /// Ports on which some choice makes a difference.
    pub(super) movable: Vec<bool>,
    pub(super) all_ways: bool,
}

impl Space {
    pub(super) fn build(judge: &mut Judge<'_>, limits: &Limits, pinned: &[usize]) -> Self {
        let network = judge.network.clone();
        let loads = Loads::of_network(&network);
        let graph = Graph::of(&network);
        let mut known = Known::new();
        let mut space = Self {
            choices: Vec::new(),
            base: vec![0; network.ports.len()],
            movable: vec![false; network.ports.len()],
            all_ways: true,
        };
        let mut moving: BTreeSet<usize> = BTreeSet::new();
        for (index, bundle) in judge.task.bundles.iter().enumerate() {
            // A search that is broken off leaves the rest where it is.
            if pinned.contains(&index) || judge.ask("ways") {
                space.all_ways = false;
                continue;
            }
            let most = limits.candidates.max(1);
            let (found, all) = candidates(&network, &graph, &loads, bundle, most, &mut known);
            space.all_ways &= all;
            if found.len() > 1 {
                moving.extend(bundle.forward.iter().chain(&bundle.backward).map(|id| id.index()));
                space.add(index, found);
            }
        }
        for (index, stream) in network.streams.iter().enumerate() {
            if !moving.contains(&index) {
                for hop in &stream.tree.hops {
                    let base = &mut space.base[hop.port.index()];
                    *base = base.saturating_add(loads.of(timebound_model::StreamId::new(index), hop.port));
                }
            }
        }
        space
    }

    /// What all candidates put on a port belongs to the base: a lower bound for the exact search, and no reason to choose.
    fn add(&mut self, bundle: usize, candidates: Vec<Candidate>) {
        let mut common: BTreeMap<u32, u64> = candidates[0].loads.iter().copied().collect();
        for candidate in &candidates[1..] {
            let loads: BTreeMap<u32, u64> = candidate.loads.iter().copied().collect();
            common.retain(|port, load| {
                *load = loads.get(port).map_or(0, |other| (*load).min(*other));
                *load > 0
            });
        }
        for (port, load) in &common {
            let base = &mut self.base[*port as usize];
            *base = base.saturating_add(*load);
        }
        let above = |candidate: &Candidate| -> Vec<(u32, u64)> {
            let rest = candidate
                .loads
                .iter()
                .map(|(port, load)| (*port, load - common.get(port).copied().unwrap_or(0)));
            rest.filter(|(_, load)| *load > 0).collect()
        };
        let extra: Vec<Vec<(u32, u64)>> = candidates.iter().map(above).collect();
        for (port, _) in extra.iter().flatten() {
            self.movable[*port as usize] = true;
        }
        self.choices.push(Choice {
            bundle,
            candidates,
            extra,
        });
    }

    /// Load of every port.
    fn loads(&self, chosen: &[u32]) -> Vec<u64> {
        let mut loads = self.base.clone();
        for (choice, candidate) in self.choices.iter().zip(chosen) {
            for (port, load) in &choice.extra[*candidate as usize] {
                let total = &mut loads[*port as usize];
                *total = total.saturating_add(*load);
            }
        }
        loads
    }

    /// The busiest port (the first of equals), over all or over the movable ones.
    pub(super) fn worst(&self, chosen: &[u32], movable: bool) -> Option<Worst> {
        let loads = self.loads(chosen);
        let ports = (0..loads.len()).filter(|port| loads[*port] > 0 && (!movable || self.movable[*port]));
        let port = ports.min_by_key(|port| (std::cmp::Reverse(loads[*port]), *port))?;
        Some(Worst {
            port: PortId::new(port),
            parts: loads[port],
        })
    }

    pub(super) fn hops(&self, chosen: &[u32]) -> u64 {
        let hops =
            |(choice, candidate): (&Choice, &u32)| u64::from(choice.candidates[*candidate as usize].hops);
        self.choices.iter().zip(chosen).map(hops).sum()
    }

    /// Worst movable port, then hops.
    pub(super) fn cost(&self, chosen: &[u32]) -> (u64, u64) {
        (
            self.worst(chosen, true).map_or(0, |worst| worst.parts),
            self.hops(chosen),
        )
    }

    /// Is the first choice strictly better?
    pub(super) fn is_better(&self, first: &[u32], second: &[u32]) -> bool {
        self.cost(first) < self.cost(second)
    }
}

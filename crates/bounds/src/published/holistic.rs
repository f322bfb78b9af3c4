//! The holistic approach as printed: eq. 6-8 and algorithm 1, eq. 13-15 and algorithm 3.

use crate::cause::{Cause, Kind};
use crate::exact::Exact;
use crate::flow::crossing;
use crate::options::Options;
use crate::paths::{Costs, Paths};
use crate::result::{Analysis, HopResult, LeafResult, Outcome, StreamResult};
use crate::safety::{Labelled, Safety};
use crate::trajectory::{port_results, refusal};
use timebound_model::{Leaf, Network, Span, StreamId};

const NAME: &str = "the holistic approach as published";

/// No time may exceed this (about 31 years).
const HORIZON: u128 = 1_000_000_000_000_000_000;

/// Denominator of shares of a link's time.
const SHARE: u128 = 1 << 40;

/// How the brackets around `(w + J) / T`, the number of instances to examine, are read: the sentence above eq. 6 prints plain ones, that above eq. 13
/// a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bracket {
    Ceiling,
    Floor,
}

/// Latencies by eq. 6-8 with algorithm 1 (unicast) and eq. 13-15 with algorithm 3 (multicast) as printed. **Unsafe.**
///
/// | printed | defect |
/// |---|---|
/// | eq. 6, 13: the busy period without the message itself | too few instances are examined |
/// | Q in plain brackets | must be a ceiling; read as one here, see [`holistic_with_bracket`] |
/// | eq. 8, 15: `v + C - q T` | the message's own jitter is dropped: instance q may come `q T - J` after the first |
/// | eq. 14: `C_i` behind the sum over j | must be `C_j` |
/// | algorithm 1: jitter is carried for the message alone, rivals keep their release jitter | queueing has bunched them |
/// | algorithm 1: starts from `J_1`, the jitter of message 1 | must be `J_i` |
/// | algorithm 3: sums never reset | a branch is charged with all branches before it |
///
/// Readings where the text leaves a choice: message 1 is the first stream; at least one instance is examined, also where Q is 0; SD of a link is
/// the greatest switching delay of the switch that sends on it, its jitter, which the paper takes as a standard deviation, that of a uniform distribution over
/// the declared range; the best case of a link is C; an RP is any switch at which the stream branches, `SD^RP` its switching and
/// replication delay together, `J_mc` the greatest spread of a replication delay in the network; a release of several frames is that many messages; propagation delay, which the paper leaves out,
/// is added for every link; the stop at a deadline is not taken. What is printed makes no difference between nominal and
/// actual release, so both results are the same. [`HopResult::window`] is zero.
#[must_use]
pub fn holistic_as_published(network: &Network, options: &Options) -> Labelled {
    holistic_with_bracket(network, options, Bracket::Ceiling)
}

/// [`holistic_as_published`] with either reading of the brackets around Q.
#[must_use]
pub fn holistic_with_bracket(network: &Network, options: &Options, bracket: Bracket) -> Labelled {
    let exact = Exact::of(network);
    let network = exact.network();
    let paths = Paths::new(network, &exact.options(options), Costs::Transmission);
    let first_jitter = paths.flows.first().map_or(0, |flow| flow.jitter);
    let mut pass = Pass {
        network,
        paths: &paths,
        bracket,
        first_jitter,
        multicast_jitter: multicast_jitter(network),
        // Ample, and never more than some seconds.
        steps: (1 << 22) + (65_536 * paths.places.len() as u64).min(1 << 27),
    };
    let streams = (0..network.streams.len())
        .map(|index| pass.stream_result(StreamId::new(index)))
        .collect();
    let ports = port_results(network, &paths, NAME);
    Labelled {
        method: "holistic-as-published",
        safety: Safety::Unsafe,
        analysis: exact.rounded(Analysis {
            streams,
            ports,
            looked_at: None,
        }),
    }
}

/// Another message at a link.
struct Rival {
    period: u128,
    jitter: u128,
    cost: u128,
}

/// `RT^Total` and `J^acc` of the algorithms, and what was added hop by hop.
#[derive(Default)]
struct Sums {
    total: u128,
    jitter: u128,
    hops: Vec<HopResult>,
}

struct Pass<'a> {
    network: &'a Network,
    paths: &'a Paths,
    bracket: Bracket,
    /// `J_1`.
    first_jitter: u64,
    /// `J_mc`.
    multicast_jitter: u128,
    steps: u64,
}

impl Pass<'_> {
    fn stream_result(&mut self, id: StreamId) -> StreamResult {
        let network = self.network;
        let stream = &network.streams[id.index()];
        let mut worst: Vec<Option<Outcome>> = vec![None; stream.tree.leaves.len()];
        for flow in self.paths.flows_of[id.index()].clone() {
            for (known, next) in worst.iter_mut().zip(self.leaves(id, flow)) {
                *known = Some(match known.take() {
                    Some(before) => slower(before, next),
                    None => next,
                });
            }
        }
        let empty = || Outcome::Unsupported {
            reason: format!("a release has no frame, and {NAME} has nothing to follow"),
        };
        let leaf_result = |(leaf, outcome): (&Leaf, Option<Outcome>)| LeafResult {
            node: leaf.node,
            receiver: network.nodes[leaf.node.index()].name.clone(),
            outcome: outcome.unwrap_or_else(empty),
        };
        StreamResult {
            stream: stream.name.clone(),
            leaves: stream.tree.leaves.iter().zip(worst).map(leaf_result).collect(),
        }
    }

    /// Algorithm 1 for one receiver, algorithm 3 for several.
    fn leaves(&mut self, id: StreamId, flow: usize) -> Vec<Outcome> {
        let tree = &self.network.streams[id.index()].tree;
        let shared = if tree.leaves.len() > 1 {
            self.depth_of_branch(id)
        } else {
            usize::MAX
        };
        let mut sums = Sums::default();
        let mut failed = None;
        let mut begun = false;
        let mut outcomes = Vec::new();
        for leaf in &tree.leaves {
            let path = tree.path(*leaf);
            for (position, &hop) in path.iter().enumerate() {
                // Parts A and B are done once, part C for every branch; nothing is ever reset.
                let is_unicast = position < shared;
                if failed.is_some() || (is_unicast && begun) {
                    continue;
                }
                failed = self.link(flow, hop, position == 0, is_unicast, &mut sums).err();
                if !is_unicast && failed.is_none() && tree.children(Some(hop)).count() > 1 {
                    failed = self.clustered_paths(id, flow, hop, &mut sums).err();
                }
            }
            begun = true;
            outcomes.push(match &failed {
                Some(cause) => cause.outcome(),
                None => self.bound(flow, *leaf, &sums),
            });
        }
        outcomes
    }

    /// Links that all branches share (`D_up`).
    fn depth_of_branch(&self, id: StreamId) -> usize {
        let tree = &self.network.streams[id.index()].tree;
        let mut depth = 0;
        let mut at = None;
        loop {
            let mut next = tree.children(at);
            match (next.next(), next.next()) {
                (Some(only), None) => {
                    at = Some(only);
                    depth += 1;
                }
                _ => return depth,
            }
        }
    }

    /// Part C behind a further RP: every path from there, all of them added up.
    fn clustered_paths(&mut self, id: StreamId, flow: usize, hop: u32, sums: &mut Sums) -> Result<(), Cause> {
        let tree = &self.network.streams[id.index()].tree;
        for leaf in &tree.leaves {
            let path = tree.path(*leaf);
            let Some(branch) = path.iter().position(|at| *at == hop) else {
                continue;
            };
            for &beyond in &path[branch + 1..] {
                self.link(flow, beyond, false, false, sums)?;
            }
        }
        Ok(())
    }

    /// One link of algorithm 1 or 3.
    fn link(
        &mut self,
        flow: usize,
        hop: u32,
        is_first: bool,
        is_unicast: bool,
        sums: &mut Sums,
    ) -> Result<(), Cause> {
        let place_id = self.paths.flows[flow].first_place + hop;
        let place = &self.paths.places[place_id as usize];
        if let Some(cause) = refusal::at_port(self.network, self.paths, place.port, place.class, NAME) {
            return Err(cause);
        }
        let port = &self.network.ports[place.port.index()];
        let tree = &self.network.streams[self.paths.flows[flow].stream.index()].tree;
        let (least, greatest) = tree.hops[hop as usize]
            .parent
            .map_or((Span::ZERO, Span::ZERO), |parent| {
                self.network.switching(tree.hops[parent as usize])
            });
        let mut switching = 0;
        let before = sums.jitter;
        if !is_first {
            switching = u128::from(greatest.0);
            sums.jitter += deviation(greatest.saturating_sub(least));
        }
        let own_jitter = if is_first {
            u128::from(self.paths.flows[flow].jitter)
        } else {
            sums.jitter
        };
        let Some(response) = self.response(place_id, own_jitter, is_unicast) else {
            let text = format!(
                "the printed equations have no fixed point at port {}",
                self.network.port_name(place.port)
            );
            return Err(Cause::new(Kind::NoFiniteBound, place.port, text));
        };
        if is_first {
            sums.jitter = u128::from(self.first_jitter);
        }
        // J^QF: worst less best case of the link.
        sums.jitter += response.saturating_sub(u128::from(place.transmission));
        let crossing = u128::from(crossing(port).0);
        sums.total += response + switching + crossing;
        sums.hops.push(HopResult {
            port: place.port,
            name: self.network.port_name(place.port).into(),
            window: Span::ZERO,
            response: span(response),
            counted_before: Span::ZERO,
            jitter_in: span(if is_first { own_jitter } else { before }),
            traversal: span(switching + crossing),
        });
        Ok(())
    }

    fn rivals(&self, place_id: u32) -> Vec<Rival> {
        let own = &self.paths.places[place_id as usize];
        let mut rivals = Vec::new();
        for &at in &self.paths.at[own.port.index()] {
            let other = &self.paths.places[at as usize];
            let flow = self.paths.flow_at(at);
            // Frames of the same size and release are messages of their own.
            let frames = flow.multiplicity - u64::from(at == place_id);
            if other.class >= own.class && frames > 0 {
                rivals.push(Rival {
                    period: u128::from(flow.period.unwrap_or(1)),
                    jitter: u128::from(flow.jitter),
                    cost: u128::from(other.transmission) * u128::from(frames),
                });
            }
        }
        rivals
    }

    /// Eq. 6-8, or 13-15 with the `C_i` that eq. 14 prints for `C_j`. `None` where an iteration does not end.
    fn response(&mut self, place_id: u32, jitter: u128, is_unicast: bool) -> Option<u128> {
        let place = &self.paths.places[place_id as usize];
        let flow = self.paths.flow_at(place_id);
        let own = u128::from(place.transmission);
        let period = u128::from(flow.period?);
        let blocking = u128::from(self.paths.extremes[place.port.index()].greatest_below(place.class));
        let rivals = self.rivals(place_id);
        let extra = if is_unicast { 0 } else { self.multicast_jitter };
        // More than the whole time is beyond doubt: the iterations would only climb.
        let cost = |j: &Rival| if is_unicast { j.cost } else { own };
        let share = |j: &Rival| cost(j).saturating_mul(SHARE) / j.period;
        if rivals.iter().map(share).fold(0, u128::saturating_add) > SHARE {
            return None;
        }
        let busy = self.fixed_point(blocking + own, rivals.len(), |w| {
            let work = |j: &Rival| (w + j.jitter + extra).div_ceil(j.period).saturating_mul(j.cost);
            rivals.iter().map(work).fold(blocking, u128::saturating_add)
        })?;
        let instances = match self.bracket {
            Bracket::Ceiling => (busy + jitter + extra).div_ceil(period),
            Bracket::Floor => (busy + jitter + extra) / period,
        };
        let mut worst = 0;
        for q in 0..instances.max(1) {
            let base = blocking.saturating_add(q.saturating_mul(own));
            let start = self.fixed_point(base, rivals.len(), |v| {
                let work = |j: &Rival| ((v + j.jitter + extra) / j.period + 1).saturating_mul(cost(j));
                rivals.iter().map(work).fold(base, u128::saturating_add)
            })?;
            worst = worst.max((start + own).saturating_sub(q * period));
        }
        Some(worst)
    }

    fn fixed_point(&mut self, start: u128, terms: usize, step: impl Fn(u128) -> u128) -> Option<u128> {
        let mut at = start;
        loop {
            if at > HORIZON {
                return None;
            }
            self.steps = self.steps.checked_sub(1 + terms as u64)?;
            let next = step(at);
            if next == at {
                return Some(at);
            }
            at = next;
        }
    }

    fn bound(&self, flow: usize, leaf: Leaf, sums: &Sums) -> Outcome {
        let place = &self.paths.places[(self.paths.flows[flow].first_place + leaf.hop) as usize];
        let link = &self.network.ports[place.port.index()];
        let best_case = Span(place.earliest)
            .saturating_add(Span(place.transmission))
            .saturating_add(link.propagation)
            .saturating_sub(Span(link.speed().early()));
        Outcome::Bound {
            from_nominal: span(sums.total),
            from_actual: span(sums.total),
            best_case,
            best_whole: best_case,
            hops: sums.hops.clone(),
        }
    }
}

/// The one `J_mc` of the paper: the greatest spread of what a switch adds to frames that it copies, over all at which a stream branches.
fn multicast_jitter(network: &Network) -> u128 {
    let hops = network.streams.iter().flat_map(|stream| &stream.tree.hops);
    hops.filter(|hop| hop.forks)
        .map(|hop| &network.nodes[network.ports[hop.port.index()].peer.index()])
        .map(|node| u128::from(node.replication_max.saturating_sub(node.replication_min).0))
        .max()
        .unwrap_or(0)
}

fn span(value: u128) -> Span {
    Span(u64::try_from(value).unwrap_or(u64::MAX))
}

/// Standard deviation of a uniform distribution of this width, rounded down.
fn deviation(width: Span) -> u128 {
    (u128::from(width.0) * u128::from(width.0) / 12).isqrt()
}

/// Of two frames of a release: what has no bound decides, then the slower one; the best case is the faster one's.
fn slower(one: Outcome, other: Outcome) -> Outcome {
    let total = |outcome: &Outcome| match outcome {
        Outcome::Bound {
            from_nominal,
            best_case,
            ..
        } => Some((*from_nominal, *best_case)),
        Outcome::NoFiniteBound { .. } | Outcome::Unsupported { .. } => None,
    };
    let (Some((first, best)), Some((second, next_best))) = (total(&one), total(&other)) else {
        return if total(&one).is_none() { one } else { other };
    };
    let mut kept = if second > first { other } else { one };
    if let Outcome::Bound {
        best_case,
        best_whole,
        ..
    } = &mut kept
    {
        *best_case = best.min(next_best);
        *best_whole = *best_case;
    }
    kept
}

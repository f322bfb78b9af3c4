//! The trajectory approach (Martin and Minet 2006): the latest start of a frame at its last port, from what it can meet on its path.
//!
//! ```text
//! W(t) = sum hp (1 + floor((W_last_ij - Smin_j_last_ij + A_ij) / T_j))+ C_j_slow
//!      + sum sp (1 + floor((t + Smax_i_first_ji - Smin_j_first_ji + A_ij) / T_j))+ C_j_slow
//!      + (1 + floor((t + J_i) / T_i)) C_i_slow
//!      + sum over the ports h of i but slow_i of max over hp, sp, i of C_j_h  -  C_i_last  +  sum of Lmax  +  delta_i
//! R    = max over t of W(t) + C_i_last - t,   -J_i <= t < -J_i + BP,   BP = least positive fixed point of sum ceil(BP / T_j) C_j_slow
//! A_ij = Smax_j_first_ji - M_i_first_ji,   M_i_h = sum over the ports of i before h of (min over hp, sp, i of C_j + Lmin)
//! delta_i = sum over the ports of i of max over lp of C_j
//! ```
//!
//! `W_last_ij` is the same formula on i's path cut behind `last_ij`. A frame of hp is counted there **and** at W of every port that it shares before,
//! whatever counts most (see [`sweep`]): at `last_ij` alone it can be missing, which a sweep of random networks against the simulator showed. `Smax` is the greatest time from the nominal release to the arrival at a
//! port (release jitter included, which is why A does not add it again): the same formula on the part of the path before. Where paths depend
//! on each other in a circle, Smax is iterated from below to a fixed point. Flows that part and meet again are one pseudo-flow per stretch;
//! a branch of a multicast tree is a path of its own. A release of several frames counts as that many flows.
//!
//! **From the actual release** the same formula holds with `t >= 0` for the time of that release and Smax_i without jitter.
//!
//! **How far to trust it.** The corrected delta takes every port's own blocking (the published residual form does not, nor does the published range of
//! t reach beyond the source's busy period: `tests/defects.rs` has runs above both). A lower frame may start in the very
//! nanosecond in which ours arrives, so it counts whole, as in the holistic approach; Martin and Minet subtract that tick. The literature shows further optimistic corners
//! (Kemayo et al. 2013 and 2014; Li, Cros and George 2014; Tang et al. 2019), and the
//! exhaustive oracle found one in eight hundred tiny networks (`tests/oracle.rs`: 17 where a run takes 18), so results are labelled experimental and never part of a bound.

mod formula;
mod meeting;
pub(crate) mod refusal;
pub(crate) mod sweep;

use crate::cause::Causes;
use crate::exact::Exact;
use crate::flow::crossing;
use crate::options::Options;
use crate::order::{self, Lists};
use crate::paths::{Costs, NONE, Paths};
use crate::result::{Analysis, HopResult, LeafResult, Outcome, PortResult, StreamResult};
use crate::safety::{Labelled, Safety};
use formula::Arrivals;
use meeting::{Meeting, meetings};
use sweep::Effort;
use timebound_model::{Leaf, Network, PortId, Span, StreamId};

/// Meetings of all paths together; beyond that the memory for their order would matter.
const MOST_MEETINGS: usize = 1 << 26;

/// How blocking is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// At every port one lower frame.
    EveryPort,
    /// Eq. 11 of the paper: behind the first port only what a lower frame that came along has left over.
    Residual,
}

/// Over which t the maximum is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    /// BP over all flows that meet the path.
    WholePath,
    /// The busy period of the source's port alone.
    SourcePort,
}

/// Which of its forms the approach takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) costs: Costs,
    pub(crate) blocking: Blocking,
    pub(crate) range: Range,
    /// For messages.
    pub(crate) name: &'static str,
}

const STANDARD: Form = Form {
    costs: Costs::Transmission,
    blocking: Blocking::EveryPort,
    range: Range::WholePath,
    name: "the trajectory approach",
};

/// Worst-case latencies by the trajectory approach, in the standard form with the corrected blocking and the full range of t.
///
/// Labelled experimental, see the module. `Unsupported` outcomes name what the method does not cover: deficit round robin,
/// half-duplex media, traces, loss, reordering, paths with single-queue ports beside ports with classes, and paths whose busy period does not
/// end although every port has room. A [`HopResult::response`] is what its port adds to the result of the path before it; the t of the maximum
/// belongs to a whole path, so [`HopResult::window`] is zero.
#[must_use]
pub fn trajectory(network: &Network, options: &Options) -> Labelled {
    Labelled {
        method: "trajectory",
        safety: Safety::Experimental,
        analysis: run(network, options, STANDARD),
    }
}

pub(crate) fn run(network: &Network, options: &Options, form: Form) -> Analysis {
    let exact = Exact::of(network);
    let mut pass = Pass::new(exact.network(), &exact.options(options), form);
    pass.settle();
    exact.rounded(pass.assemble())
}

struct Pass<'a> {
    network: &'a Network,
    form: Form,
    paths: Paths,
    arrivals: Arrivals,
    /// Why the frames of a place have no bound when they leave it, or [`NONE`].
    cause: Vec<u32>,
    causes: Causes,
    /// Why a class has none at a port, by port and class.
    port_cause: Vec<[u32; 8]>,
    effort: Effort,
}

impl<'a> Pass<'a> {
    fn new(network: &'a Network, options: &Options, form: Form) -> Self {
        let paths = Paths::new(network, options, form.costs);
        let mut causes = Causes::default();
        let mut port_cause = vec![[NONE; 8]; network.ports.len()];
        for (index, by_class) in port_cause.iter_mut().enumerate() {
            for &place in &paths.at[index] {
                let class = paths.places[place as usize].class;
                let known = &mut by_class[usize::from(class)];
                if *known != NONE {
                    continue;
                }
                let id = PortId::new(index);
                // Delays of switches, which is what eq. 9 adds up, say nothing about the load of a port.
                let overload = || match form.costs {
                    Costs::Transmission => refusal::overload(network, &paths, id, class),
                    Costs::Switching => None,
                };
                if let Some(cause) = refusal::at_port(network, &paths, id, class, form.name).or_else(overload)
                {
                    *known = causes.add(cause);
                }
            }
        }
        Self {
            network,
            form,
            arrivals: Arrivals::least(&paths, form.costs),
            cause: vec![NONE; paths.places.len()],
            causes,
            port_cause,
            effort: Effort::for_places(paths.places.len()),
            paths,
        }
    }

    /// For every place those that decide about it; `None` where that is too much to keep.
    fn inputs(&self) -> Option<Lists> {
        let mut left = MOST_MEETINGS;
        let mut inputs = Lists::with_capacity(self.paths.places.len(), self.paths.places.len());
        for place in 0..self.paths.places.len() as u32 {
            let path = self.paths.path_to(place);
            let rivals: usize = path
                .iter()
                .map(|at| self.paths.at[self.paths.places[*at as usize].port.index()].len())
                .sum();
            left = left.checked_sub(rivals)?;
            let entry = |meeting: &Meeting| self.paths.places[meeting.places[0] as usize].parent;
            let mut list: Vec<u32> = meetings(&self.paths, &path)
                .iter()
                .map(entry)
                .chain([self.paths.places[place as usize].parent])
                .filter(|input| *input != NONE)
                .collect();
            list.sort_unstable();
            list.dedup();
            list.into_iter().for_each(|input| inputs.add(input));
            inputs.close();
        }
        Some(inputs)
    }

    fn settle(&mut self) {
        let Some(inputs) = self.inputs() else {
            (0..self.paths.places.len() as u32).for_each(|place| self.give_up(place));
            return;
        };
        for component in order::components(&inputs).iter() {
            let circular = component.len() > 1 || inputs.of(component[0] as usize).contains(&component[0]);
            let mut settled = false;
            while !settled {
                settled = true;
                for &place in component {
                    settled &= !self.evaluate(place);
                }
                if circular && self.effort.is_spent() {
                    component.iter().for_each(|place| self.give_up(*place));
                    break;
                }
                settled |= !circular;
            }
        }
    }

    fn give_up(&mut self, place: u32) {
        if self.cause[place as usize] == NONE {
            self.refuse(place, sweep::Trouble::Effort);
        }
    }

    fn refuse(&mut self, place: u32, trouble: sweep::Trouble) {
        let port = self.paths.places[place as usize].port;
        let stream = self.paths.flow_at(place).stream;
        let cause = refusal::without_value(trouble, self.network, port, stream, self.form.name);
        self.cause[place as usize] = self.causes.add(cause);
    }

    /// Works out one path; `true` if the result is news.
    fn evaluate(&mut self, place: u32) -> bool {
        if self.cause[place as usize] != NONE {
            return false;
        }
        let path = self.paths.path_to(place);
        let met = meetings(&self.paths, &path);
        if let Some(cause) = self.known_cause(&path, &met) {
            self.cause[place as usize] = cause;
            return true;
        }
        let ends = formula::evaluate(
            self.network,
            &self.paths,
            self.form,
            &self.arrivals,
            (&path, &met),
            &mut self.effort,
        );
        match ends {
            Ok(ends) => self.arrivals.depart(place, ends),
            Err(trouble) => {
                self.refuse(place, trouble);
                true
            }
        }
    }

    /// A cause that lies in a port, in the path before, or in the arrivals of a rival.
    fn known_cause(&mut self, path: &[u32], met: &[Meeting]) -> Option<u32> {
        let place = &self.paths.places[path[path.len() - 1] as usize];
        let at_port = self.port_cause[place.port.index()][usize::from(place.class)];
        if at_port != NONE {
            return Some(at_port);
        }
        if place.parent != NONE && self.cause[place.parent as usize] != NONE {
            return Some(self.cause[place.parent as usize]);
        }
        let stream = self.paths.flow_at(path[0]).stream;
        let name = self.form.name;
        if let Some(cause) = refusal::mixed_service(self.network, &self.paths, path, stream, name) {
            return Some(self.causes.add(cause));
        }
        for meeting in met {
            let entry = &self.paths.places[meeting.places[0] as usize];
            if entry.parent != NONE && self.cause[entry.parent as usize] != NONE {
                let rival =
                    &self.network.streams[self.paths.flows[meeting.flow as usize].stream.index()].name;
                let origin = self.cause[entry.parent as usize];
                return Some(self.causes.spread(origin, self.network, entry.port, rival));
            }
        }
        None
    }
}

impl Pass<'_> {
    fn assemble(&self) -> Analysis {
        let streams = (0..self.network.streams.len())
            .map(|index| self.stream_result(StreamId::new(index)))
            .collect();
        Analysis {
            streams,
            ports: port_results(self.network, &self.paths, self.form.name),
            looked_at: None,
        }
    }

    fn stream_result(&self, id: StreamId) -> StreamResult {
        let stream = &self.network.streams[id.index()];
        let leaf_result = |leaf: &Leaf| LeafResult {
            node: leaf.node,
            receiver: self.network.nodes[leaf.node.index()].name.clone(),
            outcome: self.outcome(id, *leaf),
        };
        StreamResult {
            stream: stream.name.clone(),
            leaves: stream.tree.leaves.iter().map(leaf_result).collect(),
        }
    }

    /// Of a release of several frames the slowest, and the fastest for the best case.
    fn outcome(&self, id: StreamId, leaf: Leaf) -> Outcome {
        let flows = &self.paths.flows[self.paths.flows_of[id.index()].clone()];
        let ends: Vec<u32> = flows.iter().map(|flow| flow.first_place + leaf.hop).collect();
        if let Some(cause) = ends
            .iter()
            .find_map(|end| self.causes.get(self.cause[*end as usize]))
        {
            return cause.outcome();
        }
        let Some(slowest) = ends.iter().max_by_key(|end| self.arrivals.left_actual(**end)) else {
            return Outcome::Unsupported {
                reason: format!(
                    "a release has no frame, and {} has nothing to follow",
                    self.form.name
                ),
            };
        };
        let port = self.network.streams[id.index()].tree.hops[leaf.hop as usize].port;
        let link = &self.network.ports[port.index()];
        // The published form counts the last link in W.
        let crossed = match self.form.costs {
            Costs::Transmission => crossing(link),
            Costs::Switching => Span::ZERO,
        };
        let greatest = |of: &dyn Fn(u32) -> u64| ends.iter().map(|end| of(*end)).max().unwrap_or(0);
        let earliest = |end: &u32| {
            let place = &self.paths.places[*end as usize];
            let base = Span(place.earliest).saturating_add(Span(place.quickest));
            base.saturating_add(link.propagation)
                .saturating_sub(Span(link.speed().early()))
        };
        let best_case = ends.iter().map(earliest).min().unwrap_or_default();
        Outcome::Bound {
            from_nominal: Span(greatest(&|end| self.arrivals.left_nominal(end))).saturating_add(crossed),
            from_actual: Span(greatest(&|end| self.arrivals.left_actual(end))).saturating_add(crossed),
            best_case,
            best_whole: best_case,
            hops: self.hops(*slowest),
        }
    }

    fn hops(&self, end: u32) -> Vec<HopResult> {
        let path = self.paths.path_to(end);
        let hop = |(position, place): (usize, &u32)| {
            let at = &self.paths.places[*place as usize];
            let link = &self.network.ports[at.port.index()];
            let next = path.get(position + 1);
            let traversal = match (self.form.costs, next) {
                (Costs::Switching, _) => 0,
                (Costs::Transmission, Some(next)) => self.paths.places[*next as usize].lag.1,
                (Costs::Transmission, None) => crossing(link).0,
            };
            let arrived = self.arrivals.actual(&self.paths, *place);
            HopResult {
                port: at.port,
                name: self.network.port_name(at.port).into(),
                window: Span::ZERO,
                response: Span(self.arrivals.left_actual(*place).saturating_sub(arrived)),
                counted_before: Span::ZERO,
                jitter_in: Span(
                    self.arrivals
                        .nominal(&self.paths, *place)
                        .saturating_sub(at.earliest),
                ),
                traversal: Span(traversal),
            }
        };
        path.iter().enumerate().map(hop).collect()
    }
}

/// Utilisations; methods over whole paths have nothing to say about queues.
pub(crate) fn port_results(network: &Network, paths: &Paths, method: &str) -> Vec<PortResult> {
    (0..network.ports.len())
        .map(|index| PortResult {
            port: PortId::new(index),
            name: network.port_name(PortId::new(index)),
            utilisation: refusal::utilisation(paths, PortId::new(index), 0),
            backlog_bytes: None,
            exceeds_buffer: false,
            classes: Vec::new(),
            reason: Some(format!("{method} does not bound queues")),
        })
        .collect()
}

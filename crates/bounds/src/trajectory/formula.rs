//! The terms of the formula for one path, and its value.

use super::meeting::Meeting;
use super::sweep::{Count, Effort, Higher, Terms, Trouble, busy_period, latest_start, levels};
use super::{Blocking, Form, Range};
use crate::paths::{Costs, NONE, Paths};
use timebound_model::Network;

/// For every place the greatest time at which its frame has been sent: from the nominal and from the actual release.
#[derive(Debug)]
pub(crate) struct Arrivals {
    left: Vec<(u64, u64)>,
    counts_lag: bool,
}

impl Arrivals {
    /// The least conceivable: where iterations start.
    pub(crate) fn least(paths: &Paths, costs: Costs) -> Self {
        let least = |place: &crate::paths::Place| {
            let alone = place.earliest.saturating_add(place.cost);
            let jitter = paths.flows[place.flow as usize].jitter;
            (alone.saturating_add(jitter), alone)
        };
        Self {
            left: paths.places.iter().map(least).collect(),
            counts_lag: costs == Costs::Transmission,
        }
    }
    pub(crate) fn left_nominal(&self, place: u32) -> u64 {
        self.left[place as usize].0
    }
    pub(crate) fn left_actual(&self, place: u32) -> u64 {
        self.left[place as usize].1
    }
    /// Smax: the greatest time from the nominal release to the arrival at a place.
    pub(crate) fn nominal(&self, paths: &Paths, place: u32) -> u64 {
        match paths.places[place as usize].parent {
            NONE => paths.flow_at(place).jitter,
            parent => self.left_nominal(parent).saturating_add(self.lag(paths, place)),
        }
    }
    /// The same from the actual release.
    pub(crate) fn actual(&self, paths: &Paths, place: u32) -> u64 {
        match paths.places[place as usize].parent {
            NONE => 0,
            parent => self.left_actual(parent).saturating_add(self.lag(paths, place)),
        }
    }
    fn lag(&self, paths: &Paths, place: u32) -> u64 {
        if self.counts_lag {
            paths.places[place as usize].lag.1
        } else {
            0
        }
    }
    /// `true` if that is news. Never falls, so that iterations end.
    pub(crate) fn depart(&mut self, place: u32, (nominal, actual): (u64, u64)) -> bool {
        let left = &mut self.left[place as usize];
        let next = (left.0.max(nominal), left.1.max(actual));
        let news = *left != next;
        *left = next;
        news
    }
}

/// One path with what it meets.
struct Question<'a> {
    network: &'a Network,
    paths: &'a Paths,
    form: Form,
    arrivals: &'a Arrivals,
    path: &'a [u32],
    met: &'a [Meeting],
}

/// R of a path from the nominal and from the actual release, to the end of the frame at its last port.
pub(crate) fn evaluate(
    network: &Network,
    paths: &Paths,
    form: Form,
    arrivals: &Arrivals,
    (path, met): (&[u32], &[Meeting]),
    effort: &mut Effort,
) -> Result<(u64, u64), Trouble> {
    let question = Question {
        network,
        paths,
        form,
        arrivals,
        path,
        met,
    };
    let range = question.range(effort)?;
    let ends = levels(path, met);
    let constant: Vec<i128> = ends.iter().map(|end| question.constant(*end)).collect();
    let jitter = i128::from(paths.flow_at(path[0]).jitter);
    let mut terms = Terms {
        same: question.same(&ends, &|place| arrivals.nominal(paths, place)),
        constant,
        higher: question.higher(&ends),
        first: -jitter,
        range,
    };
    let last = i128::from(question.cost(path.len() - 1));
    let nominal = latest_start(&terms, effort)? + last;
    terms.same = question.same(&ends, &|place| arrivals.actual(paths, place));
    terms.first = 0;
    let actual = latest_start(&terms, effort)? + last;
    let time = |value: i128| u64::try_from(value.max(0)).map_err(|_| Trouble::Horizon);
    // With the full range of t the maximum from the nominal release covers that from the actual one; with a shorter one it may not.
    Ok((time(nominal.max(actual))?, time(actual)?))
}

impl Question<'_> {
    fn cost(&self, position: usize) -> u64 {
        self.paths.places[self.path[position] as usize].cost
    }

    /// Position and cost of the slowest port up to `end` (slow_i).
    fn slowest(&self, end: usize) -> (usize, u64) {
        let position = (0..=end).max_by_key(|at| self.cost(*at)).unwrap_or(0);
        (position, self.cost(position))
    }

    fn own_multiplicity(&self) -> i128 {
        i128::from(self.paths.flow_at(self.path[0]).multiplicity)
    }

    fn period(&self, flow: u32) -> i128 {
        // Flows without a declared arrival never get here: their port has a cause.
        i128::from(self.paths.flows[flow as usize].period.unwrap_or(1))
    }

    fn own_period(&self) -> i128 {
        self.period(self.paths.places[self.path[0] as usize].flow)
    }

    fn range(&self, effort: &mut Effort) -> Result<i128, Trouble> {
        let end = match self.form.range {
            Range::WholePath => self.path.len() - 1,
            Range::SourcePort => 0,
        };
        let own = i128::from(self.slowest(end).1) * self.own_multiplicity();
        let mut counts = vec![(self.own_period(), own)];
        for meeting in self.met.iter().filter(|meeting| meeting.first <= end) {
            let cost = i128::from(meeting.cost(self.paths, end));
            counts.push((self.period(meeting.flow), cost));
        }
        busy_period(&counts, effort)
    }

    /// What does not depend on t, for the path cut behind `end`.
    fn constant(&self, end: usize) -> i128 {
        let lags: i128 = (1..=end)
            .map(|at| i128::from(self.paths.places[self.path[at] as usize].lag.1))
            .sum();
        let last_link = match self.form.costs {
            Costs::Transmission => 0,
            Costs::Switching => {
                let place = &self.paths.places[self.path[end] as usize];
                i128::from(place.transmission)
                    + i128::from(self.network.ports[place.port.index()].propagation.0)
            }
        };
        let others = match self.form.costs {
            Costs::Transmission => self.one_frame_per_port(end),
            Costs::Switching => self.one_delay_per_switch(end),
        };
        others + lags + last_link + self.blocking(end) - i128::from(self.cost(end))
    }

    /// The greatest frame of the class and above at every port but the slowest.
    fn one_frame_per_port(&self, end: usize) -> i128 {
        let slow = self.slowest(end).0;
        (0..=end)
            .filter(|at| *at != slow)
            .map(|at| {
                let place = &self.paths.places[self.path[at] as usize];
                i128::from(self.paths.extremes[place.port.index()].greatest_from(place.class))
            })
            .sum()
    }

    /// The third term of eq. 9 and, behind a branch, that of eq. 16: a minimum of two delays in place of the sum.
    fn one_delay_per_switch(&self, end: usize) -> i128 {
        let slow = self.slowest(end).0;
        let met_at = |at: usize| {
            self.met
                .iter()
                .any(|meeting| meeting.first <= at && at <= meeting.last())
        };
        if let Some(branch) = self.branch().filter(|branch| *branch <= end) {
            let least = self.cost(slow).min(self.cost(branch));
            let counts = slow != branch && (0..=end).any(met_at);
            return if counts { i128::from(least) } else { 0 };
        }
        (0..=end)
            .filter(|at| *at != slow && met_at(*at))
            .map(|at| i128::from(self.cost(at)))
            .sum()
    }

    /// Position of the port behind the first branch of the stream's tree (the rendezvous point).
    fn branch(&self) -> Option<usize> {
        let tree = &self.network.streams[self.paths.flow_at(self.path[0]).stream.index()].tree;
        let first = self.paths.flow_at(self.path[0]).first_place;
        self.path.iter().position(|place| {
            let parent = tree.hops[(place - first) as usize].parent;
            tree.children(parent).count() > 1
        })
    }

    /// delta_i, or eq. 11.
    fn blocking(&self, end: usize) -> i128 {
        let at_port = |at: usize| {
            let place = &self.paths.places[self.path[at] as usize];
            match self.form.blocking {
                Blocking::EveryPort => {
                    i128::from(self.paths.extremes[place.port.index()].greatest_below(place.class))
                }
                Blocking::Residual => self.residual(at),
            }
        };
        (0..=end).map(at_port).sum()
    }

    /// Eq. 11: a lower frame that begins here counts whole, one that came along less the own cost at the port before.
    fn residual(&self, at: usize) -> i128 {
        let place = &self.paths.places[self.path[at] as usize];
        let before = (at > 0).then(|| self.path[at - 1]);
        let (mut begins, mut came_along) =
            (self.paths.extremes[place.port.index()].best_effort(), None::<u64>);
        for &other in &self.paths.at[place.port.index()] {
            let lower = &self.paths.places[other as usize];
            if lower.class >= place.class {
                continue;
            }
            let shares_before = lower.parent != NONE
                && before.is_some_and(|before| {
                    self.paths.places[lower.parent as usize].port == self.paths.places[before as usize].port
                });
            if shares_before {
                came_along = Some(came_along.unwrap_or(0).max(lower.cost));
            } else {
                begins = begins.max(lower.cost);
            }
        }
        let left_over = match (came_along, before) {
            (Some(cost), Some(before)) => {
                i128::from(cost) - i128::from(self.paths.places[before as usize].cost)
            }
            _ => 0,
        };
        (i128::from(begins) - 1).max(left_over).max(0)
    }

    /// A_ij at a meeting: the latest arrival of j there less the earliest of a frame that opens i's busy period.
    fn lead(&self, meeting: &Meeting) -> i128 {
        let opens: i128 = (0..meeting.first)
            .map(|at| {
                let place = &self.paths.places[self.path[at] as usize];
                let least = match self.form.costs {
                    Costs::Transmission => self.paths.extremes[place.port.index()].least_from(place.class),
                    Costs::Switching => {
                        self.network.nodes[self.network.ports[place.port.index()].node.index()]
                            .switching_min
                            .0
                    }
                };
                i128::from(least) + i128::from(self.paths.places[self.path[at + 1] as usize].lag.0)
            })
            .sum();
        i128::from(self.arrivals.nominal(self.paths, meeting.places[0])) - opens + self.multicast_jitter()
    }

    /// `J_mc` of eq. 17: the spread of what the first branch adds, if there is one on the path.
    fn multicast_jitter(&self) -> i128 {
        let Some(branch) = self.branch().filter(|_| self.form.costs == Costs::Switching) else {
            return 0;
        };
        let port = self.paths.places[self.path[branch] as usize].port;
        let node = &self.network.nodes[self.network.ports[port.index()].node.index()];
        i128::from(node.replication_max.saturating_sub(node.replication_min).0)
    }

    fn same(&self, ends: &[usize], own_arrival: &dyn Fn(u32) -> u64) -> Vec<(Count, Vec<i128>)> {
        let own = Count {
            shift: i128::from(self.paths.flow_at(self.path[0]).jitter),
            period: self.own_period(),
        };
        let multiplicity = self.own_multiplicity();
        let costs = ends
            .iter()
            .map(|end| i128::from(self.slowest(*end).1) * multiplicity)
            .collect();
        let mut same = vec![(own, costs)];
        for meeting in self.met.iter().filter(|meeting| !meeting.is_higher) {
            let arrival = i128::from(own_arrival(self.path[meeting.first]));
            let least = i128::from(self.paths.places[meeting.places[0] as usize].earliest);
            let count = Count {
                shift: arrival - least + self.lead(meeting),
                period: self.period(meeting.flow),
            };
            let cost = |end: &usize| i128::from(meeting.cost(self.paths, *end));
            same.push((count, ends.iter().map(cost).collect()));
        }
        same
    }

    fn higher(&self, ends: &[usize]) -> Vec<Higher> {
        let entry = |meeting: &Meeting| {
            let lead = self.lead(meeting);
            let shift = |end: &usize| {
                (meeting.first <= *end && *end <= meeting.last()).then(|| {
                    let least = self.paths.places[meeting.place(*end) as usize].earliest;
                    lead - i128::from(least)
                })
            };
            let cost = |end: &usize| i128::from(meeting.cost(self.paths, *end));
            Higher {
                period: self.period(meeting.flow),
                shifts: ends.iter().map(shift).collect(),
                costs: ends.iter().map(cost).collect(),
            }
        };
        self.met
            .iter()
            .filter(|meeting| meeting.is_higher)
            .map(entry)
            .collect()
    }
}

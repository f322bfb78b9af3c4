//! Several ports at once: a rival that goes the same way keeps a frame waiting once, not at every port anew.
//!
//! Port by port, a burst of a more urgent stream is counted at each port that it shares with a frame, although a frame that has been overtaken
//! once has the burst before it from then on. Over a *stretch* of ports `1..n` this counts it once (in network calculus "pay
//! multiplexing only once": Schmitt, Zdarsky and Martinovic 2008; in the trajectory approach one sum over the path: Martin and Minet
//! 2006). The windows are our own, as those of the trajectory approach are too short in corners.
//!
//! **Chain of busy periods.** Let frame `m` of class `p` leave port `n`. `s_n` is the start of the busy period of class `p` and above in which it
//! is served there. For `k < n` let `t_k = s_(k+1) - D_k` with `D_k` the greatest time from port `k` to the next, and `s_k <= t_k` the last
//! time at which port `k` had nothing of these classes. What has left `k` before `t_k` had come to `k + 1`, and left it, by `s_(k+1)`: so in
//! all intervals `[s_k, t_k]` (and `[s_n, start of m]`) together no frame is served twice. `m` itself leaves `k` at `t_k` or later, for it
//! comes to `k + 1` at `s_(k+1)` or later. Each interval is busy, so that with `w` from `s_1` to the start of `m` at port `n`
//!
//! ```text
//! w = sum of D_k + sum of B_k + sum over k < n of X_k + work that is served in the intervals
//! ```
//!
//! where `B_k` is one frame from below and `X_k` the longest frame that goes on from `k` to `k + 1`: that which is being sent at `t_k` (where
//! it does not go on, its work is among the rest). A stream `j` that joins the stretch at `f` and leaves it at `l` counts with its largest
//! transmission time there, for its frames that came to `f` in a window that begins with `s_f >= s_1 + D_1 + ... + D_(f-1)` and ends
//!
//! - of `m`'s own class with the arrival of `m` at `f`, as all that is served came before it; if frames may overtake between ports on the way
//!   from `f` to `l`, with the arrival of `m` at `l`;
//! - of higher classes with `start of m` where `l = n`, or else with the departure of `m` from `l`, whichever is first;
//! - and in any case before the end of the busy periods of its ports.
//!
//! With `t` from `s_1` to the arrival of `m` at port 1 and known bounds of its arrivals from there on, all of that depends on `t` and `w`
//! alone. `w(t)` is the least fixed point: at any earlier time of the chain, work that is counted is still unserved. The bound
//! is the maximum of `w(t) + C - t`. Streams of the own class that join over one link count with the least of their
//! staircases and [`Line`](crate::bundle::Line).
//!
//! Durations from any port of a path to any other follow from those of its stretches; they go back into the analysis as departures that are
//! not exceeded, which makes jitters smaller further on.
//!
//! Stretches have ports of strict priority or ports of one queue, not both, and none that is special. Work is limited; see [`budget`] for
//! who has what of it.

mod budget;
mod gather;
mod worst;

use crate::demand::{Demand, HORIZON};
use crate::layout::{Flow, Level, NONE};
use crate::propagation::Propagation;
use crate::result::LookedAt;
use crate::settled::NEVER;
use budget::Starts;
use gather::Gathered;

/// Steps in which a busy period may grow.
const GROWTHS: usize = 1_000;

/// Makes departures earlier where stretches of several ports say so, and all that follows from them. Bounds stay safe and none gets worse.
///
/// `effort` limits the rivals that are gathered, all stretches together. Returns for how many streams there was enough, if not for all.
pub(crate) fn tighten(pass: &mut Propagation<'_>, effort: u64) -> Option<LookedAt> {
    let (shares, looked_at) = budget::shares(pass, effort);
    if looked_at.is_some_and(|looked| looked.streams == 0) {
        return looked_at;
    }
    let stretches = Stretches::new(pass);
    let mut caps = vec![NEVER; pass.layout.slots.len()];
    let mut gathered = Gathered::new(pass.layout.slots.len());
    for (flow, starts) in pass.layout.flows.iter().zip(shares) {
        if let Some(starts) = starts {
            stretches.of_flow(flow, starts, &mut gathered, &mut caps);
        }
    }
    let earlier = |(slot, cap): (usize, &u64)| *cap < pass.settled.departure(slot);
    if caps.iter().enumerate().any(earlier) {
        pass.settled.set_caps(caps);
        pass.settle_again();
        follow(pass);
    }
    looked_at
}

/// In a cycle a port may have been settled before one that feeds it: what became earlier there is passed on along every path.
pub(crate) fn follow(pass: &Propagation<'_>) {
    for slot in pass.layout.flows.iter().flat_map(|flow| slots_of(pass, flow)) {
        let data = &pass.layout.slots[slot];
        let departure = pass.settled.departure(slot);
        if data.parent == NONE || departure == NEVER {
            continue;
        }
        let port = pass.layout.levels[data.level as usize].port;
        let response = pass.settled.port(port.index()).seen(slot).response;
        let before = pass.settled.departure(data.parent as usize);
        let alone = before.saturating_add(data.traversal).saturating_add(response);
        pass.settled.set_departure(slot, departure.min(alone));
    }
}

/// The slots of a flow, each after that which feeds it.
fn slots_of(pass: &Propagation<'_>, flow: &Flow) -> impl Iterator<Item = usize> {
    let hops = pass.network.streams[flow.stream.index()].tree.hops.len();
    let slots = &pass.layout.slot_of[flow.first_hop..flow.first_hop + hops];
    slots.iter().map(|slot| *slot as usize)
}

/// An analysis as it stands before stretches are looked at.
struct Stretches<'a, 'b> {
    pass: &'a Propagation<'b>,
    /// Per slot: what it brings, and the response at its port, [`NEVER`] where that has no bound.
    demands: Vec<Demand>,
    responses: Vec<u64>,
    /// Per level: the longest time for which its port has something of its class or a higher one, or [`NEVER`].
    busy: Vec<u64>,
}

impl<'a, 'b> Stretches<'a, 'b> {
    fn new(pass: &'a Propagation<'b>) -> Self {
        let count = pass.layout.slots.len();
        let (mut demands, mut responses) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for port in 0..pass.layout.ports.len() {
            let work = pass.settled.port(port);
            for slot in pass.layout.ports[port].slots.clone() {
                demands.push(*work.demand(slot));
                let bounded = pass.settled.departure(slot) != NEVER;
                responses.push(if bounded { work.seen(slot).response } else { NEVER });
            }
        }
        let busy = pass
            .layout
            .levels
            .iter()
            .map(|level| busy_period(level, &demands[level.port_start..level.end]))
            .collect();
        Self {
            pass,
            demands,
            responses,
            busy,
        }
    }

    fn level_of(&self, slot: usize) -> &'a Level {
        &self.pass.layout.levels[self.pass.layout.slots[slot].level as usize]
    }

    /// The latest departures of a flow from its ports, where they are less than what is known.
    fn of_flow(&self, flow: &Flow, starts: Starts, gathered: &mut Gathered, caps: &mut [u64]) {
        let layout = &self.pass.layout;
        let tree = &self.pass.network.streams[flow.stream.index()].tree;
        for leaf in &tree.leaves {
            let path = tree.path(*leaf);
            let slots: Vec<usize> = path
                .iter()
                .map(|hop| layout.slot_of[flow.first_hop + *hop as usize] as usize)
                .collect();
            if slots.len() < 2 || self.responses[slots[slots.len() - 1]] == NEVER {
                continue;
            }
            let durations = self.durations(&slots, starts, gathered);
            for (slot, duration) in slots.iter().zip(&durations[0]) {
                caps[*slot] = caps[*slot].min(duration.saturating_add(flow.jitter));
            }
        }
    }

    /// For every port of a path: how long it takes at most from the arrival there to the departure from it and from each later one.
    fn durations(&self, slots: &[usize], starts: Starts, gathered: &mut Gathered) -> Vec<Vec<u64>> {
        let way = |to: usize| self.pass.layout.slots[slots[to]].traversal;
        let mut known: Vec<Vec<u64>> = slots.iter().map(|_| Vec::new()).collect();
        for start in (0..slots.len()).rev() {
            let mut from_here = vec![self.responses[slots[start]]];
            let looked_at = start == 0 || starts == Starts::All;
            let mut open = looked_at && self.begins(slots[start]);
            if open {
                gathered.begin(self, slots[start]);
            }
            for end in start + 1..slots.len() {
                let over = |middle: usize| {
                    from_here[middle - 1 - start]
                        .saturating_add(way(middle))
                        .saturating_add(known[middle][end - middle])
                };
                let mut best = (start + 1..=end).map(over).min().unwrap_or(NEVER);
                open = open && gathered.extend(self, &slots[start..=end], &from_here);
                if open && let Some(found) = gathered.worst(self, &slots[start..=end], best) {
                    best = best.min(found);
                }
                from_here.push(best);
            }
            known[start] = from_here;
        }
        known
    }

    /// Can a stretch begin or go on here?
    fn begins(&self, slot: usize) -> bool {
        let level = self.pass.layout.slots[slot].level as usize;
        let port = &self.pass.network.ports[self.pass.layout.levels[level].port.index()];
        !crate::special::is_special(port)
            && !crate::special::passes(self.pass.network, port)
            && self.busy[level] <= HORIZON
    }
}

/// The least `x > 0` in which a port is through with all that comes in `[0, x)`, of these demands and one frame from below.
fn busy_period(level: &Level, demands: &[Demand]) -> u64 {
    let mut length = 1u64;
    for _ in 0..GROWTHS {
        let mut work = level.blocking;
        for demand in demands {
            work = work.saturating_add(before(demand, length));
        }
        if work <= length {
            return length;
        }
        if work > HORIZON {
            break;
        }
        length = work;
    }
    NEVER
}

/// Work of a demand in a window of this length that is open at its end.
fn before(demand: &Demand, window: u64) -> u64 {
    let count = (u128::from(window) + u128::from(demand.jitter())).div_ceil(u128::from(demand.period()));
    u64::try_from(count * u128::from(demand.weight())).unwrap_or(u64::MAX)
}

//! The response time at one output port: non-preemptive fixed priority, FIFO within a class.
//!
//! Notation of the response-time literature (Martin and Minet 2006; George, Rivierre and Spuri 1996): `B` blocking, `C`
//! transmission time, `T` period, `J` release jitter at this port. `S(t)` is the work of the own class, `H(w)` that of higher
//! classes, both counted over the closed window from the start of the busy period:
//!
//! ```text
//! S(t) = sum over the class of (floor((t + J) / T) + 1) C          H(w) likewise over higher classes
//! W(t) = least w with  w = B + S(t) - C_i + H(w)                   start of the frame that arrived at t
//! R    = max over t of W(t) + C_i - t
//! ```
//!
//! Windows are closed because an arrival in the very nanosecond in which our frame would start may be served first, and `B`
//! is a whole frame because a lower frame may start in the very nanosecond in which ours arrives.
//!
//! **Line shaping.** In the calculus, what comes over one link is the smaller of its staircases and of what the link can deliver,
//! see [`Line`]: `S(t)` is then a sum of minima, made of steps and rising lines. In `H` a line of slope 1 or more changes nothing, as a
//! search for `W` can only end where the staircase lies below it. A slower line holds back what may come at once, in
//! [`PIECES`] steps that lie above it.
//!
//! **Which t.** On a line of total slope 1 or more `W(t) - t` grows, so its end counts; on a slower one it falls but where `W` jumps over
//! a release of a higher class, which counts; where `S` is constant, its steps count. The busy period ends at the
//! first step that finds all earlier work done. Steps beyond the end would do no harm: with `L` the end, every count over
//! `[0, L + s]` is at most the count over `[0, L)` plus that over a fresh `[0, s]`, so the value at `L + s` is at most the one at
//! `s`. That lets the end be found with the closed count, which may pass it by a step.
//!
//! **What is shared in a class.** `t`, `B` and `S` do not depend on the frame, only `C_i` does. One sweep lists the vertices of `S` and
//! the steps of `H`; a merge of the two lists then serves every distinct `C_i`.

use crate::bundle::{Bundle, Line, ONE};
use crate::demand::{Effort, HORIZON, SHARE};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Steps that a slow line of a higher class is cut into.
const PIECES: u64 = 32;

/// Steps that one port may cost before the closed form takes over.
const STEPS_PER_SWEEP: u64 = 1 << 18;

/// One class at a port; `S` and `H` give its bundles and those of all higher classes, as often as asked.
#[derive(Debug)]
pub(crate) struct Level<S, H> {
    /// Longest transmission of anything below the class.
    pub(crate) blocking: u64,
    /// All bundles of the class, the observed one included. Together with `higher` they need less than the whole port.
    pub(crate) same: S,
    pub(crate) higher: H,
}

/// Buffers of a sweep, kept from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    vertices: Vec<Vertex>,
    higher: Vec<(u64, u64)>,
    same_steps: BinaryHeap<Step>,
    higher_steps: BinaryHeap<Step>,
    stairs: Vec<(u64, Option<Line>)>,
    rising: Vec<Rising>,
}

/// The next release of a demand; the earliest is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    at: u64,
    period: u64,
    weight: u64,
    bundle: u32,
    /// Work that still comes; without end for a periodic demand.
    left: u64,
}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A bundle whose link holds it back until `ends`.
#[derive(Debug, Clone, Copy)]
struct Rising {
    bundle: u32,
    line: Line,
    ends: u64,
}

/// `S` at `t`, just before and at it; behind it rises with `slope` (the sum of `lines` lines, each rounded up).
#[derive(Debug, Clone, Copy)]
struct Vertex {
    t: u64,
    before: u64,
    after: u64,
    slope: u64,
    lines: u64,
}

/// What decides about a class's responses.
#[derive(Debug)]
enum Form<'a> {
    Exact {
        vertices: &'a [Vertex],
        /// `H(0)`, then the steps of `H` as (window, work).
        at_once: u64,
        steps: &'a [(u64, u64)],
    },
    /// `B + S(0)` and `H(0)` as straight lines, and the share of the higher classes in 2^-60.
    Fluid { work: u128, higher_share: u128 },
}

/// Response times of one class, for every transmission time in it.
#[derive(Debug)]
pub(crate) struct Responses<'a> {
    blocking: u64,
    form: Form<'a>,
}

/// The worst case of a frame, and what it is made of: `response = blocking + same + higher - window`, where `same` contains the
/// frame itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Worst {
    pub(crate) response: u64,
    /// From the start of the busy period to the frame's arrival.
    pub(crate) window: u64,
    pub(crate) same: u64,
    pub(crate) higher: u64,
}

impl<'a, S, H> Level<S, H>
where
    S: Iterator<Item = Bundle<'a>> + Clone,
    H: Iterator<Item = Bundle<'a>> + Clone,
{
    /// Finds the busy period. `None` if a time exceeds the horizon.
    pub(crate) fn responses<'s>(
        &self,
        scratch: &'s mut Scratch,
        effort: &mut Effort,
    ) -> Option<Responses<'s>> {
        let blocking = self.blocking;
        let at_once = self
            .higher
            .clone()
            .fold(0u64, |sum, bundle| sum.saturating_add(first_piece(&bundle)));
        let form = if self.sweep(at_once, scratch, effort)? {
            Form::Exact {
                vertices: &scratch.vertices,
                at_once,
                steps: &scratch.higher,
            }
        } else {
            self.fluid()?
        };
        Some(Responses { blocking, form })
    }

    /// No busy period is longer: every staircase lies below the line from `(floor(J / T) + 2) C` with slope `C / T`, and this is where
    /// the sum of these lines has been served. Most demands release nothing more before it, and need no place in a heap.
    fn reach(&self) -> u64 {
        let (mut shares, mut start) = (0u128, u128::from(self.blocking));
        for demand in self
            .same
            .clone()
            .chain(self.higher.clone())
            .flat_map(|bundle| bundle.demands)
        {
            shares += u128::from(demand.share());
            start += u128::from(demand.at_once()) + u128::from(demand.weight());
        }
        let free = u128::from(SHARE).saturating_sub(shares);
        let work = start.checked_mul(u128::from(SHARE));
        match work.and_then(|work| work.checked_add(free)?.checked_div(free)) {
            Some(reach) => u64::try_from(reach).unwrap_or(u64::MAX),
            None => u64::MAX,
        }
    }

    /// Puts what is released within the longest conceivable busy period into the heaps; nothing if that is nothing at all. Returns
    /// how long the busy period can be.
    fn gather(&self, scratch: &mut Scratch) -> u64 {
        scratch.same_steps.clear();
        scratch.higher_steps.clear();
        scratch
            .higher_steps
            .extend(self.higher.clone().filter_map(|bundle| pieces(&bundle)));
        let first = |bundles: &mut dyn Iterator<Item = Bundle<'a>>| {
            bundles.map(|b| b.first_step).min().unwrap_or(u64::MAX)
        };
        let next = first(&mut self.same.clone()).min(first(&mut self.higher.clone()));
        let quiet = self
            .blocking
            .saturating_add(sum(self.same.clone()))
            .saturating_add(sum(self.higher.clone()));
        if next > quiet {
            return quiet;
        }
        let reach = self.reach();
        collect(self.same.clone(), reach, &mut scratch.same_steps);
        collect(self.higher.clone(), reach, &mut scratch.higher_steps);
        reach
    }

    /// Lists the vertices of `S` and the steps of `H` up to the end of the busy period; `Some(false)` if that takes too many steps.
    fn sweep(&self, at_once: u64, scratch: &mut Scratch, effort: &mut Effort) -> Option<bool> {
        let limit = self.gather(scratch);
        let Scratch {
            vertices,
            higher: steps,
            same_steps,
            higher_steps,
            stairs,
            rising,
        } = scratch;
        vertices.clear();
        steps.clear();
        stairs.clear();
        rising.clear();
        let mut still = 0u64;
        for (bundle, index) in self.same.clone().zip(0u32..) {
            stairs.push((bundle.at_once, bundle.line));
            match bundle.line.filter(|line| line.base < bundle.at_once) {
                Some(line) => rising.push(Rising {
                    bundle: index,
                    line,
                    ends: line.when(bundle.at_once),
                }),
                None => still = still.saturating_add(bundle.at_once),
            }
        }
        let (mut t, mut before, mut higher) = (0u64, 0u64, at_once);
        let mut budget = if effort.is_spent() { 0 } else { STEPS_PER_SWEEP };
        let start = budget;
        loop {
            let after = risen(rising, stairs, t, still)?;
            let slope = rising
                .iter()
                .fold(0u64, |sum, rising| sum.saturating_add(rising.line.slope));
            vertices.push(Vertex {
                t,
                before,
                after,
                slope,
                lines: rising.len() as u64,
            });
            let mut end = self.blocking.checked_add(after)?.checked_add(higher)?;
            while let Some(step) = take(higher_steps, end) {
                steps.push((step.at, step.weight));
                higher = higher.checked_add(step.weight)?;
                end = end.checked_add(step.weight)?;
                budget = budget.saturating_sub(1);
                if budget == 0 {
                    break;
                }
            }
            if end > HORIZON || t > HORIZON {
                return None;
            }
            budget = budget.saturating_sub(1 + rising.len() as u64);
            let next_step = same_steps.peek().map_or(u64::MAX, |step| step.at);
            if budget == 0 || (rising.is_empty() && end <= next_step) {
                effort.spend(start - budget);
                return Some(budget > 0);
            }
            t = rising.iter().map(|rising| rising.ends).fold(next_step, u64::min);
            if t > limit {
                // A slow link may rise long after the end of the busy period; so far the staircases alone have ended it.
                let work = risen(rising, stairs, limit, still)?;
                vertices.push(Vertex {
                    t: limit,
                    before: work,
                    after: work,
                    slope: 0,
                    lines: 0,
                });
                effort.spend(start - budget);
                return Some(true);
            }
            before = risen(rising, stairs, t, still)?;
            while let Some(step) = take(same_steps, t) {
                budget = budget.saturating_sub(1);
                still = climb(stairs, rising, step, t, still)?;
                if budget == 0 {
                    break;
                }
            }
            rising.retain(|line| {
                if line.ends <= t {
                    still = still.saturating_add(stairs[line.bundle as usize].0);
                }
                line.ends > t
            });
        }
    }

    /// Replaces every staircase by the line `(t + J) C / T + C` above it. As all classes together need less than the whole port,
    /// `W(t) + C_i - t` then falls with `t`, so that `t = 0` is the maximum and has a closed form.
    fn fluid(&self) -> Option<Form<'static>> {
        let (mut work, mut higher_share) = (u128::from(self.blocking), 0u128);
        for demand in self
            .same
            .clone()
            .chain(self.higher.clone())
            .flat_map(|bundle| bundle.demands)
        {
            let (period, weight) = (u128::from(demand.period()), u128::from(demand.weight()));
            let late = (u128::from(demand.jitter()) * weight).div_ceil(period);
            work += weight.min(u128::from(HORIZON) + 1) + late.min(u128::from(HORIZON) + 1);
        }
        // This comes first: it keeps the sum of all weights below 2^60, and so the shares below 2^120.
        bounded(work)?;
        for demand in self.higher.clone().flat_map(|bundle| bundle.demands) {
            higher_share += (u128::from(demand.weight()) << 60).div_ceil(u128::from(demand.period()));
        }
        (higher_share < 1 << 60).then_some(Form::Fluid { work, higher_share })
    }
}

fn bounded(work: u128) -> Option<u64> {
    u64::try_from(work).ok().filter(|work| *work <= HORIZON)
}

fn sum<'a>(bundles: impl Iterator<Item = Bundle<'a>>) -> u64 {
    bundles.fold(0, |sum, bundle| sum.saturating_add(bundle.at_once))
}

fn collect<'a>(bundles: impl Iterator<Item = Bundle<'a>>, reach: u64, steps: &mut BinaryHeap<Step>) {
    let mut list = std::mem::take(steps).into_vec();
    for (bundle, index) in bundles
        .zip(0u32..)
        .filter(|(bundle, _)| bundle.first_step <= reach)
    {
        let near = bundle
            .demands
            .iter()
            .filter(|demand| demand.first_step() <= reach);
        list.extend(near.map(|demand| Step {
            at: demand.first_step(),
            period: demand.period(),
            weight: demand.weight(),
            bundle: index,
            left: u64::MAX,
        }));
    }
    *steps = list.into();
}

/// The line of a higher class's bundle that is slow enough to count, and holds back what may come at once.
fn slow<'a>(bundle: &Bundle<'a>) -> Option<(Line, u64)> {
    let line = bundle.line.filter(|line| line.slope < ONE && line.slope > 0)?;
    let held = bundle.at_once.checked_sub(line.base).filter(|held| *held > 0)?;
    Some((line, held))
}

/// What comes of it at once: the first of the steps above the line.
fn first_piece(bundle: &Bundle<'_>) -> u64 {
    match slow(bundle) {
        Some((line, held)) => line.base.saturating_add(held.div_ceil(PIECES)),
        None => bundle.at_once,
    }
}

/// The other steps. Each comes when the line has reached the one before, and so none comes too late.
fn pieces(bundle: &Bundle<'_>) -> Option<Step> {
    let (line, held) = slow(bundle)?;
    let piece = held.div_ceil(PIECES);
    let period = ((u128::from(piece) << 32) / u128::from(line.slope)).min(u128::from(u64::MAX)) as u64;
    Some(Step {
        at: period,
        period,
        weight: piece,
        bundle: 0,
        left: held - piece,
    })
    .filter(|step| step.left > 0)
}

/// What the steps above the line of a higher class's bundle still hold back of `at_once` after `window`.
pub(crate) fn held_back(line: Line, at_once: u64, window: u64) -> u64 {
    let bundle = Bundle {
        demands: &[],
        at_once,
        first_step: u64::MAX,
        line: Some(line),
    };
    let held = at_once.saturating_sub(first_piece(&bundle));
    match pieces(&bundle) {
        Some(step) => held.saturating_sub((window / step.period.max(1)).saturating_mul(step.weight)),
        None => held,
    }
}

/// The next step that is not after `until`; its successor takes its place.
fn take(steps: &mut BinaryHeap<Step>, until: u64) -> Option<Step> {
    let mut top = steps.peek_mut().filter(|step| step.at <= until)?;
    let step = *top;
    if step.left <= step.weight {
        PeekMut::pop(top);
        return Some(Step {
            weight: step.left,
            ..step
        });
    }
    if step.left != u64::MAX {
        top.left -= step.weight;
    }
    top.at = step.at.saturating_add(step.period);
    Some(step)
}

/// Work of all bundles within `t`. `None` beyond the horizon.
fn risen(rising: &[Rising], stairs: &[(u64, Option<Line>)], t: u64, still: u64) -> Option<u64> {
    let work = rising.iter().fold(still, |sum, rising| {
        let (stair, _) = stairs[rising.bundle as usize];
        sum.saturating_add(rising.line.at(t).min(stair))
    });
    (work <= HORIZON).then_some(work)
}

/// A release at `t`: its bundle rests on its staircase or begins to rise, or rises longer. Returns the work of those that rest.
fn climb(
    stairs: &mut [(u64, Option<Line>)],
    rising: &mut Vec<Rising>,
    step: Step,
    t: u64,
    still: u64,
) -> Option<u64> {
    let (stair, line) = &mut stairs[step.bundle as usize];
    let before = *stair;
    *stair = stair.checked_add(step.weight)?;
    let Some(line) = *line else {
        return still.checked_add(step.weight);
    };
    if let Some(rising) = rising.iter_mut().find(|rising| rising.bundle == step.bundle) {
        rising.ends = line.when(*stair);
        return Some(still);
    }
    if line.at(t) >= *stair {
        return still.checked_add(step.weight);
    }
    rising.push(Rising {
        bundle: step.bundle,
        line,
        ends: line.when(*stair),
    });
    Some(still - before)
}

/// Walks along `S` with the steps of `H`.
struct Walk<'a> {
    /// `B - C_i`; what `S` adds to is never less than nothing.
    blocking: u64,
    own: u64,
    higher: u64,
    steps: &'a [(u64, u64)],
    taken: usize,
    worst: Worst,
}

impl Walk<'_> {
    /// A frame that arrives at `t` when `same` is the work of the class.
    fn see(&mut self, t: u64, same: u64) {
        let mut start = (self.blocking + same).saturating_sub(self.own) + self.higher;
        while let Some(&(_, added)) = self.steps.get(self.taken).filter(|(at, _)| *at <= start) {
            start += added;
            self.higher += added;
            self.taken += 1;
        }
        // A start before t is no start: without this frame the port would have been idle by then.
        let response = (start + self.own).saturating_sub(t);
        if response > self.worst.response {
            self.worst = Worst {
                response,
                window: t,
                same,
                higher: self.higher,
            };
        }
    }

    /// On a line that rises slower than time goes, the starts that pass a release of a higher class.
    fn rise(&mut self, from: &Vertex, to: &Vertex) {
        while let Some(&(at, _)) = self.steps.get(self.taken) {
            let same = (at + self.own).saturating_sub(self.higher + self.blocking);
            if same > to.before {
                return;
            }
            // Every line is rounded up to the nanosecond: the true one may be there earlier.
            let risen = u128::from(same.saturating_sub(from.after + from.lines)) << 32;
            let t = from.t + (risen / u128::from(from.slope)).min(u128::from(to.t - from.t)) as u64;
            self.see(t, same.max(from.after));
        }
    }
}

impl Responses<'_> {
    /// The response time of a frame of the class that takes `own` to transmit; `None` beyond the horizon.
    pub(crate) fn of(&self, own: u64) -> Option<Worst> {
        match &self.form {
            Form::Exact {
                vertices,
                at_once,
                steps,
            } => {
                let mut walk = Walk {
                    blocking: self.blocking,
                    own,
                    higher: *at_once,
                    steps,
                    taken: 0,
                    worst: Worst::default(),
                };
                for (index, vertex) in vertices.iter().enumerate() {
                    if let Some(from) = index
                        .checked_sub(1)
                        .map(|index| &vertices[index])
                        .filter(|from| from.slope > 0)
                    {
                        if from.slope < ONE {
                            walk.rise(from, vertex);
                        }
                        walk.see(vertex.t, vertex.before);
                    }
                    walk.see(vertex.t, vertex.after);
                }
                Some(walk.worst)
            }
            Form::Fluid { work, higher_share } => {
                let free = (1u128 << 60) - higher_share;
                let start = (work.saturating_sub(u128::from(own)) << 60).div_ceil(free);
                let response = bounded(start + u128::from(own))?;
                Some(Worst {
                    response,
                    window: 0,
                    same: response - self.blocking.min(response),
                    higher: 0,
                })
            }
        }
    }

    /// No release after this window counted; `None` where all of them do.
    pub(crate) fn end(&self) -> Option<u64> {
        let Form::Exact {
            vertices,
            at_once,
            steps,
        } = &self.form
        else {
            return None;
        };
        let same = vertices.last().map_or(0, |vertex| vertex.after);
        let higher = steps
            .iter()
            .fold(*at_once, |sum, (_, added)| sum.saturating_add(*added));
        Some(self.blocking.saturating_add(same).saturating_add(higher))
    }

    /// Work of the class and all above it that can be there at once, in nanoseconds: `max over t of B + S(t) + H(t) - t`.
    pub(crate) fn pending(&self) -> Option<u64> {
        let Form::Exact {
            vertices,
            at_once,
            steps,
        } = &self.form
        else {
            return Some(self.of(0)?.response);
        };
        let (mut higher, mut taken, mut most) = (*at_once, 0, 0);
        for (index, vertex) in vertices.iter().enumerate() {
            let from = index.checked_sub(1).map(|index| &vertices[index]);
            while let Some(&(at, added)) = steps.get(taken).filter(|(at, _)| *at <= vertex.t) {
                higher += added;
                taken += 1;
                let same = from.map_or(vertex.after, |from| vertex.before.min(rise(from, at)));
                most = most.max((self.blocking + same + higher).saturating_sub(at));
            }
            most =
                most.max((self.blocking + vertex.after.max(vertex.before) + higher).saturating_sub(vertex.t));
        }
        let same = vertices.last().map_or(0, |vertex| vertex.after);
        for &(at, added) in &steps[taken..] {
            higher += added;
            most = most.max((self.blocking + same + higher).saturating_sub(at));
        }
        Some(most)
    }

    /// Work of the class alone that can wait at once: how far `S` rises above what the class has been served by then, which is at least
    /// `max over v <= t of v - B - H(v)`.
    pub(crate) fn backlog(&self) -> Option<u64> {
        let Form::Exact {
            vertices,
            at_once,
            steps,
        } = &self.form
        else {
            return Some(self.of(0)?.response);
        };
        let mut service = Service {
            blocking: self.blocking,
            higher: *at_once,
            steps,
            taken: 0,
            served: 0,
        };
        let mut most = 0;
        for (index, vertex) in vertices.iter().enumerate() {
            if let Some(from) = index
                .checked_sub(1)
                .map(|index| &vertices[index])
                .filter(|from| from.slope > 0)
            {
                // On a slow line what waits is most where the service begins again: no later than the next step of H.
                while from.slope < ONE && service.next() < vertex.t {
                    let at = service.next();
                    let served = service.served;
                    service.pass();
                    most = most.max(vertex.before.min(rise(from, at)).saturating_sub(served));
                }
                if from.slope < ONE {
                    most = most.max(vertex.before.saturating_sub(service.served));
                }
                most = most.max(vertex.before.saturating_sub(service.until(vertex.t)));
            }
            most = most.max(vertex.after.saturating_sub(service.until(vertex.t)));
        }
        Some(most)
    }
}

/// `S` on the line behind `from`, rounded up.
fn rise(from: &Vertex, t: u64) -> u64 {
    let risen = (u128::from(from.slope) * u128::from(t - from.t)).div_ceil(u128::from(ONE));
    from.after
        .saturating_add(u64::try_from(risen).unwrap_or(u64::MAX))
        .saturating_add(from.lines)
}

/// What the class has been served at least.
struct Service<'a> {
    blocking: u64,
    higher: u64,
    steps: &'a [(u64, u64)],
    taken: usize,
    served: u64,
}

impl Service<'_> {
    fn next(&self) -> u64 {
        self.steps.get(self.taken).map_or(u64::MAX, |(at, _)| *at)
    }
    /// Takes the next step of `H`.
    fn pass(&mut self) {
        let (at, added) = self.steps[self.taken];
        self.served = self
            .served
            .max(at.saturating_sub(self.blocking.saturating_add(self.higher)));
        self.higher = self.higher.saturating_add(added);
        self.taken += 1;
    }
    fn until(&mut self, t: u64) -> u64 {
        while self.next() <= t {
            self.pass();
        }
        self.served = self
            .served
            .max(t.saturating_sub(self.blocking.saturating_add(self.higher)));
        self.served
    }
}

#[cfg(test)]
mod tests;

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
//! some steps that lie above it.
//!
//! **Which t.** On a line of total slope 1 or more `W(t) - t` grows, so its end counts; on a slower one it falls but where `W` jumps over
//! a release of a higher class, which counts; where `S` is constant, its steps count. The busy period ends at the
//! first step that finds all earlier work done. Steps beyond the end would do no harm: with `L` the end, every count over
//! `[0, L + s]` is at most the count over `[0, L)` plus that over a fresh `[0, s]`, so the value at `L + s` is at most the one at
//! `s`. That lets the end be found with the closed count, which may pass it by a step.
//!
//! **What is shared in a class.** `t`, `B` and `S` do not depend on the frame, only `C_i` does. One sweep lists the vertices of `S` and
//! the steps of `H`; a merge of the two lists then serves every distinct `C_i`.

mod responses;
mod sorted;
mod steps;

use crate::bundle::{Bundle, Line};
use crate::demand::{Effort, HORIZON, SHARE};
use responses::{Form, Vertex, bounded};
pub(crate) use responses::{Part, Responses, Starts, Worst};
pub(crate) use sorted::{Listed, Release, Shift, Sorted};
use std::collections::BinaryHeap;
pub(crate) use steps::Steps;
pub(crate) use steps::held_back;
use steps::{Rising, Step, climb, collect, first_of_train, first_piece, pieces, rest_of_train, risen};
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
    same_steps: BinaryHeap<Step>,
    higher_steps: BinaryHeap<Step>,
    lists: Lists,
}

#[derive(Debug, Default)]
struct Lists {
    vertices: Vec<Vertex>,
    higher: Vec<(u64, u64)>,
    stairs: Vec<(u64, Option<Line>)>,
    rising: Vec<Rising>,
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
                vertices: &scratch.lists.vertices,
                at_once,
                steps: &scratch.lists.higher,
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
        scratch
            .higher_steps
            .extend(self.higher.clone().flat_map(|bundle| rest_of_train(&bundle, 0)));
        let same = self.same.clone().zip(0u32..);
        scratch
            .same_steps
            .extend(same.flat_map(|(bundle, index)| rest_of_train(&bundle, index)));
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

    /// The same from lists of all releases, each complete up to `horizon` and beginning with the first that is not in the bundles' work at
    /// once.
    /// No line may have a slope below 1. `None` also where that takes too many steps or the lists are too short.
    pub(crate) fn responses_of_lists<'s>(
        &self,
        (same, higher): (impl Steps, impl Steps),
        horizon: u64,
        scratch: &'s mut Scratch,
        effort: &mut Effort,
    ) -> Option<Responses<'s>> {
        let at_once = sum(self.higher.clone());
        self.responses_within((0, u64::MAX), at_once, (same, higher), horizon, (scratch, effort))
    }

    /// The same of frames that arrive from the first to the last instant of the window. What each bundle has at once is what comes of it
    /// up to the first instant, and `at_once` what comes of the higher classes before the first of the list.
    pub(crate) fn responses_within<'s>(
        &self,
        window: (u64, u64),
        at_once: u64,
        (same, higher): (impl Steps, impl Steps),
        horizon: u64,
        (scratch, effort): (&'s mut Scratch, &mut Effort),
    ) -> Option<Responses<'s>> {
        let limits = (window, effort);
        if !self.run(at_once, (same, higher), &mut scratch.lists, limits)? {
            return None;
        }
        let found = Responses {
            blocking: self.blocking,
            form: Form::Exact {
                vertices: &scratch.lists.vertices,
                at_once,
                steps: &scratch.lists.higher,
            },
        };
        let last = scratch.lists.vertices.last().map_or(0, |vertex| vertex.t);
        let end = found.end().unwrap_or(u64::MAX);
        (end.max(last) <= horizon).then_some(found)
    }

    /// Lists the vertices of `S` and the steps of `H` up to the end of the busy period; `Some(false)` if that takes too many steps.
    fn sweep(&self, at_once: u64, scratch: &mut Scratch, effort: &mut Effort) -> Option<bool> {
        let limit = self.gather(scratch);
        let steps = (&mut scratch.same_steps, &mut scratch.higher_steps);
        self.run(at_once, steps, &mut scratch.lists, ((0, limit), effort))
    }

    /// The same with the releases of the class and of all higher ones, however they are kept, from one instant to another.
    fn run(
        &self,
        at_once: u64,
        (mut same_steps, mut higher_steps): (impl Steps, impl Steps),
        lists: &mut Lists,
        ((from, limit), effort): ((u64, u64), &mut Effort),
    ) -> Option<bool> {
        let Lists {
            vertices,
            higher: steps,
            stairs,
            rising,
        } = lists;
        vertices.clear();
        steps.clear();
        stairs.clear();
        rising.clear();
        let mut still = 0u64;
        for (bundle, index) in self.same.clone().zip(0u32..) {
            let at_once = first_of_train(&bundle);
            stairs.push((at_once, bundle.line));
            match bundle.line.filter(|line| line.at(from) < at_once) {
                Some(line) => rising.push(Rising {
                    bundle: index,
                    line,
                    ends: line.when(at_once),
                }),
                None => still = still.saturating_add(at_once),
            }
        }
        let (mut t, mut before, mut higher) = (from, 0u64, at_once);
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
            while let Some(step) = higher_steps.take(end) {
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
            let next_step = same_steps.next();
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
            while let Some(step) = same_steps.take(t) {
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

fn sum<'a>(bundles: impl Iterator<Item = Bundle<'a>>) -> u64 {
    bundles.fold(0, |sum, bundle| sum.saturating_add(bundle.at_once))
}

#[cfg(test)]
mod tests;

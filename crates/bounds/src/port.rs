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
//! **Which t.** `S` is constant between its steps, so only `0` and the steps can be maxima. The busy period ends at the
//! first step that finds all earlier work done. Steps beyond the end would do no harm: with `L` the end, every count over
//! `[0, L + s]` is at most the count over `[0, L)` plus that over a fresh `[0, s]`, so the value at `L + s` is at most the one at
//! `s`. That lets the end be found with the closed count, which may pass it by a step.
//!
//! **What is shared in a class.** `t`, `B` and `S` do not depend on the frame, only `C_i` does. One sweep lists the candidates and
//! the steps of `H`; a merge of the two lists then serves every distinct `C_i`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No time in an analysis may exceed this (about 31 years): sums of two such times fit in 64 bits.
pub(crate) const HORIZON: u64 = 1_000_000_000_000_000_000;

/// Steps that one port may cost before the closed form takes over.
const STEPS_PER_SWEEP: u64 = 1 << 18;

/// Periodic work with jitter at a port, in nanoseconds; all times are at most [`HORIZON`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demand {
    period: u64,
    jitter: u64,
    weight: u64,
    /// Work that can arrive in one instant, `(floor(J / T) + 1) C`, cut just above the horizon.
    at_once: u64,
    /// Length of the window at which the next release fits in.
    first_step: u64,
    /// `C / T` in units of [`SHARE`], rounded up.
    share: u64,
}

/// Denominator of [`Demand::share`]. A port of ten thousand streams loses less than 10^-8 of its capacity to rounding.
const SHARE: u64 = 1 << 40;

impl Demand {
    /// `weight` is the work per period, which is not zero.
    pub(crate) fn new(period: u64, weight: u64, jitter: u64) -> Self {
        let scaled = (u128::from(weight) * u128::from(SHARE)).div_ceil(u128::from(period));
        let share = u64::try_from(scaled).unwrap_or(u64::MAX);
        let mut demand = Self {
            period,
            jitter,
            weight,
            at_once: 0,
            first_step: 0,
            share,
        };
        demand.set_jitter(jitter);
        demand
    }
    pub(crate) fn set_jitter(&mut self, jitter: u64) {
        self.jitter = jitter;
        let whole = jitter / self.period;
        self.first_step = self.period - (jitter - whole * self.period);
        // The cut makes it fit.
        self.at_once = cut(u128::from(whole) + 1, self.weight) as u64;
    }
    pub(crate) const fn jitter(&self) -> u64 {
        self.jitter
    }
    pub(crate) const fn period(&self) -> u64 {
        self.period
    }
    pub(crate) const fn weight(&self) -> u64 {
        self.weight
    }
}

/// Do the demands need less than the whole port, beyond doubt? `false` may also mean "nearly".
pub(crate) fn surely_fits(demands: &[Demand]) -> bool {
    shares(demands) < u128::from(SHARE)
}

fn shares(demands: &[Demand]) -> u128 {
    demands.iter().map(|demand| u128::from(demand.share)).sum()
}

/// How much computing an analysis may still spend, so that none runs for ever.
#[derive(Debug)]
pub(crate) struct Effort {
    left: u64,
}

impl Effort {
    /// Ample for a network with so many hops of streams.
    pub(crate) const fn for_hops(hops: usize) -> Self {
        Self {
            left: (1 << 25) + 256 * hops as u64,
        }
    }
    /// Takes `amount`, or all that is left.
    pub(crate) const fn spend(&mut self, amount: u64) {
        self.left = self.left.saturating_sub(amount);
    }
    pub(crate) const fn is_spent(&self) -> bool {
        self.left == 0
    }
}

/// Work of several demands over a closed window that grows.
struct Staircase<'a> {
    demands: &'a [Demand],
    work: u64,
    steps: BinaryHeap<Reverse<(u64, u32)>>,
}

impl<'a> Staircase<'a> {
    /// At window length 0; steps beyond `reach` are left out. `None` beyond the horizon.
    fn new(demands: &'a [Demand], reach: u64) -> Option<Self> {
        let work = bounded(demands.iter().map(|demand| u128::from(demand.at_once)).sum())?;
        let near = demands
            .iter()
            .zip(0u32..)
            .filter(|(demand, _)| demand.first_step <= reach);
        let steps: Vec<_> = near
            .map(|(demand, index)| Reverse((demand.first_step, index)))
            .collect();
        Some(Self {
            demands,
            work,
            steps: steps.into(),
        })
    }
    /// The length of the window at the next step; `u64::MAX` where there is none.
    fn next(&self) -> u64 {
        self.steps.peek().map_or(u64::MAX, |Reverse((at, _))| *at)
    }
    /// Takes the next step, if any, and returns its work.
    fn step(&mut self) -> u64 {
        let Some(mut top) = self.steps.peek_mut() else {
            return 0;
        };
        let Reverse((at, index)) = *top;
        let demand = self.demands[index as usize];
        *top = Reverse((at.saturating_add(demand.period), index));
        self.work = self.work.saturating_add(demand.weight);
        demand.weight
    }
}

/// `count * weight`, cut just above the horizon so that sums of many cannot overflow.
fn cut(count: u128, weight: u64) -> u128 {
    (count * u128::from(weight)).min(u128::from(HORIZON) + 1)
}

fn bounded(work: u128) -> Option<u64> {
    u64::try_from(work).ok().filter(|work| *work <= HORIZON)
}

/// One class at a port.
#[derive(Debug)]
pub(crate) struct Class<'a> {
    /// Longest transmission of anything below the class.
    pub(crate) blocking: u64,
    /// All demands of the class, the observed one included. Together with `higher` they need less than the whole port.
    pub(crate) same: &'a [Demand],
    pub(crate) higher: &'a [Demand],
}

/// The candidates of one busy period.
#[derive(Debug)]
enum Sweep {
    Exact {
        /// `t` and `B + S(t)`.
        candidates: Vec<(u64, u64)>,
        /// `H(0)`, then the steps of `H` as (window, work).
        at_once: u64,
        steps: Vec<(u64, u64)>,
    },
    /// `B + S(0)` and `H(0)` as straight lines, and the share of the higher classes in 2^-60.
    Fluid { work: u128, higher_share: u128 },
}

/// Response times of one class, for every transmission time in it.
#[derive(Debug)]
pub(crate) struct Responses(Sweep);

impl Class<'_> {
    /// Finds the busy period. `None` if a time exceeds the horizon.
    pub(crate) fn responses(&self, effort: &mut Effort) -> Option<Responses> {
        effort.spend((self.same.len() + self.higher.len()) as u64);
        if let Some(sweep) = self.sweep(effort)? {
            return Some(Responses(sweep));
        }
        self.fluid().map(Responses)
    }

    /// No busy period is longer: every staircase lies below the line from `(floor(J / T) + 2) C` with slope `C / T`, and this is where
    /// the sum of these lines has been served. Most demands release nothing more before it, and need no place in a heap.
    fn reach(&self) -> u64 {
        let all = || self.same.iter().chain(self.higher);
        let free = u128::from(SHARE).saturating_sub(shares(self.same) + shares(self.higher));
        let start: u128 = all()
            .map(|demand| u128::from(demand.at_once) + u128::from(demand.weight))
            .sum();
        let work = (start + u128::from(self.blocking)).checked_mul(u128::from(SHARE));
        match work.and_then(|work| work.checked_add(free)?.checked_div(free)) {
            Some(reach) => u64::try_from(reach).unwrap_or(u64::MAX),
            None => u64::MAX,
        }
    }

    /// `Some(None)` if it takes too many steps.
    fn sweep(&self, effort: &mut Effort) -> Option<Option<Sweep>> {
        let reach = self.reach();
        let mut same = Staircase::new(self.same, reach)?;
        let mut higher = Staircase::new(self.higher, reach)?;
        let (at_once, mut steps, mut candidates) = (higher.work, Vec::new(), Vec::new());
        let mut t = 0;
        let mut budget = if effort.is_spent() { 0 } else { STEPS_PER_SWEEP };
        loop {
            let work = self.blocking.checked_add(same.work)?;
            candidates.push((t, work));
            let mut end = work.checked_add(higher.work)?;
            while higher.next() <= end && budget > 0 {
                let at = higher.next();
                let added = higher.step();
                steps.push((at, added));
                end = end.checked_add(added)?;
                budget -= 1;
            }
            if end > HORIZON {
                return None;
            }
            let next = same.next();
            if budget == 0 || end <= next {
                effort.spend((candidates.len() + steps.len()) as u64);
                return Some((budget > 0).then_some(Sweep::Exact {
                    candidates,
                    at_once,
                    steps,
                }));
            }
            t = next;
            while same.next() == t && budget > 0 {
                same.step();
                budget -= 1;
            }
        }
    }

    /// Replaces every staircase by the line `(t + J) C / T + C` above it. As all classes together need less than the whole port,
    /// `W(t) + C_i - t` then falls with `t`, so that `t = 0` is the maximum and has a closed form.
    fn fluid(&self) -> Option<Sweep> {
        let line = |demand: &Demand| {
            let (period, weight) = (u128::from(demand.period), u128::from(demand.weight));
            cut(1, demand.weight)
                + (u128::from(demand.jitter) * weight)
                    .div_ceil(period)
                    .min(u128::from(HORIZON) + 1)
        };
        let work: u128 =
            u128::from(self.blocking) + self.same.iter().chain(self.higher).map(line).sum::<u128>();
        // This comes first: it keeps the sum of all weights below 2^60, and so the shares below 2^120.
        bounded(work)?;
        let share = |demand: &Demand| (u128::from(demand.weight) << 60).div_ceil(u128::from(demand.period));
        let higher_share = self.higher.iter().map(share).sum::<u128>();
        (higher_share < 1 << 60).then_some(())?;
        Some(Sweep::Fluid { work, higher_share })
    }
}

impl Responses {
    /// The response time of a frame of the class that takes `own` to transmit; `None` beyond the horizon.
    pub(crate) fn of(&self, own: u64) -> Option<u64> {
        match &self.0 {
            Sweep::Exact {
                candidates,
                at_once,
                steps,
            } => {
                let (mut higher, mut taken, mut worst) = (*at_once, 0, 0);
                for &(t, work) in candidates {
                    let mut start = work.saturating_sub(own) + higher;
                    while let Some(&(_, added)) = steps.get(taken).filter(|(at, _)| *at <= start) {
                        start += added;
                        higher += added;
                        taken += 1;
                    }
                    // A start before t is no start: without this frame the port would have been idle by then.
                    worst = worst.max((start + own).saturating_sub(t));
                }
                Some(worst)
            }
            Sweep::Fluid { work, higher_share } => {
                let free = (1u128 << 60) - higher_share;
                let start = (work.saturating_sub(u128::from(own)) << 60).div_ceil(free);
                bounded(start + u128::from(own))
            }
        }
    }

    /// `max over t of B + S(t) - t`: the work that can be pending when nothing is above the class.
    pub(crate) fn pending(&self) -> Option<u64> {
        self.of(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(weight: u64, period: u64, jitter: u64) -> Demand {
        Demand::new(period, weight, jitter)
    }

    fn response(blocking: u64, same: &[Demand], higher: &[Demand], own: u64) -> Option<u64> {
        Class {
            blocking,
            same,
            higher,
        }
        .responses(&mut Effort::for_hops(1))
        .and_then(|r| r.of(own))
    }

    /// The formulas as they stand in the module's head, candidate by candidate.
    fn by_the_book(blocking: u64, same: &[Demand], higher: &[Demand], own: u64) -> u64 {
        let count = |window: u64, d: &Demand| ((window + d.jitter) / d.period + 1) * d.weight;
        let fixed = |start: u64, f: &dyn Fn(u64) -> u64| {
            let mut at = start;
            loop {
                let next = f(at);
                if next == at {
                    return at;
                }
                at = next;
            }
        };
        let busy = fixed(blocking + own, &|l| {
            blocking
                + same
                    .iter()
                    .chain(higher)
                    .map(|d| (l + d.jitter).div_ceil(d.period) * d.weight)
                    .sum::<u64>()
        });
        let mut candidates = vec![0];
        for d in same {
            candidates.extend(
                (0..)
                    .map(|k| k * d.period)
                    .skip_while(|a| *a < d.jitter)
                    .map(|a| a - d.jitter)
                    .take_while(|t| *t < busy),
            );
        }
        candidates
            .iter()
            .map(|&t| {
                let same: u64 = same.iter().map(|d| count(t, d)).sum();
                let base = blocking + same - own;
                (fixed(base, &|w| base + higher.iter().map(|d| count(w, d)).sum::<u64>()) + own)
                    .saturating_sub(t)
            })
            .max()
            .expect("t = 0 is a candidate")
    }

    #[test]
    fn sweep_equals_the_formulas() {
        let mut state = 1u64;
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut examined = 0;
        while examined < 3_000 {
            let mut demands: Vec<Demand> = Vec::new();
            let (same_count, higher_count) = (1 + draw(4), draw(4));
            for _ in 0..same_count + higher_count {
                let period = 20 + draw(60);
                demands.push(demand(1 + draw(12), period, draw(2 * period)));
            }
            let load: f64 = demands.iter().map(|d| d.weight as f64 / d.period as f64).sum();
            if load >= 0.97 {
                continue;
            }
            examined += 1;
            let (same, higher) = demands.split_at(same_count as usize);
            let (blocking, own) = (draw(15), same[0].weight);
            assert_eq!(
                response(blocking, same, higher, own),
                Some(by_the_book(blocking, same, higher, own))
            );
            let fluid = Responses(
                Class {
                    blocking,
                    same,
                    higher,
                }
                .fluid()
                .expect("finite"),
            );
            assert!(
                fluid.of(own) >= response(blocking, same, higher, own),
                "{same:?} {higher:?}"
            );
        }
    }

    #[test]
    fn a_jitter_beyond_the_period_releases_several_frames_at_once() {
        assert_eq!(response(0, &[demand(10, 100, 250)], &[], 10), Some(30));
    }

    #[test]
    fn a_busy_period_without_end_gets_the_closed_form() {
        let dense = demand(999_999_999_999, 1_000_000_000_000, 0);
        let other = demand(1, 1_000_000_000_001, 0);
        assert!(response(1_000_000_000, &[dense, other], &[], 1).is_some_and(|r| r >= 1_001_000_000_000 - 1));
    }

    #[test]
    fn times_beyond_the_horizon_are_no_bound() {
        let heavy = demand(HORIZON / 2, HORIZON, HORIZON);
        assert_eq!(response(HORIZON, &[heavy], &[], 1), None);
        assert_eq!(
            response(
                0,
                &[demand(1, 1 << 60, 0)],
                &[demand(u64::MAX / 4, HORIZON, HORIZON)],
                1
            ),
            None
        );
    }

    /// The 17 messages of the SAE benchmark on a CAN bus at 125 kbit/s (Tindell, Burns and Wellings 1995), every one a class of its
    /// own. Response times there end before the 3-bit interframe space of 24 us.
    #[test]
    fn sae_messages_on_a_can_bus() {
        let bytes = [1, 2, 1, 2, 1, 2, 6, 1, 2, 2, 1, 4, 1, 1, 3, 1, 1];
        let milliseconds = [
            1000, 5, 5, 5, 5, 5, 10, 10, 10, 10, 100, 100, 100, 100, 1000, 1000, 1000,
        ];
        let expected = [
            1_416, 2_016, 2_536, 3_136, 3_656, 4_256, 5_016, 8_376, 8_976, 9_576, 10_096, 19_096, 19_616,
            20_136, 28_976, 29_496, 29_496,
        ];
        let cost = |bytes: u64| (55 + 10 * bytes) * 8;
        let messages: Vec<Demand> = bytes
            .iter()
            .zip(milliseconds)
            .map(|(&b, ms)| demand(cost(b), ms * 1_000, 0))
            .collect();
        for (index, expected) in expected.into_iter().enumerate() {
            let blocking = messages[index + 1..]
                .iter()
                .map(|lower| lower.weight)
                .max()
                .unwrap_or(0);
            let (higher, own) = (&messages[..index], &messages[index]);
            let found = response(blocking, std::slice::from_ref(own), higher, own.weight);
            assert_eq!(found, Some(expected + 24), "message {}", index + 1);
        }
    }
}

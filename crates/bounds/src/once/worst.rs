//! The maximum over `t` of `w(t) + C - t` for one stretch.

use crate::bundle::Line;
use crate::demand::{Demand, HORIZON};
use std::ops::Range;

/// Values of `t` that are tried at most.
const MOST_TIMES: usize = 1 << 12;
/// Rivals among which one that is alike is looked for.
const ALIKE_WITHIN: usize = 16;
/// A window that nothing ends but the start of the frame.
const OPEN: i64 = i64::MAX / 4;

/// A stretch, apart from its rivals. Times in nanoseconds.
pub(super) struct Question {
    /// Ways, blocking and frames under way.
    pub(super) fixed: u64,
    /// Transmission time of the frame on the slowest port and on the last one.
    pub(super) own_slow: u64,
    pub(super) own_last: u64,
    /// Answers from here on are of no use.
    pub(super) enough: u64,
    /// No window is longer.
    pub(super) longest: u64,
}

/// What a rival brings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stair {
    period: u64,
    jitter: u64,
    /// At the slowest of its ports.
    weight: u64,
    /// Frames that can come while its ports are busy.
    most: u64,
    /// Where its window ends, as a distance from `t`, less where it begins, as one from the start.
    lead: i64,
    /// Where it begins.
    shift: i64,
    /// Frames in one instant, and the window at which there is another.
    at_once: u64,
    next: u64,
}

impl Stair {
    pub(super) fn new(demand: &Demand) -> Self {
        let (period, jitter) = (demand.period(), demand.jitter());
        Self {
            period,
            jitter,
            weight: demand.weight(),
            most: 0,
            lead: 0,
            shift: 0,
            at_once: jitter / period + 1,
            next: demand.first_step(),
        }
    }
    /// Its work at another port; true if that takes longer.
    pub(super) fn slow_down(&mut self, weight: u64) -> bool {
        let slower = weight > self.weight;
        self.weight = self.weight.max(weight);
        slower
    }
    /// Its window begins here, and ends with an arrival of the frame, or else with its start.
    pub(super) fn begin(&mut self, shift: u64, arrival: Option<u64>) {
        self.shift = shift as i64;
        self.lead = arrival.map_or(OPEN, |at| at as i64 - self.shift);
    }
    pub(super) fn end(&mut self, departure: u64) {
        self.lead = self.lead.min(departure as i64 - self.shift);
    }
    pub(super) fn end_no_earlier(&mut self, arrival: u64) {
        self.lead = self.lead.max(arrival as i64 - self.shift);
    }
    /// All its frames come in a window of this length, which is open at its end.
    pub(super) fn limit(&mut self, window: u64) {
        let window = window.saturating_add(self.jitter);
        self.most = window.div_ceil(self.period);
    }
    /// Does it bring the same in every window that ends no earlier than it begins and is no longer than this?
    fn is_steady(&self, longest: u64) -> bool {
        self.lead >= 0 && (self.next > longest || self.most <= self.at_once)
    }
    fn steady(&self) -> u64 {
        self.at_once.min(self.most).saturating_mul(self.weight)
    }
    /// Nothing in a window that ends before it begins.
    fn at(&self, window: i64) -> u64 {
        let Ok(window) = u64::try_from(window) else {
            return 0;
        };
        let count = (window + self.jitter) / self.period + 1;
        count.min(self.most).saturating_mul(self.weight)
    }
    fn all(&self) -> u64 {
        self.most.saturating_mul(self.weight)
    }
    /// Does the other bring as many frames as this in every window?
    fn is_alike(&self, other: &Self) -> bool {
        (self.period, self.jitter, self.most, self.lead, self.shift)
            == (other.period, other.jitter, other.most, other.lead, other.shift)
    }
}

/// Adds a rival to the others. Rivals that are alike, as publishers of one kind on one host are, make one: networks have many of them.
fn put(stairs: &mut Vec<Stair>, begin: usize, stair: Stair) {
    let looked_at = begin.max(stairs.len().saturating_sub(ALIKE_WITHIN));
    match stairs[looked_at..]
        .iter_mut()
        .find(|other| other.is_alike(&stair))
    {
        Some(other) => other.weight = other.weight.saturating_add(stair.weight),
        None => stairs.push(stair),
    }
}

/// Rivals of the frame's class that join over one link.
#[derive(Debug, Clone)]
pub(super) struct Bundle {
    pub(super) rivals: Range<usize>,
    pub(super) line: Option<Line>,
}

/// A bundle with what does not change apart.
#[derive(Debug)]
struct Sorted {
    steady: u64,
    stairs: Range<usize>,
    line: Option<Line>,
    /// Of the latest window among them.
    lead: i64,
}

impl Sorted {
    fn steps(&self, stairs: &[Stair], t: u64) -> u64 {
        stairs[self.stairs.clone()]
            .iter()
            .map(|stair| stair.at(t as i64 + stair.lead))
            .fold(self.steady, u64::saturating_add)
    }
    fn at(&self, stairs: &[Stair], t: u64) -> u64 {
        let sum = self.steps(stairs, t);
        match self.line {
            Some(line) => match u64::try_from(t as i64 + self.lead) {
                Ok(window) => sum.min(line.at(window)),
                Err(_) => 0,
            },
            None => sum,
        }
    }
}

/// The rivals of a stretch that change with the window, and the sum of the others; memory is used again.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Ways, blocking, frames under way, and what is the same in every window.
    steady: u64,
    /// All work there can be.
    all: u64,
    same: Vec<Stair>,
    bundles: Vec<Sorted>,
    higher: Vec<Stair>,
    times: Vec<u64>,
}

impl Tally {
    /// `None` if even what is the same in every window is too much.
    pub(super) fn sort(
        &mut self,
        question: &Question,
        stairs: &[Stair],
        higher: impl Iterator<Item = bool>,
        bundles: &[Bundle],
    ) -> Option<()> {
        self.higher.clear();
        self.same.clear();
        self.bundles.clear();
        (self.steady, self.all) = (question.fixed, 0);
        for (stair, _) in stairs.iter().zip(higher).filter(|(_, is_higher)| *is_higher) {
            if stair.is_steady(question.longest) {
                self.steady = self.steady.saturating_add(stair.steady());
            } else {
                self.all = self.all.saturating_add(stair.all());
                put(&mut self.higher, 0, *stair);
            }
        }
        for bundle in bundles {
            self.bundle(question, &stairs[bundle.rivals.clone()], bundle.line);
        }
        let least = self.steady.saturating_add(question.own_last);
        if least >= question.enough.saturating_add(question.own_slow) {
            return None;
        }
        self.all = self.all.saturating_add(self.steady);
        (self.all <= HORIZON).then_some(())
    }

    fn bundle(&mut self, question: &Question, stairs: &[Stair], line: Option<Line>) {
        let begin = self.same.len();
        let (mut steady, mut lead) = (0u64, i64::MIN);
        for stair in stairs {
            lead = lead.max(stair.lead);
            if stair.is_steady(question.longest) {
                steady = steady.saturating_add(stair.steady());
            } else {
                self.all = self.all.saturating_add(stair.all());
                put(&mut self.same, begin, *stair);
            }
        }
        // A line above all of it says nothing.
        let line = line.filter(|line| self.same.len() > begin || line.base < steady);
        if self.same.len() == begin && line.is_none() {
            self.steady = self.steady.saturating_add(steady);
            return;
        }
        self.all = self.all.saturating_add(steady);
        self.bundles.push(Sorted {
            steady,
            stairs: begin..self.same.len(),
            line,
            lead,
        });
    }

    /// `None` where no time below [`Question::enough`] is found.
    ///
    /// As `w` never falls, `w(t) + C - s` at the end `t` of a block of times that begins with `s` is not exceeded inside. Blocks of which that is
    /// not above what was found are passed over; they grow while they are, and shrink where they are not.
    pub(super) fn answer(&mut self, question: &Question) -> Option<u64> {
        if !self.list_times() {
            return None;
        }
        let (mut worst, mut start) = (0, 0);
        let (mut at, mut block) = (0, 1);
        while let Some(&first) = self.times.get(at) {
            if (self.all + question.own_last).saturating_sub(first) <= worst {
                break;
            }
            let end = (at + block).min(self.times.len());
            let last = self.times[end - 1];
            let found = self.start(question, last, start)?;
            worst = worst.max((found + question.own_last).saturating_sub(last));
            if worst >= question.enough {
                return None;
            }
            if end == at + 1 || (found + question.own_last).saturating_sub(first) <= worst {
                (at, block, start) = (end, block * 2, found);
            } else {
                block = (end - at) / 2;
            }
        }
        Some(worst)
    }

    /// All `t` at which a maximum can lie: `w(t) - t` falls where no window grows, and grows on lines, up to the next step or the end of
    /// the line. `false` if they are too many.
    fn list_times(&mut self) -> bool {
        self.times.clear();
        self.times.push(0);
        let Self {
            times,
            same,
            higher,
            all,
            bundles,
            ..
        } = self;
        let ended = higher.iter().filter(|stair| stair.lead < OPEN / 2);
        for stair in same.iter().chain(ended) {
            // The window opens with its first frames, and grows with every further one.
            let opens = -stair.lead;
            let first = (stair.lead.max(0) as u64 + stair.jitter) / stair.period + 1;
            let steps = (first..stair.most)
                .map(|count| i64::try_from(count.saturating_mul(stair.period)).unwrap_or(i64::MAX))
                .map(|at| at.saturating_sub(stair.jitter as i64).saturating_sub(stair.lead));
            for t in std::iter::once(opens).chain(steps) {
                let Ok(t) = u64::try_from(t) else { continue };
                if t > *all {
                    break;
                }
                if times.len() > MOST_TIMES {
                    return false;
                }
                times.push(t);
                times.push(t.saturating_sub(1));
            }
        }
        for bundle in bundles {
            let Some(line) = bundle.line else { continue };
            if let Ok(opens) = u64::try_from(-bundle.lead) {
                times.push(opens);
                times.push(opens.saturating_sub(1));
            }
            for at in 0..times.len() {
                let work = bundle.steps(same, times[at]);
                let meets = line.when(work).min(HORIZON) as i64 - bundle.lead;
                if let Ok(meets) = u64::try_from(meets)
                    && meets > times[at]
                    && meets <= *all
                {
                    times.push(meets);
                }
            }
            if times.len() > 4 * MOST_TIMES {
                return false;
            }
        }
        times.sort_unstable();
        times.dedup();
        true
    }

    /// From the start of the chain to the start of the frame at the last port. `earlier` is the answer for a smaller `t`, or 0: as no window
    /// shrinks with `t`, the least fixed point is not below it.
    fn start(&self, question: &Question, t: u64, earlier: u64) -> Option<u64> {
        let mut base = self.steady;
        for bundle in &self.bundles {
            base = base.saturating_add(bundle.at(&self.same, t));
        }
        let base = base.saturating_sub(question.own_slow);
        let mut start = base.max(earlier);
        loop {
            let mut next = base;
            for stair in &self.higher {
                let window = (start as i64 - stair.shift).min(t as i64 + stair.lead);
                next = next.saturating_add(stair.at(window));
            }
            if next <= start {
                return Some(start);
            }
            start = next;
            if start > HORIZON || start >= question.enough.saturating_add(t) {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::ONE;
    use proptest::prelude::*;

    /// The maximum over every nanosecond, of all rivals one by one.
    fn everywhere(question: &Question, higher: &[Stair], bundles: &[(Vec<Stair>, Option<Line>)]) -> u64 {
        let sum = |stairs: &[Stair]| stairs.iter().map(Stair::all).sum::<u64>();
        let all = question.fixed + sum(higher) + bundles.iter().map(|(stairs, _)| sum(stairs)).sum::<u64>();
        let of_class = |t: u64, (stairs, line): &(Vec<Stair>, Option<Line>)| {
            let steps: u64 = stairs.iter().map(|stair| stair.at(t as i64 + stair.lead)).sum();
            let lead = stairs.iter().map(|stair| stair.lead).max().unwrap_or(0);
            match (line, u64::try_from(t as i64 + lead)) {
                (Some(line), Ok(window)) => steps.min(line.at(window)),
                _ => steps,
            }
        };
        let answers = (0..=all).map(|t| {
            let work = bundles.iter().map(|each| of_class(t, each)).sum::<u64>();
            let base = (question.fixed + work).saturating_sub(question.own_slow);
            let mut start = base;
            loop {
                let of = |stair: &Stair| {
                    stair.at((start as i64 - stair.shift).min((t as i64).saturating_add(stair.lead)))
                };
                let next = base + higher.iter().map(of).sum::<u64>();
                if next == start {
                    return (start + question.own_last).saturating_sub(t);
                }
                start = next;
            }
        });
        answers.max().unwrap_or(0)
    }

    fn stair(is_higher: bool) -> impl Strategy<Value = Stair> {
        let ends = if is_higher {
            prop_oneof![Just(None), (0u64..60).prop_map(Some)].boxed()
        } else {
            (0u64..60).prop_map(Some).boxed()
        };
        (3u64..30, 0u64..40, 1u64..4, 0u64..30, ends, 1u64..80).prop_map(
            move |(period, jitter, weight, shift, end, window)| {
                let mut stair = Stair::new(&Demand::new(period, weight, jitter));
                stair.begin(shift, end);
                stair.limit(window);
                stair
            },
        )
    }

    proptest! {
        #[test]
        fn the_maximum_lies_at_one_of_the_times_that_are_looked_at(
            higher in proptest::collection::vec(stair(true), 0..6),
            bundles in proptest::collection::vec(
                (proptest::collection::vec(stair(false), 1..5), proptest::option::of(0u64..12)), 1..3),
            // Ways are part of it: no window begins after the start of the frame.
            fixed in 33u64..70,
            own in (1u64..4, 1u64..4),
            again in 1usize..3,
        ) {
            // Rivals that are alike, beside each other and apart.
            let higher: Vec<Stair> = std::iter::repeat_n(higher, again).flatten().collect();
            let bundles: Vec<(Vec<Stair>, Option<Line>)> = bundles
                .into_iter()
                .map(|(stairs, base)| {
                    let stairs = std::iter::repeat_n(stairs, again).flatten().collect();
                    (stairs, base.map(|base| Line { base, slope: ONE }))
                })
                .collect();
            let question = Question { fixed, own_slow: own.0, own_last: own.1, enough: 1 << 30, longest: 1 << 30 };
            let expected = everywhere(&question, &higher, &bundles);

            let mut stairs = higher.clone();
            let mut places = Vec::new();
            for (of_class, line) in &bundles {
                let first = stairs.len();
                stairs.extend(of_class);
                places.push(Bundle { rivals: first..stairs.len(), line: *line });
            }
            let is_higher = (0..stairs.len()).map(|index| index < higher.len());
            let mut tally = Tally::default();
            tally.sort(&question, &stairs, is_higher, &places).unwrap();
            prop_assert_eq!(tally.answer(&question), Some(expected));
            for (enough, answer) in [(expected, None), (expected + 1, Some(expected))] {
                prop_assert_eq!(tally.answer(&Question { enough, ..question }), answer);
            }
        }
    }
}

//! The maximum over `t` of `w(t) + C - t` for one stretch.

use super::gather::Rival;
use crate::bundle::{Line, ONE};
use crate::demand::HORIZON;
use crate::layout::Group;

/// Values of `t` that are tried at most.
const MOST_TIMES: usize = 1 << 12;
/// A window that nothing ends but the start of the frame.
const OPEN: i64 = i64::MAX / 4;

/// A stretch, apart from its rivals. Times in nanoseconds; those of the frame count from its arrival at the first port.
pub(super) struct Question<'a> {
    /// Ways, blocking and frames under way.
    pub(super) fixed: u64,
    /// Transmission time of the frame on the slowest port and on the last one.
    pub(super) own_slow: u64,
    pub(super) own_last: u64,
    /// Answers from here on are of no use.
    pub(super) enough: u64,
    /// Latest arrivals at all ports, and departures from all but the last.
    pub(super) arrivals: &'a [u64],
    pub(super) departures: &'a [u64],
    /// Longest busy periods.
    pub(super) busy: &'a [u64],
    /// Sums of the longest ways from the first port.
    pub(super) shift: &'a [u64],
    /// Can frames overtake on the way to a port?
    pub(super) varies: &'a [bool],
}

impl Question<'_> {
    /// When the window of a rival ends, as a distance from `t`, less where it begins as a distance from the start.
    fn lead(&self, rival: &Rival) -> i64 {
        let last = self.arrivals.len() - 1;
        let end = if !rival.is_higher {
            let overtaken = self.varies[rival.first + 1..=rival.last].contains(&true);
            self.arrivals[if overtaken { rival.last } else { rival.first }]
        } else if rival.last < last {
            self.departures[rival.last]
        } else {
            return OPEN;
        };
        end as i64 - self.shift[rival.first] as i64
    }

    /// Work of all frames of a rival that can come while its ports are busy.
    fn most(&self, rival: &Rival) -> u64 {
        let busy: u128 = self.busy[rival.first..=rival.last]
            .iter()
            .map(|time| u128::from(*time))
            .sum();
        let window = busy + u128::from(self.shift[rival.last] - self.shift[rival.first]);
        let count = (window + u128::from(rival.jitter)).div_ceil(u128::from(rival.period));
        u64::try_from(count * u128::from(rival.weight)).unwrap_or(u64::MAX)
    }
}

/// What a rival brings in a window that depends on `t`, or on `w`.
#[derive(Debug, Clone, Copy)]
struct Stair {
    period: u64,
    jitter: u64,
    weight: u64,
    most: u64,
    lead: i64,
    /// From the start of the stretch to the start of the window at least.
    shift: i64,
}

impl Stair {
    /// Nothing in a window that ends before it begins.
    fn at(&self, window: i64) -> u64 {
        let Ok(window) = u64::try_from(window) else {
            return 0;
        };
        let count = (window + self.jitter) / self.period + 1;
        count.saturating_mul(self.weight).min(self.most)
    }
}

/// Rivals of the frame's class that join over one link.
#[derive(Debug)]
struct Bundle {
    stairs: std::ops::Range<usize>,
    line: Option<Line>,
    /// Of the latest window among them.
    lead: i64,
}

impl Bundle {
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
    fn steps(&self, stairs: &[Stair], t: u64) -> u64 {
        stairs[self.stairs.clone()]
            .iter()
            .map(|stair| stair.at(t as i64 + stair.lead))
            .fold(0, u64::saturating_add)
    }
}

/// Buffers, kept from one stretch to the next.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    /// Positions of rivals of the own class, by link.
    order: Vec<u32>,
    same: Vec<Stair>,
    bundles: Vec<Bundle>,
    higher: Vec<Stair>,
    times: Vec<u64>,
}

impl Bundles {
    /// `None` where no time below [`Question::enough`] is found.
    pub(super) fn answer(
        &mut self,
        question: &Question<'_>,
        rivals: &[Rival],
        groups: &[Group],
    ) -> Option<u64> {
        let all = self.sort(question, rivals, groups);
        if all > HORIZON || !self.list_times(all) {
            return None;
        }
        let mut worst = 0;
        for &t in &self.times {
            let possible = all + question.own_last;
            if possible.saturating_sub(t) <= worst {
                break;
            }
            let start = self.start(question, t)?;
            worst = worst.max((start + question.own_last).saturating_sub(t));
            if worst >= question.enough {
                return None;
            }
        }
        Some(worst)
    }

    /// Sorts rivals into bundles of the own class and higher ones; returns all work there can be.
    fn sort(&mut self, question: &Question<'_>, rivals: &[Rival], groups: &[Group]) -> u64 {
        self.higher.clear();
        self.same.clear();
        self.bundles.clear();
        self.order.clear();
        let mut all = question.fixed;
        for (rival, index) in rivals.iter().zip(0u32..) {
            if !rival.is_higher {
                self.order.push(index);
                continue;
            }
            let stair = stair(question, rival);
            all = all.saturating_add(stair.most);
            self.higher.push(stair);
        }
        self.order
            .sort_unstable_by_key(|index| rivals[*index as usize].group);
        for same in self
            .order
            .chunk_by(|a, b| rivals[*a as usize].group == rivals[*b as usize].group)
        {
            let begin = self.same.len();
            let mut line = groups[rivals[same[0] as usize].group as usize]
                .line
                // On a slower line the maximum need not be where it is looked for.
                .filter(|line| line.slope >= ONE);
            let mut lead = i64::MIN;
            for index in same {
                let rival = &rivals[*index as usize];
                let stair = stair(question, rival);
                all = all.saturating_add(stair.most);
                lead = lead.max(stair.lead);
                // The line counts transmission times of the port at which they join.
                line = line.filter(|_| !rival.is_slowed);
                self.same.push(stair);
            }
            self.bundles.push(Bundle {
                stairs: begin..self.same.len(),
                line,
                lead,
            });
        }
        all
    }

    /// All `t` at which a maximum can lie: `w(t) - t` falls where no window grows, and grows on lines, up to the next step or the end of
    /// the line. `false` if they are too many.
    fn list_times(&mut self, all: u64) -> bool {
        self.times.clear();
        self.times.push(0);
        let Self {
            times, same, higher, ..
        } = self;
        for stair in same
            .iter()
            .chain(higher.iter().filter(|stair| stair.lead < OPEN / 2))
        {
            // The window opens with its first frames, and grows with every further one.
            let opens = -stair.lead;
            let first = (stair.lead.max(0) as u64 + stair.jitter) / stair.period + 1;
            let steps = (first..)
                .map(|count| i64::try_from(count.saturating_mul(stair.period)).unwrap_or(i64::MAX))
                .map(|at| at.saturating_sub(stair.jitter as i64).saturating_sub(stair.lead));
            for t in std::iter::once(opens).chain(steps) {
                let Ok(t) = u64::try_from(t) else { continue };
                if t > all {
                    break;
                }
                if times.len() > MOST_TIMES {
                    return false;
                }
                times.push(t);
                times.push(t.saturating_sub(1));
            }
        }
        for bundle in &self.bundles {
            let Some(line) = bundle.line else { continue };
            for at in 0..times.len() {
                let work = bundle.steps(same, times[at]);
                let meets = line.when(work).min(HORIZON) as i64 - bundle.lead;
                if let Ok(meets) = u64::try_from(meets)
                    && meets > times[at]
                    && meets <= all
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

    /// From the start of the chain to the start of the frame at the last port.
    fn start(&self, question: &Question<'_>, t: u64) -> Option<u64> {
        let mut base = question.fixed;
        for bundle in &self.bundles {
            base = base.saturating_add(bundle.at(&self.same, t));
        }
        let base = base.saturating_sub(question.own_slow);
        let mut start = base;
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

fn stair(question: &Question<'_>, rival: &Rival) -> Stair {
    Stair {
        period: rival.period,
        jitter: rival.jitter,
        weight: rival.weight,
        most: question.most(rival),
        lead: question.lead(rival),
        shift: question.shift[rival.first] as i64,
    }
}

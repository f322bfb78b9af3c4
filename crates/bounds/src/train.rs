//! Frames of one size that came over slow links, one after the other.

use crate::demand::Demand;

/// Releases behind the first instant that a train takes in.
const RELEASES: usize = 64;

/// Frames of one size behind links that sent them one after the other: in a closed window of length `d` no more than `1 + floor((d + s) / C)` come,
/// with `C` the transmission time on such a link and `s` what the way from there varies by. So the frame behind the first `k` comes no earlier
/// than the greatest of all `k C - s`, and no earlier than its release.
///
/// The releases that a link could still hold back are followed one by one; from `until` on the staircases count as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Train {
    /// Work of one frame.
    weight: u64,
    /// `C` and `s` of every link, at least one.
    links: Vec<(u64, u64)>,
    /// What comes in the first instant, and what follows of all that is released until `until`.
    pub(crate) first: u64,
    pub(crate) strides: Vec<Stride>,
    /// Work that is released until then.
    pub(crate) work: u64,
    pub(crate) until: u64,
}

/// A part of a train with even distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stride {
    pub(crate) at: u64,
    pub(crate) period: u64,
    /// Of each step, and of all.
    pub(crate) weight: u64,
    pub(crate) work: u64,
}

impl Train {
    /// `own`: a frame's time at the output; `links`: its time on every link, rounded down, and the spread from there.
    pub(crate) fn new(own: u64, links: impl Iterator<Item = (u64, u64)>, demands: &[Demand]) -> Self {
        let mut train = Self {
            weight: own.max(1),
            links: links.map(|(input, spread)| (input.max(1), spread)).collect(),
            first: 0,
            strides: Vec::new(),
            work: 0,
            until: 0,
        };
        train.take(0, demands);
        for _ in 0..RELEASES {
            let next = demands.iter().map(|demand| demand.release_after(train.until));
            let next = next.min().unwrap_or(u64::MAX);
            if next == u64::MAX || train.is_past(next, demands) {
                break;
            }
            train.take(next, demands);
        }
        train
    }
    /// Can no link hold back anything that a single demand releases from here on?
    fn is_past(&self, next: u64, demands: &[Demand]) -> bool {
        let [demand] = demands else { return false };
        let each = demand.weight().div_ceil(self.weight);
        let last = self.work.div_ceil(self.weight).saturating_add(each - each.min(1));
        let slowest = self.links.iter().map(|(input, _)| *input).max().unwrap_or(0);
        self.at(last) <= next && slowest.saturating_mul(each) <= demand.period()
    }
    /// Takes in what is released until `until`.
    fn take(&mut self, until: u64, demands: &[Demand]) {
        let work = demands.iter().map(|demand| demand.within(until));
        let work = work.fold(0, u64::saturating_add);
        let (from, frames) = (self.work.div_ceil(self.weight), work.div_ceil(self.weight));
        (self.work, self.until) = (work, until);
        let at_once = self.count(until).clamp(from, frames);
        let come = at_once.saturating_sub(from).saturating_mul(self.weight);
        if until == 0 {
            self.first = come;
        } else if come > 0 {
            self.strides.push(Stride {
                at: until,
                period: 1,
                weight: come,
                work: come,
            });
        }
        self.follow(at_once, frames);
    }
    /// Frames that are waited for.
    fn follow(&mut self, mut next: u64, frames: u64) {
        while next < frames {
            let at = self.at(next);
            // The slowest of the links that say so leads, until a slower one does.
            let says =
                |(input, spread): &&(u64, u64)| input.saturating_mul(next).saturating_sub(*spread) == at;
            let Some(&(period, spread)) = self.links.iter().filter(says).max_by_key(|(input, _)| *input)
            else {
                return;
            };
            let slower = self.links.iter().filter(|(input, _)| *input > period);
            let taken_over =
                slower.map(|(input, later)| later.saturating_sub(spread).div_ceil(input - period));
            let end = taken_over.min().unwrap_or(frames).clamp(next + 1, frames);
            self.strides.push(Stride {
                at,
                period,
                weight: self.weight,
                work: (end - next).saturating_mul(self.weight),
            });
            next = end;
        }
    }
    /// When the frame behind the first `count` can come.
    fn at(&self, count: u64) -> u64 {
        let links = self.links.iter();
        let at = links.map(|(input, spread)| input.saturating_mul(count).saturating_sub(*spread));
        at.max().unwrap_or(0)
    }
    /// How many frames can have come after `window`.
    fn count(&self, window: u64) -> u64 {
        let links = self.links.iter();
        let frames = links.map(|(input, spread)| window.saturating_add(*spread) / input + 1);
        frames.min().unwrap_or(u64::MAX)
    }
    /// What can have come after `window` by the links alone.
    pub(crate) fn come(&self, window: u64) -> u64 {
        self.count(window).saturating_mul(self.weight)
    }
    /// What is held back after `window`, in which the staircases bring `work`.
    pub(crate) fn held(&self, window: u64, work: u64) -> u64 {
        let released = if window > self.until { self.work } else { work };
        released.saturating_sub(self.come(window))
    }
    /// Does it hold anything back?
    pub(crate) fn holds(&self) -> bool {
        self.strides
            .iter()
            .any(|stride| stride.work > stride.weight || stride.period > 1)
    }
    /// The window in which that much work can have come.
    pub(crate) fn when(&self, work: u64) -> u64 {
        self.at(work.div_ceil(self.weight).saturating_sub(1))
    }
    /// Does it come no slower than it can be sent here?
    pub(crate) fn is_fast(&self) -> bool {
        self.links.iter().all(|(input, _)| *input <= self.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(distance, spread)` of links against a count frame by frame.
    #[test]
    fn a_train_and_its_definition_agree() {
        let cases: [&[(u64, u64)]; 7] = [
            &[(10, 0)],
            &[(10, 9)],
            &[(10, 10)],
            &[(4, 33)],
            &[(3, 0), (10, 50)],
            &[(2, 1), (5, 20), (11, 90)],
            &[(7, 30), (9, 30)],
        ];
        for links in cases {
            for (period, frames, jitter) in [
                (1_000, 1, 0),
                (100, 1, 1_500),
                (40, 1, 333),
                (30, 2, 60),
                (70, 3, 0),
            ] {
                let demand = Demand::new(period, 3 * frames, jitter);
                let train = Train::new(3, links.iter().copied(), &[demand]);
                let come = |window: u64| {
                    let frames = links.iter().map(|(input, spread)| (window + spread) / input + 1);
                    demand.within(window).min(3 * frames.min().unwrap())
                };
                for window in 0..2_000 {
                    let steps = train
                        .strides
                        .iter()
                        .filter(|stride| stride.at <= window)
                        .map(|stride| {
                            let frames = (window - stride.at) / stride.period + 1;
                            frames.saturating_mul(stride.weight).min(stride.work)
                        });
                    let later = demand.within(window).saturating_sub(train.work);
                    let counted = train.first + steps.sum::<u64>() + later;
                    assert_eq!(counted, come(window), "{links:?} {demand:?} {window}");
                    let work = demand.within(window);
                    assert_eq!(
                        work - train.held(window, work),
                        come(window),
                        "{links:?} {demand:?} {window}"
                    );
                }
            }
        }
    }
}

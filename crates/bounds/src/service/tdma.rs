//! Slots of a cycle: the time until so much work is done, from the worst moment of the cycle on.
//!
//! While work waits, a slot is idle only at its end, because the next frame does not fit: for less than the largest frame `L`. A slot
//! of length `l` thus does at least
//!
//! ```text
//! u = max(l - L + 1, floor(l / L) m)        m the least frame; 0 where l < L
//! ```
//!
//! of work, in one piece from its start. The worst start is `L - 1` before the end of a slot, with nothing left of it: a start `d`
//! earlier is answered by `d` of work in that slot, after which it is no worse than this one. As a service curve this is the one of Wandeler
//! and Thiele 2006 (Optimal TDMA time slot and cycle length allocation) less the loss for frames that are not cut.

use timebound_model::Slots;

/// One port's slots as seen by frames of some sizes.
#[derive(Debug, Clone)]
pub(crate) struct Tdma {
    cycle: u64,
    /// Slots that are long enough for every frame: start, and the work done before it in the cycle.
    starts: Vec<u64>,
    before: Vec<u64>,
    /// Start of the wait for the slot of the same position, counted back from it.
    gaps: Vec<u64>,
    /// Work done in a cycle.
    total: u64,
}

impl Tdma {
    /// For frames that take from `least` to `largest` nanoseconds; `None` where no slot is long enough for all of them.
    pub(crate) fn new(slots: &Slots, least: u64, largest: u64) -> Option<Self> {
        let (least, largest) = (least.max(1), largest.max(1));
        let cycle = slots.cycle().0;
        let usable: Vec<(u64, u64)> = slots
            .ranges()
            .iter()
            .copied()
            .filter(|(start, end)| end - start >= largest)
            .collect();
        let last = *usable.last()?;
        let (mut starts, mut before, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
        let mut total = 0;
        let mut previous_end = last.1;
        for (index, &(start, end)) in usable.iter().enumerate() {
            let from_previous = if index == 0 {
                start + cycle - previous_end
            } else {
                start - previous_end
            };
            starts.push(start);
            before.push(total);
            gaps.push(from_previous + largest - 1);
            let length = end - start;
            total += (length - largest + 1).max(length / largest * least.min(largest));
            previous_end = end;
        }
        Some(Self {
            cycle,
            starts,
            before,
            gaps,
            total,
        })
    }

    /// Steps that an evaluation of [`Tdma::finish`] takes.
    pub(crate) fn cost(&self) -> u64 {
        self.starts.len() as u64
    }

    /// Share of the time that is surely used, in units of 2^-40, rounded down.
    pub(crate) fn share(&self) -> u128 {
        (u128::from(self.total) << 40) / u128::from(self.cycle)
    }

    /// `finish(x) <= latency + x / share` for every `x`.
    pub(crate) fn latency(&self) -> u64 {
        let wait = self.gaps.iter().copied().max().unwrap_or(0);
        wait.saturating_add(self.cycle)
    }

    /// Latest time, from the start of a backlog, at which `work` nanoseconds of transmission are done.
    pub(crate) fn finish(&self, work: u128) -> u128 {
        if work == 0 {
            return 0;
        }
        (0..self.starts.len())
            .map(|first| {
                self.after_slot(first, work)
                    .saturating_add(u128::from(self.gaps[first]))
            })
            .max()
            .unwrap_or(0)
    }

    /// The same from the start of the slot `first`.
    fn after_slot(&self, first: usize, work: u128) -> u128 {
        // Work counted from the start of the cycle of that slot.
        let upto = (work - 1).saturating_add(u128::from(self.before[first]));
        let total = u128::from(self.total);
        let rounds = upto / total;
        let within = upto % total;
        let slot = self
            .before
            .partition_point(|before| u128::from(*before) <= within)
            - 1;
        let at = u128::from(self.starts[slot]) + within - u128::from(self.before[slot]) + 1;
        rounds
            .saturating_mul(u128::from(self.cycle))
            .saturating_add(at)
            .saturating_sub(u128::from(self.starts[first]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timebound_model::{Span, Time};

    fn tdma(cycle: u64, slots: &[(u64, u64)], least: u64, largest: u64) -> Tdma {
        Tdma::new(&Slots::new(Span(cycle), slots).expect("slots"), least, largest)
            .expect("a slot that is long enough")
    }

    #[test]
    fn one_slot_with_room_for_two_frames() {
        // 25 of every 100 ns, frames of 10: two fit, 5 are lost.
        let tdma = tdma(100, &[(0, 25)], 10, 10);
        assert_eq!((tdma.total, tdma.share()), (20, (20 << 40) / 100));
        // It came when 9 were left: 9 + 75 until the next slot.
        let finish = |work| tdma.finish(work);
        assert_eq!([finish(0), finish(10), finish(20), finish(30)], [0, 94, 104, 194]);
        for work in 0..500 {
            let line = u128::from(tdma.latency()) + (work << 40) / tdma.share();
            assert!(finish(work) <= line, "{work}");
        }
    }

    #[test]
    fn the_longest_gap_is_not_always_the_worst() {
        // A long wait before a long slot, or a shorter one before a short slot and then the long wait.
        let tdma = tdma(1_000, &[(0, 100), (500, 10)], 10, 10);
        // From the end of the first slot 9 + 400, from the end of the second 9 + 490.
        assert_eq!(tdma.finish(10), 9 + 490 + 10);
        assert_eq!(tdma.finish(20), 9 + 400 + 500 + 10);
    }

    /// Serves frames in order, back to back from `start` on, as the fabric does.
    fn served(slots: &Slots, start: u64, frames: &[u64]) -> u64 {
        let mut now = start;
        for frame in frames {
            now = slots.start(Time(now), Span(*frame)).expect("fits").0 + frame;
        }
        now - start
    }

    #[test]
    fn no_phase_and_no_order_of_frames_is_later_and_equal_frames_meet_it() {
        let mut state = 5u64;
        let mut draw = |low: u64, high: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            low + (state >> 33) % (high - low + 1)
        };
        for case in 0..300 {
            let cycle = draw(60, 200);
            let first = draw(10, 20);
            let ranges = [(draw(0, 5), first), (draw(25, 30), draw(8, 25))];
            let slots = Slots::new(Span(cycle), &ranges).expect("slots");
            let (least, largest) = (draw(1, 5), draw(5, first));
            let least = if case % 2 == 0 { largest } else { least };
            let tdma = Tdma::new(&slots, least, largest).expect("the first slot is long enough");
            let frames: Vec<u64> = (0..draw(1, 12)).map(|_| draw(least, largest)).collect();
            let work: u64 = frames.iter().sum();
            let worst = (0..cycle)
                .map(|start| served(&slots, start, &frames))
                .max()
                .expect("a phase");
            let bound = tdma.finish(u128::from(work));
            assert!(
                u128::from(worst) <= bound,
                "{ranges:?} of {cycle}: {worst} above {bound}"
            );
            let one_slot_counts = ranges.iter().all(|slot| slot.1 >= largest);
            if least == largest && one_slot_counts {
                assert_eq!(
                    u128::from(worst),
                    bound,
                    "{ranges:?} of {cycle}, frames of {largest}"
                );
            }
        }
    }

    #[test]
    fn no_slot_for_the_largest_frame() {
        let slots = Slots::new(Span(100), &[(0, 25)]).expect("slots");
        assert!(Tdma::new(&slots, 1, 26).is_none());
        assert!(Tdma::new(&slots, 1, 25).is_some_and(|tdma| tdma.total == 1));
    }
}

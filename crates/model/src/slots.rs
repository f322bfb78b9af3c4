//! Time division: the times of a repeating cycle in which a port may send.

use crate::units::{Span, Time};
use serde::Serialize;

/// Slots `[at, at + length)` of a cycle that starts at time zero, checked: in order, disjoint, none empty, at least one.
///
/// A frame is sent within one slot: it starts in a slot, and ends in the same slot or with its end. Slots that touch are two
/// slots all the same (a radio keys up anew in each).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Slots {
    #[serde(rename = "cycle_ns")]
    cycle: u64,
    /// (start, end) within the cycle.
    slots: Vec<(u64, u64)>,
}

impl Slots {
    /// Most slots of one port in a cycle.
    pub const MOST: usize = 10_000;

    /// From (start, length) pairs in any order.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(cycle: Span, slots: &[(u64, u64)]) -> Result<Self, &'static str> {
        if cycle.0 == 0 {
            return Err("a cycle of no length");
        }
        if slots.is_empty() {
            return Err("no slot, so that nothing is ever sent");
        }
        if slots.len() > Self::MOST {
            return Err("more than 10,000 slots in a cycle");
        }
        let mut ranges = Vec::with_capacity(slots.len());
        for &(at, length) in slots {
            match at.checked_add(length) {
                Some(end) if length > 0 && end <= cycle.0 => ranges.push((at, end)),
                Some(_) if length == 0 => return Err("a slot of no length"),
                _ => return Err("a slot that reaches beyond the end of the cycle"),
            }
        }
        ranges.sort_unstable();
        if ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err("slots that overlap");
        }
        Ok(Self {
            cycle: cycle.0,
            slots: ranges,
        })
    }

    /// With all times so many times as long; `None` where they become too long.
    #[must_use]
    pub fn times(&self, factor: u64) -> Option<Self> {
        let slots = self.slots.iter();
        let slots = slots.map(|slot| Some((slot.0.checked_mul(factor)?, slot.1.checked_mul(factor)?)));
        Some(Self {
            cycle: self.cycle.checked_mul(factor)?,
            slots: slots.collect::<Option<_>>()?,
        })
    }

    #[must_use]
    pub const fn cycle(&self) -> Span {
        Span(self.cycle)
    }

    /// (start, end) of each slot within the cycle, in order.
    #[must_use]
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.slots
    }

    #[must_use]
    pub fn longest(&self) -> Span {
        Span(
            self.slots
                .iter()
                .map(|(start, end)| end - start)
                .max()
                .unwrap_or(0),
        )
    }

    /// The earliest time from `now` on at which a transmission of this length may start; `None` where it fits in no slot.
    #[must_use]
    pub fn start(&self, now: Time, length: Span) -> Option<Time> {
        if length > self.longest() {
            return None;
        }
        let round = now.0 - now.0 % self.cycle;
        let within = now.0 % self.cycle;
        let first = self.slots.partition_point(|slot| slot.1 <= within);
        let fitting = |(start, end): &(u64, u64), from: u64| {
            let start = (*start).max(from);
            (start.checked_add(length.0)? <= *end).then_some(start)
        };
        let here = self.slots[first..].iter().find_map(|slot| fitting(slot, within));
        let (round, place) = match here {
            Some(place) => (round, place),
            None => (
                round.saturating_add(self.cycle),
                self.slots.iter().find_map(|slot| fitting(slot, 0))?,
            ),
        };
        Some(Time(round.saturating_add(place)))
    }

    /// The longest that a transmission of this length waits for its start at an idle port; `None` where it fits in no slot.
    #[must_use]
    pub fn greatest_wait(&self, length: Span) -> Option<Span> {
        let fitting = || self.slots.iter().filter(|(start, end)| end - start >= length.0);
        let (first, _) = fitting().next()?;
        let next = fitting()
            .skip(1)
            .map(|(start, _)| *start)
            .chain([first + self.cycle]);
        // It came a nanosecond after the last start that was possible.
        let waits = fitting()
            .zip(next)
            .map(|((_, end), next)| next - (end - length.0) - 1);
        waits.max().map(Span)
    }

    /// Do two sets of slots of one cycle share a nanosecond?
    #[must_use]
    pub fn overlap(&self, other: &Self) -> bool {
        let (mut mine, mut theirs) = (self.slots.iter().peekable(), other.slots.iter().peekable());
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            if a.0 < b.1 && b.0 < a.1 {
                return true;
            }
            if a.1 <= b.1 {
                mine.next();
            } else {
                theirs.next();
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transmission_stays_within_one_slot() {
        let slots = Slots::new(Span(100), &[(50, 20), (10, 5), (15, 10)]).unwrap();
        let start = |now, length| slots.start(Time(now), Span(length)).map(|time| time.0);
        let table = [
            (0, 5, Some(10)),
            (0, 6, Some(15)),
            (11, 4, Some(11)),
            (11, 5, Some(15)),
            (12, 10, Some(15)),
            (16, 10, Some(50)),
            (51, 20, Some(150)),
            (70, 1, Some(110)),
            (199, 20, Some(250)),
            (0, 21, None),
        ];
        for (now, length, expected) in table {
            assert_eq!(start(now, length), expected, "from {now}, {length} long");
        }
    }

    #[test]
    fn is_the_earliest_by_trying_every_time() {
        let slots = Slots::new(Span(37), &[(3, 9), (12, 4), (30, 7)]).unwrap();
        let fits = |start: u64, length: u64| {
            let within = start % 37;
            slots
                .ranges()
                .iter()
                .any(|(from, to)| *from <= within && within + length <= *to)
        };
        for now in 0..120 {
            for length in 1..=9 {
                let expected = (now..now + 100).find(|start| fits(*start, length));
                assert_eq!(
                    slots.start(Time(now), Span(length)).map(|t| t.0),
                    expected,
                    "{now} {length}"
                );
            }
        }
        for length in 1..=9 {
            let waits = (0..37).map(|now| slots.start(Time(now), Span(length)).unwrap().0 - now);
            assert_eq!(
                slots.greatest_wait(Span(length)),
                waits.max().map(Span),
                "{length}"
            );
        }
        assert_eq!(slots.greatest_wait(Span(10)), None);
    }

    #[test]
    fn overlap_is_symmetric() {
        let slots = |list: &[(u64, u64)]| Slots::new(Span(100), list).unwrap();
        let mine = slots(&[(0, 10), (40, 10)]);
        for (theirs, expected) in [
            (slots(&[(10, 30), (50, 50)]), false),
            (slots(&[(9, 1)]), true),
            (slots(&[(20, 5), (49, 3)]), true),
        ] {
            assert_eq!(
                (mine.overlap(&theirs), theirs.overlap(&mine)),
                (expected, expected)
            );
        }
    }

    #[test]
    fn refused() {
        let cases: [(u64, &[(u64, u64)]); 6] = [
            (0, &[(0, 1)]),
            (10, &[]),
            (10, &[(0, 0)]),
            (10, &[(5, 6)]),
            (10, &[(u64::MAX, 2)]),
            (10, &[(0, 5), (4, 2)]),
        ];
        for (cycle, list) in cases {
            assert!(Slots::new(Span(cycle), list).is_err(), "{cycle} {list:?}");
        }
    }
}

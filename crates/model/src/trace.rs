//! A link's rate as a list of delivery opportunities, as recorded on cellular links: the format of mahimahi
//! (Netravali et al., USENIX ATC 2015, section 4).
//!
//! Each entry is a time in milliseconds at which the link can deliver [`Trace::OPPORTUNITY_BYTES`]. The list repeats with the
//! period of its last entry. Bytes are counted as mahimahi counts them: the IP packet and the 4 bytes that a TUN device puts
//! before it, so that a packet of 1500 bytes fills one opportunity.

use crate::units::{Span, Time, WireBytes};
use std::sync::Arc;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// Opportunities to deliver, checked: not empty, not decreasing, lasting longer than no time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace(Arc<[u64]>);

impl Trace {
    /// What one opportunity delivers at most (mahimahi's `PACKET_SIZE`).
    pub const OPPORTUNITY_BYTES: u32 = 1504;
    /// Most opportunities of one trace.
    pub const MOST: usize = 1_000_000;
    /// Longest period: a day.
    pub const LONGEST_MILLIS: u64 = 86_400_000;

    /// From times in milliseconds.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(millis: &[u64]) -> Result<Self, &'static str> {
        match millis.last() {
            None => return Err("a trace without opportunities"),
            Some(0) => return Err("a trace that lasts no time"),
            Some(&last) if last > Self::LONGEST_MILLIS => return Err("a trace that is longer than a day"),
            Some(_) => {}
        }
        if millis.len() > Self::MOST {
            return Err("a trace of more than 1,000,000 opportunities");
        }
        if millis.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err("opportunities that are not in order of time");
        }
        Ok(Self(millis.into()))
    }

    /// Opportunities in one period, at least one.
    #[must_use]
    pub fn opportunities(&self) -> usize {
        self.0.len()
    }

    /// After this long it starts again.
    #[must_use]
    pub fn period(&self) -> Span {
        Span(self.last() * NANOS_PER_MILLI)
    }

    fn last(&self) -> u64 {
        self.0[self.0.len() - 1]
    }

    /// When opportunity number `index` comes, counted from zero through all repetitions.
    #[must_use]
    pub fn time(&self, index: u64) -> Time {
        let length = self.0.len() as u64;
        let millis = (index / length) * self.last() + self.0[(index % length) as usize];
        Time(millis.saturating_mul(NANOS_PER_MILLI))
    }

    /// The first opportunity that comes later than `time`.
    #[must_use]
    pub fn first_after(&self, time: Time) -> u64 {
        // At a whole number of periods the last of one round and the zeros of the next coincide.
        let round = time.0 / self.period().0;
        let within = time.0 % self.period().0;
        let place = self
            .0
            .partition_point(|millis| millis * NANOS_PER_MILLI <= within);
        round * self.0.len() as u64 + place as u64
    }

    /// Bytes that a frame takes of its opportunities: its IP packet and 4 more. The padding of frames below the Ethernet
    /// minimum counts (a frame of 84 bytes on the wire takes 50).
    #[must_use]
    pub const fn bytes_of(wire: WireBytes) -> u32 {
        // Ethernet header, FCS, preamble and gap are 38 bytes of the wire.
        let bytes = wire.0.saturating_sub(38 - 4);
        if bytes == 0 { 1 } else { bytes }
    }

    /// The longest that a frame of this size waits when it finds the link idle.
    #[must_use]
    pub fn greatest_wait(&self, wire: WireBytes) -> Span {
        let needed = u64::from(Self::bytes_of(wire).div_ceil(Self::OPPORTUNITY_BYTES));
        // A frame that comes with an opportunity has missed it, and all others of that time.
        let waits = (0..self.0.len() as u64).map(|index| {
            let missed = self.time(index);
            self.time(self.first_after(missed) + needed - 1).since(missed)
        });
        waits.max().unwrap_or(Span::MAX)
    }
}

impl serde::Serialize for Trace {
    /// In short: a trace can have a million entries.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("Trace", 2)?;
        fields.serialize_field("opportunities", &self.0.len())?;
        fields.serialize_field("period_ns", &self.period().0)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_with_the_period_of_its_last_entry() {
        let trace = Trace::new(&[0, 3, 3, 5]).unwrap();
        let times: Vec<u64> = (0..9)
            .map(|index| trace.time(index).0 / NANOS_PER_MILLI)
            .collect();
        assert_eq!(times, [0, 3, 3, 5, 5, 8, 8, 10, 10]);
    }

    #[test]
    fn the_first_after_is_the_first_later_one() {
        let trace = Trace::new(&[0, 3, 3, 5]).unwrap();
        for nanos in (0..20_000_000).step_by(250_000) {
            let index = trace.first_after(Time(nanos));
            assert!(trace.time(index).0 > nanos, "{nanos}");
            assert!(index == 0 || trace.time(index - 1).0 <= nanos, "{nanos}: {index}");
        }
    }

    #[test]
    fn waits_and_sizes() {
        let trace = Trace::new(&[1, 4, 5]).unwrap();
        assert_eq!(Trace::bytes_of(WireBytes::FULL), 1504);
        assert_eq!(Trace::bytes_of(WireBytes::MIN), 50);
        assert_eq!(trace.greatest_wait(WireBytes::FULL), Span::from_millis(3));
        assert_eq!(trace.greatest_wait(WireBytes(1539)), Span::from_millis(4));
    }

    #[test]
    fn refused() {
        for bad in [&[][..], &[0], &[0, 0], &[2, 1], &[86_400_001]] {
            assert!(Trace::new(bad).is_err(), "{bad:?}");
        }
    }
}

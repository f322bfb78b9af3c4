//! Newtypes for time, rate, size and class: wrong units do not compile. Arithmetic is checked or saturating, never silent.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Nanoseconds per second.
pub const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A point in time: nanoseconds since the start of the run (or of the simulation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A duration in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(pub u64);

/// A bit rate in bit/s; never zero once compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub u64);

/// A size in bytes as it occupies the wire: frame with FCS plus preamble (8) and inter-frame gap (12), IEEE 802.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WireBytes(pub u32);

/// A traffic class, 0..=7; higher is more urgent (as 802.1Q PCP in strict priority).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Class(pub u8);

/// Number of traffic classes.
pub const CLASSES: usize = 8;

impl Time {
    /// The latest representable time; used as "never".
    pub const MAX: Self = Self(u64::MAX);
    /// Time since `earlier`, zero if `earlier` lies later.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
    /// This time plus `span`, saturating at [`Time::MAX`].
    #[inline]
    #[must_use]
    pub const fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Span {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The longest representable duration.
    pub const MAX: Self = Self(u64::MAX);
    /// From microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }
    /// From milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }
    /// From seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * NANOS_PER_SECOND)
    }
    /// Sum, or `None` on overflow.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }
    /// Sum, saturating.
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
    /// Difference, saturating at zero.
    #[inline]
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Rate {
    /// Transmission time of `bytes` alone, rounded up to the next nanosecond: a port is never faster than its rate. What is too much is
    /// [`Rate::transmission`]'s to say.
    ///
    /// # Panics
    /// If the rate is zero (a compiled network has none).
    #[inline]
    #[must_use]
    pub const fn transmission_time(self, bytes: WireBytes) -> Span {
        self.transmission(bytes).0
    }

    /// Transmission time of `bytes` in whole nanoseconds, and how much of the last one is left over, in nanoseconds over the rate. The next
    /// frame of a busy port begins with what is left over.
    ///
    /// # Panics
    /// As [`Rate::transmission_time`].
    #[inline]
    #[must_use]
    pub const fn transmission(self, bytes: WireBytes) -> (Span, u64) {
        // u32 bytes * 8 * 1e9 can pass 2^64, but only for sizes that the compiler refuses: the wide way is never hot.
        let bits = bytes.0 as u64 * 8;
        match bits.checked_mul(NANOS_PER_SECOND) {
            Some(scaled) => {
                let (whole, rest) = (scaled / self.0, scaled % self.0);
                match rest {
                    0 => (Span(whole), 0),
                    _ => (Span(whole + 1), self.0 - rest),
                }
            }
            None => {
                let wide = (bits as u128 * NANOS_PER_SECOND as u128).div_ceil(self.0 as u128);
                let whole = if wide > u64::MAX as u128 {
                    u64::MAX
                } else {
                    wide as u64
                };
                (Span(whole), 0)
            }
        }
    }

    /// The least time from a frame's arrival to its end: a port that was busy may have part of a nanosecond left for it.
    ///
    /// # Panics
    /// As [`Rate::transmission_time`].
    #[must_use]
    pub const fn least_time(self, bytes: WireBytes) -> Span {
        let (Span(time), spare) = self.transmission(bytes);
        Span(time - (spare > 0) as u64)
    }

    /// Does every byte take whole nanoseconds, so that nothing is ever left over?
    #[inline]
    #[must_use]
    pub const fn is_whole(self) -> bool {
        (8 * NANOS_PER_SECOND).is_multiple_of(self.0)
    }
}

/// In which unit of time a port's frames are counted. A compiled network has nanoseconds; an analysis may look at it in finer *ticks*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grain {
    /// Ticks per nanosecond.
    pub per_nano: u64,
    /// Is the unit fine enough for what frames of a busy period leave of a nanosecond? Otherwise each takes whole nanoseconds.
    pub carries: bool,
}

impl Default for Grain {
    fn default() -> Self {
        Self {
            per_nano: 1,
            carries: false,
        }
    }
}

/// A rate with the unit in which its times are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speed {
    pub rate: Rate,
    pub grain: Grain,
}

impl Speed {
    /// Transmission time of one frame in ticks, rounded up.
    #[must_use]
    pub fn transmission_time(self, bytes: WireBytes) -> Span {
        let per_nano = self.grain.per_nano;
        if !self.grain.carries {
            let whole = self.rate.transmission_time(bytes).0;
            return Span(whole.saturating_mul(per_nano));
        }
        let ticks = u128::from(bytes.0) * self.ticks_per_byte();
        Span(u64::try_from(ticks.div_ceil(u128::from(self.rate.0))).unwrap_or(u64::MAX))
    }
    /// Ticks that one byte takes at 1 bit/s.
    #[must_use]
    pub fn ticks_per_byte(self) -> u128 {
        8 * u128::from(NANOS_PER_SECOND) * u128::from(self.grain.per_nano)
    }
    /// So many ticks, less one, may a frame's time be above its bytes over the rate.
    #[must_use]
    pub fn rounding(self) -> u64 {
        match (self.grain.carries, self.rate.is_whole()) {
            (false, true) => 0,
            (false, false) => self.grain.per_nano,
            (true, _) => u64::from(
                !self
                    .ticks_per_byte()
                    .is_multiple_of(u128::from(self.rate.0.max(1))),
            ),
        }
    }
    /// So many ticks may a frame take less than its time.
    #[must_use]
    pub fn early(self) -> u64 {
        if self.grain.carries { self.rounding() } else { 0 }
    }
    /// Events are in whole nanoseconds, and frames that carry fractions are not: a frame may be served as if it had come so many ticks before
    /// its arrival, and is gone so many after its last bit.
    #[must_use]
    pub fn slack(self) -> Span {
        Span(if self.grain.carries {
            self.grain.per_nano
        } else {
            0
        })
    }
}

/// A fraction of a nanosecond that a port's frames have left over, see [`Rate::transmission`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remainder {
    /// When the last frame ended, rounded up.
    ended: u64,
    /// By how much that is too late, in nanoseconds over the rate.
    spare: u64,
}

impl Remainder {
    /// When a frame ends that begins now. In a busy period its end is that of all frames since the beginning, rounded up once; after a
    /// pause of a nanosecond the next one begins anew.
    #[inline]
    #[must_use]
    pub const fn end(&mut self, now: u64, (Span(time), spare): (Span, u64), rate: Rate) -> u64 {
        self.spare = if self.ended == now { self.spare } else { 0 };
        let (mut end, spare) = (now.saturating_add(time), self.spare + spare);
        self.spare = if spare >= rate.0 {
            end -= 1;
            spare - rate.0
        } else {
            spare
        };
        self.ended = end;
        end
    }
    /// Another rate has other fractions: the next frame begins anew.
    pub const fn forget(&mut self) {
        self.spare = 0;
    }
}

impl WireBytes {
    /// Smallest Ethernet frame (64) plus preamble and gap.
    pub const MIN: Self = Self(84);
    /// Preamble with start delimiter (8) and inter-frame gap (12), IEEE 802.3 clause 4.
    pub const PREAMBLE_AND_GAP: u32 = 20;
    /// A full untagged Ethernet frame: 1500 bytes of payload, 1538 on the wire.
    pub const FULL: Self = Self(1538);
    /// Bytes on the wire of an Ethernet frame of `frame` bytes as a capture shows it (header, no FCS).
    #[inline]
    #[must_use]
    pub const fn from_captured(frame: u32) -> Self {
        let padded = if frame < 60 { 60 } else { frame };
        Self(padded + 4 + Self::PREAMBLE_AND_GAP)
    }
}

impl Class {
    /// The differentiated services code point used for the class: its class selector (RFC 2474, section 4.2.2).
    #[must_use]
    pub const fn dscp(self) -> u8 {
        self.0 << 3
    }
    /// The class of a code point: its class selector bits; EF (46, RFC 3246) thus maps to class 5.
    #[must_use]
    pub const fn from_dscp(dscp: u8) -> Self {
        Self((dscp >> 3) & 7)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n % 1_000_000_000 == 0 && n > 0 => write!(f, "{} s", n / 1_000_000_000),
            n if n >= 1_000_000 => write!(f, "{} ms", n as f64 / 1e6),
            n if n >= 1_000 => write!(f, "{} us", n as f64 / 1e3),
            n => write!(f, "{n} ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_frame_at_100_mbit_takes_123_04_us() {
        assert_eq!(
            Rate(100_000_000).transmission_time(WireBytes::FULL),
            Span(123_040)
        );
    }

    #[test]
    fn transmission_time_rounds_up() {
        assert_eq!(Rate(3_000_000_000).transmission_time(WireBytes(1)), Span(3));
        assert_eq!(
            Rate(8).transmission_time(WireBytes(u32::MAX)),
            Span(u32::MAX as u64 * 1_000_000_000)
        );
        assert_eq!(Rate(1).transmission_time(WireBytes(u32::MAX)), Span::MAX);
    }

    #[test]
    fn frames_of_a_busy_period_end_where_their_sum_does_rounded_up() {
        for (rate, bytes) in [
            (100_000_000_000, 90),
            (33_333_333, 84),
            (3_000_000_000, 1),
            (10_000_000_000_000, 84),
            (100_000_000, 1538),
        ] {
            let (mut remainder, mut now) = (Remainder::default(), 0);
            for frames in 1..=5_000u64 {
                now = remainder.end(now, Rate(rate).transmission(WireBytes(bytes)), Rate(rate));
                let bits = u128::from(frames) * u128::from(bytes) * 8;
                let exact = (bits * u128::from(NANOS_PER_SECOND)).div_ceil(u128::from(rate));
                assert_eq!(u128::from(now), exact, "{frames} frames at {rate} bit/s");
            }
        }
    }

    #[test]
    fn a_pause_or_another_rate_begins_anew() {
        let rate = Rate(100_000_000_000);
        let mut remainder = Remainder::default();
        let mut send = |now: u64, anew: bool| {
            if anew {
                remainder.forget();
            }
            remainder.end(now, rate.transmission(WireBytes(90)), rate)
        };
        assert_eq!((send(0, false), send(8, false), send(15, false)), (8, 15, 22));
        assert_eq!((send(23, false), send(31, true)), (31, 39));
    }

    #[test]
    fn captured_frames_are_padded_to_the_ethernet_minimum() {
        assert_eq!(WireBytes::from_captured(1514), WireBytes::FULL);
        assert_eq!(WireBytes::from_captured(42), WireBytes::MIN);
    }

    #[test]
    fn classes_survive_dscp() {
        for class in 0..8 {
            assert_eq!(Class::from_dscp(Class(class).dscp()), Class(class));
        }
        assert_eq!(Class::from_dscp(46), Class(5));
    }
}

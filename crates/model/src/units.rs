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
    /// Transmission time of `bytes`, rounded up to the next nanosecond: a port is never faster than its rate.
    ///
    /// # Panics
    /// If the rate is zero (a compiled network has none).
    #[inline]
    #[must_use]
    pub const fn transmission_time(self, bytes: WireBytes) -> Span {
        // u32 bytes * 8 * 1e9 can pass 2^64, but only for sizes that the compiler refuses: the wide way is never hot.
        let bits = bytes.0 as u64 * 8;
        match bits.checked_mul(NANOS_PER_SECOND) {
            Some(scaled) => Span(scaled.div_ceil(self.0)),
            None => {
                let wide = (bits as u128 * NANOS_PER_SECOND as u128).div_ceil(self.0 as u128);
                Span(if wide > u64::MAX as u128 {
                    u64::MAX
                } else {
                    wide as u64
                })
            }
        }
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

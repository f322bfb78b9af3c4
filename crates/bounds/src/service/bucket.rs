//! A token bucket as periodic work with jitter.
//!
//! In any closed window of length `d` a bucket lets `b + r d` bytes pass (`b` bytes of burst, `r` bytes per nanosecond). The
//! staircase with period `T` and jitter `J` counts `floor((d + J) / T) + 1` releases there, so releases of
//!
//! ```text
//! one frame        T = f / r (rounded down)   J = b / r - T (rounded up)       all frames have f bytes
//! r T bytes        any T                      J = b / r (rounded up)           frames of different sizes
//! ```
//!
//! are never less than what passes: `floor((d + J) / T) + 1 >= (d + J) / T`, and more than `(d + J) / T` is needed in the second row
//! only; in the first, whole frames pass, and at most `floor((b + r d) / f)` of them. What the second row adds is one quantum,
//! here that of the least frame. Source: Le Boudec and Thiran 2001, section 1.2 (leaky buckets as arrival curves).

use timebound_model::units::NANOS_PER_SECOND;
use timebound_model::{Rate, Speed, WireBytes};

/// One byte in units of which `rate` (bit/s) come per nanosecond; of so many ticks per nanosecond it takes so many times as many.
const TOKENS_PER_BYTE: u128 = 8 * NANOS_PER_SECOND as u128;

/// Periodic releases that cover a token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// In ticks, at least 1.
    pub(crate) period: u64,
    pub(crate) jitter: u64,
    quantum: Quantum,
    tokens_per_byte: u128,
}

/// What is released at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantum {
    Frame(WireBytes),
    /// So many tokens, in frames of at least so many bytes.
    Tokens(u128, WireBytes),
}

impl Envelope {
    /// `burst` is the time in which the burst comes at the token rate, rounded up (see [`burst_time`]), or a longer one that was
    /// observed; times are in ticks.
    pub(crate) fn new(
        rate: Rate,
        (burst, per_nano): (u64, u64),
        min_frame: WireBytes,
        max_frame: WireBytes,
    ) -> Self {
        let tokens_per_byte = TOKENS_PER_BYTE * u128::from(per_nano);
        let tokens = u128::from(min_frame.0.max(1)) * tokens_per_byte;
        let rate = u128::from(rate.0.max(1));
        if min_frame == max_frame {
            let period = nanos(tokens / rate).max(1);
            return Self {
                period,
                jitter: burst.saturating_sub(period),
                quantum: Quantum::Frame(min_frame),
                tokens_per_byte,
            };
        }
        let period = nanos(tokens.div_ceil(rate)).max(1);
        Self {
            period,
            jitter: burst,
            quantum: Quantum::Tokens(rate * u128::from(period), min_frame),
            tokens_per_byte,
        }
    }

    /// The same with a time that each frame costs beside its transmission.
    pub(crate) fn weight_with(&self, port: Speed, per_frame: u64) -> u64 {
        let frames = match self.quantum {
            Quantum::Frame(_) => u128::from(per_frame),
            // At most one frame for each least frame's worth of tokens; a line, so that fractions of frames add up.
            Quantum::Tokens(tokens, least) => tokens
                .saturating_mul(u128::from(per_frame))
                .div_ceil(self.tokens_per_byte * u128::from(least.0.max(1))),
        };
        self.weight(port).saturating_add(nanos(frames))
    }

    /// Transmission time of one release at a port of this rate. Every frame's time is rounded up by less than a unit, where
    /// a byte does not take a whole number of them.
    pub(crate) fn weight(&self, port: Speed) -> u64 {
        match self.quantum {
            Quantum::Frame(bytes) => port.transmission_time(bytes).0,
            Quantum::Tokens(tokens, least) => {
                let rate = u128::from(port.rate.0.max(1));
                let rounding = match u128::from(port.rounding()) {
                    0 => 0,
                    each => tokens.div_ceil(self.tokens_per_byte * u128::from(least.0.max(1))) * each,
                };
                nanos(tokens.div_ceil(rate) + rounding)
            }
        }
    }
}

/// Time in which `bytes` come at the token rate, in ticks, rounded up.
pub(crate) fn burst_time(rate: Rate, bytes: u64, per_nano: u64) -> u64 {
    nanos((u128::from(bytes) * TOKENS_PER_BYTE * u128::from(per_nano)).div_ceil(u128::from(rate.0.max(1))))
}

fn nanos(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use timebound_model::Grain;

    fn plain(rate: Rate) -> Speed {
        Speed {
            rate,
            grain: Grain::default(),
        }
    }

    /// The most work at a port that frames of these sizes can bring in a closed window: whole frames, each time rounded up.
    fn most_work(rate: u64, burst: u64, frames: &[u32], port: Rate, window: u64) -> u64 {
        let tokens = u128::from(burst) * TOKENS_PER_BYTE + u128::from(rate) * u128::from(window);
        let bytes = u64::try_from(tokens / TOKENS_PER_BYTE).unwrap();
        // The best way to fill `bytes` with frames, by the value of each size.
        let mut best = vec![0u64; bytes as usize + 1];
        for room in 1..=bytes as usize {
            best[room] = best[room - 1];
            for &frame in frames.iter().filter(|frame| **frame as usize <= room) {
                let value = port.transmission_time(WireBytes(frame)).0 + best[room - frame as usize];
                best[room] = best[room].max(value);
            }
        }
        best[bytes as usize]
    }

    #[test]
    fn the_staircase_covers_the_best_filling_of_every_window_and_is_close_to_it() {
        let mut state = 7u64;
        let mut draw = |low: u64, high: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            low + (state >> 33) % (high - low + 1)
        };
        let mut loosest: f64 = 1.0;
        for case in 0..400 {
            let least = draw(84, 300) as u32;
            let greatest = if case % 2 == 0 {
                least
            } else {
                least + draw(1, 400) as u32
            };
            let (rate, port) = (
                draw(1_000_000, 900_000_000),
                Rate(draw(900_000_000, 3_000_000_000)),
            );
            let burst = u64::from(greatest) + draw(0, 3_000);
            let envelope = Envelope::new(
                Rate(rate),
                (burst_time(Rate(rate), burst, 1), 1),
                WireBytes(least),
                WireBytes(greatest),
            );
            let frames = [least, (least + greatest) / 2, greatest];
            for _ in 0..4 {
                let window = draw(0, 20_000);
                let covered =
                    ((window + envelope.jitter) / envelope.period + 1) * envelope.weight(plain(port));
                let most = most_work(rate, burst, &frames, port, window);
                assert!(
                    covered >= most,
                    "{covered} below {most}: {envelope:?}, window {window}"
                );
                if case % 2 == 0 {
                    assert!(
                        covered <= most + envelope.weight(plain(port)),
                        "one size: at most the rounding of T"
                    );
                }
                let work = burst as f64 + rate as f64 * window as f64 / 8e9;
                let fluid = work * 8e9 / port.0 as f64;
                loosest = loosest.max(covered as f64 / fluid);
            }
        }
        assert!(
            loosest < 1.8,
            "one least frame above the burst at most, not {loosest}"
        );
    }

    #[test]
    fn one_frame_a_period_is_a_periodic_stream() {
        // 1538 bytes at 12.304 Mbit/s: one per millisecond.
        let rate = Rate(12_304_000);
        let full = WireBytes::FULL;
        let envelope = Envelope::new(rate, (burst_time(rate, 1_538, 1), 1), full, full);
        assert_eq!((envelope.period, envelope.jitter), (1_000_000, 0));
        assert_eq!(envelope.weight(plain(Rate(100_000_000))), 123_040);
        let three = Envelope::new(rate, (burst_time(rate, 3 * 1_538, 1), 1), full, full);
        assert_eq!((three.period, three.jitter), (1_000_000, 2_000_000));
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        for rate in [1, u64::MAX] {
            let burst = burst_time(Rate(rate), u64::MAX, 1);
            let envelope = Envelope::new(Rate(rate), (burst, 1), WireBytes(1), WireBytes(u32::MAX));
            assert!(envelope.period >= 1 && envelope.weight(plain(Rate(1))) >= 1);
        }
    }
}

//! Demands that reach a port over the same link, and what that link can have delivered of them at most.

use crate::demand::Demand;
use crate::train::Train;
use timebound_model::{Speed, WireBytes};

/// One of [`Line::slope`]: work on the output link per time on the input link, as 2^-32.
pub(crate) const ONE: u64 = 1 << 32;

/// Line shaping (Grieu 2004; Mifdaoui and Leydier 2017): frames come over a link one after the other. Those that reach a queue within
/// a closed window of length `d` left the link within `d + s`, with `s` what the delay behind it (link jitter, switching)
/// varies by; all but the first were also sent in that time. In work of the output port that is at most
/// `base + slope d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) base: u64,
    pub(crate) slope: u64,
}

impl Line {
    /// `largest`: the longest transmission at the output; `least`: the shortest frame; `spread`: `s` above.
    pub(crate) fn new(largest: u64, least: WireBytes, spread: u64, input: Speed, output: Speed) -> Self {
        // Frames that take whole nanoseconds on the link are at least as far apart as they take at the same rate behind it.
        let alike = input.rate == output.rate && (output.rounding() == 0 || !input.grain.carries);
        let slope = if alike {
            ONE
        } else {
            // Work on the output is bytes over its rate, and up to one unit for each frame, as every transmission time is
            // rounded up.
            let ratio = (u128::from(input.rate.0) << 32).div_ceil(u128::from(output.rate.0));
            let least_input = input.transmission_time(least).0.saturating_sub(input.early());
            let each = output
                .rounding()
                .max(output.grain.per_nano * u64::from(!output.grain.carries));
            let rounding = (u128::from(ONE) * u128::from(each)).div_ceil(u128::from(least_input.max(1)));
            u64::try_from(ratio + rounding).unwrap_or(u64::MAX)
        };
        let line = Self { base: 0, slope };
        Self {
            base: largest.saturating_add(line.at(spread)),
            slope,
        }
    }
    pub(crate) fn at(&self, window: u64) -> u64 {
        let grown = (u128::from(self.slope) * u128::from(window)).div_ceil(u128::from(ONE));
        self.base.saturating_add(u64::try_from(grown).unwrap_or(u64::MAX))
    }
    /// The least window in which `work` fits.
    pub(crate) fn when(&self, work: u64) -> u64 {
        if work <= self.base {
            return 0;
        }
        // `at` rounds up: it reaches `work` where the true line passes `work - 1`.
        let above = u128::from(work - self.base - 1) << 32;
        u64::try_from(above / u128::from(self.slope.max(1)) + 1).unwrap_or(u64::MAX)
    }
}

/// The demands of one class that reach a port over one link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bundle<'a> {
    pub(crate) demands: &'a [Demand],
    /// Work that can arrive in one instant if the link did not hinder it; saturated.
    pub(crate) at_once: u64,
    /// The least window with one more release than an instant.
    pub(crate) first_step: u64,
    /// None where they come from the node itself, or shaping is not to be counted.
    pub(crate) line: Option<Line>,
    /// `at_once` comes in this train, and `first_step` is the first release behind it; then there is no line.
    pub(crate) train: Option<&'a Train>,
}

impl<'a> Bundle<'a> {
    /// Demands that no link holds back.
    pub(crate) fn plain(demands: &'a [Demand]) -> Self {
        let sums = Sums::of(demands);
        Self {
            demands,
            at_once: sums.at_once,
            first_step: sums.first_step,
            line: None,
            train: None,
        }
    }
}

/// What does not depend on the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) at_once: u64,
    pub(crate) first_step: u64,
}

impl Sums {
    pub(crate) const NONE: Self = Self {
        at_once: 0,
        first_step: u64::MAX,
    };
    pub(crate) fn add(&mut self, demand: &Demand) {
        self.at_once = self.at_once.saturating_add(demand.at_once());
        self.first_step = self.first_step.min(demand.first_step());
    }
    pub(crate) fn of(demands: &[Demand]) -> Self {
        let mut sums = Self::NONE;
        demands.iter().for_each(|demand| sums.add(demand));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timebound_model::{Grain, Rate};

    fn plain(bps: u64) -> Speed {
        Speed {
            rate: Rate(bps),
            grain: Grain::default(),
        }
    }

    #[test]
    fn a_line_and_its_inverse_agree() {
        for (input, output) in [(1, 1), (1, 10), (10, 1), (3, 7), (100, 99)] {
            let line = Line::new(
                1_230,
                WireBytes(84),
                55,
                plain(input * 10_000_000),
                plain(output * 10_000_000),
            );
            for work in (0..40_000).step_by(37) {
                let window = line.when(work);
                assert!(line.at(window) >= work);
                assert!(window == 0 || line.at(window - 1) < work, "{line:?} {work}");
            }
        }
    }

    /// Frames back to back on the input link, counted one by one at the output.
    #[test]
    fn no_train_of_frames_is_above_its_line() {
        let transmission = |bytes: u64, bps: u64| (bytes * 8_000_000_000).div_ceil(bps);
        let mut draws = 1u64;
        for (input, output) in [(100, 100), (10, 100), (100, 10), (1000, 33), (33, 1000)]
            .map(|(a, b)| (a * 1_000_000, b * 1_000_000))
        {
            let sizes: Vec<u64> = (0..60)
                .map(|_| {
                    draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    84 + (draws >> 33) % 1_455
                })
                .collect();
            let largest = sizes.iter().map(|b| transmission(*b, output)).max().unwrap_or(0);
            let least = sizes.iter().min().map_or(0, |bytes| *bytes as u32);
            let line = Line::new(largest, WireBytes(least), 0, plain(input), plain(output));
            for first in 0..sizes.len() {
                let (mut window, mut work) = (0, transmission(sizes[first], output));
                assert!(work <= line.at(0));
                for bytes in &sizes[first + 1..] {
                    window += transmission(*bytes, input);
                    work += transmission(*bytes, output);
                    assert!(work <= line.at(window));
                }
            }
        }
    }
}

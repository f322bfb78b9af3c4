//! What real switches took for the frames that passed them, and whether that is what was declared of them.

use crate::certificate::Quantiles;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Intervals of the reported histogram per decade.
const PER_DECADE: i32 = 8;

/// One real switch in the judged part of a run. Times: from the last bit of a frame on its link to the kernel's stamp of what the
/// switch sent, so the emulator's own lateness is in them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SwitchReport {
    /// Name of the node.
    pub switch: String,
    /// The switching delay that the scenario declares of it (SD), ns.
    pub declared_min_ns: u64,
    pub declared_max_ns: u64,
    /// Frames handed to it.
    pub arrived: u64,
    /// Copies that it sent of these.
    pub left: u64,
    /// Frames of which nothing came out within two seconds: the switch dropped them, or they were for its controller.
    pub vanished: u64,
    /// Frames that it sent and that nobody had handed to it: of its controller, or its own.
    pub entered: u64,
    /// Copies that took longer than declared, and such that took less.
    pub above: u64,
    pub below: u64,
    pub transit_min_ns: u64,
    pub transit_ns: Quantiles,
    /// When the slowest one came (run time).
    pub slowest_at_ns: u64,
    /// (upper end in ns, copies) of each interval that has some; eight intervals to a decade.
    pub histogram: Vec<(u64, u64)>,
}

impl SwitchReport {
    pub(crate) fn new(switch: &str, declared_min_ns: u64, declared_max_ns: u64) -> Self {
        Self {
            switch: switch.to_owned(),
            declared_min_ns,
            declared_max_ns,
            ..Self::default()
        }
    }

    /// Back to nothing counted.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(&self.switch, self.declared_min_ns, self.declared_max_ns);
    }

    /// Together with the times.
    pub(crate) fn with(&self, transit: &Transit) -> Self {
        let times = &transit.times;
        Self {
            above: transit.above,
            below: transit.below,
            transit_min_ns: if times.is_empty() { 0 } else { times.min() },
            transit_ns: Quantiles {
                p50: times.value_at_quantile(0.5),
                p99: times.value_at_quantile(0.99),
                p999: times.value_at_quantile(0.999),
                max: transit.slowest.0,
            },
            slowest_at_ns: transit.slowest.1,
            histogram: histogram(times),
            ..self.clone()
        }
    }
}

/// What disturbed a run whose judged part took `measured_ns`, in words; nothing where every frame took what is declared.
#[must_use]
pub fn disturbances(switches: &[SwitchReport], measured_ns: u64) -> Vec<String> {
    let us = |ns: u64| format!("{:.0} us", ns as f64 / 1e3);
    let slow: Vec<_> = switches.iter().filter(|switch| switch.above > 0).collect();
    let mut said = Vec::new();
    if let Some(slowest) = slow.iter().max_by_key(|switch| switch.transit_ns.max) {
        let mut ranges: Vec<u64> = slow.iter().map(|switch| switch.declared_max_ns).collect();
        ranges.sort_unstable();
        ranges.dedup();
        let counts: Vec<_> = ranges
            .into_iter()
            .map(|declared| {
                let those: Vec<_> = slow
                    .iter()
                    .filter(|switch| switch.declared_max_ns == declared)
                    .collect();
                let frames: Vec<_> = those
                    .iter()
                    .map(|switch| format!("{} of {}", switch.above, switch.left))
                    .collect();
                let names: Vec<_> = those.iter().map(|switch| switch.switch.as_str()).collect();
                format!(
                    "{} took longer than the declared {} for {} frames",
                    names.join(", "),
                    us(declared),
                    frames.join(", ")
                )
            })
            .collect();
        // One process moves the frames of all real switches, so that what holds up one holds up all.
        let frames: u64 = switches.iter().map(|switch| switch.left).sum();
        let pace = if measured_ns == 0 {
            String::new()
        } else {
            format!(
                ". All real switches together moved {:.0} frames a second, by one thread; fewer would leave it more time",
                frames as f64 * 1e9 / measured_ns as f64
            )
        };
        said.push(format!(
            "the real switch{} {}; the longest time was {} at {:.3} s in {}. The bounds assume that this does not happen{pace}",
            if slow.len() == 1 { "" } else { "es" },
            counts.join("; "),
            us(slowest.transit_ns.max),
            slowest.slowest_at_ns as f64 / 1e9,
            slowest.switch,
        ));
    }
    said.extend(switches.iter().filter(|switch| switch.above == 0 && switch.below > 0).map(|switch| {
        format!(
            "the real switch {} took less than the declared {} for {} of {} frames, {} at least: declare a smaller minimum, as frames may \
             then follow one another more closely than the bounds assume",
            switch.switch,
            us(switch.declared_min_ns),
            switch.below,
            switch.left,
            us(switch.transit_min_ns)
        )
    }));
    said
}

/// Times of one switch, as they come.
#[derive(Debug, Clone)]
pub(crate) struct Transit {
    times: Histogram<u64>,
    above: u64,
    below: u64,
    /// Time, and when it came.
    slowest: (u64, u64),
}

impl Transit {
    pub(crate) fn new() -> Self {
        // 1 ns to 100 s in three digits: fixed bounds, so recording never allocates.
        let times = Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constant bounds are valid");
        Self {
            times,
            above: 0,
            below: 0,
            slowest: (0, 0),
        }
    }

    /// A copy took `transit_ns`; the frame had come at `at` (run time).
    pub(crate) fn record(&mut self, transit_ns: u64, at: u64, (least, greatest): (u64, u64)) {
        self.times.saturating_record(transit_ns.max(1));
        self.above += u64::from(transit_ns > greatest);
        self.below += u64::from(transit_ns < least);
        if transit_ns > self.slowest.0 {
            self.slowest = (transit_ns, at);
        }
    }
}

fn histogram(times: &Histogram<u64>) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for value in times.iter_recorded() {
        let step = (f64::from(PER_DECADE) * (value.value_iterated_to() as f64).log10()).ceil();
        let upper = 10f64.powf(step / f64::from(PER_DECADE)).round() as u64;
        match found.last_mut() {
            Some((last, count)) if *last == upper => *count += value.count_since_last_iteration(),
            _ => found.push((upper, value.count_since_last_iteration())),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: (u64, u64) = (50_000, 2_000_000);

    fn report(times: &[u64]) -> SwitchReport {
        let mut transit = Transit::new();
        for (index, time) in times.iter().enumerate() {
            transit.record(*time, index as u64 * 1_000_000_000, RANGE);
        }
        let mut report = SwitchReport::new("s4", RANGE.0, RANGE.1);
        report.left = times.len() as u64;
        report.with(&transit)
    }

    #[test]
    fn within_its_range_nothing_is_said_and_the_ends_belong_to_it() {
        let found = report(&[50_000, 2_000_000, 300_000]);
        assert_eq!((found.above, found.below), (0, 0));
        assert_eq!(disturbances(std::slice::from_ref(&found), 1_000_000_000), [""; 0]);
        assert_eq!(
            (found.transit_ns.max, found.slowest_at_ns),
            (2_000_000, 1_000_000_000)
        );
    }

    #[test]
    fn one_frame_above_the_range_is_a_disturbance_that_names_it() {
        let said = disturbances(&[report(&[100_000, 2_000_001])], 1_000_000_000).join("");
        assert!(
            said.contains("s4 took longer than the declared 2000 us for 1 of 2 frames")
                && said.contains("at 1.000 s in s4"),
            "{said}"
        );
        assert!(said.contains("moved 2 frames a second"), "{said}");
        let said = disturbances(&[report(&[100_000, 2_000_001])], 0).join("");
        assert!(!said.contains("a second"), "{said}");
        let said = disturbances(&[report(&[49_999, 100_000])], 1_000_000_000).join("");
        assert!(said.contains("less than the declared 50 us"), "{said}");
    }

    #[test]
    fn what_held_up_all_of_them_is_said_once() {
        let mut other = report(&[100_000, 3_000_001, 3_000_000]);
        other.switch = "s5".to_owned();
        let said = disturbances(&[report(&[100_000, 2_000_001]), other], 1_000_000_000);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].contains("s4, s5 took longer than the declared 2000 us for 1 of 2, 2 of 3 frames"),
            "{said:?}"
        );
        assert!(
            said[0].contains("the longest time was 3000 us at 1.000 s in s5"),
            "{said:?}"
        );
    }

    #[test]
    fn the_histogram_has_every_copy_once_in_order() {
        let times: Vec<u64> = (1..2_000).map(|index| index * 997).collect();
        let found = report(&times).histogram;
        assert_eq!(found.iter().map(|interval| interval.1).sum::<u64>(), 1_999);
        assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let below = |limit: u64| times.iter().filter(|time| **time <= limit).count() as f64;
        let mut sum = 0;
        for (upper, count) in found {
            sum += count;
            assert!(
                (sum as f64 - below(upper)).abs() <= 0.002 * below(upper) + 1.0,
                "{upper}"
            );
        }
    }
}

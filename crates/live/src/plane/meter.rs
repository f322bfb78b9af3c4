//! What the data plane did and what it cost, over the measured run.

use crate::kernel::clock;
use serde::Serialize;

/// Counters of the data plane; they grow from the thread's start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) frames_in: u64,
    pub(crate) frames_out: u64,
    pub(crate) sleeps: u64,
    pub(crate) slept_ns: u64,
    pub(crate) spun_ns: u64,
    pub(crate) restamped: u64,
}

/// `live.json`: `data_plane`. Rates and costs from time zero to the end of measuring.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Load {
    pub frames_in: u64,
    /// Frames handed over, every copy for itself.
    pub frames_out: u64,
    pub frames_in_per_s: f64,
    pub frames_out_per_s: f64,
    /// The busiest 100 ms.
    pub peak_in_per_s: f64,
    pub peak_out_per_s: f64,
    /// CPU time of the fabric's thread and of the input/output threads, the kernel's work on their calls included.
    pub fabric_cpu_ns: u64,
    pub io_cpu_ns: Vec<u64>,
    /// All of it by frames handed over, us.
    pub cpu_us_per_frame: f64,
    pub sleeps: u64,
    /// Shares of the time that the fabric's thread slept, and that it spun in the last moments before something was due.
    pub slept_share: f64,
    pub spun_share: f64,
    /// Frames whose stamp lay before the time to which the network had advanced; they entered 1 ns after it.
    pub restamped: u64,
    /// The most by which one was moved.
    pub restamped_most_ns: u64,
}

pub(crate) struct Meter {
    begun: u64,
    /// When measuring ends; nothing is added after.
    until: u64,
    last: (u64, Tally),
    first: Tally,
    first_cpu: Vec<u64>,
    peak: (f64, f64),
    /// Kernel ids of the threads that count, the fabric's first.
    threads: Vec<libc::pid_t>,
    result: Option<Load>,
}

impl Meter {
    /// Tally from `begun` (CLOCK_MONOTONIC) for `length` ns.
    pub(crate) fn new(begun: u64, length: u64, threads: Vec<libc::pid_t>) -> Self {
        Self {
            begun,
            until: begun.saturating_add(length),
            last: (0, Tally::default()),
            first: Tally::default(),
            first_cpu: Vec::with_capacity(threads.len()),
            peak: (0.0, 0.0),
            threads,
            result: None,
        }
    }

    fn cpu(&self) -> Vec<u64> {
        self.threads
            .iter()
            .map(|thread| clock::thread_cpu(*thread))
            .collect()
    }

    /// Called every 100 ms or so; the end of measuring is noted at the first call after it.
    pub(crate) fn tick(&mut self, now: u64, counts: Tally) {
        if now < self.begun || self.result.is_some() {
            return;
        }
        if self.last.0 == 0 {
            (self.first, self.last) = (counts, (now, counts));
            self.first_cpu = self.cpu();
            return;
        }
        let seconds = (now - self.last.0) as f64 / 1e9;
        if seconds > 0.05 {
            let rate = |now: u64, before: u64| (now - before) as f64 / seconds;
            self.peak.0 = self.peak.0.max(rate(counts.frames_in, self.last.1.frames_in));
            self.peak.1 = self.peak.1.max(rate(counts.frames_out, self.last.1.frames_out));
            self.last = (now, counts);
        }
        if now >= self.until {
            self.result = Some(self.load(now, counts));
        }
    }

    fn load(&self, now: u64, counts: Tally) -> Load {
        let first = &self.first;
        let nanos = now.saturating_sub(self.begun).max(1) as f64;
        let (came, went) = (
            counts.frames_in - first.frames_in,
            counts.frames_out - first.frames_out,
        );
        let cpu: Vec<u64> = (self.cpu().iter().zip(&self.first_cpu))
            .map(|(now, before)| now.saturating_sub(*before))
            .collect();
        Load {
            frames_in: came,
            frames_out: went,
            frames_in_per_s: came as f64 * 1e9 / nanos,
            frames_out_per_s: went as f64 * 1e9 / nanos,
            peak_in_per_s: self.peak.0,
            peak_out_per_s: self.peak.1,
            fabric_cpu_ns: cpu.first().copied().unwrap_or(0),
            cpu_us_per_frame: cpu.iter().sum::<u64>() as f64 / 1e3 / went.max(1) as f64,
            io_cpu_ns: cpu.get(1..).unwrap_or(&[]).to_vec(),
            sleeps: counts.sleeps - first.sleeps,
            slept_share: (counts.slept_ns - first.slept_ns) as f64 / nanos,
            spun_share: (counts.spun_ns - first.spun_ns) as f64 / nanos,
            restamped: counts.restamped - first.restamped,
            restamped_most_ns: 0,
        }
    }

    /// The result, or what there is so far.
    pub(crate) fn finish(self, now: u64, counts: Tally) -> Load {
        if self.last.0 == 0 {
            return Load::default();
        }
        match self.result {
            Some(load) => load,
            None => self.load(now, counts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(frames: u64) -> Tally {
        Tally {
            frames_in: frames,
            frames_out: 2 * frames,
            ..Tally::default()
        }
    }

    #[test]
    fn rates_are_those_of_the_measured_time_and_the_peak_that_of_its_busiest_part() {
        let second = 1_000_000_000;
        let mut meter = Meter::new(second, second, Vec::new());
        meter.tick(second / 2, counts(1_000)); // before it begins
        meter.tick(second, counts(5_000));
        for tenth in 1..=10 {
            let burst = if tenth >= 4 { 900 } else { 0 };
            meter.tick(second + tenth * second / 10, counts(5_000 + 100 * tenth + burst));
        }
        meter.tick(3 * second, counts(1_000_000)); // after its end
        let load = meter.finish(4 * second, counts(2_000_000));
        assert_eq!((load.frames_in, load.frames_out), (1_900, 3_800));
        assert!((load.frames_in_per_s - 1_900.0).abs() < 1.0);
        assert!((load.peak_in_per_s - 10_000.0).abs() < 1.0 && (load.peak_out_per_s - 20_000.0).abs() < 1.0);
    }
}

//! How late a bare timer thread wakes on this host, and what reading its clock costs: what no emulator on it can do better than.

use crate::certificate::Quantiles;
use crate::kernel::{clock, sched};
use serde::Serialize;
use std::time::Duration;

/// Interval of the timer.
const STEP_NS: u64 = 1_000_000;
/// Priority of the real-time thread: the data plane's.
const PRIORITY: i32 = 60;
/// Readings of the clock that are timed together, and how often.
const READS: u64 = 10_000;
const ROUNDS: u64 = 7;

/// What was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Timers {
    /// Best of several rounds.
    pub clock_read_ns: u64,
    /// Lateness of wake-ups of a thread under SCHED_OTHER with the least timer slack.
    pub normal_ns: Quantiles,
    /// Under SCHED_FIFO; null where the host refuses that.
    pub fifo_ns: Option<Quantiles>,
}

/// Measures for twice `length`.
///
/// # Panics
/// Where no thread can be started.
#[must_use]
pub fn timers(length: Duration) -> Timers {
    let measured = |fifo: bool| {
        let thread =
            std::thread::spawn(move || (!fifo || sched::enter_fifo(PRIORITY)).then(|| wake_ups(length)));
        thread
            .join()
            .expect("the timer thread only sleeps and reads clocks")
    };
    Timers {
        clock_read_ns: clock_read(),
        normal_ns: measured(false).unwrap_or_default(),
        fifo_ns: measured(true),
    }
}

fn clock_read() -> u64 {
    let round = || {
        let begun = clock::monotonic();
        for _ in 1..READS {
            std::hint::black_box(clock::monotonic());
        }
        (clock::monotonic() - begun) / READS
    };
    (0..ROUNDS).map(|_| round()).min().unwrap_or(0)
}

fn wake_ups(length: Duration) -> Quantiles {
    sched::tighten_timer_slack();
    let count = (length.as_nanos() as u64 / STEP_NS).max(1);
    let mut late = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    let mut next = clock::monotonic();
    for _ in 0..count {
        next += STEP_NS;
        clock::sleep_until(next);
        let now = clock::monotonic();
        late.push(now.saturating_sub(next));
        // What was missed altogether is one late wake-up, not many.
        next = next.max(now.saturating_sub(STEP_NS));
    }
    late.sort_unstable();
    let at = |share: f64| late[((late.len() - 1) as f64 * share).round() as usize];
    Quantiles {
        p50: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
        max: at(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_timer_fires_early_and_quantiles_are_in_order() {
        let found = timers(Duration::from_millis(30));
        for quantiles in std::iter::once(&found.normal_ns).chain(&found.fifo_ns) {
            assert!(quantiles.max > 0, "a wake-up takes time");
            assert!(quantiles.p50 <= quantiles.p99 && quantiles.p99 <= quantiles.max);
        }
        assert!(found.clock_read_ns < 100_000);
    }
}

//! Lateness of departures beside a CPU hog, and of a bare timer thread beside the same hog.

use super::{Star, address, median, quantile, stolen};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const NODES: usize = 350;
const RATE: u64 = 20_000;
const SECONDS: f64 = 4.0;
const RUNS: usize = 5;
const MOST_RUNS: usize = 9;

/// A thread at normal priority that only computes, until told to stop or for 30 s.
fn hog(stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let begun = std::time::Instant::now();
        while !stop.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(30) {
            std::hint::spin_loop();
        }
    })
}

/// p50 and p99 of how late a thread under SCHED_FIFO wakes from absolute sleeps of 1 ms, us.
fn bare_timer(seconds: f64) -> (f64, f64) {
    let work = move || {
        let parameters = libc::sched_param { sched_priority: 60 };
        // SAFETY: plain system calls on the calling thread with live arguments.
        unsafe {
            libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters);
            libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
        }
        let now = || {
            let mut now = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: a live timespec.
            unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        let mut next = now() + 1_000_000;
        let end = next + (seconds * 1e9) as u64;
        let mut late = Vec::with_capacity((seconds * 1e3) as usize + 1);
        while next < end {
            let at = libc::timespec {
                tv_sec: (next / 1_000_000_000) as i64,
                tv_nsec: (next % 1_000_000_000) as i64,
            };
            // SAFETY: a live timespec; no remainder is asked for.
            unsafe {
                libc::clock_nanosleep(
                    libc::CLOCK_MONOTONIC,
                    libc::TIMER_ABSTIME,
                    &raw const at,
                    std::ptr::null_mut(),
                )
            };
            late.push((now() - next) as f64 / 1e3);
            next += 1_000_000;
        }
        late.sort_by(f64::total_cmp);
        (quantile(&late, 0.5), quantile(&late, 0.99))
    };
    std::thread::spawn(work).join().expect("the timer thread")
}

pub(crate) fn run() {
    println!(
        "\nlateness: {RATE} frames/s offered by {} of {NODES} nodes to the others (UDP of 200 bytes, 0.5 ms a link, one switch), {SECONDS} s, one \
         thread of normal priority that only computes. A bare SCHED_FIFO thread that sleeps to absolute times 1 ms apart beside the same hog says \
         what the machine itself does: once with the emulation at work, once before and after it. Medians of {RUNS} runs without CPU steal (of at \
         most {MOST_RUNS}).",
        NODES / 2
    );
    let (mut ours, mut bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut early, mut runs) = (0.0, 0);
    while ours.len() < RUNS && runs < MOST_RUNS {
        runs += 1;
        let before = stolen();
        let stop = Arc::new(AtomicBool::new(false));
        let hog = hog(&stop);
        let first = bare_timer(1.5);
        let gap = (NODES as u64 / 2 * 1_000_000_000 / RATE).to_string();
        let mut star = Star::new(NODES, 1_000_000_000, 500_000, SECONDS);
        for pair in 0..NODES / 2 {
            star.role(
                2 * pair + 1,
                &["hold", &format!("{}:7000", address(2 * pair + 1))],
                false,
            );
            star.role(
                2 * pair,
                &["pace", &format!("{}:7000", address(2 * pair + 1)), &gap],
                true,
            );
        }
        let beside = std::thread::spawn(|| bare_timer(SECONDS));
        let outcome = run_star(&star);
        let beside = beside.join().expect("the timer thread beside the emulation");
        let second = bare_timer(1.5);
        stop.store(true, Ordering::Relaxed);
        hog.join().expect("the hog");
        let steal = stolen() - before;
        let lateness = &outcome["precision"]["lateness_ns"];
        let us = |key: &str| lateness[key].as_f64().unwrap_or(f64::NAN) / 1e3;
        let timer = f64::midpoint(first.1, second.1);
        early += outcome["precision"]["early"].as_f64().unwrap_or(f64::NAN);
        println!(
            "  run {runs}: {:.0} frames/s out, p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us; bare timer beside it p50 {:.1} us, p99 {:.1} us, alone p99 {timer:.1} us; ratio of p99 {:.2} beside, {:.2} alone; FIFO {}; ring lost {}; steal {steal} ticks; {:.2} us CPU per frame",
            outcome["data_plane"]["frames_out_per_s"].as_f64().unwrap_or(0.0),
            us("p50"),
            us("p99"),
            us("p999"),
            beside.0,
            beside.1,
            us("p99") / beside.1,
            us("p99") / timer,
            outcome["precision"]["fifo"],
            outcome["precision"]["ring_lost"],
            outcome["data_plane"]["cpu_us_per_frame"]
                .as_f64()
                .unwrap_or(f64::NAN),
        );
        if steal == 0 {
            ours.push(us("p99"));
            bare.push(beside.1);
            ratios.push(us("p99") / beside.1);
        }
    }
    println!(
        "  median of {} runs without steal: p99 {:.1} us, bare timer {:.1} us, ratio {:.2} (asked for: at most 1.5); released early: {early}",
        ours.len(),
        median(&mut ours),
        median(&mut bare),
        median(&mut ratios)
    );
}

fn run_star(star: &Star) -> serde_json::Value {
    super::run(&star.plan).live
}

//! `random-networks [COUNT] [SEED] [EVALUATIONS] [FIRST]`: no simulated latency above its bound on COUNT random networks from number FIRST
//! (0) on, with EVALUATIONS of the search for each receiver; exit code 1 if one is.
//!
//! Each block of networks is told on stderr as soon as it is done, and what is broken at once: a long run that was interrupted goes on
//! with `FIRST` after the last block that was told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use timebound_benches::hold::{Held, METHODS, check};
use timebound_benches::spread::Spread;

/// Networks between two lines of progress.
const BLOCK: u64 = 5_000;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| {
        a.parse::<u64>()
            .expect("COUNT, SEED, EVALUATIONS and FIRST are numbers")
    });
    let (count, seed) = (arguments.next().unwrap_or(100_000), arguments.next().unwrap_or(1));
    let (evaluations, first) = (arguments.next().unwrap_or(12), arguments.next().unwrap_or(0));
    let started = Instant::now();
    let mut all = Held::default();
    let mut from = first;
    while from < first + count {
        let end = (from + BLOCK).min(first + count);
        all.add(block(seed, from..end, evaluations));
        eprintln!(
            "networks {first} to {}: {} receivers with a bound, {} broken; {:.0} s",
            end - 1,
            all.bounded,
            all.broken.len(),
            started.elapsed().as_secs_f64()
        );
        from = end;
    }
    println!(
        "{count} random networks (seed {seed}): {} receivers with a bound, {} without, {} evaluations, {} broken by {METHODS:?}; bound / worst \
         found: {}; {:.1} s",
        all.bounded,
        all.unbounded,
        all.evaluations,
        all.broken.len(),
        Spread::new(all.tightness),
        started.elapsed().as_secs_f64()
    );
    std::process::exit(i32::from(!all.broken.is_empty()));
}

/// The networks of a range, on all processors.
fn block(seed: u64, range: std::ops::Range<u64>, evaluations: u64) -> Held {
    let next = AtomicU64::new(range.start);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let work = || {
        let mut sum = Held::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= range.end {
                return sum;
            }
            let held = check(seed, index, evaluations);
            for text in &held.broken {
                println!("BROKEN {text}");
            }
            sum.add(held);
        }
    };
    let mut all = Held::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            all.add(worker.join().expect("no worker panics"));
        }
    });
    all
}

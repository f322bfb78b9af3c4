//! `random-networks [COUNT] [SEED]`: no simulated latency above its bound on COUNT random networks; exit code 1 if one is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use timebound_benches::generate::Limits;
use timebound_benches::hold::{Held, check};

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|a| a.parse::<u64>().expect("COUNT and SEED are numbers"));
    let (count, seed) = (arguments.next().unwrap_or(10_000), arguments.next().unwrap_or(1));
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let parts: Vec<Vec<Held>> = std::thread::scope(|scope| {
        let work = || {
            let mut found = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return found;
                }
                found.push(check(seed, index, &Limits::default(), 100));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|w| w.join().expect("no worker panics"))
            .collect()
    });
    let all: Vec<Held> = parts.into_iter().flatten().collect();
    let mut tightness: Vec<f64> = all.iter().flat_map(|h| h.tightness.iter().copied()).collect();
    tightness.sort_by(f64::total_cmp);
    let at = |q: f64| {
        tightness
            .get(((tightness.len().max(1) - 1) as f64 * q) as usize)
            .copied()
            .unwrap_or(f64::NAN)
    };
    let bounded: u64 = all.iter().map(|h| h.bounded).sum();
    let unbounded: u64 = all.iter().map(|h| h.unbounded).sum();
    let broken: Vec<&String> = all.iter().flat_map(|h| &h.broken).collect();
    println!(
        "{count} random networks (seed {seed}): {bounded} receivers with a bound, {unbounded} without, {} broken; bound / worst found: \
         mean {:.3}, median {:.3}, p90 {:.3}, max {:.2}; {:.1} s",
        broken.len(),
        tightness.iter().sum::<f64>() / tightness.len().max(1) as f64,
        at(0.5),
        at(0.9),
        at(1.0),
        started.elapsed().as_secs_f64()
    );
    for text in broken.iter().take(20) {
        println!("BROKEN {text}");
    }
    std::process::exit(i32::from(!broken.is_empty()));
}

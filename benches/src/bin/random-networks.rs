//! `random-networks [COUNT] [SEED] [EVALUATIONS]`: no simulated latency above its bound on COUNT random networks, with EVALUATIONS of the
//! search for each receiver; exit code 1 if one is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use timebound_benches::hold::{Held, METHODS, check};
use timebound_benches::spread::Spread;

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|a| a.parse::<u64>().expect("COUNT, SEED and EVALUATIONS are numbers"));
    let (count, seed) = (arguments.next().unwrap_or(100_000), arguments.next().unwrap_or(1));
    let evaluations = arguments.next().unwrap_or(12);
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let parts: Vec<Held> = std::thread::scope(|scope| {
        let work = || {
            let mut sum = Held::default();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return sum;
                }
                sum.add(check(seed, index, evaluations));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|w| w.join().expect("no worker panics"))
            .collect()
    });
    let mut all = Held::default();
    parts.into_iter().for_each(|part| all.add(part));
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
    for text in all.broken.iter().take(20) {
        println!("BROKEN {text}");
    }
    std::process::exit(i32::from(!all.broken.is_empty()));
}

//! `random-media [COUNT] [SEED] [EVALUATIONS] [DRESS]`: no simulated latency and no queue above its bound on COUNT random networks for each way to
//! be served (weighted ports, half-duplex media, slots), with and without undeclared best effort; exit code 1 if one is.
//! With DRESS (0 for weighted ports, and so on in the order of `Dress::ALL`) that one alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use timebound_benches::hold::{Held, hold_with};
use timebound_benches::media::{Dress, dressed};
use timebound_benches::spread::Spread;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| {
        a.parse::<u64>()
            .expect("COUNT, SEED, EVALUATIONS and DRESS are numbers")
    });
    let (count, seed) = (arguments.next().unwrap_or(1_000), arguments.next().unwrap_or(1));
    let evaluations = arguments.next().unwrap_or(12);
    let chosen = arguments.next();
    let dresses = (0u64..).zip(Dress::ALL);
    let mut broken = 0;
    for (_, dress) in dresses.filter(|(number, _)| chosen.is_none_or(|chosen| chosen == *number)) {
        for best_effort in [true, false] {
            let started = Instant::now();
            let all = sum(count, |index| {
                let network = Arc::new(dressed(seed, index, dress));
                hold_with(&network, index, evaluations, best_effort)
            });
            println!(
                "{count} networks, {dress:?}{}: {} receivers with a bound, {} without, {} broken; bound / worst found: {}; {:.1} s",
                if best_effort { "" } else { ", no best effort" },
                all.bounded,
                all.unbounded,
                all.broken.len(),
                Spread::new(all.tightness),
                started.elapsed().as_secs_f64()
            );
            for text in all.broken.iter().take(5) {
                println!("BROKEN {text}");
            }
            broken += all.broken.len();
        }
    }
    std::process::exit(i32::from(broken > 0));
}

/// `check` of every index, on all processors.
fn sum(count: u64, check: impl Fn(u64) -> Held + Sync) -> Held {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let work = || {
        let mut sum = Held::default();
        let indices = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        indices
            .take_while(|index| *index < count)
            .for_each(|index| sum.add(check(index)));
        sum
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

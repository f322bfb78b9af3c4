//! A manager beside HAProxy and no intermediary at all, in front of one mosquitto, on loopback.
//!
//! `cargo run --release --example bench-manager -- [REPEATS [SECONDS [MOST]]]`: every measurement is made of each in turn, that many times (3), for so
//! many seconds (2), and the median of the repeats is printed; MOST (10,000) connections are held for their memory. Messages have 100 bytes
//! of payload. Latency is from the publisher's write to the subscriber's read, at 10,000 messages per second on one connection, or on 1,000 in
//! turn; throughput is of a closed loop with 100 messages under way on one connection, or 4 on each of 1,000. What is not installed is left out.

mod load;
mod peers;

use load::Kind;
use peers::{Mosquitto, Way};
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

const RATE: u64 = 10_000;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == peers::SERVE) {
        return peers::serve(&arguments[2..]);
    }
    let number = |index: usize, default: u64| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (repeats, seconds, most) = (number(1, 3)?, number(2, 2)?, number(3, 10_000)?);
    let broker = Mosquitto::start()?;
    let ways = Way::all(&broker)?;
    for (kind, connections) in [
        (Kind::Qos0, 1),
        (Kind::Qos1, 1),
        (Kind::Qos0, 1_000),
        (Kind::Qos1, 1_000),
    ] {
        compare(&ways, repeats, kind, connections, Duration::from_secs(seconds))?;
    }
    for way in &ways {
        memory(way, usize::try_from(most)?)?;
    }
    Ok(())
}

/// p50 and p99 in us, and messages per second.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    p50: f64,
    p99: f64,
    most: f64,
}

fn compare(
    ways: &[Way],
    repeats: u64,
    kind: Kind,
    connections: usize,
    time: Duration,
) -> Result<(), Failure> {
    let mut found = vec![Vec::new(); ways.len()];
    for _ in 0..repeats {
        for (way, figures) in ways.iter().zip(&mut found) {
            let mut latencies = load::paced(way.port, kind, connections, RATE, time)?;
            latencies.sort_unstable();
            let quantile = |share: f64| {
                let at = (latencies.len() as f64 * share) as usize;
                latencies.get(at).map_or(f64::NAN, |ns| *ns as f64 / 1_000.0)
            };
            let window = if connections == 1 { 100 } else { 4 };
            figures.push(Figures {
                p50: quantile(0.5),
                p99: quantile(0.99),
                most: load::closed(way.port, kind, connections, window, time)?,
            });
        }
    }
    let medians: Vec<Figures> = found.iter().map(|figures| median(figures)).collect();
    for (way, figures) in ways.iter().zip(&medians) {
        println!(
            "{kind}, {connections} connections, {:<8} p50 {:7.1} us ({:+6.1}), p99 {:8.1} us; {:8.0} messages/s ({:5.1} % of direct)",
            way.name,
            figures.p50,
            figures.p50 - medians[0].p50,
            figures.p99,
            figures.most,
            100.0 * figures.most / medians[0].most,
        );
    }
    Ok(())
}

fn median(figures: &[Figures]) -> Figures {
    let of = |pick: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = figures.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    Figures {
        p50: of(|one| one.p50),
        p99: of(|one| one.p99),
        most: of(|one| one.most),
    }
}

/// Resident memory of a way with so many connections that have each sent a message.
fn memory(way: &Way, connections: usize) -> Result<(), Failure> {
    let Some(before) = way.resident_kib() else {
        return Ok(());
    };
    let held = load::hold(way.port, connections)?;
    let after = way.resident_kib().unwrap_or(0);
    println!(
        "memory, {} connections held of {connections}, {:<8} {} KiB before, {} KiB with them: {:.2} KiB each",
        held.len(),
        way.name,
        before,
        after,
        (after.saturating_sub(before)) as f64 / held.len().max(1) as f64,
    );
    Ok(())
}

//! A manager beside HAProxy and no intermediary at all, in front of one mosquitto, on loopback.
//!
//! `cargo run --release -p timebound-manager --example bench-manager -- [REPEATS [MILLISECONDS [MOST [RATE [WAYS]]]]]`
//!
//! Each of four loads (QoS 0 and 1, on 1 connection and on 1,000) is put on every way in turn, for MILLISECONDS (250), REPEATS (20) times, each time
//! beginning with another way: what a machine does meanwhile it does to all of them. Connections are open before. Medians are printed; what is
//! compared (added p50, share of the throughput) is compared within a repeat, and the median of that is printed. WAYS names some with commas.
//!
//! - Latency: RATE (10,000) messages per second on one connection, or on 1,000 in turn, each with a subscriber of its own; from the publisher's write to
//!   the subscriber's read. *Late* is how much later than its time a message was written, at p99: what a busy machine does to the load itself.
//! - Throughput: a closed loop with 100 messages under way on one connection, or 4 on each of 1,000, every client subscribed to what it publishes.
//! - CPU: what the threads of the way's process ran (`/proc/PID/task/*/schedstat`), for a message that passed it once in each direction; *all*: of
//!   clients, way and broker together in the closed loop. How many messages come with one read is in it, and others that take their share of the
//!   machine change that, too.
//! - *Others*: CPU time that neither clients, broker nor way took, and what a hypervisor took, as a share of the machine.
//! - MOST (10,000) connections, or as many as the limit of open files allows: how fast 64 at a time get their CONNACK and SUBACK, how many of them then
//!   get a message that they publish to themselves, and resident memory for each (the kernel's buffers are not in it).
//!
//! Same broker, same clients, messages of MQTT 5 with 100 bytes of payload, TCP_NODELAY on every socket (HAProxy sets it by itself). HAProxy and manager each
//! with one thread that serves, and with two. What is not installed is left out.

mod figures;
mod load;
mod machine;
mod peers;

use figures::Figures;
use load::Kind;
use machine::Watch;
use peers::{Mosquitto, Way};
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

/// What is not counted at the beginning of a slice.
const WARM_UP: Duration = Duration::from_millis(50);

/// What is put on each way.
#[derive(Debug, Clone, Copy)]
struct Load {
    kind: Kind,
    connections: usize,
    /// Messages per second, of the paced part.
    rate: u64,
    time: Duration,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == peers::SERVE) {
        return peers::serve(&arguments[2..]);
    }
    let number = |index: usize, default: u64| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (repeats, slice, most, rate) = (
        number(1, 20)?,
        number(2, 250)?,
        number(3, 10_000)?,
        number(4, 10_000)?,
    );
    machine::raise_limit(2 * most + 1_000);
    let broker = Mosquitto::start()?;
    let wanted = arguments.get(5).map(|names| names.split(',').collect::<Vec<_>>());
    let mut ways = Way::all(&broker)?;
    ways.retain(|way| wanted.as_ref().is_none_or(|wanted| wanted.contains(&way.name)));
    for (kind, connections) in [
        (Kind::Qos0, 1),
        (Kind::Qos1, 1),
        (Kind::Qos0, 1_000),
        (Kind::Qos1, 1_000),
    ] {
        let load = Load {
            kind,
            connections,
            rate,
            time: Duration::from_millis(slice),
        };
        compare(&broker, &ways, usize::try_from(repeats)?, load)?;
    }
    if most > 0 {
        let possible = most.min(peers::most_connections());
        println!(
            "\n{possible} connections at a time (wanted {most}; {} open files are allowed)",
            machine::files()
        );
        for way in &ways {
            held(way, usize::try_from(possible)?)?;
        }
    }
    Ok(())
}

fn compare(broker: &Mosquitto, ways: &[Way], repeats: usize, load: Load) -> Result<(), Failure> {
    let ours: Vec<u32> = [std::process::id(), broker.id()]
        .into_iter()
        .chain(ways.iter().filter_map(Way::id))
        .collect();
    let mut rounds = vec![vec![Figures::default(); ways.len()]; repeats];
    let order = |repeat: usize| (0..ways.len()).map(move |at| (at + repeat) % ways.len());
    let opened = ways.iter().map(|way| load::Paced::open(way, load));
    let mut paced = opened.collect::<Result<Vec<_>, _>>()?;
    // What the kernel rounds a sleep to.
    // SAFETY: the call changes this thread's timer slack and nothing else.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    for (repeat, round) in rounds.iter_mut().enumerate() {
        for at in order(repeat) {
            paced[at].slice(&ways[at], load, &ours, &mut round[at])?;
        }
    }
    drop(paced);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let opened = ways.iter().map(|way| load::Closed::open(way, load));
        let mut closed = opened.collect::<Result<Vec<_>, _>>()?;
        for (repeat, round) in rounds.iter_mut().enumerate() {
            for at in order(repeat) {
                closed[at].slice(&ways[at], load, &ours, &mut round[at]).await?;
            }
        }
        Ok::<(), Failure>(())
    })?;
    println!(
        "\n{}, {} connection{}, {} messages/s, medians of {repeats}",
        load.kind,
        load.connections,
        if load.connections == 1 { "" } else { "s" },
        load.rate,
    );
    figures::print(ways, &rounds);
    Ok(())
}

fn held(way: &Way, connections: usize) -> Result<(), Failure> {
    let before = way.resident_kib();
    let watch = Watch::begin(way.id(), &[]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let held = load::hold(&runtime, way.port, connections)?;
    let cpu = watch.end().watched;
    print!(
        "{:<10} {} held, {:.0} accepted/s, {} of them passed a message",
        way.name, held.connections, held.rate, held.passed,
    );
    if let (Some(before), Some(after)) = (before, way.resident_kib()) {
        let each = |amount: f64| amount / held.connections.max(1) as f64;
        print!(
            "; CPU {:.0} us each, {before} KiB before, {after} KiB with them: {:.2} KiB each",
            each(cpu.as_secs_f64() * 1e6),
            each(after.saturating_sub(before) as f64),
        );
    }
    println!();
    drop(held);
    // The broker and the way are still taking leave of them.
    std::thread::sleep(Duration::from_secs(2));
    Ok(())
}

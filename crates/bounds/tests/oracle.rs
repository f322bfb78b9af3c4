//! Tiny networks, exhaustively: every phasing on the grid, every release pattern, every way to settle ties.
//!
//! Of each network the worst latencies that any run showed are compared with the bounds: never above, and on a single port exactly equal.
//! `cargo test --test oracle -- --nocapture` prints the tightness.

mod support;

use std::collections::BTreeMap;
use support::simulator::{Release, Run, Ties, simulate};
use support::{BYTE_PER_NANO, Builder, alone, bound};
use timebound_bounds::holistic;
use timebound_model::{Arrival, Network};

/// When the releases of a stream come, relative to their period.
#[derive(Debug, Clone, Copy)]
enum Pattern {
    Punctual,
    /// All as late as their jitter allows.
    Late,
    /// The first as late as possible, the next ones catching up with it.
    Bunched,
}

impl Pattern {
    const ALL: [Self; 3] = [Self::Punctual, Self::Late, Self::Bunched];
    fn lateness(self, number: u64, period: u64, jitter: u64) -> u64 {
        match self {
            Self::Punctual => 0,
            Self::Late => jitter,
            Self::Bunched => jitter.saturating_sub(number * period),
        }
    }
}

/// How switches choose from their range.
const SWITCHING: [&str; 3] = ["least", "greatest", "first frame greatest"];

struct Source {
    period: u64,
    jitter: u64,
    frames: Vec<u32>,
}

fn sources(network: &Network) -> Vec<Source> {
    let source = |stream: &timebound_model::Stream| match &stream.arrival {
        Arrival::Periodic {
            period,
            jitter,
            frames,
        } => Source {
            period: period.0,
            jitter: jitter.0,
            frames: frames.iter().map(|bytes| bytes.0).collect(),
        },
        Arrival::TokenBucket { .. } | Arrival::Unbounded { .. } => {
            panic!("the oracle only knows periodic streams")
        }
    };
    network.streams.iter().map(source).collect()
}

/// Every combination of `choices[i]` values for digit `i`.
fn combinations(choices: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    let total: usize = choices.iter().product();
    (0..total).map(|mut number| {
        choices
            .iter()
            .map(|&count| {
                let digit = number % count;
                number /= count;
                digit
            })
            .collect()
    })
}

fn releases(sources: &[Source], offsets: &[u64], patterns: &[Pattern], until: u64) -> Vec<Release> {
    let mut releases = Vec::new();
    for (stream, source) in sources.iter().enumerate() {
        for number in 0.. {
            let nominal = offsets[stream] + number * source.period;
            if nominal > until {
                break;
            }
            let actual = nominal + patterns[stream].lateness(number, source.period, source.jitter);
            releases.extend(source.frames.iter().map(|&bytes| Release {
                stream,
                nominal,
                actual,
                bytes,
            }));
        }
    }
    releases
}

/// The worst that any run shows, per stream and leaf: from the nominal and from the actual release.
type Worst = BTreeMap<(usize, usize), (u64, u64)>;

fn search(network: &Network, grid: u64) -> (Worst, BTreeMap<u32, u64>, usize) {
    let sources = sources(network);
    let steps: Vec<usize> = sources.iter().map(|s| s.period.div_ceil(grid) as usize).collect();
    let patterns: Vec<usize> = sources.iter().map(|s| if s.jitter > 0 { 3 } else { 1 }).collect();
    let ranged = network
        .nodes
        .iter()
        .any(|node| node.switching_min < node.switching_max);
    let until = 2 * sources.iter().map(|s| s.period + s.jitter).max().unwrap_or(0);
    let single = network.links.len() == 1;
    let (mut worst, mut waiting, mut runs) = (Worst::new(), BTreeMap::new(), 0);
    for phase in combinations(&steps) {
        let offsets: Vec<u64> = phase.iter().map(|step| *step as u64 * grid).collect();
        for choice in combinations(&patterns) {
            let patterns: Vec<Pattern> = choice.iter().map(|index| Pattern::ALL[*index]).collect();
            let releases = releases(&sources, &offsets, &patterns, until);
            for switching in &SWITCHING[..if ranged { 3 } else { 1 }] {
                let ties = [Ties::LowerFirst, Ties::HigherFirst];
                // Every stream takes its turn as the one that loses ties; where there is one port there is time for all of them.
                let turns = if single {
                    0..sources.len()
                } else {
                    runs / 2 % sources.len()..runs / 2 % sources.len() + 1
                };
                for (ties, unlucky) in ties
                    .into_iter()
                    .flat_map(|ties| turns.clone().map(move |turn| (ties, turn)))
                {
                    runs += 1;
                    let run = Run {
                        network,
                        releases: &releases,
                        best_effort: &[],
                        ties,
                        unlucky,
                    };
                    let mut first = BTreeMap::new();
                    let seen = simulate(&run, &mut |port, least, greatest| match *switching {
                        "least" => least,
                        "greatest" => greatest,
                        _ if first.insert(port, ()).is_none() => greatest,
                        _ => least,
                    });
                    for (place, nominal) in seen.from_nominal {
                        let entry = worst.entry(place).or_insert((0, 0));
                        *entry = (entry.0.max(nominal), entry.1.max(seen.from_actual[&place]));
                    }
                    for (port, bytes) in seen.waiting {
                        let most = waiting.entry(port.0).or_insert(0u64);
                        *most = bytes.max(*most);
                    }
                }
            }
        }
    }
    (worst, waiting, runs)
}

/// Searches a network exhaustively and returns, per stream and leaf, bound over worst from the actual release.
fn tightness(title: &str, builder: &Builder, grid: u64) -> Vec<f64> {
    let network = builder.network();
    let analysis = holistic(&network, &alone());
    let (worst, waiting, runs) = search(&network, grid);
    let mut ratios = Vec::new();
    for ((stream, leaf), (nominal, actual)) in worst {
        let result = &analysis.streams[stream];
        let (from_nominal, from_actual, _) = bound(&result.leaves[leaf]).expect("a bound");
        assert!(
            actual <= from_actual.0,
            "{title}: {} took {actual} ns, bound {from_actual}",
            result.stream
        );
        assert!(
            nominal <= from_nominal.0,
            "{title}: {} took {nominal} ns, bound {from_nominal}",
            result.stream
        );
        ratios.push(from_actual.0 as f64 / actual as f64);
    }
    for (port, bytes) in waiting {
        let result = &analysis.ports[port as usize];
        assert!(
            Some(bytes) <= result.backlog_bytes,
            "{title}: {bytes} bytes wait at {}",
            result.name
        );
    }
    println!("{title}: {runs} runs, bound over worst {ratios:.3?}");
    ratios
}

fn two_hosts() -> Builder {
    Builder::new(BYTE_PER_NANO, 0).host("a").host("z").link("a", "z")
}

fn exact(title: &str, builder: &Builder, grid: u64) {
    let ratios = tightness(title, builder, grid);
    assert!(
        ratios.iter().all(|ratio| *ratio == 1.0),
        "{title}: a single port is exact, not {ratios:?}"
    );
}

#[test]
fn one_port_is_exact() {
    let to: (&str, &[&str]) = ("a", &["z"]);
    exact(
        "push-through",
        &two_hosts()
            .stream("high", 3, to, (5, 0, &[2]))
            .stream("middle", 2, to, (7, 0, &[2]))
            .stream("low", 1, to, (7, 0, &[2])),
        1,
    );
    exact(
        "jitter beyond the period",
        &two_hosts()
            .stream("f", 3, to, (8, 11, &[2]))
            .stream("g", 3, to, (10, 3, &[3]))
            .stream("low", 1, to, (30, 0, &[4])),
        1,
    );
    exact(
        "four classes",
        &two_hosts()
            .stream("f", 7, to, (8, 0, &[2]))
            .stream("g", 5, to, (9, 2, &[1]))
            .stream("h", 3, to, (10, 0, &[2]))
            .stream("i", 1, to, (12, 0, &[3])),
        1,
    );
    exact(
        "bursts",
        &two_hosts()
            .stream("f", 3, to, (16, 5, &[1, 2, 2]))
            .stream("g", 3, to, (18, 0, &[3, 1])),
        1,
    );
    let fifo = two_hosts().change(|d| d.queue = timebound_model::declaration::QueueDecl::Fifo);
    exact(
        "fifo",
        &fifo
            .stream("f", 7, to, (9, 4, &[2]))
            .stream("g", 1, to, (12, 0, &[4])),
        1,
    );
}

/// a - s - t - z, b - s, c - t.
fn line(delay: u64, switching: (u64, u64)) -> Builder {
    Builder::new(BYTE_PER_NANO, delay)
        .host("a")
        .host("b")
        .host("c")
        .host("z")
        .switch("s", switching.0, switching.1)
        .switch("t", switching.0, switching.1)
        .link("a", "s")
        .link("b", "s")
        .link("s", "t")
        .link("c", "t")
        .link("t", "z")
}

#[test]
fn two_shared_ports_stay_below_the_bound() {
    let z: &[&str] = &["z"];
    let all = [
        tightness(
            "blocking twice",
            &line(1, (0, 0))
                .stream("f0", 5, ("a", z), (40, 0, &[2]))
                .stream("f1", 3, ("b", z), (40, 0, &[9]))
                .stream("f2", 3, ("c", z), (40, 0, &[7])),
            1,
        ),
        tightness(
            "one class",
            &line(0, (0, 0))
                .stream("f", 5, ("a", z), (16, 0, &[3]))
                .stream("g", 5, ("b", z), (18, 0, &[4]))
                .stream("h", 5, ("c", z), (20, 0, &[5])),
            1,
        ),
        tightness(
            "jitter and switching",
            &line(1, (0, 3))
                .stream("f", 5, ("a", z), (18, 9, &[2]))
                .stream("g", 4, ("b", z), (20, 0, &[4]))
                .stream("h", 5, ("c", z), (14, 16, &[3])),
            2,
        ),
        tightness(
            "multicast",
            &line(0, (1, 2))
                .stream("f", 5, ("a", &["c", "z", "b"]), (14, 3, &[2]))
                .stream("g", 5, ("b", &["z", "c"]), (16, 0, &[3]))
                .stream("h", 4, ("c", z), (15, 5, &[4])),
            2,
        ),
        tightness(
            "bursts",
            &line(0, (0, 2))
                .stream("f", 5, ("a", z), (24, 2, &[2, 3, 1]))
                .stream("g", 5, ("b", z), (24, 0, &[4]))
                .stream("h", 6, ("c", z), (20, 0, &[2, 2])),
            2,
        ),
    ];
    let mean = all.iter().flatten().sum::<f64>() / all.iter().flatten().count() as f64;
    println!("mean bound over worst {mean:.3}");
    assert!(mean < 1.4, "the bounds have become loose: {mean}");
}

/// Three streams around a ring, each over two of its three links: their ports depend on each other in a circle.
#[test]
fn a_ring_settles_at_a_fixed_point_above_every_run() {
    let mut ring = Builder::new(BYTE_PER_NANO, 0);
    for (host, switch) in [("a", "s"), ("b", "t"), ("c", "u")] {
        ring = ring.host(host).switch(switch, 0, 1).link(host, switch);
    }
    ring = ring.link("s", "t").link("t", "u").link("u", "s");
    let ring = ring
        .stream("f", 5, ("a", &["c"]), (14, 3, &[2]))
        .route(&[&["a", "s", "t", "u", "c"]])
        .stream("g", 5, ("b", &["a"]), (16, 0, &[3]))
        .route(&[&["b", "t", "u", "s", "a"]])
        .stream("h", 5, ("c", &["b"]), (15, 0, &[2]))
        .route(&[&["c", "u", "s", "t", "b"]]);
    let ratios = tightness("ring", &ring, 2);
    assert!(ratios.iter().all(|ratio| *ratio < 3.0));
}

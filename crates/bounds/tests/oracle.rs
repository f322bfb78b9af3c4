//! Tiny networks, exhaustively: every phasing on the grid, every release pattern, every way to settle ties.
//!
//! Of each network the worst latencies that any run showed are compared with every method's figures (tests/support/methods.rs): never above a
//! safe one, and on a single port exactly equal; above the as-published ones where they are known to be too low.
//! `cargo test --test oracle -- --nocapture` prints the tightness.

mod support;

use std::collections::BTreeMap;
use support::methods::{Candidate, METHODS};
use support::simulator::{Release, Run, Ties, simulate};
use support::{BYTE_PER_NANO, Builder, Draws, alone, bound};
use timebound_bounds::{Method, Options, Safety, analyse, holistic};
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

/// What all runs of a network showed.
#[derive(Debug, Default)]
struct Found {
    worst: Worst,
    /// Most waiting bytes by port.
    waiting: BTreeMap<u32, u64>,
    runs: usize,
}

fn search(network: &Network, grid: u64) -> Found {
    let sources = sources(network);
    let steps: Vec<usize> = sources.iter().map(|s| s.period.div_ceil(grid) as usize).collect();
    let patterns: Vec<usize> = sources.iter().map(|s| if s.jitter > 0 { 3 } else { 1 }).collect();
    let ranged = network
        .nodes
        .iter()
        .any(|node| node.switching_min < node.switching_max);
    let until = 2 * sources.iter().map(|s| s.period + s.jitter).max().unwrap_or(0);
    let single = network.links.len() == 1;
    let mut found = Found::default();
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
                    found.runs / 2 % sources.len()..found.runs / 2 % sources.len() + 1
                };
                for (ties, unlucky) in ties
                    .into_iter()
                    .flat_map(|ties| turns.clone().map(move |turn| (ties, turn)))
                {
                    let run = Run {
                        network,
                        releases: &releases,
                        best_effort: &[],
                        ties,
                        unlucky,
                    };
                    found.observe(&run, switching);
                }
            }
        }
    }
    found
}

impl Found {
    fn observe(&mut self, run: &Run<'_>, switching: &str) {
        self.runs += 1;
        let mut first = BTreeMap::new();
        let seen = simulate(run, &mut |port, least, greatest| match switching {
            "least" => least,
            "greatest" => greatest,
            _ if first.insert(port, ()).is_none() => greatest,
            _ => least,
        });
        for (place, nominal) in seen.from_nominal {
            let actual = seen.from_actual[&place];
            let entry = self.worst.entry(place).or_insert((0, 0));
            *entry = (entry.0.max(nominal), entry.1.max(actual));
        }
        for (port, bytes) in seen.waiting {
            let most = self.waiting.entry(port.0).or_insert(0u64);
            *most = bytes.max(*most);
        }
    }
}

/// A figure of a method below what a run showed.
#[derive(Debug)]
#[allow(dead_code, reason = "printed when an expectation fails")]
struct Below {
    stream: String,
    leaf: usize,
    figure: u64,
    seen: u64,
}

/// A method's figures over the worst from the actual release, and where they are below.
#[derive(Debug, Default)]
struct Verdict {
    ratios: Vec<f64>,
    below: Vec<Below>,
}

/// Holds one method against what was found; leaves for which it has no figure do not count.
fn hold(method: &Candidate, network: &Network, found: &Found) -> Verdict {
    let analysis = (method.analyse)(network, &alone());
    let mut verdict = Verdict::default();
    for (&(stream, leaf), &(nominal, actual)) in &found.worst {
        let result = &analysis.streams[stream];
        let Some((from_nominal, from_actual, best_case)) = bound(&result.leaves[leaf]) else {
            continue;
        };
        assert!(best_case <= from_actual || method.safety == Safety::Unsafe);
        verdict.ratios.push(from_actual.0 as f64 / actual as f64);
        for (figure, seen) in [(from_nominal.0, nominal), (from_actual.0, actual)] {
            if figure < seen {
                verdict.below.push(Below {
                    stream: result.stream.clone(),
                    leaf,
                    figure,
                    seen,
                });
            }
        }
    }
    verdict
}

/// Searches a network exhaustively and holds every method against it: nothing that may be printed as a bound is below what was seen.
fn verdicts(title: &str, network: &Network, grid: u64) -> BTreeMap<&'static str, Verdict> {
    let found = search(network, grid);
    let verdicts: BTreeMap<_, _> = METHODS
        .iter()
        .map(|method| (method.name, hold(method, network, &found)))
        .collect();
    for method in METHODS {
        let verdict = &verdicts[method.name];
        assert!(
            method.safety != Safety::Safe || verdict.below.is_empty(),
            "{title}: {} is too low: {:?}",
            method.name,
            verdict.below
        );
    }
    for method in METHODS.iter().filter(|method| method.safety == Safety::Safe) {
        let analysis = (method.analyse)(network, &alone());
        for (port, bytes) in &found.waiting {
            let result = &analysis.ports[*port as usize];
            assert!(
                Some(*bytes) <= result.backlog_bytes,
                "{title}: {bytes} bytes wait at {}, {} says {:?}",
                result.name,
                method.name,
                result.backlog_bytes
            );
        }
    }
    println!("{title}: {} runs", found.runs);
    for (name, verdict) in &verdicts {
        println!(
            "    {name}: {} below, over worst {:.3?}",
            verdict.below.len(),
            verdict.ratios
        );
    }
    verdicts
}

/// The safe bounds over the worst that was seen, from the actual release.
fn tightness(title: &str, builder: &Builder, grid: u64) -> Vec<f64> {
    let network = builder.network();
    let mut verdicts = verdicts(title, &network, grid);
    let ratios = verdicts.remove("bound").expect("it is listed").ratios;
    let leaves: usize = network
        .streams
        .iter()
        .map(|stream| stream.tree.leaves.len())
        .sum();
    assert_eq!(ratios.len(), leaves, "{title}: every leaf has a bound");
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

/// Up to three ports in a row or a tree, two to four streams, small integers: periods 8 to 20, frames 1 to 4.
fn tiny(draws: &mut Draws) -> Builder {
    let (delay, least) = (draws.below(2), draws.below(2));
    let mut builder = line(delay, (least, least + draws.below(3)));
    if draws.chance(15) {
        for link in &mut builder.declaration.links {
            link.forward.queue = timebound_model::declaration::QueueDecl::Fifo;
            link.backward.queue = timebound_model::declaration::QueueDecl::Fifo;
        }
    }
    if draws.chance(40) {
        // A port twice as fast as the others, or half as fast.
        let rate = if draws.chance(50) {
            2 * BYTE_PER_NANO
        } else {
            BYTE_PER_NANO / 2
        };
        let link = draws.below(5) as usize;
        builder.declaration.links[link].forward.rate_bps = rate;
        builder.declaration.links[link].backward.rate_bps = rate;
    }
    let classes = draws.within(1, 3) as u8;
    let sources = ["a", "b", "c", "a"];
    for index in 0..draws.within(2, 3) as usize {
        let source = sources[index + draws.below(2) as usize];
        let mut to = vec!["z"];
        if source != "c" && draws.chance(30) {
            to.push("c");
        }
        let period = draws.within(8, 14);
        let jitter = if draws.chance(50) {
            0
        } else {
            draws.below(period + 4)
        };
        let class = draws.below(u64::from(classes)) as u8;
        let frame = draws.within(1, 4) as u32;
        let frames: &[u32] = if draws.chance(10) { &[1, 1] } else { &[frame] };
        let path: (&str, &[&str]) = (source, &to);
        builder = builder.stream(&format!("f{index}"), class, path, (period, jitter, frames));
    }
    builder
}

/// How many [`tiny`] networks a test takes.
const NETWORKS: usize = 40;
/// How many [`slow_uplinks`]: they have more release patterns each.
const UPLINKS: usize = 15;

/// The same streams, later by up to three periods, over uplinks that are two to four times slower than what follows.
fn slow_uplinks(draws: &mut Draws) -> Builder {
    let mut builder = tiny(draws);
    let rates = [
        BYTE_PER_NANO / draws.within(2, 4),
        BYTE_PER_NANO / draws.within(1, 4),
        BYTE_PER_NANO * draws.within(1, 4),
        BYTE_PER_NANO,
        BYTE_PER_NANO * draws.within(1, 2),
    ];
    for (link, rate) in builder.declaration.links.iter_mut().zip(rates) {
        (link.forward.rate_bps, link.backward.rate_bps) = (rate, rate);
    }
    for stream in &mut builder.declaration.streams {
        if let timebound_model::declaration::ArrivalDecl::Periodic {
            period_ns, jitter_ns, ..
        } = &mut stream.arrival
        {
            *period_ns += draws.below(5);
            *jitter_ns = draws.below(3 * *period_ns);
        }
    }
    builder
}

/// What an uplink has set apart comes close again on the way, and no closer than the bounds say.
#[test]
fn slow_uplinks_at_random() {
    let mut draws = Draws(19);
    let (mut number, mut nearer) = (0, 0);
    while number < UPLINKS {
        let builder = slow_uplinks(&mut draws);
        let network = builder.network();
        let by = |method| analyse(&network, &Options { method, ..alone() });
        let (port_by_port, all) = (by(Method::PortByPort), by(Method::Bound));
        if all.ports.iter().any(|port| port.utilisation.value >= 1.0) {
            continue;
        }
        number += 1;
        let lower = all.streams.iter().zip(&port_by_port.streams).any(|(all, one)| {
            all.leaves
                .iter()
                .zip(&one.leaves)
                .any(|(all, one)| bound(all) < bound(one))
        });
        nearer += usize::from(lower);
        verdicts(&format!("uplinks {number}"), &network, 2);
    }
    assert!(nearer > UPLINKS / 4, "the uplinks hold nothing back: {nearer}");
}

/// Networks drawn at random; of each every phasing on the grid.
#[test]
fn tiny_networks_at_random() {
    let mut draws = Draws(4);
    let mut below: BTreeMap<&str, usize> = BTreeMap::new();
    let mut figures: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut number = 0;
    while number < NETWORKS {
        let builder = tiny(&mut draws);
        let loads = holistic(&builder.network(), &alone()).ports;
        // Without room for all of it nothing has a bound.
        if loads.iter().any(|port| port.utilisation.value >= 1.0) {
            continue;
        }
        number += 1;
        for (name, verdict) in verdicts(&format!("network {number}"), &builder.network(), 2) {
            *below.entry(name).or_default() += usize::from(!verdict.below.is_empty());
            figures.entry(name).or_default().extend(verdict.ratios);
        }
    }
    for (name, ratios) in &figures {
        let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
        println!(
            "{name}: {} figures, mean over worst {mean:.3}, {} networks with one below",
            ratios.len(),
            below[name]
        );
    }
    // Experimental: below in one network of eight hundred, and in none of these.
    assert_eq!(below["trajectory"], 0, "{below:?}");
    assert!(below["holistic as published"] > 0, "{below:?}");
    assert!(below["trajectory as published"] > 0, "{below:?}");
}

/// SAE benchmark on CAN at 125 kbit/s: priority falls from message to message; each has 55 + 10 bits per byte of data, and R counts to the end of
/// the frame without its own interframe space of 3 bits. The model has eight classes, so every message has a network of its own: all above
/// it in one class, itself, and all below it in a third, which is all that its response depends on.
#[test]
fn the_sae_set_has_its_known_answers_by_every_method_that_is_exact() {
    const BIT_NS: u64 = 8_000;
    let bytes = [1u32, 2, 1, 2, 1, 2, 6, 1, 2, 2, 1, 4, 1, 1, 3, 1, 1];
    let periods_ms = [
        1000u64, 5, 5, 5, 5, 5, 10, 10, 10, 10, 100, 100, 100, 100, 1000, 1000, 1000,
    ];
    let known_us = [
        1_416u64, 2_016, 2_536, 3_136, 3_656, 4_256, 5_016, 8_376, 8_976, 9_576, 10_096, 19_096, 19_616,
        20_136, 28_976, 29_496, 29_496,
    ];
    for (index, known) in known_us.iter().enumerate() {
        // One byte of the model is one bit on the bus.
        let mut builder = Builder::new(125_000 * 8, 0).host("a").host("z").link("a", "z");
        for (other, (bytes, period)) in bytes.iter().zip(periods_ms).enumerate() {
            let class = 1 + index.cmp(&other) as i8;
            let shape: &[u32] = &[55 + 10 * bytes];
            builder = builder.stream(
                &format!("m{other}"),
                class as u8,
                ("a", &["z"]),
                (period * 1_000_000, 0, shape),
            );
        }
        let network = builder.network();
        let response = |name: &str| {
            let method = METHODS
                .iter()
                .find(|method| method.name == name)
                .expect("it is listed");
            let analysis = (method.analyse)(&network, &alone());
            bound(&analysis.streams[index].leaves[0]).expect("a bound").1.0
        };
        let expected = known * 1_000 + 3 * BIT_NS;
        // One port without jitter, and busy periods of one message: here what is printed happens to be right.
        for name in [
            "holistic",
            "calculus",
            "bound",
            "trajectory",
            "holistic as published",
        ] {
            assert_eq!(response(name), expected, "message {} by {name}", index + 1);
        }
    }
}

/// Why the trajectory approach is experimental, and no part of a bound (the literature knows other corners: Kemayo and others 2013, Li, Cros
/// and George 2014). The search above came upon this network, one of eight hundred: two streams over the same ports, whose frames
/// catch up with each other on the way because switching delays vary.
#[test]
fn the_trajectory_approach_is_optimistic_in_a_corner() {
    let mut builder = line(1, (0, 2))
        .stream("f0", 1, ("b", &["z"]), (8, 0, &[3]))
        .stream("f1", 1, ("b", &["z"]), (8, 6, &[1]));
    for link in &mut builder.declaration.links {
        link.forward.queue = timebound_model::declaration::QueueDecl::Fifo;
        link.backward.queue = timebound_model::declaration::QueueDecl::Fifo;
    }
    let verdicts = verdicts("a corner", &builder.network(), 2);
    let below = &verdicts["trajectory"].below;
    assert!(
        below.iter().any(|below| (below.figure, below.seen) == (17, 18)),
        "{below:?}"
    );
    assert!(verdicts["bound"].below.is_empty());
}

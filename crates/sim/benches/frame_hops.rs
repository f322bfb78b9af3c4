//! Frame-hops per second of the simulator on one core: frames sent by ports, divided by the CPU time of a whole simulation
//! (median of several runs, statistics and set-up included; wall time where the system does not tell the CPU time).
//!
//! `line` is the setting that platform.md states for ns-3: a line of 8 hops, 8 UDP flows, 2000 datagrams of 200 bytes a
//! second each. `mesh` is a 5 x 5 grid of switches with a host on each and 200 flows in 8 classes. The search is timed
//! on the same mesh, once with 2,000 flows of a tenth of the rate.

use std::sync::Arc;
use std::time::Instant;
use timebound_model::declaration::{
    ArrivalDecl, DirectionDecl, ImpairmentsDecl, LinkDecl, NodeDecl, NodeKindDecl, QueueDecl, ReleaseDecl,
    RoleDecl, StreamDecl,
};
use timebound_model::{Declaration, Network, Span, compile};
use timebound_sim::{Options, SearchOptions, search, simulate};

fn node(name: String, kind: NodeKindDecl, switching: (u64, u64)) -> NodeDecl {
    NodeDecl {
        name,
        kind,
        switching_min_ns: switching.0,
        switching_max_ns: switching.1,
        replication_min_ns: 0,
        replication_max_ns: 0,
    }
}

fn link(a: String, b: String, rate_bps: u64) -> LinkDecl {
    let direction = DirectionDecl {
        rate_bps,
        delay_ns: 5_000,
        queue: QueueDecl::StrictPriority,
        buffer_bytes: 1 << 20,
        impairments: ImpairmentsDecl::default(),
        trace: None,
        slots: None,
    };
    LinkDecl {
        a,
        b,
        forward: direction.clone(),
        backward: direction,
        half_duplex: false,
    }
}

fn stream(
    name: String,
    source: String,
    destination: String,
    class: u8,
    period_ns: u64,
    bytes: u32,
) -> StreamDecl {
    StreamDecl {
        name,
        source,
        destinations: vec![destination],
        class,
        role: RoleDecl::Data,
        arrival: ArrivalDecl::Periodic {
            period_ns,
            jitter_ns: 10_000,
            frames_bytes: vec![bytes],
        },
        release: ReleaseDecl::Periodic { offset_ns: None },
        deadline_ns: None,
        least_frame_bytes: None,
        route: None,
    }
}

fn network(nodes: Vec<NodeDecl>, links: Vec<LinkDecl>, streams: Vec<StreamDecl>) -> Arc<Network> {
    let declaration = Declaration {
        nodes,
        links,
        streams,
        best_effort_frame_bytes: 1538,
        traces: std::collections::BTreeMap::new(),
    };
    Arc::new(compile(&declaration).expect("a valid network"))
}

fn line() -> Arc<Network> {
    let switch = |index: usize| node(format!("s{index}"), NodeKindDecl::Switch, (10_000, 20_000));
    let nodes = (1..8)
        .map(switch)
        .chain(["a", "b"].map(|name| node(name.to_owned(), NodeKindDecl::Host, (0, 0))));
    let mut links: Vec<LinkDecl> = (1..7)
        .map(|index| link(format!("s{index}"), format!("s{}", index + 1), 100_000_000))
        .collect();
    links.push(link("a".to_owned(), "s1".to_owned(), 100_000_000));
    links.push(link("s7".to_owned(), "b".to_owned(), 100_000_000));
    // 200 bytes of UDP payload: 28 of IP and UDP, 14 of Ethernet, 24 of FCS, preamble and gap.
    let flow = |index: u8| {
        stream(
            format!("f{index}"),
            "a".to_owned(),
            "b".to_owned(),
            index,
            500_000,
            266,
        )
    };
    network(nodes.collect(), links, (0..8).map(flow).collect())
}

fn mesh(flows: usize) -> Arc<Network> {
    let (mut nodes, mut links, mut streams) = (Vec::new(), Vec::new(), Vec::new());
    for place in 0..25 {
        nodes.push(node(format!("s{place}"), NodeKindDecl::Switch, (10_000, 20_000)));
        nodes.push(node(format!("h{place}"), NodeKindDecl::Host, (0, 0)));
        links.push(link(format!("h{place}"), format!("s{place}"), 1_000_000_000));
        if place % 5 < 4 {
            links.push(link(
                format!("s{place}"),
                format!("s{}", place + 1),
                1_000_000_000,
            ));
        }
        if place < 20 {
            links.push(link(
                format!("s{place}"),
                format!("s{}", place + 5),
                1_000_000_000,
            ));
        }
    }
    for flow in 0..flows {
        let (from, to) = (flow % 25, (flow * 7 + flow / 25 + 3) % 25);
        if from != to {
            let period = (200_000 + 1_000 * (flow as u64 % 50)) * flows.div_ceil(200) as u64;
            let bytes = 84 + (flow as u32 * 37) % 1_400;
            streams.push(stream(
                format!("f{flow}"),
                format!("h{from}"),
                format!("h{to}"),
                (flow % 8) as u8,
                period,
                bytes,
            ));
        }
    }
    network(nodes, links, streams)
}

/// CPU time of this thread: what others do on the machine is not ours.
struct Clock {
    wall: Instant,
    cpu: Option<u64>,
}

impl Clock {
    fn start() -> Self {
        Self {
            wall: Instant::now(),
            cpu: Self::cpu(),
        }
    }

    fn cpu() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split_whitespace().next()?.parse().ok()
    }

    fn seconds(&self) -> f64 {
        match (self.cpu, Self::cpu()) {
            (Some(start), Some(end)) if end > start => (end - start) as f64 / 1e9,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}

fn main() {
    const RUNS: usize = 7;
    for (name, network, seconds) in [("line", line(), 20), ("mesh", mesh(200), 1)] {
        let options = Options {
            duration: Span::from_secs(seconds),
            ..Options::default()
        };
        let mut rates: Vec<f64> = (0..RUNS)
            .map(|_| {
                let clock = Clock::start();
                let outcome = simulate(&network, &options);
                outcome.frame_hops as f64 / clock.seconds()
            })
            .collect();
        rates.sort_by(f64::total_cmp);
        println!(
            "{name}: median {:.2} million frame-hops/s on one core ({RUNS} runs, {:.2} to {:.2})",
            rates[RUNS / 2] / 1e6,
            rates[0] / 1e6,
            rates[RUNS - 1] / 1e6
        );
    }
    for flows in [200, 2_000] {
        let network = mesh(flows);
        let options = SearchOptions {
            evaluations: 2_000,
            seed: 1,
            threads: 1,
            ..SearchOptions::default()
        };
        let start = Instant::now();
        let found = search(&network, &options);
        let rate = found.evaluations as f64 / start.elapsed().as_secs_f64();
        println!(
            "search, mesh of {flows} flows: {rate:.0} evaluations/s on one core, each watches one receiver"
        );
    }
}

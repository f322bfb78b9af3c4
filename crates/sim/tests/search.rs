//! What the search may do beyond the declared streams: undeclared best effort, and delays at the ends of their ranges.

#[path = "../../fabric/tests/common/mod.rs"]
mod common;
use common::{TICKS, direction, host, link, network, stream, switch};
use std::sync::Arc;
use timebound_model::declaration::{DirectionDecl, JitterDecl, JitterDistribution, QueueDecl};
use timebound_model::{Network, Span};
use timebound_sim::{HopWitness, SearchOptions, Worst, search};

/// One stream of 100 bytes over a switch; at this rate a byte takes a nanosecond.
fn line(direction: DirectionDecl, (least, greatest): (u64, u64)) -> Arc<Network> {
    network(
        vec![host("a"), host("b"), switch("s", least, greatest)],
        vec![link("a", "s", direction.clone()), link("s", "b", direction)],
        vec![stream("f", "a", &["b"], 7, (1_000_000, 500), 100)],
    )
}

fn worst(network: &Arc<Network>, options: SearchOptions) -> Worst {
    search(
        network,
        &SearchOptions {
            evaluations: 200,
            ..options
        },
    )
    .worst[0]
}

fn found(network: &Arc<Network>, best_effort: bool) -> u64 {
    let options = SearchOptions {
        best_effort,
        ..SearchOptions::default()
    };
    worst(network, options).latency.unwrap().0
}

#[test]
fn undeclared_best_effort_is_in_the_way_at_every_port() {
    for queue in [QueueDecl::StrictPriority, QueueDecl::Fifo] {
        let network = line(
            DirectionDecl {
                queue,
                ..direction(TICKS, 7)
            },
            (10, 10),
        );
        let alone = 2 * (100 + 7) + 10;
        assert_eq!(found(&network, false), alone);
        // One frame of 1538 bytes at each port; it may have to start a tick early.
        let most = alone + 2 * 1538;
        assert!(
            (most - 2..=most).contains(&found(&network, true)),
            "{}",
            found(&network, true)
        );
    }
}

#[test]
fn ranges_of_delay_are_used_to_their_ends() {
    let mut way = direction(TICKS, 7);
    way.impairments.jitter = Some(JitterDecl {
        distribution: JitterDistribution::Uniform { max_ns: 2_000 },
        reorder: false,
    });
    let network = line(way, (10, 900));
    assert_eq!(found(&network, false), 2 * (100 + 7 + 2_000) + 900);
}

#[test]
fn a_deadline_counts_the_jitter_too() {
    let network = line(direction(TICKS, 0), (0, 0));
    let found = worst(&network, SearchOptions::default());
    let latency = found.latency.unwrap();
    assert_eq!(found.from_nominal, Some(latency.saturating_add(Span(500))));
}

#[test]
fn an_absurd_witness_does_no_harm() {
    let network = line(direction(TICKS, 0), (0, 0));
    let absurd = HopWitness {
        window: Span::MAX,
        response: Span::MAX,
        traversal: Span::MAX,
    };
    for hops in [0, 1, 2, 3] {
        let options = SearchOptions {
            witness: vec![vec![vec![absurd; hops]]],
            best_effort: false,
            ..SearchOptions::default()
        };
        assert_eq!(worst(&network, options).latency, Some(Span(200)));
    }
}

/// Once nobody sent best effort on the way of rivals to the target: the search found 389 us of this.
#[test]
fn best_effort_on_the_way_of_rivals_bunches_them() {
    let wire = |rate: u64| DirectionDecl {
        rate_bps: rate,
        ..direction(rate, 0)
    };
    let slow = || wire(100_000_000);
    let way = ["h1", "s1", "s2", "s3", "s4", "d"];
    let mut links: Vec<_> = way
        .windows(2)
        .map(|pair| link(pair[0], pair[1], slow()))
        .collect();
    links.push(link("h2", "s4", wire(10_000_000_000)));
    let mut nodes = vec![host("h1"), host("h2"), host("d")];
    nodes.extend(["s1", "s2", "s3", "s4"].map(|name| switch(name, 0, 0)));
    let mut network = (*network(
        nodes,
        links,
        vec![
            stream("fast", "h1", &["d"], 3, (98_000, 0), 734 + 66),
            stream("slow", "h2", &["d"], 2, (10_000_000, 0), 44 + 66),
        ],
    ))
    .clone();
    network.best_effort_frame = timebound_model::WireBytes(1_538);
    let options = SearchOptions {
        evaluations: 400,
        ..SearchOptions::default()
    };
    let found = search(&Arc::new(network), &options).worst[1].latency.unwrap().0;
    // Each frame that holds another back may have to start a tick early.
    assert!((1_349_160 - 8..=1_349_160).contains(&found), "{found}");
}

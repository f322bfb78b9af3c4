//! Cases whose answers are known in closed form (timing.md, "Vectors with known answers").

#[path = "../../fabric/tests/common/mod.rs"]
mod common;
use common::{TICKS, direction, host, link, network, stream, switch};
use timebound_model::declaration::ReleaseDecl;
use timebound_model::{Network, Span};
use timebound_sim::{Options, SearchOptions, search, simulate};

fn worst(network: &std::sync::Arc<Network>, name: &str, evaluations: u64) -> u64 {
    let found = search(
        network,
        &SearchOptions {
            evaluations,
            seed: 1,
            threads: 1,
            best_effort: false,
            ..SearchOptions::default()
        },
    );
    let stream = network.stream(name).unwrap();
    found
        .worst
        .iter()
        .find(|worst| worst.stream == stream)
        .unwrap()
        .latency
        .unwrap()
        .0
}

#[test]
fn a_lone_frame_takes_transmission_propagation_and_switching() {
    let network = network(
        vec![host("a"), host("b"), switch("s", 10_000, 10_000)],
        vec![
            link("a", "s", direction(100_000_000, 5_000)),
            link("s", "b", direction(10_000_000, 1_000)),
        ],
        vec![stream("f", "a", &["b"], 3, (1_000_000, 0), 125)],
    );
    let outcome = simulate(
        &network,
        &Options {
            duration: Span::from_millis(50),
            ..Options::default()
        },
    );
    let leaf = &outcome.streams[0].leaves[0];
    assert_eq!((leaf.received, leaf.lost), (50, 0));
    let latency = leaf.latency.as_ref().unwrap();
    let exact = Span(10_000 + 5_000 + 10_000 + 100_000 + 1_000);
    assert_eq!(
        (latency.min, latency.mean, latency.p50, latency.max),
        (exact, exact, exact, exact)
    );
    assert!(latency.quantiles.iter().all(|q| *q == exact));
}

#[test]
fn star_of_ten_sources() {
    let sources: Vec<String> = (0..10).map(|index| format!("h{index}")).collect();
    let mut nodes = vec![switch("s", 10_000, 10_000), host("sink")];
    nodes.extend(sources.iter().map(|name| host(name)));
    let links = sources
        .iter()
        .map(|name| link(name, "s", direction(100_000_000, 0)));
    let links = links
        .chain([link("s", "sink", direction(100_000_000, 0))])
        .collect();
    let streams = sources.iter().map(|name| {
        let mut flow = stream(&format!("f-{name}"), name, &["sink"], 0, (10_000_000, 0), 1538);
        flow.release = ReleaseDecl::Periodic { offset_ns: Some(0) };
        flow
    });
    let network = network(nodes, links, streams.collect());
    let outcome = simulate(
        &network,
        &Options {
            duration: Span::from_millis(40),
            ..Options::default()
        },
    );
    let greatest = outcome
        .streams
        .iter()
        .map(|s| s.leaves[0].latency.as_ref().unwrap().max)
        .max();
    assert_eq!(greatest, Some(Span(1_363_440)));
    // Each of them can be the last one.
    let found = search(
        &network,
        &SearchOptions {
            evaluations: 1_000,
            seed: 1,
            threads: 1,
            best_effort: false,
            ..SearchOptions::default()
        },
    );
    assert!(
        found
            .worst
            .iter()
            .all(|worst| worst.latency == Some(Span(1_363_440))),
        "{:?}",
        found.worst
    );
}

#[test]
fn one_port_three_messages() {
    let names = ["m0", "m1", "m2"];
    let network = network(
        vec![host("a"), host("b")],
        vec![link("a", "b", direction(8_000_000, 0))],
        // C = 1 ms; T = 2.5, 3.5, 3.5 ms.
        (0u8..3)
            .map(|i| {
                stream(
                    names[usize::from(i)],
                    "a",
                    &["b"],
                    2 - i,
                    ([2_500_000, 3_500_000, 3_500_000][usize::from(i)], 0),
                    1_000,
                )
            })
            .collect(),
    );
    for (name, answer) in names.iter().zip([2_000_000, 3_000_000, 3_500_000]) {
        let found = worst(&network, name, 3_000);
        assert!(
            found <= answer && found >= answer - 1,
            "{name}: {found} against {answer}"
        );
    }
}

#[test]
fn blocked_twice_reaches_143() {
    let network = network(
        vec![host("a"), host("b"), host("sink"), switch("s", 0, 0)],
        vec![
            link("a", "s", direction(TICKS, 5)),
            link("b", "s", direction(TICKS, 0)),
            link("s", "sink", direction(TICKS, 0)),
        ],
        vec![
            stream("f0", "a", &["sink"], 7, (1_000, 0), 10),
            stream("f1", "a", &["sink"], 0, (1_000, 0), 60),
            stream("f2", "b", &["sink"], 0, (1_000, 0), 10),
        ],
    );
    // 143 with lower classes one tick early; ties that fall against f0 give up to one tick more at each port.
    let found = worst(&network, "f0", 3_000);
    assert!((143..=145).contains(&found), "{found}");
}

#[test]
fn jitter_of_its_own_reaches_279() {
    let network = network(
        vec![host("a"), host("b")],
        vec![link("a", "b", direction(TICKS, 0))],
        vec![
            stream("f", "a", &["b"], 7, (220, 200), 100),
            stream("low", "a", &["b"], 0, (10_000, 0), 100),
        ],
    );
    // 279 with the lower class one tick early, 280 where the tie falls against f.
    let found = worst(&network, "f", 3_000);
    assert!((279..=280).contains(&found), "{found}");
}

#[test]
fn a_release_of_several_frames_ends_with_the_last() {
    let mut flow = stream("f", "a", &["b", "c"], 0, (1_000_000, 0), 0);
    flow.arrival = timebound_model::declaration::ArrivalDecl::Periodic {
        period_ns: 1_000_000,
        jitter_ns: 0,
        frames_bytes: vec![1_000, 500, 100],
    };
    let network = network(
        vec![host("a"), host("b"), host("c"), switch("s", 0, 0)],
        vec![
            link("a", "s", direction(TICKS, 0)),
            link("s", "b", direction(TICKS, 0)),
            link("s", "c", direction(TICKS / 10, 0)),
        ],
        vec![flow],
    );
    let outcome = simulate(
        &network,
        &Options {
            duration: Span::from_millis(20),
            ..Options::default()
        },
    );
    let leaves = &outcome.streams[0].leaves;
    // Store and forward: to b the large frame sets the pace, to c the slow link does.
    assert_eq!(
        leaves[0].latency.as_ref().unwrap().max,
        Span(1_000 + 1_000 + 500 + 100)
    );
    assert_eq!(
        leaves[1].latency.as_ref().unwrap().max,
        Span(1_000 + 10_000 + 5_000 + 1_000)
    );
    assert_eq!(
        leaves
            .iter()
            .map(|leaf| (leaf.received, leaf.lost))
            .collect::<Vec<_>>(),
        [(20, 0), (20, 0)]
    );
}

//! Where a queue grows for ever an evaluation takes as long as any other.

use super::common::{direction, host, link, network, stream, switch};
use super::evaluate::{Evaluator, Finding};
use super::moments::Moment;
use super::phasing::{Gene, Lateness, Phasing};
use super::scene::Scene;
use super::survey::Survey;
use super::{SearchOptions, search};
use std::sync::Arc;
use timebound_fabric::Switching;
use timebound_model::Network;
use timebound_model::declaration::{ArrivalDecl, ReleaseDecl, StreamDecl};

/// At this rate a byte takes a nanosecond.
const TICKS: u64 = 8_000_000_000;
const SOURCES: u64 = 4;
const PERIOD: u64 = 2_000;

/// Four hosts that each send 1000 bytes in 2 us over one port, which sends as many in 1 us: twice what it can.
fn overloaded(jitter: u64) -> Arc<Network> {
    let mut way = direction(TICKS, 5);
    way.buffer_bytes = 1 << 40;
    let mut nodes = vec![host("d"), switch("s", 0, 0)];
    let mut links = vec![link("s", "d", way.clone())];
    let mut streams = Vec::new();
    for index in 0..SOURCES {
        let name = format!("h{index}");
        nodes.push(host(&name));
        links.push(link(&name, "s", way.clone()));
        streams.push(stream(
            &format!("f{index}"),
            &name,
            &["d"],
            3,
            (PERIOD, jitter),
            1_000,
        ));
    }
    network(nodes, links, streams)
}

/// Releases in an evaluation after a latency of a second was seen, where an analysis says what `longest` does.
fn releases(jitter: u64, longest: Option<u64>) -> usize {
    releases_in(&overloaded(jitter), longest)
}

fn releases_in(network: &Arc<Network>, longest: Option<u64>) -> usize {
    let survey = Survey::new(network);
    let (scene, _) = Scene::new(&survey, survey.targets[0], true);
    let gene = Gene {
        offset: 0,
        lateness: Lateness::First,
    };
    let phasing = Phasing {
        genes: vec![gene; scene.actors.len()],
        arrivals: scene
            .places
            .iter()
            .map(|place| scene.origin + place.travel)
            .collect(),
        releases: 1,
        turn: 0,
        switching: Switching::Greatest,
        seed: 1,
    };
    let mut evaluator = Evaluator::new(&scene, Moment::default(), longest);
    evaluator.expect(1_000_000_000);
    evaluator.evaluate(&phasing, &mut Finding::default(), &|| false);
    evaluator.planned()
}

#[test]
fn a_longer_evaluation_was_made_each_time_more_was_found() {
    let without = releases(0, None);
    assert!((3_000..=5_200).contains(&without), "{without}");
    // A source behind a queue that grows may send anything in an instant.
    let burst = releases(10_000_000_000, None);
    assert!((without..=9_000).contains(&burst), "{burst}");
    // Who has a bound keeps the time that was found to be needed.
    let with = releases(0, Some(2_000_000_000));
    assert!(with > 16_000, "{with}");
}

#[test]
fn each_source_that_promises_nothing_sent_sixteen_thousand_messages() {
    let way = || direction(TICKS, 5);
    let nodes = vec![host("d"), host("h0"), host("h1"), switch("s", 0, 0)];
    let links = vec![
        link("s", "d", way()),
        link("h0", "s", way()),
        link("h1", "s", way()),
    ];
    let mut streams = vec![stream("f", "h0", &["d"], 3, (PERIOD, 0), 1_000)];
    streams.extend((0..20).map(|index| StreamDecl {
        arrival: ArrivalDecl::Unbounded { max_frame_bytes: 100 },
        release: ReleaseDecl::Poisson {
            mean_gap_ns: 100,
            frame_bytes: 100,
        },
        ..stream(&format!("other{index}"), "h1", &["d"], 3, (PERIOD, 0), 100)
    }));
    let all = releases_in(&network(nodes, links, streams), None);
    assert!((4_000..=9_500).contains(&all), "{all}");
}

#[test]
fn an_overload_is_still_found() {
    let options = SearchOptions {
        evaluations: 200,
        ..SearchOptions::default()
    };
    let found = search(&overloaded(0), &options);
    let worst = found.worst[0].latency.unwrap().0;
    // Alone it takes 2,010 ns; four frames at once wait for three.
    assert!(worst > 5_010, "{worst} ns");
}

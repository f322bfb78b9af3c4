//! Statistics, reproducibility, bounded memory, threads.

#[path = "../../fabric/tests/common/mod.rs"]
mod common;
use common::{TICKS, direction, host, link, network, random, stream, switch};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::sync::Arc;
use timebound_fabric::{Change, Draws};
use timebound_model::declaration::{ArrivalDecl, DirectionDecl, LossDecl, ReleaseDecl};
use timebound_model::{LinkId, Network, Span, Time};
use timebound_sim::{Options, SearchOptions, search, search_with, simulate, simulate_with};

fn lossy() -> Arc<Network> {
    let mut way = direction(100_000_000, 1_000);
    way.impairments.loss = Some(LossDecl::Bernoulli { probability: 0.05 });
    way.impairments.duplication = 0.02;
    way.impairments.corruption = 0.01;
    fork(way)
}

fn fork(way: DirectionDecl) -> Arc<Network> {
    let mut burst = stream("burst", "a", &["b", "c"], 2, (400_000, 100_000), 0);
    burst.arrival = ArrivalDecl::Periodic {
        period_ns: 400_000,
        jitter_ns: 100_000,
        frames_bytes: vec![500, 600, 84],
    };
    network(
        vec![host("a"), host("b"), host("c"), switch("s", 1_000, 9_000)],
        vec![
            link("a", "s", way.clone()),
            link("s", "b", way),
            link("s", "c", direction(100_000_000, 1_000)),
        ],
        vec![
            stream("plain", "a", &["b", "c"], 5, (200_000, 50_000), 300),
            burst,
        ],
    )
}

#[test]
fn every_release_is_received_or_lost_and_shares_are_right() {
    let options = Options {
        duration: Span::from_secs(4),
        warmup: Span::from_millis(100),
        ..Options::default()
    };
    let outcome = simulate(&lossy(), &options);
    for (stream, frames, period) in [(0, 1, 200_000), (1, 3, 400_000)] {
        let found = &outcome.streams[stream];
        assert!(found.released.abs_diff(4_000_000_000 / period) <= 1);
        for (leaf, lossy_hops) in found.leaves.iter().zip([2, 1]) {
            assert_eq!(leaf.received + leaf.lost, found.released);
            assert_eq!(leaf.latency.as_ref().unwrap().quantiles.len(), 101);
            // Every frame of the release must pass every hop unharmed (a second copy may save a damaged or lost one).
            let kept = (0.95f64 * 0.99).powi(lossy_hops * frames);
            let share = leaf.received as f64 / found.released as f64;
            assert!(
                (share - kept).abs() < 0.02 + 0.002 * f64::from(frames),
                "stream {stream}: {share} against {kept}"
            );
            assert!(leaf.duplicates > 0 && leaf.damaged > 0);
        }
    }
    assert_eq!(outcome.ports[0].dropped_buffer, 0);
    assert!(outcome.ports[0].dropped_link > 0);
}

#[test]
fn quantiles_rise_and_nominal_includes_lateness() {
    let outcome = simulate(
        &lossy(),
        &Options {
            duration: Span::from_secs(1),
            ..Options::default()
        },
    );
    for leaf in outcome.streams.iter().flat_map(|stream| &stream.leaves) {
        let latency = leaf.latency.as_ref().unwrap();
        assert!(latency.quantiles.is_sorted());
        assert_eq!(
            (latency.quantiles[0], latency.quantiles[100]),
            (latency.min, latency.max)
        );
        assert!(latency.min <= latency.mean && latency.mean <= latency.max && latency.p99 <= latency.max);
        assert!(latency.max <= latency.max_from_nominal);
    }
}

#[test]
fn the_same_seed_gives_the_same_and_another_one_another() {
    let options = Options {
        duration: Span::from_millis(500),
        ..Options::default()
    };
    let (one, again) = (simulate(&lossy(), &options), simulate(&lossy(), &options));
    assert_eq!(one, again);
    assert_ne!(one, simulate(&lossy(), &Options { seed: 2, ..options }));
}

#[test]
fn a_search_does_not_depend_on_the_threads() {
    let search_with_threads = |threads| {
        search(
            &lossy(),
            &SearchOptions {
                evaluations: 400,
                seed: 3,
                threads,
                ..SearchOptions::default()
            },
        )
    };
    let one = search_with_threads(1);
    assert_eq!(one, search_with_threads(2));
    assert_eq!(one, search_with_threads(5));
    assert!(
        one.worst
            .iter()
            .all(|worst| worst.latency.is_some() && worst.from_nominal >= worst.latency)
    );
}

#[test]
fn a_search_finds_more_than_a_long_simulation() {
    let network = fork(direction(100_000_000, 1_000));
    let outcome = simulate(
        &network,
        &Options {
            duration: Span::from_secs(2),
            ..Options::default()
        },
    );
    let found = search(
        &network,
        &SearchOptions {
            evaluations: 2_000,
            seed: 1,
            threads: 1,
            ..SearchOptions::default()
        },
    );
    for worst in &found.worst {
        let seen = outcome.streams[worst.stream.index()].leaves[worst.leaf as usize]
            .latency
            .as_ref()
            .unwrap()
            .max;
        assert!(worst.latency.unwrap() > seen, "{worst:?} against {seen:?}");
    }
}

#[test]
fn a_search_that_breaks_off_keeps_what_it_found() {
    let stop = |done: u64| {
        if done >= 100 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let found = search_with(
        &lossy(),
        &SearchOptions {
            evaluations: 1 << 40,
            seed: 3,
            threads: 2,
            ..SearchOptions::default()
        },
        &stop,
    );
    assert!(found.evaluations >= 100 && found.evaluations < 2_000);
    assert!(found.worst.iter().any(|worst| worst.latency.is_some()));
}

#[test]
fn a_simulation_that_breaks_off_keeps_what_it_found() {
    let options = Options {
        duration: Span::from_secs(3_600),
        warmup: Span::from_millis(50),
        ..Options::default()
    };
    let mut calls = Vec::new();
    let outcome = simulate_with(&lossy(), &options, &mut |now| {
        calls.push(now);
        if calls.len() == 4 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(calls, [50, 150, 250, 350].map(|millis| Time(millis * 1_000_000)));
    assert!(!outcome.complete);
    assert_eq!(outcome.simulated, Span::from_millis(300));
    assert_eq!(outcome.ports[0].series.len(), 3);
    assert!(outcome.streams[0].released.abs_diff(1_500) <= 1);
}

#[test]
fn series_add_up_and_stay_bounded() {
    let mut options = Options {
        duration: Span::from_secs(1),
        interval: Span(100_000),
        ..Options::default()
    };
    options.warmup = Span::from_millis(10);
    let outcome = simulate(&lossy(), &options);
    // 10,000 intervals were asked for.
    assert_eq!(outcome.interval, Span(1_600_000));
    for port in &outcome.ports {
        assert_eq!(port.series.len(), 625);
        assert_eq!(
            port.series.iter().map(|interval| interval.frames).sum::<u64>(),
            port.frames
        );
        assert_eq!(
            port.series
                .iter()
                .map(|interval| interval.wire_bytes)
                .sum::<u64>(),
            port.wire_bytes
        );
        let dropped: u64 = port.series.iter().map(|interval| interval.dropped).sum();
        assert_eq!(dropped, port.dropped_buffer + port.dropped_link);
    }
    // 300 bytes every 200 us and 1184 every 400 us on 100 Mbit/s.
    let declared = (300.0 * 8.0 / 200e-6 + 1_184.0 * 8.0 / 400e-6) / 100e6;
    assert!(
        (outcome.ports[0].utilisation - declared).abs() < 0.002,
        "{}",
        outcome.ports[0].utilisation
    );
}

#[test]
fn overload_is_dropped_at_the_buffer_and_background_yields() {
    let mut bulk = stream("bulk", "a", &["b"], 0, (1, 0), 1_538);
    bulk.arrival = ArrivalDecl::Unbounded {
        max_frame_bytes: 1_538,
    };
    bulk.release = ReleaseDecl::Constant {
        gap_ns: 50_000,
        frame_bytes: 1_538,
    };
    let network = network(
        vec![host("a"), host("b")],
        vec![link(
            "a",
            "b",
            DirectionDecl {
                buffer_bytes: 10_000,
                ..direction(100_000_000, 0)
            },
        )],
        vec![bulk, stream("flow", "a", &["b"], 7, (1_000_000, 0), 1_538)],
    );
    let outcome = simulate(
        &network,
        &Options {
            duration: Span::from_secs(1),
            ..Options::default()
        },
    );
    let lost = &outcome.streams[0].leaves[0];
    assert!(lost.lost > 10_000 && outcome.ports[0].dropped_buffer >= lost.lost);
    // The room is that of one class: bulk fills its own, and one frame of the flow waits beside it.
    let largest = outcome.ports[0].largest_queue_bytes;
    assert!(largest <= 10_000 + 1_538 && largest > 8_000, "{largest}");
    assert_eq!(
        outcome.streams[1].leaves[0].lost, 0,
        "a flood below takes no room above"
    );
    let flow = outcome.streams[1].leaves[0].latency.as_ref().unwrap();
    assert!(
        flow.max <= Span(2 * 123_040),
        "one frame in transmission and its own: {:?}",
        flow.max
    );
}

#[test]
fn scheduled_conditions_take_effect() {
    let network = network(
        vec![host("a"), host("b")],
        vec![link("a", "b", direction(TICKS, 0))],
        vec![stream("f", "a", &["b"], 0, (1_000_000, 0), 100)],
    );
    let schedule = vec![
        (Time(300_000_000), Change::LinkDown(LinkId(0))),
        (Time(500_000_000), Change::LinkUp(LinkId(0))),
    ];
    let options = Options {
        duration: Span::from_secs(1),
        schedule,
        ..Options::default()
    };
    let leaf = &simulate(&network, &options).streams[0].leaves[0];
    assert_eq!((leaf.received, leaf.lost), (800, 200));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_network_can_be_simulated_and_searched(seed: u64) {
        let mut draws = Draws::named(seed, "test", "simulate");
        let network = random::network(&mut draws, true);
        let schedule = random::schedule(&network, &mut draws);
        let options = Options { duration: Span::from_millis(3), seed, schedule, ..Options::default() };
        let outcome = simulate(&network, &options);
        for stream in &outcome.streams {
            prop_assert!(stream.leaves.iter().all(|leaf| leaf.received + leaf.lost == stream.released));
        }
        let found = search(&network, &SearchOptions { evaluations: 20, seed, threads: 1,
..SearchOptions::default()
});
        prop_assert_eq!(found.worst.len(), outcome.streams.iter().map(|s| s.leaves.len()).sum::<usize>());
    }
}

//! Random networks: no simulated latency or queue above its bound, no latency below its best case.

mod support;

use proptest::prelude::*;
use support::Draws;
use support::random::{Findings, builder, compare};
use timebound_model::declaration::ArrivalDecl;

fn sweep(seed: u64, networks: usize) {
    let mut draws = Draws(seed);
    let mut findings = Findings::default();
    while findings.networks < networks {
        let builder = builder(&mut draws);
        compare(&builder, &mut draws, 12, &mut findings);
    }
    let mean = findings.ratios / findings.bounds as f64;
    println!(
        "{networks} networks, {} bounds, mean bound over worst simulated {mean:.3}",
        findings.bounds
    );
    println!(
        "{} figures of the trajectory approach, {} of them exceeded, mean over worst simulated {:.3}",
        findings.by_trajectory,
        findings.below_by_trajectory,
        findings.ratios_of_trajectory / findings.by_trajectory.max(1) as f64
    );
    assert!(
        200 * findings.below_by_trajectory <= findings.by_trajectory,
        "the trajectory approach is exceeded too often for corners"
    );
    assert!(
        mean < 2.0,
        "the bounds have become loose, or the runs tame: {mean}"
    );
}

/// `cargo test --test random_networks -- --nocapture` prints its tightness.
#[test]
fn a_sweep_of_random_networks() {
    sweep(2_026, 3_000);
}

#[test]
#[ignore = "takes a minute; cargo test --release --test random_networks -- --ignored"]
fn a_long_sweep_of_random_networks() {
    sweep(77, 100_000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_run_exceeds_a_bound(seed in any::<u64>()) {
        let mut draws = Draws(seed);
        let builder = builder(&mut draws);
        compare(&builder, &mut draws, 10, &mut Findings::default());
    }
}

/// Links of up to eight times the rate of others: what slow ones set apart is still apart further on, or is not.
#[test]
fn networks_of_many_rates() {
    let mut draws = Draws(19);
    let mut findings = Findings::default();
    while findings.networks < 1_000 {
        let mut builder = builder(&mut draws);
        for link in &mut builder.declaration.links {
            let rate = support::BYTE_PER_NANO * draws.within(1, 8) / 2;
            (link.forward.rate_bps, link.backward.rate_bps) = (rate, rate);
        }
        compare(&builder, &mut draws, 12, &mut findings);
    }
}

/// Frames smaller than declared arrive earlier, and so vary by more: neither latencies nor best cases nor queues pass what the analysis says.
#[test]
fn networks_whose_frames_may_be_smaller_than_declared() {
    let mut draws = Draws(23);
    let mut findings = Findings::default();
    while findings.networks < 1_000 {
        let mut builder = builder(&mut draws);
        if draws.chance(50) {
            for link in &mut builder.declaration.links {
                let rate = support::BYTE_PER_NANO * draws.within(1, 8) / 2;
                (link.forward.rate_bps, link.backward.rate_bps) = (rate, rate);
            }
        }
        for stream in &mut builder.declaration.streams {
            if draws.chance(60)
                && let ArrivalDecl::Periodic { frames_bytes, .. } = &stream.arrival
            {
                let least = frames_bytes.iter().copied().min().unwrap_or(1);
                stream.least_frame_bytes = Some(draws.within(1, u64::from(least)) as u32);
            }
        }
        compare(&builder, &mut draws, 12, &mut findings);
    }
}

/// Whatever the number of threads, the analysis is the same.
#[test]
fn threads_change_nothing() {
    let mut draws = Draws(5);
    for _ in 0..300 {
        let network = builder(&mut draws).network();
        let by = |threads| {
            timebound_bounds::analyse(
                &network,
                &timebound_bounds::Options {
                    threads,
                    ..timebound_bounds::Options::default()
                },
            )
        };
        let one = by(1);
        assert_eq!(one, by(2));
        assert_eq!(one, by(5));
    }
}

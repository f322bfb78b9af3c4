//! Driving the fabric live (small batches, late stamps, the clock moving on) and replaying what was recorded give the same.

#[path = "../../fabric/tests/common/mod.rs"]
mod common;
use common::random;
use proptest::prelude::*;
use std::sync::Arc;
use timebound_fabric::{Draws, Fabric};
use timebound_model::Time;
use timebound_sim::{Recorder, replay};

proptest! {
    #[test]
    fn a_recorded_run_replays_exactly(seed: u64) {
        let mut draws = Draws::named(seed, "test", "parity");
        let network = random::network(&mut draws, true);
        let fabric_seed = draws.bits();
        let mut fabric = Fabric::new(Arc::clone(&network), fabric_seed);
        let (mut live, mut ingress, mut schedule) = (Recorder::default(), Vec::new(), Vec::new());
        let mut planned = random::schedule(&network, &mut draws);
        let mut clock = 0u64;
        for tag in 0..200 {
            // Stamps lie around the time to which the fabric has advanced, some of them before it.
            let (host, frame) = random::frame(&network, &mut draws, tag);
            let stamp = Time((clock + draws.up_to(4_000)).saturating_sub(draws.up_to(2_000)));
            ingress.push((fabric.ingress(stamp, host, frame), host, frame));
            if draws.up_to(9) == 0
                && let Some((at, change)) = planned.pop()
            {
                schedule.push((fabric.schedule(at, change.clone()), change));
            }
            match draws.up_to(3) {
                0 => {}
                1 => {
                    // As the emulator does: sleep until the next timeout.
                    if let Some(timeout) = fabric.next_timeout() {
                        clock = clock.max(timeout.0);
                        fabric.advance(timeout, &mut live);
                    }
                }
                _ => {
                    clock += draws.up_to(5_000);
                    fabric.advance(Time(clock), &mut live);
                }
            }
        }
        fabric.advance(Time::MAX, &mut live);
        prop_assert!(live.departures.len() >= 200);
        prop_assert_eq!(live.departures, replay(&network, fabric_seed, &schedule, &ingress));
    }
}

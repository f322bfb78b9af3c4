//! The machine and the fabric agree about the same phasings, where no two things happen at once.

use super::common::{direction, host, link, network, stream, switch};
use super::evaluate::{Evaluator, Finding};
use super::moments::Moment;
use super::phasing::{Gene, Lateness, Phasing};
use super::scene::Scene;
use super::survey::Survey;
use proptest::prelude::*;
use std::sync::Arc;
use timebound_fabric::{Draws, Switching};
use timebound_model::Network;
use timebound_model::declaration::{DirectionDecl, JitterDecl, JitterDistribution, QueueDecl};

/// Odd rates and delays, so that hardly anything happens at once.
fn way(draws: &mut Draws) -> DirectionDecl {
    let mut way = direction(90_000_001 + draws.up_to(20_000_000), draws.up_to(9_973));
    if draws.up_to(1) == 0 {
        way.queue = QueueDecl::Fifo;
    }
    if draws.up_to(2) == 0 {
        let max_ns = draws.up_to(70_001);
        way.impairments.jitter = Some(JitterDecl {
            distribution: JitterDistribution::Uniform { max_ns },
            reorder: false,
        });
    }
    way
}

/// Three switches in a row with four hosts each.
fn row(draws: &mut Draws) -> Arc<Network> {
    let mut nodes = Vec::new();
    let mut links = Vec::new();
    for s in 0..3u64 {
        let least = draws.up_to(9_001);
        nodes.push(switch(&format!("s{s}"), least, least + draws.up_to(30_011)));
        if s > 0 {
            links.push(link(&format!("s{}", s - 1), &format!("s{s}"), way(draws)));
        }
        for h in 4 * s..4 * s + 4 {
            nodes.push(host(&format!("h{h}")));
            links.push(link(&format!("h{h}"), &format!("s{s}"), way(draws)));
        }
    }
    let streams = (0..24).map(|index| {
        let source = draws.up_to(11);
        let mut to = vec![format!("h{}", (source + 1 + draws.up_to(10)) % 12)];
        let other = format!("h{}", (source + 1 + draws.up_to(10)) % 12);
        if draws.up_to(2) == 0 && other != to[0] {
            to.push(other);
        }
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        let period = 200_003 + draws.up_to(900_001);
        let timing = (period, draws.up_to(2) * draws.up_to(period));
        let bytes = 84 + draws.up_to(1_454) as u32;
        stream(
            &format!("f{index}"),
            &format!("h{source}"),
            &to,
            draws.up_to(3) as u8,
            timing,
            bytes,
        )
    });
    let streams = streams.collect();
    network(nodes, links, streams)
}

fn phasing(draws: &mut Draws, scene: &Scene) -> Phasing {
    let gene = |draws: &mut Draws| Gene {
        offset: draws.up_to(800_000) as i64 - 600_000,
        lateness: [Lateness::First, Lateness::Even, Lateness::Random][draws.up_to(2) as usize],
    };
    Phasing {
        genes: scene.actors.iter().map(|_| gene(draws)).collect(),
        arrivals: scene
            .places
            .iter()
            .map(|place| scene.origin + place.travel)
            .collect(),
        releases: 1 + draws.up_to(2) as u32,
        turn: 0,
        switching: [
            Switching::Greatest,
            Switching::Least,
            Switching::ExtremesByStream(0),
        ][draws.up_to(2) as usize],
        seed: draws.bits(),
    }
}

/// All that the fabric saw until it stopped, the machine saw as well, and in the same order.
fn agree(fabric: &Finding, machine: &Finding) -> Result<(), TestCaseError> {
    prop_assert_eq!(
        (fabric.latency, fabric.from_nominal),
        (machine.latency, machine.from_nominal)
    );
    for (one, other) in fabric.visits.iter().zip(&machine.visits) {
        prop_assert!(one.len() <= other.len());
        for (seen, visit) in one.iter().zip(other) {
            prop_assert_eq!((seen.actor, seen.arrived), (visit.actor, visit.arrived));
            if seen.started != u64::MAX {
                prop_assert_eq!((seen.started, seen.busy_since), (visit.started, visit.busy_since));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn machine_and_fabric_agree(seed: u64) {
        let mut draws = Draws::named(seed, "test", "machine");
        let network = row(&mut draws);
        let survey = Survey::new(&network);
        let mut compared = 0;
        for &target in survey.targets.iter().take(6) {
            let (scene, _) = Scene::new(&survey, target, draws.bits() & 1 == 0);
            let mut machine = Evaluator::new(&scene, Moment::default(), None);
            prop_assert!(machine.has_machine());
            let mut fabric = Evaluator::new(&scene, Moment::default(), None).with_fabric();
            let (mut one, mut other) = (Finding::default(), Finding::default());
            for _ in 0..4 {
                let phasing = phasing(&mut draws, &scene);
                fabric.evaluate(&phasing, &mut one, &|| false);
                machine.evaluate(&phasing, &mut other, &|| false);
                prop_assert!(one.latency > 0);
                // Odd numbers make that rare, but not impossible.
                if !machine.saw_a_tie() {
                    agree(&one, &other)?;
                    compared += 1;
                }
            }
        }
        prop_assert!(compared > 0);
    }
}

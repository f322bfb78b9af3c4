//! Whatever is declared, the analysis answers: no panic, no overflow, no endless loop.

mod support;

use proptest::prelude::*;
use support::methods::METHODS;
use support::{alone, direction};
use timebound_bounds::{Admission, AdmissionOptions, Options, Outcome, Safety, holistic};
use timebound_model::declaration::{
    ArrivalDecl, Declaration, ImpairmentsDecl, JitterDecl, JitterDistribution, LinkDecl, LossDecl, NodeDecl,
    NodeKindDecl, QueueDecl, ReleaseDecl, RoleDecl, SlotsDecl, StreamDecl,
};
use timebound_model::{Span, StreamId, compile};

/// Small, ordinary, and at the edge of what compiles (and beyond it).
fn nanos() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..40,
        1_000u64..1_000_000,
        Just(999_999_999_999_999),
        Just(1_000_000_000_000_000),
        (0u64..1_000_000_000_000_000),
        prop_oneof![300 => Just(1u64), 1 => Just(u64::MAX)],
    ]
}

/// Mostly none; often ones that hold no frame at the link's rate.
fn slots() -> impl Strategy<Value = Option<SlotsDecl>> {
    let some = (nanos(), nanos(), nanos()).prop_map(|(cycle, at, length)| {
        let cycle_ns = cycle.max(2);
        let length = 1 + length % (cycle_ns - 1);
        let at = at % (cycle_ns - length + 1);
        Some(SlotsDecl {
            cycle_ns,
            slots_ns: vec![(at, length)],
        })
    });
    prop_oneof![6 => Just(None), 1 => some]
}

fn link(nodes: usize) -> impl Strategy<Value = LinkDecl> {
    let rate = prop_oneof![
        Just(100u64),
        Just(10_000_000_000_000),
        Just(100_000_000),
        100u64..1_000_000
    ];
    let queue = prop_oneof![
        6 => Just(QueueDecl::StrictPriority),
        2 => Just(QueueDecl::Fifo),
        1 => Just(QueueDecl::Drr { quanta_bytes: [1; 8] }),
        1 => Just(QueueDecl::Drr { quanta_bytes: [1, u32::MAX, 1538, 9_300, 84, 1, 3_000, 1_538] })
    ];
    let odds = (0u8..20, 0u8..20, 0u8..20, nanos(), slots());
    (0..nodes, 0..nodes, rate, nanos(), queue, odds).prop_map(|(a, b, rate_bps, delay, queue, odds)| {
        let (lossy, doubling, half_duplex, jitter, slots) = odds;
        let distribution = JitterDistribution::Uniform { max_ns: jitter };
        let impairments = ImpairmentsDecl {
            jitter: Some(JitterDecl {
                distribution,
                reorder: false,
            }),
            loss: (lossy == 0).then_some(LossDecl::Bernoulli { probability: 0.5 }),
            duplication: if doubling == 0 { 1.0 } else { 0.0 },
            ..ImpairmentsDecl::default()
        };
        let mut forward = direction(rate_bps, delay);
        (forward.queue, forward.impairments) = (queue, impairments);
        let backward = forward.clone();
        if half_duplex > 0 {
            forward.slots = slots;
        }
        LinkDecl {
            a: format!("n{a}"),
            b: format!("n{b}"),
            forward,
            backward,
            half_duplex: half_duplex == 0,
        }
    })
}

fn stream(nodes: usize) -> impl Strategy<Value = StreamDecl> {
    let frames = prop::collection::vec(prop_oneof![1u32..9_301, Just(84), Just(1538), Just(9_301)], 1..4);
    let arrival = prop_oneof![
        9 => (nanos(), nanos(), frames)
            .prop_map(|(period_ns, jitter_ns, frames_bytes)| ArrivalDecl::Periodic { period_ns, jitter_ns, frames_bytes }),
        1 => Just(ArrivalDecl::Unbounded { max_frame_bytes: 1538 }),
        2 => (nanos(), nanos(), 84u32..800, 800u32..1_539).prop_map(|(rate, burst, min_frame_bytes, max_frame_bytes)| ArrivalDecl::TokenBucket {
            rate_bps: rate.clamp(1, 10_000_000_000_000),
            burst_bytes: u64::from(max_frame_bytes) + burst % 1_000_000,
            min_frame_bytes,
            max_frame_bytes,
        }),
    ];
    (
        0..nodes,
        prop::collection::btree_set(0..nodes, 1..3),
        0u8..8,
        arrival,
    )
        .prop_map(|(from, to, class, arrival)| StreamDecl {
            name: String::new(),
            source: format!("n{from}"),
            destinations: to.into_iter().map(|node| format!("n{node}")).collect(),
            class,
            role: RoleDecl::Data,
            arrival,
            release: ReleaseDecl::Silent,
            deadline_ns: None,
            least_frame_bytes: None,
            route: None,
        })
}

/// Hosts are the even nodes; a spanning chain of switches keeps most streams possible.
fn declaration() -> impl Strategy<Value = Declaration> {
    (2usize..8).prop_flat_map(|pairs| {
        let nodes = 2 * pairs;
        let switching = prop::collection::vec((nanos(), nanos()), nodes);
        let links = prop::collection::vec(link(nodes), nodes + 2);
        let streams = prop::collection::vec(stream(nodes), 0..10);
        (switching, links, streams, 0u32..9_302).prop_map(
            move |(switching, mut links, mut streams, frame)| {
                let node = |(index, (a, b)): (usize, (u64, u64))| NodeDecl {
                    name: format!("n{index}"),
                    kind: if index % 2 == 0 {
                        NodeKindDecl::Host
                    } else {
                        NodeKindDecl::Switch
                    },
                    switching_min_ns: a.min(b),
                    switching_max_ns: a.max(b),
                    replication_min_ns: 0,
                    replication_max_ns: 0,
                };
                for (index, link) in links.iter_mut().enumerate().take(nodes - 1) {
                    let peer = if index % 2 == 0 {
                        index + 1
                    } else {
                        (index + 2).min(nodes - 1)
                    };
                    (link.a, link.b) = (format!("n{index}"), format!("n{peer}"));
                }
                for (index, stream) in streams.iter_mut().enumerate() {
                    stream.name = format!("f{index}");
                    let host = |name: &str| format!("n{}", name[1..].parse::<usize>().unwrap_or(0) / 2 * 2);
                    stream.source = host(&stream.source);
                    stream.destinations = stream.destinations.iter().map(|name| host(name)).collect();
                    stream.destinations.dedup();
                }
                Declaration {
                    nodes: switching.into_iter().enumerate().map(node).collect(),
                    links,
                    streams,
                    best_effort_frame_bytes: frame,
                    traces: std::collections::BTreeMap::new(),
                }
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_declaration_gets_an_answer(mut declaration in declaration(), observed in nanos()) {
        // What does not compile is taken out stream by stream, so that most cases reach the analysis.
        let network = loop {
            match compile(&declaration) {
                Ok(network) => break Some(network),
                Err(_) if declaration.streams.pop().is_some() => {}
                Err(_) => break None,
            }
        };
        let Some(network) = network else { return Ok(()) };
        let jitter_override = (0..network.streams.len()).map(|s| (StreamId::new(s), Span(observed))).collect();
        for options in [Options::default(), alone(), Options { jitter_override, ..Options::default() }] {
            let analysis = holistic(&network, &options);
            prop_assert_eq!(analysis.streams.len(), network.streams.len());
            for outcome in analysis.streams.iter().flat_map(|s| &s.leaves).map(|leaf| &leaf.outcome) {
                match outcome {
                    Outcome::Bound { from_nominal, from_actual, best_case, .. } => {
                        prop_assert!(best_case <= from_actual && from_actual <= from_nominal);
                    }
                    Outcome::NoFiniteBound { reason, .. } | Outcome::Unsupported { reason } => {
                        prop_assert!(!reason.is_empty());
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]
    /// Every method, the published ones included.
    #[test]
    fn every_method_gives_an_answer(mut declaration in declaration()) {
        let network = loop {
            match compile(&declaration) {
                Ok(network) => break Some(network),
                Err(_) if declaration.streams.pop().is_some() => {}
                Err(_) => break None,
            }
        };
        let Some(network) = network else { return Ok(()) };
        for method in METHODS {
            let analysis = (method.analyse)(&network, &Options::default());
            prop_assert_eq!(analysis.streams.len(), network.streams.len());
            prop_assert_eq!(analysis.ports.len(), network.ports.len());
            for outcome in analysis.streams.iter().flat_map(|s| &s.leaves).map(|leaf| &leaf.outcome) {
                match outcome {
                    Outcome::Bound { from_nominal, from_actual, best_case, .. } => {
                        prop_assert!(from_actual <= from_nominal, "{}", method.name);
                        prop_assert!(best_case <= from_actual || method.safety == Safety::Unsafe, "{}", method.name);
                    }
                    Outcome::NoFiniteBound { reason, .. } | Outcome::Unsupported { reason } => {
                        prop_assert!(!reason.is_empty());
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]
    /// Admission, too; and whether the bounds are worked out at once or later, the answers are the same.
    #[test]
    fn every_request_gets_an_answer(
        mut declaration in declaration(),
        deadlines in prop::collection::vec(prop::option::of(nanos()), 10),
        turns in prop::collection::vec((0usize..10, any::<bool>()), 0..16),
    ) {
        for (stream, deadline) in declaration.streams.iter_mut().zip(&deadlines) {
            stream.deadline_ns = deadline.filter(|deadline| *deadline > 0);
        }
        let mut network = loop {
            match compile(&declaration) {
                Ok(network) => break network,
                Err(_) if declaration.streams.pop().is_some() => {}
                Err(_) => return Ok(()),
            }
        };
        let mut waiting = network.streams.split_off(network.streams.len() / 2);
        let mut ahead = Admission::new(&network, AdmissionOptions::default());
        let mut twin = Admission::new(&network, AdmissionOptions::default());
        for (which, leaves) in turns {
            let names: Vec<String> = ahead.streams().map(|(_, stream)| stream.name.clone()).collect();
            if leaves && !names.is_empty() {
                let name = &names[which % names.len()];
                let id = ahead.find(name).expect("it is there");
                waiting.push(ahead.remove(id).expect("it leaves"));
                let id = twin.find(name).expect("it is there");
                twin.remove(id).expect("it leaves");
            } else if !waiting.is_empty() {
                let stream = waiting.swap_remove(which % waiting.len());
                let answer = ahead.decide(stream.clone()).expect("no misuse").is_ok();
                let with_bounds = twin.add(stream.clone()).expect("no misuse").is_ok();
                prop_assert_eq!(answer, with_bounds, "{} in {:?}", stream.name, declaration);
                if !answer {
                    waiting.push(stream);
                }
            }
        }
        for name in ahead.streams().map(|(_, stream)| stream.name.clone()).collect::<Vec<_>>() {
            let ours = ahead.find(&name).and_then(|id| ahead.result(id)).expect("a result");
            let theirs = twin.find(&name).and_then(|id| twin.result(id)).expect("a result");
            for (ours, theirs) in ours.leaves.iter().zip(&theirs.leaves) {
                match (&ours.outcome, &theirs.outcome) {
                    (Outcome::Bound { .. }, _) | (_, Outcome::Bound { .. }) => prop_assert_eq!(ours, theirs),
                    _ => {}
                }
            }
        }
    }
}

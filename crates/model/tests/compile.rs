//! Declarations that must compile, and every kind that must not, with the place of the mistake.

use proptest::prelude::*;
use timebound_model::declaration::{
    ArrivalDecl, Declaration, DirectionDecl, ImpairmentsDecl, LinkDecl, NodeDecl, NodeKindDecl, QueueDecl,
    ReleaseDecl, RoleDecl, SlotsDecl, StreamDecl,
};
use timebound_model::{CompileErrors, Network, NodeId, PortId, compile};

fn node(name: &str, kind: NodeKindDecl) -> NodeDecl {
    NodeDecl {
        name: name.into(),
        kind,
        switching_min_ns: 0,
        switching_max_ns: 10_000,
        replication_min_ns: 0,
        replication_max_ns: 0,
    }
}

fn direction() -> DirectionDecl {
    DirectionDecl {
        rate_bps: 100_000_000,
        delay_ns: 5_000,
        queue: QueueDecl::StrictPriority,
        buffer_bytes: 262_144,
        impairments: ImpairmentsDecl::default(),
        trace: None,
        slots: None,
    }
}

fn link(a: &str, b: &str) -> LinkDecl {
    LinkDecl {
        a: a.into(),
        b: b.into(),
        forward: direction(),
        backward: direction(),
        half_duplex: false,
    }
}

fn stream(name: &str, source: &str, destinations: &[&str]) -> StreamDecl {
    StreamDecl {
        name: name.into(),
        source: source.into(),
        destinations: destinations.iter().map(|&d| d.into()).collect(),
        class: 5,
        role: RoleDecl::Data,
        arrival: ArrivalDecl::Periodic {
            period_ns: 1_000_000,
            jitter_ns: 0,
            frames_bytes: vec![1538],
        },
        release: ReleaseDecl::Periodic { offset_ns: None },
        deadline_ns: None,
        least_frame_bytes: None,
        route: None,
    }
}

/// h1 - s1 - s2 - {h2, h3}, and a longer way s1 - s3 - s2.
fn declaration() -> Declaration {
    use NodeKindDecl::{Host, Switch};
    Declaration {
        nodes: vec![
            node("h1", Host),
            node("h2", Host),
            node("h3", Host),
            node("s1", Switch),
            node("s2", Switch),
            node("s3", Switch),
        ],
        links: vec![
            link("h1", "s1"),
            link("s1", "s3"),
            link("s3", "s2"),
            link("s1", "s2"),
            link("s2", "h2"),
            link("s2", "h3"),
        ],
        streams: vec![stream("alpha", "h1", &["h2", "h3"])],
        best_effort_frame_bytes: 1538,
        traces: std::collections::BTreeMap::new(),
    }
}

fn names(network: &Network, ports: impl IntoIterator<Item = PortId>) -> Vec<String> {
    ports.into_iter().map(|p| network.port_name(p)).collect()
}

fn errors(change: impl FnOnce(&mut Declaration)) -> Vec<String> {
    let mut declaration = declaration();
    change(&mut declaration);
    let CompileErrors(errors) = compile(&declaration).expect_err("should not compile");
    errors
        .into_iter()
        .map(|e| format!("{}: {}", e.path, e.message))
        .collect()
}

#[test]
fn multicast_joins_paths_into_one_tree() {
    let network = compile(&declaration()).expect("compiles");
    let tree = &network.streams[0].tree;
    assert_eq!(
        names(&network, tree.hops.iter().map(|h| h.port)),
        ["h1->s1", "s1->s2", "s2->h2", "s2->h3"]
    );
    assert_eq!(
        tree.hops.iter().map(|h| h.parent).collect::<Vec<_>>(),
        [None, Some(0), Some(1), Some(1)]
    );
    assert_eq!(tree.path(tree.leaves[1]), [0, 1, 3]);
    assert_eq!(tree.children(Some(1)).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn the_shorter_way_is_taken_and_hosts_do_not_forward() {
    let mut declaration = declaration();
    declaration.links.push(link("h3", "s1"));
    let network = compile(&declaration).expect("compiles");
    let path = network
        .routes
        .path(&network.ports, NodeId(0), NodeId(1))
        .expect("path");
    assert_eq!(names(&network, path), ["h1->s1", "s1->s2", "s2->h2"]);
}

#[test]
fn explicit_routes_are_followed() {
    let mut declaration = declaration();
    declaration.streams[0].destinations.pop();
    declaration.streams[0].route = Some(vec![["h1", "s1", "s3", "s2", "h2"].map(String::from).to_vec()]);
    let network = compile(&declaration).expect("compiles");
    assert_eq!(network.streams[0].tree.hops.len(), 4);
}

#[test]
fn ports_come_in_pairs() {
    let network = compile(&declaration()).expect("compiles");
    for (index, port) in network.ports.iter().enumerate() {
        let reverse = &network.ports[port.reverse.index()];
        assert_eq!(
            (reverse.reverse.index(), reverse.node, reverse.peer),
            (index, port.peer, port.node)
        );
    }
}

#[test]
fn links_of_a_segment_share_one_medium() {
    let mut declaration = declaration();
    declaration.nodes[4].kind = NodeKindDecl::Segment;
    let network = compile(&declaration).expect("compiles");
    let on_segment: Vec<_> = network.ports.iter().filter(|p| p.medium.is_some()).collect();
    assert_eq!((network.media, on_segment.len()), (1, 8));
}

#[test]
fn all_errors_come_at_once_with_their_place() {
    let found = errors(|d| {
        d.streams.push(stream("alpha", "h1", &["h2", "h2"]));
        d.streams.push(stream("gamma", "nowhere", &["s1"]));
        d.streams[0].class = 8;
    });
    assert_eq!(
        found,
        [
            "streams[0].class: class 8 does not exist",
            "streams[1].name: duplicate stream \"alpha\"",
            "streams[1].destinations[1]: destination \"h2\" twice",
            "streams[2].source: unknown node \"nowhere\"",
            "streams[2].destinations[0]: \"s1\" is no host",
        ]
    );
}

#[test]
fn unreachable_receivers_are_named() {
    let found = errors(|d| {
        d.links.remove(4);
    });
    assert_eq!(
        found,
        ["streams[0].destinations[0]: \"h2\" cannot be reached from \"h1\""]
    );
}

#[test]
fn network_errors_have_their_place() {
    assert_eq!(
        errors(|d| d.links[0].a = "h9".into()),
        ["links[0].a: unknown node \"h9\""]
    );
    assert_eq!(
        errors(|d| d.links[0].b = "h1".into()),
        ["links[0]: a link from a node to itself"]
    );
    assert_eq!(
        errors(|d| d.nodes[1].name = "h1".into())[0],
        "nodes[1].name: duplicate node \"h1\""
    );
    assert_eq!(
        errors(|d| d.links[0].forward.rate_bps = 0),
        ["links[0].forward.rate_bps: a rate of 0 bit/s is impossible"]
    );
    assert_eq!(
        errors(|d| d.links[0].backward.impairments.duplication = 1.5),
        ["links[0].backward.impairments.duplication: 1.5 is no probability"]
    );
    assert_eq!(
        errors(|d| d.links[0].backward.impairments.outages = vec![(5, 5)]),
        ["links[0].backward.impairments.outages: an outage that ends before it starts"]
    );
    assert_eq!(
        errors(|d| d.nodes[3].switching_min_ns = 20_000),
        ["nodes[3].switching_min_ns: the least switching delay exceeds the greatest"]
    );
}

#[test]
fn a_least_frame_is_none_of_the_declared_ones() {
    let at = "streams[0].least_frame_bytes";
    let found = |least, arrival: Option<ArrivalDecl>| {
        errors(|d| {
            d.streams[0].least_frame_bytes = Some(least);
            if let Some(arrival) = arrival {
                d.streams[0].arrival = arrival;
            }
        })
    };
    assert_eq!(
        found(1_539, None),
        [format!("{at}: a declared frame is smaller than the least one")]
    );
    let bucket = ArrivalDecl::TokenBucket {
        rate_bps: 1_000,
        burst_bytes: 3_000,
        min_frame_bytes: 84,
        max_frame_bytes: 1_538,
    };
    assert_eq!(
        found(84, Some(bucket)),
        [format!("{at}: a least frame beside that of a token bucket")]
    );
    let unbounded = ArrivalDecl::Unbounded {
        max_frame_bytes: 1_538,
    };
    assert_eq!(
        found(84, Some(unbounded)),
        [format!("{at}: a least frame of a stream that promises nothing")]
    );
}

#[test]
fn token_buckets_let_their_frames_pass() {
    let bucket = |rate_bps, burst_bytes, min_frame_bytes, max_frame_bytes| ArrivalDecl::TokenBucket {
        rate_bps,
        burst_bytes,
        min_frame_bytes,
        max_frame_bytes,
    };
    let greedy = |frames_bytes| ReleaseDecl::Greedy {
        offset_ns: None,
        frames_bytes,
    };
    let found = |arrival: ArrivalDecl, release: ReleaseDecl| {
        errors(|d| {
            d.streams[0].arrival = arrival;
            d.streams[0].release = release;
        })
    };
    let mut sound = declaration();
    sound.streams[0].arrival = bucket(1_000_000, 3_000, 84, 1_538);
    sound.streams[0].release = greedy(vec![1_538, 1_000]);
    compile(&sound).expect("compiles");
    let silent = ReleaseDecl::Silent;
    let cases = [
        (
            bucket(0, 3_000, 84, 1_538),
            "streams[0].arrival.rate_bps: a token rate of 0 bit/s is impossible",
        ),
        (
            bucket(1_000, 1_537, 84, 1_538),
            "streams[0].arrival.burst_bytes: a burst of 1537 bytes never lets a frame of 1538 bytes pass",
        ),
        (
            bucket(1_000, 3_000, 90, 84),
            "streams[0].arrival.min_frame_bytes: the least frame is larger than the largest",
        ),
        (
            bucket(1, 1_000_000, 84, 84),
            "streams[0].arrival.burst_bytes: 8000000000000000 ns is longer than 1000000000000000 ns",
        ),
    ];
    for (arrival, expected) in cases {
        let found = found(arrival, silent.clone());
        assert_eq!(found, [expected]);
    }
    let does_not_fit = |frames: Vec<u32>| found(bucket(1_000, 3_000, 84, 1_538), greedy(frames)).remove(0);
    for frames in [vec![], vec![83], vec![1_539], vec![1_500, 1_501]] {
        assert!(does_not_fit(frames).contains("does not fit the token bucket"));
    }
    assert_eq!(
        errors(|d| d.streams[0].release = greedy(vec![84])),
        ["streams[0].release: a greedy release without a token bucket"]
    );
}

fn slots(cycle_ns: u64, slots_ns: &[(u64, u64)]) -> Option<SlotsDecl> {
    Some(SlotsDecl {
        cycle_ns,
        slots_ns: slots_ns.to_vec(),
    })
}

#[test]
fn slots_of_one_medium_fit_together() {
    let half = |forward: &[(u64, u64)], backward: Option<SlotsDecl>| {
        let forward = slots(1_000_000, forward);
        move |d: &mut Declaration| {
            d.links[0].half_duplex = true;
            d.links[0].forward.slots = forward;
            d.links[0].backward.slots = backward;
        }
    };
    let mut sound = declaration();
    half(
        &[(0, 400_000)],
        slots(1_000_000, &[(400_000, 200_000), (800_000, 200_000)]),
    )(&mut sound);
    let network = compile(&sound).expect("compiles");
    assert_eq!(network.ports[0].slots.as_ref().map(|s| s.ranges().len()), Some(1));
    assert_eq!(network.ports[1].slots.as_ref().map(|s| s.ranges().len()), Some(2));
    assert_eq!(
        errors(half(&[(0, 400_000)], None)),
        ["links[0].backward.slots: \"s1\" has no slots on a medium where others have"]
    );
    assert_eq!(
        errors(half(&[(0, 400_000)], slots(2_000_000, &[(400_000, 1)]))),
        ["links[0].backward.slots: two cycles on one medium"]
    );
    assert_eq!(
        errors(half(&[(0, 400_000)], slots(1_000_000, &[(399_999, 500_000)]))),
        ["links[0].backward.slots: slots of \"s1\" and \"h1\" overlap"]
    );
    assert_eq!(
        errors(|d| d.links[0].forward.slots = slots(10, &[(5, 6)])),
        ["links[0].forward.slots: a slot that reaches beyond the end of the cycle"]
    );
    // 1538 bytes take 123.04 us.
    assert_eq!(
        errors(|d| d.links[0].forward.slots = slots(1_000_000, &[(0, 123_039)])),
        [
            "streams[0].arrival: a frame of 1538 bytes takes 123.04 us at h1->s1, and the longest slot there has \
          123.039 us"
        ]
    );
}

#[test]
fn routes_that_are_no_paths_are_refused() {
    let route = |nodes: &[&str]| {
        let nodes = nodes.iter().map(|&n| n.into()).collect::<Vec<String>>();
        errors(move |d| {
            d.streams[0].destinations.pop();
            d.streams[0].route = Some(vec![nodes]);
        })
    };
    assert!(route(&["h1", "s2", "h2"])[0].contains("no link from \"h1\" to \"s2\""));
    assert!(route(&["h1", "s1", "s3", "s1", "s2", "h2"])[0].contains("visits \"s1\" twice"));
    assert!(route(&["s1", "s2", "h2"])[0].contains("does not lead from the source"));
}

proptest! {
    /// Whatever is declared: an answer or errors, never a panic.
    #[test]
    fn compile_never_panics(
        ends in prop::collection::vec((0usize..7, 0usize..7, any::<u64>(), any::<u64>()), 0..12),
        sources in prop::collection::vec((0usize..7, 0usize..7, any::<u8>(), any::<u64>(), any::<u32>()), 0..6),
        kinds in prop::collection::vec(0u8..3, 6),
    ) {
        let name = |i: usize| format!("n{i}");
        let mut declaration = declaration();
        declaration.nodes = kinds.iter().enumerate().map(|(i, k)| node(&name(i), match k {
            0 => NodeKindDecl::Host, 1 => NodeKindDecl::Switch, _ => NodeKindDecl::Segment,
        })).collect();
        declaration.links = ends.iter().map(|&(a, b, rate, delay)| {
            let mut link = link(&name(a), &name(b));
            link.forward.rate_bps = rate;
            link.backward.delay_ns = delay;
            link
        }).collect();
        declaration.streams = sources.iter().enumerate().map(|(i, &(a, b, class, period, frame))| {
            let mut stream = stream(&format!("f{i}"), &name(a), &[&name(b)]);
            stream.class = class;
            stream.arrival = ArrivalDecl::Periodic { period_ns: period, jitter_ns: period, frames_bytes: vec![frame] };
            stream
        }).collect();
        let _ = compile(&declaration);
    }
}

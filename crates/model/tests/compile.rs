//! Declarations that must compile, and every kind that must not, with the place of the mistake.

use proptest::prelude::*;
use timebound_model::declaration::{
    ArrivalDecl, Declaration, DirectionDecl, ImpairmentsDecl, LinkDecl, NodeDecl, NodeKindDecl, QueueDecl,
    ReleaseDecl, RoleDecl, StreamDecl,
};
use timebound_model::{CompileErrors, Network, NodeId, PortId, compile};

fn node(name: &str, kind: NodeKindDecl) -> NodeDecl {
    NodeDecl {
        name: name.into(),
        kind,
        switching_min_ns: 0,
        switching_max_ns: 10_000,
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

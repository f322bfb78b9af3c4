//! Routes that lower the worst utilisation, against enumeration of every way on tiny networks.

mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use support::{BYTE_PER_NANO, Builder, Draws, alone};
use timebound_bounds::assign::{Assignment, Latency, Limits, PriorityMethod, Task, Wanted, assign};
use timebound_bounds::{Analysis, analyse};
use timebound_model::{Arrival, Class, Network, NodeId, NodeKind, PortId, Span, compile};

fn wanted(limits: Limits) -> Wanted {
    Wanted {
        priorities: None,
        routes: Some(limits),
    }
}

fn run_with(network: &Network, task: &Task, wanted: &Wanted) -> Assignment {
    assign(network, task, wanted, &analyse, &mut |_, _| {
        ControlFlow::Continue(())
    })
    .expect("a task that fits")
}

fn run(network: &Network, limits: Limits) -> Assignment {
    let mut task = Task::per_stream(network);
    task.options = alone();
    run_with(network, &task, &wanted(limits))
}

fn worst_utilisation(analysis: &Analysis) -> f64 {
    analysis
        .ports
        .iter()
        .map(|port| port.utilisation.value)
        .fold(0.0, f64::max)
}

/// Three to five switches in a ring with chords, a host at each, streams between them.
fn meshed(draws: &mut Draws) -> Builder {
    let count = draws.within(3, 5) as usize;
    let mut builder = Builder::new(BYTE_PER_NANO, 0);
    for index in 0..count {
        builder = builder.switch(&format!("s{index}"), 0, draws.below(3));
        builder = builder
            .host(&format!("h{index}"))
            .link(&format!("h{index}"), &format!("s{index}"));
        if index > 0 {
            builder = builder.link(&format!("s{}", index - 1), &format!("s{index}"));
        }
    }
    builder = builder.link(&format!("s{}", count - 1), "s0");
    if count > 3 && draws.chance(50) {
        builder = builder.link("s0", "s2");
    }
    for index in 0..draws.within(2, 4) {
        let source = draws.below(count as u64) as usize;
        let receivers = if draws.chance(30) { 2 } else { 1 };
        let to: Vec<String> = (1..=receivers)
            .map(|step| format!("h{}", (source + step) % count))
            .collect();
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        let frame = draws.within(5, 30) as u32;
        let shape = (draws.within(100, 200), 0, &[frame][..]);
        builder = builder.stream(&format!("f{index}"), 3, (&format!("h{source}"), &to), shape);
    }
    builder
}

/// All loop-free ways, as ports.
fn every_way(
    network: &Network,
    at: NodeId,
    target: NodeId,
    seen: &mut Vec<NodeId>,
    ports: &mut Vec<PortId>,
    out: &mut Vec<Vec<PortId>>,
) {
    if at == target {
        out.push(ports.clone());
        return;
    }
    if !seen.is_empty() && network.nodes[at.index()].kind == NodeKind::Host {
        return;
    }
    seen.push(at);
    for port in &network.nodes[at.index()].ports {
        let peer = network.ports[port.index()].peer;
        if !seen.contains(&peer) {
            ports.push(*port);
            every_way(network, peer, target, seen, ports, out);
            ports.pop();
        }
    }
    seen.pop();
}

/// All trees of a stream as sets of ports: ways to its receivers that enter no node from two sides.
fn every_tree(network: &Network, stream: usize) -> Vec<Vec<PortId>> {
    let stream = &network.streams[stream];
    let mut trees: Vec<Vec<PortId>> = vec![Vec::new()];
    for leaf in &stream.tree.leaves {
        let mut ways = Vec::new();
        every_way(
            network,
            stream.source,
            leaf.node,
            &mut Vec::new(),
            &mut Vec::new(),
            &mut ways,
        );
        for way in &mut ways {
            way.sort_unstable();
        }
        trees = trees
            .iter()
            .flat_map(|tree| ways.iter().filter_map(|way| joined(network, tree, way)))
            .collect();
    }
    // Shortest ways of equal length may enter a node from two sides; what is there may stay.
    let mut present: Vec<PortId> = stream.tree.hops.iter().map(|hop| hop.port).collect();
    present.sort_unstable();
    trees.push(present);
    trees.sort_unstable();
    trees.dedup();
    trees
}

fn joined(network: &Network, tree: &[PortId], way: &[PortId]) -> Option<Vec<PortId>> {
    let mut joined = tree.to_vec();
    for port in way.iter().filter(|port| !tree.contains(port)) {
        let peer = network.ports[port.index()].peer;
        if joined
            .iter()
            .any(|other| network.ports[other.index()].peer == peer)
        {
            return None;
        }
        joined.push(*port);
    }
    joined.sort_unstable();
    Some(joined)
}

/// The least worst load over all choices, in units of 10^-12, over ports that some choice concerns.
fn least_worst(network: &Network) -> u64 {
    let trees: Vec<Vec<Vec<PortId>>> = (0..network.streams.len())
        .map(|s| every_tree(network, s))
        .collect();
    let movable = |port: PortId| {
        trees.iter().any(|trees| {
            let with = trees.iter().filter(|tree| tree.contains(&port)).count();
            with > 0 && with < trees.len()
        })
    };
    let choices: usize = trees.iter().map(Vec::len).product();
    let mut best = u64::MAX;
    for mut number in 0..choices {
        let mut loads: BTreeMap<PortId, u64> = BTreeMap::new();
        for (index, trees) in trees.iter().enumerate() {
            for port in &trees[number % trees.len()] {
                *loads.entry(*port).or_default() += load(network, index);
            }
            number /= trees.len();
        }
        let worst = loads
            .iter()
            .filter(|(port, _)| movable(**port))
            .map(|(_, load)| *load)
            .max();
        best = best.min(worst.unwrap_or(0));
    }
    best
}

fn load(network: &Network, stream: usize) -> u64 {
    match &network.streams[stream].arrival {
        Arrival::Periodic { period, frames, .. } => {
            (u64::from(frames[0].0) * 1_000_000_000_000).div_ceil(period.0)
        }
        _ => 0,
    }
}

/// The trees that were found, as routes of a declaration: the compiler must take them and make the same trees of them.
fn recompiled(builder: &Builder, network: &Network, found: &Assignment) -> Network {
    let mut builder = builder.clone();
    for (index, tree) in found.trees.iter().enumerate() {
        let path = |leaf| {
            let hops = tree.path(leaf);
            let peer = |hop: &u32| network.ports[tree.hops[*hop as usize].port.index()].peer;
            let source = network.streams[index].source;
            let nodes = std::iter::once(source).chain(hops.iter().map(peer));
            nodes
                .map(|node| network.nodes[node.index()].name.clone())
                .collect()
        };
        builder.declaration.streams[index].route = Some(tree.leaves.iter().map(|leaf| path(*leaf)).collect());
    }
    compile(&builder.declaration).expect("routes that the compiler takes")
}

#[test]
fn the_choice_is_the_best_of_all_ways_on_tiny_networks() {
    let mut draws = Draws(11);
    let (mut improved, mut trees) = (0, 0);
    for _ in 0..250 {
        let builder = meshed(&mut draws);
        let network = builder.network();
        let limits = Limits {
            candidates: 100,
            ..Limits::default()
        };
        let found = run(&network, limits);
        let routing = found.routing.as_ref().expect("asked for");
        assert!(routing.exact && routing.all_ways);
        let parts = |worst: Option<timebound_bounds::assign::Worst>| worst.map_or(0, |worst| worst.parts);
        assert_eq!(parts(routing.movable_after), least_worst(&network));
        assert!(parts(routing.after) <= parts(routing.before));
        improved += usize::from(parts(routing.movable_after) < parts(routing.movable_before));
        trees += usize::from(network.streams.iter().any(|stream| stream.tree.leaves.len() > 1));
        let again = recompiled(&builder, &network, &found);
        for (tree, stream) in found.trees.iter().zip(&again.streams) {
            assert_eq!(*tree, stream.tree);
        }
        assert_eq!(found.after.analysis, analyse(&again, &alone()));
    }
    assert!(improved > 60 && trees > 60, "{improved} {trees}");
}

#[test]
fn no_search_is_ever_worse_than_the_shortest_ways() {
    let mut draws = Draws(3);
    for round in 0..200 {
        let mut network = if round % 2 == 0 {
            meshed(&mut draws).network()
        } else {
            support::random::builder(&mut draws).network()
        };
        for stream in &mut network.streams {
            stream.deadline = draws
                .chance(50)
                .then(|| timebound_model::Span(draws.within(20, 400)));
        }
        let limits = Limits {
            candidates: draws.within(1, 4) as usize,
            exact_steps: draws.below(20),
            kicks: draws.below(3) as u32,
            seed: draws.below(1000),
            repairs: draws.below(3) as u32,
        };
        let found = run(&network, limits);
        assert!(
            worst_utilisation(&found.after.analysis) <= worst_utilisation(&found.before.analysis) + 1e-12
        );
        assert!(found.after.missed.len() <= found.before.missed.len());
        assert_eq!(found, run(&network, limits), "the same twice");
    }
}

#[test]
fn new_ways_take_nothing_from_who_misses_a_deadline_already() {
    let mut draws = Draws(11);
    let (mut taken, mut kept) = (0, 0);
    for _ in 0..400 {
        let network = compile(&meshed(&mut draws).declaration).expect("a network");
        let mut task = Task::per_stream(&network);
        task.options = alone();
        for requirement in &mut task.requirements {
            requirement.deadline = Some(Span(draws.within(10, 200)));
        }
        let found = run_with(&network, &task, &wanted(Limits::default()));
        let (before, after) = (&found.before, &found.after);
        for index in &after.missed {
            assert!(before.missed.contains(index), "a deadline was met");
            match (&before.latencies[*index], &after.latencies[*index]) {
                (Latency::Bound(then), Latency::Bound(now)) => assert!(now <= then, "{now:?} after {then:?}"),
                (Latency::Bound(then), Latency::None(reason)) => panic!("{reason} after {then:?}"),
                (Latency::None(_), _) => {}
            }
        }
        let changes = found
            .routing
            .as_ref()
            .is_some_and(|routing| !routing.ways.is_empty());
        taken += u32::from(changes);
        kept += u32::from(found.kept_routes.is_some());
    }
    assert!(taken > 20 && kept > 5, "{taken} taken, {kept} kept");
}

/// A square of switches: from s0 to s3 over s1 or over s2, which is `far` longer. `one` and `two` have a host each.
fn square(far: u64) -> Builder {
    let mut builder = Builder::new(BYTE_PER_NANO, 1)
        .host("one")
        .host("two")
        .host("sink1")
        .host("sink2");
    for index in 0..4 {
        builder = builder.switch(&format!("s{index}"), 0, 0);
    }
    builder = builder
        .link("one", "s0")
        .link("two", "s0")
        .link("sink1", "s3")
        .link("sink2", "s3");
    builder = builder.link("s0", "s1").link("s1", "s3").link("s0", "s2");
    builder = builder
        .change(|direction| direction.delay_ns = 1 + far)
        .link("s2", "s3");
    builder
        .stream("one", 3, ("one", &["sink1"]), (100, 0, &[40]))
        .stream("two", 3, ("two", &["sink2"]), (100, 0, &[40]))
}

#[test]
fn two_streams_part_where_there_are_two_ways() {
    let network = square(0).network();
    let found = run(&network, Limits::default());
    let routing = found.routing.expect("asked for");
    let parts = |worst: Option<timebound_bounds::assign::Worst>| worst.expect("traffic").parts;
    assert_eq!(
        (parts(routing.before), parts(routing.after)),
        (800_000_000_000, 400_000_000_000)
    );
    assert_eq!(routing.ways.len(), 1);
    assert!(routing.exact && routing.all_ways);
}

/// 90 bytes take 7.2 ns at 100 Gbit/s: counted as 8, the way over s1 was fuller (50 %) than the one over s2 (48 %), and was left.
#[test]
fn a_fast_link_is_no_fuller_than_its_bits() {
    let mut builder = square(0);
    builder.declaration.streams.clear();
    let hosts = [("m1", "s1"), ("k1", "s3"), ("m2", "s2"), ("k2", "s3")];
    let mut builder = hosts
        .iter()
        .fold(builder, |builder, (host, switch)| {
            builder.host(host).link(host, switch)
        })
        .stream("left", 3, ("m1", &["k1"]), (16, 0, &[90]))
        .stream("right", 3, ("m2", &["k2"]), (100, 0, &[48]))
        .stream("one", 3, ("one", &["sink1"]), (100_000, 0, &[90]));
    for link in &mut builder.declaration.links {
        let rate = if link.a == "s2" || link.b == "s2" {
            8_000_000_000
        } else {
            100_000_000_000
        };
        (link.forward.rate_bps, link.backward.rate_bps) = (rate, rate);
    }
    let network = builder.network();
    let mut task = Task::per_stream(&network);
    task.options = alone();
    (task.bundles[0].fixed, task.bundles[1].fixed) = (true, true);
    let routing = run_with(&network, &task, &wanted(Limits::default()))
        .routing
        .expect("asked for");
    assert!(routing.ways.is_empty());
    assert_eq!(routing.after.expect("traffic").parts, 480_000_000_000);
}

#[test]
fn what_is_fixed_or_undeclared_stays() {
    let builder = square(0).unbounded("bulk", 0, ("one", &["sink2"]), 100);
    let network = builder.network();
    let mut task = Task::per_stream(&network);
    task.options = alone();
    assert_eq!(task.bundles.len(), 2);
    task.bundles[0].fixed = true;
    let found = run_with(&network, &task, &wanted(Limits::default()));
    assert_eq!(found.trees[0], network.streams[0].tree);
    assert_ne!(found.trees[1], network.streams[1].tree);
    assert_eq!(found.trees[2], network.streams[2].tree);
    task.bundles[1].fixed = true;
    let found = run_with(&network, &task, &wanted(Limits::default()));
    assert!(found.routing.expect("asked for").ways.is_empty());
}

#[test]
fn a_detour_that_breaks_a_deadline_is_not_taken() {
    let mut builder = square(1_000);
    for stream in &mut builder.declaration.streams {
        stream.deadline_ns = Some(600);
    }
    let found = run(&builder.network(), Limits::default());
    assert!(found.before.missed.is_empty() && found.after.missed.is_empty());
    assert_eq!(
        found.trees,
        builder
            .network()
            .streams
            .iter()
            .map(|s| s.tree.clone())
            .collect::<Vec<_>>()
    );
    assert!(
        found
            .kept_routes
            .expect("a reason")
            .contains("would miss 1 deadlines in place of 0")
    );
    // The other stream may go there if it has the time.
    builder.declaration.streams[0].deadline_ns = Some(5_000);
    let found = run(&builder.network(), Limits::default());
    let network = builder.network();
    assert!(found.after.missed.is_empty() && found.kept_routes.is_none());
    assert_ne!(found.trees[0], network.streams[0].tree);
    assert_eq!(found.trees[1], network.streams[1].tree);
}

#[test]
fn a_connection_goes_both_ways_by_the_same_nodes() {
    let builder = square(0).stream("back", 3, ("sink2", &["two"]), (100, 0, &[10]));
    let network = builder.network();
    let mut task = Task::per_stream(&network);
    task.options = alone();
    let back = task.bundles.pop().expect("three bundles");
    task.bundles[1].backward = back.forward;
    task.bundles[0].fixed = true;
    let found = run_with(&network, &task, &wanted(Limits::default()));
    let nodes = |stream: usize| -> Vec<NodeId> {
        let hops = &found.trees[stream].hops;
        hops.iter()
            .map(|hop| network.ports[hop.port.index()].node)
            .collect()
    };
    let there = nodes(1);
    assert_eq!(there[2], network.node("s2").expect("a switch"));
    let mut back = nodes(2);
    back.reverse();
    assert_eq!(there[1..], back[..3]);
}

#[test]
fn classes_and_routes_together_meet_what_neither_meets_alone() {
    let mut builder = square(0).stream("three", 7, ("one", &["sink2"]), (400, 0, &[60, 60]));
    builder.declaration.streams[0].deadline_ns = Some(300);
    builder.declaration.streams[1].deadline_ns = Some(300);
    let network = builder.network();
    let mut task = Task::per_stream(&network);
    task.options = alone();
    let levels: Vec<Class> = (1..=7).map(Class).collect();
    let classes = Some((PriorityMethod::Best, levels));
    let routes = Some(Limits::default());
    let one = |priorities, routes| {
        run_with(&network, &task, &Wanted { priorities, routes })
            .after
            .missed
            .len()
    };
    let both = one(classes.clone(), routes);
    assert_eq!(both, 0);
    assert_eq!((one(classes, None) > 0, one(None, routes) > 0), (true, true));
}

#[test]
fn a_network_without_streams_has_nothing_to_route() {
    let network = Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .host("b")
        .link("a", "b")
        .network();
    let found = run(&network, Limits::default());
    let routing = found.routing.expect("asked for");
    assert_eq!(
        (routing.before, routing.ways.len(), routing.exact),
        (None, 0, true)
    );
    assert_eq!(Task::per_stream(&network).classes(&network), Vec::<Class>::new());
}

#[test]
fn a_search_that_is_broken_off_leaves_what_it_has_not_looked_at() {
    let network = square(0).network();
    let mut task = Task::per_stream(&network);
    task.options = alone();
    let found = assign(
        &network,
        &task,
        &wanted(Limits::default()),
        &analyse,
        &mut |_, _| ControlFlow::Break(()),
    )
    .expect("fits");
    assert!(found.stopped);
    assert_eq!(
        found.trees,
        network.streams.iter().map(|s| s.tree.clone()).collect::<Vec<_>>()
    );
}

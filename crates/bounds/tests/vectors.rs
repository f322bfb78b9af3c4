//! Vectors with known answers.

mod support;

use support::{BYTE_PER_NANO, Builder, analyse_alone, bound, from_actual, leaf};
use timebound_bounds::Outcome;
use timebound_model::Span;

const MS: u64 = 1_000_000;

/// 100 bytes at 800 kbit/s take 1 ms.
#[test]
fn three_messages_on_one_port() {
    let shape = |period| (period, 0, &[100u32][..]);
    let analysis = analyse_alone(
        &Builder::new(800_000, 0)
            .host("a")
            .host("z")
            .link("a", "z")
            .stream("high", 3, ("a", &["z"]), shape(5 * MS / 2))
            .stream("middle", 2, ("a", &["z"]), shape(7 * MS / 2))
            .stream("low", 1, ("a", &["z"]), shape(7 * MS / 2)),
    );
    let found = ["high", "middle", "low"].map(|name| from_actual(&analysis, name));
    assert_eq!(found, [2 * MS, 3 * MS, 7 * MS / 2]);
}

#[test]
fn star_of_ten_sources() {
    let mut builder = Builder::new(100_000_000, 0)
        .switch("s", 10_000, 10_000)
        .host("z")
        .link("s", "z");
    for index in 0..10 {
        let name = format!("h{index}");
        builder =
            builder
                .host(&name)
                .link(&name, "s")
                .stream(&name, 5, (&name, &["z"]), (15 * MS, 0, &[1538]));
    }
    let analysis = analyse_alone(&builder);
    for index in 0..10 {
        assert_eq!(from_actual(&analysis, &format!("h{index}")), 1_363_440);
    }
    // Nine frames wait while the first is sent.
    assert_eq!(analysis.ports[0].name, "s->z");
    assert!(
        analysis.ports[0]
            .backlog_bytes
            .is_some_and(|bytes| (9 * 1538..=10 * 1538).contains(&bytes))
    );
}

/// Blocking counts at every port; a simulation reaches 143 for f0.
#[test]
fn blocking_twice() {
    let analysis = analyse_alone(
        &Builder::new(BYTE_PER_NANO, 5)
            .host("a")
            .host("b")
            .switch("s", 0, 0)
            .host("z")
            .link("a", "s")
            .link("s", "z")
            .link("b", "s")
            .stream("f0", 5, ("a", &["z"]), (10_000, 0, &[10]))
            .stream("f1", 3, ("a", &["z"]), (10_000, 0, &[60]))
            .stream("f2", 3, ("b", &["z"]), (10_000, 0, &[10])),
    );
    // Two ports with 60 + 10 each, two links of 5.
    assert_eq!(from_actual(&analysis, "f0"), 150);
}

/// A simulation reaches 279 from the actual release, one tick below the bound because blocking starts a tick early there.
#[test]
fn jitter_close_to_the_period() {
    let analysis = analyse_alone(
        &Builder::new(BYTE_PER_NANO, 0)
            .host("a")
            .host("z")
            .link("a", "z")
            .stream("late", 5, ("a", &["z"]), (220, 200, &[100]))
            .stream("low", 1, ("a", &["z"]), (10_000, 0, &[100])),
    );
    assert_eq!(
        bound(leaf(&analysis, "late")),
        Some((Span(480), Span(280), Span(100)))
    );
}

#[test]
fn multicast_branches_do_not_see_each_other() {
    let one = |to: &[&str]| {
        let mut builder = Builder::new(BYTE_PER_NANO, 1)
            .host("a")
            .host("b")
            .host("y")
            .host("z")
            .switch("s", 2, 3)
            .link("a", "s")
            .link("b", "s")
            .link("s", "y")
            .link("s", "z")
            .stream("f", 5, ("a", to), (100, 40, &[10]));
        // A rival on the branch to y only.
        builder = builder.stream("rival", 5, ("b", &["y"]), (100, 90, &[30]));
        let analysis = analyse_alone(&builder);
        analysis.streams[0]
            .leaves
            .iter()
            .map(|leaf| bound(leaf).expect("a bound"))
            .collect::<Vec<_>>()
    };
    let (both, reversed) = (one(&["y", "z"]), one(&["z", "y"]));
    assert_eq!(both, [reversed[1], reversed[0]]);
    assert_eq!((both[0], both[1]), (one(&["y"])[0], one(&["z"])[0]));
    // To z: 10, link 1, switching 3, 10, link 1. To y also twice the rival's 30 (its jitter at s is 90 + 1).
    assert_eq!(both.iter().map(|b| b.1.0).collect::<Vec<_>>(), [85, 25]);
}

#[test]
fn hops_add_up_to_the_bound() {
    let analysis = analyse_alone(
        &Builder::new(BYTE_PER_NANO, 7)
            .host("a")
            .host("z")
            .switch("s", 2, 30)
            .link("a", "s")
            .link("s", "z")
            .stream("f", 5, ("a", &["z"]), (1_000, 40, &[10, 20, 20]))
            .stream("g", 5, ("a", &["z"]), (900, 40, &[15])),
    );
    let Outcome::Bound {
        from_nominal,
        from_actual,
        best_case,
        hops,
        ..
    } = &leaf(&analysis, "f").outcome
    else {
        panic!("a bound");
    };
    assert_eq!(
        hops.iter()
            .map(|hop| hop.response.0 + hop.traversal.0)
            .sum::<u64>(),
        from_actual.0
    );
    assert_eq!(from_nominal.0, from_actual.0 + 40);
    // The fastest frame: twice 10 bytes, two links, least switching.
    assert_eq!(best_case.0, 10 + 7 + 2 + 10 + 7);
    assert_eq!(
        hops.iter().map(|hop| &*hop.name).collect::<Vec<_>>(),
        ["a->s", "s->z"]
    );
    // At the source everything may be released at once: 10 + 20 + 20 + 15.
    assert_eq!((hops[0].response.0, hops[0].jitter_in.0), (65, 40));
}

/// A switch that copies takes 5 to 8 longer for the stream that branches, and for no other.
#[test]
fn replication_delays_what_branches() {
    let mut builder = Builder::new(BYTE_PER_NANO, 0)
        .switch("s", 3, 4)
        .host("a")
        .host("b")
        .host("y")
        .host("z");
    let switch = &mut builder.declaration.nodes[0];
    (switch.replication_min_ns, switch.replication_max_ns) = (5, 8);
    for host in ["a", "b", "y", "z"] {
        builder = builder.link(host, "s");
    }
    let analysis = analyse_alone(
        &builder
            .stream("both", 5, ("a", &["y", "z"]), (1_000, 0, &[10]))
            .stream("one", 5, ("b", &["y"]), (1_000, 0, &[20])),
    );
    let of = |stream: usize, leaf: usize| bound(&analysis.streams[stream].leaves[leaf]).expect("a bound");
    // Ten on the way in, the switch, ten on the way out; at y one frame of the other before.
    assert_eq!(of(0, 1).1, Span(10 + 4 + 8 + 10));
    assert_eq!(of(0, 1).2, Span(10 + 3 + 5 + 10));
    assert_eq!(of(0, 0).1, Span(10 + 4 + 8 + 20 + 10));
    assert_eq!(
        (of(1, 0).1, of(1, 0).2),
        (Span(20 + 4 + 10 + 20), Span(20 + 3 + 20))
    );
}

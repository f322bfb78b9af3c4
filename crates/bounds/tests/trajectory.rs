//! The trajectory approach: vectors, what it covers and what it refuses.

mod support;

use support::{BYTE_PER_NANO, Builder, alone, bound, from_actual, leaf};
use timebound_bounds::{Analysis, Outcome, Safety, trajectory};
use timebound_model::declaration::{ArrivalDecl, QueueDecl};

const MS: u64 = 1_000_000;

fn analyse(builder: &Builder) -> Analysis {
    trajectory(&builder.network(), &alone()).analysis
}

#[test]
fn is_labelled_experimental_in_json_too() {
    let builder = Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .host("z")
        .link("a", "z")
        .stream("f", 5, ("a", &["z"]), (100, 0, &[10]));
    let labelled = trajectory(&builder.network(), &alone());
    assert_eq!(labelled.safety, Safety::Experimental);
    let json = serde_json::to_value(&labelled).expect("JSON");
    assert_eq!(json["method"], "trajectory");
    assert_eq!(json["safety"], "experimental");
    assert_eq!(json["streams"][0]["leaves"][0]["outcome"]["from_actual_ns"], 10);
}

#[test]
fn three_messages_on_one_port() {
    let shape = |period| (period, 0, &[100u32][..]);
    let analysis = analyse(
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

fn star() -> Builder {
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
    builder
}

#[test]
fn star_of_ten_sources() {
    let analysis = analyse(&star());
    for index in 0..10 {
        assert_eq!(from_actual(&analysis, &format!("h{index}")), 1_363_440);
    }
}

/// The simulator reaches 143, with lower frames that start a tick before; two ports, two ticks. The receiver's link is 5 long.
#[test]
fn blocking_twice() {
    let analysis = analyse(
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
    assert_eq!(from_actual(&analysis, "f0"), 143 + 2 + 5);
}

/// 280 from the actual release (279 with a lower frame that starts a tick before), and less from the nominal one than the holistic approach's 480: the
/// frame whose predecessor is late is itself not as late as it might be.
#[test]
fn jitter_close_to_the_period() {
    let analysis = analyse(
        &Builder::new(BYTE_PER_NANO, 0)
            .host("a")
            .host("z")
            .link("a", "z")
            .stream("late", 5, ("a", &["z"]), (220, 200, &[100]))
            .stream("low", 1, ("a", &["z"]), (10_000, 0, &[100])),
    );
    let (from_nominal, from_actual, best_case) = bound(leaf(&analysis, "late")).expect("a bound");
    assert_eq!((from_nominal.0, from_actual.0, best_case.0), (400, 280, 100));
}

#[test]
fn a_branch_does_not_see_its_siblings() {
    let one = |to: &[&str]| {
        let builder = Builder::new(BYTE_PER_NANO, 1)
            .host("a")
            .host("b")
            .host("y")
            .host("z")
            .switch("s", 2, 3)
            .link("a", "s")
            .link("b", "s")
            .link("s", "y")
            .link("s", "z")
            .stream("f", 5, ("a", to), (100, 40, &[10]))
            .stream("rival", 5, ("b", &["y"]), (100, 90, &[30]));
        let analysis = analyse(&builder);
        analysis.streams[0]
            .leaves
            .iter()
            .map(|leaf| bound(leaf).expect("a bound"))
            .collect::<Vec<_>>()
    };
    let (both, reversed) = (one(&["y", "z"]), one(&["z", "y"]));
    assert_eq!(both, [reversed[1], reversed[0]]);
    assert_eq!((both[0], both[1]), (one(&["y"])[0], one(&["z"])[0]));
    assert_eq!(both[1].1.0, 25);
    assert!(both[0].1.0 > both[1].1.0);
}

fn reason(analysis: &Analysis, stream: &str) -> String {
    match &leaf(analysis, stream).outcome {
        Outcome::Unsupported { reason } => format!("unsupported: {reason}"),
        Outcome::NoFiniteBound { reason, .. } => format!("none: {reason}"),
        Outcome::Bound { .. } => panic!("a bound for {stream}"),
    }
}

fn two_links() -> Builder {
    Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .host("b")
        .switch("s", 0, 0)
        .host("z")
        .link("a", "s")
        .link("b", "s")
        .link("s", "z")
}

#[test]
fn what_it_does_not_cover_is_refused_with_a_reason() {
    let f = |builder: Builder| builder.stream("f", 3, ("a", &["z"]), (100, 0, &[10]));
    let drr = f(two_links().change(|d| {
        d.queue = QueueDecl::Drr {
            quanta_bytes: [10; 8],
        }
    }));
    assert_eq!(
        reason(&analyse(&drr), "f"),
        "unsupported: port s->z serves its classes by deficit round robin, which the trajectory approach does not cover"
    );
    let mut medium = f(two_links());
    medium.declaration.links[2].half_duplex = true;
    assert!(reason(&analyse(&medium), "f").contains("half-duplex"));
    let mixed = f(two_links().change(|d| d.queue = QueueDecl::Fifo));
    assert!(reason(&analyse(&mixed), "f").contains("does not cover both on one path"));
    let above = f(two_links()).unbounded("bulk", 3, ("b", &["z"]), 20);
    assert!(reason(&analyse(&above), "f").starts_with("none: stream \"bulk\" has no declared arrival"));
    let below = f(two_links()).unbounded("bulk", 1, ("b", &["z"]), 20);
    assert_eq!(from_actual(&analyse(&below), "f"), 10 + 20 + 10);
    let mut bucket = f(two_links()).unbounded("bucket", 3, ("b", &["z"]), 20);
    bucket.declaration.streams[1].arrival = ArrivalDecl::TokenBucket {
        rate_bps: 1_000_000,
        burst_bytes: 20,
        min_frame_bytes: 20,
        max_frame_bytes: 20,
    };
    assert!(reason(&analyse(&bucket), "f").contains("is a token bucket"));
    let full = f(two_links()).stream("g", 3, ("b", &["z"]), (100, 0, &[90]));
    assert_eq!(
        reason(&analyse(&full), "f"),
        "none: utilisation 1.00 of port s->z by class 3 and above is 1 or more"
    );
}

/// Every port has room, but the flows that meet the path together need more than the time of one: t would have no end.
#[test]
fn a_path_on_which_all_flows_together_are_too_much_is_refused() {
    let mut builder = Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .switch("s0", 0, 0)
        .link("a", "s0");
    for index in 1..=3 {
        let (switch, before) = (format!("s{index}"), format!("s{}", index - 1));
        let (from, to) = (format!("b{index}"), format!("c{index}"));
        builder = builder
            .switch(&switch, 0, 0)
            .host(&from)
            .host(&to)
            .link(&before, &switch)
            .link(&from, &before)
            .link(&switch, &to)
            .stream(&format!("cross{index}"), 3, (&from, &[&to]), (100, 0, &[40]));
    }
    let builder = builder.stream("f", 3, ("a", &["c3"]), (100, 0, &[10]));
    let analysis = analyse(&builder);
    assert!(reason(&analysis, "f").contains("busy period of the trajectory approach does not end"));
    // A cross flow meets f alone, but behind the first port f arrives at times that have no bound then.
    assert!(bound(leaf(&analysis, "cross1")).is_some());
    assert!(support::bound(leaf(&support::analyse_alone(&builder), "f")).is_some());
}

/// g leaves f's path and comes back: it is one pseudo-flow per stretch and can hold f up in both, which a run shows.
#[test]
fn a_flow_that_parts_and_meets_again_counts_twice() {
    let builder = Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .switch("s", 0, 0)
        .switch("t", 0, 0)
        .switch("u", 0, 0)
        .host("z")
        .link("a", "s")
        .link("s", "t")
        .link("t", "u")
        .link("s", "u")
        .link("u", "z")
        .stream("f", 3, ("a", &["z"]), (10_000, 0, &[10]))
        .route(&[&["a", "s", "u", "z"]])
        .stream("g", 3, ("a", &["z"]), (10_000, 0, &[20]))
        .route(&[&["a", "s", "t", "u", "z"]]);
    let analysis = analyse(&builder);
    // 20 + 10 at a, 10 on the way to u, where g (sent 20 before) may arrive at the same time: 20 + 10.
    assert!(from_actual(&analysis, "f") >= 30 + 10 + 30);
    // With one route they meet in one stretch, and g counts once.
    let mut together = builder;
    together.declaration.streams[1].route = together.declaration.streams[0].route.clone();
    assert!(from_actual(&analyse(&together), "f") < from_actual(&analysis, "f"));
}

/// Paths that depend on each other in a circle are iterated to a fixed point.
#[test]
fn a_ring_of_routes_has_a_fixed_point() {
    let mut ring = Builder::new(BYTE_PER_NANO, 0);
    for (host, switch) in [("a", "s"), ("b", "t"), ("c", "u")] {
        ring = ring.host(host).switch(switch, 0, 1).link(host, switch);
    }
    ring = ring.link("s", "t").link("t", "u").link("u", "s");
    let ring = ring
        .stream("f", 5, ("a", &["c"]), (14, 3, &[2]))
        .route(&[&["a", "s", "t", "u", "c"]])
        .stream("g", 5, ("b", &["a"]), (16, 0, &[3]))
        .route(&[&["b", "t", "u", "s", "a"]])
        .stream("h", 5, ("c", &["b"]), (15, 0, &[2]))
        .route(&[&["c", "u", "s", "t", "b"]]);
    let analysis = analyse(&ring);
    assert!(
        ["f", "g", "h"]
            .iter()
            .all(|name| bound(leaf(&analysis, name)).is_some())
    );
}

/// g is longer than f and holds it up at the slow first port. Counted at the fast last one alone it would be missing: without it W is 19 there,
/// when g, which cannot be there before 26, would not count; f would have 25. A run takes 45.
#[test]
fn a_long_urgent_frame_counts_where_it_is_met_first() {
    let builder = Builder::new(BYTE_PER_NANO / 2, 0)
        .host("a")
        .switch("s", 0, 0)
        .host("z")
        .link("a", "s")
        .link("s", "z")
        .change(|direction| direction.rate_bps = BYTE_PER_NANO)
        .stream("f", 3, ("a", &["z"]), (10_000, 0, &[6]))
        .stream("g", 5, ("a", &["z"]), (10_000, 0, &[13]));
    // At a 26 and 12, at s the longest of both again, 13.
    assert_eq!(from_actual(&analyse(&builder), "f"), 26 + 12 + 13);
}

/// Streams that a switch copies take longer there than those that it does not: over one link they do not stay in order.
#[test]
fn frames_that_are_copied_and_overtaken_are_refused() {
    let mut builder = Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .switch("s", 1, 2)
        .host("y")
        .host("z")
        .link("a", "s")
        .link("s", "y")
        .link("s", "z")
        .stream("f", 3, ("a", &["z", "y"]), (1_000, 0, &[10]));
    builder.declaration.nodes[1].replication_max_ns = 7;
    assert_eq!(from_actual(&analyse(&builder), "f"), 10 + 2 + 7 + 10);
    let both = builder.stream("g", 3, ("a", &["z"]), (1_000, 0, &[10]));
    assert!(reason(&analyse(&both), "g").contains("overtake them"));
}

//! Several ports at once: what is counted once, and what is not.

mod support;

use support::{BYTE_PER_NANO, Builder, alone, from_actual, leaf};
use timebound_bounds::{LookedAt, Method, Options, Outcome, analyse};
use timebound_model::Span;

/// `a` and `b` behind `s1`, then `s2`, `s3`, `z`; a host at `s2`, too. One byte takes one nanosecond everywhere.
fn chain() -> Builder {
    Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .host("b")
        .host("y")
        .host("z")
        .switch("s1", 0, 0)
        .switch("s2", 0, 0)
        .switch("s3", 0, 0)
        .link("a", "s1")
        .link("b", "s1")
        .link("s1", "s2")
        .link("s2", "s3")
        .link("s3", "z")
        .link("y", "s2")
}

const RARE: u64 = 1_000_000;

fn port_by_port(builder: &Builder, name: &str) -> u64 {
    let options = Options {
        method: Method::PortByPort,
        ..alone()
    };
    from_actual(&analyse(&builder.network(), &options), name)
}

/// Four frames of 100 come to `s1` one after the other and stay so: ours waits for all four there, or for one of them here and there,
/// never for all of them again. It is sent four times itself.
#[test]
fn a_burst_that_goes_the_same_way_counts_once() {
    let builder = chain()
        .stream("ours", 1, ("a", &["z"]), (RARE, 0, &[100]))
        .stream("burst", 5, ("b", &["z"]), (RARE, 0, &[100, 100, 100, 100]));
    assert_eq!(from_actual(&analyse(&builder.network(), &alone()), "ours"), 800);
    assert_eq!(port_by_port(&builder, "ours"), 1600);
}

/// A burst that joins later, or leaves and makes room for another one, is in the way once at each place.
#[test]
fn bursts_of_other_ways_count_for_themselves() {
    let builder = chain()
        .stream("ours", 1, ("a", &["z"]), (RARE, 0, &[100]))
        .stream("first", 5, ("b", &["y"]), (RARE, 0, &[100, 100, 100, 100]))
        .stream("second", 5, ("y", &["z"]), (RARE, 0, &[100, 100, 100]));
    // 400 behind s1, 300 behind s2, and four transmissions.
    assert_eq!(from_actual(&analyse(&builder.network(), &alone()), "ours"), 1_100);
    // There the second one counts behind s3 again.
    assert_eq!(port_by_port(&builder, "ours"), 1_400);
}

/// Where the way takes longer than the period of the burst, the next burst is another one.
#[test]
fn the_next_burst_counts_again() {
    let burst = |period| {
        let builder = chain()
            .stream("ours", 1, ("a", &["z"]), (RARE, 0, &[100]))
            .stream("burst", 5, ("b", &["z"]), (period, 0, &[100, 100, 100, 100]));
        from_actual(&analyse(&builder.network(), &alone()), "ours")
    };
    // From the start of the first burst behind s1 to the start of our last transmission pass 600, and a frame of it comes up to 300 late.
    assert_eq!(burst(901), 800);
    assert_eq!(burst(900), 1_200);
}

/// Every port may have one frame from below under way when ours comes.
#[test]
fn blocking_counts_at_every_port() {
    let builder = chain()
        .stream("ours", 3, ("a", &["z"]), (RARE, 0, &[100]))
        .stream("burst", 5, ("b", &["z"]), (RARE, 0, &[100, 100, 100, 100]))
        .stream("below", 1, ("b", &["z"]), (RARE, 0, &[60]));
    assert_eq!(
        from_actual(&analyse(&builder.network(), &alone()), "ours"),
        800 + 3 * 60
    );
}

/// A rival counts with its time on the slowest port that it shares with ours.
#[test]
fn the_slowest_port_counts() {
    let builder = Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .host("b")
        .host("z")
        .switch("s1", 0, 0)
        .switch("s2", 0, 0)
        .link("a", "s1")
        .link("b", "s1")
        .link("s1", "s2")
        .change(|link| link.rate_bps = BYTE_PER_NANO / 2)
        .link("s2", "z")
        .stream("ours", 1, ("a", &["z"]), (RARE, 0, &[100]))
        .stream("burst", 5, ("b", &["z"]), (RARE, 0, &[100, 100]));
    // 100 to s1; two frames of 200 each and ours; then 100.
    assert_eq!(
        from_actual(&analyse(&builder.network(), &alone()), "ours"),
        100 + 400 + 200 + 100
    );
}

/// What is counted again at a port is what the port's own figure has more than the frame is later by.
#[test]
fn hops_say_what_is_counted_again() {
    let builder = chain()
        .stream("ours", 1, ("a", &["z"]), (RARE, 0, &[100]))
        .stream("burst", 5, ("b", &["z"]), (RARE, 0, &[100, 100, 100, 100]));
    let analysis = analyse(&builder.network(), &alone());
    let Outcome::Bound { hops, .. } = &leaf(&analysis, "ours").outcome else {
        panic!("no bound");
    };
    let again: Vec<u64> = hops.iter().map(|hop| hop.counted_before.0).collect();
    let ports: Vec<Span> = hops.iter().map(|hop| hop.response).collect();
    assert_eq!(
        (again, ports),
        (vec![0, 0, 400, 400], [100, 500, 500, 500].map(Span).to_vec())
    );
}

/// `chain` with two streams that a burst goes along with, and that burst: what is due first has the least slack.
fn hurried() -> Builder {
    let mut builder = chain()
        .stream("idle", 1, ("a", &["z"]), (RARE, 0, &[100]))
        .stream("hurried", 1, ("a", &["z"]), (RARE, 0, &[100]))
        .stream("burst", 5, ("b", &["z"]), (RARE, 0, &[100, 100, 100, 100]));
    builder.declaration.streams[0].deadline_ns = Some(9_000);
    builder.declaration.streams[1].deadline_ns = Some(3_000);
    builder
}

/// Too little effort for all is not none for anybody: the least slack comes first, and the analysis says how far it came.
#[test]
fn effort_goes_to_the_least_slack_first_and_is_told() {
    let network = hurried().network();
    let by = |effort| analyse(&network, &Options { effort, ..alone() });
    let (all, none) = (by(Options::EFFORT), by(0));
    assert_eq!(all.looked_at, None);
    assert_eq!(none.looked_at, Some(LookedAt { streams: 0, of: 3 }));
    assert_eq!(from_actual(&none, "hurried"), port_by_port(&hurried(), "hurried"));
    // Four ports, at three of which six frames of three streams are, and three on the first link: 3 + 3 * 3 slots on a way of four ports.
    let some = by(48);
    assert_eq!(some.looked_at, Some(LookedAt { streams: 1, of: 3 }));
    assert!(from_actual(&some, "hurried") < from_actual(&none, "hurried"));
    assert_eq!(from_actual(&some, "idle"), from_actual(&none, "idle"));
    assert_eq!(by(1 << 12), all);
}

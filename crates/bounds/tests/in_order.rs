//! Frames of one stream keep their order: who comes last of a burst is not who is released last after its nominal time.

mod support;

use support::{BYTE_PER_NANO, Builder, alone, from_actual, leaf};
use timebound_bounds::{Method, Options, Outcome, analyse};
use timebound_model::Span;

/// `a` and `b` behind `s1`, then `s2`, with `y` and `z` behind it. Over the uplink of `a` a byte takes a nanosecond.
fn chain(rate: u64) -> Builder {
    Builder::new(rate, 0)
        .host("a")
        .host("b")
        .host("y")
        .host("z")
        .switch("s1", 0, 0)
        .switch("s2", 0, 0)
        .link("a", "s1")
        .change(|link| link.rate_bps = BYTE_PER_NANO)
        .link("b", "s1")
        .link("s1", "s2")
        .link("s2", "y")
        .link("s2", "z")
}

/// Eight frames at once, the ninth 500 later and the tenth 1500 later: so `burst` comes to its own port, and so it leaves, as each frame that is
/// released late finds the port free or with those before it. Counted by responses the last of the eight would leave 700 later than it can.
#[test]
fn a_burst_of_a_jitter_above_the_period_does_not_grow_at_its_own_port() {
    let builder = chain(BYTE_PER_NANO)
        .stream("burst", 5, ("a", &["z"]), (1_000, 7_500, &[100]))
        .stream("ours", 1, ("b", &["y"]), (1_000_000, 0, &[10]));
    let analysis = analyse(&builder.network(), &alone());
    // b; nine frames in the 900 before it starts at s1; itself there and at s2.
    assert_eq!(from_actual(&analysis, "ours"), 10 + 900 + 10 + 10);
    let options = Options {
        method: Method::PortByPort,
        ..alone()
    };
    assert_eq!(
        from_actual(&analyse(&builder.network(), &options), "ours"),
        10 + 1_000 + 10 + 10
    );
    // The last of eight waits for seven at a, all wait for ours at s1, and times count from the own release: from the nominal one the jitter comes
    // on top.
    let Outcome::Bound {
        from_nominal,
        from_actual,
        ..
    } = leaf(&analysis, "burst").outcome
    else {
        panic!("no bound");
    };
    assert_eq!((from_actual, from_nominal), (Span(1_010), Span(8_510)));
}

/// Without jitter the order is that of the releases. The first frame waits longest at `a`, for a frame from below; the five that have then
/// gathered come to `s1` nearly at once, where the last of them waits longest. None does both.
#[test]
fn a_frame_is_not_first_at_one_port_and_last_at_the_next() {
    let builder = chain(BYTE_PER_NANO / 10)
        .stream("ours", 5, ("a", &["y"]), (250, 0, &[10]))
        .stream("below", 1, ("a", &["z"]), (1_000_000, 0, &[1_000]))
        .stream("other", 1, ("b", &["z"]), (1_000_000, 0, &[200]));
    let analysis = analyse(&builder.network(), &alone());
    // At a: blocked for 1000, and 10. At s1: by the larger frame from below, 10,000, and 100; at s2, 100.
    assert_eq!(from_actual(&analysis, "ours"), 1_010 + 10_100 + 100);
}

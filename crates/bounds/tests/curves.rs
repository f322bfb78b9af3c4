//! The distance that a slow link gives to frames is still there some ports later.

mod support;

use support::{BYTE_PER_NANO, Builder, alone, from_actual};
use timebound_bounds::{Options, analyse, explain};
use timebound_model::{Span, StreamId};

const MBIT: u64 = 1_000_000;

/// `a` behind a slow uplink, `s1`, a fast link, `s2`, and the way to `b`; `c` at `s2`.
fn uplink(rates: [u64; 4]) -> Builder {
    let at = |rate: u64| move |link: &mut timebound_model::declaration::DirectionDecl| link.rate_bps = rate;
    Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .host("b")
        .host("c")
        .switch("s1", 0, 0)
        .switch("s2", 0, 0)
        .link("a", "s1")
        .change(at(rates[0]))
        .link("s1", "s2")
        .change(at(rates[1]))
        .link("s2", "b")
        .change(at(rates[2]))
        .link("c", "s2")
        .change(at(rates[3]))
}

/// Six frames that could come at once if the uplink did not send them one after the other: one of them is in the way of `f`, not all.
#[test]
fn spacing_of_a_slow_uplink_is_not_forgotten_one_hop_later() {
    let mut builder = uplink([10 * MBIT, 1_000 * MBIT, 100 * MBIT, 1_000 * MBIT])
        .stream("g", 2, ("a", &["b"]), (5_000_000, 25_000_000, &[1_538]))
        .stream("f", 1, ("c", &["b"]), (100_000_000, 0, &[130]));
    builder.declaration.best_effort_frame_bytes = 1_538;
    let analysis = analyse(&builder.network(), &Options::default());
    // c: 12.304 and 1.040; s2: blocked for 123.040, one frame of g, and itself.
    assert_eq!(from_actual(&analysis, "f"), 12_304 + 1_040 + 2 * 123_040 + 10_400);
    let explained = explain(&builder.network(), &Options::default(), StreamId(1), 0).expect("a bound");
    let at_s2 = &explained.hops[1].parts;
    assert!(at_s2.counted);
    assert_eq!(at_s2.higher[0].frames, Some(6));
    assert_eq!(
        (at_s2.shaping[0].link.as_str(), at_s2.shaping[0].time),
        ("a->s1", Span(5 * 123_040))
    );
}

/// One byte per nanosecond at the end, an uplink of half the rate, and a link ten times as fast between. Nobody else is there, and nothing varies.
fn own_class(frames: &[u32]) -> Builder {
    uplink([
        BYTE_PER_NANO / 2,
        10 * BYTE_PER_NANO,
        BYTE_PER_NANO,
        BYTE_PER_NANO,
    ])
    .stream("burst", 2, ("a", &["b"]), (1_000_000, 0, frames))
}

/// In one class with the frame, too: 400 from the uplink are there one by one, twice as far apart as they take.
#[test]
fn a_burst_of_the_own_class_comes_as_its_uplink_sent_it() {
    let builder = own_class(&[100, 100, 100, 100]).stream("f", 2, ("c", &["b"]), (1_000_000, 0, &[10]));
    let analysis = analyse(&builder.network(), &alone());
    // 10 from c; at s2 one of the four and itself.
    assert_eq!(from_actual(&analysis, "f"), 10 + 100 + 10);
}

/// Streams that came over one slow link are held back together, not each for itself.
#[test]
fn streams_of_one_uplink_share_its_spacing() {
    let mut builder = own_class(&[100]).stream("f", 1, ("c", &["b"]), (1_000_000, 0, &[10]));
    for index in 0..9 {
        builder = builder.stream(&format!("g{index}"), 2, ("a", &["b"]), (1_000_000, 0, &[100]));
    }
    let analysis = analyse(&builder.network(), &alone());
    // Ten frames of one size, 200 apart behind the uplink: at s2 one of them is in the way.
    assert_eq!(from_actual(&analysis, "f"), 10 + 100 + 10);
}

/// What waits between the uplink and here may come closer: with up to 350 more for some, three frames can come at once.
#[test]
fn what_waits_on_the_way_bunches_again() {
    let mut builder = own_class(&[100, 100, 100, 100]).stream("f", 1, ("c", &["b"]), (1_000_000, 0, &[10]));
    let spread = builder
        .declaration
        .nodes
        .iter()
        .position(|node| node.name == "s2")
        .expect("s2");
    builder.declaration.nodes[spread].switching_max_ns = 350;
    let analysis = analyse(&builder.network(), &alone());
    // At s2 two frames at once (350 / 200), and the next one 50 later, which is before f starts; then one each 200.
    assert_eq!(from_actual(&analysis, "f"), 10 + 350 + 400 + 10);
}

/// A slow link delivers frame by frame: nothing of the second one is there before all of it is.
#[test]
fn frames_come_whole_over_the_last_link_as_well() {
    for class in [1, 2] {
        let builder = uplink([10 * MBIT, 50 * MBIT, 10 * MBIT, 1_000 * MBIT])
            .host("d")
            .link("d", "s1")
            .change(|link| link.rate_bps = 1_000 * MBIT)
            .stream("g", 2, ("a", &["c"]), (4_000_000, 23_000_000, &[1_250]))
            .stream("f", class, ("d", &["b"]), (100_000_000, 0, &[125]));
        let analysis = analyse(&builder.network(), &alone());
        // d; at s1 one frame of g, 200 us at 50 Mbit/s, where they come 1 ms apart, and itself; at s2 itself, over 10 Mbit/s.
        assert_eq!(from_actual(&analysis, "f"), 1_000 + 200_000 + 20_000 + 100_000);
    }
}

/// A frame that is released while its link still sends the one before comes when that link has sent it: 500 after the first one, not 300.
#[test]
fn what_is_released_while_a_train_passes_joins_it() {
    let builder = uplink([BYTE_PER_NANO / 5, BYTE_PER_NANO, BYTE_PER_NANO, BYTE_PER_NANO])
        .host("d")
        .link("d", "s1")
        .stream("g", 2, ("a", &["b"]), (1_000, 700, &[100]))
        .stream("f", 1, ("d", &["c"]), (1_000_000, 0, &[10]))
        .stream("below", 0, ("d", &["b"]), (1_000_000, 0, &[350]));
    let analysis = analyse(&builder.network(), &alone());
    // At d blocked by 350, and itself; at s1 blocked by 350, then one frame of g and itself; itself at s2, where 350 can block as well.
    assert_eq!(from_actual(&analysis, "f"), 360 + 460 + 10);
}

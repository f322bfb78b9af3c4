//! Bounds at single ports that can be worked out by hand: token buckets, weighted ports, half-duplex media, slots.

mod support;

use support::{BYTE_PER_NANO, Builder, alone, analyse_alone, bound, leaf};
use timebound_bounds::{Analysis, Outcome, explain};
use timebound_model::StreamId;
use timebound_model::declaration::{ArrivalDecl, NodeKindDecl, QueueDecl, ReleaseDecl, SlotsDecl};

fn two_hosts() -> Builder {
    Builder::new(BYTE_PER_NANO, 0).host("a").host("z").link("a", "z")
}

fn actual(analysis: &Analysis, stream: &str) -> u64 {
    bound(leaf(analysis, stream)).expect("a bound").1.0
}

fn token_bucket(mut builder: Builder, stream: usize, burst_bytes: u64, frame: u32) -> Builder {
    builder.declaration.streams[stream].arrival = ArrivalDecl::TokenBucket {
        rate_bps: BYTE_PER_NANO / 10,
        burst_bytes,
        min_frame_bytes: frame,
        max_frame_bytes: frame,
    };
    builder.declaration.streams[stream].release = ReleaseDecl::Silent;
    builder
}

#[test]
fn bursts_of_token_buckets_meet() {
    let builder = two_hosts()
        .change(|d| d.queue = QueueDecl::Fifo)
        .stream("f", 5, ("a", &["z"]), (1_000, 0, &[100]))
        .stream("g", 5, ("a", &["z"]), (1_000, 0, &[40]));
    let analysis = analyse_alone(&token_bucket(token_bucket(builder, 0, 300, 100), 1, 90, 40));
    // Three frames of f and two of g: the last of them ends after 380; there is no nominal release.
    let (nominal, actual, _) = bound(leaf(&analysis, "f")).expect("a bound");
    assert_eq!((nominal.0, actual.0), (380, 380));
}

#[test]
fn a_weighted_port_with_two_classes() {
    let mut quanta_bytes = [1; 8];
    (quanta_bytes[5], quanta_bytes[3]) = (200, 100);
    let analysis = analyse_alone(
        &two_hosts()
            .change(|d| d.queue = QueueDecl::Drr { quanta_bytes })
            .stream("f", 5, ("a", &["z"]), (1_000, 0, &[100]))
            .stream("g", 3, ("a", &["z"]), (1_000, 0, &[100])),
    );
    // What departs from the other class, one frame in the time, is less than its visit with the deficit it kept.
    assert_eq!((actual(&analysis, "f"), actual(&analysis, "g")), (200, 200));
}

#[test]
fn classes_of_a_weighted_port_have_sent_all_that_came_since_it_was_idle() {
    // By turns, f would wait for five visits of 100 bytes of g: all that is declared is less.
    let mut quanta_bytes = [1; 8];
    (quanta_bytes[5], quanta_bytes[3]) = (20, 100);
    let analysis = analyse_alone(
        &two_hosts()
            .change(|d| d.queue = QueueDecl::Drr { quanta_bytes })
            .stream("f", 5, ("a", &["z"]), (10_000, 0, &[100]))
            .stream("g", 3, ("a", &["z"]), (400, 0, &[100])),
    );
    // Two frames in all that come at once.
    assert_eq!(actual(&analysis, "f"), 100 + 100);
}

#[test]
fn no_release_of_several_frames_comes_whole_before_they_passed_the_slowest_port() {
    let mut builder = Builder::new(BYTE_PER_NANO, 7)
        .host("a")
        .host("z")
        .switch("s", 3, 5)
        .link("a", "s")
        .link("s", "z")
        .stream("f", 5, ("a", &["z"]), (100_000, 0, &[100, 100, 50]));
    builder.declaration.links[1].forward.rate_bps = BYTE_PER_NANO / 10;
    let analysis = analyse_alone(&builder);
    let Outcome::Bound {
        best_case,
        best_whole,
        from_actual,
        ..
    } = &leaf(&analysis, "f").outcome
    else {
        panic!("no bound");
    };
    // The frame of 50 alone, and all of them one after the other at the slow port behind the first.
    assert_eq!(best_case.0, 50 + 7 + 3 + 500 + 7);
    assert_eq!(best_whole.0, 50 + 7 + 3 + 2_500 + 7);
    assert!(best_whole <= from_actual);
}

#[test]
fn an_undeclared_flood_takes_its_share_and_no_more() {
    let mut quanta_bytes = [1; 8];
    (quanta_bytes[5], quanta_bytes[3]) = (200, 100);
    let mut builder = two_hosts()
        .change(|d| d.queue = QueueDecl::Drr { quanta_bytes })
        .stream("f", 5, ("a", &["z"]), (1_000, 0, &[100]))
        .stream("flood", 3, ("a", &["z"]), (1_000, 0, &[100]));
    builder.declaration.streams[1].arrival = ArrivalDecl::Unbounded { max_frame_bytes: 100 };
    let analysis = analyse_alone(&builder);
    // A visit with its quantum, and what it kept of the one before: less than a frame, of any length.
    assert_eq!(actual(&analysis, "f"), 199 + 100);
    assert!(bound(leaf(&analysis, "flood")).is_none());
}

#[test]
fn both_ways_of_a_half_duplex_link_take_turns() {
    let mut builder = two_hosts()
        .stream("f", 5, ("a", &["z"]), (1_000, 0, &[50]))
        .stream("g", 5, ("a", &["z"]), (1_000, 0, &[40]))
        .stream("low", 1, ("a", &["z"]), (1_000, 0, &[70]))
        .stream("back", 7, ("z", &["a"]), (1_000, 0, &[100]));
    builder.declaration.links[0].half_duplex = true;
    let analysis = analyse_alone(&builder);
    // The lower class, and 100 of the other side before each frame.
    assert_eq!(actual(&analysis, "f"), 70 + (100 + 50) + (100 + 40));
    // 70 is the largest that the other side can have.
    assert_eq!(actual(&analysis, "back"), 70 + 100);
}

#[test]
fn a_segment_sends_once_and_serves_its_members_in_turn() {
    let mut builder = Builder::new(BYTE_PER_NANO, 7);
    for host in ["a", "b", "z"] {
        builder = builder.host(host);
    }
    builder = builder.host("g");
    builder.declaration.nodes[3].kind = NodeKindDecl::Segment;
    let analysis = analyse_alone(
        &builder
            .link("a", "g")
            .link("b", "g")
            .link("z", "g")
            .stream("f", 5, ("a", &["z", "b"]), (1_000, 0, &[50]))
            .stream("h", 5, ("b", &["z"]), (1_000, 0, &[30])),
    );
    // One frame of b, then ours; two links of 7, nothing sent a second time.
    assert_eq!(actual(&analysis, "f"), 30 + 50 + 14);
    let (_, _, best) = bound(leaf(&analysis, "f")).expect("a bound");
    assert_eq!(best.0, 50 + 14);
    let out = analysis
        .ports
        .iter()
        .find(|port| port.name == "g->z")
        .expect("the port");
    assert_eq!((out.utilisation.value, out.backlog_bytes), (0.0, Some(0)));
}

#[test]
fn slots_make_frames_wait() {
    let mut builder = two_hosts()
        .stream("f", 5, ("a", &["z"]), (5_000, 0, &[100]))
        .stream("g", 5, ("a", &["z"]), (5_000, 0, &[100]))
        .stream("low", 1, ("a", &["z"]), (5_000, 0, &[40]));
    builder.declaration.links[0].forward.slots = Some(SlotsDecl {
        cycle_ns: 1_000,
        slots_ns: vec![(300, 250)],
    });
    let analysis = analyse_alone(&builder);
    // Behind the lower class 99 are left of the slot; the next one after 750 has room for both.
    assert_eq!(actual(&analysis, "f"), 40 + 99 + 750 + 200);
    // The lower class has one frame after them in that slot, which loses up to 99 of its 250.
    assert_eq!(actual(&analysis, "low"), 99 + 750 + 1_000 + (240 - 151));
}

/// What of the first stream's response at its first port is blocking, same, own and service.
fn explained(builder: &Builder) -> [u64; 4] {
    let explanation = explain(&builder.network(), &alone(), StreamId(0), 0).expect("a bound");
    let hop = &explanation.hops[0];
    assert_eq!(i128::from(hop.response.0), hop.parts.total());
    assert!(hop.parts.counted && hop.parts.rounding == 0 && hop.parts.higher.is_empty());
    [
        hop.parts.blocking.time.0,
        hop.parts.same.iter().map(|one| one.time.0).sum(),
        hop.parts.own.0,
        hop.parts.service.0,
    ]
}

#[test]
fn explanations_call_turns_and_slots_service() {
    let three = |builder: Builder| {
        builder
            .stream("f", 5, ("a", &["z"]), (5_000, 0, &[100]))
            .stream("g", 5, ("a", &["z"]), (5_000, 0, &[100]))
            .stream("low", 1, ("a", &["z"]), (5_000, 0, &[40]))
    };
    let mut slotted = three(two_hosts());
    slotted.declaration.links[0].forward.slots = Some(SlotsDecl {
        cycle_ns: 1_000,
        slots_ns: vec![(300, 250)],
    });
    assert_eq!(explained(&slotted), [40, 100, 100, 99 + 750]);
    let mut shared = three(two_hosts()).stream("back", 7, ("z", &["a"]), (5_000, 0, &[60]));
    shared.declaration.links[0].half_duplex = true;
    assert_eq!(explained(&shared), [40, 100, 100, 2 * 60]);
    let mut quanta_bytes = [1; 8];
    (quanta_bytes[5], quanta_bytes[1]) = (200, 100);
    let weighted = three(two_hosts().change(|d| d.queue = QueueDecl::Drr { quanta_bytes }));
    assert_eq!(explained(&weighted), [0, 100, 100, 40]);
}

//! Frames that may really be smaller than they are declared.

mod support;

use support::{BYTE_PER_NANO, Builder, alone, bound};
use timebound_bounds::{Admission, AdmissionOptions, Analysis, Method, Options, Outcome, analyse, explain};
use timebound_model::{Network, Span, StreamId};

/// `a - s - t - b` at one byte per nanosecond, 5 ns long each; a frame of 10 bytes that is 4 at least, and `late` behind it of a lower class.
fn chain(least: Option<u32>) -> Network {
    let mut builder = Builder::new(BYTE_PER_NANO, 5)
        .host("a")
        .host("b")
        .switch("s", 0, 0)
        .switch("t", 0, 0)
        .host("c")
        .link("a", "s")
        .link("s", "t")
        .link("t", "b")
        .link("c", "t")
        .stream("f", 2, ("a", &["b"]), (42, 0, &[10]))
        .stream("late", 1, ("c", &["b"]), (1_000, 0, &[21]));
    builder.declaration.streams[0].least_frame_bytes = least;
    builder.network()
}

fn by(network: &Network, method: Method) -> Analysis {
    analyse(network, &Options { method, ..alone() })
}

#[test]
fn the_best_case_counts_the_least_frame_at_every_port() {
    for method in [
        Method::Holistic,
        Method::Calculus,
        Method::PortByPort,
        Method::Bound,
    ] {
        for (least, best) in [(None, 3 * (10 + 5)), (Some(4), 3 * (4 + 5))] {
            let analysis = by(&chain(least), method);
            let (_, _, found) = bound(&analysis.streams[0].leaves[0]).expect("a bound");
            assert_eq!(found, Span(best), "{method:?}");
        }
    }
}

/// Two frames, of 10 and then of 4 bytes, are released 42 ns after each other. Undisturbed they reach the port to `b` after 30 and 42 + 18: 30 ns
/// apart, and not 42. A frame of 21 bytes that has begun there just before the first, or waits for both, is late by as much.
#[test]
fn what_comes_behind_smaller_frames_finds_them_nearer_to_each_other() {
    for (least, jitter) in [(None, 0), (Some(4), 12)] {
        let analysis = by(&chain(least), Method::PortByPort);
        let Outcome::Bound { hops, .. } = &analysis.streams[0].leaves[0].outcome else {
            panic!("no bound");
        };
        // The frame of 21 bytes is behind the last of the ports alone.
        let seen: Vec<u64> = hops.iter().map(|hop| hop.jitter_in.0).collect();
        assert_eq!(seen, [0, jitter / 2, jitter]);
    }
    // Of two frames of 21 bytes the last reaches that port 47 ns after its release. Behind a frame of `f` and the other it begins 31 after these
    // came, 10 after its own arrival, and is through 31 after that. Where the next frame of `f` comes 30 ns after the one before, it is there first.
    let with = |least| {
        let mut network = chain(least);
        let timebound_model::Arrival::Periodic { frames, .. } = &mut network.streams[1].arrival else {
            panic!("no period");
        };
        frames.push(timebound_model::WireBytes(21));
        let analysis = by(&network, Method::PortByPort);
        bound(&analysis.streams[1].leaves[0]).expect("a bound").1
    };
    assert_eq!(with(None), Span(47 + 31 + 5));
    assert_eq!(with(Some(4)), Span(47 + 41 + 5));
}

#[test]
fn a_message_of_several_smaller_frames_has_come_whole_when_all_of_them_have() {
    let mut builder = Builder::new(BYTE_PER_NANO, 5)
        .host("a")
        .host("b")
        .switch("s", 0, 0)
        .link("a", "s")
        .link("s", "b")
        .stream("f", 2, ("a", &["b"]), (1_000, 0, &[10, 10, 6]));
    builder.declaration.streams[0].least_frame_bytes = Some(4);
    let network = builder.network();
    let analysis = by(&network, Method::Bound);
    let Outcome::Bound {
        best_case,
        best_whole,
        ..
    } = analysis.streams[0].leaves[0].outcome
    else {
        panic!("no bound");
    };
    // Three of 4 bytes: the first takes 2 (4 + 5), the others 4 each behind it.
    assert_eq!((best_case, best_whole), (Span(18), Span(26)));
    let explained = explain(&network, &alone(), StreamId(0), 0).expect("a bound");
    assert_eq!(explained.best_case, best_whole);
    let mut admission = Admission::new(&network, AdmissionOptions::default());
    let id = admission.find("f").expect("it is there");
    let kept = admission.result(id).expect("a result");
    let (_, _, kept) = bound(&kept.leaves[0]).expect("a bound");
    assert_eq!(kept, best_case);
}

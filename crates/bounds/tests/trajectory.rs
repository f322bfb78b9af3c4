//! The trajectory approach: vectors, what it covers and what it refuses.

mod support;

use support::{BYTE_PER_NANO, Builder, alone, bound, from_actual, leaf};
use timebound_bounds::{Analysis, Safety, trajectory};

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

/// Lower frames start a nanosecond before, so what they block is that much shorter than in the holistic vector.
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
    assert_eq!(found, [2 * MS - 1, 3 * MS - 1, 7 * MS / 2]);
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

/// The simulator reaches 143 up to the receiver's link, which is 5 long here.
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
    assert_eq!(from_actual(&analysis, "f0"), 143 + 5);
}

/// 279 from the actual release, which the simulator reaches, and less from the nominal one than the holistic approach's 480: the
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
    assert_eq!((from_nominal.0, from_actual.0, best_case.0), (399, 279, 100));
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

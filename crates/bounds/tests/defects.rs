//! The formulas as published (seed 004, eq. 6-8 and 13-15, algorithms 1 and 3) and where they promise too much.
//!
//! Each test names a defect, shows a run of the simulator above the published figure, and the bound above the run.

mod support;

use support::simulator::{Release, Run, Seen, Ties, simulate};
use support::{BYTE_PER_NANO, Builder, analyse_alone, bound, from_actual, leaf};
use timebound_model::Network;

/// A message at a port: C, T, J.
#[derive(Debug, Clone, Copy)]
struct Message {
    cost: u64,
    period: u64,
    jitter: u64,
}

const fn message(cost: u64, period: u64, jitter: u64) -> Message {
    Message { cost, period, jitter }
}

/// What the printed equations say, with each misprint to switch.
#[derive(Debug, Clone, Copy)]
struct Published {
    /// Eq. 14 multiplies by the own transmission time.
    own_cost_for_all: bool,
    /// The brackets around Q, which the sentence above eq. 6 prints as plain ones.
    floor_for_instances: bool,
}

const AS_EQUATIONS_6_TO_8: Published = Published {
    own_cost_for_all: false,
    floor_for_instances: false,
};

impl Published {
    /// Eq. 6 (13), 7 (14), 8 (15): the busy period without the message itself, then the worst of its instances.
    fn response(self, blocking: u64, own: Message, others: &[Message]) -> u64 {
        let fixed = |start: u64, step: &dyn Fn(u64) -> u64| {
            let mut at = start;
            loop {
                let next = step(at);
                if next == at {
                    return at;
                }
                at = next;
            }
        };
        let busy = fixed(blocking + own.cost, &|w| {
            blocking
                + others
                    .iter()
                    .map(|j| (w + j.jitter).div_ceil(j.period) * j.cost)
                    .sum::<u64>()
        });
        let window = busy + own.jitter;
        let instances = if self.floor_for_instances {
            window / own.period
        } else {
            window.div_ceil(own.period)
        }
        .max(1);
        let delay = |q: u64| {
            let start = blocking + q * own.cost;
            fixed(start, &|v| {
                let cost = |j: &Message| if self.own_cost_for_all { own.cost } else { j.cost };
                start
                    + others
                        .iter()
                        .map(|j| ((v + j.jitter) / j.period + 1) * cost(j))
                        .sum::<u64>()
            })
        };
        (0..instances)
            .map(|q| (delay(q) + own.cost).saturating_sub(q * own.period))
            .max()
            .unwrap_or(0)
    }
}

/// Runs these frames: stream, nominal release, lateness.
fn observe(network: &Network, ties: Ties, unlucky: &str, frames: &[(&str, u64, u64)]) -> Seen {
    let id = |name: &str| network.stream(name).expect("a stream").index();
    let release = |&(name, nominal, late): &(&str, u64, u64)| {
        let bytes = network.streams[id(name)].arrival.largest_frame().0;
        Release {
            stream: id(name),
            nominal,
            actual: nominal + late,
            bytes,
        }
    };
    let releases: Vec<Release> = frames.iter().map(release).collect();
    let run = Run {
        network,
        releases: &releases,
        best_effort: &[],
        ties,
        unlucky: id(unlucky),
    };
    simulate(&run, &mut |_, _, greatest| greatest)
}

/// The longest latency of a stream's frames, from their actual release.
fn worst(network: &Network, seen: &Seen, stream: &str) -> u64 {
    seen.from_actual[&(network.stream(stream).expect("a stream").index(), 0)]
}

fn one_port() -> Builder {
    Builder::new(BYTE_PER_NANO, 0).host("a").host("z").link("a", "z")
}

/// Eq. 6 and 13 leave out the message itself: too few of its instances are examined.
#[test]
fn a_busy_period_without_the_message_itself_is_too_short() {
    let to: (&str, &[&str]) = ("a", &["z"]);
    let builder = one_port()
        .stream("high", 3, to, (250, 0, &[100]))
        .stream("middle", 2, to, (350, 0, &[100]))
        .stream("low", 1, to, (350, 0, &[100]));
    let others = [message(100, 250, 0), message(100, 350, 0)];
    let published = AS_EQUATIONS_6_TO_8.response(0, message(100, 350, 0), &others);
    assert_eq!(published, 300);
    let network = builder.network();
    let frames = [
        ("high", 0, 0),
        ("high", 250, 0),
        ("high", 500, 0),
        ("middle", 0, 0),
        ("middle", 350, 0),
        ("low", 0, 0),
        ("low", 350, 0),
    ];
    // All at once, the higher ones first: with the lowest first they would be blocked instead.
    let seen = observe(&network, Ties::HigherFirst, "low", &frames);
    assert_eq!(worst(&network, &seen, "low"), 350);
    assert_eq!(from_actual(&analyse_alone(&builder), "low"), 350);
}

/// Eq. 8 and 15 subtract q T as if the message itself had no jitter: its second instance may come T - J after the first.
#[test]
fn the_own_jitter_is_dropped() {
    let builder = one_port()
        .stream("late", 5, ("a", &["z"]), (220, 200, &[100]))
        .stream("low", 1, ("a", &["z"]), (10_000, 0, &[100]));
    assert_eq!(
        AS_EQUATIONS_6_TO_8.response(100, message(100, 220, 200), &[]),
        200
    );
    let network = builder.network();
    let seen = observe(
        &network,
        Ties::LowerFirst,
        "late",
        &[("low", 200, 0), ("late", 0, 200), ("late", 220, 0)],
    );
    assert_eq!(worst(&network, &seen, "late"), 280);
    assert_eq!(from_actual(&analyse_alone(&builder), "late"), 280);
}

/// Eq. 14 prints the own transmission time for that of the others.
#[test]
fn the_own_cost_is_printed_for_the_others() {
    let builder = one_port()
        .stream("large", 5, ("a", &["z"]), (10_000, 0, &[900]))
        .stream("small", 5, ("a", &["z"]), (10_000, 0, &[100]));
    let printed = Published {
        own_cost_for_all: true,
        ..AS_EQUATIONS_6_TO_8
    };
    let published = printed.response(0, message(100, 10_000, 0), &[message(900, 10_000, 0)]);
    let network = builder.network();
    let seen = observe(
        &network,
        Ties::HigherFirst,
        "small",
        &[("large", 0, 0), ("small", 0, 0)],
    );
    let simulated = worst(&network, &seen, "small");
    assert_eq!(
        (
            published,
            simulated,
            from_actual(&analyse_alone(&builder), "small")
        ),
        (200, 1_000, 1_000)
    );
}

/// Read as a plain bracket, Q stops one instance early even with a busy period that counts everything.
#[test]
fn the_number_of_instances_is_a_ceiling() {
    let to: (&str, &[&str]) = ("a", &["z"]);
    let builder = one_port()
        .stream("high", 5, to, (69, 0, &[30]))
        .stream("own", 3, to, (40, 0, &[20]))
        .stream("low", 1, to, (10_000, 0, &[20]));
    let floor = Published {
        floor_for_instances: true,
        ..AS_EQUATIONS_6_TO_8
    };
    assert_eq!(floor.response(20, message(20, 40, 0), &[message(30, 69, 0)]), 70);
    let network = builder.network();
    let frames = [
        ("low", 0, 0),
        ("high", 0, 0),
        ("high", 69, 0),
        ("own", 0, 0),
        ("own", 40, 0),
    ];
    let seen = observe(&network, Ties::LowerFirst, "own", &frames);
    assert_eq!(worst(&network, &seen, "own"), 80);
    assert_eq!(from_actual(&analyse_alone(&builder), "own"), 80);
}

/// Algorithm 1 carries the jitter of the message alone: a rival keeps its source jitter, although queueing has bunched it.
#[test]
fn jitter_that_rivals_gather_is_left_out() {
    let builder = Builder::new(BYTE_PER_NANO, 0)
        .host("a")
        .host("b")
        .switch("s", 0, 0)
        .host("z")
        .link("a", "s")
        .link("s", "z")
        .link("b", "s")
        .stream("rival", 5, ("a", &["z"]), (100, 0, &[40]))
        .stream("low", 1, ("a", &["s2"]), (1_000, 0, &[90]))
        .stream("own", 3, ("b", &["z"]), (1_000, 0, &[50]));
    let builder = Builder {
        declaration: with_second_sink(builder.declaration),
        ..builder
    };
    // At s the rival counts with J = 0: v = 40, and own ends after 40 + 50.
    let published = 50 + AS_EQUATIONS_6_TO_8.response(0, message(50, 1_000, 0), &[message(40, 100, 0)]);
    assert_eq!(published, 140);
    let network = builder.network();
    // The low frame holds up the first rival by 90, so that two rivals reach s 40 apart.
    let seen = observe(
        &network,
        Ties::HigherFirst,
        "own",
        &[("low", 0, 0), ("rival", 1, 0), ("rival", 101, 0), ("own", 80, 0)],
    );
    let simulated = worst(&network, &seen, "own");
    let bound = from_actual(&analyse_alone(&builder), "own");
    assert!(
        published < simulated && simulated <= bound,
        "{published} {simulated} {bound}"
    );
}

/// A second receiver behind the switch, so that the low stream shares only the rival's source port.
fn with_second_sink(
    mut declaration: timebound_model::declaration::Declaration,
) -> timebound_model::declaration::Declaration {
    let sink = Builder::new(BYTE_PER_NANO, 0)
        .host("s2")
        .declaration
        .nodes
        .remove(0);
    declaration.nodes.push(sink);
    let link = Builder::new(BYTE_PER_NANO, 0)
        .link("s", "s2")
        .declaration
        .links
        .remove(0);
    declaration.links.push(link);
    declaration
}

/// Algorithm 3 never resets its sums, so a later branch is charged with the earlier ones: far too much there, and the answer
/// depends on the order of the branches. Ours does neither.
#[test]
fn branches_are_not_added_up() {
    let with = |receivers: &[&str]| {
        let mut builder = Builder::new(BYTE_PER_NANO, 0)
            .host("a")
            .switch("s", 5, 5)
            .link("a", "s");
        for receiver in ["w", "x", "y", "z"] {
            builder = builder.host(receiver).link("s", receiver);
        }
        analyse_alone(&builder.stream("f", 5, ("a", receivers), (1_000, 0, &[10])))
    };
    let all = with(&["w", "x", "y", "z"]);
    // 10 + 5 to the branch, then 10 for each link as published: 25, 40, 55, 70 with the switching delay counted again.
    let published: Vec<u64> = (1..=4).map(|branch| 10 + branch * (5 + 10)).collect();
    assert_eq!(published, [25, 40, 55, 70]);
    let ours: Vec<u64> = all.streams[0]
        .leaves
        .iter()
        .map(|leaf| bound(leaf).expect("a bound").1.0)
        .collect();
    assert_eq!(ours, [25; 4]);
    assert_eq!(bound(leaf(&with(&["z"]), "f")), bound(leaf(&all, "f")));
}

//! One port: against the formulas as they stand, and against the definitions nanosecond by nanosecond.

use super::*;
use crate::bundle::ONE;
use crate::demand::Demand;

fn demand(weight: u64, period: u64, jitter: u64) -> Demand {
    Demand::new(period, weight, jitter)
}

fn worst(blocking: u64, same: &[Bundle<'_>], higher: &[Demand], own: u64) -> Option<Worst> {
    worst_below(blocking, same, Bundle::plain(higher), own)
}

fn worst_below(blocking: u64, same: &[Bundle<'_>], higher: Bundle<'_>, own: u64) -> Option<Worst> {
    let higher = [higher];
    let level = Level {
        blocking,
        same: same.iter().copied(),
        higher: higher.iter().copied(),
    };
    let mut scratch = Scratch::default();
    let responses = level.responses(&mut scratch, &mut Effort::for_hops(1))?;
    responses.of(own)
}

fn response(blocking: u64, same: &[Demand], higher: &[Demand], own: u64) -> Option<u64> {
    worst(blocking, &[Bundle::plain(same)], higher, own).map(|worst| worst.response)
}

/// The formulas as they stand in the module's head, candidate by candidate.
fn by_the_book(blocking: u64, same: &[Demand], higher: &[Demand], own: u64) -> u64 {
    let count = |window: u64, d: &Demand| ((window + d.jitter()) / d.period() + 1) * d.weight();
    let fixed = |start: u64, f: &dyn Fn(u64) -> u64| {
        let mut at = start;
        loop {
            let next = f(at);
            if next == at {
                return at;
            }
            at = next;
        }
    };
    let busy = fixed(blocking + own, &|l| {
        blocking
            + same
                .iter()
                .chain(higher)
                .map(|d| (l + d.jitter()).div_ceil(d.period()) * d.weight())
                .sum::<u64>()
    });
    let mut candidates = vec![0];
    for d in same {
        candidates.extend(
            (0..)
                .map(|k| k * d.period())
                .skip_while(|a| *a < d.jitter())
                .map(|a| a - d.jitter())
                .take_while(|t| *t < busy),
        );
    }
    candidates
        .iter()
        .map(|&t| {
            let same: u64 = same.iter().map(|d| count(t, d)).sum();
            let base = blocking + same - own;
            (fixed(base, &|w| base + higher.iter().map(|d| count(w, d)).sum::<u64>()) + own).saturating_sub(t)
        })
        .max()
        .expect("t = 0 is a candidate")
}

#[test]
fn sweep_equals_the_formulas() {
    let mut state = 1u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut examined = 0;
    while examined < 3_000 {
        let mut demands: Vec<Demand> = Vec::new();
        let (same_count, higher_count) = (1 + draw(4), draw(4));
        for _ in 0..same_count + higher_count {
            let period = 20 + draw(60);
            demands.push(demand(1 + draw(12), period, draw(2 * period)));
        }
        let load: f64 = demands
            .iter()
            .map(|d| d.weight() as f64 / d.period() as f64)
            .sum();
        if load >= 0.97 {
            continue;
        }
        examined += 1;
        let (same, higher) = demands.split_at(same_count as usize);
        let (blocking, own) = (draw(15), same[0].weight());
        assert_eq!(
            response(blocking, same, higher, own),
            Some(by_the_book(blocking, same, higher, own))
        );
        let bundles = ([Bundle::plain(same)], [Bundle::plain(higher)]);
        let level = Level {
            blocking,
            same: bundles.0.iter().copied(),
            higher: bundles.1.iter().copied(),
        };
        let form = level.fluid().expect("finite");
        let fluid = Responses { blocking, form }.of(own).expect("finite");
        assert!(
            Some(fluid.response) >= response(blocking, same, higher, own),
            "{same:?} {higher:?}"
        );
    }
}

#[test]
fn a_jitter_beyond_the_period_releases_several_frames_at_once() {
    assert_eq!(response(0, &[demand(10, 100, 250)], &[], 10), Some(30));
}

#[test]
fn a_busy_period_without_end_gets_the_closed_form() {
    let dense = demand(999_999_999_999, 1_000_000_000_000, 0);
    let other = demand(1, 1_000_000_000_001, 0);
    assert!(response(1_000_000_000, &[dense, other], &[], 1).is_some_and(|r| r >= 1_001_000_000_000 - 1));
}

#[test]
fn times_beyond_the_horizon_are_no_bound() {
    let heavy = demand(HORIZON / 2, HORIZON, HORIZON);
    assert_eq!(response(HORIZON, &[heavy], &[], 1), None);
    assert_eq!(
        response(
            0,
            &[demand(1, 1 << 60, 0)],
            &[demand(u64::MAX / 4, HORIZON, HORIZON)],
            1
        ),
        None
    );
}

/// The 17 messages of the SAE benchmark on a CAN bus at 125 kbit/s (Tindell, Burns and Wellings 1995), every one a class of its
/// own. Response times there end before the 3-bit interframe space of 24 us.
#[test]
fn sae_messages_on_a_can_bus() {
    let bytes = [1, 2, 1, 2, 1, 2, 6, 1, 2, 2, 1, 4, 1, 1, 3, 1, 1];
    let milliseconds = [
        1000, 5, 5, 5, 5, 5, 10, 10, 10, 10, 100, 100, 100, 100, 1000, 1000, 1000,
    ];
    let expected = [
        1_416, 2_016, 2_536, 3_136, 3_656, 4_256, 5_016, 8_376, 8_976, 9_576, 10_096, 19_096, 19_616, 20_136,
        28_976, 29_496, 29_496,
    ];
    let cost = |bytes: u64| (55 + 10 * bytes) * 8;
    let messages: Vec<Demand> = bytes
        .iter()
        .zip(milliseconds)
        .map(|(&b, ms)| demand(cost(b), ms * 1_000, 0))
        .collect();
    for (index, expected) in expected.into_iter().enumerate() {
        let blocking = messages[index + 1..]
            .iter()
            .map(|lower| lower.weight())
            .max()
            .unwrap_or(0);
        let (higher, own) = (&messages[..index], &messages[index]);
        let found = response(blocking, std::slice::from_ref(own), higher, own.weight());
        assert_eq!(found, Some(expected + 24), "message {}", index + 1);
    }
}

/// `S`, `H` and `W` of shaped bundles by their definitions, for every nanosecond of the busy period.
fn shaped_by_the_book(
    blocking: u64,
    same: &[(Vec<Demand>, Option<Line>)],
    higher: &[Demand],
    own: u64,
) -> (u64, u64) {
    let staircase = |window: u64, demands: &[Demand]| demands.iter().map(|d| d.within(window)).sum::<u64>();
    let shaped = |window: u64| {
        let bundle = |(demands, line): &(Vec<Demand>, Option<Line>)| {
            let stairs = staircase(window, demands);
            // Work is whole nanoseconds: what a line allows is rounded down.
            let risen = |line: Line| line.base + ((u128::from(line.slope) * u128::from(window)) >> 32) as u64;
            line.map_or(stairs, |line| stairs.min(risen(line)))
        };
        same.iter().map(bundle).sum::<u64>()
    };
    let (mut response, mut backlog, mut served, mut t) = (0, 0, 0u64, 0u64);
    loop {
        let work = blocking + shaped(t);
        let mut start = work - own.min(work);
        while start < (work - own.min(work)) + staircase(start, higher) {
            start = (work - own.min(work)) + staircase(start, higher);
        }
        response = response.max((start + own).saturating_sub(t));
        if t > 0 {
            served = served.max(t.saturating_sub(blocking + staircase(t - 1, higher)));
        }
        backlog = backlog.max(shaped(t) - served.min(shaped(t)));
        if t > 0 && blocking + shaped(t) + staircase(t, higher) <= t {
            return (response, backlog);
        }
        t += 1;
    }
}

#[test]
fn shaped_sweep_equals_the_definitions() {
    let mut state = 7u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut examined, mut equal) = (0, 0);
    while examined < 4_000 {
        let mut bundles: Vec<(Vec<Demand>, Option<Line>)> = Vec::new();
        let mut load = 0.0;
        let mut demands = |draw: &mut dyn FnMut(u64) -> u64, count: u64| {
            let mut list = Vec::new();
            for _ in 0..count {
                let period = 40 + draw(160);
                list.push(demand(1 + draw(12), period, draw(2 * period)));
                load += list[list.len() - 1].weight() as f64 / period as f64;
            }
            list
        };
        for _ in 0..1 + draw(3) {
            let count = 1 + draw(4);
            let list = demands(&mut draw, count);
            let largest = list.iter().map(Demand::weight).max().unwrap_or(0);
            let line = (draw(4) > 0).then(|| Line {
                base: largest + draw(5),
                slope: [ONE, ONE, ONE / 10 * (1 + draw(9)), ONE * (1 + draw(3))][draw(4) as usize],
            });
            bundles.push((list, line));
        }
        let count = draw(4);
        let higher = demands(&mut draw, count);
        if load >= 0.95 {
            continue;
        }
        examined += 1;
        let (blocking, own) = (draw(15), bundles[0].0[0].weight());
        let (book, waiting) = shaped_by_the_book(blocking, &bundles, &higher, own);
        let same: Vec<Bundle<'_>> = bundles
            .iter()
            .map(|(list, line)| Bundle {
                line: *line,
                ..Bundle::plain(list)
            })
            .collect();
        let found = worst(blocking, &same, &higher, own).expect("finite");
        assert!(
            found.response >= book,
            "{found:?} below {book}: {blocking} {own} {bundles:?} {higher:?}"
        );
        assert_eq!(
            found.response,
            blocking + found.same + found.higher - found.window
        );
        let slow = same
            .iter()
            .any(|bundle| bundle.line.is_some_and(|line| line.slope < ONE));
        // A line of another slope than a whole number is rounded up to the nanosecond, and a start may then pass one release more.
        assert!(
            slow || found.response == book,
            "{found:?} is not {book}: {bundles:?} {higher:?}"
        );
        equal += u64::from(found.response == book);
        let plain: Vec<Bundle<'_>> = bundles.iter().map(|(list, _)| Bundle::plain(list)).collect();
        let stairs = worst(blocking, &plain, &higher, own).expect("finite").response;
        assert!(found.response <= stairs + bundles.len() as u64 + 1);
        let slow = same
            .iter()
            .any(|bundle| bundle.line.is_some_and(|line| line.slope < ONE));
        assert!(
            slow || found.response <= stairs,
            "{found:?} above {stairs}: {blocking} {own} {bundles:?} {higher:?}"
        );
        let bundles_of_higher = [Bundle::plain(&higher)];
        let level = Level {
            blocking,
            same: same.iter().copied(),
            higher: bundles_of_higher.iter().copied(),
        };
        let mut scratch = Scratch::default();
        let responses = level
            .responses(&mut scratch, &mut Effort::for_hops(1))
            .expect("finite");
        assert!(responses.backlog().expect("finite") >= waiting);
    }
    assert!(equal * 10 > examined * 8, "{equal} of {examined} exact");
}

/// A slow line of a higher class: never below its definition, never above the bare staircase.
#[test]
fn a_slow_line_above_holds_back_what_comes_at_once() {
    let mut state = 3u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut examined, mut less) = (0, 0);
    while examined < 2_000 {
        let mut list = |count: u64| -> Vec<Demand> {
            (0..count)
                .map(|_| {
                    let period = 60 + draw(200);
                    demand(1 + draw(12), period, draw(2 * period))
                })
                .collect()
        };
        let (same, higher) = (list(2), list(5));
        let load: f64 = same
            .iter()
            .chain(&higher)
            .map(|d| d.weight() as f64 / d.period() as f64)
            .sum();
        if load >= 0.9 {
            continue;
        }
        examined += 1;
        let line = Line {
            base: 12 + draw(5),
            slope: ONE / 20 * (1 + draw(19)),
        };
        let (blocking, own) = (draw(15), same[0].weight());
        let staircase =
            |window: u64, demands: &[Demand]| demands.iter().map(|d| d.within(window)).sum::<u64>();
        let above = |window: u64| {
            let risen = line.base + ((u128::from(line.slope) * u128::from(window)) >> 32) as u64;
            staircase(window, &higher).min(risen)
        };
        let (mut book, mut t) = (0, 0u64);
        loop {
            let work = blocking + staircase(t, &same) - own;
            let mut start = work;
            while start < work + above(start) {
                start = work + above(start);
            }
            book = book.max((start + own).saturating_sub(t));
            if t > 0 && work + own + staircase(t, &higher) <= t {
                break;
            }
            t += 1;
        }
        let same = [Bundle::plain(&same)];
        let plain = Bundle::plain(&higher);
        let shaped = Bundle {
            line: Some(line),
            ..plain
        };
        let found = worst_below(blocking, &same, shaped, own).expect("finite");
        let stairs = worst_below(blocking, &same, plain, own).expect("finite");
        assert!(
            found.response >= book,
            "{found:?} below {book}: {line:?} {higher:?}"
        );
        assert!(found.response <= stairs.response);
        less += u64::from(found.response < stairs.response);
    }
    assert!(less > 100, "only {less} of {examined} are the tighter for it");
}

/// Releases of bundles after the first instant, up to `horizon`, sorted.
fn listed(bundles: &[Bundle<'_>], horizon: u64) -> Vec<Release> {
    let mut list = Vec::new();
    for (bundle, index) in bundles.iter().zip(0u32..) {
        for demand in bundle.demands {
            let mut at = demand.first_step();
            while at <= horizon {
                list.push(Release {
                    at,
                    weight: demand.weight(),
                    bundle: index,
                });
                at += demand.period();
            }
        }
    }
    list.sort_by_key(|release| release.at);
    list
}

/// Response times alone, found by halving, are those of the walk; so they are where what comes before the first start is counted at once.
#[test]
fn the_longest_responses_are_those_of_the_worst_cases() {
    let mut state = 11u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut examined, mut counted) = (0, 0);
    while examined < 3_000 {
        let mut load = 0.0;
        let mut demands = |draw: &mut dyn FnMut(u64) -> u64, count: u64| -> Vec<Demand> {
            (0..count)
                .map(|_| {
                    let (period, weight) = (40 + draw(160), 1 + draw(12));
                    load += weight as f64 / period as f64;
                    demand(weight, period, draw(2 * period))
                })
                .collect()
        };
        let count = 1 + draw(3);
        let same: Vec<(Vec<Demand>, Option<Line>)> = (0..count)
            .map(|_| {
                let count = 1 + draw(4);
                let list = demands(&mut draw, count);
                let base = list.iter().map(Demand::weight).max().unwrap_or(0) + draw(5);
                let slope = ONE * (1 + draw(3));
                (list, (draw(2) > 0).then_some(Line { base, slope }))
            })
            .collect();
        let count = draw(6);
        let above = demands(&mut draw, count);
        if load >= 0.95 {
            continue;
        }
        examined += 1;
        let same: Vec<Bundle<'_>> = same
            .iter()
            .map(|(list, line)| Bundle {
                line: *line,
                ..Bundle::plain(list)
            })
            .collect();
        let higher = [Bundle::plain(&above)];
        let level = Level {
            blocking: draw(15),
            same: same.iter().copied(),
            higher: higher.iter().copied(),
        };
        let horizon = 1 << 14;
        let lists = (listed(&same, horizon), listed(&higher, horizon));
        let mut scratch = Scratch::default();
        let mut effort = Effort::for_hops(1);
        let both = (Listed(&lists.0), Listed(&lists.1));
        let found = level
            .responses_of_lists(both, horizon, &mut scratch, &mut effort)
            .expect("finite");
        let owns: Vec<u64> = same
            .iter()
            .flat_map(|bundle| bundle.demands.iter().map(Demand::weight))
            .collect();
        let worst: Vec<Worst> = owns.iter().map(|own| found.of(*own).expect("finite")).collect();
        let mut starts = Starts::default();
        let none: Vec<(u64, u64)> = owns.iter().map(|own| (*own, 0)).collect();
        let mut longest = none.clone();
        found.longest(&mut starts, &mut longest).expect("exact");
        let expected: Vec<(u64, u64)> = owns
            .iter()
            .zip(&worst)
            .map(|(own, worst)| (*own, worst.response))
            .collect();
        assert_eq!(longest, expected);
        let known = worst[draw(worst.len() as u64) as usize].response;
        let mut longer: Vec<(u64, u64)> = owns.iter().map(|own| (*own, known)).collect();
        found.longest(&mut starts, &mut longer).expect("exact");
        let not_shorter = expected
            .iter()
            .map(|(own, response)| (*own, known.max(*response)));
        assert!(longer.iter().copied().eq(not_shorter));
        // The least start: that of the largest frame at t = 0.
        let largest = owns.iter().copied().max().unwrap_or(0);
        let at_first = same.iter().fold(level.blocking, |sum, bundle| {
            sum + bundle
                .line
                .map_or(bundle.at_once, |line| bundle.at_once.min(line.base))
        });
        let mut start = at_first.saturating_sub(largest);
        let ahead = start;
        loop {
            let next = ahead + above.iter().map(|demand| demand.within(start)).sum::<u64>();
            if next == start {
                break;
            }
            start = next;
        }
        let passed = lists.1.partition_point(|release| release.at <= start);
        counted += usize::from(passed > 0);
        let at_once = higher[0].at_once
            + lists.1[..passed]
                .iter()
                .map(|release| release.weight)
                .sum::<u64>();
        let later = (Listed(&lists.0), Listed(&lists.1[passed..]));
        let found = level
            .responses_within(
                (0, u64::MAX),
                at_once,
                later,
                horizon,
                (&mut scratch, &mut effort),
            )
            .expect("finite");
        longest.clone_from(&none);
        found.longest(&mut starts, &mut longest).expect("exact");
        assert_eq!(longest, expected);
    }
    assert!(counted > 300, "{counted} of {examined} counted releases at once");
}

/// Bundles of a class, each with its demands and its line, and what is above them.
type Class = (Vec<(Vec<Demand>, Option<Line>)>, Vec<Demand>);

/// The same with all releases earlier by what `by` says, bundle by bundle, those above in the end.
fn earlier((same, above): &Class, mut by: impl FnMut() -> u64) -> Class {
    let mut all = |demands: &[Demand]| {
        let by = by();
        let moved = |d: &Demand| demand(d.weight(), d.period(), d.jitter() + by);
        demands.iter().map(moved).collect::<Vec<_>>()
    };
    (
        same.iter().map(|(demands, line)| (all(demands), *line)).collect(),
        all(above),
    )
}

/// Raises what is `known` of responses, and says which part of the busy period does; looks at `window` alone.
fn raise(
    (same, above): &Class,
    blocking: u64,
    window: (u64, u64),
    known: &mut [(u64, u64)],
) -> Option<(Option<Part>, u64)> {
    let whole: Vec<Bundle<'_>> = same
        .iter()
        .map(|(demands, line)| Bundle {
            line: *line,
            ..Bundle::plain(demands)
        })
        .collect();
    let higher = [Bundle::plain(above)];
    let horizon = 1 << 14;
    let (mut own, others) = (listed(&whole, horizon), listed(&higher, horizon));
    let mut same = whole.clone();
    for release in own.iter().filter(|release| release.at <= window.0) {
        same[release.bundle as usize].at_once += release.weight;
    }
    own.retain(|release| release.at > window.0);
    let level = Level {
        blocking,
        same: same.iter().copied(),
        higher: higher.iter().copied(),
    };
    let (mut scratch, mut effort) = (Scratch::default(), Effort::for_hops(1));
    let lists = (Listed(&own), Listed(&others));
    let found = level.responses_within(
        window,
        higher[0].at_once,
        lists,
        horizon,
        (&mut scratch, &mut effort),
    )?;
    let mut starts = Starts::default();
    let part = found.longer(&mut starts, known)?;
    found.longest(&mut starts, known)?;
    Some((part, found.end()?))
}

#[test]
fn a_part_is_enough_while_no_more_comes_than_it_allows() {
    let mut state = 5u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut examined, mut none, mut parts, mut rose) = (0, 0, 0, 0);
    while examined < 4_000 {
        let mut load = 0.0;
        let mut demands = |draw: &mut dyn FnMut(u64) -> u64, count: u64| -> Vec<Demand> {
            (0..count)
                .map(|_| {
                    let (period, weight) = (40 + draw(400), 1 + draw(12));
                    load += weight as f64 / period as f64;
                    demand(weight, period, draw(period))
                })
                .collect()
        };
        let count = 1 + draw(3);
        let same = (0..count)
            .map(|_| {
                let count = 1 + draw(8);
                let list = demands(&mut draw, count);
                let base = list.iter().map(Demand::weight).max().unwrap_or(0) + draw(5);
                let slope = ONE * (1 + draw(3)) + draw(2) * ONE / 3;
                (list, (draw(2) > 0).then_some(Line { base, slope }))
            })
            .collect();
        let count = draw(8);
        let class: Class = (same, demands(&mut draw, count));
        if load >= 0.95 {
            continue;
        }
        examined += 1;
        let (most_limit, most_extra) = ([3, 15, 60][draw(3) as usize], [1, 20][draw(2) as usize]);
        let (blocking, limit, extra) = (draw(15), draw(most_limit), draw(most_extra));
        let owns = class
            .0
            .iter()
            .flat_map(|(list, _)| list.iter().map(Demand::weight));
        let mut known: Vec<(u64, u64)> = owns.map(|own| (own, 0)).collect();
        raise(&class, blocking, (0, u64::MAX), &mut known).expect("finite");
        let most = earlier(&class, || limit);
        let (part, _) = raise(&most, blocking + extra, (0, u64::MAX), &mut known.clone()).expect("finite");
        for _ in 0..4 {
            let then = earlier(&class, || draw(limit + 1));
            let blocking = blocking + draw(extra + 1);
            let mut whole = known.clone();
            raise(&then, blocking, (0, u64::MAX), &mut whole).expect("finite");
            let Some(Part { from, to, reach }) = part else {
                none += 1;
                assert_eq!(whole, known);
                continue;
            };
            let mut found = known.clone();
            let (_, end) = raise(&then, blocking, (from, to), &mut found).expect("finite");
            assert_eq!(found, whole, "{from} to {to}");
            // What counts in the part comes before its frames start.
            assert!(end <= reach);
            parts += usize::from(from > 0);
            rose += usize::from(whole != known);
        }
    }
    assert!(none > 300 && parts > 300 && rose > 300, "{none} {parts} {rose}");
}

//! Time of one admission decision at 10,000 flows on 200 switches, beside that of one full analysis.
//!
//! Decisions are drawn at random: flows of the benchmark's network leave and others like them ask to join, so that about as many are
//! there at any time. Every flow has a deadline. Wall time of each decision; others use the machine, too, so that the quantiles of
//! the CPU time of the thread stand beside it. The same requests are made in three ways: answers with all bounds; answers alone, and all bounds
//! between one request and the next; answers alone, one request after another.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod support;

use std::time::Instant;
use support::{Draws, network};
use timebound_bounds::{Admission, AdmissionOptions, Method, Options, Outcome, analyse};
use timebound_model::{Network, Span, Stream, StreamId};

const DECISIONS: usize = 4_000;

/// What was asked, how long the answer took, and the evaluations of levels.
struct Answer {
    what: What,
    class: u8,
    wall_us: f64,
    cpu_us: f64,
    /// Working out the bounds that the answer did without.
    later_us: f64,
    /// Was the answer there before the bounds?
    is_ahead: bool,
}

/// How requests are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    WithBounds,
    BoundsBetween,
    OneAfterAnother,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Admitted,
    Refused,
    Removed,
}

/// CPU time of this thread in microseconds.
fn cpu_us() -> f64 {
    support::cpu().unwrap_or(f64::NAN) * 1e6
}

/// Gives every stream a deadline: a share of its bound above it.
fn with_deadlines(network: &mut Network) -> f64 {
    let options = Options {
        method: Method::PortByPort,
        ..Options::default()
    };
    let start = cpu_us();
    let analysis = analyse(network, &options);
    let took = cpu_us() - start;
    for (index, (stream, result)) in network.streams.iter_mut().zip(&analysis.streams).enumerate() {
        if let Outcome::Bound { from_nominal, .. } = result.leaves[0].outcome {
            stream.deadline = Some(Span(from_nominal.0 + from_nominal.0 / (4 + index as u64 % 13)));
        }
    }
    took
}

fn decide(
    admission: &mut Admission,
    present: &mut Vec<Stream>,
    waiting: &mut Vec<Stream>,
    draws: &mut Draws,
    way: Way,
) -> Answer {
    let leaves = waiting.is_empty() || (present.len() > 9_900 && draws.below(2) == 0);
    let from = if leaves { present.len() } else { waiting.len() };
    let stream = if leaves { &mut *present } else { &mut *waiting }.swap_remove(draws.below(from));
    let (copy, class) = (stream.clone(), stream.class.0);
    let id = admission.find(&stream.name);
    let (cpu, wall) = (cpu_us(), Instant::now());
    let admitted = |yes: bool| if yes { What::Admitted } else { What::Refused };
    let what = match id {
        Some(id) => admission.remove(id).map(|_| What::Removed),
        None if way == Way::WithBounds => admission.add(stream).map(|decision| admitted(decision.is_ok())),
        None => admission
            .decide(stream)
            .map(|decision| admitted(decision.is_ok())),
    };
    if way == Way::WithBounds {
        // Reading any bound works out all of them.
        let _ = admission.result(StreamId(0));
    }
    let wall_us = wall.elapsed().as_secs_f64() * 1e6;
    let cpu_us = cpu_us() - cpu;
    let is_ahead = !admission.is_settled();
    let start = Instant::now();
    if way == Way::BoundsBetween {
        admission.settle();
    }
    let later_us = start.elapsed().as_secs_f64() * 1e6;
    let what = what.expect("no misuse");
    if what == What::Admitted { present } else { waiting }.push(copy);
    Answer {
        what,
        class,
        wall_us,
        cpu_us,
        later_us,
        is_ahead,
    }
}

fn quantiles(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() as f64 * share) as usize).min(times.len() - 1)];
    format!("p50 {:.0}, p99 {:.0}, max {:.0} us", at(0.5), at(0.99), at(1.0))
}

fn line(title: &str, answers: &[&Answer]) {
    if answers.is_empty() {
        return;
    }
    let wall = quantiles(answers.iter().map(|answer| answer.wall_us).collect());
    let cpu = quantiles(answers.iter().map(|answer| answer.cpu_us).collect());
    let ahead = answers.iter().filter(|answer| answer.is_ahead).count();
    let mut text = format!("  {title}: {} decisions, wall {wall}; CPU {cpu}", answers.len());
    if ahead > 0 {
        let later = quantiles(answers.iter().map(|answer| answer.later_us).collect());
        text += &format!("; {ahead} before the bounds, which then took {later}");
    }
    println!("{text}");
}

fn measure(title: &str, extra_links: usize, way: Way) {
    let mut whole = network(200, 10_400, extra_links);
    let _ = with_deadlines(&mut whole);
    let mut waiting = whole.streams.split_off(10_000);
    let full = with_deadlines(&mut whole);
    let mut present = whole.streams.clone();
    let start = cpu_us();
    let mut admission = Admission::new(&whole, AdmissionOptions::default());
    let built = cpu_us() - start;
    let mut draws = Draws(11);
    let mut answers = Vec::with_capacity(DECISIONS);
    for _ in 0..DECISIONS {
        answers.push(decide(
            &mut admission,
            &mut present,
            &mut waiting,
            &mut draws,
            way,
        ));
    }
    let how = match way {
        Way::WithBounds => "answers with all bounds",
        Way::BoundsBetween => "answers, and all bounds between requests",
        Way::OneAfterAnother => "answers, one request after another",
    };
    println!(
        "admission, 200 switches, {title}, 10,000 flows, {how}: one full analysis {:.1} ms CPU, the state itself {:.1} ms; {:.0} us a decision on average",
        full / 1e3,
        built / 1e3,
        answers.iter().map(|answer| answer.wall_us).sum::<f64>() / answers.len() as f64
    );
    line("all", &answers.iter().collect::<Vec<_>>());
    for what in [What::Admitted, What::Refused, What::Removed] {
        let these: Vec<_> = answers.iter().filter(|answer| answer.what == what).collect();
        line(&format!("{what:?}"), &these);
    }
    for class in [0, 7] {
        let these: Vec<_> = answers.iter().filter(|answer| answer.class == class).collect();
        line(&format!("class {class}"), &these);
    }
}

fn main() {
    for way in [Way::WithBounds, Way::BoundsBetween, Way::OneAfterAnother] {
        measure("tree", 0, way);
        measure("mesh with cyclic dependencies", 150, way);
    }
}

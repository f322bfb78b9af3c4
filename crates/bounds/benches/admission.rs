//! Time of one admission decision at 10,000 flows on 200 switches, beside that of one full analysis.
//!
//! Decisions are drawn at random: flows of the benchmark's network leave and others like them ask to join, so that about as many are
//! there at any time. Every flow has a deadline. Wall time of each decision; others use the machine, too, so that the quantiles of
//! the CPU time of the thread stand beside it.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod support;

use std::time::Instant;
use support::{Draws, network};
use timebound_bounds::{Admission, AdmissionOptions, Method, Options, Outcome, analyse};
use timebound_model::{Network, Span, Stream};

const DECISIONS: usize = 4_000;

/// What was asked, how long the answer took, and the evaluations of levels.
struct Answer {
    what: What,
    class: u8,
    wall_us: f64,
    cpu_us: f64,
    evaluations: u64,
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
) -> Answer {
    let leaves = waiting.is_empty() || (present.len() > 9_900 && draws.below(2) == 0);
    let from = if leaves { present.len() } else { waiting.len() };
    let stream = if leaves { &mut *present } else { &mut *waiting }.swap_remove(draws.below(from));
    let (copy, class) = (stream.clone(), stream.class.0);
    let id = admission.find(&stream.name);
    let (cpu, wall) = (cpu_us(), Instant::now());
    let what = match id {
        Some(id) => admission.remove(id).map(|_| What::Removed),
        None => admission.add(stream).map(|decision| match decision {
            Ok(_) => What::Admitted,
            Err(_) => What::Refused,
        }),
    };
    let wall_us = wall.elapsed().as_secs_f64() * 1e6;
    let cpu_us = cpu_us() - cpu;
    let what = what.expect("no misuse");
    if what == What::Admitted { present } else { waiting }.push(copy);
    Answer {
        what,
        class,
        wall_us,
        cpu_us,
        evaluations: admission.evaluations(),
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
    let levels = answers.iter().map(|answer| answer.evaluations).sum::<u64>() / answers.len() as u64;
    println!(
        "  {title}: {} decisions, wall {wall}; CPU {cpu}; {levels} evaluations on average",
        answers.len()
    );
}

fn measure(title: &str, extra_links: usize) {
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
        answers.push(decide(&mut admission, &mut present, &mut waiting, &mut draws));
    }
    println!(
        "admission, 200 switches, {title}, 10,000 flows: one full analysis {:.1} ms CPU, the state itself {:.1} ms",
        full / 1e3,
        built / 1e3
    );
    line("all", &answers.iter().collect::<Vec<_>>());
    for what in [What::Admitted, What::Refused, What::Removed] {
        let these: Vec<_> = answers.iter().filter(|answer| answer.what == what).collect();
        line(&format!("{what:?}"), &these);
    }
    for class in 0..8 {
        let these: Vec<_> = answers.iter().filter(|answer| answer.class == class).collect();
        line(&format!("class {class}"), &these);
    }
}

fn main() {
    measure("tree", 0);
    measure("mesh with cyclic dependencies", 150);
}

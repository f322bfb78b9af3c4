//! What was found, and its medians.

use crate::peers::Way;

/// Of one way in one repeat.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    /// us.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// us behind its time that a message was written, p99.
    pub(crate) late: f64,
    /// us of the way's CPU per message, at the fixed rate.
    pub(crate) paced_cpu: f64,
    /// Messages per second.
    pub(crate) most: f64,
    /// us of the way's CPU per message, in the closed loop.
    pub(crate) cpu: f64,
    /// us of CPU per message of clients, way and broker together, in the closed loop.
    pub(crate) chain: f64,
    /// Share of the machine that was taken by others, the worse of both parts.
    pub(crate) others: f64,
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
    match values.len() % 2 {
        0 if !values.is_empty() => (values[values.len() / 2 - 1] + upper) / 2.0,
        _ => upper,
    }
}

/// Two lines for each way: medians, beside the first way, and beside HAProxy with as many threads.
pub(crate) fn print(ways: &[Way], rounds: &[Vec<Figures>]) {
    for (at, way) in ways.iter().enumerate() {
        let of = |pick: fn(&Figures) -> f64| median(rounds.iter().map(|round| pick(&round[at])));
        let beside = way
            .beside
            .and_then(|name| ways.iter().position(|other| other.name == name));
        let more = |other: usize| median(rounds.iter().map(|round| round[at].p50 - round[other].p50));
        let share = |other: usize, pick: fn(&Figures) -> f64| {
            100.0 * median(rounds.iter().map(|round| pick(&round[at]) / pick(&round[other])))
        };
        print!(
            "{:<10} p50 {:8.1} us ({:+.1}",
            way.name,
            of(|one| one.p50),
            more(0)
        );
        if let Some(beside) = beside {
            print!(", {:+.1} to {}", more(beside), ways[beside].name);
        }
        println!(
            "), p99 {:.1} us, late {:.1} us, CPU {:.2} us; others {:.1} %",
            of(|one| one.p99),
            of(|one| one.late),
            of(|one| one.paced_cpu),
            100.0 * of(|one| one.others),
        );
        print!(
            "           {:8.0} messages/s ({:.1} %",
            of(|one| one.most),
            share(0, |one| one.most)
        );
        if let Some(beside) = beside {
            print!(
                ", {:.1} % of {}",
                share(beside, |one| one.most),
                ways[beside].name
            );
        }
        print!(
            "), CPU {:.2} us, all {:.2} us ({:.1} %",
            of(|one| one.cpu),
            of(|one| one.chain),
            share(0, |one| one.chain),
        );
        if let Some(beside) = beside {
            print!(
                ", {:.1} % of {}",
                share(beside, |one| one.chain),
                ways[beside].name
            );
        }
        println!(")");
    }
}

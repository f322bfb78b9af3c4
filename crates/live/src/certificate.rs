//! The fidelity certificate: did the machine disturb the run? A pure function of the recorded history and the plan's limits.
//!
//! | reason | judged by | limit in the plan |
//! |---|---|---|
//! | departures late | p99 of the lateness of all frames | `lateness_p99_ns` |
//! | frames late | share of frames later than `late_frame_ns` | `late_share` |
//! | data plane held up | longest time for which the loop did not come round although it should have | `longest_overrun_ns` |
//! | CPU stolen | share of all CPUs' time that a hypervisor took | `steal` |
//! | frames lost in the ring | number | `ring_lost` |
//! | a real switch left its declared range | every frame's time in it | the scenario's `delay` of the switch |
//! | frames early, refused by a kernel; records lost; wall clock set | number | none is allowed |
//!
//! Only windows that begin in the judged part of the run count: afterwards all connections close at once. What each limit's default
//! rests on stands at [`PrecisionPlan`].

use crate::history::{HistoryError, Moment};
use crate::plan::PrecisionPlan;
use serde::{Deserialize, Serialize};

/// Most periods that are told apart; the rest is added up.
const PERIODS: usize = 64;
/// Fewer stolen ticks than this in a window are rounding of the kernel's counters.
const STOLEN_TICKS: u64 = 2;

/// `good`, `disturbed`, or `not-run` where nothing was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Good,
    Disturbed,
    NotRun,
}

/// Counts of the whole run, from time zero to the end of its judged part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Frames handed over.
    pub frames: u64,
    /// Real handover minus virtual arrival.
    pub lateness_ns: Quantiles,
    /// Frames handed over before their virtual arrival; always 0 unless we are broken.
    pub early: u64,
    /// Frames later than `late_frame_ns` of the plan.
    pub late: u64,
    /// Frames that found the ring full: lost by the emulator, not by the model.
    pub ring_lost: u64,
    /// Frames that the receiving kernel did not take.
    pub handover_refused: u64,
    /// Records that could not be written in time.
    pub records_lost: u64,
    pub captures_lost: u64,
    /// How often the wall clock was set during the run.
    pub clock_steps: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

/// A stretch of the run in which something was worse than its limit; run time. In a good run the whole is within the limits all the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    pub from_ns: u64,
    pub to_ns: u64,
    /// `lateness`, `late-frames`, `overrun`, `steal`, `ring`, `early`, `refused`, `clock`.
    pub kinds: Vec<String>,
    /// Greatest lateness of a frame in it.
    pub lateness_ns: u64,
    /// Longest overrun in it.
    pub overrun_ns: u64,
}

/// When the data plane did not come round although it should have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overruns {
    /// The longest, and when it began (run time).
    pub longest_ns: u64,
    pub longest_at_ns: u64,
    /// How many were longer than 1 ms, and how long together.
    pub count: u64,
    pub total_ns: u64,
}

/// The verdict with its grounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Certificate {
    pub verdict: Verdict,
    /// What was beyond its limit, when and by how much; empty where the verdict is good.
    pub reasons: Vec<String>,
    pub overruns: Overruns,
    /// Share of all CPUs' time that a hypervisor took away.
    pub steal: f64,
    /// CPU time of the data plane's threads, and time in which they could have run but others did.
    pub cpu_ns: u64,
    pub run_queue_ns: u64,
    /// At most 64, in order; what is beyond is only in `periods_ns`.
    pub periods: Vec<Period>,
    /// How long they last together.
    pub periods_ns: u64,
    /// The limits that it was judged by.
    pub limits: PrecisionPlan,
}

impl Certificate {
    /// Takes note of frames that came over a cut between two machines after their virtual arrival: what came that late went on
    /// late, however punctual this machine's own departures were. More than 1 in 100 may not be late, unless 99 in 100 of the late
    /// ones are so by no more than the limit for departures.
    pub(crate) fn crossed(&mut self, received: u64, late: u64, late_p99_ns: u64) {
        let many = late > received / 100;
        if self.verdict != Verdict::NotRun && many && late_p99_ns > self.limits.lateness_p99_ns {
            self.verdict = Verdict::Disturbed;
            self.reasons.push(format!(
                "{late} of {received} frames from the other machine came after their virtual arrival, 1 in 100 of them {:.0} us late or \
                 later; the limit is {:.0} us",
                late_p99_ns as f64 / 1_000.0,
                self.limits.lateness_p99_ns as f64 / 1_000.0
            ));
        }
    }

    /// Takes note of something else that took the grounds from what the run was to show.
    pub(crate) fn disturb(&mut self, reason: String) {
        if self.verdict != Verdict::NotRun {
            self.verdict = Verdict::Disturbed;
            self.reasons.push(reason);
        }
    }

    /// Of a run that measured nothing.
    #[must_use]
    pub fn not_run(limits: &PrecisionPlan) -> Self {
        Self {
            verdict: Verdict::NotRun,
            reasons: Vec::new(),
            overruns: Overruns::default(),
            steal: 0.0,
            cpu_ns: 0,
            run_queue_ns: 0,
            periods: Vec::new(),
            periods_ns: 0,
            limits: limits.clone(),
        }
    }
}

/// Judges a run of `duration_ns` by its recorded history.
///
/// # Errors
/// The first line of the history that is none.
pub fn judge(
    limits: &PrecisionPlan,
    duration_ns: u64,
    totals: &Totals,
    history: impl IntoIterator<Item = Result<Moment, HistoryError>>,
) -> Result<Certificate, HistoryError> {
    let mut found = Found::default();
    for moment in history {
        let moment = moment?;
        if moment.window.start_ns < duration_ns {
            found.add(limits, &moment);
        }
    }
    let steal = found.stolen as f64 / found.jiffies.max(1) as f64;
    let reasons = reasons(limits, totals, &found, steal);
    Ok(Certificate {
        verdict: if reasons.is_empty() {
            Verdict::Good
        } else {
            Verdict::Disturbed
        },
        reasons,
        steal,
        overruns: found.overruns,
        cpu_ns: found.cpu_ns,
        run_queue_ns: found.run_queue_ns,
        periods: found.periods,
        periods_ns: found.periods_ns,
        limits: limits.clone(),
    })
}

/// What is gathered along the history.
#[derive(Default)]
struct Found {
    overruns: Overruns,
    /// Overruns beyond the limit, one at most of each window.
    beyond: (u64, u64),
    stolen: u64,
    jiffies: u64,
    /// Run time of the window with the latest frame, with the highest share of stolen time, and of the first of each other kind.
    latest: (u64, u64),
    most_stolen: (f64, u64),
    first_lost: Option<u64>,
    first_step: Option<u64>,
    cpu_ns: u64,
    run_queue_ns: u64,
    periods: Vec<Period>,
    periods_ns: u64,
    /// End of the last period, kept or not.
    until: u64,
}

impl Found {
    fn add(&mut self, limits: &PrecisionPlan, moment: &Moment) {
        let window = &moment.window;
        self.overruns.count += u64::from(window.overruns);
        self.overruns.total_ns += window.overrun_ns;
        if window.gap_ns > self.overruns.longest_ns {
            self.overruns.longest_ns = window.gap_ns;
            self.overruns.longest_at_ns = window.gap_end_ns.saturating_sub(window.gap_ns);
        }
        if window.gap_ns > limits.longest_overrun_ns {
            self.beyond = (self.beyond.0 + 1, self.beyond.1 + window.gap_ns);
        }
        self.latest = self.latest.max((window.max_ns, window.start_ns));
        self.stolen += moment.steal;
        self.jiffies += moment.jiffies;
        let stolen = moment.steal as f64 / moment.jiffies.max(1) as f64;
        if stolen > self.most_stolen.0 {
            self.most_stolen = (stolen, window.start_ns);
        }
        self.cpu_ns += window.cpu_ns;
        self.run_queue_ns += window.wait_ns;
        if window.ring_lost > 0 {
            self.first_lost.get_or_insert(window.start_ns);
        }
        if window.clock_steps > 0 {
            self.first_step.get_or_insert(window.start_ns);
        }
        self.add_period(limits, moment, stolen);
    }

    fn add_period(&mut self, limits: &PrecisionPlan, moment: &Moment, stolen: f64) {
        let window = &moment.window;
        let overrun = window.gap_ns > limits.longest_overrun_ns;
        let kinds = [
            ("lateness", window.p99_ns > limits.lateness_p99_ns),
            ("late-frames", window.late > 0),
            ("overrun", overrun),
            ("steal", moment.steal >= STOLEN_TICKS && stolen > limits.steal),
            ("ring", window.ring_lost > 0),
            ("early", window.early > 0),
            ("refused", window.refused > 0),
            ("clock", window.clock_steps > 0),
        ];
        let kinds: Vec<&str> = kinds
            .iter()
            .filter(|(_, is)| *is)
            .map(|(kind, _)| *kind)
            .collect();
        if kinds.is_empty() {
            return;
        }
        // An overrun alone is known to the nanosecond; anything else only to its window.
        let (from, to) = if kinds == ["overrun"] {
            (window.gap_end_ns.saturating_sub(window.gap_ns), window.gap_end_ns)
        } else {
            (window.start_ns, window.end_ns)
        };
        self.periods_ns += to.saturating_sub(from.max(self.until));
        let joins = from <= self.until;
        self.until = self.until.max(to);
        let room = self.periods.len() < PERIODS;
        match self.periods.last_mut() {
            Some(last) if joins && last.to_ns >= from => {
                last.to_ns = last.to_ns.max(to);
                last.lateness_ns = last.lateness_ns.max(window.max_ns);
                last.overrun_ns = last.overrun_ns.max(window.gap_ns);
                for kind in kinds {
                    if last.kinds.iter().all(|known| known != kind) {
                        last.kinds.push(kind.to_owned());
                    }
                }
            }
            _ if room => self.periods.push(Period {
                from_ns: from,
                to_ns: to,
                kinds: kinds.into_iter().map(str::to_owned).collect(),
                lateness_ns: window.max_ns,
                overrun_ns: window.gap_ns,
            }),
            _ => {}
        }
    }
}

/// What is beyond its limit, in words.
fn reasons(limits: &PrecisionPlan, totals: &Totals, found: &Found, steal: f64) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut note = |bad: bool, text: &dyn Fn() -> String| {
        if bad {
            reasons.push(text());
        }
    };
    let (frames, lateness) = (totals.frames, &totals.lateness_ns);
    let latest = || {
        format!(
            "the latest by {} at {}",
            length(found.latest.0),
            moment(found.latest.1)
        )
    };
    note(lateness.p99 > limits.lateness_p99_ns, &|| {
        format!(
            "1 frame in 100 left {} late or later, {}; the limit is {}",
            length(lateness.p99),
            latest(),
            length(limits.lateness_p99_ns)
        )
    });
    let share = totals.late as f64 / frames.max(1) as f64;
    note(share > limits.late_share, &|| {
        format!(
            "{} of {frames} frames ({}) left more than {} late, {}; allowed are {}",
            totals.late,
            percent(share),
            length(limits.late_frame_ns),
            latest(),
            percent(limits.late_share)
        )
    });
    let overruns = &found.overruns;
    note(overruns.longest_ns > limits.longest_overrun_ns, &|| {
        let again = match found.beyond.0 {
            0 | 1 => String::new(),
            windows => format!(", and {} in {windows} windows together", length(found.beyond.1)),
        };
        format!(
            "the data plane did not run for {} from {} to {}{again}; the limit is {}",
            length(overruns.longest_ns),
            moment(overruns.longest_at_ns),
            moment(overruns.longest_at_ns + overruns.longest_ns),
            length(limits.longest_overrun_ns)
        )
    });
    note(steal > limits.steal, &|| {
        format!(
            "a hypervisor took {} of the CPUs' time, most ({}) at {}; the limit is {}",
            percent(steal),
            percent(found.most_stolen.0),
            moment(found.most_stolen.1),
            percent(limits.steal)
        )
    });
    let since =
        |first: Option<u64>| first.map_or(String::new(), |at| format!(", the first at {}", moment(at)));
    note(totals.ring_lost > limits.ring_lost, &|| {
        let (lost, allowed) = (totals.ring_lost, limits.ring_lost);
        format!(
            "{lost} frames found the ring full{}; allowed are {allowed}",
            since(found.first_lost)
        )
    });
    note(totals.early > 0, &|| {
        format!("{} frames left before their time", totals.early)
    });
    note(totals.handover_refused > 0, &|| {
        format!(
            "{} frames were refused by the receiving kernel",
            totals.handover_refused
        )
    });
    note(totals.records_lost > 0, &|| {
        format!("{} records could not be written in time", totals.records_lost)
    });
    note(totals.clock_steps > 0, &|| {
        format!(
            "the wall clock was set {} times{}",
            totals.clock_steps,
            since(found.first_step)
        )
    });
    reasons
}

/// `299 ms`, `1.2 s`, `85 us`.
fn length(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{:.0} us", nanos as f64 / 1e3),
        1_000_000..10_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{:.0} ms", nanos as f64 / 1e6),
        _ => format!("{:.2} s", nanos as f64 / 1e9),
    }
}

/// A point of the run.
fn moment(nanos: u64) -> String {
    format!("{:.3} s", nanos as f64 / 1e9)
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = if percent >= 10.0 {
        0
    } else if percent >= 0.1 {
        1
    } else {
        3
    };
    format!("{percent:.digits$} %")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::Window;

    const SECOND: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    /// Ten frames a window, 20 us late.
    fn quiet(seconds: u64) -> Vec<Moment> {
        (0..seconds * 10)
            .map(|index| Moment {
                window: Window {
                    start_ns: index * 100 * MS,
                    end_ns: (index + 1) * 100 * MS,
                    frames: 10,
                    p50_ns: 10_000,
                    p99_ns: 20_000,
                    max_ns: 20_000,
                    gap_ns: 60_000,
                    gap_end_ns: index * 100 * MS + 1,
                    ..Window::default()
                },
                steal: 0,
                jiffies: 20,
            })
            .collect()
    }

    fn totals(history: &[Moment]) -> Totals {
        let sum = |count: fn(&Window) -> u32| history.iter().map(|m| u64::from(count(&m.window))).sum();
        Totals {
            frames: sum(|w| w.frames),
            lateness_ns: Quantiles {
                p50: 10_000,
                p99: 20_000,
                p999: 20_000,
                max: history.iter().map(|m| m.window.max_ns).max().unwrap_or(0),
            },
            late: sum(|w| w.late),
            ring_lost: sum(|w| w.ring_lost),
            clock_steps: sum(|w| w.clock_steps),
            early: sum(|w| w.early),
            ..Totals::default()
        }
    }

    fn verdict(history: &[Moment]) -> Certificate {
        let duration = history.last().map_or(0, |moment| moment.window.end_ns);
        let totals = totals(history);
        judge(
            &PrecisionPlan::default(),
            duration,
            &totals,
            history.iter().copied().map(Ok),
        )
        .unwrap()
    }

    #[test]
    fn a_single_slow_frame_in_a_long_run_is_named_but_does_not_disturb_it() {
        let mut history = quiet(100);
        let window = &mut history[500].window;
        (window.max_ns, window.p99_ns, window.late) = (8 * MS, 8 * MS, 1);
        let found = verdict(&history);
        assert_eq!((found.verdict, &found.reasons[..]), (Verdict::Good, &[][..]));
        assert_eq!(found.periods.len(), 1);
        assert_eq!(
            (found.periods[0].from_ns, found.periods_ns),
            (50 * SECOND, 100 * MS)
        );
        // The same frame among few is a share above the limit.
        let found = verdict(&history[490..505]);
        assert_eq!(found.verdict, Verdict::Disturbed);
        assert_eq!(
            found.reasons,
            [
                "1 of 150 frames (0.7 %) left more than 5.0 ms late, the latest by 8.0 ms at 50.000 s; allowed are 0.5 %"
            ]
        );
    }

    #[test]
    fn a_pause_without_any_frame_is_a_disturbance() {
        let mut history = quiet(3);
        history.iter_mut().for_each(|moment| moment.window.frames = 0);
        let window = &mut history[12].window;
        (window.gap_ns, window.gap_end_ns) = (299 * MS, 1_250 * MS);
        let found = verdict(&history);
        assert_eq!(
            found.reasons,
            ["the data plane did not run for 299 ms from 0.951 s to 1.250 s; the limit is 20 ms"]
        );
        let period = &found.periods[0];
        assert_eq!((period.from_ns, period.to_ns), (951 * MS, 1_250 * MS));
        assert_eq!(period.kinds, ["overrun"]);
    }

    #[test]
    fn stolen_time_is_judged_over_the_run_and_the_worst_window_named() {
        let mut history = quiet(10);
        history[40].steal = 12;
        assert_eq!(verdict(&history).verdict, Verdict::Good);
        (30..60).for_each(|index| history[index].steal = 6);
        history[45].steal = 10;
        let found = verdict(&history);
        assert_eq!(
            found.reasons,
            ["a hypervisor took 9.2 % of the CPUs' time, most (50 %) at 4.500 s; the limit is 5.0 %"]
        );
        assert_eq!(
            (found.periods[0].from_ns, found.periods[0].to_ns),
            (3 * SECOND, 6 * SECOND)
        );
    }

    #[test]
    fn what_the_emulator_lost_or_released_early_is_never_good() {
        let mut history = quiet(2);
        history[3].window.ring_lost = 17;
        assert_eq!(
            verdict(&history).reasons,
            ["17 frames found the ring full, the first at 0.300 s; allowed are 0"]
        );
        let mut history = quiet(2);
        history[3].window.early = 1;
        assert_eq!(verdict(&history).reasons, ["1 frames left before their time"]);
        let mut history = quiet(2);
        history[9].window.clock_steps = 1;
        assert_eq!(
            verdict(&history).reasons,
            ["the wall clock was set 1 times, the first at 0.900 s"]
        );
    }

    #[test]
    fn what_happens_after_the_judged_part_does_not_count() {
        let mut history = quiet(2);
        history[15].window.gap_ns = SECOND;
        let totals = totals(&history[..10]);
        let found = judge(
            &PrecisionPlan::default(),
            SECOND,
            &totals,
            history.into_iter().map(Ok),
        )
        .unwrap();
        assert_eq!((found.verdict, found.periods_ns), (Verdict::Good, 0));
    }

    #[test]
    fn endless_disturbances_are_added_up_in_bounded_room() {
        let mut history = quiet(60);
        history
            .iter_mut()
            .step_by(2)
            .for_each(|moment| moment.window.late = 1);
        let found = verdict(&history);
        assert_eq!(found.periods.len(), PERIODS);
        assert_eq!(found.periods_ns, 30 * SECOND);
    }

    #[test]
    fn neighbouring_windows_are_one_period() {
        let mut history = quiet(2);
        history[4].window.late = 1;
        (history[5].window.gap_ns, history[5].window.gap_end_ns) = (100 * MS, 600 * MS);
        history[6].window.late = 2;
        let found = verdict(&history);
        assert_eq!(found.periods.len(), 1, "{:?}", found.periods);
        assert_eq!(found.periods[0].kinds, ["late-frames", "overrun"]);
        assert_eq!(
            (found.periods[0].overrun_ns, found.periods_ns),
            (100 * MS, 300 * MS)
        );
    }

    #[test]
    fn a_history_that_is_none_is_an_error() {
        let nonsense = crate::history::read(&b"x\n"[..]);
        assert!(judge(&PrecisionPlan::default(), SECOND, &Totals::default(), nonsense).is_err());
    }

    #[test]
    fn frames_that_came_late_over_a_cut_disturb_the_run_if_they_are_many_and_much_too_late() {
        let limits = PrecisionPlan::default();
        let limit = limits.lateness_p99_ns;
        let verdict = |received, late, p99| {
            let mut found = Certificate {
                verdict: Verdict::Good,
                ..Certificate::not_run(&limits)
            };
            found.crossed(received, late, p99);
            assert_eq!(found.reasons.is_empty(), found.verdict == Verdict::Good);
            found.verdict
        };
        assert_eq!(verdict(1000, 11, limit + 1), Verdict::Disturbed);
        assert_eq!(verdict(1000, 10, limit + 1), Verdict::Good);
        assert_eq!(verdict(1000, 1000, limit), Verdict::Good);
        let mut nothing = Certificate::not_run(&limits);
        nothing.crossed(10, 10, u64::MAX);
        assert_eq!(nothing.verdict, Verdict::NotRun);
    }
}

//! The verdict on recorded histories (`tests/histories`, by `bench-certificate --record`): what a run that was really disturbed looks like,
//! and what one that was not. Stolen time and a step of the wall clock cannot be made on a shared machine: these two are
//! recordings of a quiet run with the columns changed.

use serde_json::Value;
use std::path::PathBuf;
use timebound_live::certificate::{Certificate, Totals, Verdict, judge};
use timebound_live::history::{self, Moment};
use timebound_live::plan::PrecisionPlan;

struct Recorded {
    duration_ns: u64,
    totals: Totals,
    history: Vec<Moment>,
}

impl Recorded {
    fn read(name: &str) -> Self {
        let base = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/histories");
        let text = std::fs::read_to_string(base.join(format!("{name}.json"))).unwrap();
        let about: Value = serde_json::from_str(&text).unwrap();
        let file = std::fs::File::open(base.join(format!("{name}.csv"))).unwrap();
        let history: Vec<Moment> = history::read(file).collect::<Result<_, _>>().unwrap();
        assert!(history.len() > 10, "{name} is too short to show anything");
        Self {
            duration_ns: about["duration_ns"].as_u64().unwrap(),
            totals: serde_json::from_value(about["totals"].clone()).unwrap(),
            history,
        }
    }

    fn judge(&self) -> Certificate {
        self.judge_by(&PrecisionPlan::default())
    }

    fn judge_by(&self, limits: &PrecisionPlan) -> Certificate {
        judge(
            limits,
            self.duration_ns,
            &self.totals,
            self.history.iter().copied().map(Ok),
        )
        .unwrap()
    }
}

#[track_caller]
fn disturbed(found: &Certificate, words: &str) {
    assert_eq!(found.verdict, Verdict::Disturbed);
    assert!(
        found.reasons.iter().any(|reason| reason.contains(words)),
        "{words:?} is not among {:?}",
        found.reasons
    );
}

#[test]
fn a_quiet_machine_is_good_with_traffic_and_without() {
    for name in ["quiet", "quiet-idle"] {
        let found = Recorded::read(name).judge();
        assert_eq!(
            (found.verdict, found.reasons.len()),
            (Verdict::Good, 0),
            "{name}: {found:?}"
        );
        assert!(found.periods.is_empty(), "{name}: {:?}", found.periods);
        assert!(found.cpu_ns > 0, "{name}");
    }
}

#[test]
fn a_hog_at_higher_priority_is_seen_burst_by_burst() {
    let found = Recorded::read("hog").judge();
    disturbed(&found, "the data plane did not run for 120 ms from 0.");
    // Three bursts of 120 ms, 150 ms apart: none between them.
    assert_eq!(found.periods.len(), 3, "{:?}", found.periods);
    assert!(
        (300_000_000..450_000_000).contains(&found.overruns.total_ns),
        "{:?}",
        found.overruns
    );
    let shorter = PrecisionPlan {
        longest_overrun_ns: 400_000_000,
        late_share: 1.0,
        lateness_p99_ns: 1_000_000_000,
        ..PrecisionPlan::default()
    };
    assert_eq!(
        Recorded::read("hog").judge_by(&shorter).verdict,
        Verdict::Good,
        "limits are the scenario's"
    );
}

#[test]
fn a_paused_process_is_seen_with_traffic_and_without() {
    let busy = Recorded::read("paused").judge();
    disturbed(&busy, "1 frame in 100 left 28");
    disturbed(&busy, "the data plane did not run for 300 ms from 0.");
    let idle = Recorded::read("paused-idle");
    assert_eq!(idle.totals.frames, 0, "nothing was due in the pause");
    let found = idle.judge();
    disturbed(
        &found,
        "the data plane did not run for 300 ms from 0.600 s to 0.900 s",
    );
    assert_eq!(found.reasons.len(), 1, "{:?}", found.reasons);
    let period = &found.periods[0];
    assert!(
        (290_000_000..310_000_000).contains(&(period.to_ns - period.from_ns)),
        "{period:?}"
    );
}

#[test]
fn a_ring_that_ran_over_says_since_when() {
    let recorded = Recorded::read("overflow");
    assert!(recorded.totals.ring_lost > 0);
    let found = recorded.judge();
    disturbed(&found, "frames found the ring full, the first at 0.");
    assert!(
        found
            .periods
            .iter()
            .any(|period| period.kinds.iter().any(|kind| kind == "ring"))
    );
}

#[test]
fn stolen_time_beyond_the_limit_disturbs_a_run_that_was_quiet_otherwise() {
    let mut recorded = Recorded::read("quiet");
    recorded
        .history
        .iter_mut()
        .take(6)
        .for_each(|moment| moment.steal = moment.jiffies / 3);
    disturbed(&recorded.judge(), "a hypervisor took ");
    let mut little = Recorded::read("quiet");
    little.history[8].steal = 1;
    assert_eq!(little.judge().verdict, Verdict::Good, "a tick is rounding");
}

#[test]
fn a_step_of_the_wall_clock_disturbs() {
    let mut recorded = Recorded::read("quiet");
    recorded.history[4].window.clock_steps = 1;
    recorded.totals.clock_steps = 1;
    disturbed(
        &recorded.judge(),
        "the wall clock was set 1 times, the first at 0.4",
    );
}

#[test]
fn a_single_slow_frame_in_a_long_run_does_not() {
    let mut recorded = Recorded::read("quiet");
    let one = recorded.history.clone();
    let (runs, length) = (20, recorded.duration_ns);
    recorded.history = (0..runs)
        .flat_map(|run| {
            one.iter()
                .filter(|moment| moment.window.start_ns < length)
                .map(move |moment| {
                    let mut moment = *moment;
                    moment.window.start_ns += run * length;
                    moment.window.end_ns += run * length;
                    moment.window.gap_end_ns += run * length;
                    moment
                })
        })
        .collect();
    recorded.duration_ns *= runs;
    recorded.totals.frames *= runs;
    assert_eq!(recorded.judge().verdict, Verdict::Good);
    let window = &mut recorded.history[137].window;
    (window.max_ns, window.late) = (9_000_000, 1);
    (recorded.totals.late, recorded.totals.lateness_ns.max) = (1, 9_000_000);
    let found = recorded.judge();
    assert_eq!(
        (found.verdict, found.periods.len()),
        (Verdict::Good, 1),
        "{:?}",
        found.reasons
    );
}

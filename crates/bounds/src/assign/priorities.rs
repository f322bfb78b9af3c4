//! Classes for units: deadline monotonic, Audsley's, or the better of both.

use super::audsley::{self, audsley};
use super::judge::{Judge, Judged};
use super::monotonic::deadline_monotonic;
use timebound_model::Class;

/// How classes are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The shorter the deadline, the higher the class (paper 004, section VII-A).
    DeadlineMonotonic,
    /// Audsley's optimal assignment; a heuristic where streams meet before their last port.
    Audsley,
    /// Deadline monotonic where it misses no deadline, else the better of both and of the classes as they are.
    Best,
}

/// How much the outcome says about other assignments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The procedure finds an assignment whenever this analysis has one.
    Optimal,
    /// It may miss one, for this reason; what was found is confirmed by the full analysis all the same.
    Heuristic(String),
}

/// Classes and what they achieve.
#[derive(Debug, Clone, PartialEq)]
pub struct Priorities {
    /// In the order of the task's units.
    pub classes: Vec<Class>,
    /// `deadline-monotonic`, `audsley`, or `unchanged` where neither was better than the classes as they are.
    pub method: &'static str,
    pub claim: Claim,
    pub judged: Judged,
    /// Why a deadline is missed all the same.
    pub reason: Option<String>,
}

/// Classes out of `levels` for every unit of the task.
pub(super) fn choose(judge: &mut Judge<'_>, method: Method, levels: &[Class]) -> Priorities {
    let mut levels = levels.to_vec();
    levels.sort_unstable();
    levels.dedup();
    let exact = audsley::is_exact(&judge.network, judge.task);
    let present = judge.task.classes(&judge.network);
    if levels.is_empty() {
        let mut kept = judged_as(judge, "unchanged", present, heuristic());
        kept.reason = Some("no class is left to be given".to_owned());
        return kept;
    }
    let mut found = Vec::new();
    if method != Method::Audsley {
        let classes = deadline_monotonic(judge.task, &levels);
        found.push(judged_as(judge, "deadline-monotonic", classes, heuristic()));
    }
    if method == Method::Audsley || (method == Method::Best && !found[0].judged.missed.is_empty()) {
        let outcome = audsley(judge, &levels);
        found.push(Priorities {
            classes: outcome.classes,
            method: "audsley",
            claim: exact.map_or_else(Claim::Heuristic, |()| Claim::Optimal),
            judged: outcome.judged,
            reason: outcome.reason,
        });
        // Classes as they are stay where nothing that was found is better.
        if method == Method::Best {
            found.push(judged_as(judge, "unchanged", present, heuristic()));
        }
    }
    let best = (0..found.len()).min_by_key(|index| found[*index].judged.missed.len());
    let mut chosen = found.swap_remove(best.unwrap_or(0));
    // Exact and still a miss: then so would every other assignment, whichever of the found ones misses least.
    if let Some(tried) = found.iter().find(|other| other.method == "audsley")
        && tried.claim == Claim::Optimal
        && !chosen.judged.missed.is_empty()
    {
        chosen.claim = Claim::Optimal;
    }
    judge.set_classes(&chosen.classes);
    chosen
}

fn heuristic() -> Claim {
    Claim::Heuristic("the order of deadlines need not be the best one without preemption".to_owned())
}

fn judged_as(judge: &mut Judge<'_>, method: &'static str, classes: Vec<Class>, claim: Claim) -> Priorities {
    judge.set_classes(&classes);
    let judged = judge.judge();
    let reason = judged
        .missed
        .first()
        .map(|index| audsley::reason(judge.task, &judged, *index, &classes));
    Priorities {
        classes,
        method,
        claim,
        judged,
        reason,
    }
}

//! Assignment: classes and routes that let streams meet their deadlines, over an analysis that is a black box here.
//!
//! A [`Task`] says what may be changed (units that share a class, bundles that share a way) and what is required. Whatever is
//! found is judged by the full analysis before it is returned, so nothing rests on the heuristics that led to it.
//! Like the rest of this room, nothing here reads a clock: who wants a time limit breaks off by the progress callback.

mod audsley;
mod judge;
mod monotonic;
mod priorities;
mod routes;
mod task;

pub use judge::{Judged, Latency};
pub use priorities::{Claim, Method as PriorityMethod, Priorities};
pub use routes::{Limits, Routing, Way, Worst};
pub use task::{Bundle, Follow, Requirement, Task, TaskError, Unit};

use crate::options::Options;
use crate::result::Analysis;
use std::ops::ControlFlow;
use timebound_model::{Class, Network, Tree};

/// An analysis as a black box: it must be deterministic and, for Audsley's algorithm to be exact, must not give a stream a
/// smaller bound when another one moves up (every analysis of this crate does neither).
pub type Analyse<'a> = &'a dyn Fn(&Network, &Options) -> Analysis;

/// Told before every analysis and every few thousand steps of a search, with what is done and the number of analyses so far; breaks
/// the work off.
pub type Watch<'a> = &'a mut dyn FnMut(&'static str, u64) -> ControlFlow<()>;

/// What is to be assigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Classes that may be given, in any order; `None`: classes stay.
    pub priorities: Option<(PriorityMethod, Vec<Class>)>,
    /// `None`: routes stay.
    pub routes: Option<Limits>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// As the network is.
    pub before: Judged,
    /// With the new classes and routes, by the full analysis.
    pub after: Judged,
    pub priorities: Option<Priorities>,
    pub routing: Option<Routing>,
    /// The class of every unit, in the order of the task.
    pub classes: Vec<Class>,
    /// The trees of all streams.
    pub trees: Vec<Tree>,
    /// Why new routes were found and not taken.
    pub kept_routes: Option<String>,
    /// Was the work broken off? Then what is here is the best of what had been looked at.
    pub stopped: bool,
    pub analyses: u64,
}

/// Assigns routes, then classes on them; new routes are taken only where no deadline is missed that was met without them, and none by more
/// (with classes: or where fewer deadlines are missed altogether).
///
/// # Errors
/// A task that does not fit the network; see [`Task::check`].
pub fn assign(
    network: &Network,
    task: &Task,
    wanted: &Wanted,
    analyse: Analyse<'_>,
    watch: Watch<'_>,
) -> Result<Assignment, TaskError> {
    task.check(network)?;
    let mut judge = judge::Judge::new(network, task, analyse, watch);
    let classes = task.classes(network);
    let before = judge.judge();
    let mut found = Assignment {
        after: before.clone(),
        before,
        priorities: None,
        routing: None,
        classes,
        trees: judge.trees(),
        kept_routes: None,
        stopped: false,
        analyses: 0,
    };
    if let Some((method, levels)) = &wanted.priorities {
        set_priorities(&mut judge, &mut found, *method, levels);
    }
    if let Some(limits) = &wanted.routes {
        set_routes(&mut judge, &mut found, wanted, limits);
    }
    found.stopped = judge.stopped;
    found.analyses = judge.analyses;
    Ok(found)
}

fn set_priorities(
    judge: &mut judge::Judge<'_>,
    found: &mut Assignment,
    method: PriorityMethod,
    levels: &[Class],
) {
    let chosen = priorities::choose(judge, method, levels);
    found.classes.clone_from(&chosen.classes);
    found.after = chosen.judged.clone();
    found.priorities = Some(chosen);
}

/// New routes with the classes found so far, and classes for the new routes; what misses no more deadlines is taken.
fn set_routes(judge: &mut judge::Judge<'_>, found: &mut Assignment, wanted: &Wanted, limits: &Limits) {
    let old = judge.trees();
    judge.set_classes(&found.classes);
    let mut pinned = Vec::new();
    for _ in 0..=limits.repairs {
        let routing = routes::search(judge, limits, &pinned);
        if !routing.changes() {
            found.routing.get_or_insert(routing);
            break;
        }
        let trees = routing.trees(&old);
        judge.set_trees(&trees);
        let (chosen, judged) = match &wanted.priorities {
            Some((method, levels)) => {
                let chosen = priorities::choose(judge, *method, levels);
                let judged = chosen.judged.clone();
                (Some(chosen), judged)
            }
            None => (None, judge.judge()),
        };
        judge.set_trees(&old);
        judge.set_classes(&found.classes);
        let worse = judged.worse_than(&found.after);
        // Classes may be given to others where more deadlines are met that way; new ways alone take nothing from anybody.
        let fewer = chosen.is_some() && judged.missed.len() < found.after.missed.len();
        if worse.is_empty() || fewer {
            found.after = judged;
            found.trees = trees;
            if let Some(chosen) = chosen {
                found.classes.clone_from(&chosen.classes);
                found.priorities = Some(chosen);
            }
            found.routing = Some(routing);
            found.kept_routes = None;
            break;
        }
        let (now, then) = (judged.missed.len(), found.after.missed.len());
        found.kept_routes = Some(if now == then {
            format!(
                "the routes with the least worst utilisation would miss {} deadlines by more, or others",
                worse.len()
            )
        } else {
            format!(
                "the routes with the least worst utilisation would miss {now} deadlines in place of {then}"
            )
        });
        let known = pinned.len();
        pinned.extend(routing.moved_for(judge.task, &judged, &found.after, &trees));
        pinned.sort_unstable();
        pinned.dedup();
        if pinned.len() == known || judge.stopped {
            found.routing = Some(routing.unchanged());
            break;
        }
        found.routing = Some(routing.unchanged());
    }
}

//! Audsley's assignment (N. C. Audsley, "On priority assignment in fixed priority scheduling", Information Processing Letters 79,
//! 2001) for classes that several streams share first in, first out.
//!
//! From the lowest class upwards, each takes *all* units that meet their deadlines there while the rest stands above. Where a
//! unit's bound depends only on who is above, beside and below it, and does not grow when another moves down, that set is the
//! union of all sets that could be there: moving a unit from above to beside never hurts those that were in the class. So it is found
//! from above: put all there, take out those that miss, and again; and an assignment is found whenever one exists, with
//! the fewest classes. Over several hops a unit's jitter at later ports depends on the order of those above it as well
//! ([`is_exact`] is false), and the same procedure is a heuristic whose outcome the full analysis must confirm.

use super::judge::{Judge, Judged, Latency};
use super::task::Task;
use std::collections::BTreeSet;
use timebound_model::{Class, Discipline, Network, PortId};

/// What was found.
pub(super) struct Found {
    pub(super) classes: Vec<Class>,
    pub(super) judged: Judged,
    /// Units that meet their deadlines in no class that is left, with what that would need.
    pub(super) reason: Option<String>,
}

/// `levels` rise and are not empty.
pub(super) fn audsley(judge: &mut Judge<'_>, levels: &[Class]) -> Found {
    let top = levels[levels.len() - 1];
    let mut classes = vec![top; judge.task.units.len()];
    let mut left: BTreeSet<usize> = (0..classes.len()).collect();
    for level in &levels[..levels.len() - 1] {
        if left.is_empty() || judge.stopped {
            break;
        }
        let here = greatest(judge, &mut classes, &left, *level, top);
        left.retain(|unit| !here.contains(unit));
    }
    judge.set_classes(&classes);
    let judged = judge.judge();
    let reason = judged
        .missed
        .first()
        .map(|index| reason(judge.task, &judged, *index, &classes));
    Found {
        classes,
        judged,
        reason,
    }
}

/// The greatest set of units that meet their deadlines in `level` while the rest of `left` has the top class; gives it to them.
fn greatest(
    judge: &mut Judge<'_>,
    classes: &mut [Class],
    left: &BTreeSet<usize>,
    level: Class,
    top: Class,
) -> BTreeSet<usize> {
    let mut here = left.clone();
    while !here.is_empty() {
        for unit in left {
            classes[*unit] = if here.contains(unit) { level } else { top };
        }
        if judge.ask("classes") {
            here.clear();
            break;
        }
        judge.set_classes(classes);
        let late = late_units(judge.task, &judge.judge());
        let before = here.len();
        here.retain(|unit| !late.contains(unit));
        if here.len() == before {
            break;
        }
    }
    for unit in left.difference(&here) {
        classes[*unit] = top;
    }
    here
}

fn late_units(task: &Task, judged: &Judged) -> BTreeSet<usize> {
    judged
        .missed
        .iter()
        .map(|index| task.requirements[*index].unit)
        .collect()
}

/// Why no assignment was found: the deadline that is missed where its unit ended up.
pub(super) fn reason(task: &Task, judged: &Judged, index: usize, classes: &[Class]) -> String {
    let requirement = &task.requirements[index];
    let class = classes[requirement.unit].0;
    let shared = classes.iter().filter(|other| other.0 == class).count();
    let beside = match shared {
        1 => String::new(),
        others => format!(" with {} others that can have no lower one", others - 1),
    };
    let deadline = requirement.deadline.unwrap_or_default().0;
    match &judged.latencies[index] {
        Latency::Bound(bound) => format!(
            "{} has a bound of {} ns in class {class}{beside}, and a deadline of {deadline} ns",
            requirement.name, bound.0
        ),
        Latency::None(why) => format!(
            "{} has no bound in class {class}{beside}: {why}",
            requirement.name
        ),
    }
}

/// Does every stream's jitter at every port stand before any class is given? Then Audsley's procedure is exact.
///
/// It does where each port that a frame crosses before its last one carries that stream alone, or no stream whose class is to be given; no
/// stream answers another; and ports serve by class alone.
pub(super) fn is_exact(network: &Network, task: &Task) -> Result<(), String> {
    if !task.follows.is_empty() {
        return Err("streams answer others, so their jitter depends on the bounds of those".to_owned());
    }
    let mut users = vec![0u32; network.ports.len()];
    let mut assigned = vec![false; network.ports.len()];
    let given: BTreeSet<_> = task
        .units
        .iter()
        .flat_map(|unit| &unit.streams)
        .map(|id| id.index())
        .collect();
    for (index, stream) in network.streams.iter().enumerate() {
        for hop in &stream.tree.hops {
            users[hop.port.index()] += 1;
            assigned[hop.port.index()] |= given.contains(&index);
        }
    }
    for (index, port) in network
        .ports
        .iter()
        .enumerate()
        .filter(|(index, _)| assigned[*index])
    {
        let plain = matches!(port.discipline, Discipline::StrictPriority | Discipline::Fifo);
        if !plain || port.medium.is_some() || port.slots.is_some() {
            let name = network.port_name(PortId::new(index));
            return Err(format!(
                "port {name} is not served by class alone, so a stream that moves down can hurt others there"
            ));
        }
    }
    for stream in &network.streams {
        for parent in stream.tree.hops.iter().filter_map(|hop| hop.parent) {
            let port = stream.tree.hops[parent as usize].port;
            if assigned[port.index()] && users[port.index()] > 1 {
                return Err(format!(
                    "streams share port {} before their last port, so their jitter behind it depends on the order of the others",
                    network.port_name(port)
                ));
            }
        }
    }
    Ok(())
}

//! Deadline monotonic classes, the policy of the RT-MQTT paper (004, section VII-A): the shorter the deadline, the higher the class.
//!
//! There are eight classes at most and often more deadlines. Neighbouring deadlines then share a class, and the cuts lie where the
//! ratio of neighbours is greatest: streams that share a queue are the more equal the better, because the most urgent of them
//! waits for all.

use super::task::Task;
use timebound_model::{Class, Span};

/// The shortest deadline of every unit, where it has one.
pub(super) fn deadlines(task: &Task) -> Vec<Option<Span>> {
    let mut shortest: Vec<Option<Span>> = vec![None; task.units.len()];
    for requirement in &task.requirements {
        if let Some(deadline) = requirement.deadline {
            let known = &mut shortest[requirement.unit];
            *known = Some(known.map_or(deadline, |other| other.min(deadline)));
        }
    }
    shortest
}

/// A class for every unit; `levels` rise and are not empty. Units without deadline get the lowest.
pub(super) fn deadline_monotonic(task: &Task, levels: &[Class]) -> Vec<Class> {
    let deadlines = deadlines(task);
    let mut distinct: Vec<u64> = deadlines.iter().flatten().map(|deadline| deadline.0).collect();
    distinct.sort_unstable();
    distinct.dedup();
    let lowest = levels[0];
    // The lowest class is kept for those without a deadline, where there are any and another class is left.
    let spare = usize::from(deadlines.contains(&None) && levels.len() > 1);
    let starts = group_starts(&distinct, levels.len() - spare);
    let class = |deadline: Option<Span>| match deadline {
        None => lowest,
        Some(deadline) => {
            let place = distinct.partition_point(|other| *other < deadline.0);
            let group = starts.partition_point(|start| *start <= place) - 1;
            levels[levels.len() - 1 - group]
        }
    };
    deadlines.into_iter().map(class).collect()
}

/// Where each of at most `most` groups of the rising values begins.
fn group_starts(values: &[u64], most: usize) -> Vec<usize> {
    let mut gaps: Vec<usize> = (1..values.len()).collect();
    // values[i] / values[i - 1], greatest first, by cross-multiplication; among equal ones those at shorter deadlines.
    gaps.sort_by(|&a, &b| {
        let left = u128::from(values[a]) * u128::from(values[b - 1]);
        let right = u128::from(values[b]) * u128::from(values[a - 1]);
        right.cmp(&left).then(a.cmp(&b))
    });
    gaps.truncate(most.saturating_sub(1));
    gaps.push(0);
    gaps.sort_unstable();
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_lie_where_neighbours_differ_most() {
        assert_eq!(group_starts(&[10, 11, 30, 31, 100], 3), [0, 2, 4]);
        assert_eq!(group_starts(&[10, 11, 30, 31, 100], 1), [0]);
        assert_eq!(group_starts(&[10, 11], 7), [0, 1]);
        assert_eq!(group_starts(&[], 7), [0]);
    }

    #[test]
    fn a_deadline_of_zero_divides_nothing() {
        assert_eq!(group_starts(&[0, 5, 6], 2), [0, 1]);
    }
}

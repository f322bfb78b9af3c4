//! Moments of a schedule: what a short evaluation needs to stand for a part of a long run.
//!
//! An evaluation is much shorter than the time between two changes. It runs under the conditions that all changes before one
//! moment have made, from its start, and meets the changes of that moment itself in its middle. (Disconnections and outages
//! keep their own clocks: an evaluation sees the first of them.)

use timebound_fabric::Change;
use timebound_model::Time;

#[derive(Debug, Clone, Default)]
pub(super) struct Moment {
    /// In effect from the start, in order.
    pub(super) before: Vec<Change>,
    /// Happen in the middle.
    pub(super) at: Vec<Change>,
}

/// The changes of a schedule by time.
#[derive(Debug)]
pub(super) struct Moments(Vec<(Time, Vec<Change>)>);

impl Moments {
    pub(super) fn new(schedule: &[(Time, Change)]) -> Self {
        let mut sorted: Vec<&(Time, Change)> = schedule.iter().collect();
        sorted.sort_by_key(|(at, _)| *at);
        let mut moments: Vec<(Time, Vec<Change>)> = Vec::new();
        for (at, change) in sorted {
            match moments.last_mut() {
                Some(last) if last.0 == *at => last.1.push(change.clone()),
                _ => moments.push((*at, vec![change.clone()])),
            }
        }
        Self(moments)
    }

    /// How many there are, the start among them.
    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64 + 1
    }

    /// The moment for round `index`: first the conditions at the start, then each change, and around again.
    pub(super) fn of(&self, index: u64) -> Moment {
        let turn = (index % (self.0.len() as u64 + 1)) as usize;
        let Some(now) = turn.checked_sub(1) else {
            return Moment::default();
        };
        Moment {
            before: self.0[..now]
                .iter()
                .flat_map(|(_, changes)| changes.iter().cloned())
                .collect(),
            at: self.0[now].1.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timebound_model::{PortId, Rate};

    #[test]
    fn every_moment_has_its_turn() {
        let change = |rate| Change::Rate(PortId(0), Rate(rate));
        let schedule = [(Time(5), change(2)), (Time(3), change(1)), (Time(5), change(3))];
        let moments = Moments::new(&schedule);
        let turns: Vec<(usize, usize)> = (0..5)
            .map(|index| moments.of(index))
            .map(|moment| (moment.before.len(), moment.at.len()))
            .collect();
        assert_eq!(turns, [(0, 0), (0, 1), (1, 2), (0, 0), (0, 1)]);
        assert_eq!(moments.of(2).at, [change(2), change(3)]);
    }
}

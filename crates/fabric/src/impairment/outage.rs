//! Scheduled outages: a frame of which any part is sent while the link carries nothing is lost.

use super::Verdict;
use crate::frame::DropReason;
use timebound_model::Time;

#[derive(Debug, Clone)]
pub(super) struct Outage {
    /// Sorted, disjoint `[from, to)`.
    windows: Vec<(Time, Time)>,
    /// Windows before this one have passed; frames are sent in order of time.
    next: usize,
}

impl Outage {
    pub(super) fn new(windows: &[(Time, Time)]) -> Option<Self> {
        (!windows.is_empty()).then(|| Self {
            windows: windows.to_vec(),
            next: 0,
        })
    }

    /// The end of the window in which `now` lies.
    pub(super) fn until(&self, now: u64) -> Option<u64> {
        let around = |window: &&(Time, Time)| (window.0.0..window.1.0).contains(&now);
        let ahead = self.windows[self.next..].iter();
        ahead
            .take_while(|window| window.0.0 <= now)
            .find(around)
            .map(|window| window.1.0)
    }

    pub(super) fn judge(&mut self, started: u64, ended: u64) -> Verdict {
        while self
            .windows
            .get(self.next)
            .is_some_and(|window| window.1.0 <= started)
        {
            self.next += 1;
        }
        match self.windows.get(self.next) {
            // `ended == started` is the way out of a shared segment: an instant, not an interval.
            Some(window) if window.0.0 < ended.max(started + 1) => Verdict::Drop(DropReason::Outage),
            _ => Verdict::Pass,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_half_open_on_both_sides() {
        let mut rule = Outage::new(&[(Time(10), Time(20)), (Time(30), Time(31))]).unwrap();
        let lost = |verdict| verdict == Verdict::Drop(DropReason::Outage);
        for (frame, expected) in [
            ((0, 10), false),
            ((5, 11), true),
            ((19, 25), true),
            ((20, 30), false),
            ((30, 30), true),
            ((31, 31), false),
            ((40, 50), false),
        ] {
            assert_eq!(lost(rule.judge(frame.0, frame.1)), expected, "{frame:?}");
        }
    }
}

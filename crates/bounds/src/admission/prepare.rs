//! What is made ready between requests, while nobody waits.

use super::Admission;
use super::state::{RANKS, State};
use super::sweep::{FEW, Sweep, first_start};

/// A level is made ready for jitters that move up by at least twice its busy period, but for no more than this if nobody asked, in
/// nanoseconds.
const UNASKED: u64 = 1 << 16;

impl Admission {
    /// Makes ready what the next proof reads.
    pub(super) fn prepare(&mut self) {
        self.ahead.begin(self.state.ports.len());
        for level in 0..self.state.levels.len() {
            let kept = &mut self.state.levels[level];
            for group in &mut kept.groups {
                if group.listed == 0 && group.wanted > 0 {
                    group.list(group.wanted);
                }
            }
            if kept.has_others {
                let frames = kept.owns.iter().map(|(own, _)| own);
                kept.has_others = !frames.eq(kept.now.answers.iter().map(|(own, _)| own));
            }
            if kept.slots > 0 {
                if kept.slack.is_none() {
                    self.state.read_receivers(level);
                }
                self.look_farther(level);
            }
        }
        // Some of it was read before.
        for port in 0..self.state.ports.len() {
            self.state.glances[port].transaction = 0;
            self.state.read_glance(port, self.journal.transaction);
        }
        self.state.touch_links();
    }

    /// Finds out how far jitters may move up while the responses of a level stay, if that takes little.
    fn look_farther(&mut self, level: usize) -> Option<()> {
        self.ahead.above.forget();
        let kept = &self.state.levels[level];
        let (start, end) = self.ranks.component[self.ranks.position[level] as usize];
        if end - start > 1 || kept.late > 0 || kept.now.is_unbounded || kept.now.gave_up {
            return None;
        }
        let unasked = match kept.now.end {
            u64::MAX => 0,
            end => end.saturating_mul(2).min(UNASKED),
        };
        let asked = &mut self.state.glances[level / RANKS].asked[level % RANKS];
        let asked = std::mem::take(asked).max(unasked);
        if self.state.known[level].stays(asked) {
            return None;
        }
        let shape = self.shape(level)?;
        if shape.releases > FEW && self.state.levels[level].now.first == 0 {
            let first = first_start(&self.state, level, (0, shape.likely));
            self.state.levels[level].now.first = first;
        }
        if shape.first > shape.quiet {
            let stays = shape.first - shape.quiet - 1;
            self.state.known[level].learn(stays);
            if stays >= asked {
                return None;
            }
        }
        if shape.releases > FEW {
            return self.make_windows(level, &shape, asked);
        }
        let mut by = asked.saturating_mul(4);
        let mut found = std::mem::take(&mut self.ahead.found);
        for _ in 0..6 {
            if self.state.known[level].stays(by) {
                break;
            }
            let more = shape.likely.saturating_add(by.saturating_mul(2));
            let sweep = Sweep::all_earlier(more.saturating_add(shape.likely / 4), by);
            let kept = &self.state.levels[level];
            found.clear();
            found.extend(
                kept.owns
                    .iter()
                    .map(|(frame, _)| (*frame, kept.now.response(*frame))),
            );
            let before = found.clone();
            let both = (&mut self.state, &self.ahead.above);
            let responses = self.ahead.buffers.sweep(both, level, (&shape, sweep));
            let swept = responses.and_then(|responses| responses.longest(&mut self.ahead.starts, &mut found));
            let stay = swept.is_some() && found == before;
            if stay {
                self.state.known[level].learn(by);
                break;
            }
            by /= 2;
        }
        self.ahead.found = found;
        None
    }
}

impl State {
    /// Lists the receivers of a level with how much later each may be served, the most urgent first. Returns what that one bears.
    pub(super) fn read_receivers(&mut self, level: usize) -> u64 {
        let mut receivers = std::mem::take(&mut self.levels[level].receivers);
        receivers.clear();
        let groups = &self.levels[level].groups;
        for &slot in groups.iter().flat_map(|group| &group.slots) {
            let data = &self.slots[slot as usize];
            if data.is_leaf {
                let limit = self.rest[slot as usize].limit;
                receivers.push((limit.saturating_sub(data.departure), slot));
            }
        }
        receivers.sort_unstable();
        let slack = receivers.first().map_or(u64::MAX, |(slack, _)| *slack);
        let kept = &mut self.levels[level];
        (kept.receivers, kept.slack) = (receivers, Some(slack));
        slack
    }
}

//! Random disconnections: the link is up and down in turns, whatever frames there are.
//!
//! The turns are a function of the seed, the link and time alone. They are drawn as far as they are asked for, and the asker
//! never looks beyond the present: a change of conditions finds the stream where its own time puts it.

use super::Verdict;
use crate::draws::Draws;
use crate::frame::DropReason;
use std::collections::VecDeque;
use timebound_model::Span;
use timebound_model::declaration::{DisconnectionDistribution, DisconnectionsDecl};

#[derive(Debug, Clone)]
pub(super) struct Disconnections {
    decl: DisconnectionsDecl,
    /// Times down `[from, to)` that may still matter, in order.
    windows: VecDeque<(u64, u64)>,
    /// All turns before this time are drawn.
    drawn: u64,
}

impl Disconnections {
    /// Up from `now` on.
    pub(super) fn new(decl: DisconnectionsDecl, now: u64) -> Self {
        Self {
            decl,
            windows: VecDeque::new(),
            drawn: now,
        }
    }

    pub(super) fn is(&self, decl: &DisconnectionsDecl) -> bool {
        self.decl == *decl
    }

    /// Draws all turns that begin at or before `to`; what ended by `from` is forgotten.
    pub(super) fn draw(&mut self, from: u64, to: u64, draws: &mut Draws) {
        while self.windows.front().is_some_and(|window| window.1 <= from) {
            self.windows.pop_front();
        }
        while self.drawn <= to {
            let mut turn = |mean: u64| match self.decl.distribution {
                DisconnectionDistribution::Fixed => mean,
                DisconnectionDistribution::Exponential => draws.exponential(Span(mean)).0,
            };
            // At least 1 ns, so that time goes on.
            let down = self.drawn.saturating_add(turn(self.decl.mean_up_ns).max(1));
            self.drawn = down.saturating_add(turn(self.decl.mean_down_ns).max(1));
            if self.drawn > from {
                self.windows.push_back((down, self.drawn));
            }
        }
    }

    /// For a frame sent from `started` to `ended`.
    pub(super) fn judge(&mut self, started: u64, ended: u64, draws: &mut Draws) -> Verdict {
        self.draw(started, ended, draws);
        match self.windows.front() {
            Some(window) if window.0 < ended.max(started + 1) => Verdict::Drop(DropReason::Outage),
            _ => Verdict::Pass,
        }
    }

    /// The end of the time down in which `now` lies; `since` is the start of the frame under way (or `now`).
    pub(super) fn until(&mut self, since: u64, now: u64, draws: &mut Draws) -> Option<u64> {
        self.draw(since, now, draws);
        let around = |window: &&(u64, u64)| (window.0..window.1).contains(&now);
        self.windows.iter().find(around).map(|window| window.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decl(distribution: DisconnectionDistribution) -> DisconnectionsDecl {
        DisconnectionsDecl {
            mean_up_ns: 20_000_000,
            mean_down_ns: 5_000_000,
            distribution,
        }
    }

    #[test]
    fn fixed_turns_are_exact() {
        let mut rule = Disconnections::new(decl(DisconnectionDistribution::Fixed), 1_000_000);
        let mut draws = Draws::named(1, "a->b", "disconnections");
        for milli in 0..200u64 {
            let down = milli >= 1 && (milli - 1) % 25 >= 20;
            let at = milli * 1_000_000;
            assert_eq!(rule.until(at, at, &mut draws).is_some(), down, "{milli} ms");
            let verdict = rule.judge(at, at + 1_000_000, &mut draws);
            assert_eq!(verdict != Verdict::Pass, down, "{milli} ms");
        }
    }

    #[test]
    fn exponential_turns_have_their_means_and_share() {
        let mut rule = Disconnections::new(decl(DisconnectionDistribution::Exponential), 0);
        let mut draws = Draws::named(4, "a->b", "disconnections");
        let (mut down, mut turns, mut before) = (0u64, 0u64, false);
        for step in 0..1_000_000u64 {
            let at = step * 100_000;
            let is = rule.until(at, at, &mut draws).is_some();
            down += u64::from(is);
            turns += u64::from(is && !before);
            before = is;
        }
        let share = down as f64 / 1e6;
        assert!((share - 0.2).abs() < 0.01, "down {share} of the time, not 5 / 25");
        // 100 s of 25 ms each; short turns fall between two looks.
        assert!((3_700..4_150).contains(&turns), "{turns} turns");
    }

    #[test]
    fn the_turns_do_not_depend_on_when_one_looks() {
        let shape = decl(DisconnectionDistribution::Exponential);
        let (mut often, mut seldom) = (Disconnections::new(shape, 0), Disconnections::new(shape, 0));
        let (mut one, mut other) = (Draws::named(9, "l", "d"), Draws::named(9, "l", "d"));
        for step in 0..100_000u64 {
            let at = step * 50_000;
            let found = often.until(at, at, &mut one);
            if step % 977 == 0 {
                assert_eq!(seldom.until(at, at, &mut other), found, "at {at}");
            }
        }
    }
}

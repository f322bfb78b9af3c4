//! Levels once more, when something is known that makes their arrivals earlier or fewer.

use super::{Propagation, Worker};
use crate::curves::Curves;
use crate::demand::Effort;
use crate::layout::NONE;
use crate::special::is_special;

/// Steps that numbering frames as they come may cost in a pass.
const SWEEPS: u64 = 1 << 20;

impl Propagation<'_> {
    /// From here on slow links further back count, see [`crate::curves`], and frames are numbered as they come, see [`super::in_order`].
    pub(crate) fn travel(&mut self) {
        self.curves = Curves::all(self.network, &self.layout);
        let is_bunched = self.is_bunched();
        if is_bunched {
            self.keeps_order = self.ordered();
        }
        if is_bunched || !self.curves.is_empty() {
            self.settle_again();
            crate::once::follow(self);
        }
    }

    /// Settles every level once more, from arrivals that are no later than before. Every step goes from safe arrivals to safe departures,
    /// so that it may end after any of them.
    pub(crate) fn settle_again(&self) {
        let mut worker = Worker::new(&self.layout);
        let mut in_order = Effort::of(SWEEPS);
        let mut changed = vec![false; self.layout.ports.len()];
        for component in self.order.iter() {
            for level in component {
                self.settle_level_again(*level as usize, &mut changed, (&mut worker, &mut in_order));
            }
        }
    }

    fn settle_level_again(
        &self,
        index: usize,
        changed: &mut [bool],
        (worker, in_order): (&mut Worker, &mut Effort),
    ) {
        if self.settled.level_cause(index) != NONE {
            return;
        }
        let level = &self.layout.levels[index];
        let port = level.port.index();
        let mut travelled = false;
        for curves in &self.curves {
            curves.measure(self, index);
            travelled |= curves.touch(&self.layout, index);
        }
        let mut work = self.settled.port(port);
        let before = work.state(level, index);
        let (news, _) = self.arrive(index, &mut work);
        changed[port] |= news;
        let renewed = changed[port] || travelled;
        if renewed || is_special(&self.network.ports[port]) {
            let responded = self.respond(index, &mut work, worker).is_ok();
            // Where counting was given up, earlier arrivals may look worse; then all stays as it was. Steps that are not monotone may look worse by a
            // little; then departures stay as they were.
            if responded && work.outcome(index).is_hardly_worse(before.outcome()) {
                work.keep_less(index, before.outcome());
            } else {
                work.restore(level, index, before);
            }
        }
        if !self.keeps_order.is_empty() {
            self.number(index, &mut work, renewed, (worker, in_order));
        }
        self.depart(index, &mut work, true);
    }
}

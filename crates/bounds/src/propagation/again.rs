//! Levels once more, when something is known that makes their arrivals earlier or fewer.

use super::{Propagation, Worker};
use crate::curves::Curves;
use crate::layout::NONE;
use crate::special::is_special;

impl Propagation<'_> {
    /// From here on slow links further back count, see [`crate::curves`].
    pub(crate) fn travel(&mut self) {
        self.curves = Curves::all(self.network, &self.layout);
        if !self.curves.is_empty() {
            self.settle_again();
            crate::once::follow(self);
        }
    }

    /// Settles every level once more, from arrivals that are no later than before. Every step goes from safe arrivals to safe departures,
    /// so that it may end after any of them.
    pub(crate) fn settle_again(&self) {
        let mut worker = Worker::new(&self.layout);
        let mut changed = vec![false; self.layout.ports.len()];
        for component in self.order.iter() {
            for level in component {
                self.settle_level_again(*level as usize, &mut changed, &mut worker);
            }
        }
    }

    fn settle_level_again(&self, index: usize, changed: &mut [bool], worker: &mut Worker) {
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
        if changed[port] || travelled || is_special(&self.network.ports[port]) {
            let responded = self.respond(index, &mut work, worker).is_ok();
            // Where steps are not monotone, or counting was given up, earlier arrivals may look worse; then all stays as it was.
            if !responded || !work.outcome(index).is_no_worse(before.outcome()) {
                work.restore(level, index, before);
            }
        }
        self.depart(index, &mut work);
    }
}

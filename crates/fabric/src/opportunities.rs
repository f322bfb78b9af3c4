//! Where a port is in its trace of delivery opportunities.

use timebound_model::{Time, Trace, WireBytes};

#[derive(Debug, Clone)]
pub(crate) struct Opportunities {
    trace: Trace,
    /// The first opportunity that is neither used nor wasted.
    next: u64,
    /// What is still to be delivered of the frame under way.
    pub(crate) left: u32,
}

impl Opportunities {
    pub(crate) fn new(trace: Trace) -> Self {
        Self {
            trace,
            next: 0,
            left: 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        (self.next, self.left) = (0, 0);
    }

    pub(crate) fn next_time(&self) -> u64 {
        self.trace.time(self.next).0
    }

    /// Takes the next opportunity: what it delivers at most.
    pub(crate) fn take(&mut self) -> u32 {
        self.next += 1;
        Trace::OPPORTUNITY_BYTES
    }

    /// All opportunities up to `now` are gone.
    pub(crate) fn waste(&mut self, now: u64) {
        if self.next_time() <= now {
            self.next = self.trace.first_after(Time(now));
        }
    }

    pub(crate) fn begin(&mut self, wire: WireBytes) {
        self.left = Trace::bytes_of(wire);
    }
}

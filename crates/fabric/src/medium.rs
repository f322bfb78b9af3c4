//! A transmission resource that several ports share: one frame at a time, first come first served.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Ports that ask at the same time are served by port id. Who sends next is chosen by a `Grant` event, which comes after
/// everything else of its time, so that the choice does not depend on the order in which ports of one instant asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Medium {
    busy: bool,
    granting: bool,
    requests: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Medium {
    pub(crate) fn clear(&mut self) {
        self.busy = false;
        self.granting = false;
        self.requests.clear();
    }

    /// A port asks; true if a grant is to be scheduled now.
    pub(crate) fn request(&mut self, now: u64, port: u32) -> bool {
        self.requests.push(Reverse((now, port)));
        self.wants_grant()
    }

    /// The frame on the medium has ended; true if a grant is to be scheduled now.
    pub(crate) fn release(&mut self) -> bool {
        self.busy = false;
        self.wants_grant()
    }

    fn wants_grant(&mut self) -> bool {
        let wanted = !self.busy && !self.granting && !self.requests.is_empty();
        self.granting |= wanted;
        wanted
    }

    /// The port that sends now.
    pub(crate) fn grant(&mut self) -> Option<u32> {
        self.granting = false;
        let Reverse((_, port)) = self.requests.pop()?;
        self.busy = true;
        Some(port)
    }
}

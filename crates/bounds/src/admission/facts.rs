//! How far jitters of a level may move up while its responses stay as they are.
//!
//! It comes from a sweep with every release earlier by that. As responses never decrease with any jitter, it stays true while jitters move, if
//! only upward moves are counted, and when streams leave. It is forgotten when a stream joins or the blocking changes, and when the
//! responses change.

/// What is known of a level.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// The sum of the largest upward moves, transaction by transaction, of any slot of the level, or of those above it at its port, since a
    /// time that nobody knows; it only grows.
    gone: u64,
    /// Responses stay as they are while `gone` and what may come are less than this.
    same: u64,
    /// The transaction in which moves were last counted, and what of them.
    last: (u32, u64),
}

impl Known {
    /// Slots that count at the level moved up by as much as `by` in a transaction.
    pub(super) fn move_up(&mut self, by: u64, transaction: u32) {
        let (when, counted) = self.last;
        let counted = if when == transaction { counted } else { 0 };
        self.gone = self.gone.saturating_add(by.saturating_sub(counted));
        self.last = (transaction, by.max(counted));
    }

    /// All moves so far, since a time that nobody knows.
    pub(super) fn gone(&self) -> u64 {
        self.gone
    }

    /// Numbers of transactions begin again.
    pub(super) fn recount(&mut self) {
        self.last = (0, 0);
    }

    /// The responses of the level may be others now.
    pub(super) fn forget(&mut self) {
        self.same = 0;
    }

    /// Responses stay while jitters move up by less than this.
    pub(super) fn bears(&self) -> u64 {
        self.same.saturating_sub(self.gone)
    }

    /// Are responses sure to stay as they are while jitters move up by as much as `by`?
    pub(super) fn stays(&self, by: u64) -> bool {
        by < self.bears()
    }

    /// Responses stay while jitters move up by as much as `by`.
    pub(super) fn learn(&mut self, by: u64) {
        let until = self.gone.saturating_add(by).saturating_add(1);
        self.same = self.same.max(until);
    }
}

#[cfg(test)]
mod tests {
    use super::Known;

    #[test]
    fn upward_moves_use_up_what_is_known() {
        let mut known = Known::default();
        assert!(!known.stays(0));
        known.learn(100);
        assert!(known.stays(100) && !known.stays(101));
        known.move_up(30, 1);
        known.move_up(20, 1);
        assert!(known.stays(70) && !known.stays(71));
        known.move_up(50, 1);
        assert!(known.stays(50) && !known.stays(51));
        known.move_up(50, 2);
        assert!(known.stays(0) && !known.stays(1));
        known.learn(5);
        known.forget();
        assert!(!known.stays(0));
    }
}

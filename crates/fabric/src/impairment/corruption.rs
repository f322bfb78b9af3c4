//! Corruption: a bit is flipped; the frame is delivered damaged, or dropped as a receiver that checks its FCS would.

use super::Verdict;
use crate::draws::{Chance, Draws};
use crate::frame::DropReason;

#[derive(Debug, Clone)]
pub(super) struct Corruption {
    chance: Chance,
    drops: bool,
}

impl Corruption {
    pub(super) fn new(probability: f64, drops: bool) -> Option<Self> {
        (probability > 0.0).then(|| Self {
            chance: Chance::new(probability),
            drops,
        })
    }

    pub(super) fn judge(&self, draws: &mut Draws) -> Verdict {
        match (draws.hits(self.chance), self.drops) {
            (false, _) => Verdict::Pass,
            (true, true) => Verdict::Drop(DropReason::Corruption),
            (true, false) => Verdict::Damage,
        }
    }
}

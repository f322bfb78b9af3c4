//! Duplication: the copy arrives right behind the original.

use super::Verdict;
use crate::draws::{Chance, Draws};

#[derive(Debug, Clone)]
pub(super) struct Duplication {
    chance: Chance,
}

impl Duplication {
    pub(super) fn new(probability: f64) -> Option<Self> {
        (probability > 0.0).then(|| Self {
            chance: Chance::new(probability),
        })
    }

    pub(super) fn judge(&self, draws: &mut Draws) -> Verdict {
        if draws.hits(self.chance) {
            Verdict::Duplicate
        } else {
            Verdict::Pass
        }
    }
}

//! Random loss: independent (Bernoulli) or in bursts (Gilbert 1960, Elliott 1963).

use super::Verdict;
use crate::draws::{Chance, Draws};
use crate::frame::DropReason;
use timebound_model::declaration::LossDecl;

#[derive(Debug, Clone)]
pub(super) enum Loss {
    Bernoulli(Chance),
    GilbertElliott {
        bad: bool,
        leave: [Chance; 2],
        lose: [Chance; 2],
    },
}

impl Loss {
    pub(super) fn new(decl: &LossDecl) -> Self {
        match *decl {
            LossDecl::Bernoulli { probability } => Self::Bernoulli(Chance::new(probability)),
            LossDecl::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_in_good,
                loss_in_bad,
            } => Self::GilbertElliott {
                bad: false,
                leave: [Chance::new(good_to_bad), Chance::new(bad_to_good)],
                lose: [Chance::new(loss_in_good), Chance::new(loss_in_bad)],
            },
        }
    }

    /// In the state of the rule that it replaces: a bad link stays bad until its own chance to turn.
    pub(super) fn after(mut self, before: Option<&Self>) -> Self {
        if let (Self::GilbertElliott { bad, .. }, Some(Self::GilbertElliott { bad: was, .. })) =
            (&mut self, before)
        {
            *bad = *was;
        }
        self
    }

    /// Gilbert-Elliott: first the state may change, then the frame is lost with the state's probability (two draws).
    pub(super) fn judge(&mut self, draws: &mut Draws) -> Verdict {
        let lost = match self {
            Self::Bernoulli(chance) => draws.hits(*chance),
            Self::GilbertElliott { bad, leave, lose } => {
                *bad ^= draws.hits(leave[usize::from(*bad)]);
                draws.hits(lose[usize::from(*bad)])
            }
        };
        if lost {
            Verdict::Drop(DropReason::Loss)
        } else {
            Verdict::Pass
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(decl: &LossDecl, count: usize) -> Vec<bool> {
        let (mut rule, mut draws) = (Loss::new(decl), Draws::named(5, "a->b", "loss"));
        (0..count)
            .map(|_| rule.judge(&mut draws) != Verdict::Pass)
            .collect()
    }

    #[test]
    fn gilbert_elliott_has_its_stationary_loss_and_mean_burst() {
        let decl = LossDecl::GilbertElliott {
            good_to_bad: 0.02,
            bad_to_good: 0.25,
            loss_in_good: 0.0,
            loss_in_bad: 1.0,
        };
        let lost = verdicts(&decl, 400_000);
        let share = lost.iter().filter(|l| **l).count() as f64 / lost.len() as f64;
        let expected = 0.02 / (0.02 + 0.25);
        assert!((share - expected).abs() < 0.003, "{share} against {expected}");
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let mean = share * lost.len() as f64 / bursts;
        assert!(
            (mean - 4.0).abs() < 0.15,
            "mean burst {mean} frames against 1 / bad_to_good = 4"
        );
    }

    #[test]
    fn bernoulli_is_met_and_total_loss_is_total() {
        let lost = verdicts(&LossDecl::Bernoulli { probability: 0.01 }, 200_000)
            .iter()
            .filter(|l| **l)
            .count();
        assert!((1_820..2_180).contains(&lost), "{lost}");
        assert!(
            verdicts(&LossDecl::Bernoulli { probability: 1.0 }, 100)
                .iter()
                .all(|l| *l)
        );
    }
}

//! What a link does to a frame beyond rate and propagation delay: rules, each with a verdict.
//!
//! Every rule has its own named stream (link, purpose) and takes one draw for every frame that the port sends, whatever
//! the other rules said: the n-th verdict of a rule depends on the seed and on n alone, never on the other conditions.

mod corruption;
mod disconnection;
mod duplication;
mod jitter;
mod loss;
mod outage;

use crate::draws::{Draws, StreamName};
use crate::frame::DropReason;
use corruption::Corruption;
use disconnection::Disconnections;
use duplication::Duplication;
use jitter::Jitter;
use loss::Loss;
use outage::Outage;
use timebound_model::{Impairments, Network, PortId, Span};

/// What one rule says about one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Drop(DropReason),
    /// Delivered with a bit flipped.
    Damage,
    /// Delivered twice.
    Duplicate,
    /// Later by so much.
    Delay(Span),
}

/// What the rules of a link say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Outcome {
    pub(crate) dropped: Option<DropReason>,
    pub(crate) damaged: bool,
    pub(crate) duplicated: bool,
    pub(crate) delay: u64,
}

/// The rules of one direction of a link.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    outage: Option<Outage>,
    disconnections: Option<Disconnections>,
    loss: Option<Loss>,
    corruption: Option<Corruption>,
    duplication: Option<Duplication>,
    jitter: Option<Jitter>,
    draws: RuleDraws,
}

#[derive(Debug, Clone)]
struct RuleDraws {
    loss: Draws,
    corruption: Draws,
    duplication: Draws,
    jitter: Draws,
    disconnections: Draws,
}

impl RuleDraws {
    fn new(names: &RuleNames, seed: u64) -> Self {
        Self {
            loss: names.loss.draws(seed),
            corruption: names.corruption.draws(seed),
            duplication: names.duplication.draws(seed),
            jitter: names.jitter.draws(seed),
            disconnections: names.disconnections.draws(seed),
        }
    }
}

/// The hashed names of a link's random streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuleNames {
    loss: StreamName,
    corruption: StreamName,
    duplication: StreamName,
    jitter: StreamName,
    disconnections: StreamName,
}

impl RuleNames {
    /// Of the direction named `way` of the link named `link`.
    pub(crate) fn new(way: &str, link: &str) -> Self {
        Self {
            loss: StreamName::new(way, "loss"),
            corruption: StreamName::new(way, "corruption"),
            duplication: StreamName::new(way, "duplication"),
            jitter: StreamName::new(way, "jitter"),
            // Both directions draw the same: a link is disconnected as a whole.
            disconnections: StreamName::new(link, "disconnections"),
        }
    }
}

impl Rules {
    pub(crate) fn new(impairments: &Impairments, names: &RuleNames, seed: u64) -> Self {
        let mut rules = Self {
            outage: None,
            disconnections: None,
            loss: None,
            corruption: None,
            duplication: None,
            jitter: None,
            draws: RuleDraws::new(names, seed),
        };
        rules.change(impairments, 0);
        rules
    }

    /// The streams from their start, under another seed.
    pub(crate) fn reseed(&mut self, names: &RuleNames, seed: u64) {
        self.draws = RuleDraws::new(names, seed);
    }

    /// Other conditions from `now` on; the random streams go on where they are, a rule that stays keeps its state.
    pub(crate) fn change(&mut self, impairments: &Impairments, now: u64) {
        if let Some(rule) = &mut self.disconnections {
            rule.draw(now, now, &mut self.draws.disconnections);
        }
        let same = |rule: &Disconnections| impairments.disconnections.is_some_and(|decl| rule.is(&decl));
        if !self.disconnections.as_ref().is_some_and(same) {
            self.disconnections = impairments
                .disconnections
                .map(|decl| Disconnections::new(decl, now));
        }
        self.outage = Outage::new(&impairments.outages);
        self.loss = impairments
            .loss
            .as_ref()
            .map(|decl| Loss::new(decl).after(self.loss.as_ref()));
        self.corruption = Corruption::new(impairments.corruption, impairments.corruption_drops);
        self.duplication = Duplication::new(impairments.duplication);
        self.jitter = impairments
            .jitter
            .as_ref()
            .map(|jitter| Jitter::new(&jitter.distribution));
    }

    /// Back to before the first frame: nothing of a rule's state is kept.
    pub(crate) fn forget(&mut self) {
        self.disconnections = None;
        self.loss = None;
    }

    pub(crate) fn are_none(&self) -> bool {
        self.outage.is_none()
            && self.disconnections.is_none()
            && self.loss.is_none()
            && self.corruption.is_none()
            && self.duplication.is_none()
            && self.jitter.is_none()
    }

    /// Until when the link carries nothing, if it does so at `now`; the frame under way began at `since` (or `now`).
    pub(crate) fn out_until(&mut self, since: u64, now: u64) -> Option<u64> {
        let outage = self.outage.as_ref().and_then(|rule| rule.until(now));
        let draws = &mut self.draws.disconnections;
        let random = self
            .disconnections
            .as_mut()
            .and_then(|rule| rule.until(since, now, draws));
        outage.max(random)
    }

    /// For a frame sent from `started` to `ended`.
    pub(crate) fn judge(&mut self, started: u64, ended: u64) -> Outcome {
        let draws = &mut self.draws;
        let verdicts = [
            self.outage.as_mut().map(|rule| rule.judge(started, ended)),
            self.disconnections
                .as_mut()
                .map(|rule| rule.judge(started, ended, &mut draws.disconnections)),
            self.loss.as_mut().map(|rule| rule.judge(&mut draws.loss)),
            self.corruption
                .as_ref()
                .map(|rule| rule.judge(&mut draws.corruption)),
            self.duplication
                .as_ref()
                .map(|rule| rule.judge(&mut draws.duplication)),
            self.jitter.as_ref().map(|rule| rule.judge(&mut draws.jitter)),
        ];
        let mut outcome = Outcome::default();
        for verdict in verdicts.into_iter().flatten() {
            match verdict {
                Verdict::Pass => {}
                // The first reason counts.
                Verdict::Drop(reason) => outcome.dropped = outcome.dropped.or(Some(reason)),
                Verdict::Damage => outcome.damaged = true,
                Verdict::Duplicate => outcome.duplicated = true,
                Verdict::Delay(delay) => outcome.delay = outcome.delay.saturating_add(delay.0),
            }
        }
        outcome
    }
}

/// Which of the first `count` frames that `port` sends its loss rule drops: the very verdicts that a [`crate::Fabric`]
/// of this seed gives (as long as no change replaces the rule).
#[must_use]
pub fn loss_verdicts(network: &Network, seed: u64, port: PortId, count: usize) -> Vec<bool> {
    let name = crate::wiring::link_name(network, port);
    let names = RuleNames::new(&name, &name);
    let mut rules = Rules::new(&network.ports[port.index()].impairments, &names, seed);
    let Some(loss) = rules.loss.as_mut() else {
        return vec![false; count];
    };
    (0..count)
        .map(|_| loss.judge(&mut rules.draws.loss) != Verdict::Pass)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use timebound_model::declaration::LossDecl;

    #[test]
    fn a_rule_draws_for_every_frame_whatever_the_others_say() {
        let loss = Some(LossDecl::Bernoulli { probability: 0.5 });
        let plain = Impairments {
            loss: loss.clone(),
            ..Impairments::default()
        };
        let crowded = Impairments {
            loss,
            corruption: 0.5,
            duplication: 0.5,
            outages: vec![(timebound_model::Time(10), timebound_model::Time(40))],
            ..Impairments::default()
        };
        let names = RuleNames::new("a->b", "a->b");
        let (mut one, mut other) = (Rules::new(&plain, &names, 3), Rules::new(&crowded, &names, 3));
        for frame in 0..200u64 {
            let lost = one.judge(frame, frame + 1).dropped.is_some();
            let both = other.judge(frame, frame + 1).dropped;
            let out = frame + 1 > 10 && frame < 40;
            assert_eq!(
                both,
                if out {
                    Some(DropReason::Outage)
                } else {
                    lost.then_some(DropReason::Loss)
                }
            );
        }
    }
}

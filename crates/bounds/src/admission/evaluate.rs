//! What a level answers to its present arrivals.

use super::Admission;
use super::leeway::{MOST, leeway};
use super::state::{Group, Level as Kept, Now, RANKS};
use crate::bundle::Bundle;
use crate::demand::Effort;
use crate::level::{Level, Release, Scratch, Shift, Sorted, Worst};
use crate::settled::Outcome;

/// Releases of one level that are listed; beyond that heaps are better.
const LISTED: usize = 1 << 16;

/// The bundles of some levels of a port.
fn bundles(levels: &[Kept], shaped: bool) -> impl Iterator<Item = Bundle<'_>> + Clone {
    let groups = levels.iter().flat_map(|level| &level.groups);
    groups.filter_map(move |group| group.bundle(shaped))
}

/// The outcome of a level and the end of its busy period.
pub(super) fn respond<'a, S, H>(
    level: &Level<S, H>,
    owns: &[(u64, u32)],
    scratch: &mut Scratch,
    effort: &mut Effort,
) -> Option<(Outcome, u64)>
where
    S: Iterator<Item = Bundle<'a>> + Clone,
    H: Iterator<Item = Bundle<'a>> + Clone,
{
    let responses = level.responses(scratch, effort)?;
    let mut worst = Vec::with_capacity(owns.len());
    for &(own, _) in owns {
        worst.push((own, responses.of(own)?));
    }
    let outcome = Outcome {
        worst,
        backlog: responses.backlog(),
        pending: responses.pending(),
    };
    Some((outcome, responses.end().unwrap_or(u64::MAX)))
}

impl Admission {
    /// Works out the responses of a level; true if any of them is news.
    pub(super) fn evaluate(&mut self, level: u32) -> bool {
        if self.state.levels[level as usize].slots == 0 {
            self.replace(level, Now::default());
            return false;
        }
        self.worker.evaluations += 1;
        let gave_up = self.state.levels[level as usize].now.gave_up;
        let now = if self.state.is_hopeless(level as usize) {
            Now {
                is_unbounded: true,
                gave_up,
                ..Now::default()
            }
        } else if gave_up
            || self.state.levels[level as usize].late > 0
            || self.state.is_unbounded_above(level as usize)
        {
            // Only a change of flows or of what is above can mend that; both evaluate the level.
            Now {
                is_unbounded: true,
                is_busy: true,
                gave_up,
                ..Now::default()
            }
        } else {
            self.analyse(level as usize)
        };
        self.replace(level, now)
    }

    /// Puts new responses in the place of the old ones; true if they differ.
    pub(super) fn replace(&mut self, level: u32, now: Now) -> bool {
        let kept = &mut self.state.levels[level as usize];
        let old = std::mem::replace(&mut kept.now, now);
        let turned = old.is_unbounded != kept.now.is_unbounded;
        let differs = turned || !same_responses(&old.outcome, &kept.now.outcome);
        self.journal.level(level, kept, old);
        if turned {
            // What is below it at the port has no bound either, or may have one again.
            let last = (level as usize / RANKS + 1) * RANKS;
            for below in level as usize + 1..last {
                if self.state.levels[below].slots > 0 {
                    self.mark(&[below as u32]);
                }
            }
        }
        differs
    }

    fn analyse(&mut self, index: usize) -> Now {
        let base = index / RANKS * RANKS;
        for level in &mut self.state.levels[base..=index] {
            level.groups.iter_mut().for_each(Group::refresh);
        }
        let any_slow = self.state.levels[base..=index]
            .iter()
            .flat_map(|level| &level.groups)
            .any(Group::is_slow);
        if !any_slow && let Some(now) = self.analyse_lists(base, index) {
            return now;
        }
        let (higher, same) = (&self.state.levels[base..index], &self.state.levels[index..=index]);
        let kept = &same[0];
        let mut found = |shaped: bool| {
            let level = Level {
                blocking: kept.blocking,
                same: bundles(same, shaped),
                higher: bundles(higher, shaped),
            };
            respond(
                &level,
                &kept.owns,
                &mut self.worker.scratch,
                &mut self.worker.effort,
            )
        };
        let is_slow = kept.groups.iter().any(Group::is_slow);
        let mut outcome = found(true);
        if is_slow {
            outcome = least(outcome, found(false));
        }
        let Some((outcome, end)) = outcome else {
            return Now {
                is_unbounded: true,
                is_busy: true,
                end: u64::MAX,
                ..Now::default()
            };
        };
        let mut groups = higher.iter().chain(same).flat_map(|level| &level.groups);
        Now {
            outcome,
            is_unbounded: false,
            // Where a line rises slowly, what counts and what does not is not known so exactly.
            end: if any_slow { u64::MAX } else { end },
            is_busy: any_slow || groups.any(|group| group.has_steps(end)),
            ..Now::default()
        }
    }

    /// The same from sorted lists of releases, which most evaluations find as the last one left them. `None` where that does not do.
    fn analyse_lists(&mut self, base: usize, index: usize) -> Option<Now> {
        let groups = self.state.levels[base..=index]
            .iter()
            .flat_map(|level| &level.groups);
        let (mut quiet, mut first) = (u128::from(self.state.levels[index].blocking), u64::MAX);
        for group in groups.filter(|group| !group.slots.is_empty()) {
            quiet += group.at_once;
            first = first.min(group.first_step);
        }
        let quiet = u64::try_from(quiet).ok()?;
        let kept = &self.state.levels[index];
        // At first about what a frame or two of many take.
        let first_try = (quiet / 256).clamp(1, MOST);
        let (known, tried) = (
            kept.now.end,
            if kept.leeway == 0 { first_try } else { kept.leeway },
        );
        let mut horizon = quiet;
        if first <= quiet {
            let likely = if (quiet..u64::MAX).contains(&known) {
                known
            } else {
                quiet
            };
            horizon = likely.saturating_add(likely / 8).saturating_add(2 * tried);
        }
        for _ in 0..6 {
            if first <= horizon {
                self.list(base, index, horizon)?;
            }
            if let Some(now) = self.sweep_lists(base, index, (first, horizon), tried) {
                return Some(now);
            }
            horizon = horizon.checked_mul(2)?;
        }
        None
    }

    /// Brings the releases of these levels up to date until `horizon`.
    fn list(&mut self, base: usize, index: usize, horizon: u64) -> Option<()> {
        let merged = &mut self.worker.higher;
        merged.clear();
        for at in base..=index {
            self.state.levels[at].list(horizon)?;
            if at < index {
                let list = &self.state.levels[at].releases;
                merged.extend(&list[..list.partition_point(|release| release.at <= horizon)]);
            }
        }
        // Runs that are sorted: merged rather than sorted.
        merged.sort_by_key(|release| release.at);
        Some(())
    }

    /// The worst case at a level of a frame that takes `own`, where it may be another one than the evaluation found.
    pub(super) fn worst_now(&self, index: usize, own: u64) -> Option<Worst> {
        let base = index / RANKS * RANKS;
        let (higher, same) = (&self.state.levels[base..index], &self.state.levels[index..=index]);
        let level = Level {
            blocking: same[0].blocking,
            same: bundles(same, true),
            higher: bundles(higher, true),
        };
        let mut effort = Effort::for_hops(self.state.hops);
        level.responses(&mut Scratch::default(), &mut effort)?.of(own)
    }

    fn sweep_lists(
        &mut self,
        base: usize,
        index: usize,
        (first, horizon): (u64, u64),
        tried: u64,
    ) -> Option<Now> {
        let (higher, same) = (&self.state.levels[base..index], &self.state.levels[index..=index]);
        let kept = &same[0];
        let level = Level {
            blocking: kept.blocking,
            same: bundles(same, true),
            higher: bundles(higher, true),
        };
        let lists: (&[Release], &[Release]) = if first <= horizon {
            (&kept.releases, &self.worker.higher)
        } else {
            (&[], &[])
        };
        let scratch = &mut self.worker.scratch;
        let still = |list| Sorted {
            list,
            shift: Shift::NONE,
        };
        let both = (still(lists.0), still(lists.1));
        let responses = level.responses_of_lists(both, horizon, scratch, &mut self.worker.effort)?;
        let mut worst = Vec::with_capacity(kept.owns.len());
        for &(own, _) in &kept.owns {
            worst.push((own, responses.of(own)?));
        }
        let outcome = Outcome {
            worst,
            backlog: self.options.check_buffers.then(|| responses.backlog()).flatten(),
            pending: None,
        };
        let end = responses.end()?;
        let mut now = Now {
            outcome,
            end,
            is_busy: higher
                .iter()
                .chain(same)
                .flat_map(|level| &level.groups)
                .any(|group| group.has_steps(end)),
            ..Now::default()
        };
        // What waits has no leeway.
        if first <= horizon && !self.options.check_buffers {
            let way = leeway(&level, lists, horizon, (&now.outcome, tried), scratch);
            let next = if way.is_some() {
                tried + tried / 4
            } else {
                tried / 2
            };
            if let Some((leeway, end)) = way {
                (now.leeway, now.end) = (Some(Box::new(leeway)), end.max(now.end));
            }
            drop(level);
            self.state.levels[index].leeway = next.clamp(1, MOST);
        }
        Some(now)
    }
}

impl Kept {
    /// Lists its releases up to `horizon`, unless they are; `None` if there are too many.
    fn list(&mut self, horizon: u64) -> Option<()> {
        if self.listed >= horizon {
            return Some(());
        }
        let horizon = horizon.saturating_add(horizon / 8);
        self.releases.clear();
        for (group, bundle) in self
            .groups
            .iter()
            .filter(|group| !group.slots.is_empty())
            .zip(0u32..)
        {
            for demand in &group.demands {
                let mut at = demand.first_step();
                while at <= horizon {
                    self.releases.push(Release {
                        at,
                        weight: demand.weight(),
                        bundle,
                    });
                    at = at.saturating_add(demand.period());
                }
                if self.releases.len() > LISTED {
                    self.listed = 0;
                    return None;
                }
            }
        }
        self.releases.sort_unstable_by_key(|release| release.at);
        self.listed = horizon;
        Some(())
    }
}

pub(super) fn same_responses(a: &Outcome, b: &Outcome) -> bool {
    let mut pairs = a.worst.iter().zip(&b.worst);
    a.worst.len() == b.worst.len() && pairs.all(|(a, b)| a.0 == b.0 && a.1.response == b.1.response)
}

pub(super) fn least(shaped: Option<(Outcome, u64)>, plain: Option<(Outcome, u64)>) -> Option<(Outcome, u64)> {
    match (shaped, plain) {
        (Some((shaped, end)), Some((plain, other))) => Some((shaped.or_less(plain), end.max(other))),
        (shaped, plain) => shaped.or(plain),
    }
}

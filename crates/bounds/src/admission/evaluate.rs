//! What a level answers to its present arrivals.

use super::Admission;
use super::leeway::{MOST, leeway};
use super::settle::Worker;
use super::state::{Group, Level as Kept, Now, RANKS};
use crate::bundle::Bundle;
use crate::demand::{Demand, Effort};
use crate::level::{Level, Release, Scratch, Shift, Sorted, Worst};
use crate::settled::Outcome;

/// Releases of one level that are listed; beyond that heaps are better.
const LISTED: usize = 1 << 16;

/// Releases of one stream that are put into a list, or taken out of it, one by one; beyond that the list is made anew when it is read.
const ONE_BY_ONE: u64 = 64;

/// The bundles of some levels of a port.
pub(super) fn bundles(levels: &[Kept], shaped: bool) -> impl Iterator<Item = Bundle<'_>> + Clone {
    let groups = levels.iter().flat_map(|level| &level.groups);
    groups.map(move |group| group.bundle(shaped))
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
    pub(super) fn replace(&mut self, level: u32, mut now: Now) -> bool {
        now.settle();
        let kept = &mut self.state.levels[level as usize];
        kept.has_others = true;
        let old = std::mem::replace(&mut kept.now, now);
        let turned = old.is_unbounded != kept.now.is_unbounded;
        let differs = turned || !same_responses(&old.outcome, &kept.now.outcome);
        if differs {
            self.state.known[level as usize].forget();
            self.state.windows[level as usize].forget();
        }
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
        for group in groups.filter(|group| !group.is_empty) {
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
        let Worker { higher, same, .. } = &mut self.worker;
        higher.clear();
        same.clear();
        for at in base..=index {
            let level = &mut self.state.levels[at];
            level.list(horizon)?;
            let list = if at < index { &mut *higher } else { &mut *same };
            for (group, bundle) in level.groups.iter().zip(0u32..) {
                group.add_releases(list, bundle, (0, horizon), 0);
            }
        }
        // Runs that are sorted: merged rather than sorted.
        higher.sort_by_key(|release| release.at);
        same.sort_by_key(|release| release.at);
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
            (&self.worker.same, &self.worker.higher)
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
    /// Lists its releases up to `horizon`; `None` if there are too many.
    pub(super) fn list(&mut self, horizon: u64) -> Option<()> {
        let mut count = 0;
        for group in &mut self.groups {
            if group.listed < horizon {
                group.list(horizon.saturating_add(horizon / 8));
            }
            count += group.releases.len();
            if count > LISTED {
                return None;
            }
        }
        Some(())
    }
}

impl Group {
    /// Lists its releases anew.
    pub(super) fn list(&mut self, horizon: u64) {
        let list = &mut self.releases;
        list.clear();
        for demand in &self.demands {
            let weight = demand.weight();
            let room = (LISTED + 1).saturating_sub(list.len());
            list.extend(releases(demand, horizon).take(room).map(|at| (at, weight)));
        }
        list.sort_unstable();
        let mut sum = 0u64;
        for (_, weight) in &mut *list {
            sum = sum.saturating_add(*weight);
            *weight = sum;
        }
        self.listed = if list.len() > LISTED { 0 } else { horizon };
        self.wanted = self.listed;
    }

    /// How many releases come up to a time, as far as they are listed.
    pub(super) fn upto(&self, last: u64) -> usize {
        if last < self.first_step && !self.is_stale {
            return 0;
        }
        self.releases.partition_point(|(at, _)| *at <= last)
    }

    /// Work of the first so many releases that are listed.
    pub(super) fn work_of(&self, count: usize) -> u64 {
        let last = count.checked_sub(1).and_then(|last| self.releases.get(last));
        last.map_or(0, |(_, work)| *work)
    }

    /// Adds its releases from the place `start` up to `last` to a list, each earlier by `rise`.
    pub(super) fn add_releases(
        &self,
        list: &mut Vec<Release>,
        bundle: u32,
        (start, last): (usize, u64),
        rise: u64,
    ) {
        let mut before = self.work_of(start);
        for &(at, work) in &self.releases[start..] {
            if at > last {
                return;
            }
            list.push(Release {
                at: at.saturating_sub(rise),
                weight: work - before,
                bundle,
            });
            before = work;
        }
    }

    /// Does a demand release so often that the list is given up?
    fn spoils(&mut self, demand: &Demand) -> bool {
        let spoils = self.listed.saturating_sub(demand.first_step()) / demand.period() >= ONE_BY_ONE;
        if spoils {
            self.listed = 0;
        }
        spoils
    }

    /// A demand joins the list, as far as there is one.
    pub(super) fn enlist(&mut self, demand: &Demand) {
        if self.spoils(demand) {
            return;
        }
        for at in releases(demand, self.listed) {
            if self.releases.len() > LISTED {
                self.listed = 0;
                return;
            }
            let place = self.releases.partition_point(|(known, _)| *known <= at);
            self.releases.insert(place, (at, self.work_of(place)));
            for (_, work) in &mut self.releases[place..] {
                *work = work.saturating_add(demand.weight());
            }
        }
    }

    /// A demand leaves the list.
    pub(super) fn delist(&mut self, demand: &Demand) {
        if self.spoils(demand) {
            return;
        }
        for at in releases(demand, self.listed) {
            let from = self.releases.partition_point(|(known, _)| *known < at);
            let mut same_time = (from..self.releases.len()).take_while(|place| self.releases[*place].0 == at);
            let weighs = |place: usize| self.work_of(place + 1) - self.work_of(place) == demand.weight();
            let Some(place) = same_time.find(|place| weighs(*place)) else {
                debug_assert!(false, "a release that was listed is not");
                self.listed = 0;
                return;
            };
            self.releases.remove(place);
            for (_, work) in &mut self.releases[place..] {
                *work -= demand.weight();
            }
        }
    }
}

/// When a demand releases after the first instant, up to `last`.
fn releases(demand: &Demand, last: u64) -> impl Iterator<Item = u64> + use<> {
    let period = demand.period();
    let first = Some(demand.first_step());
    std::iter::successors(first, move |at| at.checked_add(period)).take_while(move |at| *at <= last)
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

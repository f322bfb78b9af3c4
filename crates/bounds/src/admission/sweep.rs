//! One sweep over the releases at a port with all of them earlier: what the responses of a level become when frames arrive later.

use super::Admission;
use super::evaluate::bundles;
use super::links::Row;
use super::state::{Group, Level as Kept, RANKS, State};
use crate::bundle::Bundle;
use crate::demand::Effort;
use crate::level::{Level, Listed, Release, Responses, Scratch};

/// With more releases than this at a level and those above it, a sweep begins where its frames start first, and nobody finds out beforehand
/// how far jitters may move up.
pub(super) const FEW: usize = 32;

/// A level and those above it.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// All their work of the first instant, with the blocking.
    pub(super) quiet: u64,
    /// The first release after it.
    pub(super) first: u64,
    /// Releases that are listed.
    pub(super) releases: usize,
    /// About when the busy period ends.
    pub(super) likely: u64,
    /// Up to when all of them list their releases.
    pub(super) listed: u64,
}

/// What a port's levels have in common, from the most urgent on: what [`Shape`] says without blocking.
#[derive(Debug, Default)]
pub(super) struct Above {
    /// Levels that are counted.
    start: u32,
    end: u32,
    quiet: u128,
    first: u64,
    releases: usize,
    listed: u64,
    is_slow: bool,
    /// Their groups, level by level.
    heads: Vec<Head>,
    /// By rank: how many heads come before those of its level, and the work of these in the first instant.
    ahead: [(u32, u64); RANKS],
}

/// What every sweep at a port asks of a group.
#[derive(Debug, Clone, Copy)]
struct Head {
    at_once: u64,
    first_step: u64,
    /// By how much its slots may arrive later, from what the departures before it rise by.
    rise: u64,
    level: u32,
    group: u32,
}

/// What is swept: releases up to `horizon`, every one earlier by its group's rise, which is at most `by`, or `all` of them by that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sweep {
    pub(super) horizon: u64,
    pub(super) by: u64,
    pub(super) all: bool,
    /// More blocking than there is.
    pub(super) extra: u64,
    pub(super) span: Span,
}

/// Which frames of a level are looked at.
#[derive(Debug, Clone, Copy)]
pub(super) enum Span {
    All,
    /// Those that arrive between two instants, and start no earlier than `first`.
    Part {
        from: u64,
        to: u64,
        first: u64,
    },
}

impl Sweep {
    /// With the releases of each group earlier by its rise, at most by this.
    pub(super) const fn by_rises(horizon: u64, by: u64, span: Span) -> Self {
        Self {
            horizon,
            by,
            all: false,
            extra: 0,
            span,
        }
    }

    /// With all releases earlier by this.
    pub(super) const fn all_earlier(horizon: u64, by: u64) -> Self {
        Self {
            horizon,
            by,
            all: true,
            extra: 0,
            span: Span::All,
        }
    }
}

/// Buffers of a sweep.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    scratch: Scratch,
    same: Vec<Release>,
    higher: Vec<Release>,
    stairs: Vec<u64>,
    spare: Spare,
}

/// Buffers of sorting.
#[derive(Debug, Default)]
struct Spare {
    releases: Vec<Release>,
    places: Vec<u32>,
}

/// Sorts releases by their times, which are spread about evenly: into drawers for short times each, and then by exchange of neighbours.
fn sort(list: &mut Vec<Release>, spare: &mut Spare) {
    let (least, most) = list.iter().fold((u64::MAX, 0), |(least, most), release| {
        (release.at.min(least), release.at.max(most))
    });
    if list.len() < 64 {
        list.sort_unstable_by_key(|release| release.at);
        return;
    }
    let drawers = list.len().next_power_of_two();
    let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(drawers.trailing_zeros());
    let drawer = |release: &Release| ((release.at - least) >> shift) as usize;
    spare.places.clear();
    spare.places.resize(drawers + 1, 0);
    for release in list.iter() {
        spare.places[drawer(release) + 1] += 1;
    }
    let mut sum = 0;
    for place in &mut spare.places {
        sum += *place;
        *place = sum;
    }
    spare.releases.clone_from(list);
    for release in &spare.releases {
        let place = &mut spare.places[drawer(release)];
        list[*place as usize] = *release;
        *place += 1;
    }
    // Where many fell into one drawer the standard sort finds the rest in order.
    let (mut moved, most_moves) = (0, 16 * list.len());
    for at in 1..list.len() {
        let release = list[at];
        let mut place = at;
        while place > 0 && list[place - 1].at > release.at {
            list[place] = list[place - 1];
            place -= 1;
            moved += 1;
        }
        list[place] = release;
        if moved > most_moves {
            list.sort_by_key(|release| release.at);
            return;
        }
    }
}

impl Admission {
    /// What a sweep needs to know of a level and those above it; `None` where that is not enough.
    pub(super) fn shape(&mut self, index: usize) -> Option<Shape> {
        let base = index / RANKS * RANKS;
        let above = &mut self.ahead.above;
        if above.start as usize != base || above.end as usize > index + 1 {
            above.begin(base as u32);
        }
        let from = above.end as usize;
        for (level, at) in self.state.levels[from..=index].iter_mut().zip(above.end..) {
            above.count(level, at, &self.ahead.departures);
        }
        above.end = index as u32 + 1;
        let level = &self.state.levels[index];
        let quiet = u64::try_from(above.quiet + u128::from(level.blocking)).ok()?;
        let end = level.now.end;
        (!above.is_slow).then_some(Shape {
            quiet,
            first: above.first,
            releases: above.releases,
            likely: if end < u64::MAX { quiet.max(end) } else { quiet },
            listed: above.listed,
        })
    }
}

impl Above {
    /// Nothing is known: groups changed, or it is about another port.
    pub(super) fn forget(&mut self) {
        self.end = u32::MAX;
    }

    fn begin(&mut self, base: u32) {
        self.heads.clear();
        *self = Self {
            start: base,
            end: base,
            first: u64::MAX,
            listed: u64::MAX,
            heads: std::mem::take(&mut self.heads),
            ..Self::default()
        };
    }

    fn count(&mut self, level: &mut Kept, at: u32, departures: &[Row]) {
        let quiet = u64::try_from(self.quiet).unwrap_or(u64::MAX);
        self.ahead[at as usize % RANKS] = (self.heads.len() as u32, quiet);
        for (group, index) in level.groups.iter_mut().zip(0..) {
            let mut head = Head {
                at_once: 0,
                first_step: u64::MAX,
                rise: 0,
                level: at,
                group: index,
            };
            if !group.is_empty {
                group.refresh();
                self.is_slow |= group.is_slow();
                self.quiet += group.at_once;
                self.first = self.first.min(group.first_step);
                self.releases += group.releases.len();
                self.listed = self.listed.min(group.listed);
                head.at_once = u64::try_from(group.at_once).unwrap_or(u64::MAX);
                head.first_step = group.first_step;
                head.rise = rise_of(group, departures);
            }
            self.heads.push(head);
        }
    }

    /// The groups above a level with their work in the first instant, and its own groups.
    fn split(&self, index: usize) -> (u64, &[Head], &[Head]) {
        let (count, at_once) = self.ahead[index % RANKS];
        let next = match self.ahead.get(index % RANKS + 1) {
            Some((next, _)) if index + 1 < self.end as usize => *next as usize,
            _ => self.heads.len(),
        };
        let (above, own) = self.heads[..next].split_at(count as usize);
        (at_once, above, own)
    }
}

impl Buffers {
    /// The responses of a level; `None` where they take more than this.
    pub(super) fn sweep(
        &mut self,
        (state, known): (&mut State, &Above),
        index: usize,
        (shape, sweep): (&Shape, Sweep),
    ) -> Option<Responses<'_>> {
        let base = index / RANKS * RANKS;
        let Sweep { horizon, by, .. } = sweep;
        let farthest = horizon.saturating_add(by);
        let is_quiet = shape.first > farthest;
        if !is_quiet {
            if shape.listed < farthest {
                for at in base..=index {
                    state.levels[at].list(farthest)?;
                }
            }
            let is_open = state.levels[index].now.first == 0 && shape.releases > FEW;
            if is_open && matches!(sweep.span, Span::All) {
                state.levels[index].now.first = first_start(state, index, (0, horizon));
            }
        }
        let Self {
            higher,
            same,
            stairs,
            spare,
            ..
        } = self;
        higher.clear();
        same.clear();
        stairs.clear();
        let (above, own) = (&state.levels[base..index], &state.levels[index]);
        let (mut at_once, groups_above, groups) = known.split(index);
        let rise = |head: &Head| if sweep.all { by } else { head.rise.min(by) };
        // Nothing starts before `first`, so that what comes until then counts at once.
        let (from, to, first) = match sweep.span {
            Span::All => (0, u64::MAX, own.now.first),
            Span::Part { from, to, first } => (from, to, first),
        };
        for head in groups_above {
            let rise = rise(head);
            let last = horizon.saturating_add(rise);
            if !is_quiet && head.first_step <= last {
                let group = &above[head.level as usize - base].groups[head.group as usize];
                let start = group.upto(first.saturating_add(rise));
                at_once = at_once.saturating_add(group.work_of(start));
                group.add_releases(higher, 0, (start, last), rise);
            }
        }
        for head in groups {
            let mut stair = head.at_once;
            let rise = rise(head);
            let last = horizon.min(to).saturating_add(rise);
            if !is_quiet && head.first_step <= last {
                let group = &own.groups[head.group as usize];
                let start = group.upto(from.saturating_add(rise));
                stair = stair.saturating_add(group.work_of(start));
                group.add_releases(same, head.group, (start, last), rise);
            }
            stairs.push(stair);
        }
        sort(higher, spare);
        sort(same, spare);
        let same = bundles(std::slice::from_ref(own), true).zip(&*stairs);
        let level = Level {
            blocking: own.blocking.checked_add(sweep.extra)?,
            same: same.map(|(bundle, stair)| Bundle {
                at_once: *stair,
                ..bundle
            }),
            higher: bundles(above, true),
        };
        let lists = (Listed(&self.same), Listed(&self.higher));
        let mut effort = Effort::for_hops(0);
        let buffers = (&mut self.scratch, &mut effort);
        level.responses_within((from, to), at_once, lists, horizon, buffers)
    }
}

/// By how much slots of a group may arrive later, from what the departures before it rise by.
fn rise_of(group: &Group, departures: &[Row]) -> u64 {
    let Some(row) = departures.get(group.input as usize) else {
        return 0;
    };
    let (mut fed, mut rise) = (group.fed, 0);
    while fed != 0 {
        rise = row.0[fed.trailing_zeros() as usize].max(rise);
        fed &= fed - 1;
    }
    rise
}

/// A time before which no frame of a level that arrives at `from` or later starts in the worst case.
pub(super) fn first_start(state: &State, index: usize, (from, horizon): (u64, u64)) -> u64 {
    let base = index / RANKS * RANKS;
    let (above, own) = (&state.levels[base..index], &state.levels[index]);
    let groups = || {
        above
            .iter()
            .flat_map(|level| &level.groups)
            .filter(|group| !group.is_empty)
    };
    let present = own.groups.iter().filter(|group| !group.is_empty);
    let same = present.fold(own.blocking, |sum, group| {
        let at_once = u64::try_from(group.at_once).unwrap_or(u64::MAX);
        let later = group.work_of(group.upto(from));
        let stair = at_once.saturating_add(later);
        sum.saturating_add(group.line.map_or(stair, |line| stair.min(line.at(from))))
    });
    let largest = own.owns.last().map_or(0, |(own, _)| *own);
    let ahead = same.saturating_sub(largest);
    let mut start = 0;
    // Every round is below the solution.
    for _ in 0..64 {
        let higher = groups().fold(0u64, |sum, group| {
            let at_once = u64::try_from(group.at_once).unwrap_or(u64::MAX);
            sum.saturating_add(at_once)
                .saturating_add(group.work_of(group.upto(start)))
        });
        let next = ahead.saturating_add(higher);
        if next == start || next > horizon {
            break;
        }
        start = next;
    }
    start
}

#[cfg(test)]
mod tests {
    use super::{Release, Spare, sort};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_sorted_is_in_order_and_all_there(
            runs in prop::collection::vec((0u64..u64::MAX / 2, 1u64..1 << 40, 0usize..200), 0..6),
            at_once in 0usize..300,
        ) {
            let mut list: Vec<Release> = Vec::new();
            for (index, (start, step, count)) in (0u32..).zip(&runs) {
                let times = (0..*count as u64).map(|turn| start + turn * step);
                list.extend(times.map(|at| Release { at, weight: at ^ step, bundle: index }));
            }
            list.extend((0..at_once).map(|weight| Release { at: 7, weight: weight as u64, bundle: 9 }));
            let key = |release: &Release| (release.at, release.bundle, release.weight);
            let mut expected: Vec<_> = list.iter().map(key).collect();
            expected.sort_unstable();
            sort(&mut list, &mut Spare::default());
            prop_assert!(list.is_sorted_by_key(|release| release.at));
            let mut found: Vec<_> = list.iter().map(key).collect();
            found.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}

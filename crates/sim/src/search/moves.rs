//! Moves from one phasing to another, guided by what the last simulation saw in the queues of the target's path.

use super::evaluate::{Finding, Visit};
use super::phasing::{Lateness, Phasing, join};
use super::scene::{Group, Rank, Scene};
use timebound_fabric::Draws;

pub(super) struct Mover<'a> {
    pub(super) scene: &'a Scene,
    pub(super) draws: &'a mut Draws,
    pub(super) phasing: &'a mut Phasing,
}

/// What the target met in one queue.
#[derive(Clone, Copy)]
struct Met {
    arrived: u64,
    started: u64,
    busy_since: u64,
}

fn met(found: &Finding, place: usize) -> Option<Met> {
    let own = found.own(place)?;
    Some(Met {
        arrived: own.arrived,
        started: if own.started == u64::MAX {
            own.arrived
        } else {
            own.started
        },
        busy_since: own.busy_since.min(own.arrived),
    })
}

impl Met {
    /// Did the frame keep the target waiting?
    fn counts(&self, visit: &Visit) -> bool {
        visit.started != u64::MAX && visit.started >= self.busy_since && visit.started < self.started
    }
}

impl Mover<'_> {
    pub(super) fn pick(&mut self, count: usize) -> usize {
        self.draws.up_to(count as u64 - 1) as usize
    }

    pub(super) fn shift(&mut self, actor: usize, by: i64) {
        let gene = &mut self.phasing.genes[actor];
        gene.offset = gene.offset.saturating_add(by);
    }

    /// The visit of an actor that is nearest to a time.
    fn nearest<'f>(&self, found: &'f Finding, place: usize, actor: usize, to: u64) -> Option<&'f Visit> {
        found.visits[place]
            .iter()
            .filter(|visit| visit.actor as usize == actor)
            .min_by_key(|visit| visit.arrived.abs_diff(to))
    }

    /// Brings every group's last frame to the target's arrival (more urgent ones: their first), and what is in the way of a busy
    /// period to its start; true if something moved.
    pub(super) fn gather(&mut self, found: &Finding) -> bool {
        let scene = self.scene;
        let mut moved = false;
        for group in &scene.groups {
            if let Some(met) = met(found, group.place) {
                let by = self.distance(found, group, met, group.rank == Rank::Higher, met.arrived);
                moved |= self.shift_group(group, by);
            }
        }
        for (place, rivals) in scene.rivals.iter().enumerate() {
            let Some(met) = met(found, place) else { continue };
            for &(actor, which) in rivals {
                let meeting = scene.actors[actor as usize].meetings[which as usize];
                if which > 0 || meeting.rank != Rank::Lower {
                    continue;
                }
                let Some(visit) = self.nearest(found, place, actor as usize, met.arrived) else {
                    continue;
                };
                if !met.counts(visit) {
                    self.shift(
                        actor as usize,
                        difference(met.busy_since.saturating_sub(1), visit.arrived),
                    );
                    moved = true;
                }
            }
        }
        moved
    }

    fn shift_group(&mut self, group: &Group, by: i64) -> bool {
        if by != 0 {
            group
                .members
                .iter()
                .chain(&group.holds)
                .for_each(|member| self.shift(*member as usize, by));
        }
        by != 0
    }

    /// From the group's first (or last) frame to a time.
    fn distance(&self, found: &Finding, group: &Group, met: Met, first: bool, to: u64) -> i64 {
        let arrivals = group.members.iter().filter_map(|member| {
            self.nearest(found, group.place, *member as usize, met.arrived)
                .map(|visit| visit.arrived)
        });
        let end = if first { arrivals.min() } else { arrivals.max() };
        end.map_or(0, |end| difference(to, end))
    }

    /// A few random moves.
    pub(super) fn mutate(&mut self, found: &Finding) {
        for _ in 0..=self.draws.up_to(5).saturating_sub(3) {
            if self.scene.holds.first < 2 {
                return;
            }
            match self.draws.up_to(19) {
                0..=7 => self.align_one(found),
                8..=12 => self.align_group(found),
                13 => self.turn_late(),
                14..=15 => self.wander(),
                16 => self.skip(),
                17 if !self.scene.holds.is_empty() && self.draws.up_to(1) == 0 => self.hold_one(),
                17 => self.delay(),
                18 if self.scene.is_random => self.phasing.seed = self.draws.bits(),
                _ => self.swing(),
            }
        }
    }

    /// A rival that did not keep the target waiting at some place comes so that it may.
    fn align_one(&mut self, found: &Finding) {
        let scene = self.scene;
        let place = self.pick(scene.places.len());
        let rivals = &scene.rivals[place];
        let Some(met) = met(found, place) else { return };
        if rivals.is_empty() {
            return;
        }
        for _ in 0..4 {
            let (actor, which) = rivals[self.pick(rivals.len())];
            let meeting = scene.actors[actor as usize].meetings[which as usize];
            let visit = self.nearest(found, place, actor as usize, met.arrived).copied();
            if visit.is_some_and(|visit| met.counts(&visit)) && self.draws.up_to(3) > 0 {
                continue;
            }
            let to = self.moment(met, meeting.rank, meeting.sending);
            match visit {
                Some(visit) => self.shift(actor as usize, difference(to, visit.arrived)),
                None => self.expect(actor as usize, meeting.travel, to),
            }
            return;
        }
    }

    /// A time at which a frame of this rank is in the target's way.
    fn moment(&mut self, met: Met, rank: Rank, sending: u64) -> u64 {
        match (rank, self.draws.up_to(5)) {
            (Rank::Lower, 0) => met.arrived.saturating_sub(1),
            (Rank::Lower, _) => met.busy_since.saturating_sub(1),
            (Rank::Same, 0..=2) => met.arrived,
            (Rank::Same, 3) => met.arrived.saturating_sub(1),
            (Rank::Same, _) => {
                met.arrived
                    - self
                        .draws
                        .up_to((met.arrived - met.busy_since).max(sending).min(met.arrived))
            }
            (Rank::Higher, 0..=1) => met.arrived,
            (Rank::Higher, 2) => met.started.saturating_sub(1),
            (Rank::Higher, 3) => met.busy_since,
            (Rank::Higher, _) => {
                met.busy_since + self.draws.up_to(met.started.saturating_sub(met.busy_since))
            }
        }
    }

    /// The rival comes at a time if nobody is in its way.
    pub(super) fn expect(&mut self, actor: usize, travel: u64, at: u64) {
        let (place, way) = join(self.scene, actor);
        let start = at.saturating_sub(travel);
        self.phasing.genes[actor].offset =
            difference(start.saturating_add(way), self.phasing.arrivals[place]);
    }

    fn align_group(&mut self, found: &Finding) {
        let scene = self.scene;
        if scene.groups.is_empty() {
            return self.align_one(found);
        }
        let group = &scene.groups[self.pick(scene.groups.len())];
        let Some(met) = met(found, group.place) else {
            return;
        };
        let by = if self.draws.up_to(2) == 0 {
            let to = self.moment(met, group.rank, scene.places[group.place].sending);
            let first = self.draws.up_to(2) == 0;
            self.distance(found, group, met, first, to)
        } else {
            let busy = met.started.saturating_sub(met.busy_since);
            // The busy period may become longer than it is.
            let window = busy + self.draws.up_to(busy / 2);
            let to = match group.rank {
                Rank::Higher => met.started.saturating_sub(1),
                Rank::Same | Rank::Lower => met.arrived,
            };
            self.crowd(found, group, window)
                .map_or(0, |end| difference(to, end))
        };
        self.shift_group(group, by);
    }

    /// The end of the window of this length in which most of the group's work arrives.
    fn crowd(&self, found: &Finding, group: &Group, window: u64) -> Option<u64> {
        let mut best = (0, None);
        let (mut work, mut first) = (0u64, 0);
        let visits = &found.visits[group.place];
        let cost = |visit: &Visit| {
            let member = group.members.binary_search(&visit.actor).is_ok();
            if member {
                self.scene.actors[visit.actor as usize].meetings[0].sending
            } else {
                0
            }
        };
        for visit in visits {
            work += cost(visit);
            while visits[first].arrived.saturating_add(window) < visit.arrived {
                work -= cost(&visits[first]);
                first += 1;
            }
            if work > best.0 {
                best = (work, Some(visit.arrived));
            }
        }
        best.1
    }

    /// Somebody uses its jitter in another way.
    fn turn_late(&mut self) {
        let actor = 1 + self.pick(self.scene.holds.first - 1);
        if self.scene.actors[actor].pattern.jitter == 0 {
            return self.wander();
        }
        let lateness = &mut self.phasing.genes[actor].lateness;
        *lateness = match self.draws.up_to(7) {
            0..=3 => Lateness::First,
            4..=6 => Lateness::Even,
            _ => Lateness::Random,
        };
    }

    /// By a random step of a random order of magnitude, up to its period or some frames.
    fn wander(&mut self) {
        let actor = 1 + self.pick(self.scene.holds.first - 1);
        let pattern = &self.scene.actors[actor].pattern;
        let widest = pattern.period.min(self.scene.span).max(2).ilog2();
        let magnitude = self.draws.up_to(u64::from(widest));
        let step = self.draws.up_to(1 << magnitude) as i64;
        let by = if self.draws.bits() & 1 == 0 { step } else { -step };
        self.shift(actor, by);
    }

    /// Another of its releases comes at the same time.
    fn skip(&mut self) {
        let actor = 1 + self.pick(self.scene.holds.first - 1);
        let pattern = &self.scene.actors[actor].pattern;
        if pattern.once || pattern.period > self.scene.span.saturating_mul(4) {
            return;
        }
        let period = pattern.period as i64;
        let by = if self.draws.up_to(2) == 0 { period } else { -period };
        self.shift(actor, by);
    }

    /// Somebody who can delay a rival does so.
    fn delay(&mut self) {
        let scene = self.scene;
        let actor = 1 + self.pick(scene.holds.first - 1);
        if scene.actors[actor].partners.is_empty() {
            self.wander();
        } else {
            self.meet_partner(actor);
        }
    }

    /// Comes to a queue together with one of the rivals that it shares it with.
    pub(super) fn meet_partner(&mut self, actor: usize) {
        let partners = &self.scene.actors[actor].partners;
        if partners.is_empty() {
            return;
        }
        let (partner, theirs, own) = partners[self.pick(partners.len())];
        let at = self
            .phasing
            .start(self.scene, partner as usize)
            .saturating_add(theirs);
        self.expect(actor, own, at);
    }

    /// All who come to one place do so earlier or later.
    fn swing(&mut self) {
        let place = self.pick(self.scene.places.len());
        let sending = self.scene.places[place].sending.max(1);
        let step = self.draws.up_to(sending) as i64;
        let by = if self.draws.bits() & 1 == 0 { step } else { -step };
        for index in 0..self.scene.rivals[place].len() {
            let (actor, which) = self.scene.rivals[place][index];
            if which == 0 {
                self.shift(actor as usize, by);
            }
        }
    }
}

pub(super) fn difference(to: u64, from: u64) -> i64 {
    i64::try_from(i128::from(to) - i128::from(from)).unwrap_or(0)
}

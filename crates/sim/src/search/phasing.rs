//! One phasing of all actors: what an evaluation simulates.

use super::scene::{Actor, Scene};
use crate::source::Released;
use timebound_fabric::{Draws, StreamName, Switching};
use timebound_model::Time;

/// Releases of one actor, and of all together, in an evaluation.
const MOST_RELEASES: usize = 1 << 14;

/// How an actor uses its jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lateness {
    /// The first release late by the whole jitter, its successors as soon as they may: the critical instant.
    First,
    /// All releases equally late.
    Even,
    Random,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Gene {
    /// When its first frame would come to the queue where it first meets the target if nobody were in its way, counted from the target's own
    /// arrival there.
    pub(super) offset: i64,
    pub(super) lateness: Lateness,
}

#[derive(Debug, Clone)]
pub(super) struct Phasing {
    /// In order of the actors; the first is the target's, whose offset says nothing.
    pub(super) genes: Vec<Gene>,
    /// When the target is expected in each queue of its path (its first release in the first one, and in the others the release that
    /// takes longest); genes count from here, so that all who come later follow when
    /// an earlier queue holds the target longer.
    pub(super) arrivals: Vec<u64>,
    /// Releases of the target before the one that is late, and that one.
    pub(super) releases: u32,
    /// Where in the conditions' cycle the target's first release falls.
    pub(super) turn: u64,
    pub(super) switching: Switching,
    /// Of the fabric's draws and of random lateness.
    pub(super) seed: u64,
}

/// A release in an evaluation: time, ties (the target last), actor, nominal time.
pub(super) type Planned = (Time, bool, u32, Released);

impl Phasing {
    pub(super) fn start(&self, scene: &Scene, actor: usize) -> u64 {
        if actor == 0 {
            return scene.origin.saturating_add(self.turn);
        }
        let (place, travel) = join(scene, actor);
        let earliest = scene.actors[actor].pattern.jitter;
        self.arrivals[place]
            .saturating_sub(travel)
            .saturating_add_signed(self.genes[actor].offset)
            .max(earliest)
    }

    /// All releases that can matter to what is in the target's last queue until `end`, in the order in which they enter; `remaining` as in
    /// [`Scene`]. Of each actor no more than have their turn in a time, and so many others.
    pub(super) fn plan(
        &self,
        scene: &Scene,
        (end, remaining): (u64, &[u64]),
        (enough, burst): (u64, u64),
        name: StreamName,
        planned: &mut Vec<Planned>,
    ) {
        planned.clear();
        let mut draws = name.draws(self.seed);
        for (index, actor) in scene.actors.iter().enumerate() {
            let most = match index {
                0 => self.releases as usize,
                _ if actor.pattern.once => 1,
                _ => (enough / actor.pattern.period.max(1)).saturating_add(burst) as usize,
            };
            // The target's own are always due, however long they take.
            let end = match index {
                0 => end,
                _ => end.saturating_sub(remaining[actor.stream.index()]),
            };
            self.plan_actor(
                index,
                actor,
                (self.start(scene, index), end, most),
                &mut draws,
                planned,
            );
        }
        planned.sort_unstable_by_key(|release| (release.0, release.1, release.2, release.3.nominal));
    }

    fn plan_actor(
        &self,
        index: usize,
        actor: &Actor,
        (start, end, most): (u64, u64, usize),
        draws: &mut Draws,
        planned: &mut Vec<Planned>,
    ) {
        let (period, jitter) = (actor.pattern.period, actor.pattern.jitter);
        let lateness = self.genes[index].lateness;
        // Nominal times are early by the jitter even where all are equally late: that is what a deadline counts from.
        let mut nominal = start.saturating_sub(jitter);
        let mut last = start;
        for release in 0..most.min(MOST_RELEASES) {
            let late = match lateness {
                Lateness::First => 0,
                Lateness::Even => jitter,
                Lateness::Random => draws.up_to(jitter),
            };
            last = last.max(nominal.saturating_add(late));
            if planned.len() > 4 * MOST_RELEASES || (last >= end && (index > 0 || release > 0)) {
                break;
            }
            planned.push((
                Time(last),
                index == 0,
                index as u32,
                Released {
                    nominal: Time(if actor.pattern.unscheduled { last } else { nominal }),
                    actual: Time(last),
                },
            ));
            nominal = nominal.saturating_add(period);
        }
    }
}

/// The place from which an actor's offset counts, and its way there.
pub(super) fn join(scene: &Scene, actor: usize) -> (usize, u64) {
    let who = &scene.actors[actor];
    match (who.meetings.first(), who.partners.first()) {
        (Some(meeting), _) => (meeting.place, meeting.travel),
        (None, Some((partner, _, travel))) => (
            scene.actors[*partner as usize]
                .meetings
                .first()
                .map_or(0, |meeting| meeting.place),
            *travel,
        ),
        (None, None) => (0, 0),
    }
}

//! Best effort on the way of rivals to the target: a frame at each port before they meet holds the first of them back until the next ones
//! have come, so that they come bunched.

use super::cast::Cast;
use super::cutout::Cutout;
use super::moves::Mover;
use super::scene::{Actor, Group, LONGEST, Rank};
use super::survey::Pattern;
use std::collections::BTreeMap;
use timebound_model::{Class, Discipline, PortId, StreamId, Tree};

/// Ports at which rivals are held back, in a scene.
const MOST_HOLDS: usize = 32;
/// How often a span is grown by what comes in it.
const ROUNDS: u32 = 8;

/// One frame at a port that a rival passes before it meets the target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    /// The frame's actor.
    pub(super) actor: u32,
    /// From the rival's release to that queue if nobody is in its way.
    pub(super) travel: u64,
    pub(super) sending: u64,
}

/// The holds of each actor, in the order of its way; none for most.
#[derive(Debug, Clone, Default)]
pub(super) struct Holds {
    pub(super) of: Vec<Vec<Hold>>,
    /// The first actor that is a hold: all behind it are.
    pub(super) first: usize,
}

impl Holds {
    pub(super) fn is_empty(&self) -> bool {
        self.of.iter().all(Vec::is_empty)
    }

    /// For how long the first frame of an actor can be held back.
    pub(super) fn delay(&self, actor: usize) -> u64 {
        let holds = self.of.get(actor).map_or([].as_slice(), Vec::as_slice);
        holds.iter().map(|hold| hold.sending).fold(0, u64::saturating_add)
    }

    /// A span in which so much is to be sent, with everything that rivals which were held back bring in it.
    pub(super) fn grow(&self, span: u64, actors: &[Actor]) -> u64 {
        if self.is_empty() {
            return span;
        }
        let mut grown = span;
        for _ in 0..ROUNDS {
            let more = actors.iter().enumerate().map(|(index, actor)| {
                let during = grown.saturating_add(self.delay(index));
                let releases = if actor.pattern.once {
                    0
                } else {
                    during / actor.pattern.period
                };
                let sending = actor.meetings.iter().map(|meeting| meeting.sending);
                releases.saturating_mul(sending.fold(0, u64::saturating_add))
            });
            grown = span
                .saturating_add(more.fold(0, u64::saturating_add))
                .min(span.saturating_mul(8));
        }
        grown
    }
}

/// Adds the holds behind all other actors.
pub(super) fn add_holds(cast: &Cast, cut: &mut Cutout, actors: &mut Vec<Actor>, parts: &[StreamId]) -> Holds {
    let survey = cast.survey;
    let frame = survey.network.best_effort_frame;
    let first = actors.len();
    let mut holds = Holds {
        of: vec![Vec::new(); first],
        first,
    };
    let mut known: BTreeMap<PortId, u32> = BTreeMap::new();
    for rival in 1..first {
        let actor = actors[rival].clone();
        // Who is below the target brings one frame, bunched or not.
        let Some(meeting) = actor
            .meetings
            .first()
            .filter(|meeting| meeting.rank != Rank::Lower)
        else {
            continue;
        };
        let (Some(&stream), Some(input)) = (parts.get(actor.stream.index()), meeting.input) else {
            continue;
        };
        let tree = &survey.network.streams[stream.index()].tree;
        let first_frame = actor.pattern.frames.first().copied().unwrap_or_default();
        for hop in way_to(tree, input) {
            let id = tree.hops[hop as usize].port;
            let Some(here) = place_for(cast, cut, id) else {
                continue;
            };
            let next = actors.len() as u32;
            let known_as = known.get(&id).copied();
            if known_as.is_none() {
                if known.len() == MOST_HOLDS {
                    continue;
                }
                known.insert(id, next);
                let stream = cut.add_local(here, Class(0));
                actors.push(Actor {
                    stream,
                    source: cut.network.ports[here.index()].node,
                    pattern: Pattern::once(frame, LONGEST),
                    meetings: Vec::new(),
                    partners: Vec::new(),
                });
            }
            holds.of[rival].push(Hold {
                actor: known_as.unwrap_or(next),
                travel: survey.travel(stream, hop, first_frame).min(LONGEST),
                sending: survey.sending(frame, id),
            });
        }
    }
    holds
}

/// The hops of a way in their order, up to the one at `last`.
fn way_to(tree: &Tree, last: PortId) -> Vec<u32> {
    let mut way = Vec::new();
    let mut at = tree
        .hops
        .iter()
        .position(|hop| hop.port == last)
        .map(|hop| hop as u32);
    while let Some(hop) = at {
        way.push(hop);
        at = tree.hops[hop as usize].parent;
    }
    way.reverse();
    way
}

/// The port's number in the scene, if one frame of best effort can be in the way there, and is not already.
fn place_for(cast: &Cast, cut: &Cutout, id: PortId) -> Option<PortId> {
    let port = &cast.survey.network.ports[id.index()];
    let blocks = match port.discipline {
        Discipline::StrictPriority => cut.has_lowest,
        Discipline::Fifo => true,
        Discipline::Drr(_) => false,
    };
    let frame = port.rate.transmission_time(cast.survey.network.best_effort_frame);
    // One that is longer than every slot would stay there for ever.
    let fits = port.slots.as_ref().is_none_or(|slots| frame <= slots.longest());
    (blocks && fits && !cast.survey.passes(port) && !cast.path.contains(&id))
        .then(|| cut.port(id))
        .flatten()
}

/// The holds of a group's members; those that another group has already are left to it.
pub(super) fn of_group(group: &Group, holds: &Holds, taken: &mut [bool]) -> Vec<u32> {
    let mut found = Vec::new();
    for member in &group.members {
        for hold in &holds.of[*member as usize] {
            if !std::mem::replace(&mut taken[hold.actor as usize], true) {
                found.push(hold.actor);
            }
        }
    }
    found
}

/// An offset at which a hold is over before anybody comes.
pub(super) const FAR: i64 = i64::MIN / 4;

impl Mover<'_> {
    /// Holds back the rivals of every group, so that their first frames come together as late as they would undisturbed.
    pub(super) fn hold_all(&mut self) {
        let scene = self.scene;
        let mut at = vec![None; scene.actors.len()];
        for group in &scene.groups {
            let mut members = group.members.clone();
            members.sort_by_key(|member| (std::cmp::Reverse(scene.holds.delay(*member as usize)), *member));
            for member in members {
                self.hold_with(member as usize, &mut at);
            }
        }
    }

    /// Holds back one rival where it is now.
    pub(super) fn hold_one(&mut self) {
        let scene = self.scene;
        let held: Vec<usize> = (1..scene.holds.first)
            .filter(|actor| !scene.holds.of[*actor].is_empty())
            .collect();
        if held.is_empty() {
            return;
        }
        let actor = held[self.pick(held.len())];
        if self.draws.up_to(1) == 0 {
            return self.hold_with(actor, &mut vec![None; scene.actors.len()]);
        }
        // Somebody in the middle of its releases is held back from some port on.
        let holds = &scene.holds.of[actor];
        let pattern = &scene.actors[actor].pattern;
        let later = self.draws.up_to(3).saturating_mul(pattern.period);
        let start = self.phasing.start(scene, actor).saturating_add(later);
        let from = self.pick(holds.len());
        self.place(&holds[from..], start, &mut vec![None; scene.actors.len()]);
    }

    /// Moves a rival and the frames that hold it: from the first port on at which a frame is due already (`at`), that one holds it as well.
    fn hold_with(&mut self, actor: usize, at: &mut [Option<u64>]) {
        let holds = &self.scene.holds.of[actor];
        let shared = holds.iter().position(|hold| at[hold.actor as usize].is_some());
        let own = &holds[..shared.unwrap_or(holds.len())];
        let delay: u64 = own
            .iter()
            .map(|hold| hold.sending.saturating_sub(1))
            .fold(0, u64::saturating_add);
        let now = self.phasing.start(self.scene, actor);
        let due = shared.and_then(|which| {
            let hold = holds[which];
            at[hold.actor as usize].map(|at| at.saturating_add(1).saturating_sub(hold.travel))
        });
        let start = due.unwrap_or(now).saturating_sub(delay);
        self.shift(actor, super::moves::difference(start, now));
        self.place(own, start, at);
    }

    /// Each frame comes a moment before the first one of a rival that is released then.
    fn place(&mut self, holds: &[Hold], start: u64, at: &mut [Option<u64>]) {
        let mut delay = 0u64;
        for hold in holds {
            let time = start
                .saturating_add(hold.travel)
                .saturating_add(delay)
                .saturating_sub(1);
            self.expect(hold.actor as usize, 0, time);
            at[hold.actor as usize] = Some(time);
            delay = delay.saturating_add(hold.sending.saturating_sub(1));
        }
    }
}

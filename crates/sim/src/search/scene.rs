//! Everything that one receiver's worst case depends on: who can be in its way, where, and the part of the network between them.
//!
//! Rivals share a port with the target's path. Others may delay rivals before they meet the target; they are taken in while there are few.
//! Streams of a lower class are only ever in the way with one frame: where undeclared best effort is as long, that frame stands for them.

use super::cast::Cast;
use super::cutout::{Cutout, cycle};
use super::relevance;
use super::survey::{Pattern, Survey, Target};
use super::upstream::{self, Holds};
use std::collections::BTreeMap;
use std::sync::Arc;
use timebound_model::{Arrival, Discipline, Network, NodeId, PortId, StreamId};

/// Longer times make no better search, and sums of several of them must fit.
pub(super) const LONGEST: u64 = 1 << 56;

/// Frames of best effort that wait together where they have a share.
const FLOOD: usize = 48;

/// Against the target, where the class decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    Higher,
    Same,
    Lower,
}

/// A port of the target's path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// From the target's release to this queue if nobody is in its way.
    pub(super) travel: u64,
    /// Transmission time of the target's first frame.
    pub(super) sending: u64,
}

/// An actor's frame in a queue of the target's path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meeting {
    pub(super) place: usize,
    /// From its release to that queue if nobody is in its way.
    pub(super) travel: u64,
    pub(super) sending: u64,
    pub(super) rank: Rank,
    /// The port before, over which it comes (`None`: it starts here).
    pub(super) input: Option<PortId>,
}

/// A stream of the scene; the target is number 0.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) stream: StreamId,
    pub(super) source: NodeId,
    pub(super) pattern: Pattern,
    /// In order of the target's path; empty for those who only delay rivals (and for the target itself).
    pub(super) meetings: Vec<Meeting>,
    /// Rivals that it can delay: (actor, that one's way to the shared queue, its own).
    pub(super) partners: Vec<(u32, u64, u64)>,
}

/// Rivals that come to a place over the same link.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) place: usize,
    pub(super) rank: Rank,
    pub(super) members: Vec<u32>,
    /// Frames of best effort that hold them back on their way, and move with them.
    pub(super) holds: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Scene {
    pub(super) network: Arc<Network>,
    pub(super) actors: Vec<Actor>,
    pub(super) places: Vec<Place>,
    /// Per place the actors that can be met there, and which of their meetings it is.
    pub(super) rivals: Vec<Vec<(u32, u32)>>,
    pub(super) groups: Vec<Group>,
    pub(super) holds: Holds,
    /// Per port of the scene its place, `u32::MAX` off the path.
    pub(super) place_of: Vec<u32>,
    /// Per stream of the scene the least time from a release to an effect on the target's last queue.
    pub(super) remaining: Vec<u64>,
    /// Streams that promise nothing and release by their own pattern.
    pub(super) others: Vec<StreamId>,
    /// The target's first release, as early as everybody else can be aligned with it.
    pub(super) origin: u64,
    /// Conditions repeat after so long, or have ended; zero where they are always the same.
    pub(super) cycle: u64,
    /// Does anything but the phasing decide what happens?
    pub(super) is_random: bool,
    /// No response time is expected to be longer: where a first evaluation stops to release anything.
    pub(super) span: u64,
}

impl Scene {
    pub(super) fn new(survey: &Survey, target: Target, best_effort: bool) -> (Self, Cutout) {
        let mut cast = Cast::new(survey, target, best_effort);
        cast.add_rivals();
        let encounters = cast.add_delayers();
        let mut cut = Cutout::new(survey, &cast.parts);
        let mut actors: Vec<Actor> = Vec::new();
        let mut others = Vec::new();
        // Part -> actor.
        let mut role = vec![None; cast.parts.len()];
        for (part, place) in role.iter_mut().enumerate() {
            match actor(&cast, &cut, part) {
                Some(found) => {
                    *place = Some(actors.len() as u32);
                    actors.push(found);
                }
                None => others.push(StreamId::new(part)),
            }
        }
        for (part, own, rival, hop) in encounters {
            if let (Some(actor), Some(rival_actor)) = (role[part], role[rival]) {
                let (stream, other) = (cast.parts[part].stream, cast.parts[rival].stream);
                let frame = |id: u32| {
                    actors[id as usize]
                        .pattern
                        .frames
                        .first()
                        .copied()
                        .unwrap_or_default()
                };
                let theirs = survey.travel(other, hop, frame(rival_actor)).min(LONGEST);
                let own = survey.travel(stream, own, frame(actor)).min(LONGEST);
                actors[actor as usize].partners.push((rival_actor, theirs, own));
            }
        }
        if best_effort && survey.network.best_effort_frame.0 > 0 {
            add_best_effort(&cast, &mut cut, &mut actors);
        }
        let holds = if best_effort && survey.network.best_effort_frame.0 > 0 {
            let streams: Vec<StreamId> = cast.parts.iter().map(|part| part.stream).collect();
            upstream::add_holds(&cast, &mut cut, &mut actors, &streams)
        } else {
            Holds {
                of: vec![Vec::new(); actors.len()],
                first: actors.len(),
            }
        };
        let scene = assemble(&cast, &mut cut, (actors, holds), others);
        (scene, cut)
    }
}

/// What a part of the cast does; `None` if it keeps to a pattern of its own.
fn actor(cast: &Cast, cut: &Cutout, part: usize) -> Option<Actor> {
    let survey = cast.survey;
    let stream = cast.parts[part].stream;
    let declared = &survey.network.streams[stream.index()];
    let lower = |(_, place): &(u32, usize)| cast.rank(stream, cast.path[*place]) == Rank::Lower;
    let pattern = match (&declared.arrival, survey.pattern(stream)) {
        (_, Some(pattern)) => pattern,
        // Below the target it may send whenever it likes.
        (Arrival::Unbounded { max_frame }, None)
            if !cast.met[part].is_empty() && cast.met[part].iter().all(lower) =>
        {
            Pattern::once(*max_frame, LONGEST)
        }
        _ => return None,
    };
    let frame = pattern.frames.first().copied().unwrap_or_default();
    let mut meetings: Vec<Meeting> = cast.met[part]
        .iter()
        .map(|&(hop, place)| Meeting {
            place,
            travel: survey.travel(stream, hop, frame).min(LONGEST),
            sending: survey.sending(frame, cast.path[place]),
            rank: cast.rank(stream, cast.path[place]),
            input: declared.tree.hops[hop as usize]
                .parent
                .map(|hop| declared.tree.hops[hop as usize].port),
        })
        .collect();
    meetings.sort_by_key(|meeting| meeting.place);
    Some(Actor {
        stream: StreamId::new(part),
        source: cut.network.streams[part].source,
        pattern: Pattern {
            period: pattern.period.min(LONGEST),
            jitter: pattern.jitter.min(LONGEST),
            ..pattern
        },
        meetings,
        partners: Vec::new(),
    })
}

/// Undeclared best effort at every port of the path: one frame below every class, or somewhere in the one queue; at a weighted port, where it
/// has a share of its own, as much as that lets through.
fn add_best_effort(cast: &Cast, cut: &mut Cutout, actors: &mut Vec<Actor>) {
    let frame = cast.survey.network.best_effort_frame;
    for (place, &id) in cast.path.iter().enumerate() {
        let port = &cast.survey.network.ports[id.index()];
        let class = cut.best_effort_class(&port.discipline);
        let (rank, frames) = match port.discipline {
            Discipline::StrictPriority if cut.has_lowest => (Rank::Lower, 1),
            Discipline::Fifo => (Rank::Same, 1),
            Discipline::Drr(_) if class == cut.network.streams[0].class => (Rank::Same, 1),
            Discipline::Drr(_) => (Rank::Same, FLOOD),
            Discipline::StrictPriority => continue,
        };
        // One that is longer than every slot would stay there for ever.
        let fits = port
            .slots
            .as_ref()
            .is_none_or(|slots| port.rate.transmission_time(frame) <= slots.longest());
        let Some(here) = cut.port(id).filter(|_| fits && !cast.survey.passes(port)) else {
            continue;
        };
        let stream = cut.add_local(here, class);
        actors.push(Actor {
            stream,
            source: cut.network.ports[here.index()].node,
            pattern: Pattern {
                frames: vec![frame; frames],
                ..Pattern::once(frame, LONGEST)
            },
            meetings: vec![Meeting {
                place,
                travel: 0,
                sending: cast.survey.sending(frame, id),
                rank,
                input: None,
            }],
            partners: Vec::new(),
        });
    }
}

fn assemble(
    cast: &Cast,
    cut: &mut Cutout,
    (actors, holds): (Vec<Actor>, Holds),
    others: Vec<StreamId>,
) -> Scene {
    let survey = cast.survey;
    let target = &actors[0];
    let tree = &survey.network.streams[cast.target.stream.index()].tree;
    let hops = tree.path(tree.leaves[cast.target.leaf as usize]);
    let first = target.pattern.frames.first().copied().unwrap_or_default();
    let whole = |port: PortId| {
        target
            .pattern
            .frames
            .iter()
            .map(|frame| survey.sending(*frame, port))
            .fold(0, u64::saturating_add)
    };
    let places: Vec<Place> = hops
        .iter()
        .zip(&cast.path)
        .map(|(hop, port)| Place {
            travel: survey.travel(cast.target.stream, *hop, first).min(LONGEST),
            sending: survey.sending(first, *port),
        })
        .collect();
    let mut place_of = vec![u32::MAX; cut.network.ports.len()];
    for (place, port) in cast.path.iter().enumerate() {
        if let Some(port) = cut.port(*port) {
            place_of[port.index()] = place as u32;
        }
    }
    let mut rivals = vec![Vec::new(); places.len()];
    let mut groups: BTreeMap<(usize, PortId), Group> = BTreeMap::new();
    for (index, actor) in (0u32..).zip(&actors) {
        for (which, meeting) in (0u32..).zip(&actor.meetings) {
            rivals[meeting.place].push((index, which));
            if let (0, Some(input)) = (which, meeting.input) {
                let group = Group {
                    place: meeting.place,
                    rank: meeting.rank,
                    members: Vec::new(),
                    holds: Vec::new(),
                };
                groups
                    .entry((meeting.place, input))
                    .or_insert(group)
                    .members
                    .push(index);
            }
        }
    }
    let alone: u64 = cast
        .path
        .iter()
        .map(|port| whole(*port))
        .fold(0, u64::saturating_add);
    let last = cast.path.last().map_or(0, |port| {
        survey.crossing(&survey.network.ports[port.index()]).min(LONGEST)
    });
    let travel = places.last().map_or(0, |place| place.travel);
    // Once for every rival, twice over: the search extends it where more is found.
    let queued: u64 = actors
        .iter()
        .flat_map(|actor| &actor.meetings)
        .map(|meeting| meeting.sending)
        .fold(0, u64::saturating_add);
    let span = travel
        .saturating_add(alone)
        .saturating_add(last)
        .saturating_add(queued.saturating_mul(2))
        .min(LONGEST);
    let span = holds.grow(span, &actors).min(LONGEST);
    let reach = actors
        .iter()
        .enumerate()
        .map(|(index, actor)| {
            let way = actor
                .meetings
                .iter()
                .map(|meeting| meeting.travel)
                .chain(actor.partners.iter().map(|partner| partner.2))
                .max()
                .unwrap_or(0);
            way.saturating_add(holds.delay(index))
                .saturating_add(actor.pattern.jitter)
                .saturating_add(if actor.pattern.once {
                    0
                } else {
                    actor.pattern.period.saturating_mul(2).min(span.saturating_mul(8))
                })
        })
        .max()
        .unwrap_or(0);
    let is_random = is_random(&cut.network, &actors);
    let remaining = match cast.path.last().and_then(|port| cut.port(*port)) {
        Some(last) => relevance::remaining(&cut.network, last),
        None => vec![0; cut.network.streams.len()],
    };
    let cycle = cycle(&cut.network);
    let mut groups: Vec<Group> = groups.into_values().collect();
    let mut taken = vec![false; actors.len()];
    for group in &mut groups {
        group.holds = upstream::of_group(group, &holds, &mut taken);
    }
    Scene {
        network: Arc::new(cut.take_network()),
        actors,
        places,
        rivals,
        groups,
        holds,
        place_of,
        remaining,
        others,
        origin: reach.saturating_add(span.saturating_mul(2)).min(LONGEST * 16),
        cycle,
        is_random,
        span,
    }
}

fn is_random(network: &Network, actors: &[Actor]) -> bool {
    let late = actors.iter().any(|actor| actor.pattern.jitter > 0);
    let switches = network
        .nodes
        .iter()
        .any(|node| node.switching_min != node.switching_max);
    late || switches
        || network
            .ports
            .iter()
            .any(|port| port.impairments != timebound_model::Impairments::default())
}

//! Simulates one phasing and watches the target on its way; nothing is allocated again from one evaluation to the next.

use super::machine::Machine;
use super::moments::Moment;
use super::phasing::{Phasing, Planned};
use super::scene::{Actor, Scene};
use crate::source::{Released, Source};
use crate::tally::frame_of;
use std::sync::Arc;
use timebound_fabric::{Change, DropReason, Fabric, Frame, NO_LEAF, Sink, StreamName, Ties};
use timebound_model::{NodeId, PortId, StreamId, Time, WireBytes};

/// Steps in which an evaluation waits for the target, in parts of the time that it is expected to need.
const STEPS: u64 = 64;
/// Releases of each stream that promises nothing, in an evaluation.
const MOST_OTHERS: usize = 1 << 14;
/// Releases in an evaluation of a target without a bound, and as many again that jitter without a limit lets come in one instant. Its queue may
/// grow for ever: then a longer evaluation finds more each time, says nothing new, and takes minutes.
const MOST_UNBOUNDED: u64 = 1 << 12;
/// No frame is on its way for ever, but outages can make it seem so.
const MOST_STEPS: u32 = 1 << 12;

/// No visit.
const NOWHERE: (u32, u32) = (u32::MAX, u32::MAX);

/// A frame in a queue of the target's path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visit {
    pub(super) actor: u32,
    handle: u32,
    tag: u32,
    pub(super) arrived: u64,
    /// Its transmission; `u64::MAX` where that was not seen.
    pub(super) started: u64,
    /// Since when the port had been sending without a pause when it started.
    pub(super) busy_since: u64,
}

impl Visit {
    pub(super) fn new(actor: u32, (handle, tag): (u32, u32), arrived: u64) -> Self {
        Self {
            actor,
            handle,
            tag,
            arrived,
            started: u64::MAX,
            busy_since: u64::MAX,
        }
    }

    pub(super) fn start(&mut self, started: u64, busy_since: u64) {
        (self.started, self.busy_since) = (started, busy_since);
    }
}

/// What an evaluation says about its target.
#[derive(Debug, Clone, Default)]
pub(super) struct Finding {
    /// 0 where it never arrived.
    pub(super) latency: u64,
    pub(super) from_nominal: u64,
    /// Of the release that took longest.
    handle: u32,
    /// Per place all frames in the order in which they came.
    pub(super) visits: Vec<Vec<Visit>>,
}

impl Finding {
    pub(super) fn clear(&mut self, places: usize) {
        self.visits.iter_mut().for_each(Vec::clear);
        self.visits.resize_with(places, Vec::new);
        (self.latency, self.from_nominal, self.handle) = (0, 0, 0);
    }

    /// A frame of the target has arrived.
    pub(super) fn delivered(&mut self, at: u64, released: Released, handle: u32) {
        let latency = at.saturating_sub(released.actual.0);
        self.from_nominal = self.from_nominal.max(at.saturating_sub(released.nominal.0));
        if latency > self.latency {
            (self.latency, self.handle) = (latency, handle);
        }
    }

    /// The last frame of the release that took longest, in the queue at `place`.
    pub(super) fn own(&self, place: usize) -> Option<&Visit> {
        self.visits[place]
            .iter()
            .rev()
            .find(|visit| visit.actor == 0 && visit.handle == self.handle)
    }

    /// When the release that took longest came to each queue; to the first one, when the first release did.
    pub(super) fn arrivals(&self, into: &mut Vec<u64>) -> bool {
        into.clear();
        for (place, visits) in self.visits.iter().enumerate() {
            let mut own = visits.iter().filter(|visit| visit.actor == 0);
            let Some(visit) = own.find(|visit| place == 0 || visit.handle == self.handle) else {
                return false;
            };
            into.push(visit.arrived);
        }
        true
    }
}

#[derive(Debug, Default)]
struct Watch {
    /// Per port of the scene its place, `u32::MAX` off the path.
    place_of: Vec<u32>,
    /// Per stream of the scene its actor, `u32::MAX` if it is none.
    actor_of: Vec<u32>,
    visits: Vec<Vec<Visit>>,
    /// Per release its latest visit, as place and position, and for every visit the one of its release before: a release of several frames
    /// has as many under way.
    latest: Vec<(u32, u32)>,
    before: Vec<Vec<(u32, u32)>>,
    /// Per place: end of the last transmission, and since when the port has been sending without a pause.
    busy: Vec<(u64, u64)>,
    releases: Vec<Released>,
    /// Handles of the target's releases.
    own: Vec<u32>,
    /// Copies of the target's frames under way or still to come.
    left: u64,
    /// Worst latency and its release, and the worst from a nominal release.
    worst: (u64, u32),
    from_nominal: u64,
}

impl Watch {
    fn clear(&mut self) {
        self.visits.iter_mut().for_each(Vec::clear);
        self.before.iter_mut().for_each(Vec::clear);
        self.latest.clear();
        self.busy.fill((u64::MAX, 0));
        self.releases.clear();
        self.own.clear();
        (self.left, self.worst, self.from_nominal) = (0, (0, 0), 0);
    }

    #[inline]
    fn place(&self, port: PortId) -> Option<usize> {
        let place = self.place_of[port.index()];
        (place != u32::MAX).then_some(place as usize)
    }
}

impl Sink for Watch {
    const TRANSMISSIONS: bool = true;
    const ARRIVALS: bool = true;

    fn delivered(&mut self, at: Time, _: NodeId, leaf: u32, frame: &Frame, damaged: bool) {
        if frame.stream != 0 || leaf == NO_LEAF {
            return;
        }
        self.left -= 1;
        if damaged {
            return;
        }
        let released = self.releases[frame.handle as usize];
        let latency = at.since(released.actual).0;
        self.from_nominal = self.from_nominal.max(at.since(released.nominal).0);
        if latency > self.worst.0 {
            self.worst = (latency, frame.handle);
        }
    }

    fn dropped(&mut self, _: Time, _: Option<PortId>, frame: &Frame, _: DropReason) {
        self.left -= u64::from(frame.stream == 0);
    }

    fn copied(&mut self, handle: u32, extra: u32) {
        if self.own.contains(&handle) {
            self.left += u64::from(extra);
        }
    }

    #[inline]
    fn queued(&mut self, port: PortId, at: Time, frame: &Frame) {
        let Some(place) = self.place(port) else { return };
        let here = (place as u32, self.visits[place].len() as u32);
        self.before[place].push(std::mem::replace(&mut self.latest[frame.handle as usize], here));
        let actor = self.actor_of[frame.stream as usize];
        self.visits[place].push(Visit::new(actor, (frame.handle, frame.tag as u32), at.0));
    }

    #[inline]
    fn transmitted(&mut self, port: PortId, started: Time, ended: Time, frame: &Frame) {
        let Some(place) = self.place(port) else { return };
        let busy = &mut self.busy[place];
        if busy.0 != started.0 {
            busy.1 = started.0;
        }
        busy.0 = ended.0;
        let visits = &mut self.visits[place];
        let waits = |visit: &Visit| {
            visit.started == u64::MAX && visit.handle == frame.handle && visit.tag == frame.tag as u32
        };
        let mut at = self.latest[frame.handle as usize];
        while at != NOWHERE && !(at.0 as usize == place && waits(&visits[at.1 as usize])) {
            at = self.before[at.0 as usize][at.1 as usize];
        }
        let waiting = visits.get_mut(at.1 as usize).filter(|_| at != NOWHERE);
        if let Some(visit) = waiting {
            visit.start(started.0, busy.1);
        }
    }
}

#[derive(Debug)]
pub(super) struct Evaluator<'a> {
    pub(super) scene: &'a Scene,
    /// Where the scene is plain enough for it.
    machine: Option<Machine>,
    /// Made when it is first needed.
    fabric: Option<Fabric>,
    watch: Watch,
    planned: Vec<Planned>,
    /// Releases of streams that promise nothing: time, and which of them.
    unplanned: Vec<(Time, u32)>,
    before: Vec<Change>,
    at: Vec<Change>,
    name: StreamName,
    /// How long the target is expected to need: nobody releases anything later.
    expected: u64,
    /// No more than this, as an analysis says.
    longest: u64,
    /// However much was found, as much time as this is enough.
    enough: u64,
    /// Releases of an actor beyond those whose turn comes in that time.
    burst: u64,
    /// Per stream of the scene the least time from a release to an effect on the target's last queue.
    remaining: Vec<u64>,
}

impl<'a> Evaluator<'a> {
    /// `longest`: the longest that an analysis says the target takes.
    pub(super) fn new(scene: &'a Scene, moment: Moment, longest: Option<u64>) -> Self {
        let mut actor_of = vec![u32::MAX; scene.network.streams.len()];
        for (index, actor) in (0u32..).zip(&scene.actors) {
            actor_of[actor.stream.index()] = index;
        }
        let watch = Watch {
            place_of: scene.place_of.clone(),
            actor_of,
            visits: vec![Vec::new(); scene.places.len()],
            before: vec![Vec::new(); scene.places.len()],
            busy: vec![(u64::MAX, 0); scene.places.len()],
            ..Watch::default()
        };
        // Neither an analysis nor the scene knows conditions that change.
        let changes = !moment.before.is_empty() || !moment.at.is_empty();
        let longest = longest.filter(|_| !changes).unwrap_or(u64::MAX);
        let remaining = match changes {
            true => vec![0; scene.network.streams.len()],
            false => scene.remaining.clone(),
        };
        let (enough, burst) = match longest {
            u64::MAX => (
                time_of(MOST_UNBOUNDED, &scene.actors).max(scene.span),
                MOST_UNBOUNDED / scene.actors.len().max(1) as u64 + 1,
            ),
            _ => (u64::MAX, u64::MAX),
        };
        Self {
            scene,
            machine: Machine::new(scene).filter(|_| !changes),
            fabric: None,
            watch,
            planned: Vec::new(),
            unplanned: Vec::new(),
            before: moment.before,
            at: moment.at,
            name: StreamName::new("phasing", "lateness"),
            expected: scene.span.min(longest),
            longest,
            enough,
            burst,
            remaining,
        }
    }

    /// The most that was found so far: what may be released later than somewhat beyond it cannot matter.
    pub(super) fn expect(&mut self, latency: u64) {
        let slack = self
            .scene
            .places
            .iter()
            .map(|place| place.sending)
            .max()
            .unwrap_or(0)
            .saturating_mul(4);
        self.expected = (latency + latency / 4)
            .saturating_add(slack)
            .min(self.scene.span.min(self.longest).max(latency))
            .min(self.enough);
    }

    /// Simulates the phasing; what it says about the target goes to `finding`, whose memory is used again. Broken off by `stop`, it
    /// says what was seen until then.
    pub(super) fn evaluate(&mut self, phasing: &Phasing, finding: &mut Finding, stop: &dyn Fn() -> bool) {
        let origin = phasing.start(self.scene, 0);
        self.watch.clear();
        let own =
            u64::from(phasing.releases.saturating_sub(1)).saturating_mul(self.scene.actors[0].pattern.period);
        let end = origin.saturating_add(self.expected).saturating_add(own);
        let most = (self.enough, self.burst);
        phasing.plan(
            self.scene,
            (end, &self.remaining),
            most,
            self.name,
            &mut self.planned,
        );
        let sources = self.list_others(phasing, origin, end);
        let mut machine = self.machine.take();
        let actors = &self.scene.actors;
        let planned = self
            .planned
            .iter()
            .map(|release| actors[release.2 as usize].stream);
        let others = self.unplanned.iter().map(|other| sources[other.1 as usize].0);
        match &mut machine {
            Some(machine) if machine.has_room(planned.chain(others)) => {
                self.enter(&sources, |watch, stream, _, released, _| {
                    machine.enter(stream, released.actual.0, watch.releases.len() as u32);
                });
                let watch = &self.watch;
                let how = (phasing.switching, phasing.seed);
                machine.run(self.scene, how, (&watch.releases, &watch.actor_of), finding);
            }
            _ => self.by_fabric(phasing, (origin, own), &sources, finding, stop),
        }
        self.machine = machine;
    }

    fn by_fabric(
        &mut self,
        phasing: &Phasing,
        (origin, own): (u64, u64),
        sources: &[(StreamId, Vec<WireBytes>)],
        finding: &mut Finding,
        stop: &dyn Fn() -> bool,
    ) {
        let scene = self.scene;
        let mut fabric = match self.fabric.take() {
            Some(fabric) => fabric,
            None => Fabric::new(Arc::clone(&scene.network), 0),
        };
        fabric.reset(phasing.seed);
        fabric.set_switching(phasing.switching);
        // Of two that come at one instant the first to enter goes first, as if it had come the least moment before.
        fabric.set_ties(Ties::ByArrival);
        for change in &self.before {
            fabric.schedule(Time(0), change.clone());
        }
        // The changes come where the releases are aligned, so that frames wait and are under way.
        for change in &self.at {
            fabric.schedule(Time(origin), change.clone());
        }
        self.enter(sources, |watch, stream, source, released, frames| {
            let handle = watch.releases.len() as u32;
            for (position, wire) in (0u64..).zip(frames) {
                let frame = frame_of(&scene.network, stream, handle, position, *wire);
                fabric.ingress(released.actual, source, frame);
            }
        });
        let step = (self.expected / STEPS).max(1);
        let mut until = origin.saturating_add(own);
        for _ in 0..MOST_STEPS {
            fabric.advance(Time(until), &mut self.watch);
            let Some(next) = fabric.next_timeout().filter(|_| self.watch.left > 0) else {
                break;
            };
            if stop() {
                break;
            }
            until = until.saturating_add(step).max(next.0);
        }
        self.fabric = Some(fabric);
        let (latency, handle) = self.watch.worst;
        finding.latency = latency;
        finding.from_nominal = self.watch.from_nominal;
        finding.handle = handle;
        std::mem::swap(&mut finding.visits, &mut self.watch.visits);
        self.watch.visits.resize_with(self.scene.places.len(), Vec::new);
    }

    /// Hands all releases over in order of time: the fabric sorts what comes late in among all that waits.
    fn enter(
        &mut self,
        sources: &[(StreamId, Vec<WireBytes>)],
        mut release: impl FnMut(&Watch, StreamId, NodeId, Released, &[WireBytes]),
    ) {
        let (scene, watch) = (self.scene, &mut self.watch);
        let mut others = self.unplanned.iter().peekable();
        let mut planned = self.planned.iter().peekable();
        loop {
            let first = planned.peek().map(|release| release.0);
            if let Some(&(at, which)) = others.next_if(|other| first.is_none_or(|first| other.0 < first)) {
                let (stream, frames) = &sources[which as usize];
                let released = Released {
                    nominal: at,
                    actual: at,
                };
                let source = scene.network.streams[stream.index()].source;
                release(watch, *stream, source, released, frames);
                watch.releases.push(released);
            } else if let Some(&(_, _, actor, released)) = planned.next() {
                let actor = &scene.actors[actor as usize];
                let frames = &actor.pattern.frames;
                if actor.stream.0 == 0 {
                    watch.left += frames.len() as u64;
                    watch.own.push(watch.releases.len() as u32);
                }
                release(watch, actor.stream, actor.source, released, frames);
                watch.releases.push(released);
            } else {
                break;
            }
        }
        watch.latest.resize(watch.releases.len(), NOWHERE);
    }

    /// Releases of all streams that promise nothing, in order of time; returns what each of them sends at a time.
    fn list_others(&mut self, phasing: &Phasing, origin: u64, end: u64) -> Vec<(StreamId, Vec<WireBytes>)> {
        let scene = self.scene;
        self.unplanned.clear();
        let mut sources = Vec::with_capacity(scene.others.len());
        let most = match self.burst {
            u64::MAX => MOST_OTHERS,
            _ => MOST_UNBOUNDED as usize / scene.others.len().max(1) + 1,
        };
        for (which, &stream) in (0u32..).zip(&scene.others) {
            let source = Source::new(&scene.network.streams[stream.index()], phasing.seed);
            let frames = source.frames().to_vec();
            let end = end.saturating_sub(self.remaining[stream.index()]);
            // Their patterns start at zero: early enough to be under way when the target comes.
            let start = origin.saturating_sub(2 * scene.span);
            let releases = source
                .take(if frames.is_empty() { 0 } else { most })
                .map(|released| Time(released.actual.0.saturating_add(start)))
                .take_while(|at| at.0 < end);
            self.unplanned.extend(releases.map(|at| (at, which)));
            sources.push((stream, frames));
        }
        self.unplanned.sort_by_key(|other| other.0);
        sources
    }
}

/// How long these take for so many releases together.
fn time_of(releases: u64, actors: &[Actor]) -> u64 {
    let again = actors.iter().filter(|actor| !actor.pattern.once);
    let per_nanosecond: f64 = again.map(|actor| 1.0 / actor.pattern.period.max(1) as f64).sum();
    (releases as f64 / per_nanosecond) as u64
}

#[cfg(test)]
impl Evaluator<'_> {
    pub(super) fn has_machine(&self) -> bool {
        self.machine.is_some()
    }

    pub(super) fn saw_a_tie(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.tie)
    }

    /// Releases of the last evaluation.
    pub(super) fn planned(&self) -> usize {
        self.planned.len() + self.unplanned.len()
    }

    /// Everything by the fabric, also what is plain enough for the machine.
    pub(super) fn with_fabric(self) -> Self {
        Self {
            machine: None,
            ..self
        }
    }
}

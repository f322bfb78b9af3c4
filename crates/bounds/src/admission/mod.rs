//! Admission: may this stream join, at once and exactly as a full analysis would say?
//!
//! [`Admission`] keeps the bounds of all streams of a network and follows every change of one stream to the numbers that depend on it,
//! and to no others. Whatever it says of them is what [`crate::analyse`] with [`crate::Method::PortByPort`] says of the network as it
//! is; some are worked out only when somebody asks. What a decision demands is [`Admission::add`]'s to say.
//!
//! | file | what |
//! |---|---|
//! | `state` | who is where: flows, slots, groups, levels |
//! | `slots` | room for streams that come and go |
//! | `ranks` | in which order levels are looked at |
//! | `settle` | from a change to the numbers that follow |
//! | `evaluate` | what a level answers |
//! | `ahead` | an answer before the bounds are worked out |
//! | `sweep` | responses when frames arrive later |
//! | `facts` | how far jitters may move up while responses stay |
//! | `windows` | which frames of a level can matter then, where they do not stay |
//! | `links` | who feeds whom, and what a look at a port needs |
//! | `prepare` | what is made ready between requests |
//! | `leeway` | what need not be worked out again |
//! | `cycles` | where a cycle may begin again after something became less |
//! | `journal` | undoing, and comparing with before |
//! | `verdict` | what a change would break |
//! | `reason` | why there is no bound |
//! | `search` | what would still be admitted |

mod ahead;
mod cycles;
mod evaluate;
mod facts;
mod journal;
mod leeway;
mod links;
mod prepare;
mod ranks;
mod reason;
mod search;
mod settle;
mod slots;
mod state;
mod sweep;
mod verdict;
mod windows;

pub use search::Alternatives;
pub use verdict::{Breach, Refusal};

use crate::exact::{self, Exact};
use crate::layout::crossing;
use crate::report;
use crate::result::{HopResult, LeafResult, Outcome, StreamResult, Utilisation};
use ahead::Ahead;
use journal::Journal;
use ranks::{Queue, Ranks};
use settle::{Moves, Worker};
use state::State;
use std::collections::BTreeMap;
use timebound_model::{Leaf, Network, PortId, Span, Stream, StreamId};

/// What admission takes into account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionOptions {
    /// As [`crate::Options::assume_best_effort`].
    pub assume_best_effort: bool,
    /// Refuse what could make the queue of a class exceed its room, too.
    pub check_buffers: bool,
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        Self {
            assume_best_effort: true,
            check_buffers: false,
        }
    }
}

/// Why a request is no change that could be decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misuse {
    /// A stream of this name is there already.
    Duplicate(String),
    /// No stream has this id.
    Unknown(StreamId),
}

impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Duplicate(name) => write!(f, "a stream named {name:?} is there already"),
            Self::Unknown(id) => write!(f, "there is no stream with id {}", id.0),
        }
    }
}

impl std::error::Error for Misuse {}

/// The answer to a request.
pub type Decision = Result<Admitted, Refusal>;

/// A stream that joined, or would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    pub id: StreamId,
    /// Its own bounds.
    pub result: StreamResult,
    /// Streams whose bounds changed, itself included.
    pub touched: usize,
}

/// Bounds of all streams of a network, kept while streams join, leave and change. It may be sent to another thread.
#[derive(Debug)]
pub struct Admission {
    /// Without streams, in ticks.
    network: Network,
    /// As it was declared, and its streams, where ticks are no nanoseconds.
    declared: Option<Declared>,
    options: AdmissionOptions,
    state: State,
    ranks: Ranks,
    queue: Queue,
    journal: Journal,
    worker: Worker,
    names: BTreeMap<String, u32>,
    ahead: Ahead,
    owed: Owed,
}

/// What was declared, in nanoseconds.
#[derive(Debug)]
struct Declared {
    network: Network,
    streams: BTreeMap<u32, Stream>,
}

/// What changed since the bounds were last worked out.
#[derive(Debug, Default)]
struct Owed {
    levels: Vec<u32>,
    streams: Vec<u32>,
    /// May anything have become less?
    less: bool,
}

/// A stream that joined; its bounds are [`Admission::result`]'s to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    pub id: StreamId,
}

impl Admission {
    /// The network with all its streams, which are there without being asked about: also where they miss deadlines. Their ids are
    /// those that they have in the network.
    #[must_use]
    pub fn new(network: &Network, options: AdmissionOptions) -> Self {
        let mut ranks = Ranks::new(network);
        network
            .streams
            .iter()
            .for_each(|stream| ranks.learn(&stream.tree));
        let exact = Exact::of(network);
        let mut empty = exact.network().clone();
        let streams = std::mem::take(&mut empty.streams);
        let declared = exact.is_finer().then(|| Declared {
            network: Network {
                streams: Vec::new(),
                ..network.clone()
            },
            streams: (0..).zip(network.streams.iter().cloned()).collect(),
        });
        let mut admission = Self {
            state: State::new(&empty, options.assume_best_effort),
            network: empty,
            declared,
            options,
            ranks,
            queue: Queue::default(),
            journal: Journal::default(),
            worker: Worker::new(),
            names: BTreeMap::new(),
            ahead: Ahead::default(),
            owed: Owed::default(),
        };
        admission.journal.begin(&mut admission.state);
        admission.sort();
        let mut dirty = Vec::new();
        for stream in streams {
            let name = stream.name.clone();
            let id = admission.state.allot(&admission.network, stream);
            admission.names.insert(name, id);
            admission.state.attach(&admission.network, id, None, &mut dirty);
            admission.mark(&dirty);
            dirty.clear();
            admission.mark_stream(id);
        }
        // Nothing refuses a network that is already there: cycles that do not settle get no bound.
        let _ = admission.follow_all(Moves::Up, true);
        admission.prepare();
        admission.journal.begin(&mut admission.state);
        admission
    }

    fn sort(&mut self) {
        self.ranks.sort(&self.state);
        self.queue.fit(self.ranks.order.len());
    }

    fn mark_stream(&mut self, id: u32) {
        let Some(entry) = &self.state.streams[id as usize] else {
            return;
        };
        let hops = entry.stream.tree.hops.len();
        let flows = entry
            .flows
            .iter()
            .filter_map(|flow| self.state.flows[*flow as usize].as_ref());
        let firsts: Vec<usize> = flows.map(|flow| flow.first_hop).collect();
        for first in firsts {
            (first..first + hops).for_each(|slot| self.mark_slot(slot as u32));
        }
    }

    /// May this stream join? If so it does.
    ///
    /// It may if, with it, every stream with a deadline (it and those that are there) has a bound from the nominal release of at most
    /// that, every port on its way stays below utilisation 1, and, with [`AdmissionOptions::check_buffers`], no queue of a class can
    /// exceed its room. What was broken before does not count against it unless it makes it worse. After a refusal
    /// everything is as it was.
    ///
    /// # Errors
    /// [`Misuse::Duplicate`].
    pub fn add(&mut self, stream: Stream) -> Result<Decision, Misuse> {
        self.is_free(&stream.name, None)?;
        Ok(self.exchange(None, stream, true))
    }

    /// May this stream join? If so it does. The answer is that of [`Admission::add`], but it need not wait for the new bounds: where a
    /// proof does without them that nobody will miss a deadline, they are worked out by [`Admission::settle`], or as soon as somebody asks for
    /// one of them. Such requests may follow one another.
    ///
    /// # Errors
    /// [`Misuse::Duplicate`].
    pub fn decide(&mut self, stream: Stream) -> Result<Result<Joined, Refusal>, Misuse> {
        self.is_free(&stream.name, None)?;
        if let Some(id) = self.answer_ahead(&stream, true) {
            return Ok(Ok(Joined { id }));
        }
        let decision = self.exchange(None, stream, true);
        Ok(decision.map(|admitted| Joined { id: admitted.id }))
    }

    /// The id of the stream if it is sure that it may join; with `keep` it then does.
    fn answer_ahead(&mut self, stream: &Stream, keep: bool) -> Option<StreamId> {
        if self.options.check_buffers {
            return None;
        }
        // What was late before a stream left may be in time now, and may then not be late again.
        if self.owed.less && self.is_any_late() {
            self.catch_up();
        }
        let was_settled = self.is_settled();
        let found = self.join_ahead(stream, keep);
        if found.is_some() || was_settled {
            return found;
        }
        self.catch_up();
        self.join_ahead(stream, keep)
    }

    fn join_ahead(&mut self, stream: &Stream, keep: bool) -> Option<StreamId> {
        self.ranks.learn(&stream.tree);
        self.sort();
        let fine = exact::stream(&self.network, stream.clone());
        let new = self.state.allot(&self.network, fine);
        let mut dirty = Vec::new();
        self.state.attach(&self.network, new, None, &mut dirty);
        let sure = self.overloads(new, &[]).is_empty() && self.is_sure(new, &dirty);
        if sure && keep {
            if let Some(declared) = &mut self.declared {
                declared.streams.insert(new, stream.clone());
            }
            self.join_windows(&dirty);
            self.owed.levels.append(&mut dirty);
            self.owed.streams.push(new);
            self.names.insert(stream.name.clone(), new);
        } else {
            if sure {
                self.retract(&dirty);
            }
            self.state.detach(&self.network, new, &mut dirty);
            self.state.release(new);
        }
        sure.then_some(verdict::public(new))
    }

    /// Are all bounds worked out?
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.owed.levels.is_empty() && self.owed.streams.is_empty()
    }

    /// Works out the bounds that are still owed, and makes ready what the next [`Admission::decide`] reads. Nothing else needs it: whoever
    /// asks for bounds gets those of the streams that are there.
    pub fn settle(&mut self) {
        self.catch_up();
        self.prepare();
    }

    /// Works out the bounds that are still owed.
    fn catch_up(&mut self) {
        if self.is_settled() {
            return;
        }
        let owed = std::mem::take(&mut self.owed);
        self.ahead.forget();
        self.journal.begin(&mut self.state);
        self.mark(&owed.levels);
        owed.streams.iter().for_each(|id| self.mark_stream(*id));
        let moves = if owed.less { Moves::UpAndDown } else { Moves::Up };
        // Those that joined have a bound, and less than that has one, too.
        let _ = self.follow_all(moves, true);
        self.journal.begin(&mut self.state);
    }

    /// What [`Admission::add`] would answer; nothing joins.
    ///
    /// # Errors
    /// [`Misuse::Duplicate`].
    pub fn ask(&mut self, stream: Stream) -> Result<Decision, Misuse> {
        self.is_free(&stream.name, None)?;
        Ok(self.exchange(None, stream, false))
    }

    /// May the stream `id` become this one? If so it does, and gets a new id; if not it stays as it is. A change that makes nothing
    /// worse is always admitted.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn change(&mut self, id: StreamId, stream: Stream) -> Result<Decision, Misuse> {
        self.stream(id).ok_or(Misuse::Unknown(id))?;
        self.is_free(&stream.name, Some(id))?;
        Ok(self.exchange(Some(id.0), stream, true))
    }

    /// Takes a stream out, which is never refused, and returns it. Ids of streams that left are given to later ones. The bounds of the others
    /// are worked out when somebody asks for them, or by [`Admission::settle`]; at once where routes form a cycle.
    ///
    /// # Errors
    /// [`Misuse::Unknown`].
    pub fn remove(&mut self, id: StreamId) -> Result<Stream, Misuse> {
        self.stream(id).ok_or(Misuse::Unknown(id))?;
        let mut dirty = Vec::new();
        self.state.detach(&self.network, id.0, &mut dirty);
        let in_cycle = dirty.iter().any(|level| self.ranks.is_in_cycle(*level));
        self.owed.levels.append(&mut dirty);
        self.owed.streams.retain(|owed| *owed != id.0);
        self.owed.less = true;
        let stream = self.state.release(id.0).ok_or(Misuse::Unknown(id))?;
        self.names.remove(&stream.name);
        if in_cycle {
            // Nobody answers there without the bounds.
            self.catch_up();
        }
        let declared = self
            .declared
            .as_mut()
            .and_then(|declared| declared.streams.remove(&id.0));
        Ok(declared.unwrap_or(stream))
    }

    fn is_free(&self, name: &str, except: Option<StreamId>) -> Result<(), Misuse> {
        match self.names.get(name) {
            Some(id) if except != Some(StreamId(*id)) => Err(Misuse::Duplicate(name.into())),
            _ => Ok(()),
        }
    }

    /// Puts a stream in the place of another or of none.
    fn exchange(&mut self, old: Option<u32>, stream: Stream, keep: bool) -> Decision {
        self.catch_up();
        self.ranks.learn(&stream.tree);
        self.sort();
        self.journal.begin(&mut self.state);
        let before = old.map_or_else(Vec::new, |old| self.utilisations(old));
        let declared = self.declared.as_ref().map(|_| stream.clone());
        let stream = exact::stream(&self.network, stream);
        let new = self.state.allot(&self.network, stream);
        let mut dirty = Vec::new();
        let jitters = old.map(|old| self.state.detach(&self.network, old, &mut dirty));
        self.state.attach(&self.network, new, None, &mut dirty);
        for level in &dirty {
            self.state.windows[*level as usize].forget();
        }
        let moves = if old.is_some() {
            Moves::UpAndDown
        } else {
            Moves::Up
        };
        let verdict = Refusal::of(self.overloads(new, &before)).and_then(|()| {
            self.mark(&dirty);
            self.mark_stream(new);
            if let Err(unsettled) = self.follow_all(moves, false) {
                let port = PortId(unsettled.level / state::RANKS as u32);
                let name = self.network.port_name(port);
                return Refusal::of(vec![Breach::Unsettled { port, name }]);
            }
            Refusal::of(self.breaches(Some(new)))
        });
        let decision = verdict.map(|()| Admitted {
            id: verdict::public(new),
            result: self.result_of(new),
            touched: self.journal.touched.len().max(1),
        });
        if keep && decision.is_ok() {
            self.commit(old, new);
            if let (Some(known), Some(stream)) = (&mut self.declared, declared) {
                old.map(|old| known.streams.remove(&old));
                known.streams.insert(new, stream);
            }
        } else {
            self.undo(old, new, jitters.as_deref());
        }
        decision
    }

    fn commit(&mut self, old: Option<u32>, new: u32) {
        if let Some(stream) = old.and_then(|old| self.state.release(old)) {
            self.names.remove(&stream.name);
        }
        if let Some(entry) = &self.state.streams[new as usize] {
            self.names.insert(entry.stream.name.clone(), new);
        }
    }

    fn undo(&mut self, old: Option<u32>, new: u32, jitters: Option<&[u64]>) {
        self.unmark();
        self.journal.undo(&mut self.state);
        let mut dirty = Vec::new();
        self.state.detach(&self.network, new, &mut dirty);
        if let Some(old) = old {
            self.state.attach(&self.network, old, jitters, &mut dirty);
        }
        self.state.release(new);
        self.journal.begin(&mut self.state);
    }

    /// The overloaded ports of a stream's way.
    fn utilisations(&self, id: u32) -> Vec<(PortId, f64)> {
        let hops = self.state.streams[id as usize]
            .iter()
            .flat_map(|entry| &entry.stream.tree.hops);
        hops.map(|hop| (hop.port, self.lowest(hop.port)))
            .filter(|(_, level)| self.state.is_exhausted(*level))
            .map(|(port, level)| (port, self.state.utilisation(level).value))
            .collect()
    }

    /// The network, without streams.
    #[must_use]
    pub fn network(&self) -> &Network {
        self.declared
            .as_ref()
            .map_or(&self.network, |declared| &declared.network)
    }

    /// Streams that are there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The streams in the order of their names.
    pub fn streams(&self) -> impl Iterator<Item = (StreamId, &Stream)> {
        self.names
            .values()
            .filter_map(|id| Some((StreamId(*id), self.stream(StreamId(*id))?)))
    }

    #[must_use]
    pub fn stream(&self, id: StreamId) -> Option<&Stream> {
        let kept = &self.state.streams.get(id.index())?.as_ref()?.stream;
        let declared = self.declared.as_ref();
        declared.map_or(Some(kept), |declared| declared.streams.get(&id.0))
    }

    /// The id of the stream of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<StreamId> {
        self.names.get(name).copied().map(StreamId)
    }

    /// The bounds of a stream as they are now, as in [`crate::Analysis::streams`]; the wording of a reason may differ.
    #[must_use]
    pub fn result(&mut self, id: StreamId) -> Option<StreamResult> {
        self.catch_up();
        self.stream(id).map(|_| self.result_of(id.0))
    }

    /// Share of a port's time that the declared streams need in the long run.
    #[must_use]
    pub fn utilisation(&self, port: PortId) -> Utilisation {
        self.state.utilisation(self.lowest(port))
    }

    /// The ports for which a full analysis has bounds and a state has none: with deficit round robin, of a half-duplex medium, with slots.
    pub fn uncovered(&self) -> impl Iterator<Item = PortId> {
        (0..self.network.ports.len())
            .map(PortId::new)
            .filter(|port| state::uncovered(&self.network, *port).is_some())
    }

    /// Evaluations of a class at a port that it took when bounds were last worked out.
    #[must_use]
    pub const fn evaluations(&self) -> u64 {
        self.worker.evaluations
    }

    /// How often arrivals of a class at a port, or of one above it, moved then and provably left its responses as they were.
    #[must_use]
    pub const fn spared(&self) -> u64 {
        self.worker.spared
    }

    /// How often answers ahead of the bounds had to go through all of the busy period of a class at a port so far, and how often through
    /// a part.
    #[must_use]
    pub const fn sweeps(&self) -> [u64; 2] {
        self.ahead.sweeps
    }

    fn result_of(&self, id: u32) -> StreamResult {
        let Some(entry) = &self.state.streams[id as usize] else {
            return StreamResult {
                stream: String::new(),
                leaves: Vec::new(),
            };
        };
        let leaf = |leaf: &Leaf| LeafResult {
            node: leaf.node,
            receiver: self.network.nodes[leaf.node.index()].name.clone(),
            outcome: exact::rounded(&self.network, &entry.stream.tree, self.outcome(id, *leaf)),
        };
        StreamResult {
            stream: entry.stream.name.clone(),
            leaves: entry.stream.tree.leaves.iter().map(leaf).collect(),
        }
    }

    fn outcome(&self, id: u32, leaf: Leaf) -> Outcome {
        let departure = |slot: u32| self.state.slots[slot as usize].departure;
        let path = self.path(id, leaf);
        let last = path
            .last()
            .and_then(|slot| self.state.flows[self.state.rest[*slot as usize].flow as usize].as_ref());
        let (Some(from_nominal), Some(flow)) = (self.bound_at(id, leaf, departure), last) else {
            let (port, reason) = self.reason(id, leaf);
            return match port {
                Some(port) => Outcome::NoFiniteBound { port, reason },
                None => Outcome::Unsupported { reason },
            };
        };
        let from_actual = match flow.envelope {
            Some(_) => from_nominal,
            None => from_nominal.saturating_sub(Span(flow.jitter)),
        };
        let hops = path
            .iter()
            .enumerate()
            .map(|(at, slot)| self.hop(*slot, path.get(at + 1)));
        let best_case = self.best_case(id, leaf);
        Outcome::Bound {
            from_nominal,
            from_actual,
            best_case,
            best_whole: self.best_whole(id, &path, best_case),
            hops: hops.collect(),
        }
    }

    fn best_case(&self, id: u32, leaf: Leaf) -> Span {
        let entry = self.state.streams[id as usize].as_ref();
        let flows = entry.into_iter().flat_map(|entry| &entry.flows);
        let earliest = flows.filter_map(|flow| {
            let flow = self.state.flows[*flow as usize].as_ref()?;
            let slot = &self.state.slots[flow.first_hop + leaf.hop as usize];
            let port = &self.network.ports[slot.level as usize / state::RANKS];
            Some(
                Span(slot.earliest)
                    .saturating_add(Span(
                        flow.quickest(slot.own, port).saturating_sub(port.speed().early()),
                    ))
                    .saturating_add(port.propagation),
            )
        });
        earliest.min().unwrap_or_default()
    }

    fn best_whole(&self, id: u32, path: &[u32], best_case: Span) -> Span {
        let entry = self.state.streams[id as usize].as_ref();
        let flows = entry.into_iter().flat_map(|entry| &entry.flows);
        let flows = flows.filter_map(|flow| self.state.flows[*flow as usize].as_ref());
        let port_of = |slot: &u32| PortId(self.state.slots[*slot as usize].level / state::RANKS as u32);
        report::whole(best_case, &self.network, flows, path.iter().map(port_of))
    }

    fn hop(&self, slot: u32, next: Option<&u32>) -> HopResult {
        let data = &self.state.slots[slot as usize];
        let port = PortId(data.level / state::RANKS as u32);
        let now = &self.state.levels[data.level as usize].now;
        let known = &now.outcome.worst;
        let found = known.binary_search_by_key(&data.own, |(own, _)| *own);
        let mut worst = found.map(|place| known[place].1).unwrap_or_default();
        if now.is_moved
            && let Some(present) = self.worst_now(data.level as usize, data.own)
        {
            debug_assert_eq!(
                worst.response, present.response,
                "a level kept the responses that it should not have"
            );
            worst = present;
        }
        HopResult {
            port,
            name: self.network.port_name(port).into(),
            response: Span(worst.response),
            counted_before: Span::ZERO,
            window: Span(worst.window),
            jitter_in: Span(self.state.jitter(slot as usize)),
            traversal: match next {
                Some(next) => Span(self.state.slots[*next as usize].traversal),
                None => crossing(&self.network.ports[port.index()]),
            },
        }
    }
}

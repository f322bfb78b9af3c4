//! What a bound is made of, hop by hop, in parts that add up to it exactly.
//!
//! The analysis keeps of every worst case where it lies: the window `t`, the work `S` of the class and `H` of more urgent ones
//! (see [`crate::level`], whose notation this is). With `s` the start of the frame,
//!
//! ```text
//! R = B + S(t) + H(s) - t        s = B + S(t) - C + H(s)
//! S(t) = sum over links of min(sum over its streams of (floor((t + J) / T) + 1) C, what the link can have delivered)
//! ```
//!
//! so the frames of every stream are counted anew for `t` and `s`, and what a link holds back is what its streams have more than
//! it delivers (in `H(s)`, what the steps above a slow line hold back). Where the analysis gave up counting, every staircase is the line above it: `C + J C / T` at once, and for more
//! urgent classes `s C / T` more.

mod parts;

pub use parts::{BlockedBy, Blocking, Credit, Explanation, HopExplanation, Interference, Parts};

use crate::demand::{Demand, Effort};
use crate::layout::{Flow, Layout, Level, crossing};
use crate::level::{Scratch, Worst, held_back};
use crate::options::{Method, Options};
use crate::propagation::Propagation;
use crate::report;
use crate::result::{Analysis, Outcome, Utilisation};
use crate::settled::PortWork;
use std::collections::BTreeMap;
use std::fmt;
use timebound_model::{Class, Discipline, Network, PortId, Span, StreamId, WireBytes};

/// Why there is nothing to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotExplained {
    /// The network has no such stream, or the stream no such receiver.
    NoSuchLeaf,
    /// There is no bound; the outcome says why.
    NoBound(Outcome),
}

impl fmt::Display for NotExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchLeaf => f.write_str("there is no such stream or receiver"),
            Self::NoBound(Outcome::NoFiniteBound { reason, .. } | Outcome::Unsupported { reason }) => {
                f.write_str(reason)
            }
            Self::NoBound(Outcome::Bound { .. }) => f.write_str("there is a bound"),
        }
    }
}

impl std::error::Error for NotExplained {}

/// What the bound of `stream` at its receiver number `leaf` (in the order of the declared destinations) is made of.
///
/// # Errors
/// There is no such receiver, or no bound.
pub fn explain(
    network: &Network,
    options: &Options,
    stream: StreamId,
    leaf: usize,
) -> Result<Explanation, NotExplained> {
    Explainer::new(network, options).explain(stream, leaf)
}

/// One analysis, kept to explain many of its bounds.
#[derive(Debug)]
pub struct Explainer<'a> {
    pass: Propagation<'a>,
    method: Method,
    analysis: Analysis,
}

impl<'a> Explainer<'a> {
    #[must_use]
    pub fn new(network: &'a Network, options: &Options) -> Self {
        let layout = Layout::new(network, options);
        let pass = Propagation::run(network, layout, options.threads.max(1));
        let analysis = report::assemble(&pass, options.threads.max(1));
        Self {
            pass,
            method: options.method,
            analysis,
        }
    }

    /// The bounds that it explains.
    #[must_use]
    pub const fn analysis(&self) -> &Analysis {
        &self.analysis
    }

    /// See [`explain`].
    ///
    /// # Errors
    /// There is no such receiver, or no bound.
    pub fn explain(&self, stream: StreamId, leaf: usize) -> Result<Explanation, NotExplained> {
        let network = self.pass.network;
        let result = self
            .analysis
            .streams
            .get(stream.index())
            .ok_or(NotExplained::NoSuchLeaf)?;
        let found = result.leaves.get(leaf).ok_or(NotExplained::NoSuchLeaf)?;
        let Outcome::Bound {
            from_nominal,
            from_actual,
            best_case,
            ..
        } = found.outcome
        else {
            return Err(NotExplained::NoBound(found.outcome.clone()));
        };
        let declared = &network.streams[stream.index()];
        let path = declared.tree.path(declared.tree.leaves[leaf]);
        let flow = self
            .slowest(stream, declared.tree.leaves[leaf].hop)
            .ok_or(NotExplained::NoSuchLeaf)?;
        let hops = (0..path.len())
            .map(|position| self.hop(flow, &path, position))
            .collect();
        Ok(Explanation {
            stream: declared.name.clone(),
            receiver: found.receiver.clone(),
            class: declared.class,
            method: self.method,
            frame_bytes: flow.bytes,
            source_jitter: from_nominal.saturating_sub(from_actual),
            from_nominal,
            from_actual,
            best_case,
            hops,
        })
    }

    /// The frame size that is last at a leaf, as in the report.
    fn slowest(&self, stream: StreamId, hop: u32) -> Option<&Flow> {
        let layout = &self.pass.layout;
        layout.flows[layout.flows_of[stream.index()].clone()]
            .iter()
            .max_by_key(|flow| self.pass.settled.departure(slot_of(layout, flow, hop)))
    }

    fn hop(&self, flow: &Flow, path: &[u32], position: usize) -> HopExplanation {
        let (network, layout) = (self.pass.network, &self.pass.layout);
        let slot = slot_of(layout, flow, path[position]);
        let data = &layout.slots[slot];
        let index = data.level as usize;
        let level = &layout.levels[index];
        let port = &network.ports[level.port.index()];
        let work = self.pass.settled.port(level.port.index());
        let found = work.outcome(index).worst.iter().find(|(own, _)| *own == data.own);
        let worst = found.map(|(_, worst)| *worst).unwrap_or_default();
        let unshaped = self.unshaped(&work, index, data.own);
        let traversal = match path.get(position + 1) {
            Some(next) => Span(layout.slots[slot_of(layout, flow, *next)].traversal),
            None => crossing(port),
        };
        let propagation = port.propagation;
        let link_jitter = port.impairments.greatest_jitter();
        let shaped = self.method != Method::Holistic && unshaped.is_none_or(|plain| worst.response < plain.0);
        let count = Count {
            network,
            layout,
            work: &work,
            level,
            slot,
        };
        HopExplanation {
            port: level.port,
            name: network.port_name(level.port),
            utilisation: Utilisation::of(work.demands(layout.ports[level.port.index()].slots.clone())),
            method: if shaped {
                Method::Calculus
            } else {
                Method::Holistic
            },
            jitter_in: Span(work.demand(slot).jitter()),
            response: Span(worst.response),
            unshaped,
            parts: count.parts(worst),
            traversal,
            propagation,
            link_jitter,
            switching: traversal.saturating_sub(propagation).saturating_sub(link_jitter),
        }
    }

    /// The response for the same arrivals without line shaping.
    fn unshaped(&self, work: &PortWork, index: usize, own: u64) -> Option<Span> {
        let (mut scratch, mut effort) = (Scratch::default(), Effort::for_hops(self.pass.layout.slots.len()));
        let level = work.level(&self.pass.layout, index, false);
        let worst = level.responses(&mut scratch, &mut effort)?.of(own)?;
        Some(Span(worst.response))
    }
}

fn slot_of(layout: &Layout, flow: &Flow, hop: u32) -> usize {
    layout.slot_of[flow.first_hop + hop as usize] as usize
}

/// One slot at its port.
struct Count<'a> {
    network: &'a Network,
    layout: &'a Layout,
    work: &'a PortWork,
    level: &'a Level,
    slot: usize,
}

/// Time and number of frames of a stream.
type Tally = BTreeMap<StreamId, (u64, Option<u64>)>;

impl Count<'_> {
    fn parts(&self, worst: Worst) -> Parts {
        let own = self.layout.slots[self.slot].own;
        let start = worst.response.saturating_add(worst.window).saturating_sub(own);
        let stairs = self.tally(self.level.start..self.level.end, |demand| {
            within(demand, worst.window)
        });
        let above = self.tally(self.level.port_start..self.level.start, |demand| {
            within(demand, start)
        });
        let (mut links, slow) = (self.links(worst.window), self.slow_links(start));
        let held = |links: &[(u32, u64)]| {
            links
                .iter()
                .fold(0u64, |sum, (_, held)| sum.saturating_add(*held))
        };
        let (same, higher) = (sum(&stairs), sum(&above));
        // Every rising line is rounded up to the nanosecond, and so is the window that ends on one.
        let near = worst.same.abs_diff(same.saturating_sub(held(&links))) <= 2 + 2 * links.len() as u64;
        let slowed = higher != worst.higher;
        if worst.same == same {
            links.clear();
        }
        if slowed {
            links.extend(&slow);
        }
        let counts = higher - if slowed { held(&slow).min(higher) } else { 0 } == worst.higher;
        let mut parts = Parts {
            blocking: self.blocking(),
            higher: Vec::new(),
            same: Vec::new(),
            own: Span(own),
            shaping: Vec::new(),
            service: Span::ZERO,
            rounding: 0,
            window: Span(worst.window),
            counted: true,
        };
        if counts && (worst.same == same || near) {
            (parts.same, parts.higher) = (self.list(stairs, own), self.list(above, 0));
            parts.shaping = self.credits(&links);
        } else {
            parts.counted = false;
            let line = |demand: &Demand| (at_once(demand), None);
            let longer = |demand: &Demand| (at_once(demand).saturating_add(share(demand, start)), None);
            parts.same = self.list(self.tally(self.level.start..self.level.end, line), own);
            parts.higher = self.list(self.tally(self.level.port_start..self.level.start, longer), 0);
        }
        let missing = i128::from(worst.response) - parts.total();
        parts.rounding = missing.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        parts
    }

    fn tally(&self, slots: std::ops::Range<usize>, work: impl Fn(&Demand) -> (u64, Option<u64>)) -> Tally {
        let mut tally = Tally::new();
        for slot in slots {
            let flow = &self.layout.flows[self.layout.slots[slot].flow as usize];
            let (time, releases) = work(self.work.demand(slot));
            // A token bucket of different frames has releases of so many bytes.
            let frames = releases
                .filter(|_| flow.bytes == flow.largest)
                .map(|releases| releases.saturating_mul(flow.multiplicity));
            let entry = tally.entry(flow.stream).or_insert((0, Some(0)));
            entry.0 = entry.0.saturating_add(time);
            entry.1 = entry
                .1
                .zip(frames)
                .map(|(sum, frames)| sum.saturating_add(frames));
        }
        tally
    }

    /// The streams of a tally, longest first. The observed frame itself, `own`, is taken out of its stream.
    fn list(&self, tally: Tally, own: u64) -> Vec<Interference> {
        let ours = self.layout.flows[self.layout.slots[self.slot].flow as usize].stream;
        let mut list: Vec<Interference> = tally
            .into_iter()
            .map(|(id, (time, frames))| {
                let stream = &self.network.streams[id.index()];
                let itself = own > 0 && id == ours;
                Interference {
                    stream: stream.name.clone(),
                    class: stream.class,
                    frames: frames.map(|frames| frames.saturating_sub(u64::from(itself))),
                    time: Span(time.saturating_sub(if itself { own } else { 0 })),
                }
            })
            .filter(|one| one.time > Span::ZERO)
            .collect();
        list.sort_by_key(|one| std::cmp::Reverse(one.time));
        list
    }

    /// Per group of the class: the port before, and what its link holds back at `window`.
    fn links(&self, window: u64) -> Vec<(u32, u64)> {
        let groups = &self.layout.groups[self.level.groups.clone()];
        groups
            .iter()
            .filter_map(|group| {
                let work = sum(&self.tally(group.start..group.end, |demand| within(demand, window)));
                Some((group.input, work.saturating_sub(group.line?.at(window))))
            })
            .collect()
    }

    /// The same for more urgent classes, of which only slow links hold anything back.
    fn slow_links(&self, window: u64) -> Vec<(u32, u64)> {
        let first = self.layout.ports[self.level.port.index()].groups.start;
        self.layout.groups[first..self.level.groups.start]
            .iter()
            .filter_map(|group| {
                let at_once = sum(&self.tally(group.start..group.end, |demand| within(demand, 0)));
                Some((group.input, held_back(group.line?, at_once, window)))
            })
            .collect()
    }

    /// By link, what it holds back of all classes.
    fn credits(&self, links: &[(u32, u64)]) -> Vec<Credit> {
        let mut by_link = BTreeMap::new();
        for (input, held) in links.iter().filter(|(_, held)| *held > 0) {
            let sum: &mut u64 = by_link.entry(*input).or_default();
            *sum = sum.saturating_add(*held);
        }
        let mut credits: Vec<Credit> = by_link
            .into_iter()
            .map(|(input, held)| Credit {
                link: self.network.port_name(PortId(input)),
                time: Span(held),
            })
            .collect();
        credits.sort_by_key(|credit| std::cmp::Reverse(credit.time));
        credits
    }

    fn blocking(&self) -> Blocking {
        let time = self.level.blocking;
        Blocking {
            time: Span(time),
            by: self.blocked_by(time),
        }
    }

    /// The first declared stream below with the largest frame, if that frame takes as long as the blocking.
    fn blocked_by(&self, time: u64) -> BlockedBy {
        let port = &self.network.ports[self.level.port.index()];
        if time == 0 {
            return BlockedBy::Nobody;
        }
        let below = |class: Class| port.discipline == Discipline::StrictPriority && class < self.level.class;
        let crosses =
            |stream: &timebound_model::Stream| stream.tree.hops.iter().any(|hop| hop.port == self.level.port);
        let largest = self
            .network
            .streams
            .iter()
            .filter(|stream| below(stream.class) && crosses(stream))
            .rev()
            .max_by_key(|stream| stream.arrival.largest_frame());
        match largest {
            Some(stream) if port.rate.transmission_time(stream.arrival.largest_frame()).0 == time => {
                BlockedBy::Stream {
                    stream: stream.name.clone(),
                    class: stream.class,
                    bytes: stream.arrival.largest_frame(),
                }
            }
            _ => BlockedBy::BestEffort {
                bytes: WireBytes(self.network.best_effort_frame.0),
            },
        }
    }
}

/// Work and releases in a closed window.
fn within(demand: &Demand, window: u64) -> (u64, Option<u64>) {
    let releases = (u128::from(window) + u128::from(demand.jitter())) / u128::from(demand.period()) + 1;
    let work = releases.saturating_mul(u128::from(demand.weight()));
    (narrow(work), Some(narrow(releases)))
}

/// The line above a staircase where its window is empty.
fn at_once(demand: &Demand) -> u64 {
    let late =
        (u128::from(demand.jitter()) * u128::from(demand.weight())).div_ceil(u128::from(demand.period()));
    narrow(late.saturating_add(u128::from(demand.weight())))
}

/// What comes on that line within a window.
fn share(demand: &Demand, window: u64) -> u64 {
    narrow(u128::from(demand.weight()) * u128::from(window) / u128::from(demand.period()))
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

fn sum(tally: &Tally) -> u64 {
    tally.values().map(|(time, _)| *time).fold(0, u64::saturating_add)
}

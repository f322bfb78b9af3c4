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

mod count;
mod parts;

pub use parts::{BlockedBy, Blocking, Credit, Explanation, HopExplanation, Interference, Parts};

use crate::demand::Effort;
use crate::exact::Exact;
use crate::layout::{Flow, Layout, crossing};
use crate::level::Scratch;
use crate::options::{Method, Options};
use crate::propagation::Propagation;
use crate::report;
use crate::result::{Analysis, Outcome, Utilisation};
use crate::settled::PortWork;
use count::{Count, has_turns};
use std::fmt;
use timebound_model::{Network, Span, StreamId};

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
    Explainer::new(&Exact::of(network), options).explain(stream, leaf)
}

/// One analysis, kept to explain many of its bounds.
#[derive(Debug)]
pub struct Explainer<'a> {
    exact: &'a Exact<'a>,
    pass: Propagation<'a>,
    method: Method,
    analysis: Analysis,
}

impl<'a> Explainer<'a> {
    #[must_use]
    pub fn new(exact: &'a Exact<'a>, options: &Options) -> Self {
        let pass = crate::settle(exact.network(), &exact.options(options));
        let analysis = exact.rounded(report::assemble(&pass, options.threads.max(1)));
        Self {
            exact,
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
            best_whole,
            hops: ref rounded,
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
            .map(|position| {
                let mut hop = self.hop(flow, &path, position);
                self.exact.round_explained(&mut hop, rounded.get(position));
                hop
            })
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
            best_case: best_whole,
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
        let unshaped = if has_turns(port) {
            Some(Span(worst.response))
        } else {
            self.unshaped(&work, index, data.own)
        };
        let traversal = match path.get(position + 1) {
            Some(next) => Span(layout.slots[slot_of(layout, flow, *next)].traversal),
            None => crossing(port),
        };
        let propagation = port.propagation;
        let link_jitter = port.impairments.greatest_jitter();
        let shaped = self.method != Method::Holistic && unshaped.is_none_or(|plain| worst.response < plain.0);
        let curves = self.pass.curves.iter();
        let shaped_now = curves.filter_map(|curves| curves.shaped(network, layout, &work, index));
        let count = Count {
            network,
            layout,
            work: &work,
            level,
            slot,
            shaped: shaped_now.collect(),
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
            counted_before: report::counted_before(&self.pass, slot, worst.response),
            unshaped,
            parts: if has_turns(port) {
                count.turns(worst)
            } else {
                count.parts(worst)
            },
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

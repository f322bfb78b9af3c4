//! What the caller may choose.

use serde::Serialize;
use std::collections::BTreeMap;
use timebound_model::{Span, StreamId};

/// How the bounds are worked out. All of them are safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The holistic approach: response times port by port, all that comes over a link may come at once.
    Holistic,
    /// Network calculus: total flow analysis per class (FP-TFA) with staircase arrival curves, line shaping and packetisation.
    Calculus,
    /// The smaller of the two at every port for every flow, from the smaller of their arrivals. What joins and leaves is decided by this one
    /// ([`crate::Admission`]).
    PortByPort,
    /// The least of all that is safe: port by port, with what slow links further back hold back (`curves` in the source), and over several
    /// ports at once, where every rival is counted once (`once`). What the product prints.
    #[default]
    Bound,
}

/// Choices of an analysis; [`Options::default`] is what the product prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub method: Method,
    /// Release jitter that was observed at the first port. Where it exceeds the declared jitter it takes its place, so that
    /// the report can print the bound for the arrivals that were seen. Ignored for streams without a declared arrival;
    /// of a token bucket it is the time in which the burst that was observed comes at the token rate.
    pub jitter_override: BTreeMap<StreamId, Span>,
    /// Assume on every port one frame of undeclared best effort of [`timebound_model::Network::best_effort_frame`] bytes,
    /// below every declared class. Switch it off only to compare with published figures that leave it out.
    pub assume_best_effort: bool,
    /// Threads to use, at least one. The result does not depend on it, unless the computing limit is reached, which each thread has
    /// for itself.
    pub threads: usize,
    /// Work that [`Method::Bound`] may spend on several ports at once, in rivals that are looked at; streams with the least slack have it first. A count
    /// and no time, so that the bounds of a network are the same on every machine.
    pub effort: u64,
}

impl Options {
    /// Enough for all of some 3,700 streams on 200 switches.
    pub const EFFORT: u64 = 1 << 22;
}

impl Default for Options {
    fn default() -> Self {
        Self {
            method: Method::default(),
            jitter_override: BTreeMap::new(),
            assume_best_effort: true,
            threads: 1,
            effort: Self::EFFORT,
        }
    }
}

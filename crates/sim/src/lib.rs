//! The fabric under a virtual clock: release patterns, statistics in bounded memory, replay of recorded arrivals, and the
//! search for worst cases.
//!
//! Results depend on the network, the options and the seed alone. This room knows no kernel and no Python.

mod bucket;
mod histogram;
mod outcome;
mod replay;
mod search;
mod series;
mod simulate;
mod source;
mod tally;

pub use histogram::Histogram;
pub use outcome::{Interval, Latency, LeafOutcome, Outcome, PortOutcome, StreamOutcome};
pub use replay::{Departure, Recorder, replay, replay_with_switches};
pub use search::{Found, HopWitness, SearchOptions, StreamWitness, Worst, search, search_with};
pub use simulate::{Options, simulate, simulate_with};
pub use source::{Released, Source};

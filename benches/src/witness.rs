//! What an analysis says, as the search wants it.

use timebound_bounds::{Analysis, Outcome};
use timebound_sim::{HopWitness, StreamWitness};

/// Per stream and receiver; empty where there is no bound.
#[must_use]
pub fn of(analysis: &Analysis) -> Vec<StreamWitness> {
    let leaf = |outcome: &Outcome| match outcome {
        Outcome::Bound { hops, .. } => hops
            .iter()
            .map(|hop| HopWitness {
                window: hop.window,
                response: hop.response.saturating_sub(hop.counted_before),
                traversal: hop.traversal,
            })
            .collect(),
        Outcome::NoFiniteBound { .. } | Outcome::Unsupported { .. } => Vec::new(),
    };
    let stream = |result: &timebound_bounds::StreamResult| {
        result.leaves.iter().map(|one| leaf(&one.outcome)).collect()
    };
    analysis.streams.iter().map(stream).collect()
}

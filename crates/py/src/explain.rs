//! Explanations of bounds, asked for by name.

use crate::options::BoundsOptions;
use serde::{Deserialize, Serialize};
use timebound_bounds::{Exact, Explainer, Explanation};
use timebound_model::Network;

/// The options of `bounds` under that name, and whose bounds to explain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainOptions {
    bounds: BoundsOptions,
    /// (stream name, receiver name); those that the network does not have are answered with a reason.
    leaves: Vec<(String, String)>,
}

/// An explanation, or the reason why there is none.
#[derive(Serialize)]
pub(crate) struct Explained {
    stream: String,
    receiver: String,
    explanation: Option<Explanation>,
    reason: Option<String>,
}

impl ExplainOptions {
    /// In the order of the question.
    pub(crate) fn answer(self, network: &Network) -> Vec<Explained> {
        let exact = Exact::of(network);
        let explainer = Explainer::new(&exact, &self.bounds.resolve(network));
        self.leaves
            .into_iter()
            .map(|(stream, receiver)| {
                let found = network.stream(&stream).and_then(|id| {
                    let mut leaves = network.streams[id.index()].tree.leaves.iter();
                    let leaf = leaves.position(|leaf| network.nodes[leaf.node.index()].name == receiver)?;
                    Some(explainer.explain(id, leaf))
                });
                let (explanation, reason) = match found {
                    Some(Ok(explanation)) => (Some(explanation), None),
                    Some(Err(error)) => (None, Some(error.to_string())),
                    None => (
                        None,
                        Some(format!("there is no stream {stream:?} to {receiver:?}")),
                    ),
                };
                Explained {
                    stream,
                    receiver,
                    explanation,
                    reason,
                }
            })
            .collect()
    }
}

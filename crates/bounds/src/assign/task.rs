//! What may be changed and what is required.

use crate::options::Options;
use std::collections::BTreeSet;
use std::fmt;
use timebound_model::{Arrival, Class, Network, Role, Span, StreamId};

/// An assignment's terms. Streams that no unit and no bundle names stay as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Task {
    pub units: Vec<Unit>,
    pub bundles: Vec<Bundle>,
    pub requirements: Vec<Requirement>,
    pub follows: Vec<Follow>,
    pub options: Options,
}

/// Streams that get one class together: a flow with the answers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    pub name: String,
    pub streams: Vec<StreamId>,
}

/// Streams that go one way together. All of `forward` have the same source and destinations; all of `backward`, which needs
/// one destination, go from there to the source by the same nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    pub name: String,
    pub forward: Vec<StreamId>,
    pub backward: Vec<StreamId>,
    /// The user has said which way; it stays.
    pub fixed: bool,
}

/// A deadline: the bounds of all parts and `extra` together may take this long. The first part counts from its nominal release, which is
/// what a deadline counts from; the others from the actual release, which the parts before cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub name: String,
    /// Index of the unit whose class is to be raised when the deadline is missed.
    pub unit: usize,
    /// Streams that a message crosses one after the other, each with the position of the receiver among its destinations.
    pub parts: Vec<(StreamId, usize)>,
    /// What does not depend on the assignment: hosts and brokers on the way.
    pub extra: Span,
    pub deadline: Option<Span>,
}

/// `stream` sends when `after` arrives at one of its receivers: its release jitter is the jitter of those arrivals and `extra`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follow {
    pub stream: StreamId,
    pub after: (StreamId, usize),
    pub extra: Span,
}

/// A task that does not fit its network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskError(pub String);

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TaskError {}

impl Task {
    /// Every stream with a declared arrival that is no background is a unit and a bundle of its own, with its deadline at every receiver.
    #[must_use]
    pub fn per_stream(network: &Network) -> Self {
        let mut task = Self::default();
        for (index, stream) in network.streams.iter().enumerate() {
            if stream.role == Role::Background || matches!(stream.arrival, Arrival::Unbounded { .. }) {
                continue;
            }
            let id = StreamId::new(index);
            for (leaf, end) in stream.tree.leaves.iter().enumerate() {
                task.requirements.push(Requirement {
                    name: format!("{} at {}", stream.name, network.nodes[end.node.index()].name),
                    unit: task.units.len(),
                    parts: vec![(id, leaf)],
                    extra: Span::ZERO,
                    deadline: stream.deadline,
                });
            }
            task.units.push(Unit {
                name: stream.name.clone(),
                streams: vec![id],
            });
            task.bundles.push(Bundle {
                name: stream.name.clone(),
                forward: vec![id],
                backward: Vec::new(),
                fixed: false,
            });
        }
        task
    }

    /// The classes that the units have in the network (that of their first stream).
    #[must_use]
    pub fn classes(&self, network: &Network) -> Vec<Class> {
        let class = |unit: &Unit| {
            let first = unit.streams.first();
            first.map_or(Class::default(), |id| network.streams[id.index()].class)
        };
        self.units.iter().map(class).collect()
    }

    /// Does the task fit the network?
    ///
    /// # Errors
    /// Ids out of range, a stream in two units or two bundles, a bundle whose streams have other ends.
    pub fn check(&self, network: &Network) -> Result<(), TaskError> {
        let fail = |text: String| Err(TaskError(text));
        let known = |id: &StreamId| id.index() < network.streams.len();
        let leaf = |&(id, leaf): &(StreamId, usize)| {
            known(&id) && leaf < network.streams[id.index()].tree.leaves.len()
        };
        let once = |lists: &[&Vec<StreamId>]| {
            let mut seen = BTreeSet::new();
            lists
                .iter()
                .all(|list| list.iter().all(|id| known(id) && seen.insert(*id)))
        };
        if !once(&self.units.iter().map(|unit| &unit.streams).collect::<Vec<_>>()) {
            return fail("a stream that does not exist or is in two units".to_owned());
        }
        let ways: Vec<_> = self
            .bundles
            .iter()
            .flat_map(|b| [&b.forward, &b.backward])
            .collect();
        if !once(&ways) {
            return fail("a stream that does not exist or is in two bundles".to_owned());
        }
        for requirement in &self.requirements {
            if requirement.unit >= self.units.len() || !requirement.parts.iter().all(leaf) {
                return fail(format!(
                    "requirement {:?} names what does not exist",
                    requirement.name
                ));
            }
        }
        if !self.follows.iter().all(|f| known(&f.stream) && leaf(&f.after)) {
            return fail("an answer follows what does not exist".to_owned());
        }
        for bundle in &self.bundles {
            if !bundle.ends_agree(network) {
                return fail(format!(
                    "the streams of bundle {:?} have different ends",
                    bundle.name
                ));
            }
        }
        Ok(())
    }
}

impl Bundle {
    fn ends_agree(&self, network: &Network) -> bool {
        let ends = |id: &StreamId| {
            let stream = &network.streams[id.index()];
            let leaves: Vec<_> = stream.tree.leaves.iter().map(|leaf| leaf.node).collect();
            (stream.source, leaves)
        };
        let Some((source, leaves)) = self.forward.first().map(ends) else {
            return false;
        };
        let mirrored = (leaves.first().copied(), vec![source]);
        self.forward.iter().all(|id| ends(id) == (source, leaves.clone()))
            && (self.backward.is_empty() || leaves.len() == 1)
            && self.backward.iter().all(|id| {
                let (from, to) = ends(id);
                (Some(from), to) == mirrored
            })
    }
}

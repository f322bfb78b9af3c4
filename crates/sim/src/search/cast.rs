//! Who takes part in a scene: those who can be in the target's way, and those who can delay them before they are.

use super::cutout::Part;
use super::scene::Rank;
use super::survey::{Survey, Target};
use std::collections::{BTreeMap, BTreeSet};
use timebound_model::{PortId, StreamId};

/// Rivals that are taken in at most, by the time that they can take from the target.
const MOST_RIVALS: usize = 384;
/// Streams altogether up to which those that delay rivals are taken in, too.
const MOST_ACTORS: usize = 64;

/// Who is in a scene, in the numbers of the whole network.
pub(super) struct Cast<'a> {
    pub(super) survey: &'a Survey<'a>,
    pub(super) target: Target,
    pub(super) path: Vec<PortId>,
    pub(super) best_effort: bool,
    pub(super) parts: Vec<Part>,
    /// Stream -> its index in `parts`.
    index: BTreeMap<StreamId, usize>,
    /// Per part its hops on the path, with the place.
    pub(super) met: Vec<Vec<(u32, usize)>>,
}

impl<'a> Cast<'a> {
    pub(super) fn new(survey: &'a Survey<'a>, target: Target, best_effort: bool) -> Self {
        let tree = &survey.network.streams[target.stream.index()].tree;
        let hops = tree.path(tree.leaves[target.leaf as usize]);
        let path = hops.iter().map(|hop| tree.hops[*hop as usize].port).collect();
        let part = Part {
            stream: target.stream,
            hops: hops.into_iter().collect(),
            leaf: Some(target.leaf),
        };
        Self {
            survey,
            target,
            path,
            best_effort,
            parts: vec![part],
            index: BTreeMap::from([(target.stream, 0)]),
            met: vec![Vec::new()],
        }
    }

    pub(super) fn rank(&self, stream: StreamId, port: PortId) -> Rank {
        let class = |id: StreamId| self.survey.network.streams[id.index()].class;
        match class(stream).cmp(&class(self.target.stream)) {
            _ if !self.survey.sorts(port) => Rank::Same,
            std::cmp::Ordering::Greater => Rank::Higher,
            std::cmp::Ordering::Equal => Rank::Same,
            std::cmp::Ordering::Less => Rank::Lower,
        }
    }

    fn is_covered(&self, stream: StreamId, port: PortId) -> bool {
        let network = self.survey.network;
        self.best_effort
            && self.rank(stream, port) == Rank::Lower
            && network.streams[stream.index()].arrival.largest_frame() <= network.best_effort_frame
    }

    /// Streams that share a port with the path.
    pub(super) fn add_rivals(&mut self) {
        let mut met: Vec<(StreamId, u64, u32, usize)> = Vec::new();
        for (place, port) in self.path.iter().enumerate() {
            for (stream, hop) in self.survey.users(*port) {
                if stream == self.target.stream || self.is_covered(stream, *port) {
                    continue;
                }
                let frame = self.survey.network.streams[stream.index()]
                    .arrival
                    .largest_frame();
                met.push((stream, self.survey.sending(frame, *port), hop, place));
            }
        }
        // The users of a port are in order, so these are a few runs; of one stream the places stay in theirs.
        met.sort_by_key(|(stream, ..)| *stream);
        let mut ranked: Vec<&[(StreamId, u64, u32, usize)]> = met.chunk_by(|a, b| a.0 == b.0).collect();
        if ranked.len() > MOST_RIVALS {
            let time = |meetings: &[(StreamId, u64, u32, usize)]| meetings.iter().map(|met| met.1).max();
            ranked.sort_by_key(|meetings| (std::cmp::Reverse(time(meetings)), meetings[0].0));
            ranked.truncate(MOST_RIVALS);
            ranked.sort_by_key(|meetings| meetings[0].0);
        }
        for meetings in ranked {
            let stream = meetings[0].0;
            let hops: Vec<(u32, usize)> = meetings.iter().map(|(_, _, hop, place)| (*hop, *place)).collect();
            self.index.insert(stream, self.parts.len());
            self.parts.push(Part {
                stream,
                hops: hops.iter().map(|(hop, _)| *hop).collect(),
                leaf: None,
            });
            self.met.push(hops);
        }
    }

    /// Streams that share a port with a rival before it meets the target; returns who meets whom where.
    pub(super) fn add_delayers(&mut self) -> Vec<(usize, u32, usize, u32)> {
        let mut encounters = Vec::new();
        if self.parts.len() >= MOST_ACTORS {
            return encounters;
        }
        let network = self.survey.network;
        let on_path: BTreeSet<PortId> = self.path.iter().copied().collect();
        let mut joined: BTreeMap<StreamId, Vec<(u32, usize, u32)>> = BTreeMap::new();
        for rival in 1..self.parts.len() {
            let tree = &network.streams[self.parts[rival].stream.index()].tree;
            for hop in before(tree, &self.parts[rival].hops) {
                let port = tree.hops[hop as usize].port;
                if on_path.contains(&port) {
                    continue;
                }
                for (stream, own) in self.survey.users(port) {
                    if !self.index.contains_key(&stream) {
                        joined.entry(stream).or_default().push((own, rival, hop));
                    }
                }
                if self.parts.len() + joined.len() > MOST_ACTORS {
                    return encounters;
                }
            }
        }
        for (stream, meetings) in joined {
            let part = self.parts.len();
            self.index.insert(stream, part);
            self.parts.push(Part {
                stream,
                hops: meetings.iter().map(|(own, ..)| *own).collect(),
                leaf: None,
            });
            self.met.push(Vec::new());
            encounters.extend(
                meetings
                    .into_iter()
                    .map(|(own, rival, hop)| (part, own, rival, hop)),
            );
        }
        encounters
    }
}

/// The hops before these.
fn before(tree: &timebound_model::Tree, hops: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for &hop in hops {
        let mut at = tree.hops[hop as usize].parent;
        while let Some(hop) = at {
            if !found.insert(hop) {
                break;
            }
            at = tree.hops[hop as usize].parent;
        }
    }
    found
}

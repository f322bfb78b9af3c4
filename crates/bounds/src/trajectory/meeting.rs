//! Where other flows meet a path.

use crate::paths::Paths;
use std::collections::BTreeMap;

/// A stretch of a path that another flow shares without a gap. A flow that parts from the path and meets it again is split
/// into one pseudo-flow per stretch (Martin and Minet 2006, assumption 1), and so is one that crosses shared ports in another order.
#[derive(Debug)]
pub(crate) struct Meeting {
    pub(crate) flow: u32,
    /// Is it more urgent, or of the same class?
    pub(crate) is_higher: bool,
    /// Position on the path of the first shared port (first_ji).
    pub(crate) first: usize,
    /// The other flow's own places at the shared ports.
    pub(crate) places: Vec<u32>,
}

impl Meeting {
    /// Position on the path of the last shared port (last_ij).
    pub(crate) const fn last(&self) -> usize {
        self.first + self.places.len() - 1
    }
    /// Greatest cost of a frame over the shared ports up to position `end` of the path (C_j at slow_ij), all frames of a release
    /// together; 0 before they meet.
    pub(crate) fn cost(&self, paths: &Paths, end: usize) -> u64 {
        let shared = (end + 1).saturating_sub(self.first).min(self.places.len());
        let cost = |place: &u32| paths.places[*place as usize].cost;
        let greatest = self.places[..shared].iter().map(cost).max().unwrap_or(0);
        greatest.saturating_mul(paths.flows[self.flow as usize].multiplicity)
    }
    /// The other flow's place at position `at` of the path, which lies within the stretch.
    pub(crate) fn place(&self, at: usize) -> u32 {
        self.places[at - self.first]
    }
}

/// All meetings of a path with flows of its class and above, in the order in which they begin.
pub(crate) fn meetings(paths: &Paths, path: &[u32]) -> Vec<Meeting> {
    let mut found: Vec<Meeting> = Vec::new();
    // Other flows' places at the last port, and the meeting that each belongs to.
    let mut open: BTreeMap<u32, usize> = BTreeMap::new();
    for (position, own) in path.iter().enumerate() {
        let own = &paths.places[*own as usize];
        let mut now = BTreeMap::new();
        for &place in &paths.at[own.port.index()] {
            let other = &paths.places[place as usize];
            if other.flow == own.flow || other.class < own.class {
                continue;
            }
            let meeting = if let Some(meeting) = open.get(&other.parent) {
                found[*meeting].places.push(place);
                *meeting
            } else {
                found.push(Meeting {
                    flow: other.flow,
                    is_higher: other.class > own.class,
                    first: position,
                    places: vec![place],
                });
                found.len() - 1
            };
            now.insert(place, meeting);
        }
        open = now;
    }
    found
}

//! Why there is no bound.

use super::Admission;
use super::state::{RANKS, uncovered};
use crate::cause;
use crate::layout::NONE;
use std::collections::BTreeSet;
use timebound_model::{Leaf, PortId};

impl Admission {
    /// Where a stream without a bound at a receiver loses it, and why.
    pub(super) fn reason(&self, id: u32, leaf: Leaf) -> (Option<PortId>, String) {
        for slot in self.path(id, leaf) {
            let data = &self.state.slots[slot as usize];
            let level = &self.state.levels[data.level as usize];
            if level.now.is_unbounded {
                return self.level_reason(data.level as usize);
            }
        }
        let Some(entry) = &self.state.streams[id as usize] else {
            return (None, "there is no such stream".into());
        };
        let hops = &entry.stream.tree.hops;
        if let Some(cause) = hops
            .iter()
            .find_map(|hop| cause::incomplete(&self.network, hop.port))
        {
            return (None, cause.into_text());
        }
        match hops.first() {
            Some(hop) if entry.flows.is_empty() => (
                Some(hop.port),
                format!("stream {:?} has no declared arrival", entry.stream.name),
            ),
            _ => (None, "its times exceed what is computed with".into()),
        }
    }

    fn level_reason(&self, level: usize) -> (Option<PortId>, String) {
        let mut seen = BTreeSet::new();
        let mut at = level;
        while seen.insert(at) {
            let port = PortId((at / RANKS) as u32);
            let name = self.network.port_name(port);
            if let Some(what) = uncovered(&self.network, port) {
                return (
                    None,
                    format!("port {name} {what}, which admission does not cover"),
                );
            }
            if let Some(cause) = cause::unanalysable(&self.network, port) {
                return (None, cause.into_text());
            }
            let kept = &self.state.levels[at];
            if self.state.is_exhausted(at) {
                let load = self.state.utilisation(at).value;
                return (
                    Some(port),
                    format!("utilisation {load:.2} of port {name} is 1 or more"),
                );
            }
            if kept.now.gave_up {
                return (
                    Some(port),
                    format!(
                        "routes form a cycle through port {name}, and the jitter along it does not settle"
                    ),
                );
            }
            let base = at / RANKS * RANKS;
            let above = (base..at).find(|above| {
                self.state.levels[*above].slots > 0 && self.state.levels[*above].now.is_unbounded
            });
            if self.state.is_hopeless(at) {
                return (
                    Some(port),
                    format!("streams without a declared arrival cross port {name}"),
                );
            }
            let slots = kept.groups.iter().flat_map(|group| &group.slots);
            let late = slots
                .copied()
                .find(|slot| self.state.slots[*slot as usize].is_late);
            let feeder = late
                .map(|slot| self.state.slots[slot as usize].parent)
                .filter(|parent| *parent != NONE)
                .map(|parent| self.state.slots[parent as usize].level as usize);
            match above.or(feeder) {
                Some(next) => at = next,
                None => {
                    return (
                        Some(port),
                        format!("delays at port {name} exceed what is computed with"),
                    );
                }
            }
        }
        let port = PortId((level / RANKS) as u32);
        (
            Some(port),
            format!(
                "delays at port {} grow without limit",
                self.network.port_name(port)
            ),
        )
    }
}

//! Multicast groups on layer 2: frames go only where members are, along the spanning tree.

use crate::wiring::Wiring;
use std::collections::{BTreeMap, BTreeSet};
use timebound_model::{Network, NodeId};

#[derive(Debug, Clone, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<u32, Group>,
}

#[derive(Debug, Clone)]
struct Group {
    members: BTreeSet<NodeId>,
    /// Per port the number of members that it leads to.
    beyond: Vec<u32>,
}

impl Groups {
    /// True if the host was no member before.
    pub(crate) fn join(&mut self, network: &Network, wiring: &Wiring, group: u32, host: NodeId) -> bool {
        let group = self.groups.entry(group).or_insert_with(|| Group {
            members: BTreeSet::new(),
            beyond: vec![0; network.ports.len()],
        });
        let joined = host.index() < network.nodes.len() && group.members.insert(host);
        if joined {
            for port in wiring.ports_towards(network, host) {
                group.beyond[port.index()] += 1;
            }
        }
        joined
    }

    /// True if the host was a member.
    pub(crate) fn leave(&mut self, network: &Network, wiring: &Wiring, group: u32, host: NodeId) -> bool {
        let Some(entry) = self.groups.get_mut(&group) else {
            return false;
        };
        if !entry.members.remove(&host) {
            return false;
        }
        for port in wiring.ports_towards(network, host) {
            entry.beyond[port.index()] -= 1;
        }
        if entry.members.is_empty() {
            self.groups.remove(&group);
        }
        true
    }

    #[inline]
    pub(crate) fn leads_to_members(&self, group: u32, port: u32) -> bool {
        self.groups
            .get(&group)
            .is_some_and(|group| group.beyond[port as usize] > 0)
    }
}

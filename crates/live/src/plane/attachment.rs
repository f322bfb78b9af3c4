//! Which interface belongs to which node.

use timebound_model::NodeId;

/// Interfaces through which frames of nodes come in and go out: any interface of the fabric's namespace (the near end of a
/// node's veth pair, a physical card, the tap of a virtual machine, a tunnel), or a TAP device that we hold open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attachments {
    /// By interface index; interface indices of a namespace are small and dense.
    nodes: Vec<Option<NodeId>>,
    /// By node; 0: none.
    interfaces: Vec<u32>,
}

impl Attachments {
    /// Room for a network of so many nodes; nothing is attached.
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            nodes: Vec::new(),
            interfaces: vec![0; nodes],
        }
    }

    /// Makes `interface` (index, greater than 0) the one of `node`; whatever was there before is no longer.
    ///
    /// # Panics
    /// If the network has no such node.
    pub(crate) fn attach(&mut self, node: NodeId, interface: u32) {
        let before = std::mem::replace(&mut self.interfaces[node.index()], interface);
        if let Some(entry) = self.nodes.get_mut(before as usize) {
            *entry = None;
        }
        let index = interface as usize;
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, None);
        }
        if let Some(other) = self.nodes[index].replace(node)
            && other != node
        {
            self.interfaces[other.index()] = 0;
        }
    }

    /// The node whose frames come from `interface`.
    #[inline]
    pub(crate) fn node(&self, interface: u32) -> Option<NodeId> {
        self.nodes.get(interface as usize).copied().flatten()
    }

    /// The interface of a node; `None` for one that has none (a switch, a node that is stopped).
    #[inline]
    pub(crate) fn interface(&self, node: NodeId) -> Option<u32> {
        Some(self.interfaces[node.index()]).filter(|interface| *interface != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_has_one_node_and_a_node_one_interface() {
        let mut found = Attachments::new(3);
        found.attach(NodeId(0), 16);
        found.attach(NodeId(2), 900);
        assert_eq!(
            (found.node(16), found.interface(NodeId(2))),
            (Some(NodeId(0)), Some(900))
        );
        found.attach(NodeId(0), 17);
        assert_eq!((found.node(16), found.node(17)), (None, Some(NodeId(0))));
        found.attach(NodeId(1), 17);
        assert_eq!(
            (found.node(17), found.interface(NodeId(0))),
            (Some(NodeId(1)), None)
        );
        assert_eq!((found.node(4_000_000_000), found.node(0)), (None, None));
    }
}

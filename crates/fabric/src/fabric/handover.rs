//! Switches that are not ours: real ones, between links that are.
//!
//! A frame that arrives at such a switch leaves the fabric ([`Sink::handed`]) at the moment its last bit is there; what the switch
//! sends enters the queue of an egress port of it ([`Fabric::reentry`]) when it comes. Queues, rates and delays stay the fabric's, and the
//! time in between is the real switch's, so the declared switching delay is not added.

use super::Fabric;
use crate::frame::{DropReason, Frame, NO_LEAF, Route, Sink};
use crate::slab::NONE;
use timebound_model::{NodeId, NodeKind, PortId, Time};

/// A copy that arrived at a switch that is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handed {
    /// The egress port that it left by, at the other end of the link.
    pub port: PortId,
    /// Its last bit arrived.
    pub at: Time,
    pub frame: Frame,
    pub damaged: bool,
}

/// A frame that such a switch sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reentry {
    /// The egress port of the switch.
    pub port: PortId,
    pub frame: Frame,
    pub damaged: bool,
}

impl Fabric {
    /// What arrives at these switches is handed to [`Sink::handed`] from now on, and forwarded by nobody here.
    ///
    /// # Panics
    /// If one of them is no switch.
    pub fn hand_over(&mut self, switches: &[NodeId]) {
        for &switch in switches {
            let node = &self.network.nodes[switch.index()];
            assert!(node.kind == NodeKind::Switch, "{} is no switch", node.name);
            for port in &node.ports {
                self.ports[port.index()].of_real_switch = true;
                let inward = self.network.ports[port.index()].reverse;
                self.ports[inward.index()].hands_over = true;
                self.ports[inward.index()].switch_at_once();
            }
        }
    }

    /// A switch that is not ours sends a frame at `at`: it enters the queue of its port then. Returns the effective time, as
    /// [`Fabric::ingress`] does; `None` (and nothing enters) where no such switch has this port, or the stream is none.
    /// Re-entries of one time come in the order of calls, behind changes, ingress and arrivals over cuts.
    pub fn reentry(&mut self, at: Time, reentry: Reentry) -> Option<Time> {
        let known = match reentry.frame.route {
            Route::Tree(stream) => stream.index() < self.network.streams.len(),
            Route::Unicast(node) => node.index() < self.network.nodes.len(),
            Route::Multicast(_) | Route::Broadcast => true,
        };
        let ours = self.ports.get(reentry.port.index());
        if !known || !ours.is_some_and(|port| port.of_real_switch) {
            return None;
        }
        let stamp = at.0.max(self.floor);
        let place = self.reentries.partition_point(|entry| entry.0 <= stamp);
        self.reentries.insert(place, (stamp, reentry));
        Some(Time(stamp))
    }

    /// The next of them comes to its port.
    pub(super) fn enter_again<S: Sink>(&mut self, now: u64, sink: &mut S) {
        let Some((_, Reentry { port, frame, damaged })) = self.reentries.pop_front() else {
            return;
        };
        // A real switch may send a frame another way than its stream's tree goes.
        let position = match frame.route {
            Route::Tree(stream) => self.wiring.position(stream, port).unwrap_or(NONE),
            _ => NONE,
        };
        let index = self.slab.insert(frame, position, damaged);
        self.enqueue(now, port.0, index, sink);
    }

    /// Out of the fabric and into a switch that is not ours.
    pub(super) fn hand<S: Sink>(&mut self, now: u64, port: u32, index: u32, sink: &mut S) {
        let entry = self.slab.get(index);
        sink.handed(&Handed {
            port: PortId(port),
            at: Time(now),
            frame: entry.frame,
            damaged: entry.damaged,
        });
        self.slab.remove(index);
    }

    /// The leaf of its stream that a frame has reached which came off its tree.
    pub(super) fn leaf_off_tree(&self, frame: &Frame, host: NodeId) -> u32 {
        let Route::Tree(stream) = frame.route else {
            return NO_LEAF;
        };
        let leaves = self.network.streams.get(stream.index()).map(|s| &s.tree.leaves);
        (0u32..)
            .zip(leaves.into_iter().flatten())
            .find(|(_, leaf)| leaf.node == host)
            .map_or(NO_LEAF, |(index, _)| index)
    }

    /// A frame of a stream at a switch of ours where it came off its tree: it goes on along the tree where that comes by here too,
    /// else to its one receiver.
    pub(super) fn forward_off_tree<S: Sink>(&mut self, now: u64, node: NodeId, index: u32, sink: &mut S) {
        let Route::Tree(stream) = self.slab.get(index).frame.route else {
            return;
        };
        let tree = &self.network.streams[stream.index()].tree;
        let arrives = |port: PortId| self.network.ports[port.index()].peer == node;
        if let Some(hop) = tree.hops.iter().find(|hop| arrives(hop.port))
            && let Some(position) = self.wiring.position(stream, hop.port)
        {
            let range = self.wiring.after(position);
            return self.forward_tree(now, range, index, sink);
        }
        let next = match tree.leaves[..] {
            [leaf] => self.network.routes.next_hop(node, leaf.node),
            _ => None,
        };
        match next {
            Some(port) => self.enqueue(now, port.0, index, sink),
            None => self.drop(now, None, index, DropReason::NoRoute, sink),
        }
    }
}

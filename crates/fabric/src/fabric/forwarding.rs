//! What a node does with a frame: deliver it, or hand it to the right egress ports.

use super::Fabric;
use crate::frame::{DropReason, Route, Sink};
use crate::slab::NONE;
use std::sync::Arc;
use timebound_model::{NodeId, Time};

impl Fabric {
    /// A frame enters the node at the end of the link behind `port`.
    #[inline]
    pub(super) fn arrive<S: Sink>(&mut self, now: u64, port: u32, index: u32, sink: &mut S) {
        let state = &self.ports[port as usize];
        let peer = NodeId(state.peer);
        if !state.peer_is_host {
            if state.hands_over {
                return self.hand(now, port, index, sink);
            }
            return self.forward(now, peer, state.reverse, index, sink);
        }
        let entry = self.slab.get(index);
        let leaf = if entry.position == NONE {
            self.leaf_off_tree(&entry.frame, peer)
        } else {
            self.wiring.hop(entry.position).leaf
        };
        sink.delivered(Time(now), peer, leaf, &entry.frame, entry.damaged);
        self.slab.remove(index);
    }

    /// Hands a frame to the egress ports of `node` (never back out of `back`).
    #[inline]
    pub(super) fn forward<S: Sink>(&mut self, now: u64, node: NodeId, back: u32, index: u32, sink: &mut S) {
        let entry = self.slab.get(index);
        match entry.frame.route {
            Route::Tree(stream) => {
                let range = if entry.position == NONE {
                    // Only the source may enter its tree.
                    let source = self.network.streams.get(stream.index()).map(|s| s.source);
                    if back != NONE && source.is_some() {
                        return self.forward_off_tree(now, node, index, sink);
                    }
                    self.wiring.roots(stream).filter(|_| source == Some(node))
                } else {
                    Some(self.wiring.after(entry.position))
                };
                self.forward_tree(now, range.unwrap_or((0, 0)), index, sink);
            }
            Route::Unicast(destination) => match self.network.routes.next_hop(node, destination) {
                Some(port) => self.enqueue(now, port.0, index, sink),
                None => self.drop(now, None, index, DropReason::NoRoute, sink),
            },
            Route::Multicast(_) | Route::Broadcast => self.flood(now, node, back, index, sink),
        }
    }

    #[inline]
    pub(super) fn forward_tree<S: Sink>(
        &mut self,
        now: u64,
        (first, end): (u32, u32),
        index: u32,
        sink: &mut S,
    ) {
        if first == end {
            return self.drop(now, None, index, DropReason::NoRoute, sink);
        }
        if end - first > 1 {
            sink.copied(self.slab.get(index).frame.handle, end - first - 1);
        }
        for child in first..end {
            let position = self.wiring.child(child);
            let copy = if child + 1 == end {
                index
            } else {
                self.slab.copy(index)
            };
            self.slab.get_mut(copy).position = position;
            self.enqueue(now, self.wiring.hop(position).port, copy, sink);
        }
    }

    /// Broadcast and groups: all ports of the spanning tree, or those that lead to members.
    pub(super) fn flood<S: Sink>(&mut self, now: u64, node: NodeId, back: u32, index: u32, sink: &mut S) {
        let wiring = Arc::clone(&self.wiring);
        let frame = self.slab.get(index).frame;
        let mut waiting = None;
        for &port in wiring.spanning(node) {
            let wanted = match frame.route {
                // A host does not know what a switch that is not ours would do with it.
                Route::Multicast(group) => {
                    self.groups.leads_to_members(group, port)
                        || (back == NONE && self.ports[port as usize].hands_over)
                }
                _ => true,
            };
            if port == back || !wanted {
                continue;
            }
            if let Some(earlier) = waiting.replace(port) {
                sink.copied(frame.handle, 1);
                let copy = self.slab.copy(index);
                self.enqueue(now, earlier, copy, sink);
            }
        }
        match waiting {
            Some(port) => self.enqueue(now, port, index, sink),
            None => self.drop(now, None, index, DropReason::NoRoute, sink),
        }
    }
}

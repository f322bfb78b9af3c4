//! A network cut in two: each part is emulated by a fabric of its own, and what leaves one part enters the other.
//!
//! Both fabrics have the whole network, so ports, streams and places in trees have the same numbers in both. A frame leaves
//! at the moment its last bit is on the cut link, with the time at which it will arrive at the other end; the link's delay is
//! thus the time that its carrier has.

use super::Fabric;
use crate::frame::{Frame, Route, Sink};
use crate::slab::NONE;
use timebound_model::{PortId, Time};

/// A frame on a cut link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crossing {
    /// The egress port that it left by, in the other part.
    pub port: PortId,
    /// Its last bit was on the link.
    pub sent: Time,
    /// It enters the node at the link's end (after that node's switching delay).
    pub at: Time,
    pub frame: Frame,
    /// Place in its stream's tree, for a fabric of the same network.
    pub position: u32,
    pub damaged: bool,
}

impl Fabric {
    /// What these ports send is handed to [`Sink::crossed`] from now on, and nothing of it arrives here.
    pub fn cut(&mut self, ports: &[PortId]) {
        for port in ports {
            self.ports[port.index()].cut = true;
        }
    }

    /// A frame arrives over a cut link; its time is `crossing.at`. Returns the effective time, as [`Fabric::ingress`] does;
    /// `None` (and nothing enters) where no fabric of this network can have sent it.
    pub fn arrival(&mut self, crossing: Crossing) -> Option<Time> {
        let position = crossing.position;
        let fits = match crossing.frame.route {
            Route::Tree(stream) => {
                stream.index() < self.network.streams.len() && self.wiring.leads(position, crossing.port)
            }
            Route::Unicast(node) => node.index() < self.network.nodes.len() && position == NONE,
            Route::Multicast(_) | Route::Broadcast => position == NONE,
        };
        if !fits || crossing.port.index() >= self.ports.len() {
            return None;
        }
        let stamp = crossing.at.0.max(self.floor);
        let place = self.crossings.partition_point(|entry| entry.0 <= stamp);
        self.crossings.insert(place, (stamp, crossing));
        Some(Time(stamp))
    }

    /// The next of them enters the node at its link's end.
    pub(super) fn enter_crossed<S: Sink>(&mut self, now: u64, sink: &mut S) {
        if let Some((_, crossing)) = self.crossings.pop_front() {
            let index = self
                .slab
                .insert(crossing.frame, crossing.position, crossing.damaged);
            self.arrive(now, crossing.port.0, index, sink);
        }
    }
}

//! What goes in (frames) and what comes out (calls on a [`Sink`]).

use crate::fabric::{Crossing, Handed};
use timebound_model::{Class, NodeId, PortId, StreamId, Time, WireBytes};

/// No stream: the frame belongs to none that was declared.
pub const NO_STREAM: u32 = u32::MAX;
/// No leaf: the frame was not sent along a stream's tree.
pub const NO_LEAF: u32 = u32::MAX;

/// One frame as the fabric sees it; its bytes stay with the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The caller's slot for the payload; every copy carries the same.
    pub handle: u32,
    /// Size on the wire.
    pub wire: WireBytes,
    /// Traffic class; values above 7 count as 7.
    pub class: Class,
    pub route: Route,
    /// Index of the declared stream, [`NO_STREAM`] if none.
    pub stream: u32,
    /// The caller's own, a sequence number for example.
    pub tag: u64,
}

/// Which way a frame takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Along the tree of a declared stream.
    Tree(StreamId),
    /// Shortest path to a host.
    Unicast(NodeId),
    /// To the members of a group ([`crate::Fabric::join`]), along the spanning tree.
    Multicast(u32),
    /// To every host, along the spanning tree.
    Broadcast,
}

/// Why a copy ended without being delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The egress buffer was full.
    Buffer,
    /// The loss rule of the link.
    Loss,
    /// Damaged on a link whose receiver drops damaged frames.
    Corruption,
    /// The link was down or in a scheduled outage while the frame was sent, or no slot of its port is long enough for it.
    Outage,
    /// Nowhere to go: no path, no member of the group, not the source of the tree.
    NoRoute,
}

/// Receives what the fabric does. Monomorphised: an empty method costs nothing.
///
/// Copies balance: for each frame that entered, `1 + sum of copied = delivered + dropped + crossed + handed + still
/// inside`; what comes back from a switch that is not ours has entered once more.
pub trait Sink {
    /// Whether [`Sink::transmitted`] is called (captures); compiled away when not.
    const TRANSMISSIONS: bool = false;
    /// Whether [`Sink::queued`] is called; compiled away when not.
    const ARRIVALS: bool = false;

    /// The last bit of a copy arrived at `host`; `leaf` indexes the leaves of the stream's tree.
    fn delivered(&mut self, at: Time, host: NodeId, leaf: u32, frame: &Frame, damaged: bool);

    /// A copy ended; `port` is the egress port concerned, `None` where the frame never got one.
    fn dropped(&mut self, at: Time, port: Option<PortId>, frame: &Frame, reason: DropReason);

    /// The fabric holds `extra` more copies of the frame with this `handle`.
    fn copied(&mut self, handle: u32, extra: u32);

    /// A copy left for the other part of a cut network ([`crate::Fabric::cut`]): it is neither delivered nor dropped here.
    #[inline]
    fn crossed(&mut self, crossing: &Crossing) {
        let _ = crossing;
    }

    /// A copy arrived at a switch that is not ours ([`crate::Fabric::hand_over`]): it is neither delivered nor dropped here.
    #[inline]
    fn handed(&mut self, handed: &Handed) {
        let _ = handed;
    }

    /// A copy came to the egress `port`, where it waits or starts at once; called before the port decides about its room.
    #[inline]
    fn queued(&mut self, port: PortId, at: Time, frame: &Frame) {
        let _ = (port, at, frame);
    }

    /// `port` sent the frame from `started` to `ended` (equal on the way out of a shared segment, which does not
    /// serialise again); called before the link's impairments have their say.
    #[inline]
    fn transmitted(&mut self, port: PortId, started: Time, ended: Time, frame: &Frame) {
        let _ = (port, started, ended, frame);
    }
}

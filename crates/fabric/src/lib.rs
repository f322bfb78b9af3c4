//! The emulated network as a machine without I/O: ports, queues, links, shared media, impairments, forwarding.
//!
//! Frames and times go in ([`Fabric::ingress`], [`Fabric::advance`]), deliveries and drops come out ([`Sink`]). The same
//! code runs under the virtual clock of the simulator and the real one of the emulator: what happens depends on the
//! network, the seed and the effective stamps of the frames, never on how often or how far the fabric was advanced.
//!
//! This room knows no sockets, no clocks, and not how streams release their frames.

mod change;
pub mod classify;
mod draws;
mod events;
mod fabric;
mod frame;
mod groups;
mod impairment;
pub mod l2;
mod medium;
mod opportunities;
mod port;
mod queues;
mod slab;
pub mod transit;
mod wiring;

pub use change::{Change, Conditions};
pub use draws::{Chance, Draws, StreamName};
pub use fabric::{Crossing, Fabric, Handed, Reentry, Switching, Ties, takes_greatest};
pub use frame::{DropReason, Frame, NO_LEAF, NO_STREAM, Route, Sink};
pub use impairment::{Verdict, loss_verdicts};
pub use port::PortCounters;
pub use wiring::spanning_tree;

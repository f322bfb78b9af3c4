//! The model: units, the declared network and streams, and the compiled [`Network`] that every other room reads.
//!
//! A [`declaration::Declaration`] (names, as Python says it) is compiled once into a [`network::Network`] (dense ids,
//! integer nanoseconds, directed ports, trees). This room does no I/O, reads no clock and draws no random number.

pub mod compile;
pub mod declaration;
pub mod ids;
pub mod network;
pub mod routes;
mod slots;
mod trace;
pub mod units;

pub use compile::{CompileError, CompileErrors, compile, compile_conditions, compile_stream};
pub use declaration::Declaration;
pub use ids::{LinkId, MediumId, NodeId, PortId, StreamId};
pub use network::{
    Arrival, Discipline, Hop, Impairments, Leaf, Link, Network, Node, NodeKind, Port, Release, Role, Stream,
    Tree,
};
pub use slots::Slots;
pub use trace::Trace;
pub use units::{Class, Grain, Rate, Span, Speed, Time, WireBytes};

//! Safe worst-case bounds: a compiled [`timebound_model::Network`] in; latency bounds per stream and receiver, and utilisation
//! and backlog per port out, or the reason why there is no number.
//!
//! This room is pure: it does no I/O, reads no clock, draws no random number, and knows neither fabric nor simulator.

mod cause;
mod holistic;
mod layout;
mod options;
mod order;
mod port;
mod report;
mod result;
mod service;
mod utilisation;

pub use holistic::holistic;
pub use options::Options;
pub use result::{
    Analysis, ClassResult, HopResult, LeafResult, Outcome, PortResult, StreamResult, Utilisation,
};

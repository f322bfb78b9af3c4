//! Traffic endpoints on real sockets: MQTT clients, UDP senders and receivers, background traffic, and the embedded broker.
//!
//! One process holds them all; every socket is opened in the network namespace of its node. This room knows neither the
//! fabric nor the model: it is told addresses, ports and release patterns ([`plan::EndpointPlan`]), and it writes down what was
//! sent and received when ([`record`]).

mod arrivals;
mod background;
#[cfg(feature = "broker")]
pub mod broker;
mod check;
mod control;
mod error;
mod histogram;
mod measured;
pub mod plan;
pub mod record;
mod release;
mod run;
mod session;
mod sockets;
pub mod summary;
mod sys;
pub mod wire;

pub use check::check;
pub use control::{Control, NamespaceProvider, Orders, Progress, RunClock, SameNamespace};
pub use error::EndpointError;
pub use plan::EndpointPlan;
pub use release::{Due, Releases};
pub use run::{run, run_here};
pub use summary::Summary;
pub use sys::monotonic_ns;

//! Traffic endpoints on real sockets: MQTT clients, UDP senders and receivers, background traffic, and the embedded broker.
//!
//! One process holds them all; every socket is opened in the network namespace of its node. This room knows neither the
//! fabric nor the model: it is told addresses, ports and release patterns ([`plan::EndpointPlan`]), and it writes down what was
//! sent and received when (`endpoints.bin`).

pub mod plan;
pub mod summary;

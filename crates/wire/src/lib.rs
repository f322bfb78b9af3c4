//! What crosses the wire, as functions without I/O: bytes and text in, values out, and back.
//!
//! - [`attributes`]: real-time attributes of flows as user properties of MQTT 5 packets.
//! - [`mqtt`]: packets as an intermediary sees them.
//! - [`quantity`]: numbers with a unit.
//! - [`short`]: the numbers of measured messages that have no room for a header.
//! - [`topic`]: topic names and filters.
//! - [`websocket`]: frames of WebSocket, as a server sees them.

pub mod attributes;
pub mod mqtt;
pub mod quantity;
pub mod short;
pub mod topic;
pub mod websocket;

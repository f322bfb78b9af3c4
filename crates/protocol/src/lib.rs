//! Protocol logic without I/O and without a clock: bytes and times in, what to send and to do out.
//!
//! - [`intermediary`]: what the real-time manager does with each packet between a client and its broker.
//! - [`peer`]: messages between managers of several edge networks.

pub mod intermediary;
pub mod peer;

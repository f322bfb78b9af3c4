//! Protocol logic without I/O and without a clock: bytes and times in, what to send and to do out.
//!
//! - [`peer`]: messages between managers of several edge networks.

pub mod peer;

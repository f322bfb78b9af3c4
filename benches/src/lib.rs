//! Checks and measurements that need several rooms at once: bounds against the simulator on random networks.
//!
//! Seeded: network `n` of seed `s` is the same on every machine.

pub mod corpus;
pub mod draw;
pub mod generate;
pub mod hold;
pub mod media;
pub mod parts;
pub mod spread;
pub mod witness;

//! Sessions between a client and a broker that are byte strings.

mod bounded;
mod grouped;
mod relayed;

mod streams;
mod support;
mod verdicts;

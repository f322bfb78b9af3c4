//! What the real-time manager (RT-NM; RT-MQTT, section IV) does with each packet of a connection.
//!
//! A [`Session`] is one connection of a client and the one to the broker that belongs to it. Its owner hands in the bytes that have arrived, in
//! either direction, and is told what to do with the first of them ([`Step`]): send them on, wait, or put others in their place. Payloads
//! are never looked at and never copied; time and whether anybody decides about requests are arguments ([`Context`]). What is to be
//! told to others comes out as [`Event`]s. Neither order nor bytes of what is sent on change, but for acknowledgements with an answer in them.
//!
//! This room knows no sockets, no clocks and no stores. It takes apart only what it acts on: whatever it cannot read is sent on for
//! the broker to judge, as long as it can see where the packet ends.

mod answers;
mod context;
mod downlink;
mod flow;
mod flows;
mod greeting;
mod groups;
mod phase;
mod publishing;
mod session;
mod stream;
mod subscribing;
mod subscriptions;
mod uplink;

pub use answers::Verdict;
pub use context::{Context, LONGEST_CONNECT, Limits, Offence};
pub use flow::{Input as FlowInput, State as FlowState, next as next_flow_state};
pub use flows::Side;
pub use groups::{Group, Groups, Outgoing, Relay, Room};
pub use phase::{Input, Phase, next as next_phase};
pub use session::{Client, Event, HoldEnd, Session, Step};

#[cfg(test)]
mod tests;

//! The real-time manager's sockets around `timebound_protocol::intermediary`: clients on one side (TCP, TLS, WebSocket), the broker on the other, requests
//! out and verdicts in over queues.
//!
//! One thread accepts, the others serve connections, each its share of them ([`worker`]): nothing is shared between threads but counters
//! and queues. A connection ([`relay`]) has two directions ([`pipe`]), each with one buffer while there is something in it: bytes are
//! read into it, looked at by the session, and written from it. A direction reads again when all that may go on has been written, which
//! is all the back-pressure there is. This room knows no stores, no controllers, and no Python.

pub mod contract;
mod counters;
mod http;
mod limits;
mod manager;
mod memory;
mod peers;
mod pipe;
mod queue;
mod relay;
mod report;
mod start;
mod strangers;
mod stream;
mod tls;
mod websocket;
mod worker;

pub use manager::Manager;
pub use peers::Loss;
pub use start::StartError;

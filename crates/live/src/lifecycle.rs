//! Life of the nodes: what is running, stopped or paused, and which order leads where.
//!
//! [`TRANSITIONS`] is the whole of it; an order that is not in the table is refused. `python/timebound/scenario/lifecycle.py` has
//! the same table, so that a schedule that cannot be obeyed is refused with its line before anything starts.

use serde::{Deserialize, Serialize};

/// What a node can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    Stop,
    Start,
    Restart,
    Pause,
    Resume,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As at the start of every run.
    Running,
    /// No processes, and its interface is down.
    Stopped,
    /// Its processes stand still (SIGSTOP); its kernel goes on: frames arrive, are acknowledged and wait in socket buffers.
    Paused,
}

/// All orders.
pub const ORDERS: [Order; 5] = [
    Order::Stop,
    Order::Start,
    Order::Restart,
    Order::Pause,
    Order::Resume,
];

/// From, order, to.
pub const TRANSITIONS: [(State, Order, State); 8] = [
    (State::Running, Order::Stop, State::Stopped),
    (State::Running, Order::Restart, State::Running),
    (State::Running, Order::Pause, State::Paused),
    (State::Stopped, Order::Start, State::Running),
    (State::Stopped, Order::Restart, State::Running),
    (State::Paused, Order::Stop, State::Stopped),
    (State::Paused, Order::Restart, State::Running),
    (State::Paused, Order::Resume, State::Running),
];

impl State {
    /// Where an order leads; `None` where it makes no sense.
    #[must_use]
    pub fn after(self, order: Order) -> Option<Self> {
        TRANSITIONS
            .iter()
            .find(|(from, known, _)| (*from, *known) == (self, order))
            .map(|(_, _, to)| *to)
    }
}

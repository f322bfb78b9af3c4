//! Life of the nodes: what is running, stopped or paused, and which order leads where.
//!
//! [`TRANSITIONS`] is the whole of it; an order that is not in the table is refused. `python/timebound/scenario/lifecycle.py` has
//! the same table, so that a schedule that cannot be obeyed is refused with its line before anything starts.

pub(crate) mod keeper;

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

/// One order and what became of it: an entry of `live.json`'s `lifecycle`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeEventReport {
    pub node: String,
    pub order: Order,
    /// `schedule` or `command`.
    pub by: &'static str,
    /// Run time at which it was given.
    pub asked_ns: i64,
    /// Run time at which the node had obeyed; null if it was refused, or not finished when the run ended.
    pub done_ns: Option<i64>,
    /// What the node was then.
    pub state: State,
    /// Processes that ended only by SIGKILL.
    pub killed: u32,
    /// Why it was refused, or what went wrong on the way.
    pub problem: Option<String>,
}

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

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Paused => "paused",
        })
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Restart => "restart",
            Self::Pause => "pause",
            Self::Resume => "resume",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_in_every_state_is_decided() {
        let table: Vec<_> = [State::Running, State::Stopped, State::Paused]
            .iter()
            .flat_map(|state| ORDERS.map(|order| format!("{state} {order}: {:?}", state.after(order))))
            .collect();
        assert_eq!(
            table,
            [
                "running stop: Some(Stopped)",
                "running start: None",
                "running restart: Some(Running)",
                "running pause: Some(Paused)",
                "running resume: None",
                "stopped stop: None",
                "stopped start: Some(Running)",
                "stopped restart: Some(Running)",
                "stopped pause: None",
                "stopped resume: None",
                "paused stop: Some(Stopped)",
                "paused start: None",
                "paused restart: Some(Running)",
                "paused pause: None",
                "paused resume: Some(Running)",
            ]
        );
    }

    #[test]
    fn no_state_is_a_dead_end() {
        for state in [State::Running, State::Stopped, State::Paused] {
            assert!(
                ORDERS
                    .iter()
                    .any(|order| state.after(*order) == Some(State::Running))
            );
        }
    }
}

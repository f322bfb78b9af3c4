//! Orders for a run while it runs: who may give them, how they arrive, what is answered.
//!
//! A run with a [`crate::plan::ControlPlan`] is listed in its registry (see [`registry`]) with a Unix stream socket, served by PID 1's
//! main loop every 10 ms from the end of bring-up to the end of the run. (During the pre-flight check, up to 2 s, orders wait.)
//! Only the user who started the run is heard.
//!
//! # The contract, version 1
//! One JSON object a line, both ways; a line has at most [`orders::LONGEST_LINE`] bytes, and whoever sends a longer one, or one that
//! is no request, is told so and cut off. A request is `{"version": 1, "id": N, "order": ORDER}`; `id` is the sender's own number and
//! comes back in every answer: `{"id": N, "ok": {..}}`, `{"id": N, "error": "..", "hint": ".."}`, and later
//! `{"id": N, "ended": {"exit_code": .., "signal": ..}}` for a command. Orders ([`orders::Order`]):
//!
//! | order | answer |
//! |---|---|
//! | `"status"` | run, phase, run time, nodes with their states |
//! | `{"exec": {node, argv, env, folder, terminal}}` | `{pid}` once it runs; `ended` when it is over. Three descriptors come with it: standard input, output, error; one with `terminal`, which becomes the controlling terminal |
//! | `{"signal": {id, signal}}` | `{}`; to all processes of a command's session |
//! | `{"node": {nodes, order}}` | `{nodes}` with their states, once all have obeyed |
//! | `"top"` | counters of nodes and links, lateness ([`snapshot`]) |
//!
//! Commands end with their connection (SIGHUP and SIGTERM to their session, SIGKILL two seconds later) and with the run.

pub(crate) mod channel;
pub(crate) mod desk;
pub(crate) mod exec;
pub mod orders;
pub mod registry;
pub(crate) mod snapshot;

pub(crate) use desk::{Desk, Surroundings};
pub(crate) use exec::Commands;

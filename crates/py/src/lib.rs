//! PyO3 only: the core as the Python module `timebound._core`. JSON in, JSON out; no logic.

mod admission;
mod assign;
mod comparison;
mod explain;
mod manager;
mod network;
mod options;
mod processes;
mod server;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::admission::Admission;
    #[pymodule_export]
    use crate::manager::Manager;
    #[pymodule_export]
    use crate::network::Network;
    #[pymodule_export]
    use crate::processes::{broker, doctor, node_transitions, sandbox, sweep, timers};
    #[pymodule_export]
    use crate::server::server;
}

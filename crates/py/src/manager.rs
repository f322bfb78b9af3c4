//! The class `Manager`: the real-time manager between clients and their broker (`crates/manager/src/contract.rs` has what passes).

use crate::network::{invalid, json};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::time::Duration;
use timebound_manager::StartError;

/// A manager that serves clients in threads of its own until it is stopped; threads may share it.
#[pyclass(frozen, module = "timebound._core")]
pub(crate) struct Manager {
    inner: timebound_manager::Manager,
}

/// What is wrong with the configuration is a `ValueError`, what the system refuses an `OSError`.
fn failed(error: &StartError) -> PyErr {
    match error {
        StartError::Listen { .. } | StartError::System { .. } => PyOSError::new_err(error.to_string()),
        StartError::Json(_)
        | StartError::Value { .. }
        | StartError::Missing { .. }
        | StartError::File { .. }
        | StartError::ServerName(_) => PyValueError::new_err(error.to_string()),
    }
}

#[pymethods]
impl Manager {
    /// Binds the listeners of the configuration (JSON of `contract::Config`) and serves.
    #[new]
    fn new(py: Python<'_>, config: &str) -> PyResult<Self> {
        let config = serde_json::from_str(config).map_err(invalid)?;
        let inner = py
            .detach(|| timebound_manager::Manager::start(&config))
            .map_err(|error| failed(&error))?;
        Ok(Self { inner })
    }

    /// Where it listens, in the order of the configuration: `(address, port)`.
    fn addresses(&self) -> Vec<(String, u16)> {
        let addresses = self.inner.addresses().iter();
        addresses
            .map(|address| (address.ip().to_string(), address.port()))
            .collect()
    }

    /// Connections that it can hold: those of the configuration, or what the limit of open files allows.
    fn most_connections(&self) -> usize {
        self.inner.most_connections()
    }

    /// Events (JSON of `contract::Event`); waits for the first one as long as that, at most a minute.
    fn poll(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<Vec<String>> {
        let timeout = Duration::from_millis(timeout_ms.min(60_000));
        let events = py.detach(|| self.inner.poll(timeout));
        events.iter().map(json).collect()
    }

    /// The answer to a request (JSON of `contract::Verdict`); about one that is gone it is passed over.
    fn verdict(&self, py: Python<'_>, verdict: &str) -> PyResult<()> {
        let verdict = serde_json::from_str(verdict).map_err(invalid)?;
        py.detach(|| self.inner.verdict(verdict));
        Ok(())
    }

    /// All that it has to do with managers of other networks from now on (JSON of `contract::Groups`); said again it changes nothing.
    fn groups(&self, py: Python<'_>, groups: &str) -> PyResult<()> {
        let groups = serde_json::from_str(groups).map_err(invalid)?;
        py.detach(|| self.inner.groups(groups))
            .map_err(|error| failed(&error))
    }

    /// Is anybody there who decides? Nobody is until this was called; nothing is held then.
    fn control(&self, py: Python<'_>, alive: bool) {
        py.detach(|| self.inner.control(alive));
    }

    /// Counters and gauges (JSON of `contract::Stats`).
    fn stats(&self) -> PyResult<String> {
        json(&self.inner.stats())
    }

    /// Ends connections and threads; events that were not polled can still be. Again: nothing more happens.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.inner.stop());
    }
}

//! What runs as a process of its own: the sandbox of an emulation, the embedded broker.

use crate::network::invalid;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Becomes the sandbox of one emulation; returns its exit code.
#[pyfunction]
pub(crate) fn sandbox(py: Python<'_>, plan: PathBuf) -> i32 {
    py.detach(|| timebound_live::main(&plan))
}

/// Runs the embedded MQTT broker until SIGTERM or SIGINT; returns its exit code.
#[pyfunction]
pub(crate) fn broker(py: Python<'_>, config: &str) -> PyResult<i32> {
    let config = serde_json::from_str(config).map_err(invalid)?;
    py.detach(|| timebound_endpoints::broker::broker(&config))
        .map_err(|error| PyOSError::new_err(error.to_string()))?;
    Ok(0)
}

/// How late timers wake on this host and what its clock costs, as JSON; takes twice `seconds`.
#[pyfunction]
pub(crate) fn timers(py: Python<'_>, seconds: f64) -> PyResult<String> {
    let length = std::time::Duration::try_from_secs_f64(seconds).map_err(invalid)?;
    let found = py.detach(|| timebound_live::timers(length));
    serde_json::to_string(&found).map_err(invalid)
}

/// What this host allows, as JSON.
#[pyfunction]
pub(crate) fn doctor() -> PyResult<String> {
    serde_json::to_string(&timebound_live::doctor()).map_err(invalid)
}

/// Removes what dead runs left in these registry folders, and their cgroups.
#[pyfunction]
pub(crate) fn sweep(py: Python<'_>, registries: Vec<PathBuf>) {
    py.detach(|| timebound_live::sweep(&registries));
}

/// The table of a node's states and orders, as JSON: `[[from, order, to], ..]`.
#[pyfunction]
pub(crate) fn node_transitions() -> PyResult<String> {
    serde_json::to_string(&timebound_live::lifecycle::TRANSITIONS).map_err(invalid)
}

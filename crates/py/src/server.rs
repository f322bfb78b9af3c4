//! The first-in-first-out server behind a broker's stage.

use crate::network::{invalid, json};
use pyo3::prelude::*;
use serde::Deserialize;
use timebound_bounds::Job;
use timebound_model::Span;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobOptions {
    period_ns: u64,
    jitter_ns: u64,
    work_ns: u64,
}

/// Response time of a first-in-first-out server: a list of `{"period_ns", "jitter_ns", "work_ns"}` in, `{"kind": "response",
/// "response_ns", "utilisation"}`, `{"kind": "overloaded", "utilisation"}` or `{"kind": "too-long"}` out.
#[pyfunction]
pub(crate) fn server(py: Python<'_>, jobs: &str) -> PyResult<String> {
    let jobs: Vec<JobOptions> = serde_json::from_str(jobs).map_err(invalid)?;
    let jobs: Vec<Job> = jobs
        .iter()
        .map(|job| Job {
            period: Span(job.period_ns),
            jitter: Span(job.jitter_ns),
            work: Span(job.work_ns),
        })
        .collect();
    py.detach(|| json(&timebound_bounds::server(&jobs)))
}

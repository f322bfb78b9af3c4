//! The class `Admission`: bounds that are kept while streams join and leave.

use crate::network::{invalid, json};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use serde::Deserialize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use timebound_bounds::{AdmissionOptions, Decision, Misuse, Refusal};
use timebound_model::declaration::StreamDecl;
use timebound_model::{Declaration, Stream, StreamId, compile, compile_stream};

/// Bounds of all streams of a network, kept while streams join, leave and change; threads may share it.
#[pyclass(frozen, module = "timebound._core")]
pub(crate) struct Admission {
    state: Mutex<timebound_bounds::Admission>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[serde(default = "yes")]
    assume_best_effort: bool,
    #[serde(default)]
    check_buffers: bool,
}

const fn yes() -> bool {
    true
}

/// Errors as of `Network`: `[{"path", "message", "hint"}]`.
fn problem(path: &str, message: &str, hint: &str) -> PyErr {
    let problem = serde_json::json!([{"path": path, "message": message, "hint": hint}]);
    PyValueError::new_err(problem.to_string())
}

fn misuse(error: &Misuse) -> PyErr {
    problem("stream.name", &error.to_string(), "names are unique in a network")
}

fn told(decision: Decision) -> PyResult<String> {
    match decision {
        Ok(admitted) => json(&serde_json::json!({
            "admitted": true, "result": admitted.result, "touched": admitted.touched,
        })),
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &Refusal) -> PyResult<String> {
    json(&serde_json::json!({
        "admitted": false, "total": refusal.total, "breaches": refusal.breaches,
        "texts": refusal.breaches.iter().map(ToString::to_string).collect::<Vec<_>>(),
    }))
}

impl Admission {
    fn state(&self) -> MutexGuard<'_, timebound_bounds::Admission> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id(state: &timebound_bounds::Admission, name: &str) -> PyResult<StreamId> {
    state
        .find(name)
        .ok_or_else(|| PyKeyError::new_err(name.to_owned()))
}

fn compiled(state: &timebound_bounds::Admission, stream: &str) -> PyResult<Stream> {
    let decl: StreamDecl = serde_json::from_str(stream).map_err(invalid)?;
    match compile_stream(state.network(), &decl) {
        Ok(stream) => Ok(stream),
        Err(errors) => Err(PyValueError::new_err(json(&errors.0)?)),
    }
}

#[pymethods]
impl Admission {
    /// The network of a declaration with all its streams, which nobody is asked about. Options `{"assume_best_effort": bool,
    /// "check_buffers": bool}`, none of which is required.
    #[new]
    fn new(py: Python<'_>, declaration: &str, options: &str) -> PyResult<Self> {
        let declaration: Declaration = serde_json::from_str(declaration).map_err(invalid)?;
        let options: Options = serde_json::from_str(options).map_err(invalid)?;
        let options = AdmissionOptions {
            assume_best_effort: options.assume_best_effort,
            check_buffers: options.check_buffers,
        };
        match compile(&declaration) {
            Ok(model) => Ok(Self {
                state: Mutex::new(py.detach(|| timebound_bounds::Admission::new(&model, options))),
            }),
            Err(errors) => Err(PyValueError::new_err(json(&errors.0)?)),
        }
    }

    /// May this stream (JSON of `StreamDecl`) join? If so it does, unless it is only asked for.
    #[pyo3(signature = (stream, only_ask=false))]
    fn add(&self, py: Python<'_>, stream: &str, only_ask: bool) -> PyResult<String> {
        py.detach(|| {
            let mut state = self.state();
            let stream = compiled(&state, stream)?;
            let decision = if only_ask {
                state.ask(stream)
            } else {
                state.add(stream)
            };
            told(decision.map_err(|error| misuse(&error))?)
        })
    }

    /// May this stream join? If so it does; the answer need not wait for the new bounds.
    fn decide(&self, py: Python<'_>, stream: &str) -> PyResult<String> {
        py.detach(|| {
            let mut state = self.state();
            let stream = compiled(&state, stream)?;
            match state.decide(stream).map_err(|error| misuse(&error))? {
                Ok(_) => json(&serde_json::json!({ "admitted": true })),
                Err(refusal) => refused(&refusal),
            }
        })
    }

    /// Works out the bounds that decisions did without.
    fn settle(&self, py: Python<'_>) {
        py.detach(|| self.state().settle());
    }

    /// Are all bounds worked out?
    fn is_settled(&self, py: Python<'_>) -> bool {
        py.detach(|| self.state().is_settled())
    }

    /// May the stream of this name become that one? If so it does.
    fn change(&self, py: Python<'_>, name: &str, stream: &str) -> PyResult<String> {
        py.detach(|| {
            let mut state = self.state();
            let (id, stream) = (id(&state, name)?, compiled(&state, stream)?);
            told(state.change(id, stream).map_err(|error| misuse(&error))?)
        })
    }

    fn remove(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| {
            let mut state = self.state();
            let id = id(&state, name)?;
            state.remove(id).map(|_| ()).map_err(|error| misuse(&error))
        })
    }

    /// What would still be admitted in the place of `stream`, and of the stream named `replaced` if that is there.
    #[pyo3(signature = (stream, replaced=None))]
    fn alternatives(&self, py: Python<'_>, stream: &str, replaced: Option<&str>) -> PyResult<String> {
        py.detach(|| {
            let mut state = self.state();
            let stream = compiled(&state, stream)?;
            let replaced = replaced.map(|name| id(&state, name)).transpose()?;
            json(
                &state
                    .alternatives(&stream, replaced)
                    .map_err(|error| misuse(&error))?,
            )
        })
    }

    /// The bounds of a stream as they are, as in the answer of `Network.bounds`.
    fn result(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        py.detach(|| {
            let mut state = self.state();
            let id = id(&state, name)?;
            json(&state.result(id))
        })
    }

    /// The ports (`a->b`) for which a full analysis has bounds and a state has none.
    fn uncovered(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| {
            let state = self.state();
            state
                .uncovered()
                .map(|port| state.network().port_name(port))
                .collect()
        })
    }

    /// The names of the streams that are there, sorted.
    fn names(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| {
            let state = self.state();
            state.streams().map(|(_, stream)| stream.name.clone()).collect()
        })
    }
}

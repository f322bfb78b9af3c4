//! The class `Network`: a compiled network that answers in JSON.

use crate::assign::{self, AssignOptions};
use crate::comparison::ComparisonOptions;
use crate::explain::ExplainOptions;
use crate::options::{BoundsOptions, SearchOptions, SimulateOptions};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use timebound_bounds::{Analysis, Outcome};
use timebound_model::{Declaration, Network as Model, Time, compile};

/// A compiled network with its streams.
#[pyclass(frozen, module = "timebound._core")]
pub(crate) struct Network {
    model: Arc<Model>,
}

pub(crate) fn invalid(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub(crate) fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(invalid)
}

#[pymethods]
impl Network {
    /// Compiles a declaration; `ValueError` carries the errors as JSON: `[{"path", "message", "hint"}]`.
    #[new]
    fn new(declaration: &str) -> PyResult<Self> {
        let declaration: Declaration = serde_json::from_str(declaration).map_err(|error| {
            let error = serde_json::json!([{"path": "", "message": error.to_string(), "hint": "this is a defect of Timebound"}]);
            PyValueError::new_err(error.to_string())
        })?;
        match compile(&declaration) {
            Ok(model) => Ok(Self {
                model: Arc::new(model),
            }),
            Err(errors) => Err(PyValueError::new_err(json(&errors.0)?)),
        }
    }

    /// Stream name -> receiver -> names of the ports on the way.
    fn paths(&self) -> PyResult<String> {
        let model = &self.model;
        let mut paths: BTreeMap<&str, BTreeMap<&str, Vec<String>>> = BTreeMap::new();
        for stream in &model.streams {
            let entry = paths.entry(&stream.name).or_default();
            for leaf in &stream.tree.leaves {
                let ports = stream
                    .tree
                    .path(*leaf)
                    .into_iter()
                    .map(|hop| stream.tree.hops[hop as usize].port);
                entry.insert(
                    &model.nodes[leaf.node.index()].name,
                    ports.map(|port| model.port_name(port)).collect(),
                );
            }
        }
        json(&paths)
    }

    /// Safe bounds; options `{"method": "holistic" | "calculus" | "port-by-port" | "bound", "jitter_override": {stream: ns}, "assume_best_effort": bool, "effort": int}`,
    /// none of which is required.
    fn bounds(&self, py: Python<'_>, options: &str) -> PyResult<String> {
        let options: BoundsOptions = serde_json::from_str(options).map_err(invalid)?;
        let options = options.resolve(&self.model);
        py.detach(|| json(&timebound_bounds::analyse(&self.model, &options)))
    }

    /// As `bounds`, and no more than is needed again and again: `{"streams": [[leaf, ..], ..], "ports": [..]}` in the order of the declaration; a leaf is
    /// `[from_nominal_ns, from_actual_ns, best_case_ns, best_whole_ns]` or `{"kind", "reason"}`, a port `{"name", "utilisation": {"value"}, "exceeds_buffer"}`.
    fn brief(&self, py: Python<'_>, options: &str) -> PyResult<String> {
        let options: BoundsOptions = serde_json::from_str(options).map_err(invalid)?;
        let options = options.resolve(&self.model);
        py.detach(|| json(&Brief::of(&timebound_bounds::analyse(&self.model, &options))))
    }

    /// Figures that are no bounds, labelled (`safety`); options as of `bounds`, with one of the methods "trajectory",
    /// "holistic-as-published", "trajectory-as-published" and "trajectory-with-published-defects".
    fn comparison(&self, py: Python<'_>, options: &str) -> PyResult<String> {
        let options: ComparisonOptions = serde_json::from_str(options).map_err(invalid)?;
        py.detach(|| json(&options.answer(&self.model)))
    }

    /// What bounds are made of; options `{"bounds": as there, "leaves": [[stream, receiver]]}`.
    fn explain(&self, py: Python<'_>, options: &str) -> PyResult<String> {
        let options: ExplainOptions = serde_json::from_str(options).map_err(invalid)?;
        py.detach(|| json(&options.answer(&self.model)))
    }

    /// Classes and routes for the streams; see [`AssignOptions`]. `progress(phase, analyses)` is told before every analysis: true breaks the
    /// search off, what it raises stops it.
    #[pyo3(signature = (options, progress=None))]
    fn assign(&self, py: Python<'_>, options: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let options: AssignOptions = serde_json::from_str(options).map_err(invalid)?;
        let (task, wanted) = options.resolve(&self.model).map_err(invalid)?;
        let mut raised = None;
        let found = py.detach(|| {
            let mut watch = |phase: &'static str, analyses: u64| {
                let answer = Python::attach(|py| {
                    py.check_signals()?;
                    match &progress {
                        Some(progress) => progress.call1(py, (phase, analyses))?.extract::<bool>(py),
                        None => Ok(false),
                    }
                });
                match answer {
                    Ok(false) => ControlFlow::Continue(()),
                    Ok(true) => ControlFlow::Break(()),
                    Err(error) => {
                        raised = Some(error);
                        ControlFlow::Break(())
                    }
                }
            };
            timebound_bounds::assign::assign(
                &self.model,
                &task,
                &wanted,
                &timebound_bounds::analyse,
                &mut watch,
            )
        });
        match raised {
            Some(error) => Err(error),
            None => json(&assign::told(&self.model, &found.map_err(invalid)?)),
        }
    }

    /// One simulation; see [`SimulateOptions`]. `progress(share, text)` may raise to stop it.
    #[pyo3(signature = (options, progress=None))]
    fn simulate(&self, py: Python<'_>, options: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let options: SimulateOptions = serde_json::from_str(options).map_err(invalid)?;
        let options = options.resolve(&self.model).map_err(invalid)?;
        let total = (options.warmup.0 + options.duration.0).max(1);
        let mut raised = None;
        let outcome = py.detach(|| {
            let mut tell = |now: Time| ask(progress.as_ref(), now.0 as f64 / total as f64, &mut raised);
            timebound_sim::simulate_with(&self.model, &options, &mut tell)
        });
        match raised {
            Some(error) => Err(error),
            None => json(&outcome),
        }
    }

    /// The search for worst cases; see [`SearchOptions`].
    #[pyo3(signature = (options, progress=None))]
    fn search(&self, py: Python<'_>, options: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let options: SearchOptions = serde_json::from_str(options).map_err(invalid)?;
        let total = options.evaluations.max(1) as f64;
        let limit = options.limit_ns.map(Duration::from_nanos);
        let keep = options.keep;
        let options = options.resolve(&self.model).map_err(invalid)?;
        let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut raised = None;
        // Python's signal handlers run in its main thread only: that one waits here and looks, others search.
        let found = py.detach(|| {
            std::thread::scope(|scope| {
                let work = scope.spawn(|| {
                    timebound_sim::search_with(&self.model, &options, &|evaluations| {
                        done.store(evaluations, Ordering::Relaxed);
                        if stop.load(Ordering::Relaxed) {
                            ControlFlow::Break(())
                        } else {
                            ControlFlow::Continue(())
                        }
                    })
                });
                let started = Instant::now();
                while !work.is_finished() {
                    std::thread::park_timeout(LOOK);
                    let spent =
                        limit.map_or(0.0, |limit| started.elapsed().as_secs_f64() / limit.as_secs_f64());
                    if spent >= 1.0 {
                        stop.store(true, Ordering::Relaxed);
                    }
                    let share = spent.max(done.load(Ordering::Relaxed) as f64 / total);
                    if raised.is_none() && ask(progress.as_ref(), share.min(1.0), &mut raised).is_break() {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                work.join()
            })
        });
        match (raised, found) {
            (Some(error), Ok(found)) if keep && error.is_instance_of::<PyKeyboardInterrupt>(py) => {
                let interrupted = true;
                json(&Searched { found, interrupted })
            }
            (Some(error), _) => Err(error),
            (None, Ok(found)) => {
                let interrupted = false;
                json(&Searched { found, interrupted })
            }
            (None, Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}

/// What a search found, and whether an interrupt ended it.
#[derive(Serialize)]
struct Searched {
    #[serde(flatten)]
    found: timebound_sim::Found,
    interrupted: bool,
}

/// An analysis without its hops.
#[derive(Serialize)]
struct Brief<'a> {
    streams: Vec<Vec<BriefLeaf<'a>>>,
    ports: Vec<BriefPort<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    looked_at: Option<timebound_bounds::LookedAt>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum BriefLeaf<'a> {
    /// From the nominal release, from the actual one, best case, best case of a whole release.
    Bound(u64, u64, u64, u64),
    Reason {
        kind: &'static str,
        reason: &'a str,
    },
}

#[derive(Serialize)]
struct BriefPort<'a> {
    name: &'a str,
    utilisation: BriefShare,
    exceeds_buffer: bool,
}

#[derive(Serialize)]
struct BriefShare {
    value: f64,
}

impl<'a> Brief<'a> {
    fn of(analysis: &'a Analysis) -> Self {
        let leaf = |outcome: &'a Outcome| match outcome {
            Outcome::Bound {
                from_nominal,
                from_actual,
                best_case,
                best_whole,
                ..
            } => BriefLeaf::Bound(from_nominal.0, from_actual.0, best_case.0, best_whole.0),
            Outcome::NoFiniteBound { reason, .. } => BriefLeaf::Reason {
                kind: "no-finite-bound",
                reason,
            },
            Outcome::Unsupported { reason } => BriefLeaf::Reason {
                kind: "unsupported",
                reason,
            },
        };
        Self {
            streams: analysis
                .streams
                .iter()
                .map(|stream| stream.leaves.iter().map(|found| leaf(&found.outcome)).collect())
                .collect(),
            ports: analysis
                .ports
                .iter()
                .map(|port| BriefPort {
                    name: &port.name,
                    utilisation: BriefShare {
                        value: port.utilisation.value,
                    },
                    exceeds_buffer: port.exceeds_buffer,
                })
                .collect(),
            looked_at: analysis.looked_at,
        }
    }
}

/// How often a search looks for signals and tells how far it is.
const LOOK: Duration = Duration::from_millis(20);

/// Calls Python between two steps: a raised exception (Ctrl-C among them) breaks the work off.
fn ask(progress: Option<&Py<PyAny>>, share: f64, raised: &mut Option<PyErr>) -> ControlFlow<()> {
    let answer = Python::attach(|py| {
        py.check_signals()?;
        match progress {
            Some(progress) => progress.call1(py, (share,)).map(|_| ()),
            None => Ok(()),
        }
    });
    match answer {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            *raised = Some(error);
            ControlFlow::Break(())
        }
    }
}

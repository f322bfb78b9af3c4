//! A run of all endpoints of a plan.

use crate::check::check;
use crate::control::{Control, NamespaceProvider, Orders, RunClock};
use crate::error::EndpointError;
use crate::measured::{Measured, Shared};
use crate::plan::EndpointPlan;
use crate::summary::Summary;
use crate::{background, measured};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread::ScopedJoinHandle;

/// Connects every endpoint of `plan`, tells `control` when it is ready, starts the sources at the time that
/// [`Control::start_at`] gives, records what was sent and received into `output` (see [`crate::record`]), and returns the counts.
/// Blocks until the run is over. Sockets live in threads of their own: the caller's namespace and scheduling stay as they are.
///
/// # Errors
/// See [`EndpointError`]; what was recorded until then is in `output`.
pub fn run(
    plan: &EndpointPlan,
    namespaces: &dyn NamespaceProvider,
    clock: RunClock,
    control: &Control,
    output: &Path,
) -> Result<Summary, EndpointError> {
    let result = check(plan).and_then(|()| threads(plan, namespaces, clock, control, output));
    control.set_finished();
    result
}

/// Like [`run`] in the caller's thread and with no other: for a process of its own that is one of hundreds. Records are appended to
/// `output`, so that a successor goes on where a process that was killed had stopped.
///
/// # Errors
/// See [`EndpointError`]; background traffic needs threads and is refused.
pub fn run_here(
    plan: &EndpointPlan,
    namespaces: &dyn NamespaceProvider,
    clock: RunClock,
    control: &Control,
    output: &Path,
    orders: &mut dyn Orders,
) -> Result<Summary, EndpointError> {
    check(plan)?;
    if !plan.background.is_empty() {
        return Err(EndpointError::Plan {
            path: "background".to_owned(),
            message: "background traffic needs threads of its own".to_owned(),
        });
    }
    let shared = Shared::default();
    let result = Measured::new(plan, namespaces, clock, (control, &shared), output, Some(orders))
        .and_then(Measured::run);
    control.set_finished();
    result
}

fn threads(
    plan: &EndpointPlan,
    namespaces: &dyn NamespaceProvider,
    clock: RunClock,
    control: &Control,
    output: &Path,
) -> Result<Summary, EndpointError> {
    let shared = measured::Shared::default();
    let (measured, background) = std::thread::scope(|scope| {
        let shared = &shared;
        let background = (!plan.background.is_empty()).then(|| {
            scope.spawn(move || {
                let _guard = AbortUnlessDone::new(shared, control);
                let result = background::run(plan, namespaces, clock, (control, shared));
                abort_on_error(result, shared, control)
            })
        });
        let measured = scope.spawn(move || {
            let _guard = AbortUnlessDone::new(shared, control);
            let result = Measured::new(plan, namespaces, clock, (control, shared), output, None)
                .and_then(Measured::run);
            abort_on_error(result, shared, control)
        });
        (join(measured), background.map(join))
    });
    let background = background.transpose();
    match (measured, background) {
        (Ok(mut summary), Ok(background)) => {
            summary.background = background.unwrap_or_default();
            Ok(summary)
        }
        (
            Err(EndpointError::ConnectionLost {
                client,
                node,
                broker,
                reason,
                time_ns,
                mut summary,
            }),
            background,
        ) => {
            summary.background = background.ok().flatten().unwrap_or_default();
            Err(EndpointError::ConnectionLost {
                client,
                node,
                broker,
                reason,
                time_ns,
                summary,
            })
        }
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
    }
}

fn abort_on_error<T>(
    result: Result<T, EndpointError>,
    shared: &Shared,
    control: &Control,
) -> Result<T, EndpointError> {
    if result.is_err() {
        shared.abort.store(true, Ordering::SeqCst);
        control.wake();
    }
    result
}

/// A thread that panics must not leave the other one waiting for it.
struct AbortUnlessDone<'a>(&'a Shared, &'a Control);

impl<'a> AbortUnlessDone<'a> {
    fn new(shared: &'a Shared, control: &'a Control) -> Self {
        Self(shared, control)
    }
}

impl Drop for AbortUnlessDone<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abort.store(true, Ordering::SeqCst);
            self.1.wake();
        }
    }
}

fn join<T>(handle: ScopedJoinHandle<'_, Result<T, EndpointError>>) -> Result<T, EndpointError> {
    handle
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

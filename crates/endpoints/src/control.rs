//! How a caller steers a run: namespaces, clock, start, stop.

use crate::sys::{Waker, monotonic_ns};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Moves the calling thread into a node's network namespace, so that the sockets it opens next belong there.
pub trait NamespaceProvider: Sync {
    /// Enters the namespace of `node` with the calling thread (setns); it stays there until the next call.
    ///
    /// # Errors
    /// When the node is unknown or the kernel refuses.
    fn enter(&self, node: &str) -> io::Result<()>;
}

/// Every node is the caller's own namespace: for loopback.
#[derive(Debug, Clone, Copy, Default)]
pub struct SameNamespace;

impl NamespaceProvider for SameNamespace {
    fn enter(&self, _node: &str) -> io::Result<()> {
        Ok(())
    }
}

/// Orders for endpoints that run in the caller's thread ([`crate::run_here`]): a descriptor that is watched with their sockets.
pub trait Orders {
    /// Becomes readable when there is an order, or when whoever gives them is gone.
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// Takes what there is and passes it on to `control`.
    fn take(&mut self, control: &Control);
    /// Everything that connects before the start is connected.
    fn ready(&mut self);
}

/// CLOCK_MONOTONIC, counted from an epoch of the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunClock {
    /// CLOCK_MONOTONIC in ns at time 0 of the run.
    pub epoch_ns: i64,
}

impl RunClock {
    /// A clock whose epoch is now.
    #[must_use]
    pub fn from_now() -> Self {
        Self {
            epoch_ns: monotonic_ns(),
        }
    }

    /// Time since the epoch in ns; negative before it.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> i64 {
        monotonic_ns() - self.epoch_ns
    }
}

/// How far the connections are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub connected: usize,
    pub total: usize,
}

#[derive(Debug, Default)]
struct State {
    ready: bool,
    finished: bool,
    start_ns: Option<i64>,
    resumes: bool,
}

/// Steers one run from another thread; share it by reference or `Arc`.
#[derive(Debug, Default)]
pub struct Control {
    state: Mutex<State>,
    changed: Condvar,
    wakers: Mutex<Vec<Arc<Waker>>>,
    stop: AtomicBool,
    connected: AtomicUsize,
    total: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is done under these locks can leave them half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the sources start at this time (ns since the epoch); may be called before the run is ready.
    pub fn start_at(&self, start_ns: i64) {
        lock(&self.state).start_ns = Some(start_ns);
        self.wake();
    }

    /// Like [`Self::start_at`] for endpoints that join a run which has started: releases whose time is over are passed over.
    pub fn resume_at(&self, start_ns: i64) {
        lock(&self.state).resumes = true;
        self.start_at(start_ns);
    }

    /// Ends the run at once; what was recorded is kept. Safe to call at any time.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Waits until everything is connected. False when the time is over or the run has ended (its result says why).
    pub fn wait_ready(&self, timeout: Duration) -> bool {
        let state = lock(&self.state);
        let (state, _) = self
            .changed
            .wait_timeout_while(state, timeout, |state| !state.ready && !state.finished)
            .unwrap_or_else(PoisonError::into_inner);
        state.ready && !state.finished
    }

    /// How many connections are ready, of how many.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            connected: self.connected.load(Ordering::Relaxed),
            total: self.total.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_total(&self, total: usize) {
        self.total.store(total, Ordering::Relaxed);
    }

    pub(crate) fn one_connected(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    pub(crate) fn start_ns(&self) -> Option<i64> {
        lock(&self.state).start_ns
    }

    pub(crate) fn resumes(&self) -> bool {
        lock(&self.state).resumes
    }

    pub(crate) fn set_ready(&self) {
        lock(&self.state).ready = true;
        self.changed.notify_all();
    }

    pub(crate) fn set_finished(&self) {
        lock(&self.state).finished = true;
        self.changed.notify_all();
    }

    pub(crate) fn waker(&self) -> io::Result<Arc<Waker>> {
        let waker = Arc::new(Waker::new()?);
        lock(&self.wakers).push(Arc::clone(&waker));
        Ok(waker)
    }

    pub(crate) fn wake(&self) {
        for waker in lock(&self.wakers).iter() {
            waker.wake();
        }
    }
}

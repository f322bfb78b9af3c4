//! The back ends' contract: how frames come in from the nodes and how they are handed out.
//!
//! Everything here is resolved at compile time; the data plane is generic over an [`Inlet`] and a [`Handover`].

use crate::kernel::clock;
use std::os::fd::RawFd;

/// Which clock stamped an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stamps {
    /// The kernel, on entry into the fabric's end of the link, CLOCK_REALTIME: our own wake-up plays no part in it.
    Kernel,
    /// We, when we read the frame, CLOCK_MONOTONIC: up to one wake-up later than it came.
    Reaped,
}

/// One frame that came in, valid until [`Inlet::consume`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received<'a> {
    /// From the Ethernet header on, without FCS.
    pub(crate) bytes: &'a [u8],
    /// Ns of the clock that [`Inlet::STAMPS`] says.
    pub(crate) stamp: u64,
    pub(crate) interface: u32,
    /// True if the frame was longer than what could be kept.
    pub(crate) truncated: bool,
}

/// Most descriptors that one inlet may ask to be watched.
pub(crate) const MOST_WATCHED: usize = 4;

/// Where frames come in. Frames of one interface come in the order in which they were sent.
pub(crate) trait Inlet: Send + 'static {
    const STAMPS: Stamps;

    /// Called once, in the thread that will use it.
    fn start(&mut self) {}

    /// Reads what has arrived, as far as that takes a call; afterwards [`Inlet::peek`] knows of it.
    fn gather(&mut self);

    /// The oldest frame that has not been consumed.
    fn peek(&self) -> Option<Received<'_>>;

    /// Gives back the frame of the last [`Inlet::peek`].
    fn consume(&mut self);

    /// Is there a frame, or one to [`Inlet::gather`]? Costs no system call.
    fn is_ready(&self) -> bool;

    /// Descriptors that become readable when a frame arrives.
    fn watch(&self, add: impl FnMut(RawFd));

    /// Frames lost for want of room since the last call.
    fn take_lost(&mut self) -> u64;

    /// Bytes of the longest frame that can be kept.
    fn frame_capacity(&self) -> usize;
}

/// A way out of this thread into the kernel, many frames at a time.
pub(crate) trait Departures: Send + 'static {
    /// Called once, in the thread that will use it.
    fn start(&mut self) {}

    fn is_full(&self) -> bool;

    /// Adds a frame.
    ///
    /// # Safety
    /// `frame` must stay where it is, and unchanged, until the next [`Departures::flush`] has returned.
    ///
    /// # Panics
    /// If it is full.
    unsafe fn push(&mut self, interface: u32, frame: &[u8]);

    /// Hands all frames over and returns how many the kernel refused.
    fn flush(&mut self) -> u64;
}

/// The data plane's side of departures, which may happen in another thread. Each *way* hands over in the order of pushes.
pub(crate) trait Handover: Send + 'static {
    /// Called once, in the data plane's thread.
    fn start(&mut self) {}

    /// Kernel ids of the threads that do it, where they are others than the data plane's.
    fn threads(&self) -> Vec<libc::pid_t> {
        Vec::new()
    }

    fn ways(&self) -> usize;

    fn way(&self, interface: u32) -> usize;

    fn is_full(&self, way: usize) -> bool;

    /// Adds a frame.
    ///
    /// # Safety
    /// `frame` must stay where it is, and unchanged, until [`Handover::done`] of this way has returned one time for it.
    ///
    /// # Panics
    /// If the way is full.
    unsafe fn push(&mut self, way: usize, interface: u32, frame: &[u8]);

    /// Sees to it that everything pushed is handed over.
    fn flush(&mut self);

    /// CLOCK_MONOTONIC at which the oldest frame of this way not yet asked about had been handed over.
    fn done(&mut self, way: usize) -> Option<u64>;

    /// Frames that the kernel refused since the last call.
    fn take_refused(&mut self) -> u64;
}

/// Handing over in the data plane's own thread.
pub(crate) struct Inline<D> {
    departures: D,
    pushed: usize,
    done: usize,
    at: u64,
    refused: u64,
}

impl<D: Departures> Inline<D> {
    pub(crate) fn new(departures: D) -> Self {
        Self {
            departures,
            pushed: 0,
            done: 0,
            at: 0,
            refused: 0,
        }
    }
}

impl<D: Departures> Handover for Inline<D> {
    fn start(&mut self) {
        self.departures.start();
    }

    fn ways(&self) -> usize {
        1
    }

    #[inline]
    fn way(&self, _interface: u32) -> usize {
        0
    }

    #[inline]
    fn is_full(&self, _way: usize) -> bool {
        self.departures.is_full()
    }

    #[inline]
    unsafe fn push(&mut self, _way: usize, interface: u32, frame: &[u8]) {
        // SAFETY: the caller keeps the frame for longer than until the next flush.
        unsafe { self.departures.push(interface, frame) };
        self.pushed += 1;
    }

    fn flush(&mut self) {
        if self.pushed == 0 {
            return;
        }
        self.refused += self.departures.flush();
        self.at = clock::monotonic();
        self.done += std::mem::take(&mut self.pushed);
    }

    #[inline]
    fn done(&mut self, _way: usize) -> Option<u64> {
        self.done = self.done.checked_sub(1)?;
        Some(self.at)
    }

    fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }
}

//! Wakes a thread that sleeps, and costs nothing while it does not.

use crate::kernel::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

pub(crate) struct Doorbell {
    event: OwnedFd,
    sleeping: AtomicBool,
}

impl Doorbell {
    /// # Errors
    /// Of eventfd(2).
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: returns a new descriptor or -1, owned from here on.
        let event =
            unsafe { OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC))?) };
        Ok(Self {
            event,
            sleeping: AtomicBool::new(false),
        })
    }

    /// Readable once rung.
    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Said by the sleeper: before it looks for work a last time, and after it woke.
    pub(crate) fn set_sleeping(&self, sleeping: bool) {
        self.sleeping.store(sleeping, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !sleeping {
            let mut count = [0u8; 8];
            // SAFETY: reads at most 8 bytes into a live array; with nothing to read it fails, which is as well.
            unsafe { libc::read(self.event.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        }
    }

    /// Said after work was queued: wakes the sleeper if there is one. Either it sees the work, or we see it asleep (both fences
    /// are sequentially consistent).
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.ring_always();
        }
    }

    pub(crate) fn ring_always(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: writes 8 bytes from a live array. It can only fail when it is rung already.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

//! The few system calls that the standard library lacks: epoll with nanoseconds, eventfd, the monotonic clock, scheduling.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// CLOCK_MONOTONIC in ns.
#[must_use]
pub fn monotonic_ns() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a local; CLOCK_MONOTONIC exists on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// What to wait for on a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    /// Until a pending write or connect is through.
    ReadWrite,
    /// Only hang-ups.
    None,
}

impl Interest {
    fn flags(self) -> u32 {
        (match self {
            Self::Read => libc::EPOLLIN,
            Self::ReadWrite => libc::EPOLLIN | libc::EPOLLOUT,
            Self::None => 0,
        }) as u32
    }
}

/// What happened to a descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) token: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

pub(crate) struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the descriptor is owned from here on.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        Ok(Self {
            fd,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; 256],
        })
    }

    fn control(
        &self,
        operation: libc::c_int,
        fd: BorrowedFd<'_>,
        interest: Interest,
        token: u64,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: interest.flags(),
            u64: token,
        };
        // SAFETY: both descriptors are open (borrowed), the event is a local that the kernel copies.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd.as_raw_fd(), &raw mut event) })?;
        Ok(())
    }

    /// Level-triggered; a closed descriptor leaves by itself.
    pub(crate) fn add(&self, fd: &impl AsFd, interest: Interest, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd.as_fd(), interest, token)
    }

    pub(crate) fn change(&self, fd: &impl AsFd, interest: Interest, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd.as_fd(), interest, token)
    }

    /// Waits at most `timeout_ns` (epoll_pwait2: to the nanosecond) and fills `ready`.
    pub(crate) fn wait(&mut self, timeout_ns: i64, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        let timeout_ns = timeout_ns.max(0);
        let timeout = libc::timespec {
            tv_sec: timeout_ns / 1_000_000_000,
            tv_nsec: timeout_ns % 1_000_000_000,
        };
        // SAFETY: `events` has room for as many events as are asked for; no signal mask is passed.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as libc::c_int,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted {
                Ok(())
            } else {
                Err(error)
            };
        }
        ready.extend(self.events[..count as usize].iter().map(|event| {
            let flags = event.events as libc::c_int;
            // An error or hang-up shows at the next read or write, whichever the owner does.
            let broken = flags & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
            Ready {
                token: event.u64,
                readable: broken || flags & (libc::EPOLLIN | libc::EPOLLRDHUP) != 0,
                writable: broken || flags & libc::EPOLLOUT != 0,
            }
        }));
        Ok(())
    }
}

/// Wakes a thread that waits in [`Epoll::wait`].
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the descriptor is owned from here on.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: just opened, owned by nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn wake(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of a local. A failure means that the counter is full: it wakes anyway.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub(crate) fn reset(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes of a local. A failure means that there was nothing to reset.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes timers of this thread exact (the default slack is 50 us).
pub(crate) fn exact_timers() {
    // SAFETY: no pointers. Failing leaves the slack as it was.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1usize) };
}

/// Puts this thread under SCHED_FIFO; false where that is not allowed.
pub(crate) fn real_time(priority: u8) -> bool {
    let parameters = libc::sched_param {
        sched_priority: libc::c_int::from(priority),
    };
    // SAFETY: the pointer is to a local; 0 is the calling thread.
    unsafe {
        libc::sched_setscheduler(
            0,
            libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            &raw const parameters,
        ) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_not_shorter_than_asked_and_a_waker_ends_them() {
        let mut epoll = Epoll::new().unwrap();
        let mut ready = Vec::new();
        let start = monotonic_ns();
        epoll.wait(300_000, &mut ready).unwrap();
        assert!(monotonic_ns() - start >= 300_000);
        let waker = Waker::new().unwrap();
        epoll.add(&waker, Interest::Read, 7).unwrap();
        waker.wake();
        epoll.wait(i64::from(i32::MAX), &mut ready).unwrap();
        assert_eq!(ready.iter().map(|event| event.token).collect::<Vec<_>>(), [7]);
        waker.reset();
        epoll.wait(0, &mut ready).unwrap();
        assert!(ready.is_empty());
    }
}

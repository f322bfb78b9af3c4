//! Signals and standard input, taken when we ask for them: no handler, and so no interrupted system call anywhere.

use std::time::Duration;

/// Blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD in the calling thread and those it starts. (Blocked signals reach even PID 1,
/// for which the kernel would ignore unhandled ones.)
pub(crate) fn block() -> libc::sigset_t {
    // SAFETY: an all-zero sigset_t is valid storage for sigemptyset; all pointers are to live variables.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    }
}

/// Lets all signals through again, with their default actions: a program must not inherit our mask, nor that whoever started
/// us (a shell script, in the background) ignores SIGINT. Only system calls, so it may be called between fork and exec.
pub(crate) fn unblock() {
    // SAFETY: as in `block`; SIG_DFL is a valid action of every signal (the kernel refuses SIGKILL and SIGSTOP).
    unsafe {
        for signal in 1..=31 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// The next of the blocked signals, or `None` after `timeout`.
pub(crate) fn wait(set: &libc::sigset_t, timeout: Duration) -> Option<i32> {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: set and timeout live for the call; no information is asked for.
    let signal = unsafe { libc::sigtimedwait(set, std::ptr::null_mut(), &raw const timeout) };
    (signal > 0).then_some(signal)
}

/// Asks to stop?
pub(crate) fn is_stop(signal: i32) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP)
}

/// Standard input of the sandbox: the line `stop`, or its end, asks to stop.
#[derive(Debug, Default)]
pub(crate) struct Input {
    line: Vec<u8>,
    ended: bool,
    /// The last `go` that was not taken.
    order: Option<String>,
}

impl Input {
    /// What the line `go ...` said since the last call.
    pub(crate) fn take_order(&mut self) -> Option<String> {
        self.order.take()
    }

    /// Reads what is there; true when asked to stop.
    pub(crate) fn asks_to_stop(&mut self) -> bool {
        let mut watched = libc::pollfd {
            fd: 0,
            events: libc::POLLIN,
            revents: 0,
        };
        // Not until nothing is left: an input that never dries up must not keep us from our work.
        for _ in 0..16 {
            // SAFETY: one live pollfd, no waiting.
            if self.ended || unsafe { libc::poll(&raw mut watched, 1, 0) } <= 0 {
                break;
            }
            let mut bytes = [0u8; 256];
            // SAFETY: reads at most 256 bytes into a live array.
            let count = unsafe { libc::read(0, bytes.as_mut_ptr().cast(), bytes.len()) };
            if count <= 0 {
                self.ended = true;
                break;
            }
            self.line.extend(&bytes[..count as usize]);
            while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                let line = line.trim_ascii();
                self.ended |= line == b"stop";
                if let Some(order) = line.strip_prefix(b"go ") {
                    self.order = Some(String::from_utf8_lossy(order).into_owned());
                }
            }
            // Whatever is no line yet must not grow for ever.
            self.line.truncate(4096);
        }
        self.ended
    }
}

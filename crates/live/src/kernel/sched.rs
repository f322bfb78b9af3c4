//! Scheduling class, memory locking and timer slack of the calling thread.

/// SCHED_FIFO for the calling thread; false where the host does not allow it. Children start as normal threads again.
pub(crate) fn enter_fifo(priority: i32) -> bool {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 is the calling thread, `parameters` lives for the call.
    unsafe {
        libc::sched_setscheduler(
            0,
            libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            &raw const parameters,
        ) == 0
    }
}

/// Keeps touched pages of this process in memory; false where the limit on locked memory forbids it.
pub(crate) fn lock_memory() -> bool {
    // SAFETY: no memory is passed. ONFAULT locks what is touched, not the whole reserve of frame buffers.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) == 0 }
}

/// Wakes the calling thread as near to its timeouts as the hardware allows (default for normal threads: 50 us late).
pub(crate) fn tighten_timer_slack() {
    // SAFETY: takes one integer.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// The calling thread's name, for `top -H` and debuggers.
pub(crate) fn name_thread(name: &std::ffi::CStr) {
    // SAFETY: the kernel copies at most 16 bytes of a terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

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

/// The most favoured ordinary thread that there is: nice -20, and a slice of 0.1 ms, so that it comes next whenever it has something to do (EEVDF,
/// kernel 6.12; an older one takes the nice value alone). False where the host does not allow it. Children inherit it.
///
/// For a thread that may need nearly a whole processor. Under SCHED_FIFO such a one waits for 50 ms of every second: the time that the kernel keeps
/// for ordinary threads.
pub(crate) fn favour() -> bool {
    let attributes = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: -20,
        sched_priority: 0,
        sched_runtime: 100_000,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: 0 is the calling thread, `attributes` lives for the call and says its size.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

/// `struct sched_attr`, first version (sched_setattr(2)).
#[repr(C)]
struct SchedAttr {
    size: u32,
    sched_policy: u32,
    sched_flags: u64,
    sched_nice: i32,
    sched_priority: u32,
    sched_runtime: u64,
    sched_deadline: u64,
    sched_period: u64,
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

#[cfg(test)]
mod tests {
    #[test]
    fn who_is_favoured_is_an_ordinary_thread_before_all_others() {
        let found = std::thread::spawn(|| {
            let allowed = super::favour();
            // SAFETY: these two take integers alone; 0 is the calling thread.
            (allowed, unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }, unsafe {
                libc::sched_getscheduler(0)
            })
        });
        let (allowed, nice, class) = found.join().unwrap();
        assert_eq!(class, libc::SCHED_OTHER);
        assert_eq!(nice == -20, allowed);
    }
}

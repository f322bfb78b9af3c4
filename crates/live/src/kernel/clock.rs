//! Clocks. Run time is CLOCK_MONOTONIC; kernel arrival stamps are CLOCK_REALTIME and need the offset between the two.

/// Nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub(crate) fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of CLOCK_REALTIME.
#[inline]
pub(crate) fn realtime() -> u64 {
    read(libc::CLOCK_REALTIME)
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a live timespec; these clocks exist on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU time of a thread of this process, ns; 0 if there is no such thread.
pub(crate) fn thread_cpu(thread: libc::pid_t) -> u64 {
    // linux/posix-timers_types.h: the id of a thread's clock is its inverted id above CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED.
    let clock = (!thread << 3) | 6;
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a live timespec; an unknown clock leaves it at zero.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Kernel id of the calling thread.
pub(crate) fn thread_id() -> libc::pid_t {
    // SAFETY: takes and gives integers, cannot fail.
    unsafe { libc::gettid() }
}

/// Sleeps until CLOCK_MONOTONIC shows `time`; a signal may end it before.
pub(crate) fn sleep_until(time: u64) {
    let until = libc::timespec {
        tv_sec: (time / 1_000_000_000) as i64,
        tv_nsec: (time % 1_000_000_000) as i64,
    };
    // SAFETY: a live timespec; what is left is not asked for.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            std::ptr::null_mut(),
        )
    };
}

/// CLOCK_REALTIME - CLOCK_MONOTONIC, from the closest of several pairs of readings.
pub(crate) fn realtime_offset() -> i64 {
    let mut best = (u64::MAX, 0i64);
    for _ in 0..5 {
        let before = monotonic();
        let real = realtime();
        let after = monotonic();
        if after - before < best.0 {
            // Rounded down: a stamp converted with it is never later than it was, so no frame enters the model late.
            best = (after - before, real as i64 - before.midpoint(after) as i64);
        }
    }
    best.1
}

/// The offset as it is now, and how often the wall clock was set while we watched.
///
/// Both clocks are slewed alike, so the offset only changes when somebody steps the wall clock; small differences are
/// noise of the reading, and keeping the old value keeps stamps comparable.
pub(crate) struct Offset {
    value: i64,
    pub(crate) steps: u64,
}

/// Difference from which a change of the offset is a step rather than a badly timed reading.
const STEP: u64 = 20_000;

impl Offset {
    pub(crate) fn measure() -> Self {
        Self {
            value: realtime_offset(),
            steps: 0,
        }
    }

    /// Measures again; returns true when the wall clock was stepped.
    pub(crate) fn refresh(&mut self) -> bool {
        let now = realtime_offset();
        let stepped = now.abs_diff(self.value) > STEP;
        if stepped {
            self.value = now;
            self.steps += 1;
        }
        stepped
    }

    /// Monotonic time of a wall clock stamp.
    #[inline]
    pub(crate) fn to_monotonic(&self, realtime: u64) -> u64 {
        (realtime as i64 - self.value) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_has_used_cpu_time() {
        let before = thread_cpu(thread_id());
        let begun = monotonic();
        while monotonic() - begun < 20_000_000 {
            std::hint::spin_loop();
        }
        assert!(thread_cpu(thread_id()) > before);
        // One more than the greatest id that Linux gives (PID_MAX_LIMIT).
        assert_eq!(thread_cpu((4 << 20) + 1), 0);
    }

    #[test]
    fn a_stamp_taken_now_is_now_on_the_other_clock() {
        let offset = Offset::measure();
        let error = offset.to_monotonic(realtime()).abs_diff(monotonic());
        assert!(error < 5_000_000, "{error} ns");
    }
}

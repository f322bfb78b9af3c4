//! What this host allows an emulation to do.

use crate::kernel::{check, ring, sched};
use crate::sandbox;
use serde::Serialize;
use std::path::Path;

/// The findings; each field says what it is good for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doctor {
    pub kernel: String,
    pub cpus: usize,
    /// Runs as root; otherwise every emulation enters a user namespace.
    pub root: bool,
    /// New network, mount, PID (and, without root, user) namespaces: without them there is no emulation.
    pub namespaces: bool,
    /// User namespaces even as root: for `force_rootless`.
    pub user_namespaces: bool,
    /// Packet ring in a new network namespace: the data plane.
    pub ring: bool,
    /// SCHED_FIFO: departures some 10 us late instead of milliseconds beside other load.
    pub fifo: bool,
    /// Memory that may be locked, bytes; null: no limit.
    pub locked_memory_bytes: Option<u64>,
    /// `v1`, `v2` or `none`: limits of CPU and memory of programs.
    pub cgroups: &'static str,
    /// May we make cgroups?
    pub cgroups_writable: bool,
    /// May we limit the number of a node's processes?
    pub processes_counted: bool,
    /// The kernel's clock source; `tsc` is good.
    pub clock_source: String,
    /// What to do about what is missing, one sentence each.
    pub advice: Vec<String>,
}

const NAMESPACES: i32 = 1;
const RING: i32 = 2;
const FIFO: i32 = 4;

/// Tries everything in short-lived processes; changes nothing of the caller.
#[must_use]
pub fn doctor() -> Doctor {
    // SAFETY: cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let own = attempt(!root);
    let user = if root { attempt(true) } else { own };
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let (cgroups, cgroups_writable) = cgroups();
    let mut doctor = Doctor {
        kernel: read("/proc/sys/kernel/osrelease"),
        cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        root,
        namespaces: own & NAMESPACES != 0,
        user_namespaces: user & NAMESPACES != 0,
        ring: own & RING != 0,
        fifo: own & FIFO != 0,
        locked_memory_bytes: locked_memory(),
        cgroups,
        cgroups_writable,
        processes_counted: cgroups != "none"
            && is_writable(if cgroups == "v1" {
                "/sys/fs/cgroup/pids"
            } else {
                "/sys/fs/cgroup"
            }),
        clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        advice: Vec::new(),
    };
    doctor.advice = advice(&doctor);
    doctor
}

fn advice(found: &Doctor) -> Vec<String> {
    let mut advice = Vec::new();
    if !found.namespaces {
        advice.push(
            "emulation needs namespaces: run as root, or allow user namespaces (sysctl user.max_user_namespaces=10000, \
             kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)"
                .to_owned(),
        );
    } else if !found.ring {
        advice.push("the kernel refuses packet sockets: emulation needs CONFIG_PACKET".to_owned());
    }
    if !found.fifo {
        advice.push(
            "without SCHED_FIFO (root, or ulimit -r 60) departures are late when the machine is busy"
                .to_owned(),
        );
    }
    if !found.cgroups_writable {
        advice.push("CPU and memory limits of programs need writable cgroups (root)".to_owned());
    }
    if !found.processes_counted {
        advice.push(
            "the number of processes of a node is limited by the pids controller of cgroups (root); without it, as a user, the kernel \
             counts those of all nodes together"
                .to_owned(),
        );
    }
    if found.cpus < 2 {
        advice.push("with one CPU the data plane and the nodes disturb each other".to_owned());
    }
    advice
}

/// What a new sandbox could do, as bits.
fn attempt(rootless: bool) -> i32 {
    // SAFETY: the child only makes system calls and file writes, and leaves by _exit; glibc keeps its allocator usable there.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut found = 0;
        if sandbox::unshare(rootless).is_ok() {
            found |= NAMESPACES;
            found |= if ring::Ring::open(1500, None).is_ok() {
                RING
            } else {
                0
            };
        }
        found |= if sched::enter_fifo(1) { FIFO } else { 0 };
        // SAFETY: ends the child.
        unsafe { libc::_exit(found) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    let waited = check(unsafe { libc::waitpid(child, &raw mut status, 0) });
    if waited.is_ok() && libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        0
    }
}

fn locked_memory() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes to a live variable.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

fn is_writable(path: &str) -> bool {
    let path = std::ffi::CString::new(path).unwrap_or_default();
    // SAFETY: a terminated string.
    unsafe { libc::access(path.as_ptr(), libc::W_OK) == 0 }
}

fn cgroups() -> (&'static str, bool) {
    if Path::new("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists()
        || Path::new("/sys/fs/cgroup/cpu/tasks").exists()
    {
        return (
            "v1",
            is_writable("/sys/fs/cgroup/cpu") && is_writable("/sys/fs/cgroup/memory"),
        );
    }
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        return ("v2", is_writable("/sys/fs/cgroup"));
    }
    ("none", false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_doctor_answers_and_leaves_the_caller_where_it_was() {
        let before = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let found = doctor();
        assert!(found.cpus >= 1 && !found.kernel.is_empty());
        assert_eq!(
            found.advice.iter().any(|line| line.contains("SCHED_FIFO")),
            !found.fifo
        );
        assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), before);
    }
}

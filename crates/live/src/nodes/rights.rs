//! What a process of a node may do, whoever started the run: root's rights over its own network and its own files, and no more.
//!
//! The run's root is the host's where it was started as root, so what is kept must be of no use against the host: nothing here mounts,
//! makes devices, loads modules, sets clocks or changes priorities (capabilities(7)). The rest of the wall is what the node sees
//! (`room`).

use crate::kernel::check;
use std::io;

/// linux/capability.h, the capabilities that a node keeps: own, read and change its files (CHOWN, DAC_OVERRIDE, FOWNER, FSETID,
/// SETFCAP), end its processes (KILL), become another user (SETGID, SETUID, SETPCAP, SYS_CHROOT), and all of its own network
/// (NET_BIND_SERVICE, NET_BROADCAST, NET_ADMIN, NET_RAW).
const KEPT: [u32; 14] = [0, 1, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 18, 31];
/// More than any kernel has.
const MOST_CAPABILITIES: u32 = 64;
/// linux/capability.h: two words of each set.
const VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Takes everything else from the calling process and whatever it becomes. System calls alone: it may run between fork and exec.
///
/// # Errors
/// A refusal of the kernel.
pub(super) fn confine() -> io::Result<()> {
    let kept = |capability: u32| KEPT.contains(&capability);
    for capability in (0..MOST_CAPABILITIES).filter(|capability| !kept(*capability)) {
        // SAFETY: takes integers.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) };
        // Beyond the last one that this kernel knows the answer is EINVAL.
        if dropped < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
            return Err(io::Error::last_os_error());
        }
    }
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut sets = [Sets::default(); 2];
    // SAFETY: header and both sets are live and of the form of version 3.
    unsafe {
        system(libc::syscall(
            libc::SYS_capget,
            &raw mut header,
            sets.as_mut_ptr(),
        ))?
    };
    for (word, set) in sets.iter_mut().enumerate() {
        let mask = KEPT
            .iter()
            .filter(|capability| **capability / 32 == word as u32)
            .fold(0, |mask, capability| mask | 1 << (capability % 32));
        set.permitted &= mask;
        set.effective = set.permitted;
        set.inheritable = 0;
    }
    // SAFETY: as above; the rest take integers.
    unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        system(libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()))?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
    }
    super::calls::refuse()
}

/// Lets the user of the calling process have so many processes and threads within the run's user namespace (before Linux 5.14: on this
/// host) at most, if it may have more now. System calls alone.
///
/// # Errors
/// A refusal of the kernel.
pub(super) fn limit_processes(most: u64) -> io::Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads and writes a live structure.
    unsafe {
        check(libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit))?;
        limit.rlim_max = limit.rlim_max.min(most);
        limit.rlim_cur = limit.rlim_cur.min(most);
        check(libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit)).map(drop)
    }
}

fn system(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

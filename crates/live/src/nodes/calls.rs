//! System calls that no process of a node makes: seccomp(2).
//!
//! Whoever has made a user namespace has all capabilities in it. With them, and the id of the host's root, a process could mount file
//! systems of the kernel in which that id is all that is asked for (control groups). And keys of the kernel belong to a user, whatever
//! else confines him.

use crate::kernel::check;
use std::io;

/// Mounting; entering other namespaces; keys; and what reaches deep into the kernel. Without the rights that a node lacks anyway most of
/// them fail outside of a user namespace, too.
const DENIED: [libc::c_long; 20] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
];
/// linux/audit.h: system calls of another word length have other numbers.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// asm/unistd.h: numbers from here on are those of x32.
const X32: u32 = 0x4000_0000;
/// In `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const LENGTH: usize = DENIED.len() + 6;

const FILTER: [libc::sock_filter; LENGTH] = filter();

const fn filter() -> [libc::sock_filter; LENGTH] {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let least = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    let end = (libc::BPF_RET | libc::BPF_K) as u16;
    let refusal = LENGTH - 1;
    let mut all = [step(end, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0); LENGTH];
    all[0] = step(load, ARCHITECTURE_AT, 0, 0);
    all[1] = step(equal, ARCHITECTURE, 0, (refusal - 2) as u8);
    all[2] = step(load, NUMBER_AT, 0, 0);
    all[3] = step(least, X32, (refusal - 4) as u8, 0);
    let mut index = 0;
    while index < DENIED.len() {
        let at = 4 + index;
        all[at] = step(equal, DENIED[index] as u32, (refusal - at - 1) as u8, 0);
        index += 1;
    }
    all[refusal - 1] = step(end, libc::SECCOMP_RET_ALLOW, 0, 0);
    all
}

const fn step(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Refuses these calls to the calling process, which can gain no privileges any more, and to whatever it becomes (EPERM). A system call
/// alone.
///
/// # Errors
/// A refusal of the kernel.
pub(super) fn refuse() -> io::Result<()> {
    let mut steps = FILTER;
    let program = libc::sock_fprog {
        len: LENGTH as libc::c_ushort,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: a live program with its length, which the kernel copies.
    check(unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    })
    .map(drop)
}

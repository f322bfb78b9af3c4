//! Thin wrappers of system calls; nothing here knows of networks, plans or frames.

pub(crate) mod clock;
pub(crate) mod ethtool;
pub(crate) mod htb;
pub(crate) mod links;
pub(crate) mod mounts;
pub(crate) mod netlink;
pub(crate) mod ring;
pub(crate) mod sched;
pub(crate) mod send;
pub(crate) mod tap;
pub(crate) mod uring;

use std::io;

/// The error of a system call that returned -1.
pub(crate) fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(returned)
    }
}

/// Sets one integer socket option.
pub(crate) fn set_option(fd: libc::c_int, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads sizeof(c_int) bytes from a live variable.
    check(unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

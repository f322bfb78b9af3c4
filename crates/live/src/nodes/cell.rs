//! The processes of a node: a process namespace of its own, with a `/proc` that shows them alone.
//!
//! Its first process does nothing but be there: it takes what others leave behind, and lets the kernel end whatever has ended
//! (SIGCHLD is ignored). It is a `sleep`, so that it shares no memory with PID 1, whose pages would have to be copied as it goes on.

use super::room::terminated;
use crate::kernel::check;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// In `/proc/sys`: settings of the node's own network, which it may write.
const NETWORK: &str = "/proc/sys/net";
/// Beneath them: limits that all namespaces of the host share.
const SHARED: [&str; 2] = ["/proc/sys/net/ipv4/neigh", "/proc/sys/net/ipv6/neigh"];

/// Starts the first process in a process namespace that the calling thread has unshared; its process id in the sandbox, and the
/// namespace. The thread's mount namespace gets the `/proc`.
///
/// # Errors
/// What the kernel refuses, or no `sleep`.
pub(super) fn start() -> io::Result<(i32, OwnedFd)> {
    // Of this thread, held open: once the new /proc is there, it is not to be found by its name.
    let spaces = File::open("/proc/thread-self/ns")?;
    let shut = shut()?;
    let network = terminated(Path::new(NETWORK))?;
    let mut command = Command::new("sleep");
    command.arg("2147483647").current_dir("/");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let prepare = move || {
        crate::signals::unblock();
        // SAFETY: takes integers.
        unsafe {
            check(libc::setsid())?;
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
        show_processes(&shut, &network)?;
        super::rights::confine()
    };
    // SAFETY: system calls alone, between fork and exec.
    unsafe { command.pre_exec(prepare) };
    let child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::other("the first process of a node is `sleep`, which was not found")
        }
        _ => error,
    })?;
    // SAFETY: a live descriptor and a terminated string; returns a new descriptor or -1.
    let fd = check(unsafe {
        libc::openat(
            spaces.as_raw_fd(),
            c"pid_for_children".as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        )
    })?;
    // Waited for by PID 1, as everybody.
    // SAFETY: just created and owned by nobody else.
    Ok((child.id() as i32, unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// What is writable in `/proc` beside processes, by the names that it has with this kernel: settings of the host.
fn shut() -> io::Result<Vec<CString>> {
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Ok(meta) = std::fs::symlink_metadata(entry.path()) else {
            continue;
        };
        let name = entry.file_name();
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let is_writable = meta.is_file() && meta.permissions().mode() & 0o222 != 0;
        if !is_process && (meta.is_dir() || is_writable) {
            found.push(entry.path());
        }
    }
    found.extend(SHARED.iter().map(PathBuf::from).filter(|path| path.exists()));
    found.iter().map(|path| terminated(path)).collect()
}

/// Mounts `/proc` of the calling process's namespace, with the host's settings read-only. System calls alone.
fn show_processes(shut: &[CString], network: &CString) -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let (kind, place) = (c"proc".as_ptr(), c"/proc".as_ptr());
    // SAFETY: here and below all strings are terminated and live for the calls.
    if unsafe { libc::mount(kind, place, kind, flags, std::ptr::null()) } < 0 {
        let error = io::Error::last_os_error();
        // Where something of the host covers parts of /proc the kernel refuses one that would show them: the host's stays, read-only.
        return match error.raw_os_error() {
            Some(libc::EPERM) => Ok(()),
            _ => Err(error),
        };
    }
    let above = |path: &CString, flags: libc::c_ulong| {
        check(unsafe {
            libc::mount(
                path.as_ptr(),
                path.as_ptr(),
                std::ptr::null(),
                flags,
                std::ptr::null(),
            )
        })
    };
    for path in shut {
        above(path, libc::MS_BIND)?;
        if path.as_bytes() == b"/proc/sys" {
            // Read-only is what lies on /proc/sys itself, and not this.
            above(network, libc::MS_BIND)?;
        }
        above(path, libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY | flags)?;
    }
    Ok(())
}

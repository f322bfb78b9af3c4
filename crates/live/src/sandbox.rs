//! The sandbox: namespaces that nothing names or pins, so that the kernel removes everything with the last process.
//!
//! The calling process (single-threaded) moves into new user (where it has no rights), network, mount, PID, UTS and IPC
//! namespaces and forks; the child is PID 1 there. If the caller's parent dies, the caller dies (PDEATHSIG); if the caller
//! dies, PID 1 dies; and if PID 1 dies, the kernel kills all other processes of the sandbox.

use crate::failure::Failure;
use crate::kernel::{check, mounts};
use crate::signals;
use std::io;
use std::time::Duration;

/// What the sandbox is like.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    /// In a user namespace of its own.
    pub(crate) rootless: bool,
    pub(crate) warnings: Vec<String>,
}

/// Runs `inside` as PID 1 of a new sandbox and returns its exit code.
///
/// # Errors
/// When the host refuses the namespaces.
///
/// # Panics
/// Never in the caller; a panic inside ends the sandbox with a failure.
pub(crate) fn run(force_rootless: bool, inside: impl FnOnce(&Sandbox) -> i32) -> Result<i32, Failure> {
    die_with_parent()?;
    let set = signals::block();
    // SAFETY: geteuid cannot fail.
    let rootless = force_rootless || unsafe { libc::geteuid() } != 0;
    unshare(rootless)?;
    let alive = pipe().map_err(|error| Failure::host("cannot create a pipe", error))?;
    // SAFETY: this process has one thread (unshare of a user or PID namespace would have failed or not mattered otherwise), so
    // the child may go on as it likes.
    let child = check(unsafe { libc::fork() }).map_err(|error| Failure::host("cannot fork", error))?;
    if child == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| start(rootless, alive, inside)));
        // SAFETY: ends this process without running anything of the host program (a Python interpreter) that forked us.
        unsafe { libc::_exit(code.unwrap_or(crate::EXIT_INTERNAL)) };
    }
    close(alive.0);
    // Said only now: whoever reads it knows that its parent had not died before it asked to die with it.
    // SAFETY: writes one byte from a live array.
    unsafe { libc::write(alive.1, [1u8].as_ptr().cast(), 1) };
    close(alive.1);
    supervise(child, &set)
}

/// PID 1.
fn start(rootless: bool, alive: (i32, i32), inside: impl FnOnce(&Sandbox) -> i32) -> i32 {
    close(alive.1);
    // SAFETY: takes integers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let mut byte = [0u8];
    // SAFETY: reads one byte into a live array.
    if unsafe { libc::read(alive.0, byte.as_mut_ptr().cast(), 1) } != 1 {
        return crate::EXIT_INTERNAL;
    }
    close(alive.0);
    let mut warnings = Vec::new();
    if let Err(error) = mount_proc() {
        warnings.push(format!(
            "cannot mount /proc in the sandbox ({error}): no CPU and memory figures of nodes, and no node can be stopped or paused"
        ));
    }
    inside(&Sandbox { rootless, warnings })
}

fn die_with_parent() -> Result<(), Failure> {
    // SAFETY: take integers or nothing.
    unsafe {
        let parent = libc::getppid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            return Err(Failure::Interrupted);
        }
    }
    Ok(())
}

/// Moves the calling process into new namespaces.
pub(crate) fn unshare(rootless: bool) -> Result<(), Failure> {
    // SAFETY: cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let spaces =
        libc::CLONE_NEWNET | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC;
    let user = if rootless { libc::CLONE_NEWUSER } else { 0 };
    // SAFETY: takes an integer.
    check(unsafe { libc::unshare(spaces | user) }).map_err(|error| {
        let hint = match (error.raw_os_error(), rootless) {
            (Some(libc::EINVAL), _) => "the calling process must have a single thread",
            (_, true) => {
                "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, \
                 kernel.apparmor_restrict_unprivileged_userns=0) or run as root"
            }
            (_, false) => "this container withholds CAP_SYS_ADMIN",
        };
        Failure::Host(format!("cannot create namespaces: {error}; {hint}"))
    })?;
    if rootless {
        let write = |file: &str, text: String| {
            std::fs::write(format!("/proc/self/{file}"), text)
                .map_err(|error| Failure::host(format!("cannot write /proc/self/{file}"), error))
        };
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("0 {uid} 1"))?;
        write("gid_map", format!("0 {gid} 1"))?;
        // Entering a user namespace changes credentials, which clears the parent-death signal.
        die_with_parent()?;
    }
    Ok(())
}

fn mount_proc() -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mounts::make_private()?;
    // SAFETY: all strings are terminated and live for the call.
    unsafe {
        check(libc::mount(
            c"proc".as_ptr(),
            c"/proc".as_ptr(),
            c"proc".as_ptr(),
            flags,
            std::ptr::null(),
        ))?;
    }
    Ok(())
}

/// Waits for PID 1 and passes requests to stop on.
fn supervise(child: libc::pid_t, set: &libc::sigset_t) -> Result<i32, Failure> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is live.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if ended == child {
            return match (libc::WIFEXITED(status), libc::WIFSIGNALED(status)) {
                (true, _) => Ok(libc::WEXITSTATUS(status)),
                (_, true) => Err(Failure::internal(
                    "the sandbox was killed by signal",
                    libc::WTERMSIG(status),
                )),
                _ => Err(Failure::internal("the sandbox ended", "in a way that cannot be")),
            };
        }
        if signals::wait(set, Duration::from_millis(200)).is_some_and(signals::is_stop) {
            // SAFETY: the child has not been waited for, so its id is still its own.
            unsafe { libc::kill(child, libc::SIGTERM) };
        }
    }
}

fn pipe() -> io::Result<(i32, i32)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((ends[0], ends[1]))
}

fn close(fd: i32) {
    // SAFETY: the descriptors of `pipe`, each closed once per process.
    unsafe { libc::close(fd) };
}

//! Mounts by descriptor (open_tree(2), move_mount(2), mount_setattr(2)): what has no place in the tree yet, with flags set before it gets one.

use super::check;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// linux/fcntl.h and linux/mount.h.
const AT_RECURSIVE: libc::c_int = 0x8000;
const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
pub(crate) const READ_ONLY: u64 = 0x01;
pub(crate) const NO_SUID: u64 = 0x02;
pub(crate) const NO_DEVICES: u64 = 0x04;
pub(crate) const NO_EXEC: u64 = 0x08;
/// No symbolic link beneath is followed; since Linux 5.14.
pub(crate) const NO_SYMLINKS: u64 = 0x20_0000;

#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// A copy of what is at `path`, with all that is mounted below, in no place yet.
///
/// # Errors
/// As open_tree(2).
pub(crate) fn copy(path: &CStr) -> io::Result<OwnedFd> {
    let flags = OPEN_TREE_CLONE | (AT_RECURSIVE | libc::O_CLOEXEC) as libc::c_uint;
    // SAFETY: a terminated string and integers; returns a new descriptor or -1.
    let fd = system(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) })?;
    // SAFETY: just created and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// Sets and clears flags of a copy and of all that is mounted below.
///
/// # Errors
/// As mount_setattr(2): flags that a more privileged owner has set cannot be cleared.
pub(crate) fn change(tree: &OwnedFd, set: u64, clear: u64) -> io::Result<()> {
    attributes(tree.as_raw_fd(), c"", libc::AT_EMPTY_PATH, set, clear)
}

/// Sets flags of everything that is mounted in the calling thread's namespace.
///
/// # Errors
/// As mount_setattr(2), which is there since Linux 5.12.
pub(crate) fn change_all(set: u64) -> io::Result<()> {
    attributes(libc::AT_FDCWD, c"/", 0, set, 0)
}

/// Gives a copy its place, above what was there.
///
/// # Errors
/// As move_mount(2).
pub(crate) fn put(tree: &OwnedFd, path: &CStr) -> io::Result<()> {
    // SAFETY: terminated strings, a live descriptor and integers.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    system(done).map(drop)
}

fn attributes(at: libc::c_int, path: &CStr, flags: libc::c_int, set: u64, clear: u64) -> io::Result<()> {
    let attributes = Attributes {
        set,
        clear,
        propagation: 0,
        user_namespace: 0,
    };
    // SAFETY: a terminated string, and a live structure given with its size.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at,
            path.as_ptr(),
            flags | AT_RECURSIVE,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    system(done).map(drop)
}

/// From now on nothing that this thread's mount namespace reaches at or below `folder` is found through a symbolic link there.
///
/// # Errors
/// As mount_setattr(2); EINVAL before Linux 5.14.
pub(crate) fn follow_no_links(folder: &Path) -> io::Result<()> {
    let folder = CString::new(folder.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let tree = copy(&folder)?;
    change(&tree, NO_SYMLINKS, 0)?;
    put(&tree, &folder)
}

/// Makes what is mounted at and below `/` of the calling thread's namespace its own: nothing comes or goes with another's.
///
/// # Errors
/// As mount(2).
pub(crate) fn make_private() -> io::Result<()> {
    // SAFETY: terminated strings or null.
    check(unsafe {
        libc::mount(
            std::ptr::null(),
            c"/".as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        )
    })
    .map(drop)
}

fn system(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

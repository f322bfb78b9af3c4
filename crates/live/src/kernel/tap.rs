//! TAP devices: an interface in a node whose other side is a file descriptor of ours.

use super::check;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

const DEVICE: &str = "/dev/net/tun";

// linux/if_tun.h
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNSETIFINDEX: libc::c_ulong = 0x4004_54da;
const IFF_TAP: libc::c_short = 0x0002;
const IFF_NO_PI: libc::c_short = 0x1000;

/// The kernel takes a device down some time after its last descriptor was closed; until then its name is taken.
const TRIES: u32 = 50;
const BETWEEN: Duration = Duration::from_millis(2);

#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    padding: [u8; 22],
}

/// Makes a TAP device in the calling thread's network namespace; it goes when the descriptor does. Frames are passed as they
/// are on the wire: checksums and segmentation are the node's own work.
///
/// # Errors
/// Where `/dev/net/tun` is missing or closed to us, or the namespace is not ours to change.
pub(crate) fn create(name: &str, index: u32) -> io::Result<OwnedFd> {
    let mut tries = 0;
    loop {
        match try_create(name, index) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries < TRIES => {
                tries += 1;
                std::thread::sleep(BETWEEN);
            }
            result => return result,
        }
    }
}

fn try_create(name: &str, index: u32) -> io::Result<OwnedFd> {
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(DEVICE)?;
    let fd = file.as_raw_fd();
    let wanted = index as libc::c_int;
    // SAFETY: the kernel reads one int from a live variable.
    check(unsafe { libc::ioctl(fd, TUNSETIFINDEX, &raw const wanted) })?;
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        flags: IFF_TAP | IFF_NO_PI,
        padding: [0; 22],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the request is as large as struct ifreq and lives for the call.
    check(unsafe { libc::ioctl(fd, TUNSETIFF, &raw mut request) })?;
    // SAFETY: takes an integer.
    check(unsafe { libc::ioctl(fd, TUNSETOFFLOAD, 0 as libc::c_ulong) })?;
    Ok(file.into())
}

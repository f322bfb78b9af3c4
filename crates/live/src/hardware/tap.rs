//! A TAP with an index of our choice: what QEMU writes enters the fabric's namespace there.

use crate::kernel::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// linux/if_tun.h
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETIFINDEX: libc::c_ulong = 0x4004_54da;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const IFF_TAP: libc::c_short = 0x0002;
/// No header before the frames: without one QEMU offers its guest no offloads, so that checksums are in the frames.
const IFF_NO_PI: libc::c_short = 0x1000;

#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    padding: [u8; 22],
}

/// Makes the TAP `name` with this index in the calling thread's network namespace. It goes with its last descriptor.
pub(crate) fn open(name: &str, index: u32) -> io::Result<OwnedFd> {
    // SAFETY: a terminated string; the descriptor is owned from here on.
    let tap = unsafe {
        OwnedFd::from_raw_fd(check(libc::open(
            c"/dev/net/tun".as_ptr(),
            libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK,
        ))?)
    };
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        flags: IFF_TAP | IFF_NO_PI,
        padding: [0; 22],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFINDEX reads an unsigned int, TUNSETIFF a struct ifreq; both live for the calls.
    unsafe {
        check(libc::ioctl(tap.as_raw_fd(), TUNSETIFINDEX, &raw const index))?;
        check(libc::ioctl(tap.as_raw_fd(), TUNSETIFF, &raw mut request))?;
        check(libc::ioctl(tap.as_raw_fd(), TUNSETOFFLOAD, 0))?;
    }
    Ok(tap)
}

/// What to say when it cannot be made.
pub(crate) fn advice(node: &str) -> String {
    format!(
        "node {node:?} is a virtual machine and needs a TAP (/dev/net/tun: modprobe tun, and the right to open it)"
    )
}

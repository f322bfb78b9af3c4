//! `sendmmsg` on a packet socket: many frames, each to its own interface, in one system call.

use super::{check, set_option};
use crate::plane::Departures;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const PACKET_QDISC_BYPASS: libc::c_int = 20;

/// Frames in one call.
pub(crate) const BATCH: usize = 64;

/// A sender with room for [`BATCH`] frames.
pub(crate) struct Sender {
    socket: OwnedFd,
    addresses: Box<[libc::sockaddr_ll; BATCH]>,
    parts: Box<[libc::iovec; BATCH]>,
    messages: Box<[libc::mmsghdr; BATCH]>,
    filled: usize,
}

// SAFETY: the pointers inside point into the boxes, which move with the sender, and to frames that the caller keeps until `flush`.
unsafe impl Send for Sender {}

impl Sender {
    pub(crate) fn open() -> io::Result<Self> {
        // SAFETY: plain system call; protocol 0 receives nothing.
        let socket = unsafe {
            OwnedFd::from_raw_fd(check(libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                0,
            ))?)
        };
        set_option(socket.as_raw_fd(), libc::SOL_PACKET, PACKET_QDISC_BYPASS, 1)?;
        // SAFETY (all three): plain C structures, for which zero is a valid value.
        let mut addresses: Box<[libc::sockaddr_ll; BATCH]> = Box::new(unsafe { std::mem::zeroed() });
        let mut parts: Box<[libc::iovec; BATCH]> = Box::new(unsafe { std::mem::zeroed() });
        let mut messages: Box<[libc::mmsghdr; BATCH]> = Box::new(unsafe { std::mem::zeroed() });
        for index in 0..BATCH {
            addresses[index].sll_family = libc::AF_PACKET as u16;
            let header = &mut messages[index].msg_hdr;
            header.msg_name = (&raw mut addresses[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            header.msg_iov = &raw mut parts[index];
            header.msg_iovlen = 1;
        }
        Ok(Self {
            socket,
            addresses,
            parts,
            messages,
            filled: 0,
        })
    }
}

impl Departures for Sender {
    fn is_full(&self) -> bool {
        self.filled == BATCH
    }

    unsafe fn push(&mut self, interface: u32, frame: &[u8]) {
        let index = self.filled;
        self.addresses[index].sll_ifindex = interface as i32;
        self.parts[index] = libc::iovec {
            iov_base: frame.as_ptr().cast_mut().cast(),
            iov_len: frame.len(),
        };
        self.filled += 1;
    }

    fn flush(&mut self) -> u64 {
        let (mut done, mut refused) = (0, 0);
        while done < self.filled {
            // SAFETY: the slice of messages is valid, and so are names, parts and frames behind it (see `push`).
            let sent = unsafe {
                libc::sendmmsg(
                    self.socket.as_raw_fd(),
                    self.messages[done..].as_mut_ptr(),
                    (self.filled - done) as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            if sent > 0 {
                done += sent as usize;
            } else if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                // The frame at the head is refused (receiver's backlog full, interface down): go on with the next.
                refused += 1;
                done += 1;
            }
        }
        self.filled = 0;
        refused
    }
}

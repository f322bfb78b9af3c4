//! The mother of the endpoint processes: forked from PID 1 while that has one thread, she has one herself for ever, so that she may
//! fork whenever a node starts, long after PID 1 has got threads.
//!
//! A forked child that should be PID 1's own (who waits for all, and sees their ends) is left behind by a grandmother's trick: she
//! forks a process that forks the child and ends at once; the kernel gives the orphan to PID 1.

use super::split::Part;
use super::{Word, child};
use crate::kernel::check;
use crate::nodes::Nodes;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// She, seen from PID 1.
pub(super) struct Zygote {
    pub(super) pid: libc::pid_t,
    stream: UnixStream,
}

/// Runs `work` as the whole of this process.
pub(super) fn end(work: impl FnOnce()) -> ! {
    let code = i32::from(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
    // SAFETY: ends the process without running anything of the program that forked us.
    unsafe { libc::_exit(code) };
}

impl Zygote {
    /// Forks her. `file` says where the part of that index records.
    pub(super) fn fork(parts: &[Part], nodes: &Nodes, file: &dyn Fn(usize) -> PathBuf) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // SAFETY: PID 1 has one thread at this time (see `crate::run`), so the child may go on as it likes.
        let pid = check(unsafe { libc::fork() })?;
        if pid == 0 {
            drop(ours);
            end(|| serve(&theirs, parts, nodes, file));
        }
        Ok(Self { pid, stream: ours })
    }

    /// Orders a process; the stream to it.
    pub(super) fn spawn(&mut self, index: usize) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        send(&self.stream, index as u32, theirs.as_raw_fd())?;
        ours.set_nonblocking(true)?;
        Ok(ours)
    }
}

/// Her life: until PID 1 closes its end.
fn serve(orders: &UnixStream, parts: &[Part], nodes: &Nodes, file: &dyn Fn(usize) -> PathBuf) {
    while let Ok((index, stream)) = receive(orders) {
        if let Some(part) = parts.get(index as usize) {
            // A fork that is refused closes the stream: PID 1 hears that.
            let _ = leave_behind(|| born(part, nodes, &file(index as usize), stream));
        }
    }
}

fn born(part: &Part, nodes: &Nodes, output: &Path, stream: UnixStream) {
    // SAFETY: takes nothing.
    let pid = unsafe { libc::getpid() };
    child::say(&stream, &Word::Born { pid });
    child::run_alone(part, nodes, output, stream);
}

/// Runs `work` in a child of PID 1.
fn leave_behind(work: impl FnOnce()) -> io::Result<()> {
    // SAFETY: this process has one thread.
    let between = check(unsafe { libc::fork() })?;
    if between == 0 {
        // SAFETY: as above; the process between ends in either case.
        match unsafe { libc::fork() } {
            0 => end(work),
            other => end(|| assert!(other > 0, "fork refused")),
        }
    }
    let mut status = 0;
    // SAFETY: `status` is live, and the process is ours.
    check(unsafe { libc::waitpid(between, &raw mut status, 0) })?;
    Ok(())
}

/// Room for one descriptor in a control message, aligned as `cmsghdr` wants it.
#[repr(C, align(8))]
struct Room([u8; 24]);

/// Sends a number with a descriptor (unix(7), SCM_RIGHTS).
fn send(stream: &UnixStream, number: u32, descriptor: RawFd) -> io::Result<()> {
    let mut bytes = number.to_le_bytes();
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut room = Room([0; 24]);
    // SAFETY: all zero is a valid message header; all pointers are to locals that outlive the call, and the room is
    // CMSG_SPACE(4) = 24 bytes on all 64-bit Linux, checked below.
    unsafe {
        assert!(libc::CMSG_SPACE(4) as usize <= room.0.len());
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header)
            .cast::<RawFd>()
            .write_unaligned(descriptor);
        if libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// What [`send`] sent; an error once the other end is closed.
fn receive(stream: &UnixStream) -> io::Result<(u32, UnixStream)> {
    let mut bytes = [0u8; 4];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut room = Room([0; 24]);
    // SAFETY: as in `send`; the descriptor is read only from a message that says it holds one, and is ours from then on.
    unsafe {
        let mut message: libc::msghdr = MaybeUninit::zeroed().assume_init();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.0.as_mut_ptr().cast();
        message.msg_controllen = room.0.len() as _;
        let count = libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC);
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let whole = count == 4 && !header.is_null();
        if !whole || (*header).cmsg_type != libc::SCM_RIGHTS || (*header).cmsg_level != libc::SOL_SOCKET {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let descriptor = libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned();
        let stream = UnixStream::from(OwnedFd::from_raw_fd(descriptor));
        Ok((u32::from_le_bytes(bytes), stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_descriptor_passes_with_its_number() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut kept, sent) = UnixStream::pair().unwrap();
        send(&near, 77, sent.as_raw_fd()).unwrap();
        drop(sent);
        let (number, mut received) = receive(&far).unwrap();
        received.write_all(b"!").unwrap();
        let mut byte = [0];
        kept.read_exact(&mut byte).unwrap();
        assert_eq!((number, byte), (77, *b"!"));
        drop(near);
        assert!(receive(&far).is_err());
    }
}

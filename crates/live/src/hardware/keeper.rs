//! The keeper: a process outside the sandbox that takes interfaces from the host and gives them back, however the run ends.
//!
//! An interface that is moved into the sandbox loses its addresses and routes, and when the sandbox dies the kernel moves a
//! physical one to the first namespace, bare, and destroys a virtual one. So a process that nothing of the sandbox reaches
//! (a session of its own, no parent-death signal) does the moving, notes what there was, holds the sandbox's namespaces
//! open, and puts everything back once the last end of its socket is closed: by an orderly end, a crash or SIGKILL alike.

use super::interface;
use crate::failure::Failure;
use crate::kernel::{check, ethtool, links::LinkState, netlink::Netlink};
use crate::nodes::{enter, within};
use crate::plan::{HardwarePlan, Plan};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// A request: position of the host in the plan, index in the new namespace (0: any), both u32 little-endian; the
/// namespace comes as a descriptor beside it (SCM_RIGHTS). The answer is a length (u16) and that many bytes of text, none
/// where it worked.
const REQUEST: usize = 8;

/// Our end.
pub(crate) struct Keeper {
    socket: Option<UnixStream>,
    pid: libc::pid_t,
}

/// One interface that is away.
struct Taken {
    before: LinkState,
    merging: ethtool::Merging,
    namespace: OwnedFd,
    index: u32,
}

impl Keeper {
    /// Starts the keeper where the plan takes interfaces. The calling process must have one thread.
    ///
    /// # Errors
    /// When the host refuses a process or a socket.
    pub(crate) fn start(plan: &Plan) -> Result<Option<Self>, Failure> {
        if !plan.hosts.iter().any(|host| interface::named(host).is_some()) {
            return Ok(None);
        }
        let why = |error: io::Error| Failure::host("cannot start the keeper of the interfaces", error);
        let (ours, theirs) = UnixStream::pair().map_err(why)?;
        // SAFETY: this process has one thread, so the child may go on as it likes.
        let pid = check(unsafe { libc::fork() }).map_err(why)?;
        if pid == 0 {
            drop(ours);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| keep(plan, theirs)));
            // SAFETY: ends the process without running anything of the program that forked us.
            unsafe { libc::_exit(i32::from(!matches!(done, Ok(Ok(()))))) };
        }
        Ok(Some(Self {
            socket: Some(ours),
            pid,
        }))
    }

    /// Moves the interface of the plan's host `position` into a namespace.
    ///
    /// # Errors
    /// In the keeper's words.
    pub(crate) fn take(
        &mut self,
        position: usize,
        namespace: BorrowedFd<'_>,
        index: u32,
    ) -> Result<(), Failure> {
        let gone = |error: io::Error| Failure::host("the keeper of the interfaces is gone", error);
        let socket = self
            .socket
            .as_mut()
            .ok_or_else(|| gone(io::Error::other("its socket is closed")))?;
        let mut request = [0u8; REQUEST];
        request[..4].copy_from_slice(&(position as u32).to_le_bytes());
        request[4..].copy_from_slice(&index.to_le_bytes());
        send_with(socket.as_raw_fd(), &request, namespace.as_raw_fd()).map_err(gone)?;
        let mut length = [0u8; 2];
        socket.read_exact(&mut length).map_err(gone)?;
        let mut text = vec![0u8; u16::from_le_bytes(length).into()];
        socket.read_exact(&mut text).map_err(gone)?;
        if text.is_empty() {
            Ok(())
        } else {
            Err(Failure::Host(String::from_utf8_lossy(&text).into_owned()))
        }
    }

    /// Everything of the sandbox is gone: waits until the interfaces are back. False where something could not be restored.
    pub(crate) fn release(mut self) -> bool {
        self.socket = None;
        let mut status = 0;
        // SAFETY: our own child; `status` is live.
        let ended = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        ended == self.pid && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}

/// The keeper's life.
fn keep(plan: &Plan, mut socket: UnixStream) -> io::Result<()> {
    leave()?;
    let home = File::open("/proc/self/ns/net")?;
    let mut taken: Vec<Taken> = Vec::new();
    while let Some((request, namespace)) = receive_with(&socket)? {
        let word =
            |at: usize| u32::from_le_bytes([request[at], request[at + 1], request[at + 2], request[at + 3]]);
        let text = match (plan.hosts.get(word(0) as usize), namespace) {
            (Some(host), Some(namespace)) => {
                match take(
                    host.hardware.as_ref(),
                    namespace,
                    word(4),
                    (word(0), home.as_fd()),
                ) {
                    Ok(one) => {
                        taken.push(one);
                        String::new()
                    }
                    Err(why) => format!("node {:?}: {why}", host.node),
                }
            }
            _ => "a request that makes no sense".to_owned(),
        };
        let bytes = &text.as_bytes()[..text.len().min(u16::MAX.into())];
        let mut answer = (bytes.len() as u16).to_le_bytes().to_vec();
        answer.extend(bytes);
        if io::Write::write_all(&mut socket, &answer).is_err() {
            break;
        }
    }
    // The last in is the first out: an interface may route over another.
    let mut result = Ok(());
    for one in taken.iter().rev() {
        result = result.and(give_back(one, home.as_fd()));
    }
    result
}

/// Out of reach of whatever ends the run: another session, no open terminal or pipe, signals blocked.
fn leave() -> io::Result<()> {
    crate::signals::block();
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    // SAFETY: take integers; the descriptors are our own process's.
    unsafe {
        check(libc::setsid())?;
        for standard in 0..3 {
            check(libc::dup2(nothing.as_raw_fd(), standard))?;
        }
    }
    Ok(())
}

fn take(
    hardware: Option<&HardwarePlan>,
    namespace: OwnedFd,
    index: u32,
    (position, home): (u32, BorrowedFd<'_>),
) -> Result<Taken, String> {
    let (name, new_name, addresses) = match hardware {
        Some(HardwarePlan::Device { interface, .. }) => (interface, format!("f{position}"), &[][..]),
        Some(HardwarePlan::Card {
            interface, addresses, ..
        }) => (interface, interface.clone(), &addresses[..]),
        _ => return Err("takes no interface".to_owned()),
    };
    let before = interface::find(name)?;
    let why = |error: io::Error| format!("cannot move interface {name} into the sandbox: {error}");
    let mut requests = Netlink::open().map_err(why)?;
    let merging = ethtool::merging(requests.fd(), name);
    requests
        .move_link(before.index, &namespace, &new_name, index)
        .map_err(why)?;
    requests.flush().map_err(why)?;
    let mut taken = Taken {
        before,
        merging,
        namespace,
        index,
    };
    let ready = match hardware {
        Some(HardwarePlan::Card { .. }) => settle(&mut taken, &new_name, addresses),
        _ => Ok(()),
    };
    ready.map_err(|error| {
        let _ = give_back(&taken, home);
        format!("cannot set interface {name} up in the node: {error}")
    })?;
    Ok(taken)
}

/// A card in its node: up, with the stated addresses or those that it had.
fn settle(taken: &mut Taken, name: &str, stated: &[crate::plan::CardAddress]) -> io::Result<()> {
    let before = taken.before.clone();
    taken.index = within(taken.namespace.as_fd(), || {
        let mut requests = Netlink::open()?;
        let index = requests
            .state(name)?
            .ok_or_else(|| io::Error::other("it did not arrive"))?
            .index;
        if stated.is_empty() {
            requests.restore(&LinkState {
                index,
                up: true,
                addresses: before
                    .addresses
                    .into_iter()
                    .map(|mut address| {
                        address.header.index = index;
                        address
                    })
                    .collect(),
                routes: Vec::new(),
                ..before
            })?;
        } else {
            requests.set_up(index)?;
            for address in stated {
                requests.add_address(index, address.address, address.prefix)?;
            }
            requests.flush()?;
        }
        Ok(index)
    })?;
    Ok(())
}

/// Back under its name and index, with its flags, addresses and routes.
fn give_back(taken: &Taken, home: BorrowedFd<'_>) -> io::Result<()> {
    let name = &taken.before.name;
    enter(taken.namespace.as_raw_fd())?;
    let moved = Netlink::open().and_then(|mut requests| {
        requests.move_link(taken.index, &home, name, taken.before.index)?;
        requests.flush()
    });
    enter(home.as_raw_fd())?;
    moved?;
    let mut requests = Netlink::open()?;
    let merging = ethtool::set_merging(requests.fd(), name, taken.merging);
    requests.restore(&taken.before).and(merging)
}

fn send_with(socket: RawFd, bytes: &[u8], descriptor: RawFd) -> io::Result<()> {
    let mut control = [0u64; 4];
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: an all-zero msghdr is valid; every pointer is to a live variable of the stated size, and the control buffer has
    // room for one descriptor.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(header)
            .cast::<RawFd>()
            .write_unaligned(descriptor);
        libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL)
    };
    if usize::try_from(sent) == Ok(bytes.len()) {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The next request, `None` once nobody can send one any more.
fn receive_with(socket: &UnixStream) -> io::Result<Option<([u8; REQUEST], Option<OwnedFd>)>> {
    let mut bytes = [0u8; REQUEST];
    let mut control = [0u64; 4];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: as in `send_with`.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let received = libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC);
        if received < REQUEST as isize {
            return Ok(None);
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let carries = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS;
        let descriptor =
            carries.then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned()));
        Ok(Some((bytes, descriptor)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_and_its_descriptor_arrive_together_and_the_end_is_seen() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        send_with(ours.as_raw_fd(), &[1, 0, 0, 0, 2, 0, 0, 0], file.as_raw_fd()).unwrap();
        let (bytes, descriptor) = receive_with(&theirs).unwrap().unwrap();
        assert_eq!(bytes, [1, 0, 0, 0, 2, 0, 0, 0]);
        let status = File::from(descriptor.unwrap()).metadata().unwrap();
        assert_eq!(
            std::os::unix::fs::MetadataExt::rdev(&status),
            std::os::unix::fs::MetadataExt::rdev(&file.metadata().unwrap())
        );
        drop(ours);
        assert!(receive_with(&theirs).unwrap().is_none());
    }
}

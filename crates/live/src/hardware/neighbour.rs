//! Asking for a MAC address by ARP (RFC 826) on one interface, for devices and machines of which we know nothing else.

use crate::kernel::{check, clock};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Between two questions.
const INTERVAL: u64 = 200_000_000;
const FRAME: usize = 60;

pub(crate) struct Inquiry {
    socket: OwnedFd,
    request: [u8; FRAME],
    wanted: Ipv4Addr,
    next: u64,
}

impl Inquiry {
    /// Will ask for `wanted` on `interface` of the calling thread's namespace, in the name of `asking`.
    pub(crate) fn open(interface: u32, asking: (Ipv4Addr, [u8; 6]), wanted: Ipv4Addr) -> io::Result<Self> {
        let protocol = (libc::ETH_P_ARP as u16).to_be();
        // SAFETY: plain system call; the descriptor is owned from here on.
        let socket = unsafe {
            OwnedFd::from_raw_fd(check(libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                protocol.into(),
            ))?)
        };
        // SAFETY: an all-zero sockaddr_ll is valid; it lives for the call and has the stated length.
        unsafe {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = interface as i32;
            check(libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            ))?;
        }
        Ok(Self {
            socket,
            request: request(asking, wanted),
            wanted,
            next: 0,
        })
    }

    /// Asks when it is time to; the answer once it has come.
    pub(crate) fn poll(&mut self) -> Option<[u8; 6]> {
        let now = clock::monotonic();
        if now >= self.next {
            self.next = now + INTERVAL;
            // SAFETY: sends from a live array. What is lost is asked again.
            unsafe {
                libc::send(
                    self.socket.as_raw_fd(),
                    self.request.as_ptr().cast(),
                    FRAME,
                    libc::MSG_DONTWAIT,
                )
            };
        }
        let mut bytes = [0u8; 128];
        loop {
            // SAFETY: receives at most the array's length.
            let length = unsafe {
                libc::recv(
                    self.socket.as_raw_fd(),
                    bytes.as_mut_ptr().cast(),
                    bytes.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            let length = usize::try_from(length).ok()?;
            if let Some(mac) = answer(&bytes[..length], self.wanted) {
                return Some(mac);
            }
        }
    }
}

fn request((address, mac): (Ipv4Addr, [u8; 6]), wanted: Ipv4Addr) -> [u8; FRAME] {
    let mut frame = [0u8; FRAME];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&mac);
    // EtherType, then hardware type Ethernet, protocol IPv4, lengths 6 and 4, operation request.
    frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame[22..28].copy_from_slice(&mac);
    frame[28..32].copy_from_slice(&address.octets());
    frame[38..42].copy_from_slice(&wanted.octets());
    frame
}

/// The MAC address that a frame says `wanted` has: an answer, or an announcement of its own.
fn answer(frame: &[u8], wanted: Ipv4Addr) -> Option<[u8; 6]> {
    let head = [8, 6, 0, 1, 8, 0, 6, 4];
    let mac: [u8; 6] = frame.get(22..28)?.try_into().ok()?;
    let is_answer = frame.get(12..20)? == head
        && frame.get(28..32)? == wanted.octets()
        && mac[0] & 1 == 0
        && mac != [0; 6];
    is_answer.then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

    #[test]
    fn a_question_is_answered_and_nothing_else_is_an_answer() {
        let asked = request((Ipv4Addr::new(10, 0, 0, 1), [2, 0, 0, 0, 0, 1]), WANTED);
        assert_eq!(answer(&asked, WANTED), None);
        let mut reply = asked;
        reply[21] = 2;
        reply[22..28].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        reply[28..32].copy_from_slice(&WANTED.octets());
        assert_eq!(answer(&reply, WANTED), Some([2, 0, 0, 0, 0, 9]));
        assert_eq!(answer(&reply, Ipv4Addr::new(10, 0, 0, 8)), None);
        reply[22] = 3;
        assert_eq!(answer(&reply, WANTED), None, "a group's address");
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut reply = request((WANTED, [2, 0, 0, 0, 0, 9]), WANTED);
        for length in 0..reply.len() {
            let _ = answer(&reply[..length], WANTED);
        }
        for position in 0..reply.len() {
            for value in [0, 1, 0x7f, 0xff] {
                reply[position] = value;
                let _ = answer(&reply, WANTED);
            }
        }
    }
}

//! Probe frames through kernel sockets in the nodes.

use super::paths::{Resource, Route};
use crate::kernel::{clock, set_option};
use crate::nodes::{Nodes, within};
use crate::plane::MAGIC;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;
use timebound_model::Network;

/// Port of probes, RFC 863: nobody else listens there.
const DISCARD: u16 = 9;
const SMALL: usize = super::SMALL;
/// How much later than the model a probe may be before the next is sent.
const PATIENCE: u64 = 5_000_000;

/// A probe that reached its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) flow: u32,
    pub(super) sequence: u32,
    /// CLOCK_REALTIME of the receiving kernel.
    pub(super) stamp: u64,
}

/// A probe that had the network to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Single {
    pub(super) flow: u32,
    pub(super) sequence: u32,
}

pub(super) struct Prober<'a> {
    nodes: &'a Nodes,
    sockets: BTreeMap<usize, UdpSocket>,
    sequence: u32,
    /// Until when probes are under way on slow ways, at most.
    busy: BTreeMap<Resource, u64>,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) single: Vec<Single>,
}

fn sleep(nanos: u64) {
    if nanos > 0 {
        std::thread::sleep(Duration::from_nanos(nanos));
    }
}

impl<'a> Prober<'a> {
    /// Sockets in every node that takes part, each of which knows whom it sends to.
    pub(super) fn open(nodes: &'a Nodes, routes: &[Route]) -> io::Result<Self> {
        let mut sockets = BTreeMap::new();
        for position in routes.iter().flat_map(|route| [route.sender, route.receiver]) {
            if let std::collections::btree_map::Entry::Vacant(entry) = sockets.entry(position) {
                let node = &nodes.list[position];
                let socket = within(node.namespace(), || UdpSocket::bind((node.address, DISCARD)))?;
                socket.set_nonblocking(true)?;
                set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
                set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 1 << 20)?;
                entry.insert(socket);
            }
        }
        for route in routes {
            let (sender, receiver) = (&nodes.list[route.sender], &nodes.list[route.receiver]);
            sender.introduce(receiver)?;
            receiver.introduce(sender)?;
        }
        Ok(Self {
            nodes,
            sockets,
            sequence: 0,
            busy: BTreeMap::new(),
            arrivals: Vec::new(),
            single: Vec::new(),
        })
    }

    /// Probes of these sizes. On a quick way one is waited for before the next is sent; on a slow one the next is sent when it
    /// cannot have to wait for the one before.
    pub(super) fn visit(&mut self, route: &Route, network: &Network, payloads: &[usize]) {
        self.await_way(route, network);
        for payload in payloads {
            let wire = route.wire(*payload);
            let greatest = route.latency(network, wire).1;
            let with_copies = route.greatest_with_copies(network, wire);
            let Some(probe) = self.send(route, *payload) else {
                continue;
            };
            self.single.push(probe);
            if !route.is_slow(network, wire) {
                // The first one may wait for the kernel's address resolution; its virtual latency is as good as any.
                self.await_probe(route.receiver, probe, greatest + PATIENCE);
                sleep(with_copies - greatest);
            } else {
                let free = clock::monotonic() + with_copies + PATIENCE;
                for resource in route.resources(network) {
                    self.busy.insert(resource, free);
                }
                sleep(route.occupancy(network, wire) + PATIENCE);
            }
        }
    }

    /// Waits until what earlier probes of other ways left on this one must have passed.
    fn await_way(&mut self, route: &Route, network: &Network) {
        let resources = route.resources(network);
        let free = resources
            .iter()
            .filter_map(|resource| self.busy.get(resource))
            .max();
        let free = free.copied().unwrap_or_default();
        sleep(free.saturating_sub(clock::monotonic()));
    }

    /// Many small probes, `gap` apart, without waiting for each.
    pub(super) fn burst(&mut self, route: &Route, count: u32, gap: u64) {
        let mut next = clock::monotonic();
        for index in 0..count {
            self.send(route, SMALL);
            next += gap + gap / 8;
            if index % 16 == 15 {
                self.receive(route.receiver);
            }
            let now = clock::monotonic();
            if next > now {
                std::thread::sleep(Duration::from_nanos(next - now));
            }
        }
        self.receive(route.receiver);
    }

    fn send(&mut self, route: &Route, payload: usize) -> Option<Single> {
        let (flow, sequence) = (route.flow, self.sequence);
        self.sequence += 1;
        let mut bytes = vec![0u8; payload];
        for (place, word) in bytes.chunks_exact_mut(4).zip([MAGIC, flow, sequence]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let to = SocketAddr::from((self.nodes.list[route.receiver].address, DISCARD));
        self.sockets[&route.sender]
            .send_to(&bytes, to)
            .ok()
            .map(|_| Single { flow, sequence })
    }

    fn await_probe(&mut self, receiver: usize, probe: Single, patience: u64) {
        let begun = clock::monotonic();
        loop {
            let before = self.arrivals.len();
            self.receive(receiver);
            let arrived =
                |arrival: &Arrival| (arrival.flow, arrival.sequence) == (probe.flow, probe.sequence);
            if self.arrivals[before..].iter().any(arrived) || clock::monotonic() - begun > patience {
                return;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Did any probe leave its socket?
    pub(super) fn has_sent(&self) -> bool {
        self.sequence > 0
    }

    /// Takes in what has arrived anywhere.
    pub(super) fn collect(&mut self) {
        let positions: Vec<usize> = self.sockets.keys().copied().collect();
        positions.into_iter().for_each(|position| self.receive(position));
    }

    fn receive(&mut self, position: usize) {
        while let Some((bytes, stamp)) = receive_stamped(self.sockets[&position].as_raw_fd()) {
            let word =
                |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            if word(0) == MAGIC {
                self.arrivals.push(Arrival {
                    flow: word(4),
                    sequence: word(8),
                    stamp,
                });
            }
        }
    }
}

/// The first bytes of the next datagram and its kernel stamp (SO_TIMESTAMPNS).
fn receive_stamped(fd: libc::c_int) -> Option<([u8; SMALL], u64)> {
    let mut bytes = [0u8; SMALL];
    let mut control = [0u64; 16];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: an all-zero msghdr is valid; every pointer below is to a live variable of the stated size.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        if libc::recvmsg(fd, &raw mut message, libc::MSG_DONTWAIT) < SMALL as isize {
            return None;
        }
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_TIMESTAMPNS {
                let time = libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned();
                return Some((bytes, time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Some((bytes, clock::realtime()))
}

/// Sends `bytes` over a TCP connection and compares what arrives.
pub(super) fn tcp(nodes: &Nodes, route: &Route, bytes: usize, deadline: u64) -> io::Result<()> {
    let (from, to) = (&nodes.list[route.sender], &nodes.list[route.receiver]);
    let left = deadline.saturating_sub(clock::monotonic()).max(500_000_000);
    let timeout = Duration::from_nanos(left);
    let listener = within(to.namespace(), || TcpListener::bind((to.address, DISCARD)))?;
    let address = SocketAddr::from((to.address, DISCARD));
    let mut out = within(from.namespace(), || TcpStream::connect_timeout(&address, timeout))?;
    // Connected, so one is waiting to be accepted.
    let (mut inward, _) = listener.accept()?;
    inward.set_read_timeout(Some(timeout))?;
    out.set_write_timeout(Some(timeout))?;
    let sent: Vec<u8> = (0..bytes).map(|index| ((index * 31) >> 3) as u8).collect();
    let mut received = vec![0u8; bytes];
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| out.write_all(&sent));
        inward.read_exact(&mut received)?;
        writing
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a helper thread panicked")))
    })?;
    if sent == received {
        Ok(())
    } else {
        Err(io::Error::other("the bytes arrived damaged"))
    }
}

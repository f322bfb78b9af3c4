//! UDP: one socket at the peer address and port that sends everything and receives what is sent to this manager alone, and one for each group.

use super::Loss;
use super::inbox::{Inbox, Input};
use crate::contract::Peering;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

/// Bytes that the kernel keeps for a socket, as far as it may: what a full window brings at once.
const BUFFER: usize = 4 << 20;
/// Datagrams that are read before others have their turn.
const BURST: usize = 64;

fn socket(address: Ipv4Addr, port: u16, shared: bool) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    // Several managers on one host may receive the same group.
    socket.set_reuse_address(shared)?;
    drop(socket.set_recv_buffer_size(BUFFER));
    drop(socket.set_send_buffer_size(BUFFER));
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((address, port)).into())?;
    Ok(socket.into())
}

/// The socket that sends.
pub(super) fn bind(said: &Peering) -> io::Result<std::net::UdpSocket> {
    let socket = socket(said.address, said.port, false)?;
    let options = SockRef::from(&socket);
    options.set_multicast_if_v4(&said.interface_address.unwrap_or(said.address))?;
    options.set_multicast_ttl_v4(u32::from(said.ttl))?;
    Ok(socket)
}

/// Sends datagrams, each with its class.
pub(super) struct Sockets {
    socket: Rc<UdpSocket>,
    class: Cell<u8>,
}

impl Sockets {
    pub(super) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        super::links::mark(SockRef::from(&socket), 0);
        Ok(Self {
            socket: Rc::new(UdpSocket::from_std(socket)?),
            class: Cell::new(0),
        })
    }

    /// What the kernel does not take is as good as lost on the way.
    pub(super) fn send(&self, class: u8, to: SocketAddr, bytes: &[u8]) {
        if self.class.replace(class) != class {
            super::links::mark(SockRef::from(&*self.socket), class);
        }
        drop(self.socket.try_send_to(bytes, to));
    }

    /// Reads what is sent to this manager alone.
    pub(super) fn receive(&self, inbox: Inbox, loss: Option<Loss>) -> AbortHandle {
        tokio::task::spawn_local(read(Rc::clone(&self.socket), inbox, loss)).abort_handle()
    }
}

/// Joins a group and reads what is sent to it until the task is aborted.
pub(super) fn join(
    said: &Peering,
    group: Ipv4Addr,
    inbox: Inbox,
    loss: Option<Loss>,
) -> io::Result<AbortHandle> {
    let socket = socket(group, said.port, true)?;
    let interface = said.interface_address.unwrap_or(said.address);
    socket.join_multicast_v4(&group, &interface)?;
    let socket = Rc::new(UdpSocket::from_std(socket)?);
    Ok(tokio::task::spawn_local(read(socket, inbox, loss)).abort_handle())
}

async fn read(socket: Rc<UdpSocket>, inbox: Inbox, loss: Option<Loss>) {
    let mut buffer = vec![0; 65_536];
    loop {
        if socket.readable().await.is_err() {
            return;
        }
        for _ in 0..BURST {
            // An error is of a datagram that was sent before (nobody listens there).
            let Ok((length, SocketAddr::V4(from))) = socket.try_recv_from(&mut buffer) else {
                break;
            };
            let bytes = &buffer[..length];
            if loss.as_ref().is_some_and(|loss| loss(bytes)) {
                continue;
            }
            inbox.put(Input::Datagram {
                from: *from.ip(),
                bytes: bytes.to_vec(),
            });
        }
        tokio::task::yield_now().await;
    }
}

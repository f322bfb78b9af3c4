//! Opens sockets: each in its node's namespace, on its fixed local port, with its DSCP.

use crate::control::NamespaceProvider;
use crate::error::EndpointError;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};

/// Who a socket is for and how it is marked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub(crate) name: &'a str,
    pub(crate) node: &'a str,
    pub(crate) dscp: u8,
}

/// Opens sockets of one thread; remembers in which namespace it is.
pub(crate) struct Opener<'a> {
    namespaces: &'a dyn NamespaceProvider,
    inside: Option<String>,
}

/// Datagrams of a burst wait in the receiver's socket until the thread comes round; the default would drop some.
const UDP_RECEIVE_BUFFER: usize = 4 << 20;

impl<'a> Opener<'a> {
    pub(crate) fn new(namespaces: &'a dyn NamespaceProvider) -> Self {
        Self {
            namespaces,
            inside: None,
        }
    }

    fn enter(&mut self, node: &str) -> Result<(), EndpointError> {
        if self.inside.as_deref() != Some(node) {
            self.inside = None;
            self.namespaces
                .enter(node)
                .map_err(|source| EndpointError::Namespace {
                    node: node.to_owned(),
                    source,
                })?;
            self.inside = Some(node.to_owned());
        }
        Ok(())
    }

    fn socket(&mut self, owner: &Owner<'_>, kind: Type, protocol: Protocol) -> Result<Socket, EndpointError> {
        self.enter(owner.node)?;
        let socket =
            Socket::new(Domain::IPV4, kind, Some(protocol)).map_err(failed(owner, "open a socket"))?;
        socket
            .set_nonblocking(true)
            .map_err(failed(owner, "set non-blocking mode"))?;
        socket
            .set_reuse_address(true)
            .map_err(failed(owner, "set SO_REUSEADDR"))?;
        if owner.dscp > 0 {
            // RFC 2474: the DSCP is the upper six bits of the octet.
            socket
                .set_tos_v4(u32::from(owner.dscp) << 2)
                .map_err(failed(owner, "set the DSCP"))?;
        }
        Ok(socket)
    }

    /// A TCP socket bound to `local`, without Nagle's algorithm.
    pub(crate) fn tcp(&mut self, owner: &Owner<'_>, local: SocketAddrV4) -> Result<Socket, EndpointError> {
        let socket = self.socket(owner, Type::STREAM, Protocol::TCP)?;
        socket
            .set_tcp_nodelay(true)
            .map_err(failed(owner, "set TCP_NODELAY"))?;
        socket
            .bind(&local.into())
            .map_err(failed(owner, "bind the local port"))?;
        Ok(socket)
    }

    /// Begins to connect; the socket becomes writable when it is through.
    pub(crate) fn connect(
        &mut self,
        owner: &Owner<'_>,
        local: SocketAddrV4,
        remote: SocketAddrV4,
    ) -> Result<io::Result<TcpStream>, EndpointError> {
        let socket = self.tcp(owner, local)?;
        Ok(match socket.connect(&remote.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            Ok(()) | Err(_) => Ok(socket.into()),
        })
    }

    pub(crate) fn listen(
        &mut self,
        owner: &Owner<'_>,
        local: SocketAddrV4,
    ) -> Result<TcpListener, EndpointError> {
        let socket = self.tcp(owner, local)?;
        socket.listen(16).map_err(failed(owner, "listen"))?;
        Ok(socket.into())
    }

    pub(crate) fn udp(&mut self, owner: &Owner<'_>, local: SocketAddrV4) -> Result<UdpSocket, EndpointError> {
        let socket = self.socket(owner, Type::DGRAM, Protocol::UDP)?;
        socket
            .set_recv_buffer_size(UDP_RECEIVE_BUFFER)
            .map_err(failed(owner, "set the receive buffer"))?;
        socket
            .bind(&local.into())
            .map_err(failed(owner, "bind the local port"))?;
        Ok(socket.into())
    }

    /// An UDP socket for sending to `destination`, unicast or multicast.
    pub(crate) fn udp_sender(
        &mut self,
        owner: &Owner<'_>,
        local: SocketAddrV4,
        destination: Ipv4Addr,
        multicast_ttl: u8,
    ) -> Result<UdpSocket, EndpointError> {
        let socket = self.udp(owner, local)?;
        if destination.is_multicast() {
            socket
                .set_multicast_ttl_v4(u32::from(multicast_ttl))
                .map_err(failed(owner, "set the multicast TTL"))?;
            if !local.ip().is_unspecified() {
                let reference = socket2::SockRef::from(&socket);
                reference
                    .set_multicast_if_v4(local.ip())
                    .map_err(failed(owner, "choose the interface for multicast"))?;
            }
        }
        Ok(socket)
    }

    /// An UDP socket that receives at `address`, after joining it where it is a multicast group.
    pub(crate) fn udp_receiver(
        &mut self,
        owner: &Owner<'_>,
        address: SocketAddrV4,
        interface: Option<Ipv4Addr>,
    ) -> Result<UdpSocket, EndpointError> {
        let socket = self.udp(owner, address)?;
        if address.ip().is_multicast() {
            let interface = interface.unwrap_or(Ipv4Addr::UNSPECIFIED);
            socket
                .join_multicast_v4(address.ip(), &interface)
                .map_err(failed(owner, "join the multicast group"))?;
        }
        Ok(socket)
    }
}

fn failed(owner: &Owner<'_>, action: &'static str) -> impl FnOnce(io::Error) -> EndpointError {
    let (endpoint, node) = (owner.name.to_owned(), owner.node.to_owned());
    move |source| EndpointError::Socket {
        endpoint,
        node,
        action,
        source,
    }
}

/// A local or remote address; any where absent.
pub(crate) fn address(ip: Option<Ipv4Addr>, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(ip.unwrap_or(Ipv4Addr::UNSPECIFIED), port)
}

/// The local port of a bound socket; 0 if the kernel does not say.
pub(crate) fn port_of(address: io::Result<std::net::SocketAddr>) -> u16 {
    address.map_or(0, |address| address.port())
}

/// Is this "nothing to do now" rather than a failure?
pub(crate) fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

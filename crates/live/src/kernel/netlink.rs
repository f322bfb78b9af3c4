//! Links, addresses and routes by rtnetlink, many requests to a message.

use super::htb;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, route::RouteHeader};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};

/// A veth pair: the near end in the socket's namespace, the far end in another.
pub(crate) struct Veth<'a> {
    pub(crate) near_name: &'a str,
    pub(crate) near_index: u32,
    pub(crate) far_name: &'a str,
    pub(crate) far_index: u32,
    pub(crate) far_namespace: RawFd,
    pub(crate) far_mac: [u8; 6],
    pub(crate) far_txqueuelen: u32,
    pub(crate) mtu: u32,
}

/// The way to one peer, with what TCP may send to it, and be sent, at first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerRoute {
    pub(crate) index: u32,
    pub(crate) peer: Ipv4Addr,
    pub(crate) source: Ipv4Addr,
    /// Segments before the first acknowledgement, to it and from it.
    pub(crate) windows: (u32, u32),
    pub(crate) largest_segment: Option<u32>,
}

/// An rtnetlink socket of the namespace in which it was opened.
pub(crate) struct Netlink {
    socket: Socket,
    pending: Vec<u8>,
    awaited: u32,
}

/// Requests are sent when this much has gathered, or this many: each answer takes about a kilobyte of the socket's buffer.
const BATCH: usize = 16 * 1024;
const MOST_AWAITED: u32 = 64;

impl Netlink {
    /// A socket in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Acknowledgements repeat the request unless told otherwise; a batch of them would overflow the receive buffer.
        socket.set_cap_ack(true)?;
        Ok(Self {
            socket,
            pending: Vec::with_capacity(2 * BATCH),
            awaited: 0,
        })
    }

    /// Any socket will do for an ioctl in this namespace; this one is at hand.
    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(super) fn socket(&mut self) -> &mut Socket {
        &mut self.socket
    }

    pub(super) fn push(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.awaited;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let start = self.pending.len();
        self.pending
            .resize((start + message.buffer_len()).next_multiple_of(4), 0);
        message.serialize(&mut self.pending[start..]);
        self.awaited += 1;
        if self.pending.len() >= BATCH || self.awaited >= MOST_AWAITED {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// A request of which we write the body.
    fn push_body(&mut self, kind: u16, body: &[u8]) -> io::Result<()> {
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        let start = self.pending.len();
        // struct nlmsghdr: length, type, flags, sequence, port
        self.pending.extend((16 + body.len() as u32).to_ne_bytes());
        self.pending.extend(kind.to_ne_bytes());
        self.pending.extend(flags.to_ne_bytes());
        self.pending.extend(self.awaited.to_ne_bytes());
        self.pending.extend(0u32.to_ne_bytes());
        self.pending.extend(body);
        self.pending
            .resize(start + (16 + body.len()).next_multiple_of(4), 0);
        self.awaited += 1;
        Ok(())
    }

    /// Makes what leaves by an interface wait for a rate.
    pub(crate) fn add_shape(&mut self, index: u32, shape: htb::Shape, queue_frames: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        // The class's own queue takes its length from here when it is made.
        message.attributes = vec![LinkAttribute::TxQueueLen(queue_frames)];
        self.push(RouteNetlinkMessage::SetLink(message), 0)?;
        self.push_body(htb::NEW_QDISC, &htb::discipline(index))?;
        self.push_body(htb::NEW_CLASS, &htb::class(index, shape))
    }

    /// Sends what has gathered and waits for every answer.
    ///
    /// # Errors
    /// The first refusal.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.socket.send(&self.pending, 0)?;
        self.pending.clear();
        let mut refused = None;
        let mut buffer = Vec::with_capacity(64 * 1024);
        while self.awaited > 0 {
            buffer.clear();
            self.socket.recv(&mut buffer, 0)?;
            let mut rest = &buffer[..];
            while rest.len() >= 16 {
                let message =
                    NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
                if let NetlinkPayload::Error(error) = &message.payload {
                    self.awaited -= 1;
                    if error.code.is_some() && refused.is_none() {
                        refused = Some(error.to_io());
                    }
                }
                let length = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or(&[]);
            }
        }
        refused.map_or(Ok(()), Err)
    }

    pub(crate) fn add_veth(&mut self, veth: &Veth<'_>) -> io::Result<()> {
        let mut far = LinkMessage::default();
        far.header.index = veth.far_index;
        far.attributes = vec![
            LinkAttribute::IfName(veth.far_name.to_owned()),
            LinkAttribute::Address(veth.far_mac.to_vec()),
            LinkAttribute::Mtu(veth.mtu),
            LinkAttribute::TxQueueLen(veth.far_txqueuelen),
            LinkAttribute::NetNsFd(veth.far_namespace),
        ];
        let mut near = LinkMessage::default();
        near.header.index = veth.near_index;
        // Created up, and without ARP: nothing but the packet socket shall speak on this side.
        near.header.flags = LinkFlags::Up | LinkFlags::Noarp;
        near.header.change_mask = LinkFlags::Up | LinkFlags::Noarp;
        near.attributes = vec![
            LinkAttribute::IfName(veth.near_name.to_owned()),
            LinkAttribute::Mtu(veth.mtu),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far))),
            ]),
        ];
        self.push(RouteNetlinkMessage::NewLink(near), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// What a veth pair is created with, set on an interface that is there.
    pub(crate) fn set_link(&mut self, index: u32, mac: [u8; 6], mtu: u32, txqueuelen: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = vec![
            LinkAttribute::Address(mac.to_vec()),
            LinkAttribute::Mtu(mtu),
            LinkAttribute::TxQueueLen(txqueuelen),
        ];
        self.push(RouteNetlinkMessage::SetLink(message), 0)
    }

    pub(crate) fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.push(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// The kernel forgets the interface's routes and neighbours with it, but not its addresses.
    pub(crate) fn set_down(&mut self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.change_mask = LinkFlags::Up;
        self.push(RouteNetlinkMessage::SetLink(message), 0)
    }

    pub(crate) fn add_address(&mut self, index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let host_bits = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = prefix;
        message.header.index = index;
        message.attributes = vec![
            AddressAttribute::Local(address.into()),
            AddressAttribute::Address(address.into()),
            AddressAttribute::Broadcast(Ipv4Addr::from(u32::from(address) | host_bits)),
        ];
        self.push(
            RouteNetlinkMessage::NewAddress(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// A neighbour that needs no ARP and never expires. Such entries do not count against the kernel's limit, which all
    /// namespaces of the host share (`gc_thresh3`, 1024).
    pub(crate) fn add_neighbour(&mut self, index: u32, address: Ipv4Addr, mac: [u8; 6]) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        self.push(
            RouteNetlinkMessage::NewNeighbour(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// Replaces the route of an interface's own subnet by one that states the largest TCP segment to be asked for: the kernel asks
    /// for no less than 256 bytes otherwise, whatever the MTU (net.ipv4.route.min_adv_mss).
    pub(crate) fn limit_segments(
        &mut self,
        index: u32,
        address: Ipv4Addr,
        prefix: u8,
        mtu: u32,
    ) -> io::Result<()> {
        let host_bits = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
        let subnet = Ipv4Addr::from(u32::from(address) & !host_bits);
        let mut message = out_of(index, subnet, prefix);
        message.header.protocol = RouteProtocol::Kernel;
        message
            .attributes
            .push(RouteAttribute::PrefSource(RouteAddress::Inet(address)));
        // Headers of IPv4 and TCP without options (RFC 6691).
        message
            .attributes
            .push(RouteAttribute::Metrics(vec![RouteMetric::Advmss(
                mtu.saturating_sub(40),
            )]));
        self.push(
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// A route to one peer alone, which says how much TCP may send before the first acknowledgement.
    pub(crate) fn add_peer_route(&mut self, route: &PeerRoute) -> io::Result<()> {
        let mut message = out_of(route.index, route.peer, 32);
        message
            .attributes
            .push(RouteAttribute::PrefSource(RouteAddress::Inet(route.source)));
        let mut metrics = vec![
            RouteMetric::InitCwnd(route.windows.0),
            RouteMetric::InitRwnd(route.windows.1),
        ];
        metrics.extend(route.largest_segment.map(RouteMetric::Advmss));
        message.attributes.push(RouteAttribute::Metrics(metrics));
        self.push(
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// The way to everywhere else.
    pub(crate) fn add_default_route(&mut self, index: u32, gateway: Ipv4Addr) -> io::Result<()> {
        let mut message = out_of(index, Ipv4Addr::UNSPECIFIED, 0);
        message.header.scope = RouteScope::Universe;
        message
            .attributes
            .push(RouteAttribute::Gateway(RouteAddress::Inet(gateway)));
        self.push(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE)
    }

    /// A route of a whole prefix out of one interface.
    pub(crate) fn add_route(&mut self, index: u32, destination: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let message = out_of(index, destination, prefix);
        self.push(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE)
    }
}

fn out_of(index: u32, destination: Ipv4Addr, prefix: u8) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: AddressFamily::Inet,
        destination_prefix_length: prefix,
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Boot,
        scope: RouteScope::Link,
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    message.attributes = vec![
        RouteAttribute::Destination(RouteAddress::Inet(destination)),
        RouteAttribute::Oif(index),
    ];
    message
}

//! Interfaces that exist already: what they are, moving them between namespaces, and tunnels.

use super::netlink::Netlink;
use netlink_packet_core::{
    NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteType,
};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};

/// A tunnel to one peer (RFC 7348), without learning: all frames go to `remote`.
pub(crate) struct Vxlan<'a> {
    pub(crate) name: &'a str,
    pub(crate) index: u32,
    /// Where the near end appears; the tunnel's own UDP socket stays in the namespace of the request.
    pub(crate) namespace: RawFd,
    pub(crate) network_identifier: u32,
    pub(crate) local: Ipv4Addr,
    pub(crate) remote: Ipv4Addr,
    pub(crate) port: u16,
    pub(crate) mtu: u32,
}

/// An interface and all that a move to another namespace takes from it.
#[derive(Debug, Clone)]
pub(crate) struct LinkState {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) up: bool,
    pub(crate) promiscuous: bool,
    pub(crate) no_arp: bool,
    pub(crate) mtu: Option<u32>,
    /// Index of the bridge or bond that it belongs to.
    pub(crate) controller: Option<u32>,
    pub(crate) addresses: Vec<AddressMessage>,
    pub(crate) routes: Vec<RouteMessage>,
}

impl LinkState {
    /// Is there a default route over it?
    pub(crate) fn carries_default_route(&self) -> bool {
        let is_default = |route: &RouteMessage| {
            route.header.destination_prefix_length == 0 && route.header.kind == RouteType::Unicast
        };
        self.routes.iter().any(is_default)
    }
}

impl Netlink {
    /// The interface of this name in the socket's namespace, `None` where there is none.
    pub(crate) fn state(&mut self, name: &str) -> io::Result<Option<LinkState>> {
        let Some(link) = self
            .dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?
            .into_iter()
            .find_map(|message| match message {
                RouteNetlinkMessage::NewLink(link) if has_name(&link, name) => Some(link),
                _ => None,
            })
        else {
            return Ok(None);
        };
        let index = link.header.index;
        let addresses = self
            .dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?
            .into_iter()
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewAddress(address) if address.header.index == index => Some(address),
                _ => None,
            })
            .collect();
        let routes = self
            .dump(RouteNetlinkMessage::GetRoute(RouteMessage::default()))?
            .into_iter()
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewRoute(route) if leaves_by(&route, index) => Some(route),
                _ => None,
            })
            .collect();
        let flags = link.header.flags;
        let number = |pick: fn(&LinkAttribute) -> Option<u32>| link.attributes.iter().find_map(pick);
        Ok(Some(LinkState {
            name: name.to_owned(),
            index,
            up: flags.contains(LinkFlags::Up),
            promiscuous: flags.contains(LinkFlags::Promisc),
            no_arp: flags.contains(LinkFlags::Noarp),
            mtu: number(|attribute| match attribute {
                LinkAttribute::Mtu(mtu) => Some(*mtu),
                _ => None,
            }),
            controller: number(|attribute| match attribute {
                LinkAttribute::Controller(index) => Some(*index),
                _ => None,
            }),
            addresses,
            routes,
        }))
    }

    /// Peer -> what its route says of the windows to send and to receive at first (segments).
    pub(crate) fn peer_windows(&mut self) -> io::Result<BTreeMap<Ipv4Addr, (u32, u32)>> {
        let mut request = RouteMessage::default();
        request.header.address_family = AddressFamily::Inet;
        let routes = self.dump(RouteNetlinkMessage::GetRoute(request))?;
        Ok(routes.into_iter().filter_map(peer_window).collect())
    }

    fn dump(&mut self, request: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.flush()?;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket().send(&bytes, 0)?;
        let mut found = Vec::new();
        let mut buffer = Vec::with_capacity(64 * 1024);
        loop {
            buffer.clear();
            self.socket().recv(&mut buffer, 0)?;
            let mut rest = &buffer[..];
            while rest.len() >= 16 {
                let message =
                    NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
                let length = (message.header.length as usize).next_multiple_of(4).max(16);
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(found),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(inner) => found.push(inner),
                    _ => {}
                }
                rest = rest.get(length..).unwrap_or(&[]);
            }
        }
    }

    /// Moves an interface; index 0 leaves the choice to the kernel. (A chosen index needs Linux 5.13.)
    pub(crate) fn move_link(
        &mut self,
        from_index: u32,
        namespace: &impl AsRawFd,
        name: &str,
        index: u32,
    ) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = from_index;
        message.attributes = vec![
            LinkAttribute::NetNsFd(namespace.as_raw_fd()),
            LinkAttribute::IfName(name.to_owned()),
        ];
        if let Ok(index @ 1..) = i32::try_from(index) {
            message.attributes.push(LinkAttribute::NewIfIndex(index));
        }
        self.push(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Up, with the kernel's own ARP off, since the model answers; promiscuous where frames are for others than the card.
    pub(crate) fn set_silent_up(
        &mut self,
        index: u32,
        mtu: Option<u32>,
        promiscuous: bool,
    ) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up | LinkFlags::Noarp;
        message.header.change_mask = LinkFlags::Up | LinkFlags::Noarp;
        if promiscuous {
            message.header.flags |= LinkFlags::Promisc;
            message.header.change_mask |= LinkFlags::Promisc;
        }
        message.attributes.extend(mtu.map(LinkAttribute::Mtu));
        self.push(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// The flags that an interface had, and then its addresses and routes, in the namespace that it is back in.
    ///
    /// # Errors
    /// The first refusal; what can be put back is.
    pub(crate) fn restore(&mut self, state: &LinkState) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = state.index;
        message.header.change_mask = LinkFlags::Up | LinkFlags::Noarp | LinkFlags::Promisc;
        for (had, flag) in [
            (state.up, LinkFlags::Up),
            (state.no_arp, LinkFlags::Noarp),
            (state.promiscuous, LinkFlags::Promisc),
        ] {
            if had {
                message.header.flags |= flag;
            }
        }
        message.attributes.extend(state.mtu.map(LinkAttribute::Mtu));
        self.push(RouteNetlinkMessage::SetLink(message), 0)?;
        let mut first = self.flush();
        for address in &state.addresses {
            self.push(
                RouteNetlinkMessage::NewAddress(address.clone()),
                NLM_F_CREATE | NLM_F_REPLACE,
            )?;
            first = first.and(self.flush());
        }
        // Routes on a subnet first: a gateway must be reachable when its route is made. The kernel's own come with the addresses.
        let own = |route: &&RouteMessage| route.header.protocol != RouteProtocol::Kernel && is_wanted(route);
        let via = |route: &&RouteMessage| {
            route
                .attributes
                .iter()
                .any(|attribute| matches!(attribute, RouteAttribute::Gateway(_)))
        };
        let routes: Vec<&RouteMessage> = state.routes.iter().filter(own).collect();
        let (late, early): (Vec<&RouteMessage>, Vec<&RouteMessage>) = routes.into_iter().partition(via);
        for route in early.into_iter().chain(late) {
            let mut route = route.clone();
            // What only the kernel may say.
            route
                .attributes
                .retain(|attribute| !matches!(attribute, RouteAttribute::CacheInfo(_)));
            self.push(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_REPLACE)?;
            first = first.and(self.flush());
        }
        first
    }

    pub(crate) fn add_vxlan(&mut self, tunnel: &Vxlan<'_>) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = tunnel.index;
        message.attributes = vec![
            LinkAttribute::IfName(tunnel.name.to_owned()),
            LinkAttribute::NetNsFd(tunnel.namespace),
            LinkAttribute::Mtu(tunnel.mtu),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Vxlan),
                LinkInfo::Data(InfoData::Vxlan(vec![
                    InfoVxlan::Id(tunnel.network_identifier),
                    InfoVxlan::Group(tunnel.remote),
                    InfoVxlan::Local(tunnel.local),
                    InfoVxlan::Port(tunnel.port),
                    InfoVxlan::Learning(false),
                    InfoVxlan::UDPCsum(true),
                ])),
            ]),
        ];
        self.push(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }
}

fn has_name(link: &LinkMessage, wanted: &str) -> bool {
    link.attributes
        .iter()
        .any(|attribute| matches!(attribute, LinkAttribute::IfName(name) if name == wanted))
}

fn leaves_by(route: &RouteMessage, index: u32) -> bool {
    route
        .attributes
        .iter()
        .any(|attribute| matches!(attribute, RouteAttribute::Oif(oif) if *oif == index))
}

/// Of a route that states both windows.
fn peer_window(message: RouteNetlinkMessage) -> Option<(Ipv4Addr, (u32, u32))> {
    let RouteNetlinkMessage::NewRoute(route) = message else {
        return None;
    };
    let (mut peer, mut send, mut receive) = (None, None, None);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => peer = Some(*address),
            RouteAttribute::Metrics(metrics) => {
                for metric in metrics {
                    match metric {
                        RouteMetric::InitCwnd(segments) => send = Some(*segments),
                        RouteMetric::InitRwnd(segments) => receive = Some(*segments),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some((peer?, (send?, receive?)))
}

/// Local and broadcast entries are the kernel's book-keeping.
fn is_wanted(route: &RouteMessage) -> bool {
    matches!(
        route.header.kind,
        RouteType::Unicast | RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit
    )
}

//! From the ring into the fabric.

use super::buffers::Meta;
use super::flows::{Judgement, header_at};
use super::lane::{Kind, Lane};
use super::packet::{self, Ipv4, Packet};
use super::wire::{Handover, Inlet, Stamps};
use super::work::Plane;
use crate::records::{CONTINUED, IngressRecord, SEQUENCED};
use crate::writer::Item;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use timebound_fabric::l2::{arp, group_route, igmp};
use timebound_fabric::{Frame, NO_STREAM, Route};
use timebound_model::{Class, NodeId, StreamId, Time, WireBytes};

/// Frames that the model does not carry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Refusals {
    /// Neither IPv4 nor ARP, or damaged.
    pub foreign: u64,
    /// To an address that no host has.
    pub unknown_destination: u64,
    /// Longer than a slot of the ring.
    pub too_long: u64,
}

/// RFC 2131, section 4.1.
const DHCP_SERVER: u16 = 67;

/// Fragments remembered, so that later ones travel with the first (RFC 791: identification, source, destination, protocol).
const FRAGMENTS: usize = 64;

#[derive(Debug, Clone, Copy)]
struct FirstFragment {
    key: packet::Key,
    identification: u16,
    judgement: Judgement,
}

pub(crate) struct Fragments {
    recent: [Option<FirstFragment>; FRAGMENTS],
    next: usize,
}

impl Fragments {
    pub(crate) fn new() -> Self {
        Self {
            recent: [None; FRAGMENTS],
            next: 0,
        }
    }

    fn remember(&mut self, packet: &Ipv4<'_>, judgement: Judgement) {
        let (key, identification) = (packet.key, packet.identification);
        self.recent[self.next] = Some(FirstFragment {
            key,
            identification,
            judgement,
        });
        self.next = (self.next + 1) % FRAGMENTS;
    }

    fn find(&self, packet: &Ipv4<'_>) -> Option<Judgement> {
        let first = self.recent.iter().flatten().find(|first| {
            first.identification == packet.identification
                && (first.key.source, first.key.destination, first.key.protocol)
                    == (packet.key.source, packet.key.destination, packet.key.protocol)
        })?;
        Some(Judgement {
            messages: 0,
            // A piece of the message that began in the first one, as later segments are of theirs.
            flags: match first.judgement.flags {
                flags if flags & SEQUENCED != 0 => flags | CONTINUED,
                flags => flags,
            },
            ..first.judgement
        })
    }
}

/// Who has which address.
pub(crate) struct Directory {
    pub(crate) by_address: BTreeMap<Ipv4Addr, (NodeId, [u8; 6])>,
    /// Hosts that pass on what is not for them.
    pub(crate) by_mac: BTreeMap<[u8; 6], NodeId>,
    /// The gateway of each host that has one.
    pub(crate) gateways: BTreeMap<NodeId, NodeId>,
}

impl Directory {
    /// Where a host's broadcasts in search of a DHCP server go (RFC 2131, section 4.1): to its gateway alone, which has the leases.
    /// Flooded, the start of hundreds of hosts would be a storm. A host without a gateway asks everybody: any program may answer.
    fn lease_server(&self, host: NodeId, route: Route, packet: &Ipv4<'_>) -> Option<NodeId> {
        let asks = route == Route::Broadcast
            && packet.key.protocol == packet::UDP
            && packet.key.destination_port == DHCP_SERVER
            && !packet.later_fragment;
        self.gateways.get(&host).filter(|_| asks).copied()
    }

    /// The host for which a frame is: the one whose address it bears, unless it is addressed to the card of another, which is to
    /// pass it on (a gateway).
    fn destination(&self, frame: &[u8], address: Ipv4Addr) -> Option<NodeId> {
        let card = frame.get(..6)?;
        match self.by_address.get(&address) {
            Some((host, mac)) if card == mac => Some(*host),
            other => self.by_mac.get(card).copied().or(other.map(|(host, _)| *host)),
        }
    }
}

impl<I: Inlet, O: Handover, const CAPTURE: bool> Plane<I, O, CAPTURE> {
    /// Takes in what arrived up to `until` (CLOCK_MONOTONIC); returns how many frames.
    pub(super) fn drain(&mut self, until: u64) -> usize {
        let mut taken = 0;
        self.inlet.gather();
        while let Some(received) = self.inlet.peek() {
            let mut stamp = match I::STAMPS {
                Stamps::Kernel => self.offset.to_monotonic(received.stamp),
                Stamps::Reaped => received.stamp,
            };
            if stamp > until {
                if I::STAMPS == Stamps::Reaped || stamp - until < 1_000_000 {
                    break;
                }
                // Far ahead: the wall clock was stepped while the frame lay in the ring. It is here, so it has arrived.
                self.offset.refresh();
                stamp = self.offset.to_monotonic(received.stamp).min(until);
            }
            if self.outlet.is_tunnel(received.interface) && !received.truncated {
                // SAFETY: as below.
                let bytes =
                    unsafe { std::slice::from_raw_parts(received.bytes.as_ptr(), received.bytes.len()) };
                self.cross(stamp, bytes);
            } else if let Some(port) = self.outlet.switch_port(received.interface) {
                // SAFETY: as below.
                let bytes =
                    unsafe { std::slice::from_raw_parts(received.bytes.as_ptr(), received.bytes.len()) };
                if received.truncated {
                    self.refusals.too_long += 1;
                } else {
                    self.return_from_switch(stamp, port, bytes);
                }
            } else if let Some(node) = self.attachments().node(received.interface) {
                // SAFETY: the slot stays ours until `consume`, and `accept` neither consumes nor keeps the slice.
                let bytes =
                    unsafe { std::slice::from_raw_parts(received.bytes.as_ptr(), received.bytes.len()) };
                if received.truncated {
                    self.refusals.too_long += 1;
                } else {
                    let interface = received.interface;
                    self.accept(stamp, node, interface, bytes);
                }
            }
            self.inlet.consume();
            taken += 1;
        }
        taken
    }

    fn accept(&mut self, stamp: u64, host: NodeId, interface: u32, bytes: &[u8]) {
        match packet::parse(bytes) {
            Packet::Arp => {
                let directory = &self.directory.by_address;
                if let Some(reply) =
                    arp::answer(bytes, |address| directory.get(&address).map(|found| found.1))
                {
                    self.outlet.answer(interface, &reply);
                }
            }
            Packet::Igmp => self.snoop(host, bytes),
            Packet::Ipv4(packet) => self.carry(stamp, host, bytes, &packet),
            Packet::Foreign => self.refusals.foreign += 1,
        }
    }

    fn snoop(&mut self, host: NodeId, bytes: &[u8]) {
        for wish in igmp::parse(bytes).into_iter().flatten() {
            let members = &mut self.members;
            let changed = if wish.member {
                members.insert((wish.group, host))
            } else {
                members.remove(&(wish.group, host))
            };
            let Some(lane) = self.lanes.last_mut().filter(|_| changed) else {
                continue;
            };
            if wish.member {
                lane.fabric.join(wish.group, host);
            } else {
                lane.fabric.leave(wish.group, host);
            }
            self.record_membership(wish.group, host, wish.member);
        }
    }

    /// Memberships take effect at once, so the record bears the earliest time at which anything else may enter.
    pub(super) fn record_membership(&mut self, group: u32, host: NodeId, member: bool) {
        let Some(lane) = self.lanes.last() else { return };
        self.outlet.lane = lane.kind;
        if self.outlet.is_detailed() {
            self.outlet.write(Item::Ingress(IngressRecord {
                time: lane.fabric.floor().0,
                host: host.0,
                kind: if member { 4 } else { 5 },
                argument: group,
                stream: NO_STREAM,
                ..IngressRecord::default()
            }));
        }
    }

    fn carry(&mut self, stamp: u64, host: NodeId, bytes: &[u8], packet: &Ipv4<'_>) {
        let wire = self.framing.wire(bytes.len() as u32);
        // The last lane takes what arrived after its start; the one before still empties.
        let last = self.lanes.len() - 1;
        let index = if last > 0 && stamp < self.lanes[last].origin {
            last - 1
        } else {
            last
        };
        let probing = self.lanes[index].kind == Kind::Preflight;
        if probing && self.lanes[index].closed {
            return;
        }
        let judgement = if probing {
            probe(packet)
        } else {
            let now_ns = stamp.saturating_sub(self.lanes[index].origin);
            self.judge(packet, wire.0, now_ns)
        };
        let route = if judgement.stream != NO_STREAM {
            Route::Tree(StreamId(judgement.stream))
        } else if let Some(route) = group_route(bytes) {
            match self.directory.lease_server(host, route, packet) {
                Some(gateway) => Route::Unicast(gateway),
                None => route,
            }
        } else if let Some(destination) = self.directory.destination(bytes, packet.key.destination.into()) {
            Route::Unicast(destination)
        } else {
            self.refusals.unknown_destination += 1;
            return;
        };
        let class = match self.classes.get(judgement.stream as usize) {
            Some(class) => *class,
            None => Class::from_dscp(packet.dscp),
        };
        let handle = self.outlet.buffers.insert(bytes, meta(&judgement, wire, packet));
        if (judgement.rewrite_dscp || self.marks) && judgement.stream != NO_STREAM {
            packet::rewrite_dscp(self.outlet.buffers.bytes_mut(handle), class.dscp());
        }
        self.tag += 1;
        let frame = Frame {
            handle,
            wire,
            class,
            route,
            stream: judgement.stream,
            tag: self.tag,
        };
        let lane = &mut self.lanes[index];
        let effective = lane
            .fabric
            .ingress(Time(stamp.saturating_sub(lane.origin)), host, frame);
        let moved = effective.0 - stamp.saturating_sub(lane.origin);
        self.counts.restamped += u64::from(moved > 0);
        self.restamped_most = self.restamped_most.max(moved);
        self.outlet.buffers.meta_mut(handle).ingress = effective.0;
        self.outlet.lane = lane.kind;
        if self.outlet.is_detailed() {
            self.outlet
                .write(Item::Ingress(ingress_record(effective, host, &frame)));
        }
    }

    fn judge(&mut self, packet: &Ipv4<'_>, wire: u32, now_ns: u64) -> Judgement {
        if packet.later_fragment
            && let Some(judgement) = self.fragments.find(packet)
        {
            return judgement;
        }
        let judgement = self.flows.judge(packet, wire, now_ns);
        if packet.more_fragments && !packet.later_fragment {
            self.fragments.remember(packet, judgement);
        }
        judgement
    }

    /// Makes `lane` the one that takes new frames; members of groups stay members.
    pub(super) fn open(&mut self, mut lane: Lane) {
        for (group, host) in &self.members {
            lane.fabric.join(*group, *host);
        }
        let (kind, origin) = (lane.kind, lane.origin);
        self.lanes.push(lane);
        self.outlet.write(Item::Phase(kind));
        if kind == Kind::Measured {
            self.outlet.reset(origin);
            self.forget_crossings();
            if let Some(switched) = &mut self.outlet.switched {
                switched.begin(origin);
            }
            self.flows.reset_counts();
            self.refusals = Refusals::default();
            self.tag = 0;
            for (group, host) in self.members.clone() {
                self.record_membership(group, host, true);
            }
        }
    }
}

/// Probes of the pre-flight check bear their numbers at the start of their payload.
fn probe(packet: &Ipv4<'_>) -> Judgement {
    let header = header_at(packet.payload, 0);
    let (flow, sequence) = header.unwrap_or_default();
    let flags = if header.is_some() { SEQUENCED } else { 0 };
    Judgement {
        stream: NO_STREAM,
        rewrite_dscp: false,
        flags,
        flow,
        sequence,
        messages: 1,
    }
}

fn meta(judgement: &Judgement, wire: WireBytes, packet: &Ipv4<'_>) -> Meta {
    Meta {
        wire: wire.0,
        l4_payload: packet.payload.len() as u32,
        stream: judgement.stream,
        flow: judgement.flow,
        sequence: judgement.sequence,
        messages: judgement.messages,
        flags: judgement.flags,
        ..Meta::default()
    }
}

pub(super) fn ingress_record(time: Time, host: NodeId, frame: &Frame) -> IngressRecord {
    let (kind, argument) = match frame.route {
        Route::Tree(stream) => (0, stream.0),
        Route::Unicast(node) => (1, node.0),
        Route::Multicast(group) => (2, group),
        Route::Broadcast => (3, 0),
    };
    IngressRecord {
        time: time.0,
        host: host.0,
        wire: frame.wire.0,
        class: frame.class.0,
        kind,
        argument,
        stream: frame.stream,
        tag: frame.tag,
        damaged: false,
    }
}

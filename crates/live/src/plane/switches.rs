//! Real switches between emulated links: frames go out to them at their virtual arrival and come back with the kernel's stamp.
//!
//! In front of every port of such a switch there is an interface of the fabric's namespace. What the switch does between the two
//! is its own; what it takes for it is measured frame by frame, from the virtual arrival (the last bit on the link) to the stamp.

use super::buffers::Meta;
use super::outlet::Outlet;
use super::receive::{Directory, ingress_record};
use super::wire::{Handover, Inlet};
use super::work::Plane;
use crate::records::IngressRecord;
use crate::report::switches::{SwitchReport, Transit};
use crate::switches::Switches;
use crate::writer::Item;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use timebound_fabric::transit::{Forgotten, Transits, fingerprint};
use timebound_fabric::{Fabric, Frame, Handed, NO_STREAM, Reentry, Route, classify, l2};
use timebound_model::{Class, Network, NodeId, PortId, Time, WireBytes};

/// A frame that has not come out by then is not recognised any more.
const WINDOW: u64 = 2_000_000_000;
/// Nor one behind which so many went in.
const MOST_UNDER_WAY: usize = 1 << 16;
/// Added to the kind of a record in `ingress.bin` for what a switch sent.
pub(crate) const FROM_SWITCH: u8 = 6;

/// What is known of a frame while it is in a switch.
#[derive(Debug)]
struct Identity {
    frame: Frame,
    damaged: bool,
    meta: Meta,
    /// CLOCK_MONOTONIC at time zero of the lane that it is in.
    origin: u64,
    /// Index in [`Switched::switches`].
    switch: usize,
}

/// The interface of one port, on the fabric's side.
#[derive(Debug, Clone, Copy)]
struct Place {
    interface: u32,
    /// Index in [`Switched::switches`].
    switch: usize,
    /// Index within the switch.
    number: usize,
}

/// The data plane's side of the real switches.
pub(crate) struct Switched {
    switches: Vec<SwitchReport>,
    transit: Vec<Transit>,
    nodes: Vec<NodeId>,
    /// By egress port of a switch.
    places: Vec<Option<Place>>,
    /// By interface, from `first` on.
    ports: Vec<PortId>,
    first: u32,
    /// The switches flood what goes to groups, as their rules are ours: copies that a snooping switch would not send end here.
    prunes: bool,
    transits: Transits<Identity>,
    /// Origin of the measured lane; none before.
    measured: Option<u64>,
    duration: u64,
    /// Ports without carrier.
    unplugged: Arc<[AtomicBool]>,
}

impl Switched {
    pub(crate) fn new(
        switches: &Switches,
        network: &Network,
        duration: u64,
        unplugged: Arc<[AtomicBool]>,
    ) -> Self {
        let mut places = vec![None; network.ports.len()];
        let mut ports = Vec::new();
        for (index, switch) in switches.list.iter().enumerate() {
            for (number, port) in switch.ports.iter().enumerate() {
                places[port.port.index()] = Some(Place {
                    interface: port.interface,
                    switch: index,
                    number,
                });
                ports.push(port.port);
            }
        }
        let first = switches.list.iter().flat_map(|switch| &switch.ports).next();
        let reports = || {
            switches.list.iter().map(|switch| {
                let node = &network.nodes[switch.node.index()];
                SwitchReport::new(&switch.name, node.switching_min.0, node.switching_max.0)
            })
        };
        Self {
            transit: reports().map(|_| Transit::new()).collect(),
            switches: reports().collect(),
            nodes: switches.list.iter().map(|switch| switch.node).collect(),
            places,
            ports,
            first: first.map_or(u32::MAX, |port| port.interface),
            prunes: switches.controller.is_none(),
            transits: Transits::new(WINDOW, MOST_UNDER_WAY),
            measured: None,
            duration,
            unplugged,
        }
    }

    /// The port of a switch behind an interface.
    #[inline]
    pub(crate) fn port(&self, interface: u32) -> Option<PortId> {
        let place = interface.checked_sub(self.first)?;
        self.ports.get(place as usize).copied()
    }

    /// The measured part begins at `origin`; what went in before is still known.
    pub(crate) fn begin(&mut self, origin: u64) {
        self.measured = Some(origin);
        self.transit
            .iter_mut()
            .for_each(|transit| *transit = Transit::new());
        self.switches.iter_mut().for_each(SwitchReport::reset);
    }

    pub(crate) fn report(&self) -> Vec<SwitchReport> {
        let pairs = self.switches.iter().zip(&self.transit);
        pairs.map(|(report, transit)| report.with(transit)).collect()
    }

    /// Does what happens to a frame of this lane at this time count?
    fn counts(&self, origin: u64, time: u64) -> bool {
        self.measured == Some(origin) && time <= self.duration
    }

    /// Would a switch of ours, which snoops, have sent this copy by this port?
    fn is_wanted(&self, fabric: &Fabric, switch: usize, route: Route, port: PortId) -> bool {
        match route {
            _ if !self.prunes => true,
            Route::Multicast(group) => fabric.leads_to_members(group, port),
            // A broadcast that is for one host alone.
            Route::Unicast(host) => fabric.network().routes.next_hop(self.nodes[switch], host) == Some(port),
            Route::Tree(_) | Route::Broadcast => true,
        }
    }
}

impl<O: Handover, const CAPTURE: bool> Outlet<O, CAPTURE> {
    pub(crate) fn open_switches(&mut self, switched: Option<Switched>) {
        self.switched = switched.map(Box::new);
    }

    /// Out of the fabric and into a real switch.
    pub(super) fn hand_to_switch(&mut self, handed: &Handed) {
        let handle = handed.frame.handle;
        let due = self.origin + handed.at.0;
        let Some(mut switched) = self.switched.take() else {
            self.buffers.release(handle);
            return;
        };
        if let Some(place) = switched.places[handed.port.index() ^ 1] {
            let switch = place.switch;
            while let Some(forgotten) = switched.transits.expire(Time(due)) {
                self.forget(&mut switched, forgotten);
            }
            let counts = switched.counts(self.origin, handed.at.0);
            switched.switches[switch].arrived += u64::from(counts);
            let identity = Identity {
                frame: handed.frame,
                damaged: handed.damaged,
                meta: self.buffers.identify(handle),
                origin: self.origin,
                switch,
            };
            let print = fingerprint(self.buffers.bytes(handle));
            let node = switched.nodes[switch];
            if let Some(forgotten) = switched.transits.put(node, print, Time(due), identity) {
                self.forget(&mut switched, forgotten);
            }
            if switched.unplugged[handed.port.index() ^ 1].load(Ordering::Relaxed) {
                // Its last bit was on the link before that went down, and nobody is there to take it.
                self.buffers.release(handle);
            } else {
                self.send_to_switch(place.interface, handle, due);
            }
        } else {
            self.buffers.release(handle);
        }
        self.switched = Some(switched);
    }

    fn forget(&mut self, switched: &mut Switched, forgotten: Forgotten<Identity>) {
        let identity = forgotten.value;
        let counts = !forgotten.left && switched.measured == Some(identity.origin);
        switched.switches[identity.switch].vanished += u64::from(counts);
        self.buffers.forget(identity.meta.origin);
    }

    /// At the end: what is still in a switch never came out.
    pub(super) fn close_switches(&mut self) -> Vec<SwitchReport> {
        let Some(mut switched) = self.switched.take() else {
            return Vec::new();
        };
        while let Some(forgotten) = switched.transits.expire(Time::MAX) {
            self.forget(&mut switched, forgotten);
        }
        switched.report()
    }
}

/// A frame that comes back from a switch, on its way into the fabric.
struct Returned {
    lane: usize,
    frame: Frame,
    meta: Meta,
    damaged: bool,
}

impl<I: Inlet, O: Handover, const CAPTURE: bool> Plane<I, O, CAPTURE> {
    /// A switch sent a frame by a port, at `stamp` (CLOCK_MONOTONIC).
    pub(super) fn return_from_switch(&mut self, stamp: u64, port: PortId, bytes: &[u8]) {
        let Some(mut switched) = self.outlet.switched.take() else {
            return;
        };
        if let Some(returned) = self.identify(&mut switched, stamp, port, bytes) {
            self.reenter(stamp, port, bytes, returned);
        }
        self.outlet.switched = Some(switched);
    }

    fn identify(
        &mut self,
        switched: &mut Switched,
        stamp: u64,
        port: PortId,
        bytes: &[u8],
    ) -> Option<Returned> {
        let place = switched.places[port.index()]?;
        let node = switched.nodes[place.switch];
        let measured = switched.measured;
        let duration = switched.duration;
        let found = switched
            .transits
            .take(node, fingerprint(bytes), place.number, Time(stamp));
        let Some(found) = found else {
            return self.unknown(switched, stamp, place, port, bytes);
        };
        let identity = found.value;
        let (origin, transit_ns) = (identity.origin, found.transit_ns);
        let lane = self.lanes.iter().position(|lane| lane.origin == origin)?;
        let returned = Returned {
            lane,
            frame: identity.frame,
            meta: identity.meta,
            damaged: identity.damaged,
        };
        // The end of its visit is what the declared range is about; a frame that came before the end of the run counts.
        let arrived = stamp.saturating_sub(transit_ns).saturating_sub(origin);
        if measured == Some(origin) && arrived <= duration {
            switched.switches[place.switch].left += 1;
            let declared = &switched.switches[place.switch];
            let range = (declared.declared_min_ns, declared.declared_max_ns);
            switched.transit[place.switch].record(transit_ns, arrived, range);
        }
        let fabric = &self.lanes[lane].fabric;
        let to_group = bytes.first().is_some_and(|first| first & 1 == 1);
        let wanted = !to_group || switched.is_wanted(fabric, place.switch, returned.frame.route, port);
        wanted.then_some(returned)
    }

    /// Nothing of ours: a controller's probe, a frame from the switch itself, one that it held for too long. Best effort unless marked.
    fn unknown(
        &mut self,
        switched: &mut Switched,
        stamp: u64,
        place: Place,
        port: PortId,
        bytes: &[u8],
    ) -> Option<Returned> {
        let lane = self.lane_at(stamp)?;
        let origin = self.lanes[lane].origin;
        if switched.counts(origin, stamp.saturating_sub(origin)) {
            switched.switches[place.switch].entered += 1;
        }
        self.tag += 1;
        let network = self.lanes[lane].fabric.network();
        let frame = Frame {
            handle: 0,
            wire: WireBytes(0),
            class: Class(0),
            route: route_of(bytes, &self.directory, network.ports[port.index()].peer),
            stream: NO_STREAM,
            tag: self.tag,
        };
        let meta = Meta {
            stream: NO_STREAM,
            ingress: stamp.saturating_sub(origin),
            ..Meta::default()
        };
        Some(Returned {
            lane,
            frame,
            meta,
            damaged: false,
        })
    }

    fn reenter(&mut self, stamp: u64, port: PortId, bytes: &[u8], returned: Returned) {
        if self.lanes[returned.lane].closed {
            return;
        }
        let wire = self.framing.wire(bytes.len() as u32);
        let meta = Meta {
            wire: wire.0,
            ..returned.meta
        };
        let frame = Frame {
            handle: self.outlet.buffers.insert(bytes, meta),
            wire,
            class: classify::class_of(bytes).unwrap_or(Class(0)),
            ..returned.frame
        };
        let lane = &mut self.lanes[returned.lane];
        let at = stamp.saturating_sub(lane.origin);
        let damaged = returned.damaged;
        let entered = lane.fabric.reentry(Time(at), Reentry { port, frame, damaged });
        let Some(effective) = entered else {
            self.outlet.buffers.release(frame.handle);
            return;
        };
        self.counts.restamped += u64::from(effective.0 > at);
        self.restamped_most = self.restamped_most.max(effective.0 - at);
        self.outlet.lane = lane.kind;
        if self.outlet.is_detailed() {
            let record = ingress_record(effective, NodeId(port.0), &frame);
            self.outlet.write(Item::Ingress(IngressRecord {
                kind: record.kind + FROM_SWITCH,
                damaged,
                ..record
            }));
        }
    }

    /// The lane that takes what arrives at `stamp`.
    fn lane_at(&self, stamp: u64) -> Option<usize> {
        let last = self.lanes.len().checked_sub(1)?;
        Some(if last > 0 && stamp < self.lanes[last].origin {
            last - 1
        } else {
            last
        })
    }
}

/// Where a frame that nobody declared goes behind the next link, should a switch of ours be there.
fn route_of(bytes: &[u8], directory: &Directory, neighbour: NodeId) -> Route {
    // IEEE 802.1D, table 7-10: to the neighbour and no further (LLDP among them).
    const RESERVED: [u8; 5] = [0x01, 0x80, 0xc2, 0x00, 0x00];
    if bytes.starts_with(&RESERVED) && bytes.get(5).is_some_and(|last| last < &16) {
        return Route::Unicast(neighbour);
    }
    let by_card = || {
        let card: [u8; 6] = bytes.get(..6)?.try_into().ok()?;
        let mut known = directory.by_address.values().filter(|(_, mac)| *mac == card);
        known.next().map(|(host, _)| *host)
    };
    l2::group_route(bytes)
        .or_else(|| by_card().map(Route::Unicast))
        .unwrap_or(Route::Broadcast)
}

//! Frames between the two machines of one emulated network, through a tunnel, with their virtual times.
//!
//! A frame of the tunnel is an Ethernet frame (EtherType 0x88b5, IEEE 802 local experimental) whose payload is the header below
//! and then the emulated frame. The header carries the time at which the frame arrives at the far end of the cut link, in run
//! time, so the other machine lets it arrive just then if it comes in time, and counts by how much it came too late if not.

use super::buffers::Meta;
use super::lane::Kind;
use super::outlet::Outlet;
use super::wire::{Handover, Inlet};
use super::work::Plane;
use hdrhistogram::Histogram;
use timebound_fabric::{Crossing, Frame, Route};
use timebound_model::{Class, NodeId, PortId, StreamId, Time, WireBytes};

/// Bytes before the emulated frame: Ethernet header and ours.
pub(crate) const OVERHEAD: usize = 14 + HEADER;
const HEADER: usize = 80;
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const VERSION: u32 = 1;
const STATIONS: [u8; 12] = [
    0x02, 0x54, 0xff, 0xff, 0xff, 0x02, 0x02, 0x54, 0xff, 0xff, 0xff, 0x01,
];

/// How frames came and went over the cut, in the measured part.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct CutReport {
    pub sent: u64,
    pub received: u64,
    /// Came after their virtual arrival, and so went on late.
    pub late: u64,
    /// By how much the late ones were late, ns.
    pub lateness_p50_ns: u64,
    pub lateness_p99_ns: u64,
    pub lateness_max_ns: u64,
    /// From the virtual departure on the other machine to the kernel stamp on this one, ns: the underlay, the other data plane's
    /// own lateness and the error of the clocks' offset together. Negative values count as 0.
    pub underlay_min_ns: u64,
    pub underlay_p50_ns: u64,
    pub underlay_p99_ns: u64,
    pub underlay_max_ns: u64,
    /// Frames of the tunnel that were none of this run's, or came after the end.
    pub foreign: u64,
}

/// The data plane's end of the tunnel.
pub(crate) struct Cut {
    /// The tunnel's interface in the fabric's namespace.
    pub(crate) interface: u32,
    /// Tells this run's frames from others'.
    pub(crate) run: u32,
    scratch: Vec<u8>,
    sent: u64,
    received: u64,
    foreign: u64,
    late: Histogram<u64>,
    underlay: Histogram<u64>,
}

impl Cut {
    pub(crate) fn new(interface: u32, run: u32) -> Self {
        // 1 ns to 100 s in three digits.
        let histogram =
            || Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constant bounds are valid");
        Self {
            interface,
            run,
            scratch: Vec::with_capacity(OVERHEAD + 1600),
            sent: 0,
            received: 0,
            foreign: 0,
            late: histogram(),
            underlay: histogram(),
        }
    }

    pub(crate) fn report(&self) -> CutReport {
        let quantile = |histogram: &Histogram<u64>, share| match histogram.len() {
            0 => 0,
            _ => histogram.value_at_quantile(share),
        };
        CutReport {
            sent: self.sent,
            received: self.received,
            late: self.late.len(),
            lateness_p50_ns: quantile(&self.late, 0.5),
            lateness_p99_ns: quantile(&self.late, 0.99),
            lateness_max_ns: quantile(&self.late, 1.0),
            underlay_min_ns: quantile(&self.underlay, 0.0),
            underlay_p50_ns: quantile(&self.underlay, 0.5),
            underlay_p99_ns: quantile(&self.underlay, 0.99),
            underlay_max_ns: quantile(&self.underlay, 1.0),
            foreign: self.foreign,
        }
    }

    /// The frame of the tunnel that carries a frame.
    fn write(&mut self, kind: Kind, crossing: &Crossing, meta: &Meta, bytes: &[u8]) -> &[u8] {
        self.sent += u64::from(kind == Kind::Measured);
        self.scratch.clear();
        self.scratch.extend(STATIONS);
        self.scratch.extend(ETHERTYPE);
        encode(self.run, kind, crossing, meta, &mut self.scratch);
        self.scratch.extend(bytes);
        &self.scratch
    }
}

fn encode(run: u32, kind: Kind, crossing: &Crossing, meta: &Meta, out: &mut Vec<u8>) {
    let (route, argument) = match crossing.frame.route {
        Route::Tree(stream) => (0, stream.0),
        Route::Unicast(node) => (1, node.0),
        Route::Multicast(group) => (2, group),
        Route::Broadcast => (3, 0),
    };
    let class = u32::from(crossing.frame.class.0);
    let words = [
        VERSION,
        run,
        u32::from(kind == Kind::Measured),
        crossing.port.0,
        crossing.position,
        u32::from(crossing.damaged) | route << 8 | class << 16,
        argument,
        crossing.frame.stream,
        crossing.frame.wire.0,
        meta.l4_payload,
        meta.flow,
        meta.sequence,
        meta.messages,
        u32::from(meta.flags),
    ];
    words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    for time in [crossing.sent.0, crossing.at.0, meta.ingress] {
        out.extend(time.to_le_bytes());
    }
}

/// What a frame of the tunnel says.
struct Said<'a> {
    kind: Kind,
    crossing: Crossing,
    meta: Meta,
    bytes: &'a [u8],
}

/// `None` for what is no frame of this run.
fn decode(frame: &[u8], run: u32) -> Option<Said<'_>> {
    let (head, bytes) = frame.split_at_checked(OVERHEAD)?;
    if head[12..14] != ETHERTYPE || bytes.len() < 14 {
        return None;
    }
    let word = |index: usize| {
        let at = 14 + 4 * index;
        u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
    };
    let long = |index: usize| u64::from(word(14 + 2 * index)) | u64::from(word(15 + 2 * index)) << 32;
    if (word(0), word(1)) != (VERSION, run) {
        return None;
    }
    let route = match word(5) >> 8 & 0xff {
        0 => Route::Tree(StreamId(word(6))),
        1 => Route::Unicast(NodeId(word(6))),
        2 => Route::Multicast(word(6)),
        3 => Route::Broadcast,
        _ => return None,
    };
    // Later than a year is no time of a run.
    let (sent, at, ingress) = (long(0), long(1), long(2));
    if sent > at || at > 1 << 55 {
        return None;
    }
    Some(Said {
        kind: if word(2) == 1 { Kind::Measured } else { Kind::Setup },
        crossing: Crossing {
            port: PortId(word(3)),
            sent: Time(sent),
            at: Time(at),
            frame: Frame {
                handle: 0,
                wire: WireBytes(word(8)),
                class: Class((word(5) >> 16 & 7) as u8),
                route,
                stream: word(7),
                tag: 0,
            },
            position: word(4),
            damaged: word(5) & 1 == 1,
        },
        meta: Meta {
            wire: word(8),
            l4_payload: word(9),
            stream: word(7),
            flow: word(10),
            sequence: word(11),
            messages: word(12),
            flags: word(13) as u16,
            ingress,
            ..Meta::default()
        },
        bytes,
    })
}

impl<O: Handover, const CAPTURE: bool> Outlet<O, CAPTURE> {
    /// The tunnel's interface and the number of the run.
    pub(crate) fn open_tunnel(&mut self, tunnel: Option<(u32, u32)>) {
        self.cut = tunnel.map(|(interface, run)| Cut::new(interface, run));
    }

    pub(super) fn is_tunnel(&self, interface: u32) -> bool {
        self.cut.as_ref().is_some_and(|cut| cut.interface == interface)
    }

    /// Out of the fabric and into the tunnel, with what else is on its way.
    pub(super) fn leave(&mut self, crossing: &Crossing) {
        let handle = crossing.frame.handle;
        if let Some(cut) = &mut self.cut {
            let interface = cut.interface;
            let frame = cut.write(
                self.lane,
                crossing,
                self.buffers.meta(handle),
                self.buffers.bytes(handle),
            );
            let carrier = self.buffers.insert(frame, Meta::default());
            self.send_through(interface, carrier);
        }
        self.buffers.release(handle);
    }
}

impl<I: Inlet, O: Handover, const CAPTURE: bool> Plane<I, O, CAPTURE> {
    /// A frame from the tunnel, with the kernel's stamp.
    pub(super) fn cross(&mut self, stamp: u64, frame: &[u8]) {
        let Some(run) = self.outlet.cut.as_ref().map(|cut| cut.run) else {
            return;
        };
        let arrived = decode(frame, run).is_some_and(|said| self.arrive(stamp, &said).is_some());
        if let Some(cut) = self.outlet.cut.as_mut().filter(|_| !arrived) {
            cut.foreign += 1;
        }
    }

    fn arrive(&mut self, stamp: u64, said: &Said<'_>) -> Option<()> {
        let lane = self.lanes.iter_mut().rev().find(|lane| lane.kind == said.kind)?;
        if said.crossing.frame.stream != timebound_fabric::NO_STREAM
            && said.crossing.frame.stream as usize >= lane.fabric.network().streams.len()
        {
            return None;
        }
        let measured = said.kind == Kind::Measured;
        let mut crossing = said.crossing;
        let mut meta = said.meta;
        if !measured {
            // Before time zero the machines have no common clock: the link's delay counts from here.
            let now = stamp.saturating_sub(lane.origin);
            crossing.at = Time(now + (crossing.at.0 - crossing.sent.0));
            meta.ingress = now;
        }
        if said.bytes.len() > self.outlet.buffers.slot_bytes() {
            return None;
        }
        self.tag += 1;
        crossing.frame.handle = self.outlet.buffers.insert(said.bytes, meta);
        crossing.frame.tag = self.tag;
        let Some(effective) = lane.fabric.arrival(crossing) else {
            self.outlet.buffers.release(crossing.frame.handle);
            return None;
        };
        let came = (stamp as i64).saturating_sub(lane.origin as i64);
        if let Some(cut) = self.outlet.cut.as_mut().filter(|_| measured) {
            cut.received += 1;
            let underlay = came.saturating_sub(crossing.sent.0 as i64).max(1);
            cut.underlay.saturating_record(underlay.cast_unsigned());
            if effective > crossing.at {
                cut.late.saturating_record(effective.0 - crossing.at.0);
            }
        }
        Some(())
    }

    /// Before the measured part begins.
    pub(super) fn forget_crossings(&mut self) {
        if let Some(cut) = &mut self.outlet.cut {
            *cut = Cut::new(cut.interface, cut.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crossing() -> Crossing {
        Crossing {
            port: PortId(5),
            sent: Time(1_000_000),
            at: Time(11_000_000),
            frame: Frame {
                handle: 3,
                wire: WireBytes(148),
                class: Class(5),
                route: Route::Tree(StreamId(2)),
                stream: 2,
                tag: 0,
            },
            position: 7,
            damaged: true,
        }
    }

    fn meta() -> Meta {
        Meta {
            wire: 148,
            l4_payload: 100,
            stream: 2,
            flow: 1,
            sequence: 9,
            messages: 1,
            flags: 3,
            ingress: 900_000,
            ..Meta::default()
        }
    }

    #[test]
    fn what_is_said_on_one_machine_is_heard_on_the_other() {
        let mut cut = Cut::new(15, 77);
        let frame = cut
            .write(Kind::Measured, &crossing(), &meta(), &[0xab; 114])
            .to_vec();
        assert_eq!(frame.len(), OVERHEAD + 114);
        let said = decode(&frame, 77).unwrap();
        assert_eq!(said.kind, Kind::Measured);
        let mut expected = crossing();
        expected.frame.handle = 0;
        assert_eq!(said.crossing, expected);
        assert_eq!(
            (said.meta.ingress, said.meta.sequence, said.meta.flags),
            (900_000, 9, 3)
        );
        assert_eq!(said.bytes, &[0xab; 114]);
        assert!(decode(&frame, 78).is_none(), "another run's");
        assert_eq!(cut.report().sent, 1);
    }

    #[test]
    fn no_bytes_make_it_panic_and_cut_ones_are_refused() {
        let mut cut = Cut::new(15, 77);
        let frame = cut.write(Kind::Setup, &crossing(), &meta(), &[1; 20]).to_vec();
        for length in 0..OVERHEAD + 14 {
            assert!(decode(&frame[..length], 77).is_none());
        }
        for position in 0..OVERHEAD {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = frame.clone();
                damaged[position] = value;
                let _ = decode(&damaged, 77);
            }
        }
    }
}

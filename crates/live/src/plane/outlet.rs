//! Where the fabric's output goes: frames to the kernel, records to the writer, lateness to the histogram.

use super::attachment::Attachments;
use super::buffers::{Buffers, Meta};
use super::cut::Cut;
use super::lane::Kind;
use super::lateness::{History, Judged};
use super::switches::Switched;
use super::tap::Tap;
use super::wire::Handover;
use crate::kernel::clock;
use crate::records::{self, DeliveryRecord, FrameRecord, SEQUENCED};
use crate::writer::Item;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use timebound_fabric::{Crossing, DropReason, Frame, Handed as HandedOver, NO_LEAF, NO_STREAM, Route, Sink};
use timebound_model::{NodeId, PortId, Time};

/// A frame that is being handed over.
#[derive(Debug, Clone, Copy)]
struct Handed {
    handle: u32,
    /// Virtual arrival, CLOCK_MONOTONIC.
    due: u64,
    leaf: u32,
    flags: u16,
    /// Of the lane from which it came; `None` for an answer of the model's own, of which nothing is noted.
    lane: Option<Kind>,
    /// Of that lane.
    origin: u64,
    /// Nobody that it is for has received it: it goes into a real switch, or to a host at which such a switch flooded it.
    unrecorded: bool,
}

/// Frames that may be under way to the kernel on one way, from the start; more are possible.
const UNDER_WAY: usize = 1024;
/// How long the last frames of a lane may take to the kernel.
const LONGEST_HANDOVER: u64 = 100_000_000;

pub(crate) struct Outlet<O, const CAPTURE: bool> {
    pub(crate) buffers: Buffers,
    pub(crate) history: History,
    /// Frames that the kernel refused to take.
    pub(crate) refused: u64,
    /// Records that found the writer's queue full.
    pub(crate) records_lost: u64,
    /// The lane that is being advanced.
    pub(crate) lane: Kind,
    pub(crate) origin: u64,
    pub(crate) tap: Tap,
    detailed: bool,
    /// Frames handed over, copies counted one by one.
    pub(crate) handed: u64,
    pub(crate) attachments: Attachments,
    /// By node: the network carries frames to it, and nobody takes them.
    pub(crate) stopped: Arc<[AtomicBool]>,
    pub(crate) sender: O,
    /// The tunnel to the other machine of the run.
    pub(super) cut: Option<Cut>,
    /// Real switches; moved out while one of them is at work.
    pub(super) switched: Option<Box<Switched>>,
    /// By way, in the order of pushes.
    batches: Vec<VecDeque<Handed>>,
    records: rtrb::Producer<Item>,
}

impl<O: Handover, const CAPTURE: bool> Outlet<O, CAPTURE> {
    pub(crate) fn new(
        buffers: Buffers,
        sender: O,
        attachments: Attachments,
        records: rtrb::Producer<Item>,
        tap: Tap,
        judged: Judged,
        detailed: bool,
    ) -> Self {
        Self {
            buffers,
            history: History::new(judged),
            refused: 0,
            records_lost: 0,
            lane: Kind::Setup,
            origin: 0,
            tap,
            detailed,
            handed: 0,
            attachments,
            stopped: Arc::new([]),
            batches: (0..sender.ways())
                .map(|_| VecDeque::with_capacity(UNDER_WAY))
                .collect(),
            sender,
            cut: None,
            switched: None,
            records,
        }
    }

    /// The measured run begins with the lane that is opened at `origin`.
    pub(crate) fn reset(&mut self, origin: u64) {
        self.history.begin(origin);
        self.refused = 0;
        self.handed = 0;
    }

    pub(crate) fn write(&mut self, item: Item) {
        if self.records.push(item).is_err() {
            self.records_lost += 1;
        }
    }

    /// Does the current lane write ingress and delivery records?
    pub(crate) fn is_detailed(&self) -> bool {
        self.lane == Kind::Preflight || (self.detailed && self.lane == Kind::Measured)
    }

    fn is_recorded(lane: Kind, stream: u32, flags: u16) -> bool {
        match lane {
            Kind::Setup => false,
            Kind::Preflight => flags & SEQUENCED != 0,
            Kind::Measured => stream != NO_STREAM,
        }
    }

    /// Sends a frame that did not come out of the fabric (an answer of the model's).
    pub(crate) fn answer(&mut self, interface: u32, frame: &[u8]) {
        let handle = self.buffers.insert(frame, Meta::default());
        self.send_through(interface, handle);
    }

    /// Sends a frame of which nothing is noted.
    pub(super) fn send_through(&mut self, interface: u32, handle: u32) {
        let handed = Handed {
            handle,
            due: 0,
            leaf: NO_LEAF,
            flags: 0,
            lane: None,
            origin: 0,
            unrecorded: false,
        };
        self.hand_over(interface, handed);
    }

    /// Sends a frame that arrived at a real switch at `due`.
    pub(super) fn send_to_switch(&mut self, interface: u32, handle: u32, due: u64) {
        let handed = Handed {
            handle,
            due,
            leaf: NO_LEAF,
            flags: 0,
            lane: Some(self.lane),
            origin: self.origin,
            unrecorded: true,
        };
        self.hand_over(interface, handed);
    }

    /// The port of a real switch behind this interface.
    #[inline]
    pub(super) fn switch_port(&self, interface: u32) -> Option<PortId> {
        self.switched.as_ref()?.port(interface)
    }

    /// Hands over what has gathered, and notes how late it was once that is known.
    pub(crate) fn flush(&mut self) {
        self.sender.flush();
        self.settle();
    }

    /// Notes what has been handed over since.
    pub(crate) fn settle(&mut self) {
        for way in 0..self.batches.len() {
            while let Some(handed) = self.batches[way].front().copied() {
                let Some(at) = self.sender.done(way) else { break };
                self.batches[way].pop_front();
                if let Some(lane) = handed.lane {
                    self.handed += 1;
                    self.note(lane, handed, at);
                }
                self.buffers.release(handed.handle);
            }
        }
        self.refused += self.sender.take_refused();
    }

    /// Is anything pushed whose handing over is not known yet?
    pub(crate) fn is_waiting(&self) -> bool {
        self.batches.iter().any(|batch| !batch.is_empty())
    }

    /// Flushes and waits until everything is noted (threads of ours take a moment).
    pub(crate) fn finish(&mut self) {
        let begun = clock::monotonic();
        self.flush();
        while self.is_waiting() && clock::monotonic() - begun < LONGEST_HANDOVER {
            std::thread::yield_now();
            self.settle();
        }
    }

    fn note(&mut self, lane: Kind, handed: Handed, now: u64) {
        let lateness = self.history.handed_over(handed.due, now);
        if handed.unrecorded {
            return;
        }
        let meta = *self.buffers.meta(handed.handle);
        let flags = meta.flags | handed.flags;
        if Self::is_recorded(lane, meta.stream, flags) {
            self.write(Item::Frame(FrameRecord {
                stream: meta.stream,
                leaf: u16::try_from(handed.leaf).unwrap_or(u16::MAX),
                flags,
                flow: meta.flow,
                sequence: meta.sequence,
                wire: meta.wire,
                l4_payload: meta.l4_payload,
                ingress_ns: meta.ingress as i64,
                delivered_ns: (handed.due - handed.origin) as i64,
                lateness_or_reason: u32::try_from(lateness).unwrap_or(u32::MAX),
                messages_or_port: meta.messages,
            }));
        }
    }

    /// Second copies at one receiver (of the first 64 leaves; a path off a tree counts as leaf 0).
    fn is_duplicate(&mut self, handle: u32, leaf: u32) -> bool {
        let leaf = if leaf == NO_LEAF { 0 } else { leaf };
        let Some(bit) = 1u64.checked_shl(leaf) else {
            return false;
        };
        self.buffers.see(handle, bit)
    }

    /// A damaged copy: one bit flipped for this receiver only, so it needs bytes of its own.
    fn hand_over_damaged(&mut self, interface: u32, handed: Handed) {
        let copy = self.buffers.duplicate(handed.handle);
        self.buffers.release(handed.handle);
        let middle = self.buffers.meta(copy).length as usize / 2;
        self.buffers.bytes_mut(copy)[middle] ^= 1;
        self.hand_over(
            interface,
            Handed {
                handle: copy,
                ..handed
            },
        );
    }

    fn hand_over(&mut self, interface: u32, handed: Handed) {
        let way = self.sender.way(interface);
        while self.sender.is_full(way) {
            self.flush();
        }
        // SAFETY: the slot keeps its place and content until `settle` releases the reference, which is after it was done.
        unsafe {
            self.sender
                .push(way, interface, self.buffers.bytes(handed.handle));
        }
        self.batches[way].push_back(handed);
    }
}

impl<O: Handover, const CAPTURE: bool> Sink for Outlet<O, CAPTURE> {
    const TRANSMISSIONS: bool = CAPTURE;

    fn delivered(&mut self, at: Time, host: NodeId, leaf: u32, frame: &Frame, damaged: bool) {
        if self.is_detailed() {
            self.write(Item::Delivery(DeliveryRecord {
                tag: frame.tag,
                time: at.0,
                host: host.0,
                leaf,
                outcome: u32::from(damaged),
                port: u32::MAX,
            }));
        }
        let mut flags = if damaged { records::DAMAGED } else { 0 };
        let stray = leaf == NO_LEAF && matches!(frame.route, Route::Tree(_));
        if !stray && self.is_duplicate(frame.handle, leaf) && frame.stream != NO_STREAM {
            flags |= records::DUPLICATE;
        }
        let handed = Handed {
            handle: frame.handle,
            due: self.origin + at.0,
            leaf,
            flags,
            lane: Some(self.lane),
            origin: self.origin,
            unrecorded: stray,
        };
        let is_stopped = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        if self.stopped.get(host.index()).is_some_and(is_stopped) {
            // The network has done its part.
            self.note(self.lane, handed, clock::monotonic());
            self.buffers.release(frame.handle);
            return;
        }
        let Some(interface) = self.attachments.interface(host) else {
            // Its interface is gone: nobody is there to take it.
            self.refused += 1;
            self.buffers.release(frame.handle);
            return;
        };
        if damaged {
            self.hand_over_damaged(interface, handed);
        } else {
            self.hand_over(interface, handed);
        }
    }

    fn dropped(&mut self, at: Time, port: Option<PortId>, frame: &Frame, reason: DropReason) {
        let port = port.map_or(u32::MAX, |port| port.0);
        let reason = records::reason_code(reason);
        if self.is_detailed() {
            let (tag, host, leaf) = (frame.tag, u32::MAX, NO_LEAF);
            self.write(Item::Delivery(DeliveryRecord {
                tag,
                time: at.0,
                host,
                leaf,
                outcome: 16 + reason,
                port,
            }));
        }
        let meta = *self.buffers.meta(frame.handle);
        if Self::is_recorded(self.lane, meta.stream, meta.flags) {
            self.write(Item::Frame(FrameRecord {
                stream: meta.stream,
                leaf: u16::MAX,
                flags: meta.flags | records::DROPPED,
                flow: meta.flow,
                sequence: meta.sequence,
                wire: meta.wire,
                l4_payload: meta.l4_payload,
                ingress_ns: meta.ingress as i64,
                delivered_ns: -1,
                lateness_or_reason: reason,
                messages_or_port: port,
            }));
        }
        self.buffers.release(frame.handle);
    }

    fn crossed(&mut self, crossing: &Crossing) {
        self.leave(crossing);
    }

    fn handed(&mut self, handed: &HandedOver) {
        self.hand_to_switch(handed);
    }

    fn copied(&mut self, handle: u32, extra: u32) {
        self.buffers.retain(handle, extra);
    }

    fn transmitted(&mut self, port: PortId, _started: Time, ended: Time, frame: &Frame) {
        if self.lane != Kind::Preflight {
            self.tap
                .take(port, self.origin + ended.0, self.buffers.bytes(frame.handle));
        }
    }
}

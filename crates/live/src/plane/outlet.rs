//! Where the fabric's output goes: frames to the kernel, records to the writer, lateness to the histogram.

use super::buffers::Buffers;
use super::lane::Kind;
use super::lateness::{History, Judged};
use super::tap::Tap;
use crate::kernel::{clock, send};
use crate::records::{self, DeliveryRecord, FrameRecord, SEQUENCED};
use crate::writer::Item;
use timebound_fabric::{DropReason, Frame, NO_LEAF, NO_STREAM, Sink};
use timebound_model::{NodeId, PortId, Time};

/// A frame in the batch.
#[derive(Debug, Clone, Copy)]
struct Handed {
    handle: u32,
    /// Virtual arrival, CLOCK_MONOTONIC.
    due: u64,
    leaf: u32,
    flags: u16,
}

pub(crate) struct Outlet<const CAPTURE: bool> {
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
    sender: send::Sender,
    batch: Vec<Handed>,
    /// Near-end interface of each node of the network, 0 for switches.
    interfaces: Vec<u32>,
    records: rtrb::Producer<Item>,
}

impl<const CAPTURE: bool> Outlet<CAPTURE> {
    pub(crate) fn new(
        buffers: Buffers,
        sender: send::Sender,
        interfaces: Vec<u32>,
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
            sender,
            batch: Vec::with_capacity(send::BATCH),
            interfaces,
            records,
        }
    }

    /// The measured run begins with the lane that is opened at `origin`.
    pub(crate) fn reset(&mut self, origin: u64) {
        self.history.begin(origin);
        self.refused = 0;
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

    fn is_recorded(&self, stream: u32, flags: u16) -> bool {
        match self.lane {
            Kind::Setup => false,
            Kind::Preflight => flags & SEQUENCED != 0,
            Kind::Measured => stream != NO_STREAM,
        }
    }

    /// Sends a frame that did not come out of the fabric (an answer of the model's) with what is waiting.
    pub(crate) fn answer(&mut self, interface: u32, frame: &[u8]) {
        self.flush();
        // SAFETY: flushed before the borrow of `frame` ends.
        unsafe { self.sender.push(interface, frame) };
        self.refused += self.sender.flush();
    }

    /// Hands the batch over and notes how late it was.
    pub(crate) fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        self.refused += self.sender.flush();
        let now = clock::monotonic();
        for index in 0..self.batch.len() {
            let handed = self.batch[index];
            self.note(handed, now);
            self.buffers.release(handed.handle);
        }
        self.batch.clear();
    }

    fn note(&mut self, handed: Handed, now: u64) {
        let lateness = self.history.handed_over(handed.due, now);
        let meta = *self.buffers.meta(handed.handle);
        let flags = meta.flags | handed.flags;
        if self.is_recorded(meta.stream, flags) {
            self.write(Item::Frame(FrameRecord {
                stream: meta.stream,
                leaf: u16::try_from(handed.leaf).unwrap_or(u16::MAX),
                flags,
                flow: meta.flow,
                sequence: meta.sequence,
                wire: meta.wire,
                l4_payload: meta.l4_payload,
                ingress_ns: meta.ingress as i64,
                delivered_ns: (handed.due - self.origin) as i64,
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
        let meta = self.buffers.meta_mut(handle);
        let seen = meta.seen & bit != 0;
        meta.seen |= bit;
        seen
    }

    /// A damaged copy: one bit flipped for this receiver only.
    fn hand_over_damaged(&mut self, interface: u32, handed: Handed) {
        self.flush();
        let middle = self.buffers.meta(handed.handle).length as usize / 2;
        self.buffers.bytes_mut(handed.handle)[middle] ^= 1;
        self.hand_over(interface, handed);
        self.flush_keeping(handed.handle);
        self.buffers.bytes_mut(handed.handle)[middle] ^= 1;
        self.buffers.release(handed.handle);
    }

    fn flush_keeping(&mut self, handle: u32) {
        self.buffers.retain(handle, 1);
        self.flush();
    }

    fn hand_over(&mut self, interface: u32, handed: Handed) {
        if self.sender.is_full() {
            self.flush();
        }
        // SAFETY: the slot keeps its place and content until `flush` releases the reference.
        unsafe { self.sender.push(interface, self.buffers.bytes(handed.handle)) };
        self.batch.push(handed);
    }
}

impl<const CAPTURE: bool> Sink for Outlet<CAPTURE> {
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
        if self.is_duplicate(frame.handle, leaf) && frame.stream != NO_STREAM {
            flags |= records::DUPLICATE;
        }
        let handed = Handed {
            handle: frame.handle,
            due: self.origin + at.0,
            leaf,
            flags,
        };
        let interface = self.interfaces[host.index()];
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
        if self.is_recorded(meta.stream, meta.flags) {
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

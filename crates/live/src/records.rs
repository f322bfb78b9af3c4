//! Record formats of the run folder: fixed size, little-endian, no file header.
//!
//! # `frames.bin`: 48 bytes for each copy of each declared frame that entered during the measured run
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u32 | `stream`: index in `network.streams` of the plan |
//! | 4 | u16 | `leaf`: index of the receiver in the stream's `destinations`; 65535: none (dropped) |
//! | 6 | u16 | `flags`: bit 0 dropped, 1 TCP retransmission, 2 damaged, 3 second copy at this receiver, 4 `flow` and `sequence` are set, 5 the message began in an earlier frame, 6 TCP segment without payload |
//! | 8 | u32 | `flow` from the measurement header |
//! | 12 | u32 | `sequence` of the (first) message in the frame |
//! | 16 | u32 | `wire`: bytes on the wire |
//! | 20 | u32 | `l4_payload`: bytes behind the TCP or UDP header |
//! | 24 | i64 | `ingress_ns`: effective stamp, run time |
//! | 32 | i64 | `delivered_ns`: virtual arrival at the receiver, run time; -1 dropped |
//! | 40 | u32 | delivered: `lateness_ns`, real handover minus virtual arrival, saturated; dropped: reason (0 buffer, 1 loss, 2 corruption, 3 outage, 4 no route) |
//! | 44 | u32 | delivered: number of messages that begin in the frame; dropped: index of the egress port, 4294967295 none |
//!
//! Port `2 l` is link `l` of the plan from `a` to `b`, port `2 l + 1` the other direction.
//!
//! # `ingress.bin` (`record_ingress`): 40 bytes for each frame that entered the fabric during the measured run, in this order
//!
//! u64 `time` (effective stamp, run time), u32 `host` (index in `network.nodes`), u32 `wire`, u8 `class`, u8 `kind` (0 tree, 1 unicast,
//! 2 multicast, 3 broadcast, 4 host joins a group, 5 leaves it; 6 to 9: as 0 to 3, but a real switch sent it, and `host` is the index of the
//! egress port that it enters), u16 `damaged` (1 or 0), u32 `argument` (stream, destination node, group), u32
//! `stream` (4294967295: undeclared), u32 zero, u64 `tag` (number of the frame). Memberships of the time before stand first, at time 0.
//!
//! # `deliveries.bin` (`record_ingress`): 32 bytes for each copy that left the fabric
//!
//! u64 `tag`, u64 `time` (virtual, run time), u32 `host`, u32 `leaf` (4294967295: none), u32 `outcome` (0 delivered, 1 delivered damaged,
//! 16 + reason dropped), u32 `port` (dropped; 4294967295: none).

use timebound_fabric::DropReason;

pub const DROPPED: u16 = 1;
pub const RETRANSMISSION: u16 = 1 << 1;
pub const DAMAGED: u16 = 1 << 2;
pub const DUPLICATE: u16 = 1 << 3;
pub const SEQUENCED: u16 = 1 << 4;
pub const CONTINUED: u16 = 1 << 5;
pub const NO_PAYLOAD: u16 = 1 << 6;

/// Bytes of a [`FrameRecord`].
pub const FRAME_RECORD: usize = 48;
/// Bytes of an [`IngressRecord`].
pub const INGRESS_RECORD: usize = 40;
/// Bytes of a [`DeliveryRecord`].
pub const DELIVERY_RECORD: usize = 32;

/// One line of `frames.bin`; see the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameRecord {
    pub stream: u32,
    pub leaf: u16,
    pub flags: u16,
    pub flow: u32,
    pub sequence: u32,
    pub wire: u32,
    pub l4_payload: u32,
    pub ingress_ns: i64,
    pub delivered_ns: i64,
    pub lateness_or_reason: u32,
    pub messages_or_port: u32,
}

/// One line of `ingress.bin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IngressRecord {
    pub time: u64,
    pub host: u32,
    pub wire: u32,
    pub class: u8,
    pub kind: u8,
    pub argument: u32,
    pub stream: u32,
    pub tag: u64,
    pub damaged: bool,
}

/// One line of `deliveries.bin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct DeliveryRecord {
    pub tag: u64,
    pub time: u64,
    pub host: u32,
    pub leaf: u32,
    pub outcome: u32,
    pub port: u32,
}

/// The number of a drop reason in the files.
#[must_use]
pub fn reason_code(reason: DropReason) -> u32 {
    match reason {
        DropReason::Buffer => 0,
        DropReason::Loss => 1,
        DropReason::Corruption => 2,
        DropReason::Outage => 3,
        DropReason::NoRoute => 4,
    }
}

/// Copies fields one behind the other.
struct Packer<'a>(&'a mut [u8]);

impl Packer<'_> {
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        let (head, tail) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.0 = tail;
        self
    }
}

/// Takes fields one behind the other.
struct Unpacker<'a>(&'a [u8]);

impl Unpacker<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, tail) = self.0.split_at(N);
        self.0 = tail;
        head.try_into().expect("split_at gives N bytes")
    }
    fn u8(&mut self) -> u8 {
        self.take::<1>()[0]
    }
    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

impl FrameRecord {
    #[must_use]
    pub fn encode(&self) -> [u8; FRAME_RECORD] {
        let mut bytes = [0; FRAME_RECORD];
        Packer(&mut bytes)
            .put(&self.stream.to_le_bytes())
            .put(&self.leaf.to_le_bytes())
            .put(&self.flags.to_le_bytes())
            .put(&self.flow.to_le_bytes())
            .put(&self.sequence.to_le_bytes())
            .put(&self.wire.to_le_bytes())
            .put(&self.l4_payload.to_le_bytes())
            .put(&self.ingress_ns.to_le_bytes())
            .put(&self.delivered_ns.to_le_bytes())
            .put(&self.lateness_or_reason.to_le_bytes())
            .put(&self.messages_or_port.to_le_bytes());
        bytes
    }

    #[must_use]
    pub fn decode(bytes: &[u8; FRAME_RECORD]) -> Self {
        let mut from = Unpacker(bytes);
        Self {
            stream: from.u32(),
            leaf: from.u16(),
            flags: from.u16(),
            flow: from.u32(),
            sequence: from.u32(),
            wire: from.u32(),
            l4_payload: from.u32(),
            ingress_ns: from.u64().cast_signed(),
            delivered_ns: from.u64().cast_signed(),
            lateness_or_reason: from.u32(),
            messages_or_port: from.u32(),
        }
    }
}

impl IngressRecord {
    #[must_use]
    pub fn encode(&self) -> [u8; INGRESS_RECORD] {
        let mut bytes = [0; INGRESS_RECORD];
        Packer(&mut bytes)
            .put(&self.time.to_le_bytes())
            .put(&self.host.to_le_bytes())
            .put(&self.wire.to_le_bytes())
            .put(&[self.class, self.kind, u8::from(self.damaged), 0])
            .put(&self.argument.to_le_bytes())
            .put(&self.stream.to_le_bytes())
            .put(&[0; 4])
            .put(&self.tag.to_le_bytes());
        bytes
    }

    #[must_use]
    pub fn decode(bytes: &[u8; INGRESS_RECORD]) -> Self {
        let mut from = Unpacker(bytes);
        let (time, host, wire) = (from.u64(), from.u32(), from.u32());
        let (class, kind, damaged) = (from.u8(), from.u8(), from.u16() & 1 == 1);
        let (argument, stream, _, tag) = (from.u32(), from.u32(), from.u32(), from.u64());
        Self {
            time,
            host,
            wire,
            class,
            kind,
            argument,
            stream,
            tag,
            damaged,
        }
    }
}

impl DeliveryRecord {
    #[must_use]
    pub fn encode(&self) -> [u8; DELIVERY_RECORD] {
        let mut bytes = [0; DELIVERY_RECORD];
        Packer(&mut bytes)
            .put(&self.tag.to_le_bytes())
            .put(&self.time.to_le_bytes())
            .put(&self.host.to_le_bytes())
            .put(&self.leaf.to_le_bytes())
            .put(&self.outcome.to_le_bytes())
            .put(&self.port.to_le_bytes());
        bytes
    }

    #[must_use]
    pub fn decode(bytes: &[u8; DELIVERY_RECORD]) -> Self {
        let mut from = Unpacker(bytes);
        Self {
            tag: from.u64(),
            time: from.u64(),
            host: from.u32(),
            leaf: from.u32(),
            outcome: from.u32(),
            port: from.u32(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_their_encoding_and_lie_at_the_documented_offsets() {
        let frame = FrameRecord {
            stream: 1,
            leaf: 2,
            flags: SEQUENCED | DROPPED,
            flow: 4,
            sequence: 5,
            wire: 6,
            l4_payload: 7,
            ingress_ns: -8,
            delivered_ns: -1,
            lateness_or_reason: 9,
            messages_or_port: 10,
        };
        let bytes = frame.encode();
        assert_eq!(FrameRecord::decode(&bytes), frame);
        assert_eq!(bytes[24..32], (-8i64).to_le_bytes());
        assert_eq!(bytes[44..48], 10u32.to_le_bytes());
        let ingress = IngressRecord {
            time: 1,
            host: 2,
            wire: 3,
            class: 4,
            kind: 5,
            argument: 6,
            stream: 7,
            tag: 8,
            damaged: true,
        };
        assert_eq!(IngressRecord::decode(&ingress.encode()), ingress);
        assert_eq!(ingress.encode()[32..40], 8u64.to_le_bytes());
        let delivery = DeliveryRecord {
            tag: 1,
            time: 2,
            host: 3,
            leaf: 4,
            outcome: 17,
            port: 6,
        };
        assert_eq!(DeliveryRecord::decode(&delivery.encode()), delivery);
    }
}

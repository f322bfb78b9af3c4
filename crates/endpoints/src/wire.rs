//! What the endpoints put on the wire: the measurement header and the layout of MQTT packets.
//!
//! The header stands at the start of every measured payload and takes part of it, so sizes do not change:
//!
//! | offset | type | content |
//! |---|---|---|
//! | 0 | u32 | magic 0x54424E44 |
//! | 4 | u32 | flow |
//! | 8 | u32 | sequence |
//! | 12 | u32 | reserved, 0 |
//! | 16 | i64 | send time, ns since the epoch of the run's clock |
//!
//! All little-endian; then fill bytes up to the payload's size. Smaller payloads begin with what fits of their sequence number
//! ([`timebound_wire::short`]).

use crate::plan::{Protocol, Qos};
use bytes::Buf;
use mqtt5_protocol::encoding::{decode_variable_int, encoded_variable_int_len};
use mqtt5_protocol::{FixedHeader, PacketType};
use serde::Serialize;
use timebound_wire::short;

pub use timebound_wire::short::HEADER_BYTES;
/// First four bytes of every measured payload.
pub const MAGIC: u32 = 0x5442_4E44;
/// What the rest of a measured payload is filled with.
pub const FILL: u8 = 0x54;

/// The measurement header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub flow: u32,
    pub sequence: u32,
    /// Send time in ns since the epoch of the run's clock.
    pub sent_ns: i64,
}

impl Header {
    /// Writes the header over the start of `payload`, or of a payload without room for it what fits of the sequence number.
    pub fn write(&self, payload: &mut [u8]) {
        if payload.len() < HEADER_BYTES {
            short::write(self.sequence, payload);
            return;
        }
        payload[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        payload[4..8].copy_from_slice(&self.flow.to_le_bytes());
        payload[8..12].copy_from_slice(&self.sequence.to_le_bytes());
        payload[12..16].fill(0);
        payload[16..24].copy_from_slice(&self.sent_ns.to_le_bytes());
    }

    /// Reads the header of a payload; `None` if this is no measured payload.
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let mut bytes = payload.get(..HEADER_BYTES)?;
        if bytes.get_u32_le() != MAGIC {
            return None;
        }
        let flow = bytes.get_u32_le();
        let sequence = bytes.get_u32_le();
        if bytes.get_u32_le() != 0 {
            return None;
        }
        Some(Self {
            flow,
            sequence,
            sent_ns: bytes.get_i64_le(),
        })
    }
}

/// Where things stand in one PUBLISH packet (OASIS MQTT 5.0 and 3.1.1, section 3.3), in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FrameLayout {
    /// The whole MQTT packet: what one write hands to TCP.
    pub mqtt_bytes: usize,
    /// From the start of the packet to the payload, and so to the measurement header.
    pub payload_offset: usize,
    /// From the start of the packet to the packet identifier; `None` at QoS 0.
    pub packet_id_offset: Option<usize>,
}

/// The layout of a PUBLISH without properties, as these clients send it and as brokers forward it (unless they add properties).
#[must_use]
pub fn publish_frame_layout(protocol: Protocol, topic: &str, qos: Qos, payload_bytes: usize) -> FrameLayout {
    let packet_id = if qos == Qos::AtMostOnce { 0 } else { 2 };
    let properties = usize::from(protocol == Protocol::V5);
    let variable_header = 2 + topic.len() + packet_id + properties;
    let remaining = u32::try_from(variable_header + payload_bytes).unwrap_or(u32::MAX);
    let fixed_header = 1 + encoded_variable_int_len(remaining);
    FrameLayout {
        mqtt_bytes: fixed_header + variable_header + payload_bytes,
        payload_offset: fixed_header + variable_header,
        packet_id_offset: (packet_id > 0).then_some(fixed_header + 2 + topic.len()),
    }
}

/// Size of PUBACK, PUBREC, PUBREL and PUBCOMP without reason and properties (section 3.4.2.1: both may be left out on
/// success), which is how these clients, the embedded broker and mosquitto send them.
pub const ACKNOWLEDGEMENT_BYTES: usize = 4;
/// Size of PINGREQ and of PINGRESP.
pub const PING_BYTES: usize = 2;
/// The largest packet that a client accepts; a length above it means that the stream is out of step.
pub const LARGEST_PACKET: usize = 16 << 20;

/// A packet at the start of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framed<'a> {
    pub header: FixedHeader,
    /// Variable header and payload.
    pub body: &'a [u8],
    /// Size of the whole packet.
    pub bytes: usize,
}

/// Cuts the first packet off `buffer`; `Ok(None)` if it is not complete yet.
///
/// # Errors
/// A reason when the bytes cannot be the start of an MQTT packet.
pub fn next_packet(buffer: &[u8]) -> Result<Option<Framed<'_>>, String> {
    // A remaining length takes at most four bytes (section 1.5.5): with five bytes at hand, a failure is final.
    let length_bytes = buffer.iter().skip(1).take(4).position(|byte| byte & 0x80 == 0);
    if length_bytes.is_none() && buffer.len() < 5 {
        return Ok(None);
    }
    let mut rest = buffer;
    let header = FixedHeader::decode(&mut rest).map_err(|error| error.to_string())?;
    let remaining = header.remaining_length as usize;
    if remaining > LARGEST_PACKET {
        return Err(format!("a packet of {remaining} bytes"));
    }
    let start = buffer.len() - rest.len();
    Ok(rest.get(..remaining).map(|body| Framed {
        header,
        body,
        bytes: start + remaining,
    }))
}

/// A PUBLISH, borrowed from the receive buffer.
///
/// The codec's own `PublishPacket` copies topic and payload of every message; on the hot path nobody needs the topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishView<'a> {
    pub qos: Qos,
    pub duplicate: bool,
    pub packet_id: Option<u16>,
    pub topic: &'a [u8],
    pub payload: &'a [u8],
}

impl<'a> PublishView<'a> {
    /// Reads the packet of a [`Framed`] whose type is PUBLISH.
    ///
    /// # Errors
    /// A reason when the bytes are no PUBLISH of this protocol version.
    pub fn read(packet: &Framed<'a>, protocol: Protocol) -> Result<Self, String> {
        if packet.header.packet_type != PacketType::Publish {
            return Err(format!("{:?} instead of PUBLISH", packet.header.packet_type));
        }
        let qos = Qos::try_from((packet.header.flags >> 1) & 3)?;
        let mut rest = packet.body;
        let topic_bytes = usize::from(rest.try_get_u16().map_err(|_| "PUBLISH without topic")?);
        let topic = take(&mut rest, topic_bytes).ok_or("a topic longer than its packet")?;
        let packet_id = match qos {
            Qos::AtMostOnce => None,
            _ => Some(
                rest.try_get_u16()
                    .map_err(|_| "PUBLISH without packet identifier")?,
            ),
        };
        if packet_id == Some(0) {
            return Err("packet identifier 0".to_owned());
        }
        if protocol == Protocol::V5 {
            let length = decode_variable_int(&mut rest).map_err(|error| error.to_string())?;
            take(&mut rest, length as usize).ok_or("properties longer than their packet")?;
        }
        Ok(Self {
            qos,
            duplicate: packet.header.flags & 8 != 0,
            packet_id,
            topic,
            payload: rest,
        })
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(bytes)?;
    *rest = tail;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt5_protocol::QoS;
    use mqtt5_protocol::packet::MqttPacket;
    use mqtt5_protocol::packet::publish::PublishPacket;
    use proptest::prelude::*;

    fn encode(
        protocol: Protocol,
        topic: &str,
        qos: Qos,
        payload: &[u8],
        content_type: Option<String>,
    ) -> Vec<u8> {
        let level = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][usize::from(u8::from(qos))];
        let mut packet = match protocol {
            Protocol::V4 => PublishPacket::new_v311(topic, payload.to_vec(), level),
            Protocol::V5 => PublishPacket::new(topic, payload.to_vec(), level),
        }
        .with_packet_id(0x1234);
        if let Some(text) = content_type {
            packet = packet.with_content_type(text);
        }
        let mut bytes = Vec::new();
        packet.encode(&mut bytes).unwrap();
        bytes
    }

    fn qos() -> impl Strategy<Value = Qos> {
        (0u8..3).prop_map(|level| Qos::try_from(level).unwrap())
    }

    fn protocol() -> impl Strategy<Value = Protocol> {
        prop_oneof![Just(Protocol::V4), Just(Protocol::V5)]
    }

    proptest! {
        #[test]
        fn the_layout_is_what_the_codec_writes(
            protocol in protocol(), qos in qos(), topic in "[a-z/é]{1,200}", size in 0usize..20_000,
        ) {
            let payload = vec![0xAB; size];
            let bytes = encode(protocol, &topic, qos, &payload, None);
            let layout = publish_frame_layout(protocol, &topic, qos, size);
            prop_assert_eq!(layout.mqtt_bytes, bytes.len());
            prop_assert_eq!(&bytes[layout.payload_offset..], &payload[..]);
            if let Some(at) = layout.packet_id_offset {
                prop_assert_eq!(&bytes[at..at + 2], &[0x12u8, 0x34]);
            }
        }

        #[test]
        fn the_view_reads_what_the_codec_writes(
            protocol in protocol(), qos in qos(), topic in "[a-z/]{1,60}",
            payload in proptest::collection::vec(any::<u8>(), 0..300), text in proptest::option::of("[a-z]{0,200}"),
        ) {
            let text = text.filter(|_| protocol == Protocol::V5);
            let bytes = encode(protocol, &topic, qos, &payload, text);
            let packet = next_packet(&bytes).unwrap().unwrap();
            prop_assert_eq!(packet.bytes, bytes.len());
            let view = PublishView::read(&packet, protocol).unwrap();
            prop_assert_eq!(view.topic, topic.as_bytes());
            prop_assert_eq!(view.payload, &payload[..]);
            prop_assert_eq!(view.qos, qos);
            prop_assert_eq!(view.packet_id, (qos != Qos::AtMostOnce).then_some(0x1234));
            for cut in 0..bytes.len() {
                prop_assert!(matches!(next_packet(&bytes[..cut]), Ok(None)), "{} of {} bytes", cut, bytes.len());
            }
        }

        #[test]
        fn outside_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), protocol in protocol()) {
            let _ = Header::read(&bytes);
            if let Ok(Some(packet)) = next_packet(&bytes) {
                prop_assert!(packet.bytes <= bytes.len());
                let _ = PublishView::read(&packet, protocol);
            }
        }

        #[test]
        fn headers_come_back(flow: u32, sequence: u32, sent_ns: i64, size in HEADER_BYTES..100) {
            let header = Header { flow, sequence, sent_ns };
            let mut payload = vec![FILL; size];
            header.write(&mut payload);
            prop_assert_eq!(Header::read(&payload), Some(header));
            prop_assert!(payload[HEADER_BYTES..].iter().all(|byte| *byte == FILL));
            payload[0] ^= 1;
            prop_assert_eq!(Header::read(&payload), None);
        }
    }
}

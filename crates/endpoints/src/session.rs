//! One MQTT client connection as a machine without I/O: bytes and times in, bytes and events out.
//!
//! Packets are written and read by `mqtt5-protocol` (the codec of the embedded broker, so it costs no further build; it
//! knows 3.1.1 and 5). `mqtt-protocol-core` would bring the state machine too, but keeps every PUBLISH in shared allocations and
//! adds a dozen crates of build.

use crate::plan::{MqttClient, Protocol, Publication, Qos, Subscription};
use crate::wire::{
    FILL, FrameLayout, Framed, HEADER_BYTES, Header, PublishView, next_packet, publish_frame_layout,
};
use mqtt5_protocol::packet::MqttPacket;
use mqtt5_protocol::packet::connack::ConnAckPacket;
use mqtt5_protocol::packet::connect::ConnectPacket;
use mqtt5_protocol::packet::disconnect::DisconnectPacket;
use mqtt5_protocol::packet::puback::PubAckPacket;
use mqtt5_protocol::packet::pubcomp::PubCompPacket;
use mqtt5_protocol::packet::publish::PublishPacket;
use mqtt5_protocol::packet::pubrec::PubRecPacket;
use mqtt5_protocol::packet::pubrel::PubRelPacket;
use mqtt5_protocol::packet::suback::SubAckPacket;
use mqtt5_protocol::packet::subscribe::SubscribePacket;
use mqtt5_protocol::{ConnectOptions, ConnectProperties, FixedHeader, PacketType, ProtocolVersion, QoS};
use std::collections::HashMap;
use std::time::Duration;

/// What a session tells its owner.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// The handshake is over: CONNACK, and SUBACK where there is a subscription.
    Ready,
    /// A PUBLISH arrived (for QoS 2: its first copy).
    Message {
        qos: Qos,
        duplicate: bool,
        topic: &'a [u8],
        payload: &'a [u8],
    },
    /// PUBACK or PUBCOMP for a message.
    Acknowledged(InFlight),
}

/// A message that waits for its acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) sequence: u32,
    /// Nominal release, ns since the epoch.
    pub(crate) nominal_ns: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// CONNECT is written, CONNACK awaited.
    Connecting,
    /// SUBSCRIBE is written, SUBACK awaited.
    Subscribing,
    Ready,
}

/// A PUBLISH, encoded once; only packet identifier and measurement header change from message to message.
#[derive(Debug)]
struct Template {
    frame: Vec<u8>,
    layout: FrameLayout,
    flow: u32,
}

/// State of one connection; a new connection starts with a new session.
#[derive(Debug)]
pub(crate) struct Session {
    protocol: Protocol,
    state: State,
    subscription: Option<Subscription>,
    template: Option<Template>,
    in_flight: HashMap<u16, InFlight>,
    next_packet_id: u16,
    /// How many unacknowledged messages the broker takes (section 4.9); 65535 unless CONNACK says less.
    receive_maximum: u16,
    /// Packet identifiers of QoS 2 messages that were delivered and not yet released (section 4.3.3).
    unreleased: Vec<u16>,
    ping_outstanding: bool,
}

/// The only packet identifier of SUBSCRIBE: one per connection, written before any PUBLISH.
const SUBSCRIBE_ID: u16 = 1;

impl Session {
    /// A session for a client of the plan, and the CONNECT that opens it.
    ///
    /// # Errors
    /// A reason when the codec cannot write CONNECT or PUBLISH for this client.
    pub(crate) fn open(client: &MqttClient, out: &mut Vec<u8>) -> Result<Self, String> {
        let subscription = client.role.subscription();
        let template = client
            .role
            .publication()
            .map(|publication| Template::new(client.protocol, publication))
            .transpose()?;
        encode(&connect_packet(client), out)?;
        Ok(Self {
            protocol: client.protocol,
            state: State::Connecting,
            subscription: subscription.cloned(),
            template,
            in_flight: HashMap::with_capacity(64),
            next_packet_id: SUBSCRIBE_ID,
            receive_maximum: u16::MAX,
            unreleased: Vec::with_capacity(64),
            ping_outstanding: false,
        })
    }

    #[must_use]
    pub(crate) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Messages that wait for an acknowledgement.
    #[must_use]
    pub(crate) fn unacknowledged(&self) -> usize {
        self.in_flight.len()
    }

    /// May a further message be published now?
    #[must_use]
    pub(crate) fn can_publish(&self) -> bool {
        self.is_ready() && self.in_flight.len() < usize::from(self.receive_maximum)
    }

    /// The PUBLISH of one message, to be written at once; `None` unless [`Self::can_publish`].
    pub(crate) fn publish(&mut self, sequence: u32, nominal_ns: i64, now_ns: i64) -> Option<&[u8]> {
        if !self.can_publish() {
            return None;
        }
        let template = self.template.as_mut()?;
        let frame = &mut template.frame;
        if let Some(at) = template.layout.packet_id_offset {
            let id = free_packet_id(&self.in_flight, &mut self.next_packet_id);
            self.in_flight.insert(id, InFlight { sequence, nominal_ns });
            frame[at..at + 2].copy_from_slice(&id.to_be_bytes());
        }
        let header = Header {
            flow: template.flow,
            sequence,
            sent_ns: now_ns,
        };
        header.write(&mut frame[template.layout.payload_offset..]);
        Some(frame)
    }

    /// A PINGREQ for keep-alive.
    ///
    /// # Errors
    /// When the one before was never answered.
    pub(crate) fn ping(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        if std::mem::replace(&mut self.ping_outstanding, true) {
            return Err("the broker did not answer PINGREQ within the keep-alive".to_owned());
        }
        encode(&mqtt5_protocol::packet::pingreq::PingReqPacket::default(), out)
    }

    /// DISCONNECT, the last packet of a session.
    ///
    /// # Errors
    /// A reason when the codec cannot write it.
    pub(crate) fn close(&self, out: &mut Vec<u8>) -> Result<(), String> {
        encode(&DisconnectPacket::new(mqtt5_protocol::ReasonCode::Success), out)
    }

    /// Takes what arrived, answers into `out`, and returns how many bytes were complete packets (keep the rest).
    ///
    /// # Errors
    /// A reason when the broker refused something or its bytes are no MQTT; the connection is then of no use.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        mut on: impl FnMut(Event<'_>),
    ) -> Result<usize, String> {
        let mut done = 0;
        while let Some(packet) = next_packet(&bytes[done..])? {
            self.packet(&packet, out, &mut on)?;
            done += packet.bytes;
        }
        Ok(done)
    }

    fn packet(
        &mut self,
        packet: &Framed<'_>,
        out: &mut Vec<u8>,
        on: &mut impl FnMut(Event<'_>),
    ) -> Result<(), String> {
        let header = &packet.header;
        if !header.validate_flags() {
            return Err(format!(
                "reserved flags {:#x} in {:?}",
                header.flags, header.packet_type
            ));
        }
        let mut body = packet.body;
        match (header.packet_type, self.state) {
            (PacketType::ConnAck, State::Connecting) => {
                let connack = decoded(ConnAckPacket::decode_body(&mut body, header))?;
                return self.connected(&connack, out, on);
            }
            (PacketType::SubAck, State::Subscribing) => {
                let level = u8::from(self.protocol);
                let suback = decoded(SubAckPacket::decode_body_with_version(&mut body, header, level))?;
                match suback.reason_codes.first() {
                    Some(code) if code.is_success() => {}
                    code => return Err(format!("the broker refused the subscription: {code:?}")),
                }
                self.state = State::Ready;
                on(Event::Ready);
            }
            // A broker may send messages ahead of SUBACK (section 3.8.4).
            (PacketType::Publish, State::Ready | State::Subscribing) => self.message(packet, out, on)?,
            (PacketType::PubAck, State::Ready) => {
                let ack = decoded(PubAckPacket::decode_body(&mut body, header))?;
                self.acknowledged(ack.packet_id, ack.reason_code.is_error(), on)?;
            }
            (PacketType::PubRec, State::Ready) => {
                let rec = decoded(PubRecPacket::decode_body(&mut body, header))?;
                if rec.reason_code.is_error() {
                    return Err(format!("the broker refused a message: {:?}", rec.reason_code));
                }
                acknowledge(&PubRelPacket::new(rec.packet_id), out)?;
            }
            (PacketType::PubComp, State::Ready) => {
                let comp = decoded(PubCompPacket::decode_body(&mut body, header))?;
                self.acknowledged(comp.packet_id, comp.reason_code.is_error(), on)?;
            }
            (PacketType::PubRel, State::Ready | State::Subscribing) => {
                let rel = decoded(PubRelPacket::decode_body(&mut body, header))?;
                self.unreleased.retain(|id| *id != rel.packet_id);
                acknowledge(&PubCompPacket::new(rel.packet_id), out)?;
            }
            (PacketType::PingResp, State::Ready) => self.ping_outstanding = false,
            (PacketType::Disconnect, _) => {
                let reason = packet.body.first().copied().unwrap_or(0);
                return Err(format!("the broker sent DISCONNECT with reason {reason:#04x}"));
            }
            (other, state) => return Err(format!("{other:?} from the broker while {state:?}")),
        }
        Ok(())
    }

    fn connected(
        &mut self,
        connack: &ConnAckPacket,
        out: &mut Vec<u8>,
        on: &mut impl FnMut(Event<'_>),
    ) -> Result<(), String> {
        if connack.reason_code.is_error() {
            return Err(format!(
                "the broker refused the connection: {:?}",
                connack.reason_code
            ));
        }
        match connack.receive_maximum() {
            Some(0) => return Err("CONNACK with receive maximum 0".to_owned()),
            Some(maximum) => self.receive_maximum = maximum,
            None => {}
        }
        let Some(subscription) = &self.subscription else {
            self.state = State::Ready;
            on(Event::Ready);
            return Ok(());
        };
        let mut subscribe = match self.protocol {
            Protocol::V4 => SubscribePacket::new_v311(SUBSCRIBE_ID),
            Protocol::V5 => SubscribePacket::new(SUBSCRIBE_ID),
        };
        for (key, value) in &subscription.user_properties {
            subscribe.properties.add_user_property(key.clone(), value.clone());
        }
        self.state = State::Subscribing;
        let filter = subscription.filter.as_str();
        encode(&subscribe.add_filter(filter, codec_qos(subscription.qos)), out)
    }

    fn message(
        &mut self,
        packet: &Framed<'_>,
        out: &mut Vec<u8>,
        on: &mut impl FnMut(Event<'_>),
    ) -> Result<(), String> {
        let view = PublishView::read(packet, self.protocol)?;
        let event = Event::Message {
            qos: view.qos,
            duplicate: view.duplicate,
            topic: view.topic,
            payload: view.payload,
        };
        match (view.qos, view.packet_id) {
            (Qos::AtMostOnce, _) | (_, None) => on(event),
            (Qos::AtLeastOnce, Some(id)) => {
                on(event);
                acknowledge(&PubAckPacket::new(id), out)?;
            }
            (Qos::ExactlyOnce, Some(id)) => {
                if !self.unreleased.contains(&id) {
                    self.unreleased.push(id);
                    on(event);
                }
                acknowledge(&PubRecPacket::new(id), out)?;
            }
        }
        Ok(())
    }

    fn acknowledged(&mut self, id: u16, refused: bool, on: &mut impl FnMut(Event<'_>)) -> Result<(), String> {
        if refused {
            return Err(format!("the broker refused message {id}"));
        }
        if let Some(in_flight) = self.in_flight.remove(&id) {
            on(Event::Acknowledged(in_flight));
        }
        Ok(())
    }
}

impl Template {
    fn new(protocol: Protocol, publication: &Publication) -> Result<Self, String> {
        let Publication {
            topic,
            qos,
            flow,
            payload_bytes,
            content,
            ..
        } = publication;
        let (qos, flow, payload_bytes) = (*qos, *flow, *payload_bytes as usize);
        let mut payload = vec![FILL; payload_bytes];
        let content = content.as_deref().unwrap_or_default().as_bytes();
        payload
            .iter_mut()
            .skip(HEADER_BYTES)
            .zip(content)
            .for_each(|(to, from)| *to = *from);
        let packet = match protocol {
            Protocol::V4 => PublishPacket::new_v311(topic.as_str(), payload, codec_qos(qos)),
            Protocol::V5 => PublishPacket::new(topic.as_str(), payload, codec_qos(qos)),
        };
        let mut frame = Vec::new();
        encode(&packet.with_packet_id(SUBSCRIBE_ID), &mut frame)?;
        Ok(Self {
            layout: publish_frame_layout(protocol, topic, qos, payload_bytes),
            frame,
            flow,
        })
    }
}

fn connect_packet(client: &MqttClient) -> ConnectPacket {
    let options = ConnectOptions {
        client_id: client.client_id.clone(),
        keep_alive: Duration::from_secs(u64::from(client.keep_alive_s)),
        clean_start: true,
        username: client.username.clone(),
        password: client.password.as_ref().map(|text| text.clone().into_bytes()),
        will: None,
        properties: ConnectProperties {
            user_properties: client.user_properties.clone(),
            ..ConnectProperties::default()
        },
        protocol_version: match client.protocol {
            Protocol::V4 => ProtocolVersion::V311,
            Protocol::V5 => ProtocolVersion::V5,
        },
    };
    match client.protocol {
        Protocol::V4 => ConnectPacket::new_v311(options),
        Protocol::V5 => ConnectPacket::new(options),
    }
}

fn codec_qos(qos: Qos) -> QoS {
    match qos {
        Qos::AtMostOnce => QoS::AtMostOnce,
        Qos::AtLeastOnce => QoS::AtLeastOnce,
        Qos::ExactlyOnce => QoS::ExactlyOnce,
    }
}

fn decoded<T>(result: mqtt5_protocol::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn encode(packet: &impl MqttPacket, out: &mut Vec<u8>) -> Result<(), String> {
    packet.encode(out).map_err(|error| error.to_string())
}

/// Writes an acknowledgement without the temporary body of [`MqttPacket::encode`]: its body is the packet identifier.
fn acknowledge(packet: &impl MqttPacket, out: &mut Vec<u8>) -> Result<(), String> {
    FixedHeader::new(packet.packet_type(), packet.flags(), 2)
        .encode(out)
        .map_err(|error| error.to_string())?;
    packet.encode_body(out).map_err(|error| error.to_string())
}

/// The next packet identifier that no message in flight has; 0 is none (section 2.2.1).
fn free_packet_id(in_flight: &HashMap<u16, InFlight>, next: &mut u16) -> u16 {
    loop {
        let id = *next;
        *next = next.checked_add(1).unwrap_or(1);
        if !in_flight.contains_key(&id) {
            return id;
        }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;

//! Views of the packets that an intermediary acts on.

use super::property::{Of, USER};
use super::{Head, Kind, Malformed, Properties, Reader, Version, write_integer};
use crate::topic;

/// A CONNECT (3.1).
#[derive(Debug, Clone, Copy)]
pub struct Connect<'a> {
    pub version: Version,
    /// Clean start, or clean session of 3.1.1.
    pub clean: bool,
    /// Seconds; 0 is none.
    pub keep_alive: u16,
    pub properties: Properties<'a>,
    pub client_id: &'a str,
    /// Topic of the will.
    pub will: Option<&'a str>,
    pub user: Option<&'a str>,
}

impl<'a> Connect<'a> {
    /// Reads what is behind the fixed header.
    ///
    /// # Errors
    /// It is no CONNECT of 3.1, 3.1.1 or 5.0.
    pub fn read(rest: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(rest);
        let (name, level) = (reader.text()?, reader.byte()?);
        let version = match (name, level) {
            ("MQIsdp", 3) | ("MQTT", 4) => Version::V3,
            ("MQTT", 5) => Version::V5,
            _ => return Err(Malformed::Value),
        };
        let flags = reader.byte()?;
        let has = |bit: u8| flags & (1 << bit) != 0;
        // The reserved bit, QoS 3 of the will, and a QoS or retain without a will.
        if has(0) || flags & 0x18 == 0x18 || (!has(2) && flags & 0x38 != 0) {
            return Err(Malformed::Value);
        }
        let keep_alive = reader.two()?;
        let properties = match version {
            Version::V3 => Properties::default(),
            Version::V5 => Properties::read(&mut reader, Of::Packet(Kind::Connect))?,
        };
        let client_id = reader.text()?;
        let mut will = None;
        if has(2) {
            if version == Version::V5 {
                Properties::read(&mut reader, Of::Will)?;
            }
            will = Some(reader.text()?);
            reader.binary()?;
        }
        let user = if has(7) { Some(reader.text()?) } else { None };
        if has(6) {
            reader.binary()?;
        }
        if !reader.rest.is_empty() {
            return Err(Malformed::Value);
        }
        Ok(Self {
            version,
            clean: has(1),
            keep_alive,
            properties,
            client_id,
            will,
            user,
        })
    }
}

/// A PUBLISH (3.3).
#[derive(Debug, Clone, Copy)]
pub struct Publish<'a> {
    pub qos: u8,
    pub duplicate: bool,
    pub retain: bool,
    /// Empty where an alias stands for it.
    pub topic: &'a str,
    /// 0 of QoS 0.
    pub packet: u16,
    pub properties: Properties<'a>,
    pub payload: &'a [u8],
}

impl<'a> Publish<'a> {
    /// Reads what is behind the fixed header.
    ///
    /// # Errors
    /// It is no PUBLISH.
    pub fn read(head: &Head, rest: &'a [u8], version: Version) -> Result<Self, Malformed> {
        let mut reader = Reader::new(rest);
        let topic = reader.text()?;
        let qos = head.flags >> 1 & 3;
        let packet = if qos > 0 { reader.two()? } else { 0 };
        let properties = match version {
            Version::V3 => Properties::default(),
            Version::V5 => Properties::read(&mut reader, Of::Packet(Kind::Publish))?,
        };
        // Without a name there must be an alias (3.3.2.1).
        let named = topic::is_name(topic)
            || (topic.is_empty() && properties.iter().any(|property| property.id == 0x23));
        if !named || (qos > 0 && packet == 0) {
            return Err(Malformed::Value);
        }
        Ok(Self {
            qos,
            duplicate: head.flags & 8 != 0,
            retain: head.flags & 1 != 0,
            topic,
            packet,
            properties,
            payload: reader.rest,
        })
    }

    /// The alias for its topic (3.3.2.3.4).
    #[must_use]
    pub fn alias(&self) -> Option<u16> {
        self.properties
            .iter()
            .find_map(|property| match (property.id, property.value) {
                (0x23, super::Value::Two(alias)) => Some(alias),
                _ => None,
            })
    }
}

/// A SUBSCRIBE (3.8) or UNSUBSCRIBE (3.10).
#[derive(Debug, Clone, Copy)]
pub struct Subscribe<'a> {
    pub packet: u16,
    pub properties: Properties<'a>,
    pub filters: Filters<'a>,
}

/// Topic filters with their options (0 in an UNSUBSCRIBE), checked when they were found.
#[derive(Debug, Clone, Copy)]
pub struct Filters<'a> {
    bytes: &'a [u8],
    with_options: bool,
}

impl<'a> Filters<'a> {
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, u8)> + use<'a> {
        let (mut rest, with_options) = (Reader::new(self.bytes), self.with_options);
        std::iter::from_fn(move || {
            (!rest.rest.is_empty())
                .then(|| filter(&mut rest, with_options).ok())
                .flatten()
        })
    }
}

fn filter<'a>(reader: &mut Reader<'a>, with_options: bool) -> Result<(&'a str, u8), Malformed> {
    let text = reader.text()?;
    let options = if with_options { reader.byte()? } else { 0 };
    if !topic::is_filter(text) || options & 3 == 3 {
        return Err(Malformed::Value);
    }
    Ok((text, options))
}

impl<'a> Subscribe<'a> {
    /// Reads what is behind the fixed header of a SUBSCRIBE or UNSUBSCRIBE.
    ///
    /// # Errors
    /// It is neither.
    pub fn read(head: &Head, rest: &'a [u8], version: Version) -> Result<Self, Malformed> {
        let mut reader = Reader::new(rest);
        let packet = reader.two()?;
        let properties = match version {
            Version::V3 => Properties::default(),
            Version::V5 => Properties::read(&mut reader, Of::Packet(head.kind))?,
        };
        let filters = Filters {
            bytes: reader.rest,
            with_options: head.kind == Kind::Subscribe,
        };
        if packet == 0 || reader.rest.is_empty() {
            return Err(Malformed::Value);
        }
        while !reader.rest.is_empty() {
            filter(&mut reader, filters.with_options)?;
        }
        Ok(Self {
            packet,
            properties,
            filters,
        })
    }
}

/// CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT and AUTH of 5.0: what stands before the properties, they, and
/// what is behind them.
#[derive(Debug, Clone, Copy)]
pub struct Ack<'a> {
    /// Packet identifier, or the flags of a CONNACK; 0 where there is none.
    pub packet: u16,
    /// 0 (success) where it is left out; of SUBACK and UNSUBACK see `codes`.
    pub reason: u8,
    pub properties: Properties<'a>,
    /// Reason codes of SUBACK and UNSUBACK.
    pub codes: &'a [u8],
}

impl<'a> Ack<'a> {
    /// Reads what is behind the fixed header.
    ///
    /// # Errors
    /// It is none of these packets of 5.0.
    pub fn read(head: &Head, rest: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(rest);
        let mut found = Self {
            packet: 0,
            reason: 0,
            properties: Properties::default(),
            codes: &[],
        };
        match head.kind {
            Kind::Connack => {
                found.packet = u16::from(reader.byte()?);
                found.reason = reader.byte()?;
                found.properties = Properties::read(&mut reader, Of::Packet(head.kind))?;
            }
            Kind::Puback | Kind::Pubrec | Kind::Pubrel | Kind::Pubcomp => {
                found.packet = reader.two()?;
                found.reason_and_properties(&mut reader, head.kind)?;
            }
            Kind::Suback | Kind::Unsuback => {
                found.packet = reader.two()?;
                found.properties = Properties::read(&mut reader, Of::Packet(head.kind))?;
                found.codes = reader.rest;
                reader.rest = &[];
            }
            Kind::Disconnect | Kind::Auth => found.reason_and_properties(&mut reader, head.kind)?,
            _ => return Err(Malformed::Header),
        }
        if !reader.rest.is_empty() {
            return Err(Malformed::Value);
        }
        Ok(found)
    }

    /// Both may be left out from the end (3.4.2.1, 3.4.2.2.1).
    fn reason_and_properties(&mut self, reader: &mut Reader<'a>, kind: Kind) -> Result<(), Malformed> {
        if reader.rest.is_empty() {
            return Ok(());
        }
        self.reason = reader.byte()?;
        if !reader.rest.is_empty() {
            self.properties = Properties::read(reader, Of::Packet(kind))?;
        }
        Ok(())
    }
}

/// The same acknowledgement of 5.0 with a reason and more user properties behind those that it has. `None` if that is no longer a packet: text
/// above 65,535 bytes, or 2^28 bytes in all.
///
/// # Errors
/// The packet is none of those of [`Ack`].
pub fn with_user_properties(
    head: &Head,
    rest: &[u8],
    reason: u8,
    pairs: &[(String, String)],
) -> Result<Option<Vec<u8>>, Malformed> {
    let ack = Ack::read(head, rest)?;
    let mut properties = ack.properties.bytes().to_vec();
    for (key, value) in pairs {
        properties.push(USER);
        for text in [key, value] {
            let Ok(length) = u16::try_from(text.len()) else {
                return Ok(None);
            };
            properties.extend(length.to_be_bytes());
            properties.extend(text.as_bytes());
        }
    }
    let mut body = Vec::with_capacity(properties.len() + ack.codes.len() + 8);
    match head.kind {
        Kind::Connack => body.extend([ack.packet as u8, reason]),
        Kind::Disconnect | Kind::Auth => body.push(reason),
        Kind::Suback | Kind::Unsuback => body.extend(ack.packet.to_be_bytes()),
        _ => {
            body.extend(ack.packet.to_be_bytes());
            body.push(reason);
        }
    }
    if properties.len() >= 1 << 28 {
        return Ok(None);
    }
    write_integer(properties.len(), &mut body);
    body.extend(properties);
    body.extend(ack.codes);
    if body.len() >= 1 << 28 {
        return Ok(None);
    }
    let mut packet = vec![(head.kind as u8) << 4 | head.flags];
    write_integer(body.len(), &mut packet);
    packet.extend(body);
    Ok(Some(packet))
}

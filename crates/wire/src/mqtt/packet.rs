//! Views of the packets that an intermediary acts on.

use super::property::Of;
use super::{Head, Kind, Malformed, Properties, Reader, Version};
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
    /// Bytes before the user name.
    pub(super) after_will: usize,
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
        let after_will = rest.len() - reader.rest.len();
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
            after_will,
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

/// Where a PUBLISH's payload begins (3.3.2): what must be there before anything can be said about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishHeader {
    /// Bytes from behind the fixed header to the payload.
    pub length: usize,
    /// Bytes of properties among them.
    pub properties: usize,
}

impl PublishHeader {
    /// Measures it by what has arrived behind the fixed header; `None` if that is not enough yet.
    ///
    /// # Errors
    /// It is longer than its packet.
    pub fn measure(head: &Head, arrived: &[u8], version: Version) -> Result<Option<Self>, Malformed> {
        let measured = Self::measure_freely(head, arrived, version)?;
        // What is said about the rest counts, whether or not that is there.
        let at_least = measured.map_or(arrived.len().min(2), |found| found.length);
        if at_least > head.rest || (measured.is_none() && arrived.len() >= head.rest) {
            return Err(Malformed::Short);
        }
        Ok(measured)
    }

    fn measure_freely(head: &Head, arrived: &[u8], version: Version) -> Result<Option<Self>, Malformed> {
        let &[high, low, ..] = arrived else {
            return Ok(None);
        };
        let identifier = if head.flags >> 1 & 3 > 0 { 2 } else { 0 };
        let mut length = 2 + usize::from(u16::from_be_bytes([high, low])) + identifier;
        let mut properties = 0;
        if version == Version::V5 {
            let Some(bytes) = arrived.get(length..) else {
                return Ok(None);
            };
            let mut reader = Reader::new(bytes);
            properties = match reader.integer() {
                Ok(properties) => properties as usize,
                Err(Malformed::Short) => return Ok(None),
                Err(malformed) => return Err(malformed),
            };
            length += bytes.len() - reader.rest.len() + properties;
        }
        Ok(Some(Self { length, properties }))
    }
}

impl<'a> Publish<'a> {
    /// Reads what is behind the fixed header. Of a packet whose payload is not there yet, `rest` may end with its header
    /// ([`PublishHeader::length`]); `payload` is empty then.
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

//! Properties (MQTT 5.0, section 2.2.2).

use super::{Kind, Malformed, Reader};

/// The value of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Byte(u8),
    Two(u16),
    Four(u32),
    Integer(u32),
    Text(&'a str),
    Binary(&'a [u8]),
    Pair(&'a str, &'a str),
}

/// One property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Property<'a> {
    /// 2.2.2.2.
    pub id: u8,
    pub value: Value<'a>,
}

pub(super) const USER: u8 = 0x26;
const SUBSCRIPTION: u8 = 0x0b;

/// The properties of a packet, checked when they were found: each is known, may be in its packet, and is there once, but for
/// user properties and, in a PUBLISH, subscription identifiers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Properties<'a> {
    bytes: &'a [u8],
}

/// Where properties stand: a packet, or the will of a CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Packet(Kind),
    Will,
}

impl<'a> Properties<'a> {
    pub(super) fn read(reader: &mut Reader<'a>, of: Of) -> Result<Self, Malformed> {
        let length = reader.integer()? as usize;
        let bytes = reader.bytes(length)?;
        let mut seen = 0u64;
        let mut rest = Reader::new(bytes);
        while !rest.rest.is_empty() {
            let property = one(&mut rest)?;
            if !allowed(property.id, of) {
                return Err(Malformed::Property);
            }
            let many =
                property.id == USER || (property.id == SUBSCRIPTION && of == Of::Packet(Kind::Publish));
            if seen & (1 << property.id) != 0 && !many {
                return Err(Malformed::Property);
            }
            seen |= 1 << property.id;
        }
        Ok(Self { bytes })
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Property<'a>> + use<'a> {
        let mut rest = Reader::new(self.bytes);
        // They were read once without an error.
        std::iter::from_fn(move || (!rest.rest.is_empty()).then(|| one(&mut rest).ok()).flatten())
    }

    /// User properties, in their order.
    pub fn user(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.iter().filter_map(|property| match property.value {
            Value::Pair(key, value) => Some((key, value)),
            _ => None,
        })
    }

    /// As they are in the packet, without their length, and without those with these identifiers.
    #[must_use]
    pub fn without(&self, ids: &[u8]) -> Vec<u8> {
        let mut kept = Vec::with_capacity(self.bytes.len());
        let mut rest = Reader::new(self.bytes);
        while !rest.rest.is_empty() {
            let before = rest.rest;
            let Ok(property) = one(&mut rest) else {
                break;
            };
            if !ids.contains(&property.id) {
                kept.extend_from_slice(&before[..before.len() - rest.rest.len()]);
            }
        }
        kept
    }

    /// As they are in the packet, without their length.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

fn one<'a>(reader: &mut Reader<'a>) -> Result<Property<'a>, Malformed> {
    // An identifier is a variable byte integer, of which all that are defined fit one byte.
    let id = reader.integer()?;
    let id = u8::try_from(id).map_err(|_| Malformed::Property)?;
    let value = match id {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2a => Value::Byte(reader.byte()?),
        0x13 | 0x21 | 0x22 | 0x23 => Value::Two(reader.two()?),
        0x02 | 0x11 | 0x18 | 0x27 => Value::Four(reader.four()?),
        SUBSCRIPTION => Value::Integer(reader.integer()?),
        0x03 | 0x08 | 0x12 | 0x15 | 0x1a | 0x1c | 0x1f => Value::Text(reader.text()?),
        0x09 | 0x16 => Value::Binary(reader.binary()?),
        USER => Value::Pair(reader.text()?, reader.text()?),
        _ => return Err(Malformed::Property),
    };
    Ok(Property { id, value })
}

/// Table 2-4 of the standard.
fn allowed(id: u8, of: Of) -> bool {
    use Kind::{
        Auth, Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe,
        Unsuback, Unsubscribe,
    };
    let Of::Packet(kind) = of else {
        return matches!(id, 0x01 | 0x02 | 0x03 | 0x08 | 0x09 | 0x18 | USER);
    };
    match id {
        0x01 | 0x02 | 0x03 | 0x08 | 0x09 | 0x23 => kind == Publish,
        SUBSCRIPTION => matches!(kind, Publish | Subscribe),
        0x11 => matches!(kind, Connect | Connack | Disconnect),
        0x12 | 0x13 | 0x1a | 0x24 | 0x25 | 0x28 | 0x29 | 0x2a => kind == Connack,
        0x15 | 0x16 => matches!(kind, Connect | Connack | Auth),
        0x17 | 0x19 => kind == Connect,
        0x1c => matches!(kind, Connack | Disconnect),
        0x1f => matches!(
            kind,
            Connack | Puback | Pubrec | Pubrel | Pubcomp | Suback | Unsuback | Disconnect | Auth
        ),
        0x21 | 0x22 | 0x27 => matches!(kind, Connect | Connack),
        USER => matches!(
            kind,
            Connect
                | Connack
                | Publish
                | Puback
                | Pubrec
                | Pubrel
                | Pubcomp
                | Subscribe
                | Suback
                | Unsubscribe
                | Unsuback
                | Disconnect
                | Auth
        ),
        _ => false,
    }
}

//! MQTT packets as an intermediary sees them: views of bytes that stay where they are (MQTT 3.1.1 and 5.0, OASIS).
//!
//! Only what an intermediary acts on is taken apart: where packets begin and end, who connects, what is published where and what is
//! subscribed to, and user properties. Everything else is checked no further than needed to find it, and forwarded as it came.

mod client;
mod packet;
mod property;
mod reader;
mod write;

pub use client::{Greeting, PINGREQ, publish, release};
pub use packet::{Ack, Connect, Filters, Publish, PublishHeader, Subscribe};
pub use property::{Properties, Property, Value};
pub use write::{answer, with_user_name, with_user_properties};

use reader::Reader;
use thiserror::Error;

/// Why bytes are no MQTT packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Control packet type 0, or flags that the type does not allow (MQTT 5.0, sections 2.1.2 and 2.1.3).
    #[error("malformed packet: type or flags")]
    Header,
    /// A variable byte integer of more than four bytes (1.5.5).
    #[error("malformed packet: variable byte integer")]
    Integer,
    /// The packet ends before what it announces.
    #[error("malformed packet: it is too short")]
    Short,
    /// Text that is no UTF-8, or has a null character (1.5.4).
    #[error("malformed packet: text")]
    Text,
    /// An unknown property, one that may not be here, or twice (2.2.2.2).
    #[error("malformed packet: property")]
    Property,
    /// A value that the standard rules out.
    #[error("malformed packet: value")]
    Value,
}

/// Protocol level of a connection (3.1.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 3.1 (level 3) and 3.1.1 (level 4): without properties.
    V3,
    /// 5.0.
    V5,
}

/// Type of a packet (2.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Connect = 1,
    Connack = 2,
    Publish = 3,
    Puback = 4,
    Pubrec = 5,
    Pubrel = 6,
    Pubcomp = 7,
    Subscribe = 8,
    Suback = 9,
    Unsubscribe = 10,
    Unsuback = 11,
    Pingreq = 12,
    Pingresp = 13,
    Disconnect = 14,
    Auth = 15,
}

impl Kind {
    const ALL: [Self; 15] = [
        Self::Connect,
        Self::Connack,
        Self::Publish,
        Self::Puback,
        Self::Pubrec,
        Self::Pubrel,
        Self::Pubcomp,
        Self::Subscribe,
        Self::Suback,
        Self::Unsubscribe,
        Self::Unsuback,
        Self::Pingreq,
        Self::Pingresp,
        Self::Disconnect,
        Self::Auth,
    ];
}

/// A fixed header (2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub kind: Kind,
    pub flags: u8,
    /// Bytes of the fixed header.
    pub length: usize,
    /// Bytes behind it.
    pub rest: usize,
}

impl Head {
    /// Reads a fixed header; `None` if it is not all there yet.
    ///
    /// # Errors
    /// No packet begins so.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some(&first) = bytes.first() else {
            return Ok(None);
        };
        let kind = usize::from(first >> 4)
            .checked_sub(1)
            .and_then(|at| Kind::ALL.get(at));
        let kind = *kind.ok_or(Malformed::Header)?;
        let flags = first & 0xf;
        let allowed = match kind {
            // QoS 3 is none (3.3.1.2).
            Kind::Publish => flags & 6 != 6,
            Kind::Pubrel | Kind::Subscribe | Kind::Unsubscribe => flags == 2,
            _ => flags == 0,
        };
        if !allowed {
            return Err(Malformed::Header);
        }
        let mut rest = 0;
        for (place, byte) in bytes[1..].iter().take(4).enumerate() {
            rest |= usize::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(Some(Self {
                    kind,
                    flags,
                    length: place + 2,
                    rest,
                }));
            }
        }
        if bytes.len() > 4 {
            Err(Malformed::Integer)
        } else {
            Ok(None)
        }
    }

    /// Bytes of the whole packet.
    #[must_use]
    pub const fn whole(&self) -> usize {
        self.length + self.rest
    }
}

/// The first packet of a stream: its header and what is behind that; `None` if it is not all there yet.
///
/// # Errors
/// No packet begins so.
pub fn next(bytes: &[u8]) -> Result<Option<(Head, &[u8])>, Malformed> {
    let Some(head) = Head::read(bytes)? else {
        return Ok(None);
    };
    Ok(bytes.get(head.length..head.whole()).map(|rest| (head, rest)))
}

/// A variable byte integer (1.5.5); `value` must be below 2^28.
fn write_integer(mut value: usize, out: &mut Vec<u8>) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests;

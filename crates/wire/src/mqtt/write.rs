//! Packets that an intermediary writes itself, and those of others that it changes.

use super::property::USER;
use super::{Ack, Connect, Head, Kind, Malformed, write_integer};

/// User properties, key and value.
type Pairs<'p> = &'p [(String, String)];

/// The same acknowledgement of 5.0 with a reason and more user properties behind those that it has. `None` if that is no longer a packet: text
/// above 65,535 bytes, or 2^28 bytes in all.
///
/// # Errors
/// The packet is none of those of [`Ack`].
pub fn with_user_properties(
    head: &Head,
    rest: &[u8],
    reason: u8,
    pairs: Pairs<'_>,
) -> Result<Option<Vec<u8>>, Malformed> {
    let ack = Ack::read(head, rest)?;
    let mut properties = ack.properties.bytes().to_vec();
    if !add_user_properties(pairs, &mut properties) {
        return Ok(None);
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
    if properties.len() > MOST {
        return Ok(None);
    }
    write_integer(properties.len(), &mut body);
    body.extend(properties);
    body.extend(ack.codes);
    Ok(whole((head.kind as u8) << 4 | head.flags, &body))
}

/// What a variable byte integer can say (1.5.5).
const MOST: usize = (1 << 28) - 1;

/// `false`: a text is longer than one may be.
fn add_user_properties(pairs: Pairs<'_>, properties: &mut Vec<u8>) -> bool {
    for (key, value) in pairs {
        properties.push(USER);
        if !(add_text(key, properties) && add_text(value, properties)) {
            return false;
        }
    }
    true
}

pub(super) fn add_text(text: &str, out: &mut Vec<u8>) -> bool {
    let Ok(length) = u16::try_from(text.len()) else {
        return false;
    };
    out.extend(length.to_be_bytes());
    out.extend(text.as_bytes());
    true
}

pub(super) fn whole(first: u8, body: &[u8]) -> Option<Vec<u8>> {
    if body.len() > MOST {
        return None;
    }
    let mut packet = Vec::with_capacity(body.len() + 5);
    packet.push(first);
    write_integer(body.len(), &mut packet);
    packet.extend(body);
    Some(packet)
}

/// A CONNACK (without session), PUBACK, PUBREC, SUBACK or DISCONNECT of 5.0. `identifier` is that of the packet that is answered (0 where there is
/// none), `codes` are the reasons of a SUBACK, one for each filter. `None` as for [`with_user_properties`].
#[must_use]
pub fn answer(kind: Kind, identifier: u16, reason: u8, codes: &[u8], pairs: Pairs<'_>) -> Option<Vec<u8>> {
    let mut rest = Vec::with_capacity(4 + codes.len());
    match kind {
        Kind::Connack => rest.extend([0, reason, 0]),
        Kind::Puback | Kind::Pubrec => {
            rest.extend(identifier.to_be_bytes());
            rest.push(reason);
        }
        Kind::Suback => {
            rest.extend(identifier.to_be_bytes());
            rest.push(0);
            rest.extend(codes);
        }
        Kind::Disconnect => rest.push(reason),
        _ => return None,
    }
    let first = (kind as u8) << 4;
    if pairs.is_empty() {
        return whole(first, &rest);
    }
    let head = Head {
        kind,
        flags: 0,
        length: 0,
        rest: rest.len(),
    };
    with_user_properties(&head, &rest, reason, pairs).ok().flatten()
}

/// The same CONNECT with this user name in place of the one that it has or has not. `None` if it is too long.
///
/// # Errors
/// It is no CONNECT of 3.1, 3.1.1 or 5.0.
pub fn with_user_name(rest: &[u8], user: &str) -> Result<Option<Vec<u8>>, Malformed> {
    let connect = Connect::read(rest)?;
    let after = connect.after_will;
    let password = match connect.user {
        Some(user) => after + 2 + user.len(),
        None => after,
    };
    let mut body = rest[..after].to_vec();
    // Flags stand behind the protocol's name and level (3.1.2.3); bit 7 says that there is a user name.
    let flags = 2 + usize::from(u16::from_be_bytes([rest[0], rest[1]])) + 1;
    body[flags] |= 0x80;
    if !add_text(user, &mut body) {
        return Ok(None);
    }
    body.extend(&rest[password..]);
    Ok(whole((Kind::Connect as u8) << 4, &body))
}

//! A message between managers: an MQTT 5 PUBLISH without packet identifier and without a length (the datagrams say where it ends).
//!
//! First byte with its flags (duplicate, QoS, retain), topic name, properties with their length, payload. Whatever belongs to the publisher's
//! connection alone is not in it: a topic alias (3.3.2.3.4) is resolved, subscription identifiers (3.3.2.3.8) are left out.

use timebound_wire::mqtt::{self, Head, Kind, Malformed, Properties, Publish, Version};

/// Topic alias, subscription identifier: of one connection.
const OF_A_CONNECTION: [u8; 2] = [0x23, 0x0b];
pub(super) const DUPLICATE: u8 = 8;
const QOS: u8 = 6;

/// A message as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Of the first byte.
    flags: u8,
    pub topic: &'a str,
    /// Without their length.
    pub properties: &'a [u8],
    pub payload: &'a [u8],
}

/// All of a message before its payload; `flags` are those of the PUBLISH. `None` if a part is longer than it may be.
#[must_use]
pub fn header(flags: u8, topic: &str, properties: &Properties<'_>) -> Option<Vec<u8>> {
    let properties = properties.without(&OF_A_CONNECTION);
    let packet = mqtt::publish(flags, topic, None, &properties, &[])?;
    let head = Head::read(&packet).ok().flatten();
    // Without the flags of QoS its length would be that of QoS 0, which is what it is.
    let length = head.map_or(2, |head| head.length);
    let mut message = vec![packet[0]];
    message.extend_from_slice(&packet[length..]);
    Some(message)
}

impl<'a> Message<'a> {
    /// Reads what a peer sent.
    ///
    /// # Errors
    /// It is no message that a broker may be given.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (&first, rest) = bytes.split_first().ok_or(Malformed::Short)?;
        if first >> 4 != Kind::Publish as u8 || first & QOS == QOS {
            return Err(Malformed::Header);
        }
        let head = Head {
            kind: Kind::Publish,
            // As QoS 0 it has no identifier.
            flags: first & 0xf & !QOS,
            length: 1,
            rest: rest.len(),
        };
        let publish = Publish::read(&head, rest, Version::V5)?;
        let foreign = |id: u8| OF_A_CONNECTION.contains(&id);
        if publish.topic.is_empty() || publish.properties.iter().any(|one| foreign(one.id)) {
            return Err(Malformed::Property);
        }
        Ok(Self {
            flags: first & 0xf,
            topic: publish.topic,
            properties: publish.properties.bytes(),
            payload: publish.payload,
        })
    }

    #[must_use]
    pub const fn qos(&self) -> u8 {
        self.flags >> 1 & 3
    }
    #[must_use]
    pub const fn retain(&self) -> bool {
        self.flags & 1 != 0
    }

    /// The PUBLISH for a broker. `None` if it is too long to be one.
    #[must_use]
    pub fn packet(&self, qos: u8, retain: bool, identifier: u16) -> Option<Vec<u8>> {
        let flags = (qos & 3) << 1 | u8::from(retain);
        let identifier = (qos > 0).then_some(identifier);
        mqtt::publish(flags, self.topic, identifier, self.properties, self.payload)
    }
}

/// Did its publisher send it again (DUP, 3.3.1.1)?
#[must_use]
pub fn is_duplicate(message: &[u8]) -> bool {
    message.first().is_some_and(|first| first & DUPLICATE != 0)
}

/// The key of a QoS 2 message: the same for the same client and packet identifier in every life of the process, never 0. FNV-1a (Fowler, Noll,
/// Vo), 48 bits of it over the client's identifier.
#[must_use]
pub fn key(client_id: &str, packet: u16) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = client_id.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    let key = (hash ^ hash >> 48) << 16 | u64::from(packet);
    key.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_a_publisher_sent_a_broker_gets(
            flags in 0u8..16, topic in "[a-z/]{1,20}", alias in any::<bool>(), payload in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            prop_assume!(flags & QOS != QOS);
            let own = [&b"\x01\x01\x26\0\x01k\0\x01v"[..], if alias { &b"\x23\0\x07"[..] } else { &[] }].concat();
            let identifier = (flags & QOS > 0).then_some(5);
            let packet = mqtt::publish(flags, &topic, identifier, &own, &payload).unwrap();
            let (head, rest) = mqtt::next(&packet).unwrap().unwrap();
            let publish = Publish::read(&head, rest, Version::V5).unwrap();
            let mut bytes = header(head.flags, publish.topic, &publish.properties).unwrap();
            bytes.extend_from_slice(publish.payload);
            let found = Message::read(&bytes).unwrap();
            prop_assert_eq!((found.topic, found.payload, found.qos(), found.retain()), (&topic[..], &payload[..], flags >> 1 & 3, flags & 1 != 0));
            prop_assert_eq!(is_duplicate(&bytes), flags & DUPLICATE != 0);
            prop_assert_eq!(found.properties, b"\x01\x01\x26\0\x01k\0\x01v");
            let again = found.packet(found.qos(), found.retain(), 9).unwrap();
            let (head, rest) = mqtt::next(&again).unwrap().unwrap();
            let publish = Publish::read(&head, rest, Version::V5).unwrap();
            prop_assert_eq!((publish.qos, publish.packet, publish.duplicate), (found.qos(), if found.qos() > 0 { 9 } else { 0 }, false));
        }

        #[test]
        fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(message) = Message::read(&bytes) {
                prop_assert!(message.packet(message.qos(), false, 1).is_some());
            }
        }

        #[test]
        fn keys_tell_clients_and_packets_apart(one in "[a-z]{0,8}", other in "[a-z]{0,8}", packet in any::<u16>()) {
            prop_assert!(key(&one, packet) != 0);
            prop_assert_eq!(key(&one, packet) == key(&other, packet), one == other);
            prop_assert!(key(&one, packet) != key(&one, packet.wrapping_add(1)) || packet == 0);
        }
    }
}

//! Packets that a publishing client of its own writes (MQTT 5.0).

use super::write::{add_text, whole};
use super::{Kind, write_integer};

/// A CONNECT without a will (3.1).
#[derive(Debug, Clone, Copy)]
pub struct Greeting<'a> {
    pub client_id: &'a str,
    /// Clean Start: a session of before is thrown away.
    pub clean: bool,
    /// Seconds.
    pub keep_alive: u16,
    /// Seconds for which the broker keeps the session behind the connection's end.
    pub session_expiry: u32,
    pub user: Option<&'a str>,
    pub password: Option<&'a str>,
}

/// PINGREQ (3.12).
pub const PINGREQ: [u8; 2] = [0xc0, 0];

impl Greeting<'_> {
    /// The packet; `None` if a text is longer than 65,535 bytes.
    #[must_use]
    pub fn packet(&self) -> Option<Vec<u8>> {
        let mut body = b"\0\x04MQTT\x05".to_vec();
        let flag = |set: bool, bit: u8| if set { 1 << bit } else { 0 };
        body.push(flag(self.user.is_some(), 7) | flag(self.password.is_some(), 6) | flag(self.clean, 1));
        body.extend(self.keep_alive.to_be_bytes());
        body.extend([5, 0x11]);
        body.extend(self.session_expiry.to_be_bytes());
        let texts = [Some(self.client_id), self.user, self.password];
        let fits = texts.into_iter().flatten().all(|text| add_text(text, &mut body));
        fits.then(|| whole((Kind::Connect as u8) << 4, &body)).flatten()
    }
}

/// A PUBLISH (3.3). `flags` are those of its first byte; an `identifier` belongs to QoS 1 and 2; `properties` are without their length. `None` if it
/// is too long to be one.
#[must_use]
pub fn publish(
    flags: u8,
    topic: &str,
    identifier: Option<u16>,
    properties: &[u8],
    payload: &[u8],
) -> Option<Vec<u8>> {
    let mut body = Vec::with_capacity(topic.len() + properties.len() + payload.len() + 8);
    if !add_text(topic, &mut body) || properties.len() >= 1 << 28 {
        return None;
    }
    body.extend(identifier.into_iter().flat_map(u16::to_be_bytes));
    write_integer(properties.len(), &mut body);
    body.extend_from_slice(properties);
    body.extend_from_slice(payload);
    whole((Kind::Publish as u8) << 4 | flags & 0xf, &body)
}

/// PUBREL with success (3.6).
#[must_use]
pub const fn release(identifier: u16) -> [u8; 4] {
    let [high, low] = identifier.to_be_bytes();
    [0x62, 2, high, low]
}

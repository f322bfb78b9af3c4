//! What a session is told with every call, and what a client may not do.

use crate::intermediary::groups::Groups;
use thiserror::Error;
use timebound_model::{Span, Time};

/// Bytes of a CONNECT without properties at most (3.1): its fixed header, a variable header of 10, the two lengths of no properties, and five fields
/// of 65,535 bytes, each behind its length: client id, topic and payload of the will, user name, password.
pub const LONGEST_CONNECT: usize = 5 + 10 + 2 + 5 * (2 + 65_535);

/// What one connection may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// For which a packet waits for its verdict at most.
    pub hold: Span,
    /// Bytes of a packet without the payload of a PUBLISH; of a CONNECT, of its properties ([`Limits::connect_bytes`]).
    pub header_bytes: usize,
    /// Bytes of a whole packet.
    pub packet_bytes: usize,
    /// Requests at a time.
    pub requests: usize,
    /// New or changed requests per second; twice as many at once.
    pub requests_per_second: u32,
    /// Bytes of topic names for which there are aliases.
    pub alias_bytes: usize,
}

impl Limits {
    /// Bytes of a whole CONNECT: whatever fields the standard allows, and so much of properties.
    #[must_use]
    pub const fn connect_bytes(&self) -> usize {
        self.header_bytes.saturating_add(LONGEST_CONNECT)
    }
}

/// The world around a session at the moment of a call.
#[derive(Debug, Clone, Copy)]
pub struct Context<'l> {
    pub now: Time,
    /// Is anybody there who decides? If not, nothing is held.
    pub control: bool,
    pub limits: &'l Limits,
    /// Groups of other networks that want what is published here; `None`: there are none.
    pub groups: Option<&'l Groups>,
    /// Is somebody to be told what clients subscribe to ([`super::Outgoing::Subscribed`])?
    pub interests: bool,
    /// Number of the connection, as [`super::Group::owner`] has it.
    pub connection: u64,
}

/// Why a client is disconnected (MQTT 5.0, section 3.14.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Offence {
    #[error("malformed packet")]
    Malformed,
    #[error("packet too large")]
    TooLarge,
    #[error("quota exceeded")]
    Quota,
    #[error("message rate too high")]
    Rate,
}

impl Offence {
    /// Reason code of the DISCONNECT or CONNACK.
    #[must_use]
    pub const fn reason(self) -> u8 {
        match self {
            Self::Malformed => 0x81,
            Self::TooLarge => 0x95,
            Self::Rate => 0x96,
            Self::Quota => 0x97,
        }
    }
}

/// Requests that may still be made: so many per second, twice as many at once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bucket {
    /// When it would be full again; in the future by what was taken.
    full_at: Time,
}

impl Bucket {
    /// `false`: too many have been made.
    pub(crate) fn take(&mut self, context: &Context<'_>) -> bool {
        let rate = u64::from(context.limits.requests_per_second.max(1));
        let each = Span(1_000_000_000 / rate);
        let full_at = self.full_at.max(context.now).after(each);
        if full_at.since(context.now) > Span(2_000_000_000 + each.0) {
            return false;
        }
        self.full_at = full_at;
        true
    }
}

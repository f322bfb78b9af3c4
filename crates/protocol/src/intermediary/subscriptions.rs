//! What the client subscribes to, so that other networks can be told what is wanted in this one ([`crate::peer::interests`]).
//!
//! A subscription counts once the broker has accepted it, and until the client takes it back. A session that outlives its connection
//! keeps its subscriptions (MQTT 5.0, section 3.1.2.11.2; 3.1.1, section 3.1.2.4), and whoever comes back to one says nothing of them again.

use crate::intermediary::context::Context;
use crate::intermediary::groups::Outgoing;
use crate::intermediary::phase::Phase;
use crate::intermediary::session::Session;
use timebound_wire::mqtt::{Ack, Head, Kind, Subscribe, Version};

/// SUBSCRIBE packets that are not answered, and bytes of their filters, beyond which they count at once: far more than clients have under way. (Who
/// reads no answers could have any number.)
const MOST_UNANSWERED: (usize, usize) = (1_024, 64 * 1024);
/// Bytes that a filter takes beside its own.
const OVERHEAD: usize = 32;
/// Of a packet that is too long to be looked at.
const ALL: &str = "#";

const fn is_about(kind: Kind) -> bool {
    matches!(kind, Kind::Subscribe | Kind::Unsubscribe)
}

impl Session {
    /// Must a packet of the client be looked at because of its subscriptions?
    pub(crate) const fn is_subscribing(&self, head: &Head, context: &Context<'_>) -> bool {
        context.interests && is_about(head.kind)
    }

    /// Is such a packet not all there yet, although it will be looked at?
    pub(crate) fn lacks_filters(&self, head: &Head, bytes: &[u8], context: &Context<'_>) -> bool {
        self.is_subscribing(head, context)
            && head.whole() <= context.limits.header_bytes
            && bytes.len() < head.whole()
    }

    /// A packet goes on to the broker.
    pub(crate) fn note_subscriptions(&mut self, head: &Head, bytes: &[u8], context: &Context<'_>) {
        if !self.is_subscribing(head, context) || self.phase() == Phase::Fresh {
            return;
        }
        let version = self.version();
        let Some(rest) = bytes.get(head.length..head.whole()) else {
            if head.kind == Kind::Subscribe {
                self.tell(Outgoing::Subscribed {
                    filters: vec![ALL.to_owned()],
                });
            }
            return;
        };
        // What cannot be read ends the connection at the broker.
        let Ok(packet) = Subscribe::read(head, rest, version) else {
            return;
        };
        let filters: Vec<String> = packet
            .filters
            .iter()
            .map(|(filter, _)| filter.to_owned())
            .collect();
        if head.kind == Kind::Unsubscribe {
            self.tell(Outgoing::Unsubscribed { filters });
        } else if self.has_room_for(&filters) {
            self.subscribing.insert(packet.packet, filters);
        } else {
            self.tell(Outgoing::Subscribed { filters });
        }
    }

    fn has_room_for(&self, filters: &[String]) -> bool {
        let all = self.subscribing.values().flatten().chain(filters);
        let bytes: usize = all.map(|filter| filter.len() + OVERHEAD).sum();
        self.subscribing.len() < MOST_UNANSWERED.0 && bytes <= MOST_UNANSWERED.1
    }

    /// The broker has answered a SUBSCRIBE: what it accepted counts. `rest`: behind the fixed header, if it is all there.
    pub(crate) fn note_answer(&mut self, identifier: u16, head: &Head, rest: Option<&[u8]>) {
        let Some(mut filters) = self.subscribing.remove(&identifier) else {
            return;
        };
        let codes = match (rest, self.version()) {
            (Some(rest), Version::V3) => rest.get(2..),
            (Some(rest), Version::V5) => Ack::read(head, rest).ok().map(|ack| ack.codes),
            (None, _) => None,
        };
        if let Some(codes) = codes {
            let mut codes = codes.iter();
            filters.retain(|_| codes.next().is_some_and(|code| *code < 0x80));
        }
        if !filters.is_empty() {
            self.tell(Outgoing::Subscribed { filters });
        }
    }

    /// The broker has accepted the client; `resumed`: with what it had subscribed to before.
    pub(crate) fn note_greeting(&mut self, resumed: bool, context: &Context<'_>) {
        if !context.interests {
            return;
        }
        if let Some(client) = self.client() {
            let (client_id, expiry_s) = (client.id.clone(), client.expiry_s);
            self.tell(Outgoing::Greeted {
                client_id,
                resumed,
                expiry_s,
            });
        }
    }

    fn tell(&mut self, outgoing: Outgoing) {
        self.grouped.get_or_insert_default().tell(outgoing);
    }
}

//! What the broker says, on its way to the client: acknowledgements take answers along, everything else goes on as it came.

use crate::intermediary::answers::About;
use crate::intermediary::context::Context;
use crate::intermediary::flows::Side;
use crate::intermediary::greeting::SESSION_EXPIRY;
use crate::intermediary::phase::{Input, Phase};
use crate::intermediary::session::{Event, Session, Step};
use crate::intermediary::stream::{Begin, Place, begin};
use timebound_wire::mqtt::{self, Ack, Head, Kind, Value, Version};

/// Assigned Client Identifier (3.2.2.3.7).
const ASSIGNED: u8 = 0x12;

impl Session {
    /// What to do with bytes from the broker.
    pub fn broker(&mut self, bytes: &[u8], context: &Context<'_>) -> Step {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            match self.down {
                Place::Passing(left) if !rest.is_empty() => {
                    let now = left.min(rest.len());
                    taken += now;
                    self.down = Place::after(left - now);
                    continue;
                }
                Place::Passing(_) | Place::Dropping(_) => break,
                Place::Boundary => {}
            }
            if taken > 0 && !self.insert.is_empty() {
                break;
            }
            if !self.insert.is_empty() {
                let with = std::mem::take(&mut self.insert);
                return Step::Replace { take: 0, with };
            }
            match self.phase {
                Phase::Closing if taken == 0 => return Step::End,
                Phase::Closing => break,
                Phase::Tunnel if rest.is_empty() => break,
                Phase::Tunnel => return Step::Forward(bytes.len()),
                _ => {}
            }
            match begin(rest) {
                Ok(Begin::Short) => break,
                Ok(Begin::Opaque(whole)) => self.pass_down(whole),
                Ok(Begin::Packet(head)) if !self.is_of_interest(&head, rest) => self.pass_down(head.whole()),
                // One thing at a time: what was judged before goes first.
                Ok(Begin::Packet(_)) if taken > 0 => break,
                Ok(Begin::Packet(head)) => match self.acknowledgement(&head, rest, context) {
                    Some(step) => return step,
                    None => self.pass_down(head.whole()),
                },
                Err(_) => {
                    self.events.push_back(Event::BrokenBroker);
                    self.broker_gone();
                }
            }
        }
        if taken > 0 {
            Step::Forward(taken)
        } else {
            Step::More
        }
    }

    fn pass_down(&mut self, whole: usize) {
        self.packets.1 += 1;
        self.down = Place::Passing(whole);
    }

    fn is_of_interest(&self, head: &Head, bytes: &[u8]) -> bool {
        match head.kind {
            Kind::Connack => self.phase == Phase::Greeting,
            Kind::Disconnect => true,
            Kind::Puback | Kind::Pubrec | Kind::Suback
                if !self.pending.is_empty() || self.keeps_any() || !self.subscribing.is_empty() =>
            {
                match bytes.get(head.length..head.length + 2) {
                    // Which one it answers is not there yet.
                    None => head.rest >= 2,
                    Some(identifier) => {
                        let identifier = u16::from_be_bytes([identifier[0], identifier[1]]);
                        identifier != 0
                            && (self.pending.contains_key(&identifier)
                                || self.keeps(head.kind, identifier)
                                || self.has_asked_for(head.kind, identifier))
                    }
                }
            }
            _ => false,
        }
    }

    fn keeps_any(&self) -> bool {
        self.grouped.as_ref().is_some_and(|grouped| grouped.is_waiting())
    }

    /// Does it answer a SUBSCRIBE whose filters are to be told?
    fn has_asked_for(&self, kind: Kind, packet: u16) -> bool {
        kind == Kind::Suback && self.subscribing.contains_key(&packet)
    }

    /// Must this acknowledgement wait for members of a group?
    fn keeps(&self, kind: Kind, packet: u16) -> bool {
        let grouped = self.grouped.as_ref();
        matches!(kind, Kind::Puback | Kind::Pubrec) && grouped.is_some_and(|grouped| grouped.keeps(packet))
    }

    /// `None`: it goes on as it is.
    fn acknowledgement(&mut self, head: &Head, bytes: &[u8], context: &Context<'_>) -> Option<Step> {
        if head.kind == Kind::Disconnect {
            self.happens(Input::Ended);
            return None;
        }
        if head.kind == Kind::Connack && self.version() == Version::V3 {
            // Flags, then the return code (MQTT 3.1.1, section 3.2.2).
            let Some(code) = bytes.get(head.length + 1) else {
                return (head.rest >= 2).then_some(Step::More);
            };
            let accepted = *code == 0;
            self.happens(if accepted { Input::Accepted } else { Input::Ended });
            if accepted {
                self.note_greeting(bytes[head.length] & 1 == 1, context);
            }
            return None;
        }
        if head.whole() > context.limits.header_bytes {
            if let (Kind::Suback, Some(identifier)) = (head.kind, bytes[head.length..].first_chunk::<2>()) {
                self.note_answer(u16::from_be_bytes(*identifier), head, None);
            }
            return None;
        }
        let Some(rest) = bytes.get(head.length..head.whole()) else {
            return Some(Step::More);
        };
        if let (Kind::Suback, Some(identifier)) = (head.kind, rest.first_chunk::<2>()) {
            self.note_answer(u16::from_be_bytes(*identifier), head, Some(rest));
        }
        let Ok(ack) = Ack::read(head, rest) else {
            return None;
        };
        if head.kind == Kind::Connack {
            self.greeted(&ack);
            if ack.reason < 0x80 {
                self.note_greeting(ack.packet & 1 == 1, context);
            }
        }
        let identifier = if head.kind == Kind::Connack { 0 } else { ack.packet };
        if head.kind == Kind::Pubrec && ack.reason >= 0x80 {
            // That ends it (4.3.3), and no PUBREL comes.
            let key = self.key_of(identifier);
            let grouped = self.grouped.as_mut();
            grouped.into_iter().for_each(|grouped| grouped.release(key));
        }
        let changed = self.answered(head, rest, &ack, identifier, context);
        if self.keeps(head.kind, identifier) {
            let kept = changed.unwrap_or_else(|| bytes[..head.whole()].to_vec());
            let grouped = self.grouped.as_mut();
            grouped
                .into_iter()
                .for_each(|grouped| grouped.keep(identifier, kept.clone()));
            self.packets.1 += 1;
            return Some(Step::Replace {
                take: head.whole(),
                with: Vec::new(),
            });
        }
        let with = changed?;
        self.packets.1 += 1;
        Some(Step::Replace {
            take: head.whole(),
            with,
        })
    }

    /// An acknowledgement with what there is to say in it; `None`: nothing.
    fn answered(
        &mut self,
        head: &Head,
        rest: &[u8],
        ack: &Ack<'_>,
        identifier: u16,
        context: &Context<'_>,
    ) -> Option<Vec<u8>> {
        let pending = self.pending.remove(&identifier)?;
        if head.kind == Kind::Suback {
            self.forget_refused(&pending.about, ack.codes);
        }
        let most = self
            .client
            .as_ref()
            .map_or(usize::MAX, |client| client.most_bytes);
        let pairs = self.say(&pending, context.control);
        if !self.may_say(head.kind) {
            return None;
        }
        let changed = mqtt::with_user_properties(head, rest, ack.reason, &pairs).ok()?;
        changed.filter(|changed| changed.len() <= most)
    }

    fn greeted(&mut self, ack: &Ack<'_>) {
        let accepted = ack.reason < 0x80;
        self.happens(if accepted { Input::Accepted } else { Input::Ended });
        for property in ack.properties.iter() {
            if let (ASSIGNED, Value::Text(id), Some(client)) =
                (property.id, property.value, self.client.as_mut())
            {
                client.id = id.to_owned();
            }
            // The broker may have another opinion.
            if let (SESSION_EXPIRY, Value::Four(seconds), Some(client)) =
                (property.id, property.value, self.client.as_mut())
            {
                client.expiry_s = seconds;
            }
        }
    }

    /// Subscriptions that the broker did not accept have nothing to ask for (3.9.3).
    fn forget_refused(&mut self, about: &[About], codes: &[u8]) {
        let Self { flows, events, .. } = self;
        for one in about {
            let is_refused = codes.get(one.place).is_none_or(|code| *code >= 0x80);
            if let (true, Some(flows)) = (is_refused, flows.as_mut()) {
                flows.withdraw(Side::Subscribe, &one.topic, events);
            }
        }
        self.classify();
    }
}

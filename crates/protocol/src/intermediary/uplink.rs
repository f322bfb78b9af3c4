//! What the client says, on its way to the broker: what goes on at once, and what has to be looked at.

use crate::intermediary::answers::Pending;
use crate::intermediary::context::{Context, Offence};
use crate::intermediary::flow::Carried;
use crate::intermediary::flows::{Change, Side};
use crate::intermediary::phase::Phase;
use crate::intermediary::session::{Event, Session, Step};
use crate::intermediary::stream::{Begin, Place, begin};
use timebound_wire::attributes::{self, Reading};
use timebound_wire::mqtt::{Head, Kind, Properties, PublishHeader, Version};

/// Quota exceeded.
pub(crate) const QUOTA: u8 = 0x97;
/// Bytes of answers that wait for the client to read; nothing more comes from it until they are gone.
const MOST_INSERT: usize = 64 * 1024;
/// Acknowledgements that are to say something, beyond which they say nothing: far more than clients have in flight.
pub(crate) const MOST_PENDING: usize = 1_024;

/// What becomes of the packet that comes first.
pub(crate) enum Judgement {
    Pass,
    /// It is not all there that must be.
    Short,
    Held,
    /// It is refused: passed over, and the answer is already on its way.
    Drop,
    Replace(Vec<u8>),
    Dial,
    Offence(Offence),
}

pub(crate) fn reading(properties: &Properties<'_>) -> Option<Reading> {
    let found = properties.user().any(|(key, _)| attributes::is_attribute(key));
    found.then(|| attributes::read(properties.user()))
}

impl Session {
    /// What to do with bytes from the client.
    pub fn client_bytes(&mut self, bytes: &[u8], context: &Context<'_>) -> Step {
        match self.phase {
            Phase::Closing => return Step::End,
            Phase::Dialing | Phase::DialingBlind => return Step::Dial,
            Phase::Tunnel if bytes.is_empty() => return Step::More,
            Phase::Tunnel => return Step::Forward(bytes.len()),
            _ => {}
        }
        if self.still_held(context) {
            return Step::Hold;
        }
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            match self.up {
                Place::Passing(left) if !rest.is_empty() => {
                    let now = left.min(rest.len());
                    if let Some(grouped) = &mut self.grouped {
                        grouped.pass(&rest[..now], now == left);
                    }
                    taken += now;
                    self.up = Place::after(left - now);
                    continue;
                }
                Place::Dropping(left) if !rest.is_empty() && taken == 0 => {
                    let now = left.min(rest.len());
                    self.up = match left - now {
                        0 => Place::Boundary,
                        left => Place::Dropping(left),
                    };
                    return Step::Replace {
                        take: now,
                        with: Vec::new(),
                    };
                }
                Place::Passing(_) | Place::Dropping(_) => break,
                Place::Boundary => {}
            }
            let (whole, head) = match begin(rest) {
                Ok(Begin::Short) => break,
                Ok(Begin::Packet(head)) => (head.whole(), Some(head)),
                Ok(Begin::Opaque(whole)) => (whole, None),
                Err(_) if self.phase == Phase::Fresh => return self.foreign(),
                Err(_) if taken > 0 => break,
                Err(_) => return self.offend(Offence::Malformed),
            };
            if self.is_plain(head.as_ref(), rest, whole, context)
                && !self.may_concern_groups(head.as_ref(), rest, context)
            {
                self.packets.0 += 1;
                self.provoked |= head.is_none();
                self.up = Place::Passing(whole);
                continue;
            }
            // One thing at a time: what was judged before goes first.
            if taken > 0 {
                break;
            }
            let Some(step) = self.first(head.as_ref(), rest, whole, context) else {
                continue;
            };
            return step;
        }
        if taken > 0 {
            Step::Forward(taken)
        } else {
            Step::More
        }
    }

    /// Can it go on without a closer look, whatever else it says? Nothing is changed by asking.
    pub(crate) fn is_plain(
        &self,
        head: Option<&Head>,
        bytes: &[u8],
        whole: usize,
        context: &Context<'_>,
    ) -> bool {
        if self.phase == Phase::Fresh || (self.phase == Phase::Greeting && !self.greeted) {
            return false;
        }
        if whole > context.limits.packet_bytes || self.judged {
            return false;
        }
        let Some(head) = head else {
            return true;
        };
        match (head.kind, self.version()) {
            (Kind::Disconnect, _) => false,
            (Kind::Subscribe | Kind::Unsubscribe, Version::V3) => !context.interests,
            (_, Version::V3) => true,
            (Kind::Publish, Version::V5) => self.is_plain_publish(head, bytes, context),
            (Kind::Subscribe | Kind::Unsubscribe, Version::V5) => false,
            _ => true,
        }
    }

    /// A packet that has to be looked at. `None`: it goes on.
    pub(crate) fn first(
        &mut self,
        head: Option<&Head>,
        bytes: &[u8],
        whole: usize,
        context: &Context<'_>,
    ) -> Option<Step> {
        let judgement = match head {
            _ if whole > context.limits.packet_bytes => {
                self.know_version(head, bytes);
                Judgement::Offence(Offence::TooLarge)
            }
            Some(head) if context.groups.is_some() => self.judge_for_groups(head, bytes, context),
            Some(head) => self.judge(head, bytes, context),
            None if self.phase == Phase::Fresh => return Some(self.foreign()),
            None => Judgement::Pass,
        };
        if !matches!(judgement, Judgement::Held | Judgement::Short | Judgement::Dial) {
            self.judged = false;
            self.packets.0 += 1;
        }
        match judgement {
            Judgement::Pass => {
                head.into_iter()
                    .for_each(|head| self.note_subscriptions(head, bytes, context));
                self.up = Place::Passing(whole);
                None
            }
            Judgement::Drop => {
                self.up = Place::Dropping(whole);
                None
            }
            Judgement::Short => Some(Step::More),
            Judgement::Held => Some(Step::Hold),
            Judgement::Dial => Some(Step::Dial),
            Judgement::Replace(with) => Some(Step::Replace { take: whole, with }),
            Judgement::Offence(offence) => Some(self.offend(offence)),
        }
    }

    pub(crate) fn judge(&mut self, head: &Head, bytes: &[u8], context: &Context<'_>) -> Judgement {
        if self.insert.len() > MOST_INSERT {
            return Judgement::Held;
        }
        if self.is_of_old_version(head) {
            return match self.lacks_filters(head, bytes, context) {
                true => Judgement::Short,
                false => Judgement::Pass,
            };
        }
        let most = context.limits.header_bytes;
        if head.kind == Kind::Publish && self.phase != Phase::Fresh {
            let arrived = &bytes[head.length.min(bytes.len())..bytes.len().min(head.whole())];
            let length = match PublishHeader::measure(head, arrived, Version::V5) {
                Ok(Some(header)) => header.length,
                Ok(None) if arrived.len() < most => return Judgement::Short,
                Ok(None) => return Judgement::Offence(Offence::TooLarge),
                // It is the broker's to judge.
                Err(_) => return Judgement::Pass,
            };
            if length > most {
                return Judgement::Offence(Offence::TooLarge);
            }
            return match arrived.get(..length) {
                Some(rest) => self.publish(head, rest, context),
                None => Judgement::Short,
            };
        }
        if self.phase == Phase::Fresh && head.kind != Kind::Connect {
            return match self.foreign() {
                Step::Dial => Judgement::Dial,
                _ => Judgement::Drop,
            };
        }
        if head.kind == Kind::Disconnect {
            return self.disconnect();
        }
        // A CONNECT has fields of its own that are long, and comes once.
        let is_greeting = head.kind == Kind::Connect && !self.greeted;
        let most = match is_greeting {
            true => context.limits.connect_bytes(),
            false => most,
        };
        if head.whole() > most {
            self.know_version(Some(head), bytes);
            return Judgement::Offence(Offence::TooLarge);
        }
        let Some(rest) = bytes.get(head.length..head.whole()) else {
            return Judgement::Short;
        };
        match head.kind {
            Kind::Connect if self.phase == Phase::Fresh => self.connect(rest),
            Kind::Connect if self.phase == Phase::Greeting && !self.greeted => self.greet(rest, context),
            Kind::Subscribe => self.subscribe(head, rest, context),
            Kind::Unsubscribe => self.unsubscribe(head, rest),
            _ => Judgement::Pass,
        }
    }

    /// Has it no properties, and nothing else to be looked at?
    fn is_of_old_version(&self, head: &Head) -> bool {
        self.greeted && self.version() == Version::V3 && head.kind != Kind::Disconnect
    }

    pub(crate) fn take(
        &mut self,
        side: Side,
        topic: &str,
        own: Option<attributes::Requirements>,
        carried: Carried,
        context: &Context<'_>,
    ) -> Result<Change, Offence> {
        let Self { flows, events, .. } = self;
        flows
            .get_or_insert_default()
            .take(side, topic, own, carried, context, events)
    }

    pub(crate) fn refuses(&self, pending: &Pending) -> bool {
        let flows = self.flows.as_ref();
        let mut asked = pending
            .about
            .iter()
            .filter_map(|one| flows.and_then(|flows| flows.get(one.number)));
        asked.any(|flow| flow.refuses())
    }

    pub(crate) fn refused(&mut self, packet: Kind, dropped: bool) {
        self.events.push_back(Event::Refused { packet, dropped });
    }

    pub(crate) fn problems(&mut self, problems: &[String]) {
        if !problems.is_empty() {
            self.events.push_back(Event::Problems(problems.to_vec()));
        }
    }
}

pub(crate) fn told(found: &Reading) -> Vec<String> {
    found.problems.iter().map(ToString::to_string).collect()
}

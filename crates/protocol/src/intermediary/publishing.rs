//! PUBLISH packets of the client.

use crate::intermediary::answers::{About, Pending};
use crate::intermediary::context::{Context, Offence};
use crate::intermediary::flow::Carried;
use crate::intermediary::flows::{Change, Side};
use crate::intermediary::session::Session;
use crate::intermediary::uplink::{Judgement, MOST_PENDING, QUOTA, reading, told};
use timebound_wire::attributes::{self, Reading};
use timebound_wire::mqtt::{Head, Kind, Publish, PublishHeader, Version};

impl Session {
    pub(crate) fn is_plain_publish(&self, head: &Head, bytes: &[u8], context: &Context<'_>) -> bool {
        let arrived = &bytes[head.length.min(bytes.len())..bytes.len().min(head.whole())];
        let Ok(Some(header)) = PublishHeader::measure(head, arrived, Version::V5) else {
            return false;
        };
        if header.length > context.limits.header_bytes {
            return false;
        }
        if header.properties == 0 && self.is_quiet() {
            return true;
        }
        let Some(rest) = arrived.get(..header.length) else {
            return false;
        };
        let Ok(publish) = Publish::read(head, rest, Version::V5) else {
            // It is the broker's to judge.
            return true;
        };
        let alias_is_known = match publish.alias() {
            None => true,
            Some(_) if publish.topic.is_empty() => true,
            Some(alias) => self
                .aliases
                .get(&alias)
                .is_some_and(|known| known == publish.topic),
        };
        if !alias_is_known
            || publish
                .properties
                .user()
                .any(|(key, _)| attributes::is_attribute(key))
        {
            return false;
        }
        let topic = match publish.alias() {
            Some(alias) if publish.topic.is_empty() => self.aliases.get(&alias).map(String::as_str),
            _ => Some(publish.topic),
        };
        let carried = Carried {
            size: (head.rest - header.length) as u64,
            qos: publish.qos,
        };
        match (&self.flows, topic) {
            (Some(flows), Some(topic)) => flows.has_nothing_to_say(topic, carried),
            (None, _) | (_, None) => true,
        }
    }

    /// A PUBLISH whose header is all there: `rest`, without its payload.
    pub(crate) fn publish(&mut self, head: &Head, rest: &[u8], context: &Context<'_>) -> Judgement {
        let Ok(publish) = Publish::read(head, rest, Version::V5) else {
            return Judgement::Pass;
        };
        let topic = match self.topic_of(&publish, context) {
            Ok(Some(topic)) => topic,
            // An alias that stands for nothing: the broker's to judge (3.3.2.3.4).
            Ok(None) => return Judgement::Pass,
            Err(offence) => return Judgement::Offence(offence),
        };
        let found = reading(&publish.properties);
        if found.is_none() && self.is_quiet() {
            return Judgement::Pass;
        }
        let (has_attributes, problems) = (found.is_some(), found.as_ref().map(told).unwrap_or_default());
        let mut was_withdrawn = false;
        if !self.judged {
            self.problems(&problems);
            let carried = Carried {
                size: (head.rest - rest.len()) as u64,
                qos: publish.qos,
            };
            match self.ask_to_publish(&topic, found, carried, context) {
                Ok(Change::Asked(number)) if self.hold(vec![number], context) => return Judgement::Held,
                Ok(change) => was_withdrawn = change == Change::Withdrawn,
                Err(offence) => return Judgement::Offence(offence),
            }
        }
        let number = self.flows().find(Side::Publish, &topic);
        let flow = number.and_then(|number| self.flows.as_ref()?.get(number));
        let is_news = has_attributes || flow.is_some_and(|flow| !flow.told);
        // What came before may be at the broker already, and must be taken to its end (4.4).
        let refuses = flow.is_some_and(|flow| flow.refuses()) && !publish.duplicate;
        // Requests count from 1: this one is no more.
        let number = number.or(was_withdrawn.then_some(0));
        let about = number.map(|number| About {
            number,
            topic,
            place: 0,
        });
        let pending = Pending {
            about: about.into_iter().collect(),
            problems,
        };
        if refuses {
            return self.refuse_publish(publish.qos, publish.packet, &pending, context);
        }
        if is_news && !pending.is_empty() && publish.qos > 0 && self.pending.len() < MOST_PENDING {
            self.pending.insert(publish.packet, pending);
        } else if publish.qos > 0 {
            self.pending.remove(&publish.packet);
        }
        Judgement::Pass
    }

    pub(crate) fn ask_to_publish(
        &mut self,
        topic: &str,
        found: Option<Reading>,
        carried: Carried,
        context: &Context<'_>,
    ) -> Result<Change, Offence> {
        let own = match found {
            Some(found) => {
                let Self { flows, events, .. } = self;
                flows
                    .get_or_insert_default()
                    .rule(found.request.topics, context, events)?;
                Some(found.request.all).filter(|own| !own.is_empty())
            }
            None => None,
        };
        let change = self.take(Side::Publish, topic, own, carried, context)?;
        self.classify();
        Ok(change)
    }

    /// Nothing can be said to who publishes with QoS 0.
    pub(crate) fn refuse_publish(
        &mut self,
        qos: u8,
        identifier: u16,
        pending: &Pending,
        context: &Context<'_>,
    ) -> Judgement {
        let pairs = self.say(pending, context.control);
        match qos {
            0 => {}
            1 => self.answer(Kind::Puback, identifier, QUOTA, &[], &pairs),
            _ => self.answer(Kind::Pubrec, identifier, QUOTA, &[], &pairs),
        }
        self.refused(Kind::Publish, qos == 0);
        Judgement::Drop
    }

    /// The topic that a PUBLISH is for; aliases are remembered.
    pub(crate) fn topic_of(
        &mut self,
        publish: &Publish<'_>,
        context: &Context<'_>,
    ) -> Result<Option<String>, Offence> {
        let Some(alias) = publish.alias() else {
            return Ok(Some(publish.topic.to_owned()));
        };
        let known = self.aliases.get(&alias);
        if publish.topic.is_empty() {
            return Ok(known.cloned());
        }
        if known.is_none_or(|known| known != publish.topic) {
            let before = known.map_or(0, String::len);
            self.alias_bytes = self.alias_bytes - before + publish.topic.len();
            if self.alias_bytes > context.limits.alias_bytes {
                return Err(Offence::Quota);
            }
            self.aliases.insert(alias, publish.topic.to_owned());
        }
        Ok(Some(publish.topic.to_owned()))
    }
}

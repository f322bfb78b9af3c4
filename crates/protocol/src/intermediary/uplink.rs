//! What the client says, on its way to the broker: attributes become requests, packets wait for their verdicts or are refused.

use crate::intermediary::answers::{About, Pending};
use crate::intermediary::context::{Context, Offence};
use crate::intermediary::flow::Carried;
use crate::intermediary::flows::{Change, Side};
use crate::intermediary::phase::{Input, Phase};
use crate::intermediary::session::{Client, Event, Session, Step};
use crate::intermediary::stream::{Begin, Place, begin};
use timebound_wire::attributes::{self, Reading};
use timebound_wire::mqtt::{
    self, Connect, Head, Kind, Properties, Publish, PublishHeader, Subscribe, Value, Version,
};

/// Request Problem Information (3.1.2.11.7) and Maximum Packet Size (3.1.2.11.4).
const PROBLEM_INFORMATION: u8 = 0x17;
const MAXIMUM_PACKET_SIZE: u8 = 0x27;
/// Quota exceeded.
const QUOTA: u8 = 0x97;
/// Bytes of answers that wait for the client to read; nothing more comes from it until they are gone.
const MOST_INSERT: usize = 64 * 1024;
/// Acknowledgements that are to say something, beyond which they say nothing: far more than clients have in flight.
const MOST_PENDING: usize = 1_024;

/// What becomes of the packet that comes first.
enum Judgement {
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

fn reading(properties: &Properties<'_>) -> Option<Reading> {
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
            let (whole, head) = match begin(rest, self.version()) {
                Ok(Begin::Short) => break,
                Ok(Begin::Packet(head)) => (head.whole(), Some(head)),
                Ok(Begin::Opaque(whole)) => (whole, None),
                Err(_) if self.phase == Phase::Fresh => return self.foreign(),
                Err(_) if taken > 0 => break,
                Err(_) => return self.offend(Offence::Malformed),
            };
            if self.is_plain(head.as_ref(), rest, whole, context) {
                self.packets.0 += 1;
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

    /// The first packet of a client that is not understood: the broker's to judge, unless the manager answers for who it is.
    fn foreign(&mut self) -> Step {
        if self.certificate.is_some() {
            return self.offend(Offence::Malformed);
        }
        self.happens(Input::Foreign);
        Step::Dial
    }

    /// Can it go on without a closer look, whatever else it says? Nothing is changed by asking.
    fn is_plain(&self, head: Option<&Head>, bytes: &[u8], whole: usize, context: &Context<'_>) -> bool {
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
            (_, Version::V3) => true,
            (Kind::Publish, Version::V5) => self.is_plain_publish(head, bytes, context),
            (Kind::Subscribe | Kind::Unsubscribe, Version::V5) => false,
            _ => true,
        }
    }

    fn is_plain_publish(&self, head: &Head, bytes: &[u8], context: &Context<'_>) -> bool {
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

    /// A packet that has to be looked at. `None`: it goes on.
    fn first(
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

    fn judge(&mut self, head: &Head, bytes: &[u8], context: &Context<'_>) -> Judgement {
        if self.insert.len() > MOST_INSERT {
            return Judgement::Held;
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

    fn disconnect(&mut self) -> Judgement {
        if let Some(flows) = self.flows.as_mut() {
            flows.clear(&mut self.events);
        }
        self.classify();
        self.happens(Input::Ended);
        Judgement::Pass
    }

    /// Of a CONNECT that is too long to be read: enough of it to answer in its version (3.1.2.1, 3.1.2.2).
    fn know_version(&mut self, head: Option<&Head>, bytes: &[u8]) {
        let is_fresh = self.phase == Phase::Fresh;
        let level = head
            .filter(|head| head.kind == Kind::Connect)
            .and_then(|head| bytes.get(head.length + 2..head.length + 7));
        if is_fresh && level == Some(b"MQTT\x05") {
            self.client = Some(Box::new(Client {
                version: Version::V5,
                id: String::new(),
                user: None,
                most_bytes: usize::MAX,
                wants_problem_information: true,
            }));
        }
    }

    /// The CONNECT as it comes: who is there. What it asks for follows when the broker's side is open.
    fn connect(&mut self, rest: &[u8]) -> Judgement {
        let Ok(connect) = Connect::read(rest) else {
            return match self.foreign() {
                Step::Dial => Judgement::Dial,
                _ => Judgement::Drop,
            };
        };
        let mut client = Client {
            version: connect.version,
            id: connect.client_id.to_owned(),
            user: match &self.certificate {
                Some(name) => Some(name.to_string()),
                None => connect.user.map(str::to_owned),
            },
            most_bytes: usize::MAX,
            wants_problem_information: true,
        };
        for property in connect.properties.iter() {
            match (property.id, property.value) {
                (PROBLEM_INFORMATION, Value::Byte(wants)) => client.wants_problem_information = wants != 0,
                (MAXIMUM_PACKET_SIZE, Value::Four(most)) => client.most_bytes = most as usize,
                _ => {}
            }
        }
        self.client = Some(Box::new(client));
        self.happens(Input::Connect);
        Judgement::Dial
    }

    /// The CONNECT as it goes on.
    fn greet(&mut self, rest: &[u8], context: &Context<'_>) -> Judgement {
        let Ok(connect) = Connect::read(rest) else {
            return Judgement::Pass;
        };
        let found = reading(&connect.properties);
        if let Some(found) = found {
            let problems = told(&found);
            if !self.judged {
                if let Err(offence) = self.flows().connect(found.request, context) {
                    return Judgement::Offence(offence);
                }
                self.problems(&problems);
            }
            match self.asked_by_connect(problems, context) {
                Ok(None) => {}
                Ok(Some(judgement)) => return judgement,
                Err(offence) => return Judgement::Offence(offence),
            }
        }
        self.greeted = true;
        let renamed = self.certificate.as_ref();
        match renamed.and_then(|name| mqtt::with_user_name(rest, name).ok().flatten()) {
            Some(changed) => Judgement::Replace(changed),
            None => Judgement::Pass,
        }
    }

    fn asked_by_connect(
        &mut self,
        problems: Vec<String>,
        context: &Context<'_>,
    ) -> Result<Option<Judgement>, Offence> {
        let names = self.flows().asked_at_once();
        let mut pending = Pending {
            about: Vec::new(),
            problems,
        };
        let (is_first, mut asked) = (!self.judged, Vec::new());
        for (place, topic) in names.into_iter().enumerate() {
            if is_first {
                let change = self.take(Side::Publish, &topic, None, Carried::default(), context)?;
                asked.extend(match change {
                    Change::Asked(number) => Some(number),
                    Change::None(_) | Change::Withdrawn => None,
                });
            }
            if let Some(number) = self.flows().find(Side::Publish, &topic) {
                pending.about.push(About { number, topic, place });
            }
        }
        if self.hold(asked, context) {
            return Ok(Some(Judgement::Held));
        }
        if self.refuses(&pending) {
            let pairs = self.say(&pending, context.control);
            self.answer(Kind::Connack, 0, QUOTA, &[], &pairs);
            self.refused(Kind::Connect, false);
            self.happens(Input::Close);
            return Ok(Some(Judgement::Drop));
        }
        if !pending.is_empty() {
            self.pending.insert(0, pending);
        }
        Ok(None)
    }

    /// A PUBLISH whose header is all there: `rest`, without its payload.
    fn publish(&mut self, head: &Head, rest: &[u8], context: &Context<'_>) -> Judgement {
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

    fn ask_to_publish(
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

    fn take(
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

    /// Nothing can be said to who publishes with QoS 0.
    fn refuse_publish(
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
    fn topic_of(&mut self, publish: &Publish<'_>, context: &Context<'_>) -> Result<Option<String>, Offence> {
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

    fn subscribe(&mut self, head: &Head, rest: &[u8], context: &Context<'_>) -> Judgement {
        let Ok(subscribe) = Subscribe::read(head, rest, Version::V5) else {
            return Judgement::Pass;
        };
        let found = reading(&subscribe.properties);
        if found.is_none() && self.is_quiet() {
            return Judgement::Pass;
        }
        let mut pending = Pending {
            about: Vec::new(),
            problems: found.as_ref().map(told).unwrap_or_default(),
        };
        let (is_first, mut asked) = (!self.judged, Vec::new());
        for (place, (filter, options)) in subscribe.filters.iter().enumerate() {
            if is_first {
                let own = found.as_ref().map(|found| found.request.of(filter));
                let own = own.filter(|own| !own.is_empty());
                let carried = Carried {
                    size: 0,
                    qos: options & 3,
                };
                match self.take(Side::Subscribe, filter, own, carried, context) {
                    Ok(Change::Asked(number)) => asked.push(number),
                    Ok(Change::None(_) | Change::Withdrawn) => {}
                    Err(offence) => return Judgement::Offence(offence),
                }
            }
            if let Some(number) = self.flows().find(Side::Subscribe, filter) {
                let topic = filter.to_owned();
                pending.about.push(About { number, topic, place });
            }
        }
        if is_first {
            self.problems(&pending.problems);
            self.classify();
        }
        if self.hold(asked, context) {
            return Judgement::Held;
        }
        if self.refuses(&pending) {
            return self.refuse_subscribe(&subscribe, &pending, context);
        }
        self.pending.remove(&subscribe.packet);
        if !pending.is_empty() && self.pending.len() < MOST_PENDING {
            self.pending.insert(subscribe.packet, pending);
        }
        Judgement::Pass
    }

    /// All filters of the packet or none: what the broker never saw has no subscription.
    fn refuse_subscribe(
        &mut self,
        subscribe: &Subscribe<'_>,
        pending: &Pending,
        context: &Context<'_>,
    ) -> Judgement {
        let pairs = self.say(pending, context.control);
        let codes = vec![QUOTA; subscribe.filters.iter().count()];
        self.answer(Kind::Suback, subscribe.packet, 0, &codes, &pairs);
        self.refused(Kind::Subscribe, false);
        self.withdraw(pending.about.iter().map(|one| one.topic.as_str()));
        Judgement::Drop
    }

    fn unsubscribe(&mut self, head: &Head, rest: &[u8]) -> Judgement {
        if let Ok(unsubscribe) = Subscribe::read(head, rest, Version::V5) {
            self.withdraw(unsubscribe.filters.iter().map(|(filter, _)| filter));
        }
        Judgement::Pass
    }

    fn withdraw<'f>(&mut self, filters: impl Iterator<Item = &'f str>) {
        let Self { flows, events, .. } = self;
        if let Some(flows) = flows.as_mut() {
            filters.for_each(|filter| flows.withdraw(Side::Subscribe, filter, events));
        }
        self.classify();
    }

    fn refuses(&self, pending: &Pending) -> bool {
        let flows = self.flows.as_ref();
        let mut asked = pending
            .about
            .iter()
            .filter_map(|one| flows.and_then(|flows| flows.get(one.number)));
        asked.any(|flow| flow.refuses())
    }

    fn refused(&mut self, packet: Kind, dropped: bool) {
        self.events.push_back(Event::Refused { packet, dropped });
    }

    fn problems(&mut self, problems: &[String]) {
        if !problems.is_empty() {
            self.events.push_back(Event::Problems(problems.to_vec()));
        }
    }
}

fn told(found: &Reading) -> Vec<String> {
    found.problems.iter().map(ToString::to_string).collect()
}

//! How a client comes and goes: its first packet, its CONNECT, its DISCONNECT.

use crate::intermediary::answers::{About, Pending};
use crate::intermediary::context::{Context, Offence};
use crate::intermediary::flow::Carried;
use crate::intermediary::flows::{Change, Side};
use crate::intermediary::phase::{Input, Phase};
use crate::intermediary::session::{Client, Session, Step};
use crate::intermediary::uplink::{Judgement, QUOTA, reading, told};
use timebound_wire::mqtt::{self, Connect, Head, Kind, Value, Version};

/// Request Problem Information (3.1.2.11.7) and Maximum Packet Size (3.1.2.11.4).
const PROBLEM_INFORMATION: u8 = 0x17;
const MAXIMUM_PACKET_SIZE: u8 = 0x27;
/// Session Expiry Interval (3.1.2.11.2; 3.2.2.3.2).
pub(crate) const SESSION_EXPIRY: u8 = 0x11;

impl Session {
    /// The first packet of a client that is not understood: the broker's to judge, unless the manager answers for who it is.
    pub(crate) fn foreign(&mut self) -> Step {
        if self.certificate.is_some() {
            return self.offend(Offence::Malformed);
        }
        self.happens(Input::Foreign);
        Step::Dial
    }

    pub(crate) fn disconnect(&mut self) -> Judgement {
        if let Some(flows) = self.flows.as_mut() {
            flows.clear(&mut self.events);
        }
        self.classify();
        self.happens(Input::Ended);
        Judgement::Pass
    }

    /// Of a CONNECT that is too long to be read: enough of it to answer in its version (3.1.2.1, 3.1.2.2).
    pub(crate) fn know_version(&mut self, head: Option<&Head>, bytes: &[u8]) {
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
                expiry_s: 0,
            }));
        }
    }

    /// The CONNECT as it comes: who is there. What it asks for follows when the broker's side is open.
    pub(crate) fn connect(&mut self, rest: &[u8]) -> Judgement {
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
            expiry_s: match connect.version {
                // Clean Session 0: until somebody comes with 1 (MQTT 3.1.1, section 3.1.2.4).
                Version::V3 if !connect.clean => u32::MAX,
                _ => 0,
            },
        };
        for property in connect.properties.iter() {
            match (property.id, property.value) {
                (PROBLEM_INFORMATION, Value::Byte(wants)) => client.wants_problem_information = wants != 0,
                (MAXIMUM_PACKET_SIZE, Value::Four(most)) => client.most_bytes = most as usize,
                (SESSION_EXPIRY, Value::Four(seconds)) => client.expiry_s = seconds,
                _ => {}
            }
        }
        self.client = Some(Box::new(client));
        self.happens(Input::Connect);
        Judgement::Dial
    }

    /// The CONNECT as it goes on.
    pub(crate) fn greet(&mut self, rest: &[u8], context: &Context<'_>) -> Judgement {
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

    pub(crate) fn asked_by_connect(
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
}

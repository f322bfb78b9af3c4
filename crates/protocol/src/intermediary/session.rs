//! One connection of a client through the manager: both directions, what is held, and what is said.

use crate::intermediary::answers::{self, Pairs, Pending, Verdict};
use crate::intermediary::context::{Context, Offence};
use crate::intermediary::flow::{Input as FlowInput, State};
use crate::intermediary::flows::{Flows, Side};
use crate::intermediary::groups::Grouped;
use crate::intermediary::phase::{self, Input, Phase};
use crate::intermediary::stream::Place;
use std::collections::{BTreeMap, VecDeque};
use timebound_model::{Span, Time};
use timebound_wire::attributes::Requirements;
use timebound_wire::mqtt::{self, Kind, Version};

/// What to do with the first bytes that have arrived in a direction, and were not yet passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// So many (at least one) are sent on as they are.
    Forward(usize),
    /// So many are passed over, and these bytes are sent on in their place. Either may be none, not both.
    Replace { take: usize, with: Vec<u8> },
    /// Nothing can be said before more have come.
    More,
    /// Nothing may go on before a verdict, [`Session::timeout`], or a change of [`Context::control`].
    Hold,
    /// The broker's side is to be opened: [`Session::dialed`], or [`Session::unreachable`].
    Dial,
    /// Nothing more goes this way.
    End,
}

/// What others are to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request is new (`revision` 1) or has changed.
    Ask {
        number: u32,
        revision: u32,
        side: Side,
        /// A topic name, or a filter without `$share/GROUP/`.
        topic: String,
        requirements: Requirements,
    },
    /// A request is no more.
    Withdrawn { number: u32 },
    /// Attributes that cannot be read.
    Problems(Vec<String>),
    /// The client is being disconnected.
    Offence(Offence),
    /// Class of the connection from now on.
    Class(u8),
    /// A packet is held from now on.
    Held,
    /// It is held no more.
    Released(HoldEnd, Span),
    /// A packet was answered with Quota exceeded, or dropped (a PUBLISH with QoS 0).
    Refused { packet: Kind, dropped: bool },
    /// Bytes from the broker that are no packets.
    BrokenBroker,
}

/// Why a packet is held no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldEnd {
    Verdict,
    Timeout,
    /// Nobody is there any more who decides.
    Unavailable,
}

/// Who is connected, from the CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub version: Version,
    /// Empty until the broker has assigned one, where the client leaves that to it.
    pub id: String,
    /// As the broker gets it.
    pub user: Option<String>,
    /// Bytes of a packet that the client takes at most (3.1.2.11.4).
    pub(crate) most_bytes: usize,
    /// May acknowledgements have user properties (3.1.2.11.7)?
    pub(crate) wants_problem_information: bool,
    /// Seconds for which its session outlives its connection (3.1.2.11.2); `u32::MAX`: for ever.
    pub(crate) expiry_s: u32,
}

/// A packet that is held.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) since: Time,
    pub(crate) until: Time,
    pub(crate) flows: Vec<u32>,
}

/// One connection of a client, and that to the broker which belongs to it.
#[derive(Debug)]
pub struct Session {
    pub(crate) phase: Phase,
    pub(crate) client: Option<Box<Client>>,
    /// Has the CONNECT gone on?
    pub(crate) greeted: bool,
    /// Replaces the user name of the CONNECT.
    pub(crate) certificate: Option<Box<str>>,
    pub(crate) up: Place,
    pub(crate) down: Place,
    /// For the client, as soon as its direction is between two packets.
    pub(crate) insert: Vec<u8>,
    pub(crate) held: Option<Box<Hold>>,
    /// Something of the client went on that no receiver can understand: a broker that breaks off has its reason.
    pub(crate) provoked: bool,
    /// The first packet of the client's direction was held, and is to be sent on or refused now.
    pub(crate) judged: bool,
    /// `None`: no attribute has come yet.
    pub(crate) flows: Option<Box<Flows>>,
    pub(crate) aliases: BTreeMap<u16, String>,
    pub(crate) alias_bytes: usize,
    /// By packet identifier of PUBLISH or SUBSCRIBE; 0: the CONNECT.
    pub(crate) pending: BTreeMap<u16, Pending>,
    /// Filters of SUBSCRIBE packets that the broker has yet to answer.
    pub(crate) subscribing: BTreeMap<u16, Vec<String>>,
    pub(crate) class: u8,
    /// `None`: nothing was for a group yet.
    pub(crate) grouped: Option<Box<Grouped>>,
    pub(crate) events: VecDeque<Event>,
    /// Packets seen, from the client and from the broker.
    pub packets: (u64, u64),
}

impl Session {
    /// A connection of which nothing is known yet. `certificate`: the name that replaces the user name in its CONNECT; without it a client that is
    /// not understood is the broker's to judge, with it such a client is closed.
    #[must_use]
    pub fn new(certificate: Option<&str>) -> Self {
        Self {
            phase: Phase::Fresh,
            client: None,
            greeted: false,
            certificate: certificate.map(Into::into),
            up: Place::Boundary,
            down: Place::Boundary,
            insert: Vec::new(),
            held: None,
            provoked: false,
            judged: false,
            flows: None,
            aliases: BTreeMap::new(),
            alias_bytes: 0,
            pending: BTreeMap::new(),
            subscribing: BTreeMap::new(),
            class: 0,
            grouped: None,
            events: VecDeque::new(),
            packets: (0, 0),
        }
    }

    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }
    /// Who is connected, once the CONNECT is there.
    #[must_use]
    pub fn client(&self) -> Option<&Client> {
        self.client.as_deref()
    }
    /// Has a CONNECT come, or whatever else is the broker's to judge?
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.phase != Phase::Fresh
    }
    /// What others are to be told next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
    /// When the next call is due if nothing else happens.
    #[must_use]
    pub fn timeout(&self) -> Option<Time> {
        let held = self.held.as_ref().filter(|_| self.phase != Phase::Closing);
        held.map(|held| held.until)
    }
    /// Bytes that wait for the client's direction to come between two packets.
    #[must_use]
    pub fn has_insert(&self) -> bool {
        !self.insert.is_empty()
    }

    pub(crate) fn happens(&mut self, input: Input) {
        // What cannot happen leaves a connection as it is: a CONNACK in the middle is the client's to judge.
        self.phase = phase::next(self.phase, input).unwrap_or(self.phase);
    }
    pub(crate) fn version(&self) -> Version {
        self.client.as_ref().map_or(Version::V3, |client| client.version)
    }
    pub(crate) fn flows(&mut self) -> &mut Flows {
        self.flows.get_or_insert_default()
    }
    pub(crate) fn is_quiet(&self) -> bool {
        self.flows.as_ref().is_none_or(|flows| flows.is_quiet())
    }

    /// The broker's side is open.
    pub fn dialed(&mut self) {
        self.happens(Input::Dialed);
    }

    /// The broker's side cannot be opened: the client is told, and nothing more goes on.
    pub fn unreachable(&mut self) {
        let answer = match self.client.as_deref() {
            Some(client) if client.version == Version::V5 => mqtt::answer(Kind::Connack, 0, 0x88, &[], &[]),
            // Server unavailable (MQTT 3.1.1, section 3.2.2.3).
            Some(_) => Some(vec![0x20, 2, 0, 3]),
            None => None,
        };
        self.insert.extend(answer.unwrap_or_default());
        self.happens(Input::Close);
    }

    /// The broker has closed its side in order. The client sees what it would see without an intermediary: the end, and nothing before it.
    pub fn broker_closed(&mut self) {
        self.happens(Input::Close);
    }

    /// The broker has broken its side off, or we end. A client of MQTT 5 that knows nothing of it is told, unless it has caused that itself with
    /// bytes that say nothing (a broker that closes without reading what is behind them breaks off); nothing more goes up.
    ///
    /// The standard has no DISCONNECT with Server unavailable (0x88, table 2-6): Server shutting down (0x8B) is the nearest that clients understand.
    pub fn broker_gone(&mut self) {
        let is_told = self.phase == Phase::Open
            && self.version() == Version::V5
            && self.down == Place::Boundary
            && !self.provoked;
        if is_told {
            let answer = mqtt::answer(Kind::Disconnect, 0, 0x8b, &[], &[]);
            self.insert.extend(answer.unwrap_or_default());
        }
        self.happens(Input::Close);
    }

    /// A verdict has come. `false`: about what is no more, or has changed since.
    pub fn verdict(&mut self, number: u32, revision: u32, verdict: Verdict) -> bool {
        let counts = self
            .flows
            .as_mut()
            .is_some_and(|flows| flows.decide(number, revision, verdict));
        if counts {
            self.classify();
        }
        counts
    }

    /// The connection has ended: what it had asked for is given back.
    pub fn closed(&mut self, now: Time) {
        if let Some(flows) = self.flows.as_mut() {
            flows.clear(&mut self.events);
        }
        if let Some(held) = self.held.take() {
            self.events
                .push_back(Event::Released(HoldEnd::Unavailable, now.since(held.since)));
        }
        self.happens(Input::Close);
    }

    pub(crate) fn classify(&mut self) {
        let class = self.flows.as_ref().map_or(0, |flows| flows.class());
        if class != self.class {
            self.class = class;
            self.events.push_back(Event::Class(class));
        }
    }

    /// The client did what it may not do.
    pub(crate) fn offend(&mut self, offence: Offence) -> Step {
        self.events.push_back(Event::Offence(offence));
        let kind = match self.phase {
            Phase::Fresh | Phase::Dialing | Phase::Greeting => Kind::Connack,
            _ => Kind::Disconnect,
        };
        if self.version() == Version::V5 && self.phase != Phase::Leaving {
            let answer = mqtt::answer(kind, 0, offence.reason(), &[], &[]);
            self.insert.extend(answer.unwrap_or_default());
        }
        self.happens(Input::Close);
        Step::End
    }

    /// Holds the first packet for these requests, unless nobody decides, or none of them is open.
    pub(crate) fn hold(&mut self, flows: Vec<u32>, context: &Context<'_>) -> bool {
        let open = |number: &u32| {
            let flow = self.flows.as_ref().and_then(|flows| flows.get(*number));
            flow.is_some_and(|flow| flow.state == State::Asked)
        };
        if !flows.iter().any(open) {
            return false;
        }
        if !context.control || context.limits.hold == Span(0) {
            self.expire(&flows);
            return false;
        }
        self.events.push_back(Event::Held);
        self.held = Some(Box::new(Hold {
            since: context.now,
            until: context.now.after(context.limits.hold),
            flows,
        }));
        true
    }

    fn expire(&mut self, numbers: &[u32]) {
        for number in numbers {
            if let Some(flow) = self.flows().get_mut(*number) {
                flow.happens(FlowInput::Expire);
            }
        }
    }

    /// Is a packet still held? If not any more, it is to be sent on or refused.
    pub(crate) fn still_held(&mut self, context: &Context<'_>) -> bool {
        let Some(held) = self.held.take() else {
            return false;
        };
        let flows = self.flows.as_ref();
        let open = |number: &u32| {
            let flow = flows.and_then(|flows| flows.get(*number));
            flow.is_some_and(|flow| flow.state == State::Asked)
        };
        let end = match held.flows.iter().any(open) {
            false => HoldEnd::Verdict,
            true if !context.control => HoldEnd::Unavailable,
            true if context.now >= held.until => HoldEnd::Timeout,
            true => {
                self.held = Some(held);
                return true;
            }
        };
        self.expire(&held.flows);
        self.judged = true;
        self.events
            .push_back(Event::Released(end, context.now.since(held.since)));
        false
    }

    /// Puts an answer of ours into the client's direction: with what is to be said if the client takes that, without it otherwise.
    pub(crate) fn answer(&mut self, kind: Kind, identifier: u16, reason: u8, codes: &[u8], pairs: &Pairs) {
        let most = self
            .client
            .as_ref()
            .map_or(usize::MAX, |client| client.most_bytes);
        let full = self
            .may_say(kind)
            .then(|| mqtt::answer(kind, identifier, reason, codes, pairs))
            .flatten()
            .filter(|bytes| bytes.len() <= most);
        let bytes = full.or_else(|| mqtt::answer(kind, identifier, reason, codes, &[]));
        self.insert.extend(bytes.unwrap_or_default());
    }

    /// Where user properties may stand although the client wants none (3.1.2.11.7).
    pub(crate) fn may_say(&self, kind: Kind) -> bool {
        let wants = self
            .client
            .as_ref()
            .is_some_and(|client| client.wants_problem_information);
        wants || matches!(kind, Kind::Connack | Kind::Disconnect | Kind::Publish)
    }

    /// What there is to say about these requests, and about attributes that could not be read.
    pub(crate) fn say(&mut self, pending: &Pending, control: bool) -> Pairs {
        let mut pairs = Pairs::new();
        let flows = self.flows.as_ref();
        let found = pending
            .about
            .iter()
            .map(|one| (one.topic.as_str(), flows.and_then(|flows| flows.get(one.number))));
        answers::say_all(found, control, &mut pairs);
        answers::complain(&pending.problems, &mut pairs);
        for one in &pending.about {
            if let Some(flow) = self.flows().get_mut(one.number) {
                flow.told = true;
            }
        }
        pairs
    }
}

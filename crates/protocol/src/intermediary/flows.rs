//! What a connection asks for: its defaults, its rules for topics, and its requests.

use crate::intermediary::answers::Verdict;
use crate::intermediary::context::{Bucket, Context, Offence};
use crate::intermediary::flow::{Carried, Flow, Input, State};
use crate::intermediary::session::Event;
use std::collections::{BTreeMap, VecDeque};
use timebound_wire::attributes::{Request, Requirements};
use timebound_wire::topic;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    Publish,
    Subscribe,
}

/// What became of what a packet says about a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing that was not known, about this request or none.
    None(Option<u32>),
    /// A request is new or has changed.
    Asked(u32),
    /// A request was given back.
    Withdrawn,
}

/// All that a connection asks for. A connection without attributes has none of it.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    defaults: Requirements,
    /// Topic filters with what counts for the names that they match: the last one that says something about an attribute.
    rules: Vec<(String, Requirements)>,
    /// Counts up with every change of defaults or rules.
    rules_revision: u32,
    list: BTreeMap<u32, Flow>,
    publish: BTreeMap<String, u32>,
    subscribe: BTreeMap<String, u32>,
    last: u32,
    bucket: Bucket,
}

impl Flows {
    /// Takes the attributes of a CONNECT: defaults of the connection, and rules.
    pub(crate) fn connect(&mut self, request: Request, context: &Context<'_>) -> Result<(), Offence> {
        self.defaults = request.all;
        self.defaults.withdraw = None;
        self.rule(request.topics, context, &mut VecDeque::new())
    }

    /// Takes what a CONNECT or PUBLISH says about topics that it names; `rt-withdraw` gives back all that match, at once.
    pub(crate) fn rule(
        &mut self,
        topics: Vec<(String, Requirements)>,
        context: &Context<'_>,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Offence> {
        for (filter, mut own) in topics {
            let withdraws = own.withdraw.take() == Some(true);
            let place = self.rules.iter().position(|(other, _)| *other == filter);
            match place {
                Some(at) if !withdraws && self.rules[at].1 == own => continue,
                // The one that is said last counts most.
                Some(at) => drop(self.rules.remove(at)),
                None => {}
            }
            if withdraws {
                self.withdraw_matching(&filter, events);
            }
            if !own.is_empty() {
                if self.rules.len() >= context.limits.requests {
                    return Err(Offence::Quota);
                }
                self.rules.push((filter, own));
            }
            self.rules_revision += 1;
        }
        Ok(())
    }

    fn withdraw_matching(&mut self, filter: &str, events: &mut VecDeque<Event>) {
        let found: Vec<String> = self
            .publish
            .keys()
            .filter(|name| topic::matches(filter, name))
            .cloned()
            .collect();
        for name in found {
            self.withdraw(Side::Publish, &name, events);
        }
    }

    /// Names of topics that a CONNECT asks for by themselves: without wildcards, and with what a message brings otherwise.
    pub(crate) fn asked_at_once(&self) -> Vec<String> {
        let sized = |name: &str| {
            let wanted = self.resolve(name, &Requirements::default());
            wanted.asks() && (wanted.size_bytes.is_some() || wanted.transmission_ns.is_some())
        };
        let names = self.rules.iter().map(|(filter, _)| filter);
        names
            .filter(|name| topic::is_name(name) && sized(name))
            .cloned()
            .collect()
    }

    /// Does a packet without attributes change nothing, and needs no answer, whatever its topic is?
    pub(crate) fn is_quiet(&self) -> bool {
        self.list.is_empty() && self.rules.is_empty() && self.defaults.is_empty()
    }

    /// Does a PUBLISH without attributes to this topic change nothing, and need no answer?
    pub(crate) fn has_nothing_to_say(&self, topic: &str, carried: Carried) -> bool {
        let flow = self.publish.get(topic).and_then(|number| self.list.get(number));
        let Some(flow) = flow else {
            return self.rules.is_empty() && self.defaults.is_empty();
        };
        let is_settled = flow.state == State::Withdrawn
            || (flow.rules == self.rules_revision && flow.covers(carried) && !flow.refuses());
        is_settled && (flow.told || carried.qos == 0)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Flow> {
        self.list.get(&number)
    }
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Flow> {
        self.list.get_mut(&number)
    }
    pub(crate) fn find(&self, side: Side, topic: &str) -> Option<u32> {
        self.index(side).get(topic).copied()
    }
    /// Numbers of the requests that are there.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        let live = self
            .list
            .iter()
            .filter(|(_, flow)| flow.state != State::Withdrawn);
        live.map(|(number, _)| *number)
    }

    fn index(&self, side: Side) -> &BTreeMap<String, u32> {
        match side {
            Side::Publish => &self.publish,
            Side::Subscribe => &self.subscribe,
        }
    }
    fn index_mut(&mut self, side: Side) -> &mut BTreeMap<String, u32> {
        match side {
            Side::Publish => &mut self.publish,
            Side::Subscribe => &mut self.subscribe,
        }
    }

    /// What counts for a topic name or filter that says so much itself.
    fn resolve(&self, topic: &str, own: &Requirements) -> Requirements {
        let rules = self.rules.iter().filter(|(rule, _)| topic::matches(rule, topic));
        let base = rules.fold(self.defaults.clone(), |base, (_, rule)| rule.over(&base));
        own.over(&base)
    }

    /// Takes what a packet says about a topic (`own`; `None`: nothing), asks if that is something else than before.
    ///
    /// # Errors
    /// There are too many requests, or too many in so short a time.
    pub(crate) fn take(
        &mut self,
        side: Side,
        topic: &str,
        own: Option<Requirements>,
        carried: Carried,
        context: &Context<'_>,
        events: &mut VecDeque<Event>,
    ) -> Result<Change, Offence> {
        let number = self.find(side, topic);
        let flow = number.and_then(|number| self.list.get(&number));
        let settled = match flow {
            Some(flow) => {
                flow.state == State::Withdrawn || (flow.rules == self.rules_revision && flow.covers(carried))
            }
            None => self.rules.is_empty() && self.defaults.is_empty(),
        };
        if own.is_none() && settled {
            return Ok(Change::None(number));
        }
        let own = own
            .or_else(|| flow.map(|flow| flow.own.clone()))
            .unwrap_or_default();
        if own.withdraw == Some(true) {
            return Ok(self.give_back(side, topic, own, context, events));
        }
        let mut wanted = self.resolve(topic::unshared(topic), &own);
        wanted.withdraw = None;
        if !wanted.asks() {
            let was_there = number.is_some();
            self.forget(side, topic, events);
            return Ok(if was_there {
                Change::Withdrawn
            } else {
                Change::None(None)
            });
        }
        let seen = flow.map(|flow| flow.seen).unwrap_or_default();
        let filled = Filled::fill(&mut wanted, side, seen, carried);
        self.ask(number, side, topic, own, wanted, filled, context, events)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one request")]
    fn ask(
        &mut self,
        number: Option<u32>,
        side: Side,
        topic: &str,
        own: Requirements,
        wanted: Requirements,
        filled: Filled,
        context: &Context<'_>,
        events: &mut VecDeque<Event>,
    ) -> Result<Change, Offence> {
        let rules = self.rules_revision;
        if let Some(flow) = number.and_then(|number| self.list.get_mut(&number)) {
            (flow.rules, flow.seen) = (rules, filled.seen);
            flow.own.clone_from(&own);
            if flow.asked == wanted && flow.state != State::Withdrawn {
                return Ok(Change::None(number));
            }
        } else if self.list.len() >= context.limits.requests {
            return Err(Offence::Quota);
        }
        if !self.bucket.take(context) {
            return Err(Offence::Rate);
        }
        let (number, flow) = self.entry(side, topic);
        (flow.own, flow.seen, flow.rules) = (own, filled.seen, rules);
        flow.happens(Input::Ask);
        flow.told = false;
        flow.revision += 1;
        (flow.size_implied, flow.qos_implied) = (filled.size_implied, filled.qos_implied);
        flow.asked.clone_from(&wanted);
        events.push_back(Event::Ask {
            number,
            revision: flow.revision,
            side,
            topic: topic::unshared(topic).to_owned(),
            requirements: wanted,
        });
        Ok(Change::Asked(number))
    }

    fn give_back(
        &mut self,
        side: Side,
        topic: &str,
        own: Requirements,
        context: &Context<'_>,
        events: &mut VecDeque<Event>,
    ) -> Change {
        let asks_by_default = self
            .resolve(topic::unshared(topic), &Requirements::default())
            .asks();
        let number = self.find(side, topic);
        if !asks_by_default || (number.is_none() && self.list.len() >= context.limits.requests) {
            self.forget(side, topic, events);
            return Change::Withdrawn;
        }
        let (number, flow) = self.entry(side, topic);
        flow.own = own;
        flow.verdict = None;
        if flow.state != State::Withdrawn {
            flow.happens(Input::Withdraw);
            events.push_back(Event::Withdrawn { number });
        }
        Change::Withdrawn
    }

    /// The request for a topic; where there was none, one that asks for nothing.
    fn entry(&mut self, side: Side, topic: &str) -> (u32, &mut Flow) {
        let number = self.find(side, topic).unwrap_or_else(|| {
            self.last += 1;
            let number = self.last;
            self.index_mut(side).insert(topic.to_owned(), number);
            number
        });
        let flow = self.list.entry(number).or_insert_with(|| Flow {
            own: Requirements::default(),
            asked: Requirements::default(),
            seen: Carried::default(),
            size_implied: false,
            qos_implied: false,
            revision: 0,
            state: State::Withdrawn,
            verdict: None,
            told: true,
            rules: self.rules_revision,
        });
        (number, flow)
    }

    /// Gives back a request and forgets it, whoever said so.
    pub(crate) fn withdraw(&mut self, side: Side, topic: &str, events: &mut VecDeque<Event>) {
        self.forget(side, topic, events);
    }

    fn forget(&mut self, side: Side, topic: &str, events: &mut VecDeque<Event>) {
        let Some(number) = self.index_mut(side).remove(topic) else {
            return;
        };
        let flow = self.list.remove(&number);
        if flow.is_some_and(|flow| flow.state != State::Withdrawn) {
            events.push_back(Event::Withdrawn { number });
        }
    }

    /// Gives back everything.
    pub(crate) fn clear(&mut self, events: &mut VecDeque<Event>) {
        events.extend(self.numbers().map(|number| Event::Withdrawn { number }));
        *self = Self {
            last: self.last,
            bucket: self.bucket,
            ..Self::default()
        };
    }

    /// A verdict has come. `false`: about what is no more, or has changed since.
    pub(crate) fn decide(&mut self, number: u32, revision: u32, verdict: Verdict) -> bool {
        let Some(flow) = self.list.get_mut(&number) else {
            return false;
        };
        if flow.revision != revision || flow.state == State::Withdrawn {
            return false;
        }
        flow.happens(verdict.input());
        if flow.verdict.as_ref() != Some(&verdict) {
            flow.told = false;
        }
        flow.verdict = Some(verdict);
        true
    }

    /// Class of the connection: the highest of those that are granted.
    pub(crate) fn class(&self) -> u8 {
        let verdicts = self.list.values().filter_map(|flow| flow.verdict.as_ref());
        verdicts.filter_map(Verdict::class).max().unwrap_or(0)
    }
}

/// What was put in where the client does not say.
#[derive(Debug, Clone, Copy)]
struct Filled {
    seen: Carried,
    size_implied: bool,
    qos_implied: bool,
}

impl Filled {
    fn fill(wanted: &mut Requirements, side: Side, seen: Carried, carried: Carried) -> Self {
        let size_implied =
            side == Side::Publish && wanted.size_bytes.is_none() && wanted.transmission_ns.is_none();
        let qos_implied = wanted.qos.is_none();
        let mut seen = Carried {
            size: seen.size.max(grown(seen.size, carried.size)),
            qos: seen.qos.max(carried.qos),
        };
        if side == Side::Subscribe {
            seen.qos = carried.qos;
        }
        if size_implied {
            wanted.size_bytes = Some(seen.size);
        }
        if qos_implied {
            wanted.qos = Some(seen.qos);
        }
        Self {
            seen,
            size_implied,
            qos_implied,
        }
    }
}

/// The size to ask for when a larger message than before comes: so much more that messages which grow slowly ask seldom.
fn grown(before: u64, now: u64) -> u64 {
    if before == 0 || now <= before {
        return now;
    }
    now.max(before.saturating_add(before / 4))
}

//! Real-time attributes of flows, as user properties of MQTT 5 packets (RT-MQTT, section IV-B, eq. 2; docs/attributes.md).
//!
//! User properties keep their order (MQTT 5.0, section 3.1.2.11.8), so a packet is read from front to back: attributes before the first
//! `rt-topic` are for all topics of the packet (of a CONNECT: of the connection), those after it for the topics that it names. Every value
//! carries its unit. The names of the authors' public interface are read as they define them: `deadline` in seconds, `min_bw` and
//! `max_bw` in Mbit/s, `flow_priority`.
//!
//! What cannot be read is a [`Problem`] and leaves everything else as it is: attributes are never a reason to lose a message.

use crate::quantity::{Kind, NotAQuantity, RATE, Rounding, SIZE, TIME};
use crate::topic;
use std::fmt;

/// The version of the vocabulary that this is.
pub const VERSION: u32 = 1;
/// Topics with attributes of their own in a packet, and attributes in all; what is beyond is not read.
pub const MOST_TOPICS: usize = 64;
pub const MOST_ATTRIBUTES: usize = 512;
/// Problems of a packet that are told.
pub const MOST_PROBLEMS: usize = 8;
/// Of a key or value that a problem quotes.
const QUOTED: usize = 60;

/// What a flow asks for. `None` where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    /// `rt-deadline`, ns from publishing to delivery (D).
    pub deadline_ns: Option<u64>,
    /// `rt-period`, ns: least time between two messages (T).
    pub period_ns: Option<u64>,
    /// `rt-jitter`, ns: how much later than its period a message may be released (release jitter of the publisher).
    pub jitter_ns: Option<u64>,
    /// `rt-size`, bytes of payload of one message.
    pub size_bytes: Option<u64>,
    /// `rt-transmission-time`, ns: of one message with all overheads (C), where no size is given.
    pub transmission_ns: Option<u64>,
    /// `rt-priority`, 0 to 7, higher is more urgent (P).
    pub priority: Option<u8>,
    /// `rt-bandwidth`, bit/s: at least and at most (BW); equal where one figure is given.
    pub bandwidth_bps: Option<(u64, u64)>,
    /// `rt-qos`, 0 to 2 (Q).
    pub qos: Option<u8>,
    /// `rt-strict`: refuse rather than carry as best effort.
    pub strict: Option<bool>,
    /// `rt-withdraw`: give back what is reserved.
    pub withdraw: Option<bool>,
}

impl Requirements {
    /// Does it say nothing?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
    /// Does it ask for a channel? How to ask (`rt-strict`), what a message is anyway (`rt-qos`) and giving back are no such wish.
    #[must_use]
    pub fn asks(&self) -> bool {
        let Self {
            deadline_ns,
            period_ns,
            jitter_ns,
            size_bytes,
            transmission_ns,
            priority,
            bandwidth_bps,
            qos: _,
            strict: _,
            withdraw: _,
        } = self;
        [deadline_ns, period_ns, jitter_ns, size_bytes, transmission_ns]
            .iter()
            .any(|figure| figure.is_some())
            || priority.is_some()
            || bandwidth_bps.is_some()
    }
    /// Where it says nothing, `base` counts.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        Self {
            deadline_ns: self.deadline_ns.or(base.deadline_ns),
            period_ns: self.period_ns.or(base.period_ns),
            jitter_ns: self.jitter_ns.or(base.jitter_ns),
            size_bytes: self.size_bytes.or(base.size_bytes),
            transmission_ns: self.transmission_ns.or(base.transmission_ns),
            priority: self.priority.or(base.priority),
            bandwidth_bps: self.bandwidth_bps.or(base.bandwidth_bps),
            qos: self.qos.or(base.qos),
            strict: self.strict.or(base.strict),
            withdraw: self.withdraw.or(base.withdraw),
        }
    }
}

/// The attributes of one packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// For all topics of the packet.
    pub all: Requirements,
    /// For the topics that match a filter, in the order of the packet.
    pub topics: Vec<(String, Requirements)>,
}

impl Request {
    /// What is asked for a topic name: of several filters that match, each attribute is that of the last one that has it.
    #[must_use]
    pub fn of(&self, name: &str) -> Requirements {
        self.topics
            .iter()
            .filter(|(filter, _)| topic::matches(filter, name))
            .fold(self.all.clone(), |base, (_, own)| own.over(&base))
    }
    /// Does it ask for anything?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.topics.iter().all(|(_, own)| own.is_empty())
    }
}

/// An attribute that cannot be read, for the client that sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key, cut where it is long.
    pub key: String,
    /// The value, cut where it is long.
    pub value: String,
    pub why: Why,
}

/// What is wrong with an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    Quantity(NotAQuantity),
    /// It must be one of these.
    NotOneOf(&'static str),
    /// It may not be zero.
    Zero,
    /// A range whose end is below its start.
    Backwards,
    /// The topics are no filter of MQTT.
    NoFilter,
    /// The same packet says it twice for the same topics.
    Twice,
    /// `rt-...` that this version does not know.
    Unknown,
    /// A version that is not [`VERSION`]: nothing of the packet is read.
    Version,
    /// The packet has more than is read.
    TooMany,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}': ", self.key, self.value)?;
        match &self.why {
            Why::Quantity(why) => write!(f, "{why}"),
            Why::NotOneOf(these) => write!(f, "use {these}"),
            Why::Zero => f.write_str("it must be more than nothing"),
            Why::Backwards => f.write_str("the range ends before it begins"),
            Why::NoFilter => f.write_str("this is no topic filter"),
            Why::Twice => f.write_str("it is given twice for the same topics; the first one counts"),
            Why::Unknown => write!(f, "version {VERSION} of the vocabulary has no such attribute"),
            Why::Version => write!(f, "this side speaks version {VERSION}"),
            Why::TooMany => write!(
                f,
                "at most {MOST_ATTRIBUTES} attributes and {MOST_TOPICS} topics of a packet are read"
            ),
        }
    }
}

/// Is this key of the vocabulary, known or not? Others are none of its business.
#[must_use]
pub fn is_attribute(key: &str) -> bool {
    Attribute::of(key).is_some()
}

/// What was read of a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    pub request: Request,
    /// The first ones, at most [`MOST_PROBLEMS`].
    pub problems: Vec<Problem>,
}

/// Reads the attributes among the user properties of a packet; others are passed over. Time and memory are bounded by [`MOST_ATTRIBUTES`].
pub fn read<'p>(properties: impl IntoIterator<Item = (&'p str, &'p str)>) -> Reading {
    let mut reader = Reader::default();
    let mut seen = 0;
    for (key, value) in properties {
        let Some(attribute) = Attribute::of(key) else {
            continue;
        };
        seen += 1;
        if seen > MOST_ATTRIBUTES {
            reader.problem(key, value, Why::TooMany);
            break;
        }
        if let Err(why) = reader.take(attribute, value) {
            let stops = matches!(why, Why::Version | Why::TooMany);
            if why == Why::Version {
                reader.found.request = Request::default();
            }
            reader.problem(key, value, why);
            if stops {
                break;
            }
        }
    }
    reader.found
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attribute {
    Version,
    Topic,
    Deadline,
    Period,
    Jitter,
    Size,
    Transmission,
    Priority,
    Bandwidth,
    Qos,
    Strict,
    Withdraw,
    AuthorsDeadline,
    AuthorsMinimum,
    AuthorsMaximum,
    Unknown,
}

impl Attribute {
    /// `None` for what is no business of ours.
    fn of(key: &str) -> Option<Self> {
        Some(match key {
            "rt-version" => Self::Version,
            "rt-topic" => Self::Topic,
            "rt-deadline" => Self::Deadline,
            "rt-period" => Self::Period,
            "rt-jitter" => Self::Jitter,
            "rt-size" => Self::Size,
            "rt-transmission-time" => Self::Transmission,
            "rt-priority" | "flow_priority" => Self::Priority,
            "rt-bandwidth" => Self::Bandwidth,
            "rt-qos" => Self::Qos,
            "rt-strict" => Self::Strict,
            "rt-withdraw" => Self::Withdraw,
            "deadline" => Self::AuthorsDeadline,
            "min_bw" => Self::AuthorsMinimum,
            "max_bw" => Self::AuthorsMaximum,
            key if key.starts_with("rt-") => Self::Unknown,
            _ => return None,
        })
    }
}

#[derive(Debug, Default)]
struct Reader {
    found: Reading,
    /// Attributes follow whose topics cannot be read: they are for nobody.
    lost: bool,
    thrown_away: Requirements,
    authors_rates: AuthorsRates,
}

/// `min_bw` and `max_bw` come in any order, and together are what `rt-bandwidth` says at once. The first one alone is both ends.
#[derive(Debug, Default, Clone, Copy)]
struct AuthorsRates {
    minimum: Option<u64>,
    maximum: Option<u64>,
}

impl AuthorsRates {
    fn minimum(&mut self, range: &mut Option<(u64, u64)>, least: u64) -> Result<(), Why> {
        match (self.minimum, self.maximum, *range) {
            (None, Some(most), _) if most < least => return Err(Why::Backwards),
            (None, Some(most), _) => *range = Some((least, most)),
            (None, None, None) => *range = Some((least, least)),
            _ => return Err(Why::Twice),
        }
        self.minimum = Some(least);
        Ok(())
    }
    fn maximum(&mut self, range: &mut Option<(u64, u64)>, most: u64) -> Result<(), Why> {
        match (self.maximum, self.minimum, *range) {
            (None, Some(least), _) if most < least => return Err(Why::Backwards),
            (None, Some(least), _) => *range = Some((least, most)),
            (None, None, None) => *range = Some((most, most)),
            _ => return Err(Why::Twice),
        }
        self.maximum = Some(most);
        Ok(())
    }
}

impl Reader {
    fn problem(&mut self, key: &str, value: &str, why: Why) {
        if self.found.problems.len() < MOST_PROBLEMS {
            self.found.problems.push(Problem {
                key: cut(key),
                value: cut(value),
                why,
            });
        }
    }

    fn take(&mut self, attribute: Attribute, value: &str) -> Result<(), Why> {
        match attribute {
            Attribute::Version if value.trim() == VERSION.to_string() => return Ok(()),
            Attribute::Version => return Err(Why::Version),
            Attribute::Topic => return self.begin(value),
            Attribute::Unknown => return Err(Why::Unknown),
            _ => {}
        }
        let request = &mut self.found.request;
        let own = match request.topics.last_mut() {
            _ if self.lost => &mut self.thrown_away,
            Some((_, own)) => own,
            None => &mut request.all,
        };
        match attribute {
            Attribute::Deadline => set(&mut own.deadline_ns, quantity(&TIME, value, Rounding::Down)?),
            Attribute::AuthorsDeadline => set(
                &mut own.deadline_ns,
                authors(value, 1_000_000_000, Rounding::Down)?,
            ),
            Attribute::Period => set(&mut own.period_ns, quantity(&TIME, value, Rounding::Down)?),
            // None at all is a jitter, too.
            Attribute::Jitter => set(
                &mut own.jitter_ns,
                TIME.read(value, Rounding::Up).map_err(Why::Quantity)?,
            ),
            Attribute::Size => set(
                &mut own.size_bytes,
                SIZE.read(value, Rounding::Up).map_err(Why::Quantity)?,
            ),
            Attribute::Transmission => set(&mut own.transmission_ns, quantity(&TIME, value, Rounding::Up)?),
            Attribute::Priority => set(&mut own.priority, digit(value, 7, "0 to 7")?),
            Attribute::Bandwidth => set(&mut own.bandwidth_bps, range(value)?),
            Attribute::Qos => set(&mut own.qos, digit(value, 2, "0, 1 or 2")?),
            Attribute::Strict => set(&mut own.strict, truth(value)?),
            Attribute::Withdraw => set(&mut own.withdraw, truth(value)?),
            Attribute::AuthorsMinimum => {
                let least = authors(value, 1_000_000, Rounding::Up)?;
                self.authors_rates.minimum(&mut own.bandwidth_bps, least)
            }
            Attribute::AuthorsMaximum => {
                let most = authors(value, 1_000_000, Rounding::Up)?;
                self.authors_rates.maximum(&mut own.bandwidth_bps, most)
            }
            Attribute::Version | Attribute::Topic | Attribute::Unknown => Ok(()),
        }
    }

    fn begin(&mut self, filter: &str) -> Result<(), Why> {
        if self.found.request.topics.len() >= MOST_TOPICS {
            return Err(Why::TooMany);
        }
        self.authors_rates = AuthorsRates::default();
        self.lost = !topic::is_filter(filter);
        if self.lost {
            self.thrown_away = Requirements::default();
            return Err(Why::NoFilter);
        }
        let topics = &mut self.found.request.topics;
        topics.push((filter.to_owned(), Requirements::default()));
        Ok(())
    }
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), Why> {
    if place.is_some() {
        return Err(Why::Twice);
    }
    *place = Some(value);
    Ok(())
}

fn quantity(kind: &Kind, text: &str, rounding: Rounding) -> Result<u64, Why> {
    match kind.read(text, rounding) {
        Ok(0) => Err(Why::Zero),
        Ok(value) => Ok(value),
        Err(why) => Err(Why::Quantity(why)),
    }
}

/// A figure of the authors' interface: a bare number.
fn authors(text: &str, scale: u64, rounding: Rounding) -> Result<u64, Why> {
    match Kind::read_bare(text, scale, rounding) {
        Ok(0) => Err(Why::Zero),
        Ok(value) => Ok(value),
        Err(why) => Err(Why::Quantity(why)),
    }
}

/// `2 Mbit/s` or `1 Mbit/s..2 Mbit/s`.
fn range(text: &str) -> Result<(u64, u64), Why> {
    let Some((least, most)) = text.split_once("..") else {
        let rate = quantity(&RATE, text, Rounding::Up)?;
        return Ok((rate, rate));
    };
    let least = quantity(&RATE, least, Rounding::Up)?;
    let most = quantity(&RATE, most, Rounding::Up)?;
    if most < least {
        return Err(Why::Backwards);
    }
    Ok((least, most))
}

fn digit(text: &str, most: u8, these: &'static str) -> Result<u8, Why> {
    let value: u8 = text.trim().parse().map_err(|_| Why::NotOneOf(these))?;
    if value > most {
        return Err(Why::NotOneOf(these));
    }
    Ok(value)
}

fn truth(text: &str) -> Result<bool, Why> {
    match text.trim() {
        "yes" | "true" | "1" => Ok(true),
        "no" | "false" | "0" => Ok(false),
        _ => Err(Why::NotOneOf("yes or no")),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// User properties that say the same, each attribute with its shortest value.
#[must_use]
pub fn write(request: &Request) -> Vec<(String, String)> {
    let mut pairs = vec![("rt-version".to_owned(), VERSION.to_string())];
    write_one(&request.all, &mut pairs);
    for (filter, own) in &request.topics {
        pairs.push(("rt-topic".to_owned(), filter.clone()));
        write_one(own, &mut pairs);
    }
    pairs
}

fn write_one(own: &Requirements, pairs: &mut Vec<(String, String)>) {
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            pairs.push((key.to_owned(), value));
        }
    };
    let yes = |truth: bool| if truth { "yes" } else { "no" }.to_owned();
    add("rt-deadline", own.deadline_ns.map(|ns| TIME.write(ns)));
    add("rt-period", own.period_ns.map(|ns| TIME.write(ns)));
    add("rt-jitter", own.jitter_ns.map(|ns| TIME.write(ns)));
    add("rt-size", own.size_bytes.map(|bytes| SIZE.write(bytes)));
    add(
        "rt-transmission-time",
        own.transmission_ns.map(|ns| TIME.write(ns)),
    );
    add("rt-priority", own.priority.map(|class| class.to_string()));
    let range = |(least, most): (u64, u64)| match least == most {
        true => RATE.write(most),
        false => format!("{}..{}", RATE.write(least), RATE.write(most)),
    };
    add("rt-bandwidth", own.bandwidth_bps.map(range));
    add("rt-qos", own.qos.map(|qos| qos.to_string()));
    add("rt-strict", own.strict.map(yes));
    add("rt-withdraw", own.withdraw.map(yes));
}

#[cfg(test)]
mod tests;

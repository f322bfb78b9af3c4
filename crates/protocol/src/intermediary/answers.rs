//! What a client is told about its requests, as user properties of acknowledgements (docs/attributes.md).

use crate::intermediary::flow::{Flow, Input, State};
use timebound_model::Class;
use timebound_wire::quantity::TIME;

/// Topics that are named as sharing the connection.
const MOST_SHARED: usize = 16;
/// Bytes of a text from elsewhere.
const LONGEST: usize = 1_024;

/// The answer to one revision of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Granted {
        class: Class,
        /// ns; `None` where none is known.
        bound_ns: Option<u64>,
        /// For people; empty where it is granted as asked.
        reason: String,
        /// Other topics of the connection, which have its class too.
        shared_with: Vec<String>,
    },
    Refused {
        reason: String,
        /// Smallest deadline and smallest period that would be admitted, ns.
        offer_deadline_ns: Option<u64>,
        offer_period_ns: Option<u64>,
    },
    Unavailable {
        reason: String,
    },
}

impl Verdict {
    pub(crate) const fn input(&self) -> Input {
        match self {
            Self::Granted { .. } => Input::Grant,
            Self::Refused { .. } => Input::Refuse,
            Self::Unavailable { .. } => Input::Unavailable,
        }
    }
    pub(crate) fn class(&self) -> Option<u8> {
        match self {
            Self::Granted { class, .. } => Some(class.0),
            Self::Refused { .. } | Self::Unavailable { .. } => None,
        }
    }
}

/// User properties, key and value.
pub(crate) type Pairs = Vec<(String, String)>;

fn add(pairs: &mut Pairs, key: &str, value: &str) {
    let mut end = value.len().min(LONGEST);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    // No text of MQTT has a null character (1.5.4).
    pairs.push((key.to_owned(), value[..end].replace('\0', "")));
}

/// What there is to say about a request; `None`: it was given back.
pub(crate) fn say(flow: Option<&Flow>, control: bool, pairs: &mut Pairs) {
    let Some(flow) = flow.filter(|flow| flow.state != State::Withdrawn) else {
        add(pairs, "rt-granted", "no");
        return add(pairs, "rt-reason", "withdrawn");
    };
    let granted = flow.state == State::Granted;
    add(pairs, "rt-granted", if granted { "yes" } else { "no" });
    if matches!(flow.state, State::Asked | State::Late) {
        let why = if control {
            "no verdict in time"
        } else {
            "nobody decides at present"
        };
        return add(pairs, "rt-reason", &format!("unavailable: {why}"));
    }
    let Some(verdict) = &flow.verdict else {
        return;
    };
    let reason = match verdict {
        Verdict::Granted {
            class,
            bound_ns,
            reason,
            shared_with,
        } => {
            add(pairs, "rt-class", &class.0.to_string());
            if let Some(bound) = bound_ns {
                add(pairs, "rt-bound", &TIME.write(*bound));
            }
            for topic in shared_with.iter().take(MOST_SHARED) {
                add(pairs, "rt-shared-with", topic);
            }
            reason.clone()
        }
        Verdict::Refused { reason, .. } => reason.clone(),
        Verdict::Unavailable { reason } => format!("unavailable: {reason}"),
    };
    if !reason.is_empty() {
        add(pairs, "rt-reason", &reason);
    }
    if let Verdict::Refused {
        offer_deadline_ns,
        offer_period_ns,
        ..
    } = verdict
    {
        for (key, offer) in [
            ("rt-offer-deadline", offer_deadline_ns),
            ("rt-offer-period", offer_period_ns),
        ] {
            if let Some(ns) = offer {
                add(pairs, key, &TIME.write(*ns));
            }
        }
    }
}

/// Several requests of one packet, each behind its topic where there are more than one.
pub(crate) fn say_all<'f>(
    flows: impl ExactSizeIterator<Item = (&'f str, Option<&'f Flow>)>,
    control: bool,
    pairs: &mut Pairs,
) {
    let several = flows.len() > 1;
    for (topic, flow) in flows {
        if several {
            add(pairs, "rt-topic", topic);
        }
        say(flow, control, pairs);
    }
}

/// Attributes that could not be read.
pub(crate) fn complain(problems: &[String], pairs: &mut Pairs) {
    for problem in problems {
        add(pairs, "rt-problem", problem);
    }
}

/// A request that an acknowledgement is to speak of.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) number: u32,
    /// As the packet has it.
    pub(crate) topic: String,
    /// Of the filter in a SUBSCRIBE.
    pub(crate) place: usize,
}

/// What is to be said in an acknowledgement that the broker has yet to send.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending {
    pub(crate) about: Vec<About>,
    pub(crate) problems: Vec<String>,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.about.is_empty() && self.problems.is_empty()
    }
}

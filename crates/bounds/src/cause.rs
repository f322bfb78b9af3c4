//! Why a stream has no bound, and how that spreads.

use crate::demand::HORIZON;
use crate::layout::{Level, NONE};
use crate::result::{Outcome, Utilisation};
use crate::special::passes;
use timebound_model::{Arrival, Class, Discipline, Network, PortId, StreamId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unsupported,
    NoFiniteBound,
}

#[derive(Debug)]
pub(crate) struct Cause {
    kind: Kind,
    /// Where it lies.
    port: PortId,
    text: String,
    /// The cause that this one passes on.
    root: Option<u32>,
}

impl Cause {
    pub(crate) const fn new(kind: Kind, port: PortId, text: String) -> Self {
        Self {
            kind,
            port,
            text,
            root: None,
        }
    }
    pub(crate) fn into_text(self) -> String {
        self.text
    }
    pub(crate) fn outcome(&self) -> Outcome {
        match self.kind {
            Kind::Unsupported => Outcome::Unsupported {
                reason: self.text.clone(),
            },
            Kind::NoFiniteBound => Outcome::NoFiniteBound {
                port: self.port,
                reason: self.text.clone(),
            },
        }
    }
}

/// All causes of an analysis; ids are positions.
#[derive(Debug, Default)]
pub(crate) struct Causes(Vec<Cause>);

impl Causes {
    pub(crate) fn add(&mut self, cause: Cause) -> u32 {
        self.0.push(cause);
        // NONE is no valid id; so many ports cannot be compiled.
        (self.0.len() - 1).min(NONE as usize - 1) as u32
    }
    pub(crate) fn get(&self, id: u32) -> Option<&Cause> {
        self.0.get(id as usize)
    }
    pub(crate) fn text(&self, id: u32) -> Option<String> {
        self.get(id).map(|cause| cause.text.clone())
    }
    /// The cause for those who share `port` with the stream `rival`, whose own cause is `id`.
    pub(crate) fn spread(&mut self, id: u32, network: &Network, port: PortId, rival: &str) -> u32 {
        let root = self.0[id as usize].root.unwrap_or(id);
        let origin = &self.0[root as usize];
        let text = format!(
            "it shares port {} with stream {rival:?}, whose arrivals there have no bound: {}",
            network.port_name(port),
            origin.text
        );
        let (kind, port) = (origin.kind, origin.port);
        self.add(Cause {
            kind,
            port,
            text,
            root: Some(root),
        })
    }
}

/// Why frames that cross `port` leave it at times that the method cannot bound.
pub(crate) fn unanalysable(network: &Network, id: PortId) -> Option<Cause> {
    let port = &network.ports[id.index()];
    let shares = port.medium.is_some() && port.slots.is_none();
    let what = if shares && matches!(port.discipline, Discipline::Drr(_)) && !passes(network, port) {
        "serves its classes by deficit round robin on a half-duplex medium"
    } else if port.impairments.duplication > 0.0 {
        "duplicates frames"
    } else if port.trace.is_some() {
        "has a rate that follows a trace"
    } else if port.impairments.disconnections.is_some() {
        "is disconnected at random"
    } else if !port.impairments.outages.is_empty() {
        "is out of service at times"
    } else {
        return None;
    };
    Some(unsupported(network, id, what))
}

/// Why streams that cross `port` get no number although their arrivals behind it are bounded: frames can be missing there, never late.
pub(crate) fn incomplete(network: &Network, id: PortId) -> Option<Cause> {
    let port = &network.ports[id.index()];
    let what = if port.impairments.loss.is_some() {
        "loses frames"
    } else if port.impairments.corruption > 0.0 {
        "corrupts frames"
    } else {
        return None;
    };
    Some(unsupported(network, id, what))
}

fn unsupported(network: &Network, id: PortId, what: &str) -> Cause {
    let text = format!(
        "port {} {what}, which the analysis does not cover",
        network.port_name(id)
    );
    Cause::new(Kind::Unsupported, id, text)
}

/// Why there is no bound at `port`: a stream without a declared arrival decides about it.
pub(crate) fn undeclared(network: &Network, port: PortId, stream: StreamId) -> Cause {
    let stream = &network.streams[stream.index()];
    let text = format!(
        "stream {:?} has no declared arrival and crosses port {} with class {}",
        stream.name,
        network.port_name(port),
        stream.class.0
    );
    Cause::new(Kind::NoFiniteBound, port, text)
}

/// Why there is no bound behind `port`: its number does not fit.
pub(crate) fn endless(network: &Network, port: PortId) -> Cause {
    let text = format!(
        "delays behind port {} exceed what can be counted in nanoseconds",
        network.port_name(port)
    );
    Cause::new(Kind::NoFiniteBound, port, text)
}

/// The same at a weighted port, where only streams of the class itself decide; `None` where all of them declare their arrivals.
pub(crate) fn undeclared_in_class(network: &Network, port: PortId, class: Class) -> Option<Cause> {
    let found = network.streams.iter().position(|stream| {
        stream.class == class
            && matches!(stream.arrival, Arrival::Unbounded { .. })
            && stream.tree.hops.iter().any(|hop| hop.port == port)
    });
    found.map(|stream| undeclared(network, port, StreamId::new(stream)))
}

/// Why a level has no bound: what it surely gets is less than what it can need.
pub(crate) fn no_share(network: &Network, level: &Level) -> Cause {
    let port = &network.ports[level.port.index()];
    let (name, class) = (network.port_name(level.port), level.class.0);
    let text = match &port.discipline {
        Discipline::Drr(_) if port.slots.is_some() => {
            format!("class {class} can need more than its share of the slots of port {name}")
        }
        Discipline::Drr(_) => format!("class {class} can need more than its share of port {name}"),
        _ if port.slots.is_some() => {
            format!("the slots of port {name} are too few for class {class} and above")
        }
        _ => format!(
            "class {class} and above at port {name} can need more than the half-duplex medium leaves them, where every other \
             sender has a frame for each of theirs"
        ),
    };
    Cause::new(Kind::NoFiniteBound, level.port, text)
}

/// Why a level has no bound: its delays have no end in sight.
pub(crate) fn too_late(network: &Network, port: PortId) -> Cause {
    let text = format!(
        "delays at port {} exceed {} ns",
        network.port_name(port),
        HORIZON / network.per_nano()
    );
    Cause::new(Kind::NoFiniteBound, port, text)
}

/// Why a level has no bound: it and what is above it need the whole port or more.
pub(crate) fn overloaded(network: &Network, level: &Level, load: Utilisation) -> Cause {
    let scope = if level.is_lowest {
        String::new()
    } else {
        format!(" by class {} and above", level.class.0)
    };
    let text = format!(
        "utilisation {:.2} of port {}{scope} is 1 or more",
        load.value,
        network.port_name(level.port)
    );
    Cause::new(Kind::NoFiniteBound, level.port, text)
}

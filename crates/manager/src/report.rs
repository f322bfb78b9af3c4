//! What a connection's session tells, made into what the service is told.

use crate::contract::{Connection, Event, Requirements, Side};
use crate::stream::Stream;
use crate::worker::Worker;
use socket2::SockRef;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use timebound_protocol::intermediary::{self as protocol, Session, Verdict};
use timebound_wire::attributes;
use timebound_wire::mqtt::Version;
use timebound_wire::websocket::Violation;

/// Both ends of a client's connection, and who it is by its certificate.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    pub(crate) client: SocketAddr,
    pub(crate) manager: SocketAddr,
    pub(crate) certificate: Option<String>,
    /// Wall clock, ns since 1970.
    pub(crate) opened_ns: u64,
}

/// Tells what happens on one connection.
pub(crate) struct Reporter {
    worker: Rc<Worker>,
    number: u64,
    ends: Box<Ends>,
    /// Of the leg to the broker: local and remote.
    broker_leg: Option<(SocketAddr, SocketAddr)>,
    /// Requests that were told and are there.
    told: BTreeSet<u32>,
    was_told: bool,
    /// Verdicts that were made on the spot since somebody looked.
    decided: bool,
}

impl Reporter {
    pub(crate) fn new(worker: Rc<Worker>, number: u64, ends: Ends) -> Self {
        Self {
            worker,
            number,
            ends: Box::new(ends),
            broker_leg: None,
            told: BTreeSet::new(),
            was_told: false,
            decided: false,
        }
    }

    pub(crate) fn dialed(&mut self, local: SocketAddr, remote: SocketAddr) {
        // What does not leave the host crosses no network.
        self.broker_leg = (local.ip() != remote.ip()).then_some((local, remote));
    }

    fn id(&self) -> String {
        self.worker.id_of(self.number)
    }
    fn request_id(&self, number: u32) -> String {
        format!("{}.{number}", self.id())
    }

    /// Has the manager itself decided something that the session has yet to act on?
    pub(crate) fn has_decided(&mut self) -> bool {
        std::mem::take(&mut self.decided)
    }

    pub(crate) fn verdict(&self, session: &mut Session, number: u32, revision: u32, verdict: Verdict) {
        let which = match verdict {
            Verdict::Granted { .. } => 0,
            Verdict::Refused { .. } => 1,
            Verdict::Unavailable { .. } => 2,
        };
        if session.verdict(number, revision, verdict) {
            self.worker.counters.verdicts[which].add(1);
        }
    }

    /// Tells all that the session has to tell.
    pub(crate) fn report(&mut self, session: &mut Session, client: &Stream) {
        while let Some(event) = session.poll_event() {
            let counters = &self.worker.counters;
            match event {
                protocol::Event::Ask {
                    number,
                    revision,
                    side,
                    topic,
                    requirements,
                } => self.ask(session, number, revision, side, topic, &requirements),
                protocol::Event::Withdrawn { number } => self.withdrawn(number),
                protocol::Event::Problems(problems) => self.problems(session, problems),
                protocol::Event::Offence(offence) => {
                    counters.offended(offence);
                    self.offence(session, offence.to_string());
                }
                protocol::Event::Class(class) => mark(client, class),
                protocol::Event::Held => counters.held.add(1),
                protocol::Event::Released(end, time) => counters.released(end, time),
                protocol::Event::Refused { packet, dropped } => counters.refused(packet, dropped),
                protocol::Event::BrokenBroker => counters.broker_failures.add(1),
            }
        }
    }

    fn ask(
        &mut self,
        session: &mut Session,
        number: u32,
        revision: u32,
        side: protocol::Side,
        topic: String,
        requirements: &attributes::Requirements,
    ) {
        self.worker.counters.requests.add(1);
        let event = Event::Request {
            id: self.request_id(number),
            revision,
            connection: Box::new(self.connection(session)),
            side: match side {
                protocol::Side::Publish => Side::Publish,
                protocol::Side::Subscribe => Side::Subscribe,
            },
            topic,
            requirements: told(requirements),
        };
        if self.worker.queue.push(event) {
            self.was_told = true;
            if self.told.insert(number) {
                self.worker.counters.requests_now.add(1);
            }
            return;
        }
        self.worker.counters.events_lost.add(1);
        let reason = "the manager has too many requests waiting".to_owned();
        self.verdict(session, number, revision, Verdict::Unavailable { reason });
        self.decided = true;
    }

    fn withdrawn(&mut self, number: u32) {
        if self.told.remove(&number) {
            self.worker.counters.requests_now.subtract(1);
            let id = self.request_id(number);
            self.worker.queue.push(Event::Withdrawn { id });
        }
    }

    /// The client did against the standard of WebSocket what it may not do.
    pub(crate) fn violated(&self, session: &Session, violation: Violation) {
        self.worker.counters.violated(violation);
        let code = violation.code();
        self.offence(session, format!("WebSocket: {violation} (closed with {code})"));
    }

    fn problems(&self, session: &Session, problems: Vec<String>) {
        self.push(Event::Problems {
            connection: self.id(),
            client_id: client_id(session),
            client_address: plain(self.ends.client.ip()),
            user: user(session),
            problems,
        });
    }

    fn offence(&self, session: &Session, reason: String) {
        self.push(Event::Offence {
            client_id: client_id(session),
            client_address: plain(self.ends.client.ip()),
            user: user(session),
            reason,
        });
    }

    fn push(&self, event: Event) {
        if !self.worker.queue.push(event) {
            self.worker.counters.events_lost.add(1);
        }
    }

    /// Nothing more comes of this connection.
    pub(crate) fn closed(&self) {
        if self.was_told {
            self.worker.queue.push(Event::Closed {
                connection: self.id(),
            });
        }
    }

    fn connection(&self, session: &Session) -> Connection {
        let client = session.client();
        let ends = &self.ends;
        let pair = |(local, remote): (SocketAddr, SocketAddr)| {
            (plain(local.ip()), local.port(), plain(remote.ip()), remote.port())
        };
        Connection {
            id: self.id(),
            manager: self.worker.name.clone(),
            client_id: client_id(session),
            user: user(session),
            client_address: plain(ends.client.ip()),
            client_port: ends.client.port(),
            manager_address: plain(ends.manager.ip()),
            manager_port: ends.manager.port(),
            broker_leg: self.broker_leg.map(pair),
            opened_ns: ends.opened_ns,
            certificate: ends.certificate.clone(),
            mqtt: match client.map(|client| client.version) {
                Some(Version::V5) => 5,
                Some(Version::V3) | None => 3,
            },
        }
    }
}

/// IPv4 as such where a socket for both has it inside IPv6.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

fn client_id(session: &Session) -> String {
    session
        .client()
        .map(|client| client.id.clone())
        .unwrap_or_default()
}

fn user(session: &Session) -> Option<String> {
    session.client().and_then(|client| client.user.clone())
}

fn told(requirements: &attributes::Requirements) -> Requirements {
    Requirements {
        deadline_ns: requirements.deadline_ns,
        period_ns: requirements.period_ns,
        jitter_ns: requirements.jitter_ns,
        size_bytes: requirements.size_bytes,
        transmission_ns: requirements.transmission_ns,
        priority: requirements.priority,
        bandwidth_bps: requirements.bandwidth_bps,
        qos: requirements.qos,
        strict: requirements.strict == Some(true),
    }
}

/// Marks what goes to the client: class selector, DSCP = 8 * class (RFC 2474, section 4.2.2), in the upper six bits of the field. A network that needs
/// the mark sets it at its first switch, so a socket that refuses it is no reason to stop.
fn mark(client: &Stream, class: u8) {
    let socket = client.socket();
    let field = u32::from(class) << 5;
    let socket_ref = SockRef::from(socket);
    let marked = match socket.local_addr() {
        Ok(SocketAddr::V6(address)) if address.ip().to_ipv4_mapped().is_none() => {
            socket_ref.set_tclass_v6(field)
        }
        _ => socket_ref.set_tos_v4(field),
    };
    drop(marked);
}

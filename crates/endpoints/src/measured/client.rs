//! One MQTT client on its TCP connection: a [`Session`] with a socket, what to publish, what to count.

use super::Core;
use super::receiver::{Message, ReceiverState};
use super::source::{Outgoing, SourceState};
use crate::plan::MqttClient;
use crate::record::{FLAG_HELD, Kind, Record};
use crate::session::{Event, Session};
use crate::sockets::{is_pause, port_of};
use crate::sys::{Interest, Ready};
use crate::wire::next_packet;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Messages that wait for socket or broker at most; further ones are dropped and counted.
const MOST_PENDING: usize = 65_536;

/// Why a connection is of no more use.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) reason: String,
    /// May another attempt succeed (the broker is still starting), or did the broker refuse us?
    pub(super) transient: bool,
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Self {
        Self {
            reason: error.to_string(),
            transient: true,
        }
    }
}

impl From<String> for Broken {
    fn from(reason: String) -> Self {
        Self {
            reason,
            transient: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// No connection; a timer will open one.
    Down,
    /// SYN is sent.
    Connecting,
    /// CONNECT is sent.
    Handshake,
    Ready,
}

pub(super) struct Client<'p> {
    pub(super) plan: &'p MqttClient,
    pub(super) phase: Phase,
    /// Was it ever ready?
    pub(super) was_ready: bool,
    /// When the present attempt to connect has taken too long.
    pub(super) give_up_ns: i64,
    pub(super) source: Option<SourceState>,
    pub(super) receiver: Option<ReceiverState>,
    pub(super) local_port: u16,
    token: u64,
    qos: u8,
    connection: Option<(TcpStream, Session)>,
    /// The start of a packet whose end has not arrived.
    kept: Vec<u8>,
    /// What the socket did not take.
    unsent: Vec<u8>,
    /// Does epoll watch for room in the socket?
    waits_to_write: bool,
    pending: VecDeque<Outgoing>,
    last_write_ns: i64,
}

impl<'p> Client<'p> {
    pub(super) fn new(plan: &'p MqttClient, token: u64) -> Self {
        let (publication, subscription) = (plan.role.publication(), plan.role.subscription());
        let source = publication.map(|publication| {
            SourceState::new(publication.flow, publication.payload_bytes, &publication.release)
        });
        let receiver = subscription.map(|subscription| {
            let expected = std::iter::once(subscription.flow).chain(subscription.more_flows.iter().copied());
            let mut receiver = ReceiverState::new(subscription.receiver, expected);
            for short in &subscription.short {
                match short.own {
                    true => receiver.expect_own(short.flow, short.topic.as_bytes()),
                    false => receiver.expect_short(short.flow, short.topic.as_bytes(), short.payload_bytes),
                }
            }
            receiver
        });
        let qos = publication.map_or_else(Default::default, |publication| publication.qos);
        Self {
            plan,
            phase: Phase::Down,
            was_ready: false,
            give_up_ns: i64::MAX,
            source,
            receiver,
            local_port: plan.local_port,
            token,
            qos: qos.into(),
            connection: None,
            kept: Vec::new(),
            unsent: Vec::new(),
            waits_to_write: false,
            pending: VecDeque::new(),
            last_write_ns: 0,
        }
    }

    /// Takes a socket that is connecting.
    pub(super) fn connecting(&mut self, stream: TcpStream, core: &mut Core<'_>) -> Result<(), Broken> {
        self.phase = Phase::Connecting;
        core.epoll.add(&stream, Interest::ReadWrite, self.token)?;
        self.waits_to_write = true;
        self.kept.clear();
        self.unsent.clear();
        let session = Session::open(self.plan, &mut self.unsent)?;
        self.connection = Some((stream, session));
        Ok(())
    }

    /// Closes the connection and gives up what waited for it.
    pub(super) fn down(&mut self) {
        self.phase = Phase::Down;
        self.connection = None;
        if let Some(source) = &mut self.source {
            source.dropped += self.pending.len() as u64;
        }
        self.pending.clear();
    }

    /// Has everything that was released been sent and acknowledged?
    pub(super) fn is_settled(&self) -> bool {
        let unacknowledged = self
            .connection
            .as_ref()
            .map_or(0, |(_, session)| session.unacknowledged());
        self.unsent.is_empty() && self.pending.is_empty() && unacknowledged == 0
    }

    /// Does what the socket is ready for. True when the session has just become ready.
    pub(super) fn advance(&mut self, ready: Ready, core: &mut Core<'_>) -> Result<bool, Broken> {
        let Some((stream, _)) = &self.connection else {
            return Ok(false);
        };
        if ready.writable {
            if self.phase == Phase::Connecting {
                if let Some(error) = stream.take_error()? {
                    return Err(error.into());
                }
                self.phase = Phase::Handshake;
                self.local_port = port_of(stream.local_addr());
            }
            self.write_unsent(core)?;
            self.publish_pending(core)?;
        }
        let before = self.phase;
        if ready.readable && before != Phase::Connecting {
            self.read(core)?;
        }
        Ok(self.phase == Phase::Ready && before != Phase::Ready)
    }

    fn read(&mut self, core: &mut Core<'_>) -> Result<(), Broken> {
        loop {
            let Some((stream, session)) = &mut self.connection else {
                return Ok(());
            };
            let count = match stream.read(&mut core.scratch) {
                Ok(0) => {
                    return Err(Broken {
                        reason: "the broker closed the connection".to_owned(),
                        transient: true,
                    });
                }
                Ok(count) => count,
                Err(error) if is_pause(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let fresh = &core.scratch[..count];
            // Most reads are whole packets: only the remainder is ever copied.
            let bytes = if self.kept.is_empty() {
                fresh
            } else {
                self.kept.extend_from_slice(fresh);
                &self.kept[..]
            };
            let (source, receiver, clock) = (&mut self.source, &mut self.receiver, core.clock);
            let (recorder, phase, qos) = (&mut core.recorder, &mut self.phase, self.qos);
            let done = session.receive(bytes, &mut core.answers, |event| match event {
                Event::Ready => *phase = Phase::Ready,
                Event::Message {
                    qos,
                    duplicate,
                    topic,
                    payload,
                } => {
                    if let Some(receiver) = receiver {
                        let message = Message {
                            payload,
                            topic,
                            qos,
                            duplicate,
                            time_ns: clock.now_ns(),
                        };
                        receiver.message(&message, recorder);
                    }
                }
                Event::Acknowledged(message) => {
                    if let Some(source) = source {
                        source.acknowledged += 1;
                        let (sequence, nominal) = (message.sequence, message.nominal_ns);
                        recorder.push(&source.record(
                            Kind::Acknowledged,
                            qos,
                            sequence,
                            nominal,
                            clock.now_ns(),
                        ));
                    }
                }
            });
            let answered = self.answer(core);
            let done = done?;
            answered?;
            if self.kept.is_empty() {
                self.kept.extend_from_slice(&core.scratch[done..count]);
            } else {
                self.kept.drain(..done);
            }
            self.publish_pending(core)?;
            if count < core.scratch.len() {
                return Ok(());
            }
        }
    }

    /// Writes `core.answers`, each packet by itself: two in one segment, of a client that was held up, would make a frame larger than any
    /// that was declared.
    fn answer(&mut self, core: &mut Core<'_>) -> Result<(), Broken> {
        let mut answers = std::mem::take(&mut core.answers);
        let mut rest = &answers[..];
        while let Some(packet) = next_packet(rest)? {
            let (first, more) = rest.split_at(packet.bytes);
            self.unsent.extend_from_slice(first);
            self.write_unsent(core)?;
            rest = more;
        }
        answers.clear();
        core.answers = answers;
        Ok(())
    }

    fn write_unsent(&mut self, core: &mut Core<'_>) -> Result<(), Broken> {
        if self.phase == Phase::Connecting {
            return Ok(());
        }
        let Some((stream, _)) = &mut self.connection else {
            return Ok(());
        };
        let mut written = 0;
        while written < self.unsent.len() {
            match stream.write(&self.unsent[written..]) {
                Ok(count) => written += count,
                Err(error) if is_pause(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.unsent.drain(..written);
        if written > 0 {
            self.last_write_ns = core.clock.now_ns();
        }
        let waits = !self.unsent.is_empty();
        if waits != self.waits_to_write {
            self.waits_to_write = waits;
            let interest = if waits {
                Interest::ReadWrite
            } else {
                Interest::Read
            };
            core.epoll.change(stream, interest, self.token)?;
        }
        Ok(())
    }

    /// Publishes a message now, or as soon as socket and broker take it.
    pub(super) fn publish(&mut self, outgoing: Outgoing, core: &mut Core<'_>) -> Result<(), Broken> {
        let Some(source) = &mut self.source else {
            return Ok(());
        };
        // A client that has never been through yet is still joining: what it wants to say waits for it.
        let is_joining = !self.was_ready && self.plan.connect_at_ns.is_some();
        if (self.phase != Phase::Ready && !is_joining) || self.pending.len() >= MOST_PENDING {
            source.dropped += 1;
            return Ok(());
        }
        self.pending.push_back(outgoing);
        self.publish_pending(core)?;
        if let (Some(last), Some(source)) = (self.pending.back_mut(), &mut self.source) {
            last.held = true;
            source.deferred += 1;
        }
        Ok(())
    }

    fn publish_pending(&mut self, core: &mut Core<'_>) -> Result<(), Broken> {
        let (Some((stream, session)), Some(source)) = (&mut self.connection, &mut self.source) else {
            return Ok(());
        };
        while let (true, Some(outgoing)) = (self.unsent.is_empty(), self.pending.front().copied()) {
            let now_ns = core.clock.now_ns();
            let Some(frame) = session.publish(outgoing.sequence, outgoing.nominal_ns, now_ns) else {
                break;
            };
            let written = match stream.write(frame) {
                Ok(count) => count,
                Err(error) if is_pause(&error) => 0,
                Err(error) => return Err(error.into()),
            };
            if written < frame.len() {
                self.unsent.extend_from_slice(&frame[written..]);
                self.waits_to_write = true;
                core.epoll.change(stream, Interest::ReadWrite, self.token)?;
            }
            self.pending.pop_front();
            self.last_write_ns = now_ns;
            source.sent += 1;
            let Outgoing {
                sequence,
                nominal_ns,
                planned_ns,
                held,
            } = outgoing;
            let record = source.record(Kind::Sent, self.qos, sequence, nominal_ns, now_ns);
            let flags = if held { FLAG_HELD } else { 0 };
            core.recorder.push(&Record { flags, ..record });
            core.lateness
                .enter(u64::try_from(now_ns - planned_ns).unwrap_or(0));
        }
        Ok(())
    }

    /// Sends PINGREQ when nothing was sent for the keep-alive (section 3.1.2.10).
    pub(super) fn keep_alive(&mut self, now_ns: i64, core: &mut Core<'_>) -> Result<(), Broken> {
        let silence_ns = i64::from(self.plan.keep_alive_s) * 1_000_000_000;
        if self.phase != Phase::Ready || silence_ns == 0 || now_ns - self.last_write_ns < silence_ns {
            return Ok(());
        }
        if let Some((_, session)) = &mut self.connection {
            session.ping(&mut core.answers)?;
        }
        self.answer(core)
    }

    /// Says goodbye; the broker closes the connection then.
    pub(super) fn say_goodbye(&mut self, core: &mut Core<'_>) -> Result<(), Broken> {
        if let (Phase::Ready, Some((_, session))) = (self.phase, &self.connection) {
            session.close(&mut core.answers)?;
        }
        self.answer(core)
    }
}

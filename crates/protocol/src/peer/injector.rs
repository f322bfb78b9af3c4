//! A publishing client of MQTT 5 that hands the messages of other managers to the own broker.
//!
//! It keeps its session at the broker, so a message in flight is delivered once although the connection or (with records on disk, [`Record`])
//! this process ends. QoS 1 and 2 are handed over in order, as many at a time as the broker takes (Receive Maximum, 3.2.2.3.3).
//!
//! | a message | event | becomes |
//! |---|---|---|
//! | waits | room in the broker's window | `Published` |
//! | `Published`, QoS 1 | PUBACK | taken |
//! | `Published`, QoS 2 | PUBREC | `Released`, PUBREL sent |
//! | `Published` | connected again | `Published`, sent again (DUP where the broker has the session) |
//! | `Released` | PUBCOMP | taken |
//! | `Released` | connected again | `Released`, PUBREL again; taken where the broker has lost the session: it was the broker's (4.3.3) |
//! | `Published` | PUBACK or PUBREC with an error; more than the broker takes; [`MOST_STRIKES`] | refused |

use super::message::Message;
use super::{PeerId, StreamId};
use std::collections::{BTreeMap, VecDeque};
use thiserror::Error;
use timebound_wire::mqtt::{self, Ack, Greeting, Kind, Malformed, PINGREQ, Value};

/// Seconds of the broker's keep-alive timer.
pub const KEEP_ALIVE: u16 = 10;
/// Seconds for which the broker keeps the session of a client that is gone.
const SESSION: u32 = 24 * 3_600;
/// Bytes of QoS 0 that wait for the connection to take them; beyond, messages are dropped.
const MOST_LOOSE: usize = 4 << 20;
/// Connections that ended while a message was the only one in flight, before it is blamed for that.
const MOST_STRIKES: u8 = 5;
/// A broker that says why (malformed, protocol error, packet too large, topic name or payload format invalid) is believed sooner.
const BLAMED: [u8; 5] = [0x81, 0x82, 0x90, 0x95, 0x99];

/// Which message of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token {
    pub peer: PeerId,
    pub stream: StreamId,
    /// As in [`super::receiver::Effect::Deliver`].
    pub end: u64,
    /// 0: none.
    pub key: u64,
}

/// What has to be on disk before what is written next goes to the broker, so that a QoS 2 message is delivered once over the end of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// It has this packet identifier from now on.
    Published { packet: u16, token: Token },
    /// The broker has it.
    Released { packet: u16 },
    /// The identifier is free again; `delivered`: the broker has the message.
    Completed { packet: u16, delivered: bool },
}

/// What the owner has to do, in this order, and before it sends what is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Record(Record),
    /// The broker has confirmed it.
    Taken(Token),
    /// The broker does not want it (reason code), and it will not be offered again.
    Refused(Token, u8),
    /// Of QoS 0.
    Dropped,
}

/// Why the connection is of no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Ending {
    #[error("the broker refuses the connection with reason {0:#04x}")]
    Refused(u8),
    #[error("the broker disconnects with reason {0:#04x}")]
    Disconnected(u8),
    #[error("{0}")]
    Malformed(#[from] Malformed),
    #[error("the broker sends what it may not")]
    Protocol,
    /// The session of a former life is being thrown away.
    #[error("a session of before is ended")]
    Again,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Down,
    Greeting,
    Up,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Published,
    Released,
}

#[derive(Debug)]
struct Flight {
    packet: u16,
    /// `None`: of a former life of this process.
    token: Option<Token>,
    stage: Stage,
    qos: u8,
    bytes: Vec<u8>,
    /// On this connection?
    sent: bool,
}

/// The client.
#[derive(Debug)]
pub struct Injector {
    client_id: String,
    user: Option<String>,
    password: Option<String>,
    state: State,
    /// Is there a session of ours at the broker, as far as we know?
    resumes: bool,
    /// Is the one that is there to be thrown away? Not with the connection that is used: mosquitto 2.0 keeps no session over its own end if it
    /// began with Clean Start.
    discards: bool,
    /// Did the broker say so on this connection?
    has_session: bool,
    waiting: VecDeque<(Token, Vec<u8>)>,
    flight: VecDeque<Flight>,
    /// Identifiers that messages of a former life have at the broker, until they come again.
    reserved: BTreeMap<(PeerId, u64), u16>,
    last: u16,
    window: usize,
    most_bytes: usize,
    most_qos: u8,
    retains: bool,
    /// One message at a time, since connections end and nobody says which one is to blame.
    careful: bool,
    strikes: u8,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Injector {
    #[must_use]
    pub fn new(client_id: String, user: Option<String>, password: Option<String>) -> Self {
        Self {
            client_id,
            user,
            password,
            state: State::Down,
            resumes: false,
            discards: false,
            has_session: false,
            waiting: VecDeque::new(),
            flight: VecDeque::new(),
            reserved: BTreeMap::new(),
            last: 0,
            window: usize::from(u16::MAX),
            most_bytes: usize::MAX,
            most_qos: 2,
            retains: true,
            careful: false,
            strikes: 0,
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    /// A message of a former life was handed over with this identifier, and the broker had not said that it has it. It keeps it when it comes again.
    pub fn resume_published(&mut self, peer: PeerId, key: u64, packet: u16) {
        self.resumes = true;
        self.reserved.insert((peer, key), packet);
    }

    /// Of a former life: the broker has it, and has yet to be told to deliver it (PUBREL).
    pub fn resume_released(&mut self, packet: u16) {
        self.resumes = true;
        self.flight.push_back(Flight {
            packet,
            token: None,
            stage: Stage::Released,
            qos: 2,
            bytes: Vec::new(),
            sent: false,
        });
    }

    /// Does the broker take messages?
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Messages that are not confirmed.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.waiting.len() + self.flight.len()
    }

    /// What is to be written to the broker.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// There is a connection: the greeting is to be written.
    pub fn connected(&mut self) {
        self.input.clear();
        self.output.clear();
        self.state = State::Greeting;
        let greeting = Greeting {
            client_id: &self.client_id,
            clean: self.discards,
            keep_alive: KEEP_ALIVE,
            session_expiry: if self.discards { 0 } else { SESSION },
            user: self.user.as_deref(),
            password: self.password.as_deref(),
        };
        self.output.extend(greeting.packet().unwrap_or_default());
    }

    /// The connection is gone, for this reason where there is one.
    pub fn disconnected(&mut self, why: Option<Ending>, effects: &mut Vec<Effect>) {
        let was_up = self.state == State::Up;
        self.state = State::Down;
        self.output.clear();
        if !was_up || self.flight.is_empty() {
            return;
        }
        let blamed = matches!(why, Some(Ending::Disconnected(reason)) if BLAMED.contains(&reason));
        let alone = self.careful && self.flight.iter().filter(|flight| flight.sent).count() == 1;
        self.strikes = match (alone, blamed) {
            (true, true) => MOST_STRIKES,
            (true, false) => self.strikes + 1,
            (false, _) => 0,
        };
        self.careful = true;
        let first = self.flight.front().map(|flight| flight.stage);
        if self.strikes >= MOST_STRIKES
            && first == Some(Stage::Published)
            && let Some(flight) = self.flight.pop_front()
        {
            let reason = match why {
                Some(Ending::Disconnected(reason)) => reason,
                _ => 0x80,
            };
            self.strikes = 0;
            self.refuse(&flight, reason, effects);
        }
    }

    /// Something is to be written now and then, so that the broker (and we) know that the other is there.
    pub fn ping(&mut self) {
        if self.state == State::Up {
            self.output.extend(PINGREQ);
        }
    }

    /// Hands over a message; what becomes of it is an effect, sooner or later.
    pub fn deliver(&mut self, token: Token, message: Vec<u8>, effects: &mut Vec<Effect>) {
        self.waiting.push_back((token, message));
        self.fill(effects);
    }

    /// Hands over a message with QoS 0, if the broker can be reached.
    pub fn pass(&mut self, message: &[u8], effects: &mut Vec<Effect>) {
        let retains = self.retains;
        let packet = Message::read(message)
            .ok()
            .and_then(|message| message.packet(0, message.retain() && retains, 0))
            .filter(|packet| packet.len() <= self.most_bytes);
        match packet {
            Some(packet) if self.is_up() && self.output.len() < MOST_LOOSE => self.output.extend(packet),
            _ => effects.push(Effect::Dropped),
        }
    }

    /// As much as fits the broker's window.
    fn fill(&mut self, effects: &mut Vec<Effect>) {
        let window = if self.careful { 1 } else { self.window };
        while self.is_up() && self.flight.len() < window {
            let Some((token, bytes)) = self.waiting.pop_front() else {
                return;
            };
            let reserved = self.reserved.remove(&(token.peer, token.key));
            let packet = reserved.unwrap_or_else(|| self.free());
            let read = Message::read(&bytes).ok();
            let qos = read.map_or(0, |message| message.qos().min(self.most_qos));
            let retains = self.retains;
            let whole = read
                .and_then(|message| message.packet(qos, message.retain() && retains, packet))
                .filter(|whole| whole.len() <= self.most_bytes);
            let Some(whole) = whole else {
                effects.push(Effect::Refused(token, 0x95));
                continue;
            };
            if qos == 0 {
                // The broker takes no more than that.
                self.output.extend(whole);
                effects.push(Effect::Taken(token));
                continue;
            }
            if qos == 2 {
                effects.push(Effect::Record(Record::Published { packet, token }));
            }
            let at = self.output.len();
            self.output.extend_from_slice(&whole);
            self.output[at] |= if reserved.is_some() { 8 } else { 0 };
            self.flight.push_back(Flight {
                packet,
                token: Some(token),
                stage: Stage::Published,
                qos,
                bytes: whole,
                sent: true,
            });
        }
    }

    /// A packet identifier that nothing has (2.2.1); the window leaves one.
    fn free(&mut self) -> u16 {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            let taken = self.flight.iter().any(|flight| flight.packet == self.last)
                || self.reserved.values().any(|packet| *packet == self.last);
            if !taken {
                return self.last;
            }
        }
    }

    fn refuse(&mut self, flight: &Flight, reason: u8, effects: &mut Vec<Effect>) {
        if flight.qos == 2 {
            let (packet, delivered) = (flight.packet, false);
            effects.push(Effect::Record(Record::Completed { packet, delivered }));
        }
        effects.extend(flight.token.map(|token| Effect::Refused(token, reason)));
    }

    fn complete(&mut self, flight: &Flight, effects: &mut Vec<Effect>) {
        if flight.qos == 2 {
            let (packet, delivered) = (flight.packet, true);
            effects.push(Effect::Record(Record::Completed { packet, delivered }));
        }
        effects.extend(flight.token.map(Effect::Taken));
        (self.careful, self.strikes) = (false, 0);
    }

    /// The broker says something.
    ///
    /// # Errors
    /// The connection is to be ended ([`Self::disconnected`]).
    pub fn bytes(&mut self, bytes: &[u8], effects: &mut Vec<Effect>) -> Result<(), Ending> {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let Some((head, body)) = mqtt::next(rest)? {
            self.packet(&head, body, effects)?;
            rest = &rest[head.whole()..];
        }
        self.input = rest.to_vec();
        self.send_again();
        self.fill(effects);
        Ok(())
    }

    fn packet(&mut self, head: &mqtt::Head, body: &[u8], effects: &mut Vec<Effect>) -> Result<(), Ending> {
        match (head.kind, self.state) {
            (Kind::Connack, State::Greeting) => self.greeted(&Ack::read(head, body)?, effects),
            (Kind::Puback | Kind::Pubrec | Kind::Pubcomp, State::Up) => {
                self.acknowledged(head.kind, &Ack::read(head, body)?, effects);
                Ok(())
            }
            (Kind::Pingresp, State::Up) => Ok(()),
            (Kind::Disconnect, _) => Err(Ending::Disconnected(Ack::read(head, body)?.reason)),
            _ => Err(Ending::Protocol),
        }
    }

    fn greeted(&mut self, ack: &Ack<'_>, effects: &mut Vec<Effect>) -> Result<(), Ending> {
        if ack.reason >= 0x80 {
            return Err(Ending::Refused(ack.reason));
        }
        let has_session = ack.packet & 1 == 1;
        if self.discards || (has_session && !self.resumes) {
            // What it has in flight is nothing that we know of, and would be taken for what we send.
            self.discards = !self.discards;
            return Err(Ending::Again);
        }
        (self.window, self.most_bytes) = (usize::from(u16::MAX - 1), usize::MAX);
        (self.most_qos, self.retains) = (2, true);
        for property in ack.properties.iter() {
            match (property.id, property.value) {
                (0x21, Value::Two(most)) => self.window = usize::from(most.clamp(1, u16::MAX - 1)),
                (0x24, Value::Byte(most)) => self.most_qos = most,
                (0x25, Value::Byte(available)) => self.retains = available != 0,
                (0x27, Value::Four(most)) => self.most_bytes = most as usize,
                _ => {}
            }
        }
        self.state = State::Up;
        self.resumes = true;
        if !has_session {
            self.reserved.clear();
        }
        for mut flight in std::mem::take(&mut self.flight) {
            flight.sent = false;
            if flight.stage == Stage::Released && !has_session {
                self.complete(&flight, effects);
            } else {
                self.flight.push_back(flight);
            }
        }
        self.has_session = has_session;
        self.send_again();
        Ok(())
    }

    /// What was in flight on the connection before, in its order (4.4); one at a time while one of them may be to blame for its end.
    fn send_again(&mut self) {
        let careful = self.careful;
        let mut is_busy = false;
        for flight in self.flight.iter_mut().filter(|_| self.state == State::Up) {
            is_busy |= flight.sent;
            if flight.sent || (careful && is_busy) {
                continue;
            }
            (flight.sent, is_busy) = (true, true);
            match flight.stage {
                Stage::Released => self.output.extend(mqtt::release(flight.packet)),
                Stage::Published => {
                    let at = self.output.len();
                    self.output.extend_from_slice(&flight.bytes);
                    self.output[at] |= if self.has_session { 8 } else { 0 };
                }
            }
        }
    }

    fn acknowledged(&mut self, kind: Kind, ack: &Ack<'_>, effects: &mut Vec<Effect>) {
        let place = self.flight.iter().position(|flight| flight.packet == ack.packet);
        let Some(place) = place else {
            // Of a message that was given up: it ends so (4.3.3).
            if kind == Kind::Pubrec && ack.reason < 0x80 {
                self.output.extend(mqtt::release(ack.packet));
            }
            return;
        };
        let flight = &mut self.flight[place];
        let ends = match (kind, flight.qos, flight.stage) {
            (Kind::Puback, 1, Stage::Published) => true,
            (Kind::Pubrec, 2, Stage::Published) if ack.reason < 0x80 => {
                flight.stage = Stage::Released;
                flight.bytes = Vec::new();
                let packet = ack.packet;
                effects.push(Effect::Record(Record::Released { packet }));
                self.output.extend(mqtt::release(packet));
                false
            }
            (Kind::Pubrec, 2, Stage::Published) | (Kind::Pubcomp, 2, Stage::Released) => true,
            (Kind::Pubrec, 2, Stage::Released) => {
                self.output.extend(mqtt::release(ack.packet));
                false
            }
            _ => false,
        };
        if !ends {
            return;
        }
        if let Some(flight) = self.flight.remove(place) {
            // What the broker has said it has is not refused any more: an unknown identifier is that of a broker that lost it.
            if ack.reason >= 0x80 && kind != Kind::Pubcomp {
                self.refuse(&flight, ack.reason, effects);
                (self.careful, self.strikes) = (false, 0);
            } else {
                self.complete(&flight, effects);
            }
        }
    }
}

#[cfg(test)]
mod tests;

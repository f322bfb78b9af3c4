//! The bytes of a direction as MQTT packets.

use super::{Direction, Leaving, Own, OwnEnd, PLACED, Placed, Side, Unread};
use crate::plan::OwnRole;
use timebound_wire::mqtt::{Connect, Head, Kind, Malformed, Publish, PublishHeader, Subscribe, Version};

/// Longest part of a packet that is kept until it says what it is: a PUBLISH with the longest topic and properties that go with it.
const LONGEST_HEAD: usize = 140_000;
/// First byte of a TLS record with a handshake (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

impl Own {
    /// Reads what is new of a segment; the type of the first packet that begins in it.
    pub(super) fn read(&mut self, side: Side, sequence: u32, payload: &[u8]) -> Option<Kind> {
        let way = self.way(side);
        if way.is_encrypted {
            return None;
        }
        let ahead = if way.started {
            sequence.wrapping_sub(way.next).cast_signed()
        } else {
            0
        };
        let known = usize::try_from(-i64::from(ahead)).unwrap_or(0);
        let fresh = payload.get(known..).filter(|fresh| !fresh.is_empty())?;
        if ahead > 0 || !way.started {
            // Bytes are missing: senders write whole packets, so the next one begins with this segment.
            (way.rest, way.in_step) = (0, false);
            way.head.clear();
        }
        let start = sequence.wrapping_add(known as u32);
        let is_first = !way.started || way.next == start && way.placed.is_empty() && way.head.is_empty();
        (way.started, way.next) = (true, start.wrapping_add(fresh.len() as u32));
        if way.is_lost {
            self.note_unread(side, fresh.len());
            return None;
        }
        let skipped = way.rest.min(fresh.len());
        way.rest -= skipped;
        let fresh = &fresh[skipped..];
        let mut bytes = std::mem::take(&mut way.head);
        let begun = bytes.len();
        bytes.extend_from_slice(fresh);
        let at = start.wrapping_add(skipped as u32).wrapping_sub(begun as u32);
        if is_first && bytes.first() == Some(&TLS_HANDSHAKE) {
            self.note_encrypted(side);
            return None;
        }
        let (done, first) = self.packets(side, at, &bytes);
        match done {
            Ok(done) if bytes.len() - done <= LONGEST_HEAD => {
                bytes.drain(..done);
                self.way(side).head = bytes;
            }
            Ok(done) | Err(done) => self.note_unread(side, bytes.len() - done),
        }
        first
    }

    /// These bytes are none of MQTT. A receiver that has read all before closes the connection (MQTT 5.0, section 4.13), so nothing behind them is a message; where
    /// we have missed some, another packet may begin with the next segment.
    fn note_unread(&mut self, side: Side, bytes: usize) {
        let now = self.now_ns;
        let way = self.way(side);
        way.is_lost = way.in_step;
        let unread = way.unread.get_or_insert(Unread {
            bytes: 0,
            first_ns: now,
            last_ns: now,
        });
        unread.bytes += bytes as u64;
        unread.last_ns = now;
    }

    fn note_encrypted(&mut self, side: Side) {
        let way = self.way(side);
        way.is_encrypted = true;
        let set = way.set;
        for entry in self.sets[set]
            .iter()
            .filter(|entry| entry.plan.role != OwnRole::Answers)
        {
            if let Some(flow) = self.flows.get_mut(&entry.plan.flow) {
                flow.told.encrypted += 1;
            }
        }
    }

    /// Takes the packets at the start of `bytes` that say what they are: how many bytes are done with (an error where what follows them is no packet), and the
    /// first one's type.
    fn packets(&mut self, side: Side, start: u32, bytes: &[u8]) -> (Result<usize, usize>, Option<Kind>) {
        let (mut done, mut first) = (0, None);
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let head = match Head::read(rest) {
                Ok(Some(head)) => head,
                Ok(None) => return (Ok(done), first),
                Err(_) => return (Err(done), first),
            };
            let body = &rest[head.length..rest.len().min(head.whole())];
            match self.packet(side, start.wrapping_add(done as u32), &head, body) {
                Ok(true) => {}
                Ok(false) => return (Ok(done), first),
                Err(_) => return (Err(done), first),
            }
            first = first.or(Some(head.kind));
            self.way(side).is_open = true;
            done += head.whole().min(rest.len());
            self.way(side).rest = head.whole().saturating_sub(rest.len());
        }
        (Ok(done), first)
    }

    /// Takes what there is to know of a packet; false where too little of it has come.
    fn packet(&mut self, side: Side, start: u32, head: &Head, body: &[u8]) -> Result<bool, Malformed> {
        let version = self.version(side);
        self.check(side, head, version)?;
        match head.kind {
            Kind::Connect => {
                if body.len() < head.rest {
                    return Ok(false);
                }
                let version = version_of(body)?;
                self.connections[side.connection as usize].version5 = Some(version == Version::V5);
            }
            Kind::Suback => self.subscribed(side),
            Kind::Puback | Kind::Pubrec | Kind::Pubcomp => {
                return self.acknowledged(side, head, body, version);
            }
            Kind::Disconnect => {
                self.note_left(side, Leaving::Disconnected);
                self.end_held(side);
            }
            Kind::Unsubscribe => {
                if body.len() < head.rest {
                    return Ok(false);
                }
                self.unsubscribed(side, &Subscribe::read(head, body, version)?);
            }
            Kind::Publish => {
                let Some(measured) = PublishHeader::measure(head, body, version)? else {
                    return Ok(false);
                };
                if body.len() < measured.length {
                    return Ok(false);
                }
                self.publish(side, start, head, measured.length, body, version)?;
            }
            _ => {}
        }
        Ok(true)
    }

    fn version(&self, side: Side) -> Version {
        let connection = &self.connections[side.connection as usize];
        let way = &connection.ways[usize::from(side.is_second)];
        let declared = || {
            self.sets[way.set]
                .first()
                .is_some_and(|entry| entry.plan.version5)
        };
        if connection.version5.unwrap_or_else(declared) {
            Version::V5
        } else {
            Version::V3
        }
    }

    /// Can this packet be here? What is not MQTT often begins like some packet (MQTT 3.1.1 and 5.0, sections 3 and 4.8, 4.13).
    fn check(&self, side: Side, head: &Head, version: Version) -> Result<(), Malformed> {
        let way = &self.connections[side.connection as usize].ways[usize::from(side.is_second)];
        let opens = matches!(head.kind, Kind::Connect | Kind::Connack | Kind::Auth);
        if way.in_step && !way.is_open && !opens {
            return Err(Malformed::Value);
        }
        let fits = match (head.kind, version) {
            (Kind::Pingreq | Kind::Pingresp, _) => head.rest == 0,
            (Kind::Disconnect, Version::V3) => head.rest == 0,
            (Kind::Auth, Version::V3) => false,
            (Kind::Connack | Kind::Puback | Kind::Pubrec | Kind::Pubrel | Kind::Pubcomp, Version::V3) => {
                head.rest == 2
            }
            (Kind::Disconnect | Kind::Auth, Version::V5) => true,
            _ => head.rest >= 2,
        };
        fits.then_some(()).ok_or(Malformed::Value)
    }

    /// What was sent before is not for this subscriber, or comes as a retained message.
    fn subscribed(&mut self, side: Side) {
        let set = self.way(side).set;
        for (position, entry) in self.sets[set].iter().enumerate() {
            let published = self
                .flows
                .get(&entry.plan.flow)
                .map_or(0, |flow| flow.told.published);
            let way = &mut self.connections[side.connection as usize].ways[usize::from(side.is_second)];
            way.due[position] = way.due[position].max(published);
        }
    }

    /// A subscriber names the topics as it did when it subscribed.
    fn unsubscribed(&mut self, side: Side, asked: &Subscribe<'_>) {
        let set = self.way(side.other()).set;
        let named = |entry: &&super::Entry| {
            entry.plan.role != OwnRole::Answers
                && asked
                    .filters
                    .iter()
                    .any(|(filter, _)| entry.plan.topic.as_deref() == Some(filter))
        };
        let flows = self.sets[set]
            .iter()
            .filter(named)
            .map(|entry| entry.plan.flow)
            .collect();
        self.write_left(side, Leaving::Unsubscribed, flows);
    }

    /// `length`: bytes of the body before the payload.
    fn publish(
        &mut self,
        side: Side,
        start: u32,
        head: &Head,
        length: usize,
        body: &[u8],
        version: Version,
    ) -> Result<(), Malformed> {
        let publish = Publish::read(head, &body[..length], version)?;
        let Some(position) = self.entry_of(side, &publish)? else {
            return Ok(());
        };
        self.count(side, position, publish.qos);
        let (payload_bytes, shown) = (head.rest - length, &body[length..]);
        let number = self.number(side, position, publish.retain, payload_bytes, shown);
        self.expect(side, position, &publish, number);
        let way = self.way(side);
        if way.placed.len() == PLACED {
            way.placed.pop_front();
        }
        way.last = Some(position);
        way.placed.push_back(Placed {
            start,
            end: start.wrapping_add(head.whole() as u32),
            entry: position,
            number,
        });
        Ok(())
    }

    /// Which entry has the topic of a message, by name or by alias (MQTT 5.0, section 3.3.2.3.4).
    fn entry_of(&mut self, side: Side, publish: &Publish<'_>) -> Result<Option<usize>, Malformed> {
        let Direction { set, ref aliases, .. } = *self.way(side);
        if publish.topic.is_empty() {
            let alias = publish.alias().and_then(|alias| aliases.get(&alias));
            return alias.copied().ok_or(Malformed::Value);
        }
        let position = self.sets[set].iter().position(|entry| {
            entry.plan.role != OwnRole::Answers && entry.plan.topic.as_deref() == Some(publish.topic)
        });
        if let Some(alias) = publish.alias() {
            self.way(side).aliases.insert(alias, position);
        }
        Ok(position)
    }

    fn count(&mut self, side: Side, position: usize, qos: u8) {
        let flow = self.flow_at(side, position);
        self.connections[side.connection as usize].flows.extend(flow);
        if let Some(end) = self.end(side, position) {
            end.qos[usize::from(qos)] += 1;
        }
    }

    /// A message that bears no number of its publisher: did the broker keep it from before?
    pub(super) fn note_retained(&mut self, side: Side, position: usize, is_retained: bool) {
        if let Some(end) = self.end(side, position) {
            end.retained += u32::from(is_retained);
        }
    }

    fn flow_at(&mut self, side: Side, position: usize) -> Option<u32> {
        let set = self.way(side).set;
        self.sets[set].get(position).map(|entry| entry.plan.flow)
    }

    fn end(&mut self, side: Side, position: usize) -> Option<&mut OwnEnd> {
        let flow = self.flow_at(side, position)?;
        let key = self.connections[side.connection as usize].key(side);
        let place = (flow, key.source, key.destination);
        Some(self.ends.entry(place).or_insert(OwnEnd {
            flow,
            source: key.source.into(),
            destination: key.destination.into(),
            qos: [0; 3],
            retained: 0,
        }))
    }
}

/// The version that a CONNECT asks for. Bridges of mosquitto set the highest bit of the level, and brokers know them by it.
fn version_of(connect: &[u8]) -> Result<Version, Malformed> {
    let mut connect = connect.to_vec();
    let level = match connect[..] {
        [high, low, ..] => 2 + usize::from(u16::from_be_bytes([high, low])),
        _ => return Err(Malformed::Short),
    };
    *connect.get_mut(level).ok_or(Malformed::Short)? &= 0x7f;
    Ok(Connect::read(&connect)?.version)
}

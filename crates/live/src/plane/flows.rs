//! What is known about each 5-tuple: its declared streams, its place in the TCP stream, and what it sent undeclared.

use super::own::{Entry, Own, OwnReport, Side, Told};
use super::packet::{Ipv4, Key, TCP, UDP};
use super::short::{self, Found};
use crate::failure::Failure;
use crate::plan::{HeaderPlan, MarkerPlan, Protocol, ShortPlan};
use crate::records::{CONTINUED, NO_PAYLOAD, RETRANSMISSION, SEQUENCED};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use timebound_fabric::NO_STREAM;
use timebound_model::{Network, StreamId};

/// Magic of the measurement header (see [`HeaderPlan`]).
pub(crate) const MAGIC: u32 = 0x5442_4e44;
/// Bytes of the measurement header.
const HEADER: usize = 16;
/// 5-tuples that are told apart; further ones share one line of the report.
const MOST_FLOWS: usize = 1 << 16;
/// How far into a segment a header is searched for when its place is not known.
const SEARCH: usize = 256;

/// Multiply-and-rotate hash for keys of a few integers (the keys are chosen by the plan, not by an adversary).
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }
    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type Table<V> = HashMap<Key, V, BuildHasherDefault<KeyHasher>>;

#[derive(Debug, Clone, Copy)]
struct Marker {
    data: u32,
    ack: u32,
    rewrite_dscp: bool,
    header: Option<Place>,
    /// Position in [`Flows::short`].
    short: Option<u32>,
    /// Set of markers of a program that is not ours.
    own: Option<u32>,
}

/// Where headers stand in messages, and how long these are.
#[derive(Debug, Clone, Copy)]
struct Place {
    payload_offset: u32,
    message_bytes: u32,
}

impl From<&HeaderPlan> for Place {
    fn from(plan: &HeaderPlan) -> Self {
        Self {
            payload_offset: plan.payload_offset,
            message_bytes: plan.message_bytes,
        }
    }
}

/// Where one TCP direction stands.
#[derive(Debug, Clone, Copy, Default)]
struct TcpState {
    started: bool,
    /// Sequence number behind the last byte seen.
    next: u32,
    /// Sequence number at which the measurement header of the next message starts, once a message has been recognised.
    header: Option<u32>,
    /// What has come of that header, where the border of a segment cuts it.
    cut: CutHeader,
    /// The message that began last.
    current: Option<(u32, u32)>,
}

/// First bytes of a measurement header whose rest is in the next segment.
#[derive(Debug, Clone, Copy, Default)]
struct CutHeader {
    bytes: [u8; HEADER],
    seen: usize,
}

#[derive(Debug, Clone, Copy)]
struct Flow {
    marker: Option<Marker>,
    tcp: TcpState,
    undeclared: Undeclared,
    retransmissions: u64,
    /// Position in [`Flows::followed`].
    short: Option<u32>,
    own: Option<Side>,
}

/// Undeclared frames of one 5-tuple.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Undeclared {
    pub(crate) frames: u64,
    pub(crate) wire_bytes: u64,
    pub(crate) largest: u32,
}

/// What the table says about one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// [`NO_STREAM`] if undeclared.
    pub(crate) stream: u32,
    pub(crate) rewrite_dscp: bool,
    pub(crate) flags: u16,
    pub(crate) flow: u32,
    pub(crate) sequence: u32,
    /// Messages that begin in the frame.
    pub(crate) messages: u32,
}

/// One line of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowReport {
    pub(crate) key: Key,
    pub(crate) undeclared: Undeclared,
    pub(crate) retransmissions: u64,
}

/// The table.
pub(crate) struct Flows {
    exact: Table<Marker>,
    /// Markers with a null port; the port is 0 in the key.
    any: Table<Marker>,
    flows: Table<Flow>,
    overflow: Flow,
    /// Of the markers of messages without room for a header.
    short: Vec<Vec<ShortPlan>>,
    /// Those 5-tuples that have come by, with the position of their marker there.
    followed: Vec<(u32, short::Messages)>,
    own: Own,
}

impl Flows {
    /// A table of the plan's markers.
    ///
    /// # Errors
    /// A marker that names an unknown stream, or two for one 5-tuple.
    pub(crate) fn new(markers: &[MarkerPlan], network: &Network) -> Result<Self, Failure> {
        let (mut exact, mut any) = (Table::<Marker>::default(), Table::<Marker>::default());
        let ids: HashMap<&str, u32> = network
            .streams
            .iter()
            .enumerate()
            .map(|(index, s)| (s.name.as_str(), StreamId::new(index).0))
            .collect();
        let (mut short, mut own) = (Vec::new(), Own::default());
        for (index, plan) in markers.iter().enumerate() {
            let bad = |why: String| Failure::internal(format!("plan: markers[{index}]"), why);
            let stream = |name: &Option<String>| match name {
                None => Ok(NO_STREAM),
                Some(name) => ids
                    .get(name.as_str())
                    .copied()
                    .ok_or_else(|| bad(format!("no stream {name:?}"))),
            };
            let shorts = plan.header.as_ref().map_or(&[][..], |header| &header.short);
            let position = (!shorts.is_empty()).then(|| {
                short.push(shorts.to_vec());
                short.len() as u32 - 1
            });
            let mut marker = Marker {
                data: stream(&plan.data)?,
                ack: stream(&plan.ack)?,
                rewrite_dscp: plan.rewrite_dscp,
                header: plan.header.as_ref().map(Place::from),
                short: position,
                own: None,
            };
            if position.is_none()
                && marker
                    .header
                    .is_some_and(|header| header.message_bytes < header.payload_offset.saturating_add(16))
            {
                return Err(bad("a message too small for its header".to_owned()));
            }
            let is_icmp = plan.protocol == Protocol::Icmp;
            let is_exact = is_icmp || (plan.source_port.is_some() && plan.destination_port.is_some());
            let table = if is_exact { &mut exact } else { &mut any };
            let there = table.get(&key(plan)).and_then(|marker| marker.own);
            marker.own = plan.own.clone().map(|plan| {
                own.add(
                    there,
                    Entry {
                        plan,
                        data: marker.data,
                        ack: marker.ack,
                    },
                )
            });
            if table.insert(key(plan), marker).is_some() && (there.is_none() || marker.own.is_none()) {
                return Err(bad("two markers for one 5-tuple".to_owned()));
            }
        }
        Ok(Self {
            exact,
            any,
            flows: Table::with_capacity_and_hasher(MOST_FLOWS, BuildHasherDefault::default()),
            overflow: fresh(None),
            short,
            followed: Vec::new(),
            own,
        })
    }

    /// Judges a frame of `wire` bytes that was at its first port at `now_ns` (run time) and keeps the books.
    pub(crate) fn judge(&mut self, packet: &Ipv4<'_>, wire: u32, now_ns: u64) -> Judgement {
        if !self.flows.contains_key(&packet.key) && self.flows.len() < MOST_FLOWS {
            let marker = self.marker(packet.key);
            let mut flow = fresh(marker);
            if let Some(position) = marker.and_then(|marker| marker.short) {
                let before = self.followed.iter().rfind(|(of, _)| *of == position);
                let messages = before.map_or_else(
                    || short::Messages::new(&self.short[position as usize]),
                    |(_, messages)| short::Messages::after(messages),
                );
                self.followed.push((position, messages));
                flow.short = Some(self.followed.len() as u32 - 1);
            }
            if let Some(set) = marker.and_then(|marker| marker.own) {
                let back = self.flows.get(&packet.key.reversed()).and_then(|flow| flow.own);
                flow.own = Some(self.own.open(set, packet.key, back));
            }
            self.flows.insert(packet.key, flow);
        }
        let flow = self.flows.get_mut(&packet.key).unwrap_or(&mut self.overflow);
        let short = flow
            .short
            .and_then(|position| self.followed.get_mut(position as usize))
            .map(|(_, messages)| messages);
        let told = flow.own.map(|side| self.own.judge(side, packet, now_ns));
        flow.judge(packet, wire, short, told)
    }

    fn marker(&self, key: Key) -> Option<Marker> {
        let try_any = |source_port, destination_port| {
            self.any
                .get(&Key {
                    source_port,
                    destination_port,
                    ..key
                })
                .copied()
        };
        self.exact
            .get(&key)
            .copied()
            .or_else(|| try_any(0, key.destination_port))
            .or_else(|| try_any(key.source_port, 0))
            .or_else(|| try_any(0, 0))
    }

    /// Starts counting anew; what is known about connections stays.
    pub(crate) fn reset_counts(&mut self) {
        for flow in self.flows.values_mut().chain([&mut self.overflow]) {
            flow.undeclared = Undeclared::default();
            flow.retransmissions = 0;
        }
        self.own.reset_counts();
    }

    /// Flows with something to report, in the order of their keys; and the sum of those that found no room.
    pub(crate) fn report(&self) -> (Vec<FlowReport>, Undeclared) {
        let mut lines: Vec<FlowReport> = self
            .flows
            .iter()
            .filter(|(_, flow)| flow.undeclared.frames > 0 || flow.retransmissions > 0)
            .map(|(key, flow)| FlowReport {
                key: *key,
                undeclared: flow.undeclared,
                retransmissions: flow.retransmissions,
            })
            .collect();
        lines.sort_unstable_by_key(|line| line.key);
        (lines, self.overflow.undeclared)
    }

    /// What is known of the messages of programs that are not ours.
    pub(crate) fn own(&self) -> OwnReport {
        self.own.report()
    }
}

fn fresh(marker: Option<Marker>) -> Flow {
    Flow {
        marker,
        tcp: TcpState::default(),
        undeclared: Undeclared::default(),
        retransmissions: 0,
        short: None,
        own: None,
    }
}

fn key(plan: &MarkerPlan) -> Key {
    let is_icmp = plan.protocol == Protocol::Icmp;
    let port = |port: Option<u16>| if is_icmp { 0 } else { port.unwrap_or(0) };
    Key {
        source: plan.source.into(),
        destination: plan.destination.into(),
        protocol: match plan.protocol {
            Protocol::Tcp => TCP,
            Protocol::Udp => UDP,
            Protocol::Icmp => 1,
        },
        source_port: port(plan.source_port),
        destination_port: port(plan.destination_port),
    }
}

impl Flow {
    fn judge(
        &mut self,
        packet: &Ipv4<'_>,
        wire: u32,
        short: Option<&mut short::Messages>,
        told: Option<Told>,
    ) -> Judgement {
        let mut flags = 0;
        let bare = packet.tcp.is_some() && packet.payload.is_empty();
        if bare {
            flags |= NO_PAYLOAD;
        }
        let stream = match self.marker {
            _ if told.is_some() => told.map_or(NO_STREAM, |told| told.stream),
            Some(marker) if bare => marker.ack,
            Some(marker) => marker.data,
            None => NO_STREAM,
        };
        let mut found = Headers::default();
        if let Some(segment) = packet.tcp {
            if self
                .tcp
                .is_repeated(segment.sequence, packet.payload.len() as u32)
            {
                flags |= RETRANSMISSION;
                self.retransmissions += 1;
            }
            self.tcp
                .follow(segment.sequence, segment.syn, packet.payload.len() as u32);
        }
        if let Some(told) = told {
            found = told.found.into();
        } else if let Some(short) = short {
            found = short.find(packet).into();
        } else if let Some(header) = self
            .marker
            .and_then(|marker| marker.header)
            .filter(|_| !packet.payload.is_empty())
        {
            found = match packet.tcp {
                // What is sent again has its number too, but moves nobody's place in the stream.
                Some(segment) if flags & RETRANSMISSION != 0 => {
                    TcpState::default().find(segment.sequence, packet.payload, header)
                }
                Some(segment) => self.tcp.find(segment.sequence, packet.payload, header),
                None => header_at(packet.payload, header.payload_offset as usize).map_or(
                    Headers::default(),
                    |first| Headers {
                        first: Some(first),
                        count: 1,
                        continued: false,
                    },
                ),
            };
        }
        if found.first.is_some() {
            flags |= SEQUENCED;
        }
        if found.continued {
            flags |= CONTINUED;
        }
        if stream == NO_STREAM {
            self.undeclared.frames += 1;
            self.undeclared.wire_bytes += u64::from(wire);
            self.undeclared.largest = self.undeclared.largest.max(wire);
        }
        let (flow, sequence) = found.first.unwrap_or_default();
        Judgement {
            stream,
            rewrite_dscp: self.marker.is_some_and(|marker| marker.rewrite_dscp),
            flags,
            flow,
            sequence,
            messages: found.count,
        }
    }
}

/// Measurement headers in one frame.
#[derive(Debug, Clone, Copy, Default)]
struct Headers {
    first: Option<(u32, u32)>,
    count: u32,
    continued: bool,
}

impl From<Found> for Headers {
    fn from(found: Found) -> Self {
        Self {
            first: found.first,
            count: found.count,
            continued: found.continued,
        }
    }
}

/// Flow and sequence of the header that starts at `at`, if one does.
pub(crate) fn header_at(payload: &[u8], at: usize) -> Option<(u32, u32)> {
    let header = payload.get(at..at.checked_add(HEADER)?)?;
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    (word(0) == MAGIC).then(|| (word(4), word(8)))
}

impl TcpState {
    /// Has this sequence number been seen before? (RFC 9293, section 3.4: arithmetic modulo 2^32.)
    fn is_repeated(&self, sequence: u32, length: u32) -> bool {
        self.started && length > 0 && sequence.wrapping_sub(self.next).cast_signed() < 0
    }

    fn follow(&mut self, sequence: u32, syn: bool, length: u32) {
        if syn {
            *self = Self {
                started: true,
                next: sequence.wrapping_add(1),
                ..Self::default()
            };
            return;
        }
        let end = sequence.wrapping_add(length);
        if !self.started || end.wrapping_sub(self.next).cast_signed() > 0 {
            (self.started, self.next) = (true, end);
        }
    }

    /// Headers in a segment: where the stream of messages of known length says they are, otherwise where they are found.
    fn find(&mut self, sequence: u32, payload: &[u8], plan: Place) -> Headers {
        // A message has its header at least.
        let (offset, length) = (
            plan.payload_offset as usize,
            (plan.message_bytes as usize).max(HEADER),
        );
        let mut found = Headers::default();
        // Where the next header should start, from the start of this segment; negative where the last segment began it.
        let expected = self
            .header
            .map(|at| at.wrapping_sub(sequence).cast_signed() as isize);
        let (mut at, is_expected) = match expected {
            Some(at) if self.reads(payload, at).is_some() => (at, true),
            // A message at the very start counts for more than the expected place, which a control packet between two
            // messages (PUBREL) moves.
            _ if header_at(payload, offset).is_some() => (offset as isize, false),
            Some(at) if self.is_to_come(payload, at) => (at, true),
            _ => match search(payload, offset) {
                Some(start) => ((start + offset) as isize, false),
                None => {
                    // Where a message was expected is something else, or what was sent before is sent again.
                    self.header = self
                        .header
                        .filter(|_| expected.is_some_and(|at| at >= 0))
                        .map(|at| at.wrapping_add(plan.message_bytes));
                    self.cut.seen = 0;
                    self.current = None;
                    return found;
                }
            },
        };
        // Bytes before an expected start are the rest of the message before; before a searched one they may be anything.
        found.continued = is_expected && at > offset as isize && self.current.is_some();
        while let Some(header) = self.reads(payload, at) {
            found.first = found.first.or(Some(header));
            found.count += 1;
            self.current = Some(header);
            self.cut.seen = 0;
            at += length as isize;
        }
        if found.continued && found.count == 0 {
            found.first = self.current;
        }
        self.keep(payload, at);
        self.header = Some(sequence.wrapping_add_signed(at as i32));
        found
    }

    /// The header at `at` of the payload, joined with what the last segment had of it.
    fn reads(&self, payload: &[u8], at: isize) -> Option<(u32, u32)> {
        if let Ok(at) = usize::try_from(at) {
            return header_at(payload, at);
        }
        let seen = self.cut.seen;
        let rest = payload.get(..HEADER.checked_sub(seen)?)?;
        if seen != at.unsigned_abs() {
            return None;
        }
        let mut whole = self.cut.bytes;
        whole[seen..].copy_from_slice(rest);
        header_at(&whole, 0)
    }

    /// Can the header that is expected at `at` end in a later segment, by what this one has of it?
    fn is_to_come(&self, payload: &[u8], at: isize) -> bool {
        let begun = match usize::try_from(at) {
            Ok(at) => payload.get(at..).unwrap_or_default(),
            Err(_) if self.cut.seen == at.unsigned_abs() => payload,
            Err(_) => return false,
        };
        let before = if at < 0 { self.cut.seen } else { 0 };
        before + begun.len() < HEADER
            && begun
                .iter()
                .zip(MAGIC.to_le_bytes().iter().skip(before))
                .all(|(is, should)| is == should)
    }

    /// Remembers what the segment has of a header that it does not end.
    fn keep(&mut self, payload: &[u8], at: isize) {
        let begun = match usize::try_from(at) {
            Ok(at) => {
                self.cut.seen = 0;
                payload.get(at..).unwrap_or_default()
            }
            Err(_) => payload,
        };
        let seen = self.cut.seen;
        if let Some(place) = self.cut.bytes.get_mut(seen..seen + begun.len()) {
            place.copy_from_slice(begun);
            self.cut.seen += begun.len();
        }
    }
}

/// Start of the first message near the start of the payload.
fn search(payload: &[u8], offset: usize) -> Option<usize> {
    if header_at(payload, offset).is_some() {
        return Some(0);
    }
    (0..payload.len().min(SEARCH + offset))
        .find(|at| header_at(payload, *at).is_some())
        .and_then(|at| at.checked_sub(offset))
}

#[cfg(test)]
mod tests {
    use super::super::packet::TcpSegment;
    use super::*;

    const PLAN: Place = Place {
        payload_offset: 10,
        message_bytes: 100,
    };

    fn message(sequence: u32) -> Vec<u8> {
        let mut bytes = vec![0x30; 10];
        for word in [MAGIC, 7, sequence, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.resize(100, b'x');
        bytes
    }

    fn flow() -> Flow {
        fresh(Some(Marker {
            data: 3,
            ack: 4,
            rewrite_dscp: false,
            header: Some(PLAN),
            short: None,
            own: None,
        }))
    }

    fn packet<'a>(key: Key, sequence: u32, payload: &'a [u8]) -> Ipv4<'a> {
        Ipv4 {
            key,
            dscp: 0,
            identification: 0,
            more_fragments: false,
            later_fragment: false,
            tcp: Some(TcpSegment {
                sequence,
                ..TcpSegment::default()
            }),
            payload,
        }
    }

    const KEY: Key = Key {
        source: 1,
        destination: 2,
        protocol: TCP,
        source_port: 3,
        destination_port: 4,
    };

    #[test]
    fn a_control_packet_between_messages_of_several_segments_does_not_hide_the_next_message() {
        let mut flow = flow();
        let mut at = 1000;
        for number in 0..3 {
            let bytes = message(number);
            for part in bytes.chunks(40) {
                let judged = flow.judge(&packet(KEY, at, part), 200, None, None);
                assert_eq!((judged.sequence, judged.flags & SEQUENCED), (number, SEQUENCED));
                at += part.len() as u32;
            }
            assert_eq!(
                flow.judge(&packet(KEY, at, b"PRel"), 200, None, None).flags & SEQUENCED,
                0
            );
            at += 4;
        }
    }

    #[test]
    fn messages_are_followed_across_segments_of_any_size() {
        for size in 1..=333 {
            let mut flow = flow();
            let mut stream: Vec<u8> = vec![0x10; 33]; // CONNECT
            stream.extend(message(0));
            let whole = stream.len();
            stream.extend((1..50).flat_map(message));
            let mut base = u32::MAX - 1000; // the sequence number wraps
            let mut seen = Vec::new();
            // A first message is recognised where its header is in one segment.
            let (start, rest) = stream.split_at(whole);
            for segment in [&start[..33], &start[33..]].into_iter().chain(rest.chunks(size)) {
                let judged = flow.judge(&packet(KEY, base, segment), 200, None, None);
                assert_eq!((judged.stream, judged.flags & RETRANSMISSION), (3, 0));
                seen.extend((0..judged.messages).map(|more| judged.sequence + more));
                base = base.wrapping_add(segment.len() as u32);
            }
            assert_eq!(seen, (0..50).collect::<Vec<_>>(), "{size}");
        }
    }

    #[test]
    fn a_segment_that_ends_in_the_next_header_still_belongs_to_the_message_before() {
        let mut flow = flow();
        let stream: Vec<u8> = (0..3).flat_map(message).collect();
        let (mut at, mut judged) = (1000, Vec::new());
        for cut in [0..60, 60..115, 115..220, 220..300] {
            let judgement = flow.judge(&packet(KEY, at, &stream[cut.clone()]), 200, None, None);
            judged.push((
                judgement.sequence,
                judgement.messages,
                judgement.flags & CONTINUED > 0,
            ));
            at += cut.len() as u32;
        }
        // The second segment has the end of message 0 and five bytes of the header of message 1, the third the rest of it and ten
        // bytes of the header of message 2.
        assert_eq!(
            judged,
            [(0, 1, false), (0, 0, true), (1, 1, false), (2, 1, false)]
        );
    }

    #[test]
    fn a_continued_message_keeps_its_number() {
        let mut flow = flow();
        let bytes = message(5);
        assert_eq!(
            flow.judge(&packet(KEY, 1000, &bytes[..60]), 200, None, None)
                .messages,
            1
        );
        let judged = flow.judge(&packet(KEY, 1060, &bytes[60..]), 200, None, None);
        assert_eq!(
            (judged.sequence, judged.messages, judged.flags),
            (5, 0, SEQUENCED | CONTINUED)
        );
        assert_eq!(
            flow.judge(&packet(KEY, 1100, &message(6)), 200, None, None)
                .sequence,
            6
        );
    }

    #[test]
    fn repeated_segments_are_retransmissions_and_still_have_their_number() {
        let mut flow = flow();
        for sequence in 0..3 {
            flow.judge(
                &packet(KEY, 1000 + 100 * sequence, &message(sequence)),
                200,
                None,
                None,
            );
        }
        let judged = flow.judge(&packet(KEY, 1100, &message(1)), 200, None, None);
        assert_eq!((judged.flags, judged.sequence), (RETRANSMISSION | SEQUENCED, 1));
        assert_eq!(flow.retransmissions, 1);
        assert_eq!(
            flow.judge(&packet(KEY, 1300, &message(3)), 200, None, None).flags,
            SEQUENCED
        );
    }

    #[test]
    fn bare_segments_are_acknowledgements() {
        let judged = flow().judge(&packet(KEY, 1, &[]), 84, None, None);
        assert_eq!((judged.stream, judged.flags), (4, NO_PAYLOAD));
    }
}

//! The receiving end of the streams of one sender's life.

use super::StreamId;
use super::control::Arrived;
use super::datagram::Datagram;
use super::message::is_duplicate;
use std::collections::{BTreeMap, VecDeque};

/// Datagrams of an unreliable stream that are kept before the sender has said from where on they are for us.
const MOST_EARLY: usize = 256;

/// What a receiver may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Datagrams of a stream that wait for one before them.
    pub waiting: usize,
    /// Bytes of one message.
    pub message: usize,
    /// Keys of QoS 2 messages that were delivered and not released; beyond, such messages wait.
    pub keys: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting: 4_096,
            message: 16 << 20,
            keys: 65_536,
        }
    }
}

/// What the owner of a receiver has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Hand this message to the broker, and say [`Receiver::taken`] with `end` and `key` when it has confirmed it. Of a reliable stream.
    Deliver {
        stream: StreamId,
        message: Vec<u8>,
        /// 0: none.
        key: u64,
        end: u64,
    },
    /// Hand this message to the broker with QoS 0. Of an unreliable stream.
    Pass { stream: StreamId, message: Vec<u8> },
    /// Tell the sender over TCP.
    Tell(Arrived),
}

/// What a receiver counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that had arrived before.
    pub repeated: u64,
    /// Of unreliable streams: datagrams that never came, or came after their successors.
    pub missed: u64,
    /// Datagrams of streams that nobody here takes part in, or that there is no room for.
    pub dropped: u64,
    /// Messages of QoS 2 that were sent again and had been delivered.
    pub known: u64,
    /// Messages that were longer than allowed.
    pub too_long: u64,
}

#[derive(Debug)]
struct Part {
    first: bool,
    last: bool,
    key: u64,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Incoming {
    reliable: bool,
    /// `None` until the sender has said from where on.
    next: Option<u64>,
    /// Before the sender has said from where on: what has arrived. Of a reliable stream then: what arrived above `next`.
    waiting: BTreeMap<u64, Part>,
    /// The message whose parts are arriving; `None` while its first part is missing or it is too long.
    building: Option<Vec<u8>>,
    /// Ends of complete messages in order, each with whether the broker has confirmed it; the first one is not.
    ends: VecDeque<(u64, bool)>,
    /// All messages that end here or before are confirmed.
    taken: u64,
    /// Nothing more is taken: it is here until all that was handed over is confirmed.
    closed: bool,
}

/// A QoS 2 message that was delivered and not released.
#[derive(Debug)]
struct Delivered {
    stream: StreamId,
    end: u64,
    /// Has the broker confirmed it?
    taken: bool,
    /// Where it came again before that.
    again: Vec<(StreamId, u64)>,
}

/// The receiving end of all streams of one peer.
#[derive(Debug)]
pub struct Receiver {
    limits: Limits,
    streams: BTreeMap<StreamId, Incoming>,
    /// Of QoS 2 messages that were delivered: they outlive streams.
    keys: BTreeMap<u64, Delivered>,
    counts: Counts,
}

impl Receiver {
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            streams: BTreeMap::new(),
            keys: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Its group is joined: datagrams of this stream are for us, once the sender has said from where on.
    pub fn join(&mut self, stream: StreamId, reliable: bool) {
        self.streams.entry(stream).or_insert_with(|| Incoming {
            reliable,
            next: None,
            waiting: BTreeMap::new(),
            building: None,
            ends: VecDeque::new(),
            taken: 0,
            closed: false,
        });
    }

    /// Has a stream been joined, and not been left to its end?
    #[must_use]
    pub fn has(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// From this datagram on it is for us. Said again over a new connection it changes nothing; said by a sender that had given
    /// us up it skips what is lost.
    pub fn from(&mut self, stream: StreamId, sequence: u64, effects: &mut Vec<Effect>) {
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        if incoming.closed {
            return;
        }
        if incoming.next.is_none_or(|next| next < sequence) {
            incoming.ends.push_back((sequence, true));
            incoming.next = Some(sequence);
            incoming.building = None;
            incoming.waiting = incoming.waiting.split_off(&sequence);
            incoming.settle();
            if incoming.reliable {
                self.advance(stream, effects);
            } else {
                self.pass_waiting(stream, effects);
            }
        }
        self.report(stream, effects);
    }

    /// From now on nothing of this stream is taken; what was handed over is still reported when it is confirmed. The report says where that is.
    pub fn leave(&mut self, stream: StreamId, effects: &mut Vec<Effect>) {
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        incoming.closed = true;
        incoming.building = None;
        incoming.waiting.clear();
        self.report(stream, effects);
        self.end_if_over(stream);
    }

    fn end_if_over(&mut self, stream: StreamId) {
        let found = self.streams.get(&stream);
        if found.is_some_and(|incoming| incoming.closed && incoming.ends.is_empty()) {
            self.streams.remove(&stream);
        }
    }

    /// All reports again, for a new connection to the sender.
    pub fn reports(&self, effects: &mut Vec<Effect>) {
        self.streams
            .keys()
            .for_each(|stream| self.report(*stream, effects));
    }

    /// A datagram came, from the group or to us alone.
    pub fn datagram(&mut self, datagram: &Datagram<'_>, effects: &mut Vec<Effect>) {
        let Some(incoming) = self.streams.get_mut(&datagram.stream) else {
            self.counts.dropped += 1;
            return;
        };
        if incoming.closed || incoming.reliable != datagram.reliable {
            self.counts.dropped += 1;
            return;
        }
        if !incoming.reliable && incoming.next.is_none() {
            // What is before the beginning may come to us another way.
            match incoming.waiting.len() {
                0..MOST_EARLY => drop(incoming.waiting.insert(datagram.sequence, Part::of(datagram))),
                _ => self.counts.dropped += 1,
            }
            return;
        }
        if !incoming.reliable {
            return self.unreliable(datagram.stream, datagram.sequence, Part::of(datagram), effects);
        }
        let known = incoming.next.is_some_and(|next| datagram.sequence < next)
            || incoming.waiting.contains_key(&datagram.sequence);
        let far = incoming.next.is_some_and(|next| {
            datagram.sequence - next.min(datagram.sequence) >= self.limits.waiting as u64
        });
        if known {
            self.counts.repeated += 1;
        } else if far || incoming.waiting.len() >= self.limits.waiting {
            self.counts.dropped += 1;
        } else {
            incoming.waiting.insert(datagram.sequence, Part::of(datagram));
            self.advance(datagram.stream, effects);
        }
        self.report(datagram.stream, effects);
    }

    /// What follows without a gap becomes messages.
    fn advance(&mut self, stream: StreamId, effects: &mut Vec<Effect>) {
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        let Some(mut next) = incoming.next else {
            return;
        };
        while let Some(part) = incoming.waiting.get(&next) {
            let (last, key) = (part.last, part.key);
            if last && key != 0 && self.keys.len() >= self.limits.keys && !self.keys.contains_key(&key) {
                // Nobody could tell it from a repetition: it waits until another is released.
                return;
            }
            let Some(part) = incoming.waiting.remove(&next) else {
                return;
            };
            next += 1;
            incoming.next = Some(next);
            if !incoming.add(part, self.limits.message) {
                self.counts.too_long += 1;
            }
            if !last {
                continue;
            }
            let Some(message) = incoming.building.take() else {
                // What is not delivered waits for nobody's confirmation.
                incoming.ends.push_back((next, true));
                incoming.settle();
                continue;
            };
            // Sent again by its publisher, or by its sender to a life of ours that does not know that it had it.
            let known = self
                .keys
                .get_mut(&key)
                .filter(|one| is_duplicate(&message) || (one.stream, one.end) == (stream, next));
            if let Some(known) = known {
                self.counts.known += 1;
                incoming.ends.push_back((next, known.taken));
                if !known.taken {
                    known.again.push((stream, next));
                }
                incoming.settle();
                continue;
            }
            incoming.ends.push_back((next, false));
            if key != 0 {
                let delivered = Delivered {
                    stream,
                    end: next,
                    taken: false,
                    again: Vec::new(),
                };
                self.keys.insert(key, delivered);
            }
            effects.push(Effect::Deliver {
                stream,
                message,
                key,
                end: next,
            });
        }
    }

    /// What came before the sender had said from where on.
    fn pass_waiting(&mut self, stream: StreamId, effects: &mut Vec<Effect>) {
        let incoming = self.streams.get_mut(&stream);
        let waiting = incoming.map_or_else(BTreeMap::new, |incoming| std::mem::take(&mut incoming.waiting));
        for (sequence, part) in waiting {
            self.unreliable(stream, sequence, part, effects);
        }
    }

    fn unreliable(&mut self, stream: StreamId, sequence: u64, part: Part, effects: &mut Vec<Effect>) {
        let room = self.limits.message;
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        let next = incoming.next.unwrap_or(sequence);
        if sequence < next {
            self.counts.repeated += 1;
            return;
        }
        if sequence > next {
            self.counts.missed += sequence - next;
            incoming.building = None;
        }
        incoming.next = Some(sequence + 1);
        let last = part.last;
        if !incoming.add(part, room) {
            self.counts.too_long += 1;
        }
        if last && let Some(message) = incoming.building.take() {
            effects.push(Effect::Pass { stream, message });
        }
    }

    /// The broker has confirmed the message that was handed over with this end and key.
    pub fn taken(&mut self, stream: StreamId, end: u64, key: u64, effects: &mut Vec<Effect>) {
        self.confirm(stream, end, effects);
        let delivered = self.keys.get_mut(&key);
        if let Some(delivered) = delivered.filter(|one| (one.stream, one.end) == (stream, end)) {
            delivered.taken = true;
            for (stream, end) in std::mem::take(&mut delivered.again) {
                self.confirm(stream, end, effects);
            }
        }
    }

    fn confirm(&mut self, stream: StreamId, end: u64, effects: &mut Vec<Effect>) {
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        if let Ok(place) = incoming.ends.binary_search_by_key(&end, |(end, _)| *end) {
            incoming.ends[place].1 = true;
            incoming.settle();
            self.report(stream, effects);
            self.end_if_over(stream);
        }
    }

    /// The publisher has released the message with this key that ends there (`end` 0: that of another life of the sender); true if it was remembered.
    pub fn release(&mut self, stream: StreamId, end: u64, key: u64, effects: &mut Vec<Effect>) -> bool {
        let is_meant = |one: &Delivered| match end {
            0 => one.stream.life != stream.life,
            _ => (one.stream, one.end) == (stream, end),
        };
        let Some(delivered) = self.keys.get(&key).filter(|one| is_meant(one)) else {
            return false;
        };
        let again = delivered.again.clone();
        self.keys.remove(&key);
        for (stream, end) in again {
            self.confirm(stream, end, effects);
        }
        // There is room for another key.
        let streams: Vec<StreamId> = self.streams.keys().copied().collect();
        for stream in streams {
            self.advance(stream, effects);
            self.report(stream, effects);
        }
        true
    }

    /// The sender's process was started again: of its former lives nothing more comes.
    pub fn restarted(&mut self, life: u64) {
        self.streams.retain(|stream, _| stream.life == life);
    }

    /// A message of a former life of this process, which the broker has and whose key was not released.
    pub fn remember(&mut self, key: u64, stream: StreamId, end: u64) {
        let delivered = Delivered {
            stream,
            end,
            taken: true,
            again: Vec::new(),
        };
        self.keys.insert(key, delivered);
    }

    fn report(&self, stream: StreamId, effects: &mut Vec<Effect>) {
        let Some(incoming) = self.streams.get(&stream) else {
            return;
        };
        let Some(next) = incoming.next.filter(|_| incoming.reliable) else {
            return;
        };
        let beyond = incoming
            .waiting
            .range(next + 1..next.saturating_add(65))
            .fold(0, |bits, (sequence, _)| bits | 1 << (sequence - next - 1));
        let arrived = Arrived {
            stream,
            next,
            beyond,
            taken: incoming.taken,
        };
        // A later report of the same stream says all that an earlier one does.
        effects.retain(|effect| !matches!(effect, Effect::Tell(other) if other.stream == stream));
        effects.push(Effect::Tell(arrived));
    }
}

impl Part {
    fn of(datagram: &Datagram<'_>) -> Self {
        Self {
            first: datagram.first,
            last: datagram.last,
            key: datagram.key,
            bytes: datagram.part.to_vec(),
        }
    }
}

impl Incoming {
    /// Adds the next part to the message under way; false where that becomes too long (then it is dropped).
    fn add(&mut self, part: Part, room: usize) -> bool {
        if part.first {
            self.building = Some(part.bytes);
        } else if let Some(building) = &mut self.building {
            building.extend_from_slice(&part.bytes);
        }
        if self.building.as_ref().is_some_and(|message| message.len() > room) {
            self.building = None;
            return false;
        }
        true
    }

    /// Up to the first message that is not confirmed everything is taken.
    fn settle(&mut self) {
        while let Some((end, true)) = self.ends.front() {
            self.taken = *end;
            self.ends.pop_front();
        }
    }
}

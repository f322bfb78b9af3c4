//! The sending end of one stream.

use super::control::{Arrived, Control};
use super::datagram::Datagram;
use super::round_trip::RoundTrip;
use super::{PART, PeerId, StreamId};
use std::collections::{BTreeMap, VecDeque};
use thiserror::Error;
use timebound_model::units::{Span, Time};

/// What a stream may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Datagrams that not all have got yet; beyond it the publisher has to wait.
    pub window: usize,
    /// How long data waits for those who were invited.
    pub join: Span,
    /// A member that is to acknowledge something and says nothing for this long is lost.
    pub silence: Span,
    /// Time-out before anything was measured; and its bounds.
    pub first_timeout: Span,
    pub least_timeout: Span,
    pub greatest_timeout: Span,
    /// Datagrams that are under way again to a member, at most; fewer while those are lost (`Joined::share`).
    pub burst: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window: 4_096,
            join: Span::from_secs(2),
            silence: Span::from_secs(30),
            first_timeout: Span::from_millis(50),
            least_timeout: Span::from_millis(5),
            greatest_timeout: Span::from_secs(1),
            burst: 64,
        }
    }
}

/// Where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    Group,
    Peer(PeerId),
}

/// What the owner of a sender has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Everybody who was invited has joined, or is lost: messages may be sent.
    Open,
    /// Send the datagram [`Sender::datagram`] of this number.
    Send {
        to: To,
        sequence: u64,
    },
    /// Tell a peer, over TCP.
    Tell(PeerId, Control),
    /// All members took this message, or are lost. Messages are taken in order.
    Taken {
        message: u64,
    },
    /// This peer will not get these messages: it is lost, or has left before it took them.
    Undelivered {
        peer: PeerId,
        messages: std::ops::Range<u64>,
    },
    Lost(PeerId),
}

/// Why a message is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("somebody who was invited has not joined yet")]
    NotOpen,
    #[error("too much is under way")]
    Full,
    /// It needs more datagrams than the window has.
    #[error("the message is longer than the window")]
    TooLong,
}

/// A peer claims what cannot be: its connection is of no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("it acknowledges what was not sent")]
pub struct Impossible;

#[derive(Debug)]
enum Member {
    Expected { since: Time },
    Joined(Box<Joined>),
    Lost,
}

#[derive(Debug)]
struct Joined {
    /// Messages from this one on are for it.
    first_message: u64,
    next: u64,
    beyond: u64,
    taken: u64,
    /// When something was due and it was last heard of.
    heard: Time,
    trip: RoundTrip,
    /// When datagrams were last sent to it alone.
    again: BTreeMap<u64, Time>,
    /// Datagrams that may be under way again: a quarter less when one of them is lost or nothing is heard, more as they arrive. The way has a
    /// meter of the group's rate: what is sent again faster only takes the place of something else, and that was once a storm without end.
    share: usize,
    /// When it was last lessened.
    lessened: Time,
    /// After a time-out: below this, what it lacks is sent again as fast as it acknowledges.
    recover: u64,
}

#[derive(Debug)]
struct Entry {
    bytes: Vec<u8>,
    sent: Time,
}

/// The sending end of a stream.
#[derive(Debug)]
pub struct Sender {
    stream: StreamId,
    reliable: bool,
    limits: Limits,
    members: BTreeMap<PeerId, Member>,
    open: bool,
    /// Number of the first entry.
    base: u64,
    entries: VecDeque<Entry>,
    /// Numbers behind the last datagram of each message that is not taken yet, the first one being `taken`.
    ends: VecDeque<u64>,
    taken: u64,
}

impl Sender {
    #[must_use]
    pub fn new(stream: StreamId, reliable: bool, limits: Limits) -> Self {
        Self {
            stream,
            reliable,
            limits,
            members: BTreeMap::new(),
            open: true,
            base: 0,
            entries: VecDeque::new(),
            ends: VecDeque::new(),
            taken: 0,
        }
    }

    fn next(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// A datagram that an effect names; empty once nobody needs it.
    #[must_use]
    pub fn datagram(&self, sequence: u64) -> &[u8] {
        let place = sequence.checked_sub(self.base).map(|place| place as usize);
        place
            .and_then(|place| self.entries.get(place))
            .map_or(&[], |entry| &entry.bytes)
    }

    /// May messages be sent?
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// Who gets what is sent now.
    pub fn joined(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.members.iter().filter_map(|(peer, member)| match member {
            Member::Joined(_) => Some(*peer),
            _ => None,
        })
    }

    /// A peer is to become a member: `invitation` is told to it. Before the first message data waits for it; later it does not.
    pub fn invite(&mut self, now: Time, peer: PeerId, invitation: Control, effects: &mut Vec<Effect>) {
        let was_lost = matches!(self.members.get(&peer), Some(Member::Lost));
        if was_lost || !self.members.contains_key(&peer) {
            self.members.insert(peer, Member::Expected { since: now });
            self.open &= self.next() > 0 || was_lost;
        }
        effects.push(Effect::Tell(peer, invitation));
    }

    /// A peer has joined the group.
    pub fn has_joined(&mut self, now: Time, peer: PeerId, effects: &mut Vec<Effect>) {
        let limits = &self.limits;
        let next = self.next();
        match self.members.get_mut(&peer) {
            None => return,
            // Again, over a new connection: what it has been told may be lost, what is for it is not.
            Some(Member::Joined(joined)) => joined.heard = now,
            Some(member) => {
                *member = Member::Joined(Box::new(Joined {
                    first_message: self.taken + self.ends.len() as u64,
                    next,
                    beyond: 0,
                    taken: next,
                    heard: now,
                    trip: RoundTrip::new(
                        limits.first_timeout,
                        limits.least_timeout,
                        limits.greatest_timeout,
                    ),
                    again: BTreeMap::new(),
                    share: limits.burst,
                    lessened: now,
                    recover: 0,
                }));
            }
        }
        if let Some(Member::Joined(joined)) = self.members.get(&peer) {
            let from = Control::From {
                stream: self.stream,
                sequence: joined.next,
            };
            effects.push(Effect::Tell(peer, from));
        }
        self.look_whether_open(effects);
    }

    /// A peer leaves, or has nobody any more who wants the stream.
    pub fn leave(&mut self, peer: PeerId, effects: &mut Vec<Effect>) {
        if let Some(member) = self.members.remove(&peer) {
            self.give_up(peer, &member, effects);
            self.look_whether_open(effects);
            self.settle(effects);
        }
    }

    fn look_whether_open(&mut self, effects: &mut Vec<Effect>) {
        let waits = self
            .members
            .values()
            .any(|member| matches!(member, Member::Expected { .. }));
        if !self.open && !waits {
            self.open = true;
            effects.push(Effect::Open);
        }
    }

    /// Sends a message (a PUBLISH without packet identifier) to all members; its number.
    ///
    /// # Errors
    /// It has to wait, or can never be sent.
    pub fn publish(
        &mut self,
        now: Time,
        message: &[u8],
        key: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<u64, Refused> {
        if !self.open {
            return Err(Refused::NotOpen);
        }
        if !self.reliable {
            // Nobody asks for them again: the owner has sent those before.
            self.base = self.next();
            self.entries.clear();
        }
        let count = message.len().div_ceil(PART).max(1);
        if count > self.limits.window {
            return Err(Refused::TooLong);
        }
        if self.entries.len() + count > self.limits.window {
            return Err(Refused::Full);
        }
        let idle = self.ends.is_empty();
        for place in 0..count {
            let part = &message[place * PART..message.len().min((place + 1) * PART)];
            let sequence = self.next();
            let mut bytes = Vec::with_capacity(super::datagram::HEADER + part.len());
            let datagram = Datagram {
                stream: self.stream,
                sequence,
                first: place == 0,
                last: place + 1 == count,
                reliable: self.reliable,
                again: false,
                key,
                part,
            };
            datagram.write(&mut bytes);
            self.entries.push_back(Entry { bytes, sent: now });
            effects.push(Effect::Send {
                to: To::Group,
                sequence,
            });
        }
        let number = self.taken + self.ends.len() as u64;
        self.ends.push_back(self.next());
        if idle {
            for member in self.members.values_mut() {
                if let Member::Joined(joined) = member {
                    joined.heard = now;
                }
            }
        }
        self.settle(effects);
        Ok(number)
    }

    /// What a member says it has got and its broker has taken.
    ///
    /// # Errors
    /// More than was sent.
    pub fn arrived(
        &mut self,
        now: Time,
        peer: PeerId,
        report: &Arrived,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Impossible> {
        let (end, base) = (self.next(), self.base);
        if report.next > end || report.taken > report.next || beyond_end(report, end) {
            return Err(Impossible);
        }
        let Some(Member::Joined(joined)) = self.members.get_mut(&peer) else {
            return Ok(());
        };
        let is_news = report.next > joined.next
            || report.taken > joined.taken
            || (report.next == joined.next && report.beyond != joined.beyond);
        if is_news {
            joined.heard = now;
        }
        // What arrived behind a gap was acknowledged late: that is no round trip.
        let had_no_gap = joined.beyond == 0 && joined.again.is_empty();
        let mut goes_on = false;
        if report.next > joined.next {
            let place = (report.next - 1).saturating_sub(base) as usize;
            if let Some(entry) = self.entries.get(place)
                && had_no_gap
            {
                joined.trip.sample(now.since(entry.sent));
            }
            joined.trip.progress();
            joined.next = report.next;
            let under_way = joined.again.split_off(&report.next);
            let got = std::mem::replace(&mut joined.again, under_way).len();
            joined.share = (joined.share + got.div_ceil(2)).min(self.limits.burst);
            goes_on = joined.again.is_empty() && joined.next < joined.recover;
        }
        if report.next == joined.next {
            joined.beyond = report.beyond;
        }
        joined.taken = joined.taken.max(report.taken);
        let wait = joined.trip.timeout();
        let lost_again = |sequence: &u64| {
            let last = joined.again.get(sequence);
            last.is_some_and(|last| now >= last.after(wait))
        };
        if joined.missing().any(|sequence| lost_again(&sequence)) {
            joined.lessen(now);
        }
        let missing: Vec<u64> = joined
            .missing()
            .filter(|sequence| {
                let last = joined.again.get(sequence);
                last.is_none_or(|last| now >= last.after(wait))
            })
            .take(joined.room(now))
            .collect();
        joined
            .again
            .extend(missing.iter().map(|sequence| (*sequence, now)));
        for sequence in missing {
            self.send_again(peer, sequence, effects);
        }
        if goes_on {
            self.send_lacking(now, peer, effects);
        }
        self.settle(effects);
        Ok(())
    }

    /// Sends a datagram again to one member, marked so.
    fn send_again(&mut self, peer: PeerId, sequence: u64, effects: &mut Vec<Effect>) {
        let place = sequence.saturating_sub(self.base) as usize;
        if let Some(entry) = self.entries.get_mut(place) {
            super::datagram::mark_again(&mut entry.bytes);
            effects.push(Effect::Send {
                to: To::Peer(peer),
                sequence,
            });
        }
    }

    /// When [`Self::timeout`] is to be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.members.values().filter_map(|member| self.due(member)).min()
    }

    fn due(&self, member: &Member) -> Option<Time> {
        match member {
            Member::Lost => None,
            Member::Expected { since } => Some(since.after(self.limits.join)),
            Member::Joined(joined) => {
                let waits = self.reliable && joined.taken < self.next();
                let silent = waits.then(|| joined.heard.after(self.limits.silence));
                let again = (joined.next < self.next() && self.reliable)
                    .then(|| self.last_sent(joined).after(joined.trip.timeout()));
                again.into_iter().chain(silent).min()
            }
        }
    }

    /// When the first datagram that a member lacks was sent to it last.
    fn last_sent(&self, joined: &Joined) -> Time {
        let alone = joined.again.get(&joined.next).copied();
        let place = joined.next.saturating_sub(self.base) as usize;
        let all = self.entries.get(place).map(|entry| entry.sent);
        alone.max(all).unwrap_or_default()
    }

    /// Time has passed.
    pub fn timeout(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let peers: Vec<PeerId> = self.members.keys().copied().collect();
        for peer in peers {
            let Some(due) = self.members.get(&peer).and_then(|member| self.due(member)) else {
                continue;
            };
            if due > now {
                continue;
            }
            let lost = match &self.members[&peer] {
                Member::Joined(joined) => now >= joined.heard.after(self.limits.silence),
                Member::Expected { .. } => true,
                Member::Lost => false,
            };
            if lost {
                self.lose(peer, effects);
            } else {
                self.resend(now, peer, effects);
            }
        }
        self.look_whether_open(effects);
        self.settle(effects);
    }

    fn resend(&mut self, now: Time, peer: PeerId, effects: &mut Vec<Effect>) {
        let end = self.next();
        if let Some(Member::Joined(joined)) = self.members.get_mut(&peer) {
            joined.lessen(now);
            joined.trip.back_off();
            joined.recover = end;
        }
        self.send_lacking(now, peer, effects);
    }

    /// As much of what a member lacks as may be sent at once.
    fn send_lacking(&mut self, now: Time, peer: PeerId, effects: &mut Vec<Effect>) {
        let Some(Member::Joined(joined)) = self.members.get_mut(&peer) else {
            return;
        };
        // It has heard of nothing behind what is known to have arrived, so all of that may be missing.
        let lacking: Vec<u64> = (joined.next..joined.recover)
            .filter(|sequence| !joined.has(*sequence))
            .take(joined.share)
            .collect();
        joined
            .again
            .extend(lacking.iter().map(|sequence| (*sequence, now)));
        for sequence in lacking {
            self.send_again(peer, sequence, effects);
        }
    }

    /// A member's process was started again: it has nothing but what its broker has taken.
    pub fn restarted(&mut self, now: Time, peer: PeerId) {
        let end = self.next();
        if let Some(Member::Joined(joined)) = self.members.get_mut(&peer) {
            (joined.next, joined.beyond) = (joined.taken.max(self.base), 0);
            (joined.heard, joined.recover) = (now, end);
            joined.again.clear();
        }
    }

    /// A member cannot be reached any more.
    pub fn lost(&mut self, peer: PeerId, effects: &mut Vec<Effect>) {
        if matches!(
            self.members.get(&peer),
            Some(Member::Expected { .. } | Member::Joined(_))
        ) {
            self.lose(peer, effects);
            self.look_whether_open(effects);
            self.settle(effects);
        }
    }

    /// Who was invited and has not joined, and who is lost.
    #[must_use]
    pub fn absent(&self) -> (Vec<PeerId>, Vec<PeerId>) {
        let of = |wanted: fn(&Member) -> bool| {
            let found = self.members.iter().filter(|(_, member)| wanted(member));
            found.map(|(peer, _)| *peer).collect()
        };
        (
            of(|member| matches!(member, Member::Expected { .. })),
            of(|member| matches!(member, Member::Lost)),
        )
    }

    /// Number behind the last datagram that was sent.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.next()
    }

    fn lose(&mut self, peer: PeerId, effects: &mut Vec<Effect>) {
        if let Some(member) = self.members.insert(peer, Member::Lost) {
            self.give_up(peer, &member, effects);
            effects.push(Effect::Lost(peer));
        }
    }

    /// What a member that goes has not taken.
    fn give_up(&self, peer: PeerId, member: &Member, effects: &mut Vec<Effect>) {
        let Member::Joined(joined) = member else {
            return;
        };
        if !self.reliable {
            return;
        }
        let had = self.ends.iter().filter(|end| **end <= joined.taken).count() as u64;
        let messages = (self.taken + had).max(joined.first_message)..self.taken + self.ends.len() as u64;
        if !messages.is_empty() {
            effects.push(Effect::Undelivered { peer, messages });
        }
    }

    /// Messages that all took are told, datagrams that all got are forgotten.
    fn settle(&mut self, effects: &mut Vec<Effect>) {
        let (mut taken, mut got) = (self.next(), self.next());
        if self.reliable {
            for member in self.members.values() {
                if let Member::Joined(joined) = member {
                    taken = taken.min(joined.taken);
                    // What arrived is gone with its process unless the broker has it.
                    got = got.min(joined.taken);
                }
            }
        }
        while self.ends.front().is_some_and(|end| *end <= taken) {
            self.ends.pop_front();
            effects.push(Effect::Taken { message: self.taken });
            self.taken += 1;
        }
        // What an unreliable stream has just sent is still to be read by its owner.
        while self.reliable && self.base < got {
            self.entries.pop_front();
            self.base += 1;
        }
    }
}

impl Joined {
    /// Something was lost again; that is counted once in a round trip.
    fn lessen(&mut self, now: Time) {
        if now >= self.lessened.after(self.trip.timeout()) {
            self.share = (self.share * 3 / 4).max(1);
            self.lessened = now;
        }
    }

    /// How many more may be under way again now.
    fn room(&self, now: Time) -> usize {
        let wait = self.trip.timeout();
        let under_way = self
            .again
            .iter()
            .filter(|(sequence, sent)| now < sent.after(wait) && !self.has(**sequence));
        self.share.saturating_sub(under_way.count())
    }

    fn has(&self, sequence: u64) -> bool {
        sequence < self.next
            || sequence
                .checked_sub(self.next + 1)
                .is_some_and(|bit| bit < 64 && self.beyond >> bit & 1 == 1)
    }

    /// Datagrams below one that has arrived which have not.
    fn missing(&self) -> impl Iterator<Item = u64> + '_ {
        let highest = 64 - u64::from(self.beyond.leading_zeros());
        let end = if highest == 0 {
            self.next
        } else {
            self.next + highest
        };
        (self.next..end).filter(|sequence| !self.has(*sequence))
    }
}

/// Does a report claim a datagram that was not sent?
fn beyond_end(report: &Arrived, end: u64) -> bool {
    let highest = 64 - u64::from(report.beyond.leading_zeros());
    highest > 0 && report.next.saturating_add(highest) >= end
}

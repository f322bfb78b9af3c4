//! The sending end of one stream.

mod members;

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
    /// Datagrams that are under way again to a member, or wait for that, at most; where no reservation is known fewer while those are
    /// lost (`Joined::share`).
    pub burst: usize,
    /// What is to be sent again lets pass what is sent for the first time, for so long ([`super::pacing`]).
    pub patience: Span,
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
            patience: Span::from_millis(500),
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
    /// This peer has left in order, and will not get these messages this way: they may go another. Keys, and messages.
    Returned {
        peer: PeerId,
        messages: Vec<(u64, Vec<u8>)>,
    },
}

/// Why a message is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("somebody who was invited has not joined yet")]
    NotOpen,
    #[error("too much is under way")]
    Full,
    /// What was published before waits for its turn ([`super::pacing`]).
    #[error("faster than is reserved")]
    Paced,
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
    Expected {
        since: Time,
    },
    Joined(Box<Joined>),
    Lost,
    /// It did not want it any more.
    Left,
    /// It was told to leave, and has nothing to take: until it has said that it has, it may have to say that it has joined before. Then it is
    /// invited (again), or gone.
    Parting {
        since: Time,
        replies: u32,
        comes_back: Option<Control>,
    },
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
    /// What is to be sent to it alone, and since when that waits.
    wanted: BTreeMap<u64, Time>,
    /// Datagrams that may be under way again where no reservation is known: a quarter less when one of them is lost or nothing is heard, more as
    /// they arrive. The way may have a meter all the same: what is sent again faster only takes the place of something else, a storm without end.
    share: usize,
    /// When it was last lessened.
    lessened: Time,
    /// It was told to leave.
    asked: bool,
    /// How often it was told so and has not said that it has.
    replies: u32,
    /// It is to be invited when it has left.
    comes_back: Option<Control>,
    /// It has said that it takes nothing from this datagram on; below, its broker may still have to confirm something.
    until: Option<u64>,
    /// After a time-out: below this, what it lacks is sent again as fast as it acknowledges.
    recover: u64,
}

#[derive(Debug)]
struct Entry {
    bytes: Vec<u8>,
    /// When it left for the group; when it was published as long as it has not.
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
    /// Number behind the last datagram that has left.
    sent: u64,
    /// Does a reservation pace what leaves?
    paced: bool,
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
            sent: 0,
            paced: false,
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
        if self.sent < self.next() {
            return Err(Refused::Paced);
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
        }
        let number = self.taken + self.ends.len() as u64;
        self.ends.push_back(self.next());
        self.settle(effects);
        Ok(number)
    }

    /// Is what leaves paced by a reservation?
    pub(super) const fn set_paced(&mut self, paced: bool) {
        self.paced = paced;
    }

    pub(super) const fn patience(&self) -> Span {
        self.limits.patience
    }

    /// What is to leave for the group first.
    pub(super) fn first_unsent(&self) -> Option<u64> {
        (self.sent < self.next()).then_some(self.sent)
    }

    /// What waits for being sent again: since when, to whom; for each member its first datagram counts, since the others wait for that one there.
    pub(super) fn first_again(&self) -> Option<(Time, PeerId, u64)> {
        let first = self.members.iter().filter_map(|(peer, member)| match member {
            Member::Joined(joined) => {
                let (sequence, since) = joined.wanted.first_key_value()?;
                Some((*since, *peer, *sequence))
            }
            _ => None,
        });
        first.min()
    }

    /// The first datagram leaves for the group.
    pub(super) fn leaves(&mut self, now: Time) -> Option<u64> {
        let sequence = self.first_unsent()?;
        let entry = self.entries.get_mut((sequence - self.base) as usize)?;
        entry.sent = now;
        self.sent = sequence + 1;
        for member in self.members.values_mut() {
            // From now on something is due of whom nothing was.
            if let Member::Joined(joined) = member
                && joined.taken == sequence
            {
                joined.heard = now;
            }
        }
        Some(sequence)
    }

    /// The first datagram that a member lacks leaves for it, marked so.
    pub(super) fn leaves_again(&mut self, now: Time, peer: PeerId) -> Option<u64> {
        let Some(Member::Joined(joined)) = self.members.get_mut(&peer) else {
            return None;
        };
        let (sequence, _) = joined.wanted.pop_first()?;
        let entry = self.entries.get_mut(sequence.checked_sub(self.base)? as usize)?;
        joined.again.insert(sequence, now);
        super::datagram::mark_again(&mut entry.bytes);
        Some(sequence)
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
        let (sent, base) = (self.sent, self.base);
        let Some(Member::Joined(joined)) = self.members.get_mut(&peer) else {
            // It was told that it is none; what it knew until then was sent.
            return if is_possible(report, sent) {
                Ok(())
            } else {
                Err(Impossible)
            };
        };
        // Who joins while something waits is told to have all of that.
        if !is_possible(report, sent.max(joined.next)) {
            return Err(Impossible);
        }
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
        joined.forget_what_arrived();
        let wait = joined.trip.timeout();
        let lost_again = |sequence: &u64| {
            let last = joined.again.get(sequence);
            last.is_some_and(|last| now >= last.after(wait))
        };
        if joined.missing().any(|sequence| lost_again(&sequence)) {
            joined.lessen(now);
        }
        let most = if self.paced {
            self.limits.burst
        } else {
            joined.share
        };
        let mut room = most.saturating_sub(joined.under_way(now));
        for sequence in joined.missing_range() {
            let last = joined.again.get(&sequence);
            let is_due = last.is_none_or(|last| now >= last.after(wait));
            if room > 0 && is_due && !joined.has(sequence) && !joined.wanted.contains_key(&sequence) {
                joined.wanted.insert(sequence, now);
                room -= 1;
            }
        }
        if goes_on {
            let wait = joined.trip.timeout();
            self.send_lacking(now, peer, wait);
        }
        self.settle(effects);
        Ok(())
    }

    /// When [`Self::timeout`] is to be called next; what waits to be sent is the pacer's ([`super::pacing::Pacer::next_timeout`]).
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.members.values().filter_map(|member| self.due(member)).min()
    }

    fn due(&self, member: &Member) -> Option<Time> {
        match member {
            Member::Lost | Member::Left => None,
            Member::Parting { since, .. } => Some(since.after(self.limits.silence)),
            Member::Expected { since } => Some(since.after(self.limits.join)),
            Member::Joined(joined) if joined.until.is_some() => Some(joined.heard.after(self.limits.silence)),
            Member::Joined(joined) => {
                let waits = joined.asked || (self.reliable && joined.taken < self.sent);
                let silent = waits.then(|| joined.heard.after(self.limits.silence));
                let is_missed = self.reliable && joined.next < self.sent && joined.wanted.is_empty();
                let again = is_missed.then(|| self.last_sent(joined).after(joined.trip.timeout()));
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
            if matches!(self.members[&peer], Member::Parting { .. }) {
                self.has_parted(now, peer, effects);
                continue;
            }
            let lost = match &self.members[&peer] {
                Member::Joined(joined) => now >= joined.heard.after(self.limits.silence),
                Member::Expected { .. } => true,
                Member::Lost | Member::Left | Member::Parting { .. } => false,
            };
            if lost {
                self.lose(peer, effects);
            } else {
                self.resend(now, peer);
            }
        }
        self.look_whether_open(effects);
        self.settle(effects);
    }

    fn resend(&mut self, now: Time, peer: PeerId) {
        let end = self.sent;
        if let Some(Member::Joined(joined)) = self.members.get_mut(&peer) {
            let wait = joined.trip.timeout();
            joined.lessen(now);
            joined.trip.back_off();
            joined.recover = end;
            self.send_lacking(now, peer, wait);
        }
    }

    /// As much of what a member lacks as may be sent at once, and was not sent less than `wait` ago.
    fn send_lacking(&mut self, now: Time, peer: PeerId, wait: Span) {
        let Some(Member::Joined(joined)) = self.members.get_mut(&peer) else {
            return;
        };
        let mut room = if self.paced {
            self.limits.burst
        } else {
            joined.share
        };
        // It has heard of nothing behind what is known to have arrived, so all of that may be missing; but once it reports something behind a gap, what
        // is too far behind it to be reported (`Arrived::beyond`) is no more likely to be missing than anything else.
        let end = match joined.beyond {
            0 => joined.recover,
            _ => joined.recover.min(joined.next + 65),
        };
        for sequence in joined.next..end {
            if room == 0 {
                break;
            }
            let place = sequence.saturating_sub(self.base) as usize;
            let all = self.entries.get(place).map(|entry| entry.sent);
            let last = joined.again.get(&sequence).copied().max(all);
            if joined.has(sequence) || last.is_some_and(|last| now < last.after(wait)) {
                continue;
            }
            joined.wanted.entry(sequence).or_insert(now);
            room -= 1;
        }
    }

    /// Messages that end there or before are taken by all.
    #[must_use]
    pub fn taken_to(&self) -> u64 {
        let first = self.ends.front();
        first.map_or(self.next(), |first| first - 1)
    }

    /// Number behind the last datagram that was published.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.next()
    }

    /// Messages that all took are told, datagrams that all got are forgotten.
    fn settle(&mut self, effects: &mut Vec<Effect>) {
        self.let_go(effects);
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
        // Nobody is left who would get it.
        self.sent = self.sent.max(self.base);
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

    /// How many are under way again now, or are to be.
    fn under_way(&self, now: Time) -> usize {
        let wait = self.trip.timeout();
        let under_way = self
            .again
            .iter()
            .filter(|(sequence, sent)| now < sent.after(wait) && !self.has(**sequence));
        self.wanted.len() + under_way.count()
    }

    /// What has arrived needs not be sent again.
    fn forget_what_arrived(&mut self) {
        let (next, beyond) = (self.next, self.beyond);
        self.wanted.retain(|sequence, _| !has(next, beyond, *sequence));
    }

    const fn has(&self, sequence: u64) -> bool {
        has(self.next, self.beyond, sequence)
    }

    /// Where datagrams may be missing below one that has arrived.
    const fn missing_range(&self) -> std::ops::Range<u64> {
        self.next..self.next + 64 - self.beyond.leading_zeros() as u64
    }

    /// Datagrams below one that has arrived which have not.
    fn missing(&self) -> impl Iterator<Item = u64> + '_ {
        self.missing_range().filter(|sequence| !self.has(*sequence))
    }
}

/// With all below `next` and what `beyond` says (`Arrived::beyond`): is a datagram there?
const fn has(next: u64, beyond: u64, sequence: u64) -> bool {
    match sequence.checked_sub(next) {
        None => true,
        Some(0) => false,
        Some(behind) => behind <= 64 && beyond >> (behind - 1) & 1 == 1,
    }
}

/// Does a report claim nothing but what was sent?
fn is_possible(report: &Arrived, end: u64) -> bool {
    let highest = 64 - u64::from(report.beyond.leading_zeros());
    let is_beyond = highest > 0 && report.next.saturating_add(highest) >= end;
    report.next <= end && report.taken <= report.next && !is_beyond
}

//! Who gets a stream: peers are invited, join, leave, are lost and come back (the table of members in [`super::super`]).

use super::{Effect, Joined, Member, Sender};
use crate::peer::PeerId;
use crate::peer::control::Control;
use crate::peer::datagram::Datagram;
use crate::peer::message::DUPLICATE;
use crate::peer::round_trip::RoundTrip;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use timebound_model::units::Time;

impl Sender {
    /// Who gets what is sent now.
    pub fn joined(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.members.iter().filter_map(|(peer, member)| match member {
            Member::Joined(joined) if joined.until.is_none() => Some(*peer),
            _ => None,
        })
    }

    /// Who is a member, or has yet to leave.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.members.keys().copied()
    }

    /// Is a peer leaving, with something that it may still take?
    #[must_use]
    pub fn is_leaving(&self, peer: PeerId) -> bool {
        match self.members.get(&peer) {
            Some(Member::Joined(joined)) => joined.asked || joined.until.is_some(),
            _ => false,
        }
    }

    /// A peer is to become a member: `invitation` is told to it. Before the first message data waits for it; later it does not.
    pub fn invite(&mut self, now: Time, peer: PeerId, invitation: Control, effects: &mut Vec<Effect>) {
        let comes_back = match self.members.get_mut(&peer) {
            Some(Member::Parting { comes_back, .. }) => Some(comes_back),
            Some(Member::Joined(joined)) if joined.asked => Some(&mut joined.comes_back),
            _ => None,
        };
        if let Some(comes_back) = comes_back {
            *comes_back = Some(invitation);
            return;
        }
        let was_lost = matches!(self.members.get(&peer), Some(Member::Lost | Member::Left));
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
            None | Some(Member::Parting { .. }) => return,
            // Again, over a new connection: what it has been told may be lost, what is for it is not.
            Some(Member::Joined(joined)) if joined.until.is_none() => joined.heard = now,
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
                    wanted: BTreeMap::new(),
                    share: limits.burst,
                    lessened: now,
                    asked: false,
                    replies: 0,
                    comes_back: None,
                    until: None,
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

    /// A peer is to be a member no more: it is told so, and stays one until it has said what it does not take ([`Self::left`]) and its broker has taken
    /// the rest, or it is lost.
    pub fn part(&mut self, now: Time, peer: PeerId, effects: &mut Vec<Effect>) {
        let stream = self.stream;
        match self.members.get_mut(&peer) {
            None => return,
            Some(Member::Joined(joined)) => {
                joined.heard = if joined.asked { joined.heard } else { now };
                (joined.asked, joined.comes_back) = (true, None);
                joined.replies += 1;
            }
            Some(Member::Parting {
                comes_back, replies, ..
            }) => {
                *comes_back = None;
                *replies += 1;
            }
            Some(member) => {
                *member = Member::Parting {
                    since: now,
                    replies: 1,
                    comes_back: None,
                };
            }
        }
        effects.push(Effect::Tell(peer, Control::Leave { stream }));
        self.look_whether_open(effects);
        self.settle(effects);
    }

    /// A peer has left, because it was told to: what it has not reported as arrived it will not take.
    pub fn left(&mut self, now: Time, peer: PeerId, effects: &mut Vec<Effect>) {
        match self.members.get_mut(&peer) {
            Some(Member::Joined(joined)) => {
                joined.replies = joined.replies.saturating_sub(1);
                if joined.until.is_none() {
                    (joined.until, joined.heard, joined.recover) = (Some(joined.next), now, 0);
                    joined.wanted.clear();
                    joined.again.clear();
                    let (first, next) = (joined.first_message, joined.next);
                    self.give_back(peer, first, next + 1..=u64::MAX, false, effects);
                }
            }
            Some(member @ Member::Expected { .. }) => *member = Member::Left,
            Some(Member::Parting { replies, .. }) => {
                *replies = replies.saturating_sub(1);
                if *replies == 0 {
                    self.has_parted(now, peer, effects);
                }
            }
            Some(Member::Lost | Member::Left) | None => return,
        }
        self.look_whether_open(effects);
        self.settle(effects);
    }

    /// There is another connection to a peer: what it has not said on the one before it will not say.
    pub fn reconnected(&mut self, now: Time, peer: PeerId, effects: &mut Vec<Effect>) {
        let comes_back = match self.members.get_mut(&peer) {
            Some(Member::Joined(joined)) if joined.asked => {
                joined.replies = 0;
                joined.comes_back.take()
            }
            Some(Member::Parting {
                replies, comes_back, ..
            }) => {
                *replies = 0;
                comes_back.take()
            }
            _ => return,
        };
        self.part(now, peer, effects);
        if let Some(invitation) = comes_back {
            self.invite(now, peer, invitation, effects);
        }
    }

    /// It has left: it goes, or is invited again.
    pub(super) fn has_parted(&mut self, now: Time, peer: PeerId, effects: &mut Vec<Effect>) {
        let again = match self.members.remove(&peer) {
            Some(Member::Parting { comes_back, .. }) => comes_back,
            Some(Member::Joined(joined)) => joined.comes_back,
            _ => None,
        };
        if let Some(invitation) = again {
            self.members.insert(peer, Member::Expected { since: now });
            effects.push(Effect::Tell(peer, invitation));
        }
    }

    /// Messages from this one on with these ends; marked as sent again where some may have been taken.
    fn give_back(
        &self,
        peer: PeerId,
        first: u64,
        ends: RangeInclusive<u64>,
        again: bool,
        effects: &mut Vec<Effect>,
    ) {
        if !self.reliable {
            return;
        }
        let mut messages = Vec::new();
        let mut begin = self.base;
        for (number, end) in (self.taken..).zip(&self.ends) {
            if number >= first && ends.contains(end) {
                messages.extend(self.message(begin, *end, again));
            }
            begin = *end;
        }
        if !messages.is_empty() {
            effects.push(Effect::Returned { peer, messages });
        }
    }

    /// Key and bytes of a message that ends there; it begins at `begin` or behind, since datagrams before may be forgotten message by message.
    fn message(&self, begin: u64, end: u64, again: bool) -> Option<(u64, Vec<u8>)> {
        let parts = (begin..end).map(|sequence| Datagram::read(self.datagram(sequence)).ok());
        let parts: Vec<_> = parts.collect::<Option<_>>()?;
        let start = parts.iter().rposition(|part| part.first)?;
        let mut bytes: Vec<u8> = parts[start..]
            .iter()
            .flat_map(|part| part.part)
            .copied()
            .collect();
        if again && let Some(first) = bytes.first_mut() {
            *first |= DUPLICATE;
        }
        Some((parts.last()?.key, bytes))
    }

    /// Peers that have left and have nothing more to take go.
    pub(super) fn let_go(&mut self, effects: &mut Vec<Effect>) {
        let ends = &self.ends;
        let mut over = Vec::new();
        for (peer, member) in &mut self.members {
            let Member::Joined(joined) = member else {
                continue;
            };
            let is_over = joined.until.is_some_and(|until| {
                let mut open = ends.iter().filter(|end| **end > joined.taken && **end <= until);
                open.next().is_none()
            });
            if is_over && joined.asked && joined.replies == 0 {
                over.push((joined.heard, *peer));
            } else if is_over && !joined.asked {
                *member = Member::Left;
            }
        }
        for (heard, peer) in over {
            self.has_parted(heard, peer, effects);
        }
    }

    /// A member's process was started again: it has nothing but what its broker has taken.
    pub fn restarted(&mut self, now: Time, peer: PeerId, effects: &mut Vec<Effect>) {
        let end = self.sent;
        if matches!(self.members.get(&peer), Some(Member::Parting { .. })) {
            self.has_parted(now, peer, effects);
        }
        if let Some(Member::Joined(joined)) = self.members.get(&peer)
            && (joined.asked || joined.until.is_some())
        {
            // It does not come back. What its broker may have all the same is known there by its key.
            // What is behind `until` was given back when it left.
            let ends = joined.taken + 1..=joined.until.unwrap_or(u64::MAX);
            self.give_back(peer, joined.first_message, ends, true, effects);
            self.has_parted(now, peer, effects);
            return self.settle(effects);
        }
        if let Some(Member::Joined(joined)) = self.members.get_mut(&peer) {
            (joined.next, joined.beyond) = (joined.taken.max(self.base), 0);
            (joined.heard, joined.recover) = (now, end);
            joined.again.clear();
            joined.wanted.clear();
        }
    }

    /// A member cannot be reached any more.
    pub fn lost(&mut self, peer: PeerId, effects: &mut Vec<Effect>) {
        if let Some(Member::Parting { comes_back: None, .. }) = self.members.get(&peer) {
            self.members.remove(&peer);
        }
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
            of(|member| matches!(member, Member::Expected { .. } | Member::Left)),
            of(|member| matches!(member, Member::Lost)),
        )
    }

    pub(super) fn lose(&mut self, peer: PeerId, effects: &mut Vec<Effect>) {
        if let Some(member) = self.members.insert(peer, Member::Lost) {
            self.give_up(peer, &member, effects);
            match member {
                Member::Joined(joined) if joined.asked => match joined.comes_back {
                    Some(invitation) => effects.push(Effect::Tell(peer, invitation)),
                    None => drop(self.members.remove(&peer)),
                },
                _ => {}
            }
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
        let below = |limit: u64| self.ends.iter().filter(|end| **end <= limit).count() as u64;
        let had = below(joined.taken);
        let for_it = joined.until.map_or(self.ends.len() as u64, below);
        let messages = (self.taken + had).max(joined.first_message)..self.taken + for_it;
        if !messages.is_empty() {
            effects.push(Effect::Undelivered { peer, messages });
        }
    }
}

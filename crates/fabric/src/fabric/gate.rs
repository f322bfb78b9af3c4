//! Ports whose frames may have to wait although nobody sends: held while the link carries nothing, until the next
//! opportunity of a trace, or until a slot of their own.
//!
//! | what happens | the frame in transmission | frames that wait |
//! |---|---|---|
//! | the link goes down, `held` is not set | is lost | are sent at their times and lost |
//! | the link goes down, `held` is set | is lost | wait (the buffer holds) |
//! | the link comes up | goes on; lost if it began before | the first one starts now |
//! | an opportunity comes, link up | gets up to 1504 bytes of it, and the next frames the rest | |
//! | an opportunity comes, frames are held | the opportunity is wasted | |
//! | an opportunity comes, nothing waits | the opportunity is wasted | |
//! | a frame is next, its slot has too little time left for it | | waits for the next slot that is long enough |
//! | a frame is next, no slot is long enough for it | | is dropped |

use super::Fabric;
use crate::events::{Event, LAST};
use crate::frame::{DropReason, Sink};
use crate::slab::NONE;
use timebound_model::Time;

impl Fabric {
    /// A port that sends nothing and has frames waiting: they start, or the port looks again when they may.
    pub(super) fn serve<S: Sink>(&mut self, now: u64, port: u32, sink: &mut S) {
        let state = &mut self.ports[port as usize];
        if let Some(opportunities) = &mut state.opportunities {
            opportunities.waste(now);
            let next = opportunities.next_time();
            return self.wake_at(next, port);
        }
        match state.held_until(now) {
            Some(until) => self.wake_at(until, port),
            None if state.slots.is_some() => self.serve_in_slot(now, port, sink),
            None if state.medium == NONE => self.start_transmission(now, port),
            None => self.request_medium(now, port),
        }
    }

    /// The frame whose turn it is starts if it ends within the slot; otherwise the port looks again when it would.
    ///
    /// No other frame goes before it for being shorter: that would change the order within and between classes.
    fn serve_in_slot<S: Sink>(&mut self, now: u64, port: u32, sink: &mut S) {
        loop {
            let state = &mut self.ports[port as usize];
            let (Some(index), Some(slots)) = (state.queues.peek(&self.slab), &state.slots) else {
                return;
            };
            let wire = self.slab.get(index).frame.wire;
            match slots.start(Time(now), state.rate.transmission_time(wire)) {
                Some(start) if start.0 == now => return self.start_transmission(now, port),
                Some(start) => return self.wake_at(start.0, port),
                None => {
                    state.queues.pop(&self.slab);
                    state.queues.sent();
                    state.counters.queued_bytes -= u64::from(wire.0);
                    self.drop(now, Some(port), index, DropReason::Outage, sink);
                }
            }
        }
    }

    fn wake_at(&mut self, time: u64, port: u32) {
        let state = &mut self.ports[port as usize];
        // `u64::MAX`: somebody else will call.
        if time < state.wakes {
            state.wakes = time;
            let sequence = self.next_sequence();
            self.events.push(time, sequence, Event::Wake(port));
        }
    }

    pub(super) fn wake<S: Sink>(&mut self, now: u64, port: u32, sink: &mut S) {
        let state = &mut self.ports[port as usize];
        // An earlier one, or a change, made this one stale.
        if state.wakes == now {
            state.wakes = u64::MAX;
            self.look_again(now, port, sink);
        }
    }

    /// Something has changed that may let waiting frames go.
    pub(super) fn look_again<S: Sink>(&mut self, now: u64, port: u32, sink: &mut S) {
        let state = &self.ports[port as usize];
        if state.opportunities.is_some() {
            self.deliver(now, port, sink);
        } else if state.sending == NONE && !state.requested && !state.queues.is_empty() {
            self.serve(now, port, sink);
        }
    }

    /// The link carries frames of this port from now on, or no longer.
    pub(super) fn connect<S: Sink>(&mut self, now: u64, port: u32, up: bool, sink: &mut S) {
        let state = &mut self.ports[port as usize];
        state.down = !up;
        state.spoiled |= !up;
        if up {
            self.look_again(now, port, sink);
        }
    }

    /// The medium is free: the port whose turn it is sends, unless its link has gone meanwhile.
    pub(super) fn grant(&mut self, now: u64, medium: u32) {
        let Some(port) = self.media[medium as usize].grant() else {
            return;
        };
        let state = &mut self.ports[port as usize];
        state.requested = false;
        match state.held_until(now) {
            None => self.start_transmission(now, port),
            Some(until) => {
                self.wake_at(until, port);
                if self.media[medium as usize].release() {
                    self.events.push(now, LAST, Event::Grant(medium));
                }
            }
        }
    }

    /// Uses the opportunities up to `now` as mahimahi's link queue does (`LinkQueue::rationalize`): each delivers up to
    /// 1504 bytes of the frame under way and of those that wait, and what nobody needs of it is lost.
    pub(super) fn deliver<S: Sink>(&mut self, now: u64, port: u32, sink: &mut S) {
        loop {
            let state = &mut self.ports[port as usize];
            let waits = state.sending != NONE || !state.queues.is_empty();
            let held = waits && state.held_until(now).is_some();
            let Some(opportunities) = &mut state.opportunities else {
                return;
            };
            if !waits || held {
                opportunities.waste(now);
            }
            let next = opportunities.next_time();
            if next > now {
                if waits {
                    self.wake_at(next, port);
                }
                return;
            }
            let mut room = opportunities.take();
            while room > 0 && self.fetch(next, port) {
                room = self.deliver_some(next, port, room, sink);
            }
        }
    }

    /// Sees to it that a frame is under way; false if there is none.
    fn fetch(&mut self, now: u64, port: u32) -> bool {
        let state = &mut self.ports[port as usize];
        if state.sending != NONE {
            return true;
        }
        let (Some(index), Some(opportunities)) = (state.queues.pop(&self.slab), &mut state.opportunities)
        else {
            return false;
        };
        let wire = self.slab.get(index).frame.wire;
        state.counters.queued_bytes -= u64::from(wire.0);
        opportunities.begin(wire);
        (state.sending, state.sending_since, state.spoiled) = (index, now, state.down);
        true
    }

    /// Delivers up to `room` bytes of the frame under way; what is left of the room.
    fn deliver_some<S: Sink>(&mut self, now: u64, port: u32, room: u32, sink: &mut S) -> u32 {
        let state = &mut self.ports[port as usize];
        let Some(opportunities) = &mut state.opportunities else {
            return 0;
        };
        let used = room.min(opportunities.left);
        opportunities.left -= used;
        if opportunities.left == 0 {
            let (index, since, spoiled) = (state.sending, state.sending_since, state.spoiled);
            state.sending = NONE;
            state.queues.sent();
            self.launch(now, port, index, since, spoiled, sink);
        }
        room - used
    }
}

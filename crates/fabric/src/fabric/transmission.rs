//! Ports and links: waiting, sending, and the way to the next node.

use super::{Crossing, Fabric, Switching, Ties};
use crate::events::{Event, LAST};
use crate::frame::{DropReason, Sink};
use crate::slab::NONE;
use std::cmp::Reverse;
use timebound_model::{PortId, StreamId, Time};

impl Fabric {
    #[inline]
    pub(super) fn enqueue<S: Sink>(&mut self, now: u64, port: u32, index: u32, sink: &mut S) {
        if S::ARRIVALS {
            sink.queued(PortId(port), Time(now), &self.slab.get(index).frame);
        }
        let state = &mut self.ports[port as usize];
        if state.passes {
            return self.pass(now, port, index, sink);
        }
        if state.opportunities.is_some() {
            // What is due was due before this frame came.
            self.deliver(now, port, sink);
        }
        let state = &mut self.ports[port as usize];
        let frame = &self.slab.get(index).frame;
        let (class, wire) = (frame.class.0, frame.wire.0);
        if state.began_before_its_turn(now, class, &self.slab) && self.ties == Ties::ByClass {
            return self.start_over(now, port, index, sink);
        }
        // A frame that need not wait behind another takes no buffer.
        if !state.is_idle() && !state.has_room(class, wire) {
            return self.drop(now, Some(port), index, DropReason::Buffer, sink);
        }
        if state.is_idle() && state.medium == NONE && !state.is_gated() {
            state.queues.skip(class, wire);
            return self.send(now, port, index);
        }
        state.queues.push(&mut self.slab, index);
        state.count_queued(class, wire);
        if state.sending == NONE && !state.requested {
            self.serve(now, port, sink);
        }
    }

    /// The frame that began at this moment goes back, and the more urgent one that came at it goes first. It needs no room: nothing of its
    /// class waits. Nor does the other one, which had it, or needed none.
    fn start_over<S: Sink>(&mut self, now: u64, port: u32, urgent: u32, sink: &mut S) {
        let state = &mut self.ports[port as usize];
        let first = std::mem::replace(&mut state.sending, NONE);
        state.remainder = state.remainder_before;
        state.queues.push_front(&mut self.slab, first);
        let frame = &self.slab.get(first).frame;
        state.count_queued(frame.class.0, frame.wire.0);
        if state.slots.is_none() {
            return self.send(now, port, urgent);
        }
        // It may not fit into what the other one would have.
        state.queues.push(&mut self.slab, urgent);
        let frame = &self.slab.get(urgent).frame;
        state.count_queued(frame.class.0, frame.wire.0);
        self.serve(now, port, sink);
    }

    pub(super) fn request_medium(&mut self, now: u64, port: u32) {
        let state = &mut self.ports[port as usize];
        state.requested = true;
        let medium = state.medium;
        if self.media[medium as usize].request(now, port) {
            self.events.push(now, LAST, Event::Grant(medium));
        }
    }

    #[inline]
    pub(super) fn start_transmission(&mut self, now: u64, port: u32) {
        let state = &mut self.ports[port as usize];
        if let Some(index) = state.queues.pop(&self.slab) {
            state.counters.queued_bytes -= u64::from(self.slab.get(index).frame.wire.0);
            self.send(now, port, index);
        }
    }

    #[inline]
    pub(super) fn send(&mut self, now: u64, port: u32, index: u32) {
        let sequence = self.next_sequence();
        let state = &mut self.ports[port as usize];
        let takes = state.rate.transmission(self.slab.get(index).frame.wire);
        let end = if state.carries {
            state.remainder_before = state.remainder;
            state.remainder.end(now, takes, state.rate)
        } else {
            now + takes.0.0
        };
        (state.sending, state.sending_since, state.spoiled) = (index, now, state.down);
        state.sending_until = end;
        self.events.push(end, sequence, Event::TransmissionEnd(port));
    }

    #[inline]
    pub(super) fn end_transmission<S: Sink>(&mut self, now: u64, port: u32, sink: &mut S) {
        let state = &mut self.ports[port as usize];
        if state.sending_until != now || state.sending == NONE {
            return;
        }
        let (index, started, spoiled) = (state.sending, state.sending_since, state.spoiled);
        let medium = state.medium;
        state.sending = NONE;
        state.queues.sent();
        self.launch(now, port, index, started, spoiled, sink);
        let waits = !self.ports[port as usize].queues.is_empty();
        if medium == NONE {
            if waits {
                self.serve(now, port, sink);
            }
            return;
        }
        if self.media[medium as usize].release() {
            self.events.push(now, LAST, Event::Grant(medium));
        }
        if waits {
            self.serve(now, port, sink);
        }
    }

    /// Out of a shared segment: on the air already, so the frame goes on at once.
    pub(super) fn pass<S: Sink>(&mut self, now: u64, port: u32, index: u32, sink: &mut S) {
        let down = self.ports[port as usize].down;
        self.launch(now, port, index, now, down, sink);
    }

    /// The last bit is on the link: count, let the impairments judge, send it on its way.
    #[inline]
    pub(super) fn launch<S: Sink>(
        &mut self,
        now: u64,
        port: u32,
        index: u32,
        started: u64,
        spoiled: bool,
        sink: &mut S,
    ) {
        let frame = &self.slab.get(index).frame;
        if S::TRANSMISSIONS {
            sink.transmitted(PortId(port), Time(started), Time(now), frame);
        }
        let state = &mut self.ports[port as usize];
        state.count_sent(frame.wire.0);
        let mut delay = state.propagation;
        if state.rules.is_some() || spoiled {
            let outcome = state
                .rules
                .as_mut()
                .map(|rules| rules.judge(started, now))
                .unwrap_or_default();
            let reason = if spoiled {
                Some(DropReason::Outage)
            } else {
                outcome.dropped
            };
            if let Some(reason) = reason {
                return self.drop(now, Some(port), index, reason, sink);
            }
            delay += if self.switching == Switching::Uniform {
                outcome.delay
            } else {
                let stream = self.slab.get(index).frame.stream;
                self.chosen(port, stream, self.ports[port as usize].jitter_range)
            };
            self.slab.get_mut(index).damaged |= outcome.damaged;
            if outcome.duplicated {
                sink.copied(self.slab.get(index).frame.handle, 1);
                let copy = self.slab.copy(index);
                self.fly(now, port, index, delay, sink);
                return self.fly(now, port, copy, delay, sink);
            }
        }
        self.fly(now, port, index, delay, sink);
    }

    /// Under way for `delay`, then (at a switch) for the switching delay. Unless the link reorders, a frame neither arrives
    /// nor is switched before its predecessor on the link. (Both waits are one event, which halves the event queue's work.)
    /// Frames that the switch copies take longer; only such frames wait for their predecessors.
    #[inline]
    pub(super) fn fly<S: Sink>(&mut self, now: u64, port: u32, index: u32, delay: u64, sink: &mut S) {
        let sequence = self.next_sequence();
        let state = &self.ports[port as usize];
        let extra = state.switching_least
            + match state.switching_range {
                0 => 0,
                range => self.chosen(port, self.slab.get(index).frame.stream, range),
            };
        let copying = self.copying(port, index);
        let state = &mut self.ports[port as usize];
        let entry = self.slab.get_mut(index);
        entry.sequence = sequence;
        if let Some(copying) = copying.filter(|_| !state.reorders) {
            state.last_arrival = state.last_arrival.max(now + delay);
            state.last_copied = state.last_copied.max(state.last_arrival + extra + copying);
            entry.time = state.last_copied;
            if state.cut {
                return self.leave_part(now, port, index, sink);
            }
            state.overtaking.push(Reverse((entry.time, sequence, index)));
            self.events.push(entry.time, sequence, Event::Overtaking(port));
            return;
        }
        let extra = extra + copying.unwrap_or(0);
        if state.reorders {
            entry.time = now + delay + extra;
            // Should the link keep order again, it keeps it to these as well.
            state.last_entry = state.last_entry.max(entry.time);
            if state.cut {
                return self.leave_part(now, port, index, sink);
            }
            state.overtaking.push(Reverse((entry.time, sequence, index)));
            self.events.push(entry.time, sequence, Event::Overtaking(port));
            return;
        }
        state.last_arrival = state.last_arrival.max(now + delay);
        state.last_entry = state.last_entry.max(state.last_arrival + extra);
        entry.time = state.last_entry;
        if state.cut {
            return self.leave_part(now, port, index, sink);
        }
        if state.in_flight.push(&mut self.slab, index) {
            self.events.push(state.last_entry, sequence, Event::Arrival(port));
        }
    }

    /// What the switch behind `port` takes to copy the frame; `None` where it does not, or that takes no time.
    #[inline]
    fn copying(&mut self, port: u32, index: u32) -> Option<u64> {
        let state = &self.ports[port as usize];
        let (least, range) = (state.replication_least, state.replication_range);
        if least + range == 0 {
            return None;
        }
        let entry = self.slab.get(index);
        let (position, stream) = (entry.position, entry.frame.stream);
        if !self.wiring.leads(position, PortId(port)) || !self.wiring.hop(position).forks {
            return None;
        }
        Some(match range {
            0 => least,
            range => least + self.chosen(port, stream, range),
        })
    }

    /// A delay from `0..=range` for a frame that `port` has sent.
    #[inline]
    fn chosen(&mut self, port: u32, stream: u32, range: u64) -> u64 {
        let draws = &mut self.ports[port as usize].switching_draws;
        match self.switching {
            Switching::Uniform => draws.up_to(range),
            Switching::Least => 0,
            Switching::Greatest => range,
            Switching::Extremes(favoured) if favoured == stream => range,
            Switching::Extremes(_) => range * (draws.bits() & 1),
            Switching::ExtremesByStream(favoured) if favoured == stream => range,
            Switching::ExtremesByStream(_) => {
                range * u64::from(takes_greatest(self.seed, PortId(port), StreamId(stream)))
            }
        }
    }

    /// Over a cut link: from here on it is another fabric's.
    #[cold]
    fn leave_part<S: Sink>(&mut self, now: u64, port: u32, index: u32, sink: &mut S) {
        let entry = self.slab.get(index);
        sink.crossed(&Crossing {
            port: PortId(port),
            sent: Time(now),
            at: Time(entry.time),
            frame: entry.frame,
            position: entry.position,
            damaged: entry.damaged,
        });
        self.slab.remove(index);
    }
}

/// Does a stream take the greatest delay at a port, under [`Switching::ExtremesByStream`]? A bit for every stream at every port under a
/// seed (SplitMix64's finaliser; Steele, Lea, Flood 2014).
#[must_use]
pub fn takes_greatest(seed: u64, port: PortId, stream: StreamId) -> bool {
    let mut z = seed ^ (u64::from(port.0) << 32 | u64::from(stream.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) & 1 == 1
}

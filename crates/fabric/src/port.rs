//! The state of one egress port and of the link behind it.

use crate::draws::Draws;
use crate::frame::DropReason;
use crate::impairment::Rules;
use crate::opportunities::Opportunities;
use crate::queues::Queues;
use crate::slab::{List, NONE, Slab};
use crate::wiring::Wiring;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use timebound_model::units::Remainder;
use timebound_model::{Impairments, Network, NodeKind, PortId, Rate, Slots};

/// What a port has done since the fabric was made or reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortCounters {
    /// Frames sent, lost ones on the link included.
    pub frames: u64,
    /// Wire bytes of these.
    pub wire_bytes: u64,
    /// Frames that found the buffer full.
    pub dropped_buffer: u64,
    /// Frames sent, but lost on the link: loss, corruption, outage.
    pub dropped_link: u64,
    /// Wire bytes that wait now (the frame in transmission does not count).
    pub queued_bytes: u64,
    /// The most that ever waited.
    pub largest_queue_bytes: u64,
    /// The most that ever waited in the queue of each class (FIFO ports have one, the first).
    pub largest_class_queue_bytes: [u64; 8],
    /// The most that waited since [`crate::Fabric::begin_window`].
    pub window_queue_bytes: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct PortState {
    pub(crate) queues: Queues,
    pub(crate) rate: Rate,
    /// Do frames take over what their predecessors leave of a nanosecond?
    pub(crate) carries: bool,
    /// Would they at some rates?
    pub(crate) may_carry: bool,
    pub(crate) remainder: Remainder,
    /// What it was before the frame that is being sent.
    pub(crate) remainder_before: Remainder,
    pub(crate) propagation: u64,
    pub(crate) buffer: u64,
    /// The frame that is being sent.
    pub(crate) sending: u32,
    pub(crate) sending_since: u64,
    /// When it is gone; an end at any other time is that of a frame that had to go back ([`crate::Ties::ByClass`]).
    pub(crate) sending_until: u64,
    /// The link was down during the transmission.
    pub(crate) spoiled: bool,
    pub(crate) down: bool,
    /// Frames wait while the link carries nothing.
    pub(crate) held: bool,
    /// Delivery opportunities in place of a rate.
    pub(crate) opportunities: Option<Box<Opportunities>>,
    /// Times in which frames may be sent, if not always.
    pub(crate) slots: Option<Slots>,
    /// When the port looks again, `u64::MAX` while it does not wait for its link.
    pub(crate) wakes: u64,
    /// Way out of a shared segment: frames pass without queue and without a second serialisation.
    pub(crate) passes: bool,
    /// Its link leads to the other part of a cut network.
    pub(crate) cut: bool,
    /// What it sends arrives at a switch that is not ours.
    pub(crate) hands_over: bool,
    /// It is a port of such a switch.
    pub(crate) of_real_switch: bool,
    /// Waits for its medium.
    pub(crate) requested: bool,
    /// `NONE` for a full-duplex port, and for one with slots: those of a medium do not overlap, so nobody arbitrates.
    pub(crate) medium: u32,
    pub(crate) reverse: u32,
    pub(crate) peer: u32,
    pub(crate) peer_is_host: bool,
    /// Frames that arrive in the order in which they were sent.
    pub(crate) in_flight: List,
    /// Frames that may overtake: (time, sequence, entry).
    pub(crate) overtaking: BinaryHeap<Reverse<(u64, u64, u32)>>,
    pub(crate) reorders: bool,
    pub(crate) last_arrival: u64,
    pub(crate) last_entry: u64,
    pub(crate) rules: Option<Box<Rules>>,
    /// Greatest delay that the link's jitter can add.
    pub(crate) jitter_range: u64,
    pub(crate) switching_least: u64,
    pub(crate) switching_range: u64,
    /// Added to the switching delay of a stream that the peer copies.
    pub(crate) replication_least: u64,
    pub(crate) replication_range: u64,
    pub(crate) switching_draws: Draws,
    /// When the last frame to be copied entered.
    pub(crate) last_copied: u64,
    pub(crate) counters: PortCounters,
}

impl PortState {
    pub(crate) fn new(network: &Network, wiring: &Wiring, id: PortId, seed: u64) -> Self {
        let port = &network.ports[id.index()];
        let peer = &network.nodes[port.peer.index()];
        // Hosts take frames as they come, and a segment hands them on without storing.
        let (least, greatest) = match peer.kind {
            NodeKind::Switch => (peer.switching_min.0, peer.switching_max.0),
            NodeKind::Host | NodeKind::Segment => (0, 0),
        };
        let (copy_least, copy_greatest) = match peer.kind {
            NodeKind::Switch => (peer.replication_min.0, peer.replication_max.0),
            NodeKind::Host | NodeKind::Segment => (0, 0),
        };
        let mut state = Self {
            queues: Queues::new(&port.discipline),
            rate: port.rate,
            carries: network.carries(id),
            may_carry: network.may_carry(id),
            remainder: Remainder::default(),
            remainder_before: Remainder::default(),
            propagation: port.propagation.0,
            buffer: port.buffer_bytes,
            sending: NONE,
            sending_since: 0,
            sending_until: 0,
            spoiled: false,
            down: false,
            held: false,
            opportunities: port
                .trace
                .clone()
                .map(|trace| Box::new(Opportunities::new(trace))),
            slots: port.slots.clone(),
            wakes: u64::MAX,
            passes: network.nodes[port.node.index()].kind == NodeKind::Segment,
            cut: false,
            hands_over: false,
            of_real_switch: false,
            requested: false,
            medium: match (port.medium, &port.slots) {
                (Some(medium), None) => medium.0,
                _ => NONE,
            },
            reverse: port.reverse.0,
            peer: port.peer.0,
            peer_is_host: peer.kind == NodeKind::Host,
            in_flight: List::EMPTY,
            overtaking: BinaryHeap::new(),
            reorders: false,
            last_arrival: 0,
            last_entry: 0,
            rules: None,
            jitter_range: 0,
            switching_least: least,
            switching_range: greatest - least,
            replication_least: copy_least,
            replication_range: copy_greatest - copy_least,
            last_copied: 0,
            switching_draws: wiring.switching_names[id.index()].draws(seed),
            counters: PortCounters::default(),
        };
        state.impair(&port.impairments, wiring, id, seed, 0);
        state
    }

    /// Sets the conditions of the link; a rule that was there goes on in its random streams.
    pub(crate) fn impair(
        &mut self,
        impairments: &Impairments,
        wiring: &Wiring,
        id: PortId,
        seed: u64,
        now: u64,
    ) {
        self.held = impairments.held;
        self.jitter_range = impairments.greatest_jitter().0;
        self.reorders = impairments.jitter.as_ref().is_some_and(|jitter| jitter.reorder);
        match &mut self.rules {
            Some(rules) => rules.change(impairments, now),
            None => {
                let mut rules = Rules::new(&Impairments::default(), &wiring.rule_names[id.index()], seed);
                rules.change(impairments, now);
                self.rules = (!rules.are_none()).then(|| Box::new(rules));
            }
        }
    }

    /// Back to the state at time zero under another seed, without giving memory back.
    pub(crate) fn reset(&mut self, network: &Network, wiring: &Wiring, id: PortId, seed: u64) {
        let port = &network.ports[id.index()];
        self.queues.clear();
        self.rate = port.rate;
        self.carries = network.carries(id);
        self.remainder = Remainder::default();
        self.propagation = port.propagation.0;
        (self.sending, self.sending_since, self.sending_until) = (NONE, 0, 0);
        (self.spoiled, self.down, self.requested) = (false, false, false);
        self.buffer = port.buffer_bytes;
        self.wakes = u64::MAX;
        if let Some(opportunities) = &mut self.opportunities {
            opportunities.clear();
        }
        self.in_flight = List::EMPTY;
        self.overtaking.clear();
        (self.last_arrival, self.last_entry, self.last_copied) = (0, 0, 0);
        self.counters = PortCounters::default();
        self.switching_draws = wiring.switching_names[id.index()].draws(seed);
        if let Some(rules) = &mut self.rules {
            rules.forget();
            rules.reseed(&wiring.rule_names[id.index()], seed);
        }
        self.impair(&port.impairments, wiring, id, seed, 0);
    }

    pub(crate) fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
        self.remainder.forget();
        // Media, slots and ways out of segments stay with whole nanoseconds.
        self.carries = self.may_carry && !rate.is_whole();
    }

    /// What arrives at its peer is not held there: the peer is not ours, and takes its own time.
    pub(crate) fn switch_at_once(&mut self) {
        (self.switching_least, self.switching_range) = (0, 0);
        (self.replication_least, self.replication_range) = (0, 0);
    }

    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.sending == NONE && self.queues.is_empty()
    }

    /// May a frame have to wait although the port is idle?
    #[inline]
    pub(crate) fn is_gated(&self) -> bool {
        self.held || self.opportunities.is_some() || self.slots.is_some()
    }

    /// Has the frame that is being sent begun at this very moment, before one of this class that came at it?
    #[inline]
    pub(crate) fn began_before_its_turn(&self, now: u64, class: u8, slab: &Slab) -> bool {
        self.sending_since == now
            && self.sending != NONE
            && class > slab.get(self.sending).frame.class.0
            && self.medium == NONE
            && self.opportunities.is_none()
            && self.queues.is_by_class()
    }

    /// Until when the port holds its frames back, if it does: `u64::MAX` while nobody knows.
    pub(crate) fn held_until(&mut self, now: u64) -> Option<u64> {
        if !self.held {
            return None;
        }
        if self.down {
            return Some(u64::MAX);
        }
        let since = if self.sending == NONE {
            now
        } else {
            self.sending_since
        };
        self.rules.as_mut().and_then(|rules| rules.out_until(since, now))
    }

    #[inline]
    pub(crate) fn has_room(&self, class: u8, wire: u32) -> bool {
        self.queues.bytes_before(class) + u64::from(wire) <= self.buffer
    }

    #[inline]
    pub(crate) fn count_queued(&mut self, class: u8, wire: u32) {
        let (queue, waiting) = self.queues.waiting(class);
        let counters = &mut self.counters;
        let largest = &mut counters.largest_class_queue_bytes[queue];
        *largest = waiting.max(*largest);
        counters.queued_bytes += u64::from(wire);
        counters.window_queue_bytes = counters.window_queue_bytes.max(counters.queued_bytes);
        counters.largest_queue_bytes = counters.largest_queue_bytes.max(counters.queued_bytes);
    }

    #[inline]
    pub(crate) fn count_sent(&mut self, wire: u32) {
        self.counters.frames += 1;
        self.counters.wire_bytes += u64::from(wire);
    }

    pub(crate) fn count_dropped(&mut self, reason: DropReason) {
        match reason {
            DropReason::Buffer => self.counters.dropped_buffer += 1,
            _ => self.counters.dropped_link += 1,
        }
    }
}

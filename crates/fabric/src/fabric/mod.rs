//! The machine: frames and time in, deliveries and drops out.

mod crossing;
mod forwarding;
mod gate;
mod handover;
mod transmission;

pub use crossing::Crossing;
pub use handover::{Handed, Reentry};
pub use transmission::takes_greatest;

use crate::change::Change;
use crate::events::{Event, EventQueue, MOST_PORTS};
use crate::frame::{DropReason, Frame, Sink};
use crate::groups::Groups;
use crate::medium::Medium;
use crate::port::{PortCounters, PortState};
use crate::slab::{NONE, Slab};
use crate::wiring::Wiring;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use timebound_model::{Network, NodeId, PortId, Time};

/// How delays that have a range (a switch's, and the jitter of a link) are chosen.
///
/// Everything but `Uniform` is for a search for worst cases: ends of the ranges, link jitter included, whatever its distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Switching {
    /// A switch's uniformly, from the named stream of the link on which the frame came; link jitter from its distribution.
    #[default]
    Uniform,
    /// The least or the greatest for every frame, by the streams of the links; always the greatest for the stream given here.
    Extremes(u32),
    /// The least or the greatest, the same for all frames of a stream at a port; always the greatest for the stream given here.
    ExtremesByStream(u32),
    Least,
    Greatest,
}

/// In which order a port with strict priorities serves what comes to it at one instant, where it is free (or gets free at that instant).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ties {
    /// The most urgent class first.
    #[default]
    ByClass,
    /// The first to come is served at once. For a search for worst cases: a frame that blocks a more urgent one comes the least moment before it, and
    /// bounds count no moment at all.
    ByArrival,
}

/// The emulated network; see the crate's documentation for how to drive it.
#[derive(Debug)]
pub struct Fabric {
    network: Arc<Network>,
    wiring: Arc<Wiring>,
    seed: u64,
    switching: Switching,
    ties: Ties,
    ports: Vec<PortState>,
    media: Vec<Medium>,
    slab: Slab,
    events: EventQueue,
    sequence: u64,
    /// In order of time, then of call.
    ingress: VecDeque<(u64, NodeId, Frame)>,
    changes: VecDeque<(u64, Change)>,
    /// From the other part of a cut network, in order of time, then of call.
    crossings: VecDeque<(u64, Crossing)>,
    /// From switches that are not ours, in order of time, then of call.
    reentries: VecDeque<(u64, Reentry)>,
    groups: Groups,
    /// The earliest time at which something may still enter.
    floor: u64,
}

impl Fabric {
    /// A quiet network at time zero.
    ///
    /// # Panics
    /// If the network has more than 2^22 ports.
    #[must_use]
    pub fn new(network: Arc<Network>, seed: u64) -> Self {
        assert!(network.ports.len() <= MOST_PORTS, "at most {MOST_PORTS} ports");
        network.routes.complete();
        let wiring = Arc::new(Wiring::new(&network));
        let ports = (0..network.ports.len())
            .map(|port| PortState::new(&network, &wiring, PortId::new(port), seed))
            .collect();
        let media = vec![Medium::default(); network.media as usize];
        Self {
            network,
            wiring,
            seed,
            switching: Switching::default(),
            ties: Ties::default(),
            ports,
            media,
            slab: Slab::new(),
            events: EventQueue::default(),
            sequence: 0,
            ingress: VecDeque::new(),
            changes: VecDeque::new(),
            crossings: VecDeque::new(),
            reentries: VecDeque::new(),
            groups: Groups::default(),
            floor: 0,
        }
    }

    /// Back to a quiet network at time zero under another seed; keeps its memory. Changes and group members are forgotten.
    pub fn reset(&mut self, seed: u64) {
        self.seed = seed;
        for (index, port) in self.ports.iter_mut().enumerate() {
            port.reset(&self.network, &self.wiring, PortId::new(index), seed);
        }
        self.media.iter_mut().for_each(Medium::clear);
        self.slab.clear();
        self.events.clear();
        self.sequence = 0;
        self.ingress.clear();
        self.changes.clear();
        self.crossings.clear();
        self.reentries.clear();
        self.groups = Groups::default();
        self.floor = 0;
    }

    /// How switching delays are chosen from now on.
    pub fn set_switching(&mut self, switching: Switching) {
        self.switching = switching;
    }

    /// Who goes first of those that come at one instant, from now on.
    pub fn set_ties(&mut self, ties: Ties) {
        self.ties = ties;
    }

    /// The network that this fabric runs.
    #[must_use]
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// A frame leaves `host` for its first port. Returns the effective stamp: `at`, or the first nanosecond after the time
    /// to which the fabric has advanced where `at` lies at or before it. Frames of one stamp enter in the order of calls,
    /// before anything that happens inside at that time.
    pub fn ingress(&mut self, at: Time, host: NodeId, frame: Frame) -> Time {
        let stamp = at.0.max(self.floor);
        let place = match self.ingress.back() {
            Some(last) if last.0 > stamp => self.ingress.partition_point(|entry| entry.0 <= stamp),
            _ => self.ingress.len(),
        };
        self.ingress.insert(place, (stamp, host, frame));
        Time(stamp)
    }

    /// The earliest time at which something may still enter: one nanosecond after that to which the fabric has advanced.
    #[must_use]
    pub fn floor(&self) -> Time {
        Time(self.floor)
    }

    /// Changes the conditions at a time; returns the effective time, chosen as for [`Fabric::ingress`].
    pub fn schedule(&mut self, at: Time, change: Change) -> Time {
        let stamp = at.0.max(self.floor);
        let place = self.changes.partition_point(|entry| entry.0 <= stamp);
        self.changes.insert(place, (stamp, change));
        Time(stamp)
    }

    /// `host` wants the frames of `group` from now on; true if it had not before.
    pub fn join(&mut self, group: u32, host: NodeId) -> bool {
        self.groups.join(&self.network, &self.wiring, group, host)
    }

    /// `host` no longer wants the frames of `group`; true if it had before.
    pub fn leave(&mut self, group: u32, host: NodeId) -> bool {
        self.groups.leave(&self.network, &self.wiring, group, host)
    }

    /// Are there members of `group` beyond `port`?
    #[must_use]
    pub fn leads_to_members(&self, group: u32, port: PortId) -> bool {
        self.groups.leads_to_members(group, port.0)
    }

    /// When something happens next, `None` while nothing is under way.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        let next = self.events.next_time().min(self.next_outside());
        (next != u64::MAX).then_some(Time(next))
    }

    /// Time of the next change or ingress.
    #[inline]
    fn next_outside(&self) -> u64 {
        let front = |time: Option<u64>| time.unwrap_or(u64::MAX);
        front(self.changes.front().map(|c| c.0))
            .min(front(self.ingress.front().map(|i| i.0)))
            .min(front(self.crossings.front().map(|c| c.0)))
            .min(front(self.reentries.front().map(|r| r.0)))
    }

    /// Frames inside: waiting, in transmission, in flight.
    #[must_use]
    pub fn frames_inside(&self) -> usize {
        self.slab.used()
    }

    #[must_use]
    pub fn counters(&self, port: PortId) -> &PortCounters {
        &self.ports[port.index()].counters
    }

    /// Starts a new window for [`PortCounters::window_queue_bytes`] at every port.
    pub fn begin_window(&mut self) {
        for port in &mut self.ports {
            port.counters.window_queue_bytes = port.counters.queued_bytes;
        }
    }

    /// Lets everything happen that happens at or before `to`. `Time::MAX` runs until nothing is under way.
    pub fn advance<S: Sink>(&mut self, to: Time, sink: &mut S) {
        let mut last = 0;
        loop {
            let outside = self.next_outside();
            // Inside events come after changes and ingress of the same time.
            while self.events.next_time() < outside && self.events.next_time() <= to.0 {
                if let Some((now, event)) = self.events.pop() {
                    last = now;
                    self.handle(now, event, sink);
                }
            }
            if outside > to.0 || outside == u64::MAX {
                break;
            }
            last = outside;
            self.enter(outside, sink);
        }
        let reached = if to == Time::MAX { last } else { to.0 };
        self.floor = self.floor.max(reached + 1);
    }

    /// The next change or, failing one at this time, the next ingress, and so on.
    fn enter<S: Sink>(&mut self, now: u64, sink: &mut S) {
        if self.changes.front().is_some_and(|change| change.0 <= now) {
            if let Some((_, change)) = self.changes.pop_front() {
                self.apply(now, &change, sink);
            }
        } else if self.ingress.front().is_none_or(|first| first.0 > now) {
            self.enter_from_elsewhere(now, sink);
        } else if let Some((_, host, frame)) = self.ingress.pop_front() {
            let index = self.slab.insert(frame, NONE, false);
            if host.index() < self.network.nodes.len() {
                self.forward(now, host, NONE, index, sink);
            } else {
                self.drop(now, None, index, DropReason::NoRoute, sink);
            }
        }
    }

    fn enter_from_elsewhere<S: Sink>(&mut self, now: u64, sink: &mut S) {
        if self.crossings.front().is_some_and(|crossing| crossing.0 <= now) {
            self.enter_crossed(now, sink);
        } else {
            self.enter_again(now, sink);
        }
    }

    fn apply<S: Sink>(&mut self, now: u64, change: &Change, sink: &mut S) {
        match change {
            Change::Impairments(port, impairments) => {
                self.ports[port.index()].impair(impairments, &self.wiring, *port, self.seed, now);
                self.look_again(now, port.0, sink);
            }
            Change::Rate(port, rate) => self.ports[port.index()].set_rate(*rate),
            Change::Buffer(port, bytes) => self.ports[port.index()].buffer = *bytes,
            Change::Propagation(port, span) => self.ports[port.index()].propagation = span.0,
            Change::Join(group, host) => {
                self.join(*group, *host);
            }
            Change::Leave(group, host) => {
                self.leave(*group, *host);
            }
            Change::LinkUp(link) | Change::LinkDown(link) => {
                let down = matches!(change, Change::LinkDown(_));
                for port in [link.0 * 2, link.0 * 2 + 1] {
                    self.connect(now, port, !down, sink);
                }
            }
            Change::PortUp(port) | Change::PortDown(port) => {
                self.connect(now, port.0, matches!(change, Change::PortUp(_)), sink);
            }
        }
    }

    #[inline]
    fn handle<S: Sink>(&mut self, now: u64, event: Event, sink: &mut S) {
        match event {
            Event::TransmissionEnd(port) => self.end_transmission(now, port, sink),
            Event::Arrival(port) => {
                let state = &mut self.ports[port as usize];
                let Some(index) = state.in_flight.pop(&self.slab) else {
                    return;
                };
                if let Some(next) = state.in_flight.head() {
                    let entry = self.slab.get(next);
                    self.events.push(entry.time, entry.sequence, event);
                }
                self.arrive(now, port, index, sink);
            }
            Event::Overtaking(port) => {
                if let Some(Reverse((_, _, index))) = self.ports[port as usize].overtaking.pop() {
                    self.arrive(now, port, index, sink);
                }
            }
            Event::Grant(medium) => self.grant(now, medium),
            Event::Wake(port) => self.wake(now, port, sink),
        }
    }

    #[inline]
    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    #[cold]
    fn drop<S: Sink>(&mut self, now: u64, port: Option<u32>, index: u32, reason: DropReason, sink: &mut S) {
        if let Some(port) = port {
            self.ports[port as usize].count_dropped(reason);
        }
        sink.dropped(Time(now), port.map(PortId), &self.slab.get(index).frame, reason);
        self.slab.remove(index);
    }
}

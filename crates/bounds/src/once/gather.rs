//! The rivals of a stretch: who joins it where and leaves it where.

use super::Stretches;
use super::worst::{Bundle, Question, Stair, Tally};
use crate::bundle::ONE;
use crate::demand::HORIZON;
use crate::layout::NONE;
use crate::special::sorts;
use timebound_model::Span;

/// A flow of the frame's class or a higher one on ports of the stretch that follow one another.
#[derive(Debug, Clone, Copy)]
struct Rival {
    /// Ports of the stretch at which it joins and that it leaves last.
    first: usize,
    last: usize,
    /// Transmission time of a frame at the slowest of its ports.
    own: u64,
    is_higher: bool,
    /// The bundle of its class with which it joins; meaningless for higher classes.
    bundle: u32,
}

/// A stretch that grows port by port; its memory is used again.
#[derive(Debug)]
pub(super) struct Gathered {
    rivals: Vec<Rival>,
    /// What they bring, in the same order.
    stairs: Vec<Stair>,
    bundles: Vec<Bundle>,
    /// Those that are at the last port.
    present: Vec<u32>,
    /// Per slot the stretch in which it was last seen, and its rival.
    place: Vec<(u32, u32)>,
    stretch: u32,
    /// Per port: the sum of the longest ways to it; the sum of the longest busy periods before it; can frames overtake on the way to it?
    shift: Vec<u64>,
    busy: Vec<u64>,
    varies: Vec<bool>,
    /// Blocking, the longest frames that go on, and ways.
    fixed: u64,
    /// The latest of all arrivals and departures on the way.
    reach: u64,
    tally: Tally,
}

impl Gathered {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            rivals: Vec::new(),
            stairs: Vec::new(),
            bundles: Vec::new(),
            present: Vec::new(),
            place: vec![(0, 0); slots],
            stretch: 0,
            shift: Vec::new(),
            busy: Vec::new(),
            varies: Vec::new(),
            fixed: 0,
            reach: 0,
            tally: Tally::default(),
        }
    }

    /// A stretch that has this port alone so far.
    pub(super) fn begin(&mut self, of: &Stretches<'_, '_>, slot: usize) {
        if self.stretch == u32::MAX {
            self.place.fill((0, 0));
            self.stretch = 0;
        }
        self.stretch += 1;
        self.rivals.clear();
        self.stairs.clear();
        self.bundles.clear();
        self.present.clear();
        self.shift.clear();
        self.shift.push(0);
        self.busy.clear();
        self.busy.push(0);
        self.varies.clear();
        self.varies.push(false);
        (self.fixed, self.reach) = (of.level_of(slot).blocking, 0);
        self.join(of, slot, 0);
        self.weigh(of, slot, &[], 0);
    }

    /// Takes in the last of these ports; `false` where the stretch cannot go on. Departures from the ports before are known.
    pub(super) fn extend(&mut self, of: &Stretches<'_, '_>, slots: &[usize], departures: &[u64]) -> bool {
        let (Some(&[before, here]), Some(position)) = (slots.last_chunk::<2>(), slots.len().checked_sub(1))
        else {
            return false;
        };
        let network = of.pass.network;
        let (port, link) = (of.level_of(here).port, of.level_of(before).port);
        let (port, link) = (&network.ports[port.index()], &network.ports[link.index()]);
        let latest = departures[position - 1];
        if !of.begins(here) || sorts(&port.discipline) != sorts(&link.discipline) || latest > HORIZON / 2 {
            return false;
        }
        let arrival = latest.saturating_add(of.pass.layout.slots[here].traversal);
        self.reach = self.reach.max(arrival);
        let was = std::mem::take(&mut self.present);
        let (way, longest) = self.join(of, here, position);
        // The clock of this port is that much behind, so that no frame comes before it left.
        let way = way.saturating_add(port.speed().slack().0);
        let node = &network.nodes[port.node.index()];
        self.varies.push(
            node.switching_min != node.switching_max
                || node.replication_max > Span::ZERO
                || link.impairments.greatest_jitter() > Span::ZERO
                || link.grain.carries
                || port.grain.carries,
        );
        self.shift.push(self.shift[position - 1].saturating_add(way));
        self.fixed = [of.level_of(here).blocking, way, longest]
            .iter()
            .fold(self.fixed, |sum, part| sum.saturating_add(*part));
        for index in was {
            let rival = &self.rivals[index as usize];
            // Higher classes that have left before the frame did no longer count; those of its own class are counted up to its arrival.
            if rival.is_higher && rival.last < position {
                self.stairs[index as usize].end(latest);
            }
        }
        self.weigh(of, here, &[arrival], position);
        arrival <= HORIZON
    }

    /// Adds the flows of a port: those that were at the one before go on. Returns their longest way here and their longest frame there.
    fn join(&mut self, of: &Stretches<'_, '_>, own: usize, position: usize) -> (u64, u64) {
        let layout = &of.pass.layout;
        let level = of.level_of(own);
        let (mut way, mut longest) = (0, 0);
        self.present = Vec::with_capacity(level.end - level.port_start);
        for group in layout.ports[level.port.index()].groups.start..level.groups.end {
            let bounds = &layout.groups[group];
            let is_higher = bounds.start < level.start;
            let first = self.rivals.len();
            for slot in bounds.start..bounds.end {
                let (data, demand) = (&layout.slots[slot], &of.demands[slot]);
                let before = (data.parent != NONE).then(|| self.place[data.parent as usize]);
                let goes_on = before.filter(|(stretch, rival)| {
                    *stretch == self.stretch && self.rivals[*rival as usize].last + 1 == position
                });
                if let Some((_, index)) = goes_on {
                    let (rival, stair) = (&mut self.rivals[index as usize], &mut self.stairs[index as usize]);
                    rival.last = position;
                    rival.own = rival.own.max(data.own);
                    if stair.slow_down(demand.weight()) && !rival.is_higher {
                        // The line counts transmission times of the port at which they join.
                        self.bundles[rival.bundle as usize].line = None;
                    }
                    way = way.max(data.traversal);
                    let link = of.level_of(data.parent as usize).port;
                    let speed = of.pass.network.ports[link.index()].speed();
                    let largest = layout.flows[data.flow as usize].largest;
                    longest = longest.max(speed.transmission_time(largest).0);
                    self.place[slot] = (self.stretch, index);
                    self.present.push(index);
                    continue;
                }
                let index = self.rivals.len() as u32;
                self.place[slot] = (self.stretch, index);
                self.present.push(index);
                self.rivals.push(Rival {
                    first: position,
                    last: position,
                    own: data.own,
                    is_higher,
                    bundle: self.bundles.len() as u32,
                });
                self.stairs.push(Stair::new(demand));
            }
            if !is_higher && self.rivals.len() > first {
                self.bundles.push(Bundle {
                    rivals: first..self.rivals.len(),
                    // On a slower line the maximum need not be where it is looked for.
                    line: bounds.line.filter(|line| line.slope >= ONE),
                });
            }
        }
        (way, longest)
    }

    /// Windows of the rivals at the last port, to which the frame comes at this time at the latest.
    fn weigh(&mut self, of: &Stretches<'_, '_>, slot: usize, arrival: &[u64], position: usize) {
        let busy = of.busy[of.pass.layout.slots[slot].level as usize];
        self.busy.push(self.busy[position].saturating_add(busy));
        let arrival = arrival.first().copied().unwrap_or(0);
        for index in &self.present {
            let (rival, stair) = (&self.rivals[*index as usize], &mut self.stairs[*index as usize]);
            let begins = self.shift[rival.first];
            if rival.first == position {
                stair.begin(begins, (!rival.is_higher).then_some(arrival));
            } else if !rival.is_higher && self.varies[rival.first + 1..=position].contains(&true) {
                stair.end_no_earlier(arrival);
            }
            let busy = self.busy[position + 1] - self.busy[rival.first];
            stair.limit(busy.saturating_add(self.shift[position] - begins));
        }
    }

    /// The longest time from the arrival at the first of these ports to the departure from the last. `None` where nothing better than
    /// `enough` comes of it.
    pub(super) fn worst(&mut self, of: &Stretches<'_, '_>, slots: &[usize], enough: u64) -> Option<u64> {
        let last = *slots.last()?;
        if enough > HORIZON {
            return None;
        }
        let (_, own) = self.place[slots[0]];
        let question = Question {
            fixed: self.fixed,
            own_slow: self.rivals[own as usize].own,
            own_last: of.pass.layout.slots[last].own,
            enough,
            longest: self
                .busy
                .last()?
                .saturating_add(*self.shift.last()?)
                .saturating_add(enough.max(self.reach)),
        };
        let higher = self.rivals.iter().map(|rival| rival.is_higher);
        self.tally.sort(&question, &self.stairs, higher, &self.bundles)?;
        self.tally.answer(&question)
    }
}

//! The rivals of a stretch: who joins it where and leaves it where.

use super::Stretches;
use super::worst::{Bundles, Question};
use crate::demand::HORIZON;
use crate::layout::NONE;
use crate::special::sorts;
use timebound_model::Span;

/// A flow of the frame's class or a higher one on ports of the stretch that follow one another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rival {
    /// Ports of the stretch at which it joins and that it leaves last.
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) period: u64,
    /// With which it comes to its first port.
    pub(super) jitter: u64,
    /// Its work per period and transmission time of a frame, at the slowest of its ports.
    pub(super) weight: u64,
    own: u64,
    pub(super) is_higher: bool,
    /// Over which link it joins, as a number of a group.
    pub(super) group: u32,
    /// Does a later port take longer for it than the first?
    pub(super) is_slowed: bool,
}

/// A stretch that grows port by port; its memory is used again.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) rivals: Vec<Rival>,
    /// Per slot the stretch in which it was last seen, and its rival.
    place: Vec<(u32, u32)>,
    stretch: u32,
    /// Per port: the longest way to it from the one before; the sum of these; can frames overtake on it?
    pub(super) shift: Vec<u64>,
    pub(super) varies: Vec<bool>,
    /// Blocking, the longest frames that go on, and ways.
    fixed: u64,
    pub(super) bundles: Bundles,
}

impl Gathered {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            rivals: Vec::new(),
            place: vec![(0, 0); slots],
            stretch: 0,
            shift: Vec::new(),
            varies: Vec::new(),
            fixed: 0,
            bundles: Bundles::default(),
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
        self.shift.clear();
        self.shift.push(0);
        self.varies.clear();
        self.varies.push(false);
        self.fixed = of.level_of(slot).blocking;
        self.join(of, slot, 0);
    }

    /// Takes in the last of these ports; `false` where the stretch cannot go on.
    pub(super) fn extend(&mut self, of: &Stretches<'_, '_>, slots: &[usize]) -> bool {
        let (Some(&[before, here]), Some(position)) = (slots.last_chunk::<2>(), slots.len().checked_sub(1))
        else {
            return false;
        };
        let network = of.pass.network;
        let (port, link) = (of.level_of(here).port, of.level_of(before).port);
        let (port, link) = (&network.ports[port.index()], &network.ports[link.index()]);
        if !of.begins(here) || sorts(&port.discipline) != sorts(&link.discipline) {
            return false;
        }
        let (way, longest) = self.join(of, here, position);
        let node = &network.nodes[port.node.index()];
        self.varies.push(
            node.switching_min != node.switching_max
                || node.replication_max > Span::ZERO
                || link.impairments.greatest_jitter() > Span::ZERO,
        );
        self.shift.push(self.shift[position - 1].saturating_add(way));
        self.fixed = [of.level_of(here).blocking, way, longest]
            .iter()
            .fold(self.fixed, |sum, part| sum.saturating_add(*part));
        true
    }

    /// Adds the flows of a port: those that were at the one before go on. Returns their longest way here and their longest frame there.
    fn join(&mut self, of: &Stretches<'_, '_>, own: usize, position: usize) -> (u64, u64) {
        let layout = &of.pass.layout;
        let level = of.level_of(own);
        let (mut way, mut longest) = (0, 0);
        let groups = layout.ports[level.port.index()].groups.start..level.groups.end;
        for group in groups {
            let bounds = &layout.groups[group];
            for slot in bounds.start..bounds.end {
                let (data, demand) = (&layout.slots[slot], &of.demands[slot]);
                let before = (data.parent != NONE).then(|| self.place[data.parent as usize]);
                let goes_on = before.filter(|(stretch, rival)| {
                    *stretch == self.stretch && self.rivals[*rival as usize].last + 1 == position
                });
                if let Some((_, index)) = goes_on {
                    let rival = &mut self.rivals[index as usize];
                    rival.last = position;
                    rival.is_slowed |= demand.weight() > rival.weight;
                    rival.weight = rival.weight.max(demand.weight());
                    rival.own = rival.own.max(data.own);
                    way = way.max(data.traversal);
                    let link = of.level_of(data.parent as usize).port;
                    let rate = of.pass.network.ports[link.index()].rate;
                    let largest = layout.flows[data.flow as usize].largest;
                    longest = longest.max(rate.transmission_time(largest).0);
                    self.place[slot] = (self.stretch, index);
                    continue;
                }
                self.place[slot] = (self.stretch, self.rivals.len() as u32);
                self.rivals.push(Rival {
                    first: position,
                    last: position,
                    period: demand.period(),
                    jitter: demand.jitter(),
                    weight: demand.weight(),
                    own: data.own,
                    is_higher: slot < level.start,
                    group: group as u32,
                    is_slowed: false,
                });
            }
        }
        (way, longest)
    }

    /// The longest time from the arrival at the first of these ports to the departure from the last; departures from those between are known.
    /// `None` where nothing better than `enough` comes of it.
    pub(super) fn worst(
        &mut self,
        of: &Stretches<'_, '_>,
        slots: &[usize],
        departures: &[u64],
        enough: u64,
    ) -> Option<u64> {
        let layout = &of.pass.layout;
        let last = slots.len() - 1;
        let arrivals: Vec<u64> = std::iter::once(0)
            .chain((1..=last).map(|at| departures[at - 1].saturating_add(layout.slots[slots[at]].traversal)))
            .collect();
        let busy: Vec<u64> = slots
            .iter()
            .map(|slot| of.busy[layout.slots[*slot].level as usize])
            .collect();
        if enough > HORIZON || arrivals.iter().chain(&busy).any(|time| *time > HORIZON) {
            return None;
        }
        let (_, own) = self.place[slots[0]];
        let own_slow = self.rivals[own as usize].own;
        let question = Question {
            fixed: self.fixed,
            own_slow,
            own_last: layout.slots[slots[last]].own,
            enough,
            arrivals: &arrivals,
            departures,
            busy: &busy,
            shift: &self.shift,
            varies: &self.varies,
        };
        self.bundles.answer(&question, &self.rivals, &layout.groups)
    }
}

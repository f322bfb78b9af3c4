//! One worst case counted anew: frames by stream, what links hold back, and whose frame blocks.

use super::parts::{BlockedBy, Blocking, Credit, Interference, Parts};
use crate::curves::Shaped;
use crate::demand::Demand;
use crate::layout::{Layout, Level};
use crate::level::{Worst, held_back};
use crate::settled::PortWork;
use std::collections::BTreeMap;
use timebound_model::{Class, Discipline, Network, Port, PortId, Span, StreamId, WireBytes};

/// One slot at its port.
pub(super) struct Count<'a> {
    pub(super) network: &'a Network,
    pub(super) layout: &'a Layout,
    pub(super) work: &'a PortWork,
    pub(super) level: &'a Level,
    pub(super) slot: usize,
    /// The level as slow links further back make it.
    pub(super) shaped: Vec<Shaped>,
}

const NOT_BLOCKED: Blocking = Blocking {
    time: Span::ZERO,
    by: BlockedBy::Nobody,
};

/// Time and number of frames of a stream.
type Tally = BTreeMap<StreamId, (u64, Option<u64>)>;

/// Does the port serve otherwise than by priority alone?
pub(super) const fn has_turns(port: &Port) -> bool {
    matches!(port.discipline, Discipline::Drr(_)) || port.medium.is_some() || port.slots.is_some()
}

impl Count<'_> {
    /// Where others are served in turn: the frames that go before by priority, and the rest of the time as the port's service.
    pub(super) fn turns(&self, worst: Worst) -> Parts {
        let own = self.layout.slots[self.slot].own;
        let start = worst.response.saturating_add(worst.window).saturating_sub(own);
        let weighted = matches!(self.port().discipline, Discipline::Drr(_));
        let above = if weighted {
            0
        } else {
            self.level.start - self.level.port_start
        };
        let higher = self.level.start - above..self.level.start;
        let by = |same: &dyn Fn(&Demand) -> (u64, Option<u64>),
                  above: &dyn Fn(&Demand) -> (u64, Option<u64>)| Parts {
            same: self.list(self.tally(self.level.start..self.level.end, same), own),
            higher: self.list(self.tally(higher.clone(), above), 0),
            ..self.blank(worst, own)
        };
        let mut parts = by(&|demand| within(demand, worst.window), &|demand| {
            within(demand, start)
        });
        if parts.total() > i128::from(worst.response) {
            // Straight lines: all at once.
            let least = |demand: &Demand| (demand.weight(), None);
            parts = by(&least, &least);
            parts.counted = false;
        }
        let rest = i128::from(worst.response) - parts.total();
        parts.service = Span(narrow(rest.max(0).unsigned_abs()));
        self.settle(parts, worst)
    }

    /// Nothing but the frame and what it waits for in any case.
    fn blank(&self, worst: Worst, own: u64) -> Parts {
        let weighted = matches!(self.port().discipline, Discipline::Drr(_));
        Parts {
            blocking: if weighted || worst.response == 0 {
                NOT_BLOCKED
            } else {
                self.blocking()
            },
            higher: Vec::new(),
            same: Vec::new(),
            own: Span(own),
            shaping: Vec::new(),
            service: Span::ZERO,
            rounding: 0,
            window: Span(worst.window),
            counted: true,
        }
    }

    fn settle(&self, mut parts: Parts, worst: Worst) -> Parts {
        let missing = i128::from(worst.response) - parts.total();
        parts.rounding = missing.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        parts
    }

    fn port(&self) -> &Port {
        &self.network.ports[self.level.port.index()]
    }

    pub(super) fn parts(&self, worst: Worst) -> Parts {
        let own = self.layout.slots[self.slot].own;
        let start = worst.response.saturating_add(worst.window).saturating_sub(own);
        let stairs = self.tally(self.level.start..self.level.end, |demand| {
            within(demand, worst.window)
        });
        let above = self.tally(self.level.port_start..self.level.start, |demand| {
            within(demand, start)
        });
        let near = (self.links(worst.window), self.slow_links(start));
        let travelled = self.shaped.iter().map(|shaped| shaped.held(worst.window, start));
        let mut ways = std::iter::once(near).chain(travelled);
        let (same, higher) = (sum(&stairs), sum(&above));
        let links = ways.find_map(|(links, above)| held_back_by(worst, (same, links), (higher, above)));
        let mut parts = self.blank(worst, own);
        if let Some(links) = links {
            (parts.same, parts.higher) = (self.list(stairs, own), self.list(above, 0));
            parts.shaping = self.credits(&links);
        } else {
            parts.counted = false;
            let line = |demand: &Demand| (at_once(demand), None);
            let longer = |demand: &Demand| (at_once(demand).saturating_add(share(demand, start)), None);
            parts.same = self.list(self.tally(self.level.start..self.level.end, line), own);
            parts.higher = self.list(self.tally(self.level.port_start..self.level.start, longer), 0);
        }
        self.settle(parts, worst)
    }

    fn tally(&self, slots: std::ops::Range<usize>, work: impl Fn(&Demand) -> (u64, Option<u64>)) -> Tally {
        let mut tally = Tally::new();
        for slot in slots {
            let flow = &self.layout.flows[self.layout.slots[slot].flow as usize];
            let (time, releases) = work(self.work.demand(slot));
            // A token bucket of different frames has releases of so many bytes.
            let frames = releases
                .filter(|_| flow.bytes == flow.largest)
                .map(|releases| releases.saturating_mul(flow.multiplicity));
            let entry = tally.entry(flow.stream).or_insert((0, Some(0)));
            entry.0 = entry.0.saturating_add(time);
            entry.1 = entry
                .1
                .zip(frames)
                .map(|(sum, frames)| sum.saturating_add(frames));
        }
        tally
    }

    /// The streams of a tally, longest first. The observed frame itself, `own`, is taken out of its stream.
    fn list(&self, tally: Tally, own: u64) -> Vec<Interference> {
        let ours = self.layout.flows[self.layout.slots[self.slot].flow as usize].stream;
        let mut list: Vec<Interference> = tally
            .into_iter()
            .map(|(id, (time, frames))| {
                let stream = &self.network.streams[id.index()];
                let itself = own > 0 && id == ours;
                Interference {
                    stream: stream.name.clone(),
                    class: stream.class,
                    frames: frames.map(|frames| frames.saturating_sub(u64::from(itself))),
                    time: Span(time.saturating_sub(if itself { own } else { 0 })),
                }
            })
            .filter(|one| one.time > Span::ZERO)
            .collect();
        list.sort_by_key(|one| std::cmp::Reverse(one.time));
        list
    }

    /// Per group of the class: the port before, and what its link holds back at `window`.
    fn links(&self, window: u64) -> Vec<(u32, u64)> {
        let groups = &self.layout.groups[self.level.groups.clone()];
        groups
            .iter()
            .filter_map(|group| {
                let work = sum(&self.tally(group.start..group.end, |demand| within(demand, window)));
                Some((group.input, work.saturating_sub(group.line?.at(window))))
            })
            .collect()
    }

    /// The same for more urgent classes, of which only slow links hold anything back.
    fn slow_links(&self, window: u64) -> Vec<(u32, u64)> {
        let first = self.layout.ports[self.level.port.index()].groups.start;
        self.layout.groups[first..self.level.groups.start]
            .iter()
            .filter_map(|group| {
                let at_once = sum(&self.tally(group.start..group.end, |demand| within(demand, 0)));
                Some((group.input, held_back(group.line?, at_once, window)))
            })
            .collect()
    }

    /// By link, what it holds back of all classes.
    fn credits(&self, links: &[(u32, u64)]) -> Vec<Credit> {
        let mut by_link = BTreeMap::new();
        for (input, held) in links.iter().filter(|(_, held)| *held > 0) {
            let sum: &mut u64 = by_link.entry(*input).or_default();
            *sum = sum.saturating_add(*held);
        }
        let mut credits: Vec<Credit> = by_link
            .into_iter()
            .map(|(input, held)| Credit {
                link: self.network.port_name(PortId(input)),
                time: Span(held),
            })
            .collect();
        credits.sort_by_key(|credit| std::cmp::Reverse(credit.time));
        credits
    }

    fn blocking(&self) -> Blocking {
        let time = self.level.blocking;
        Blocking {
            time: Span(time),
            by: self.blocked_by(time),
        }
    }

    /// The first declared stream below with the largest frame, if that frame takes as long as the blocking.
    fn blocked_by(&self, time: u64) -> BlockedBy {
        let port = self.port();
        if time == 0 {
            return BlockedBy::Nobody;
        }
        let below = |class: Class| port.discipline == Discipline::StrictPriority && class < self.level.class;
        let crosses =
            |stream: &timebound_model::Stream| stream.tree.hops.iter().any(|hop| hop.port == self.level.port);
        let largest = self
            .network
            .streams
            .iter()
            .filter(|stream| below(stream.class) && crosses(stream))
            .rev()
            .max_by_key(|stream| stream.arrival.largest_frame());
        match largest {
            Some(stream) if port.transmission_time(stream.arrival.largest_frame()).0 == time => {
                BlockedBy::Stream {
                    stream: stream.name.clone(),
                    class: stream.class,
                    bytes: stream.arrival.largest_frame(),
                }
            }
            _ => BlockedBy::BestEffort {
                bytes: WireBytes(self.network.best_effort_frame.0),
            },
        }
    }
}

/// The links that hold something back, if what comes of the class and of more urgent ones without what they hold back is what the
/// worst case counts.
fn held_back_by(
    worst: Worst,
    (same, mut links): (u64, Vec<(u32, u64)>),
    (higher, above): (u64, Vec<(u32, u64)>),
) -> Option<Vec<(u32, u64)>> {
    let held = |links: &[(u32, u64)]| links.iter().map(|(_, held)| *held).fold(0, u64::saturating_add);
    // Every rising line is rounded up to the nanosecond, and so is the window that ends on one.
    let near = worst.same.abs_diff(same.saturating_sub(held(&links))) <= 2 + 2 * links.len() as u64;
    if worst.same == same {
        links.clear();
    } else if !near {
        return None;
    }
    if higher == worst.higher {
        return Some(links);
    }
    links.extend(&above);
    (higher.saturating_sub(held(&above)) == worst.higher).then_some(links)
}

/// Work and releases in a closed window.
fn within(demand: &Demand, window: u64) -> (u64, Option<u64>) {
    let releases = (u128::from(window) + u128::from(demand.jitter())) / u128::from(demand.period()) + 1;
    let work = releases.saturating_mul(u128::from(demand.weight()));
    (narrow(work), Some(narrow(releases)))
}

/// The line above a staircase where its window is empty.
fn at_once(demand: &Demand) -> u64 {
    let late =
        (u128::from(demand.jitter()) * u128::from(demand.weight())).div_ceil(u128::from(demand.period()));
    narrow(late.saturating_add(u128::from(demand.weight())))
}

/// What comes on that line within a window.
fn share(demand: &Demand, window: u64) -> u64 {
    narrow(u128::from(demand.weight()) * u128::from(window) / u128::from(demand.period()))
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

fn sum(tally: &Tally) -> u64 {
    tally.values().map(|(time, _)| *time).fold(0, u64::saturating_add)
}

//! The network as the analysis wants it: one slot per frame size, stream and port; slots of a port side by side, sorted by
//! class and by the link over which they come.
//!
//! **Bursts.** A release of several frames is not treated as one block: behind the first switch its frames arrive apart, and
//! other traffic slips in between. Every frame of it is a flow of its own with the stream's period and jitter. That is safe:
//! the k-th frame of release n is sent within `[n T, n T + J]` and reaches a later port within `[n T + Amin, n T + Amax]` of its own
//! path, which is all that a demand with period `T` and jitter `Amax - Amin` says, and frames that are flows of their own may
//! be spread in any way, also in the ways of the real release. The bound of the release is that of its slowest frame. Frames of
//! equal size have equal bounds throughout, so they share a slot with a multiplicity.

use crate::bundle::Line;
use crate::demand::Demand;
use crate::flow::flows;
pub(crate) use crate::flow::{Flow, Frames, crossing, flows_of_stream, shaping, soonest};
use crate::options::{Method, Options};
use crate::special::{passes, sorts};
use timebound_model::{Arrival, Class, Discipline, Network, PortId, StreamId, WireBytes};

/// No slot, level, port or cause.
pub(crate) const NONE: u32 = u32::MAX;

/// A flow at a port.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) flow: u32,
    pub(crate) level: u32,
    /// The slot that feeds this one.
    pub(crate) parent: u32,
    /// Transmission time of one frame.
    pub(crate) own: u64,
    /// Earliest arrival in this queue after the nominal release (Amin).
    pub(crate) earliest: u64,
    /// Greatest time from the last bit sent at the parent to this queue; release jitter at the source.
    pub(crate) traversal: u64,
}

impl Slot {
    const BLANK: Self = Self {
        flow: NONE,
        level: NONE,
        parent: NONE,
        own: 0,
        earliest: 0,
        traversal: 0,
    };
}

/// Slots of one level that come over one link (or from the node itself).
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Positions among all slots.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The port at the other end of that link.
    pub(crate) input: u32,
    /// None where line shaping is not counted.
    pub(crate) line: Option<Line>,
}

/// Slots of one class at one port (of all classes at a FIFO port).
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) port: PortId,
    pub(crate) class: Class,
    /// Slots `port_start..start` are more urgent, `start..end` are the level's own.
    pub(crate) port_start: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) groups: std::ops::Range<usize>,
    /// Longest transmission below the class.
    pub(crate) blocking: u64,
    /// Is there no declared class below?
    pub(crate) is_lowest: bool,
}

/// What is known of a port apart from its slots.
#[derive(Debug, Clone, Default)]
pub(crate) struct PortUse {
    /// Largest frame per class, of streams with and without a declared arrival.
    largest: [u32; 8],
    /// The most urgent stream without a declared arrival.
    pub(crate) unbounded: Option<(Class, StreamId)>,
    /// Its levels, most urgent first.
    pub(crate) levels: std::ops::Range<usize>,
    /// Its slots and groups.
    pub(crate) slots: std::ops::Range<usize>,
    pub(crate) groups: std::ops::Range<usize>,
}

impl PortUse {
    /// The classes of the streams that cross the port, most urgent first.
    pub(crate) fn classes(&self) -> impl Iterator<Item = Class> + '_ {
        (0u8..8)
            .rev()
            .map(Class)
            .filter(|class| self.largest[usize::from(class.0)] > 0)
    }
    /// The largest frame of a class, 0 if none uses the port.
    pub(crate) fn largest_of(&self, class: usize) -> u32 {
        self.largest[class]
    }
    pub(crate) fn largest_frame(&self) -> u32 {
        self.largest.iter().copied().max().unwrap_or(0)
    }
}

#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) flows: Vec<Flow>,
    /// The flows of every stream.
    pub(crate) flows_of: Vec<std::ops::Range<usize>>,
    pub(crate) slot_of: Vec<u32>,
    pub(crate) slots: Vec<Slot>,
    /// Demand of every slot without jitter, by port; the analysis takes them.
    pub(crate) demands: Vec<Vec<Demand>>,
    pub(crate) groups: Vec<Group>,
    pub(crate) levels: Vec<Level>,
    pub(crate) ports: Vec<PortUse>,
    /// Transmission time of assumed best effort per port.
    pub(crate) best_effort: Vec<u64>,
    /// Is the least of shaped and unshaped wanted?
    pub(crate) least: bool,
}

/// A hop of a flow on its way to its slot.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Port and class of the slot, see [`key`].
    key: u32,
    /// The port before; [`NONE`] at the source.
    input: u32,
    flow: u32,
    /// Position in [`Layout::slot_of`].
    hop: u32,
    /// Does the node of the port copy its frames?
    copied: bool,
}

/// Where slots of a class at a port lie: by port, then by falling class where the port sorts by class.
fn key(network: &Network, port: PortId, class: Class) -> usize {
    let rank = if sorts(&network.ports[port.index()].discipline) {
        usize::from(7 - class.0.min(7))
    } else {
        0
    };
    port.index() * 8 + rank
}

impl Layout {
    pub(crate) fn new(network: &Network, options: &Options) -> Self {
        let ports = port_uses(network);
        let (flows, flows_of) = flows(network, options);
        let hops = flows.last().map_or(0, |f| f.first_hop + hops_of(network, f));
        let bytes = if options.assume_best_effort {
            network.best_effort_frame
        } else {
            WireBytes(0)
        };
        let best_effort = network
            .ports
            .iter()
            .map(|port| port.transmission_time(bytes).0)
            .collect();
        let mut layout = Self {
            flows,
            flows_of,
            slot_of: vec![NONE; hops],
            slots: vec![Slot::BLANK; hops],
            demands: Vec::new(),
            groups: Vec::new(),
            levels: Vec::new(),
            ports,
            best_effort,
            least: matches!(options.method, Method::PortByPort | Method::Bound),
        };
        let places = layout.places(network);
        layout.mark(network, &places, options.method != Method::Holistic);
        layout.fill(network);
        layout
    }

    /// All hops sorted by port, class and input link (two counting sorts).
    fn places(&self, network: &Network) -> Vec<Place> {
        let mut places = Vec::with_capacity(self.slot_of.len());
        for (flow, index) in self.flows.iter().zip(0u32..) {
            let stream = &network.streams[flow.stream.index()];
            for (hop, position) in stream.tree.hops.iter().zip(flow.first_hop as u32..) {
                places.push(Place {
                    key: key(network, hop.port, stream.class) as u32,
                    input: hop
                        .parent
                        .map_or(NONE, |parent| stream.tree.hops[parent as usize].port.0),
                    flow: index,
                    hop: position,
                    copied: hop
                        .parent
                        .is_some_and(|parent| stream.tree.hops[parent as usize].forks),
                });
            }
        }
        let inputs = network.ports.len();
        let by_input = sorted(&places, inputs + 1, |place| (place.input as usize).min(inputs));
        sorted(&by_input, inputs * 8, |place| place.key as usize)
    }

    /// Levels and groups, and which slot is whose.
    fn mark(&mut self, network: &Network, places: &[Place], shaped: bool) {
        let mut at = 0;
        for port in 0..network.ports.len() {
            let (first_level, first_group, port_start) = (self.levels.len(), self.groups.len(), at);
            while places.get(at).is_some_and(|place| place.key as usize / 8 == port) {
                let (level_start, level_group, place) = (at, self.groups.len(), places[at]);
                while places.get(at).is_some_and(|next| next.key == place.key) {
                    at = self.group(network, places, at, shaped);
                }
                let level = self.level(network, PortId::new(port), place.key as usize % 8);
                // Nobody is more urgent at a weighted port.
                let weighted = matches!(network.ports[port].discipline, Discipline::Drr(_));
                self.levels.push(Level {
                    port_start: if weighted { level_start } else { port_start },
                    start: level_start,
                    end: at,
                    groups: level_group..self.groups.len(),
                    ..level
                });
            }
            let used = &mut self.ports[port];
            used.levels = first_level..self.levels.len();
            used.groups = first_group..self.groups.len();
            used.slots = port_start..at;
        }
    }

    /// The slots of one level from `start` that come over one link; returns where they end.
    fn group(&mut self, network: &Network, places: &[Place], start: usize, shaped: bool) -> usize {
        let first = places[start];
        let port = &network.ports[first.key as usize / 8];
        let mut end = start;
        let mut frames = Frames::NONE;
        while let Some(place) = places
            .get(end)
            .filter(|p| p.key == first.key && p.input == first.input)
        {
            let flow = &self.flows[place.flow as usize];
            frames.add(flow, place.copied);
            self.slot_of[place.hop as usize] = end as u32;
            let slot = &mut self.slots[end];
            (slot.flow, slot.level) = (place.flow, self.levels.len() as u32);
            end += 1;
        }
        // Out of a shared segment frames pass at the rates of their senders.
        let line = network
            .ports
            .get(first.input as usize)
            .filter(|input| shaped && !passes(network, input))
            .map(|input| shaping(network, input, port, frames));
        self.groups.push(Group {
            start,
            end,
            input: first.input,
            line,
        });
        end
    }

    fn level(&self, network: &Network, port: PortId, rank: usize) -> Level {
        let strict = network.ports[port.index()].discipline == Discipline::StrictPriority;
        let class = if sorts(&network.ports[port.index()].discipline) {
            7 - rank
        } else {
            0
        };
        let below = if strict {
            &self.ports[port.index()].largest[..class]
        } else {
            &[]
        };
        let largest = below.iter().copied().max().unwrap_or(0);
        let frame = network.ports[port.index()]
            .transmission_time(WireBytes(largest))
            .0;
        Level {
            port,
            class: Class(class as u8),
            port_start: 0,
            start: 0,
            end: 0,
            groups: 0..0,
            blocking: match &network.ports[port.index()].discipline {
                _ if passes(network, &network.ports[port.index()]) => 0,
                // Other classes have their turns; undeclared traffic has class 0.
                Discipline::Drr(_) if class > 0 => 0,
                _ => frame
                    .max(self.best_effort[port.index()])
                    .min(longest_slot(network, port)),
            },
            is_lowest: largest == 0,
        }
    }

    /// Times of every slot, along the path of its flow; parents come before children in a tree.
    fn fill(&mut self, network: &Network) {
        let blank = Demand::new(1, 0, 0);
        self.demands = self
            .ports
            .iter()
            .map(|used| vec![blank; used.slots.len()])
            .collect();
        for flow in &self.flows {
            let stream = &network.streams[flow.stream.index()];
            let (mut speed, mut own, mut weight, mut share) = (None, 0, 0, 0);
            for (position, hop) in stream.tree.hops.iter().enumerate() {
                let port = &network.ports[hop.port.index()];
                if passes(network, port) {
                    (speed, own, weight, share) = (None, 0, 0, 0);
                } else if speed != Some(port.speed()) {
                    speed = Some(port.speed());
                    (own, weight) = flow.passage(port.speed());
                    share = Demand::share_of(flow.period, weight);
                }
                let slot = self.slot_of[flow.first_hop + position] as usize;
                let port_start = self.ports[hop.port.index()].slots.start;
                self.demands[hop.port.index()][slot - port_start] =
                    Demand::with_share(flow.period, weight, 0, share);
                self.slots[slot].own = own;
                let Some(parent) = hop.parent else {
                    self.slots[slot].traversal = flow.jitter;
                    continue;
                };
                let link = &network.ports[stream.tree.hops[parent as usize].port.index()];
                let (least, greatest) = network.switching(stream.tree.hops[parent as usize]);
                let parent = self.slot_of[flow.first_hop + parent as usize];
                let before = &self.slots[parent as usize];
                let earliest = soonest(
                    before.earliest.saturating_add(least.0),
                    flow.quickest(before.own, link),
                    link,
                    port,
                );
                let traversal = crossing(link).saturating_add(greatest).0;
                let slot = &mut self.slots[slot];
                (slot.parent, slot.earliest, slot.traversal) = (parent, earliest, traversal);
            }
        }
    }

    /// The level of a class at a port, if a stream with a declared arrival uses it.
    pub(crate) fn level_at(&self, port: usize, class: Class, sorts: bool) -> Option<usize> {
        let mut levels = self.ports[port].levels.clone();
        levels.find(|level| !sorts || self.levels[*level].class == class)
    }
}

/// Stable counting sort.
fn sorted(places: &[Place], keys: usize, key: impl Fn(&Place) -> usize) -> Vec<Place> {
    let mut next = vec![0usize; keys + 1];
    for place in places {
        next[key(place) + 1] += 1;
    }
    for index in 1..next.len() {
        next[index] += next[index - 1];
    }
    let mut out = places.to_vec();
    for place in places {
        let to = &mut next[key(place)];
        out[*to] = *place;
        *to += 1;
    }
    out
}

/// What is longer than that is never sent.
fn longest_slot(network: &Network, port: PortId) -> u64 {
    let slots = network.ports[port.index()].slots.as_ref();
    slots.map_or(u64::MAX, |slots| slots.longest().0)
}

fn hops_of(network: &Network, flow: &Flow) -> usize {
    network.streams[flow.stream.index()].tree.hops.len()
}

fn port_uses(network: &Network) -> Vec<PortUse> {
    let mut uses = vec![PortUse::default(); network.ports.len()];
    for (index, stream) in network.streams.iter().enumerate() {
        let frame = stream.arrival.largest_frame().0;
        for hop in &stream.tree.hops {
            let used = &mut uses[hop.port.index()];
            let largest = &mut used.largest[usize::from(stream.class.0.min(7))];
            *largest = (*largest).max(frame);
            if matches!(stream.arrival, Arrival::Unbounded { .. })
                && used.unbounded.is_none_or(|(class, _)| class < stream.class)
            {
                used.unbounded = Some((stream.class, StreamId::new(index)));
            }
        }
    }
    uses
}

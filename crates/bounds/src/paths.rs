//! The network as methods over whole paths want it: for every stream and frame size the ports it crosses, with costs.
//!
//! The room of [`crate::trajectory`] and [`crate::published`]; the port-by-port methods have a layout of their own.

use crate::flow::crossing;
use crate::options::Options;
use std::collections::BTreeMap;
use timebound_model::{Arrival, Discipline, Hop, Network, Port, PortId, Span, StreamId, WireBytes};

/// No place.
pub(crate) const NONE: u32 = u32::MAX;

/// What a frame costs at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Costs {
    /// Its transmission time; between ports lie propagation and switching.
    Transmission,
    /// The switching delay of the port's node, as eq. 9 of the paper prints it; between ports lie transmission and propagation.
    Switching,
}

/// Frames of one size of one stream.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) stream: StreamId,
    /// `None`: its arrivals are not declared, or not by a period.
    pub(crate) period: Option<u64>,
    pub(crate) jitter: u64,
    /// Frames of this size per release.
    pub(crate) multiplicity: u64,
    /// Its places are `first_place + hop` in the order of its tree.
    pub(crate) first_place: u32,
}

/// A flow at a port.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) flow: u32,
    pub(crate) port: PortId,
    /// The place that feeds it, or [`NONE`].
    pub(crate) parent: u32,
    /// Class as this port sees it: 0 for everything in a single queue.
    pub(crate) class: u8,
    /// Transmission time of one frame, and of the least that it may really be.
    pub(crate) transmission: u64,
    pub(crate) quickest: u64,
    /// Cost of one frame in the sense of [`Costs`].
    pub(crate) cost: u64,
    /// Earliest arrival in this queue after the nominal release (Smin).
    pub(crate) earliest: u64,
    /// Least and greatest time from the end at the parent to this queue (Lmin, Lmax).
    pub(crate) lag: (u64, u64),
}

/// Costs at a port by class.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extremes {
    /// Least and greatest cost of declared frames of the class.
    least: [Option<u64>; 8],
    greatest: [u64; 8],
    best_effort: u64,
}

impl Extremes {
    /// Least cost in the class and above.
    pub(crate) fn least_from(&self, class: u8) -> u64 {
        self.least[usize::from(class)..]
            .iter()
            .flatten()
            .copied()
            .min()
            .unwrap_or(0)
    }
    /// Greatest cost in the class and above.
    pub(crate) fn greatest_from(&self, class: u8) -> u64 {
        self.greatest[usize::from(class)..]
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
    }
    /// Greatest cost below the class, best effort included.
    pub(crate) fn greatest_below(&self, class: u8) -> u64 {
        let declared = self.greatest[..usize::from(class)].iter().copied().max();
        declared.unwrap_or(0).max(self.best_effort)
    }
    /// Best effort alone.
    pub(crate) const fn best_effort(&self) -> u64 {
        self.best_effort
    }
}

#[derive(Debug)]
pub(crate) struct Paths {
    pub(crate) flows: Vec<Flow>,
    /// The flows of every stream.
    pub(crate) flows_of: Vec<std::ops::Range<usize>>,
    pub(crate) places: Vec<Place>,
    /// The places at every port.
    pub(crate) at: Vec<Vec<u32>>,
    pub(crate) extremes: Vec<Extremes>,
}

impl Paths {
    pub(crate) fn new(network: &Network, options: &Options, costs: Costs) -> Self {
        let mut paths = Self {
            flows: Vec::new(),
            flows_of: Vec::with_capacity(network.streams.len()),
            places: Vec::new(),
            at: vec![Vec::new(); network.ports.len()],
            extremes: vec![Extremes::default(); network.ports.len()],
        };
        for stream in (0..network.streams.len()).map(StreamId::new) {
            let first = paths.flows.len();
            for (bytes, multiplicity) in sizes(&network.streams[stream.index()].arrival) {
                paths.add(network, options, costs, (stream, bytes, multiplicity));
            }
            paths.flows_of.push(first..paths.flows.len());
        }
        paths.bound_costs(network, options, costs);
        paths
    }

    fn add(
        &mut self,
        network: &Network,
        options: &Options,
        costs: Costs,
        (id, bytes, multiplicity): (StreamId, WireBytes, u64),
    ) {
        let stream = &network.streams[id.index()];
        let (period, jitter) = match &stream.arrival {
            Arrival::Periodic { period, jitter, .. } => {
                let observed = options.jitter_override.get(&id).copied().unwrap_or(Span::ZERO);
                (Some(period.0), jitter.0.max(observed.0))
            }
            Arrival::TokenBucket { .. } | Arrival::Unbounded { .. } => (None, 0),
        };
        let first_place = self.places.len() as u32;
        let flow = self.flows.len() as u32;
        self.flows.push(Flow {
            stream: id,
            period,
            jitter,
            multiplicity,
            first_place,
        });
        for hop in &stream.tree.hops {
            let port = &network.ports[hop.port.index()];
            let node = &network.nodes[port.node.index()];
            let transmission = port.transmission_time(bytes).0;
            let sorts = port.discipline != Discipline::Fifo;
            let parent = hop.parent.map_or(NONE, |parent| first_place + parent);
            let before = hop.parent.map(|parent| stream.tree.hops[parent as usize]);
            let (earliest, lag) = self.start(network, costs, parent, (before, port));
            self.at[hop.port.index()].push(self.places.len() as u32);
            self.places.push(Place {
                flow,
                port: hop.port,
                parent,
                class: if sorts { stream.class.0.min(7) } else { 0 },
                transmission,
                quickest: port.transmission_time(stream.least_of(bytes)).0,
                cost: match costs {
                    Costs::Transmission => transmission,
                    Costs::Switching => {
                        before
                            .map_or(node.switching_max, |hop| network.switching(hop).1)
                            .0
                    }
                },
                earliest,
                lag,
            });
        }
    }

    /// Smin of a place at `port`, and its lag.
    fn start(
        &self,
        network: &Network,
        costs: Costs,
        parent: u32,
        (hop, port): (Option<Hop>, &Port),
    ) -> (u64, (u64, u64)) {
        let Some((before, hop)) = self.places.get(parent as usize).zip(hop) else {
            return (0, (0, 0));
        };
        let link = &network.ports[before.port.index()];
        let (switching_min, switching_max) = network.switching(hop);
        let (served, lag) = match costs {
            Costs::Transmission => {
                let least = link.propagation.saturating_add(switching_min);
                let greatest = crossing(link).saturating_add(switching_max);
                (before.quickest, (least.0, greatest.0))
            }
            Costs::Switching => {
                let from = &network.nodes[link.node.index()];
                let sent = before.transmission.saturating_add(link.propagation.0);
                (from.switching_min.0, (sent, sent))
            }
        };
        let early = link.speed().early().saturating_add(port.speed().slack().0);
        let earliest = before.earliest.saturating_add(served).saturating_add(lag.0);
        let (earliest, lag) = (
            earliest.saturating_sub(early),
            (lag.0.saturating_sub(early), lag.1),
        );
        (earliest, lag)
    }

    fn bound_costs(&mut self, network: &Network, options: &Options, costs: Costs) {
        for place in &self.places {
            let extremes = &mut self.extremes[place.port.index()];
            let class = usize::from(place.class);
            let least = extremes.least[class].map_or(place.cost, |least| least.min(place.cost));
            extremes.least[class] = Some(least);
            extremes.greatest[class] = extremes.greatest[class].max(place.cost);
        }
        if options.assume_best_effort && network.best_effort_frame.0 > 0 {
            for (extremes, port) in self.extremes.iter_mut().zip(&network.ports) {
                extremes.best_effort = match costs {
                    Costs::Transmission => port.transmission_time(network.best_effort_frame).0,
                    Costs::Switching => network.nodes[port.node.index()].switching_max.0,
                };
            }
        }
    }

    /// The places of a flow from its source to `place`.
    pub(crate) fn path_to(&self, place: u32) -> Vec<u32> {
        let mut path = vec![place];
        let mut at = self.places[place as usize].parent;
        while at != NONE {
            path.push(at);
            at = self.places[at as usize].parent;
        }
        path.reverse();
        path
    }

    pub(crate) fn flow_at(&self, place: u32) -> &Flow {
        &self.flows[self.places[place as usize].flow as usize]
    }
}

/// Frames per release by size.
fn sizes(arrival: &Arrival) -> BTreeMap<WireBytes, u64> {
    let mut sizes = BTreeMap::new();
    match arrival {
        Arrival::Periodic { frames, .. } => {
            frames
                .iter()
                .for_each(|bytes| *sizes.entry(*bytes).or_default() += 1);
        }
        Arrival::TokenBucket { max_frame, .. } | Arrival::Unbounded { max_frame } => {
            sizes.insert(*max_frame, 1);
        }
    }
    sizes
}

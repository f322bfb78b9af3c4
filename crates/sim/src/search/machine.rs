//! A scene without peculiarities, simulated port by port in place of event by event.
//!
//! Where ports know only strict priority or one queue, links keep their order, and the ways of the scene's streams close no cycle, everything that
//! comes to a port is known before the port is looked at. So there is no queue of events: the arrivals of a port are sorted once and
//! served in one sweep. What happens is one of the things that the fabric may do; where times are equal, of which the fabric's events have
//! an order of their own, the target comes last (adversarial ties). Tests hold the two against each other.

use super::evaluate::{Finding, Visit};
use super::scene::Scene;
use crate::source::{Released, Source};
use std::collections::VecDeque;
use timebound_fabric::{Draws, StreamName, Switching, takes_greatest};
use timebound_model::units::Remainder;
use timebound_model::{Discipline, Hop, Network, NodeKind, Port, PortId, Rate, Span, StreamId, WireBytes};

const NONE: u32 = u32::MAX;

/// One hop of a stream's tree.
#[derive(Debug, Clone, Copy)]
struct Position {
    port: u32,
    stream: u32,
    class: u8,
    /// Range in [`Machine::children`].
    children: (u32, u32),
    /// First of the transmission times of a release's frames, in [`Machine::sending`].
    sending: u32,
    /// Is the target's receiver behind it?
    is_leaf: bool,
}

/// A frame in a queue, or on its way there.
#[derive(Debug, Clone, Copy)]
struct Token {
    time: u64,
    release: u32,
    position: u32,
    /// Which of its release's frames.
    tag: u32,
    /// The port before; [`NONE`] where it starts.
    input: u32,
}

/// A port and its link.
#[derive(Debug, Clone)]
struct Station {
    is_fifo: bool,
    rate: Rate,
    place: u32,
    propagation: u64,
    jitter: u64,
    switching_least: u64,
    switching_range: u64,
}

#[derive(Debug)]
pub(super) struct Machine {
    stations: Vec<Station>,
    /// Ports that are used, each after all from which its frames come.
    order: Vec<u32>,
    positions: Vec<Position>,
    children: Vec<u32>,
    sending: Vec<(Span, u64)>,
    /// Per stream its first positions, in `children`.
    roots: Vec<(u32, u32)>,
    /// Per stream the frames of one release and their bytes.
    releases: Vec<(u32, u64)>,
    /// Bytes that no queue can overflow with.
    room: u64,
    name: StreamName,
    arrivals: Vec<Vec<Token>>,
    queues: [VecDeque<u32>; 8],
    /// Did two things happen at once, of which the fabric may have chosen the other order?
    #[cfg(test)]
    pub(super) tie: bool,
}

/// What decides besides the releases.
struct Conditions<'a> {
    switching: Switching,
    seed: u64,
    draws: Draws,
    released: &'a [Released],
}

impl Machine {
    /// `None` where the scene has something that only the fabric knows.
    pub(super) fn new(scene: &Scene) -> Option<Self> {
        let network = &scene.network;
        if !network.ports.iter().all(|port| is_plain(network, port)) || copies(network) {
            return None;
        }
        let order = order(network)?;
        let stations = network.ports.iter().zip(&scene.place_of);
        let mut machine = Self {
            stations: stations
                .map(|(port, place)| Station::new(network, port, *place))
                .collect(),
            order,
            positions: Vec::new(),
            children: Vec::new(),
            sending: Vec::new(),
            roots: Vec::new(),
            releases: Vec::new(),
            room: network
                .ports
                .iter()
                .map(|port| port.buffer_bytes)
                .min()
                .unwrap_or(u64::MAX),
            name: StreamName::new("machine", "delays"),
            arrivals: vec![Vec::new(); network.ports.len()],
            queues: Default::default(),
            #[cfg(test)]
            tie: false,
        };
        let mut frames: Vec<Vec<WireBytes>> = vec![Vec::new(); network.streams.len()];
        for actor in &scene.actors {
            frames[actor.stream.index()].clone_from(&actor.pattern.frames);
        }
        for other in &scene.others {
            let source = Source::new(&network.streams[other.index()], 0);
            frames[other.index()] = source.frames().to_vec();
        }
        for (stream, frames) in frames.iter().enumerate() {
            machine.add(network, stream, frames);
        }
        Some(machine)
    }

    fn add(&mut self, network: &Network, stream: usize, frames: &[WireBytes]) {
        let declared = &network.streams[stream];
        let tree = &declared.tree;
        let base = self.positions.len() as u32;
        // Where the children of each hop (first: of the source) end, then where they begin: they are put in from behind.
        let mut begins = vec![0u32; tree.hops.len() + 2];
        let slot = |hop: &Hop| hop.parent.map_or(0, |parent| parent as usize + 1);
        tree.hops.iter().for_each(|hop| begins[slot(hop)] += 1);
        let mut end = self.children.len() as u32;
        for begin in &mut begins {
            end += *begin;
            *begin = end;
        }
        self.children.resize(end as usize, NONE);
        for (index, hop) in tree.hops.iter().enumerate().rev() {
            let begin = &mut begins[slot(hop)];
            *begin -= 1;
            self.children[*begin as usize] = base + index as u32;
        }
        let mut ranges = begins.windows(2).map(|pair| (pair[0], pair[1]));
        self.roots.push(ranges.next().unwrap_or_default());
        for (hop, children) in tree.hops.iter().zip(ranges) {
            self.positions.push(Position {
                port: hop.port.0,
                stream: stream as u32,
                class: declared.class.0.min(7),
                children,
                sending: self.sending.len() as u32,
                is_leaf: false,
            });
            let rate = network.ports[hop.port.index()].rate;
            // Where a port does not carry what is left of a nanosecond, nothing is left here.
            let carries = network.carries(hop.port);
            self.sending.extend(frames.iter().map(|frame| {
                let (time, spare) = rate.transmission(*frame);
                (time, if carries { spare } else { 0 })
            }));
        }
        if stream == 0 {
            for leaf in &tree.leaves {
                self.positions[(base + leaf.hop) as usize].is_leaf = true;
            }
        }
        let bytes = frames.iter().map(|frame| u64::from(frame.0)).sum();
        self.releases.push((frames.len() as u32, bytes));
    }

    /// Is there room for so many releases of each stream in every queue, so that no frame can be lost?
    pub(super) fn has_room(&self, releases: impl Iterator<Item = StreamId>) -> bool {
        let bytes = releases.map(|stream| self.releases[stream.index()].1);
        bytes.fold(0, u64::saturating_add) <= self.room
    }

    /// A release enters; to be called in order of time.
    pub(super) fn enter(&mut self, stream: StreamId, at: u64, release: u32) {
        let (first, end) = self.roots[stream.index()];
        for tag in 0..self.releases[stream.index()].0 {
            for child in first..end {
                let position = self.children[child as usize];
                let port = self.positions[position as usize].port;
                self.arrivals[port as usize].push(Token {
                    time: at,
                    release,
                    position,
                    tag,
                    input: NONE,
                });
            }
        }
    }

    /// Everything that entered goes its way. `released` has all releases by their numbers.
    pub(super) fn run(
        &mut self,
        scene: &Scene,
        (switching, seed): (Switching, u64),
        (released, actor_of): (&[Released], &[u32]),
        finding: &mut Finding,
    ) {
        finding.clear(scene.places.len());
        #[cfg(test)]
        {
            self.tie = false;
        }
        let mut conditions = Conditions {
            switching,
            seed,
            draws: self.name.draws(seed),
            released,
        };
        for index in 0..self.order.len() {
            let port = self.order[index] as usize;
            let mut arrivals = std::mem::take(&mut self.arrivals[port]);
            if !arrivals.is_empty() {
                sort(&mut arrivals, &self.positions);
                self.serve(port, &arrivals, actor_of, &mut conditions, finding);
                arrivals.clear();
            }
            self.arrivals[port] = arrivals;
        }
    }

    fn serve(
        &mut self,
        port: usize,
        arrivals: &[Token],
        actor_of: &[u32],
        conditions: &mut Conditions,
        finding: &mut Finding,
    ) {
        #[cfg(test)]
        {
            // A link keeps its order, and so does a stream.
            let at_once = |pair: &[Token]| {
                let same = pair[0].input == pair[1].input && pair[0].input != NONE;
                pair[0].time == pair[1].time && !same && pair[0].position != pair[1].position
            };
            self.tie |= arrivals.windows(2).any(at_once);
        }
        let place = self.stations[port].place;
        if place != NONE {
            let visits = arrivals.iter().map(|token| {
                let actor = actor_of[self.positions[token.position as usize].stream as usize];
                Visit::new(actor, (token.release, token.tag), token.time)
            });
            finding.visits[place as usize].extend(visits);
        }
        let (is_fifo, rate) = (self.stations[port].is_fifo, self.stations[port].rate);
        let mut remainder = Remainder::default();
        let (mut next, mut free, mut busy_since) = (0, 0u64, 0);
        let mut occupied = 0u8;
        // The last arrival and entry behind the link, which keeps its order.
        let mut link = (0u64, 0u64);
        loop {
            let chosen = if occupied == 0 {
                next += 1;
                next - 1
            } else {
                let class = 7 - occupied.leading_zeros() as usize;
                let queue = &mut self.queues[class];
                let chosen = queue.pop_front().unwrap_or(NONE) as usize;
                occupied &= !(u8::from(queue.is_empty()) << class);
                chosen
            };
            let Some(token) = arrivals.get(chosen) else { break };
            let position = self.positions[token.position as usize];
            let started = free.max(token.time);
            if started != free || next == 1 {
                busy_since = started;
            }
            let takes = self.sending[(position.sending + token.tag) as usize];
            free = remainder.end(started, takes, rate);
            if place != NONE {
                finding.visits[place as usize][chosen].start(started, busy_since);
            }
            self.depart(port, (token, &position), free, &mut link, conditions, finding);
            if is_fifo {
                continue;
            }
            // Who came meanwhile; the target only if it did so before the next frame's turn.
            while let Some(token) = arrivals.get(next) {
                #[cfg(test)]
                {
                    self.tie |= token.time == free;
                }
                let position = &self.positions[token.position as usize];
                if token.time > free || (token.time == free && position.stream == 0) {
                    break;
                }
                self.queues[usize::from(position.class)].push_back(next as u32);
                occupied |= 1 << position.class;
                next += 1;
            }
        }
    }

    /// The last bit is on the link.
    fn depart(
        &mut self,
        port: usize,
        (token, position): (&Token, &Position),
        ended: u64,
        link: &mut (u64, u64),
        conditions: &mut Conditions,
        finding: &mut Finding,
    ) {
        let station = &self.stations[port];
        let delay =
            station
                .propagation
                .saturating_add(conditions.chosen(port, position.stream, station.jitter));
        let switching = station.switching_least.saturating_add(conditions.chosen(
            port,
            position.stream,
            station.switching_range,
        ));
        link.0 = link.0.max(ended.saturating_add(delay));
        link.1 = link.1.max(link.0.saturating_add(switching));
        let time = link.1;
        if position.is_leaf {
            let released = conditions.released[token.release as usize];
            finding.delivered(time, released, token.release);
        }
        for child in position.children.0..position.children.1 {
            let next = self.children[child as usize];
            self.arrivals[self.positions[next as usize].port as usize].push(Token {
                time,
                position: next,
                input: port as u32,
                ..*token
            });
        }
    }
}

impl Conditions<'_> {
    /// A delay from `0..=range`, as [`Switching`] says.
    #[inline]
    fn chosen(&mut self, port: usize, stream: u32, range: u64) -> u64 {
        if range == 0 {
            return 0;
        }
        let greatest = match self.switching {
            Switching::Uniform => return self.draws.up_to(range),
            Switching::Least => false,
            Switching::Greatest => true,
            Switching::Extremes(favoured) => favoured == stream || self.draws.bits() & 1 == 1,
            Switching::ExtremesByStream(favoured) => {
                favoured == stream || takes_greatest(self.seed, PortId::new(port), StreamId(stream))
            }
        };
        if greatest { range } else { 0 }
    }
}

impl Station {
    fn new(network: &Network, port: &Port, place: u32) -> Self {
        let peer = &network.nodes[port.peer.index()];
        let (least, greatest) = match peer.kind {
            NodeKind::Switch => (peer.switching_min.0, peer.switching_max.0),
            NodeKind::Host | NodeKind::Segment => (0, 0),
        };
        Self {
            is_fifo: port.discipline == Discipline::Fifo,
            rate: port.rate,
            place,
            propagation: port.propagation.0,
            jitter: port.impairments.greatest_jitter().0,
            switching_least: least,
            switching_range: greatest - least,
        }
    }
}

/// In order of time, of equals in that in which they came here; the target behind all but those that follow it on its own link.
fn sort(arrivals: &mut [Token], positions: &[Position]) {
    // Each link's frames are in order already: the sort finds these runs and merges them.
    arrivals.sort_by_key(|token| token.time);
    for index in (0..arrivals.len()).rev() {
        let token = arrivals[index];
        if positions[token.position as usize].stream != 0 {
            continue;
        }
        let mut at = index;
        while let Some(behind) = arrivals.get(at + 1).copied()
            && behind.time == token.time
            && behind.input != token.input
        {
            arrivals.swap(at, at + 1);
            at += 1;
        }
    }
}

/// Strict priority or one queue at a constant rate, and a link that keeps its order and loses nothing.
fn is_plain(network: &Network, port: &Port) -> bool {
    let kind = |node: timebound_model::NodeId| network.nodes[node.index()].kind;
    let rules = &port.impairments;
    !matches!(port.discipline, Discipline::Drr(_))
        && port.trace.is_none()
        && port.slots.is_none()
        && port.medium.is_none()
        && kind(port.node) != NodeKind::Segment
        && kind(port.peer) != NodeKind::Segment
        && rules.jitter.as_ref().is_none_or(|jitter| !jitter.reorder)
        && *rules
            == timebound_model::Impairments {
                jitter: rules.jitter.clone(),
                ..timebound_model::Impairments::default()
            }
}

/// Does copying take time at a switch where a stream branches? Frames of such streams overtake.
fn copies(network: &Network) -> bool {
    let forks = |hop: &Hop| {
        let peer = network.ports[hop.port.index()].peer;
        hop.forks && network.nodes[peer.index()].replication_max.0 > 0
    };
    let hops = || network.streams.iter().flat_map(|stream| &stream.tree.hops);
    hops().any(forks)
}

/// The ports in use, each after all from which its frames come; `None` where they go around in a cycle.
fn order(network: &Network) -> Option<Vec<u32>> {
    let count = network.ports.len();
    let mut after: Vec<Vec<u32>> = vec![Vec::new(); count];
    let mut before = vec![0u32; count];
    let mut used = vec![false; count];
    for stream in &network.streams {
        for hop in &stream.tree.hops {
            used[hop.port.index()] = true;
            let Some(parent) = hop.parent else { continue };
            let list = &mut after[stream.tree.hops[parent as usize].port.index()];
            if !list.contains(&hop.port.0) {
                list.push(hop.port.0);
                before[hop.port.index()] += 1;
            }
        }
    }
    let mut order: Vec<u32> = (0..count as u32)
        .filter(|port| used[*port as usize] && before[*port as usize] == 0)
        .collect();
    let mut next = 0;
    while let Some(&port) = order.get(next) {
        next += 1;
        for &behind in &after[port as usize] {
            before[behind as usize] -= 1;
            if before[behind as usize] == 0 {
                order.push(behind);
            }
        }
    }
    (order.len() == used.iter().filter(|used| **used).count()).then_some(order)
}

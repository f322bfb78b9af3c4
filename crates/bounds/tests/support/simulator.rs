//! A store-and-forward network, event by event. Shares nothing with the product's fabric.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use timebound_model::{Discipline, Network, PortId};

/// A frame to send.
#[derive(Debug, Clone, Copy)]
pub struct Release {
    pub stream: usize,
    pub nominal: u64,
    pub actual: u64,
    pub bytes: u32,
}

/// Who wins when several things happen in one nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ties {
    /// A port that falls idle starts at once; then arrivals one by one, lowest class first: blocking is whole.
    LowerFirst,
    /// All arrivals are queued before any port starts: a higher frame still gets ahead.
    HigherFirst,
}

/// What to simulate.
#[derive(Debug)]
pub struct Run<'a> {
    pub network: &'a Network,
    pub releases: &'a [Release],
    /// Frames below every class: port, time, bytes.
    pub best_effort: &'a [(PortId, u64, u32)],
    pub ties: Ties,
    /// This stream's frames lose ties within their class.
    pub unlucky: usize,
}

/// What was seen, per stream and leaf and per port.
#[derive(Debug, Default)]
pub struct Seen {
    pub from_nominal: BTreeMap<(usize, usize), u64>,
    pub from_actual: BTreeMap<(usize, usize), u64>,
    pub least: BTreeMap<(usize, usize), u64>,
    /// Largest number of waiting bytes of declared streams.
    pub waiting: BTreeMap<PortId, u64>,
}

/// A frame on its way: release, hop in its stream's tree; `None` is best effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Copy {
    origin: Option<(usize, u32)>,
    bytes: u32,
    class: i16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Idle,
    Arrive(Copy),
    Start,
}

/// Time, order within it, sequence, port, event.
type Entry = Reverse<(u64, i16, u64, PortId, Event)>;

struct Machine<'a> {
    run: &'a Run<'a>,
    events: BinaryHeap<Entry>,
    sequence: u64,
    /// In order of arrival.
    queues: Vec<Vec<Copy>>,
    sending: Vec<Option<Copy>>,
    /// When each port became busy, the bytes it has sent since, and when the last of them was gone.
    busy: Vec<(u64, u64, u64)>,
    /// When the last frame from this port entered a queue behind it: switches keep the order of an input, among frames that
    /// they copy and among those that they do not.
    entered: Vec<[u64; 2]>,
    seen: Seen,
}

/// Runs until nothing is left. `traversal(port, least, greatest)` chooses what a switch and a jittery link add after `port`.
pub fn simulate(run: &Run<'_>, traversal: &mut dyn FnMut(PortId, u64, u64) -> u64) -> Seen {
    let ports = run.network.ports.len();
    let mut machine = Machine {
        run,
        events: BinaryHeap::new(),
        sequence: 0,
        queues: vec![Vec::new(); ports],
        sending: vec![None; ports],
        busy: vec![(0, 0, 0); ports],
        entered: vec![[0; 2]; ports],
        seen: Seen::default(),
    };
    for (index, release) in run.releases.iter().enumerate() {
        let stream = &run.network.streams[release.stream];
        for hop in stream.tree.children(None) {
            let copy = Copy {
                origin: Some((index, hop)),
                bytes: release.bytes,
                class: i16::from(stream.class.0),
            };
            machine.arrive(release.actual, stream.tree.hops[hop as usize].port, copy);
        }
    }
    for &(port, at, bytes) in run.best_effort {
        machine.arrive(
            at,
            port,
            Copy {
                origin: None,
                bytes,
                class: -1,
            },
        );
    }
    while let Some(Reverse((now, _, _, port, event))) = machine.events.pop() {
        match event {
            Event::Arrive(copy) => {
                machine.queues[port.index()].push(copy);
                match run.ties {
                    Ties::LowerFirst => machine.start(now, port),
                    Ties::HigherFirst => machine.push(now, 300, port, Event::Start),
                }
            }
            Event::Start => machine.start(now, port),
            Event::Idle => {
                let sent = machine.sending[port.index()]
                    .take()
                    .expect("a port that falls idle was sending");
                machine.forward(now, port, sent, traversal);
                match run.ties {
                    Ties::LowerFirst => machine.start(now, port),
                    Ties::HigherFirst => machine.push(now, 300, port, Event::Start),
                }
            }
        }
    }
    machine.seen
}

impl Machine<'_> {
    fn push(&mut self, at: u64, order: i16, port: PortId, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, order, self.sequence, port, event)));
    }

    fn arrive(&mut self, at: u64, port: PortId, copy: Copy) {
        let unlucky = copy
            .origin
            .is_some_and(|(release, _)| self.run.releases[release].stream == self.run.unlucky);
        // Classes part ties where they matter; in one queue only luck does.
        let sorts = self.run.network.ports[port.index()].discipline == Discipline::StrictPriority;
        let class = if sorts { 2 * copy.class } else { 0 };
        self.push(at, 4 + class + i16::from(unlucky), port, Event::Arrive(copy));
    }

    fn start(&mut self, now: u64, port: PortId) {
        let queue = &mut self.queues[port.index()];
        if self.sending[port.index()].is_none() && !queue.is_empty() {
            let sorts = self.run.network.ports[port.index()].discipline == Discipline::StrictPriority;
            let urgency = |place: &usize| if sorts { -queue[*place].class } else { 0 };
            let first = (0..queue.len()).min_by_key(urgency).expect("not empty");
            let copy = queue.remove(first);
            self.sending[port.index()] = Some(copy);
            let rate = self.run.network.ports[port.index()].rate.0;
            // All that is sent without a pause is rounded up once.
            let (began, bytes, until) = &mut self.busy[port.index()];
            if *until != now {
                (*began, *bytes) = (now, 0);
            }
            *bytes += u64::from(copy.bytes);
            *until = *began + (*bytes * 8_000_000_000).div_ceil(rate);
            let until = *until;
            self.push(until, 0, port, Event::Idle);
        }
        let declared = self.queues[port.index()]
            .iter()
            .filter(|copy| copy.origin.is_some());
        let waiting: u64 = declared.map(|copy| u64::from(copy.bytes)).sum();
        let most = self.seen.waiting.entry(port).or_default();
        *most = waiting.max(*most);
    }

    fn forward(
        &mut self,
        now: u64,
        port: PortId,
        copy: Copy,
        traversal: &mut dyn FnMut(PortId, u64, u64) -> u64,
    ) {
        let Some((index, hop)) = copy.origin else { return };
        let release = self.run.releases[index];
        let tree = &self.run.network.streams[release.stream].tree;
        let link = &self.run.network.ports[port.index()];
        let jitter = link.impairments.greatest_jitter().0;
        for (leaf, _) in tree.leaves.iter().enumerate().filter(|(_, leaf)| leaf.hop == hop) {
            let at = now + link.propagation.0 + traversal(port, 0, jitter);
            let place = (release.stream, leaf);
            let keep = |map: &mut BTreeMap<_, u64>, latency: u64| {
                let most = map.entry(place).or_default();
                *most = latency.max(*most);
            };
            keep(&mut self.seen.from_nominal, at - release.nominal);
            keep(&mut self.seen.from_actual, at - release.actual);
            let least = self.seen.least.entry(place).or_insert(u64::MAX);
            *least = (at - release.actual).min(*least);
        }
        let next: Vec<u32> = tree.children(Some(hop)).collect();
        if next.is_empty() {
            return;
        }
        let kind = usize::from(tree.hops[hop as usize].forks);
        let (least, greatest) = self.run.network.switching(tree.hops[hop as usize]);
        let added = traversal(port, least.0, greatest.0 + jitter);
        let entered = (now + link.propagation.0 + added).max(self.entered[port.index()][kind]);
        self.entered[port.index()][kind] = entered;
        for hop in next {
            let port = tree.hops[hop as usize].port;
            self.arrive(
                entered,
                port,
                Copy {
                    origin: Some((index, hop)),
                    ..copy
                },
            );
        }
    }
}

//! The curve of a stream travels with it: the distance that a slow link has given to frames is still there some ports later.
//!
//! Line shaping ([`Line`]) knows the link over which frames come. Where that is faster than one further back, they are counted as if they could
//! come in one heap, although the slow link has sent them one after the other. Let `u` be a port further back, and let all frames of a set
//! take between `a` and `b` from the last bit sent at `u` to the queue here. Those that come here in a closed window of length `d`
//! have left `u` in one of length `d + b - a`, and all but the first were sent in it. That is what a line says with
//! `b - a` as its spread; for frames of one size it is a [`Train`], which has steps in place of a slope. `b` adds up the responses of the
//! ports between, which are bounds by then, so that any order of evaluation is safe.
//!
//! Each group of a level is cut into *parts*, by the link further back that counts for a slot. Three choices are tried: the nearest link that is slower
//! than all that follow, the slowest of the way (where it passes several, the one that is next), and every slot by itself with all such
//! links, the last one among them where it is slower than the port. What no part holds back
//! stays together under the line of the link over which it comes. A level takes the least of all that is known.

use crate::bundle::{Bundle, Line, ONE, Sums};
use crate::demand::Demand;
use crate::layout::{Flow, Layout, NONE};
use crate::level::{Level, held_back};
use crate::propagation::Propagation;
use crate::settled::{NEVER, PortWork};
use crate::special::passes;
use crate::train::Train;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use timebound_model::{Network, WireBytes};

/// Instants at which two ways to bundle a group are compared.
const INSTANTS: usize = 32;

/// Which of the slow links of a way counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Nearest,
    Slowest,
    /// All of them, for every slot by itself.
    Each,
}

/// A slow link that slots have come through.
#[derive(Debug)]
struct Slow {
    /// The port of that link.
    link: u32,
    /// What the way from there varies by; [`NEVER`] until it is known.
    spread: AtomicU64,
}

impl Slow {
    const fn new(link: u32) -> Self {
        Self {
            link,
            spread: AtomicU64::new(NEVER),
        }
    }
}

/// Slots of one group whose frames come through the same slow links.
#[derive(Debug)]
struct Part {
    /// Nearest first, each slower than those before.
    links: Vec<Slow>,
    slots: Vec<u32>,
    least: u32,
    largest: u32,
}

impl Part {
    fn new(links: impl IntoIterator<Item = u32>) -> Self {
        Self {
            links: links.into_iter().map(Slow::new).collect(),
            slots: Vec::new(),
            least: u32::MAX,
            largest: 0,
        }
    }
    fn add(&mut self, slot: u32, flow: &Flow) {
        self.slots.push(slot);
        self.least = self.least.min(flow.least.0);
        self.largest = self.largest.max(flow.largest.0);
    }
    fn slowest(&self) -> u32 {
        self.links.last().map_or(NONE, |slow| slow.link)
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        let links = |part: &Self| part.links.iter().map(|slow| slow.link).collect::<Vec<_>>();
        self.slots == other.slots && links(self) == links(other)
    }
}

/// A group with parts.
#[derive(Debug, PartialEq)]
struct Split {
    parts: Vec<Part>,
    /// Slots without a slow link.
    rest: Vec<u32>,
}

/// One choice for all groups.
#[derive(Debug, PartialEq)]
pub(crate) struct Curves {
    choice: Choice,
    /// Position among the splits by group, or [`NONE`].
    of_group: Vec<u32>,
    splits: Vec<Split>,
}

impl Curves {
    /// All choices that make a difference: none where no way has a link that is slower than a later one.
    pub(crate) fn all(network: &Network, layout: &Layout) -> Vec<Self> {
        let mut rates = network.ports.iter().map(|port| port.rate);
        let first = rates.next();
        if rates.all(|rate| Some(rate) == first) {
            return Vec::new();
        }
        let mut all = vec![Self::by(Choice::Nearest, network, layout)];
        let slowest = Self::by(Choice::Slowest, network, layout);
        if all[0] != slowest {
            all.push(slowest);
        }
        all.push(Self::by(Choice::Each, network, layout));
        all.retain(|curves| !curves.splits.is_empty());
        all
    }

    fn by(choice: Choice, network: &Network, layout: &Layout) -> Self {
        let (mut of_group, mut splits) = (vec![NONE; layout.groups.len()], Vec::new());
        for (group, of_group) in layout.groups.iter().zip(&mut of_group) {
            let (mut parts, mut rest) = (BTreeMap::<u32, Part>::new(), Vec::new());
            for slot in group.start as u32..group.end as u32 {
                let links = slow_links(choice, network, layout, slot as usize);
                let Some(slowest) = links.last() else {
                    rest.push(slot);
                    continue;
                };
                let key = if choice == Choice::Each { slot } else { *slowest };
                let flow = &layout.flows[layout.slots[slot as usize].flow as usize];
                parts
                    .entry(key)
                    .or_insert_with(|| Part::new(links))
                    .add(slot, flow);
            }
            if !parts.is_empty() {
                *of_group = splits.len() as u32;
                let parts = parts.into_values().collect();
                splits.push(Split { parts, rest });
            }
        }
        Self {
            choice,
            of_group,
            splits,
        }
    }

    fn split(&self, group: usize) -> Option<&Split> {
        self.splits.get(self.of_group[group] as usize)
    }

    /// Has any group of the port up to this level parts?
    pub(crate) fn touch(&self, layout: &Layout, index: usize) -> bool {
        groups(layout, index).any(|group| self.split(group).is_some())
    }

    /// Takes anew what ways to a level's own slots vary by. No port may be locked.
    pub(crate) fn measure(&self, pass: &Propagation<'_>, index: usize) {
        let level = &pass.layout.levels[index];
        for split in level.groups.clone().filter_map(|group| self.split(group)) {
            for part in &split.parts {
                for slow in &part.links {
                    let spread = spread(pass, part, slow.link).unwrap_or(NEVER);
                    slow.spread.store(spread, Ordering::Relaxed);
                }
            }
        }
    }

    /// A level as these curves see it; `None` where they hold nothing back.
    pub(crate) fn shaped(
        &self,
        network: &Network,
        layout: &Layout,
        work: &PortWork,
        index: usize,
    ) -> Option<Shaped> {
        let level = &layout.levels[index];
        let mut shaped = Shaped {
            blocking: level.blocking,
            ..Shaped::default()
        };
        let mut holds = false;
        for group in groups(layout, index) {
            let is_higher = group < level.groups.start;
            let bounds = &layout.groups[group];
            let whole = Piece::of(
                work.demands(bounds.start..bounds.end),
                bounds.input,
                bounds.line.filter(|line| !is_higher || line.slope < ONE),
            );
            let pieces = self.split(group).and_then(|split| {
                let pieces = cut(network, layout, work, split, is_higher, &whole)?;
                // Every slot by itself is another view of the class, not a better one at once.
                let better = || peak(&pieces) < peak(std::slice::from_ref(&whole));
                (self.choice == Choice::Each || better()).then_some(pieces)
            });
            holds |= pieces.is_some();
            let side = if is_higher {
                &mut shaped.higher
            } else {
                &mut shaped.same
            };
            side.extend(pieces.unwrap_or_else(|| vec![whole]));
        }
        holds.then_some(shaped)
    }
}

/// The groups of a level and of those above it at its port.
fn groups(layout: &Layout, index: usize) -> Range<usize> {
    let level = &layout.levels[index];
    layout.ports[level.port.index()].groups.start..level.groups.end
}

/// The ports further back that count for a slot, nearest first.
fn slow_links(choice: Choice, network: &Network, layout: &Layout, slot: usize) -> Vec<u32> {
    let (mut at, mut limit, mut found) = (layout.slots[slot].parent, None, Vec::new());
    if choice == Choice::Each {
        let port = layout.levels[layout.slots[slot].level as usize].port;
        limit = Some(network.ports[port.index()].rate);
    }
    while at != NONE {
        let data = &layout.slots[at as usize];
        let port = layout.levels[data.level as usize].port;
        let link = &network.ports[port.index()];
        // Nothing is sent a second time out of a segment.
        if !passes(network, link) {
            if limit.is_some_and(|limit| link.rate < limit) {
                if choice == Choice::Slowest {
                    found.clear();
                }
                found.push(port.0);
                if choice == Choice::Nearest {
                    break;
                }
            }
            limit = Some(limit.map_or(link.rate, |limit| link.rate.min(limit)));
        }
        at = data.parent;
    }
    found
}

/// The longest way of a part's frames from the slow link less the shortest one.
fn spread(pass: &Propagation<'_>, part: &Part, link: u32) -> Option<u64> {
    let (mut longest, mut shortest) = (0, u64::MAX);
    for slot in &part.slots {
        let slots = &pass.layout.slots;
        let (mut at, mut late) = (*slot as usize, 0u64);
        loop {
            let before = slots[at].parent as usize;
            late = late.saturating_add(slots[at].traversal);
            let port = pass.layout.levels[slots.get(before)?.level as usize].port;
            if port.0 == link {
                let flow = &pass.layout.flows[slots[before].flow as usize];
                let sending = flow.quickest(slots[before].own, &pass.network.ports[port.index()]);
                let sent = slots[before].earliest.saturating_add(sending);
                longest = longest.max(late);
                shortest = shortest.min(slots[*slot as usize].earliest.saturating_sub(sent));
                break;
            }
            if pass.settled.departure(before) == NEVER {
                return None;
            }
            late = late.saturating_add(pass.settled.port(port.index()).seen(before).response);
            at = before;
        }
    }
    longest.checked_sub(shortest)
}

/// The pieces that a group is cut into, if links hold any back.
fn cut(
    network: &Network,
    layout: &Layout,
    work: &PortWork,
    split: &Split,
    is_higher: bool,
    whole: &Piece,
) -> Option<Vec<Piece>> {
    let demand = |slot: &u32| *work.demand(*slot as usize);
    let mut pieces = Vec::new();
    let mut others: Vec<Demand> = split.rest.iter().map(demand).collect();
    for part in &split.parts {
        let demands: Vec<Demand> = part.slots.iter().map(demand).collect();
        let mut piece = Piece::of(&demands, part.slowest(), None);
        part.hold(network, layout, &mut piece);
        // Where more urgent frames come no slower than they are sent, none is too late to matter.
        let is_slow = piece.line.is_none_or(|line| line.slope < ONE)
            && piece.train.as_ref().is_none_or(|train| !train.is_fast());
        let matters = !is_higher || is_slow;
        if matters && piece.holds() {
            pieces.push(piece);
        } else {
            others.extend(demands);
        }
    }
    if pieces.is_empty() {
        return None;
    }
    if !others.is_empty() {
        pieces.push(Piece::of(&others, whole.link, whole.line));
    }
    Some(pieces)
}

impl Part {
    fn hold(&self, network: &Network, layout: &Layout, piece: &mut Piece) {
        let slot = &layout.slots[self.slots[0] as usize];
        let port = layout.levels[slot.level as usize].port;
        let out = network.ports[port.index()].speed();
        let known = self.links.iter().filter_map(|slow| {
            let spread = slow.spread.load(Ordering::Relaxed);
            // Ways that take no time are counted as such where a frame is served as if it had come before it was sent.
            let spread = (spread != NEVER).then(|| spread.saturating_add(out.slack().0))?;
            Some((network.ports[slow.link as usize].speed(), spread))
        });
        if self.least == self.largest {
            let trains = known.map(|(link, spread)| {
                // Rounded down: no two frames are nearer, however a port rounds.
                let distance = u128::from(self.least) * link.ticks_per_byte() / u128::from(link.rate.0);
                (u64::try_from(distance).unwrap_or(u64::MAX), spread)
            });
            piece.couple(slot.own, trains.collect());
        } else if let Some((link, spread)) = known.last() {
            let largest = out.transmission_time(WireBytes(self.largest)).0;
            piece.line = Some(Line::new(largest, WireBytes(self.least), spread, link, out));
        }
    }
}

/// What comes at most before it is served at once, for a port that had nothing else to do.
fn peak(pieces: &[Piece]) -> u64 {
    let instants = pieces.iter().take(INSTANTS).map(Piece::when);
    std::iter::once(0)
        .chain(instants)
        .map(|at| {
            let come = pieces.iter().map(|piece| piece.come(at));
            come.fold(0, u64::saturating_add).saturating_sub(at)
        })
        .max()
        .unwrap_or(0)
}

/// Demands that one link holds back.
#[derive(Debug)]
pub(crate) struct Piece {
    demands: Vec<Demand>,
    sums: Sums,
    pub(crate) link: u32,
    line: Option<Line>,
    train: Option<Train>,
}

impl Piece {
    fn of(demands: &[Demand], link: u32, line: Option<Line>) -> Self {
        Self {
            sums: Sums::of(demands),
            demands: demands.to_vec(),
            link,
            line,
            train: None,
        }
    }
    /// All of it comes in a train over these links, if there are any.
    fn couple(&mut self, own: u64, links: Vec<(u64, u64)>) {
        // One frame, and the next one later than any link could send it: nothing to hold back.
        let slowest = links.iter().map(|(input, _)| *input).max().unwrap_or(0);
        if self.sums.at_once > own || self.sums.first_step < slowest {
            self.train = (!links.is_empty()).then(|| Train::new(own, links.into_iter(), &self.demands));
        }
    }
    fn bundle(&self) -> Bundle<'_> {
        let sums = match &self.train {
            Some(train) => {
                let next = self
                    .demands
                    .iter()
                    .map(|demand| demand.release_after(train.until));
                Sums {
                    at_once: train.work,
                    first_step: next.min().unwrap_or(u64::MAX),
                }
            }
            None => self.sums,
        };
        Bundle {
            demands: &self.demands,
            at_once: sums.at_once,
            first_step: sums.first_step,
            line: self.line,
            train: self.train.as_ref(),
        }
    }
    fn within(&self, window: u64) -> u64 {
        let work = self.demands.iter().map(|demand| demand.within(window));
        work.fold(0, u64::saturating_add)
    }
    fn holds(&self) -> bool {
        match (&self.train, self.line) {
            (Some(train), _) => train.holds(),
            (None, Some(line)) => line.at(0) < self.sums.at_once,
            (None, None) => false,
        }
    }
    /// What has come after this window of what could come at once.
    fn come(&self, window: u64) -> u64 {
        match (&self.train, self.line) {
            (Some(train), _) => train.come(window).min(self.sums.at_once),
            (None, Some(line)) => line.at(window).min(self.sums.at_once),
            (None, None) => self.sums.at_once,
        }
    }
    /// What is held back of what the staircases bring in a window.
    fn held(&self, window: u64) -> u64 {
        match (&self.train, self.line) {
            (Some(train), _) => train.held(window, self.within(window)),
            (None, Some(line)) => self.sums.at_once.saturating_sub(line.at(window)),
            (None, None) => 0,
        }
    }
    fn when(&self) -> u64 {
        match (&self.train, self.line) {
            (Some(train), _) => train.when(self.sums.at_once),
            (None, Some(line)) => line.when(self.sums.at_once),
            (None, None) => 0,
        }
    }
}

/// Links, and what each holds back.
pub(crate) type Held = Vec<(u32, u64)>;

/// A level in pieces.
#[derive(Debug, Default)]
pub(crate) struct Shaped {
    blocking: u64,
    same: Vec<Piece>,
    higher: Vec<Piece>,
}

impl Shaped {
    pub(crate) fn level(
        &self,
    ) -> Level<impl Iterator<Item = Bundle<'_>> + Clone, impl Iterator<Item = Bundle<'_>> + Clone> {
        Level {
            blocking: self.blocking,
            same: self.same.iter().map(Piece::bundle),
            higher: self.higher.iter().map(Piece::bundle),
        }
    }
    /// By link, what is held back of the class within one window and of more urgent ones within another.
    pub(crate) fn held(&self, same: u64, higher: u64) -> (Held, Held) {
        let of_class = |piece: &Piece| match piece.line {
            Some(line) => piece.within(same).saturating_sub(line.at(same)),
            None => piece.held(same),
        };
        let above = |piece: &Piece| match piece.line {
            Some(line) => held_back(line, piece.sums.at_once, higher),
            None => piece.held(higher),
        };
        (
            self.same
                .iter()
                .map(|piece| (piece.link, of_class(piece)))
                .collect(),
            self.higher
                .iter()
                .map(|piece| (piece.link, above(piece)))
                .collect(),
        )
    }
}

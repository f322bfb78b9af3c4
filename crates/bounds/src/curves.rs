//! The curve of a stream travels with it: the distance that a slow link has given to frames is still there some ports later.
//!
//! Line shaping ([`Line`]) knows the link over which frames come. Where that is faster than one further back, they are counted as if they could
//! come in one heap, although the slow link has sent them one after the other. Let `u` be a port further back, and let all frames of a set
//! take between `a` and `b` from the last bit sent at `u` to the queue here. Those that come here in a closed window of length `d`
//! have left `u` in one of length `d + b - a`, and all but the first were sent in it. That is what a line says with
//! `b - a` as its spread; for frames of one size it is a [`Train`], which has steps in place of a slope. `b` adds up the responses of the
//! ports between, which are bounds by then, so that any order of evaluation is safe.
//!
//! Each group of a level is cut into *parts*, by the link further back that counts for a slot. Two choices are tried: the nearest link that is slower
//! than all that follow, and the slowest of the way (where it passes several, the one that is next). What no part holds back
//! stays together under the line of the link over which it comes. A level takes the least of all that is known.

use crate::bundle::{Bundle, Line, ONE, Sums, Train};
use crate::demand::Demand;
use crate::layout::{Layout, NONE};
use crate::level::{Level, held_back};
use crate::propagation::Propagation;
use crate::settled::{NEVER, PortWork};
use crate::special::passes;
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
}

/// Slots of one group whose frames come through one slow link further back.
#[derive(Debug)]
struct Part {
    /// The port of that link.
    link: u32,
    slots: Vec<u32>,
    least: u32,
    largest: u32,
    /// What their way from there varies by; [`NEVER`] until it is known.
    spread: AtomicU64,
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        self.link == other.link && self.slots == other.slots
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
        all.retain(|curves| !curves.splits.is_empty());
        all
    }

    fn by(choice: Choice, network: &Network, layout: &Layout) -> Self {
        let (mut of_group, mut splits) = (vec![NONE; layout.groups.len()], Vec::new());
        for (group, of_group) in layout.groups.iter().zip(&mut of_group) {
            let (mut parts, mut rest) = (BTreeMap::<u32, Part>::new(), Vec::new());
            for slot in group.start as u32..group.end as u32 {
                let Some(link) = slow_link(choice, network, layout, slot as usize) else {
                    rest.push(slot);
                    continue;
                };
                let flow = &layout.flows[layout.slots[slot as usize].flow as usize];
                let part = parts.entry(link).or_insert_with(|| Part {
                    link,
                    slots: Vec::new(),
                    least: u32::MAX,
                    largest: 0,
                    spread: AtomicU64::new(NEVER),
                });
                part.slots.push(slot);
                part.least = part.least.min(flow.least.0);
                part.largest = part.largest.max(flow.largest.0);
            }
            if !parts.is_empty() {
                *of_group = splits.len() as u32;
                let parts = parts.into_values().collect();
                splits.push(Split { parts, rest });
            }
        }
        Self { of_group, splits }
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
                part.spread
                    .store(spread(pass, part).unwrap_or(NEVER), Ordering::Relaxed);
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
                let rest = split.rest.iter().copied();
                cut(network, layout, work, split, rest, is_higher, &whole)
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

/// The port further back that counts for a slot.
fn slow_link(choice: Choice, network: &Network, layout: &Layout, slot: usize) -> Option<u32> {
    let (mut at, mut limit, mut found) = (layout.slots[slot].parent, None, None);
    while at != NONE {
        let data = &layout.slots[at as usize];
        let port = layout.levels[data.level as usize].port;
        let link = &network.ports[port.index()];
        // Nothing is sent a second time out of a segment.
        if !passes(network, link) {
            if limit.is_some_and(|limit| link.rate < limit) {
                found = Some(port.0);
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
fn spread(pass: &Propagation<'_>, part: &Part) -> Option<u64> {
    let (mut longest, mut shortest) = (0, u64::MAX);
    for slot in &part.slots {
        let slots = &pass.layout.slots;
        let (mut at, mut late) = (*slot as usize, 0u64);
        loop {
            let before = slots[at].parent as usize;
            late = late.saturating_add(slots[at].traversal);
            let port = pass.layout.levels[slots.get(before)?.level as usize].port;
            if port.0 == part.link {
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

/// The pieces that a group is cut into, if that says more than its `whole`.
fn cut(
    network: &Network,
    layout: &Layout,
    work: &PortWork,
    split: &Split,
    rest: impl Iterator<Item = u32>,
    is_higher: bool,
    whole: &Piece,
) -> Option<Vec<Piece>> {
    let demand = |slot: &u32| *work.demand(*slot as usize);
    let mut pieces = Vec::with_capacity(split.parts.len() + 1);
    let mut others: Vec<Demand> = rest.map(|slot| demand(&slot)).collect();
    for part in &split.parts {
        let demands: Vec<Demand> = part.slots.iter().map(demand).collect();
        let mut piece = Piece::of(&demands, part.link, None);
        part.hold(network, layout, &mut piece);
        // Where more urgent frames come no slower than they are sent, none is too late to matter.
        let is_slow = piece.line.is_none_or(|line| line.slope < ONE)
            && piece.train.is_none_or(|train| train.weight < train.period);
        let matters = !is_higher || is_slow;
        if matters && piece.held(0) > 0 {
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
    (peak(&pieces) < peak(std::slice::from_ref(whole))).then_some(pieces)
}

impl Part {
    fn hold(&self, network: &Network, layout: &Layout, piece: &mut Piece) {
        let spread = self.spread.load(Ordering::Relaxed);
        if spread == NEVER {
            return;
        }
        let slot = &layout.slots[self.slots[0] as usize];
        let port = layout.levels[slot.level as usize].port;
        let (out, link) = (
            network.ports[port.index()].speed(),
            network.ports[self.link as usize].speed(),
        );
        // Ways that take no time are counted as such where a frame is served as if it had come before it was sent.
        let spread = spread.saturating_add(network.ports[port.index()].speed().slack().0);
        if self.least == self.largest {
            // Rounded down: no two frames are nearer, however a port rounds.
            let distance = u128::from(self.least) * link.ticks_per_byte() / u128::from(link.rate.0);
            let distance = u64::try_from(distance).unwrap_or(u64::MAX);
            piece.train = Some(Train::new(slot.own, distance, spread));
        } else {
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
            let come = pieces
                .iter()
                .map(|piece| piece.sums.at_once.saturating_sub(piece.held(at)));
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
    fn bundle(&self) -> Bundle<'_> {
        Bundle {
            demands: &self.demands,
            at_once: self.sums.at_once,
            first_step: self.sums.first_step,
            line: self.line,
            train: self.train,
        }
    }
    fn within(&self, window: u64) -> u64 {
        let work = self.demands.iter().map(|demand| demand.within(window));
        work.fold(0, u64::saturating_add)
    }
    /// What has not come after this window of what could come at once.
    fn held(&self, window: u64) -> u64 {
        let at_once = self.sums.at_once;
        match (self.train, self.line) {
            (Some(train), _) => train.held(at_once, window),
            (None, Some(line)) => at_once.saturating_sub(line.at(window)),
            (None, None) => 0,
        }
    }
    fn when(&self) -> u64 {
        let at_once = self.sums.at_once;
        match (self.train, self.line) {
            (Some(train), _) => train.when(at_once),
            (None, Some(line)) => line.when(at_once),
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

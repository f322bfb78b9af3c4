//! Times finer than a nanosecond, for ports whose frames do not take whole ones.
//!
//! Events are in whole nanoseconds; in a busy period a frame begins with what its predecessors have left of one (`Remainder` in the model). So such
//! a port serves as one with exact times would, if it is taken that
//!
//! - a frame comes up to a nanosecond before its event (it may begin where the last one ended, before the nanosecond is full), and
//! - is gone up to a nanosecond after its last bit (its event).
//!
//! The analysis looks at that port: at a network in *ticks*, the coarsest fractions of a nanosecond in which every frame takes a whole number. Each link
//! before and behind such a port varies by a nanosecond more (`Speed::slack`), which holds for every method, for line shaping and for
//! token buckets. Results are rounded to nanoseconds again; as events are in whole ones, those of upper bounds may be cut. A source's first port is
//! before everything, so that its streams have a nanosecond of jitter more and count from one before.
//!
//! Where every byte takes whole nanoseconds at every port, ticks are nanoseconds, and nothing is different or costs anything.

use crate::explain::HopExplanation;
use crate::options::Options;
use crate::result::{Analysis, HopResult, Outcome};
use std::borrow::Cow;
use timebound_model::declaration::{JitterDecl, JitterDistribution};
use timebound_model::{Arrival, Grain, Network, PortId, Rate, Span, Stream, StreamId, Tree};

/// Most ticks per nanosecond: enough for the rates in use, up to 10 Tbit/s.
const MOST: u64 = 1_250;
/// Where no so few ticks divide everything (33.333333 Mbit/s), picoseconds, and each frame is rounded up to one.
const PICOS: u64 = 1_000;

/// A network in ticks that are fine enough for its rates.
#[derive(Debug, Clone)]
pub struct Exact<'a> {
    network: Cow<'a, Network>,
}

impl<'a> Exact<'a> {
    #[must_use]
    pub fn of(network: &'a Network) -> Self {
        let ids = (0..network.ports.len()).map(PortId::new);
        let carrying = ids.filter(|id| network.carries(*id));
        let rates = carrying.map(|id| network.ports[id.index()].rate);
        let network = match per_nano(rates) {
            1 => Cow::Borrowed(network),
            per_nano => Cow::Owned(finer(network, per_nano)),
        };
        Self { network }
    }
    pub(crate) fn network(&self) -> &Network {
        &self.network
    }
    pub(crate) const fn is_finer(&self) -> bool {
        matches!(self.network, Cow::Owned(_))
    }
    pub(crate) fn options<'b>(&self, options: &'b Options) -> Cow<'b, Options> {
        let mut options = Cow::Borrowed(options);
        if self.is_finer() && !options.jitter_override.is_empty() {
            for (id, jitter) in &mut options.to_mut().jitter_override {
                *jitter = times(*jitter, self.network.per_nano()).saturating_add(self.begins(*id));
            }
        }
        options
    }
    /// What an observed jitter of the stream has more in ticks.
    fn begins(&self, id: StreamId) -> Span {
        let stream = self.network.streams.get(id.index());
        stream.map_or(Span::ZERO, |stream| begins(&self.network, &stream.tree))
    }
    /// An analysis of [`Exact::network`] in nanoseconds.
    pub(crate) fn rounded(&self, mut analysis: Analysis) -> Analysis {
        if !self.is_finer() {
            return analysis;
        }
        for (result, stream) in analysis.streams.iter_mut().zip(&self.network.streams) {
            for leaf in &mut result.leaves {
                round(&self.network, &stream.tree, &mut leaf.outcome);
            }
        }
        for port in &mut analysis.ports {
            let slack = self.network.ports[port.port.index()].speed().slack();
            for class in &mut port.classes {
                class.largest_delay = class
                    .largest_delay
                    .map(|delay| Span(delay.saturating_add(slack).0 / self.network.per_nano()));
            }
        }
        analysis
    }
    /// A hop in nanoseconds, to the sums that the analysis has.
    pub(crate) fn round_explained(&self, hop: &mut HopExplanation, rounded: Option<&HopResult>) {
        let Some(rounded) = rounded.filter(|_| self.is_finer()) else {
            return;
        };
        let per_nano = self.network.per_nano();
        let cut = |time: Span| Span(time.0 / per_nano);
        hop.unshaped = hop.unshaped.map(|plain| {
            rounded
                .response
                .saturating_add(cut(plain.saturating_sub(hop.response)))
        });
        hop.response = rounded.response;
        hop.counted_before = rounded.counted_before;
        hop.jitter_in = rounded.jitter_in;
        hop.traversal = rounded.traversal;
        hop.propagation = cut(hop.propagation);
        hop.link_jitter = cut(hop.link_jitter);
        hop.switching = rounded
            .traversal
            .saturating_sub(hop.propagation)
            .saturating_sub(hop.link_jitter);
        let parts = &mut hop.parts;
        parts.blocking.time = cut(parts.blocking.time);
        let others = parts.higher.iter_mut().chain(&mut parts.same);
        others.for_each(|other| other.time = cut(other.time));
        parts
            .shaping
            .iter_mut()
            .for_each(|credit| credit.time = cut(credit.time));
        (parts.own, parts.service, parts.window) = (cut(parts.own), cut(parts.service), cut(parts.window));
        parts.rounding = 0;
        let missing = i128::from(hop.response.0) - parts.total();
        parts.rounding = i64::try_from(missing).unwrap_or(i64::MAX);
    }
}

/// The fewest ticks per nanosecond for which a byte takes a whole number at each of these rates.
fn per_nano(rates: impl Iterator<Item = Rate>) -> u64 {
    const BYTE: u64 = 8_000_000_000;
    let mut all = 1u64;
    for rate in rates {
        let parts = rate.0 / gcd(BYTE, rate.0);
        all = match (all / gcd(all, parts)).checked_mul(parts) {
            Some(both) if both <= MOST => both,
            _ => return PICOS,
        };
    }
    all
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

const fn times(span: Span, per_nano: u64) -> Span {
    Span(span.0.saturating_mul(per_nano))
}

fn finer(declared: &Network, per_nano: u64) -> Network {
    let mut network = declared.clone();
    for node in &mut network.nodes {
        for span in [
            &mut node.switching_min,
            &mut node.switching_max,
            &mut node.replication_min,
            &mut node.replication_max,
        ] {
            *span = times(*span, per_nano);
        }
    }
    for (index, port) in network.ports.iter_mut().enumerate() {
        port.grain = Grain {
            per_nano,
            carries: declared.carries(PortId::new(index)),
        };
        port.propagation = times(port.propagation, per_nano);
        if let Some(jitter) = &mut port.impairments.jitter {
            stretch(jitter, per_nano);
        }
        if let Some(slots) = &mut port.slots {
            *slots = slots.times(per_nano).unwrap_or_else(|| slots.clone());
        }
    }
    let streams = std::mem::take(&mut network.streams);
    network.streams = streams
        .into_iter()
        .map(|declared| stream(&network, declared))
        .collect();
    network
}

fn stretch(jitter: &mut JitterDecl, per_nano: u64) {
    match &mut jitter.distribution {
        JitterDistribution::Uniform { max_ns }
        | JitterDistribution::Normal { max_ns, .. }
        | JitterDistribution::Pareto { max_ns, .. }
        | JitterDistribution::Exponential { max_ns, .. } => *max_ns = max_ns.saturating_mul(per_nano),
    }
}

/// So much before its release a stream's frames may count as there: its tree's first port decides.
pub(crate) fn begins(network: &Network, tree: &Tree) -> Span {
    if network.per_nano() == 1 {
        return Span::ZERO;
    }
    let roots = tree.hops.iter().filter(|hop| hop.parent.is_none());
    let slacks = roots.map(|hop| network.ports[hop.port.index()].speed().slack());
    slacks.max().unwrap_or(Span::ZERO)
}

/// A stream for a network in ticks.
pub(crate) fn stream(network: &Network, mut stream: Stream) -> Stream {
    let per_nano = network.per_nano();
    if per_nano == 1 {
        return stream;
    }
    let begins = begins(network, &stream.tree);
    match &mut stream.arrival {
        Arrival::Periodic { period, jitter, .. } => {
            *period = times(*period, per_nano);
            *jitter = times(*jitter, per_nano).saturating_add(begins);
        }
        // The burst of a bucket is a time as well: [`crate::flow::flows_of_stream`] adds it there.
        Arrival::TokenBucket { .. } | Arrival::Unbounded { .. } => {}
    }
    // A bound that is cut to this deadline is less than a nanosecond above it.
    stream.deadline = stream.deadline.map(|deadline| {
        times(deadline, per_nano)
            .saturating_add(begins)
            .saturating_add(Span(per_nano - 1))
    });
    stream
}

/// A time from the nominal release in nanoseconds.
pub(crate) fn nanos(network: &Network, tree: &Tree, time: Span) -> Span {
    Span(time.saturating_sub(begins(network, tree)).0 / network.per_nano())
}

/// An outcome in nanoseconds.
pub(crate) fn rounded(network: &Network, tree: &Tree, mut outcome: Outcome) -> Outcome {
    if network.per_nano() > 1 {
        round(network, tree, &mut outcome);
    }
    outcome
}

fn round(network: &Network, tree: &Tree, outcome: &mut Outcome) {
    let Outcome::Bound {
        from_nominal,
        from_actual,
        best_case,
        best_whole,
        hops,
    } = outcome
    else {
        return;
    };
    let (per_nano, begins) = (network.per_nano(), begins(network, tree));
    // A release that is up to so much later than it could be; none where only actual releases are known.
    let jitter = from_nominal.saturating_sub(*from_actual).saturating_sub(begins);
    *from_actual = Span(from_actual.0 / per_nano);
    *from_nominal = from_actual.saturating_add(Span(jitter.0 / per_nano));
    let carries = |hop: &HopResult| network.ports[hop.port.index()].grain.carries;
    let is_strict = hops.iter().any(carries);
    for best in [best_case, best_whole] {
        let is_less = best.0 < begins.0;
        let time = best.saturating_sub(begins).0;
        *best = Span(match (is_strict, is_less) {
            // It cannot be reached, so that it is one nanosecond more than its whole ones at least.
            (true, false) => time / per_nano + 1,
            (true, true) => 0,
            (false, _) => time.div_ceil(per_nano),
        });
    }
    round_hops(network, hops);
}

/// So that sums of hops are what they say: each is rounded where the whole way up to it is.
fn round_hops(network: &Network, hops: &mut [HopResult]) {
    let per_nano = network.per_nano();
    let (mut left, mut arrived) = (0i128, 0i128);
    for hop in hops {
        let slack = network.ports[hop.port.index()].speed().slack();
        left += i128::from(hop.response.0) - i128::from(hop.counted_before.0);
        let departed = (left + i128::from(slack.0)).div_euclid(i128::from(per_nano));
        left += i128::from(hop.traversal.0);
        hop.counted_before = Span(hop.counted_before.0.div_ceil(per_nano));
        let response = departed - arrived + i128::from(hop.counted_before.0);
        hop.response = Span(u64::try_from(response).unwrap_or(0));
        hop.traversal = Span(hop.traversal.saturating_sub(slack).0 / per_nano);
        hop.window = Span(hop.window.0 / per_nano);
        hop.jitter_in = Span(hop.jitter_in.0.div_ceil(per_nano));
        arrived = departed + i128::from(hop.traversal.0);
    }
}

//! Options as Python gives them: JSON with names in place of ids.

use serde::Deserialize;
use std::collections::BTreeMap;
use timebound_bounds::{Analysis, HopResult, Method, Outcome};
use timebound_fabric::{Change, Conditions};
use timebound_model::declaration::ImpairmentsDecl;
use timebound_model::{Network, PortId, Span, StreamId, Time};
use timebound_sim::{HopWitness, StreamWitness};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BoundsOptions {
    #[serde(default)]
    method: MethodName,
    /// Stream name -> jitter at its first port, ns.
    #[serde(default)]
    jitter_override: BTreeMap<String, u64>,
    #[serde(default = "yes")]
    assume_best_effort: bool,
    /// Work for several ports at once; that of [`timebound_bounds::Options::EFFORT`] where none is stated.
    #[serde(default)]
    effort: Option<u64>,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "kebab-case")]
enum MethodName {
    Holistic,
    Calculus,
    PortByPort,
    #[default]
    Bound,
}

const fn yes() -> bool {
    true
}

/// Slots (flows times ports) from which a second thread is worth its start.
const MANY_HOPS: usize = 20_000;

fn threads(network: &Network) -> usize {
    let hops: usize = network.streams.iter().map(|stream| stream.tree.hops.len()).sum();
    if hops < MANY_HOPS {
        return 1;
    }
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl Default for BoundsOptions {
    fn default() -> Self {
        Self {
            method: MethodName::default(),
            jitter_override: BTreeMap::new(),
            assume_best_effort: true,
            effort: None,
        }
    }
}

impl BoundsOptions {
    /// Names that are no streams are passed over.
    pub(crate) fn resolve(&self, network: &Network) -> timebound_bounds::Options {
        let jitters = network.streams.iter().enumerate().filter_map(|(index, stream)| {
            let jitter = self.jitter_override.get(&stream.name)?;
            Some((StreamId::new(index), Span(*jitter)))
        });
        timebound_bounds::Options {
            method: match self.method {
                MethodName::Holistic => Method::Holistic,
                MethodName::Calculus => Method::Calculus,
                MethodName::PortByPort => Method::PortByPort,
                MethodName::Bound => Method::Bound,
            },
            jitter_override: jitters.collect(),
            assume_best_effort: self.assume_best_effort,
            threads: threads(network),
            effort: self.effort.unwrap_or(timebound_bounds::Options::EFFORT),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SimulateOptions {
    duration_ns: u64,
    warmup_ns: u64,
    seed: u64,
    schedule: Vec<ChangeOptions>,
}

/// A change of one direction of a link; `port` is twice the link's position, plus one for the backward direction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeOptions {
    at_ns: u64,
    port: u32,
    rate_bps: Option<u64>,
    delay_ns: Option<u64>,
    buffer_bytes: Option<u64>,
    impairments: Option<ImpairmentsDecl>,
    up: Option<bool>,
}

/// The changes of a schedule, in its order.
fn changes(schedule: &[ChangeOptions], network: &Network) -> Result<Vec<(Time, Change)>, String> {
    let mut changes = Vec::new();
    for entry in schedule {
        if entry.port as usize >= network.ports.len() {
            return Err(format!("schedule: no port {}", entry.port));
        }
        let conditions = Conditions {
            rate_bps: entry.rate_bps,
            delay_ns: entry.delay_ns,
            buffer_bytes: entry.buffer_bytes,
            impairments: entry.impairments.as_ref(),
            up: entry.up,
        };
        let found = conditions
            .changes(PortId(entry.port), "schedule")
            .map_err(|errors| errors.to_string())?;
        changes.extend(found.into_iter().map(|change| (Time(entry.at_ns), change)));
    }
    Ok(changes)
}

impl SimulateOptions {
    pub(crate) fn resolve(self, network: &Network) -> Result<timebound_sim::Options, String> {
        Ok(timebound_sim::Options {
            duration: Span(self.duration_ns),
            warmup: Span(self.warmup_ns),
            seed: self.seed,
            schedule: changes(&self.schedule, network)?,
            ..Default::default()
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchOptions {
    pub(crate) evaluations: u64,
    /// Ends the search after so long, if it has not ended before.
    #[serde(default)]
    pub(crate) limit_ns: Option<u64>,
    /// An interrupt ends it with what was found until then, in place of an exception.
    #[serde(default)]
    pub(crate) keep: bool,
    seed: u64,
    #[serde(default)]
    schedule: Vec<ChangeOptions>,
}

impl SearchOptions {
    /// On all cores: what is found does not depend on how many there are.
    pub(crate) fn resolve(self, network: &Network) -> Result<timebound_sim::SearchOptions, String> {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(timebound_sim::SearchOptions {
            evaluations: self.evaluations,
            seed: self.seed,
            threads,
            schedule: changes(&self.schedule, network)?,
            best_effort: true,
            witness: witness(&timebound_bounds::analyse(
                network,
                &timebound_bounds::Options::default(),
            )),
        })
    }
}

/// What the bounds say about each receiver, as the search wants it; nothing where there is no bound.
fn witness(analysis: &Analysis) -> Vec<StreamWitness> {
    let leaf = |outcome: &Outcome| match outcome {
        Outcome::Bound { hops, .. } => {
            let hop = |hop: &HopResult| HopWitness {
                window: hop.window,
                response: hop.response.saturating_sub(hop.counted_before),
                traversal: hop.traversal,
            };
            hops.iter().map(hop).collect()
        }
        Outcome::NoFiniteBound { .. } | Outcome::Unsupported { .. } => Vec::new(),
    };
    let streams = analysis.streams.iter();
    streams
        .map(|stream| stream.leaves.iter().map(|one| leaf(&one.outcome)).collect())
        .collect()
}

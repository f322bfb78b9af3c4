//! Options as Python gives them: JSON with names in place of ids.

use serde::Deserialize;
use std::collections::BTreeMap;
use timebound_fabric::Change;
use timebound_model::declaration::ImpairmentsDecl;
use timebound_model::{CompileErrors, Network, PortId, Rate, Span, StreamId, Time, compile_conditions};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HolisticOptions {
    /// Stream name -> jitter at its first port, ns.
    jitter_override: BTreeMap<String, u64>,
}

impl HolisticOptions {
    /// Names that are no streams are passed over.
    pub(crate) fn resolve(&self, network: &Network) -> timebound_bounds::Options {
        let jitters = network.streams.iter().enumerate().filter_map(|(index, stream)| {
            let jitter = self.jitter_override.get(&stream.name)?;
            Some((StreamId::new(index), Span(*jitter)))
        });
        timebound_bounds::Options {
            jitter_override: jitters.collect(),
            ..Default::default()
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SimulateOptions {
    duration_ns: u64,
    warmup_ns: u64,
    seed: u64,
    schedule: Vec<Conditions>,
}

/// A change of one direction of a link; `port` is twice the link's position, plus one for the backward direction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Conditions {
    at_ns: u64,
    port: u32,
    rate_bps: Option<u64>,
    delay_ns: Option<u64>,
    impairments: Option<ImpairmentsDecl>,
    up: Option<bool>,
}

impl SimulateOptions {
    pub(crate) fn resolve(self, network: &Network) -> Result<timebound_sim::Options, CompileErrors> {
        let mut schedule = Vec::new();
        for entry in self.schedule {
            let port = PortId(entry.port);
            let at = Time(entry.at_ns);
            if let Some(rate) = entry.rate_bps {
                schedule.push((at, Change::Rate(port, Rate(rate.max(1)))));
            }
            if let Some(delay) = entry.delay_ns {
                schedule.push((at, Change::Propagation(port, Span(delay))));
            }
            if let Some(decl) = &entry.impairments {
                schedule.push((
                    at,
                    Change::Impairments(port, compile_conditions(decl, "schedule")?),
                ));
            }
            let link = network.ports[port.index()].link;
            // Up and down belong to the link: said once, by its forward direction.
            match entry.up {
                Some(up) if port.0.is_multiple_of(2) => {
                    schedule.push((
                        at,
                        if up {
                            Change::LinkUp(link)
                        } else {
                            Change::LinkDown(link)
                        },
                    ));
                }
                _ => {}
            }
        }
        Ok(timebound_sim::Options {
            duration: Span(self.duration_ns),
            warmup: Span(self.warmup_ns),
            seed: self.seed,
            schedule,
            ..Default::default()
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchOptions {
    pub(crate) evaluations: u64,
    seed: u64,
}

impl SearchOptions {
    /// On all cores: what is found does not depend on how many there are.
    pub(crate) fn resolve(self) -> timebound_sim::SearchOptions {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        timebound_sim::SearchOptions {
            evaluations: self.evaluations,
            seed: self.seed,
            threads,
        }
    }
}

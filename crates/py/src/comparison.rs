//! Figures of methods that are no bounds, asked for by name.

use serde::Deserialize;
use std::collections::BTreeMap;
use timebound_bounds::published::{self, Defect};
use timebound_bounds::{Labelled, Options, trajectory};
use timebound_model::{Network, Span, StreamId};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComparisonOptions {
    method: MethodName,
    /// Stream name -> jitter at its first port, ns; names that are no streams are passed over.
    #[serde(default)]
    jitter_override: BTreeMap<String, u64>,
    #[serde(default = "yes")]
    assume_best_effort: bool,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum MethodName {
    Trajectory,
    HolisticAsPublished,
    TrajectoryAsPublished,
    /// The published trajectory approach read with transmission times.
    TrajectoryWithPublishedDefects,
}

const fn yes() -> bool {
    true
}

impl ComparisonOptions {
    pub(crate) fn answer(&self, network: &Network) -> Labelled {
        let jitters = network.streams.iter().enumerate().filter_map(|(index, stream)| {
            let jitter = self.jitter_override.get(&stream.name)?;
            Some((StreamId::new(index), Span(*jitter)))
        });
        let options = Options {
            jitter_override: jitters.collect(),
            assume_best_effort: self.assume_best_effort,
            ..Options::default()
        };
        match self.method {
            MethodName::Trajectory => trajectory(network, &options),
            MethodName::HolisticAsPublished => published::holistic_as_published(network, &options),
            MethodName::TrajectoryAsPublished => published::trajectory_as_published(network, &options),
            MethodName::TrajectoryWithPublishedDefects => {
                let defects = [Defect::ResidualBlocking, Defect::SourceBusyPeriod];
                published::trajectory_with(network, &options, &defects)
            }
        }
    }
}

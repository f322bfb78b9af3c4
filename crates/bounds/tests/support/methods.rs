//! Every method through one interface, with what it promises.

use timebound_bounds::published::{self, Defect};
use timebound_bounds::{Analysis, Method, Options, Safety, analyse, trajectory};
use timebound_model::Network;

/// A method under test.
#[derive(Clone, Copy)]
pub struct Candidate {
    pub name: &'static str,
    pub safety: Safety,
    pub analyse: fn(&Network, &Options) -> Analysis,
}

const fn safe(name: &'static str, analyse: fn(&Network, &Options) -> Analysis) -> Candidate {
    Candidate {
        name,
        safety: Safety::Safe,
        analyse,
    }
}

fn by(method: Method, network: &Network, options: &Options) -> Analysis {
    let options = Options {
        method,
        ..options.clone()
    };
    analyse(network, &options)
}

pub const METHODS: &[Candidate] = &[
    safe("holistic", |network, options| {
        by(Method::Holistic, network, options)
    }),
    safe("calculus", |network, options| {
        by(Method::Calculus, network, options)
    }),
    safe("port by port", |network, options| {
        by(Method::PortByPort, network, options)
    }),
    safe("bound", |network, options| by(Method::Bound, network, options)),
    Candidate {
        name: "trajectory",
        safety: Safety::Experimental,
        analyse: |network, options| trajectory(network, options).analysis,
    },
    Candidate {
        name: "trajectory with residual blocking",
        safety: Safety::Unsafe,
        analyse: |network, options| {
            published::trajectory_with(network, options, &[Defect::ResidualBlocking]).analysis
        },
    },
    Candidate {
        name: "trajectory over the source's busy period",
        safety: Safety::Unsafe,
        analyse: |network, options| {
            published::trajectory_with(network, options, &[Defect::SourceBusyPeriod]).analysis
        },
    },
    Candidate {
        name: "trajectory as published",
        safety: Safety::Unsafe,
        analyse: |network, options| published::trajectory_as_published(network, options).analysis,
    },
    Candidate {
        name: "holistic as published",
        safety: Safety::Unsafe,
        analyse: |network, options| published::holistic_as_published(network, options).analysis,
    },
];

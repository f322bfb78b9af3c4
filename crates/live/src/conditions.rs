//! The plan's changes of conditions as changes of the fabric, and the fabrics of the phases of a run.

use crate::capture::find_port;
use crate::failure::Failure;
use crate::plan::{EventPlan, Plan};
use std::sync::Arc;
use timebound_fabric::{Change, Fabric};
use timebound_model::declaration::{ImpairmentsDecl, LossDecl};
use timebound_model::{Impairments, Network, Rate, Span, Time};

/// The changes of all events, by run time.
///
/// # Errors
/// An unknown port, a rate of zero or a share outside 0..1.
pub(crate) fn changes(plan: &Plan, network: &Network) -> Result<Vec<(Time, Change)>, Failure> {
    let mut all = Vec::new();
    for (index, event) in plan.events.iter().enumerate() {
        let bad = |why: String| Failure::internal(format!("plan: events[{index}]"), why);
        let port = find_port(network, &event.port)
            .ok_or_else(|| bad(format!("no port {}->{}", event.port.from, event.port.to)))?;
        let at = Time(event.at_ns);
        if let Some(rate) = event.rate_bps {
            if rate == 0 {
                return Err(bad("a rate of zero".to_owned()));
            }
            all.push((at, Change::Rate(port, Rate(rate))));
        }
        if let Some(delay) = event.delay_ns {
            all.push((at, Change::Propagation(port, Span(delay))));
        }
        if let Some(impairments) = &event.impairments {
            check(impairments).map_err(bad)?;
            let current = &network.ports[port.index()].impairments;
            all.push((at, Change::Impairments(port, replaced(impairments, current))));
        }
        if let Some(change) = link_state(event, network, port) {
            all.push((at, change));
        }
    }
    all.sort_by_key(|(at, _)| *at);
    Ok(all)
}

fn link_state(event: &EventPlan, network: &Network, port: timebound_model::PortId) -> Option<Change> {
    let link = network.ports[port.index()].link;
    event.up.map(|up| {
        if up {
            Change::LinkUp(link)
        } else {
            Change::LinkDown(link)
        }
    })
}

fn check(decl: &ImpairmentsDecl) -> Result<(), String> {
    let loss = match decl.loss {
        None => vec![],
        Some(LossDecl::Bernoulli { probability }) => vec![probability],
        Some(LossDecl::GilbertElliott {
            good_to_bad,
            bad_to_good,
            loss_in_good,
            loss_in_bad,
        }) => {
            vec![good_to_bad, bad_to_good, loss_in_good, loss_in_bad]
        }
    };
    match loss
        .into_iter()
        .chain([decl.corruption, decl.duplication])
        .find(|share| !(0.0..=1.0).contains(share))
    {
        Some(share) => Err(format!("{share} is no probability")),
        None => Ok(()),
    }
}

fn replaced(decl: &ImpairmentsDecl, current: &Impairments) -> Impairments {
    Impairments {
        jitter: decl.jitter.clone(),
        loss: decl.loss.clone(),
        corruption: decl.corruption,
        corruption_drops: decl.corruption_drops,
        duplication: decl.duplication,
        outages: current.outages.clone(),
    }
}

/// The fabric of a measured run.
pub(crate) fn measured(network: &Arc<Network>, seed: u64, changes: &[(Time, Change)]) -> Box<Fabric> {
    let mut fabric = Box::new(Fabric::new(Arc::clone(network), seed));
    for (at, change) in changes {
        fabric.schedule(*at, change.clone());
    }
    fabric
}

/// The network while programs start and endpoints connect: rates and delays as declared, and no impairment.
pub(crate) fn unimpaired(network: &Network) -> Arc<Network> {
    let mut network = network.clone();
    for port in &mut network.ports {
        port.impairments = Impairments::default();
    }
    Arc::new(network)
}

/// The network for the pre-flight check: without scheduled outages, since its time is not the run's, and without second
/// copies on shared media, where they would hold back the probes that are timed alone.
pub(crate) fn for_preflight(network: &Network) -> Arc<Network> {
    let mut network = network.clone();
    for port in &mut network.ports {
        port.impairments.outages.clear();
        if port.medium.is_some() {
            port.impairments.duplication = 0.0;
        }
    }
    Arc::new(network)
}

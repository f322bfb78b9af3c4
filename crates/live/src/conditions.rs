//! The plan's changes of conditions as changes of the fabric, and the fabrics of the phases of a run.

use crate::capture::find_port;
use crate::failure::Failure;
use crate::plan::Plan;
use std::sync::Arc;
use timebound_fabric::{Change, Conditions, Fabric};
use timebound_model::{Impairments, Network, Time};

/// The changes of all events, by run time.
///
/// # Errors
/// An unknown port, a rate of zero or impairments that no link can have.
pub(crate) fn changes(plan: &Plan, network: &Network) -> Result<Vec<(Time, Change)>, Failure> {
    let mut all = Vec::new();
    for (index, event) in plan.events.iter().enumerate() {
        let bad = |why: String| Failure::internal(format!("plan: events[{index}]"), why);
        let port = find_port(network, &event.port)
            .ok_or_else(|| bad(format!("no port {}->{}", event.port.from, event.port.to)))?;
        if event.rate_bps == Some(0) {
            return Err(bad("a rate of zero".to_owned()));
        }
        let conditions = Conditions {
            rate_bps: event.rate_bps,
            delay_ns: event.delay_ns,
            buffer_bytes: event.buffer_bytes,
            impairments: event.impairments.as_ref(),
            up: event.up,
        };
        let found = conditions
            .changes(port, "impairments")
            .map_err(|errors| bad(errors.to_string()))?;
        all.extend(found.into_iter().map(|change| (Time(event.at_ns), change)));
    }
    all.sort_by_key(|(at, _)| *at);
    Ok(all)
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

/// The network for the pre-flight check: without outages, disconnections and slots, since its time is not the run's, and without
/// second copies on shared media, where they would hold back the probes that are timed alone. [`unprobed`] names these.
pub(crate) fn for_preflight(network: &Network) -> Arc<Network> {
    let mut network = network.clone();
    for port in &mut network.ports {
        port.impairments.outages.clear();
        port.impairments.disconnections = None;
        port.slots = None;
        if port.medium.is_some() {
            port.impairments.duplication = 0.0;
        }
    }
    Arc::new(network)
}

/// What the pre-flight check leaves out, for its list: impairments by port, and the schedule.
pub(crate) fn unprobed(network: &Network, changes: &[(Time, Change)]) -> Vec<String> {
    let mut left_out = Vec::new();
    for (index, port) in network.ports.iter().enumerate() {
        let what = [
            (!port.impairments.outages.is_empty(), "outages"),
            (port.impairments.disconnections.is_some(), "disconnections"),
            (port.slots.is_some(), "slots"),
            (
                port.medium.is_some() && port.impairments.duplication > 0.0,
                "duplication on a shared medium",
            ),
        ];
        let name = network.port_name(timebound_model::PortId::new(index));
        left_out.extend(
            what.iter()
                .filter(|(present, _)| *present)
                .map(|(_, what)| format!("{what} of {name}")),
        );
    }
    if !changes.is_empty() {
        left_out.push(format!("{} changes by schedule", changes.len()));
    }
    left_out
}

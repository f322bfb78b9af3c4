//! What the trajectory approach does not cover, and where there is no bound whatever the method.

use super::sweep::Trouble;
use crate::cause::{Cause, Kind};
use crate::demand::Demand;
use crate::paths::Paths;
use crate::result::Utilisation;
use timebound_model::{Arrival, Discipline, Network, PortId, Span, StreamId};

/// Utilisation of a port by the declared flows of `class` and above.
pub(crate) fn utilisation(paths: &Paths, port: PortId, class: u8) -> Utilisation {
    let demands: Vec<Demand> = paths.at[port.index()]
        .iter()
        .map(|place| (&paths.places[*place as usize], paths.flow_at(*place)))
        .filter(|(place, _)| place.class >= class)
        .filter_map(|(place, flow)| {
            let weight = place.transmission.saturating_mul(flow.multiplicity);
            flow.period.map(|period| Demand::new(period, weight, 0))
        })
        .collect();
    Utilisation::of(&demands)
}

/// Why no frame of `class` that crosses `port` gets a figure, whatever its load: the port works in a way that the method does not cover, or
/// something of the class or above has no declared arrival.
pub(crate) fn at_port(
    network: &Network,
    paths: &Paths,
    id: PortId,
    class: u8,
    method: &str,
) -> Option<Cause> {
    if let Some(what) = obstacle(network, paths, id) {
        let text = format!(
            "port {} {what}, which {method} does not cover",
            network.port_name(id)
        );
        return Some(Cause::new(Kind::Unsupported, id, text));
    }
    let above = |place: &&u32| paths.places[**place as usize].class >= class;
    let unknown = |place: &&u32| paths.flow_at(**place).period.is_none();
    let place = paths.at[id.index()].iter().filter(above).find(unknown)?;
    let stream = paths.flow_at(*place).stream;
    if let Arrival::TokenBucket { .. } = network.streams[stream.index()].arrival {
        let text = format!(
            "stream {:?}, which crosses port {}, is a token bucket: {method} knows periods only",
            network.streams[stream.index()].name,
            network.port_name(id)
        );
        return Some(Cause::new(Kind::Unsupported, id, text));
    }
    Some(crate::cause::undeclared(network, id, stream))
}

/// Why there is no bound of any method for `class` at `port`.
pub(crate) fn overload(network: &Network, paths: &Paths, id: PortId, class: u8) -> Option<Cause> {
    let load = utilisation(paths, id, class);
    load.is_exhausted().then(|| {
        let text = format!(
            "utilisation {:.2} of port {} by class {class} and above is 1 or more",
            load.value,
            network.port_name(id)
        );
        Cause::new(Kind::NoFiniteBound, id, text)
    })
}

fn obstacle(network: &Network, paths: &Paths, id: PortId) -> Option<&'static str> {
    let port = &network.ports[id.index()];
    let reorders = port
        .impairments
        .jitter
        .as_ref()
        .is_some_and(|jitter| jitter.reorder);
    let twice = paths.at[id.index()]
        .windows(2)
        .any(|pair| paths.places[pair[0] as usize].flow == paths.places[pair[1] as usize].flow);
    if matches!(port.discipline, Discipline::Drr(_)) {
        Some("serves its classes by deficit round robin")
    } else if port.medium.is_some() {
        Some("shares a half-duplex medium")
    } else if port.slots.is_some() {
        Some("sends in time slots")
    } else if port.trace.is_some() {
        Some("has a rate that follows a trace")
    } else if port.impairments.is_lossy() {
        Some("loses, damages, doubles or holds up frames")
    } else if reorders {
        Some("lets frames overtake each other")
    } else if twice {
        Some("is crossed twice by one stream")
    } else if copies_are_overtaken(network, paths, id) {
        Some(
            "is reached by frames that the switch copies and, over the same link, by others, which overtake them",
        )
    } else {
        None
    }
}

/// Frames that a switch copies take longer there than those that it does not, so frames of one link do not stay in their order.
fn copies_are_overtaken(network: &Network, paths: &Paths, id: PortId) -> bool {
    if network.nodes[network.ports[id.index()].node.index()].replication_max == Span::ZERO {
        return false;
    }
    let input = |place: &u32| {
        let before = paths.places.get(paths.places[*place as usize].parent as usize)?;
        let flow = paths.flow_at(*place);
        let hop = (paths.places[*place as usize].parent - flow.first_place) as usize;
        let forks = network.streams[flow.stream.index()].tree.hops[hop].forks;
        Some((before.port, forks))
    };
    let mut inputs: Vec<_> = paths.at[id.index()].iter().filter_map(input).collect();
    inputs.sort_unstable();
    inputs.dedup();
    inputs.windows(2).any(|pair| pair[0].0 == pair[1].0)
}

/// A path on which classes count at one port and not at another: whether a flow is a rival of higher or of the same priority would
/// change on the way.
pub(crate) fn mixed_service(
    network: &Network,
    paths: &Paths,
    path: &[u32],
    stream: StreamId,
    method: &str,
) -> Option<Cause> {
    let port = |place: &u32| paths.places[*place as usize].port;
    let is_fifo = |place: &&u32| network.ports[port(place).index()].discipline == Discipline::Fifo;
    let first = path.iter().find(is_fifo)?;
    if path.iter().all(|place| is_fifo(&place)) {
        return None;
    }
    let text = format!(
        "the path of stream {:?} has ports with classes and, at {}, one queue for all: {method} does not cover both on one path",
        network.streams[stream.index()].name,
        network.port_name(port(first))
    );
    Some(Cause::new(Kind::Unsupported, port(first), text))
}

/// Why the formula has no value for a path that ends at `port`.
pub(crate) fn without_value(
    trouble: Trouble,
    network: &Network,
    port: PortId,
    stream: StreamId,
    method: &str,
) -> Cause {
    let name = &network.streams[stream.index()].name;
    let text = match trouble {
        Trouble::Endless => format!(
            "the flows that meet the path of stream {name:?} need all the time of one port, each counted at its slowest: the busy \
             period of {method} does not end, although every port has room"
        ),
        Trouble::Horizon => format!("{method} exceeds all times that are computed with, for stream {name:?}"),
        Trouble::Effort => format!("{method} did not come to an end within the computing limit"),
    };
    Cause::new(Kind::Unsupported, port, text)
}

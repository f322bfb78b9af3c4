//! Until when a frame can still matter: what reaches no queue of the target's path before the target has left it need not be simulated.

use timebound_model::{Arrival, Network, NodeKind, PortId, StreamId, WireBytes};

/// Per stream of a scene the least time from a release to an effect on the target's last queue: directly, or by delaying others on their way
/// there; `u64::MAX` where there is none.
///
/// A frame affects those who are in a queue after it has come there, and they affect others at the next queue no sooner than they can be
/// there. So only the least times between neighbouring queues count, whoever takes the way.
pub(super) fn remaining(network: &Network, last: PortId) -> Vec<u64> {
    let least = least_hops(network);
    let mut of_port = vec![u64::MAX; network.ports.len()];
    of_port[last.index()] = 0;
    loop {
        let mut changed = share_media(network, &mut of_port);
        for stream in &network.streams {
            // Children come after their parents, so one pass settles a stream's own way.
            for hop in stream.tree.hops.iter().rev() {
                let Some(parent) = hop.parent else { continue };
                let port = stream.tree.hops[parent as usize].port.index();
                let by_here = of_port[hop.port.index()].saturating_add(least[port]);
                if by_here < of_port[port] {
                    of_port[port] = by_here;
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    let of = |stream: &timebound_model::Stream| {
        let roots = stream.tree.hops.iter().filter(|hop| hop.parent.is_none());
        roots
            .map(|hop| of_port[hop.port.index()])
            .min()
            .unwrap_or(u64::MAX)
    };
    network.streams.iter().map(of).collect()
}

/// A frame at one port of a medium keeps those at all the others waiting.
fn share_media(network: &Network, of_port: &mut [u64]) -> bool {
    if network.media == 0 {
        return false;
    }
    let mut of_medium = vec![u64::MAX; network.media as usize];
    let shared = || {
        let ports = network.ports.iter().enumerate();
        ports.filter_map(|(index, port)| Some((index, port.medium?.index())))
    };
    for (port, medium) in shared() {
        of_medium[medium] = of_medium[medium].min(of_port[port]);
    }
    let mut changed = false;
    for (port, medium) in shared() {
        changed |= of_medium[medium] < of_port[port];
        of_port[port] = of_medium[medium];
    }
    changed
}

/// Per port the least time from a frame's arrival in its queue to that in the next one.
fn least_hops(network: &Network) -> Vec<u64> {
    let mut smallest = vec![WireBytes(u32::MAX); network.ports.len()];
    for (index, stream) in network.streams.iter().enumerate() {
        let frame = smallest_frame(network, StreamId::new(index));
        for hop in &stream.tree.hops {
            let here = &mut smallest[hop.port.index()];
            *here = frame.min(*here);
        }
    }
    let of = |(port, frame): (&timebound_model::Port, WireBytes)| {
        let peer = &network.nodes[port.peer.index()];
        let switching = match peer.kind {
            NodeKind::Switch => peer.switching_min.0,
            NodeKind::Host | NodeKind::Segment => 0,
        };
        // Where delivery opportunities stand for a rate it says nothing, and the way out of a segment is no second transmission.
        let passes = port.trace.is_some() || network.nodes[port.node.index()].kind == NodeKind::Segment;
        let sending = if passes { 0 } else { port.rate.least_time(frame).0 };
        sending
            .saturating_add(port.propagation.0)
            .saturating_add(switching)
    };
    network.ports.iter().zip(smallest).map(of).collect()
}

fn smallest_frame(network: &Network, stream: StreamId) -> WireBytes {
    match &network.streams[stream.index()].arrival {
        Arrival::Periodic { frames, .. } => frames.iter().copied().min().unwrap_or_default(),
        Arrival::TokenBucket { min_frame, .. } => *min_frame,
        // Frames of any size.
        Arrival::Unbounded { .. } => WireBytes(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::common::{TICKS, direction, host, link, network, stream, switch};

    #[test]
    fn what_comes_late_counts_the_least_way_to_the_last_queue() {
        let way = |name| link(name, "s", direction(TICKS, 7));
        let network = network(
            vec![host("a"), host("b"), host("c"), switch("s", 10, 900)],
            vec![way("a"), way("b"), way("c")],
            vec![
                stream("target", "a", &["b"], 7, (1_000, 0), 200),
                stream("meets it at the end", "c", &["b"], 7, (1_000, 0), 100),
                stream("meets it at the start", "a", &["c"], 7, (1_000, 0), 84),
                stream("never meets it", "b", &["c"], 7, (1_000, 0), 84),
            ],
        );
        let last = network.streams[0].tree.hops[1].port;
        // The smallest frame of a port may carry on what any frame there has done.
        assert_eq!(remaining(&network, last), [84 + 17, 100 + 17, 84 + 17, u64::MAX]);
    }
}

//! What the corpora are put together from, and how much of a port they take.

use timebound_model::declaration::{
    ArrivalDecl, Declaration, DirectionDecl, ImpairmentsDecl, LinkDecl, NodeDecl, NodeKindDecl, QueueDecl,
};
use timebound_model::{Arrival, Network, Stream, compile};

#[must_use]
pub fn node(name: String, kind: NodeKindDecl, switching_min_ns: u64, switching_max_ns: u64) -> NodeDecl {
    NodeDecl {
        name,
        kind,
        switching_min_ns,
        switching_max_ns,
        replication_min_ns: 0,
        replication_max_ns: 0,
    }
}

/// The same both ways, with room for everything.
#[must_use]
pub fn link(
    a: String,
    b: String,
    rate_bps: u64,
    delay_ns: u64,
    queue: &QueueDecl,
    impairments: ImpairmentsDecl,
) -> LinkDecl {
    let direction = DirectionDecl {
        rate_bps,
        delay_ns,
        queue: queue.clone(),
        buffer_bytes: 1 << 30,
        impairments,
        trace: None,
        slots: None,
    };
    LinkDecl {
        a,
        b,
        forward: direction.clone(),
        backward: direction,
        half_duplex: false,
    }
}

/// Wire bits per second that a stream may send in the long run.
fn bits_per_second(stream: &Stream) -> f64 {
    match &stream.arrival {
        Arrival::Periodic { period, frames, .. } => {
            let bits: u64 = frames.iter().map(|frame| u64::from(frame.0) * 8).sum();
            bits as f64 * 1e9 / period.0 as f64
        }
        Arrival::TokenBucket { rate, .. } => rate.0 as f64,
        Arrival::Unbounded { .. } => 0.0,
    }
}

/// Declared utilisation of the busiest port.
#[must_use]
pub fn worst_utilisation(network: &Network) -> f64 {
    let mut load = vec![0.0; network.ports.len()];
    for stream in &network.streams {
        for hop in &stream.tree.hops {
            load[hop.port.index()] += bits_per_second(stream);
        }
    }
    let shares = load
        .iter()
        .zip(&network.ports)
        .map(|(load, port)| load / port.rate.0 as f64);
    shares.fold(0.0, f64::max)
}

/// Stretches all periods and jitters (and slows all buckets) so that the busiest port has this utilisation.
///
/// # Panics
/// If the declaration does not compile.
#[must_use]
pub fn loaded(mut declaration: Declaration, utilisation: f64) -> Network {
    let network = compile(&declaration).expect("generated networks compile");
    let factor = worst_utilisation(&network) / utilisation;
    let stretched = |nanos: u64| (nanos as f64 * factor).ceil() as u64;
    for stream in &mut declaration.streams {
        match &mut stream.arrival {
            ArrivalDecl::Periodic {
                period_ns, jitter_ns, ..
            } => {
                *period_ns = stretched(*period_ns).max(1);
                *jitter_ns = stretched(*jitter_ns);
            }
            ArrivalDecl::TokenBucket { rate_bps, .. } => {
                *rate_bps = ((*rate_bps as f64 / factor) as u64).max(1)
            }
            ArrivalDecl::Unbounded { .. } => {}
        }
    }
    compile(&declaration).expect("generated networks compile")
}

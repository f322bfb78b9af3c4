//! Back-pressure: where the queue of a host's first port stands.
//!
//! A real host's queue to its network card is its own: a socket whose share of it is full makes its sender wait. The model's first
//! port would drop instead, without the sender's knowledge. So the node's `eth0` gets an HTB class at the rate of the host's
//! link, counted in bytes on the wire as the model counts them, and senders wait for it. No hop is shaped twice: frames leave the
//! class no faster than the link carries them, so the model's first port, which gives each frame its transmission time, finds at
//! most one burst waiting (two frames, or what a timer late by a quarter of a millisecond catches up), and never drops.
//!
//! What that costs: within the node the queue is first in, first out, whatever the class of a frame; the time spent there lies
//! before the network's first stamp, as the time in a sender's own queues does.

use super::Node;
use crate::failure::Failure;
use crate::kernel::htb::Shape;
use crate::plan::Plan;
use timebound_model::Network;

/// A timer of the kernel may be this late without the link falling idle.
const LATE_TIMER_NS: u128 = 250_000;
/// Frames that the node's queue holds: more than the sockets of many programs may fill before they wait.
pub(super) const QUEUE_FRAMES: u32 = 10_000;

/// How `node` is slowed down; `None` where the plan does not ask for it.
///
/// # Errors
/// A host for which it cannot be done: several links, a shared medium, a first port with too little room, or a rate that changes.
pub(super) fn shape(plan: &Plan, network: &Network, node: &Node) -> Result<Option<Shape>, Failure> {
    if !plan.data_plane.back_pressure || node.external {
        return Ok(None);
    }
    let refuse = |why: &str| {
        Err(Failure::Host(format!(
            "back-pressure is not possible at {:?}: {why}; leave data-plane.back-pressure out",
            node.name
        )))
    };
    let ports: Vec<_> = network.ports.iter().filter(|port| port.node == node.id).collect();
    let [port] = ports[..] else {
        return refuse("it needs exactly one link");
    };
    if port.medium.is_some() {
        return refuse("its link shares a medium, so the rate that it gets is not known");
    }
    let changes = |event: &&crate::plan::EventPlan| event.port.from == node.name && event.rate_bps.is_some();
    if plan.events.iter().any(|event| changes(&event)) {
        return refuse("the rate of its link changes during the run");
    }
    let largest = u64::from(plan.framing.packet(node.mtu).0);
    let caught_up = (u128::from(port.rate.0) * LATE_TIMER_NS / 8_000_000_000) as u64;
    // A class may overdraw by one frame, so the port sees up to a burst and two frames.
    let room = port.buffer_bytes.saturating_sub(2 * largest);
    if room < 2 * largest {
        return refuse("its first port has room for fewer than four of the largest frames");
    }
    Ok(Some(Shape {
        rate_bps: port.rate.0,
        burst_bytes: caught_up.max(2 * largest).min(room),
        overhead_bytes: u16::try_from(plan.framing.unseen()).unwrap_or(u16::MAX),
        least_bytes: u16::try_from(plan.framing.wire(0).0).unwrap_or(u16::MAX),
        largest_bytes: node.mtu + 14,
    }))
}

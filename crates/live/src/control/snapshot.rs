//! How a run stands at this moment: the answers to `status` and `top`.

use crate::lifecycle::keeper::Keeper;
use crate::nodes::Nodes;
use crate::plane::Standing;
use crate::stats::Figures;
use serde::Serialize;
use std::net::Ipv4Addr;
use timebound_model::{Network, PortId};

/// Answer to `status`.
#[derive(Debug, Serialize)]
pub(crate) struct Status<'a> {
    pub(crate) run_id: &'a str,
    pub(crate) scenario: &'a str,
    pub(crate) phase: &'a str,
    /// Run time; null before time zero is known.
    pub(crate) run_ns: Option<i64>,
    pub(crate) duration_ns: u64,
    pub(crate) nodes: Vec<NodeStatus<'a>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct NodeStatus<'a> {
    pub(crate) node: &'a str,
    pub(crate) address: Ipv4Addr,
    /// `running`, `stopped`, `paused`; `changing` while an order is obeyed.
    pub(crate) state: String,
}

/// Answer to `top`: a status with figures. Counters are cumulative, so that rates are differences between two answers.
#[derive(Debug, Serialize)]
pub(crate) struct Top<'a> {
    pub(crate) status: Status<'a>,
    /// CLOCK_MONOTONIC of the figures.
    pub(crate) taken_ns: u64,
    pub(crate) nodes: Vec<NodeFigures<'a>>,
    pub(crate) links: Vec<LinkFigures>,
    pub(crate) emulator: Option<Emulator>,
}

#[derive(Debug, Serialize)]
pub(crate) struct NodeFigures<'a> {
    pub(crate) node: &'a str,
    pub(crate) cpu_ns: u64,
    pub(crate) rss_bytes: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) tx_frames: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) rx_frames: u64,
}

/// One direction of a link.
#[derive(Debug, Serialize)]
pub(crate) struct LinkFigures {
    /// `from->to`.
    pub(crate) port: String,
    pub(crate) rate_bps: u64,
    pub(crate) frames: u64,
    /// On the wire.
    pub(crate) wire_bytes: u64,
    pub(crate) dropped: u64,
    pub(crate) queue_bytes: u64,
    /// Greatest since time zero.
    pub(crate) largest_queue_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Emulator {
    pub(crate) frames: u64,
    pub(crate) lateness_p50_ns: u64,
    pub(crate) lateness_p99_ns: u64,
    pub(crate) lateness_max_ns: u64,
    pub(crate) ring_lost: u64,
    pub(crate) refused: u64,
}

pub(crate) fn nodes<'a>(nodes: &'a Nodes, keeper: &Keeper) -> Vec<NodeStatus<'a>> {
    let list = nodes.list.iter().enumerate();
    list.map(|(index, node)| NodeStatus {
        node: &node.name,
        address: node.address,
        state: if keeper.is_changing(index) {
            "changing".to_owned()
        } else {
            keeper.state(index).to_string()
        },
    })
    .collect()
}

pub(crate) fn figures<'a>(nodes: &'a Nodes, figures: &[Figures]) -> Vec<NodeFigures<'a>> {
    let list = nodes.list.iter().zip(figures);
    list.map(|(node, figures)| NodeFigures {
        node: &node.name,
        cpu_ns: figures.used.cpu_ns,
        rss_bytes: figures.used.memory_bytes,
        tx_bytes: figures.traffic.sent_bytes,
        tx_frames: figures.traffic.sent_frames,
        rx_bytes: figures.traffic.received_bytes,
        rx_frames: figures.traffic.received_frames,
    })
    .collect()
}

pub(crate) fn links(standing: &Standing, network: &Network) -> Vec<LinkFigures> {
    let list = standing.counters.iter().enumerate();
    list.map(|(index, counters)| LinkFigures {
        port: network.port_name(PortId::new(index)),
        rate_bps: network.ports[index].rate.0,
        frames: counters.frames,
        wire_bytes: counters.wire_bytes,
        dropped: counters.dropped_buffer + counters.dropped_link,
        queue_bytes: counters.queued_bytes,
        largest_queue_bytes: counters.largest_queue_bytes,
    })
    .collect()
}

pub(crate) fn emulator(standing: &Standing) -> Emulator {
    let [p50, p99, max] = standing.lateness;
    Emulator {
        frames: standing.frames,
        lateness_p50_ns: p50,
        lateness_p99_ns: p99,
        lateness_max_ns: max,
        ring_lost: standing.ring_lost,
        refused: standing.refused,
    }
}

//! Small networks for the tests of the fabric and of the simulator.
#![allow(dead_code, reason = "every test file uses its own part of this")]

pub(crate) mod random;

use std::sync::Arc;
use timebound_model::declaration::{
    ArrivalDecl, DirectionDecl, ImpairmentsDecl, LinkDecl, NodeDecl, NodeKindDecl, QueueDecl, ReleaseDecl,
    RoleDecl, StreamDecl,
};
use timebound_model::{Declaration, Network, compile};

pub(crate) fn host(name: &str) -> NodeDecl {
    NodeDecl {
        name: name.to_owned(),
        kind: NodeKindDecl::Host,
        switching_min_ns: 0,
        switching_max_ns: 0,
        replication_min_ns: 0,
        replication_max_ns: 0,
    }
}

pub(crate) fn switch(name: &str, least: u64, greatest: u64) -> NodeDecl {
    NodeDecl {
        name: name.to_owned(),
        kind: NodeKindDecl::Switch,
        switching_min_ns: least,
        switching_max_ns: greatest,
        replication_min_ns: 0,
        replication_max_ns: 0,
    }
}

pub(crate) fn direction(rate_bps: u64, delay_ns: u64) -> DirectionDecl {
    DirectionDecl {
        rate_bps,
        delay_ns,
        queue: QueueDecl::StrictPriority,
        buffer_bytes: 1 << 30,
        impairments: ImpairmentsDecl::default(),
        trace: None,
        slots: None,
    }
}

pub(crate) fn link(a: &str, b: &str, direction: DirectionDecl) -> LinkDecl {
    LinkDecl {
        a: a.to_owned(),
        b: b.to_owned(),
        forward: direction.clone(),
        backward: direction,
        half_duplex: false,
    }
}

/// Periodic, from a random offset.
pub(crate) fn stream(
    name: &str,
    source: &str,
    to: &[&str],
    class: u8,
    (period_ns, jitter_ns): (u64, u64),
    bytes: u32,
) -> StreamDecl {
    StreamDecl {
        name: name.to_owned(),
        source: source.to_owned(),
        destinations: to.iter().map(|name| (*name).to_owned()).collect(),
        class,
        role: RoleDecl::Data,
        arrival: ArrivalDecl::Periodic {
            period_ns,
            jitter_ns,
            frames_bytes: vec![bytes],
        },
        release: ReleaseDecl::Periodic { offset_ns: None },
        deadline_ns: None,
        least_frame_bytes: None,
        route: None,
    }
}

pub(crate) fn network(nodes: Vec<NodeDecl>, links: Vec<LinkDecl>, streams: Vec<StreamDecl>) -> Arc<Network> {
    let declaration = Declaration {
        nodes,
        links,
        streams,
        best_effort_frame_bytes: 1538,
        traces: std::collections::BTreeMap::new(),
    };
    Arc::new(compile(&declaration).expect("a valid network"))
}

/// At this rate one byte takes one nanosecond: ticks of the vectors in the literature.
pub(crate) const TICKS: u64 = 8_000_000_000;

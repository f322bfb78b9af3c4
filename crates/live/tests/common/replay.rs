//! A run's recorded ingress once more through the simulator, under the plan's own schedule.

use crate::common::{Folder, records};
use serde_json::Value;
use std::sync::Arc;
use timebound_fabric::{Change, Conditions, Frame, Reentry, Route};
use timebound_live::plan::EventPlan;
use timebound_live::records::{DELIVERY_RECORD, DeliveryRecord, INGRESS_RECORD, IngressRecord, reason_code};
use timebound_model::{Class, Network, NodeId, PortId, StreamId, Time, WireBytes};
use timebound_sim::{Departure, replay_with_switches};

fn frame(record: &IngressRecord) -> (Time, NodeId, Frame) {
    // 6 and up: the same of what a real switch sent.
    let route = match record.kind % 6 {
        0 => Route::Tree(StreamId(record.argument)),
        1 => Route::Unicast(NodeId(record.argument)),
        2 => Route::Multicast(record.argument),
        _ => Route::Broadcast,
    };
    let frame = Frame {
        handle: 0,
        wire: WireBytes(record.wire),
        class: Class(record.class),
        route,
        stream: record.stream,
        tag: record.tag,
    };
    (Time(record.time), NodeId(record.host), frame)
}

fn record(departure: &Departure) -> DeliveryRecord {
    match *departure {
        Departure::Delivered {
            at,
            host,
            leaf,
            frame,
            damaged,
        } => DeliveryRecord {
            tag: frame.tag,
            time: at.0,
            host: host.0,
            leaf,
            outcome: u32::from(damaged),
            port: u32::MAX,
        },
        Departure::Dropped {
            at,
            port,
            frame,
            reason,
        } => DeliveryRecord {
            tag: frame.tag,
            time: at.0,
            host: u32::MAX,
            leaf: u32::MAX,
            outcome: 16 + reason_code(reason),
            port: port.map_or(u32::MAX, |port| port.0),
        },
    }
}

pub(crate) fn network(plan: &Value) -> Arc<Network> {
    let declaration = serde_json::from_value(plan["network"].clone()).unwrap();
    Arc::new(timebound_model::compile(&declaration).unwrap())
}

/// The plan's events as changes, in their order.
fn schedule(plan: &Value, network: &Network) -> Vec<(Time, Change)> {
    let events: Vec<EventPlan> = serde_json::from_value(plan["events"].clone()).unwrap_or_default();
    let mut changes = Vec::new();
    for event in &events {
        let (from, to) = (network.node(&event.port.from), network.node(&event.port.to));
        let port = network.port_between(from.unwrap(), to.unwrap()).unwrap();
        let conditions = Conditions {
            rate_bps: event.rate_bps,
            delay_ns: event.delay_ns,
            buffer_bytes: event.buffer_bytes,
            impairments: event.impairments.as_ref(),
            up: event.up,
        };
        let found = conditions.changes(port, "events").unwrap();
        changes.extend(found.into_iter().map(|change| (Time(event.at_ns), change)));
    }
    changes
}

/// What the emulator did with every frame of a run that recorded its ingress, after checking that the simulator does the same
/// with it at the same virtual times.
pub(crate) fn replayed(folder: &Folder, plan: &Value, name: &str) -> Vec<DeliveryRecord> {
    let network = network(plan);
    let mut ingress = Vec::new();
    let mut reentries = Vec::new();
    for bytes in records::<INGRESS_RECORD>(&folder.0.join("ingress.bin")) {
        let record = IngressRecord::decode(&bytes);
        let (at, host, frame) = frame(&record);
        let (port, damaged) = (PortId(record.host), record.damaged);
        match record.kind {
            0..4 => ingress.push((at, host, frame)),
            // Who joins a group matters to frames of no stream alone, and no test here has such.
            4 | 5 => {}
            _ => reentries.push((at, Reentry { port, frame, damaged })),
        }
    }
    assert!(ingress.len() > 100, "{name}: only {} frames", ingress.len());
    let seed = plan["seed"].as_u64().unwrap();
    let switches: Vec<NodeId> = (plan["switches"]["nodes"].as_array().into_iter().flatten())
        .filter_map(|name| network.node(name.as_str()?))
        .collect();
    let events = schedule(plan, &network);
    let mut expected: Vec<_> = replay_with_switches(&network, seed, &events, &ingress, &switches, &reentries)
        .iter()
        .map(record)
        .collect();
    let mut found: Vec<_> = records::<DELIVERY_RECORD>(&folder.0.join("deliveries.bin"))
        .iter()
        .map(DeliveryRecord::decode)
        .collect();
    // Frames that were still under way when the run ended have no departure.
    let last = found.iter().map(|record| record.time).max();
    let last = last.unwrap_or_else(|| panic!("{name}: no frame departed"));
    expected.retain(|record| record.time <= last);
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found.len(), expected.len(), "{name}");
    assert!(found == expected, "{name}: departures differ");
    found
}

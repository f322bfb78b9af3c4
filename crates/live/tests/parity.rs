//! One fabric, two clocks: what entered an emulated run, replayed in the simulator, leaves at the same virtual times.

mod common;

use common::{Folder, direction, plan, python, records, run};
use serde_json::{Value, json};
use std::sync::Arc;
use timebound_fabric::{Frame, Route};
use timebound_live::records::{DELIVERY_RECORD, DeliveryRecord, INGRESS_RECORD, IngressRecord, reason_code};
use timebound_model::{Class, NodeId, StreamId, Time, WireBytes};
use timebound_sim::{Departure, replay};

/// Bursts of three classes, more than the link carries.
const TRAFFIC: &str = "import socket,time\nss=[]\nfor c in (0,3,6):\n s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n \
    s.setsockopt(socket.IPPROTO_IP,socket.IP_TOS,c<<5)\n ss.append(s)\nfor i in range(120):\n for j,s in enumerate(ss):\n  \
    s.sendto(bytes(200+400*j),('10.1.0.2',7001+j))\n time.sleep(0.001+0.002*(i%3==0))\n";

fn variants() -> Vec<(&'static str, Value, Value)> {
    let strict = json!({"kind": "strict-priority"});
    let uniform = json!({"kind": "uniform", "max_ns": 3_000_000});
    vec![
        ("strict-priority", strict.clone(), json!({})),
        ("fifo", json!({"kind": "fifo"}), json!({})),
        (
            "drr",
            json!({"kind": "drr", "quanta_bytes": [1538, 1538, 1538, 3000, 1538, 1538, 6000, 1538]}),
            json!({}),
        ),
        (
            "bernoulli",
            strict.clone(),
            json!({"loss": {"kind": "bernoulli", "probability": 0.2}}),
        ),
        (
            "gilbert",
            strict.clone(),
            json!({"loss": {"kind": "gilbert-elliott", "good_to_bad": 0.1, "bad_to_good": 0.3,
            "loss_in_good": 0.0, "loss_in_bad": 0.9}}),
        ),
        (
            "jitter",
            strict.clone(),
            json!({"jitter": {"distribution": uniform}}),
        ),
        (
            "reordering",
            strict.clone(),
            json!({"jitter": {"distribution": uniform, "reorder": true}}),
        ),
        (
            "normal",
            strict.clone(),
            json!({"jitter": {"distribution":
            {"kind": "normal", "mean_ns": 1_000_000, "deviation_ns": 500_000, "max_ns": 3_000_000}}}),
        ),
        (
            "pareto",
            strict.clone(),
            json!({"jitter": {"distribution":
            {"kind": "pareto", "scale_ns": 100_000, "alpha": 2.5, "max_ns": 9_000_000}}}),
        ),
        (
            "exponential",
            strict.clone(),
            json!({"jitter": {"distribution":
            {"kind": "exponential", "mean_ns": 300_000, "max_ns": 5_000_000}, "reorder": true}}),
        ),
        ("corruption", strict.clone(), json!({"corruption": 0.3})),
        (
            "corruption-drops",
            strict.clone(),
            json!({"corruption": 0.3, "corruption_drops": true}),
        ),
        ("duplication", strict.clone(), json!({"duplication": 0.3})),
        (
            "outage",
            strict,
            json!({"outages": [[100_000_000, 200_000_000], [250_000_000, 260_000_000]]}),
        ),
    ]
}

fn frame(record: &IngressRecord) -> (Time, NodeId, Frame) {
    let route = match record.kind {
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

#[test]
fn an_emulated_run_replayed_in_the_simulator_departs_at_the_same_times() {
    let list = variants();
    // Two halves at a time would measure each other; one after the other they take half a second each.
    for (name, queue, impairments) in list {
        let folder = Folder::new(&format!("parity-{name}"));
        let mut forward = direction(5_000_000, 2_000_000, impairments);
        forward["queue"] = queue;
        forward["buffer_bytes"] = json!(20_000);
        let mut plan = plan(&folder, forward, 0.45);
        plan["record_ingress"] = json!(true);
        plan["preflight"] = json!({"enabled": false});
        plan["programs"] = json!([python("send", "h1", TRAFFIC, None)]);
        plan["network"]["links"][1]["backward"]["queue"] = json!({"kind": "fifo"});
        let Some(said) = run(&folder, &plan) else { return };
        assert!(said.code == 0 || said.code == 4, "{name}: {}", said.failure());
        let declaration = serde_json::from_value(plan["network"].clone()).unwrap();
        let network = Arc::new(timebound_model::compile(&declaration).unwrap());
        let ingress: Vec<_> = records::<INGRESS_RECORD>(&folder.0.join("ingress.bin"))
            .iter()
            .map(|bytes| frame(&IngressRecord::decode(bytes)))
            .collect();
        assert!(ingress.len() > 100, "{name}: only {} frames", ingress.len());
        let mut expected: Vec<_> = replay(&network, plan["seed"].as_u64().unwrap(), &[], &ingress)
            .iter()
            .map(record)
            .collect();
        let mut found: Vec<_> = records::<DELIVERY_RECORD>(&folder.0.join("deliveries.bin"))
            .iter()
            .map(DeliveryRecord::decode)
            .collect();
        // Frames that were still under way when the run ended have no departure.
        let last = found.iter().map(|record| record.time).max().unwrap();
        expected.retain(|record| record.time <= last);
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found.len(), expected.len(), "{name}");
        assert!(found == expected, "{name}: departures differ");
        let dropped = found.iter().filter(|record| record.outcome >= 16).count();
        assert!(
            dropped > 0 || !matches!(name, "bernoulli" | "gilbert" | "corruption-drops" | "outage"),
            "{name}"
        );
    }
}

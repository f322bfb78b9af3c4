//! UDP flows and background traffic on loopback.

mod common;

use common::run_plan;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Mutex;
use timebound_endpoints::EndpointError;
use timebound_endpoints::record::Kind;
use timebound_endpoints::summary::BackgroundSummary;

/// A port that nobody has, of UDP and of TCP, and that no other test of this file was given: what a test sends would arrive at another's receiver.
fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        if std::net::UdpSocket::bind(("127.0.0.1", port)).is_ok() && GIVEN.lock().unwrap().insert(port) {
            return port;
        }
    }
}

fn udp_flow(destination: &str, port: u16, flow: u32, pattern: Value) -> Value {
    json!({"name": format!("u{flow}"), "node": "h1", "local_address": "127.0.0.1", "destination": destination,
        "port": port, "dscp": 46, "flow": flow, "payload_bytes": 300, "release": {"pattern": pattern, "seed": 3}})
}

#[test]
fn udp_reaches_one_or_all_members_of_a_group() {
    let (unicast, group) = (free_port(), free_port());
    let periodic = json!({"kind": "periodic", "period_ns": 2_000_000});
    let trace = json!({"kind": "trace", "times_ns": [0, 5_000_000, 5_000_000, 90_000_000, 300_000_000]});
    let receiver = |name: &str, address: &str, port: u16, flow: u32, receiver: u32| {
        json!({"name": name, "node": "h2", "address": address, "port": port, "interface": "127.0.0.1",
            "flow": flow, "receiver": receiver})
    };
    let plan = json!({"duration_ns": 200_000_000, "warmup_ns": 20_000_000, "settle_ns": 500_000_000,
        "udp": [udp_flow("127.0.0.1", unicast, 0, periodic), udp_flow("239.77.1.2", group, 1, trace)],
        "udp_receivers": [receiver("one", "127.0.0.1", unicast, 0, 0), receiver("a", "239.77.1.2", group, 1, 1),
            receiver("b", "239.77.1.2", group, 1, 2)]});
    let outcome = run_plan(plan, |_| ());
    let summary = outcome.result.unwrap();
    assert_eq!(
        summary
            .senders
            .iter()
            .map(|sender| sender.sent)
            .collect::<Vec<_>>(),
        [110, 4]
    );
    assert_eq!(
        summary
            .receivers
            .iter()
            .map(|receiver| receiver.received)
            .collect::<Vec<_>>(),
        [110, 4, 4]
    );
    let times: Vec<i64> = (outcome.records.iter())
        .filter(|record| record.kind == Kind::Sent && record.flow == 1)
        .map(|record| record.nominal_ns - summary.start_ns)
        .collect();
    assert_eq!(times, [0, 5_000_000, 5_000_000, 90_000_000]);
}

#[test]
fn foreign_datagrams_are_counted_and_not_recorded() {
    let port = free_port();
    let plan = json!({"duration_ns": 150_000_000, "settle_ns": 0, "udp_receivers": [
        {"name": "r", "node": "h2", "address": "127.0.0.1", "port": port, "flow": 0, "receiver": 0}]});
    let outcome = run_plan(plan, |_| {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for bytes in [&b""[..], b"hello", &[0xFF; 100], &[0; 1000]] {
            socket.send_to(bytes, ("127.0.0.1", port)).unwrap();
        }
    });
    let summary = outcome.result.unwrap();
    assert_eq!(
        (
            summary.receivers[0].foreign,
            summary.receivers[0].received,
            outcome.records.len()
        ),
        (4, 0, 0)
    );
}

#[test]
fn a_port_in_use_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let plan =
        json!({"duration_ns": 1, "background": [background("busy", port, json!({"kind": "tcp-bulk"}))]});
    let error = run_plan(plan, |_| ()).result.unwrap_err();
    assert!(
        matches!(&error, EndpointError::Socket { endpoint, .. } if endpoint == "busy"),
        "{error}"
    );
}

fn background(name: &str, port: u16, traffic: Value) -> Value {
    json!({"name": name, "source": "h1", "destination": "h2", "destination_address": "127.0.0.1", "port": port,
        "dscp": 8, "traffic": traffic})
}

fn near(measured: u64, expected: u64, share: f64) -> bool {
    (measured as f64 / expected as f64 - 1.0).abs() <= share
}

#[test]
fn background_traffic_reaches_its_rate_and_stops_by_itself() {
    let kinds = [
        ("bulk", json!({"kind": "tcp-bulk", "rate_bps": 20_000_000})),
        (
            "constant",
            json!({"kind": "udp-constant", "rate_bps": 8_000_000, "payload_bytes": 1000}),
        ),
        (
            "poisson",
            json!({"kind": "udp-poisson", "mean_gap_ns": 500_000, "payload_bytes": 500, "seed": 5}),
        ),
        (
            "burst",
            json!({"kind": "udp-burst", "gap_ns": 20_000_000, "frames": 10, "payload_bytes": 1400}),
        ),
        (
            "request",
            json!({"kind": "request-response", "request_bytes": 100, "response_bytes": 5000, "period_ns": 5_000_000}),
        ),
        (
            "loop",
            json!({"kind": "request-response", "request_bytes": 2000, "response_bytes": 300_000}),
        ),
        (
            "video-udp",
            json!({"kind": "video", "transport": "udp", "picture_gap_ns": 20_000_000, "group": 10,
            "i_picture_bytes": 30_000, "p_picture_bytes": 5000}),
        ),
        (
            "video-tcp",
            json!({"kind": "video", "transport": "tcp", "picture_gap_ns": 20_000_000, "group": 5,
            "i_picture_bytes": 100_000, "p_picture_bytes": 7000}),
        ),
    ];
    let flows: Vec<Value> = (kinds.iter())
        .map(|(name, traffic)| background(name, free_port(), traffic.clone()))
        .collect();
    let outcome = run_plan(json!({"duration_ns": 1_000_000_000, "background": flows}), |_| ());
    let summary = outcome.result.unwrap();
    let of = |name: &str| -> &BackgroundSummary {
        summary.background.iter().find(|flow| flow.name == name).unwrap()
    };
    for flow in &summary.background {
        assert_eq!((flow.failure.as_deref(), flow.errors), (None, 0), "{flow:?}");
        assert_eq!(flow.sent_bytes, flow.received_bytes, "{flow:?}");
    }
    assert!(near(of("bulk").sent_bytes, 2_500_000, 0.02), "{:?}", of("bulk"));
    assert!(
        near(of("constant").sent_bytes, 1_000_000, 0.01),
        "{:?}",
        of("constant")
    );
    assert!(
        near(of("poisson").sent_messages, 2000, 0.1),
        "{:?}",
        of("poisson")
    );
    assert_eq!(
        (of("burst").sent_messages, of("burst").received_messages),
        (500, 500)
    );
    let request = of("request");
    assert!(near(request.sent_messages, 200, 0.05), "{request:?}");
    assert_eq!(
        (request.received_messages, request.responses),
        (request.sent_messages, request.sent_messages)
    );
    assert_eq!(request.response_bytes, 5000 * request.responses);
    let closed = of("loop");
    assert!(
        closed.responses > 100 && closed.responses == closed.sent_messages,
        "{closed:?}"
    );
    assert_eq!(of("video-udp").sent_bytes, 5 * (30_000 + 9 * 5000));
    assert_eq!(
        (of("video-tcp").received_messages, of("video-tcp").received_bytes),
        (50, 10 * (100_000 + 4 * 7000))
    );
    assert!(outcome.took.as_secs_f64() < 2.5, "{:?}", outcome.took);
}

#[test]
fn background_traffic_keeps_its_window_and_goes_as_fast_as_possible() {
    let mut early = background("early", free_port(), json!({"kind": "tcp-bulk"}));
    early["start_ns"] = json!(100_000_000);
    early["stop_ns"] = json!(200_000_000);
    let mut constant = background(
        "late",
        free_port(),
        json!({"kind": "udp-constant", "rate_bps": 8_000_000, "payload_bytes": 1000}),
    );
    constant["start_ns"] = json!(250_000_000);
    let plan = json!({"duration_ns": 300_000_000, "background": [early, constant]});
    let summary = run_plan(plan, |_| ()).result.unwrap();
    let bulk = &summary.background[0];
    assert!(
        bulk.sent_bytes > 10_000_000 && bulk.received_bytes == bulk.sent_bytes,
        "{bulk:?}"
    );
    assert_eq!(summary.background[1].sent_messages, 50);
}

//! Latency through a broker on loopback: one publisher, one subscriber, messages of 100 bytes.
//!
//! `cargo run --release --example latency -- [PORT [RATE [SECONDS]]]` measures the broker that listens at 127.0.0.1:PORT (0, the
//! default: the embedded broker, started as a process of its own) with 1000 messages per second for 10 s unless told otherwise. For mosquitto: `mosquitto -c FILE` with the lines `listener PORT 127.0.0.1`,
//! `allow_anonymous true`, `set_tcp_nodelay true`.

use serde_json::json;
use std::process::{Child, Command};
use std::time::Duration;
use timebound_endpoints::broker::{BrokerConfig, broker};
use timebound_endpoints::record::{Kind, read_records};
use timebound_endpoints::{Control, EndpointPlan, RunClock, SameNamespace, run};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    match std::env::args().nth(1).as_deref() {
        Some("broker") => {
            let ready = std::env::args().nth(2).ok_or("no ready file")?;
            Ok(broker(&BrokerConfig {
                short_topics: Default::default(),
                bind: [127, 0, 0, 1].into(),
                port: 0,
                ready_file: Some(ready.into()),
                allow_anonymous: true,
                password_file: None,
                storage_folder: None,
                workers: 1,
            })?)
        }
        _ => {
            let number = |index: usize, default: u64| {
                std::env::args()
                    .nth(index)
                    .map_or(Ok(default), |text| text.parse())
            };
            let (port, load) = (
                u16::try_from(number(1, 0)?)?,
                Load {
                    rate: number(2, 1000)?,
                    seconds: number(3, 10)?,
                },
            );
            if port == 0 {
                embedded(&load)
            } else {
                measure(port, &load)
            }
        }
    }
}

struct Load {
    /// Messages per second.
    rate: u64,
    seconds: u64,
}

fn embedded(load: &Load) -> Result<(), Failure> {
    let ready = std::env::temp_dir().join(format!("timebound-latency-{}", std::process::id()));
    let mut child = Command::new(std::env::current_exe()?)
        .arg("broker")
        .arg(&ready)
        .spawn()?;
    let result = port_from(&ready, &mut child).and_then(|port| measure(port, load));
    child.kill()?;
    child.wait()?;
    std::fs::remove_file(&ready)?;
    result
}

fn port_from(ready: &std::path::Path, child: &mut Child) -> Result<u16, Failure> {
    loop {
        let text = std::fs::read_to_string(ready).unwrap_or_default();
        if let Some(port) = text.strip_suffix('\n').and_then(|line| line.rsplit(':').next()) {
            return Ok(port.parse()?);
        }
        if let Some(status) = child.try_wait()? {
            return Err(format!("the broker ended with {status}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn measure(port: u16, load: &Load) -> Result<(), Failure> {
    for (protocol, qos) in [(5, 0), (5, 1), (5, 2), (4, 1)] {
        let client = |name: &str, role| {
            json!({"name": name, "node": "h", "client_id": name, "protocol": protocol,
            "broker": "127.0.0.1", "port": port, "role": role})
        };
        let plan: EndpointPlan = serde_json::from_value(json!({
            "duration_ns": load.seconds * 1_000_000_000,
            "clients": [
                client("publisher", json!({"kind": "publish", "topic": "bench/latency", "qos": qos, "flow": 0,
                    "payload_bytes": 100, "release": {"pattern": {"kind": "periodic", "period_ns": 1_000_000_000 / load.rate.max(1)}}})),
                client("subscriber", json!({"kind": "subscribe", "filter": "bench/latency", "qos": qos, "flow": 0, "receiver": 0})),
            ],
        }))?;
        let output = std::env::temp_dir().join(format!("timebound-latency-{}.bin", std::process::id()));
        let (control, clock) = (Control::new(), RunClock::from_now());
        control.start_at(500_000_000);
        let summary = run(&plan, &SameNamespace, clock, &control, &output)?;
        let records = read_records(&output)?;
        std::fs::remove_file(&output)?;
        let received = records.iter().filter(|record| record.kind == Kind::Received);
        let mut latencies: Vec<i64> = received
            .map(|record| record.time_ns - record.nominal_ns)
            .collect();
        latencies.sort_unstable();
        let quantile = |share: f64| {
            latencies
                .get((latencies.len() as f64 * share) as usize)
                .map_or(0, |ns| ns / 1000)
        };
        let lateness = summary.lateness_ns;
        println!(
            "MQTT {protocol} QoS {qos}: {} of {} received; latency p50 {} us, p99 {} us, max {} us; \
             lateness of the writes p50 {} ns, p99 {} ns, max {} ns",
            latencies.len(),
            summary.senders[0].sent,
            quantile(0.5),
            quantile(0.99),
            latencies.last().map_or(0, |ns| ns / 1000),
            lateness.p50,
            lateness.p99,
            lateness.max,
        );
    }
    Ok(())
}

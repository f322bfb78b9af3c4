//! What the tests on loopback share: plans, a broker in a process of its own, a run steered from the side.

#![allow(dead_code, reason = "each test file uses its part")]

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use timebound_endpoints::record::{Record, read_records};
use timebound_endpoints::{Control, EndpointError, EndpointPlan, RunClock, SameNamespace, Summary, run};

/// Environment variable that tells the test binary to be the broker.
const BROKER: &str = "TIMEBOUND_TEST_BROKER";

/// A file name of this test process alone.
pub(crate) fn scratch(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("timebound-{}-{count}-{name}", std::process::id()))
}

/// An embedded broker as a process of its own; killed when dropped.
pub(crate) struct BrokerProcess {
    pub(crate) child: Child,
    pub(crate) port: u16,
}

impl BrokerProcess {
    pub(crate) fn start(mut config: Value) -> Self {
        let ready = scratch("ready");
        config["bind"] = json!("127.0.0.1");
        config["ready_file"] = json!(ready);
        // Owned from the start: a broker that never gets ready is killed with the failing test.
        let mut broker = Self {
            child: Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "broker_process", "--ignored", "--nocapture"])
                .env(BROKER, config.to_string())
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
            port: 0,
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let text = std::fs::read_to_string(&ready).unwrap_or_default();
            if let Some(port) = text.strip_suffix('\n').and_then(|line| line.rsplit(':').next()) {
                let _ = std::fs::remove_file(&ready);
                broker.port = port.parse().unwrap();
                return broker;
            }
            assert!(Instant::now() < deadline, "the broker does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the ignored test `broker_process` of a test file runs.
#[cfg(feature = "broker")]
pub(crate) fn be_the_broker() {
    let config = std::env::var(BROKER).expect("started by BrokerProcess");
    timebound_endpoints::broker::broker(&serde_json::from_str(&config).unwrap()).unwrap();
}

pub(crate) fn publisher(
    port: u16,
    name: &str,
    protocol: u8,
    qos: u8,
    flow: u32,
    period_ns: u64,
    jitter_ns: u64,
) -> Value {
    json!({"name": name, "node": "h1", "client_id": name, "protocol": protocol, "broker": "127.0.0.1", "port": port,
        "role": {"kind": "publish", "topic": format!("plant/{flow}"), "qos": qos, "flow": flow, "payload_bytes": 200,
            "release": {"jitter_ns": jitter_ns, "seed": 1, "pattern": {"kind": "periodic", "period_ns": period_ns}}}})
}

pub(crate) fn subscriber(port: u16, name: &str, protocol: u8, qos: u8, flow: u32, receiver: u32) -> Value {
    json!({"name": name, "node": "h2", "client_id": name, "protocol": protocol, "broker": "127.0.0.1", "port": port,
        "role": {"kind": "subscribe", "filter": format!("plant/{flow}"), "qos": qos, "flow": flow, "receiver": receiver}})
}

/// One run of a plan with its records.
pub(crate) struct Outcome {
    pub(crate) result: Result<Summary, EndpointError>,
    pub(crate) records: Vec<Record>,
    pub(crate) took: Duration,
}

/// Runs a plan; `beside` is called once the sources were told to start.
pub(crate) fn run_plan(plan: Value, beside: impl FnOnce(&Control)) -> Outcome {
    let plan: EndpointPlan = serde_json::from_value(plan).unwrap();
    let output = scratch("endpoints.bin");
    let control = Arc::new(Control::new());
    let clock = RunClock::from_now();
    let begin = Instant::now();
    let result = std::thread::scope(|scope| {
        let handle = scope.spawn(|| run(&plan, &SameNamespace, clock, &control, &output));
        if control.wait_ready(Duration::from_secs(20)) {
            control.start_at(clock.now_ns() + 10_000_000);
            beside(&control);
        }
        handle.join().unwrap()
    });
    let took = begin.elapsed();
    let records = read_records(&output).unwrap_or_default();
    let _ = std::fs::remove_file(&output);
    Outcome {
        result,
        records,
        took,
    }
}

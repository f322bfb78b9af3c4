//! How far apart the copies of one frame to many receivers are handed over.

use super::{Star, address};
use serde_json::json;

const RECEIVERS: usize = 100;

pub(crate) fn run() {
    let mut star = Star::new(RECEIVERS + 1, 1_000_000_000, 500_000, 3.0);
    let receivers: Vec<String> = (1..=RECEIVERS).map(|index| format!("h{index}")).collect();
    star.plan["network"]["streams"] = json!([{"name": "all", "source": "h0", "destinations": receivers, "class": 3, "role": "data",
        "arrival": {"kind": "unbounded", "max_frame_bytes": 1538}, "release": {"kind": "silent"}}]);
    star.plan["markers"] =
        json!([{"source": address(0), "destination": "239.9.9.9", "protocol": "udp", "data": "all"}]);
    star.role(0, &["pace", "239.9.9.9:7000", "10000000"], true);
    let outcome = super::run(&star.plan);
    let lateness = &outcome.live["precision"]["lateness_ns"];
    let us = |key: &str| lateness[key].as_f64().unwrap_or(f64::NAN) / 1e3;
    println!(
        "\ncopies: one multicast frame every 10 ms to {RECEIVERS} receivers behind one switch, all due at the same time, 3 s: lateness of the copies p50 \
         {:.1} us, p99 {:.1} us, worst {:.1} us; {:.2} us of CPU per copy; {:.0} copies/s",
        us("p50"),
        us("p99"),
        us("max"),
        outcome.live["data_plane"]["cpu_us_per_frame"]
            .as_f64()
            .unwrap_or(f64::NAN),
        outcome.live["data_plane"]["frames_out_per_s"]
            .as_f64()
            .unwrap_or(f64::NAN)
    );
}

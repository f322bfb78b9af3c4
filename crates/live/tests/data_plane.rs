//! Each back end, with and without input/output threads, carries the same traffic by the same rules.
#![cfg(target_os = "linux")]

mod common;

use common::{Folder, RECEIVER, direction, plan, python, run, sender, skip};
use serde_json::{Value, json};

const DATAGRAMS: u32 = 400;

/// The run's report and what the receiver printed; `None` where the host cannot do it.
fn carry(name: &str, data_plane: Value) -> Option<(Value, Vec<u32>)> {
    let folder = Folder::new(name);
    let forward = direction(100_000_000, 3_000_000, json!({}));
    let mut plan = plan(&folder, forward, 4.0);
    plan["data_plane"] = data_plane;
    plan["programs"] = json!([
        python("receive", "h2", RECEIVER, None),
        python("send", "h1", &sender(DATAGRAMS, 700, 0.002), Some(500_000_000)),
    ]);
    let said = run(&folder, &plan)?;
    if said.failure().contains("the TAP back end is not possible here") {
        skip(said.failure());
        return None;
    }
    assert!([0, 4].contains(&said.code), "{:?}", said.lines);
    let got = folder.read("logs/receive.log");
    let sequence = |line: &str| line.split(' ').next()?.parse().ok();
    Some((folder.live(), got.lines().filter_map(sequence).collect()))
}

fn check(name: &str, data_plane: Value, back_end: &str, stamps: &str, threads: u64) {
    let Some((live, got)) = carry(name, data_plane) else {
        return;
    };
    assert_eq!(got, (0..DATAGRAMS).collect::<Vec<_>>(), "in order, all of them");
    let plane = &live["data_plane"];
    assert_eq!(
        (&plane["back_end"], &plane["stamps"], &plane["threads"]),
        (&json!(back_end), &json!(stamps), &json!(threads))
    );
    assert_eq!(live["precision"]["early"], 0);
    let number = |key: &str| plane[key].as_f64().unwrap();
    assert!(number("frames_in") >= f64::from(DATAGRAMS) && number("frames_out") >= f64::from(DATAGRAMS));
    assert!(number("peak_out_per_s") >= number("frames_out_per_s"), "{plane}");
    assert!(number("cpu_us_per_frame") > 0.0, "{plane}");
    assert_eq!(plane["io_cpu_ns"].as_array().unwrap().len() as u64, threads);
    let passed: Vec<&Value> = (live["preflight"]
        .as_array()
        .or(live["precision"]["preflight"].as_array()))
    .unwrap()
    .iter()
    .collect();
    assert!(
        !passed.is_empty() && passed.iter().all(|line| line["ok"] == true),
        "{passed:?}"
    );
}

#[test]
fn the_ring_carries() {
    check(
        "ring",
        json!({"back_end": "ring", "threads": 0}),
        "ring",
        "kernel",
        0,
    );
}

#[test]
fn the_ring_carries_with_two_threads() {
    check(
        "ring-2",
        json!({"back_end": "ring", "threads": 2}),
        "ring",
        "kernel",
        2,
    );
}

#[test]
fn tap_carries() {
    check(
        "tap",
        json!({"back_end": "tap", "threads": 0}),
        "tap",
        "reaped",
        0,
    );
}

#[test]
fn tap_carries_with_two_threads() {
    check(
        "tap-2",
        json!({"back_end": "tap", "threads": 2}),
        "tap",
        "reaped",
        2,
    );
}

#[test]
fn more_threads_than_there_are_is_refused_before_anything_starts() {
    let folder = Folder::new("threads");
    let mut plan = plan(&folder, direction(1_000_000, 0, json!({})), 1.0);
    plan["data_plane"] = json!({"threads": 17});
    let Some(said) = run(&folder, &plan) else { return };
    assert_eq!(said.code, 1);
    assert!(said.failure().contains("at most 16"), "{}", said.failure());
}

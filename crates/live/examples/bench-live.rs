//! What the emulator does on this machine, each figure with its method.
//!
//! `bench-live` prints frames per second and lateness of departures at 20,000 frames/s offered, and bring-up and tear-down of 10, 100
//! and 350 nodes. Run it on a quiet machine and in release mode.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PAIRS: usize = 4;
const RATE_PER_PAIR: u32 = 5_000;
const SECONDS: u64 = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sandbox", plan] => std::process::exit(timebound_live::main(Path::new(plan))),
        ["send", to] => send(to),
        ["receive", at] => receive(at),
        _ => bench(),
    }
}

fn bench() {
    let plan = plan(2 * PAIRS, SECONDS as f64, true);
    let (live, _, _) = run(&plan);
    let precision = &live["precision"];
    let us = |key: &str| precision["lateness_ns"][key].as_u64().unwrap_or(0) as f64 / 1e3;
    let frames = precision["frames"].as_u64().unwrap_or(0) as f64 / SECONDS as f64;
    println!(
        "{frames:.0} frames/s delivered ({} pairs of hosts, one switch, UDP of 200 bytes, {} frames/s offered, {SECONDS} s)",
        PAIRS,
        PAIRS as u32 * RATE_PER_PAIR
    );
    println!(
        "lateness of departures (real handover - virtual arrival): p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, worst {:.1} us; early {}, \
         ring lost {}, SCHED_FIFO {}, rootless {}, verdict {}",
        us("p50"),
        us("p99"),
        us("p999"),
        us("max"),
        precision["early"],
        precision["ring_lost"],
        precision["fifo"],
        precision["rootless"],
        precision["verdict"]
    );
    for count in [10, 100, 350] {
        let (live, first, last) = run(&self::plan(count, 0.05, false));
        let ms = |key: &str| live["times"][key].as_u64().unwrap_or(0) as f64 / 1e6;
        println!(
            "{count} nodes: up in {:.0} ms (namespaces, veth, addresses, ring), process start to measuring {:.0} ms, gone {:.0} ms after the last line",
            ms("bring_up_ns"),
            first.as_secs_f64() * 1e3,
            last.as_secs_f64() * 1e3
        );
    }
}

/// A star of hosts around one switch; with traffic, even ones send to odd ones.
fn plan(hosts: usize, seconds: f64, traffic: bool) -> Value {
    let folder = std::env::temp_dir().join(format!("timebound-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the bench");
    let address = |index: usize| format!("10.2.{}.{}", index / 250, index % 250 + 1);
    let program = std::env::current_exe().expect("our own path");
    let direction = json!({"rate_bps": 1_000_000_000, "delay_ns": 500_000, "queue": {"kind": "strict-priority"}, "buffer_bytes": 1 << 20});
    let mut nodes = vec![json!({"name": "s", "kind": "switch"})];
    let (mut links, mut list, mut programs) = (vec![], vec![], vec![]);
    for index in 0..hosts {
        let name = format!("h{index}");
        nodes.push(json!({"name": name, "kind": "host"}));
        links.push(json!({"a": name, "b": "s", "forward": direction, "backward": direction}));
        list.push(json!({"node": name, "address": address(index), "prefix": 16}));
        if traffic {
            let (role, peer) = if index % 2 == 0 {
                ("send", index + 1)
            } else {
                ("receive", index)
            };
            let argv = json!([program, role, format!("{}:7000", address(peer))]);
            let start = if index % 2 == 0 { json!(0) } else { Value::Null };
            programs.push(
                json!({"name": name, "node": name, "argv": argv, "start_ns": start, "stop_grace_ns": 0}),
            );
        }
    }
    json!({"schema": 1, "run_id": "bench", "folder": folder, "seed": 1, "duration_ns": (seconds * 1e9) as u64, "drain_ns": 0,
           "network": {"nodes": nodes, "links": links}, "hosts": list, "programs": programs, "preflight": {"enabled": false}})
}

/// Report; time from start to the measuring phase; time from the last line to the end of the process.
fn run(plan: &Value) -> (Value, Duration, Duration) {
    let folder = Path::new(plan["folder"].as_str().expect("a path"));
    let file = folder.join("plan.json");
    std::fs::write(&file, plan.to_string()).expect("the plan is written");
    let begun = Instant::now();
    let mut child = Command::new(std::env::current_exe().expect("our own path"))
        .arg("sandbox")
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the sandbox starts");
    let (mut measuring, mut last) = (Duration::ZERO, Instant::now());
    for line in BufReader::new(child.stdout.take().expect("piped"))
        .lines()
        .map_while(Result::ok)
    {
        let line: Value = serde_json::from_str(&line).unwrap_or_default();
        if line["phase"] == "measure" {
            measuring = begun.elapsed();
        }
        if line["event"] == "failed" {
            println!("failed: {}", line["message"]);
        }
        if line["event"] == "done" || line["event"] == "failed" {
            last = Instant::now();
        }
    }
    child.wait().expect("our child");
    let gone = last.elapsed();
    let text = std::fs::read(folder.join("live.json")).unwrap_or_default();
    let _ = std::fs::remove_dir_all(folder);
    (serde_json::from_slice(&text).unwrap_or_default(), measuring, gone)
}

fn send(to: &str) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let gap = Duration::from_secs(1) / RATE_PER_PAIR;
    let mut next = Instant::now();
    loop {
        let _ = socket.send_to(&[0; 200], to);
        next += gap;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn receive(at: &str) {
    let socket = UdpSocket::bind(at).expect("a socket");
    let mut buffer = [0; 2048];
    while socket.recv(&mut buffer).is_ok() {}
}

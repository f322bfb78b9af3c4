//! What the measurements share: plans, runs, medians.

pub(crate) mod capacity;
pub(crate) mod copies;
pub(crate) mod delay;
pub(crate) mod lateness;
pub(crate) mod load;
pub(crate) mod nodes;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) fn ourselves() -> PathBuf {
    std::env::current_exe().expect("our own path")
}

pub(crate) fn address(index: usize) -> String {
    format!("10.9.{}.{}", index / 250, index % 250 + 1)
}

/// `count` hosts on one switch.
pub(crate) struct Star {
    pub(crate) plan: Value,
}

impl Star {
    pub(crate) fn new(count: usize, rate_bps: u64, delay_ns: u64, seconds: f64) -> Self {
        let folder = std::env::temp_dir().join(format!("timebound-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder is made");
        let way = json!({"rate_bps": rate_bps, "delay_ns": delay_ns, "queue": {"kind": "strict-priority"}, "buffer_bytes": 64 << 20});
        let mut nodes = vec![json!({"name": "s", "kind": "switch"})];
        let (mut links, mut hosts) = (vec![], vec![]);
        for index in 0..count {
            let name = format!("h{index}");
            nodes.push(json!({"name": name, "kind": "host"}));
            links.push(json!({"a": name, "b": "s", "forward": way, "backward": way}));
            hosts.push(json!({"node": name, "address": address(index), "prefix": 16}));
        }
        let plan = json!({"schema": 1, "run_id": "bench", "folder": folder, "seed": 1, "duration_ns": (seconds * 1e9) as u64,
            "drain_ns": 0, "network": {"nodes": nodes, "links": links}, "hosts": hosts, "programs": [],
            "preflight": {"enabled": false}, "statistics": {"node_interval_ns": 0, "port_interval_ns": 0}});
        Self { plan }
    }

    /// This program in a role at a host; from time zero on, or from before it.
    pub(crate) fn role(&mut self, host: usize, role: &[&str], from_zero: bool) {
        let name = format!("h{host}");
        let mut argv = vec![json!(ourselves())];
        argv.extend(role.iter().map(|word| json!(word)));
        let start = if from_zero { json!(0) } else { Value::Null };
        self.plan["programs"].as_array_mut().expect("a list").push(json!(
            {"name": name, "node": name, "argv": argv, "start_ns": start, "stop_grace_ns": 500_000_000}));
    }
}

pub(crate) struct Outcome {
    pub(crate) live: Value,
    /// Logs by program.
    pub(crate) log: Box<dyn Fn(&str) -> String>,
    pub(crate) to_measuring: Duration,
    /// From the last line to the end of the process.
    pub(crate) gone: Duration,
}

/// Runs a plan to its end; its folder goes with the outcome's last use.
pub(crate) fn run(plan: &Value) -> Outcome {
    let folder = PathBuf::from(plan["folder"].as_str().expect("a path"));
    std::fs::create_dir_all(&folder).expect("the folder is made");
    let file = folder.join("plan.json");
    std::fs::write(&file, plan.to_string()).expect("the plan is written");
    let begun = Instant::now();
    let mut child = Command::new(ourselves())
        .arg("sandbox")
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the sandbox starts");
    let (mut to_measuring, mut last) = (Duration::ZERO, Instant::now());
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    for line in lines.map_while(Result::ok) {
        let line: Value = serde_json::from_str(&line).unwrap_or_default();
        if line["phase"] == "measure" {
            to_measuring = begun.elapsed();
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
    let live = std::fs::read(folder.join("live.json")).unwrap_or_default();
    let logs: std::collections::BTreeMap<String, String> = read_logs(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    Outcome {
        live: serde_json::from_slice(&live).unwrap_or_default(),
        log: Box::new(move |name| logs.get(name).cloned().unwrap_or_default()),
        to_measuring,
        gone,
    }
}

fn read_logs(folder: &Path) -> std::collections::BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder.join("logs"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| {
            let name = entry.path().file_stem()?.to_str()?.to_owned();
            Some((name, std::fs::read_to_string(entry.path()).ok()?))
        })
        .collect()
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Quantile of a sorted list.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last as f64 * share).round() as usize)
        .copied()
        .unwrap_or(f64::NAN)
}

/// Ticks stolen by a hypervisor so far (proc(5), /proc/stat).
pub(crate) fn stolen() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    first
        .split_whitespace()
        .nth(8)
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}

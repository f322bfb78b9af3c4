//! Does the certificate tell a disturbed run from an undisturbed one? Tried live, on runs of 2 seconds:
//!
//! * undisturbed, with traffic (2 pairs x 1,000 frames/s) and without;
//! * a hog on every CPU under SCHED_FIFO above the data plane, three bursts of 120 ms (needs root);
//! * the emulator's process paused (SIGSTOP) for 300 ms, with traffic and without;
//! * with `overflow`, paused for 300 ms under 40,000 frames/s: the ring runs over.
//!
//! `bench-certificate [RUNS] [KIND...] [--record FOLDER]` prints a count per kind and fails where one verdict was wrong. A witness (a bare timer
//! thread above the data plane) watches the undisturbed runs: one in which it was itself held up for longer than half the limit shows
//! nothing, is counted apart and repeated. `--record` keeps `KIND.csv` (the history) and `KIND.json` (its totals and limits): the fixtures of
//! `tests/certificate.rs`.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SECONDS: f64 = 2.0;
/// Above the data plane's 60.
const HOG_PRIORITY: i32 = 70;
const WITNESS_PRIORITY: i32 = 62;
const BURST: Duration = Duration::from_millis(120);
const PAUSE: Duration = Duration::from_millis(300);
/// Half of the longest overrun that a plan allows by default.
const WITNESS_LIMIT_NS: u64 = 10_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    None,
    Hog,
    Pause,
}

struct Kind {
    name: &'static str,
    disturbance: Disturbance,
    /// Frames per second of each of two pairs.
    rate: u32,
    rootless: bool,
    /// Part of a plain call.
    usual: bool,
}

const fn kind(name: &'static str, disturbance: Disturbance, rate: u32) -> Kind {
    Kind {
        name,
        disturbance,
        rate,
        rootless: false,
        usual: true,
    }
}

const KINDS: [Kind; 7] = [
    kind("quiet", Disturbance::None, 1_000),
    kind("quiet-idle", Disturbance::None, 0),
    kind("hog", Disturbance::Hog, 1_000),
    kind("paused", Disturbance::Pause, 1_000),
    kind("paused-idle", Disturbance::Pause, 0),
    Kind {
        usual: false,
        ..kind("overflow", Disturbance::Pause, 20_000)
    },
    Kind {
        usual: false,
        rootless: true,
        ..kind("quiet-rootless", Disturbance::None, 1_000)
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sandbox", plan] => std::process::exit(timebound_live::main(Path::new(plan))),
        ["send", to, rate] => send(to, rate.parse().expect("a rate")),
        ["receive", at] => receive(at),
        _ => return bench(&arguments),
    }
    ExitCode::SUCCESS
}

fn bench(arguments: &[String]) -> ExitCode {
    let at = arguments.iter().position(|argument| argument == "--record");
    let record = at.map(|at| PathBuf::from(arguments.get(at + 1).expect("--record FOLDER")));
    let words = &arguments[..at.unwrap_or(arguments.len())];
    let runs = words.first().and_then(|runs| runs.parse().ok()).unwrap_or(5);
    let chosen = |kind: &&Kind| match words.len() {
        0 | 1 => kind.usual,
        _ => words[1..].iter().any(|word| word == kind.name),
    };
    let fifo = timebound_live::doctor().fifo;
    println!(
        "{runs} runs of {SECONDS} s of each kind; SCHED_FIFO {}",
        if fifo { "allowed" } else { "refused" }
    );
    let mut wrong = 0;
    for kind in KINDS.iter().filter(chosen) {
        if kind.disturbance == Disturbance::Hog && !fifo {
            println!("{:<15} left out: a hog at higher priority needs root", kind.name);
            wrong += usize::from(std::env::var_os("TIMEBOUND_CI").is_some());
            continue;
        }
        wrong += tried(kind, runs, fifo, record.as_deref());
    }
    println!("{wrong} verdicts wrong");
    if wrong == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// How many verdicts of this kind were wrong.
fn tried(kind: &Kind, runs: usize, fifo: bool, record: Option<&Path>) -> usize {
    let wanted = if kind.disturbance == Disturbance::None {
        "good"
    } else {
        "disturbed"
    };
    let (mut right, mut wrong, mut void) = (0, 0, 0);
    let (mut p99, mut overruns) = (Vec::new(), Vec::new());
    let mut reason = String::new();
    while right + wrong < runs && void < 2 * runs {
        let (precision, witnessed) = run(kind, fifo, record);
        let us = |value: &Value| value.as_u64().unwrap_or(0) / 1_000;
        let is_void = wanted == "good" && witnessed > WITNESS_LIMIT_NS;
        if is_void {
            void += 1;
            continue;
        }
        p99.push(us(&precision["lateness_ns"]["p99"]));
        overruns.push(us(&precision["overruns"]["longest_ns"]));
        let first = precision["reasons"][0].as_str().unwrap_or("no reason").to_owned();
        if precision["verdict"] == wanted {
            right += 1;
            reason = first;
        } else {
            wrong += 1;
            println!(
                "  wrong: {} is called {}: {first}; the witness was late by {} us",
                kind.name,
                precision["verdict"],
                witnessed / 1_000
            );
        }
    }
    p99.sort_unstable();
    overruns.sort_unstable();
    let range = |values: &[u64]| {
        format!(
            "{}/{}/{} us",
            values[0],
            values[values.len() / 2],
            values[values.len() - 1]
        )
    };
    if p99.is_empty() {
        println!(
            "{:<15} nothing shown: the machine was never quiet in {void} runs",
            kind.name
        );
        return runs;
    }
    println!(
        "{:<15} {right} of {} {wanted}; least/median/most lateness p99 {}, longest overrun {}{}",
        kind.name,
        right + wrong,
        range(&p99),
        range(&overruns),
        if void > 0 {
            format!("; {void} more on a machine that was held up")
        } else {
            String::new()
        }
    );
    if wanted == "disturbed" && right > 0 {
        println!("{:<15} e.g. {reason}", "");
    }
    wrong
}

/// One run: its `precision`, and how late the witness was.
fn run(kind: &Kind, fifo: bool, record: Option<&Path>) -> (Value, u64) {
    let folder = std::env::temp_dir().join(format!("timebound-certificate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the bench");
    let file = folder.join("plan.json");
    std::fs::write(&file, plan(kind, &folder).to_string()).expect("the plan is written");
    let mut child = Command::new(std::env::current_exe().expect("our own path"))
        .arg("sandbox")
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the sandbox starts");
    let pid = child.id();
    let mut threads = Vec::new();
    let witness = Arc::new(Witness::default());
    for line in BufReader::new(child.stdout.take().expect("piped"))
        .lines()
        .map_while(Result::ok)
    {
        let line: Value = serde_json::from_str(&line).unwrap_or_default();
        if line["phase"] == "measure" {
            let disturbance = kind.disturbance;
            threads.push(std::thread::spawn(move || disturb(disturbance, pid)));
            if disturbance == Disturbance::None {
                let witness = Arc::clone(&witness);
                threads.push(std::thread::spawn(move || witness.watch(fifo)));
            }
        }
        if line["phase"] == "stop" {
            witness.over.store(true, Ordering::Relaxed);
        }
        if line["event"] == "failed" {
            println!("  failed: {}", line["message"]);
        }
    }
    witness.over.store(true, Ordering::Relaxed);
    child.wait().expect("our child");
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("a helper thread"));
    let live: Value = serde_json::from_slice(&std::fs::read(folder.join("live.json")).unwrap_or_default())
        .unwrap_or_default();
    let precision = live["precision"].clone();
    if let Some(record) = record {
        keep(kind, &folder, record, &live);
    }
    let _ = std::fs::remove_dir_all(&folder);
    (precision, witness.latest.load(Ordering::Relaxed))
}

/// The history and what it was judged with.
fn keep(kind: &Kind, folder: &Path, record: &Path, live: &Value) {
    std::fs::create_dir_all(record).expect("the folder of fixtures");
    std::fs::copy(
        folder.join("lateness.csv"),
        record.join(format!("{}.csv", kind.name)),
    )
    .expect("the history is kept");
    let precision = &live["precision"];
    let keys = [
        "frames",
        "lateness_ns",
        "early",
        "late",
        "ring_lost",
        "handover_refused",
        "records_lost",
        "captures_lost",
        "clock_steps",
    ];
    let totals: Value = keys
        .iter()
        .map(|key| ((*key).to_owned(), precision[*key].clone()))
        .collect();
    let content = json!({"origin": "recorded by bench-certificate", "duration_ns": live["planned_ns"], "totals": totals,
                         "verdict": precision["verdict"], "fifo": precision["fifo"]});
    let text = serde_json::to_string_pretty(&content).expect("plain values");
    std::fs::write(record.join(format!("{}.json", kind.name)), text + "\n").expect("the totals are kept");
}

/// A bare timer thread: how late was it at worst?
#[derive(Default)]
struct Witness {
    over: AtomicBool,
    latest: AtomicU64,
}

impl Witness {
    fn watch(&self, fifo: bool) {
        if fifo {
            enter_fifo(WITNESS_PRIORITY);
        }
        let step = Duration::from_millis(2);
        while !self.over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            std::thread::sleep(step);
            let late = begun.elapsed().saturating_sub(step).as_nanos() as u64;
            self.latest.fetch_max(late, Ordering::Relaxed);
        }
    }
}

fn disturb(disturbance: Disturbance, sandbox: u32) {
    std::thread::sleep(Duration::from_millis(600));
    match disturbance {
        Disturbance::None => {}
        Disturbance::Hog => {
            for _ in 0..3 {
                hog_everywhere();
                std::thread::sleep(Duration::from_millis(150));
            }
        }
        Disturbance::Pause => {
            if let Some(pid) = emulator(sandbox) {
                // SAFETY: signals a process below our own child, found a moment ago and waited for by it.
                unsafe { libc::kill(pid, libc::SIGSTOP) };
                std::thread::sleep(PAUSE);
                // SAFETY: as above.
                unsafe { libc::kill(pid, libc::SIGCONT) };
            }
        }
    }
}

/// One burst on every CPU. All start together: a data plane that is pushed from one CPU finds no other.
fn hog_everywhere() {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let barrier = Arc::new(std::sync::Barrier::new(count));
    let hogs: Vec<_> = (0..count)
        .map(|cpu| {
            let barrier = Arc::clone(&barrier);
            std::thread::spawn(move || {
                pin(cpu);
                barrier.wait();
                enter_fifo(HOG_PRIORITY);
                let begun = Instant::now();
                while begun.elapsed() < BURST {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    hogs.into_iter().for_each(|hog| hog.join().expect("a hog ends"));
}

fn pin(cpu: usize) {
    // SAFETY: a zeroed set is an empty one; the kernel reads it during the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

fn enter_fifo(priority: i32) {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 is the calling thread, `parameters` lives for the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
}

/// The process below `pid` that has a thread named `fabric`.
fn emulator(pid: u32) -> Option<libc::pid_t> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let is_fabric =
        |task: &Path| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "fabric");
    let mut children = Vec::new();
    for task in tasks.flatten() {
        if is_fabric(&task.path()) {
            return libc::pid_t::try_from(pid).ok();
        }
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.extend(
            text.split_ascii_whitespace()
                .filter_map(|child| child.parse::<u32>().ok()),
        );
    }
    children.into_iter().find_map(emulator)
}

/// Four hosts around one switch; with traffic, even ones send to odd ones.
fn plan(kind: &Kind, folder: &Path) -> Value {
    let program = std::env::current_exe().expect("our own path");
    let direction = json!({"rate_bps": 1_000_000_000, "delay_ns": 500_000, "queue": {"kind": "strict-priority"}, "buffer_bytes": 1 << 20});
    let mut nodes = vec![json!({"name": "s", "kind": "switch"})];
    let (mut links, mut hosts, mut programs) = (vec![], vec![], vec![]);
    for index in 0..4 {
        let (name, address) = (format!("h{index}"), format!("10.3.0.{}", index + 1));
        nodes.push(json!({"name": name, "kind": "host"}));
        links.push(json!({"a": name, "b": "s", "forward": direction, "backward": direction}));
        hosts.push(json!({"node": name, "address": address, "prefix": 16}));
        if kind.rate > 0 {
            let (argv, start) = if index % 2 == 0 {
                let to = format!("10.3.0.{}:7000", index + 2);
                (json!([program, "send", to, kind.rate.to_string()]), json!(0))
            } else {
                (
                    json!([program, "receive", format!("{address}:7000")]),
                    Value::Null,
                )
            };
            programs.push(
                json!({"name": name, "node": name, "argv": argv, "start_ns": start, "stop_grace_ns": 0}),
            );
        }
    }
    json!({"schema": 1, "run_id": "certificate", "folder": folder, "seed": 1, "duration_ns": (SECONDS * 1e9) as u64, "drain_ns": 0,
           "network": {"nodes": nodes, "links": links}, "hosts": hosts, "programs": programs, "preflight": {"enabled": false},
           "force_rootless": kind.rootless})
}

fn send(to: &str, rate: u32) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let gap = Duration::from_secs(1) / rate;
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

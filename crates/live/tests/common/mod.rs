//! Plans for tests, and the sandbox as a child process.
#![allow(dead_code, reason = "each test file uses a part")]

mod skips;

use serde_json::{Value, json};
#[allow(unused_imports, reason = "each test file uses a part")]
pub(crate) use skips::{need, skip};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A folder that goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("timebound-live-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join(file)).unwrap_or_default()
    }
    pub(crate) fn live(&self) -> Value {
        serde_json::from_str(&self.read("live.json")).expect("live.json")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One direction of a link.
pub(crate) fn direction(rate: u64, delay: u64, impairments: Value) -> Value {
    json!({"rate_bps": rate, "delay_ns": delay, "queue": {"kind": "strict-priority"}, "buffer_bytes": 262144,
           "impairments": impairments})
}

/// h1 - s1 - h2: a fast first link, and a second one as given from s1 to h2 (the way back has no impairment).
pub(crate) fn plan(folder: &Folder, forward: Value, duration_s: f64) -> Value {
    let fast = direction(1_000_000_000, 0, json!({}));
    let mut backward = forward.clone();
    backward["impairments"] = json!({});
    json!({
        "schema": 1, "run_id": "test", "folder": folder.0, "seed": 7, "duration_ns": (duration_s * 1e9) as u64,
        "network": {
            "nodes": [{"name": "h1", "kind": "host"}, {"name": "h2", "kind": "host"},
                      {"name": "s1", "kind": "switch", "switching_min_ns": 1000, "switching_max_ns": 3000}],
            "links": [{"a": "h1", "b": "s1", "forward": fast, "backward": fast},
                      {"a": "s1", "b": "h2", "forward": forward, "backward": backward}],
            "streams": [{"name": "data", "source": "h1", "destinations": ["h2"], "class": 3, "role": "data",
                         "arrival": {"kind": "unbounded", "max_frame_bytes": 1538}, "release": {"kind": "silent"}}]
        },
        "hosts": [{"node": "h1", "address": "10.1.0.1", "prefix": 16}, {"node": "h2", "address": "10.1.0.2", "prefix": 16}],
        "markers": [{"source": "10.1.0.1", "destination": "10.1.0.2", "protocol": "udp", "destination_port": 7000, "data": "data",
                     "header": {"payload_offset": 0, "message_bytes": 16}}],
    })
}

/// A program in a node: Python, which every host that builds this has.
pub(crate) fn python(name: &str, node: &str, script: &str, start_ns: Option<u64>) -> Value {
    json!({"name": name, "node": node, "argv": ["python3", "-c", script], "start_ns": start_ns})
}

/// The words of a shell that send one echo request, on machines without `ping` too; `wait_s` at most for the answer.
pub(crate) fn ping(address: &str, wait_s: u32) -> String {
    format!("python3 '{}' -W {wait_s} {address}", ping_program())
}

/// Echo requests, without `..` in its path: nodes do not see every folder on the way.
pub(crate) fn ping_program() -> String {
    tools().join("ping.py").to_str().unwrap().to_owned()
}

/// Where programs of tests that run in nodes are.
fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/live")
        .canonicalize()
        .unwrap()
}

/// Sends numbered datagrams of `size` bytes to 10.1.0.2:7000 at a rate, with the measurement header.
pub(crate) fn sender(count: u32, size: u32, gap_s: f64) -> String {
    format!(
        "import socket,struct,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\nt=time.monotonic()\n\
         for i in range({count}):\n s.sendto(struct.pack('<IIII',0x54424E44,1,i,0)+bytes({size}-16),('10.1.0.2',7000))\n t+={gap_s}\n \
         d=t-time.monotonic()\n if d>0: time.sleep(d)\n"
    )
}

/// Prints `sequence time` of each datagram until nothing came for two seconds. Option 33 is SO_RCVBUFFORCE: within the system's
/// limit the buffer holds less than 0.2 s of frames, and a busy machine keeps a receiver waiting for longer.
pub(crate) const RECEIVER: &str = "import socket,struct,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
    s.setsockopt(socket.SOL_SOCKET,33,4000000)\ns.bind(('10.1.0.2',7000))\ns.settimeout(2)\nout=[]\n\
    try:\n while True:\n  d=s.recv(2000)\n  out.append((struct.unpack('<IIII',d[:16])[2],time.monotonic_ns()))\n\
    except TimeoutError: pass\nfor q,t in out: print(q,t)\n";

/// The sandbox as a child.
pub(crate) struct Sandbox {
    pub(crate) child: Child,
}

/// What a run said.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) lines: Vec<Value>,
}

impl Said {
    /// The last line of this event.
    pub(crate) fn event(&self, name: &str) -> Option<&Value> {
        self.lines.iter().rev().find(|line| line["event"] == name)
    }
    pub(crate) fn failure(&self) -> &str {
        self.event("failed")
            .and_then(|line| line["message"].as_str())
            .unwrap_or("")
    }
}

impl Sandbox {
    pub(crate) fn start(folder: &Folder, plan: &Value) -> Self {
        let mut plan = plan.clone();
        if plan["shown"].is_null() {
            // Where this source lies below /tmp, nodes do not see it else.
            plan["shown"] = json!([tools()]);
        }
        let file = folder.0.join("plan.json");
        std::fs::write(&file, plan.to_string()).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_live-sandbox"))
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child }
    }

    /// Reads lines until one of this phase.
    pub(crate) fn await_phase(&mut self, phase: &str) -> bool {
        let reader = self.child.stdout.as_mut().unwrap();
        // One byte at a time: what follows must stay in the pipe.
        let mut line = Vec::new();
        let mut byte = [0u8];
        while std::io::Read::read(reader, &mut byte).unwrap_or(0) == 1 {
            line.push(byte[0]);
            if byte[0] == b'\n' {
                let value: Value = serde_json::from_slice(&line).unwrap_or_default();
                if value["phase"] == phase {
                    return true;
                }
                line.clear();
            }
        }
        false
    }

    pub(crate) fn say_stop(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"stop\n").unwrap();
    }

    pub(crate) fn finish(mut self) -> Said {
        let reader = BufReader::new(self.child.stdout.take().unwrap());
        let lines = reader
            .lines()
            .map_while(Result::ok)
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        Said { code, lines }
    }
}

/// Runs a plan to its end; `None` (with the reason printed) where the host refuses namespaces and nobody insists.
pub(crate) fn run(folder: &Folder, plan: &Value) -> Option<Said> {
    let said = Sandbox::start(folder, plan).finish();
    if said.failure().contains("cannot create namespaces") {
        skip(said.failure());
        return None;
    }
    Some(said)
}

/// Does any process have this in its command line?
pub(crate) fn is_running(needle: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(needle)
    })
}

/// Waits up to two seconds for something.
pub(crate) fn within_two_seconds(mut what: impl FnMut() -> bool) -> bool {
    (0..100).any(|_| {
        let done = what();
        if !done {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        done
    })
}

/// Fixed-size records of a file.
pub(crate) fn records<const N: usize>(path: &Path) -> Vec<[u8; N]> {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len() % N, 0, "{} holds a piece of a record", path.display());
    bytes
        .chunks_exact(N)
        .map(|chunk| chunk.try_into().unwrap())
        .collect()
}

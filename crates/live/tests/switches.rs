//! Real switches between emulated links: the same network on the fabric's own switches and on Open vSwitch.

mod common;

#[path = "common/replay.rs"]
mod replay;

use common::{
    Folder, Said, Sandbox, direction, is_running, need, python, records, run, skip, within_two_seconds,
};
use replay::replayed;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use timebound_live::records::{DROPPED, DUPLICATE, FRAME_RECORD, FrameRecord, INGRESS_RECORD, IngressRecord};

const GROUP: &str = "239.1.1.1";
/// Declared of every switch; what a busy machine takes beyond it is said, and is no failure of the run.
const DELAY: (u64, u64) = (0, 5_000_000);

/// Is Open vSwitch here? (What a test needs that CI has.)
fn has_ovs() -> bool {
    need(&["ovs-vswitchd", "ovs-vsctl", "ovsdb-server", "ovsdb-tool"])
}

fn stream(name: &str, source: &str, to: &[&str], class: u8) -> Value {
    json!({"name": name, "source": source, "destinations": to, "class": class, "role": "data",
           "arrival": {"kind": "unbounded", "max_frame_bytes": 1538}, "release": {"kind": "silent"}})
}

fn marker(source: &str, destination: &str, port: u16, stream: &str) -> Value {
    json!({"source": source, "destination": destination, "protocol": "udp", "destination_port": port, "data": stream,
           "header": {"payload_offset": 0, "message_bytes": 16}})
}

/// A ring of three switches with hosts h1 and h4 at s1, h2 at s2, h3 at s3; the way h1-h3 is made to go around by s2.
fn ring(folder: &Folder, real: &[&str], duration_s: f64) -> Value {
    let slow = direction(10_000_000, 5_000, json!({}));
    let link = |a: &str, b: &str| json!({"a": a, "b": b, "forward": slow, "backward": slow});
    let switch = |name: &str| json!({"name": name, "kind": "switch", "switching_min_ns": DELAY.0, "switching_max_ns": DELAY.1});
    let host = |index: usize| json!({"name": format!("h{index}"), "kind": "host"});
    let address = |index: usize| json!({"node": format!("h{index}"), "address": format!("10.1.0.{index}"), "prefix": 16});
    let mut detour = stream("detour", "h1", &["h3"], 4);
    detour["route"] = json!([["h1", "s1", "s2", "s3", "h3"]]);
    let mut plan = json!({
        "schema": 1, "run_id": "test", "folder": folder.0, "seed": 7, "duration_ns": (duration_s * 1e9) as u64,
        "network": {
            "nodes": [host(1), host(2), host(3), host(4), switch("s1"), switch("s2"), switch("s3")],
            "links": [link("h1", "s1"), link("h2", "s2"), link("h3", "s3"), link("h4", "s1"),
                      link("s1", "s2"), link("s2", "s3"), link("s3", "s1")],
            "streams": [stream("urgent", "h1", &["h2"], 5), detour, stream("group", "h1", &["h2", "h3", "h4"], 3),
                        stream("flood", "h4", &["h2"], 0)]
        },
        "hosts": [address(1), address(2), address(3), address(4)],
        "markers": [marker("10.1.0.1", "10.1.0.2", 7000, "urgent"), marker("10.1.0.1", "10.1.0.3", 7001, "detour"),
                    marker("10.1.0.1", GROUP, 7002, "group"), marker("10.1.0.4", "10.1.0.2", 7003, "flood")],
        "record_ingress": true,
    });
    if !real.is_empty() {
        plan["switches"] = json!({"nodes": real});
    }
    plan
}

/// Numbered datagrams of `size` bytes at a fixed gap.
fn sender(to: &str, port: u16, count: u32, size: u32, gap_s: f64) -> String {
    format!(
        "import socket,struct,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\nt=time.monotonic()\nfor i in range({count}):\n \
         s.sendto(struct.pack('<IIII',0x54424E44,1,i,0)+bytes({size}-16),('{to}',{port}))\n t+={gap_s}\n d=t-time.monotonic()\n \
         if d>0: time.sleep(d)\n"
    )
}

/// Counts datagrams to a port until it is told to end; prints how many, and the DSCP of the last.
fn receiver(port: u16, group: bool) -> String {
    let join = if group {
        format!("s.setsockopt(0,35,struct.pack('4s4s',socket.inet_aton('{GROUP}'),bytes(4)))\n")
    } else {
        String::new()
    };
    format!(
        "import signal,socket,struct,sys\ndef end(*_): sys.exit()\nsignal.signal(signal.SIGTERM,end)\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.setsockopt(socket.SOL_SOCKET,8,200000)\n\
         s.setsockopt(0,13,1)\ns.bind(('',{port}))\n{join}open('{port}-'+socket.gethostname(),'w')\nn=0\ntos=0\ntry:\n while True:\n  \
         d,c,_,_=s.recvmsg(2000,200)\n  n+=1\n  tos=[v[0] for l,t,v in c if t==1][0]\nfinally: print(n,tos>>2)\n"
    )
}

/// A receiver that senders wait for.
fn listener(name: &str, node: &str, port: u16, group: bool) -> Value {
    let mut program = python(name, node, &receiver(port, group), None);
    program["ready"] = json!({"file": format!("{port}-{node}"), "timeout_ms": 20_000});
    program
}

fn traffic(plan: &mut Value) {
    plan["programs"] = json!([
        listener("at2", "h2", 7000, false),
        listener("at3", "h3", 7001, false),
        listener("group2", "h2", 7002, true),
        listener("group3", "h3", 7002, true),
        listener("group4", "h4", 7002, true),
        python(
            "urgent",
            "h1",
            &sender("10.1.0.2", 7000, 100, 100, 0.01),
            Some(100_000_000)
        ),
        python(
            "detour",
            "h1",
            &sender("10.1.0.3", 7001, 50, 300, 0.02),
            Some(100_000_000)
        ),
        python(
            "group",
            "h1",
            &sender(GROUP, 7002, 50, 200, 0.02),
            Some(100_000_000)
        ),
    ]);
}

/// By (stream, leaf): how many frames arrived, and the longest latency.
type Arrivals = BTreeMap<(u32, u16), (usize, i64)>;

/// Frames that arrived, and how many were dropped.
fn arrivals(folder: &Folder) -> (Arrivals, usize) {
    let mut found = BTreeMap::new();
    let mut dropped = 0;
    for bytes in records::<FRAME_RECORD>(&folder.0.join("frames.bin")) {
        let record = FrameRecord::decode(&bytes);
        assert_eq!(record.flags & DUPLICATE, 0, "{record:?}");
        if record.flags & DROPPED != 0 {
            dropped += 1;
            continue;
        }
        let entry = found.entry((record.stream, record.leaf)).or_insert((0, 0));
        entry.0 += 1;
        entry.1 = entry.1.max(record.delivered_ns - record.ingress_ns);
    }
    (found, dropped)
}

/// Runs a plan until the machine leaves it alone; `None` where the host refuses.
fn undisturbed(plan: impl Fn(&Folder) -> Value, name: &str) -> Option<(Folder, Value, Said)> {
    for attempt in 0..6 {
        let folder = Folder::new(&format!("{name}-{attempt}"));
        let plan = plan(&folder);
        let said = run(&folder, &plan)?;
        assert!(said.code == 0 || said.code == 4, "{name}: {}", said.failure());
        if said.code == 0 || attempt == 5 {
            return Some((folder, plan, said));
        }
        println!("{name}: disturbed: {:?}", folder.live()["precision"]["reasons"]);
    }
    None
}

#[test]
fn the_same_frames_arrive_on_real_switches_as_on_ours_and_their_replay_departs_as_they_did() {
    if !has_ovs() {
        return;
    }
    let mut both = Vec::new();
    for (name, real) in [
        ("ours", &[][..]),
        ("real", &["s1", "s2", "s3"]),
        ("mixed", &["s2"]),
    ] {
        for rootless in [false, true] {
            if rootless && name != "real" {
                continue;
            }
            let build = |folder: &Folder| {
                let mut plan = ring(folder, real, 3.0);
                traffic(&mut plan);
                plan["force_rootless"] = json!(rootless);
                plan
            };
            let Some((folder, plan, said)) = undisturbed(build, &format!("ring-{name}-{rootless}")) else {
                return;
            };
            let (found, dropped) = arrivals(&folder);
            assert_eq!(dropped, 0, "{name}");
            replayed(&folder, &plan, name);
            let live = folder.live();
            if said.code == 0 {
                // Four links of 366 bytes at most, and three switches.
                let most = found.values().map(|(_, latency)| *latency).max().unwrap();
                assert!(
                    most < 4 * (366 * 800 + 5_000) * 2 + 3 * DELAY.1.cast_signed(),
                    "{name}: {found:?}"
                );
            }
            for at in [
                "at2 100 40",
                "at3 50 32",
                "group2 50 24",
                "group3 50 24",
                "group4 50 24",
            ] {
                let (log, expected) = at.split_once(' ').unwrap();
                let heard = folder.read(&format!("logs/{log}.log"));
                assert!(
                    real.len() != 3 || heard.trim() == expected,
                    "{name}: {log}: {heard:?} instead of {expected:?}"
                );
            }
            assert_eq!(live["switches"].as_array().map_or(0, Vec::len), real.len());
            let counts: BTreeMap<_, _> = found.iter().map(|(key, value)| (*key, value.0)).collect();
            both.push(counts);
        }
    }
    assert!(both.windows(2).all(|pair| pair[0] == pair[1]), "{both:?}");
}

/// 150 % of the link from s1 to s2 in best effort beside a stream of class 5.
fn overload(folder: &Folder, real: &[&str]) -> Value {
    let mut plan = ring(folder, real, 2.5);
    for link in plan["network"]["links"].as_array_mut().unwrap() {
        for way in ["forward", "backward"] {
            link[way]["buffer_bytes"] = json!(30_000);
        }
    }
    plan["programs"] = json!([
        listener("at2", "h2", 7000, false),
        python(
            "flood",
            "h4",
            &sender("10.1.0.2", 7003, 2_400, 746, 0.000_83),
            Some(100_000_000)
        ),
        python(
            "beside",
            "h1",
            &sender("10.1.0.2", 7004, 1_200, 746, 0.001_6),
            Some(100_000_000)
        ),
        python(
            "urgent",
            "h1",
            &sender("10.1.0.2", 7000, 150, 100, 0.01),
            Some(300_000_000)
        ),
    ]);
    plan
}

#[test]
fn a_marked_stream_keeps_its_bound_through_real_switches_under_overload_that_loses_best_effort() {
    if !has_ovs() {
        return;
    }
    let real = ["s1", "s2", "s3"];
    let Some((folder, plan, said)) = undisturbed(|folder| overload(folder, &real), "overload") else {
        return;
    };
    let (found, _) = arrivals(&folder);
    let live = folder.live();
    let ports = live["ports"].as_array().unwrap();
    let crowded = ports.iter().find(|port| port["port"] == "s1->s2").unwrap();
    let lost = crowded["dropped_buffer"].as_u64().unwrap();
    assert!(lost > 100, "no overload: {lost} frames lost");
    let (count, latency) = found[&(0, 0)];
    let sent = records::<INGRESS_RECORD>(&folder.0.join("ingress.bin"))
        .iter()
        .map(IngressRecord::decode)
        .filter(|record| record.kind == 0 && record.stream == 0)
        .count();
    assert!(sent > 30, "the sender did not get round to it: {sent}");
    assert_eq!(count, sent, "a frame of class 5 was lost");
    // Three links of 166 bytes, each behind one full frame of 812 bytes at most, and two switches.
    let bound = 3 * (166 + 812) * 800 + 3 * 5_000 + 2 * DELAY.1.cast_signed();
    assert!(said.code == 4 || latency <= bound, "{latency} above {bound}");
    replayed(&folder, &plan, "overload");
    println!("class 5: {count} frames, {latency} ns at most, bound {bound}; {lost} lost of best effort");
}

#[test]
fn when_open_vswitch_dies_the_run_says_so_and_leaves_nothing_behind() {
    if !has_ovs() {
        return;
    }
    let folder = Folder::new("killed");
    let mut plan = ring(&folder, &["s1"], 20.0);
    let script = sender("10.1.0.2", 7000, 2_000, 100, 0.01);
    plan["programs"] = json!([python("urgent", "h1", &script, None)]);
    let mut sandbox = Sandbox::start(&folder, &plan);
    if !sandbox.await_phase("measure") {
        let said = sandbox.finish();
        assert!(
            said.failure().contains("cannot create namespaces"),
            "{}",
            said.failure()
        );
        return skip(said.failure());
    }
    let victim = process(&format!("{}/ovs/ovs-vswitchd.ctl", folder.0.display())).expect("the switches run");
    // SAFETY: ends a process that this test started, by its id.
    assert_eq!(unsafe { libc::kill(victim, libc::SIGKILL) }, 0);
    let said = sandbox.finish();
    assert_eq!(said.code, 3, "{}", said.failure());
    let why = said.failure();
    for part in ["ovs-vswitchd", "signal 9", "logs/ovs-vswitchd.log"] {
        assert!(why.contains(part), "{why}");
    }
    let anything = format!("{}/ovs/", folder.0.display());
    assert!(
        within_two_seconds(|| !is_running(&anything)),
        "something of Open vSwitch still runs"
    );
}

/// The process that has this in its command line.
fn process(needle: &str) -> Option<libc::pid_t> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<libc::pid_t>().ok())
        .find(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").contains(needle)
        })
}

/// A controller in few words: takes the switches' hellos, floods along a tree of links, and marks what is for port 7000.
const CONTROLLER: &str = r#"
import os, socket, subprocess, json
switches = json.load(open(os.environ["TIMEBOUND_RUN"] + "/switches.json"))["switches"]
server = socket.socket()
server.bind(("127.0.0.1", 6653))
server.listen()
held = []
for _ in switches:
    peer, _ = server.accept()
    header = peer.recv(8)
    assert header[0] == 4, header
    peer.sendall(bytes([4, 0, 0, 8, 0, 0, 0, 1]))
    held.append(peer)
for switch in switches:
    numbers = [port["number"] for port in switch["ports"] if {switch["name"], port["neighbour"]} != {"s1", "s3"}]
    out = ",".join(f"output:{number}" for number in numbers)
    for rule in (f"priority=1,actions={out}", f"priority=9,udp,tp_dst=7000,actions=set_field:40->ip_dscp,{out}"):
        subprocess.run(["ovs-ofctl", "-O", "OpenFlow13", "add-flow", switch["name"], rule], check=True)
asked = ["ovs-vsctl", "--db=" + os.environ["TIMEBOUND_OVSDB"], "get", "controller", "s1", "max_backoff"]
said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
open("controller-ready", "w").write(said)
while held[0].recv(4096): pass
"#;

#[test]
fn a_controller_takes_over_before_anything_is_measured_and_its_marks_decide_the_queue() {
    if !has_ovs() {
        return;
    }
    let build = |folder: &Folder| {
        let mut plan = ring(folder, &["s1", "s2", "s3"], 3.0);
        plan["switches"]["controller"] = json!("tcp:127.0.0.1:6653");
        let mut controller = python("controller", ".switches", CONTROLLER, None);
        controller["ready"] = json!({"file": "controller-ready", "timeout_ms": 20_000});
        // OVSDB is to be had in the nodes, too.
        let list = "import os,subprocess\nsubprocess.run(['ovs-vsctl','--db='+os.environ['TIMEBOUND_OVSDB'],'list-br'])";
        plan["programs"] = json!([
            controller,
            python("asks", "h3", list, None),
            listener("at2", "h2", 7000, false),
            listener("at3", "h3", 7001, false),
            python(
                "urgent",
                "h1",
                &sender("10.1.0.2", 7000, 100, 100, 0.01),
                Some(100_000_000)
            ),
            python(
                "detour",
                "h1",
                &sender("10.1.0.3", 7001, 50, 300, 0.02),
                Some(100_000_000)
            ),
        ]);
        plan
    };
    let Some((folder, plan, _)) = undisturbed(build, "controller") else {
        return;
    };
    assert_eq!(folder.read("controller-ready").trim(), "1000");
    let bridges = folder.read("logs/asks.log");
    assert_eq!(bridges.split_whitespace().collect::<Vec<_>>(), ["s1", "s2", "s3"]);
    // Marked by the switches alone: the hosts send best effort.
    assert_eq!(folder.read("logs/at2.log").trim(), "100 40");
    assert_eq!(folder.read("logs/at3.log").trim(), "50 0");
    let (found, _) = arrivals(&folder);
    assert_eq!((found[&(0, 0)].0, found[&(1, 0)].0), (100, 50));
    replayed(&folder, &plan, "controller");
}

#[test]
fn a_link_that_goes_down_takes_the_carrier_of_the_switches_ports_with_it_and_gives_it_back() {
    if !has_ovs() {
        return;
    }
    let build = |folder: &Folder| {
        let mut plan = ring(folder, &["s1", "s2"], 6.0);
        let event = |at: u64, from: &str, to: &str, up: bool| json!({"at_ns": at, "port": {"from": from, "to": to}, "up": up});
        let both = |at: u64, up: bool| [event(at, "s1", "s2", up), event(at, "s2", "s1", up)];
        plan["events"] = json!([both(500_000_000, false), both(3_500_000_000, true)].concat());
        let ask = |name: &str, start_ns: u64| {
            let script = "import subprocess\nfor port in ('s1-s2','s2-s1','s1-h1'):\n subprocess.run(['ovs-vsctl','get','interface',port,'link_state'])\n";
            python(name, "h3", script, Some(start_ns))
        };
        plan["programs"] = json!([
            ask("during", 1_000_000_000),
            ask("after", 4_200_000_000),
            listener("at2", "h2", 7000, false),
            // Until after the link is back: an interpreter may take longer to start than the link stays.
            python(
                "urgent",
                "h1",
                &sender("10.1.0.2", 7000, 500, 100, 0.01),
                Some(100_000_000)
            ),
        ]);
        plan
    };
    let Some((folder, plan, _)) = undisturbed(build, "carrier") else {
        return;
    };
    let state = |log: &str| {
        folder
            .read(&format!("logs/{log}.log"))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(state("during"), "down down up");
    assert_eq!(state("after"), "up up up");
    let precision = &folder.live()["precision"];
    assert_eq!(
        (&precision["handover_refused"], &precision["early"]),
        (&json!(0), &json!(0))
    );
    replayed(&folder, &plan, "carrier");
}

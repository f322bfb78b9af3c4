//! One fabric, two clocks: what entered an emulated run, replayed in the simulator, leaves at the same virtual times.

mod common;

#[path = "common/replay.rs"]
mod replay;

use common::{Folder, direction, plan, python, run};
use replay::replayed;
use serde_json::{Value, json};

/// Bursts of three classes, more than the link carries. An interpreter takes longer than the run to start where the machine is busy, so it is there before,
/// and told by a file when the run begins.
const TRAFFIC: &str = "import os,socket,time\nss=[]\nfor c in (0,3,6):\n s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n \
    s.setsockopt(socket.IPPROTO_IP,socket.IP_TOS,c<<5)\n ss.append(s)\n\
    open('listens','w').close()\nwhile not os.path.exists('begun'): time.sleep(.001)\nfor i in range(120):\n for j,s in enumerate(ss):\n  \
    s.sendto(bytes(200+400*j),('10.1.0.2',7001+j))\n time.sleep(0.001+0.002*(i%3==0))\n";

fn variants() -> Vec<(&'static str, Value, Value)> {
    let strict = json!({"kind": "strict-priority"});
    let uniform = json!({"kind": "uniform", "max_ns": 3_000_000});
    vec![
        ("strict-priority", strict.clone(), json!({})),
        ("fifo", json!({"kind": "fifo"}), json!({})),
        (
            "drr",
            json!({"kind": "drr", "quanta_bytes": [1538, 1538, 1538, 3000, 1538, 1538, 6000, 1538]}),
            json!({}),
        ),
        (
            "bernoulli",
            strict.clone(),
            json!({"loss": {"kind": "bernoulli", "probability": 0.2}}),
        ),
        (
            "gilbert",
            strict.clone(),
            json!({"loss": {"kind": "gilbert-elliott", "good_to_bad": 0.1, "bad_to_good": 0.3,
            "loss_in_good": 0.0, "loss_in_bad": 0.9}}),
        ),
        (
            "jitter",
            strict.clone(),
            json!({"jitter": {"distribution": uniform}}),
        ),
        (
            "reordering",
            strict.clone(),
            json!({"jitter": {"distribution": uniform, "reorder": true}}),
        ),
        (
            "normal",
            strict.clone(),
            json!({"jitter": {"distribution":
            {"kind": "normal", "mean_ns": 1_000_000, "deviation_ns": 500_000, "max_ns": 3_000_000}}}),
        ),
        (
            "pareto",
            strict.clone(),
            json!({"jitter": {"distribution":
            {"kind": "pareto", "scale_ns": 100_000, "alpha": 2.5, "max_ns": 9_000_000}}}),
        ),
        (
            "exponential",
            strict.clone(),
            json!({"jitter": {"distribution":
            {"kind": "exponential", "mean_ns": 300_000, "max_ns": 5_000_000}, "reorder": true}}),
        ),
        ("corruption", strict.clone(), json!({"corruption": 0.3})),
        (
            "corruption-drops",
            strict.clone(),
            json!({"corruption": 0.3, "corruption_drops": true}),
        ),
        ("duplication", strict.clone(), json!({"duplication": 0.3})),
        (
            "outage",
            strict.clone(),
            json!({"outages": [[100_000_000, 200_000_000], [250_000_000, 260_000_000]]}),
        ),
        (
            "outage-held",
            strict.clone(),
            json!({"outages": [[100_000_000, 140_000_000], [150_000_000, 160_000_000]], "held": true}),
        ),
        (
            "disconnections",
            strict.clone(),
            json!({"disconnections": {"mean_up_ns": 20_000_000, "mean_down_ns": 10_000_000, "distribution": "exponential"}}),
        ),
        (
            "disconnections-held",
            strict.clone(),
            json!({"held": true, "disconnections":
            {"mean_up_ns": 20_000_000, "mean_down_ns": 3_000_000, "distribution": "fixed"}}),
        ),
        ("trace", strict.clone(), json!({})),
        (
            "trace-disconnected",
            strict,
            json!({"disconnections": {"mean_up_ns": 20_000_000, "mean_down_ns": 10_000_000, "distribution": "exponential"}}),
        ),
    ]
}

#[test]
fn an_emulated_run_replayed_in_the_simulator_departs_at_the_same_times() {
    let list = variants();
    // Two halves at a time would measure each other; one after the other they take half a second each.
    for (name, queue, impairments) in list {
        let folder = Folder::new(&format!("parity-{name}"));
        // At one of the rates frames take no whole nanoseconds, and take over what others leave of them.
        let rate = if name == "fifo" { 3_333_333 } else { 5_000_000 };
        let mut forward = direction(rate, 2_000_000, impairments);
        forward["queue"] = queue;
        forward["buffer_bytes"] = json!(20_000);
        if name.starts_with("trace") {
            forward["trace"] = json!("t");
        }
        let mut plan = plan(&folder, forward, 0.45);
        plan["network"]["traces"] = json!({"t": [1, 2, 2, 9]});
        plan["record_ingress"] = json!(true);
        plan["preflight"] = json!({"enabled": false});
        let mut sender = python("send", "h1", TRAFFIC, None);
        sender["ready"] = json!({"file": "listens", "timeout_ms": 20_000});
        let begin = json!({"name": "begin", "node": "h1", "argv": ["touch", "begun"], "start_ns": 0});
        plan["programs"] = json!([sender, begin]);
        plan["network"]["links"][1]["backward"]["queue"] = json!({"kind": "fifo"});
        let Some(said) = run(&folder, &plan) else { return };
        assert!(said.code == 0 || said.code == 4, "{name}: {}", said.failure());
        let found = replayed(&folder, &plan, name);
        let dropped = found.iter().filter(|record| record.outcome >= 16).count();
        assert!(
            dropped > 0
                || !matches!(
                    name,
                    "bernoulli"
                        | "gilbert"
                        | "corruption-drops"
                        | "outage"
                        | "disconnections"
                        | "trace-disconnected"
                ),
            "{name}"
        );
    }
}

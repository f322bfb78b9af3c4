//! However a run ends: what was measured is kept, what was created is gone, and the exit code says which it was.

mod common;

use common::{Folder, Sandbox, direction, is_running, plan, python, run, within_two_seconds};
use serde_json::json;

fn quick(folder: &Folder) -> serde_json::Value {
    plan(folder, direction(100_000_000, 0, json!({})), 0.2)
}

#[test]
fn a_run_as_root_and_without_ends_well_and_says_what_it_had() {
    for rootless in [false, true] {
        let folder = Folder::new(&format!("well-{rootless}"));
        let mut plan = quick(&folder);
        plan["force_rootless"] = json!(rootless);
        plan["programs"] = json!([{"name": "hello", "node": "h1", "argv": ["echo", "hello"]}]);
        let Some(said) = run(&folder, &plan) else { return };
        assert!(
            said.code == 0 || said.code == 4,
            "{} {}",
            said.code,
            said.failure()
        );
        let live = folder.live();
        assert_eq!(live["precision"]["early"], 0);
        assert!(
            live["precision"]["preflight"]
                .as_array()
                .unwrap()
                .iter()
                .all(|check| check["ok"] == true)
        );
        assert_eq!(live["programs"][0]["exit_code"], 0);
        assert_eq!(folder.read("logs/hello.log"), "hello\n");
        assert!(folder.read("nodes.csv").starts_with("t_ns,node,cpu_ns"));
        if rootless {
            assert_eq!(live["precision"]["rootless"], true);
        }
    }
}

#[test]
fn a_missing_program_is_named_before_anything_starts() {
    let folder = Folder::new("missing");
    let mut plan = quick(&folder);
    plan["programs"] = json!([{"name": "x", "node": "h1", "argv": ["no-such-program-of-ours"]}]);
    let said = Sandbox::start(&folder, &plan).finish();
    assert_eq!(said.code, 3);
    assert!(
        said.failure().contains("no-such-program-of-ours"),
        "{}",
        said.failure()
    );
    assert!(said.event("phase").is_none() && !folder.0.join("frames.bin").exists());
}

#[test]
fn a_plan_that_makes_no_sense_is_refused() {
    for (key, value, word) in [
        ("schema", json!(99), "schema"),
        (
            "markers",
            json!([{"source": "10.1.0.1", "destination": "10.1.0.2", "protocol": "udp", "data": "nobody"}]),
            "nobody",
        ),
        ("run_id", json!("../up"), "run_id"),
        (
            "events",
            json!([{"at_ns": 1, "port": {"from": "h1", "to": "h9"}}]),
            "h9",
        ),
    ] {
        let folder = Folder::new(&format!("nonsense-{key}"));
        let mut plan = quick(&folder);
        plan[key] = value;
        let said = Sandbox::start(&folder, &plan).finish();
        assert!(
            said.failure().contains(word) || said.failure().contains("namespaces"),
            "{}",
            said.failure()
        );
        assert!(said.code == 1 || said.code == 3);
    }
}

#[test]
fn an_essential_program_that_dies_ends_the_run_and_keeps_what_was_measured() {
    let folder = Folder::new("essential");
    let mut plan = quick(&folder);
    plan["duration_ns"] = json!(20_000_000_000u64);
    let mut broker = python(
        "broker",
        "h2",
        "import time; time.sleep(0.3); raise SystemExit(5)",
        None,
    );
    broker["essential"] = json!(true);
    plan["programs"] = json!([broker]);
    let Some(said) = run(&folder, &plan) else { return };
    assert_eq!(said.code, 3);
    assert!(
        said.failure().contains("broker") && said.failure().contains("status 5"),
        "{}",
        said.failure()
    );
    assert_eq!(folder.live()["programs"][0]["exit_code"], 5);
    assert!(folder.0.join("frames.bin").exists());
}

#[test]
fn asked_to_stop_it_keeps_what_was_measured() {
    for how in ["signal", "word", "end of input"] {
        let folder = Folder::new("stop");
        let mut plan = quick(&folder);
        plan["duration_ns"] = json!(60_000_000_000u64);
        plan["preflight"] = json!({"enabled": false});
        plan["programs"] = json!([
            python("receive", "h2", common::RECEIVER, None),
            python("send", "h1", &common::sender(100_000, 100, 0.002), Some(0))
        ]);
        let mut sandbox = Sandbox::start(&folder, &plan);
        if !sandbox.await_phase("measure") {
            return common::skip(sandbox.finish().failure());
        }
        let frames = || std::fs::metadata(folder.0.join("frames.bin")).map_or(0, |meta| meta.len());
        // While it runs: what is measured gets to the disk on the way, not at the end.
        assert!(within_two_seconds(|| frames() > 4800), "{how}: {}", frames());
        match how {
            // SAFETY: our own child, not waited for yet.
            "signal" => drop(unsafe { libc::kill(sandbox.child.id() as i32, libc::SIGINT) }),
            "word" => sandbox.say_stop(),
            _ => drop(sandbox.child.stdin.take()),
        }
        let said = sandbox.finish();
        assert_eq!(said.code, 130, "{how}: {}", said.failure());
        assert_eq!(frames() % 48, 0, "{how}");
        assert_eq!(folder.live()["exit_code"], 130);
    }
}

#[test]
fn killed_it_leaves_nothing() {
    for victim in ["sandbox", "parent"] {
        let folder = Folder::new(&format!("kill-{victim}"));
        let mut plan = quick(&folder);
        let mark = format!("timebound-test-{}-{victim}", std::process::id());
        plan["duration_ns"] = json!(60_000_000_000u64);
        plan["preflight"] = json!({"enabled": false});
        plan["programs"] =
            json!([{"name": "sleeper", "node": "h1", "argv": ["sh", "-c", format!("sleep 60; : {mark}")]}]);
        let file = folder.0.join("plan.json");
        std::fs::write(&file, plan.to_string()).unwrap();
        let program = env!("CARGO_BIN_EXE_live-sandbox");
        let mut command = std::process::Command::new(if victim == "parent" { "sh" } else { program });
        if victim == "parent" {
            // Something after it keeps the shell from becoming the sandbox itself.
            command
                .arg("-c")
                .arg(format!("{program} {}; true", file.display()));
        } else {
            command.arg(&file);
        }
        let (piped, null) = (std::process::Stdio::piped, std::process::Stdio::null);
        let child = command.stdin(piped()).stdout(null()).spawn().unwrap();
        let mut child = Sandbox { child };
        if !within_two_seconds(|| is_running(&mark)) {
            child.child.kill().unwrap();
            child.child.wait().unwrap();
            return common::skip("the sandbox did not start its program");
        }
        child.child.kill().unwrap();
        child.child.wait().unwrap();
        assert!(
            within_two_seconds(|| !is_running(&mark)),
            "{victim}: the program lives on"
        );
        let plan_name = file.display().to_string();
        assert!(
            within_two_seconds(|| !is_running(&plan_name)),
            "{victim}: the sandbox lives on"
        );
    }
}

/// Cgroup folders of runs with this id.
fn groups(run_id: &str) -> usize {
    let folders = ["cpu", "memory", ""].map(|tree| std::fs::read_dir(format!("/sys/fs/cgroup/{tree}")));
    let names = folders
        .into_iter()
        .flatten()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(run_id))
        .count()
}

#[test]
fn a_limited_program_gets_its_share_and_its_cgroups_go_even_when_killed() {
    if !timebound_live::doctor().cgroups_writable {
        return common::skip("cgroups cannot be written here");
    }
    let folder = Folder::new("limit");
    let mut plan = quick(&folder);
    let run_id = format!("limit{}", std::process::id());
    plan["run_id"] = json!(run_id);
    plan["duration_ns"] = json!(1_500_000_000u64);
    plan["preflight"] = json!({"enabled": false});
    plan["programs"] = json!([{"name": "busy", "node": "h1", "argv": ["sh", "-c", "while :; do :; done"], "stop_grace_ns": 0}]);
    plan["hosts"][0]["cpu"] = json!({"limit": 0.2});
    let Some(said) = run(&folder, &plan) else { return };
    if said.failure().contains("cgroups") {
        return common::skip(said.failure());
    }
    let busy = &folder.live()["programs"][0];
    let cpu = busy["user_cpu_ns"].as_u64().unwrap() + busy["system_cpu_ns"].as_u64().unwrap();
    assert!(cpu > 0 && cpu < 800_000_000, "{cpu} ns of CPU in 1.7 s at 20 %");
    assert_eq!(groups(&run_id), 0);

    plan["duration_ns"] = json!(60_000_000_000u64);
    let mut sandbox = Sandbox::start(&folder, &plan);
    assert!(sandbox.await_phase("measure"));
    sandbox.child.kill().unwrap();
    sandbox.child.wait().unwrap();
    assert!(groups(&run_id) > 0, "killed, nobody could remove them");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let other = Folder::new("sweep");
    assert!(run(&other, &quick(&other)).is_some());
    assert_eq!(groups(&run_id), 0, "the next start removes them");
}

#[test]
fn a_machine_too_busy_for_the_preflight_check_is_disturbed_after_three_attempts_not_unable() {
    let folder = Folder::new("busy-preflight");
    let mut plan = plan(&folder, direction(1_000_000_000, 1_000_000, json!({})), 0.1);
    // No time to send a single probe: what a starved machine looks like.
    plan["preflight"] = json!({"limit_ns": 1});
    let Some(said) = run(&folder, &plan) else { return };
    assert_eq!(said.code, 4, "{}", said.failure());
    assert!(
        said.failure()
            .starts_with("the machine was too busy for the pre-flight check, 3 times: latency: "),
        "{}",
        said.failure()
    );
    let repeated = |line: &&serde_json::Value| {
        let message = line["message"].as_str().unwrap_or_default();
        line["event"] == "log" && message.contains("is repeated")
    };
    assert_eq!(said.lines.iter().filter(repeated).count(), 2);
    assert_eq!(folder.live()["precision"]["verdict"], "not-run");
}

//! What a node has for itself: host name, files, environment, limits. Tried as root and without.

mod common;

use common::{Folder, direction, plan, python, run, skip};
use serde_json::{Value, json};

fn shell(name: &str, node: &str, script: &str) -> Value {
    json!({"name": name, "node": node, "argv": ["sh", "-c", script]})
}

fn short(folder: &Folder) -> Value {
    let mut plan = plan(folder, direction(100_000_000, 0, json!({})), 0.5);
    plan["preflight"] = json!({"enabled": false});
    plan
}

#[test]
fn a_node_has_its_own_name_files_and_environment_and_the_host_keeps_its_own() {
    let before = std::fs::read("/etc/hosts").unwrap_or_default();
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for rootless in [false, true] {
        let folder = Folder::new(&format!("rooms-{rootless}"));
        let source = folder.0.join("source.bin");
        std::fs::write(&source, [0u8, 255, 7]).unwrap();
        let mut plan = short(&folder);
        // Time for Python to start, also where others have the CPU.
        plan["duration_ns"] = json!(4_000_000_000u64);
        plan["force_rootless"] = json!(rootless);
        plan["hosts"][1]["hostname"] = json!("meter-2");
        plan["hosts"][0]["env"] = json!({"SITE": "north", "ROLE": "node"});
        plan["hosts"][0]["files"] = json!([
            {"path": "/etc/timebound-app/deep/app.conf", "content": "key = 1\n"},
            {"path": "/etc/timebound-blob", "source": source, "mode": 0o600},
            {"path": "/etc/passwd", "content": "changed\n"},
        ]);
        let look = "uname -n; cat /proc/sys/kernel/hostname /etc/hostname; getent hosts h2 meter-2; pwd; echo $SITE $ROLE $HOSTNAME; \
                    cat /etc/timebound-app/deep/app.conf /etc/passwd; od -An -tu1 /etc/timebound-blob; stat -c %a /etc/timebound-blob; \
                    ls /etc | grep -c . ; echo x 2>/dev/null >>/etc/hosts && echo written; PING >/dev/null && echo reached; ls -a | grep room";
        let look = look.replace("PING", &common::ping("h2", 2));
        let mut own = shell("look", "h1", &look);
        own["env"] = json!({"ROLE": "program"});
        let other = shell(
            "other",
            "h2",
            "uname -n; ls /etc/timebound-app 2>&1 | grep -c 'No such'; grep -c changed /etc/passwd; true",
        );
        plan["programs"] = json!([own, other]);
        let Some(said) = run(&folder, &plan) else { return };
        assert!(
            said.code == 0 || said.code == 4,
            "{} {}",
            said.code,
            said.failure()
        );
        let log = folder.read("logs/look.log");
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines[..3], ["h1"; 3], "{log}");
        assert!(
            lines[3].starts_with("10.1.0.2") && lines[4].ends_with("h2 meter-2"),
            "{log}"
        );
        assert_eq!(lines[5], folder.0.to_str().unwrap());
        assert_eq!(lines[6..9], ["north program h1", "key = 1", "changed"], "{log}");
        assert_eq!(lines[9].split_whitespace().collect::<Vec<_>>(), ["0", "255", "7"]);
        assert_eq!(lines[10], "600");
        assert!(
            lines[11].parse::<usize>().unwrap() > 10,
            "the rest of /etc is there: {log}"
        );
        assert!(!log.contains("written"), "the shared hosts file can be written");
        assert_eq!(lines.last(), Some(&"reached"), "{log}");
        assert_eq!(folder.read("logs/other.log"), "meter-2\n1\n0\n");
        assert!(!std::path::Path::new("/etc/timebound-app").exists());
        assert!(!folder.0.join(".room").exists());
    }
    assert_eq!(std::fs::read("/etc/hosts").unwrap_or_default(), before);
    assert_eq!(
        std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap(),
        name
    );
}

#[test]
fn a_file_that_leaves_its_place_is_refused() {
    for path in ["../etc/x", "/etc/../x", "/proc/x", "relative", "/"] {
        let folder = Folder::new("escape");
        let mut plan = short(&folder);
        plan["hosts"][0]["files"] = json!([{"path": path, "content": ""}]);
        let Some(said) = run(&folder, &plan) else { return };
        assert_eq!(said.code, 1, "{path}");
        assert!(
            said.failure().contains("cannot be a file of a node"),
            "{}",
            said.failure()
        );
    }
    let folder = Folder::new("nowhere");
    let mut plan = short(&folder);
    plan["hosts"][0]["files"] = json!([{"path": "/no-such-folder-of-ours/x", "content": ""}]);
    plan["programs"] = json!([shell("look", "h1", "true")]);
    let Some(said) = run(&folder, &plan) else { return };
    assert_eq!(said.code, 3);
    assert!(
        said.failure().contains("choose a path beneath"),
        "{}",
        said.failure()
    );
}

/// Can nodes be limited here? Says why not otherwise.
fn limits_work() -> bool {
    if !timebound_live::doctor().cgroups_writable {
        skip("cgroups cannot be written here");
        return false;
    }
    true
}

#[test]
fn all_programs_of_a_node_together_get_its_share() {
    if !limits_work() {
        return;
    }
    let folder = Folder::new("share");
    let mut plan = short(&folder);
    plan["duration_ns"] = json!(2_000_000_000u64);
    plan["hosts"][0]["cpu"] = json!({"limit": 0.2});
    // A quota can only be used up by who gets the CPU: it competes with whatever else runs.
    let mut busy: Vec<Value> = ["one", "two"]
        .map(|name| shell(name, "h1", "while :; do :; done"))
        .into();
    busy.iter_mut()
        .for_each(|program| program["stop_grace_ns"] = json!(0));
    plan["programs"] = json!(busy);
    let Some(said) = run(&folder, &plan) else { return };
    assert!(said.code == 0 || said.code == 4, "{}", said.failure());
    let live = folder.live();
    let cpu: u64 = live["programs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|program| program["user_cpu_ns"].as_u64().unwrap() + program["system_cpu_ns"].as_u64().unwrap())
        .sum();
    let wall = live["programs"][0]["ended_ns"].as_i64().unwrap()
        - live["programs"][0]["started_ns"].as_i64().unwrap();
    let share = cpu as f64 / wall as f64;
    println!("two busy programs in a node of 20 %: {:.1} %", share * 100.0);
    assert!(share > 0.02 && share < 0.26, "{share}");
    let text = folder.read("nodes.csv");
    let last = text.lines().rev().find(|line| line.contains(",h1,")).unwrap();
    let cells: Vec<&str> = last.split(',').collect();
    assert!(cells[11].parse::<u64>().unwrap() > 0, "never throttled: {last}");
    let other = text.lines().rev().find(|line| line.contains(",h2,")).unwrap();
    assert!(other.ends_with(",,"), "{other}");
}

#[test]
fn a_program_beyond_the_memory_of_its_node_is_reported_as_out_of_memory() {
    if !limits_work() {
        return;
    }
    let folder = Folder::new("memory");
    let mut plan = short(&folder);
    plan["duration_ns"] = json!(20_000_000_000u64);
    plan["hosts"][0]["memory_bytes"] = json!(32 << 20);
    let mut hungry = python("hungry", "h1", "x = bytearray(200 << 20); print(len(x))", None);
    hungry["essential"] = json!(true);
    plan["programs"] = json!([
        hungry,
        python("free", "h2", "x = bytearray(200 << 20); print(len(x))", None)
    ]);
    let Some(said) = run(&folder, &plan) else { return };
    assert_eq!(said.code, 3);
    assert!(said.failure().contains("out of memory"), "{}", said.failure());
    let live = folder.live();
    assert_eq!(
        (
            &live["programs"][0]["signal"],
            &live["programs"][0]["out_of_memory"]
        ),
        (&json!(9), &json!(true))
    );
    assert_eq!(live["programs"][1]["out_of_memory"], false);
}

#[test]
fn reservations_beyond_the_cpus_are_refused() {
    let folder = Folder::new("reserve");
    let mut plan = short(&folder);
    plan["hosts"][0]["cpu"] = json!({"reservation": 100_000.0});
    let said = common::Sandbox::start(&folder, &plan).finish();
    assert_eq!(said.code, 3);
    assert!(said.failure().contains("reserve less"), "{}", said.failure());
}

#[test]
fn without_cgroups_a_limit_is_refused_and_says_what_to_do() {
    let folder = Folder::new("no-cgroups");
    let mut plan = short(&folder);
    plan["hosts"][0]["cpu"] = json!({"limit": 0.5});
    let file = folder.0.join("plan.json");
    std::fs::write(&file, plan.to_string()).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_live-sandbox"));
    command.arg(&file);
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        // Nobody may make groups; what is needed to start must be readable to nobody then.
        let program = folder.0.join("live-sandbox");
        std::fs::copy(env!("CARGO_BIN_EXE_live-sandbox"), &program).unwrap();
        command = std::process::Command::new(program);
        command.arg(&file);
        std::os::unix::process::CommandExt::uid(&mut command, 65_534);
    }
    let done = command.output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.status.code(), Some(3), "{text}");
    assert!(
        text.contains("run as root") && text.contains("leave out cpu"),
        "{text}"
    );
}

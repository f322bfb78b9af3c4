//! Orders while a run goes on: commands in nodes, stops and starts; and that killing any part leaves nothing and harms nobody.

mod common;

use common::{Folder, Sandbox, direction, is_running, plan, python, within_two_seconds};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A run that can be found; measures for a minute unless it is stopped.
fn commanded(folder: &Folder, registry: &Path, run_id: &str) -> Value {
    let mut plan = plan(folder, direction(100_000_000, 0, json!({})), 60.0);
    plan["run_id"] = json!(run_id);
    plan["preflight"] = json!({"enabled": false});
    plan["control"] = json!({"registry": registry, "scenario": "test", "file": null});
    plan
}

fn sockets(registry: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(registry)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    files
        .filter(|path| path.extension().is_some_and(|end| end == "sock"))
        .collect()
}

/// Our side of the contract.
struct Orders {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    next: u64,
}

impl Orders {
    fn connect(registry: &Path) -> Self {
        let stream = UnixStream::connect(&sockets(registry)[0]).unwrap();
        stream
            .set_read_timeout(Some(std::time::Duration::from_secs(20)))
            .unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self {
            stream,
            reader,
            next: 1,
        }
    }

    fn send(&mut self, order: &Value, descriptors: &[RawFd]) -> u64 {
        let id = self.next;
        self.next += 1;
        let line = format!("{}\n", json!({"version": 1, "id": id, "order": order}));
        if descriptors.is_empty() {
            self.stream.write_all(line.as_bytes()).unwrap();
        } else {
            send_with(&self.stream, line.as_bytes(), descriptors);
        }
        id
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, order: &Value) -> Value {
        self.send(order, &[]);
        self.answer()
    }

    /// Runs a shell script in a node and waits for it: exit code and output.
    fn run(&mut self, node: &str, script: &str) -> (i64, String) {
        let output =
            std::env::temp_dir().join(format!("timebound-exec-{}-{}", std::process::id(), self.next));
        let file = std::fs::File::create(&output).unwrap();
        let nothing = std::fs::File::open("/dev/null").unwrap();
        let order = json!({"exec": {"node": node, "argv": ["sh", "-c", script]}});
        self.send(&order, &[nothing.as_raw_fd(), file.as_raw_fd(), file.as_raw_fd()]);
        let started = self.answer();
        assert!(started["ok"]["pid"].is_i64(), "{started}");
        let code = self.answer()["ended"]["exit_code"].as_i64().unwrap_or(-1);
        let text = std::fs::read_to_string(&output).unwrap();
        std::fs::remove_file(&output).unwrap();
        (code, text)
    }

    fn state(&mut self, node: &str) -> String {
        let status = self.ask(&json!("status"));
        let nodes = status["ok"]["nodes"].as_array().unwrap();
        let found = nodes.iter().find(|entry| entry["node"] == node).unwrap();
        found["state"].as_str().unwrap().to_owned()
    }
}

fn send_with(stream: &UnixStream, bytes: &[u8], descriptors: &[RawFd]) {
    let mut room = [0u64; 16];
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: zero is a valid msghdr; all buffers live for the call, and the room is large enough for three descriptors.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.as_mut_ptr().cast();
        let length = size_of_val(descriptors) as u32;
        message.msg_controllen = libc::CMSG_SPACE(length) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(length) as _;
        std::ptr::copy_nonoverlapping(
            descriptors.as_ptr(),
            libc::CMSG_DATA(header).cast(),
            descriptors.len(),
        );
        assert_eq!(
            libc::sendmsg(stream.as_raw_fd(), &raw const message, 0),
            bytes.len() as isize
        );
    }
}

#[test]
fn commands_run_in_their_nodes_and_nodes_stop_pause_and_start_again() {
    let (folder, registry) = (Folder::new("orders"), Folder::new("orders-reg"));
    let mut plan = commanded(&folder, &registry.0, "orders");
    let mark = format!("timebound-server-{}", std::process::id());
    plan["programs"] = json!([python(
        "server",
        "h2",
        &format!("import time\nfor i in range(9999): time.sleep(0.05); # {mark}"),
        None
    )]);
    let mut sandbox = Sandbox::start(&folder, &plan);
    if !sandbox.await_phase("measure") {
        return common::skip(sandbox.finish().failure());
    }
    let mut orders = Orders::connect(&registry.0);
    let (code, text) = orders.run("h1", "cat /proc/net/fib_trie /proc/net/route; exit 7");
    assert_eq!(code, 7);
    // Its address, and the network of 16 bits behind its interface (in the kernel's order of bytes).
    assert!(
        text.contains("10.1.0.1\n") && text.contains("eth0\t0000010A\t"),
        "{text}"
    );
    assert!(orders.ask(&json!({"node": {"nodes": ["h9"], "order": "stop"}}))["error"].is_string());
    assert!(orders.ask(&json!({"node": {"nodes": ["h2"], "order": "resume"}}))["error"].is_string());
    assert!(
        orders.ask(&json!("top"))["ok"]["links"]
            .as_array()
            .is_some_and(|links| links.len() == 4)
    );

    let obeyed = json!({});
    assert_eq!(
        orders.ask(&json!({"node": {"nodes": ["h2"], "order": "pause"}}))["ok"],
        obeyed
    );
    assert_eq!(orders.state("h2"), "paused");
    assert_eq!(
        orders.run("h1", &common::ping("10.1.0.2", 2)).0,
        0,
        "its kernel goes on"
    );
    assert_eq!(
        orders.ask(&json!({"node": {"nodes": ["h2"], "order": "resume"}}))["ok"],
        obeyed
    );
    assert!(is_running(&mark));
    assert_eq!(
        orders.ask(&json!({"node": {"nodes": ["h2"], "order": "stop"}}))["ok"],
        obeyed
    );
    assert!(!is_running(&mark) && orders.state("h2") == "stopped");
    assert_ne!(
        orders.run("h1", &common::ping("10.1.0.2", 1)).0,
        0,
        "nobody is there"
    );
    assert_eq!(
        orders.ask(&json!({"node": {"nodes": ["h2"], "order": "start"}}))["ok"],
        obeyed
    );
    assert!(within_two_seconds(|| is_running(&mark)));
    assert_eq!(
        orders.run("h1", &common::ping("10.1.0.2", 2)).0,
        0,
        "its routes and neighbours are back"
    );

    // Commands end with whoever asked for them, and with the run.
    let sleeper = format!("timebound-sleep-{}", std::process::id());
    let nothing = std::fs::File::open("/dev/null").unwrap();
    let fd = nothing.as_raw_fd();
    let order = json!({"exec": {"node": "h1", "argv": ["sh", "-c", format!("sleep 50; : {sleeper}")]}});
    orders.send(&order, &[fd, fd, fd]);
    assert!(orders.answer()["ok"].is_object());
    assert!(within_two_seconds(|| is_running(&sleeper)));
    drop(orders);
    assert!(within_two_seconds(|| !is_running(&sleeper)));

    sandbox.say_stop();
    let said = sandbox.finish();
    assert_eq!(said.code, 130, "{}", said.failure());
    assert!(
        std::fs::read_dir(&registry.0).unwrap().next().is_none(),
        "its entry goes with it"
    );
    let live = folder.live();
    let done: Vec<_> = live["lifecycle"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["order"].as_str().unwrap())
        .collect();
    assert_eq!(done, ["pause", "resume", "stop", "start"]);
    assert!(
        live["lifecycle"]
            .as_array()
            .unwrap()
            .iter()
            .all(|event| event["done_ns"].is_i64() && event["problem"].is_null())
    );
    assert_eq!(
        live["precision"]["handover_refused"], 0,
        "frames to a stopped node are not refused"
    );
    let starts = live["programs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|program| program["name"] == "server")
        .count();
    assert_eq!(starts, 2);
}

#[test]
fn a_schedule_is_kept() {
    let (folder, registry) = (Folder::new("schedule"), Folder::new("schedule-reg"));
    let mut plan = commanded(&folder, &registry.0, "schedule");
    plan["duration_ns"] = json!(1_500_000_000u64);
    plan["lifecycle"] = json!([{"at_ns": 800_000_000, "node": "h2", "order": "start"},
                               {"at_ns": 300_000_000, "node": "h2", "order": "stop"}]);
    let Some(said) = common::run(&folder, &plan) else {
        return;
    };
    assert!(said.code == 0 || said.code == 4, "{}", said.failure());
    let live = folder.live();
    let events = live["lifecycle"].as_array().unwrap();
    assert_eq!(events.len(), 2);
    for (event, (order, at)) in events.iter().zip([("stop", 300_000_000), ("start", 800_000_000)]) {
        assert_eq!(event["order"], order);
        assert!(
            event["asked_ns"].as_i64().unwrap() >= at && event["done_ns"].is_i64(),
            "{event}"
        );
    }
}

/// Processes whose ancestor is `root`, with it, in the order of `/proc`.
fn family(root: u32) -> Vec<u32> {
    let parent = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        text.rsplit_once(')')?
            .1
            .split_ascii_whitespace()
            .nth(1)?
            .parse::<u32>()
            .ok()
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_of = |mut pid: u32| {
        while pid > 1 && pid != root {
            pid = parent(pid).unwrap_or(0);
        }
        pid == root
    };
    pids.filter(|pid| is_of(*pid)).collect()
}

/// Numbers that look random and are the same in every run (Marsaglia's xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }
}

#[test]
fn killing_any_part_at_any_moment_leaves_nothing_and_harms_nobody() {
    const KILLS: usize = 20;
    let registry = Folder::new("kills-reg");
    let bystander = Folder::new("bystander");
    let beside = format!("timebound-beside-{}", std::process::id());
    let mut plan = commanded(&bystander, &registry.0, "bystander");
    plan["programs"] = json!([python(
        "beside",
        "h1",
        &format!("import time\nfor i in range(9999): time.sleep(0.05); # {beside}"),
        None
    )]);
    let mut unharmed = Sandbox::start(&bystander, &plan);
    if !unharmed.await_phase("measure") {
        return common::skip(unharmed.finish().failure());
    }
    let entries = |registry: &Path| std::fs::read_dir(registry).unwrap().count();
    let own = entries(&registry.0);
    let mut dice = Dice(0x7469_6d65_626f_756e);
    for kill in 0..KILLS {
        let folder = Folder::new(&format!("kill-{kill}"));
        let mark = format!("timebound-victim-{}-{kill}-", std::process::id());
        let mut plan = commanded(&folder, &registry.0, &format!("victim{kill}"));
        let script = format!("import time\nfor i in range(9999): time.sleep(0.05); # {mark}");
        plan["programs"] = json!([
            python("one", "h1", &script, None),
            python("two", "h2", &script, None)
        ]);
        let mut victim = Sandbox::start(&folder, &plan);
        std::thread::sleep(std::time::Duration::from_millis(dice.below(250) as u64));
        let family = family(victim.child.id());
        let chosen = family[dice.below(family.len())];
        // SAFETY: a process of our own child's family; the child has not been waited for.
        unsafe { libc::kill(chosen as i32, libc::SIGKILL) };
        // A program that is killed is the experiment's own affair: it goes on, and is ended by killing its owner.
        std::thread::sleep(std::time::Duration::from_millis(20));
        victim.child.kill().unwrap();
        victim.child.wait().unwrap();
        timebound_live::sweep(std::slice::from_ref(&registry.0));
        assert!(
            within_two_seconds(|| !is_running(&mark)),
            "kill {kill} of {chosen}: a program lives on"
        );
        let path = folder.0.join("plan.json").display().to_string();
        assert!(
            within_two_seconds(|| !is_running(&path)),
            "kill {kill} of {chosen}: the sandbox lives on"
        );
        timebound_live::sweep(std::slice::from_ref(&registry.0));
        assert_eq!(
            entries(&registry.0),
            own,
            "kill {kill} of {chosen}: an entry is left, or another's was taken"
        );
        assert!(
            is_running(&beside),
            "kill {kill} of {chosen} harmed another experiment"
        );
    }
    let mut orders = Orders::connect(&registry.0);
    assert_eq!(orders.run("h1", &common::ping("10.1.0.2", 2)).0, 0);
    unharmed.say_stop();
    let said = unharmed.finish();
    assert_eq!(said.code, 130, "{}", said.failure());
    assert_eq!(bystander.live()["failure"], "stopped before its time");
    assert_eq!(entries(&registry.0), 0);
}

//! What a program of a node may do to the host, whoever started the run: nothing. Tried as root and without.

mod common;

use common::{Folder, direction, plan, python, run, skip};
use serde_json::{Value, json};

fn short(folder: &Folder, rootless: bool) -> Value {
    let mut plan = plan(folder, direction(100_000_000, 0, json!({})), 0.5);
    plan["preflight"] = json!({"enabled": false});
    plan["duration_ns"] = json!(4_000_000_000u64);
    plan["force_rootless"] = json!(rootless);
    plan
}

/// The output of a script of Python in node h1; `None` where this host has no namespaces.
fn output(name: &str, rootless: bool, script: &str) -> Option<String> {
    let folder = Folder::new(&format!("{name}-{rootless}"));
    let mut plan = short(&folder, rootless);
    let mut program = python("look", "h1", script, None);
    // Named, and yet to be written to.
    std::fs::write(folder.0.join("settings"), "x").unwrap();
    program["argv"].as_array_mut().unwrap().push(json!("settings"));
    plan["programs"] = json!([program]);
    let said = run(&folder, &plan)?;
    assert!(
        said.code == 0 || said.code == 4,
        "{} {}",
        said.code,
        said.failure()
    );
    let log = folder.read("logs/look.log");
    assert_eq!(folder.live()["programs"][0]["exit_code"], 0, "{log}");
    Some(log)
}

#[test]
fn a_program_has_roots_rights_over_its_network_and_no_others() {
    let script = "import socket\n\
        for line in open('/proc/self/status'):\n  if line.startswith(('CapEff', 'CapBnd', 'CapPrm', 'NoNewPrivs')): print(*line.split())\n\
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)\nsocket.socket().bind(('0.0.0.0', 80))\nprint('network')";
    for rootless in [false, true] {
        let Some(log) = output("rights", rootless, script) else {
            return;
        };
        let lines: Vec<&str> = log.lines().collect();
        let kept = "0000000080043dfb";
        let expected = [
            format!("CapPrm: {kept}"),
            format!("CapEff: {kept}"),
            format!("CapBnd: {kept}"),
            "NoNewPrivs: 1".to_owned(),
            "network".to_owned(),
        ];
        assert_eq!(lines, expected, "{log}");
    }
}

/// Tries everything in a list and prints what worked: the name before the colon of each line that has no error.
const TRY: &str = "import os, socket\n\
    def attempt(name, work):\n  try: work(); print(name)\n  except OSError: pass\n\
    def write(path):\n  with open(path, 'a') as file: file.write('x')\n";

#[test]
fn a_program_cannot_write_to_the_host_and_has_folders_of_its_own() {
    let mark = format!("timebound-confined-{}", std::process::id());
    let mut script = TRY.to_owned();
    for folder in [
        "/etc", "/usr", "/var/lib", "/home", "/opt", "/tmp", "/var/tmp", "/run", "/dev/shm", ".",
    ] {
        script += &format!("attempt('{folder}', lambda: write('{folder}/{mark}'))\n");
    }
    // The settings of the host, each with the value that it has.
    for file in [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/vm/swappiness",
        "/sys/power/state",
    ] {
        script += &format!("attempt('{file}', lambda: os.close(os.open('{file}', os.O_WRONLY)))\n");
    }
    script += "attempt('settings of its network', lambda: open('/proc/sys/net/ipv4/ip_forward', 'w').write('1'))\n\
        attempt('shared settings', lambda: os.close(os.open('/proc/sys/net/ipv4/neigh/default/gc_thresh3', os.O_WRONLY)))\n\
        attempt('device', lambda: os.mknod('/tmp/device', 0o60600, os.makedev(7, 0)))\n\
        attempt('null', lambda: write('/dev/null'))\nattempt('settings', lambda: write('settings'))\n\
        print(os.listdir('/tmp'), sorted(os.listdir('/dev')), open('/etc/shadow').read() if os.access('/etc/shadow', 4) else '')";
    for rootless in [false, true] {
        let Some(log) = output("files", rootless, &script) else {
            return;
        };
        let lines: Vec<&str> = log.lines().collect();
        let (shown, worked) = lines.split_last().unwrap();
        let own = [
            "/tmp",
            "/var/tmp",
            "/run",
            "/dev/shm",
            ".",
            "settings of its network",
            "null",
            "settings",
        ];
        assert_eq!(worked, own, "{log}");
        assert!(
            shown.contains(&format!("'{mark}'")) && shown.ends_with("] "),
            "{log}"
        );
        assert!(
            !shown.contains("vda") && !shown.contains("kmsg") && !shown.contains("kvm"),
            "{log}"
        );
        for folder in ["/etc", "/tmp", "/var/tmp", "/run", "/dev/shm"] {
            assert!(!std::path::Path::new(folder).join(&mark).exists(), "{folder}");
        }
    }
}

#[test]
fn folders_are_read_only_until_whoever_runs_it_opens_them() {
    for opened in [false, true] {
        let folder = Folder::new(&format!("opened-{opened}"));
        let stated = Folder::new(&format!("stated-{opened}"));
        std::fs::write(
            stated.0.join("app.py"),
            "print('app', open('data').read())\nopen('written', 'w')",
        )
        .unwrap();
        std::fs::write(stated.0.join("data"), "here").unwrap();
        let mut plan = short(&folder, false);
        plan["programs"] =
            json!([{"name": "look", "node": "h1", "argv": ["python3", "app.py"], "folder": stated.0}]);
        plan[if opened { "writable" } else { "shown" }] = json!([stated.0]);
        let Some(said) = run(&folder, &plan) else { return };
        assert!(said.code == 0 || said.code == 4, "{}", said.failure());
        let log = folder.read("logs/look.log");
        assert!(log.contains("app here"), "{log}");
        assert_eq!(log.contains("Read-only file system"), !opened, "{log}");
        assert_eq!(stated.0.join("written").exists(), opened);
    }
    let folder = Folder::new("unseen");
    let stated = Folder::new("unseen-stated");
    let mut plan = short(&folder, false);
    plan["programs"] = json!([{"name": "look", "node": "h1", "argv": ["true"], "folder": stated.0}]);
    let Some(said) = run(&folder, &plan) else { return };
    assert_eq!(said.code, 3);
    assert!(
        said.failure().contains("TIMEBOUND_WRITABLE"),
        "{}",
        said.failure()
    );
}

#[test]
fn a_socket_of_the_host_is_out_of_reach_wherever_it_lies() {
    // Beside the tests' own program: no folder of a node's own hides it.
    let place = std::path::Path::new(env!("CARGO_BIN_EXE_live-sandbox"))
        .parent()
        .unwrap();
    let path = place.join(format!("confined-{}.sock", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let script = format!(
        "{TRY}attempt('connected', lambda: socket.socket(socket.AF_UNIX).connect('{}'))\nprint('end')",
        path.display()
    );
    for rootless in [false, true] {
        let log = output("socket", rootless, &script);
        assert!(log.is_none_or(|log| log == "end\n"));
    }
    drop(listener);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_link_in_the_run_folder_leads_nobody_to_a_file_of_the_host() {
    let folder = Folder::new("links");
    let outside = Folder::new("links-outside");
    let target = outside.0.join("target");
    std::fs::write(&target, "kept").unwrap();
    let mut plan = short(&folder, false);
    let script = format!(
        "import os\nos.symlink('{0}', 'live.json')\nos.symlink('{0}', 'logs/late.log')",
        target.display()
    );
    plan["programs"] = json!([
        python("look", "h1", &script, None),
        python("late", "h1", "print('x')", Some(3_000_000_000))
    ]);
    let Some(said) = run(&folder, &plan) else { return };
    assert_ne!(said.code, 0, "its report could not be written");
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "kept");
}

#[test]
fn a_program_sees_the_processes_of_its_node_alone() {
    let script = "import os, signal, subprocess\n\
        for line in open('/proc/1/cmdline').read().split('\\0')[:1]: print(line)\n\
        others = [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())]\nprint(others)\n\
        try: os.kill(1, signal.SIGKILL)\nexcept OSError: pass\n\
        print('entered' if subprocess.run(['nsenter', '-t', '1', '-n', 'true'], stderr=-3).returncode == 0 else 'refused')\n\
        child = os.fork()\n\
        if child == 0:\n  os.setsid()\n  os._exit(0) if os.fork() else os._exit(0)\n\
        os.waitpid(child, 0)\n\
        import time; time.sleep(0.3)\n\
        print([p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())])";
    for rootless in [false, true] {
        let Some(log) = output("processes", rootless, script) else {
            return;
        };
        assert_eq!(log, "sleep\n[]\nrefused\n[]\n");
    }
}

/// Forks until the kernel refuses, and says how many there were.
const BOMB: &str = "import os, signal, time\n\
    children = []\n\
    try:\n  while len(children) < 3000:\n    child = os.fork()\n    if child == 0: signal.pause()\n    children.append(child)\n\
    except BlockingIOError: pass\n\
    print(len(children))\n\
    time.sleep(2)\n\
    for child in children: os.kill(child, signal.SIGKILL)\n";

#[test]
fn a_node_has_no_more_processes_than_its_limit_and_others_go_on() {
    if !timebound_live::doctor().processes_counted {
        return skip("the pids controller of cgroups cannot be used here");
    }
    for rootless in [false, true] {
        let folder = Folder::new(&format!("bomb-{rootless}"));
        let mut plan = short(&folder, rootless);
        plan["duration_ns"] = json!(6_000_000_000u64);
        plan["hosts"][0]["processes"] = json!(40);
        plan["programs"] = json!([
            python("bomb", "h1", BOMB, None),
            python(
                "other",
                "h2",
                "import os, time\ntime.sleep(1.5)\nprint('h2', os.fork() >= 0)",
                None
            )
        ]);
        let Some(said) = run(&folder, &plan) else { return };
        assert!(said.code == 0 || said.code == 4, "{}", said.failure());
        assert_eq!(folder.read("logs/bomb.log"), "39\n");
        assert_eq!(folder.read("logs/other.log"), "h2 True\nh2 True\n");
    }
}

#[test]
fn without_cgroups_the_kernel_counts_the_users_processes() {
    let folder = Folder::new("rlimit");
    let mut plan = short(&folder, false);
    let script = "import resource\nprint(max(resource.getrlimit(resource.RLIMIT_NPROC)) <= 8192)";
    plan["programs"] = json!([{"name": "look", "node": "h1", "argv": ["/usr/bin/python3", "-c", script]}]);
    let file = folder.0.join("plan.json");
    std::fs::write(&file, plan.to_string()).unwrap();
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return skip("only root can become another user");
    }
    // Nobody may make groups; what is needed to start must be readable to nobody then.
    let program = folder.0.join("live-sandbox");
    std::fs::copy(env!("CARGO_BIN_EXE_live-sandbox"), &program).unwrap();
    std::os::unix::fs::chown(&folder.0, Some(65_534), Some(65_534)).unwrap();
    let mut command = std::process::Command::new(program);
    command.arg(&file).stdin(std::process::Stdio::piped());
    std::os::unix::process::CommandExt::uid(&mut command, 65_534);
    std::os::unix::process::CommandExt::gid(&mut command, 65_534);
    let (piped, started) = (std::process::Stdio::piped(), std::time::Instant::now());
    let mut child = command.stdout(piped).spawn().unwrap();
    // Its input stays open, which an end would tell to stop.
    let input = child.stdin.take();
    let done = child.wait_with_output().unwrap();
    drop(input);
    let text = String::from_utf8_lossy(&done.stdout);
    if text.contains("cannot create namespaces") {
        return skip("a user has no namespaces here");
    }
    assert_eq!(
        folder.read("logs/look.log"),
        "True\n",
        "{text} {:?}",
        started.elapsed()
    );
}

#[test]
fn a_user_namespace_of_its_own_opens_nothing() {
    // Flags of unshare(2): user, mount and cgroup namespace; number of keyctl(2) on this architecture.
    let script = format!(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         def told(name, result): print(name, 'refused' if result < 0 and ctypes.get_errno() == 1 else result)\n\
         told('key', libc.syscall({}, 0, -4, 1))\n\
         print('user namespace', libc.unshare(0x10000000 | 0x20000 | 0x2000000))\n\
         for kind in (b'tmpfs', b'cgroup2', b'proc'): told(kind.decode(), libc.mount(b'x', b'/tmp', kind, 0, None))\n\
         told('unmount', libc.umount2(b'/etc/shadow', 2))\n\
         told('remount', libc.mount(None, b'/', None, 32 | 4096, None))",
        libc::SYS_keyctl
    );
    for rootless in [false, true] {
        let Some(log) = output("user", rootless, &script) else {
            return;
        };
        let refused =
            ["tmpfs", "cgroup2", "proc", "unmount", "remount"].map(|name| format!("{name} refused\n"));
        let expected = format!("key refused\nuser namespace 0\n{}", refused.concat());
        assert_eq!(log, expected);
    }
}

//! What a program of a node may do to the host, whoever started the run: nothing. Tried as root and without.

mod common;

use common::{Folder, direction, plan, python, run};
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
    plan["programs"] = json!([python("look", "h1", script, None)]);
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
        let Some(log) = output("rights", rootless, script) else { return };
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

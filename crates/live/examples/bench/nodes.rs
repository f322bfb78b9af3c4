//! Bring-up and tear-down, beside the bare kernel.

use super::{Star, address, median, ourselves};
use std::process::Command;
use std::time::Instant;

const RUNS: usize = 3;

/// In a process of its own: prints how long the bare kernel took, s.
pub(crate) fn floor(nodes: u32) {
    // SAFETY: takes an integer; this process is a role of its own.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "needs root");
    let (spaces, nanos) = timebound_live::floor::bare_kernel(nodes).expect("the kernel");
    println!("{}", nanos as f64 / 1e9);
    drop(spaces);
}

pub(crate) fn run() {
    println!(
        "\nbring-up: namespaces, veth pairs, addresses, routes, settings and data plane (no cgroups, no programs); tear-down: from the last line to \
         the end of the process. Beside it the bare kernel: namespaces, veth pairs, up, one address, by the same batches of requests. In turn, \
         medians of {RUNS}."
    );
    for (nodes, up, down) in [(350, 2.0, 2.0), (1000, 5.0, 2.0)] {
        let (mut ours, mut tap, mut floors, mut gone, mut floors_gone) =
            (vec![], vec![], vec![], vec![], vec![]);
        for _ in 0..RUNS {
            let mut star = Star::new(nodes, 1_000_000_000, 500_000, 0.05);
            let outcome = super::run(&star.plan);
            ours.push(outcome.live["times"]["bring_up_ns"].as_f64().unwrap_or(f64::NAN) / 1e9);
            gone.push(outcome.gone.as_secs_f64());
            star.plan["data_plane"] = serde_json::json!({"back_end": "tap"});
            let outcome = super::run(&star.plan);
            tap.push(outcome.live["times"]["bring_up_ns"].as_f64().unwrap_or(f64::NAN) / 1e9);
            let mut child = Command::new(ourselves())
                .args(["floor", &nodes.to_string()])
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("ourselves");
            let mut text = String::new();
            let mut output = std::io::BufReader::new(child.stdout.take().expect("piped"));
            let _ = std::io::BufRead::read_line(&mut output, &mut text);
            let last = Instant::now();
            let _ = child.wait();
            floors_gone.push(last.elapsed().as_secs_f64());
            floors.push(text.trim().parse().unwrap_or(f64::NAN));
        }
        let (ours, floor) = (median(&mut ours), median(&mut floors));
        println!(
            "  {nodes} nodes: up in {ours:.2} s (asked for: {up} s), with TAP {:.2} s, bare kernel {floor:.2} s, ratio {:.1}; gone in {:.2} s (asked for: {down} s), bare kernel {:.2} s",
            median(&mut tap),
            ours / floor,
            median(&mut gone),
            median(&mut floors_gone)
        );
    }
    light_traffic();
}

/// 1,000 nodes, half of them sending ten datagrams a second.
fn light_traffic() {
    let mut star = Star::new(1000, 1_000_000_000, 500_000, 4.0);
    for pair in 0..500 {
        star.role(
            2 * pair + 1,
            &["hold", &format!("{}:7000", address(2 * pair + 1))],
            false,
        );
        star.role(
            2 * pair,
            &["pace", &format!("{}:7000", address(2 * pair + 1)), "100000000"],
            true,
        );
    }
    let outcome = super::run(&star.plan);
    let live = &outcome.live;
    println!(
        "  1000 nodes with 1000 programs, 5,000 frames/s offered for 4 s: {:.0} frames/s out, lateness p99 {:.1} us, ring lost {}, early {}, verdict {}; from start to measuring {:.1} s",
        live["data_plane"]["frames_out_per_s"]
            .as_f64()
            .unwrap_or(f64::NAN),
        live["precision"]["lateness_ns"]["p99"]
            .as_f64()
            .unwrap_or(f64::NAN)
            / 1e3,
        live["precision"]["ring_lost"],
        live["precision"]["early"],
        live["precision"]["verdict"],
        outcome.to_measuring.as_secs_f64()
    );
}

//! Frames per second and core of each back end.

use super::{Star, address, median, ourselves};
use serde_json::json;
use std::process::Command;

const SECONDS: f64 = 2.0;
const RUNS: usize = 5;

/// One pair of hosts over one switch, links of 100 Gbit/s without delay.
pub(crate) fn run_back_end(back_end: &str, threads: u32) -> Option<(f64, f64, f64)> {
    let mut star = Star::new(2, 100_000_000_000, 0, SECONDS);
    star.plan["data_plane"] = json!({"back_end": back_end, "threads": threads});
    star.role(0, &["flood", &format!("{}:7000", address(1))], true);
    star.role(1, &["hold", &format!("{}:7000", address(1))], false);
    let outcome = super::run(&star.plan);
    let plane = &outcome.live["data_plane"];
    let cost = plane["cpu_us_per_frame"].as_f64()?;
    (cost > 0.0).then_some((
        1e6 / cost,
        plane["frames_out_per_s"].as_f64()?,
        outcome.live["precision"]["early"].as_f64()?,
    ))
}

pub(crate) fn run() {
    println!(
        "\ncapacity: UDP of {} bytes from one sender as fast as sendmmsg goes, host - switch - host, {SECONDS} s, medians of {RUNS}, back ends in \
         turn. A frame counts once, from its host into the model and out to the other host; frames/s and core = frames handed over by \
         CPU seconds of the emulator's threads, which include the receiving node's network stack as far as it runs within our calls (all of it with TAP; with veth the kernel may \
         leave a part to ksoftirqd, which is printed), but not the sender's.",
        super::load::PAYLOAD
    );
    let kinds = [
        ("ring", 0, 150_000.0),
        ("tap", 0, 250_000.0),
        ("ring", 2, 0.0),
        ("tap", 2, 0.0),
    ];
    let mut found = vec![Vec::new(); kinds.len()];
    let mut early = 0.0;
    for _ in 0..RUNS {
        for (kind, results) in kinds.iter().zip(&mut found) {
            if let Some(result) = run_back_end(kind.0, kind.1) {
                early += result.2;
                results.push(result);
            }
        }
    }
    for ((back_end, threads, target), results) in kinds.iter().zip(&found) {
        if results.is_empty() {
            println!("  {back_end}: not possible here");
            continue;
        }
        let mut cores: Vec<f64> = results.iter().map(|result| result.0).collect();
        let mut wall: Vec<f64> = results.iter().map(|result| result.1).collect();
        let core = median(&mut cores);
        let asked = if *target > 0.0 {
            format!(", {:.2} of the {target:.0} asked for", core / target)
        } else {
            String::new()
        };
        println!(
            "  {back_end:4} {threads} I/O threads: {core:.0} frames/s and core ({:.2} us per frame), {:.0} frames/s beside the sender{asked}",
            1e6 / core,
            median(&mut wall)
        );
    }
    let output = Command::new(ourselves())
        .arg("veth-flood")
        .output()
        .expect("ourselves");
    println!("  {}", String::from_utf8_lossy(&output.stdout).trim());
    println!("  frames released early in all runs: {early}");
}

/// The same sender over a plain veth pair, nobody between: what sender and receiving stack cost together.
pub(crate) fn plain() {
    let Some(mut pair) = super::delay::Pair::new() else {
        println!("plain veth: not possible here");
        return;
    };
    let mut receiver = pair.inside(&["hold", "10.8.0.2:7000"]);
    std::thread::sleep(std::time::Duration::from_millis(200));
    let mut sender = Command::new(ourselves())
        .args(["flood", "10.8.0.2:7000"])
        .spawn()
        .expect("ourselves");
    // proc(5), /proc/pid/net/dev: the tenth number of an interface is what it has sent.
    let count = || {
        let text = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("v0:").map(str::to_owned));
        line.and_then(|line| line.split_whitespace().nth(9)?.parse::<f64>().ok())
            .unwrap_or(f64::NAN)
    };
    std::thread::sleep(std::time::Duration::from_millis(100));
    let before = count();
    std::thread::sleep(std::time::Duration::from_secs(1));
    println!(
        "plain veth pair, same sender, without us: {:.0} frames/s (sender and receiving stack on one core)",
        count() - before
    );
    for child in [&mut sender, &mut receiver] {
        let _ = child.kill();
        let _ = child.wait();
    }
    pair.close();
}

//! Error of a 10 ms delay line, beside a plain veth pair.

use super::{Star, address, ourselves, quantile};
use serde_json::json;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const DELAY_NS: f64 = 10_000_000.0;

fn print(what: &str, text: &str, delay: f64) {
    let mut errors: Vec<f64> = text
        .lines()
        .filter_map(|line| line.trim().parse::<f64>().ok())
        .map(|ns| (ns - delay) / 1e3)
        .collect();
    errors.sort_by(f64::total_cmp);
    println!(
        "  {what}: p50 {:.1} us, p90 {:.1} us, p99 {:.1} us, least {:.1} us ({} frames)",
        quantile(&errors, 0.5),
        quantile(&errors, 0.9),
        quantile(&errors, 0.99),
        quantile(&errors, 0.0),
        errors.len()
    );
}

pub(crate) fn run_back_end(back_end: &str) {
    // Two links of 5 ms; at 100 Gbit/s a frame of 242 bytes takes 0.04 us on both together.
    let mut star = Star::new(2, 100_000_000_000, 5_000_000, 4.0);
    star.plan["data_plane"] = json!({"back_end": back_end, "threads": 0});
    star.role(0, &["pace", &format!("{}:7000", address(1)), "2000000"], true);
    star.role(1, &["stamp", &format!("{}:7000", address(1))], false);
    let outcome = super::run(&star.plan);
    print(
        &format!("10 ms over the {back_end} back end"),
        &(outcome.log)("h1"),
        DELAY_NS,
    );
    println!("    released early: {}", outcome.live["precision"]["early"]);
}

pub(crate) fn run() {
    println!(
        "\ndelay line: 500 datagrams/s of 200 bytes for 4 s, two links of 5 ms; error = stamp of the receiving kernel (SO_TIMESTAMPNS) - clock \
         read before sendto - 10 ms. The plain veth pair has the same programs and no delay."
    );
    for back_end in ["ring", "tap"] {
        run_back_end(back_end);
    }
    let output = Command::new(ourselves())
        .arg("veth-delay")
        .output()
        .expect("ourselves");
    print(
        "plain veth pair, without us",
        &String::from_utf8_lossy(&output.stdout),
        0.0,
    );
}

/// Two network namespaces, ours and a child's, joined by a veth pair: `v0` 10.8.0.1 here, `v1` 10.8.0.2 there.
pub(crate) struct Pair {
    keeper: Child,
}

impl Pair {
    /// `None` without rights or without iproute2.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: takes an integer; this process has one thread and is a role of its own.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return None;
        }
        let keeper = Command::new("unshare")
            .args(["--net", "sleep", "30"])
            .spawn()
            .ok()?;
        std::thread::sleep(Duration::from_millis(200));
        let pid = keeper.id().to_string();
        let ip = |words: &str| {
            let status = Command::new("ip")
                .args(words.split(' '))
                .stderr(Stdio::null())
                .status();
            status.is_ok_and(|status| status.success())
        };
        let there = |words: &str| {
            let status = Command::new("nsenter")
                .args(["--net", "-t", &pid, "ip"])
                .args(words.split(' '))
                .status();
            status.is_ok_and(|status| status.success())
        };
        (ip("link add v0 type veth peer name v1")
            && ip(&format!("link set v1 netns {pid}"))
            && ip("addr add 10.8.0.1/24 dev v0")
            && ip("link set v0 up")
            && there("addr add 10.8.0.2/24 dev v1")
            && there("link set v1 up"))
        .then_some(Self { keeper })
    }

    /// This program in a role on the other side.
    pub(crate) fn inside(&self, role: &[&str]) -> Child {
        Command::new("nsenter")
            .args(["--net", "-t", &self.keeper.id().to_string()])
            .arg(ourselves())
            .args(role)
            .spawn()
            .expect("nsenter")
    }

    pub(crate) fn close(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

pub(crate) fn plain() {
    let Some(mut pair) = Pair::new() else { return };
    let mut receiver = pair.inside(&["stamp", "10.8.0.2:7000"]);
    std::thread::sleep(Duration::from_millis(300));
    let mut sender = Command::new(ourselves())
        .args(["pace", "10.8.0.2:7000", "2000000"])
        .spawn()
        .expect("ourselves");
    std::thread::sleep(Duration::from_secs(4));
    let _ = sender.kill();
    let _ = sender.wait();
    let _ = receiver.wait();
    pair.close();
}

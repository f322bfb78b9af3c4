//! CPU, memory and traffic of every node over time.
//!
//! `nodes.csv`, one line per node and interval: `t_ns` (run time), `node`, `cpu_ns` (CPU time of its programs and their children
//! since their start), `rss_bytes` (resident memory of these now), `tx_bytes`, `tx_frames` (sent by the node), `rx_bytes`, `rx_frames`
//! (received), `rx_dropped` (not taken by the node's kernel), and where the node has limits `throttled_ns` (time in which its limit
//! kept it from running, cumulative) and `memory_peak_bytes` (most memory so far); empty elsewhere. Traffic is cumulative since the node's start and counts
//! Ethernet frames without preamble, FCS and gap.

use crate::nodes::Nodes;
use crate::programs::Programs;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// First line of `nodes.csv`.
pub const NODE_COLUMNS: &str = "t_ns,node,cpu_ns,rss_bytes,tx_bytes,tx_frames,rx_bytes,rx_frames,rx_dropped,throttled_ns,memory_peak_bytes";

/// One process, as `/proc/PID/stat` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    session: i32,
    ticks: u64,
    resident_pages: u64,
}

pub(crate) struct NodeStatistics {
    file: BufWriter<File>,
    /// CPU ticks seen of each process, kept after its end.
    seen: BTreeMap<i32, Process>,
    processes: bool,
}

impl NodeStatistics {
    /// Creates the file; `processes` where `/proc` shows our own.
    pub(crate) fn create(folder: &Path, processes: bool) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(folder.join("nodes.csv"))?);
        writeln!(file, "{NODE_COLUMNS}")?;
        Ok(Self {
            file,
            seen: BTreeMap::new(),
            processes,
        })
    }

    pub(crate) fn sample(&mut self, time: i64, nodes: &Nodes, programs: &Programs) -> io::Result<()> {
        let alive = if self.processes {
            processes()
        } else {
            BTreeMap::new()
        };
        self.seen.extend(&alive);
        let mut usage: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for program in &programs.list {
            let Some(session) = program.report.pid else {
                continue;
            };
            let of_program = |process: &&Process| process.session == session;
            let (cpu, memory) = usage.entry(&program.plan.node).or_default();
            *cpu += self
                .seen
                .values()
                .filter(of_program)
                .map(|process| process.ticks)
                .sum::<u64>();
            *memory += alive
                .values()
                .filter(of_program)
                .map(|process| process.resident_pages)
                .sum::<u64>();
        }
        // SAFETY: takes an integer; both exist on every Linux.
        let (tick, page) = unsafe {
            (
                1_000_000_000 / libc::sysconf(libc::_SC_CLK_TCK) as u64,
                libc::sysconf(libc::_SC_PAGESIZE) as u64,
            )
        };
        let traffic = interfaces(&std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default());
        for (index, node) in nodes.list.iter().enumerate() {
            let (ticks, pages) = usage.get(node.name.as_str()).copied().unwrap_or_default();
            let t = traffic.get(&index).copied().unwrap_or_default();
            let counts = nodes.counts(&node.name).unwrap_or_default();
            let cell = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
            writeln!(
                self.file,
                "{time},{},{},{},{},{},{},{},{},{},{}",
                node.name,
                ticks * tick,
                pages * page,
                t.sent_bytes,
                t.sent_frames,
                t.received_bytes,
                t.received_frames,
                t.dropped,
                cell(counts.throttled_ns),
                cell(counts.memory_peak_bytes)
            )?;
        }
        self.file.flush()
    }
}

/// What the node sent and received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Traffic {
    sent_bytes: u64,
    sent_frames: u64,
    received_bytes: u64,
    received_frames: u64,
    dropped: u64,
}

/// `/proc/net/dev` of the fabric's namespace by host; seen from the near end, so what it received the node has sent.
fn interfaces(text: &str) -> BTreeMap<usize, Traffic> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Some((name, numbers)) = line.split_once(':') else {
            continue;
        };
        let Some(Ok(host)) = name.trim().strip_prefix('f').map(str::parse) else {
            continue;
        };
        let n: Vec<u64> = numbers
            .split_ascii_whitespace()
            .map_while(|number| number.parse().ok())
            .collect();
        if n.len() >= 12 {
            let (sent_bytes, sent_frames, received_bytes, received_frames, dropped) =
                (n[0], n[1], n[8], n[9], n[11]);
            found.insert(
                host,
                Traffic {
                    sent_bytes,
                    sent_frames,
                    received_bytes,
                    received_frames,
                    dropped,
                },
            );
        }
    }
    found
}

fn processes() -> BTreeMap<i32, Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((pid, process(&text)?))
        })
        .collect()
}

/// proc_pid_stat(5): fields 6, 14, 15 and 24; the name (2) may hold anything, so count from its closing parenthesis.
fn process(text: &str) -> Option<Process> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Process {
        session: fields.get(3)?.parse().ok()?,
        ticks: number(11)? + number(12)?,
        resident_pages: number(21)?,
    })
}

/// Jiffies of all CPUs together: (stolen, all).
pub(crate) fn cpu_times() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let numbers: Vec<u64> = line
        .split_ascii_whitespace()
        .skip(1)
        .map_while(|number| number.parse().ok())
        .collect();
    (numbers.get(7).copied().unwrap_or(0), numbers.iter().take(8).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_nasty_name_is_read() {
        let text = "17 (a) b) c) S 1 17 17 0 -1 4194560 100 0 0 0 12 30 0 0 20 0 1 0 5000 1000000 250 18446744073709551615";
        assert_eq!(
            process(text),
            Some(Process {
                session: 17,
                ticks: 42,
                resident_pages: 250
            })
        );
        assert_eq!(process("17 (cut"), None);
    }

    #[test]
    fn the_near_end_is_seen_from_the_node() {
        let text = "Inter-| Receive\n face |bytes\n   f12: 100 2 0 0 0 0 0 0 300 4 0 5 0 0 0 0\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n";
        let found = interfaces(text);
        let expected = Traffic {
            sent_bytes: 100,
            sent_frames: 2,
            received_bytes: 300,
            received_frames: 4,
            dropped: 5,
        };
        assert_eq!(found, BTreeMap::from([(12, expected)]));
    }
}

//! CPU, memory and traffic of every node over time.
//!
//! `nodes.csv`, one line per node and interval: `t_ns` (run time), `node`, `cpu_ns` (CPU time of its processes and their children
//! since their start, in user and kernel mode), `rss_bytes` (resident memory of these now), `tx_bytes`, `tx_frames` (sent by the
//! node), `rx_bytes`, `rx_frames` (received), `rx_dropped` (not taken by the node's kernel), `wait_ns` and `client_wait_ns` (time in which
//! its programs, and the process that holds its built-in clients, could have run and others had the CPU, cumulative; where one process holds
//! the clients of all nodes, each has its time), and where the node has limits
//! `throttled_ns` (time in which its limit kept it from running, cumulative) and `memory_peak_bytes` (most memory so far); empty
//! elsewhere. Traffic is cumulative since the node's start and counts Ethernet frames without preamble, FCS and gap.
//!
//! CPU time is read from the processes' own clocks (clock_getcpuclockid(3)): to the nanosecond and one system call each, where
//! `/proc/PID/stat` counts in ticks of 10 ms, which is more than a meter's client uses in minutes. What the kernel does for a process
//! inside its system calls is in it, the way of a frame it sends up to the emulated network included.
//!
//! Waiting for a CPU is counted by the kernel for each thread (`/proc/PID/task/TID/schedstat`): it tells who was slow from who could not run.
//! What a thread waited that has ended since is missing.
//!
//! Processes of built-in endpoints are copies of one mother and share most of their pages with her: their memory is what is theirs
//! alone (`Private_Clean` and `Private_Dirty` of `/proc/PID/smaps_rollup`), which is looked up for a few of them at a time.

use crate::kernel::clock;
use crate::nodes::Nodes;
use crate::processes;
use crate::programs::Programs;
use crate::traffic::Traffic as Endpoints;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// First line of `nodes.csv`.
pub const NODE_COLUMNS: &str = "t_ns,node,cpu_ns,rss_bytes,tx_bytes,tx_frames,rx_bytes,rx_frames,rx_dropped,wait_ns,client_wait_ns,throttled_ns,memory_peak_bytes";

/// Endpoint processes whose memory is looked up with one sample: each lookup walks the page tables of one (about 0.1 ms).
const MEMORY_AT_ONCE: usize = 16;

/// What a process used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    /// Kept after its end.
    pub(crate) cpu_ns: u64,
    pub(crate) memory_bytes: u64,
    /// Time in which it could have run and did not.
    pub(crate) wait_ns: u64,
}

/// What a node used and carried so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) used: Used,
    /// Of `used`, without what its programs waited.
    pub(crate) client_wait_ns: u64,
    pub(crate) traffic: Traffic,
}

pub(crate) struct NodeStatistics {
    /// Null where nothing is written, and figures are only taken.
    file: Option<BufWriter<File>>,
    /// Processes of programs and their children, by process id: session, CPU time and time without a CPU, kept after their end.
    seen: BTreeMap<i32, (i32, u64, u64)>,
    /// What the process of the clients of all nodes waited.
    shared_wait_ns: u64,
    endpoints: BTreeMap<i32, Used>,
    /// Whose memory is looked up next.
    next_memory: usize,
    processes: bool,
    /// Time that samples took.
    pub(crate) spent_ns: u64,
}

impl NodeStatistics {
    /// Creates the file.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(folder.join("nodes.csv"))?);
        writeln!(file, "{NODE_COLUMNS}")?;
        Ok(Self {
            file: Some(file),
            ..Self::unwritten()
        })
    }

    /// Takes figures and writes none.
    pub(crate) fn unwritten() -> Self {
        Self {
            file: None,
            seen: BTreeMap::new(),
            shared_wait_ns: 0,
            endpoints: BTreeMap::new(),
            next_memory: 0,
            processes: processes::is_ours(),
            spent_ns: 0,
        }
    }

    /// CPU time and memory of the built-in endpoints, node by node.
    fn endpoints<'a>(&mut self, endpoints: Option<&'a Endpoints>) -> BTreeMap<&'a str, Used> {
        let own_proc = self.processes;
        let shared = endpoints.into_iter().flat_map(Endpoints::processes);
        for (_, pid) in shared.filter(|(node, _)| own_proc && node.is_none()) {
            self.shared_wait_ns = self.shared_wait_ns.max(waited(pid));
        }
        let list: Vec<_> = endpoints
            .into_iter()
            .flat_map(Endpoints::processes)
            .filter_map(|(node, pid)| Some((node?, pid)))
            .collect();
        let turn = self.next_memory..self.next_memory + MEMORY_AT_ONCE;
        let mut usage: BTreeMap<&str, Used> = BTreeMap::new();
        for (index, (node, pid)) in list.iter().enumerate() {
            let used = self.endpoints.entry(*pid).or_default();
            match cpu_time(*pid) {
                Some(cpu_ns) => used.cpu_ns = cpu_ns,
                None => used.memory_bytes = 0,
            }
            if self.processes && turn.contains(&index) {
                used.memory_bytes = private_bytes(*pid).unwrap_or(0);
            }
            if self.processes {
                used.wait_ns = used.wait_ns.max(waited(*pid));
            }
            let sum = usage.entry(node).or_default();
            sum.cpu_ns += used.cpu_ns;
            sum.wait_ns += used.wait_ns;
            sum.memory_bytes += used.memory_bytes;
        }
        self.next_memory = if turn.end < list.len() { turn.end } else { 0 };
        usage
    }

    pub(crate) fn sample(
        &mut self,
        time: i64,
        nodes: &Nodes,
        programs: &Programs,
        endpoints: Option<&Endpoints>,
    ) -> io::Result<()> {
        let begun = clock::monotonic();
        let figures = self.figures(nodes, programs, endpoints);
        if let Some(file) = &mut self.file {
            for (node, figures) in nodes.list.iter().zip(&figures) {
                let (used, t) = (figures.used, figures.traffic);
                let counts = nodes.counts(&node.name).unwrap_or_default();
                let cell = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
                writeln!(
                    file,
                    "{time},{},{},{},{},{},{},{},{},{},{},{},{}",
                    node.name,
                    used.cpu_ns,
                    used.memory_bytes,
                    t.sent_bytes,
                    t.sent_frames,
                    t.received_bytes,
                    t.received_frames,
                    t.dropped,
                    used.wait_ns,
                    figures.client_wait_ns,
                    cell(counts.throttled_ns),
                    cell(counts.memory_peak_bytes)
                )?;
            }
            file.flush()?;
        }
        self.spent_ns += clock::monotonic() - begun;
        Ok(())
    }

    /// The figures of each node, in their order.
    pub(crate) fn figures(
        &mut self,
        nodes: &Nodes,
        programs: &Programs,
        endpoints: Option<&Endpoints>,
    ) -> Vec<Figures> {
        let mut usage = self.endpoints(endpoints);
        let mut clients: BTreeMap<&str, u64> = BTreeMap::new();
        for (node, used) in &mut usage {
            clients.insert(node, std::mem::take(&mut used.wait_ns));
        }
        let alive = if self.processes && !programs.list.is_empty() {
            processes::but(|pid| self.endpoints.contains_key(&pid))
        } else {
            Vec::new()
        };
        // SAFETY: takes an integer; both exist on every Linux.
        let (tick, page) = unsafe {
            (
                1_000_000_000 / libc::sysconf(libc::_SC_CLK_TCK) as u64,
                libc::sysconf(libc::_SC_PAGESIZE) as u64,
            )
        };
        for process in &alive {
            let cpu_ns = cpu_time(process.pid).unwrap_or(process.ticks * tick);
            // Threads that have ended are missing, and their process has waited no less for that.
            let before = self.seen.get(&process.pid).map_or(0, |(.., wait_ns)| *wait_ns);
            let wait_ns = before.max(waited(process.pid));
            self.seen.insert(process.pid, (process.session, cpu_ns, wait_ns));
        }
        // A program that was started again has led several sessions.
        let mut owners: BTreeMap<i32, &str> = BTreeMap::new();
        for program in &programs.list {
            owners.extend(
                program
                    .sessions
                    .iter()
                    .map(|session| (*session, program.plan.node.as_str())),
            );
        }
        for (session, cpu_ns, wait_ns) in self.seen.values() {
            if let Some(node) = owners.get(session) {
                let used = usage.entry(node).or_default();
                used.cpu_ns += cpu_ns;
                used.wait_ns += wait_ns;
            }
        }
        for process in &alive {
            if let Some(node) = owners.get(&process.session) {
                usage.entry(node).or_default().memory_bytes += process.resident_pages * page;
            }
        }
        let traffic = interfaces(&std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default());
        let list = nodes.list.iter().enumerate();
        list.map(|(index, node)| Figures {
            used: usage.get(node.name.as_str()).copied().unwrap_or_default(),
            client_wait_ns: clients
                .get(node.name.as_str())
                .copied()
                .unwrap_or(self.shared_wait_ns),
            traffic: traffic.get(&index).copied().unwrap_or_default(),
        })
        .collect()
    }
}

/// CPU time of all threads of a process, dead ones included, in ns; `None` once it has been waited for.
fn cpu_time(pid: i32) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut clock = 0;
    // SAFETY: both pointers are to locals.
    let known = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0 && libc::clock_gettime(clock, &raw mut time) == 0
    };
    known.then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Time in which the threads of a process could have run and others did, in ns (the second number of `schedstat`); 0 where the kernel does not count it.
fn waited(pid: i32) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    let of_thread = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    threads.flatten().filter_map(of_thread).sum()
}

/// Memory that a process shares with no other (proc_pid_smaps_rollup(5)).
fn private_bytes(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let lines = text.lines().filter_map(|line| line.strip_prefix("Private_"));
    let kibibytes = lines.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    Some(kibibytes.sum::<u64>() * 1024)
}

/// What the node sent and received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) sent_bytes: u64,
    pub(crate) sent_frames: u64,
    pub(crate) received_bytes: u64,
    pub(crate) received_frames: u64,
    pub(crate) dropped: u64,
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
    fn the_clock_of_a_process_counts_its_work_and_its_memory_is_known() {
        let own = std::process::id() as i32;
        let before = cpu_time(own).unwrap();
        let mut sum = 0u64;
        while cpu_time(own).unwrap() - before < 2_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        // Above the greatest process id that Linux gives (PID_MAX_LIMIT).
        assert_eq!(cpu_time(5_000_000), None);
        assert!(private_bytes(own).is_some_and(|bytes| bytes > 4096));
    }

    /// CPU time of the calling thread, ns.
    fn thread_time() -> u64 {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a local.
        assert_eq!(
            unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) },
            0
        );
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    /// Binds the calling thread to the first CPU that it may use.
    fn share_a_cpu() {
        // SAFETY: a set of CPUs is plain bits; sizes and pointers are those of locals.
        unsafe {
            let size = size_of::<libc::cpu_set_t>();
            let (mut all, mut one): (libc::cpu_set_t, libc::cpu_set_t) =
                (std::mem::zeroed(), std::mem::zeroed());
            assert_eq!(libc::sched_getaffinity(0, size, &raw mut all), 0);
            let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &all));
            libc::CPU_SET(first.unwrap(), &mut one);
            assert_eq!(libc::sched_setaffinity(0, size, &raw const one), 0);
        }
    }

    #[test]
    fn of_two_threads_on_one_cpu_each_waits_while_the_other_works() {
        const WORK: u64 = 30_000_000;
        use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
        // A kernel without CONFIG_SCHED_INFO counts nothing.
        let counts = std::fs::read_to_string("/proc/self/schedstat").is_ok();
        let (ready, done) = (std::sync::Barrier::new(2), AtomicU64::new(0));
        let thread_waited = || {
            let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
            text.split_ascii_whitespace()
                .nth(1)
                .map_or(0, |wait| wait.parse::<u64>().unwrap())
        };
        let work = || {
            share_a_cpu();
            ready.wait();
            let (begun, at) = (thread_time(), std::time::Instant::now());
            let (own, all) = (thread_waited(), waited(std::process::id() as i32));
            let mut is_counted = false;
            while done.load(SeqCst) < 2 {
                if !is_counted && thread_time() - begun >= WORK {
                    is_counted = true;
                    done.fetch_add(1, SeqCst);
                }
                std::hint::spin_loop();
            }
            let found = (
                thread_waited() - own,
                waited(std::process::id() as i32).saturating_sub(all),
                at.elapsed(),
            );
            // Nobody ends before both are counted: what a thread waited goes with it.
            ready.wait();
            found
        };
        let found = std::thread::scope(|scope| {
            let both = [scope.spawn(work), scope.spawn(work)];
            both.map(|thread| thread.join().unwrap())
        });
        for (own, all, elapsed) in found {
            // While one works the other waits, but for the slice that is not over; both together are in the sum, and each in no more than the time.
            assert!(!counts || own >= WORK / 2, "{own} ns of {WORK}");
            assert!(
                !counts || all >= own,
                "{all} ns for all threads, {own} ns for one"
            );
            assert!(u128::from(own) <= elapsed.as_nanos(), "{own} ns in {elapsed:?}");
        }
        assert_eq!(waited(5_000_000), 0);
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

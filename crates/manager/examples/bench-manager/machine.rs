//! What the kernel says of processes and of the machine.

use std::path::Path;
use std::time::{Duration, Instant};

/// What a process's threads that are alive have run, to the nanosecond; nothing of a process that is gone.
fn ran(process: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    let nanoseconds = tasks.into_iter().flatten().flatten().filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

fn ticks(count: u64) -> Duration {
    // SAFETY: the call asks for a constant.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100);
    Duration::from_millis(count * 1_000 / per_second.max(1))
}

/// CPU time of a process with its threads and children that have ended.
fn used(process: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(process.join("stat")).ok()?;
    // Behind the name, in which there may be anything: utime, stime, cutime and cstime are the fields 14 to 17, the state is the third (proc(5)).
    let (_, rest) = text.rsplit_once(')')?;
    let times = rest.split_whitespace().skip(11).take(4);
    Some(times.filter_map(|word| word.parse::<u64>().ok()).sum())
}

/// CPU time of all processes but these, and what a hypervisor took.
fn others(ours: &[u32]) -> Duration {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let not_ours = processes.filter(|entry| {
        let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
        id.is_some_and(|id: u32| !ours.contains(&id))
    });
    let used: u64 = not_ours.filter_map(|entry| used(&entry.path())).sum();
    let machine = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // "cpu", user, nice, system, idle, iowait, irq, softirq, steal.
    let stolen = machine
        .lines()
        .next()
        .and_then(|line| line.split_whitespace().nth(8));
    ticks(used + stolen.and_then(|word| word.parse().ok()).unwrap_or(0))
}

/// From a moment on.
pub(crate) struct Watch {
    watched: Option<u32>,
    ours: Vec<u32>,
    began: (Instant, Duration, Duration, Duration),
}

/// What was used from then on.
pub(crate) struct Used {
    /// CPU time of the one.
    pub(crate) watched: Duration,
    /// CPU time of all threads of ours that live.
    pub(crate) ours: Duration,
    /// Share of the machine that others took.
    pub(crate) others: f64,
}

impl Watch {
    /// One process, and those whose time is not that of others.
    pub(crate) fn begin(watched: Option<u32>, ours: &[u32]) -> Self {
        Self {
            watched,
            ours: ours.to_vec(),
            began: (
                Instant::now(),
                watched.map(ran).unwrap_or_default(),
                ours.iter().map(|process| ran(*process)).sum(),
                others(ours),
            ),
        }
    }

    pub(crate) fn end(&self) -> Used {
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let (began, watched, ours, others_before) = self.began;
        let all: Duration = self.ours.iter().map(|process| ran(*process)).sum();
        let others = others(&self.ours).saturating_sub(others_before);
        Used {
            watched: self.watched.map(ran).unwrap_or_default().saturating_sub(watched),
            ours: all.saturating_sub(ours),
            others: others.as_secs_f64() / (cores * began.elapsed().as_secs_f64()).max(1e-3),
        }
    }
}

fn limit() -> libc::rlimit {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live struct of the type that the call fills.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit
}

/// Files that this process, and those that it starts, may open from now on: so many, or as many as they may have.
pub(crate) fn raise_limit(files: u64) {
    let limit = limit();
    for most in [limit.rlim_max.max(files), limit.rlim_max] {
        let raised = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        // SAFETY: the pointer is to a live struct of the type that the call reads.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            return;
        }
    }
}

/// Files that this process may open.
pub(crate) fn files() -> u64 {
    limit().rlim_cur
}

//! Processes of the sandbox as `/proc` shows them, and to which node each belongs.
//!
//! A process belongs to the node in whose network namespace it is, or whose session it is in: a program may move to
//! another namespace, or make a session of its own, but what does both has left the node.

use crate::nodes::Node;
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// One process, as `/proc/PID/stat` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// `R`, `S`, `D`, `T` (stopped), `Z` (dead, not waited for), ...
    pub(crate) state: u8,
    pub(crate) session: i32,
    pub(crate) ticks: u64,
    pub(crate) resident_pages: u64,
}

/// All processes but PID 1, and none where `/proc` is not ours: the numbers in it would mean others.
pub(crate) fn all() -> Vec<Process> {
    but(|_| false)
}

/// As [`all`], without those that are known otherwise.
pub(crate) fn but(is_known: impl Fn(i32) -> bool) -> Vec<Process> {
    if !is_ours() {
        return Vec::new();
    }
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            if is_known(pid) {
                return None;
            }
            let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            parse(pid, &text)
        })
        .filter(|process| process.pid != 1)
        .collect()
}

/// Does `/proc` show our own process namespace?
pub(crate) fn is_ours() -> bool {
    std::fs::read_link("/proc/self")
        .is_ok_and(|link| link.as_os_str() == std::process::id().to_string().as_str())
}

/// A process with its network namespace (device and inode; namespaces(7): two are the same if both are equal).
pub(crate) type Located = (Process, Option<(u64, u64)>);

/// All living processes but `ours`, with their network namespaces.
pub(crate) fn located(ours: &BTreeSet<i32>) -> Vec<Located> {
    let alive = but(|pid| ours.contains(&pid)).into_iter();
    let alive = alive.filter(|process| process.state != b'Z');
    alive
        .map(|process| {
            let meta = std::fs::metadata(format!("/proc/{}/ns/net", process.pid));
            (process, meta.ok().map(|meta| (meta.dev(), meta.ino())))
        })
        .collect()
}

/// proc_pid_stat(5): fields 3, 6, 14, 15 and 24; the name (2) may hold anything, so count from its closing parenthesis.
pub(crate) fn parse(pid: i32, text: &str) -> Option<Process> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Process {
        pid,
        state: *fields.first()?.as_bytes().first()?,
        session: fields.get(3)?.parse().ok()?,
        ticks: number(11)? + number(12)?,
        resident_pages: number(21)?,
    })
}

/// What tells a node's processes from others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Belonging {
    /// Device and inode of the network namespace.
    namespace: Option<(u64, u64)>,
    pub(crate) sessions: BTreeSet<i32>,
}

impl Belonging {
    pub(crate) fn of(node: &Node) -> Self {
        // SAFETY: zero is a valid value of this plain C structure; descriptor and structure live.
        let namespace = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            (libc::fstat(node.namespace().as_raw_fd(), &raw mut stat) == 0)
                .then_some((stat.st_dev, stat.st_ino))
        };
        Self {
            namespace,
            sessions: BTreeSet::new(),
        }
    }

    /// Those of `processes` that belong to the node.
    pub(crate) fn pick(&self, processes: &[Located]) -> Vec<Process> {
        let ours = |(process, namespace): &&Located| {
            self.sessions.contains(&process.session)
                || (self.namespace.is_some() && *namespace == self.namespace)
        };
        processes
            .iter()
            .filter(ours)
            .map(|(process, _)| *process)
            .collect()
    }
}

/// A signal for one process. Its id may be another's by now only if it ended *and* was waited for since it was listed, and
/// that we alone do, in the same thread.
pub(crate) fn signal(process: &Process, signal: i32) {
    // SAFETY: takes two integers.
    unsafe { libc::kill(process.pid, signal) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_nasty_name_is_read() {
        let text = "17 (a) b) c) S 1 17 17 0 -1 4194560 100 0 0 0 12 30 0 0 20 0 1 0 5000 1000000 250 18446744073709551615";
        assert_eq!(
            parse(17, text),
            Some(Process {
                pid: 17,
                state: b'S',
                session: 17,
                ticks: 42,
                resident_pages: 250
            })
        );
        assert_eq!(parse(17, "17 (cut"), None);
    }
}

//! Limits of CPU and memory of programs. Cgroups are the one thing that outlives its process, so each run's folder is named after its
//! owner (process id and start time), and every start removes those whose owner is gone.

use crate::failure::Failure;
use crate::plan::Plan;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";
const PREFIX: &str = "timebound-";
/// Period over which a CPU limit is enforced, us.
const PERIOD_US: u64 = 100_000;

/// Where the kernel keeps what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// One tree per controller.
    V1,
    V2,
}

/// The folders of one run.
#[derive(Debug)]
pub(crate) struct Cgroups {
    version: Version,
    /// One per controller tree.
    folders: Vec<PathBuf>,
}

impl Cgroups {
    /// Removes what dead runs left, and makes the folders of this one if a program of the plan has a limit.
    ///
    /// # Errors
    /// When a limit is asked for and cannot be set.
    pub(crate) fn create(plan: &Plan) -> Result<Option<Self>, Failure> {
        let version = if Path::new(ROOT).join("cpu/cpu.shares").exists()
            || Path::new(ROOT).join("memory/tasks").exists()
        {
            Version::V1
        } else {
            Version::V2
        };
        let trees: Vec<PathBuf> = match version {
            Version::V1 => vec![Path::new(ROOT).join("cpu"), Path::new(ROOT).join("memory")],
            Version::V2 => vec![PathBuf::from(ROOT)],
        };
        trees.iter().for_each(|tree| sweep(tree));
        let limited = |program: &&crate::plan::ProgramPlan| {
            program.cpu_limit.is_some() || program.memory_limit_bytes.is_some()
        };
        if plan.programs.iter().find(limited).is_none() {
            return Ok(None);
        }
        let own = std::process::id();
        let start = start_time(own).unwrap_or(0);
        let name = format!("{PREFIX}{own}-{start}-{}", plan.run_id);
        let groups = Self {
            version,
            folders: trees.iter().map(|tree| tree.join(&name)).collect(),
        };
        groups.fill(plan).map_err(|error| {
            Failure::host(
                "cannot limit CPU or memory of programs (cgroups need root)",
                error,
            )
        })?;
        Ok(Some(groups))
    }

    fn fill(&self, plan: &Plan) -> io::Result<()> {
        for folder in &self.folders {
            std::fs::create_dir(folder)?;
            if self.version == Version::V2 {
                std::fs::write(Path::new(ROOT).join("cgroup.subtree_control"), "+cpu +memory")?;
                std::fs::write(folder.join("cgroup.subtree_control"), "+cpu +memory")?;
            }
        }
        for program in &plan.programs {
            for (name, value) in settings(self.version, program.cpu_limit, program.memory_limit_bytes) {
                let tree = usize::from(self.version == Version::V1 && name.starts_with("memory"));
                let folder = self.folders[tree].join(&program.name);
                match std::fs::create_dir(&folder) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => std::fs::write(folder.join(name), value)?,
                }
            }
        }
        Ok(())
    }

    /// Files into which a process writes `0` to enter the groups of a program; none if it has no limit.
    pub(crate) fn doors(&self, program: &str) -> io::Result<Vec<File>> {
        let files = self
            .folders
            .iter()
            .map(|folder| folder.join(program).join("cgroup.procs"));
        files
            .filter(|file| file.exists())
            .map(|file| std::fs::OpenOptions::new().write(true).open(file))
            .collect()
    }

    /// Removes the folders, as soon as the kernel has noted that their processes are gone.
    pub(crate) fn remove(&self) {
        for _ in 0..50 {
            self.folders.iter().for_each(|folder| remove(folder));
            if !self.folders.iter().any(|folder| folder.exists()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

fn settings(version: Version, cpu: Option<f64>, memory: Option<u64>) -> Vec<(&'static str, String)> {
    // The kernel refuses quotas below 1 ms.
    let quota = cpu.map(|share| ((share * PERIOD_US as f64) as u64).max(1_000));
    let mut all = Vec::new();
    match version {
        Version::V1 => {
            all.extend(quota.map(|quota| ("cpu.cfs_quota_us", quota.to_string())));
            all.extend(memory.map(|bytes| ("memory.limit_in_bytes", bytes.to_string())));
        }
        Version::V2 => {
            all.extend(quota.map(|quota| ("cpu.max", format!("{quota} {PERIOD_US}"))));
            all.extend(memory.map(|bytes| ("memory.max", bytes.to_string())));
        }
    }
    all
}

/// Removes the folders of runs whose owner is gone.
fn sweep(tree: &Path) {
    let Ok(entries) = std::fs::read_dir(tree) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some((pid, start)) = name.to_str().and_then(owner) else {
            continue;
        };
        if start_time(pid) != Some(start) {
            remove(&entry.path());
        }
    }
}

/// Process id and start time in the name of a run's folder.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// When a process started, in clock ticks since boot (proc_pid_stat(5), field 22).
fn start_time(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

/// A cgroup can be removed once it is empty; files in it are the kernel's and go with it.
fn remove(folder: &Path) {
    if let Ok(entries) = std::fs::read_dir(folder) {
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
    let _ = std::fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_read_back_from_the_name() {
        assert_eq!(owner("timebound-17-4711-a-run-7"), Some((17, 4711)));
        assert_eq!(owner("timebound-x"), None);
        assert_eq!(owner("other-17-4711-a"), None);
    }

    #[test]
    fn our_own_start_time_is_known() {
        assert!(start_time(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(start_time(u32::MAX), None);
    }
}

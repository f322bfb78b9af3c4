//! Where the kernel keeps control groups, and what is written there: version 1 (one tree per controller) and version 2 (one tree).
//!
//! Names and meanings are those of Documentation/admin-guide/cgroup-v1, Documentation/scheduler/sched-bwc.rst and
//! Documentation/admin-guide/cgroup-v2.rst of Linux.

use std::io;
use std::path::{Path, PathBuf};

/// Period over which a CPU limit is enforced, us; and the one for limits too small for it, the longest that the kernel takes.
const PERIOD_US: u64 = 100_000;
const LONG_PERIOD_US: u64 = 1_000_000;
/// The kernel refuses shorter quotas (sched-bwc.rst).
const LEAST_QUOTA_US: u64 = 1_000;
/// The least limit that can be enforced, in CPUs.
pub(super) const LEAST_CPU: f64 = LEAST_QUOTA_US as f64 / LONG_PERIOD_US as f64;
/// Greatest and least weight of a group: `cpu.shares`, `cpu.weight`.
const SHARES: (u64, u64) = (2, 262_144);
const WEIGHT: (u64, u64) = (1, 10_000);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// One tree per controller.
    V1,
    V2,
}

/// What binds one node.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Limits {
    /// CPUs.
    pub(super) cpu: Option<f64>,
    /// Part of all CPUs that it is to get when all are wanted.
    pub(super) part: Option<f64>,
    pub(super) memory_bytes: Option<u64>,
}

/// What a node's groups have counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Time in which it wanted to run and its limit forbade it, summed over its threads' run queues.
    pub(crate) throttled_ns: Option<u64>,
    pub(crate) memory_peak_bytes: Option<u64>,
    /// Processes that the kernel killed because the limit of memory was reached.
    pub(crate) oom_kills: u64,
}

/// The trees of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trees {
    pub(super) version: Version,
    pub(super) cpu: PathBuf,
    /// The same as `cpu` in version 2.
    pub(super) memory: PathBuf,
    /// Counts processes and threads; the same as `cpu` in version 2.
    pub(super) pids: PathBuf,
}

impl Trees {
    /// The trees below `root` (`/sys/fs/cgroup`).
    pub(super) fn at(root: &Path) -> Self {
        let v1 = root.join("cpu/cpu.shares").exists() || root.join("memory/tasks").exists();
        let [cpu, memory, pids] = if v1 {
            ["cpu", "memory", "pids"].map(|controller| root.join(controller))
        } else {
            [(); 3].map(|()| root.to_owned())
        };
        Self {
            version: if v1 { Version::V1 } else { Version::V2 },
            cpu,
            memory,
            pids,
        }
    }

    /// All in which a run may have a folder.
    pub(super) fn all(&self) -> Vec<&Path> {
        match self.version {
            Version::V1 => vec![&self.cpu, &self.memory, &self.pids],
            Version::V2 => vec![&self.cpu],
        }
    }

    /// Those of limits of CPU and memory.
    pub(super) fn list(&self) -> Vec<&Path> {
        match self.version {
            Version::V1 => vec![&self.cpu, &self.memory],
            Version::V2 => vec![&self.cpu],
        }
    }

    /// Makes the folder of a run. Against the machine's other work all its nodes together weigh as much as a group can: a
    /// reservation is worth nothing if a neighbour takes it.
    pub(super) fn make_run(&self, name: &str) -> io::Result<()> {
        if self.version == Version::V2 {
            std::fs::write(self.cpu.join("cgroup.subtree_control"), "+cpu +memory")?;
        }
        for tree in self.list() {
            std::fs::create_dir(tree.join(name))?;
        }
        let folder = self.cpu.join(name);
        match self.version {
            Version::V1 => std::fs::write(folder.join("cpu.shares"), SHARES.1.to_string()),
            Version::V2 => {
                std::fs::write(folder.join("cgroup.subtree_control"), "+cpu +memory")?;
                std::fs::write(folder.join("cpu.weight"), WEIGHT.1.to_string())
            }
        }
    }

    /// Makes the groups of a node within its run's, with the limits set.
    pub(super) fn make_node(&self, run: &str, node: &str, limits: &Limits) -> io::Result<()> {
        for tree in self.list() {
            std::fs::create_dir(tree.join(run).join(node))?;
        }
        for (file, value) in self.settings(limits) {
            let tree = if file.starts_with("memory") {
                &self.memory
            } else {
                &self.cpu
            };
            std::fs::write(tree.join(run).join(node).join(file), value)?;
        }
        if let Some(bytes) = limits.memory_bytes {
            self.forbid_swap(&self.memory.join(run).join(node), bytes);
        }
        Ok(())
    }

    /// Lets the processes and threads of a run be counted, `most` of all its nodes together. Its folder may be there already.
    pub(super) fn count_run(&self, name: &str, most: u64) -> io::Result<()> {
        let folder = self.pids.join(name);
        if self.version == Version::V2 {
            std::fs::write(self.pids.join("cgroup.subtree_control"), "+pids")?;
        }
        make(&folder)?;
        if self.version == Version::V2 {
            std::fs::write(folder.join("cgroup.subtree_control"), "+pids")?;
        }
        std::fs::write(folder.join("pids.max"), most.to_string())
    }

    /// The folder of a node whose processes and threads are counted; made at the first call.
    pub(super) fn count_node(&self, run: &str, node: &str, most: u64) -> io::Result<PathBuf> {
        let folder = self.pids.join(run).join(node);
        make(&folder)?;
        std::fs::write(folder.join("pids.max"), most.to_string())?;
        Ok(folder)
    }

    fn settings(&self, limits: &Limits) -> Vec<(&'static str, String)> {
        let quota = limits.cpu.map(quota);
        let weight = |(least, most): (u64, u64)| {
            let wanted = limits.part.map(|part| (part * most as f64).floor() as u64);
            wanted.map(|wanted| wanted.clamp(least, most).to_string())
        };
        let bytes = limits.memory_bytes.map(|bytes| bytes.to_string());
        let mut all = Vec::new();
        match self.version {
            Version::V1 => {
                all.extend(quota.map(|(_, period)| ("cpu.cfs_period_us", period.to_string())));
                all.extend(quota.map(|(quota, _)| ("cpu.cfs_quota_us", quota.to_string())));
                all.extend(weight(SHARES).map(|shares| ("cpu.shares", shares)));
                all.extend(bytes.map(|bytes| ("memory.limit_in_bytes", bytes)));
            }
            Version::V2 => {
                all.extend(quota.map(|(quota, period)| ("cpu.max", format!("{quota} {period}"))));
                all.extend(weight(WEIGHT).map(|weight| ("cpu.weight", weight)));
                all.extend(bytes.map(|bytes| ("memory.max", bytes)));
            }
        }
        all
    }

    /// A node beyond its memory shall end, not swap; kernels without swap accounting lack the file, and need none.
    fn forbid_swap(&self, folder: &Path, bytes: u64) {
        let (file, value) = match self.version {
            Version::V1 => ("memory.memsw.limit_in_bytes", bytes.to_string()),
            Version::V2 => ("memory.swap.max", "0".to_owned()),
        };
        if folder.join(file).exists() {
            let _ = std::fs::write(folder.join(file), value);
        }
    }

    /// What the groups of a node have counted.
    pub(super) fn counts(&self, run: &str, node: &str) -> Counts {
        let read =
            |tree: &Path, file: &str| std::fs::read_to_string(tree.join(run).join(node).join(file)).ok();
        let cpu = read(&self.cpu, "cpu.stat").unwrap_or_default();
        let number = |text: Option<String>| text.and_then(|text| text.trim().parse().ok());
        match self.version {
            Version::V1 => Counts {
                throttled_ns: value_of(&cpu, "throttled_time"),
                memory_peak_bytes: number(read(&self.memory, "memory.max_usage_in_bytes")),
                oom_kills: value_of(
                    &read(&self.memory, "memory.oom_control").unwrap_or_default(),
                    "oom_kill",
                )
                .unwrap_or(0),
            },
            Version::V2 => Counts {
                throttled_ns: value_of(&cpu, "throttled_usec").map(|us| us * 1_000),
                // Since Linux 5.19.
                memory_peak_bytes: number(read(&self.memory, "memory.peak")),
                oom_kills: value_of(
                    &read(&self.memory, "memory.events").unwrap_or_default(),
                    "oom_kill",
                )
                .unwrap_or(0),
            },
        }
    }
}

fn make(folder: &Path) -> io::Result<()> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Quota and period of a limit in CPUs, us.
fn quota(cpu: f64) -> (u64, u64) {
    let within = |period: u64| (cpu * period as f64).round() as u64;
    if within(PERIOD_US) >= LEAST_QUOTA_US {
        (within(PERIOD_US), PERIOD_US)
    } else {
        (within(LONG_PERIOD_US).max(LEAST_QUOTA_US), LONG_PERIOD_US)
    }
}

/// The number behind a word at the start of a line.
fn value_of(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == word).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like a cgroup file system.
    struct Fake(PathBuf);

    impl Fake {
        fn new(name: &str, files: &[&str]) -> Self {
            let root = std::env::temp_dir().join(format!("timebound-cgroups-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&root);
            for file in files {
                let path = root.join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "").unwrap();
            }
            Self(root)
        }
        fn read(&self, file: &str) -> String {
            std::fs::read_to_string(self.0.join(file)).unwrap_or_else(|_| format!("no {file}"))
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const LIMITS: Limits = Limits {
        cpu: Some(0.2),
        part: Some(0.25),
        memory_bytes: Some(1 << 24),
    };

    #[test]
    fn version_2_gets_quota_weight_and_memory_in_one_tree() {
        let fake = Fake::new("v2", &["cgroup.controllers", "cgroup.subtree_control"]);
        let trees = Trees::at(&fake.0);
        assert_eq!((trees.version, trees.list().len()), (Version::V2, 1));
        trees.make_run("run").unwrap();
        trees.make_node("run", "h1", &LIMITS).unwrap();
        assert_eq!(fake.read("cgroup.subtree_control"), "+cpu +memory");
        assert_eq!(fake.read("run/cgroup.subtree_control"), "+cpu +memory");
        assert_eq!(fake.read("run/cpu.weight"), "10000");
        assert_eq!(fake.read("run/h1/cpu.max"), "20000 100000");
        assert_eq!(fake.read("run/h1/cpu.weight"), "2500");
        assert_eq!(fake.read("run/h1/memory.max"), "16777216");
        let node = fake.0.join("run/h1");
        std::fs::write(
            node.join("cpu.stat"),
            "usage_usec 9\nnr_throttled 3\nthrottled_usec 1500\n",
        )
        .unwrap();
        std::fs::write(node.join("memory.peak"), "4096\n").unwrap();
        std::fs::write(node.join("memory.events"), "low 0\noom 4\noom_kill 2\n").unwrap();
        let counts = trees.counts("run", "h1");
        assert_eq!(
            counts,
            Counts {
                throttled_ns: Some(1_500_000),
                memory_peak_bytes: Some(4096),
                oom_kills: 2
            }
        );
    }

    #[test]
    fn version_1_gets_them_in_a_tree_for_each_controller() {
        let fake = Fake::new("v1", &["cpu/cpu.shares", "memory/tasks"]);
        let trees = Trees::at(&fake.0);
        assert_eq!((trees.version, trees.list().len()), (Version::V1, 2));
        trees.make_run("run").unwrap();
        trees.make_node("run", "h1", &LIMITS).unwrap();
        assert_eq!(fake.read("cpu/run/cpu.shares"), "262144");
        assert_eq!(fake.read("cpu/run/h1/cpu.cfs_quota_us"), "20000");
        assert_eq!(fake.read("cpu/run/h1/cpu.shares"), "65536");
        assert_eq!(fake.read("memory/run/h1/memory.limit_in_bytes"), "16777216");
        assert_eq!(
            fake.read("cpu/run/h1/memory.limit_in_bytes"),
            "no cpu/run/h1/memory.limit_in_bytes"
        );
        std::fs::write(
            fake.0.join("cpu/run/h1/cpu.stat"),
            "nr_periods 3\nthrottled_time 77\n",
        )
        .unwrap();
        std::fs::write(
            fake.0.join("memory/run/h1/memory.oom_control"),
            "under_oom 0\noom_kill 1\n",
        )
        .unwrap();
        let counts = trees.counts("run", "h1");
        assert_eq!(
            (counts.throttled_ns, counts.memory_peak_bytes, counts.oom_kills),
            (Some(77), None, 1)
        );
    }

    #[test]
    fn processes_are_counted_beside_limits_and_without() {
        for version in ["v1", "v2"] {
            let files: &[&str] = match version {
                "v1" => &["cpu/cpu.shares", "memory/tasks", "pids/tasks"],
                _ => &["cgroup.controllers", "cgroup.subtree_control"],
            };
            let fake = Fake::new(&format!("pids-{version}"), files);
            let trees = Trees::at(&fake.0);
            trees.make_run("limited").unwrap();
            trees.make_node("limited", "h1", &LIMITS).unwrap();
            for run in ["limited", "free"] {
                trees.count_run(run, 100).unwrap();
                for _ in 0..2 {
                    let folder = trees.count_node(run, "h1", 7).unwrap();
                    assert_eq!(std::fs::read_to_string(folder.join("pids.max")).unwrap(), "7");
                }
                let tree = if version == "v1" { "pids/" } else { "" };
                assert_eq!(fake.read(&format!("{tree}{run}/pids.max")), "100");
            }
        }
    }

    #[test]
    fn quotas_and_weights_stay_within_what_the_kernel_takes() {
        let v2 = Trees {
            version: Version::V2,
            cpu: PathBuf::new(),
            memory: PathBuf::new(),
            pids: PathBuf::new(),
        };
        let least = Limits {
            cpu: Some(0.0077),
            part: Some(0.0),
            memory_bytes: None,
        };
        assert_eq!(
            v2.settings(&least),
            [
                ("cpu.max", "7700 1000000".to_owned()),
                ("cpu.weight", "1".to_owned())
            ]
        );
        assert_eq!(v2.settings(&Limits::default()), []);
    }
}

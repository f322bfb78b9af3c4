//! Limits and guarantees of CPU and memory of nodes, and of the number of their processes. Cgroups are the one thing that outlives its process, so each run's folder is named
//! after its owner (process id and start time), and every start removes those whose owner is gone.
//!
//! One group per node and controller binds everything that runs in it. Threads of SCHED_FIFO are not bound by a quota and
//! take from nobody's weight, so nothing in a limited node may be one: version 1 refuses it by itself (EPERM while
//! `cpu.rt_runtime_us` is 0, sched-rt-group.rst), elsewhere see [`Cgroups::binds_cpu`].

mod tree;

pub(crate) use tree::Counts;

use crate::failure::Failure;
use crate::plan::{self, HostPlan, Plan};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use tree::{Limits, Trees};

const ROOT: &str = "/sys/fs/cgroup";
const PREFIX: &str = "timebound-";

/// The groups of one run.
#[derive(Debug)]
pub(crate) struct Cgroups {
    trees: Trees,
    name: String,
    nodes: BTreeMap<String, Limits>,
    /// Most processes and threads of each node; none where the kernel or our rights do not let them be counted.
    processes: Option<BTreeMap<String, u64>>,
}

/// Of all nodes of a run together, processes and threads.
pub(crate) const MOST_PROCESSES: u64 = 8_192;

impl Cgroups {
    /// Removes what dead runs left, and makes the groups of this one: those of nodes with limits, and what counts processes, where
    /// that can be done.
    ///
    /// # Errors
    /// Reservations of more CPUs than there are, and limits that cannot be set.
    pub(crate) fn create(plan: &Plan) -> Result<Option<Self>, Failure> {
        let trees = Trees::at(Path::new(ROOT));
        sweep_all();
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let nodes = limits(plan, cpus as f64)?;
        let own = std::process::id();
        let start = start_time(own).unwrap_or(0);
        let mut groups = Self {
            trees,
            name: format!("{PREFIX}{own}-{start}-{}", plan.run_id),
            nodes,
            processes: None,
        };
        if !groups.nodes.is_empty()
            && let Err(error) = groups.fill()
        {
            groups.remove();
            return Err(Failure::host(
                "cannot limit CPU or memory of nodes: run as root on a host with the cpu and memory controllers of cgroups, \
                 or leave out cpu, cpu-reservation and memory",
                error,
            ));
        }
        if groups.trees.count_run(&groups.name, MOST_PROCESSES).is_ok() {
            let hosts = plan.hosts.iter();
            groups.processes = Some(hosts.map(|host| (host.node.clone(), host.processes)).collect());
        } else if groups.nodes.is_empty() {
            groups.remove();
            return Ok(None);
        }
        Ok(Some(groups))
    }

    fn fill(&self) -> io::Result<()> {
        self.trees.make_run(&self.name)?;
        self.nodes
            .iter()
            .try_for_each(|(node, limits)| self.trees.make_node(&self.name, node, limits))
    }

    /// Files into which a process writes `0` to enter the groups of a node; none if it has no limit.
    pub(crate) fn doors(&self, node: &str) -> io::Result<Vec<File>> {
        if !self.nodes.contains_key(node) {
            return Ok(Vec::new());
        }
        let folders = self.trees.list().into_iter();
        folders
            .map(|tree| tree.join(&self.name).join(node).join("cgroup.procs"))
            .map(|file| std::fs::OpenOptions::new().write(true).open(file))
            .collect()
    }

    /// As [`Self::doors`], of the group that limits the number of a node's processes; made at the first call. `None` where that cannot be
    /// done.
    pub(crate) fn counted_door(&self, node: &str) -> io::Result<Option<File>> {
        let Some(processes) = &self.processes else {
            return Ok(None);
        };
        let most = processes.get(node).copied().unwrap_or(plan::PROCESSES);
        let folder = self.trees.count_node(&self.name, node, most)?;
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(folder.join("cgroup.procs"))?;
        Ok(Some(file))
    }

    /// What the groups of a node have counted; `None` if it has none.
    pub(crate) fn counts(&self, node: &str) -> Option<Counts> {
        self.nodes
            .contains_key(node)
            .then(|| self.trees.counts(&self.name, node))
    }

    /// Is the CPU of a node limited or reserved? Then its threads must not be SCHED_FIFO.
    #[allow(dead_code, reason = "for the endpoints' process per node")]
    pub(crate) fn binds_cpu(&self, node: &str) -> bool {
        self.nodes
            .get(node)
            .is_some_and(|limits| limits.cpu.is_some() || limits.part.is_some())
    }

    /// Removes the folders, as soon as the kernel has noted that their processes are gone.
    pub(crate) fn remove(&self) {
        let folders: Vec<_> = self
            .trees
            .all()
            .into_iter()
            .map(|tree| tree.join(&self.name))
            .collect();
        for _ in 0..50 {
            folders.iter().for_each(|folder| remove(folder));
            if !folders.iter().any(|folder| folder.exists()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// The nodes with limits. Where any node has a reservation, every node has a weight: the reserved part each, and the others share what is
/// left.
fn limits(plan: &Plan, cpus: f64) -> Result<BTreeMap<String, Limits>, Failure> {
    let reserved: f64 = plan.hosts.iter().filter_map(|host| host.cpu.reservation).sum();
    let positive = |value: Option<f64>| value.is_none_or(|value| value.is_finite() && value > 0.0);
    if let Some(host) = plan
        .hosts
        .iter()
        .find(|host| !positive(host.cpu.limit) || !positive(host.cpu.reservation))
    {
        return Err(Failure::internal(
            format!("plan: host {:?}", host.node),
            "limit and reservation of CPU must be above 0",
        ));
    }
    if let Some(host) = plan
        .hosts
        .iter()
        .find(|host| host.cpu.limit.is_some_and(|limit| limit < tree::LEAST_CPU))
    {
        return Err(Failure::Host(format!(
            "node {:?} is to get less CPU than the kernel can enforce ({} % of one)",
            host.node,
            tree::LEAST_CPU * 100.0
        )));
    }
    // A rounding error of sums like 0.1 + 0.2 is nobody's over-commitment.
    if reserved > cpus * (1.0 + 1e-9) {
        return Err(Failure::Host(format!(
            "the nodes reserve {reserved:.2} CPUs and this host has {cpus}: reserve less"
        )));
    }
    let others = plan
        .hosts
        .iter()
        .filter(|host| host.cpu.reservation.is_none())
        .count();
    let rest = (cpus - reserved).max(0.0) / cpus / others.max(1) as f64;
    let part =
        |host: &HostPlan| (reserved > 0.0).then(|| host.cpu.reservation.map_or(rest, |own| own / cpus));
    let all = plan.hosts.iter().map(|host| {
        let limits = Limits {
            cpu: host.cpu.limit,
            part: part(host),
            memory_bytes: host.memory_bytes,
        };
        (host.node.clone(), limits)
    });
    Ok(all.filter(|(_, limits)| *limits != Limits::default()).collect())
}

/// Removes the folders of all runs whose owner is gone.
pub(crate) fn sweep_all() {
    let trees = Trees::at(Path::new(ROOT));
    trees.all().into_iter().for_each(sweep);
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
pub(crate) fn start_time(pid: u32) -> Option<u64> {
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

    fn plan(hosts: &str) -> Plan {
        serde_json::from_str(&format!(
            r#"{{"schema": 1, "run_id": "r", "folder": "/r", "seed": 1, "duration_ns": 1, "network": {{"nodes": [], "links": []}}, "hosts": [{hosts}]}}"#
        ))
        .unwrap()
    }

    #[test]
    fn reservations_become_parts_of_all_cpus_and_the_others_share_the_rest() {
        let plan = plan(
            r#"{"node": "a", "address": "10.0.0.1", "prefix": 16, "cpu": {"reservation": 0.5}},
               {"node": "b", "address": "10.0.0.2", "prefix": 16, "cpu": {"limit": 0.2}, "memory_bytes": 9},
               {"node": "c", "address": "10.0.0.3", "prefix": 16}"#,
        );
        let found = limits(&plan, 2.0).unwrap();
        assert_eq!(found["a"].part, Some(0.25));
        assert_eq!(found["b"].part, Some(0.375));
        assert_eq!((found["b"].cpu, found["b"].memory_bytes), (Some(0.2), Some(9)));
        assert_eq!(found["c"].part, Some(0.375));
        let refused = limits(&plan, 0.4).unwrap_err().to_string();
        assert!(refused.contains("reserve 0.50 CPUs"), "{refused}");
    }

    #[test]
    fn a_node_without_limits_has_no_group() {
        let plan = plan(
            r#"{"node": "a", "address": "10.0.0.1", "prefix": 16}, {"node": "b", "address": "10.0.0.2", "prefix": 16, "memory_bytes": 9}"#,
        );
        assert_eq!(limits(&plan, 2.0).unwrap().keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn our_own_start_time_is_known() {
        assert!(start_time(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(start_time(u32::MAX), None);
    }
}

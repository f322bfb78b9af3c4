//! The built-in endpoints as processes of their own in the sandbox: they and the data plane share nothing but the kernel.
//!
//! Either one process holds them all, or one for each node, so that CPU time, memory and limits are the node's own and its
//! clients can be killed, paused and started again without the others. Words go both ways over socket pairs, one JSON object a
//! line. PID 1 forks the one process, or the mother of the many ([`zygote`]), while it has one thread.

mod group;
mod split;
mod zygote;

#[cfg(feature = "endpoints")]
mod child;
#[cfg(not(feature = "endpoints"))]
#[path = "none.rs"]
mod child;

use crate::failure::Failure;
use crate::nodes::Nodes;
use crate::plan::{EndpointProcesses, Plan};
use group::Group;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use zygote::Zygote;

/// What the endpoints say.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    /// The first word of a process that the zygote forked.
    Born { pid: libc::pid_t },
    /// Everything that connects before the start is connected.
    Ready,
    /// Over; times of the summary are run time.
    Done { summary: serde_json::Value },
    Failed {
        reason: String,
        summary: Option<serde_json::Value>,
    },
}

/// What they are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    Connect,
    /// CLOCK_MONOTONIC at time zero.
    Start {
        epoch: u64,
    },
    /// The run has begun already: what should have been sent until now is passed over.
    Resume {
        epoch: u64,
    },
    Stop,
}

/// How far they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Ready,
    Over,
}

/// All endpoint processes, seen from PID 1.
pub(crate) struct Traffic {
    groups: Vec<Group>,
    zygote: Option<Zygote>,
    folder: PathBuf,
    connecting: bool,
    epoch: Option<u64>,
}

impl Traffic {
    /// Checks the endpoints' plan and forks their process, or the mother of their processes; `None` for a plan without endpoints.
    ///
    /// # Errors
    /// A plan that makes no sense, or a refused fork.
    pub(crate) fn fork(plan: &Plan, nodes: &Nodes) -> Result<Option<Self>, Failure> {
        let Some(endpoints) = &plan.endpoints else {
            return Ok(None);
        };
        let parsed = child::parse(endpoints)?;
        let why = |error: std::io::Error| Failure::host("cannot start the endpoints", error);
        let (groups, zygote) = match plan.endpoint_processes {
            EndpointProcesses::Shared => {
                let output = plan.folder.join("endpoints.bin");
                let group = Group::fork(None, output.clone(), |stream| {
                    child::run(&parsed, nodes, &output, stream);
                })
                .map_err(why)?;
                (vec![group], None)
            }
            EndpointProcesses::PerNode => {
                let folder = plan.folder.join("endpoints");
                // What an earlier run in this folder left would be taken for ours.
                let _ = std::fs::remove_dir_all(&folder);
                std::fs::create_dir(&folder).map_err(why)?;
                let parts = split::by_node(parsed);
                let file = |index: usize| folder.join(format!("{index}.bin"));
                let groups = parts
                    .iter()
                    .enumerate()
                    .map(|(index, part)| Group::new(part.node.clone(), file(index)))
                    .collect();
                let zygote = Zygote::fork(&parts, nodes, &file).map_err(why)?;
                (groups, Some(zygote))
            }
        };
        Ok(Some(Self {
            groups,
            zygote,
            folder: plan.folder.clone(),
            connecting: false,
            epoch: None,
        }))
    }

    /// Starts the processes that are not there yet, and lets all of them connect.
    ///
    /// # Errors
    /// A refused fork.
    pub(crate) fn connect(&mut self) -> Result<(), Failure> {
        self.connecting = true;
        for index in 0..self.groups.len() {
            self.start(index)?;
            self.groups[index].tell(Order::Connect);
        }
        Ok(())
    }

    fn start(&mut self, index: usize) -> Result<(), Failure> {
        let group = &mut self.groups[index];
        let (Some(zygote), true) = (&mut self.zygote, group.is_to_start()) else {
            return Ok(());
        };
        let stream = zygote
            .spawn(index)
            .map_err(|error| Failure::host("cannot start the endpoints of a node", error))?;
        group.attach(stream);
        Ok(())
    }

    pub(crate) fn begin(&mut self, epoch: u64) {
        self.epoch = Some(epoch);
        self.tell_all(Order::Start { epoch });
    }

    pub(crate) fn stop(&mut self) {
        self.groups.iter_mut().for_each(Group::stop);
    }

    fn tell_all(&mut self, order: Order) {
        self.groups.iter_mut().for_each(|group| group.tell(order));
    }

    fn of_node(&mut self, node: &str) -> Option<usize> {
        self.groups
            .iter()
            .position(|group| group.node.as_deref() == Some(node))
    }

    /// Have the endpoints of this node a process of their own?
    pub(crate) fn has_own(&self, node: &str) -> bool {
        self.groups
            .iter()
            .any(|group| group.node.as_deref() == Some(node))
    }

    /// Kills the endpoints of a node; what they recorded is kept, and the run goes on. False where the node has none of its own.
    pub(crate) fn kill(&mut self, node: &str) -> bool {
        let found = self.of_node(node);
        if let Some(index) = found {
            self.groups[index].kill();
        }
        found.is_some()
    }

    /// Starts the endpoints of a node again after [`Self::kill`]: they connect, and send what is due from then on. False where the
    /// node has none of its own.
    ///
    /// # Errors
    /// A refused fork.
    pub(crate) fn spawn(&mut self, node: &str) -> Result<bool, Failure> {
        let Some(index) = self.of_node(node) else {
            return Ok(false);
        };
        if self.connecting && self.groups[index].is_to_start() {
            self.start(index)?;
            self.groups[index].tell(Order::Connect);
            if let Some(epoch) = self.epoch {
                self.groups[index].tell(Order::Resume { epoch });
            }
        }
        Ok(true)
    }

    /// Lets the endpoints of a node stand still, or go on. False where the node has none of its own.
    pub(crate) fn pause(&mut self, node: &str, paused: bool) -> bool {
        let found = self.of_node(node);
        if let Some(index) = found {
            self.groups[index].signal(if paused { libc::SIGSTOP } else { libc::SIGCONT });
        }
        found.is_some()
    }

    /// Node (none for traffic of all) and process id of every process there has been, in order of birth.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (Option<&str>, i32)> {
        self.groups
            .iter()
            .flat_map(|group| group.pids.iter().map(|pid| (group.node.as_deref(), *pid)))
    }

    /// Waiting until all that live are ready, over when all are.
    pub(crate) fn state(&self) -> State {
        let mut alive = self
            .groups
            .iter()
            .map(|group| group.state)
            .filter(|state| *state != State::Over);
        match alive.next() {
            None => State::Over,
            Some(first) if first == State::Ready && alive.all(|state| state == State::Ready) => State::Ready,
            Some(_) => State::Waiting,
        }
    }

    /// Takes note of what was said.
    ///
    /// # Errors
    /// That some of them failed.
    pub(crate) fn listen(&mut self) -> Result<(), Failure> {
        let mut watched: Vec<libc::pollfd> = Vec::with_capacity(self.groups.len());
        let mut who = Vec::with_capacity(self.groups.len());
        for (index, group) in self.groups.iter().enumerate() {
            if let Some(stream) = &group.stream {
                who.push(index);
                watched.push(libc::pollfd {
                    fd: stream.as_raw_fd(),
                    events: libc::POLLIN,
                    revents: 0,
                });
            }
        }
        // SAFETY: a live array of that length; no time to wait.
        if unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, 0) } <= 0 {
            return Ok(());
        }
        let mut failure = None;
        for (index, entry) in who.into_iter().zip(&watched) {
            if entry.revents != 0
                && let Err(error) = self.groups[index].listen()
            {
                failure = failure.or(Some(error));
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Takes note of the end of a process.
    ///
    /// # Errors
    /// That it ended before its time, or had failed.
    pub(crate) fn note_end(&mut self, pid: i32, status: i32) -> Result<(), Failure> {
        if let Some(zygote) = &mut self.zygote
            && zygote.pid == pid
        {
            return Err(Failure::internal("the endpoints' mother process died", status));
        }
        match self.groups.iter_mut().find(|group| group.pid == Some(pid)) {
            Some(group) => group.note_end(status),
            None => Ok(()),
        }
    }

    /// Merges what the processes wrote and said; at the end of the run.
    ///
    /// # Errors
    /// When the disk is full, or what they wrote cannot be read.
    pub(crate) fn collect(&mut self) -> Result<Option<serde_json::Value>, Failure> {
        self.zygote = None;
        let summaries: Vec<_> = self
            .groups
            .iter_mut()
            .flat_map(|group| std::mem::take(&mut group.summaries))
            .collect();
        let output = self.folder.join("endpoints.bin");
        let why = |error| Failure::host(format!("cannot write {}", output.display()), error);
        let epoch = self.epoch.unwrap_or(0) as i64;
        let mut files = self.groups.iter().map(|group| group.output.as_path());
        child::merge_records(&mut files, &output, epoch).map_err(why)?;
        let _ = std::fs::remove_dir_all(self.folder.join("endpoints"));
        Ok((!summaries.is_empty()).then(|| child::merge_summaries(summaries)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_endpoints_that_were_never_started() {
        let groups = ["h1", "h2"].map(|node| Group::new(Some(node.to_owned()), PathBuf::from(node)));
        let mut traffic = Traffic {
            groups: groups.into(),
            zygote: None,
            folder: PathBuf::new(),
            connecting: false,
            epoch: None,
        };
        assert_eq!(traffic.state(), State::Waiting);
        traffic.stop();
        assert_eq!(traffic.state(), State::Over);
    }
}

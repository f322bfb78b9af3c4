//! How a process becomes one of a node: its limits, its network, its host name, its files, and its rights.
//!
//! Everything that starts something in a node (programs of the plan, commands of a user, endpoints of the node) goes
//! through [`Nodes::run`] or, where it forks by itself, through [`Entrance::enter`].

use super::rights;
use super::room::{Furniture, Room, terminated};
use super::{Node, Nodes};
use crate::cgroups::{Counts, MOST_PROCESSES};
use crate::kernel::check;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, PoisonError};

/// All that a process needs to enter a node. Keeps what it refers to open.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// `cgroup.procs` of the node's groups.
    doors: Vec<File>,
    /// Does a group limit the number of processes?
    is_counted: bool,
    network: libc::c_int,
    room: Option<Arc<Room>>,
    folder: Option<CString>,
}

impl Entrance {
    /// Moves the calling process in. To be called between fork and exec (or first thing after a fork): it only makes system
    /// calls. The working folder becomes the entrance's, as entering a mount namespace resets it.
    ///
    /// # Errors
    /// The first refusal of the kernel.
    pub(crate) fn enter(&self) -> io::Result<()> {
        for door in &self.doors {
            (&*door).write_all(b"0")?;
        }
        super::enter(self.network)?;
        if let Some(room) = &self.room {
            // SAFETY: takes integers; both descriptors are live.
            unsafe {
                check(libc::setns(room.uts.as_raw_fd(), libc::CLONE_NEWUTS))?;
                check(libc::setns(room.mount.as_raw_fd(), libc::CLONE_NEWNS))?;
            }
        }
        if let Some(folder) = &self.folder {
            // SAFETY: a terminated string.
            check(unsafe { libc::chdir(folder.as_ptr()) })?;
        }
        // Endpoints of ours have no room, and keep what their clocks and sockets need.
        match &self.room {
            Some(_) if self.is_counted => rights::confine(),
            Some(_) => rights::limit_processes(MOST_PROCESSES).and_then(|()| rights::confine()),
            None => Ok(()),
        }
    }
}

impl Nodes {
    /// The entrance of a node for a process that works in `folder`. Makes the node's room at the first call.
    ///
    /// # Errors
    /// What the kernel refuses, or a file of the node that cannot be put where it is wanted.
    pub(crate) fn entrance(&self, node: &Node, folder: &Path) -> io::Result<Entrance> {
        if !self.sees(folder) {
            return Err(io::Error::other(format!(
                "nodes have a /tmp, /var/tmp and /run of their own and do not see {}: move it, or open it by TIMEBOUND_WRITABLE",
                folder.display()
            )));
        }
        let mut room = node.room.lock().unwrap_or_else(PoisonError::into_inner);
        if room.is_none() {
            let furniture = Furniture {
                hostname: &node.hostname,
                network: node.namespace(),
                hosts: &self.hosts_file,
                files: &node.files,
                folder: &self.folder,
                shown: &self.shown,
                machine: node.tap.is_some(),
            };
            *room = Some(Arc::new(Room::furnish(&furniture)?));
        }
        let counted = match &self.groups {
            Some(groups) => groups.counted_door(&node.name)?,
            None => None,
        };
        let is_counted = counted.is_some();
        Ok(Entrance {
            doors: self.doors(node)?.into_iter().chain(counted).collect(),
            is_counted,
            network: node.namespace.as_raw_fd(),
            room: room.clone(),
            folder: Some(terminated(folder)?),
        })
    }

    /// Is this folder of the host there for a node?
    pub(crate) fn sees(&self, folder: &Path) -> bool {
        !self.shown.hides(folder, &self.folder)
    }

    /// The entrance for endpoints of ours, which need the node's network and limits and nothing of its files.
    ///
    /// # Errors
    /// When the groups cannot be opened.
    #[cfg(feature = "endpoints")]
    pub(crate) fn bare_entrance(&self, node: &Node) -> io::Result<Entrance> {
        Ok(Entrance {
            doors: self.doors(node)?,
            is_counted: true,
            network: node.namespace.as_raw_fd(),
            room: None,
            folder: None,
        })
    }

    /// Files into which a process writes `0` to be bound by the limits of a node; none if it has none.
    pub(crate) fn doors(&self, node: &Node) -> io::Result<Vec<File>> {
        match &self.groups {
            Some(groups) => groups.doors(&node.name),
            None => Ok(Vec::new()),
        }
    }

    /// What the groups of a node have counted; `None` if it has none.
    #[must_use]
    pub(crate) fn counts(&self, node: &str) -> Option<Counts> {
        self.groups.as_ref()?.counts(node)
    }

    /// Starts `command` in a node by `start` (its `spawn`, `output`, ..): with the node's environment (what the command sets itself
    /// wins), in a session of its own, without blocked signals, within limits, network, host name, files, processes and rights of
    /// the node. Its executable is looked up in the node's files.
    ///
    /// # Errors
    /// As [`Nodes::entrance`], and what `start` returns.
    pub(crate) fn run<T: Send>(
        &self,
        node: &Node,
        command: &mut Command,
        folder: &Path,
        start: impl FnOnce(&mut Command) -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let entrance = self.entrance(node, folder)?;
        let room = entrance.room.clone();
        let own: Vec<_> = command.get_envs().map(|(key, _)| key.to_owned()).collect();
        let env = [("HOSTNAME", node.hostname.as_str())]
            .into_iter()
            .chain(node.env.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        for (key, value) in env.filter(|(key, _)| !own.iter().any(|known| known == key)) {
            command.env(key, value);
        }
        // SAFETY: between fork and exec only system calls are made. A session of its own keeps Ctrl-C of a terminal away
        // from it (we stop it in order) and lets us find its children.
        unsafe {
            command.pre_exec(move || {
                crate::signals::unblock();
                check(libc::setsid())?;
                entrance.enter()
            })
        };
        match room {
            Some(room) => room.launch(|| start(command)),
            None => start(command),
        }
    }
}

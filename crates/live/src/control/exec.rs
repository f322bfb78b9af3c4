//! Commands in nodes, asked for from outside: started as children of PID 1, watched, ended.

use super::orders::{Exec, Said};
use crate::kernel::{check, clock};
use crate::nodes::{Node, Nodes};
use crate::processes::{self, Process};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Most commands at a time.
const MOST: usize = 4096;
/// Between SIGTERM and SIGKILL.
const GRACE: u64 = 2_000_000_000;
/// How often dying commands are looked at.
const LOOK: u64 = 50_000_000;

/// One command that runs. Its process leads a session, which outlives it while others are in it.
struct Running {
    client: u64,
    id: u64,
    node: String,
    /// Null once it has ended and only its session is left to be ended.
    pid: Option<i32>,
    session: i32,
    ending_since: Option<u64>,
}

/// All commands of a run.
#[derive(Default)]
pub(crate) struct Commands {
    list: Vec<Running>,
    next_look: u64,
}

impl Commands {
    /// Starts a command; its process id in the sandbox.
    ///
    /// # Errors
    /// In words for whoever asked.
    pub(crate) fn start(
        &mut self,
        (client, id): (u64, u64),
        exec: &Exec,
        (nodes, node): (&Nodes, &Node),
        home: &Path,
        descriptors: Vec<OwnedFd>,
    ) -> Result<i32, String> {
        if self.list.len() >= MOST {
            return Err(format!("{MOST} commands are running already"));
        }
        if self
            .list
            .iter()
            .any(|known| (known.client, known.id) == (client, id) && known.pid.is_some())
        {
            return Err(format!("a command with id {id} is running already"));
        }
        // Of the caller, who may be where a node has a folder of its own.
        let folder = exec.folder.as_deref().filter(|folder| nodes.sees(folder));
        let folder = folder.unwrap_or(home);
        if !folder.is_dir() {
            return Err(format!("no folder {}", folder.display()));
        }
        let mut command = Command::new(&exec.argv[0]);
        command
            .args(&exec.argv[1..])
            .env("TIMEBOUND_NODE", &node.name)
            .envs(&exec.env);
        stdio(&mut command, descriptors).map_err(|error| error.to_string())?;
        let terminal = exec.terminal;
        let start = move |command: &mut Command| {
            if terminal {
                // SAFETY: it leads a session by then; one system call between fork and exec.
                unsafe { command.pre_exec(|| check(libc::ioctl(0, libc::TIOCSCTTY, 0)).map(drop)) };
            }
            command.spawn()
        };
        let started = nodes.run(node, &mut command, folder, start);
        let child = started.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("no program {:?} in node {:?}", exec.argv[0], node.name),
            _ => format!("cannot run {:?} in node {:?}: {error}", exec.argv[0], node.name),
        })?;
        // Waited for by PID 1's main loop, as everybody.
        let pid = child.id() as i32;
        self.list.push(Running {
            client,
            id,
            node: node.name.clone(),
            pid: Some(pid),
            session: pid,
            ending_since: None,
        });
        Ok(pid)
    }

    /// Takes note of the end of a process; whom to tell.
    pub(crate) fn note_end(&mut self, pid: i32, status: i32) -> Option<(u64, u64, Said)> {
        let index = self.list.iter().position(|command| command.pid == Some(pid))?;
        let command = &mut self.list[index];
        let said = Said::Ended {
            exit_code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        };
        let told = (command.client, command.id, said);
        command.pid = None;
        // What it started in the background goes on for as long as the connection, as with a shell.
        Some(told)
    }

    /// A signal for all processes of a command's session; false where there is none of this id.
    pub(crate) fn signal(&mut self, client: u64, id: u64, signal: i32) -> bool {
        let mut sessions = self
            .list
            .iter()
            .filter(|known| (known.client, known.id) == (client, id));
        let Some(session) = sessions.next().map(|known| known.session) else {
            return false;
        };
        of_sessions(&[session])
            .iter()
            .for_each(|process| processes::signal(process, signal));
        true
    }

    /// Ends the commands of connections that are gone.
    pub(crate) fn end_of_clients(&mut self, gone: &[u64]) {
        self.end(|command| gone.contains(&command.client));
    }

    /// Ends all commands.
    pub(crate) fn end_all(&mut self) {
        self.end(|_| true);
    }

    fn end(&mut self, which: impl Fn(&Running) -> bool) {
        let now = clock::monotonic();
        let mut sessions = Vec::new();
        for command in self.list.iter_mut().filter(|command| which(command)) {
            if command.ending_since.is_none() {
                command.ending_since = Some(now);
                sessions.push(command.session);
            }
        }
        for process in of_sessions(&sessions) {
            processes::signal(&process, libc::SIGHUP);
            processes::signal(&process, libc::SIGTERM);
            // A process that stands still obeys nothing but this.
            processes::signal(&process, libc::SIGCONT);
        }
    }

    /// Goes on with what is ending, and forgets what has ended.
    pub(crate) fn turn(&mut self) {
        let now = clock::monotonic();
        if self.list.is_empty()
            || now < self.next_look
            || self
                .list
                .iter()
                .all(|command| command.pid.is_some() && command.ending_since.is_none())
        {
            return;
        }
        self.next_look = now + LOOK;
        let processes = processes::all();
        let alive = |session: i32| {
            processes
                .iter()
                .any(|process| process.session == session && process.state != b'Z')
        };
        self.list
            .retain(|command| command.pid.is_some() || alive(command.session));
        let overdue = |command: &&Running| command.ending_since.is_some_and(|since| now - since > GRACE);
        let sessions: Vec<i32> = self
            .list
            .iter()
            .filter(overdue)
            .map(|command| command.session)
            .collect();
        for process in processes
            .iter()
            .filter(|process| sessions.contains(&process.session))
        {
            processes::signal(process, libc::SIGKILL);
        }
    }

    /// Sessions of the commands of a node.
    pub(crate) fn sessions<'a>(&'a self, node: &'a str) -> impl Iterator<Item = i32> + 'a {
        let of_node = self.list.iter().filter(move |command| command.node == node);
        of_node.map(|command| command.session)
    }

    /// Has everything ended?
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

fn of_sessions(sessions: &[i32]) -> Vec<Process> {
    if sessions.is_empty() {
        return Vec::new();
    }
    let mut all = processes::all();
    all.retain(|process| sessions.contains(&process.session));
    all
}

fn stdio(command: &mut Command, descriptors: Vec<OwnedFd>) -> std::io::Result<()> {
    let mut given = descriptors.into_iter();
    let Some(input) = given.next() else {
        return Err(std::io::Error::other("no descriptors"));
    };
    let (output, error) = match (given.next(), given.next()) {
        (Some(output), Some(error)) => (output, error),
        // A terminal is all three.
        _ => (input.try_clone()?, input.try_clone()?),
    };
    command.stdin(Stdio::from(input));
    command.stdout(Stdio::from(output));
    command.stderr(Stdio::from(error));
    Ok(())
}

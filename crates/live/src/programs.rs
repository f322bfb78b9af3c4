//! Programs of the plan in their nodes: found before anything runs, started, watched, stopped, accounted for.

use crate::failure::Failure;
use crate::hardware::{self, Machine};
use crate::kernel::{clock, sched};
use crate::nodes::{Nodes, within};
use crate::plan::{HardwarePlan, Plan, ProgramPlan};
use crate::switches::{self, YARD};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What became of a program.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ProgramReport {
    pub name: String,
    pub node: String,
    /// Within the sandbox; null if it never started.
    pub pid: Option<i32>,
    /// Run time; negative during set-up.
    pub started_ns: Option<i64>,
    pub ended_ns: Option<i64>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// It was still running when the run ended, and was told to end.
    pub stopped: bool,
    pub user_cpu_ns: u64,
    pub system_cpu_ns: u64,
    pub max_rss_bytes: u64,
    /// The kernel killed a process of its node for want of memory while it ran: the node's limit was reached.
    pub out_of_memory: bool,
    /// Relative to the run folder.
    pub log: PathBuf,
}

/// One program of the plan.
pub(crate) struct Program {
    pub(crate) plan: ProgramPlan,
    /// It is a virtual machine.
    machine: Option<Machine>,
    executable: PathBuf,
    /// Environment by which every program of the run finds its real switches.
    surroundings: BTreeMap<String, String>,
    /// CLOCK_MONOTONIC.
    started: Option<u64>,
    ended: Option<u64>,
    ready: bool,
    stopping_since: Option<u64>,
    killed: bool,
    /// Of its node, when it started.
    oom_kills_before: u64,
    /// All that it ever led: one for each start.
    pub(crate) sessions: Vec<i32>,
    log: Option<Log>,
    pub(crate) report: ProgramReport,
}

/// All programs of a run.
pub(crate) struct Programs {
    pub(crate) list: Vec<Program>,
    folder: PathBuf,
    /// Nodes where nothing starts now.
    blocked: BTreeSet<String>,
    /// What became of programs that were started again since.
    earlier: Vec<(ProgramReport, Option<u64>, Option<u64>)>,
}

impl Programs {
    /// Finds every program.
    ///
    /// # Errors
    /// A name that appears twice, an unknown node, a program that is not there or may not be executed.
    pub(crate) fn find(plan: &Plan) -> Result<Self, Failure> {
        let mut names = BTreeSet::new();
        let mut nodes: BTreeSet<&str> = plan.hosts.iter().map(|host| host.node.as_str()).collect();
        nodes.extend(plan.switches.as_ref().map(|_| YARD));
        let daemons = plan
            .switches
            .as_ref()
            .map_or_else(Vec::new, |_| switches::daemons(plan));
        let surroundings = plan
            .switches
            .as_ref()
            .map(|_| switches::environment(&plan.folder))
            .unwrap_or_default();
        let mut list = Vec::with_capacity(plan.programs.len());
        let machines = plan.hosts.iter().filter_map(|host| match &host.hardware {
            Some(HardwarePlan::Machine(machine)) => Some((hardware::program(host, machine), Some(machine))),
            _ => None,
        });
        let programs = plan.programs.iter().map(|program| (program.clone(), None));
        let daemons = daemons.into_iter().map(|daemon| (daemon, None));
        for (program, machine) in daemons.chain(machines).chain(programs) {
            let program = &program;
            let bad = |why: &str| Failure::internal(format!("plan: program {:?}", program.name), why);
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if program.name.is_empty() || !program.name.chars().all(is_plain) {
                return Err(bad("name must consist of letters, digits, '-', '_' and '.'"));
            }
            if !names.insert(program.name.clone()) || !nodes.contains(program.node.as_str()) {
                return Err(bad("appears twice, or its node is no host"));
            }
            let first = program.argv.first().ok_or_else(|| bad("no command"))?;
            let executable = locate(first, program).ok_or_else(|| {
                let advice = if machine.is_some() {
                    "; a virtual machine needs QEMU: sudo apt-get install --no-install-recommends qemu-system-x86"
                } else if program.node == YARD && switches::DAEMONS.contains(&program.name.as_str()) {
                    "; switches with `engine: ovs` need it: sudo apt-get install --no-install-recommends openvswitch-switch"
                } else {
                    ""
                };
                Failure::Host(format!(
                    "program {first:?} of node {:?} was not found or may not be executed{advice}",
                    program.node
                ))
            })?;
            let log = program
                .log
                .clone()
                .unwrap_or_else(|| PathBuf::from(format!("logs/{}.log", program.name)));
            let report = ProgramReport {
                name: program.name.clone(),
                node: program.node.clone(),
                pid: None,
                started_ns: None,
                ended_ns: None,
                exit_code: None,
                signal: None,
                stopped: false,
                user_cpu_ns: 0,
                system_cpu_ns: 0,
                max_rss_bytes: 0,
                out_of_memory: false,
                log,
            };
            list.push(Program {
                plan: program.clone(),
                machine: machine.cloned().map(Machine::new),
                executable,
                surroundings: surroundings.clone(),
                started: None,
                ended: None,
                ready: false,
                stopping_since: None,
                killed: false,
                oom_kills_before: 0,
                sessions: Vec::new(),
                log: None,
                report,
            });
        }
        Ok(Self {
            list,
            folder: plan.folder.clone(),
            blocked: BTreeSet::new(),
            earlier: Vec::new(),
        })
    }

    /// Files that the commands name, beside `shown`: what a program runs, and what it is told to read. Files alone: in a folder that a
    /// scenario names there may be more than what is in a file.
    pub(crate) fn named_files(&self, shown: &[PathBuf]) -> Vec<PathBuf> {
        let mut found: BTreeSet<PathBuf> = shown.iter().cloned().collect();
        for program in &self.list {
            let home = program.plan.folder.as_ref().unwrap_or(&self.folder);
            let words = program.plan.argv.iter().skip(1).map(|word| home.join(word));
            let images = program.machine.iter().flat_map(Machine::files);
            let all = words.chain([program.executable.clone()]).chain(images);
            found.extend(all.filter(|path| path.is_file()));
        }
        found.into_iter().collect()
    }

    /// Starts the programs that are due: at set-up (`time` null), or up to a run time. `ready`: servers are, so that their clients may come.
    pub(crate) fn start_due(&mut self, nodes: &Nodes, time: Option<u64>, ready: bool) -> Result<(), Failure> {
        let folder = self.folder.clone();
        for program in &mut self.list {
            let due = match (program.plan.start_ns, time) {
                (None, _) => ready || !program.plan.after_ready,
                (Some(start), Some(time)) => start <= time,
                (Some(_), None) => false,
            };
            if due && program.started.is_none() && !self.blocked.contains(&program.plan.node) {
                program.start(nodes, &folder)?;
            }
        }
        Ok(())
    }

    /// Starts one program before set-up.
    ///
    /// # Errors
    /// A program that cannot be started.
    pub(crate) fn start_early(&mut self, nodes: &Nodes, name: &str) -> Result<(), Failure> {
        let folder = self.folder.clone();
        let mut named = self.list.iter_mut().filter(|program| program.plan.name == name);
        named.try_for_each(|program| program.start(nodes, &folder))
    }

    /// Run time of the next start.
    pub(crate) fn next_start(&self) -> Option<u64> {
        self.list
            .iter()
            .filter(|program| program.started.is_none() && !self.blocked.contains(&program.plan.node))
            .filter_map(|program| program.plan.start_ns)
            .min()
    }

    /// Are all started programs that have a port ready?
    ///
    /// # Errors
    /// One that is not ready in its time.
    pub(crate) fn are_ready(&mut self, nodes: &Nodes) -> Result<bool, Failure> {
        let mut all = true;
        for program in &mut self.list {
            if program.machine.is_some() && program.is_running() && !program.ready {
                program.ready = program.machine_is_ready(nodes)?;
                all &= program.ready;
                continue;
            }
            let (Some(ready), Some(started), false) =
                (program.plan.ready.clone(), program.started, program.ready)
            else {
                continue;
            };
            let is_ready = match (ready.tcp_port, &ready.file) {
                (Some(port), _) => is_listening(nodes, &program.plan.node, port),
                (None, Some(file)) => self.folder.join(file).exists(),
                (None, None) => true,
            };
            if is_ready {
                program.ready = true;
                continue;
            }
            all = false;
            if clock::monotonic() - started > ready.timeout_ms.saturating_mul(1_000_000) {
                let (name, log) = (&program.plan.name, program.report.log.display());
                let what = match (ready.tcp_port, &ready.file) {
                    (Some(port), _) => format!("does not accept connections on port {port}"),
                    (None, file) => format!("has not written {}", file.clone().unwrap_or_default().display()),
                };
                return Err(Failure::Host(format!(
                    "program {name:?} of node {:?} {what} after {} ms; see {log}",
                    program.plan.node, ready.timeout_ms
                )));
            }
        }
        Ok(all)
    }

    /// Takes note of everything that ended, our programs and orphans alike. The others with their status, and the failure of an
    /// essential program that ended by itself.
    pub(crate) fn reap(&mut self, nodes: &Nodes) -> (Vec<(i32, i32)>, Option<Failure>) {
        let mut failed = None;
        let mut others = Vec::new();
        loop {
            let mut status = 0;
            // SAFETY: an all-zero rusage is valid; both variables are live.
            let (pid, usage) = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                (
                    libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage),
                    usage,
                )
            };
            if pid <= 0 {
                break;
            }
            match self
                .list
                .iter_mut()
                .find(|program| program.report.pid == Some(pid) && program.ended.is_none())
            {
                Some(program) => {
                    program.end(status, &usage);
                    program.report.out_of_memory = program.oom_kills(nodes) > program.oom_kills_before;
                    failed = failed.or_else(|| program.failure());
                }
                None => others.push((pid, status)),
            }
        }
        (others, failed)
    }

    /// Tells what still runs to end: SIGTERM first, SIGKILL after its grace. True once nothing runs any more.
    ///
    /// Real switches end last: the others' connections close over them.
    pub(crate) fn stop(&mut self) -> bool {
        let now = clock::monotonic();
        let mut done = true;
        let is_switch = |program: &Program| switches::DAEMONS.contains(&program.plan.name.as_str());
        let others = self
            .list
            .iter()
            .any(|program| program.is_running() && !is_switch(program));
        for program in self.list.iter_mut().filter(|program| program.is_running()) {
            done = false;
            if others && is_switch(program) {
                // Whatever ends it now is no failure of the run's.
                continue;
            }
            match program.stopping_since {
                None => {
                    program.stopping_since = Some(now);
                    program.report.stopped = true;
                    // A machine shuts itself down when its power button is pressed; SIGTERM would pull its plug.
                    if !program.machine.as_mut().is_some_and(Machine::shut_down) {
                        program.signal(libc::SIGTERM);
                    }
                }
                Some(since) if now - since > program.plan.stop_grace_ns && !program.killed => {
                    program.killed = true;
                    program.signal(libc::SIGKILL);
                }
                Some(_) => {}
            }
        }
        done
    }

    /// One for every start, in the order of the plan and of time.
    pub(crate) fn reports(&self, epoch: u64) -> Vec<ProgramReport> {
        let relative = |time: Option<u64>| time.map(|time| time as i64 - epoch as i64);
        let mut all = Vec::with_capacity(self.list.len() + self.earlier.len());
        for program in &self.list {
            let earlier = self
                .earlier
                .iter()
                .filter(|(report, ..)| report.name == program.report.name);
            let last = (program.report.clone(), program.started, program.ended);
            all.extend(
                earlier
                    .cloned()
                    .chain([last])
                    .map(|(report, started, ended)| ProgramReport {
                        started_ns: relative(started),
                        ended_ns: relative(ended),
                        ..report
                    }),
            );
        }
        all
    }

    /// Nothing starts in this node from now on, and what ends in it was told to. The longest grace of its programs.
    pub(crate) fn block(&mut self, node: &str) -> u64 {
        self.blocked.insert(node.to_owned());
        let now = clock::monotonic();
        let mut grace = 0;
        for program in self.of_node(node).filter(|program| program.is_running()) {
            program.stopping_since.get_or_insert(now);
            program.report.stopped = true;
            grace = grace.max(program.plan.stop_grace_ns);
        }
        grace
    }

    /// The node's programs may start again, those too that have ended.
    pub(crate) fn revive(&mut self, node: &str) {
        self.blocked.remove(node);
        let mut earlier = Vec::new();
        for program in self.of_node(node).filter(|program| program.ended.is_some()) {
            earlier.push((program.report.clone(), program.started, program.ended));
            (program.started, program.ended, program.stopping_since) = (None, None, None);
            (program.ready, program.killed) = (false, false);
            program.report = ProgramReport {
                name: program.report.name.clone(),
                node: program.report.node.clone(),
                log: program.report.log.clone(),
                ..ProgramReport::default()
            };
        }
        self.earlier.extend(earlier);
    }

    /// Are all programs of the node ready that say when they are?
    pub(crate) fn is_node_ready(&mut self, nodes: &Nodes, node: &str) -> bool {
        let folder = self.folder.clone();
        self.of_node(node).all(|program| {
            let ready = program.plan.ready.as_ref().filter(|_| program.is_running());
            program.ready |= ready.is_none_or(|ready| match (ready.tcp_port, &ready.file) {
                (Some(port), _) => is_listening(nodes, node, port),
                (None, Some(file)) => folder.join(file).exists(),
                (None, None) => true,
            });
            program.ready
        })
    }

    /// Cuts logs that have outgrown the limit. Programs write to their logs themselves and are never held up: what they add beyond
    /// the limit is dropped a moment later, so the disk holds at most what is written between two turns more.
    pub(crate) fn trim(&mut self, limit: u64) {
        for log in self.list.iter_mut().filter_map(|program| program.log.as_mut()) {
            log.trim(limit);
        }
    }

    /// Is a program of the node still to be waited for?
    pub(crate) fn runs_in(&self, node: &str) -> bool {
        self.list
            .iter()
            .any(|program| program.plan.node == node && program.is_running())
    }

    fn of_node<'a>(&'a mut self, node: &'a str) -> impl Iterator<Item = &'a mut Program> {
        self.list
            .iter_mut()
            .filter(move |program| program.plan.node == node)
    }
}

/// A log as we see it; the program has the same file open for appending.
struct Log {
    file: File,
    /// Its length, once it is full.
    full: Option<u64>,
}

impl Log {
    fn trim(&mut self, limit: u64) {
        let length = self.file.metadata().map_or(0, |meta| meta.len());
        if length <= self.full.unwrap_or(limit) {
            return;
        }
        if let Some(full) = self.full {
            let _ = self.file.set_len(full);
            return;
        }
        let note = format!("\n[timebound: {limit} bytes are kept of this output; the rest is dropped]\n");
        // The file is open for appending, so the note lands at the new end.
        let _ = self.file.set_len(limit);
        let _ = io::Write::write_all(&mut self.file, note.as_bytes());
        // With what the program wrote in between, so that the note is never cut.
        self.full = Some(self.file.metadata().map_or(limit, |meta| meta.len()));
    }
}

impl Program {
    pub(crate) fn is_running(&self) -> bool {
        self.started.is_some() && self.ended.is_none()
    }

    fn start(&mut self, nodes: &Nodes, folder: &Path) -> Result<(), Failure> {
        let plan = &self.plan;
        let why = |error: io::Error| Failure::host(format!("cannot start program {:?}", plan.name), error);
        let node = nodes
            .get(&plan.node)
            .ok_or_else(|| Failure::internal("no such node", &plan.node))?;
        let log = folder.join(&self.report.log);
        if let Some(parent) = log.parent() {
            std::fs::create_dir_all(parent).map_err(why)?;
        }
        // One that starts again goes on with its log.
        let log = File::options().append(true).create(true).open(log).map_err(why)?;
        if self.sessions.is_empty() {
            log.set_len(0).map_err(why)?;
        }
        if self.log.is_none() {
            self.log = Some(Log {
                file: log.try_clone().map_err(why)?,
                full: None,
            });
        }
        let work = plan.folder.clone().unwrap_or_else(|| folder.to_owned());
        // Anywhere else it would be a scenario that makes folders of the host.
        if work.starts_with(folder) {
            std::fs::create_dir_all(&work).map_err(why)?;
        }
        let prefix = nodes.prefix;
        let launched = self.machine.as_mut().map(|machine| machine.launch(node, prefix));
        let launched = launched.transpose().map_err(why)?;
        let mut command = Command::new(&self.executable);
        command
            .arg0(&plan.argv[0])
            .args(&plan.argv[1..])
            .args(launched.iter().flat_map(|launch| &launch.arguments))
            .envs(&self.surroundings)
            .envs(&plan.env)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(why)?)
            .stderr(log);
        if plan.name == switches::DAEMONS[1] {
            // Before it becomes one of the node, which may not do that.
            // One thread of it moves all frames. Beside other load an ordinary thread would be milliseconds late, and so would they be.
            let raise = || {
                sched::enter_fifo(switches::PRIORITY);
                Ok(())
            };
            // SAFETY: a system call alone, between fork and exec.
            unsafe { command.pre_exec(raise) };
        }
        self.oom_kills_before = self.oom_kills(nodes);
        if let Some(launch) = &launched {
            let (monitor, tap) = (launch.monitor.as_raw_fd(), launch.tap);
            // SAFETY: system calls alone, between fork and exec.
            unsafe { command.pre_exec(move || hardware::keep(&monitor).and_then(|()| hardware::keep(&tap))) };
        }
        let child = nodes
            .run(node, &mut command, &work, Command::spawn)
            .map_err(why)?;
        // Waited for by `reap`, as PID 1 waits for everybody.
        self.report.pid = Some(child.id() as i32);
        self.sessions.push(child.id() as i32);
        self.started = Some(clock::monotonic());
        Ok(())
    }

    fn oom_kills(&self, nodes: &Nodes) -> u64 {
        nodes.counts(&self.plan.node).map_or(0, |counts| counts.oom_kills)
    }

    /// # Errors
    /// A machine that takes too long.
    fn machine_is_ready(&mut self, nodes: &Nodes) -> Result<bool, Failure> {
        let (Some(machine), Some(started)) = (&mut self.machine, self.started) else {
            return Ok(true);
        };
        let name = &self.plan.name;
        let ready = machine
            .poll(nodes, &self.plan.node)
            .map_err(|error| Failure::host(format!("cannot ask virtual machine {name:?}"), error))?;
        if !ready && clock::monotonic() - started > machine.boot_ns() {
            return Err(Failure::Host(format!(
                "virtual machine {name:?} {} after {} s; see {}",
                machine.waits_for(),
                machine.boot_ns() / 1_000_000_000,
                self.report.log.display()
            )));
        }
        Ok(ready)
    }

    fn end(&mut self, status: i32, usage: &libc::rusage) {
        let nanos = |time: libc::timeval| (time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64) * 1_000;
        self.ended = Some(clock::monotonic());
        self.report.exit_code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        self.report.signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
        self.report.user_cpu_ns = nanos(usage.ru_utime);
        self.report.system_cpu_ns = nanos(usage.ru_stime);
        self.report.max_rss_bytes = usage.ru_maxrss as u64 * 1024;
    }

    fn failure(&self) -> Option<Failure> {
        let is_server = self.plan.ready.is_some();
        let well = self.report.exit_code == Some(0) && !is_server;
        if !self.plan.essential || self.stopping_since.is_some() || well {
            return None;
        }
        let how = match (self.report.exit_code, self.report.signal) {
            (_, Some(_)) if self.report.out_of_memory => {
                "was killed by the kernel: out of memory (the node's limit)".to_owned()
            }
            (_, Some(signal)) => format!("was killed by signal {signal}"),
            (code, None) => format!("ended with status {}", code.unwrap_or(-1)),
        };
        let (name, node) = (&self.plan.name, &self.plan.node);
        Some(Failure::Host(format!(
            "program {name:?} of node {node:?}, which the run needs, {how}; see {}",
            self.report.log.display()
        )))
    }

    fn signal(&self, signal: i32) {
        if let Some(pid) = self.report.pid {
            // SAFETY: the program has not been waited for, so its id (and that of its session's group) is still its own.
            unsafe { libc::kill(-pid, signal) };
        }
    }
}

/// Accepts somebody connections on this port in the node?
fn is_listening(nodes: &Nodes, node: &str, port: u16) -> bool {
    let Some(node) = nodes.get(node) else { return false };
    let connect = |address| {
        let address = SocketAddr::from((address, port));
        TcpStream::connect_timeout(&address, Duration::from_millis(50)).is_ok()
    };
    within(node.namespace(), || {
        Ok(connect(node.address) || connect(Ipv4Addr::LOCALHOST))
    })
    .unwrap_or(false)
}

/// The executable file of a command, as `execvp` would find it.
fn locate(command: &str, plan: &ProgramPlan) -> Option<PathBuf> {
    let is_executable = |path: &Path| {
        path.metadata()
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if command.contains('/') {
        let folder = plan.folder.clone().unwrap_or_default();
        let path = std::path::absolute(folder.join(command)).ok()?;
        return is_executable(&path).then_some(path);
    }
    let path = plan
        .env
        .get("PATH")
        .map(std::ffi::OsString::from)
        .or_else(|| std::env::var_os("PATH"))?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(command))
        .find(|path| is_executable(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_flood_is_cut_says_so_once_and_the_writer_goes_on() {
        let path = std::env::temp_dir().join(format!("timebound-log-{}", std::process::id()));
        let mut file = File::options().append(true).create(true).open(&path).unwrap();
        file.set_len(0).unwrap();
        let mut log = Log {
            file: file.try_clone().unwrap(),
            full: None,
        };
        file.write_all(b"short").unwrap();
        log.trim(100);
        assert_eq!(std::fs::read(&path).unwrap(), b"short");
        for _ in 0..3 {
            file.write_all(&[b'x'; 1000]).unwrap();
            log.trim(100);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.starts_with("shortxxx") && text.len() < 200, "{}", text.len());
        assert_eq!(text.matches("100 bytes are kept").count(), 1);
    }
}

//! One endpoint process at a time, and those before it that were killed.

use super::{Order, State, Word};
use crate::failure::Failure;
use crate::kernel::check;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

pub(super) struct Group {
    /// Whose endpoints they are; none where one process has those of all.
    pub(super) node: Option<String>,
    /// Where they record.
    pub(super) output: PathBuf,
    /// The process that lives.
    pub(super) pid: Option<libc::pid_t>,
    /// All that ever lived.
    pub(super) pids: Vec<libc::pid_t>,
    pub(super) stream: Option<UnixStream>,
    received: Vec<u8>,
    pub(super) state: State,
    pub(super) summaries: Vec<serde_json::Value>,
    failure: Option<String>,
    /// By order, not by accident.
    pub(super) killed: bool,
}

impl Group {
    /// A group whose process is still to come.
    pub(super) fn new(node: Option<String>, output: PathBuf) -> Self {
        Self {
            node,
            output,
            pid: None,
            pids: Vec::new(),
            stream: None,
            received: Vec::new(),
            state: State::Waiting,
            summaries: Vec::new(),
            failure: None,
            killed: false,
        }
    }

    /// Forks the process from the calling one, which must have one thread.
    pub(super) fn fork(
        node: Option<String>,
        output: PathBuf,
        work: impl FnOnce(UnixStream),
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // SAFETY: PID 1 has one thread at this time (see `crate::run`), so the child may go on as it likes.
        let pid = check(unsafe { libc::fork() })?;
        if pid == 0 {
            drop(ours);
            super::zygote::end(|| work(theirs));
        }
        let mut group = Self::new(node, output);
        ours.set_nonblocking(true)?;
        group.stream = Some(ours);
        group.pid = Some(pid);
        group.pids.push(pid);
        Ok(group)
    }

    /// Takes the end of a process that was just ordered.
    pub(super) fn attach(&mut self, stream: UnixStream) {
        self.stream = Some(stream);
        self.received.clear();
        self.state = State::Waiting;
        self.killed = false;
        self.pid = None;
    }

    /// Is there nobody, and should there be somebody?
    pub(super) fn is_to_start(&self) -> bool {
        self.pids.is_empty() && self.stream.is_none() || self.killed
    }

    pub(super) fn tell(&mut self, order: Order) {
        let mut line = serde_json::to_vec(&order).unwrap_or_default();
        line.push(b'\n');
        if let Some(stream) = &mut self.stream {
            // Whoever is gone need not be told; `note_end` says so.
            let _ = stream.write_all(&line);
        }
    }

    pub(super) fn signal(&self, signal: i32) {
        if let Some(pid) = self.pid {
            // SAFETY: it has not been waited for (`note_end` forgets it), so its id is still its own.
            unsafe { libc::kill(pid, signal) };
        }
    }

    /// Asks it to end, whether it stands still or not; where nobody was started yet it is over.
    pub(super) fn stop(&mut self) {
        if self.is_to_start() {
            self.state = State::Over;
            return;
        }
        // Who stands still hears nothing.
        self.signal(libc::SIGCONT);
        self.tell(Order::Stop);
    }

    /// Ends it at once. One that has not said its process id yet learns it from the end of its stream.
    pub(super) fn kill(&mut self) {
        // What it said is not lost, and its id is known if it was born.
        let _ = self.listen();
        self.killed = true;
        self.signal(libc::SIGKILL);
        self.stream = None;
        self.state = State::Over;
    }

    /// Takes note of what was said.
    pub(super) fn listen(&mut self) -> Result<(), Failure> {
        let mut bytes = [0u8; 4096];
        while let Some(stream) = &mut self.stream {
            match stream.read(&mut bytes) {
                Ok(count) if count > 0 => self.received.extend(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => self.stream = None,
            }
        }
        while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.received.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(Word::Born { pid }) => {
                    self.pid = Some(pid);
                    self.pids.push(pid);
                }
                Ok(Word::Ready) => self.state = State::Ready,
                Ok(Word::Done { summary }) => {
                    self.state = State::Over;
                    self.summaries.push(summary);
                }
                Ok(Word::Failed { reason, summary }) => {
                    (self.state, self.failure) = (State::Over, Some(reason));
                    self.summaries.extend(summary);
                }
                Err(error) => self.failure = Some(format!("said something unknown: {error}")),
            }
        }
        match self.failure.take() {
            Some(reason) if !self.killed => Err(Failure::host("the endpoints failed", reason)),
            _ => Ok(()),
        }
    }

    /// Takes note of the end of its process.
    pub(super) fn note_end(&mut self, status: i32) -> Result<(), Failure> {
        let heard = self.listen();
        self.pid = None;
        if self.killed || self.state == State::Over {
            return heard;
        }
        self.state = State::Over;
        self.stream = None;
        heard?;
        let whose = self.node.as_deref().unwrap_or("all nodes");
        Err(Failure::internal(
            format!("the endpoints of {whose} died"),
            format!("wait status {status:#x}"),
        ))
    }
}

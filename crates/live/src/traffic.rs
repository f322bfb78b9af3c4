//! The built-in endpoints as a process of their own in the sandbox: they and the data plane share nothing but the kernel.
//!
//! Forked from PID 1 while that has one thread. Words go both ways over a socket pair, one JSON object a line.

use crate::failure::Failure;
use crate::kernel::check;
use crate::nodes::Nodes;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// What the endpoints say.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    /// Everything is connected.
    Ready,
    /// Over; times of the summary and of `endpoints.bin` are run time.
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
    Stop,
}

/// How far they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Ready,
    Over,
}

/// The process, seen from PID 1.
pub(crate) struct Traffic {
    pid: libc::pid_t,
    stream: UnixStream,
    received: Vec<u8>,
    pub(crate) state: State,
    pub(crate) summary: Option<serde_json::Value>,
    failure: Option<String>,
}

impl Traffic {
    /// Checks the endpoints' plan and forks their process.
    ///
    /// # Errors
    /// A plan that makes no sense, or a refused fork.
    pub(crate) fn fork(plan: &serde_json::Value, nodes: &Nodes, folder: &Path) -> Result<Self, Failure> {
        let plan = child::parse(plan)?;
        let why = |error: std::io::Error| Failure::host("cannot start the endpoints", error);
        let (ours, theirs) = UnixStream::pair().map_err(why)?;
        // SAFETY: PID 1 has one thread at this time (see `crate::run`), so the child may go on as it likes.
        let pid = check(unsafe { libc::fork() }).map_err(why)?;
        if pid == 0 {
            drop(ours);
            let work = std::panic::AssertUnwindSafe(|| child::run(&plan, nodes, folder, theirs));
            let code = i32::from(std::panic::catch_unwind(work).is_err());
            // SAFETY: ends the process without running anything of the program that forked us.
            unsafe { libc::_exit(code) };
        }
        ours.set_nonblocking(true).map_err(why)?;
        Ok(Self {
            pid,
            stream: ours,
            received: Vec::new(),
            state: State::Waiting,
            summary: None,
            failure: None,
        })
    }

    pub(crate) fn connect(&mut self) {
        self.tell(Order::Connect);
    }

    pub(crate) fn start(&mut self, epoch: u64) {
        self.tell(Order::Start { epoch });
    }

    pub(crate) fn stop(&mut self) {
        self.tell(Order::Stop);
    }

    fn tell(&mut self, order: Order) {
        let mut line = serde_json::to_vec(&order).unwrap_or_default();
        line.push(b'\n');
        // Whoever is gone need not be told; `note_end` says so.
        let _ = self.stream.write_all(&line);
    }

    /// Takes note of what was said.
    ///
    /// # Errors
    /// That they failed.
    pub(crate) fn listen(&mut self) -> Result<(), Failure> {
        let mut bytes = [0u8; 4096];
        while let Ok(count) = self.stream.read(&mut bytes) {
            if count == 0 {
                break;
            }
            self.received.extend(&bytes[..count]);
        }
        while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.received.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(Word::Ready) => self.state = State::Ready,
                Ok(Word::Done { summary }) => (self.state, self.summary) = (State::Over, Some(summary)),
                Ok(Word::Failed { reason, summary }) => {
                    (self.state, self.summary, self.failure) = (State::Over, summary, Some(reason));
                }
                Err(error) => self.failure = Some(format!("said something unknown: {error}")),
            }
        }
        self.failure.take().map_or(Ok(()), |reason| {
            Err(Failure::host("the endpoints failed", reason))
        })
    }

    /// Takes note of the end of a process.
    pub(crate) fn note_end(&mut self, pid: i32, status: i32) -> Result<(), Failure> {
        if pid != self.pid {
            return Ok(());
        }
        self.listen()?;
        if self.state == State::Over {
            return Ok(());
        }
        self.state = State::Over;
        Err(Failure::internal(
            "the endpoints died",
            format!("wait status {status:#x}"),
        ))
    }
}

/// Says one word; a parent that is gone takes us with it.
fn say(stream: &UnixStream, word: &Word) {
    let mut line = serde_json::to_vec(word).unwrap_or_default();
    line.push(b'\n');
    let _ = (&*stream).write_all(&line);
}

/// Orders that arrived; `None` once PID 1 has closed its end.
struct Orders {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Orders {
    fn next(&mut self, milliseconds: i32) -> Option<Vec<Order>> {
        let mut watched = libc::pollfd {
            fd: self.stream.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one live pollfd.
        if unsafe { libc::poll(&raw mut watched, 1, milliseconds) } > 0 {
            let mut bytes = [0u8; 512];
            match self.stream.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.received.extend(&bytes[..count]),
            }
        }
        let mut orders = Vec::new();
        while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.received.drain(..=end).collect();
            orders.extend(serde_json::from_slice::<Order>(&line));
        }
        Some(orders)
    }
}

#[cfg(not(feature = "endpoints"))]
mod child {
    //! A build without endpoints refuses plans that ask for them.
    use super::*;

    pub(super) struct NoPlan;

    pub(super) fn parse(_plan: &serde_json::Value) -> Result<NoPlan, Failure> {
        Err(Failure::Host(
            "this build has no built-in endpoints (feature `endpoints`)".to_owned(),
        ))
    }

    pub(super) fn run(_plan: &NoPlan, _nodes: &Nodes, _folder: &Path, stream: UnixStream) {
        let mut orders = Orders {
            stream,
            received: Vec::new(),
        };
        while orders.next(1000).is_some() {}
        say(
            &orders.stream,
            &Word::Failed {
                reason: "no endpoints in this build".to_owned(),
                summary: None,
            },
        );
    }
}

#[cfg(feature = "endpoints")]
mod child {
    //! The process itself.
    use super::*;
    use std::io;
    use std::time::Duration;
    use timebound_endpoints::{Control, EndpointPlan, NamespaceProvider, RunClock, Summary};

    struct InNodes<'a>(&'a Nodes);

    impl NamespaceProvider for InNodes<'_> {
        fn enter(&self, node: &str) -> io::Result<()> {
            let node = self
                .0
                .get(node)
                .ok_or_else(|| io::Error::other(format!("no host {node:?}")))?;
            crate::nodes::enter(node.namespace().as_raw_fd())
        }
    }

    pub(super) fn parse(plan: &serde_json::Value) -> Result<EndpointPlan, Failure> {
        let plan = serde_json::from_value(plan.clone())
            .map_err(|error| Failure::internal("plan: endpoints", error))?;
        timebound_endpoints::check(&plan).map_err(|error| Failure::internal("plan: endpoints", error))?;
        Ok(plan)
    }

    pub(super) fn run(plan: &EndpointPlan, nodes: &Nodes, folder: &Path, stream: UnixStream) {
        let Ok(reading) = stream.try_clone() else { return };
        let mut orders = Orders {
            stream: reading,
            received: Vec::new(),
        };
        loop {
            match orders.next(1000) {
                // Stopped before anything began: there is nothing to wind up, and PID 1 waits for us.
                Some(list) if list.contains(&Order::Stop) => return,
                Some(list) if list.contains(&Order::Connect) => break,
                Some(_) => {}
                None => return,
            }
        }
        let control = Control::new();
        let output = folder.join("endpoints.bin");
        // Time zero is not known yet: times are CLOCK_MONOTONIC until it is, and are shifted at the end.
        let clock = RunClock { epoch_ns: 0 };
        let mut epoch = None;
        let result = std::thread::scope(|scope| {
            let namespaces = InNodes(nodes);
            let (control, output) = (&control, &output);
            let running =
                scope.spawn(move || timebound_endpoints::run(plan, &namespaces, clock, control, output));
            let mut said_ready = false;
            while !running.is_finished() {
                if !said_ready && control.wait_ready(Duration::ZERO) {
                    said_ready = true;
                    say(&stream, &Word::Ready);
                }
                let received = orders.next(if said_ready { 50 } else { 5 });
                for order in received.unwrap_or_else(|| vec![Order::Stop]) {
                    match order {
                        Order::Start { epoch: at } => {
                            epoch = Some(at as i64);
                            control.start_at(at as i64);
                        }
                        Order::Stop => control.stop(),
                        Order::Connect => {}
                    }
                }
            }
            running.join()
        });
        let zero = epoch.unwrap_or(0);
        let shifted = shift_records(&output, zero);
        let word = match (result, shifted) {
            (Ok(Ok(summary)), Ok(())) => Word::Done {
                summary: value(&summary, zero),
            },
            (Ok(Ok(summary)), Err(error)) => Word::Failed {
                reason: format!("cannot write {}: {error}", output.display()),
                summary: Some(value(&summary, zero)),
            },
            (Ok(Err(error)), _) => Word::Failed {
                reason: error.to_string(),
                summary: error.summary().map(|summary| value(summary, zero)),
            },
            (Err(_), _) => Word::Failed {
                reason: "a thread panicked".to_owned(),
                summary: None,
            },
        };
        say(&stream, &word);
    }

    fn value(summary: &Summary, zero: i64) -> serde_json::Value {
        let mut summary = summary.clone();
        summary.start_ns -= zero;
        summary.end_ns -= zero;
        for event in &mut summary.events {
            event.time_ns -= zero;
        }
        serde_json::to_value(summary).unwrap_or_default()
    }

    /// Makes CLOCK_MONOTONIC times of `endpoints.bin` run times.
    fn shift_records(path: &Path, zero: i64) -> io::Result<()> {
        use timebound_endpoints::record::{Record, read_records};
        if !path.exists() {
            return Ok(());
        }
        let records = read_records(path)?;
        // Over the old bytes, so that a full disk takes nothing of what was recorded.
        let mut file = io::BufWriter::new(std::fs::OpenOptions::new().write(true).open(path)?);
        for record in records {
            let shifted = Record {
                nominal_ns: record.nominal_ns - zero,
                time_ns: record.time_ns - zero,
                ..record
            };
            file.write_all(&shifted.to_bytes())?;
        }
        file.flush()
    }
}

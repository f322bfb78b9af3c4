//! The endpoint process itself, and what becomes of its records and counts.
//!
//! Time zero is not known when it starts: it records CLOCK_MONOTONIC, and the merge at the end makes that run time.

use super::split::Part;
use super::{Order, Word};
use crate::failure::Failure;
use crate::nodes::Nodes;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use timebound_endpoints::record::{Record, read_records};
use timebound_endpoints::{
    Control, EndpointError, EndpointPlan, NamespaceProvider, Orders, RunClock, Summary,
};

pub(super) type Parsed = EndpointPlan;

const CLOCK: RunClock = RunClock { epoch_ns: 0 };

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

pub(super) fn parse(plan: &serde_json::Value) -> Result<Parsed, Failure> {
    let plan =
        serde_json::from_value(plan.clone()).map_err(|error| Failure::internal("plan: endpoints", error))?;
    timebound_endpoints::check(&plan).map_err(|error| Failure::internal("plan: endpoints", error))?;
    Ok(plan)
}

/// Says one word; a parent that is gone takes us with it.
pub(super) fn say(stream: &UnixStream, word: &Word) {
    let mut line = serde_json::to_vec(word).unwrap_or_default();
    line.push(b'\n');
    let _ = (&*stream).write_all(&line);
}

/// Orders that arrive; no stream once PID 1 has closed its end.
struct Inbox {
    stream: UnixStream,
    received: Vec<u8>,
    epoch: Option<u64>,
    stopped: bool,
    connects: bool,
}

impl Inbox {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            received: Vec::new(),
            epoch: None,
            stopped: false,
            connects: false,
        }
    }

    /// Waits for bytes at most this long, and obeys what is complete.
    fn wait(&mut self, milliseconds: i32, control: &Control) {
        let mut watched = libc::pollfd {
            fd: self.stream.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one live pollfd.
        if unsafe { libc::poll(&raw mut watched, 1, milliseconds) } <= 0 {
            return;
        }
        let mut bytes = [0u8; 512];
        match self.stream.read(&mut bytes) {
            Ok(0) | Err(_) => {
                self.stopped = true;
                control.stop();
            }
            Ok(count) => self.received.extend(&bytes[..count]),
        }
        while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.received.drain(..=end).collect();
            if let Ok(order) = serde_json::from_slice(&line) {
                self.obey(order, control);
            }
        }
    }

    fn obey(&mut self, order: Order, control: &Control) {
        match order {
            Order::Connect => self.connects = true,
            Order::Start { epoch } => {
                self.epoch = Some(epoch);
                control.start_at(epoch as i64);
            }
            Order::Resume { epoch } => {
                self.epoch = Some(epoch);
                control.resume_at(epoch as i64);
            }
            Order::Stop => {
                self.stopped = true;
                control.stop();
            }
        }
    }

    /// Until it may connect. False when it is stopped before anything began: there is nothing to wind up, and PID 1 waits.
    fn may_connect(&mut self, control: &Control) -> bool {
        while !self.connects && !self.stopped {
            self.wait(1000, control);
        }
        !self.stopped
    }
}

/// An inbox that is watched by the endpoints' own thread.
impl Orders for Inbox {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn take(&mut self, control: &Control) {
        self.wait(0, control);
    }

    fn ready(&mut self) {
        say(&self.stream, &Word::Ready);
    }
}

/// The endpoints of all nodes, with threads of their own.
pub(super) fn run(plan: &Parsed, nodes: &Nodes, output: &Path, stream: UnixStream) {
    let mut inbox = Inbox::new(stream);
    let control = Control::new();
    if !inbox.may_connect(&control) {
        return;
    }
    let result = std::thread::scope(|scope| {
        let namespaces = InNodes(nodes);
        let control = &control;
        let running =
            scope.spawn(move || timebound_endpoints::run(plan, &namespaces, CLOCK, control, output));
        let mut said_ready = false;
        while !running.is_finished() {
            if !said_ready && control.wait_ready(Duration::ZERO) {
                said_ready = true;
                inbox.ready();
            }
            if inbox.stopped {
                // Nothing more will come: do not turn in circles over a closed stream.
                std::thread::sleep(Duration::from_millis(5));
            } else {
                inbox.wait(if said_ready { 50 } else { 5 }, control);
            }
        }
        running.join()
    });
    let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    say(&inbox.stream, &last_word(result, inbox.epoch));
}

/// The endpoints of one node in this one thread, which goes over into the node.
pub(super) fn run_alone(part: &Part, nodes: &Nodes, output: &Path, stream: UnixStream) {
    if part.node.is_none() {
        return run(&part.plan, nodes, output, stream);
    }
    let mut inbox = Inbox::new(stream);
    let control = Control::new();
    let node = part.node.as_deref().and_then(|node| nodes.get(node));
    let entered = node.map(|node| nodes.bare_entrance(node).and_then(|entrance| entrance.enter()));
    if let Some(Err(error)) = entered {
        let reason = format!("cannot enter node {:?}: {error}", part.node);
        return say(
            &inbox.stream,
            &Word::Failed {
                reason,
                summary: None,
            },
        );
    }
    if !inbox.may_connect(&control) {
        return;
    }
    let result =
        timebound_endpoints::run_here(&part.plan, &InNodes(nodes), CLOCK, &control, output, &mut inbox);
    say(&inbox.stream, &last_word(result, inbox.epoch));
}

fn last_word(result: Result<Summary, EndpointError>, epoch: Option<u64>) -> Word {
    let zero = epoch.unwrap_or(0) as i64;
    match result {
        Ok(summary) => Word::Done {
            summary: value(&summary, zero),
        },
        Err(error) => {
            let error = in_run_time(error, zero);
            Word::Failed {
                reason: error.to_string(),
                summary: error.summary().map(|summary| value(summary, zero)),
            }
        }
    }
}

/// Who reads of it knows nothing of the kernel's clock.
fn in_run_time(mut error: EndpointError, zero: i64) -> EndpointError {
    if let EndpointError::ConnectionLost { time_ns, .. } = &mut error {
        *time_ns -= zero;
    }
    error
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

pub(super) fn merge_summaries(parts: Vec<serde_json::Value>) -> serde_json::Value {
    let parts = parts
        .into_iter()
        .filter_map(|part| serde_json::from_value(part).ok());
    serde_json::to_value(Summary::merge(parts)).unwrap_or_default()
}

/// Writes the records of all files into one, in the order of their times, and makes CLOCK_MONOTONIC run time.
pub(super) fn merge_records(
    files: &mut dyn Iterator<Item = &Path>,
    output: &Path,
    zero: i64,
) -> io::Result<()> {
    let mut records: Vec<Record> = Vec::new();
    let mut single = true;
    for path in files.filter(|path| path.exists()) {
        records.extend(read_records(path)?);
        single &= path == output;
    }
    if records.is_empty() && single {
        return Ok(());
    }
    if !single {
        records.sort_by_key(|record| record.time_ns);
    }
    // Over the old bytes where it is the same file, so that a full disk takes nothing of what was recorded.
    let options = std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(output)?;
    let mut file = io::BufWriter::new(options);
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

#[cfg(test)]
mod tests {
    use super::*;
    use timebound_endpoints::record::{Kind, NO_RECEIVER};

    #[test]
    fn a_lost_connection_is_told_in_run_time() {
        let lost = EndpointError::ConnectionLost {
            client: "press".to_owned(),
            node: "h1".to_owned(),
            broker: std::net::SocketAddrV4::new([10, 0, 0, 1].into(), 1883),
            reason: "it was closed".to_owned(),
            time_ns: 4_405_633_000_000,
            summary: Box::default(),
        };
        let Word::Failed { reason, .. } = last_word(Err(lost), Some(4_404_133_000_000)) else {
            panic!("it failed");
        };
        assert!(reason.contains("at 1.500 s"), "{reason}");
    }

    #[test]
    fn records_of_many_processes_become_one_file_in_the_order_of_time() {
        let folder = std::env::temp_dir().join(format!("timebound-merge-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let record = |flow: u32, time_ns: i64| Record {
            kind: Kind::Sent,
            qos: 0,
            flags: 0,
            flow,
            receiver: NO_RECEIVER,
            sequence: 0,
            size: 24,
            nominal_ns: time_ns - 1,
            time_ns,
        };
        let write = |name: &str, records: &[Record], rest: &[u8]| {
            let mut bytes: Vec<u8> = records.iter().flat_map(Record::to_bytes).collect();
            bytes.extend(rest);
            let path = folder.join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        // The second process was killed while it wrote.
        let files = [
            write("0.bin", &[record(0, 110), record(0, 130)], &[]),
            write("1.bin", &[record(1, 120)], &[1, 2, 3]),
            folder.join("never-started.bin"),
        ];
        let output = folder.join("endpoints.bin");
        merge_records(&mut files.iter().map(|path| path.as_path()), &output, 100).unwrap();
        let merged = read_records(&output).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let found: Vec<_> = merged
            .iter()
            .map(|record| (record.flow, record.nominal_ns, record.time_ns))
            .collect();
        assert_eq!(found, [(0, 9, 10), (1, 19, 20), (0, 29, 30)]);
    }
}

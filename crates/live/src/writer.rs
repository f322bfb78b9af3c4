//! The thread that writes what the data plane measured, as it happens: an interrupted run keeps what it has.

use crate::capture::Captures;
use crate::history::HistoryFile;
use crate::plane::{Kind, Window};
use crate::records::{DeliveryRecord, FrameRecord, IngressRecord};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use timebound_fabric::PortCounters;

/// Room between data plane and writer, in items: seconds of 20,000 frames/s.
pub(crate) const QUEUE: usize = 1 << 16;
/// How often the writer looks.
const INTERVAL: Duration = Duration::from_millis(5);
/// How often buffers go to the files: the most that is lost when the sandbox is killed.
const FLUSH: Duration = Duration::from_millis(200);
/// Columns of `ports.csv`; cumulative since time zero but for `queue_max_bytes`, which is the interval's own.
pub const PORT_COLUMNS: &str =
    "t_ns,port,frames,wire_bytes,dropped_buffer,dropped_link,queue_bytes,queue_max_bytes";

/// What the data plane hands over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Item {
    /// What follows belongs to this phase.
    Phase(Kind),
    Frame(FrameRecord),
    Ingress(IngressRecord),
    Delivery(DeliveryRecord),
    Port(PortSample),
    Window(Window),
    /// A lane that was closed has no frame under way any more, and all its records came before this.
    Emptied,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PortSample {
    /// Run time.
    pub(crate) time: u64,
    pub(crate) port: u32,
    pub(crate) counters: PortCounters,
}

/// What the pre-flight check looks at.
#[derive(Debug, Default, Clone)]
pub(crate) struct ProbeLog {
    pub(crate) frames: Vec<FrameRecord>,
    pub(crate) ingress: Vec<IngressRecord>,
    pub(crate) deliveries: Vec<DeliveryRecord>,
}

/// What the writer shares with the main thread.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) probes: ProbeLog,
    /// `probes` has all that the last attempt of the pre-flight check will ever record.
    pub(crate) complete: bool,
    /// Frames in `frames.bin`.
    pub(crate) frames: u64,
    /// The first error of a file; nothing more is written to that file.
    pub(crate) failed: Option<String>,
}

pub(crate) struct Writer {
    items: rtrb::Consumer<Item>,
    progress: Arc<Mutex<Progress>>,
    frames: BufWriter<File>,
    ports: BufWriter<File>,
    history: HistoryFile,
    detail: Option<(BufWriter<File>, BufWriter<File>)>,
    captures: Captures,
    phase: Kind,
    failed: bool,
    flushed: Instant,
}

impl Writer {
    /// Creates the files.
    pub(crate) fn create(
        folder: &Path,
        detailed: bool,
        items: rtrb::Consumer<Item>,
        captures: Captures,
        progress: Arc<Mutex<Progress>>,
    ) -> io::Result<Self> {
        let file = |name: &str| File::create(folder.join(name)).map(BufWriter::new);
        let mut ports = file("ports.csv")?;
        writeln!(ports, "{PORT_COLUMNS}")?;
        let detail = if detailed {
            Some((file("ingress.bin")?, file("deliveries.bin")?))
        } else {
            None
        };
        Ok(Self {
            items,
            progress,
            frames: file("frames.bin")?,
            ports,
            history: HistoryFile::create(folder)?,
            detail,
            captures,
            phase: Kind::Setup,
            failed: false,
            flushed: Instant::now(),
        })
    }

    /// Runs until the data plane is gone and everything is written.
    pub(crate) fn run(mut self) {
        loop {
            let finished = self.items.is_abandoned();
            let result = self.turn();
            self.note(result);
            if finished {
                let result = self.flush();
                self.note(result);
                return;
            }
            std::thread::sleep(INTERVAL);
        }
    }

    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result
            && !self.failed
        {
            self.failed = true;
            self.lock().failed = Some(format!("cannot write the run folder: {error}"));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&mut self) -> io::Result<()> {
        let mut written = 0;
        let progress = Arc::clone(&self.progress);
        while let Ok(item) = self.items.pop() {
            if self.failed {
                continue;
            }
            match (item, self.phase) {
                (Item::Phase(kind), _) => {
                    self.phase = kind;
                    self.history.begin();
                    // Each attempt of the pre-flight check is judged by its own probes.
                    if kind == Kind::Preflight {
                        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
                        (progress.probes, progress.complete) = (ProbeLog::default(), false);
                    }
                }
                (Item::Port(sample), _) => self.write_port(&sample)?,
                (Item::Emptied, _) => self.lock().complete = true,
                (Item::Window(window), _) => self.history.write(&window)?,
                (item, Kind::Preflight) => {
                    let log = &mut progress.lock().unwrap_or_else(PoisonError::into_inner).probes;
                    match item {
                        Item::Frame(record) => log.frames.push(record),
                        Item::Ingress(record) => log.ingress.push(record),
                        Item::Delivery(record) => log.deliveries.push(record),
                        Item::Phase(_) | Item::Port(_) | Item::Window(_) | Item::Emptied => {}
                    }
                }
                (Item::Frame(record), _) => {
                    self.frames.write_all(&record.encode())?;
                    written += 1;
                }
                (Item::Ingress(record), _) => {
                    if let Some((ingress, _)) = &mut self.detail {
                        ingress.write_all(&record.encode())?;
                    }
                }
                (Item::Delivery(record), _) => {
                    if let Some((_, deliveries)) = &mut self.detail {
                        deliveries.write_all(&record.encode())?;
                    }
                }
            }
        }
        if written > 0 {
            self.lock().frames += written;
        }
        self.captures.drain()?;
        if self.flushed.elapsed() >= FLUSH && !self.failed {
            self.flushed = Instant::now();
            self.flush()?;
        }
        Ok(())
    }

    fn write_port(&mut self, sample: &PortSample) -> io::Result<()> {
        let c = &sample.counters;
        writeln!(
            self.ports,
            "{},{},{},{},{},{},{},{}",
            sample.time,
            sample.port,
            c.frames,
            c.wire_bytes,
            c.dropped_buffer,
            c.dropped_link,
            c.queued_bytes,
            c.window_queue_bytes
        )
    }

    fn flush(&mut self) -> io::Result<()> {
        self.frames.flush()?;
        self.ports.flush()?;
        self.history.flush()?;
        if let Some((ingress, deliveries)) = &mut self.detail {
            ingress.flush()?;
            deliveries.flush()?;
        }
        self.captures.flush()
    }
}

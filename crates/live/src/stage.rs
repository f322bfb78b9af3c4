//! The data plane and the writer as threads, and the strings that move them.

use crate::capture;
use crate::failure::Failure;
use crate::kernel::{clock, ring, send};
use crate::nodes::Nodes;
use crate::plan::Plan;
use crate::plane::{
    Buffers, Command, Directory, Flows, Judged, Outlet, Plane, PlaneReport, Setup, Shared, Tap,
};
use crate::writer::{ProbeLog, Progress, QUEUE, Writer};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use timebound_model::Network;

/// Frame buffers from the start; more are made when a load needs them.
const BUFFERS: usize = 8192;

pub(crate) struct Stage {
    commands: Option<Sender<Command>>,
    shared: Arc<Shared>,
    progress: Arc<Mutex<Progress>>,
    plane: Option<JoinHandle<PlaneReport>>,
    writer: Option<JoinHandle<()>>,
}

impl Stage {
    /// Opens ring and files and starts the threads. Nothing is carried before the first lane is opened.
    ///
    /// # Errors
    /// When the host refuses the ring, or a file cannot be created.
    pub(crate) fn open(plan: &Plan, network: &Arc<Network>, nodes: &Nodes) -> Result<Self, Failure> {
        let (captures, taps, capture_ring) =
            capture::create(&plan.captures, &plan.folder, network, clock::realtime_offset())?;
        let (producer, consumer) = rtrb::RingBuffer::new(QUEUE);
        let progress = Arc::new(Mutex::new(Progress::default()));
        let writer = Writer::create(
            &plan.folder,
            plan.record_ingress,
            consumer,
            captures,
            Arc::clone(&progress),
        )
        .map_err(|error| Failure::host(format!("cannot write {}", plan.folder.display()), error))?;
        let why = |error: io::Error| Failure::host("cannot open the data plane's ring", error);
        let shared = Arc::new(Shared::new().map_err(why)?);
        let (commands, received) = channel();
        let parts = Parts {
            plan,
            network,
            nodes,
            tap: Tap::new(taps, capture_ring),
            records: producer,
            shared: Arc::clone(&shared),
        };
        // Captures cost the data plane something per frame and hop, so there are two of it.
        let plane = if parts.tap.is_used() {
            spawn::<true>(parts, received)?
        } else {
            spawn::<false>(parts, received)?
        };
        let writer = thread("writer", move || writer.run())?;
        Ok(Self {
            commands: Some(commands),
            shared,
            progress,
            plane: Some(plane),
            writer: Some(writer),
        })
    }

    pub(crate) fn send(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // A data plane that is gone has panicked; `close` says so.
            let _ = commands.send(command);
            self.shared.wake();
        }
    }

    /// Frames taken in so far.
    pub(crate) fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    /// Frames under way in the model.
    pub(crate) fn inside(&self) -> u64 {
        self.shared.inside.load(Ordering::Relaxed)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the pre-flight check's frames did so far.
    pub(crate) fn probes(&self) -> ProbeLog {
        self.progress().probes.clone()
    }

    pub(crate) fn writer_failure(&self) -> Option<String> {
        self.progress().failed.clone()
    }

    /// Ends both threads; the data plane's report, and what the writer failed at.
    ///
    /// # Panics
    /// If the data plane did, or at a second call.
    pub(crate) fn close(&mut self) -> (PlaneReport, Option<String>) {
        self.send(Command::Finish);
        self.commands = None;
        let report = self
            .plane
            .take()
            .expect("closed once")
            .join()
            .expect("the data plane panicked");
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            self.progress().failed = Some("the writer panicked".to_owned());
        }
        (report, self.writer_failure())
    }
}

struct Parts<'a> {
    plan: &'a Plan,
    network: &'a Arc<Network>,
    nodes: &'a Nodes,
    tap: Tap,
    records: rtrb::Producer<crate::writer::Item>,
    shared: Arc<Shared>,
}

fn spawn<const CAPTURE: bool>(
    parts: Parts<'_>,
    commands: Receiver<Command>,
) -> Result<JoinHandle<PlaneReport>, Failure> {
    let why = |error: io::Error| Failure::host("cannot open the data plane's ring", error);
    let list = &parts.nodes.list;
    let mtu = list.iter().map(|node| node.mtu).max().unwrap_or(1500);
    let ring = ring::Ring::open(mtu).map_err(why)?;
    let mut interfaces = vec![0; parts.network.nodes.len()];
    for node in list {
        interfaces[node.id.index()] = node.interface;
    }
    let outlet = Outlet::<CAPTURE>::new(
        Buffers::new(ring.frame_capacity(), BUFFERS),
        send::Sender::open().map_err(why)?,
        interfaces,
        parts.records,
        parts.tap,
        Judged {
            late_frame: parts.plan.precision.late_frame_ns,
            duration: parts.plan.duration_ns,
        },
        parts.plan.record_ingress,
    );
    let plane = Plane::new(Setup {
        ring,
        outlet,
        flows: Flows::new(&parts.plan.markers, parts.network)?,
        directory: Directory {
            by_address: list
                .iter()
                .map(|node| (node.address, (node.id, node.mac)))
                .collect(),
        },
        first_interface: list.first().map_or(0, |node| node.interface),
        nodes: list.iter().map(|node| node.id).collect(),
        classes: parts.network.streams.iter().map(|stream| stream.class).collect(),
        shared: parts.shared,
        commands,
        port_interval: parts.plan.statistics.port_interval_ns,
    });
    thread("fabric", move || plane.run())
}

fn thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| Failure::host(format!("cannot start the {name} thread"), error))
}

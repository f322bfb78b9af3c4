//! The data plane and the writer as threads, and the strings that move them.

use crate::capture;
use crate::choice::{BackEnd, Choice};
use crate::failure::Failure;
use crate::kernel::{clock, ring, send, uring};
use crate::nodes::LABELS;
use crate::nodes::Nodes;
use crate::plan::Plan;
use crate::plane::{
    Attachments, Buffers, Command, Departures, Directory, Flows, Handover, Inlet, Inline, Judged, OVERHEAD,
    Outlet, Plane, PlaneReport, Setup, Shared, Standing, Switched, Tap, spread,
};
use crate::switches::Switches;
use crate::writer::{ProbeLog, Progress, QUEUE, Writer};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use timebound_model::{Network, NodeId, PortId};

/// Frame buffers from the start; more are made when a load needs them.
const BUFFERS: usize = 8192;

/// The data plane looks at its orders at least this often.
const ANSWER: Duration = Duration::from_millis(200);

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
    pub(crate) fn open(
        plan: &Plan,
        network: &Arc<Network>,
        nodes: &Nodes,
        choice: &Choice,
        switches: Option<&Switches>,
    ) -> Result<Self, Failure> {
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
        let shared = Arc::new(Shared::new(network.nodes.len(), network.ports.len()).map_err(why)?);
        let (commands, received) = channel();
        let parts = Parts {
            plan,
            network,
            nodes,
            switches,
            tap: Tap::new(taps, capture_ring),
            records: producer,
            shared: Arc::clone(&shared),
        };
        let plane = start(parts, received, choice)?;
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

    /// From now on frames to this node end at its interface, or reach it again.
    pub(crate) fn set_stopped(&self, node: NodeId, stopped: bool) {
        self.shared.stopped[node.index()].store(stopped, Ordering::Relaxed);
    }

    /// From now on frames to this port of a real switch are lost before it, or reach it again.
    pub(crate) fn set_unplugged(&self, port: PortId, unplugged: bool) {
        self.shared.unplugged[port.index()].store(unplugged, Ordering::Relaxed);
    }

    /// How things stand; `None` if the data plane does not say so soon.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let (to, from) = channel();
        self.send(Command::Tell(to));
        from.recv_timeout(ANSWER).ok()
    }

    /// Frames under way in the model.
    pub(crate) fn inside(&self) -> u64 {
        self.shared.inside.load(Ordering::Relaxed)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No frame enters the pre-flight check's lane any more; waits until those in it have come to their end and all is recorded. False if that
    /// takes longer than until `deadline` (CLOCK_MONOTONIC).
    pub(crate) fn close_lane(&self, deadline: u64) -> bool {
        self.send(Command::Close);
        loop {
            if self.progress().complete {
                return true;
            }
            if clock::monotonic() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
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
    switches: Option<&'a Switches>,
    tap: Tap,
    records: rtrb::Producer<crate::writer::Item>,
    shared: Arc<Shared>,
}

fn why(error: io::Error) -> Failure {
    Failure::host("cannot open the data plane's ring", error)
}

/// Opens the chosen back end, as often as there are threads to use it.
fn start(
    parts: Parts<'_>,
    commands: Receiver<Command>,
    choice: &Choice,
) -> Result<JoinHandle<PlaneReport>, Failure> {
    let tunnel = parts.nodes.tunnel.map_or(0, |_| OVERHEAD as u32);
    let labels = parts.switches.map_or(0, |_| LABELS);
    let mtu = parts.nodes.list.iter().map(|node| node.mtu).max().unwrap_or(1500) + tunnel + labels;
    let pieces = choice.threads.max(1);
    match choice.back_end {
        BackEnd::Ring => {
            let share = |number| (choice.threads > 1).then_some(ring::Share { number });
            let open = |number| Ok((ring::Ring::open(mtu, share(number))?, send::Sender::open()?));
            let pairs = (0..pieces)
                .map(open)
                .collect::<io::Result<Vec<_>>>()
                .map_err(why)?;
            attach(parts, commands, pairs, choice.threads > 0)
        }
        BackEnd::Tap => {
            let open = |piece: usize| {
                let devices: Vec<uring::Device> = (parts.nodes.list.iter())
                    .filter(|node| node.interface as usize % pieces == piece)
                    .filter_map(|node| Some((node.interface, Arc::clone(node.device.as_ref()?))))
                    .collect();
                Ok((
                    uring::Reads::open(devices.clone(), mtu)?,
                    uring::Writes::open(devices)?,
                ))
            };
            let pairs = (0..pieces)
                .map(open)
                .collect::<io::Result<Vec<_>>>()
                .map_err(why)?;
            attach(parts, commands, pairs, choice.threads > 0)
        }
    }
}

/// One pair in the data plane's own thread, or one thread for each.
fn attach<I: Inlet, D: Departures>(
    parts: Parts<'_>,
    commands: Receiver<Command>,
    mut pairs: Vec<(I, D)>,
    threads: bool,
) -> Result<JoinHandle<PlaneReport>, Failure> {
    if threads {
        let (inlet, handover) = spread(pairs, &parts.shared.bell).map_err(why)?;
        return choose_captures(parts, commands, inlet, handover);
    }
    match pairs.pop() {
        Some((inlet, departures)) => choose_captures(parts, commands, inlet, Inline::new(departures)),
        None => Err(Failure::internal("data plane", "no back end was opened")),
    }
}

/// Captures cost the data plane something per frame and hop, so there are two of it.
fn choose_captures<I: Inlet, O: Handover>(
    parts: Parts<'_>,
    commands: Receiver<Command>,
    inlet: I,
    handover: O,
) -> Result<JoinHandle<PlaneReport>, Failure> {
    if parts.tap.is_used() {
        spawn::<I, O, true>(parts, commands, inlet, handover)
    } else {
        spawn::<I, O, false>(parts, commands, inlet, handover)
    }
}

fn spawn<I: Inlet, O: Handover, const CAPTURE: bool>(
    parts: Parts<'_>,
    commands: Receiver<Command>,
    inlet: I,
    handover: O,
) -> Result<JoinHandle<PlaneReport>, Failure> {
    let list = &parts.nodes.list;
    let mut attachments = Attachments::new(parts.network.nodes.len());
    for node in list {
        attachments.attach(node.id, node.interface);
    }
    let mut outlet = Outlet::<O, CAPTURE>::new(
        Buffers::new(inlet.frame_capacity(), BUFFERS),
        handover,
        attachments,
        parts.records,
        parts.tap,
        Judged {
            late_frame: parts.plan.precision.late_frame_ns,
            duration: parts.plan.duration_ns,
        },
        parts.plan.record_ingress,
    );
    outlet.stopped = Arc::clone(&parts.shared.stopped);
    outlet.open_tunnel(parts.nodes.tunnel);
    outlet.open_switches(parts.switches.map(|switches| {
        let unplugged = Arc::clone(&parts.shared.unplugged);
        Switched::new(switches, parts.network, parts.plan.duration_ns, unplugged)
    }));
    let plane = Plane::new(Setup {
        inlet,
        outlet,
        flows: Flows::new(&parts.plan.markers, parts.network)?,
        directory: Directory {
            by_address: list
                .iter()
                .map(|node| (node.address, (node.id, node.mac)))
                .collect(),
            by_mac: gateways(parts.plan, parts.nodes),
            gateways: gateway_of_each(parts.plan, parts.nodes),
        },
        classes: parts.network.streams.iter().map(|stream| stream.class).collect(),
        marks: parts
            .switches
            .is_some_and(|switches| switches.controller.is_none()),
        framing: parts.plan.framing,
        shared: parts.shared,
        commands,
        port_interval: parts.plan.statistics.port_interval_ns,
        duration: parts.plan.duration_ns,
    });
    thread("fabric", move || plane.run())
}

/// Who is whose gateway.
fn gateway_of_each(plan: &Plan, nodes: &Nodes) -> BTreeMap<NodeId, NodeId> {
    let id = |address: Ipv4Addr| {
        nodes
            .list
            .iter()
            .find(|node| node.address == address)
            .map(|node| node.id)
    };
    plan.hosts
        .iter()
        .filter_map(|host| Some((nodes.get(&host.node)?.id, id(host.gateway?)?)))
        .collect()
}

/// Cards of hosts with several interfaces.
fn gateways(plan: &Plan, nodes: &Nodes) -> BTreeMap<[u8; 6], NodeId> {
    let sides = plan
        .hosts
        .iter()
        .filter_map(|host| Some((host, host.side_of.as_ref()?)));
    sides
        .flat_map(|(host, owner)| [&host.node, owner])
        .filter_map(|name| nodes.get(name))
        .map(|node| (node.mac, node.id))
        .collect()
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

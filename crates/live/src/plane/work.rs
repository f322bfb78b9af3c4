//! The data plane's thread: its loop, its sleep, its clockwork.

use super::attachment::Attachments;
use super::cut::{Cut, CutReport};
use super::doorbell::Doorbell;
use super::flows::{FlowReport, Flows, Undeclared};
use super::lane::{Kind, Lane};
use super::lateness::{Counts, Lateness};
use super::meter::{Load, Meter, Tally};
use super::outlet::Outlet;
use super::own::OwnReport;
use super::pool::Watched;
use super::receive::{Directory, Fragments, Refusals};
use super::wire::{Handover, Inlet, Stamps};
use crate::kernel::{clock, sched};
use crate::plan::FramingPlan;
use crate::report::switches::SwitchReport;
use crate::writer::{Item, PortSample};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use timebound_fabric::PortCounters;
use timebound_model::{Class, NodeId, PortId, Time};

/// The last part of a wait is spun, since a sleeping thread wakes late: as long as wake-ups were late of late, within these
/// limits. An idle virtual machine wakes 60 to 100 us late, a busy one 10.
const SPIN: std::ops::RangeInclusive<u64> = 8_000..=200_000;
/// At least this much is spun before whatever is due, however short the wait. Longer it is not in dense traffic: at 20,000 frames/s
/// beside a CPU hog a spin of 40 us took 45 us of CPU per frame, and p99 was twice as high.
const DENSE: u64 = 10_000;
/// At most this part of a wait is spun. In dense traffic a long spin would keep the kernel's own work (soft interrupts) from this CPU,
/// since the thread runs under SCHED_FIFO; measured at 20,000 frames/s, p99 rose from 60 us to milliseconds.
const SPUN_PART: u64 = 4;
/// Longest sleep; what is due at intervals is looked at this often.
const LONGEST_SLEEP: u64 = 50_000_000;
/// Interval of clock and ring checks.
const HOUSEKEEPING: u64 = 100_000_000;
/// Priority of the data plane among SCHED_FIFO threads.
const PRIORITY: i32 = 60;

/// What the data plane is told.
pub(crate) enum Command {
    /// New frames go here from its origin on.
    Open(Lane),
    /// The last lane takes no more frames. When what is under way in it has come to its end, the writer is told ([`Item::Emptied`]).
    Close,
    /// Tell how things stand. What this costs (microseconds per hundred ports) is paid only while somebody looks.
    Tell(Sender<Standing>),
    /// Stop and report.
    Finish,
}

/// What others may see while it runs.
pub(crate) struct Shared {
    /// Frames taken from the ring.
    pub(crate) received: AtomicU64,
    /// Frames under way in all lanes.
    pub(crate) inside: AtomicU64,
    /// Which nodes of the network are stopped.
    pub(crate) stopped: Arc<[AtomicBool]>,
    /// Which ports of real switches have no carrier, by port of the network.
    pub(crate) unplugged: Arc<[AtomicBool]>,
    pub(crate) bell: Arc<Doorbell>,
}

impl Shared {
    pub(crate) fn new(nodes: usize, ports: usize) -> io::Result<Self> {
        Ok(Self {
            received: AtomicU64::new(0),
            inside: AtomicU64::new(0),
            stopped: (0..nodes).map(|_| AtomicBool::new(false)).collect(),
            unplugged: (0..ports).map(|_| AtomicBool::new(false)).collect(),
            bell: Arc::new(Doorbell::new()?),
        })
    }

    /// Ends the data plane's sleep, after a command was sent.
    pub(crate) fn wake(&self) {
        self.bell.ring_always();
    }
}

/// Everything that the thread is built from.
pub(crate) struct Setup<I, O, const CAPTURE: bool> {
    pub(crate) inlet: I,
    pub(crate) outlet: Outlet<O, CAPTURE>,
    pub(crate) flows: Flows,
    pub(crate) directory: Directory,
    /// Class of each declared stream.
    pub(crate) classes: Vec<Class>,
    /// Every declared frame is marked with its class, since real switches on its way know it by nothing else.
    pub(crate) marks: bool,
    pub(crate) framing: FramingPlan,
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: Receiver<Command>,
    /// Interval of port samples, 0: none.
    pub(crate) port_interval: u64,
    /// Length of the measured run.
    pub(crate) duration: u64,
}

/// The data plane.
pub(crate) struct Plane<I, O, const CAPTURE: bool> {
    pub(super) inlet: I,
    pub(super) outlet: Outlet<O, CAPTURE>,
    pub(super) flows: Flows,
    pub(super) directory: Directory,
    pub(super) classes: Vec<Class>,
    pub(super) marks: bool,
    pub(super) framing: FramingPlan,
    pub(super) lanes: Vec<Lane>,
    pub(super) offset: clock::Offset,
    pub(super) members: BTreeSet<(u32, NodeId)>,
    pub(super) fragments: Fragments,
    pub(super) refusals: Refusals,
    pub(super) tag: u64,
    shared: Arc<Shared>,
    commands: Receiver<Command>,
    port_interval: u64,
    next_sample: u64,
    /// How long before something is due sleeping ends.
    spin: u64,
    /// The last thing it did was a sleep to the end: what is left of the wait is to be spun.
    rested: bool,
    next_check: u64,
    ring_lost: u64,
    pub(super) counts: Tally,
    /// The most by which the stamp of a frame was moved.
    pub(super) restamped_most: u64,
    meter: Option<Meter>,
    duration: u64,
    /// A lane was closed and is not yet empty.
    closing: bool,
}

/// What the data plane says at its end.
pub(crate) struct PlaneReport {
    pub(crate) lateness: Lateness,
    pub(crate) refused: u64,
    pub(crate) records_lost: u64,
    pub(crate) captures_lost: u64,
    pub(crate) ring_lost: u64,
    pub(crate) clock_steps: u64,
    pub(crate) flows: Vec<FlowReport>,
    pub(crate) own: OwnReport,
    pub(crate) overflow: Undeclared,
    pub(crate) refusals: Refusals,
    /// Of the measured fabric, by port.
    pub(crate) counters: Vec<PortCounters>,
    pub(crate) fifo: bool,
    pub(crate) memory_locked: bool,
    pub(crate) load: Load,
    pub(crate) stamps: Stamps,
    /// Of a run on two machines.
    pub(crate) cut: Option<CutReport>,
    pub(crate) switches: Vec<SwitchReport>,
}

/// How things stand while it runs.
pub(crate) struct Standing {
    /// Of the measured fabric, by port; none before time zero.
    pub(crate) counters: Vec<PortCounters>,
    /// Frames handed over.
    pub(crate) frames: u64,
    /// Lateness of departures at the median, the 99th percentile and the most, ns.
    pub(crate) lateness: [u64; 3],
    pub(crate) ring_lost: u64,
    pub(crate) refused: u64,
}

fn counters(lane: &Lane) -> Vec<PortCounters> {
    let ports = lane.fabric.network().ports.len();
    (0..ports)
        .map(|port| *lane.fabric.counters(PortId::new(port)))
        .collect()
}

impl<I: Inlet, O: Handover, const CAPTURE: bool> Plane<I, O, CAPTURE> {
    pub(crate) fn new(setup: Setup<I, O, CAPTURE>) -> Self {
        Self {
            inlet: setup.inlet,
            outlet: setup.outlet,
            flows: setup.flows,
            directory: setup.directory,
            classes: setup.classes,
            marks: setup.marks,
            framing: setup.framing,
            lanes: Vec::with_capacity(4),
            offset: clock::Offset::measure(),
            members: BTreeSet::new(),
            fragments: Fragments::new(),
            refusals: Refusals::default(),
            tag: 0,
            shared: setup.shared,
            commands: setup.commands,
            port_interval: setup.port_interval,
            next_sample: u64::MAX,
            next_check: 0,
            spin: DENSE,
            rested: false,
            ring_lost: 0,
            counts: Tally::default(),
            restamped_most: 0,
            meter: None,
            duration: setup.duration,
            closing: false,
        }
    }

    /// Who is attached where.
    pub(super) fn attachments(&self) -> &Attachments {
        &self.outlet.attachments
    }

    /// Runs until [`Command::Finish`], or until nobody holds the other end of the commands.
    pub(crate) fn run(mut self) -> PlaneReport {
        sched::name_thread(c"fabric");
        let fifo = sched::enter_fifo(PRIORITY);
        let memory_locked = sched::lock_memory();
        sched::tighten_timer_slack();
        self.outlet.history.enter_thread();
        self.inlet.start();
        self.outlet.sender.start();
        // Nothing can be carried before the first lane is there.
        if let Ok(Command::Open(lane)) = self.commands.recv() {
            self.open_lane(lane);
            while self.turn() {}
        }
        self.report(fifo, memory_locked)
    }

    /// One round; false when told to finish.
    fn turn(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Open(lane)) => self.open_lane(lane),
                Ok(Command::Close) => self.close_lane(),
                Ok(Command::Tell(to)) => drop(to.send(self.standing())),
                Ok(Command::Finish) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => break,
            }
        }
        let now = clock::monotonic();
        self.outlet.history.look(now);
        let taken = self.drain(now);
        self.advance(now);
        self.outlet.flush();
        self.counts.frames_in += taken as u64;
        if taken > 0 {
            self.shared.received.fetch_add(taken as u64, Ordering::Relaxed);
        }
        let inside: usize = self.lanes.iter().map(|lane| lane.fabric.frames_inside()).sum();
        self.shared.inside.store(inside as u64, Ordering::Relaxed);
        if self.closing && inside == 0 {
            self.closing = false;
            self.outlet.finish();
            self.outlet.write(Item::Emptied);
        }
        if now >= self.next_check {
            self.next_check = now + HOUSEKEEPING;
            self.offset.refresh();
            self.ring_lost += self.inlet.take_lost();
            self.counts.frames_out = self.outlet.handed;
            if let Some(meter) = &mut self.meter {
                meter.tick(now, self.counts);
            }
        }
        if now >= self.next_sample {
            self.sample_ports();
        }
        if self.outlet.history.is_over(now) {
            self.close_window(now);
        }
        self.wait();
        true
    }

    fn open_lane(&mut self, lane: Lane) {
        // Records of one phase come before those of the next.
        self.outlet.finish();
        if lane.kind == Kind::Measured {
            self.ring_lost = 0;
            self.inlet.take_lost();
            self.counts = Tally::default();
            self.restamped_most = 0;
            let mut threads = vec![clock::thread_id()];
            threads.extend(self.outlet.sender.threads());
            self.meter = Some(Meter::new(lane.origin, self.duration, threads));
            self.offset.steps = 0;
            if self.port_interval > 0 {
                self.next_sample = lane.origin + self.port_interval;
            }
        }
        self.open(lane);
    }

    fn close_lane(&mut self) {
        if let Some(lane) = self.lanes.last_mut() {
            lane.closed = true;
            self.closing = true;
        }
    }

    /// Lets happen what is due. A lane where nothing is due is left alone, so that a frame whose stamp is a little older
    /// than `now` can still enter at that very stamp.
    fn advance(&mut self, now: u64) {
        for lane in &mut self.lanes {
            if lane.next() <= now {
                (self.outlet.lane, self.outlet.origin) = (lane.kind, lane.origin);
                lane.fabric.advance(Time(now - lane.origin), &mut self.outlet);
            }
        }
    }

    fn sample_ports(&mut self) {
        let Some(lane) = self.lanes.last_mut().filter(|lane| lane.kind == Kind::Measured) else {
            return;
        };
        let time = self.next_sample - lane.origin;
        for port in 0..lane.fabric.network().ports.len() {
            let counters = *lane.fabric.counters(PortId::new(port));
            self.outlet.write(Item::Port(PortSample {
                time,
                port: port as u32,
                counters,
            }));
        }
        lane.fabric.begin_window();
        self.next_sample += self.port_interval;
    }

    /// Hands the history of the last window to the writer.
    fn close_window(&mut self, now: u64) {
        self.ring_lost += self.inlet.take_lost();
        let counts = Counts {
            ring_lost: self.ring_lost,
            refused: self.outlet.refused,
            clock_steps: self.offset.steps,
        };
        if let Some(window) = self.outlet.history.close(now, counts) {
            self.outlet.write(Item::Window(window));
        }
    }

    /// Until something is due, arrives or is commanded.
    fn wait(&mut self) {
        let next = self.lanes.iter().map(Lane::next).min().unwrap_or(u64::MAX);
        let now = clock::monotonic();
        self.outlet.history.look(now);
        // Of this wait alone: a sleep that ended too late leaves nothing to be spun, and the next wait is another.
        let rested = std::mem::take(&mut self.rested);
        if next <= now || self.inlet.is_ready() {
            return;
        }
        let spin = if rested {
            self.spin
        } else {
            self.spin.min(((next - now) / SPUN_PART).max(DENSE))
        };
        if next - now <= spin {
            self.outlet.history.rest(next);
            while clock::monotonic() < next && !self.inlet.is_ready() {
                std::hint::spin_loop();
            }
            self.counts.spun_ns += clock::monotonic() - now;
            return;
        }
        let until = (next - spin)
            .min(self.next_sample.max(now))
            .min(now + LONGEST_SLEEP);
        self.outlet.history.rest(until);
        let rested = self.sleep(until - now);
        let woken = clock::monotonic();
        self.counts.sleeps += 1;
        self.counts.slept_ns += woken - now;
        if rested {
            self.adapt(woken.saturating_sub(until));
            self.rested = true;
        }
    }

    /// After a wake-up that was `late`: spin for longer at once, for less little by little.
    fn adapt(&mut self, late: u64) {
        let wanted = late + late / 4;
        self.spin = if wanted > self.spin {
            wanted
        } else {
            self.spin - (self.spin - wanted) / 64
        };
        self.spin = self.spin.clamp(*SPIN.start(), *SPIN.end());
    }

    /// True when the time ran out, false when something arrived before.
    fn sleep(&self, nanos: u64) -> bool {
        self.shared.bell.set_sleeping(true);
        let mut rested = false;
        // A frame may have come before others could know that we sleep; commands always ring.
        if !self.inlet.is_ready() {
            let mut watched = Watched::new();
            watched.add(self.shared.bell.fd());
            self.inlet.watch(|fd| watched.add(fd));
            rested = watched.wait(nanos);
        }
        self.shared.bell.set_sleeping(false);
        rested
    }

    fn standing(&self) -> Standing {
        let measured = self.lanes.last().filter(|lane| lane.kind == Kind::Measured);
        let histogram = &self.outlet.history.total.histogram;
        Standing {
            counters: measured.map_or(Vec::new(), counters),
            frames: histogram.len(),
            lateness: [0.5, 0.99, 1.0].map(|quantile| histogram.value_at_quantile(quantile)),
            ring_lost: self.ring_lost,
            refused: self.outlet.refused,
        }
    }

    fn report(mut self, fifo: bool, memory_locked: bool) -> PlaneReport {
        self.outlet.finish();
        self.close_window(clock::monotonic());
        self.counts.frames_out = self.outlet.handed;
        let mut load = match self.meter.take() {
            Some(meter) => meter.finish(clock::monotonic(), self.counts),
            None => Load::default(),
        };
        load.restamped_most_ns = self.restamped_most;
        let switches = self.outlet.close_switches();
        let (flows, overflow) = self.flows.report();
        let own = self.flows.own();
        let counters = match self.lanes.last().filter(|lane| lane.kind == Kind::Measured) {
            Some(lane) => counters(lane),
            None => Vec::new(),
        };
        PlaneReport {
            lateness: self.outlet.history.total,
            refused: self.outlet.refused,
            records_lost: self.outlet.records_lost,
            captures_lost: self.outlet.tap.lost,
            ring_lost: self.ring_lost,
            clock_steps: self.offset.steps,
            flows,
            own,
            overflow,
            refusals: self.refusals,
            counters,
            fifo,
            memory_locked,
            load,
            stamps: I::STAMPS,
            cut: self.outlet.cut.as_ref().map(Cut::report),
            switches,
        }
    }
}

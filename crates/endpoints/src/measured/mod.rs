//! The thread of everything that is measured: MQTT clients and UDP flows in one event loop.
//!
//! It sleeps in epoll until shortly before the next release and spins over epoll for the rest, so a release is on time and
//! sockets are served meanwhile. Nothing is allocated per message once buffers have grown.

mod client;
mod receiver;
mod source;
mod udp;

use crate::control::{Control, NamespaceProvider, Orders, RunClock};
use crate::error::EndpointError;
use crate::histogram::Histogram;
use crate::plan::EndpointPlan;
use crate::record::Recorder;
use crate::sockets::{Opener, Owner, address};
use crate::summary::{ConnectionEvent, ConnectionEventKind, Summary};
use crate::sys::{Epoll, Interest, Ready, Waker, exact_timers, real_time};
use client::{Broken, Client, Phase};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use udp::{UdpReceiverState, UdpSender};

/// What both traffic threads share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// One thread failed: the other ends.
    pub(crate) abort: AtomicBool,
    /// The background thread has all its connections.
    pub(crate) background_ready: AtomicBool,
}

/// What every endpoint of this thread uses.
pub(crate) struct Core<'a> {
    clock: RunClock,
    epoll: Epoll,
    recorder: Recorder,
    lateness: Histogram,
    opener: Opener<'a>,
    scratch: Vec<u8>,
    answers: Vec<u8>,
}

/// In order of urgency at equal times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    ReleaseMqtt(u32),
    ReleaseUdp(u32),
    Connect(u32),
    Flush,
    Housekeeping,
}

/// Records reach the file this often at least.
const FLUSH_NS: i64 = 100_000_000;
/// Keep-alive and connect timeouts are looked at this often, or with every housekeeping if that is rarer.
const INSPECT_NS: i64 = 200_000_000;
/// A connection that was refused while the broker starts is tried again after this.
const RETRY_NS: i64 = 50_000_000;
/// How long clients wait for the broker to close after DISCONNECT.
const GOODBYE_NS: i64 = 200_000_000;
/// Releases served before sockets get their turn.
const BATCH: usize = 64;

const KIND_SHIFT: u32 = 32;
const CLIENT: u64 = 0;
const UDP_RECEIVER: u64 = 1;
const WAKER: u64 = 2;
const ORDERS: u64 = 3;

pub(crate) struct Measured<'a> {
    plan: &'a EndpointPlan,
    control: &'a Control,
    shared: &'a Shared,
    output: &'a Path,
    core: Core<'a>,
    waker: Arc<Waker>,
    clients: Vec<Client<'a>>,
    udp: Vec<UdpSender<'a>>,
    udp_receivers: Vec<UdpReceiverState<'a>>,
    timers: BinaryHeap<Reverse<(i64, Timer)>>,
    ready: Vec<Ready>,
    connected: usize,
    events: Vec<ConnectionEvent>,
    fifo: bool,
    start_ns: i64,
    next_inspection_ns: i64,
    flush_is_due: bool,
    orders: Option<&'a mut dyn Orders>,
}

impl<'a> Measured<'a> {
    /// Sets up everything but the connections; runs in the traffic thread. With `orders` that is the caller's own, and nobody
    /// else writes its records.
    pub(crate) fn new(
        plan: &'a EndpointPlan,
        namespaces: &'a dyn NamespaceProvider,
        clock: RunClock,
        (control, shared): (&'a Control, &'a Shared),
        output: &'a Path,
        orders: Option<&'a mut dyn Orders>,
    ) -> Result<Self, EndpointError> {
        let system = |action| move |source| EndpointError::System { action, source };
        let recorder = match &orders {
            Some(_) => Recorder::append(output),
            None => Recorder::create(output),
        };
        let recorder = recorder.map_err(|source| EndpointError::Output {
            path: output.to_owned(),
            source,
        })?;
        let epoll = Epoll::new().map_err(system("create an epoll instance"))?;
        if let Some(orders) = &orders {
            epoll
                .add(&orders.descriptor(), Interest::Read, ORDERS << KIND_SHIFT)
                .map_err(system("watch for orders"))?;
        }
        let waker = control.waker().map_err(system("create an eventfd"))?;
        epoll
            .add(&*waker, Interest::Read, WAKER << KIND_SHIFT)
            .map_err(system("watch an eventfd"))?;
        exact_timers();
        let fifo = plan.fifo_priority.is_some_and(real_time);
        let mut core = Core {
            clock,
            epoll,
            recorder,
            lateness: Histogram::default(),
            opener: Opener::new(namespaces),
            scratch: vec![0; 1 << 16],
            answers: Vec::with_capacity(4096),
        };
        let mut udp_receivers = Vec::with_capacity(plan.udp_receivers.len());
        for (index, receiver) in plan.udp_receivers.iter().enumerate() {
            udp_receivers.push(UdpReceiverState::open(
                receiver,
                token(UDP_RECEIVER, index),
                &mut core,
            )?);
        }
        let udp = plan
            .udp
            .iter()
            .map(|flow| UdpSender::open(flow, &mut core))
            .collect::<Result<_, _>>()?;
        let clients = plan
            .clients
            .iter()
            .enumerate()
            .map(|(index, client)| Client::new(client, token(CLIENT, index)));
        control.set_total(plan.clients.len());
        Ok(Self {
            plan,
            control,
            shared,
            output,
            core,
            waker,
            clients: clients.collect(),
            udp,
            udp_receivers,
            timers: BinaryHeap::new(),
            ready: Vec::with_capacity(256),
            connected: 0,
            events: Vec::new(),
            fifo,
            start_ns: 0,
            next_inspection_ns: 0,
            flush_is_due: false,
            orders,
        })
    }

    /// Connects, waits for the start, sends and receives, closes.
    pub(crate) fn run(mut self) -> Result<Summary, EndpointError> {
        let result = self.phases();
        let stopped = self.is_ended();
        self.say_goodbye();
        let summary = self.summarise(stopped);
        let finished = self.core.recorder.finish();
        match result {
            Ok(()) => {
                finished.map_err(|source| EndpointError::Output {
                    path: self.output.to_owned(),
                    source,
                })?;
                Ok(summary)
            }
            Err(EndpointError::ConnectionLost {
                client,
                node,
                broker,
                reason,
                time_ns,
                ..
            }) => {
                let summary = Box::new(summary);
                Err(EndpointError::ConnectionLost {
                    client,
                    node,
                    broker,
                    reason,
                    time_ns,
                    summary,
                })
            }
            Err(error) => Err(error),
        }
    }

    fn is_ended(&self) -> bool {
        self.control.is_stopped() || self.shared.abort.load(Ordering::SeqCst)
    }

    fn phases(&mut self) -> Result<(), EndpointError> {
        self.schedule_connections();
        while !self.is_ended() && !self.all_connected() {
            self.turn()?;
        }
        if self.is_ended() {
            return Ok(());
        }
        self.control.set_ready();
        if let Some(orders) = &mut self.orders {
            orders.ready();
        }
        while !self.is_ended() && self.control.start_ns().is_none() {
            self.turn()?;
        }
        let Some(start_ns) = self.control.start_ns() else {
            return Ok(());
        };
        let length_ns = self.plan.warmup_ns.saturating_add(self.plan.duration_ns);
        self.start_sources(start_ns, length_ns);
        let end_ns = start_ns.saturating_add(i64::try_from(length_ns).unwrap_or(i64::MAX));
        let latest_ns = end_ns.saturating_add(i64::try_from(self.plan.settle_ns).unwrap_or(i64::MAX));
        loop {
            let now_ns = self.core.clock.now_ns();
            if self.is_ended() || now_ns >= latest_ns || (now_ns >= end_ns && self.is_settled()) {
                return Ok(());
            }
            self.turn()?;
        }
    }

    fn all_connected(&self) -> bool {
        let background =
            self.plan.background.is_empty() || self.shared.background_ready.load(Ordering::SeqCst);
        let early = self
            .clients
            .iter()
            .filter(|client| client.plan.connect_at_ns.is_none());
        self.connected >= early.count() && background
    }

    /// Subscribers first, so that nothing is published before they listen. Clients that join later have their time.
    fn schedule_connections(&mut self) {
        let begin_ns = self.core.clock.now_ns();
        self.timers.push(Reverse((begin_ns, Timer::Housekeeping)));
        let (first, second): (Vec<_>, Vec<_>) = (0..self.clients.len())
            .filter(|index| self.clients[*index].plan.connect_at_ns.is_none())
            .partition(|index| self.clients[*index].receiver.is_some());
        let mut gap_ns = 0u64;
        for index in first.into_iter().chain(second) {
            let delay_ns = self.clients[index].plan.connect_delay_ns.unwrap_or(gap_ns);
            gap_ns = gap_ns.saturating_add(self.plan.connect_gap_ns);
            self.connect_at(index, begin_ns.saturating_add_unsigned(delay_ns));
        }
    }

    fn connect_at(&mut self, index: usize, at_ns: i64) {
        self.clients[index].give_up_ns = at_ns.saturating_add_unsigned(self.plan.connect_timeout_ns);
        self.timers.push(Reverse((at_ns, Timer::Connect(index as u32))));
    }

    fn start_sources(&mut self, start_ns: i64, length_ns: u64) {
        self.start_ns = start_ns;
        let now_ns = self.core.clock.now_ns();
        let from_ns = if self.control.resumes() { now_ns } else { i64::MIN };
        for index in 0..self.clients.len() {
            if let Some(after_ns) = self.clients[index].plan.connect_at_ns {
                let at_ns = start_ns.saturating_add_unsigned(after_ns);
                self.connect_at(index, at_ns.max(now_ns));
            }
        }
        for (index, client) in self.clients.iter_mut().enumerate() {
            if let Some(at_ns) = client
                .source
                .as_mut()
                .and_then(|source| source.start(start_ns, length_ns, from_ns))
            {
                self.timers
                    .push(Reverse((at_ns, Timer::ReleaseMqtt(index as u32))));
            }
        }
        for (index, sender) in self.udp.iter_mut().enumerate() {
            if let Some(at_ns) = sender.source.start(start_ns, length_ns, from_ns) {
                self.timers
                    .push(Reverse((at_ns, Timer::ReleaseUdp(index as u32))));
            }
        }
    }

    /// One round: what is due, then what is ready.
    fn turn(&mut self) -> Result<(), EndpointError> {
        self.fire_due()?;
        let (timeout_ns, _) = self.time_to_next();
        self.core
            .epoll
            .wait(timeout_ns, &mut self.ready)
            .map_err(|source| EndpointError::System {
                action: "wait for sockets",
                source,
            })?;
        let ready = std::mem::take(&mut self.ready);
        let result = ready.iter().try_for_each(|ready| {
            self.dispatch(*ready)?;
            // Many sockets may be ready at once: a release that comes due does not wait for all of them.
            if self.time_to_next().1 <= 0 {
                self.fire_due()
            } else {
                Ok(())
            }
        });
        self.ready = ready;
        result?;
        if self.core.recorder.is_full() {
            self.flush()?;
        } else if !self.flush_is_due && !self.core.recorder.is_empty() {
            self.flush_is_due = true;
            let at_ns = self.core.clock.now_ns() + FLUSH_NS;
            self.timers.push(Reverse((at_ns, Timer::Flush)));
        }
        Ok(())
    }

    /// How long epoll may sleep, and how long it is to the next timer.
    fn time_to_next(&self) -> (i64, i64) {
        let Some(Reverse((at_ns, timer))) = self.timers.peek() else {
            return (INSPECT_NS, INSPECT_NS);
        };
        let left_ns = at_ns - self.core.clock.now_ns();
        let spin_ns = match timer {
            Timer::ReleaseMqtt(_) | Timer::ReleaseUdp(_) => {
                i64::try_from(self.plan.spin_ns).unwrap_or(i64::MAX)
            }
            Timer::Connect(_) | Timer::Flush | Timer::Housekeeping => 0,
        };
        (left_ns - spin_ns.min(left_ns.max(0)), left_ns)
    }

    fn fire_due(&mut self) -> Result<(), EndpointError> {
        for _ in 0..BATCH {
            let Some(Reverse((at_ns, timer))) = self.timers.peek().copied() else {
                return Ok(());
            };
            let now_ns = self.core.clock.now_ns();
            if at_ns > now_ns {
                return Ok(());
            }
            self.timers.pop();
            match timer {
                Timer::ReleaseMqtt(index) => self.release_mqtt(index)?,
                Timer::ReleaseUdp(index) => {
                    if let Some(next_ns) = self.udp[index as usize].release(&mut self.core) {
                        self.timers.push(Reverse((next_ns, timer)));
                    }
                }
                Timer::Connect(index) => self.connect(index)?,
                Timer::Flush => {
                    self.flush_is_due = false;
                    self.flush()?;
                }
                Timer::Housekeeping => {
                    self.housekeeping(now_ns)?;
                    let next_ns = now_ns.saturating_add_unsigned(self.plan.housekeeping_ns);
                    self.timers.push(Reverse((next_ns, timer)));
                }
            }
        }
        Ok(())
    }

    fn release_mqtt(&mut self, index: u32) -> Result<(), EndpointError> {
        let client = &mut self.clients[index as usize];
        let Some((outgoing, next_ns)) = client.source.as_mut().and_then(source::SourceState::take) else {
            return Ok(());
        };
        if let Some(next_ns) = next_ns {
            self.timers.push(Reverse((next_ns, Timer::ReleaseMqtt(index))));
        }
        match client.publish(outgoing, &mut self.core) {
            Ok(()) => Ok(()),
            Err(broken) => self.broken(index as usize, &broken),
        }
    }

    fn dispatch(&mut self, ready: Ready) -> Result<(), EndpointError> {
        let index = (ready.token & u64::from(u32::MAX)) as usize;
        match ready.token >> KIND_SHIFT {
            CLIENT => match self.clients[index].advance(ready, &mut self.core) {
                Ok(false) => Ok(()),
                Ok(true) => {
                    self.became_ready(index);
                    Ok(())
                }
                Err(broken) => self.broken(index, &broken),
            },
            UDP_RECEIVER => {
                self.udp_receivers[index].read(&mut self.core);
                Ok(())
            }
            ORDERS => {
                if let Some(orders) = &mut self.orders {
                    orders.take(self.control);
                }
                Ok(())
            }
            _ => {
                self.waker.reset();
                Ok(())
            }
        }
    }

    fn connect(&mut self, index: u32) -> Result<(), EndpointError> {
        let client = &mut self.clients[index as usize];
        let plan = client.plan;
        let now_ns = self.core.clock.now_ns();
        if client.was_ready {
            client.give_up_ns = now_ns.saturating_add_unsigned(self.plan.connect_timeout_ns);
        }
        let owner = Owner {
            name: &plan.name,
            node: &plan.node,
            dscp: plan.dscp,
        };
        let local = address(plan.local_address, plan.local_port);
        let attempt = self.core.opener.connect(&owner, local, broker_of(client))?;
        let connecting = match attempt {
            Ok(stream) => client.connecting(stream, &mut self.core),
            Err(error) => Err(Broken::from(error)),
        };
        match connecting {
            Ok(()) => Ok(()),
            Err(broken) => self.broken(index as usize, &broken),
        }
    }

    fn became_ready(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.give_up_ns = i64::MAX;
        if client.was_ready {
            self.events.push(ConnectionEvent {
                time_ns: self.core.clock.now_ns(),
                client: client.plan.name.clone(),
                kind: ConnectionEventKind::Reconnected,
                reason: String::new(),
            });
        } else {
            client.was_ready = true;
            self.connected += 1;
            self.control.one_connected();
        }
    }

    /// A connection is gone: try again where that makes sense, else the run is over.
    fn broken(&mut self, index: usize, broken: &Broken) -> Result<(), EndpointError> {
        let now_ns = self.core.clock.now_ns();
        let client = &mut self.clients[index];
        let was_up = client.phase == Phase::Ready;
        client.down();
        let mut again = |after_ns: i64| {
            self.timers
                .push(Reverse((now_ns + after_ns, Timer::Connect(index as u32))));
            Ok(())
        };
        let plan = client.plan;
        if !client.was_ready {
            if broken.transient && now_ns + RETRY_NS < client.give_up_ns {
                return again(RETRY_NS);
            }
            return Err(EndpointError::Connect {
                client: plan.name.clone(),
                node: plan.node.clone(),
                broker: broker_of(client),
                reason: broken.reason.clone(),
            });
        }
        if was_up {
            self.events.push(ConnectionEvent {
                time_ns: now_ns,
                client: plan.name.clone(),
                kind: ConnectionEventKind::Lost,
                reason: broken.reason.clone(),
            });
        }
        match self.plan.reconnect_after_ns {
            Some(after_ns) => again(i64::try_from(after_ns).unwrap_or(i64::MAX / 2)),
            None => Err(EndpointError::ConnectionLost {
                client: plan.name.clone(),
                node: plan.node.clone(),
                broker: broker_of(client),
                reason: broken.reason.clone(),
                time_ns: now_ns,
                summary: Box::default(),
            }),
        }
    }

    fn housekeeping(&mut self, now_ns: i64) -> Result<(), EndpointError> {
        if now_ns < self.next_inspection_ns {
            return Ok(());
        }
        self.next_inspection_ns = now_ns + INSPECT_NS;
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            let outcome = if client.phase != Phase::Ready && now_ns >= client.give_up_ns {
                let seconds = self.plan.connect_timeout_ns as f64 / 1e9;
                let reason = match client.phase {
                    Phase::Handshake => {
                        format!("the broker did not complete the MQTT handshake within {seconds} s")
                    }
                    _ => format!("no TCP connection within {seconds} s"),
                };
                Err(Broken {
                    reason,
                    transient: client.was_ready,
                })
            } else {
                client.keep_alive(now_ns, &mut self.core)
            };
            if let Err(broken) = outcome {
                self.broken(index, &broken)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), EndpointError> {
        self.core
            .recorder
            .flush()
            .map_err(|source| EndpointError::Output {
                path: self.output.to_owned(),
                source,
            })
    }

    /// Has everything that was sent been acknowledged and received where it was expected?
    fn is_settled(&self) -> bool {
        let sources = || {
            let clients = self.clients.iter().filter_map(|client| client.source.as_ref());
            clients.chain(self.udp.iter().map(|sender| &sender.source))
        };
        if !sources().all(source::SourceState::is_exhausted) || !self.clients.iter().all(Client::is_settled) {
            return false;
        }
        let sent: BTreeMap<u32, u64> = sources().map(|source| (source.flow, source.sent)).collect();
        let clients = self.clients.iter().filter_map(|client| client.receiver.as_ref());
        let mut receivers = clients.chain(self.udp_receivers.iter().map(|receiver| &receiver.state));
        // A flow that somebody else sends may always have more to come.
        receivers.all(|state| {
            state
                .distinct()
                .all(|(flow, distinct)| sent.get(&flow).is_some_and(|sent| distinct >= *sent))
        })
    }

    /// DISCONNECT everywhere, then a short wait for the brokers to close: their ends keep the TIME_WAIT then, and the fixed
    /// local ports are free for a next run.
    fn say_goodbye(&mut self) {
        for client in &mut self.clients {
            if client.say_goodbye(&mut self.core).is_err() {
                client.down();
            }
        }
        let until_ns = self.core.clock.now_ns() + GOODBYE_NS;
        while self.clients.iter().any(|client| client.phase == Phase::Ready) {
            let left_ns = until_ns - self.core.clock.now_ns();
            if left_ns <= 0 || self.core.epoll.wait(left_ns, &mut self.ready).is_err() {
                return;
            }
            for ready in std::mem::take(&mut self.ready) {
                let index = (ready.token & u64::from(u32::MAX)) as usize;
                match ready.token >> KIND_SHIFT {
                    CLIENT if self.clients[index].advance(ready, &mut self.core).is_err() => {
                        self.clients[index].down()
                    }
                    WAKER => self.waker.reset(),
                    UDP_RECEIVER => self.udp_receivers[index].read(&mut self.core),
                    _ => {}
                }
            }
        }
    }

    fn summarise(&mut self, stopped: bool) -> Summary {
        let mut summary = Summary {
            start_ns: self.start_ns,
            end_ns: self.core.clock.now_ns(),
            stopped,
            fifo: self.fifo,
            events: std::mem::take(&mut self.events),
            lateness_ns: self.core.lateness.summary(),
            lateness_buckets: self.core.lateness.buckets(),
            ..Summary::default()
        };
        for client in &self.clients {
            let (name, node) = (&client.plan.name, &client.plan.node);
            if let Some(source) = &client.source {
                summary
                    .senders
                    .push(source.summarise(name, node, client.local_port));
            }
            if let Some(receiver) = &client.receiver {
                receiver.summarise(name, node, client.local_port, &mut summary.receivers);
            }
        }
        for sender in &self.udp {
            summary.senders.push(sender.summarise());
        }
        for receiver in &self.udp_receivers {
            let plan = receiver.plan;
            receiver
                .state
                .summarise(&plan.name, &plan.node, plan.port, &mut summary.receivers);
        }
        summary
    }
}

fn token(kind: u64, index: usize) -> u64 {
    (kind << KIND_SHIFT) | index as u64
}

fn broker_of(client: &Client<'_>) -> SocketAddrV4 {
    SocketAddrV4::new(client.plan.broker, client.plan.port)
}

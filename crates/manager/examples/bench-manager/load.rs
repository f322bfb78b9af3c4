//! Clients that load a broker: packets as bytes, made before the clock runs.

use crate::figures::Figures;
use crate::machine::Watch;
use crate::peers::Way;
use crate::{Failure, Load, WARM_UP};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use timebound_wire::mqtt::{self, Publish, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PAYLOAD: usize = 100;
/// Nobody is as slow as that.
const LONG: Duration = Duration::from_secs(10);
/// Connections that are being opened at the same time.
const AT_A_TIME: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Qos0,
    Qos1,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QoS {}", self.qos())
    }
}

impl Kind {
    const fn qos(self) -> u8 {
        match self {
            Self::Qos0 => 0,
            Self::Qos1 => 1,
        }
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// Of less than 16 KiB.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let length = [(body.len() & 0x7f | 0x80) as u8, (body.len() >> 7) as u8];
    [&[first], &length[..], body].concat()
}

/// Counts up with every measurement: what is left of one must not arrive in the next.
static MEASUREMENT: AtomicU64 = AtomicU64::new(0);

fn topic(number: usize) -> String {
    format!("bench/{}/{number:05}", MEASUREMENT.load(Ordering::Relaxed))
}

/// A PUBLISH to a topic of its own, of which identifier and stamp are put in when it is sent.
struct Template {
    bytes: Vec<u8>,
    /// Where the packet identifier stands; QoS 0 has none.
    identifier: Option<usize>,
}

impl Template {
    fn new(kind: Kind, number: usize) -> Self {
        let topic = text(&topic(number));
        let identifier: &[u8] = if kind == Kind::Qos1 { &[0, 1] } else { &[] };
        let bytes = packet(
            0x30 | kind.qos() << 1,
            &[&topic[..], identifier, &[0], &[0; PAYLOAD]].concat(),
        );
        // One byte of type and flags, two of length.
        let identifier = (kind == Kind::Qos1).then_some(3 + topic.len());
        Self { bytes, identifier }
    }

    fn with(&mut self, identifier: u16, stamp: u64) -> &[u8] {
        if let Some(at) = self.identifier {
            self.bytes[at..at + 2].copy_from_slice(&identifier.to_be_bytes());
        }
        let payload = self.bytes.len() - PAYLOAD;
        self.bytes[payload..payload + 8].copy_from_slice(&stamp.to_be_bytes());
        &self.bytes
    }
}

fn connect(name: &str) -> Vec<u8> {
    packet(0x10, &[&text("MQTT")[..], &[5, 2, 0, 0, 0], &text(name)].concat())
}

fn subscribe(kind: Kind, number: usize) -> Vec<u8> {
    let filter = [&[0, 1, 0][..], &text(&topic(number)), &[kind.qos()]].concat();
    packet(0x82, &filter)
}

/// A client that is connected, and has subscribed to its own topic if told so.
fn client(port: u16, name: &str, subscribes: Option<(Kind, usize)>) -> Result<TcpStream, Failure> {
    let mut socket = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port)))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(LONG))?;
    socket.write_all(&connect(name))?;
    let mut answers = 1;
    if let Some((kind, number)) = subscribes {
        socket.write_all(&subscribe(kind, number))?;
        answers = 2;
    }
    for _ in 0..answers {
        let mut head = [0; 2];
        socket.read_exact(&mut head)?;
        socket.read_exact(&mut vec![0; usize::from(head[1])])?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Takes whole packets from the front: messages' stamps, how many PUBACKs; PUBACKs that are to be written go to `answers`.
fn take(bytes: &mut Vec<u8>, answers: &mut Vec<u8>, mut message: impl FnMut(u64)) -> Result<usize, Failure> {
    let (mut at, mut acknowledged) = (0, 0);
    while let Some((head, rest)) = mqtt::next(&bytes[at..])? {
        match head.kind {
            mqtt::Kind::Publish => {
                let found = Publish::read(&head, rest, Version::V5)?;
                message(u64::from_be_bytes(found.payload[..8].try_into()?));
                if found.qos > 0 {
                    answers.extend([0x40, 2]);
                    answers.extend(found.packet.to_be_bytes());
                }
            }
            mqtt::Kind::Puback => acknowledged += 1,
            _ => {}
        }
        at += head.whole();
    }
    bytes.drain(..at);
    Ok(acknowledged)
}

fn quantile_us(mut ns: Vec<u64>, share: f64) -> f64 {
    ns.sort_unstable();
    let at = (ns.len() as f64 * share) as usize;
    ns.get(at).map_or(f64::NAN, |ns| *ns as f64 / 1_000.0)
}

/// Writes all, on a socket that does not block; how long that had to wait for room is in the latency.
fn write(socket: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_micros(20));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Connections of one way for messages at a fixed rate, over all publishers in turn. Each has a subscriber of its own.
pub(crate) struct Paced {
    publishers: Vec<(TcpStream, Template)>,
    kind: Kind,
    clock: Instant,
    sent: u64,
    received: Arc<AtomicU64>,
    /// When each message was written and how long it took, ns.
    latencies: Arc<Mutex<Vec<(u64, u64)>>>,
    ends: Arc<AtomicBool>,
    reading: Option<JoinHandle<Result<(), String>>>,
}

impl Paced {
    pub(crate) fn open(way: &Way, load: Load) -> Result<Self, Failure> {
        MEASUREMENT.fetch_add(1, Ordering::Relaxed);
        let (mut publishers, mut subscribers) = (Vec::new(), Vec::new());
        let measurement = MEASUREMENT.load(Ordering::Relaxed);
        for number in 0..load.connections {
            let subscribes = Some((load.kind, number));
            subscribers.push(client(way.port, &format!("s{measurement}-{number}"), subscribes)?);
            let publisher = client(way.port, &format!("p{measurement}-{number}"), None)?;
            publishers.push((publisher, Template::new(load.kind, number)));
        }
        let (received, latencies, ends) = (Arc::default(), Arc::default(), Arc::default());
        let (clock, reading) = (Instant::now(), {
            let (received, latencies, ends) =
                (Arc::clone(&received), Arc::clone(&latencies), Arc::clone(&ends));
            move |clock| read_all(subscribers, clock, &received, &latencies, &ends)
        });
        Ok(Self {
            publishers,
            kind: load.kind,
            clock,
            sent: 0,
            received,
            latencies,
            ends,
            reading: Some(std::thread::spawn(move || {
                reading(clock).map_err(|error| error.to_string())
            })),
        })
    }

    /// Publishes for the time of the load, and waits until all of that has come.
    pub(crate) fn slice(
        &mut self,
        way: &Way,
        load: Load,
        ours: &[u32],
        figures: &mut Figures,
    ) -> Result<(), Failure> {
        let clock = self.clock;
        let total = load.rate * u64::try_from((load.time + WARM_UP).as_millis())? / 1_000;
        let watch = Watch::begin(way.id(), ours);
        let (mut answers, mut late, begin) = (vec![0; 64 * 1024], Vec::new(), clock.elapsed());
        for number in 0..total {
            let due = begin + Duration::from_nanos(number * 1_000_000_000 / load.rate);
            std::thread::sleep(due.saturating_sub(clock.elapsed()));
            let count = self.publishers.len();
            let at = usize::try_from(self.sent)? % count;
            let identifier = (self.sent / count as u64 % 60_000) as u16 + 1;
            let stamp = clock.elapsed();
            late.push(u64::try_from(stamp.saturating_sub(due).as_nanos())?);
            let (publisher, template) = &mut self.publishers[at];
            write(
                publisher,
                template.with(identifier, u64::try_from(stamp.as_nanos())?),
            )?;
            if self.kind == Kind::Qos1 {
                // PUBACKs; that there are none yet is no failure.
                let _ = publisher.read(&mut answers);
            }
            self.sent += 1;
        }
        let until = Instant::now() + LONG;
        while self.received.load(Ordering::Acquire) < self.sent {
            if Instant::now() > until {
                let received = self.received.load(Ordering::Acquire);
                return Err(format!("{received} of {} messages arrived", self.sent).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let used = watch.end();
        let counted = u64::try_from((begin + WARM_UP).as_nanos())?;
        let all = std::mem::take(&mut *self.latencies.lock().unwrap_or_else(PoisonError::into_inner));
        let counts = |(stamp, latency): &(u64, u64)| (*stamp >= counted).then_some(*latency);
        let latencies: Vec<u64> = all.iter().filter_map(counts).collect();
        figures.p50 = quantile_us(latencies.clone(), 0.5);
        figures.p99 = quantile_us(latencies, 0.99);
        figures.late = quantile_us(late, 0.99);
        figures.paced_cpu = used.watched.as_secs_f64() * 1e6 / total as f64;
        figures.others = used.others;
        Ok(())
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // What went wrong there was seen where messages were missing.
        drop(self.reading.take().map(JoinHandle::join));
    }
}

/// Reads until it is told to end.
fn read_all(
    sockets: Vec<TcpStream>,
    clock: Instant,
    received: &Arc<AtomicU64>,
    latencies: &Arc<Mutex<Vec<(u64, u64)>>>,
    ends: &AtomicBool,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        for socket in sockets {
            let (latencies, received) = (Arc::clone(latencies), Arc::clone(received));
            let mut socket = tokio::net::TcpStream::from_std(socket)?;
            tokio::task::spawn_local(async move {
                let (mut bytes, mut answers) = (Vec::with_capacity(4_096), Vec::new());
                while socket.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
                    let now = clock.elapsed().as_nanos() as u64;
                    let mut come = 0;
                    let taken = {
                        let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
                        take(&mut bytes, &mut answers, |stamp| {
                            latencies.push((stamp, now.saturating_sub(stamp)));
                            come += 1;
                        })
                    };
                    received.fetch_add(come, Ordering::Release);
                    if taken.is_err() || socket.write_all(&answers).await.is_err() {
                        break;
                    }
                    answers.clear();
                }
            });
        }
        while !ends.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
}

/// Clients of one way that each publish to themselves, one message for each that comes back.
pub(crate) struct Closed {
    clients: Vec<(tokio::net::TcpStream, Template)>,
    window: u64,
}

impl Closed {
    /// Within a runtime, which is that of its slices.
    pub(crate) fn open(way: &Way, load: Load) -> Result<Self, Failure> {
        let measurement = MEASUREMENT.fetch_add(1, Ordering::Relaxed) + 1;
        let mut clients = Vec::new();
        for number in 0..load.connections {
            let subscribes = Some((load.kind, number));
            let socket = client(way.port, &format!("c{measurement}-{number}"), subscribes)?;
            let socket = tokio::net::TcpStream::from_std(socket)?;
            clients.push((socket, Template::new(load.kind, number)));
        }
        Ok(Self {
            clients,
            window: if load.connections == 1 { 100 } else { 4 },
        })
    }

    /// Goes round for the time of the load, then takes what is still under way.
    pub(crate) async fn slice(
        &mut self,
        way: &Way,
        load: Load,
        ours: &[u32],
        figures: &mut Figures,
    ) -> Result<(), Failure> {
        let (received, ends) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(false)));
        let turns: Vec<_> = self
            .clients
            .drain(..)
            .map(|(socket, template)| {
                let (received, ends) = (Rc::clone(&received), Rc::clone(&ends));
                tokio::task::spawn_local(turn(socket, template, self.window, received, ends))
            })
            .collect();
        tokio::time::sleep(WARM_UP).await;
        let (watch, begin, before) = (Watch::begin(way.id(), ours), Instant::now(), received.get());
        tokio::time::sleep(load.time).await;
        let (count, time) = ((received.get() - before) as f64, begin.elapsed());
        let used = watch.end();
        ends.set(true);
        for one in turns {
            self.clients.push(
                tokio::time::timeout(LONG, one)
                    .await??
                    .map_err(|error| error.to_string())?,
            );
        }
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count.max(1.0);
        figures.most = count / time.as_secs_f64();
        figures.cpu = each(used.watched);
        figures.chain = each(used.ours);
        figures.others = figures.others.max(used.others);
        Ok(())
    }
}

/// Publishes one message for each that comes back (QoS 1: and is acknowledged, which is not waited for), until it ends and all have come.
async fn turn(
    mut socket: tokio::net::TcpStream,
    mut template: Template,
    window: u64,
    received: Rc<Cell<u64>>,
    ends: Rc<Cell<bool>>,
) -> io::Result<(tokio::net::TcpStream, Template)> {
    let mut identifier: u16 = 0;
    let mut out = Vec::with_capacity(16 * 1024);
    let mut bytes = Vec::with_capacity(16 * 1024);
    let (mut new, mut under_way) = (window, 0);
    loop {
        for _ in 0..new {
            identifier = identifier % 60_000 + 1;
            out.extend_from_slice(template.with(identifier, 0));
        }
        under_way += new;
        socket.write_all(&out).await?;
        out.clear();
        if under_way == 0 {
            return Ok((socket, template));
        }
        if socket.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut come = 0;
        take(&mut bytes, &mut out, |_| come += 1).map_err(|error| io::Error::other(error.to_string()))?;
        received.set(received.get() + come);
        under_way -= come;
        new = if ends.get() { 0 } else { come };
    }
}

/// Connections that are there at the same time.
pub(crate) struct Held {
    pub(crate) connections: usize,
    /// Connected and subscribed, per second.
    pub(crate) rate: f64,
    /// Of them got what they published to themselves.
    pub(crate) passed: usize,
    _sockets: Vec<tokio::net::TcpStream>,
}

/// Opens so many connections, some at a time, and lets a message pass on each; fewer where the limit of open files says so.
pub(crate) fn hold(
    runtime: &tokio::runtime::Runtime,
    port: u16,
    connections: usize,
) -> Result<Held, Failure> {
    MEASUREMENT.fetch_add(1, Ordering::Relaxed);
    let local = tokio::task::LocalSet::new();
    local.block_on(runtime, async {
        let (next, sockets) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
        let begin = Instant::now();
        let opening: Vec<_> = (0..AT_A_TIME)
            .map(|_| {
                let (next, sockets) = (Rc::clone(&next), Rc::clone(&sockets));
                tokio::task::spawn_local(async move {
                    while next.get() < connections {
                        let number = next.replace(next.get() + 1);
                        let opened = tokio::time::timeout(LONG, open(port, number)).await;
                        if let Ok(Ok(socket)) = opened {
                            sockets.borrow_mut().push((number, socket));
                        }
                    }
                })
            })
            .collect();
        for one in opening {
            one.await?;
        }
        let rate = sockets.borrow().len() as f64 / begin.elapsed().as_secs_f64();
        let mut sockets = sockets.take();
        for (number, socket) in &mut sockets {
            socket
                .write_all(Template::new(Kind::Qos0, *number).with(0, 0))
                .await?;
        }
        let (mut passed, until) = (0, Instant::now() + LONG);
        for (_, socket) in &mut sockets {
            let left = until.saturating_duration_since(Instant::now());
            let got = tokio::time::timeout(left, one_message(socket)).await;
            passed += usize::from(matches!(got, Ok(Ok(()))));
        }
        Ok(Held {
            connections: sockets.len(),
            rate,
            passed,
            _sockets: sockets.into_iter().map(|(_, socket)| socket).collect(),
        })
    })
}

/// A client that is subscribed to its own topic.
async fn open(port: u16, number: usize) -> Result<tokio::net::TcpStream, Failure> {
    let mut socket = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    socket.set_nodelay(true)?;
    for bytes in [connect(&format!("h{number}")), subscribe(Kind::Qos0, number)] {
        socket.write_all(&bytes).await?;
        let mut head = [0; 2];
        socket.read_exact(&mut head).await?;
        socket.read_exact(&mut vec![0; usize::from(head[1])]).await?;
    }
    Ok(socket)
}

async fn one_message(socket: &mut tokio::net::TcpStream) -> Result<(), Failure> {
    let (mut bytes, mut come) = (Vec::new(), 0);
    while come == 0 {
        if socket.read_buf(&mut bytes).await? == 0 {
            return Err("it was closed".into());
        }
        take(&mut bytes, &mut Vec::new(), |_| come += 1)?;
    }
    Ok(())
}

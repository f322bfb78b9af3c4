//! Clients that load a broker: packets as bytes, made before the clock runs.

use crate::Failure;
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use timebound_wire::mqtt::{self, Publish, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PAYLOAD: usize = 100;
/// Nobody is as slow as that.
const LONG: Duration = Duration::from_secs(10);

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

fn publish(kind: Kind, number: usize, identifier: u16, stamp: u64) -> Vec<u8> {
    let identifier = identifier.to_be_bytes();
    let identifier = if kind == Kind::Qos1 { &identifier[..] } else { &[] };
    let mut payload = [0; PAYLOAD];
    payload[..8].copy_from_slice(&stamp.to_be_bytes());
    packet(
        0x30 | kind.qos() << 1,
        &[&text(&topic(number))[..], identifier, &[0], &payload].concat(),
    )
}

/// A client that is connected, and has subscribed to its own topic if told so.
fn client(port: u16, name: &str, subscribes: Option<(Kind, usize)>) -> Result<TcpStream, Failure> {
    let mut socket = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port)))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(LONG))?;
    socket.write_all(&packet(
        0x10,
        &[&text("MQTT")[..], &[5, 2, 0, 0, 0], &text(name)].concat(),
    ))?;
    let mut answers = 1;
    if let Some((kind, number)) = subscribes {
        let filter = [&[0, 1, 0][..], &text(&topic(number)), &[kind.qos()]].concat();
        socket.write_all(&packet(0x82, &filter))?;
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

/// Latencies in ns at a fixed rate over all connections in turn. Each publisher has a subscriber of its own.
pub(crate) fn paced(
    port: u16,
    kind: Kind,
    pairs: usize,
    rate: u64,
    time: Duration,
) -> Result<Vec<u64>, Failure> {
    MEASUREMENT.fetch_add(1, Ordering::Relaxed);
    let (mut publishers, mut subscribers) = (Vec::new(), Vec::new());
    for number in 0..pairs {
        subscribers.push(client(port, &format!("s{number}"), Some((kind, number)))?);
        publishers.push(client(port, &format!("p{number}"), None)?);
    }
    let (clock, total) = (Instant::now(), rate * time.as_secs());
    let received = Arc::new(AtomicU64::new(0));
    let reading = {
        let received = Arc::clone(&received);
        std::thread::spawn(move || {
            read_all(subscribers, clock, &received, total).map_err(|error| error.to_string())
        })
    };
    // What the kernel rounds a sleep to.
    // SAFETY: the call changes this thread's timer slack and nothing else.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let (mut answers, begin) = (vec![0; 64 * 1024], Instant::now());
    for number in 0..total {
        let due = begin + Duration::from_nanos(number * 1_000_000_000 / rate);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let at = usize::try_from(number)? % pairs;
        let identifier = (number / pairs as u64 % 60_000) as u16 + 1;
        let stamp = u64::try_from(clock.elapsed().as_nanos())?;
        let publisher = &mut publishers[at];
        let bytes = publish(kind, at, identifier, stamp);
        publisher.set_nonblocking(false)?;
        publisher.write_all(&bytes)?;
        publisher.set_nonblocking(true)?;
        // PUBACKs; that there are none yet is no failure.
        let _ = publisher.read(&mut answers);
    }
    let until = Instant::now() + LONG;
    while received.load(Ordering::Relaxed) < total && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let latencies = reading.join().map_err(|_| "the reader broke")??;
    if latencies.len() as u64 != total {
        return Err(format!("{} of {total} messages arrived", latencies.len()).into());
    }
    Ok(latencies)
}

/// Reads until so many messages have come.
fn read_all(
    sockets: Vec<TcpStream>,
    clock: Instant,
    received: &Arc<AtomicU64>,
    total: u64,
) -> Result<Vec<u64>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let latencies = std::rc::Rc::new(std::cell::RefCell::new(Vec::with_capacity(usize::try_from(
            total,
        )?)));
        for socket in sockets {
            let (latencies, received) = (std::rc::Rc::clone(&latencies), Arc::clone(received));
            let mut socket = tokio::net::TcpStream::from_std(socket)?;
            tokio::task::spawn_local(async move {
                let (mut bytes, mut answers) = (Vec::with_capacity(4_096), Vec::new());
                while socket.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
                    let now = clock.elapsed().as_nanos() as u64;
                    let mut come = 0;
                    let taken = take(&mut bytes, &mut answers, |stamp| {
                        latencies.borrow_mut().push(now.saturating_sub(stamp));
                        come += 1;
                    });
                    received.fetch_add(come, Ordering::Relaxed);
                    if taken.is_err() || socket.write_all(&answers).await.is_err() {
                        break;
                    }
                    answers.clear();
                }
            });
        }
        let until = Instant::now() + LONG + LONG;
        while received.load(Ordering::Relaxed) < total && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(latencies.take())
    })
}

/// Messages per second of clients that each publish to themselves, so many under way each.
pub(crate) fn closed(
    port: u16,
    kind: Kind,
    clients: usize,
    window: u16,
    time: Duration,
) -> Result<f64, Failure> {
    MEASUREMENT.fetch_add(1, Ordering::Relaxed);
    let mut sockets = Vec::new();
    for number in 0..clients {
        sockets.push(client(port, &format!("c{number}"), Some((kind, number)))?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    let (received, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let begin = Instant::now();
    local.block_on(&runtime, async {
        let mut tasks = Vec::new();
        for (number, socket) in sockets.into_iter().enumerate() {
            let socket = tokio::net::TcpStream::from_std(socket)?;
            let (received, ends) = (Arc::clone(&received), Arc::clone(&ends));
            tasks.push(tokio::task::spawn_local(turn(
                socket, kind, number, window, received, ends,
            )));
        }
        tokio::time::sleep(time).await;
        ends.store(true, Ordering::Relaxed);
        Ok::<(), Failure>(())
    })?;
    Ok(received.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64())
}

/// Publishes one message for each that comes back (QoS 1: and is acknowledged, which is not waited for).
async fn turn(
    mut socket: tokio::net::TcpStream,
    kind: Kind,
    number: usize,
    window: u16,
    received: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
) {
    let mut identifier: u16 = 0;
    let mut next = || {
        identifier = identifier % 60_000 + 1;
        publish(kind, number, identifier, 0)
    };
    let mut out: Vec<u8> = (0..window).flat_map(|_| next()).collect();
    let mut bytes = Vec::with_capacity(64 * 1024);
    while !ends.load(Ordering::Relaxed) && socket.write_all(&out).await.is_ok() {
        out.clear();
        if !socket.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
            break;
        }
        let mut come = 0;
        if take(&mut bytes, &mut out, |_| come += 1).is_err() {
            break;
        }
        received.fetch_add(come, Ordering::Relaxed);
        (0..come).for_each(|_| out.extend(next()));
    }
}

/// So many connections, each of which has published once; fewer where the limit of open files says so.
pub(crate) fn hold(port: u16, connections: usize) -> Result<Vec<TcpStream>, Failure> {
    let mut held = Vec::new();
    for number in 0..connections {
        let Ok(mut socket) = client(port, &format!("h{number}"), None) else {
            break;
        };
        socket.write_all(&publish(Kind::Qos0, number, 0, 0))?;
        held.push(socket);
    }
    std::thread::sleep(Duration::from_millis(500));
    Ok(held)
}

//! Real brokers, and clients of MQTT 5 that go on where they were when a connection ends.

use super::{LONG, find, need, packet, soon, text};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A mosquitto of the test's own with what it keeps, ended and removed when dropped.
pub(crate) struct Mosquitto {
    child: Option<Child>,
    pub(crate) port: u16,
    folder: PathBuf,
}

impl Mosquitto {
    /// `None`, with the reason printed, where it is not installed and nobody insists.
    pub(crate) fn start(more: &str) -> Option<Self> {
        if !need(&["mosquitto"]) {
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let folder = std::env::temp_dir().join(format!("timebound-peers-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let at = folder.display();
        // Root's broker would change its user, who may not write there.
        let lines = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\nuser root\npersistence true\npersistence_location {at}/\n\
             max_queued_messages 0\n{more}\n"
        );
        std::fs::write(folder.join("conf"), lines).unwrap();
        let mut broker = Self {
            child: None,
            port,
            folder,
        };
        broker.run();
        Some(broker)
    }

    pub(crate) fn run(&mut self) {
        let child = Command::new(find("mosquitto").unwrap())
            .arg("-c")
            .arg(self.folder.join("conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap());
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        soon("the broker listens", || TcpStream::connect(address).is_ok());
    }

    /// Ends it in order, so that it writes down what it has.
    pub(crate) fn end(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let id = i32::try_from(child.id()).unwrap();
        // SAFETY: a signal to a child that was not waited for.
        unsafe { libc::kill(id, libc::SIGTERM) };
        child.wait().unwrap();
    }

    /// It takes nothing and says nothing for a while.
    pub(crate) fn pause(&self, paused: bool) {
        let id = i32::try_from(self.child.as_ref().unwrap().id()).unwrap();
        let signal = if paused { libc::SIGSTOP } else { libc::SIGCONT };
        // SAFETY: a signal to a child that was not waited for.
        unsafe { libc::kill(id, signal) };
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A connection of MQTT 5, packet by packet.
struct Connection {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Connection {
    /// Also says whether the broker has the session.
    fn open(port: u16, name: &str) -> io::Result<(Self, bool)> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_millis(20)))?;
        stream.set_nodelay(true)?;
        let mut connection = Self {
            stream,
            bytes: Vec::new(),
        };
        // A session for an hour.
        let properties = [5, 0x11, 0, 0, 14, 16];
        let connect = packet(0x10, &[&text("MQTT"), &[5, 0, 0, 60], &properties, &text(name)]);
        connection.stream.write_all(&connect)?;
        let until = Instant::now() + LONG;
        while Instant::now() < until {
            if let Some((0x20, body)) = connection.next()? {
                return match body[1] {
                    0 => Ok((connection, body[0] == 1)),
                    _ => Err(io::ErrorKind::PermissionDenied.into()),
                };
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// First byte and body of the next packet; `None`: there is none for a while.
    fn next(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        loop {
            let mut length = 0;
            for place in 1..self.bytes.len().min(5) {
                length |= usize::from(self.bytes[place] & 0x7f) << (7 * (place - 1));
                if self.bytes[place] & 0x80 == 0 {
                    if self.bytes.len() <= place + length {
                        break;
                    }
                    let rest = self.bytes.split_off(place + 1 + length);
                    let whole = std::mem::replace(&mut self.bytes, rest);
                    return Ok(Some((whole[0], whole[place + 1..].to_vec())));
                }
            }
            let mut more = [0; 65_536];
            match self.stream.read(&mut more) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.bytes.extend(&more[..count]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Collects what it is sent, each message once as its QoS says, over as many connections as it takes.
pub(crate) struct Subscriber {
    found: Arc<Mutex<Vec<String>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Subscriber {
    /// Returns once the broker has taken the subscription.
    pub(crate) fn start(port: u16, name: &str, filter: &str, qos: u8) -> Self {
        let (found, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let is_subscribed = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (found, over, is_subscribed) =
                (Arc::clone(&found), Arc::clone(&over), Arc::clone(&is_subscribed));
            let (name, filter) = (name.to_owned(), filter.to_owned());
            move || {
                let mut had = BTreeSet::new();
                while !over.load(Ordering::Relaxed) {
                    // The broker may be away for a while.
                    let _ = Self::serve(port, &name, &filter, qos, &found, &over, &is_subscribed, &mut had);
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
        soon("it is subscribed", || is_subscribed.load(Ordering::Relaxed));
        Self {
            found,
            over,
            thread: Some(thread),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all that a connection needs")]
    fn serve(
        port: u16,
        name: &str,
        filter: &str,
        qos: u8,
        found: &Mutex<Vec<String>>,
        over: &AtomicBool,
        is_subscribed: &AtomicBool,
        had: &mut BTreeSet<[u8; 2]>,
    ) -> io::Result<()> {
        let (mut connection, has_session) = Connection::open(port, name)?;
        if !has_session {
            had.clear();
            let subscribe = packet(0x82, &[&[0, 1, 0], &text(filter), &[qos]]);
            connection.stream.write_all(&subscribe)?;
        }
        while !over.load(Ordering::Relaxed) {
            let Some((first, body)) = connection.next()? else {
                continue;
            };
            match first >> 4 {
                9 => is_subscribed.store(true, Ordering::Relaxed),
                3 => {
                    let (qos, topic) = (
                        first >> 1 & 3,
                        usize::from(u16::from_be_bytes([body[0], body[1]])),
                    );
                    let rest = &body[2 + topic..];
                    let (id, rest) = if qos > 0 {
                        rest.split_at(2)
                    } else {
                        rest.split_at(0)
                    };
                    let text = String::from_utf8(rest[1 + usize::from(rest[0])..].to_vec()).unwrap();
                    if qos < 2 || had.insert([id[0], id[1]]) {
                        found.lock().unwrap().push(text);
                    }
                    match qos {
                        0 => {}
                        1 => connection.stream.write_all(&[0x40, 2, id[0], id[1]])?,
                        _ => connection.stream.write_all(&[0x50, 2, id[0], id[1]])?,
                    }
                }
                6 => {
                    had.remove(&[body[0], body[1]]);
                    connection.stream.write_all(&[0x70, 2, body[0], body[1]])?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn found(&self) -> Vec<String> {
        self.found.lock().unwrap().clone()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What has to be sent again on the next connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Published(usize),
    Released,
}

/// Publishes the numbers below `count`, so many at a time, until all are acknowledged to the end, over as many connections as it takes.
pub(crate) fn publish_all(
    port: &dyn Fn() -> u16,
    name: &str,
    topic: &str,
    qos: u8,
    count: usize,
    done: &AtomicUsize,
) {
    const WINDOW: usize = 10;
    let (mut next, mut flight, mut has_session) = (0, BTreeMap::<u16, Sent>::new(), false);
    let until = Instant::now() + 6 * LONG;
    let message = |number: usize, id: u16, again: bool| {
        let id = id.to_be_bytes();
        let id = if qos > 0 { &id[..] } else { &[] };
        let flags = 0x30 | qos << 1 | u8::from(again) << 3;
        packet(flags, &[&text(topic), id, &[0], number.to_string().as_bytes()])
    };
    let mut turn = |flight: &mut BTreeMap<u16, Sent>, next: &mut usize| -> io::Result<()> {
        let (mut connection, resumed) = Connection::open(port(), name)?;
        assert!(resumed || !has_session, "the session is gone");
        has_session = true;
        // In the order in which they were sent (4.4): identifiers count up.
        for (id, sent) in flight.iter() {
            let bytes = match sent {
                Sent::Published(number) => message(*number, *id, true),
                Sent::Released => vec![0x62, 2, (*id >> 8) as u8, *id as u8],
            };
            connection.stream.write_all(&bytes)?;
        }
        while *next < count || !flight.is_empty() {
            assert!(Instant::now() < until, "{} are not acknowledged", flight.len());
            while *next < count && flight.len() < WINDOW {
                let id = u16::try_from(*next % 60_000 + 1).unwrap();
                let number = *next;
                *next += 1;
                if qos > 0 {
                    flight.insert(id, Sent::Published(number));
                }
                connection.stream.write_all(&message(number, id, false))?;
                if qos == 0 {
                    done.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_micros(500));
                }
            }
            let Some((first, body)) = (if qos > 0 { connection.next()? } else { None }) else {
                continue;
            };
            if !matches!(first >> 4, 4 | 5 | 7) {
                continue;
            }
            let id = u16::from_be_bytes([body[0], body[1]]);
            match first >> 4 {
                4 | 7 => drop(flight.remove(&id).map(|_| done.fetch_add(1, Ordering::Relaxed))),
                5 => {
                    flight.insert(id, Sent::Released);
                    connection.stream.write_all(&[0x62, 2, body[0], body[1]])?;
                }
                _ => {}
            }
        }
        Ok(())
    };
    while turn(&mut flight, &mut next).is_err() {
        assert!(Instant::now() < until, "no broker");
        std::thread::sleep(Duration::from_millis(20));
    }
}

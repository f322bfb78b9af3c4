//! A manager between a client and a broker that the test plays itself, byte by byte.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod authority;
pub(crate) mod clients;
#[path = "../../../live/tests/common/skips.rs"]
mod skips;

use serde_json::{Value, json};
#[allow(unused_imports, reason = "each test file uses a part")]
pub(crate) use skips::{find, need};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use timebound_manager::Manager;

/// Nothing here takes longer on any machine that works.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u16).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    let (mut value, mut out) = (bytes.len(), Vec::new());
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out.extend(bytes);
    out
}

pub(crate) fn packet(first: u8, parts: &[&[u8]]) -> Vec<u8> {
    [vec![first], sized(&parts.concat())].concat()
}

pub(crate) fn user(pairs: &[(&str, &str)]) -> Vec<u8> {
    let pair = |(key, value): &(&str, &str)| [vec![0x26], text(key), text(value)].concat();
    sized(&pairs.iter().flat_map(pair).collect::<Vec<u8>>())
}

pub(crate) fn connect(name: &str) -> Vec<u8> {
    packet(0x10, &[&text("MQTT"), &[5, 2, 0, 60, 0], &text(name)])
}

pub(crate) const CONNACK: &[u8] = &[0x20, 3, 0, 0, 0];

pub(crate) fn publish(
    topic: &str,
    qos: u8,
    identifier: u16,
    pairs: &[(&str, &str)],
    payload: &[u8],
) -> Vec<u8> {
    let id = identifier.to_be_bytes();
    let id = if qos > 0 { &id[..] } else { &[] };
    packet(0x30 | qos << 1, &[&text(topic), id, &user(pairs), payload])
}

pub(crate) fn puback(identifier: u16) -> Vec<u8> {
    packet(0x40, &[&identifier.to_be_bytes()])
}

/// A broker's socket.
pub(crate) struct Broker(pub(crate) TcpListener);

impl Broker {
    pub(crate) fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }
    pub(crate) fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }
    pub(crate) fn accept(&self) -> TcpStream {
        let (socket, _) = self.0.accept().unwrap();
        ready(socket)
    }
}

pub(crate) fn ready(socket: TcpStream) -> TcpStream {
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

/// A configuration with one plain listener; `change` may say more.
pub(crate) fn start(broker: u16, change: impl FnOnce(&mut Value)) -> Manager {
    let mut config = json!({
        "name": "m1",
        "listeners": [{"address": "127.0.0.1", "port": 0, "kind": "tcp"}],
        "broker": {"address": "127.0.0.1", "port": broker},
        "threads": 2,
    });
    change(&mut config);
    Manager::start(&serde_json::from_value(config).unwrap()).unwrap()
}

pub(crate) fn dial(manager: &Manager) -> TcpStream {
    ready(TcpStream::connect(manager.addresses()[0]).unwrap())
}

/// A client that is connected, and the broker's end of it.
pub(crate) fn join(manager: &Manager, broker: &Broker, name: &str) -> (TcpStream, TcpStream) {
    let mut client = dial(manager);
    client.write_all(&connect(name)).unwrap();
    let mut end = broker.accept();
    expect(&mut end, &connect(name));
    end.write_all(CONNACK).unwrap();
    expect(&mut client, CONNACK);
    (client, end)
}

/// These bytes come, and no others before.
#[track_caller]
pub(crate) fn expect(stream: &mut impl Read, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, expected);
}

/// Nothing comes for a while.
#[track_caller]
pub(crate) fn is_silent(stream: &mut TcpStream, time: Duration) {
    stream.set_read_timeout(Some(time)).unwrap();
    let error = stream.read(&mut [0; 100]).expect_err("nothing");
    assert!(matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut
    ));
    stream.set_read_timeout(Some(LONG)).unwrap();
}

/// The rest of a stream.
pub(crate) fn rest(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset ends it as well.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

thread_local! {
    /// Events that this test has polled and not looked at. (One manager and one thread for a test.)
    static POLLED: RefCell<VecDeque<Value>> = const { RefCell::new(VecDeque::new()) };
}

/// The next event of this kind, as JSON; others before it are passed over.
#[track_caller]
pub(crate) fn event(manager: &Manager, kind: &str) -> Value {
    let until = Instant::now() + LONG;
    loop {
        while let Some(event) = POLLED.with_borrow_mut(VecDeque::pop_front) {
            if event["kind"] == kind {
                return event;
            }
        }
        let polled = manager.poll(Duration::from_millis(100));
        let polled = polled.iter().map(|event| serde_json::to_value(event).unwrap());
        POLLED.with_borrow_mut(|events| events.extend(polled));
        assert!(Instant::now() < until, "no {kind}");
    }
}

pub(crate) fn decide(manager: &Manager, request: &Value, verdict: &Value) {
    let mut verdict = verdict.clone();
    verdict["id"] = request["id"].clone();
    verdict["revision"] = request["revision"].clone();
    manager.verdict(serde_json::from_value(verdict).unwrap());
}

#[track_caller]
pub(crate) fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// All five fields of a CONNECT with 65,535 bytes (3.1): 327,697 bytes.
pub(crate) fn longest_connect() -> Vec<u8> {
    let field = text(&"x".repeat(65_535));
    let fields = [&field[..], &field, &field, &field, &field].concat();
    packet(0x10, &[&text("MQTT"), &[4, 0b1100_0110, 0, 60], &fields])
}

/// A connection from this address of the loopback.
pub(crate) fn dial_from(manager: &Manager, last: u8) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
    socket.bind(&from.into()).unwrap();
    socket.connect(&manager.addresses()[0].into()).unwrap();
    ready(socket.into())
}

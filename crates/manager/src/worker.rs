//! A thread that serves its share of the connections.

use crate::contract::{Event, Kind, Limits};
use crate::counters::Counters;
use crate::peers;
use crate::queue::Queue;
use crate::relay::{Relay, Stop};
use crate::report::{Ends, Reporter};
use crate::start::Place;
use crate::strangers::{Stranger, Strangers};
use crate::stream::{Shaking, Stream};
use crate::tls::Broker;
use crate::websocket::Socket;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use timebound_model::Time;
use timebound_protocol::intermediary::{self as protocol, Groups, Session, Verdict};
use tokio::net::TcpStream;
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc::UnboundedReceiver;

/// Failed handshakes of one thread that are told each second; the others are counted.
const MOST_HANDSHAKES_TOLD: u32 = 5;
/// Characters of what a handshake failed for.
const LONGEST_REASON: usize = 200;

/// What all threads know.
pub(crate) struct Shared {
    pub(crate) name: String,
    /// Of this start of the manager: part of every id, so that none is used again.
    pub(crate) start: u64,
    pub(crate) queue: Queue,
    pub(crate) control: AtomicBool,
    pub(crate) stopping: AtomicBool,
    pub(crate) places: Vec<Place>,
    pub(crate) broker: Broker,
    pub(crate) limits: Limits,
    pub(crate) strangers: Arc<Strangers>,
    pub(crate) hold_ms: u64,
    /// `None`: it takes part in no groups.
    pub(crate) peers: Option<peers::Handle>,
}

impl Shared {
    /// Numbers of connection and request in an id of this start of this manager.
    pub(crate) fn parse(&self, id: &str) -> Option<(u64, u32)> {
        let rest = id.strip_prefix(self.name.as_str())?.strip_prefix('-')?;
        let (start, rest) = rest.split_once('-')?;
        let (number, request) = rest.split_once('.')?;
        let ours = u64::from_str_radix(start, 16).ok() == Some(self.start);
        Some((number.parse().ok()?, request.parse().ok()?)).filter(|_| ours)
    }
}

/// What a thread is told.
pub(crate) enum Order {
    Serve {
        socket: std::net::TcpStream,
        client: SocketAddr,
        place: usize,
        number: u64,
        stranger: Stranger,
    },
    Verdict {
        number: u64,
        request: u32,
        revision: u32,
        verdict: Verdict,
    },
    /// All members of its group have taken what a connection sent with this packet identifier, or are lost.
    Taken { number: u64, packet: u16 },
    /// There are other groups from now on, or none.
    Groups(Option<Arc<Groups>>),
    /// Control came or went, or everything is to end: every connection looks.
    Look,
}

/// Where a connection is told something.
pub(crate) struct Handle {
    number: u64,
    verdicts: RefCell<Vec<(u32, u32, Verdict)>>,
    /// Packet identifiers of messages that all members of their groups have taken.
    taken: RefCell<Vec<u16>>,
    waker: RefCell<Option<Waker>>,
}

impl Handle {
    pub(crate) fn waits(&self, waker: &Waker) {
        let mut place = self.waker.borrow_mut();
        if place.as_ref().is_none_or(|before| !before.will_wake(waker)) {
            *place = Some(waker.clone());
        }
    }
    pub(crate) fn verdicts(&self) -> Vec<(u32, u32, Verdict)> {
        std::mem::take(&mut self.verdicts.borrow_mut())
    }
    pub(crate) fn taken(&self) -> Vec<u16> {
        std::mem::take(&mut self.taken.borrow_mut())
    }
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }
    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// What all connections of a thread know.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) limits: protocol::Limits,
    began: Instant,
    groups: RefCell<Option<Arc<Groups>>>,
    handles: RefCell<HashMap<u64, Rc<Handle>>>,
    /// When handshakes that failed were last begun to be counted, and how many were told since.
    told: Cell<(Time, u32)>,
}

impl std::ops::Deref for Worker {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Worker {
    fn new(shared: Arc<Shared>, counters: Arc<Counters>) -> Self {
        let limits = protocol::Limits {
            hold: timebound_model::Span(shared.hold_ms * 1_000_000),
            header_bytes: shared.limits.header_bytes,
            packet_bytes: shared.limits.packet_bytes,
            requests: shared.limits.requests,
            requests_per_second: shared.limits.requests_per_second,
            alias_bytes: shared.limits.alias_bytes,
        };
        Self {
            shared,
            counters,
            limits,
            began: Instant::now(),
            groups: RefCell::new(None),
            handles: RefCell::new(HashMap::new()),
            told: Cell::new((Time(0), 0)),
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
    /// Groups that want what is published here.
    pub(crate) fn groups(&self) -> Option<Arc<Groups>> {
        self.groups.borrow().clone()
    }
    pub(crate) fn surroundings<'s>(
        &'s self,
        now: Time,
        groups: Option<&'s Groups>,
        connection: u64,
    ) -> protocol::Context<'s> {
        protocol::Context {
            now,
            control: self.control.load(Ordering::Relaxed),
            limits: &self.limits,
            groups,
            interests: self.peers.as_ref().is_some_and(|peers| peers.relays),
            connection,
        }
    }
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
    pub(crate) fn id_of(&self, number: u64) -> String {
        format!("{}-{:x}-{number}", self.name, self.start)
    }
    pub(crate) fn forget(&self, handle: &Handle) {
        self.handles.borrow_mut().remove(&handle.number);
    }

    /// At most so many each second: strangers must not fill the queue, in which requests of others wait.
    fn tell_of_handshake(&self, client: SocketAddr, error: &io::Error) {
        let now = self.now();
        let (since, told) = self.told.get();
        let (since, told) = match now.0.saturating_sub(since.0) {
            0..1_000_000_000 => (since, told),
            _ => (now, 0),
        };
        if told == MOST_HANDSHAKES_TOLD {
            return;
        }
        self.told.set((since, told + 1));
        let event = Event::Handshake {
            client_address: client.ip().to_canonical(),
            client_port: client.port(),
            reason: error.to_string().chars().take(LONGEST_REASON).collect(),
        };
        if !self.queue.push(event) {
            self.counters.events_lost.add(1);
        }
    }

    fn enter(&self, number: u64) -> Rc<Handle> {
        let handle = Rc::new(Handle {
            number,
            verdicts: RefCell::default(),
            taken: RefCell::default(),
            waker: RefCell::default(),
        });
        self.handles.borrow_mut().insert(number, Rc::clone(&handle));
        handle
    }
}

/// Serves connections until nobody gives orders any more, then those that are left to their end.
pub(crate) fn run(
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    mut orders: UnboundedReceiver<Order>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    let worker = Rc::new(Worker::new(shared, counters));
    runtime.block_on(async {
        while let Some(order) = orders.recv().await {
            obey(&worker, order);
        }
        // Every connection has been told; none needs longer than this.
        let ending = async {
            while !worker.handles.borrow().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        drop(tokio::time::timeout(Duration::from_secs(2), ending).await);
    });
    Ok(())
}

fn obey(worker: &Rc<Worker>, order: Order) {
    match order {
        Order::Serve {
            socket,
            client,
            place,
            number,
            stranger,
        } => {
            let worker = Rc::clone(worker);
            let guest = Guest {
                client,
                place,
                number,
                stranger: Rc::new(stranger),
            };
            tokio::task::spawn_local(serve(worker, socket, guest));
        }
        Order::Verdict {
            number,
            request,
            revision,
            verdict,
        } => {
            if let Some(handle) = worker.handles.borrow().get(&number) {
                handle.verdicts.borrow_mut().push((request, revision, verdict));
                handle.wake();
            }
        }
        Order::Taken { number, packet } => {
            if let Some(handle) = worker.handles.borrow().get(&number) {
                handle.taken.borrow_mut().push(packet);
                handle.wake();
            }
        }
        Order::Groups(groups) => {
            worker.groups.replace(groups);
            worker.handles.borrow().values().for_each(|handle| handle.wake());
        }
        Order::Look => worker.handles.borrow().values().for_each(|handle| handle.wake()),
    }
}

/// A connection that has begun.
struct Guest {
    client: SocketAddr,
    place: usize,
    number: u64,
    stranger: Rc<Stranger>,
}

/// Waits for something; `None`: the connection is to go.
async fn unless_crowded<T>(stranger: &Stranger, mut awaited: Pin<Box<impl Future<Output = T>>>) -> Option<T> {
    poll_fn(|cx| match stranger.is_to_go(cx) {
        true => Poll::Ready(None),
        false => awaited.as_mut().poll(cx).map(Some),
    })
    .await
}

async fn serve(worker: Rc<Worker>, socket: std::net::TcpStream, guest: Guest) {
    // It may have ended already: then there is nothing to serve.
    if let Ok(relay) = Box::pin(greet(&worker, socket, guest)).await {
        Box::pin(relay_until_end(relay, &worker)).await;
    }
    worker.counters.connections.subtract(1);
}

/// Handshakes before MQTT, within the time for them.
async fn greet(worker: &Rc<Worker>, socket: std::net::TcpStream, guest: Guest) -> io::Result<Relay> {
    let Guest {
        client,
        place,
        number,
        stranger,
    } = guest;
    let limit = worker.now().after(timebound_model::Span(
        worker.shared.limits.handshake_ms * 1_000_000,
    ));
    let socket = TcpStream::from_std(socket)?;
    socket.set_nodelay(true)?;
    let manager = socket.local_addr()?;
    let time = Duration::from_millis(worker.shared.limits.handshake_ms);
    let shaking = Box::pin(shake(worker, socket, place, &stranger));
    let shaken = tokio::time::timeout(time, unless_crowded(&stranger, shaking)).await;
    let (stream, certificate) = match shaken {
        Ok(Some(Ok(found))) => found,
        // It is to go, which has a figure of its own.
        Ok(None) => return Err(io::ErrorKind::QuotaExceeded.into()),
        Ok(Some(Err(error))) if error.kind() == io::ErrorKind::QuotaExceeded => return Err(error),
        Ok(Some(Err(error))) => {
            worker.counters.handshake_failures.add(1);
            worker.tell_of_handshake(client, &error);
            return Err(error);
        }
        Err(elapsed) => {
            worker.counters.handshake_timeouts.add(1);
            return Err(elapsed.into());
        }
    };
    let replaces = worker.places[place].certificate_as_user;
    let session = Session::new(certificate.as_deref().filter(|_| replaces));
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ends = Ends {
        client,
        manager,
        certificate,
        opened_ns: u64::try_from(since_1970.as_nanos()).unwrap_or(0),
    };
    let reporter = Reporter::new(Rc::clone(worker), number, ends);
    let handle = worker.enter(number);
    Ok(Relay::new(
        session,
        stream,
        reporter,
        Rc::clone(worker),
        handle,
        (limit, stranger),
    ))
}

/// TLS and WebSocket, as the listener has them; the common name of the client's certificate.
async fn shake(
    worker: &Worker,
    socket: TcpStream,
    place: usize,
    stranger: &Rc<Stranger>,
) -> io::Result<(Stream, Option<String>)> {
    let place = &worker.places[place];
    let most = worker.shared.limits.websocket_bytes;
    let Some(acceptor) = &place.acceptor else {
        return Ok(match place.kind {
            Kind::Ws | Kind::Wss => {
                let socket = Socket::accept(socket, most, stranger).await?;
                stranger.asks(0)?;
                (Stream::WebSocket(Box::new(socket)), None)
            }
            Kind::Tcp | Kind::Tls => (Stream::Tcp(socket), None),
        });
    };
    let mut secured = acceptor.accept(Shaking::new(socket, Rc::clone(stranger))).await?;
    secured.get_mut().0.shaken();
    let certificate = secured.get_ref().1.peer_certificates();
    let name = certificate.and_then(|chain| crate::tls::common_name(chain.first()?));
    if place.certificate_as_user && name.is_none() {
        let reason = "the client's certificate has no common name";
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let stream = match place.kind {
        Kind::Wss | Kind::Ws => {
            let socket = Socket::accept(secured, most, stranger).await?;
            stranger.asks(0)?;
            Stream::SecureWebSocket(Box::new(socket))
        }
        Kind::Tls | Kind::Tcp => Stream::TlsFromClient(Box::new(secured)),
    };
    Ok((stream, name))
}

async fn relay_until_end(mut relay: Relay, worker: &Worker) {
    let mut stop = relay.run().await;
    if stop == Stop::Dial {
        let dialing = Box::pin(dial(worker));
        let dialed = match relay.stranger() {
            Some(stranger) => unless_crowded(&stranger, dialing).await,
            None => Some(dialing.await),
        };
        match dialed {
            Some(Ok((broker, local, remote))) => {
                relay.reporter.dialed(local, remote);
                relay.dialed(broker);
            }
            Some(Err(_)) => relay.unreachable(),
            // It says so itself.
            None => {}
        }
        stop = relay.run().await;
    }
    if stop == Stop::Late {
        worker.counters.handshake_timeouts.add(1);
    }
    relay.finish(stop).await;
}

async fn dial(worker: &Worker) -> io::Result<(Stream, SocketAddr, SocketAddr)> {
    let time = Duration::from_millis(worker.shared.limits.connect_ms);
    tokio::time::timeout(time, worker.broker.connect()).await?
}

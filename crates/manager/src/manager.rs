//! A running manager: its threads, and the way to them.

use crate::contract::{Config, Event, Groups, Outcome, Stats, Verdict};
use crate::counters::{self, Counters};
use crate::peers;
use crate::queue::Queue;
use crate::start::{self, StartError};
use crate::strangers::Strangers;
use crate::worker::{self, Order, Shared};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use timebound_model::Class;
use timebound_protocol::intermediary as protocol;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// Threads at most where nobody says how many: more than a host's share of the network needs.
const MOST_THREADS: usize = 4;
/// After a failure to accept (no descriptors left), before the next attempt.
const PAUSE: Duration = Duration::from_millis(50);

/// A manager that serves clients until it is stopped or dropped.
pub struct Manager {
    shared: Arc<Shared>,
    counters: Vec<Arc<Counters>>,
    addresses: Vec<SocketAddr>,
    /// Gone once it is stopped.
    running: Mutex<Option<Running>>,
}

struct Running {
    orders: Vec<UnboundedSender<Order>>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Manager {
    /// Binds the listeners and starts the threads.
    ///
    /// # Errors
    /// See [`StartError`]; nothing runs then.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        Self::start_with(config, None)
    }

    /// For tests: datagrams of other managers for which `loss` says so are not seen.
    ///
    /// # Errors
    /// As [`Self::start`].
    #[doc(hidden)]
    pub fn start_with_loss(config: &Config, loss: peers::Loss) -> Result<Self, StartError> {
        Self::start_with(config, Some(loss))
    }

    fn start_with(config: &Config, loss: Option<peers::Loss>) -> Result<Self, StartError> {
        start::check(config)?;
        let places = config
            .listeners
            .iter()
            .map(start::place)
            .collect::<Result<_, _>>()?;
        let broker = crate::tls::Broker::new(&config.broker)?;
        let listeners = config
            .listeners
            .iter()
            .map(start::listen)
            .collect::<Result<Vec<_>, _>>()?;
        let system = |action| move |source| StartError::System { action, source };
        let addresses = listeners.iter().map(std::net::TcpListener::local_addr);
        let addresses = addresses
            .collect::<Result<Vec<_>, _>>()
            .map_err(system("say where it listens"))?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut limits = config.limits.clone();
        limits.connections = crate::limits::connections(limits.connections);
        let peering = config.peer.as_ref().map(|said| peers::prepare(said, loss));
        let peering = peering.transpose()?;
        let shared = Arc::new(Shared {
            name: config.name.clone(),
            start: u64::try_from(since_1970.as_nanos()).unwrap_or(0),
            queue: Queue::new(limits.events),
            control: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            places,
            broker,
            strangers: Strangers::new(limits.strangers_bytes, limits.strangers_per_address),
            limits,
            hold_ms: config.hold_ms,
            peers: peering.as_ref().map(|prepared| prepared.handle.clone()),
        });
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let count = match config.threads {
            0 => cores.min(MOST_THREADS),
            threads => threads,
        };
        let counters: Vec<Arc<Counters>> = (0..count).map(|_| Arc::default()).collect();
        let running =
            Running::start(&shared, &counters, listeners, peering).map_err(system("start its threads"))?;
        Ok(Self {
            shared,
            counters,
            addresses,
            running: Mutex::new(Some(running)),
        })
    }

    /// Where it listens, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Connections that it can hold: those of the configuration, or what the limit of open files allows.
    #[must_use]
    pub fn most_connections(&self) -> usize {
        self.shared.limits.connections
    }

    /// Waits for events as long as that; none if there are none.
    #[must_use]
    pub fn poll(&self, timeout: Duration) -> Vec<Event> {
        self.shared.queue.poll(timeout)
    }

    /// Hands over an answer. What it is about may be gone, which is no error.
    pub fn verdict(&self, verdict: Verdict) {
        let Some((number, request)) = self.parse(&verdict.id) else {
            return;
        };
        let order = Order::Verdict {
            number,
            request,
            revision: verdict.revision,
            verdict: translated(verdict),
        };
        self.order(number, order);
    }

    /// Everything that it has to do with managers of other networks from now on; said again it changes nothing.
    ///
    /// # Errors
    /// It is told that it takes part in no groups, or something that cannot be wanted.
    pub fn groups(&self, groups: Groups) -> Result<(), StartError> {
        let Some(peers) = &self.shared.peers else {
            let (what, why) = ("peer", "the configuration has none, so there can be no groups");
            return Err(StartError::Value { what, why });
        };
        peers::check(&groups)?;
        peers.order(peers::Order::Wanted(Box::new(groups)));
        Ok(())
    }

    /// Is anybody there who decides? Until somebody says so, nobody is, and nothing is held.
    pub fn control(&self, alive: bool) {
        if self.shared.control.swap(alive, Ordering::Relaxed) != alive {
            self.look();
        }
    }

    #[must_use]
    pub fn stats(&self) -> Stats {
        let counters: Vec<&Counters> = self.counters.iter().map(AsRef::as_ref).collect();
        let mut stats = counters::sum(&counters, self.shared.control.load(Ordering::Relaxed));
        stats.strangers = self.shared.strangers.stats();
        if let Some(peers) = &self.shared.peers {
            stats.peers = peers.counters.stats();
        }
        stats
    }

    /// Ends all connections (clients of MQTT 5 are told) and the threads. Events that were not polled can still be.
    pub fn stop(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(running) = running else {
            return;
        };
        self.shared.stopping.store(true, Ordering::Relaxed);
        // Nobody listens any more if the door is closed already.
        let _ = running.stop.send(true);
        if let Some(peers) = &self.shared.peers {
            peers.order(peers::Order::Stop);
        }
        for orders in running.orders {
            drop(orders.send(Order::Look));
        }
        for thread in running.threads {
            // A thread that panicked has nothing more to end.
            drop(thread.join());
        }
        self.shared.queue.close();
    }

    /// Numbers of connection and request in an id of this start of this manager.
    fn parse(&self, id: &str) -> Option<(u64, u32)> {
        self.shared.parse(id)
    }

    fn order(&self, number: u64, order: Order) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running.as_ref() {
            drop(running.orders[share(number, running.orders.len())].send(order));
        }
    }

    fn look(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for orders in running.iter().flat_map(|running| &running.orders) {
            drop(orders.send(Order::Look));
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The thread that serves a connection.
fn share(number: u64, threads: usize) -> usize {
    usize::try_from(number % threads as u64).unwrap_or(0)
}

fn translated(verdict: Verdict) -> protocol::Verdict {
    match verdict.outcome {
        Outcome::Granted => protocol::Verdict::Granted {
            class: Class(verdict.priority.min(7)),
            bound_ns: verdict.bound_ns,
            reason: verdict.reason,
            shared_with: verdict.shared_with,
        },
        Outcome::Refused => protocol::Verdict::Refused {
            reason: verdict.reason,
            offer_deadline_ns: verdict.offer.deadline_ns,
            offer_period_ns: verdict.offer.period_ns,
        },
        Outcome::Unavailable => protocol::Verdict::Unavailable {
            reason: verdict.reason,
        },
    }
}

impl Running {
    fn start(
        shared: &Arc<Shared>,
        counters: &[Arc<Counters>],
        listeners: Vec<std::net::TcpListener>,
        peering: Option<peers::Prepared>,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let mut running = Self {
            orders: Vec::new(),
            stop,
            threads: Vec::new(),
        };
        for (index, counters) in counters.iter().enumerate() {
            let (sender, orders) = unbounded_channel();
            running.orders.push(sender);
            let (shared, counters) = (Arc::clone(shared), Arc::clone(counters));
            let thread = std::thread::Builder::new().name(format!("manager-{index}"));
            running.threads.push(thread.spawn(move || {
                // Without a runtime its orders go nowhere, and its connections are closed.
                drop(worker::run(shared, counters, orders));
            })?);
        }
        if let Some(peering) = peering {
            let (shared, orders) = (Arc::clone(shared), running.orders.clone());
            let thread = std::thread::Builder::new().name("manager-peers".to_owned());
            // Without a runtime its orders go nowhere, and nothing comes from other networks.
            let thread = thread.spawn(move || drop(peers::run(peering, shared, orders)))?;
            running.threads.push(thread);
        }
        let door = Door {
            shared: Arc::clone(shared),
            counters: counters.to_vec(),
            orders: running.orders.clone(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new().name("manager-door".to_owned());
        running
            .threads
            .push(thread.spawn(move || runtime.block_on(door.open(listeners, stopped)))?);
        Ok(running)
    }
}

/// Accepts connections and shares them out.
struct Door {
    shared: Arc<Shared>,
    counters: Vec<Arc<Counters>>,
    orders: Vec<UnboundedSender<Order>>,
}

impl Door {
    async fn open(self, listeners: Vec<std::net::TcpListener>, mut stopped: watch::Receiver<bool>) {
        let door = Arc::new(self);
        let next = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for (place, listener) in listeners.into_iter().enumerate() {
            let (door, next) = (Arc::clone(&door), Arc::clone(&next));
            tasks.spawn(async move { door.accept(listener, place, &next).await });
        }
        tasks.spawn(crate::memory::give_back());
        // It ends when the manager is stopped, or gone.
        drop(stopped.wait_for(|stopped| *stopped).await);
        tasks.shutdown().await;
    }

    async fn accept(
        &self,
        listener: std::net::TcpListener,
        place: usize,
        next: &std::sync::atomic::AtomicU64,
    ) {
        let Ok(listener) = TcpListener::from_std(listener) else {
            return;
        };
        loop {
            match listener.accept().await {
                Ok((socket, client)) => self.admit(socket, client, place, next),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn admit(
        &self,
        socket: tokio::net::TcpStream,
        client: SocketAddr,
        place: usize,
        next: &std::sync::atomic::AtomicU64,
    ) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let at = share(number, self.orders.len());
        let open: u64 = self
            .counters
            .iter()
            .map(|counters| counters.connections.get())
            .sum();
        if open >= self.shared.limits.connections as u64 {
            self.counters[at].connections_refused.add(1);
            return;
        }
        let Some(stranger) = self.shared.strangers.enter(number, client.ip()) else {
            return;
        };
        let Ok(socket) = socket.into_std() else {
            return;
        };
        self.counters[at].connections.add(1);
        self.counters[at].connections_total.add(1);
        let order = Order::Serve {
            socket,
            client,
            place,
            number,
            stranger,
        };
        if self.orders[at].send(order).is_err() {
            self.counters[at].connections.subtract(1);
        }
    }
}

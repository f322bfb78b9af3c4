//! The thread that has everything to do with other networks: what comes in, when something is due, and who is told.

use super::datagrams::Sockets;
use super::greeting::{Link, Peer};
use super::inbox::{Inbox, Input};
use super::journal::Journal;
use super::receiving::{Broker, Incoming};
use super::sealing::Sealer;
use super::sending::{Dial, Sending};
use super::{Counters, Handle, Loss, Order, datagrams, links, relays};
use crate::contract::{Event, Groups, Peering, Receive};
use crate::start::{self, StartError};
use crate::tls::Mutual;
use crate::worker::{self, Shared};
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use timebound_model::{Span, Time};
use timebound_protocol::peer::control::{Arrived, Control};
use timebound_protocol::peer::receiver;
use timebound_protocol::peer::{PeerId, StreamId, sender};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, LocalSet};

/// Inputs that are taken together before anything else is done.
const MOST_AT_ONCE: usize = 1_024;
/// Without anything due: often enough for what is looked at now and then.
const IDLE: Span = Span(250_000_000);
/// Undelivered messages are told together.
const TELL: Span = Span(500_000_000);

/// What was bound and opened before any thread runs.
pub(crate) struct Prepared {
    said: Peering,
    listener: std::net::TcpListener,
    socket: std::net::UdpSocket,
    journal: Option<Journal>,
    secure: Option<Mutual>,
    sealer: Option<Sealer>,
    loss: Option<Loss>,
    orders: UnboundedReceiver<Order>,
    pub(crate) handle: Handle,
}

/// Binds and opens what is needed.
pub(crate) fn prepare(said: &Peering, loss: Option<Loss>) -> Result<Prepared, StartError> {
    let address = SocketAddr::from((said.address, said.port));
    let listener = start::listen_at(address)?;
    let socket = datagrams::bind(said).map_err(|source| StartError::Listen { address, source })?;
    let open = |path: &std::path::PathBuf| {
        Journal::open(path).map_err(|error| StartError::File {
            path: path.clone(),
            reason: error.to_string(),
        })
    };
    let journal = said.state.as_ref().map(open).transpose()?;
    let secure = said
        .tls
        .as_ref()
        .map(|tls| Mutual::new(tls, said.address.into()))
        .transpose()?;
    let sealer = secure.as_ref().map(|_| Sealer::new()).transpose();
    let sealer = sealer.map_err(|source| StartError::System {
        action: "draw a key",
        source,
    })?;
    let (sender, orders) = unbounded_channel();
    Ok(Prepared {
        said: said.clone(),
        listener,
        socket,
        journal,
        secure,
        sealer,
        loss,
        orders,
        handle: Handle {
            orders: sender,
            relays: said.relay,
            counters: Arc::default(),
        },
    })
}

/// Serves until it is told to stop.
pub(crate) fn run(
    prepared: Prepared,
    shared: Arc<Shared>,
    workers: Vec<UnboundedSender<worker::Order>>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let (inputs, mut inbox) = unbounded_channel();
        let tasks = Inbox::new(inputs);
        let listener = tokio::net::TcpListener::from_std(prepared.listener)?;
        tokio::task::spawn_local(links::accept(tasks.clone(), listener, prepared.secure.clone()));
        let sockets = Sockets::new(prepared.socket)?;
        sockets.receive(tasks.clone(), prepared.loss.clone());
        let (mut orders, forward) = (prepared.orders, tasks.clone());
        tokio::task::spawn_local(async move {
            while let Some(order) = orders.recv().await {
                forward.put(Input::Order(order));
            }
        });
        let mut hub = Hub {
            life: RandomState::new().build_hasher().finish() ^ shared.start,
            said: Arc::new(prepared.said),
            shared,
            workers,
            counters: prepared.handle.counters,
            began: Instant::now(),
            inbox: tasks,
            sockets,
            sealer: prepared.sealer,
            secure: prepared.secure,
            loss: prepared.loss,
            journal: prepared.journal,
            ids: BTreeMap::new(),
            peers: BTreeMap::new(),
            links: BTreeMap::new(),
            dials: BTreeMap::new(),
            sends: BTreeMap::new(),
            streams: BTreeMap::new(),
            last_number: 0,
            unreleased: BTreeMap::new(),
            interests: relays::Told::default(),
            receives: Vec::new(),
            incoming: BTreeMap::new(),
            joined: BTreeMap::new(),
            brokers: BTreeMap::new(),
            reports: BTreeMap::new(),
            undelivered: BTreeMap::new(),
            tell_at: None,
            members_changed: false,
            troubles: BTreeMap::new(),
        };
        hub.remember();
        hub.serve(&mut inbox).await;
        Ok(())
    })
}

pub(super) struct Hub {
    pub(super) life: u64,
    pub(super) said: Arc<Peering>,
    pub(super) shared: Arc<Shared>,
    pub(super) workers: Vec<UnboundedSender<worker::Order>>,
    pub(super) counters: Arc<Counters>,
    began: Instant,
    pub(super) inbox: Inbox,
    pub(super) sockets: Sockets,
    /// With TLS between managers.
    pub(super) sealer: Option<Sealer>,
    pub(super) secure: Option<Mutual>,
    pub(super) loss: Option<Loss>,
    pub(super) journal: Option<Journal>,
    pub(super) ids: BTreeMap<String, PeerId>,
    pub(super) peers: BTreeMap<PeerId, Peer>,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) dials: BTreeMap<(PeerId, u8), Dial>,
    /// Groups by number.
    pub(super) sends: BTreeMap<u32, Sending>,
    /// Group and reliability of each stream that is sent.
    pub(super) streams: BTreeMap<u32, (u32, bool)>,
    pub(super) last_number: u32,
    /// QoS 2 messages of this life that were sent and not released: streams, and where they end there.
    pub(super) unreleased: BTreeMap<u64, Vec<(StreamId, u64)>>,
    /// What clients of this manager are subscribed to.
    pub(super) interests: relays::Told,
    pub(super) receives: Vec<Receive>,
    pub(super) incoming: BTreeMap<StreamId, Incoming>,
    /// Groups that are joined, with who reads their sockets.
    pub(super) joined: BTreeMap<Ipv4Addr, AbortHandle>,
    pub(super) brokers: BTreeMap<u8, Broker>,
    /// What senders are to be told at the end of a turn: the last report of a stream says all.
    pub(super) reports: BTreeMap<StreamId, Arrived>,
    /// By group, member and reason.
    pub(super) undelivered: BTreeMap<(String, String, String), u64>,
    tell_at: Option<Time>,
    /// May somebody have joined a group or been lost since groups were told?
    pub(super) members_changed: bool,
    /// What was said last about a peer or the broker that does not work.
    troubles: BTreeMap<String, String>,
}

impl Hub {
    pub(super) fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    async fn serve(&mut self, inbox: &mut UnboundedReceiver<Input>) {
        loop {
            let due = self.due();
            let wait = Duration::from_nanos(due.since(self.now()).0);
            if let Ok(input) = tokio::time::timeout(wait, inbox.recv()).await {
                let mut next = input;
                for _ in 0..MOST_AT_ONCE {
                    match next {
                        Some(Input::Order(Order::Stop)) | None => return,
                        Some(input) => self.take(input),
                    }
                    match inbox.try_recv() {
                        Ok(input) => next = Some(input),
                        Err(_) => break,
                    }
                }
            }
            self.turn();
        }
    }

    fn due(&self) -> Time {
        let now = self.now();
        let sends = self.sends.values().filter_map(|sending| sending.due(now));
        let tell = self.tell_at.into_iter().chain(self.interests.due());
        sends
            .chain(tell)
            .min()
            .unwrap_or(now.after(IDLE))
            .min(now.after(IDLE))
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Order(Order::Wanted(groups)) => self.wanted(*groups),
            Input::Order(Order::Outgoing { connection, outgoing }) => self.outgoing(connection, outgoing),
            Input::Order(Order::Closed { connection }) => {
                let now = self.now();
                self.interests.of.closed(now, connection);
            }
            Input::Order(Order::Stop) => {}
            Input::Datagram { from, mut bytes } => self.datagram(from, &mut bytes),
            Input::Opened {
                link,
                out,
                marker,
                address,
                dialed,
            } => {
                // Strangers are not told who is here. One that the table has yet to name calls again.
                if dialed.is_none() && self.name_at(address).is_none() {
                    return self.counters.foreign.add(1);
                }
                out.send(self.hello(dialed.is_some()));
                let opened = Link {
                    out,
                    marker,
                    address,
                    dialed,
                    peer: None,
                };
                self.links.insert(link, opened);
            }
            Input::Control { link, control } => self.control(link, control),
            Input::Closed { link } => self.closed(link),
            Input::Unreachable { peer, why } => {
                let name = self.name_of(peer);
                self.trouble(&name, why);
            }
            Input::Refused { address, why } => self.refused(address, &why),
            Input::BrokerOpened { class, out } => self.broker_opened(class, out),
            Input::BrokerBytes { class, bytes } => self.broker_bytes(class, &bytes),
            Input::BrokerClosed { class } => self.broker_closed(class, None),
            Input::BrokerTrouble { why } => self.trouble("broker", why),
        }
    }

    /// What is due, and what has come up since the last turn.
    fn turn(&mut self) {
        let now = self.now();
        self.look_at_sends(now);
        self.look_at_receives(now);
        self.flush_brokers(now);
        self.look_at_interests(now);
        for (stream, report) in std::mem::take(&mut self.reports) {
            let link = self.incoming.get(&stream).map(|incoming| incoming.link);
            if let Some(link) = link {
                self.tell_link(link, &Control::Arrived(report));
            }
        }
        if std::mem::take(&mut self.members_changed) {
            self.tell_groups();
        }
        if !self.undelivered.is_empty() {
            let at = *self.tell_at.get_or_insert(now.after(TELL));
            if now >= at {
                self.tell_undelivered();
            }
        }
        self.count();
    }

    fn tell_undelivered(&mut self) {
        self.tell_at = None;
        for ((group, member, reason), messages) in std::mem::take(&mut self.undelivered) {
            self.event(Event::Undelivered {
                group,
                member,
                messages,
                reason,
            });
        }
    }

    fn count(&self) {
        let counts = self.peers.values().map(|peer| peer.receiver.counts());
        let mut sum = receiver::Counts::default();
        for one in counts {
            sum.repeated += one.repeated;
            sum.missed += one.missed;
            sum.known += one.known;
        }
        self.counters.datagrams_repeated.set(sum.repeated);
        self.counters.datagrams_missed.set(sum.missed);
        self.counters.repeated.set(sum.known);
        let up = self.dials.values().filter(|dial| dial.link.is_some()).count();
        self.counters.connections.set(up as u64);
        let waiting: usize = self.sends.values().map(Sending::waiting).sum();
        self.counters.waiting.set(waiting as u64);
    }

    pub(super) fn event(&self, event: Event) {
        // Nobody polls: what is counted tells it as well.
        self.shared.queue.push(event);
    }

    /// Something between us and another does not work: told once, until it is something else.
    pub(super) fn trouble(&mut self, about: &str, problem: String) {
        if self.troubles.get(about).map_or("", String::as_str) == problem {
            return;
        }
        self.troubles.insert(about.to_owned(), problem.clone());
        let about = about.to_owned();
        self.event(Event::Peering { about, problem });
    }

    pub(super) fn sender_limits(&self) -> sender::Limits {
        let (limits, silence) = (sender::Limits::default(), Span::from_millis(self.said.silence_ms));
        sender::Limits {
            join: Span::from_millis(self.said.join_ms),
            silence,
            // Nobody is to be lost because what it lacks lets everything else pass.
            patience: limits.patience.min(Span(silence.0 / 4)),
            ..limits
        }
    }

    fn wanted(&mut self, groups: Groups) {
        let mut known = BTreeSet::new();
        for said in groups.peers {
            let id = self.peer_id(&said.name);
            known.insert(id);
            let address = Some((said.address, said.port));
            let moved = self
                .peers
                .get_mut(&id)
                .is_some_and(|peer| std::mem::replace(&mut peer.address, address) != address);
            if moved {
                self.disconnect(id);
            }
        }
        let gone: Vec<PeerId> = self
            .peers
            .keys()
            .copied()
            .filter(|id| !known.contains(id))
            .collect();
        for id in gone {
            if let Some(peer) = self.peers.get_mut(&id)
                && peer.address.take().is_some()
            {
                self.disconnect(id);
            }
        }
        self.wanted_sends(groups.sends);
        self.wanted_receives(groups.receives);
        self.lose_strangers();
    }

    /// Who is known no more and has yet to leave something cannot be reached.
    fn lose_strangers(&mut self) {
        let places: Vec<(u32, usize)> = self
            .sends
            .keys()
            .flat_map(|group| [(*group, 0), (*group, 1)])
            .collect();
        for (group, which) in places {
            let mut effects = Vec::new();
            if let Some(sending) = self.sends.get_mut(&group) {
                let sender = &mut sending.streams[which].sender;
                let gone: Vec<PeerId> = sender
                    .peers()
                    .filter(|peer| self.peers.get(peer).is_none_or(|peer| peer.address.is_none()))
                    .filter(|peer| !sending.members.contains(peer))
                    .collect();
                gone.into_iter().for_each(|peer| sender.lost(peer, &mut effects));
            }
            self.apply(group, which, effects);
        }
        self.look_at_closing();
    }
}

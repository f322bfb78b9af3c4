//! What passes between the manager and the service around it, as JSON: configuration in, events out, verdicts in, counters out.
//!
//! One value per line of text, keys as the fields are named here. Fields that `python/timebound/control/srt/rows.py` has are its fields.
//!
//! Events are tagged by `kind`:
//!
//! ```json
//! {"kind": "request", "id": "m1-18c2f0a1b2c3d4e5-7.1", "revision": 1, "connection": {"id": "m1-18c2f0a1b2c3d4e5-7", "manager": "m1",
//!  "client_id": "press", "user": null, "client_address": "10.0.0.1", "client_port": 40000, "manager_address": "10.0.0.5",
//!  "manager_port": 1883, "broker_leg": null, "opened_ns": 1700000000000000000, "certificate": null, "mqtt": 5},
//!  "side": "publish", "topic": "plant/alarm", "requirements": {"deadline_ns": 20000000, "period_ns": null, "jitter_ns": null,
//!  "size_bytes": 200, "transmission_ns": null, "priority": null, "bandwidth_bps": null, "qos": 1, "strict": false}}
//! {"kind": "withdrawn", "id": "m1-18c2f0a1b2c3d4e5-7.1"}
//! {"kind": "closed", "connection": "m1-18c2f0a1b2c3d4e5-7"}
//! {"kind": "problems", "connection": "m1-18c2f0a1b2c3d4e5-7", "client_id": "press", "client_address": "10.0.0.1", "user": null, "problems": ["rt-qos '3': use 0, 1 or 2"]}
//! {"kind": "offence", "client_id": "press", "client_address": "10.0.0.1", "user": null, "reason": "packet too large"}
//! {"kind": "group", "id": "g1", "state": "waiting", "missing": ["m3"], "lost": ["m2"]}
//! {"kind": "undelivered", "group": "g1", "member": "m2", "messages": 3, "reason": "the member is lost"}
//! {"kind": "interests", "filters": ["plant/+", "hall/1"]}
//! {"kind": "peering", "about": "m2", "problem": "10.0.2.5:1884: connection refused"}
//! ```
//!
//! A request that changes comes again with the same id and the next revision. `withdrawn` comes for each request that is no more, also when its
//! connection ends; `closed` comes last, once, and only for connections that asked for something. A verdict may be given again for
//! the same revision (a channel broke, a better one was found): the last one counts. Verdicts about what is no more are passed over.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU64;
use std::path::PathBuf;

/// What a manager is told when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The site's name of this manager; ids of connections and requests begin with it.
    pub name: String,
    /// At least one.
    pub listeners: Vec<Listener>,
    pub broker: Broker,
    /// Milliseconds for which a packet waits for its verdict at most; 0 to 5,000. Keep it well below the clients' keep-alive.
    #[serde(default = "hold_ms")]
    pub hold_ms: u64,
    #[serde(default)]
    pub limits: Limits,
    /// Threads that serve connections; 0: one for each core, at most 4.
    #[serde(default)]
    pub threads: usize,
    /// Edge network in which it stands; managers of the same one exchange nothing.
    #[serde(default)]
    pub network: String,
    /// How managers of other networks reach it; `null`: it takes part in no groups.
    #[serde(default)]
    pub peer: Option<Peering>,
}

/// Messages to and from managers of other edge networks (`timebound_protocol::peer`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peering {
    /// TCP is accepted and UDP is received and sent here; connections to peers come from it.
    pub address: Ipv4Addr,
    /// The same number for TCP and UDP, and for all managers of a site.
    pub port: u16,
    /// Of the interface on which groups are joined and sent to; that of `address` where it is absent.
    #[serde(default, alias = "interface-address")]
    pub interface_address: Option<Ipv4Addr>,
    /// Hops that datagrams to groups may make.
    #[serde(default = "ttl")]
    pub ttl: u8,
    /// File for what has to outlive the process: which QoS 2 messages the broker has been given.
    #[serde(default)]
    pub state: Option<PathBuf>,
    /// Of the manager's own clients at the broker, `timebound/NAME/CLASS`.
    #[serde(default)]
    pub user: Option<String>,
    #[serde(default)]
    pub password: Option<String>,
    /// Milliseconds for which the first data of a group waits for its members.
    #[serde(default = "join_ms")]
    pub join_ms: u64,
    /// Does it pass on to other networks as best effort what no group carries, and say what is wanted in its own?
    #[serde(default = "relay")]
    pub relay: bool,
    /// Milliseconds after which a member that should acknowledge something and does not is lost.
    #[serde(default = "silence_ms")]
    pub silence_ms: u64,
    /// Connections with peers are TLS, and datagrams are sealed. All managers of a site have it, or none.
    #[serde(default)]
    pub tls: Option<PeerTls>,
}

/// TLS between managers. Each has a certificate for its peer address, as an address (subjectAltName, RFC 5280, section 4.2.1.6), of an authority that certifies
/// managers alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerTls {
    /// PEM, chain of this manager's certificate.
    pub certificate: PathBuf,
    /// PEM, its private key.
    pub key: PathBuf,
    /// PEM, the authority of all managers.
    pub authority: PathBuf,
}

const fn relay() -> bool {
    true
}
const fn ttl() -> u8 {
    8
}
const fn join_ms() -> u64 {
    2_000
}
const fn silence_ms() -> u64 {
    10_000
}

/// All that a manager has to do with others, whenever that changes (`Manager.groups`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Groups {
    #[serde(default)]
    pub peers: Vec<Peer>,
    #[serde(default)]
    pub sends: Vec<Send>,
    #[serde(default)]
    pub receives: Vec<Receive>,
}

/// The manager of another network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    pub name: String,
    pub address: Ipv4Addr,
    pub port: u16,
}

/// A group to which this manager sends (`rows.GroupRow`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    pub id: String,
    /// Topic name or filter.
    pub topic: String,
    /// 0 to 7.
    pub priority: u8,
    pub address: Ipv4Addr,
    /// Names of managers.
    pub members: Vec<String>,
    /// Of the publisher for whom it was made: what that one publishes goes to this group even where another has its topic, too.
    #[serde(default)]
    pub request: Option<String>,
    /// What is reserved for it; `None`: not known, and nothing is paced.
    #[serde(default)]
    pub reservation: Option<Reservation>,
    /// It is no group but a relay: `address` is that of its only member, and it takes what matches these filters and no group carries there.
    #[serde(default)]
    pub interests: Option<Vec<String>>,
}

/// What the meter of a group's first switch lets pass (`rows.GroupRow`), counted on the wire: frames with preamble, check sequence and gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// Bit/s.
    pub rate_bps: NonZeroU64,
    /// Bytes, at least one full frame (1,538).
    pub burst_bytes: u64,
}

/// A group from which this manager receives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    pub id: String,
    /// The manager that sends.
    pub origin: String,
    pub topic: String,
    /// 0 to 7.
    pub priority: u8,
    pub address: Ipv4Addr,
    /// It is no group but a relay: `address` is this manager's own.
    #[serde(default)]
    pub relay: bool,
}

const fn hold_ms() -> u64 {
    500
}

/// How clients reach a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Tcp,
    Tls,
    /// MQTT over WebSocket (MQTT 5.0, section 6), subprotocol `mqtt`.
    Ws,
    /// The same over TLS.
    Wss,
}

impl Kind {
    /// Does it need a certificate?
    #[must_use]
    pub const fn is_secure(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }
}

/// Where clients are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    pub address: IpAddr,
    /// 0: the kernel chooses (`Manager.addresses()` says which).
    pub port: u16,
    pub kind: Kind,
    /// PEM, chain of the site's certificate; `tls` and `wss` need it.
    #[serde(default)]
    pub certificate: Option<PathBuf>,
    /// PEM, its private key.
    #[serde(default)]
    pub key: Option<PathBuf>,
    /// PEM: clients that show a certificate must have one of these authorities.
    #[serde(default)]
    pub client_authority: Option<PathBuf>,
    /// Clients must show a certificate, and its common name replaces the user name in their CONNECT.
    #[serde(default)]
    pub certificate_as_user: bool,
}

/// The broker behind the manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Broker {
    /// An address or a name.
    pub address: String,
    pub port: u16,
    #[serde(default)]
    pub tls: Option<BrokerTls>,
}

/// TLS towards the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerTls {
    /// PEM: authorities that the broker's certificate may have.
    pub authority: PathBuf,
    /// The name that its certificate must have; `broker.address` if absent.
    #[serde(default)]
    pub server_name: Option<String>,
}

/// What one client may cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections at a time; more are closed at once.
    pub connections: usize,
    /// Bytes that connections hold which the broker has not accepted yet, all together.
    pub strangers_bytes: usize,
    /// Connections of one address (of one network of 64 bits, of IPv6) at a time that the broker has not accepted yet; more are closed at once.
    pub strangers_per_address: usize,
    /// Bytes of a packet without the payload of a PUBLISH; of a CONNECT, of its properties.
    pub header_bytes: usize,
    /// Bytes of a whole packet.
    pub packet_bytes: usize,
    /// Bytes of a WebSocket message.
    pub websocket_bytes: usize,
    /// Requests of a connection at a time.
    pub requests: usize,
    /// New or changed requests of a connection per second, twice as many at once.
    pub requests_per_second: u32,
    /// Bytes of topic names for which a connection has aliases.
    pub alias_bytes: usize,
    /// Milliseconds from a connection's first byte to its CONNECT, handshakes of TLS and WebSocket included.
    pub handshake_ms: u64,
    /// Milliseconds until the broker must have accepted a connection.
    pub connect_ms: u64,
    /// Events that nobody polled; beyond, requests are answered `unavailable` by the manager itself.
    pub events: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            strangers_bytes: 64 * 1024 * 1024,
            strangers_per_address: 1_000,
            header_bytes: 256 * 1024,
            packet_bytes: 268_435_460,
            websocket_bytes: 4 * 1024 * 1024,
            requests: 256,
            requests_per_second: 100,
            alias_bytes: 1024 * 1024,
            handshake_ms: 10_000,
            connect_ms: 3_000,
            events: 65_536,
        }
    }
}

/// What the manager tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Event {
    /// A client asks for something new, or for something else than before (`revision` counts up).
    Request {
        id: String,
        revision: u32,
        connection: Box<Connection>,
        side: Side,
        /// A topic name (publisher), or a filter without `$share/GROUP/` (subscriber).
        topic: String,
        requirements: Requirements,
    },
    /// A request is no more.
    Withdrawn { id: String },
    /// A connection that asked for something has ended.
    Closed { connection: String },
    /// A client sent attributes that cannot be read.
    Problems {
        connection: String,
        client_id: String,
        client_address: IpAddr,
        user: Option<String>,
        problems: Vec<String>,
    },
    /// A client was disconnected for what it did.
    Offence {
        client_id: String,
        client_address: IpAddr,
        user: Option<String>,
        reason: String,
    },
    /// A handshake of TLS or WebSocket failed. Not every one is told: `Stats::handshake_failures` counts them.
    Handshake {
        client_address: IpAddr,
        client_port: u16,
        reason: String,
    },
    /// A group to which this manager sends, when this changes.
    Group {
        id: String,
        state: GroupState,
        /// Members that were asked to join and have not yet.
        missing: Vec<String>,
        /// Members that nothing is sent to, because they do not answer.
        lost: Vec<String>,
    },
    /// Messages with QoS 1 or 2 that a member's broker did not get, or (`member` is this manager) did not want.
    Undelivered {
        group: String,
        member: String,
        messages: u64,
        reason: String,
    },
    /// What clients of this manager are subscribed to, when this changes: as few filters as match all of it.
    Interests { filters: Vec<String> },
    /// Something between this manager and another, or its broker, does not work; or does again (`problem` is empty).
    Peering { about: String, problem: String },
}

/// May messages be sent to a group?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupState {
    Open,
    /// Data waits for members to join.
    Waiting,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Publish,
    Subscribe,
}

/// A connection of a client (`rows.ConnectionRow`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Connection {
    pub id: String,
    pub manager: String,
    /// The one that the broker assigned where the client left it empty, once that is known.
    pub client_id: String,
    /// As the client sent it, or the certificate's common name where that replaces it.
    pub user: Option<String>,
    pub client_address: IpAddr,
    pub client_port: u16,
    pub manager_address: IpAddr,
    pub manager_port: u16,
    /// Local address and port, broker's address and port; `null` where both are on one host.
    pub broker_leg: Option<(IpAddr, u16, IpAddr, u16)>,
    /// Wall clock, ns since 1970.
    pub opened_ns: u64,
    /// Common name of the client's certificate.
    pub certificate: Option<String>,
    /// 5: attributes are of MQTT 5 alone.
    pub mqtt: u8,
}

/// What is asked for (`rows.Requirements`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Requirements {
    pub deadline_ns: Option<u64>,
    pub period_ns: Option<u64>,
    pub jitter_ns: Option<u64>,
    /// Of the message that carried the request where the client does not say.
    pub size_bytes: Option<u64>,
    pub transmission_ns: Option<u64>,
    pub priority: Option<u8>,
    pub bandwidth_bps: Option<(u64, u64)>,
    /// Of the message or subscription where the client does not say.
    pub qos: Option<u8>,
    pub strict: bool,
}

/// The answer to one revision of a request (`rows.VerdictRow`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Verdict {
    pub id: String,
    pub revision: u32,
    pub outcome: Outcome,
    #[serde(default)]
    pub reason: String,
    /// Class of the connection from now on, 0 to 7.
    #[serde(default)]
    pub priority: u8,
    #[serde(default)]
    pub bound_ns: Option<u64>,
    #[serde(default)]
    pub shared_with: Vec<String>,
    #[serde(default)]
    pub offer: Offer,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Granted,
    Refused,
    Unavailable,
}

/// What would be admitted in place of what was refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Offer {
    #[serde(default)]
    pub deadline_ns: Option<u64>,
    #[serde(default)]
    pub period_ns: Option<u64>,
}

/// Two figures, one for each direction: from clients to the broker, and back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Both {
    pub up: u64,
    pub down: u64,
}

/// Upper ends of the histogram's classes of hold times, ms; a last class has all that were longer.
pub const HOLD_CLASSES_MS: [u64; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/// Packets that were held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Holds {
    /// Gauge.
    pub now: u64,
    /// Ended by a verdict.
    pub verdict: u64,
    /// Ended because none came in time.
    pub timeout: u64,
    /// Ended because control was lost, or the request could not be told.
    pub unavailable: u64,
    /// `HOLD_CLASSES_MS`.
    pub classes_ms: Vec<u64>,
    /// Holds in each class (not cumulative), one more than `classes_ms`.
    pub counts: Vec<u64>,
    /// All hold times together.
    pub total_ns: u64,
}

/// Packets answered with Quota exceeded instead of being forwarded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Refusals {
    pub connect: u64,
    /// QoS 1 and 2.
    pub publish: u64,
    /// QoS 0: dropped, because nothing can be answered.
    pub dropped: u64,
    pub subscribe: u64,
}

/// Verdicts that came for a request that is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Verdicts {
    pub granted: u64,
    pub refused: u64,
    pub unavailable: u64,
}

/// Clients that were disconnected, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Offences {
    /// 0x81.
    pub malformed: u64,
    /// 0x95.
    pub too_large: u64,
    /// 0x97.
    pub quota: u64,
    /// 0x96.
    pub rate: u64,
}

/// Connections that the broker has not accepted yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Strangers {
    /// Gauge.
    pub now: u64,
    /// Gauge: bytes that they hold.
    pub bytes: u64,
    /// Closed at once: more than `limits.strangers_per_address`.
    pub refused: u64,
    /// Closed because all together held more than `limits.strangers_bytes`, and they the most.
    pub crowded_out: u64,
    /// Of the last one that was refused or crowded out.
    pub last: Option<IpAddr>,
}

/// Connections that were failed for what the client did against the standard (RFC 6455, section 7.4.1), by the status code of the Close frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WebSocketViolations {
    /// 1002.
    pub protocol: u64,
    /// 1003.
    pub text: u64,
    /// 1009.
    pub too_large: u64,
}

/// Messages to and from other networks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Peers {
    /// Gauge: connections to managers that are members of groups.
    pub connections: u64,
    /// Messages sent to groups.
    pub sent: u64,
    /// Messages sent to one other manager as best effort, by its name.
    pub relayed: BTreeMap<String, u64>,
    /// Datagrams sent again to one member.
    pub datagrams_again: u64,
    /// Messages with QoS 1 or 2, once for each member that is lost and did not take it.
    pub undelivered: u64,
    /// Times that a member was lost.
    pub members_lost: u64,
    /// Gauge: messages that wait for room in their group, or for members to join.
    pub waiting: u64,
    /// Messages that came from groups.
    pub received: u64,
    /// Of these, messages that the broker has.
    pub injected: u64,
    /// Of these, messages that the broker did not want.
    pub refused: u64,
    /// Of these, messages with QoS 0 that the broker could not take.
    pub dropped: u64,
    /// QoS 2 messages that came again, and had been delivered.
    pub repeated: u64,
    /// Datagrams that had come before.
    pub datagrams_repeated: u64,
    /// Datagrams of QoS 0 that never came, or too late.
    pub datagrams_missed: u64,
    /// Datagrams and connections of strangers, or of streams that nobody here takes part in.
    pub foreign: u64,
}

/// Counters since the start, unless they are called gauges.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Gauge: connections of clients.
    pub connections: u64,
    pub connections_total: u64,
    /// Closed at once: more than `limits.connections`.
    pub connections_refused: u64,
    pub strangers: Strangers,
    pub bytes: Both,
    pub packets: Both,
    pub holds: Holds,
    /// New or changed requests.
    pub requests: u64,
    /// Gauge: requests that are there.
    pub requests_now: u64,
    pub verdicts: Verdicts,
    pub refusals: Refusals,
    pub offences: Offences,
    pub websocket_violations: WebSocketViolations,
    /// The broker did not accept a connection, or broke one off.
    pub broker_failures: u64,
    /// Handshakes of TLS or WebSocket that failed.
    pub handshake_failures: u64,
    /// No CONNECT in time.
    pub handshake_timeouts: u64,
    /// Events that were not told because nobody polled.
    pub events_lost: u64,
    /// Gauge: what `control()` said last.
    pub control: bool,
    pub peers: Peers,
}

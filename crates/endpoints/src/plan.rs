//! The plan of one run's traffic endpoints, as JSON: what Python writes and `run` reads.
//!
//! All times are nanoseconds, all sizes bytes of payload (what the application hands to its protocol), all addresses
//! IPv4. Names of nodes are resolved by the caller's `NamespaceProvider`, nothing else interprets them.
//!
//! **Time.** `t = 0` of every release is the *start* that the caller gives through `Control::start_at`. Sources
//! release while `t < warmup_ns + duration_ns`; receivers stay open `settle_ns` longer. Recorded times count from the
//! epoch of `RunClock`, so a caller that puts the epoch at the end of the warm-up and starts at `-warmup_ns` gets the
//! times of docs/results.md.

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Everything that sends or receives in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointPlan {
    /// MQTT clients; one TCP connection each.
    #[serde(default)]
    pub clients: Vec<MqttClient>,
    /// Measured UDP senders.
    #[serde(default)]
    pub udp: Vec<UdpFlow>,
    /// Receivers of measured UDP messages.
    #[serde(default)]
    pub udp_receivers: Vec<UdpReceiver>,
    /// Traffic that only loads the network; both ends are opened here.
    #[serde(default)]
    pub background: Vec<Background>,
    /// Length of the measured part.
    pub duration_ns: u64,
    /// Length of the part before it; sources already send.
    #[serde(default)]
    pub warmup_ns: u64,
    /// How long receivers wait for what is still under way after the last release. Ends early once every publisher has its
    /// acknowledgements and every receiver has had everything that was sent to its flow.
    #[serde(default = "defaults::settle")]
    pub settle_ns: u64,
    /// Least time between the starts of two connections (a start-up storm would fill queues before the run).
    #[serde(default = "defaults::connect_gap")]
    pub connect_gap_ns: u64,
    /// How long a connection may take from SYN to CONNACK (and SUBACK) before the run fails. A refused connection is tried
    /// again within this time: the broker may still be starting.
    #[serde(default = "defaults::connect_timeout")]
    pub connect_timeout_ns: u64,
    /// A connection that breaks during the run is opened again after this time; without it, the run ends with an error.
    #[serde(default)]
    pub reconnect_after_ns: Option<u64>,
    /// The last part before a release is waited for actively, since a sleeping thread wakes late. 0: never spin.
    #[serde(default = "defaults::spin")]
    pub spin_ns: u64,
    /// Timeouts and keep-alive are looked at this often; a process that mostly sleeps wakes for it.
    #[serde(default = "defaults::housekeeping")]
    pub housekeeping_ns: u64,
    /// SCHED_FIFO priority of the traffic thread, tried and reported; keep it below that of the fabric thread.
    #[serde(default)]
    pub fifo_priority: Option<u8>,
}

/// One MQTT client: one connection from a fixed local port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MqttClient {
    /// How errors and the summary call it, as `alpha/h1`.
    pub name: String,
    /// In whose network namespace the socket is opened.
    pub node: String,
    /// MQTT client identifier; unique per broker.
    pub client_id: String,
    /// 4 (MQTT 3.1.1) or 5.
    #[serde(default)]
    pub protocol: Protocol,
    /// Address of the broker.
    pub broker: Ipv4Addr,
    /// Port of the broker.
    #[serde(default = "defaults::mqtt_port")]
    pub port: u16,
    /// Local address; any where absent.
    #[serde(default)]
    pub local_address: Option<Ipv4Addr>,
    /// Local port; 0 lets the kernel choose (the 5-tuple is then not known before the start).
    #[serde(default)]
    pub local_port: u16,
    /// DSCP (0..=63) of every packet of this side of the connection.
    #[serde(default)]
    pub dscp: u8,
    /// MQTT keep-alive; 0 turns it off. A PINGREQ is sent when nothing was sent for this long.
    #[serde(default = "defaults::keep_alive")]
    pub keep_alive_s: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// User properties of CONNECT, in order (MQTT 5 alone).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user_properties: Vec<(String, String)>,
    /// When it connects, after the start; before the start where absent. Its messages wait until it is through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_at_ns: Option<u64>,
    /// How long after the others' it begins to connect, before the start; by its place in the plan where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_delay_ns: Option<u64>,
    pub role: MqttRole,
}

/// Protocol level as it stands in CONNECT. In JSON the number 4 or 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Protocol {
    /// MQTT 3.1.1.
    V4,
    #[default]
    V5,
}

impl TryFrom<u8> for Protocol {
    type Error = String;
    fn try_from(level: u8) -> Result<Self, String> {
        match level {
            4 => Ok(Self::V4),
            5 => Ok(Self::V5),
            other => Err(format!(
                "protocol level {other} does not exist: 4 (MQTT 3.1.1) or 5"
            )),
        }
    }
}

impl From<Protocol> for u8 {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::V4 => 4,
            Protocol::V5 => 5,
        }
    }
}

/// MQTT quality of service. In JSON the number 0, 1 or 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Qos {
    #[default]
    AtMostOnce,
    AtLeastOnce,
    ExactlyOnce,
}

impl TryFrom<u8> for Qos {
    type Error = String;
    fn try_from(level: u8) -> Result<Self, String> {
        match level {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            other => Err(format!("quality of service {other} does not exist: 0, 1 or 2")),
        }
    }
}

impl From<Qos> for u8 {
    fn from(qos: Qos) -> Self {
        match qos {
            Qos::AtMostOnce => 0,
            Qos::AtLeastOnce => 1,
            Qos::ExactlyOnce => 2,
        }
    }
}

/// What a client does with its connection: `{"kind": "publish", ...}`, `{"kind": "subscribe", ...}` or
/// `{"kind": "both", "publish": {...}, "subscribe": {...}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum MqttRole {
    Publish(Publication),
    Subscribe(Subscription),
    Both {
        publish: Publication,
        subscribe: Subscription,
    },
}

/// What a client publishes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publication {
    pub topic: String,
    #[serde(default)]
    pub qos: Qos,
    /// Number of the flow; stands in the payload and in the records.
    pub flow: u32,
    /// Size of the payload, from 0; below the 24 bytes of the measurement header it has what fits of the sequence number.
    pub payload_bytes: u32,
    /// What stands behind the measurement header, cut or filled up to the payload's size; fill bytes where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    pub release: Release,
}

/// What a client subscribes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscription {
    /// Topic filter.
    pub filter: String,
    #[serde(default)]
    pub qos: Qos,
    /// The flow that is expected here; another one is recorded under its own number and counted as unexpected.
    pub flow: u32,
    /// Further flows that are expected here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_flows: Vec<u32>,
    /// Those of them whose payload has no room for a header, by topic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short: Vec<ShortFlow>,
    /// Number of the receiver; stands in the records.
    pub receiver: u32,
    /// User properties of SUBSCRIBE, in order (MQTT 5 alone).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user_properties: Vec<(String, String)>,
}

/// Messages of one size, below that of the measurement header, on one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShortFlow {
    pub flow: u32,
    pub topic: String,
    pub payload_bytes: u32,
    /// They come from a program that is not ours: of any size, without a number, in order.
    #[serde(default)]
    pub own: bool,
}

impl MqttRole {
    /// What it publishes, if it does.
    #[must_use]
    pub fn publication(&self) -> Option<&Publication> {
        match self {
            Self::Publish(publish) | Self::Both { publish, .. } => Some(publish),
            Self::Subscribe(_) => None,
        }
    }

    /// What it subscribes to, if it does.
    #[must_use]
    pub fn subscription(&self) -> Option<&Subscription> {
        match self {
            Self::Subscribe(subscribe) | Self::Both { subscribe, .. } => Some(subscribe),
            Self::Publish(_) => None,
        }
    }
}

/// When messages are released: at `nominal + uniform [0, jitter_ns]`, the nominal times by `pattern`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// First nominal release after the start (added to every time of a trace).
    #[serde(default)]
    pub offset_ns: u64,
    /// Release jitter; each message is late by a uniform share of it (clock ticks of 1 ns).
    #[serde(default)]
    pub jitter_ns: u64,
    pub pattern: Pattern,
    /// Seed of the stream of draws; the same seed gives the same times.
    #[serde(default)]
    pub seed: u64,
}

/// Nominal release times: `{"kind": "periodic", "period_ns": ...}` and so on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Pattern {
    Periodic {
        period_ns: u64,
    },
    /// Gaps of `period_ns` plus an exponential extra.
    Sporadic {
        period_ns: u64,
        mean_extra_ns: u64,
    },
    /// Exponential gaps.
    Poisson {
        mean_gap_ns: u64,
    },
    /// `burst` messages at once, as many again a period apart, then a pause of `burst` periods: on average one a period.
    TokenBucket {
        period_ns: u64,
        burst: u32,
    },
    /// These very times since the start, ascending.
    Trace {
        times_ns: Vec<u64>,
    },
}

/// A measured UDP sender: one datagram per release, with the same payload header as MQTT.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UdpFlow {
    pub name: String,
    pub node: String,
    /// Local address; any where absent. For multicast it also names the interface that sends.
    #[serde(default)]
    pub local_address: Option<Ipv4Addr>,
    #[serde(default)]
    pub local_port: u16,
    /// Unicast or multicast.
    pub destination: Ipv4Addr,
    pub port: u16,
    #[serde(default)]
    pub dscp: u8,
    /// Time to live of multicast datagrams.
    #[serde(default = "defaults::multicast_ttl")]
    pub multicast_ttl: u8,
    pub flow: u32,
    pub payload_bytes: u32,
    pub release: Release,
}

/// A receiver of measured UDP messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UdpReceiver {
    pub name: String,
    pub node: String,
    /// What to bind to: any address where absent; a multicast group is bound to and joined.
    #[serde(default)]
    pub address: Option<Ipv4Addr>,
    pub port: u16,
    /// Address of the interface that joins; the kernel's choice where absent.
    #[serde(default)]
    pub interface: Option<Ipv4Addr>,
    /// The flow that is expected here (as for [`MqttRole::Subscribe`]).
    pub flow: u32,
    /// Size of its payload where that has no room for a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_bytes: Option<u32>,
    pub receiver: u32,
}

/// Traffic that only loads the network, from one node to another; bytes and messages are counted at both ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    pub name: String,
    /// Node that sends (and connects, for TCP).
    pub source: String,
    /// Node that receives (and listens, for TCP).
    pub destination: String,
    /// Local address of the source; any where absent.
    #[serde(default)]
    pub source_address: Option<Ipv4Addr>,
    #[serde(default)]
    pub source_port: u16,
    /// Address of the destination, bound there.
    pub destination_address: Ipv4Addr,
    pub port: u16,
    /// DSCP of both directions.
    #[serde(default)]
    pub dscp: u8,
    /// When it starts, after the start of the run.
    #[serde(default)]
    pub start_ns: u64,
    /// When it stops; with the sources of the run where absent.
    #[serde(default)]
    pub stop_ns: Option<u64>,
    pub traffic: Traffic,
}

/// Kinds of background traffic: `{"kind": "tcp-bulk", ...}`. Rates count payload bits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Traffic {
    /// One TCP connection that is written to at a rate; 0: as fast as it takes.
    TcpBulk {
        #[serde(default)]
        rate_bps: u64,
    },
    /// Datagrams at constant gaps.
    UdpConstant { rate_bps: u64, payload_bytes: u32 },
    /// Datagrams at exponential gaps.
    UdpPoisson {
        mean_gap_ns: u64,
        payload_bytes: u32,
        #[serde(default)]
        seed: u64,
    },
    /// `frames` datagrams back to back, every `gap_ns`.
    UdpBurst {
        gap_ns: u64,
        frames: u32,
        payload_bytes: u32,
    },
    /// A TCP client that sends requests and a server that answers each. `period_ns` 0: the next request follows the answer at
    /// once. A request whose time has come while an answer is outstanding is sent when the answer is there.
    RequestResponse {
        request_bytes: u32,
        response_bytes: u32,
        #[serde(default)]
        period_ns: u64,
    },
    /// Video-like: one picture every `picture_gap_ns`, one large (I) and `group - 1` small (P) ones in turn. Over UDP a picture
    /// is cut into datagrams of `packet_bytes`, sent back to back.
    Video {
        transport: Transport,
        picture_gap_ns: u64,
        group: u32,
        i_picture_bytes: u32,
        p_picture_bytes: u32,
        #[serde(default = "defaults::packet")]
        packet_bytes: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    Udp,
    Tcp,
}

mod defaults {
    pub(super) fn settle() -> u64 {
        2_000_000_000
    }
    pub(super) fn connect_gap() -> u64 {
        200_000
    }
    pub(super) fn connect_timeout() -> u64 {
        10_000_000_000
    }
    pub(super) fn spin() -> u64 {
        60_000
    }
    pub(super) fn housekeeping() -> u64 {
        20_000_000
    }
    pub(super) fn mqtt_port() -> u16 {
        1883
    }
    pub(super) fn keep_alive() -> u16 {
        60
    }
    pub(super) fn multicast_ttl() -> u8 {
        16
    }
    pub(super) fn packet() -> u32 {
        1400
    }
}

//! The emulation plan: what Python hands to [`crate::main`] as `PLAN.json`. This file is the contract.
//!
//! Unknown keys are errors. Times are integer nanoseconds, rates bit/s, sizes bytes. **Run time** is nanoseconds since the
//! start of the measured run (time zero): by then the network is up, the pre-flight check has passed, programs without
//! `start_ns` are ready and the endpoints are connected. Before time zero ("set-up") the links keep their rate and delay but lose,
//! damage, double and interrupt nothing; at time zero a fresh fabric with fresh random streams takes over, so that the
//! verdicts of a measured run do not depend on what happened during set-up.
//!
//! Files written into `folder`: see [`crate::records`] (`frames.bin`, `ingress.bin`, `deliveries.bin`), [`crate::stats`] (`nodes.csv`),
//! [`crate::writer`] (`ports.csv`), [`crate::report`] (`live.json`), `captures/*.pcapng`, `logs/*.log`, and `endpoints.bin` of the built-in
//! endpoints, whose times are run time too (CLOCK_MONOTONIC if the sandbox was killed before its end).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use timebound_model::declaration::ImpairmentsDecl;
use timebound_model::{Declaration, WireBytes};

/// Version of this contract; a plan states it in `schema`.
pub const SCHEMA: u32 = 1;

/// A whole emulated run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Letters, digits, `-` and `_`, at most 64; names the run's cgroups.
    pub run_id: String,
    /// The run folder (absolute); it exists already.
    pub folder: PathBuf,
    /// Seed of every random stream of the fabric.
    pub seed: u64,
    /// Length of the measured run, from time zero. A warm-up is part of it; its records are dropped by whoever reads them.
    pub duration_ns: u64,
    /// After `duration_ns` the network goes on for this long, so that what was sent late can still arrive.
    #[serde(default = "default_drain")]
    pub drain_ns: u64,
    /// Set-up (programs ready, endpoints connected) fails after this long.
    #[serde(default = "default_setup")]
    pub setup_timeout_ns: u64,
    /// The network and its streams, as for bounds and simulator.
    pub network: Declaration,
    /// One for every node of kind `host` in `network`, in any order.
    pub hosts: Vec<HostPlan>,
    /// 5-tuples that carry declared streams.
    #[serde(default)]
    pub markers: Vec<MarkerPlan>,
    /// Programs to run in the nodes.
    #[serde(default)]
    pub programs: Vec<ProgramPlan>,
    /// The plan of `timebound-endpoints`, passed on as it is; null where a run has no built-in endpoints.
    #[serde(default)]
    pub endpoints: Option<serde_json::Value>,
    /// One process for all built-in endpoints, or one for each node that has some.
    #[serde(default)]
    pub endpoint_processes: EndpointProcesses,
    #[serde(default)]
    pub captures: Vec<CapturePlan>,
    /// Changes of link conditions, in any order.
    #[serde(default)]
    pub events: Vec<EventPlan>,
    #[serde(default)]
    pub preflight: PreflightPlan,
    #[serde(default)]
    pub precision: PrecisionPlan,
    #[serde(default)]
    pub statistics: StatisticsPlan,
    /// How long frames are taken to be; ordinary Ethernet where left out.
    #[serde(default)]
    pub framing: FramingPlan,
    /// How frames get from the nodes into the model and back.
    #[serde(default)]
    pub data_plane: DataPlanePlan,
    /// Write `ingress.bin`, from which the simulator can replay the run.
    #[serde(default)]
    pub record_ingress: bool,
    /// Null: the fabric forwards by itself at every switch.
    #[serde(default)]
    pub switches: Option<SwitchesPlan>,
    /// Null: a run on this machine alone.
    #[serde(default)]
    pub cut: Option<CutPlan>,
    /// Enter a user namespace even as root (to try what a user without rights gets).
    #[serde(default)]
    pub force_rootless: bool,
    /// Folders and files of the host that nodes see, read-only, although their own `/tmp` or `/run` would hide them.
    #[serde(default)]
    pub shown: Vec<PathBuf>,
    /// Folders of the host, beside the run's, in which programs of nodes may write.
    #[serde(default)]
    pub writable: Vec<PathBuf>,
    /// How later commands find this run; null: nobody can find or command it.
    #[serde(default)]
    pub control: Option<ControlPlan>,
    /// Orders for nodes by schedule, in any order; see [`crate::lifecycle`].
    #[serde(default)]
    pub lifecycle: Vec<NodeEventPlan>,
    /// Bytes kept of the output of each program; the rest is dropped, and the log says so.
    #[serde(default = "default_log_limit")]
    pub log_limit_bytes: u64,
}

/// Most processes and threads of a node that states nothing else.
pub const PROCESSES: u64 = 1_024;

/// The `node` of a program that runs where the real switches run (see [`SwitchesPlan`]): OpenFlow is there at 127.0.0.1.
pub const SWITCHES: &str = ".switches";

/// Switches that are bridges of one real Open vSwitch, between emulated links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchesPlan {
    /// Names of nodes of kind `switch`, whose declared switching delay is what the real one may take.
    pub nodes: Vec<String>,
    /// Where they look for their controller once the pre-flight check is over, as `tcp:127.0.0.1:6653`; until then they forward along the
    /// compiled routes, and go on to do so where this is null.
    #[serde(default)]
    pub controller: Option<String>,
}

/// What frames bear on the wire beside what the nodes put into them (a tag, a trailer): links transmit as if it were there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FramingPlan {
    /// Bytes that it adds to each frame.
    pub overhead_bytes: u32,
    /// The shortest frame with them, from the destination address to the check sequence; 64 to 64 and the overhead.
    pub least_frame_bytes: u32,
}

impl Default for FramingPlan {
    fn default() -> Self {
        Self {
            overhead_bytes: 0,
            least_frame_bytes: 64,
        }
    }
}

impl FramingPlan {
    /// Header of an Ethernet frame without tags: destination, source, type.
    const HEADER: u32 = 14;
    const CHECK_SEQUENCE: u32 = 4;

    /// Bytes on the wire of a frame of `captured` bytes, as the nodes send it (without check sequence).
    #[must_use]
    pub const fn wire(self, captured: u32) -> WireBytes {
        let frame = captured + Self::CHECK_SEQUENCE + self.overhead_bytes;
        let padded = if frame < self.least_frame_bytes {
            self.least_frame_bytes
        } else {
            frame
        };
        WireBytes(padded + WireBytes::PREAMBLE_AND_GAP)
    }
    /// Bytes on the wire of an IP packet of so many bytes.
    #[must_use]
    pub const fn packet(self, ip: u32) -> WireBytes {
        self.wire(ip + Self::HEADER)
    }
    /// By how much more than what the kernel counts of it a frame takes on the wire.
    #[must_use]
    pub const fn unseen(self) -> u32 {
        Self::CHECK_SEQUENCE + self.overhead_bytes + WireBytes::PREAMBLE_AND_GAP
    }
}

/// How the built-in endpoints are spread over processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndpointProcesses {
    /// One with real-time priority: the most exact releases, and the least cost.
    #[default]
    Shared,
    /// One per node, with ordinary priority like a program: CPU time, memory and limits are the node's, and a node's endpoints
    /// can be killed, paused and started again.
    PerNode,
}

/// Where a run is listed; see [`crate::control`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlPlan {
    /// An existing folder that only this user can enter; its path is at most 60 bytes long, since sockets lie in it.
    pub registry: PathBuf,
    /// Name of the scenario, for people.
    pub scenario: String,
    /// Its file (absolute); null where there is none.
    #[serde(default)]
    pub file: Option<PathBuf>,
}

/// An order for one node by schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEventPlan {
    /// Run time.
    pub at_ns: u64,
    pub node: String,
    pub order: crate::lifecycle::Order,
}

/// A node with its own network namespace: one interface `eth0`, whatever the number of its links in `network`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// Name of a node of kind `host`.
    pub node: String,
    pub address: Ipv4Addr,
    /// Prefix length of the one subnet that all hosts share, e.g. 16.
    pub prefix: u8,
    /// `02:00:00:00:00:01`; chosen from the address (`02:54` + the four bytes of the address) where null.
    #[serde(default)]
    pub mac: Option<String>,
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// Transmit queue length of `eth0`, frames.
    #[serde(default = "default_txqueuelen")]
    pub txqueuelen: u32,
    /// `net.*` settings of the node, e.g. `{"net.ipv4.tcp_congestion_control": "cubic"}`. Others are refused.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// Peer -> segments that TCP may send to it, and let it send, before the first acknowledgement. Others: as the kernel has it (ten).
    #[serde(default)]
    pub windows: BTreeMap<Ipv4Addr, (u32, u32)>,
    /// Host name of what runs in it; its name where null.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Files that only the node sees, or sees otherwise.
    #[serde(default)]
    pub files: Vec<FilePlan>,
    /// Environment of everything that runs in it; a program's own wins.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Limit and guarantee of CPU of everything that runs in it; needs cgroups, which need root.
    #[serde(default)]
    pub cpu: CpuPlan,
    /// Limit of memory of everything that runs in it; needs cgroups, which need root.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Most processes and threads at a time of its programs and commands. Without root: of those of all nodes together, [`PROCESSES`]
    /// times eight, as the kernel counts them by user.
    #[serde(default = "default_processes")]
    pub processes: u64,
    /// Name of a host (earlier in the list) whose second interface `eth1` this is: it lives in that host's namespaces. In `network` both
    /// are hosts of their own, as nothing but the node's own routing joins them.
    #[serde(default)]
    pub side_of: Option<String>,
    /// Default route.
    #[serde(default)]
    pub gateway: Option<Ipv4Addr>,
    /// Null: a node of namespaces alone.
    #[serde(default)]
    pub hardware: Option<HardwarePlan>,
}

/// A file of a node. Exactly one of `content` and `source` is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePlan {
    /// Absolute, without `..`, not in `/proc`, `/sys` or `/dev`.
    pub path: PathBuf,
    #[serde(default)]
    pub content: Option<String>,
    /// A file of the host whose bytes it gets (absolute).
    #[serde(default)]
    pub source: Option<PathBuf>,
    /// Permissions, e.g. 0o644.
    #[serde(default = "default_mode")]
    pub mode: u32,
}

/// CPU of a node, in CPUs: 0.2 is 20 % of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CpuPlan {
    /// It never gets more.
    pub limit: Option<f64>,
    /// It gets at least this while the nodes want more CPU than there is. The sum over all nodes may not exceed the CPUs.
    pub reservation: Option<f64>,
}

/// What a node is beside, or instead of, a network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum HardwarePlan {
    /// The node is the device behind this interface, which is the end of its emulated link. Needs root. Its `mac` is learnt
    /// by ARP where the host states none. Nothing can be started in it, and the check before the run leaves it out.
    Device {
        interface: String,
        /// How long it may take to answer ARP.
        learn_ns: u64,
        /// Take it even from a host that it gives its default route.
        take_default_route: bool,
    },
    /// The interface moves into the node and keeps its name, beside `eth0`. Needs root.
    Card {
        interface: String,
        /// None: those that it had.
        addresses: Vec<CardAddress>,
        take_default_route: bool,
    },
    /// A node of the other machine of the run.
    Remote,
    /// A virtual machine with one card, the end of its emulated link. Nothing can be started in it but the machine.
    Machine(MachinePlan),
}

impl HardwarePlan {
    /// Is the node's network stack somebody else's?
    #[must_use]
    pub fn is_external(&self) -> bool {
        !matches!(self, Self::Card { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardAddress {
    pub address: Ipv4Addr,
    pub prefix: u8,
}

/// A run on two machines: each emulates its own nodes, and both have the whole network in their plans. Needs root.
///
/// After its programs are ready the sandbox says `barrier` with `name` `connect`, and after its endpoints are connected `start`;
/// each time it waits for a line on standard input: `go connect`, and `go start NS` with CLOCK_MONOTONIC of this machine at
/// time zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CutPlan {
    /// Nodes of this machine.
    pub nodes: Vec<String>,
    /// This host's address on the network between the machines, and the other's.
    pub local: Ipv4Addr,
    pub remote: Ipv4Addr,
    /// UDP port of the tunnel on both.
    pub udp_port: u16,
    /// VXLAN network identifier, 1 to 2^24-1, the same on both and no other run's.
    pub run: u32,
}

/// A virtual machine (QEMU). Paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachinePlan {
    /// Disk; never written to.
    #[serde(default)]
    pub image: Option<PathBuf>,
    #[serde(default)]
    pub kernel: Option<PathBuf>,
    #[serde(default)]
    pub initrd: Option<PathBuf>,
    /// Behind `console=ttyS0 ip=...` on the kernel's command line.
    #[serde(default)]
    pub append: String,
    pub memory_bytes: u64,
    pub cpus: u32,
    pub accel: Acceleration,
    pub card: MachineCard,
    /// Set-up waits until this TCP port accepts a connection from another node; null: until the address answers ARP.
    #[serde(default)]
    pub ready_port: Option<u16>,
    /// Longest time until it is ready.
    pub boot_ns: u64,
    /// From the power button (ACPI) to the end by force.
    pub shutdown_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Acceleration {
    /// KVM where the machine's own kernel boots with it, otherwise TCG.
    Auto,
    Tcg,
    Kvm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineCard {
    Virtio,
    E1000,
}

/// Which stream the frames of one 5-tuple belong to, in the direction source -> destination.
///
/// Frames with a non-empty payload behind the TCP or UDP header (ICMP and others: every frame) are `data`; TCP segments
/// without payload (acknowledgements, SYN, FIN, RST) are `ack`, and undeclared where `ack` is null. Route and class are those of
/// the stream in `network`. An exact 5-tuple wins over one with a null port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MarkerPlan {
    pub source: Ipv4Addr,
    /// May be a multicast group.
    pub destination: Ipv4Addr,
    pub protocol: Protocol,
    /// Null: any port.
    #[serde(default)]
    pub source_port: Option<u16>,
    #[serde(default)]
    pub destination_port: Option<u16>,
    /// Name of the stream in `network` for frames with payload; null: only the acknowledgements are declared.
    #[serde(default)]
    pub data: Option<String>,
    /// Name of the stream in `network` for TCP segments without payload.
    #[serde(default)]
    pub ack: Option<String>,
    /// Write the class selector code point of the stream's class into the IP header of what is delivered.
    #[serde(default)]
    pub rewrite_dscp: bool,
    /// Where to look for measurement headers; null: frames are recorded without sequence.
    #[serde(default)]
    pub header: Option<HeaderPlan>,
    /// Null: a connection of the built-in endpoints. Markers that have this may share a 5-tuple: each frame is told by what is in it.
    #[serde(default)]
    pub own: Option<OwnPlan>,
}

/// Messages of a program that is not ours, on MQTT connections that it opens itself (or as datagrams).
///
/// A frame belongs to `data` of the marker while it holds a message on its topic (over UDP: any datagram), or what MQTT sends beside it in
/// the same direction. Frames of other packets are undeclared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnPlan {
    pub flow: u32,
    pub role: OwnRole,
    /// Null for datagrams.
    #[serde(default)]
    pub topic: Option<String>,
    /// Declared: with 0 nobody acknowledges its messages, and what does is undeclared.
    #[serde(default)]
    pub qos: u8,
    /// Is it MQTT 5, where no CONNECT says so?
    #[serde(default)]
    pub version5: bool,
    /// Of messages that the built-in endpoints publish: their payload, at whose start their number is. Null: numbered as they come by.
    #[serde(default)]
    pub payload_bytes: Option<u32>,
}

/// What passes on a connection of such a program, in the direction of its marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnRole {
    /// Messages from their publisher: they are numbered in this order.
    Source,
    /// Messages from a broker: each has the number that it had when its publisher sent it.
    Onward,
    /// What answers messages of the other direction.
    Answers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Tcp,
    Udp,
    Icmp,
}

/// The measurement header in the payload of a message: 16 bytes, little-endian: magic `0x54424E44`, flow u32, sequence u32,
/// reserved u32.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderPlan {
    /// Bytes from the start of a message on the wire (for MQTT: of its PUBLISH packet) to the header.
    pub payload_offset: u32,
    /// Bytes of one whole message behind the TCP or UDP header. A TCP stream is followed by sequence number, so a header is
    /// found wherever segment borders fall; while a message of other length passes (CONNECT, SUBACK) the header is looked for at
    /// `payload_offset` of each segment.
    pub message_bytes: u32,
    /// Where messages have no room for a header: what is known of them. Over TCP they are then MQTT packets, found by their own lengths.
    #[serde(default)]
    pub short: Vec<ShortPlan>,
}

/// Messages that begin with what fits of their sequence number ([`timebound_wire::short`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShortPlan {
    pub flow: u32,
    pub payload_bytes: u32,
    /// Of the PUBLISH packets that carry them; null for datagrams.
    #[serde(default)]
    pub topic: Option<String>,
}

/// A program in a node: in its network, with its host name, files and environment, within its limits (and in the sandbox's process namespace).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramPlan {
    /// Unique; letters, digits, `-`, `_` and `.`; names the log.
    pub name: String,
    pub node: String,
    /// The program (looked up in `PATH` where it has no slash) and its arguments.
    pub argv: Vec<String>,
    /// Added to the environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working folder; the run folder where null. Created where missing.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// File for standard output and error, relative to the run folder; `logs/NAME.log` where null.
    #[serde(default)]
    pub log: Option<PathBuf>,
    /// The run fails when it ends by itself with a status other than 0, or at all where `ready` is set (a server).
    #[serde(default)]
    pub essential: bool,
    /// Set-up waits until this port accepts a connection inside the node.
    #[serde(default)]
    pub ready: Option<ReadyPlan>,
    /// Run time at which it starts; null: during set-up.
    #[serde(default)]
    pub start_ns: Option<u64>,
    /// It starts once all programs with `ready` are ready: a client of theirs finds them.
    #[serde(default)]
    pub after_ready: bool,
    /// Time between SIGTERM and SIGKILL when the run ends.
    #[serde(default = "default_grace")]
    pub stop_grace_ns: u64,
}

/// When a program is ready; exactly one of `tcp_port` and `file` is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadyPlan {
    /// A TCP port on the node's own address or on 127.0.0.1 accepts.
    #[serde(default)]
    pub tcp_port: Option<u16>,
    /// This file exists; relative to the run folder.
    #[serde(default)]
    pub file: Option<PathBuf>,
    pub timeout_ms: u64,
}

/// One capture file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapturePlan {
    /// File name within `captures/`, e.g. `s1-s4.pcapng`.
    pub file: String,
    /// Each port becomes one interface of the file.
    pub ports: Vec<PortPlan>,
    /// Bytes kept of each frame.
    #[serde(default = "default_snap")]
    pub snap_bytes: u32,
}

/// The egress port of `from` towards its neighbour `to`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortPlan {
    pub from: String,
    pub to: String,
    /// Which of several parallel links, in order of declaration.
    #[serde(default)]
    pub parallel: u32,
}

/// A change of one direction of a link. Absent parts stay as they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventPlan {
    /// Run time.
    pub at_ns: u64,
    pub port: PortPlan,
    #[serde(default)]
    pub rate_bps: Option<u64>,
    #[serde(default)]
    pub delay_ns: Option<u64>,
    /// Room of each egress queue; none of the frames that wait is thrown out.
    #[serde(default)]
    pub buffer_bytes: Option<u64>,
    /// Replaces all impairments of the port, its outages included.
    #[serde(default)]
    pub impairments: Option<ImpairmentsDecl>,
    /// False: carries nothing from now on. True: carries again.
    #[serde(default)]
    pub up: Option<bool>,
}

/// The check of the emulated conditions before anything is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PreflightPlan {
    pub enabled: bool,
    /// Greatest time to spend on one of at most three attempts (more than one only where the machine was busy); ports that could not be covered are named in the result.
    pub limit_ns: u64,
    /// Real latency of a probe may exceed the model by this much at the median.
    pub tolerance_ns: u64,
    /// Most probe frames sent over a port with losses, to count verdicts.
    pub loss_probes: u32,
}

/// From which measured values on a run counts as disturbed (`crate::certificate`). The defaults do not depend on the host or its
/// rights: what an experiment can bear does not grow because the machine is worse. They were chosen from runs of `bench-certificate` on a
/// shared virtual machine of 2 cores with others at work (SCHED_FIFO, 2,000 frames/s, 2 s each): of 60 undisturbed ones the p99 was 0.03 to
/// 0.7 ms and the longest overrun 0.1 to 12 ms; such a stall of 8 to 12 ms, which one run in eight had, makes up to 0.3 % of the
/// frames of 2 s late by more than 5 ms, and fewer of a longer run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrecisionPlan {
    /// Greatest p99 of the lateness of departures.
    pub lateness_p99_ns: u64,
    /// A frame this late counts as late.
    pub late_frame_ns: u64,
    /// Greatest share of late frames.
    pub late_share: f64,
    /// Greatest number of frames that the kernel may drop for want of room in the ring.
    pub ring_lost: u64,
    /// Longest time for which the data plane may be kept from running although something was due or its loop was to come round.
    pub longest_overrun_ns: u64,
    /// Greatest share of all CPUs' time that a hypervisor may take away.
    pub steal: f64,
}

/// How frames get from the nodes into the model and back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataPlanePlan {
    pub back_end: BackEndPlan,
    /// Input/output threads beside the fabric's, at most 16; null: none on up to 3 CPUs, else CPUs - 2, at most 4.
    pub threads: Option<u32>,
    /// The queue of each host's first port stands in the node's kernel, where a full socket buffer makes senders wait, and
    /// not in the model, where it would drop. Only for hosts with one full-duplex link.
    pub back_pressure: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackEndPlan {
    /// `Ring`, unless the plan declares more frames than it carries and the host allows `Tap`.
    #[default]
    Auto,
    /// A packet ring over veth pairs: arrivals are stamped by the kernel.
    Ring,
    /// TAP devices and io_uring: cheaper per frame; arrivals are stamped when they are read.
    Tap,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StatisticsPlan {
    /// Interval of `nodes.csv`; 0: none.
    pub node_interval_ns: u64,
    /// Interval of `ports.csv`; 0: none.
    pub port_interval_ns: u64,
}

impl Default for PreflightPlan {
    fn default() -> Self {
        Self {
            enabled: true,
            limit_ns: 2_000_000_000,
            tolerance_ns: 1_000_000,
            loss_probes: 400,
        }
    }
}

impl Default for PrecisionPlan {
    fn default() -> Self {
        Self {
            lateness_p99_ns: 1_000_000,
            late_frame_ns: 5_000_000,
            late_share: 0.005,
            ring_lost: 0,
            longest_overrun_ns: 20_000_000,
            steal: 0.05,
        }
    }
}

impl Default for StatisticsPlan {
    fn default() -> Self {
        Self {
            node_interval_ns: 500_000_000,
            port_interval_ns: 100_000_000,
        }
    }
}

fn default_drain() -> u64 {
    200_000_000
}

fn default_setup() -> u64 {
    30_000_000_000
}

fn default_processes() -> u64 {
    PROCESSES
}

fn default_mtu() -> u32 {
    1500
}

fn default_txqueuelen() -> u32 {
    1000
}

fn default_mode() -> u32 {
    0o644
}

fn default_grace() -> u64 {
    2_000_000_000
}

fn default_snap() -> u32 {
    65_535
}

fn default_log_limit() -> u64 {
    64 << 20
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLEST: &str = r#"{"schema": 1, "run_id": "r1", "folder": "/tmp/r1", "seed": 1, "duration_ns": 1000000000,
        "network": {"nodes": [{"name": "h1", "kind": "host"}], "links": []},
        "hosts": [{"node": "h1", "address": "10.0.0.1", "prefix": 16}]}"#;

    #[test]
    fn the_smallest_plan_reads_and_has_the_documented_defaults() {
        let plan: Plan = serde_json::from_str(SMALLEST).unwrap();
        assert_eq!(plan.hosts[0].mtu, 1500);
        assert!(plan.preflight.enabled && !plan.record_ingress);
        assert_eq!(plan.statistics.node_interval_ns, 500_000_000);
        let again: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(again, plan);
    }

    #[test]
    fn frames_are_as_long_on_the_wire_as_their_framing_says() {
        let of = |overhead_bytes, least_frame_bytes| FramingPlan {
            overhead_bytes,
            least_frame_bytes,
        };
        let plain = FramingPlan::default();
        for captured in [0, 42, 59, 60, 61, 1_514] {
            assert_eq!(plain.wire(captured), WireBytes::from_captured(captured));
        }
        // A tag is put into a frame that was padded without it; the sequence number of AFDX is padded with the payload.
        let (tagged, avionics) = (of(4, 68), of(1, 64));
        assert_eq!([42, 60, 61].map(|captured| tagged.wire(captured).0), [88, 88, 89]);
        assert_eq!(
            [42, 59, 60].map(|captured| avionics.wire(captured).0),
            [84, 84, 85]
        );
        assert_eq!(tagged.packet(1_500).0, 1_542);
        assert_eq!((plain.unseen(), tagged.unseen()), (24, 28));
    }

    #[test]
    fn unknown_keys_are_refused_at_every_depth() {
        for (from, to) in [
            (r#""seed": 1"#, r#""seed": 1, "sead": 2"#),
            (r#""prefix": 16"#, r#""prefix": 16, "gatway": "10.0.0.2""#),
            (r#""links": []"#, r#""links": [], "lniks": []"#),
        ] {
            let text = SMALLEST.replace(from, to);
            assert_ne!(text, SMALLEST);
            assert!(
                serde_json::from_str::<Plan>(&text)
                    .unwrap_err()
                    .to_string()
                    .contains("unknown field")
            );
        }
    }
}

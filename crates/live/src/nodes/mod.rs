//! Hosts as network namespaces: one veth pair each, the far end `eth0` in the node, the near end `f<N>` in the fabric's namespace.

mod back_pressure;
mod calls;
mod cell;
mod entrance;
mod rights;
mod room;
mod tcp;
mod view;
mod yard;

#[allow(
    unused_imports,
    reason = "what `Nodes::entrance` returns has a name for those who keep it"
)]
pub(crate) use entrance::Entrance;
pub(crate) use view::{Shown, host_sockets};
pub(crate) use yard::{LABELS, plug};

use crate::cgroups::Cgroups;
use crate::choice::BackEnd;
use crate::failure::Failure;
use crate::hardware::{self, Keeper};
use crate::kernel::{check, ethtool, netlink, tap};
use crate::plan::{FilePlan, HardwarePlan, HostPlan, Plan};
use crate::report::Check;
use crate::switches::Switches;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Component, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use timebound_model::{Network, NodeId, NodeKind};

/// linux/sockios.h: the network namespace of a socket. Unlike `/proc/thread-self/ns/net` it needs no `/proc`.
const SIOCGSKNS: libc::c_ulong = 0x894c;
/// Index of `eth0` in every node; `lo` is 1.
const ETH0: u32 = 2;
/// Index of the second interface of a host that has one.
const ETH1: u32 = 3;
/// Below this the kernel's own lower limits of segment size and path MTU (256 and 552 bytes) need a word.
const SMALL_MTU: u32 = 600;
/// Index of the near end of host 0.
pub(crate) const FIRST_INTERFACE: u32 = 16;

/// What every node gets before its interface appears. IPv6 is off since nothing declares its chatter; the neighbour times
/// keep address resolution (answered from the model, so never wrong) from being repeated during a run.
const SYSCTLS: [(&str, &str); 6] = [
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
    ("net/ipv4/neigh/default/base_reachable_time_ms", "86400000"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/tcp_no_metrics_save", "1"),
];

/// One host that is up.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) id: NodeId,
    pub(crate) address: Ipv4Addr,
    pub(crate) mac: [u8; 6],
    /// Index of its near end in the fabric's namespace.
    pub(crate) interface: u32,
    pub(crate) mtu: u32,
    pub(crate) hostname: String,
    /// Environment of everything that runs in it.
    pub(crate) env: BTreeMap<String, String>,
    files: Vec<FilePlan>,
    /// A device or a virtual machine: its network stack is not ours.
    pub(crate) external: bool,
    /// Of a virtual machine.
    pub(crate) tap: Option<OwnedFd>,
    /// Our side of its `eth0` where that is a TAP device.
    pub(crate) device: Option<Arc<OwnedFd>>,
    namespace: OwnedFd,
    /// Index of its interface within the namespace.
    card: u32,
    /// Host name and files; made when something first runs in it.
    room: Mutex<Option<Arc<room::Room>>>,
}

impl Node {
    #[cfg(test)]
    pub(crate) fn for_tests(name: &str, address: Ipv4Addr, mac: [u8; 6]) -> Self {
        Self {
            name: name.to_owned(),
            id: NodeId(0),
            address,
            mac,
            interface: FIRST_INTERFACE,
            mtu: 1500,
            hostname: name.to_owned(),
            env: BTreeMap::new(),
            files: Vec::new(),
            room: Mutex::default(),
            external: true,
            tap: None,
            device: None,
            namespace: std::fs::File::open("/dev/null").unwrap().into(),
            card: ETH0,
        }
    }

    /// Tells the kernel of this node who has an address, for good: it need not ask, and the entry does not count in its table. That
    /// table is one for all namespaces of the machine and has room for 1,024 (`net.ipv4.neigh.default.gc_thresh3`).
    ///
    /// # Errors
    /// A refusal of the kernel.
    pub(crate) fn introduce(&self, peer: &Node) -> io::Result<()> {
        within(self.namespace(), || {
            let mut requests = netlink::Netlink::open()?;
            requests.add_neighbour(self.card, peer.address, peer.mac)?;
            requests.flush()
        })
    }

    /// The node's network namespace.
    #[must_use]
    pub(crate) fn namespace(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.namespace)
    }
}

/// All hosts of a run, in the order of the plan.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) list: Vec<Node>,
    by_name: BTreeMap<String, usize>,
    /// Names and addresses of all nodes, as in hosts(5).
    hosts_file: PathBuf,
    /// Folder of the run.
    folder: PathBuf,
    /// What nodes see of the host beside the rule.
    shown: Shown,
    /// Limits of the nodes that have any.
    pub(crate) groups: Option<Arc<Cgroups>>,
    /// Length of the prefix of the subnet.
    pub(crate) prefix: u8,
    /// The fabric's network namespace.
    pub(crate) fabric: OwnedFd,
    /// Interface of the tunnel to the other machine of the run, and the run's number.
    pub(crate) tunnel: Option<(u32, u32)>,
    /// Where real switches run, if any.
    yard: Option<Node>,
    /// Nodes of the other machine, switches too.
    pub(crate) remote: BTreeSet<NodeId>,
    /// What could not be set, for the report.
    pub(crate) warnings: Vec<String>,
    /// What the kernel says of TCP in the nodes, beside what was asked for.
    pub(crate) tcp: Vec<Check>,
}

impl Nodes {
    /// Position of the node of this name.
    #[must_use]
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The node of this name, or where the real switches run ([`crate::plan::SWITCHES`]).
    #[must_use]
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        match self.by_name.get(name) {
            Some(index) => Some(&self.list[*index]),
            None => self.yard.as_ref().filter(|yard| yard.name == name),
        }
    }

    /// The first processes of all nodes that have any: they belong to us, and end with the run.
    pub(crate) fn first_processes(&self) -> BTreeSet<i32> {
        let rooms = self.list.iter().map(|node| node.room.lock());
        rooms
            .filter_map(|room| Some(room.unwrap_or_else(PoisonError::into_inner).as_ref()?.first))
            .collect()
    }
}

/// Runs `work` in a thread of its own within `namespace`.
///
/// # Errors
/// Of `setns`, or what `work` returns.
pub(crate) fn within<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        scope
            .spawn(move || {
                enter(namespace.as_raw_fd())?;
                work()
            })
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a helper thread panicked")))
    })
}

/// Moves the calling thread into a network namespace.
pub(crate) fn enter(namespace: libc::c_int) -> io::Result<()> {
    // SAFETY: takes two integers.
    check(unsafe { libc::setns(namespace, libc::CLONE_NEWNET) }).map(drop)
}

/// Makes namespaces, interfaces, addresses and routes of all hosts. The caller's network namespace becomes the fabric's.
///
/// # Errors
/// A plan that contradicts itself, or the first refusal of the kernel.
pub(crate) fn bring_up(
    plan: &Plan,
    network: &Network,
    groups: Option<Arc<Cgroups>>,
    keeper: Option<&mut Keeper>,
    back_end: BackEnd,
    switches: Option<&Switches>,
    shown: Shown,
) -> Result<Nodes, Failure> {
    let identities = check_hosts(plan, network)?;
    let mut warnings = BTreeSet::new();
    write_sysctls(&SYSCTLS[..2], &mut warnings);
    let mut list = Vec::with_capacity(identities.len());
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| -> Result<(), Failure> {
            for (index, (host, (id, mac))) in plan.hosts.iter().zip(&identities).enumerate() {
                let (namespace, card) = match &host.side_of {
                    Some(owner) => (shared_namespace(&list, host, owner)?, ETH1),
                    None => (fresh_namespace(host, &mut warnings)?, ETH0),
                };
                // Made in the node's namespace, in which this thread is now: nothing needs to be moved.
                let device = match back_end {
                    BackEnd::Ring => None,
                    BackEnd::Tap => Some(Arc::new(tap::create(card_name(card), card).map_err(|error| {
                        Failure::host(format!("cannot create the TAP device of {:?}", host.node), error)
                    })?)),
                };
                list.push(Node {
                    name: host.node.clone(),
                    id: *id,
                    address: host.address,
                    mac: *mac,
                    interface: FIRST_INTERFACE + index as u32,
                    mtu: host.mtu,
                    hostname: host.hostname.clone().unwrap_or_else(|| host.node.clone()),
                    env: host.env.clone(),
                    files: host.files.clone(),
                    room: Mutex::default(),
                    external: is_external(host),
                    tap: None,
                    device,
                    namespace,
                    card,
                });
            }
            Ok(())
        });
        worker
            .join()
            .unwrap_or_else(|_| Err(Failure::internal("bring-up", "a helper thread panicked")))
    })?;
    let fabric =
        own_namespace().map_err(|error| Failure::host("cannot open the fabric's namespace", error))?;
    hardware::attach(plan, &mut list, std::os::fd::AsFd::as_fd(&fabric), keeper)?;
    if back_end == BackEnd::Ring {
        connect(plan, &list).map_err(|error| Failure::host("cannot create veth pairs", error))?;
    }
    let mtu = plan.hosts.iter().map(|host| host.mtu).max().unwrap_or(1500);
    let yard = switches
        .map(|switches| yard::make(switches, mtu, &mut warnings))
        .transpose()
        .map_err(|error| Failure::host("cannot create the namespace of the real switches", error))?;
    let tcp = configure(plan, network, &list)?;
    let hosts_file = plan.folder.join("hosts");
    std::fs::write(&hosts_file, hosts(&list))
        .map_err(|error| Failure::host(format!("cannot write {}", hosts_file.display()), error))?;
    let by_name = list
        .iter()
        .enumerate()
        .map(|(index, node)| (node.name.clone(), index))
        .collect();
    Ok(Nodes {
        list,
        by_name,
        hosts_file,
        folder: plan.folder.clone(),
        shown,
        groups,
        fabric,
        tunnel: None,
        yard,
        remote: remote(plan, network),
        prefix: plan.hosts.first().map_or(16, |host| host.prefix),
        warnings: warnings.into_iter().collect(),
        tcp,
    })
}

/// hosts(5): every node by its name, and by its host name where that is another.
fn hosts(list: &[Node]) -> String {
    let mut text = "127.0.0.1\tlocalhost\n".to_owned();
    for node in list {
        text.push_str(&format!("{}\t{}", node.address, node.name));
        if node.hostname != node.name {
            text.push_str(&format!(" {}", node.hostname));
        }
        text.push('\n');
    }
    text
}

/// Node id and MAC address of each host.
fn check_hosts(plan: &Plan, network: &Network) -> Result<Vec<(NodeId, [u8; 6])>, Failure> {
    let mut found = Vec::with_capacity(plan.hosts.len());
    let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    let known: BTreeMap<&str, NodeId> = network
        .nodes
        .iter()
        .enumerate()
        .map(|(index, node)| (node.name.as_str(), NodeId::new(index)))
        .collect();
    for host in &plan.hosts {
        let bad = |why: &str| Failure::internal(format!("plan: host {:?}", host.node), why);
        let id = *known
            .get(host.node.as_str())
            .ok_or_else(|| bad("no such node in the network"))?;
        if network.nodes[id.index()].kind != NodeKind::Host {
            return Err(bad("is no host in the network"));
        }
        if !names.insert(&host.node) || !addresses.insert(host.address) {
            return Err(bad("name or address appears twice"));
        }
        if !(1..=30).contains(&host.prefix) || !(68..=9_000).contains(&host.mtu) {
            return Err(bad("prefix must be 1 to 30 and MTU 68 to 9000"));
        }
        check_room(host)?;
        found.push((
            id,
            mac(host).ok_or_else(|| bad("MAC address must look like 02:00:00:00:00:01"))?,
        ));
    }
    match network
        .nodes
        .iter()
        .find(|node| node.kind == NodeKind::Host && !names.contains(&node.name))
    {
        Some(node) => Err(Failure::internal(
            "plan",
            format!("host {:?} of the network has no address", node.name),
        )),
        None => Ok(found),
    }
}

/// Host name and files of a plan; where the files come from and whether they fit was looked up by whoever made the plan.
fn check_room(host: &HostPlan) -> Result<(), Failure> {
    let bad = |why: String| Failure::internal(format!("plan: host {:?}", host.node), why);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if let Some(name) = &host.hostname
        && (name.is_empty() || name.len() > 63 || !name.chars().all(plain))
    {
        return Err(bad(format!("{name:?} is no host name")));
    }
    for file in &host.files {
        let plain = file
            .path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let kernel = ["/proc", "/sys", "/dev"]
            .iter()
            .any(|root| file.path.starts_with(root));
        if !file.path.is_absolute() || !plain || kernel || file.path.file_name().is_none() {
            return Err(bad(format!(
                "{} cannot be a file of a node: it must be absolute, without `..`, and not in /proc, /sys or /dev",
                file.path.display()
            )));
        }
        if file.content.is_some() == file.source.is_some() || file.mode > 0o777 {
            return Err(bad(format!(
                "{} needs content or source, and a mode up to 0777",
                file.path.display()
            )));
        }
    }
    Ok(())
}

fn mac(host: &HostPlan) -> Option<[u8; 6]> {
    let Some(text) = &host.mac else {
        let [a, b, c, d] = host.address.octets();
        return Some([0x02, 0x54, a, b, c, d]);
    };
    let bytes: Vec<u8> = text
        .split(':')
        .map(|part| u8::from_str_radix(part, 16))
        .collect::<Result<_, _>>()
        .ok()?;
    let mac: [u8; 6] = bytes.try_into().ok()?;
    // A group address cannot be a station's (IEEE 802, clause 8.2).
    (mac[0] & 1 == 0).then_some(mac)
}

fn card_name(card: u32) -> &'static str {
    if card == ETH1 { "eth1" } else { "eth0" }
}

/// The namespace of the host of which this is another interface; the calling thread ends up in it.
fn shared_namespace(list: &[Node], host: &HostPlan, owner: &str) -> Result<OwnedFd, Failure> {
    let owner = list
        .iter()
        .find(|node| node.name == owner && node.card == ETH0 && !node.external)
        .ok_or_else(|| {
            Failure::internal(
                format!("plan: host {:?}", host.node),
                "side_of must name an earlier host with an interface of its own",
            )
        })?;
    let why = |error| Failure::host("cannot share a network namespace", error);
    enter(owner.namespace.as_raw_fd()).map_err(why)?;
    owner.namespace.try_clone().map_err(why)
}

/// What every new namespace gets.
fn fresh(warnings: &mut BTreeSet<String>) {
    write_sysctls(&SYSCTLS, warnings);
}

/// A new network namespace; the calling thread ends up in it.
fn fresh_namespace(host: &HostPlan, warnings: &mut BTreeSet<String>) -> Result<OwnedFd, Failure> {
    let why = |error| {
        Failure::host(
            format!("cannot create the network namespace of {:?}", host.node),
            error,
        )
    };
    // SAFETY: takes one integer; only this helper thread changes namespace.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map_err(why)?;
    fresh(warnings);
    if host.mtu < SMALL_MTU {
        let mtu = host.mtu.to_string();
        write_sysctls(&[("net/ipv4/route/min_pmtu", mtu.as_str())], warnings);
    }
    for (key, value) in &host.sysctls {
        let path = key.replace('.', "/");
        if !path.starts_with("net/") || path.split('/').any(|part| part == "..") {
            return Err(Failure::internal(
                format!("plan: host {:?}", host.node),
                format!("{key} is no net.* setting"),
            ));
        }
        write_sysctl(&path, value)
            .map_err(|error| Failure::host(format!("{:?}: cannot set {key}", host.node), error))?;
    }
    own_namespace().map_err(why)
}

/// The calling thread's network namespace.
fn own_namespace() -> io::Result<OwnedFd> {
    let probe = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: returns a new descriptor or -1.
    let fd = check(unsafe { libc::ioctl(probe.as_raw_fd(), SIOCGSKNS) })?;
    // SAFETY: just created and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Nodes that another machine emulates.
fn remote(plan: &Plan, network: &Network) -> BTreeSet<NodeId> {
    let Some(cut) = &plan.cut else {
        return BTreeSet::new();
    };
    let nodes = network.nodes.iter().enumerate();
    nodes
        .filter(|(_, node)| !cut.nodes.contains(&node.name))
        .map(|(index, _)| NodeId::new(index))
        .collect()
}

fn is_external(host: &HostPlan) -> bool {
    host.hardware.as_ref().is_some_and(HardwarePlan::is_external)
}

fn write_sysctls(settings: &[(&str, &str)], warnings: &mut BTreeSet<String>) {
    for (path, value) in settings {
        match write_sysctl(path, value) {
            // A kernel without IPv6 needs it no more to be turned off.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                warnings.insert(format!(
                    "cannot set {} in the nodes: {error}",
                    path.replace('/', ".")
                ));
            }
            Ok(()) => {}
        }
    }
}

fn write_sysctl(path: &str, value: &str) -> io::Result<()> {
    // An open with O_CREAT is refused in /proc/sys.
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/sys/{path}"))?;
    io::Write::write_all(&mut file, value.as_bytes())
}

fn connect(plan: &Plan, list: &[Node]) -> io::Result<()> {
    let mut requests = netlink::Netlink::open()?;
    for (index, (node, host)) in list.iter().zip(&plan.hosts).enumerate() {
        if node.external {
            continue;
        }
        requests.add_veth(&netlink::Veth {
            near_name: &format!("f{index}"),
            near_index: node.interface,
            far_name: card_name(node.card),
            far_index: node.card,
            far_namespace: node.namespace.as_raw_fd(),
            far_mac: node.mac,
            far_txqueuelen: host.txqueuelen,
            mtu: host.mtu,
        })?;
    }
    requests.flush()
}

/// With whom each host exchanges declared traffic.
fn peers(plan: &Plan) -> BTreeMap<Ipv4Addr, BTreeSet<Ipv4Addr>> {
    let mut peers: BTreeMap<Ipv4Addr, BTreeSet<Ipv4Addr>> = BTreeMap::new();
    for marker in &plan.markers {
        peers.entry(marker.source).or_default().insert(marker.destination);
        peers.entry(marker.destination).or_default().insert(marker.source);
    }
    peers
}

/// What the kernel forgets when an interface goes down: everything but its addresses.
fn bring_interface_up(
    requests: &mut netlink::Netlink,
    card: u32,
    host: &HostPlan,
    peers: &BTreeMap<Ipv4Addr, BTreeSet<Ipv4Addr>>,
    macs: &BTreeMap<Ipv4Addr, [u8; 6]>,
) -> io::Result<()> {
    requests.set_up(card)?;
    if host.mtu < SMALL_MTU {
        requests.limit_segments(card, host.address, host.prefix, host.mtu)?;
    }
    for route in tcp::routes(card, host, host.mtu < SMALL_MTU) {
        requests.add_peer_route(&route)?;
    }
    if card == ETH0 {
        requests.add_route(card, Ipv4Addr::new(224, 0, 0, 0), 4)?;
    }
    if let Some(gateway) = host.gateway {
        requests.add_default_route(card, gateway)?;
    }
    // Groups are nobody's address; whoever else a program talks to is found by ARP, answered from the model.
    for peer in peers.get(&host.address).into_iter().flatten() {
        if let Some(mac) = macs.get(peer) {
            requests.add_neighbour(card, *peer, *mac)?;
        }
    }
    Ok(())
}

/// Takes the interface of a node down, or brings it up again as it was.
///
/// # Errors
/// A refusal of the kernel.
pub(crate) fn power(plan: &Plan, nodes: &Nodes, index: usize, up: bool) -> io::Result<()> {
    let (node, host) = (&nodes.list[index], &plan.hosts[index]);
    let (peers, macs) = (peers(plan), macs(plan, &nodes.list));
    within(node.namespace(), move || {
        let mut requests = netlink::Netlink::open()?;
        if up {
            bring_interface_up(&mut requests, node.card, host, &peers, &macs)?;
        } else {
            requests.set_down(node.card)?;
        }
        requests.flush()
    })
}

fn macs(plan: &Plan, list: &[Node]) -> BTreeMap<Ipv4Addr, [u8; 6]> {
    list.iter()
        .zip(&plan.hosts)
        .map(|(node, host)| (host.address, node.mac))
        .collect()
}

/// Addresses, routes and what TCP is told; returns what the kernel then says of the last.
fn configure(plan: &Plan, network: &Network, list: &[Node]) -> Result<Vec<Check>, Failure> {
    let shapes = (list.iter())
        .map(|node| back_pressure::shape(plan, network, node))
        .collect::<Result<Vec<_>, _>>()?;
    let peers = peers(plan);
    let macs = macs(plan, list);
    let work = || -> io::Result<Vec<Check>> {
        let mut read = tcp::ReadBack::default();
        for ((node, host), shape) in list.iter().zip(&plan.hosts).zip(&shapes) {
            if node.external {
                continue;
            }
            enter(node.namespace.as_raw_fd())?;
            let mut requests = netlink::Netlink::open()?;
            let card = node.card;
            ethtool::offloads_off(requests.fd(), card_name(card))?;
            if node.device.is_some() {
                requests.set_link(card, node.mac, host.mtu, host.txqueuelen)?;
            }
            requests.set_up(1)?;
            if let Some(shape) = shape {
                requests.add_shape(card, *shape, back_pressure::QUEUE_FRAMES)?;
            }
            requests.add_address(card, host.address, host.prefix)?;
            bring_interface_up(&mut requests, card, host, &peers, &macs)?;
            requests.flush()?;
            read.settings(host)?;
            read.windows(&mut requests, host)?;
        }
        Ok(read.checks())
    };
    std::thread::scope(|scope| scope.spawn(work).join())
        .map_err(|_| Failure::internal("bring-up", "a helper thread panicked"))?
        .map_err(|error| Failure::host("cannot configure the nodes", error))
}

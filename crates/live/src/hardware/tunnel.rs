//! The other machine of a run on two: which ports lead to it, and the tunnel that carries what they send (VXLAN, RFC 7348).
//!
//! The tunnel's interface lies in the fabric's namespace and its UDP socket in the namespace from which the run was started,
//! so that nothing of the emulated network has a way out but through the data plane. VXLAN has no secrets: who can send to the
//! UDP port from the peer's address can put frames into the emulated network. Both machines belong on one trusted network.

use crate::failure::Failure;
use crate::kernel::{links::Vxlan, netlink::Netlink};
use crate::nodes::within;
use crate::plan::{CutPlan, Plan};
use crate::plane::OVERHEAD;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use timebound_model::{Network, PortId};

/// Below the first near end of a host.
const INTERFACE: u32 = 15;
const NAME: &str = "tunnel";

/// The namespace from which the run was started, where the plan needs it later. Before the sandbox.
///
/// # Errors
/// Without root, or a plan whose machines make no sense.
pub(crate) fn outside(plan: &Plan, network: &Network) -> Result<Option<OwnedFd>, Failure> {
    let Some(cut) = &plan.cut else { return Ok(None) };
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 || plan.force_rootless {
        return Err(Failure::Host(
            "a run on two machines makes a tunnel on this host, which needs root; run it with sudo"
                .to_owned(),
        ));
    }
    let known: BTreeSet<&str> = network.nodes.iter().map(|node| node.name.as_str()).collect();
    if let Some(unknown) = cut.nodes.iter().find(|name| !known.contains(name.as_str())) {
        return Err(Failure::internal("plan: cut", format!("no node {unknown:?}")));
    }
    if cut.run == 0 || cut.run >= 1 << 24 || cut.local == cut.remote {
        return Err(Failure::internal(
            "plan: cut",
            "run must be 1 to 2^24-1, and the addresses different",
        ));
    }
    File::open("/proc/self/ns/net")
        .map(|file| Some(file.into()))
        .map_err(|error| Failure::host("cannot open this host's network namespace", error))
}

/// Ports of this machine's nodes whose link leads to a node of the other.
pub(crate) fn ports(cut: Option<&CutPlan>, network: &Network) -> Vec<PortId> {
    let Some(cut) = cut else { return Vec::new() };
    let here: BTreeSet<&str> = cut.nodes.iter().map(String::as_str).collect();
    let is_here = |node: timebound_model::NodeId| here.contains(network.nodes[node.index()].name.as_str());
    network
        .ports
        .iter()
        .enumerate()
        .filter(|(_, port)| is_here(port.node) && !is_here(port.peer))
        .map(|(index, _)| PortId::new(index))
        .collect()
}

/// Makes the tunnel; its interface appears in `fabric`, the caller's namespace. Returns its index.
///
/// # Errors
/// What the kernel refuses: no VXLAN, an address that is not this host's.
pub(crate) fn open(
    plan: &Plan,
    cut: &CutPlan,
    outside: BorrowedFd<'_>,
    fabric: BorrowedFd<'_>,
) -> Result<u32, Failure> {
    let mtu = plan.hosts.iter().map(|host| host.mtu).max().unwrap_or(1500) + OVERHEAD as u32;
    let why = |error| {
        Failure::host(
            format!(
                "cannot make the VXLAN tunnel from {} to {} (modprobe vxlan)",
                cut.local, cut.remote
            ),
            error,
        )
    };
    let namespace = fabric.as_fd().as_raw_fd();
    within(outside, || {
        let mut requests = Netlink::open()?;
        requests.add_vxlan(&Vxlan {
            name: NAME,
            index: INTERFACE,
            namespace,
            network_identifier: cut.run,
            local: cut.local,
            remote: cut.remote,
            port: cut.udp_port,
            mtu,
        })?;
        requests.flush()
    })
    .map_err(why)?;
    let mut requests = Netlink::open().map_err(why)?;
    requests
        .set_silent_up(INTERFACE, None, false)
        .and_then(|()| requests.flush())
        .map_err(why)?;
    Ok(INTERFACE)
}

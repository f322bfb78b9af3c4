//! The namespace of the real switches: the far ends of the interfaces in front of their ports, and the daemons.

use super::{Node, fresh, own_namespace, within};
use crate::kernel::{check, ethtool, netlink};
use crate::switches::{Switch, Switches, YARD};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Mutex;
use timebound_model::NodeId;

/// Tags and labels that a switch may add to a full frame.
pub(crate) const LABELS: u32 = 16;

/// Makes the namespace and the veth pairs of all ports; the near ends appear in the caller's namespace, the fabric's.
///
/// # Errors
/// The first refusal of the kernel.
pub(super) fn make(
    switches: &Switches,
    mtu: u32,
    warnings: &mut std::collections::BTreeSet<String>,
) -> io::Result<Node> {
    let (namespace, said) = std::thread::scope(|scope| {
        scope
            .spawn(|| -> io::Result<(OwnedFd, std::collections::BTreeSet<String>)> {
                // SAFETY: takes one integer; only this helper thread changes namespace.
                check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
                let mut said = std::collections::BTreeSet::new();
                fresh(&mut said);
                Ok((own_namespace()?, said))
            })
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a helper thread panicked")))
    })?;
    warnings.extend(said);
    let mut requests = netlink::Netlink::open()?;
    for port in switches.list.iter().flat_map(|switch| &switch.ports) {
        let [_, _, high, low] = port.interface.to_be_bytes();
        requests.add_veth(&netlink::Veth {
            near_name: &format!("w{}", port.interface),
            near_index: port.interface,
            far_name: &port.name,
            far_index: port.interface,
            far_namespace: namespace.as_raw_fd(),
            far_mac: [0x02, 0x54, 0xff, 0xfe, high, low],
            far_txqueuelen: 1000,
            mtu: mtu + LABELS,
        })?;
    }
    requests.flush()?;
    within(namespace.as_fd(), || configure(&switches.list))?;
    Ok(Node {
        name: YARD.to_owned(),
        id: NodeId(u32::MAX),
        address: Ipv4Addr::LOCALHOST,
        mac: [0; 6],
        interface: 0,
        mtu,
        hostname: "switches".to_owned(),
        env: BTreeMap::new(),
        files: Vec::new(),
        external: true,
        tap: None,
        device: None,
        namespace,
        card: 1,
        room: Mutex::default(),
    })
}

/// Pulls the cable of a real switch's port, or puts it in again.
///
/// # Errors
/// A refusal of the kernel.
pub(crate) fn plug(nodes: &super::Nodes, interface: u32, up: bool) -> io::Result<()> {
    let Some(yard) = &nodes.yard else { return Ok(()) };
    within(yard.namespace(), || {
        let mut requests = netlink::Netlink::open()?;
        if up {
            requests.set_up(interface)?;
        } else {
            requests.set_down(interface)?;
        }
        requests.flush()
    })
}

fn configure(list: &[Switch]) -> io::Result<()> {
    let mut requests = netlink::Netlink::open()?;
    requests.set_up(1)?;
    for port in list.iter().flat_map(|switch| &switch.ports) {
        ethtool::offloads_off(requests.fd(), &port.name)?;
        requests.set_up(port.interface)?;
    }
    requests.flush()
}

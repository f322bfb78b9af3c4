//! Nodes that are no namespaces of ours: virtual machines, and devices behind a real interface.
//!
//! Such a node has its end of the fabric like every other: an interface in the fabric's namespace with the index that the node's
//! near end would have, here a TAP with QEMU behind it or the real card itself. Its frames are stamped where those of
//! other nodes are, when they enter that interface. What happens before (in QEMU, in a card's own queue, interrupt moderation) is not
//! in our hands and counts as the node's own time.

mod interface;
mod keeper;
mod machine;
mod neighbour;
mod tap;
pub(crate) mod tunnel;

pub(crate) use interface::check;
pub(crate) use keeper::Keeper;
pub(crate) use machine::{Machine, probe, program};
pub(crate) use neighbour::Inquiry;

use crate::failure::Failure;
use crate::kernel::{clock, netlink::Netlink};
use crate::nodes::Node;
use crate::plan::{HardwarePlan, Plan};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Index of a card in its node: after `lo` and `eth0`.
const CARD: u32 = 3;

/// Gives every node of `plan` that is a machine or a device its end in the fabric's namespace (the caller's), and moves
/// cards into their nodes. Learns the MAC addresses that were not stated.
///
/// # Errors
/// What the host refuses, or a device that does not answer.
pub(crate) fn attach(
    plan: &Plan,
    list: &mut [Node],
    fabric: BorrowedFd<'_>,
    keeper: Option<&mut Keeper>,
) -> Result<(), Failure> {
    let mut keeper = keeper;
    for (position, host) in plan.hosts.iter().enumerate() {
        let Some(hardware) = &host.hardware else { continue };
        let mut take = |namespace: BorrowedFd<'_>, index: u32| match &mut keeper {
            Some(keeper) => keeper.take(position, namespace, index),
            None => Err(Failure::internal(
                "hardware",
                "nobody can take an interface in this run",
            )),
        };
        match hardware {
            HardwarePlan::Machine(_) => {
                let node = &mut list[position];
                let why = |error| Failure::host(tap::advice(&host.node), error);
                let tap = tap::open(&format!("f{position}"), node.interface).map_err(why)?;
                node.tap = Some(tap);
                raise(node.interface, host.mtu).map_err(why)?;
            }
            HardwarePlan::Device {
                interface, learn_ns, ..
            } => {
                take(fabric, list[position].interface)?;
                interface::listen(&format!("f{position}"), list[position].interface).map_err(|error| {
                    Failure::host(format!("cannot use {interface} of node {:?}", host.node), error)
                })?;
                if host.mac.is_none() {
                    let asking = asking(list, position);
                    list[position].mac = learn(&list[position], asking, *learn_ns).ok_or_else(|| {
                        Failure::Host(format!(
                            "node {:?}: nobody answers ARP for {} on {interface} within {} ms; is the device on and is that \
                             its address? state mac: if it answers nobody",
                            host.node,
                            host.address,
                            learn_ns / 1_000_000
                        ))
                    })?;
                }
            }
            HardwarePlan::Remote => {}
            HardwarePlan::Card { .. } => take(list[position].namespace(), CARD)?,
        }
    }
    Ok(())
}

/// In whose name the model asks `position` for its MAC address: another host, so that the question looks like any other.
fn asking(list: &[Node], position: usize) -> (Ipv4Addr, [u8; 6]) {
    list.iter()
        .enumerate()
        .find(|(other, _)| *other != position)
        .map_or((Ipv4Addr::UNSPECIFIED, [2, 0x54, 0, 0, 0, 0]), |(_, node)| {
            (node.address, node.mac)
        })
}

fn learn(node: &Node, asking: (Ipv4Addr, [u8; 6]), limit: u64) -> Option<[u8; 6]> {
    let mut inquiry = Inquiry::open(node.interface, asking, node.address).ok()?;
    let begun = clock::monotonic();
    loop {
        if let Some(mac) = inquiry.poll() {
            return Some(mac);
        }
        if clock::monotonic() - begun > limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Up, without ARP of the kernel's own.
fn raise(index: u32, mtu: u32) -> std::io::Result<()> {
    let mut requests = Netlink::open()?;
    requests.set_silent_up(index, Some(mtu), false)?;
    requests.flush()
}

/// The machines among `nodes` ask here for whoever may ask in their place.
pub(crate) fn inquire(list: &[Node], position: usize) -> std::io::Result<Inquiry> {
    Inquiry::open(
        list[position].interface,
        asking(list, position),
        list[position].address,
    )
}

/// Lets a descriptor survive `exec` in a child (between fork and exec only).
pub(crate) fn keep(fd: &impl AsRawFd) -> std::io::Result<()> {
    // SAFETY: takes integers.
    crate::kernel::check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) }).map(drop)
}

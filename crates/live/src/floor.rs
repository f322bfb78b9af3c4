//! The least that the kernel takes for nodes: what a bring-up of ours is held against.

use crate::kernel::netlink::{Netlink, Veth};
use crate::kernel::{check, clock};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// linux/sockios.h
const SIOCGSKNS: libc::c_ulong = 0x894c;

/// Namespaces, veth pairs, both ends up, one address each, by the same batches of requests as a run's, and nothing else. The
/// calling thread must be in a network namespace of its own. Returns the namespaces (which go with them) and the time, ns.
///
/// # Errors
/// Of the kernel.
pub fn bare_kernel(nodes: u32) -> io::Result<(Vec<OwnedFd>, u64)> {
    let begun = clock::monotonic();
    let make = move || -> io::Result<Vec<OwnedFd>> {
        (0..nodes)
            .map(|_| {
                // SAFETY: takes one integer; only this helper thread changes namespace.
                check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
                let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
                // SAFETY: returns a new descriptor or -1, owned from here on.
                Ok(unsafe { OwnedFd::from_raw_fd(check(libc::ioctl(socket.as_raw_fd(), SIOCGSKNS))?) })
            })
            .collect()
    };
    let joined = |result: std::thread::Result<io::Result<_>>| {
        result.unwrap_or_else(|_| Err(io::Error::other("a helper thread panicked")))
    };
    let spaces = joined(std::thread::scope(|scope| scope.spawn(make).join()))?;
    let mut requests = Netlink::open()?;
    for (index, space) in spaces.iter().enumerate() {
        let [.., b, c] = (index as u32 + 1).to_be_bytes();
        requests.add_veth(&Veth {
            near_name: &format!("f{index}"),
            near_index: 16 + index as u32,
            far_name: "eth0",
            far_index: 2,
            far_namespace: space.as_raw_fd(),
            far_mac: [2, 0, 0, 0, b, c],
            far_txqueuelen: 1000,
            mtu: 1500,
        })?;
    }
    requests.flush()?;
    let address = || -> io::Result<()> {
        for (index, space) in spaces.iter().enumerate() {
            crate::nodes::enter(space.as_raw_fd())?;
            let mut requests = Netlink::open()?;
            requests.set_up(2)?;
            requests.add_address(2, Ipv4Addr::from(0x0a00_0001 + index as u32), 16)?;
            requests.flush()?;
        }
        Ok(())
    };
    std::thread::scope(|scope| scope.spawn(address).join())
        .unwrap_or_else(|_| Err(io::Error::other("a helper thread panicked")))?;
    Ok((spaces, clock::monotonic() - begun))
}

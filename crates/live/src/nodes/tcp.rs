//! What TCP of a node is told, and what the kernel then says that it has: bounds over TCP rest on it.
//!
//! Congestion control, buffers and what happens after idle time are settings of the node's namespace (`HostPlan::sysctls`). How much a connection
//! may send before the first acknowledgement, and how much a peer may send to it, are metrics of the route to that peer
//! (`HostPlan::windows`); a route of its own for each keeps them from all other traffic.

use crate::kernel::netlink::{Netlink, PeerRoute};
use crate::plan::HostPlan;
use crate::report::Check;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;

/// The settings that are read back.
const PREFIX: &str = "net.ipv4.tcp_";

/// What was read back: setting (or window), value wanted, value found -> nodes.
#[derive(Debug, Default)]
pub(super) struct ReadBack {
    found: BTreeMap<(String, String, String), BTreeSet<String>>,
}

impl ReadBack {
    fn note(&mut self, node: &str, what: String, wanted: String, found: String) {
        let nodes = self.found.entry((what, wanted, found)).or_default();
        nodes.insert(node.to_owned());
    }

    /// Reads the settings of a node; the calling thread is in its namespace.
    pub(super) fn settings(&mut self, host: &HostPlan) -> io::Result<()> {
        for (key, value) in host.sysctls.iter().filter(|(key, _)| key.starts_with(PREFIX)) {
            let found = std::fs::read_to_string(format!("/proc/sys/{}", key.replace('.', "/")))?;
            self.note(&host.node, key.clone(), words(value), words(&found));
        }
        Ok(())
    }

    /// Reads the windows of a node's routes; the calling thread is in its namespace.
    pub(super) fn windows(&mut self, requests: &mut Netlink, host: &HostPlan) -> io::Result<()> {
        if host.windows.is_empty() {
            return Ok(());
        }
        let found: BTreeMap<Ipv4Addr, (u32, u32)> = requests.peer_windows()?;
        for (peer, (send, receive)) in &host.windows {
            let seen = found.get(peer).map_or_else(
                || "no such route".to_owned(),
                |(send, receive)| format!("send {send}, receive {receive}"),
            );
            self.note(
                &host.node,
                "initial windows towards a peer, segments".to_owned(),
                format!("send {send}, receive {receive}"),
                seen,
            );
        }
        Ok(())
    }

    /// A line of the pre-flight check for each setting and value.
    pub(super) fn checks(self) -> Vec<Check> {
        let lines = self
            .found
            .into_iter()
            .map(|((what, wanted, found), nodes)| Check {
                ok: Some(wanted == found),
                check: format!("TCP of {}: {what}", brief(&nodes)),
                expected: wanted,
                measured: found,
            });
        lines.collect()
    }
}

/// The routes to the peers of a node with what they say of windows, for [`Netlink::add_peer_route`].
pub(super) fn routes(card: u32, host: &HostPlan, small: bool) -> impl Iterator<Item = PeerRoute> + '_ {
    host.windows.iter().map(move |(peer, segments)| PeerRoute {
        index: card,
        peer: *peer,
        source: host.address,
        windows: *segments,
        // Headers of IPv4 and TCP without options (RFC 6691), as for the route of the subnet.
        largest_segment: small.then(|| host.mtu.saturating_sub(40)),
    })
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A few names, and how many more.
fn brief(nodes: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = nodes.iter().take(3).map(String::as_str).collect();
    match nodes.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_the_kernel_did_not_take_is_a_failed_check() {
        let mut read = ReadBack::default();
        for node in ["a", "b", "c", "d"] {
            let found = if node == "d" { "bbr" } else { "cubic" };
            read.note(
                node,
                "net.ipv4.tcp_congestion_control".into(),
                "cubic".into(),
                found.into(),
            );
        }
        let checks = read.checks();
        let seen: Vec<(&str, bool)> = checks
            .iter()
            .map(|c| (c.check.as_str(), c.ok == Some(true)))
            .collect();
        assert_eq!(
            seen,
            [
                ("TCP of d: net.ipv4.tcp_congestion_control", false),
                ("TCP of a, b, c: net.ipv4.tcp_congestion_control", true),
            ]
        );
    }
}

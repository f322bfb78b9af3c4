//! Hosts make themselves known to real switches before anything is measured, as those of a network in operation have long done.
//!
//! Hosts ask for addresses and are answered by the emulated network, so a switch, and the controller behind it, would hear of a host by its first frame
//! of data: of one that only ever sends datagrams in the middle of the run. So a request (RFC 826) enters the switches in the name of every host.

use super::{Station, Switches};
use crate::kernel::send::Sender;
use crate::nodes::within;
use crate::plane::Departures;
use std::io;
use std::os::fd::BorrowedFd;
use timebound_fabric::l2::arp;
use timebound_model::{Network, NodeId, PortId};

/// How often each host speaks: a switch that has found its controller may still have no rules, and drop what it gets.
const ROUNDS: usize = 3;
/// From the beginning of one round to that of the next, and from the last one to the end, at least.
const INTERVAL: u64 = 200_000_000;
/// Frames at a time, once per tick of 10 ms: controllers limit what switches may hand to them.
const AT_A_TIME: usize = 2;

/// What enters the switches, and how far that is.
pub(crate) struct Presence {
    sender: Sender,
    /// Interface in the fabric's namespace, and what a switch receives from there.
    frames: Vec<(u32, [u8; 60])>,
    next: usize,
    round: usize,
    round_begun: Option<u64>,
}

impl Presence {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// When the host refuses a socket.
    pub(crate) fn open(
        fabric: BorrowedFd<'_>,
        network: &Network,
        switches: &Switches,
        stations: &[Station],
    ) -> io::Result<Self> {
        Ok(Self {
            sender: within(fabric, Sender::open)?,
            frames: frames(network, switches, stations),
            next: 0,
            round: 0,
            round_begun: None,
        })
    }

    /// Sends what is due; have all hosts spoken often enough? `now` in ns of any steady clock.
    pub(crate) fn turn(&mut self, now: u64) -> bool {
        if self.round == ROUNDS {
            return self.round_begun.is_none_or(|begun| now >= begun + INTERVAL);
        }
        if self.next == 0 {
            if self.round_begun.is_some_and(|begun| now < begun + INTERVAL) {
                return false;
            }
            self.round_begun = Some(now);
        }
        let end = (self.next + AT_A_TIME).min(self.frames.len());
        for (interface, frame) in &self.frames[self.next..end] {
            // SAFETY: the frames stay where they are until the flush below.
            unsafe { self.sender.push(*interface, frame) };
        }
        // What the kernel refuses is sent again in the next round.
        self.sender.flush();
        self.next = end;
        if end == self.frames.len() {
            self.next = 0;
            self.round += 1;
        }
        false
    }
}

/// Each host at each real switch that its frames reach first. All ask for one other host, which is known after the first round: a controller
/// answers in its name and need not ask everybody for everybody.
fn frames(network: &Network, switches: &Switches, stations: &[Station]) -> Vec<(u32, [u8; 60])> {
    let [first, second, ..] = stations else {
        return Vec::new();
    };
    let nodes = switches.nodes();
    let mut found = Vec::new();
    for station in stations {
        let asked = if station == first { second } else { first };
        let frame = arp::ask(station.mac, station.address, asked.address);
        for switch in &switches.list {
            let port = network.routes.next_hop(switch.node, station.node);
            let port = port.filter(|port| is_behind(network, &nodes, *port, station.node));
            let place = switch.ports.iter().find(|place| Some(place.port) == port);
            found.extend(place.map(|place| (place.interface, frame)));
        }
    }
    found
}

/// Is there no real switch between this port and the host?
fn is_behind(network: &Network, switches: &[NodeId], port: PortId, host: NodeId) -> bool {
    let neighbour = network.ports[port.index()].peer;
    let path = network.routes.path(&network.ports, neighbour, host);
    path.is_some_and(|path| {
        (path.iter().map(|port| network.ports[port.index()].node)).all(|node| !switches.contains(&node))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;
    use timebound_model::compile;

    fn stations(network: &Network) -> Vec<Station> {
        (1..=3u8)
            .map(|number| Station {
                node: network.node(&format!("h{number}")).unwrap(),
                address: [10, 0, 0, number].into(),
                mac: [2, 0, 0, 0, 0, number],
            })
            .collect()
    }

    /// (interface, last byte of the sender's address, last byte of the target's) of each frame.
    fn said(nodes: &[&str]) -> Vec<(u32, u8, u8)> {
        let mut plan = plan();
        plan.switches.as_mut().unwrap().nodes = nodes.iter().map(|&name| name.to_owned()).collect();
        let network = compile(&plan.network).unwrap();
        let switches = Switches::of(&plan, &network).unwrap().unwrap();
        let read = |(interface, frame): (u32, [u8; 60])| {
            let request = arp::parse(&frame).unwrap();
            (interface, request.sender.octets()[3], request.target.octets()[3])
        };
        frames(&network, &switches, &stations(&network))
            .into_iter()
            .map(read)
            .collect()
    }

    #[test]
    fn every_host_speaks_where_it_is_and_nowhere_else() {
        // Interfaces from 19 on: s1 to h1, h2 and twice to the other; there twice to s1 and to h3.
        assert_eq!(
            said(&["s1", "a-long-switch-2"]),
            [(19, 1, 2), (20, 2, 1), (25, 3, 1)]
        );
    }

    #[test]
    fn a_host_behind_a_switch_of_ours_is_heard_by_the_real_one() {
        assert_eq!(said(&["s1"]), [(19, 1, 2), (20, 2, 1), (21, 3, 1)]);
    }
}

//! Switches of the network that are bridges of one real Open vSwitch, in a namespace of its own behind the fabric's.
//!
//! `rules` works out what they forward, without I/O; `ovs` runs and configures the daemons; `presence` lets hosts be known to a controller before
//! the run; `plane::switches` moves the frames.
//!
//! | what | name or number |
//! |---|---|
//! | bridge | that of the node |
//! | datapath id | 1, 2, ... in the order of the plan |
//! | port and interface | `s1-s4` at s1 towards s4, `s1-s4.1` of a second link between them; `PORT.s1` where that is longer than 15 characters |
//! | OpenFlow port | 1, 2, ... in the order in which the network declares the switch's links |
//!
//! `switches.json` in the run folder says all of this of the run.

mod carrier;
mod ovs;
mod presence;
mod rules;

pub(crate) use carrier::{Carrier, carriers};
pub(crate) use ovs::{DAEMONS, Ovs, PRIORITY, daemons, environment};
pub(crate) use presence::Presence;
pub(crate) use rules::{Station, rules};

use crate::failure::Failure;
use crate::nodes::FIRST_INTERFACE;
use crate::plan::Plan;
use serde::Serialize;
use std::collections::BTreeSet;
use timebound_fabric::transit::MOST_SWITCH_PORTS;
use timebound_model::{Network, NodeId, NodeKind, PortId};

/// Where the daemons run, and whatever else the plan gives this as its node. No node of a network can have the name.
pub(crate) const YARD: &str = crate::plan::SWITCHES;
/// IFNAMSIZ without the end.
const LONGEST_NAME: usize = 15;

/// A port of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SwitchPort {
    /// Index of the egress port in the network.
    #[serde(skip)]
    pub(crate) port: PortId,
    pub(crate) name: String,
    /// OpenFlow port.
    pub(crate) number: u32,
    /// The node at the other end of the link.
    pub(crate) neighbour: String,
    /// Index of the interface in front of it, in the fabric's namespace.
    #[serde(skip)]
    pub(crate) interface: u32,
}

/// A switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Switch {
    #[serde(skip)]
    pub(crate) node: NodeId,
    pub(crate) name: String,
    pub(crate) datapath_id: String,
    pub(crate) ports: Vec<SwitchPort>,
}

/// All real switches of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Switches {
    #[serde(rename = "switches")]
    pub(crate) list: Vec<Switch>,
    /// `tcp:127.0.0.1:6653`; none: static rules.
    pub(crate) controller: Option<String>,
}

impl Switches {
    /// Those of a plan, `None` where it has none.
    ///
    /// # Errors
    /// What the plan asks for and cannot be.
    pub(crate) fn of(plan: &Plan, network: &Network) -> Result<Option<Self>, Failure> {
        let Some(wanted) = &plan.switches else {
            return Ok(None);
        };
        if plan.cut.is_some() {
            return Err(Failure::internal(
                "plan: switches",
                "real switches are not possible in a run on two machines",
            ));
        }
        let mut names = BTreeSet::new();
        let mut list: Vec<Switch> = Vec::with_capacity(wanted.nodes.len());
        let mut interface = FIRST_INTERFACE + plan.hosts.len() as u32;
        for name in &wanted.nodes {
            let bad = |why: &str| Failure::internal(format!("plan: switch {name:?}"), why);
            let node = network.node(name).ok_or_else(|| bad("no such node"))?;
            let declared = &network.nodes[node.index()];
            if declared.kind != NodeKind::Switch {
                return Err(bad("is no switch"));
            }
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            if name.len() > LONGEST_NAME || !name.chars().all(is_plain) || !names.insert(name.clone()) {
                return Err(bad(
                    "a bridge's name has at most 15 letters, digits, '-' and '_', and is unique",
                ));
            }
            if declared.ports.len() > MOST_SWITCH_PORTS {
                return Err(bad("has more than 256 links"));
            }
            let mut ports = Vec::with_capacity(declared.ports.len());
            for (index, port) in declared.ports.iter().enumerate() {
                ports.push(SwitchPort {
                    port: *port,
                    name: String::new(),
                    number: index as u32 + 1,
                    neighbour: network.nodes[network.ports[port.index()].peer.index()]
                        .name
                        .clone(),
                    interface,
                });
                interface += 1;
            }
            list.push(Switch {
                node,
                name: name.clone(),
                datapath_id: format!("{:016x}", list.len() + 1),
                ports,
            });
        }
        for switch in &mut list {
            name_ports(switch, &mut names);
        }
        Ok(Some(Self {
            list,
            controller: wanted.controller.clone(),
        }))
    }

    /// The nodes that they are.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.list.iter().map(|switch| switch.node).collect()
    }
}

/// Names of interfaces are unique in the namespace, bridges' own included.
fn name_ports(switch: &mut Switch, names: &mut BTreeSet<String>) {
    for index in 0..switch.ports.len() {
        let neighbour = &switch.ports[index].neighbour;
        let twins = switch.ports[..index]
            .iter()
            .filter(|port| port.neighbour == *neighbour)
            .count();
        let mut name = format!("{}-{neighbour}", switch.name);
        if twins > 0 {
            name.push_str(&format!(".{twins}"));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.len() > LONGEST_NAME || !name.chars().all(is_plain) || names.contains(&name) {
            name = format!("{}.{}", switch.ports[index].number, switch.name);
            name.truncate(LONGEST_NAME);
            if names.contains(&name) {
                name = format!("p{}", switch.ports[index].port.0);
            }
        }
        names.insert(name.clone());
        switch.ports[index].name = name;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// h1, h2 at s1; s1 twice to a-long-switch-2; h3 there.
    pub(crate) fn plan() -> Plan {
        let direction =
            r#"{"rate_bps": 10000000, "queue": {"kind": "strict-priority"}, "buffer_bytes": 100000}"#;
        let link = |a: &str, b: &str| {
            format!(r#"{{"a": "{a}", "b": "{b}", "forward": {direction}, "backward": {direction}}}"#)
        };
        let far = "a-long-switch-2";
        let links = [("h1", "s1"), ("h2", "s1"), ("s1", far), ("s1", far), (far, "h3")]
            .map(|(a, b)| link(a, b))
            .join(",");
        let host = |name: &str, address: &str| {
            format!(r#"{{"node": "{name}", "address": "{address}", "prefix": 16}}"#)
        };
        let hosts = [
            host("h1", "10.0.0.1"),
            host("h2", "10.0.0.2"),
            host("h3", "10.0.0.3"),
        ]
        .join(",");
        let text = format!(
            r#"{{"schema": 1, "run_id": "r1", "folder": "/tmp/r1", "seed": 1, "duration_ns": 1000000000,
            "network": {{"nodes": [{{"name": "h1", "kind": "host"}}, {{"name": "h2", "kind": "host"}}, {{"name": "h3", "kind": "host"}},
                {{"name": "s1", "kind": "switch"}}, {{"name": "{far}", "kind": "switch"}}], "links": [{links}], "streams": [
                {{"name": "group", "source": "h1", "destinations": ["h2", "h3"], "class": 5, "role": "data",
                  "arrival": {{"kind": "unbounded", "max_frame_bytes": 200}}, "release": {{"kind": "silent"}}}},
                {{"name": "detour", "source": "h1", "destinations": ["h3"], "class": 5, "role": "data",
                  "arrival": {{"kind": "unbounded", "max_frame_bytes": 200}}, "release": {{"kind": "silent"}}}}]}},
            "hosts": [{hosts}],
            "markers": [
              {{"source": "10.0.0.1", "destination": "239.1.1.1", "protocol": "udp", "destination_port": 7000, "data": "group"}},
              {{"source": "10.0.0.1", "destination": "10.0.0.3", "protocol": "tcp", "source_port": 30000, "destination_port": 1883,
                "data": "detour"}}],
            "switches": {{"nodes": ["s1", "{far}"]}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn names_and_numbers_are_those_of_the_documentation() {
        let plan = plan();
        let network = timebound_model::compile(&plan.network).unwrap();
        let found = Switches::of(&plan, &network).unwrap().unwrap();
        let names = |index: usize| -> Vec<&str> {
            let switch = &found.list[index];
            switch.ports.iter().map(|port| port.name.as_str()).collect()
        };
        assert_eq!(names(0), ["s1-h1", "s1-h2", "3.s1", "4.s1"]);
        assert_eq!(
            names(1),
            ["1.a-long-switch", "2.a-long-switch", "3.a-long-switch"]
        );
        assert_eq!(found.list[1].datapath_id, "0000000000000002");
        let numbers: Vec<_> = found.list[0]
            .ports
            .iter()
            .map(|port| (port.number, port.interface))
            .collect();
        assert_eq!(numbers, [(1, 19), (2, 20), (3, 21), (4, 22)]);
        assert_eq!(found.list[1].ports[0].interface, 23);
    }

    #[test]
    fn what_cannot_be_a_bridge_is_refused() {
        let network = |plan: &Plan| timebound_model::compile(&plan.network).unwrap();
        for (node, why) in [("h1", "no switch"), ("s9", "no such node"), ("s1", "unique")] {
            let mut plan = plan();
            plan.switches.as_mut().unwrap().nodes.push(node.to_owned());
            let said = Switches::of(&plan, &network(&plan)).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
        let mut none = plan();
        none.switches = None;
        assert!(Switches::of(&none, &network(&none)).unwrap().is_none());
    }
}

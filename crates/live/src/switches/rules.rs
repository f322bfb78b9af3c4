//! What real switches forward where no controller tells them: the compiled routes and trees as OpenFlow 1.3 rules and groups. Pure.
//!
//! | priority | matches | sends |
//! |---|---|---|
//! | 200 | input port and 5-tuple of a declared stream that goes another way than its receiver's own, or to several | along its tree |
//! | 190 | the same with a port that may be any | |
//! | 180 | fragments of these, which show no ports | |
//! | 100 | a host's MAC address | along the shortest path |
//! | 10 | group addresses | along the spanning tree |

use super::{Switch, Switches};
use crate::failure::Failure;
use crate::plan::{MarkerPlan, Protocol};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use timebound_fabric::spanning_tree;
use timebound_model::{Network, NodeId, PortId, StreamId};

/// A host as switches see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Station {
    pub(crate) node: NodeId,
    pub(crate) address: Ipv4Addr,
    pub(crate) mac: [u8; 6],
}

/// Of one switch, in the syntax of ovs-ofctl(8).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) groups: Vec<String>,
    pub(crate) flows: Vec<String>,
}

/// By input port: the ports out (OpenFlow numbers, ascending).
type Ways = BTreeMap<u32, BTreeSet<u32>>;

/// The rules of each switch, in their order.
///
/// # Errors
/// Two streams of one 5-tuple that go different ways: a switch cannot tell acknowledgements from data.
pub(crate) fn rules(
    network: &Network,
    switches: &Switches,
    stations: &[Station],
    markers: &[MarkerPlan],
) -> Result<Vec<Rules>, Failure> {
    let spanning = spanning_tree(network);
    let on_tree = |switch: &Switch| -> BTreeSet<u32> {
        let ports = &spanning[switch.node.index()];
        numbers(switch, ports.iter().map(|port| PortId(*port)))
    };
    switches
        .list
        .iter()
        .map(|switch| {
            let mut writer = Writer::default();
            let mut fragments = BTreeSet::new();
            for marker in markers {
                let ways = ways(network, switch, marker)?;
                let own = next_hop(network, switch, stations, marker.destination);
                for (input, out) in ways.iter().filter(|(_, out)| Some(*out) != own.as_ref()) {
                    let exact = marker.source_port.is_some() && marker.destination_port.is_some();
                    let priority = if exact { 200 } else { 190 };
                    writer.flow(priority, &tuple(*input, marker), out);
                    let pieces = addresses(*input, marker);
                    if fragments.insert(pieces.clone()) {
                        writer.flow(180, &format!("{pieces},ip_frag=yes"), out);
                    }
                }
            }
            for station in stations {
                if let Some(port) = network.routes.next_hop(switch.node, station.node) {
                    let [a, b, c, d, e, f] = station.mac;
                    let card = format!("dl_dst={a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
                    writer.flow(100, &card, &numbers(switch, [port]));
                }
            }
            // What comes in by a port does not go out there again (OpenFlow 1.3.5, section 4.5).
            let group_bit = "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00";
            writer.flow_to_each(10, group_bit, &on_tree(switch));
            Ok(writer.rules)
        })
        .collect()
}

/// How the streams of a marker pass a switch.
fn ways(network: &Network, switch: &Switch, marker: &MarkerPlan) -> Result<Ways, Failure> {
    let mut found = Ways::new();
    for name in marker.data.iter().chain(&marker.ack) {
        let Some(stream) = network.stream(name) else {
            continue;
        };
        for (input, out) in passes(network, switch, stream) {
            if let Some(other) = found.insert(input, out.clone())
                && other != out
            {
                return Err(Failure::Host(format!(
                    "the streams of {} -> {} go different ways at the real switch {:?}, which cannot tell data from acknowledgements: give \
                     them one way, or take the fabric's own switch",
                    marker.source, marker.destination, switch.name
                )));
            }
        }
    }
    Ok(found)
}

fn passes(network: &Network, switch: &Switch, stream: StreamId) -> Ways {
    let tree = &network.streams[stream.index()].tree;
    let mut found = Ways::new();
    for (index, hop) in (0u32..).zip(&tree.hops) {
        let port = &network.ports[hop.port.index()];
        if port.peer != switch.node {
            continue;
        }
        let children = tree.children(Some(index));
        let out = numbers(switch, children.map(|child| tree.hops[child as usize].port));
        let inputs = numbers(switch, [port.reverse]);
        found.extend(inputs.into_iter().map(|input| (input, out.clone())));
    }
    found
}

/// OpenFlow numbers of ports of a switch.
fn numbers(switch: &Switch, ports: impl IntoIterator<Item = PortId>) -> BTreeSet<u32> {
    let number = |port: PortId| {
        let found = switch.ports.iter().find(|candidate| candidate.port == port);
        found.map(|found| found.number)
    };
    ports.into_iter().filter_map(number).collect()
}

/// Where the rule for the receiver's own address leads; `None` for a group.
fn next_hop(
    network: &Network,
    switch: &Switch,
    stations: &[Station],
    destination: Ipv4Addr,
) -> Option<BTreeSet<u32>> {
    let station = stations.iter().find(|station| station.address == destination)?;
    let port = network.routes.next_hop(switch.node, station.node)?;
    Some(numbers(switch, [port]))
}

fn addresses(input: u32, marker: &MarkerPlan) -> String {
    let protocol = match marker.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Icmp => "icmp",
    };
    format!(
        "in_port={input},{protocol},nw_src={},nw_dst={}",
        marker.source, marker.destination
    )
}

fn tuple(input: u32, marker: &MarkerPlan) -> String {
    let mut text = addresses(input, marker);
    if marker.protocol != Protocol::Icmp {
        let ports = [
            ("tp_src", marker.source_port),
            ("tp_dst", marker.destination_port),
        ];
        for (field, port) in ports {
            if let Some(port) = port {
                text.push_str(&format!(",{field}={port}"));
            }
        }
    }
    text
}

#[derive(Default)]
struct Writer {
    rules: Rules,
    groups: BTreeMap<BTreeSet<u32>, usize>,
}

impl Writer {
    fn flow(&mut self, priority: u32, matched: &str, out: &BTreeSet<u32>) {
        let action = match out.len() {
            0 => "drop".to_owned(),
            1 => ports(out),
            _ => format!("group:{}", self.group(out)),
        };
        let flow = format!("priority={priority},{matched},actions={action}");
        self.rules.flows.push(flow);
    }

    fn flow_to_each(&mut self, priority: u32, matched: &str, out: &BTreeSet<u32>) {
        let action = if out.is_empty() {
            "drop".to_owned()
        } else {
            ports(out)
        };
        let flow = format!("priority={priority},{matched},actions={action}");
        self.rules.flows.push(flow);
    }

    /// The number of the group that copies to these ports.
    fn group(&mut self, out: &BTreeSet<u32>) -> usize {
        let next = self.groups.len() + 1;
        let number = *self.groups.entry(out.clone()).or_insert(next);
        if number == next {
            let buckets: String = out.iter().map(|port| format!(",bucket=output:{port}")).collect();
            self.rules
                .groups
                .push(format!("group_id={number},type=all{buckets}"));
        }
        number
    }
}

fn ports(out: &BTreeSet<u32>) -> String {
    let list: Vec<String> = out.iter().map(|port| format!("output:{port}")).collect();
    list.join(",")
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;

    fn stations(network: &Network) -> Vec<Station> {
        let station = |number: u8| Station {
            node: network.node(&format!("h{number}")).unwrap(),
            address: Ipv4Addr::new(10, 0, 0, number),
            mac: [2, 0x54, 10, 0, 0, number],
        };
        (1..=3).map(station).collect()
    }

    #[test]
    fn trees_become_groups_and_only_what_differs_from_the_shortest_path_has_a_rule() {
        let mut plan = plan();
        // The second of the parallel links is never on a shortest path.
        plan.network.streams[1].route = None;
        let network = timebound_model::compile(&plan.network).unwrap();
        let switches = Switches::of(&plan, &network).unwrap().unwrap();
        let found = rules(&network, &switches, &stations(&network), &plan.markers).unwrap();
        assert_eq!(
            found[0].groups,
            ["group_id=1,type=all,bucket=output:2,bucket=output:3"]
        );
        assert_eq!(
            found[0].flows,
            [
                "priority=190,in_port=1,udp,nw_src=10.0.0.1,nw_dst=239.1.1.1,tp_dst=7000,actions=group:1",
                "priority=180,in_port=1,udp,nw_src=10.0.0.1,nw_dst=239.1.1.1,ip_frag=yes,actions=group:1",
                "priority=100,dl_dst=02:54:0a:00:00:01,actions=output:1",
                "priority=100,dl_dst=02:54:0a:00:00:02,actions=output:2",
                "priority=100,dl_dst=02:54:0a:00:00:03,actions=output:3",
                "priority=10,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=output:1,output:2,output:3",
            ]
        );
        assert!(found[1].groups.is_empty());
        assert_eq!(
            found[1].flows[0],
            "priority=190,in_port=1,udp,nw_src=10.0.0.1,nw_dst=239.1.1.1,tp_dst=7000,actions=output:3"
        );
    }

    #[test]
    fn streams_of_one_connection_that_part_cannot_be_told_apart() {
        let mut plan = plan();
        plan.markers[1].ack = Some("group".to_owned());
        let network = timebound_model::compile(&plan.network).unwrap();
        let switches = Switches::of(&plan, &network).unwrap().unwrap();
        let said = rules(&network, &switches, &stations(&network), &plan.markers).unwrap_err();
        assert!(
            said.to_string()
                .contains("cannot tell data from acknowledgements"),
            "{said}"
        );
    }
}

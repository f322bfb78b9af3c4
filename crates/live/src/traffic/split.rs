//! One endpoints' plan as one for each node.

use super::child::Parsed;

/// What one process gets.
pub(super) struct Part {
    /// None: background traffic, whose two ends are opened by one process.
    pub(super) node: Option<String>,
    pub(super) plan: Parsed,
}

#[cfg(not(feature = "endpoints"))]
pub(super) fn by_node(_plan: Parsed) -> Vec<Part> {
    Vec::new()
}

/// Each node's clients, senders and receivers as a plan of its own, in the order of their first mention; background traffic as one
/// more.
///
/// Clients keep their places in the one row in which all connect (subscribers first), so that many processes storm the network no
/// more than one would. A process of one node neither spins nor asks for SCHED_FIFO: its CPU time is to be that of a program.
#[cfg(feature = "endpoints")]
pub(super) fn by_node(plan: Parsed) -> Vec<Part> {
    use std::collections::BTreeMap;
    use timebound_endpoints::EndpointPlan;

    let Parsed {
        clients,
        udp,
        udp_receivers,
        background,
        ..
    } = plan;
    let blank = EndpointPlan {
        clients: Vec::new(),
        udp: Vec::new(),
        udp_receivers: Vec::new(),
        background: Vec::new(),
        spin_ns: 0,
        fifo_priority: None,
        housekeeping_ns: HOUSEKEEPING_NS,
        ..plan
    };
    let mut parts: Vec<Part> = Vec::new();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut of = |node: &str| -> usize {
        *numbers.entry(node.to_owned()).or_insert_with(|| {
            parts.push(Part {
                node: Some(node.to_owned()),
                plan: blank.clone(),
            });
            parts.len() - 1
        })
    };
    let places: Vec<usize> = clients.iter().map(|client| of(&client.node)).collect();
    let senders: Vec<usize> = udp.iter().map(|flow| of(&flow.node)).collect();
    let receivers: Vec<usize> = udp_receivers.iter().map(|receiver| of(&receiver.node)).collect();
    let subscribers = clients
        .iter()
        .filter(|client| client.role.subscription().is_some())
        .count() as u64;
    let (mut first, mut second) = (0, subscribers);
    for (mut client, place) in clients.into_iter().zip(places) {
        let row = if client.role.subscription().is_some() {
            &mut first
        } else {
            &mut second
        };
        client.connect_delay_ns = client.connect_delay_ns.or(Some(*row * blank.connect_gap_ns));
        *row += 1;
        parts[place].plan.clients.push(client);
    }
    for (flow, place) in udp.into_iter().zip(senders) {
        parts[place].plan.udp.push(flow);
    }
    for (receiver, place) in udp_receivers.into_iter().zip(receivers) {
        parts[place].plan.udp_receivers.push(receiver);
    }
    if !background.is_empty() {
        parts.push(Part {
            node: None,
            plan: EndpointPlan { background, ..blank },
        });
    }
    parts
}

/// Hundreds of processes wake this often, each for nothing most of the time.
#[cfg(feature = "endpoints")]
const HOUSEKEEPING_NS: u64 = 1_000_000_000;

#[cfg(all(test, feature = "endpoints"))]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_node_gets_its_own_and_connections_keep_their_places_in_one_row() {
        let client = |name: &str, node: &str, role: serde_json::Value| json!({"name": name, "node": node, "client_id": name, "broker": "10.0.0.9", "role": role});
        let publish = |flow: u32| {
            json!({"kind": "publish", "topic": "t", "flow": flow, "payload_bytes": 24,
                "release": {"pattern": {"kind": "periodic", "period_ns": 5}}})
        };
        let subscribe = json!({"kind": "subscribe", "filter": "t", "flow": 0, "receiver": 1});
        let plan = serde_json::from_value(json!({
            "duration_ns": 1, "connect_gap_ns": 10, "spin_ns": 7, "fifo_priority": 5,
            "clients": [client("a", "h1", publish(0)), client("b", "h2", publish(1)), client("c", "h1", subscribe)],
            "background": [{"name": "x", "source": "h1", "destination": "h2", "destination_address": "10.0.0.2", "port": 9,
                "traffic": {"kind": "tcp-bulk"}}]}));
        let parts = by_node(plan.unwrap());
        let nodes: Vec<_> = parts.iter().map(|part| part.node.as_deref()).collect();
        assert_eq!(nodes, [Some("h1"), Some("h2"), None]);
        let rows = |part: &Part| -> Vec<(String, Option<u64>)> {
            let clients = part.plan.clients.iter();
            clients
                .map(|client| (client.name.clone(), client.connect_delay_ns))
                .collect()
        };
        assert_eq!(
            rows(&parts[0]),
            [("a".to_owned(), Some(10)), ("c".to_owned(), Some(0))]
        );
        assert_eq!(rows(&parts[1]), [("b".to_owned(), Some(20))]);
        assert_eq!((parts[0].plan.spin_ns, parts[0].plan.fifo_priority), (0, None));
        assert!(parts[2].plan.clients.is_empty() && parts[2].plan.background.len() == 1);
        assert!(parts[..2].iter().all(|part| part.plan.background.is_empty()));
    }
}

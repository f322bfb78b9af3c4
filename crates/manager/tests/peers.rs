//! Messages between managers of several networks, each with a real broker, over a network that loses datagrams.

mod common;

use common::clients::{Mosquitto, Subscriber, publish_all};
use common::*;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use timebound_manager::{Loss, Manager};

const GROUP: &str = "239.192.1.7";

/// Managers `m1`, `m2`, ... at 127.1.TEST.1, 127.1.TEST.2, ... with one peer port.
struct Site {
    test: u8,
    port: u16,
}

impl Site {
    fn new(test: u8) -> Self {
        // All addresses of the site have to have it free.
        let port = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        Self { test, port }
    }

    fn address(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, 1, self.test, number)
    }

    fn start(&self, number: u8, broker: u16, state: Option<&Path>, loss: Option<Loss>) -> Manager {
        let config = json!({
            "name": format!("m{number}"),
            "listeners": [{"address": "127.0.0.1", "port": 0, "kind": "tcp"}],
            "broker": {"address": "127.0.0.1", "port": broker},
            "threads": 2,
            "network": format!("N{number}"),
            "peer": {"address": self.address(number), "port": self.port, "state": state, "silence_ms": 8_000},
        });
        let config = serde_json::from_value(config).unwrap();
        match loss {
            Some(loss) => Manager::start_with_loss(&config, loss).unwrap(),
            None => Manager::start(&config).unwrap(),
        }
    }

    fn peer(&self, number: u8) -> Value {
        json!({"name": format!("m{number}"), "address": self.address(number), "port": self.port})
    }

    /// `m1` sends to the others.
    fn first(&self, manager: &Manager, members: &[u8]) {
        let names: Vec<String> = members.iter().map(|number| format!("m{number}")).collect();
        let peers: Vec<Value> = members.iter().map(|number| self.peer(*number)).collect();
        let send = json!({"id": "g1", "topic": "plant/#", "priority": 5, "address": GROUP, "members": names});
        let groups = json!({"peers": peers, "sends": [send], "receives": []});
        manager.groups(serde_json::from_value(groups).unwrap()).unwrap();
    }

    fn other(&self, manager: &Manager) {
        let receive =
            json!({"id": "g1", "origin": "m1", "topic": "plant/#", "priority": 5, "address": GROUP});
        let groups = json!({"peers": [self.peer(1)], "sends": [], "receives": [receive]});
        manager.groups(serde_json::from_value(groups).unwrap()).unwrap();
    }
}

/// Every tenth datagram, at random by a fixed seed.
fn tenth(seed: u64) -> Loss {
    let state = AtomicU64::new(seed);
    Arc::new(move |_| {
        let next = |state: u64| state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let before = state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(next(state)));
        (before.unwrap() >> 33).is_multiple_of(10)
    })
}

/// The group is open and everybody is in it.
fn joined(manager: &Manager) {
    loop {
        let told = event(manager, "group");
        if told["state"] == "open" && told["missing"] == json!([]) && told["lost"] == json!([]) {
            return;
        }
    }
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

#[test]
fn with_a_tenth_of_all_datagrams_lost_each_quality_is_kept() {
    let brokers: Vec<Mosquitto> = (0..3).map_while(|_| Mosquitto::start("")).collect();
    let [a, b, c] = &brokers[..] else { return };
    let site = Site::new(1);
    let managers: Vec<Manager> = [a, b, c]
        .iter()
        .enumerate()
        .map(|(at, broker)| site.start(at as u8 + 1, broker.port, None, Some(tenth(at as u64 + 7))))
        .collect();
    site.first(&managers[0], &[2, 3]);
    site.other(&managers[1]);
    site.other(&managers[2]);
    joined(&managers[0]);
    let port = managers[0].addresses()[0].port();
    for qos in [1, 2, 0] {
        let topic = format!("plant/{qos}");
        let subscribers: Vec<Subscriber> = [a, b, c]
            .iter()
            .map(|broker| Subscriber::start(broker.port, &format!("s{qos}"), &topic, qos))
            .collect();
        let done = AtomicUsize::new(0);
        publish_all(&|| port, &format!("p{qos}"), &topic, qos, 1_000, &done);
        let all = numbers(1_000);
        soon("the own network has all", || {
            subscribers[0].found().len() >= 1_000
        });
        assert_eq!(subscribers[0].found(), all, "QoS {qos}");
        for remote in &subscribers[1..] {
            if qos > 0 {
                soon("another network has all", || remote.found().len() >= 1_000);
                assert_eq!(remote.found(), all, "QoS {qos}");
            } else {
                soon("another network has most", || remote.found().len() >= 800);
                let mut rest = all.iter();
                let found = remote.found();
                assert!(
                    found.iter().all(|one| rest.any(|other| other == one)),
                    "{found:?}"
                );
            }
        }
    }
    let (sent, received) = (managers[0].stats().peers, managers[1].stats().peers);
    assert_eq!((sent.sent, sent.undelivered, sent.members_lost), (3_000, 0, 0));
    assert!(sent.datagrams_again > 200, "{sent:?}");
    assert!(
        received.injected > 2_800 && received.datagrams_missed > 0,
        "{received:?}"
    );
}

//! Messages between managers of several networks, each with a real broker, over a network that loses datagrams.

mod common;

use common::authority;
use common::clients::{Mosquitto, Subscriber, publish_all};
use common::*;
use serde_json::{Value, json};
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use timebound_manager::{Loss, Manager, StartError};

const GROUP: &str = "239.192.1.7";

/// Managers `m1`, `m2`, ... at 127.1.TEST.1, 127.1.TEST.2, ... with one peer port.
struct Site {
    test: u8,
    port: u16,
    /// Of the managers, who have TLS between them.
    authority: Option<authority::Site>,
}

impl Site {
    fn new(test: u8) -> Self {
        // All addresses of the site have to have it free.
        let port = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        Self {
            test,
            port,
            authority: None,
        }
    }

    /// With TLS between managers.
    fn secured(test: u8) -> Self {
        let mut site = Self::new(test);
        let authority = authority::Site::new(&format!("peers-{test}"));
        for number in 1..=3 {
            let address = site.address(number).to_string();
            authority.issue(&format!("m{number}"), "a manager", &[&address]);
        }
        site.authority = Some(authority);
        site
    }

    fn tls(&self, number: u8) -> Value {
        self.authority.as_ref().map_or(Value::Null, |authority| {
            json!({"certificate": authority.path(&format!("m{number}.pem")), "key": authority.path(&format!("m{number}.key")),
                "authority": authority.path("authority.pem")})
        })
    }

    fn address(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, 1, self.test, number)
    }

    fn config(&self, number: u8, broker: u16, state: Option<&Path>) -> timebound_manager::contract::Config {
        let config = json!({
            "name": format!("m{number}"),
            "listeners": [{"address": "127.0.0.1", "port": 0, "kind": "tcp"}],
            "broker": {"address": "127.0.0.1", "port": broker},
            "threads": 2,
            "network": format!("N{number}"),
            "peer": {"address": self.address(number), "port": self.port, "state": state, "silence_ms": 8_000,
                "tls": self.tls(number)},
        });
        serde_json::from_value(config).unwrap()
    }

    fn start(&self, number: u8, broker: u16, state: Option<&Path>, loss: Option<Loss>) -> Manager {
        let config = self.config(number, broker, state);
        let start = || match &loss {
            Some(loss) => Manager::start_with_loss(&config, Arc::clone(loss)),
            None => Manager::start(&config),
        };
        // Sockets of one that was there before are closed here, but a broker that another test starts at this moment may have them until its exec.
        let begun = Instant::now();
        loop {
            match start() {
                Err(StartError::Listen { source, .. })
                    if source.kind() == std::io::ErrorKind::AddrInUse && begun.elapsed() < LONG =>
                {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                started => return started.unwrap(),
            }
        }
    }

    fn peer(&self, number: u8) -> Value {
        json!({"name": format!("m{number}"), "address": self.address(number), "port": self.port})
    }

    /// `m1` sends to the others.
    fn first(&self, manager: &Manager, members: &[u8]) {
        self.first_reserved(manager, members, &Value::Null);
    }

    fn first_reserved(&self, manager: &Manager, members: &[u8], reservation: &Value) {
        let names: Vec<String> = members.iter().map(|number| format!("m{number}")).collect();
        let peers: Vec<Value> = members.iter().map(|number| self.peer(*number)).collect();
        let send = json!({"id": "g1", "topic": "plant/#", "priority": 5, "address": GROUP, "members": names,
            "reservation": reservation});
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

impl Site {
    /// Group (if any) and relays of `m1`: numbers of managers with what is wanted there.
    fn relays(&self, manager: &Manager, group: Option<u8>, relays: &[(u8, &str)]) {
        let mut sends: Vec<Value> = relays
            .iter()
            .map(|(number, filter)| {
                json!({"id": format!("relay-m{number}"), "topic": "#", "priority": 0, "address": self.address(*number),
                    "members": [format!("m{number}")], "interests": [filter]})
            })
            .collect();
        sends.extend(group.map(|number| {
            json!({"id": "g1", "topic": "plant/#", "priority": 5, "address": GROUP, "members": [format!("m{number}")]})
        }));
        let peers: Vec<Value> = (2..=3).map(|number| self.peer(number)).collect();
        let groups = json!({"peers": peers, "sends": sends, "receives": []});
        manager.groups(serde_json::from_value(groups).unwrap()).unwrap();
    }

    /// Manager `number` takes what `m1` relays, and what it sends to the group.
    fn relayed(&self, manager: &Manager, number: u8, is_member: bool) {
        let mut receives = vec![
            json!({"id": "relay-m1", "origin": "m1", "topic": "#", "priority": 0,
            "address": self.address(number), "relay": true}),
        ];
        if is_member {
            receives.push(
                json!({"id": "g1", "origin": "m1", "topic": "plant/#", "priority": 5, "address": GROUP}),
            );
        }
        let groups = json!({"peers": [self.peer(1)], "sends": [], "receives": receives});
        manager.groups(serde_json::from_value(groups).unwrap()).unwrap();
    }
}

/// Three networks; messages of the first one are relayed.
fn three(test: u8) -> Option<(Site, Vec<Mosquitto>, Vec<Manager>)> {
    let brokers: Vec<Mosquitto> = (0..3).map_while(|_| Mosquitto::start("")).collect();
    let site = Site::new(test);
    let start = |(at, broker): (usize, &Mosquitto)| {
        let state = broker.path("state");
        site.start(
            at as u8 + 1,
            broker.port,
            Some(&state),
            Some(tenth(at as u64 + 7)),
        )
    };
    let managers: Vec<Manager> = brokers.iter().enumerate().map(start).collect();
    (brokers.len() == 3).then_some((site, brokers, managers))
}

#[test]
fn without_a_group_messages_go_once_to_whoever_is_interested() {
    let Some((site, brokers, managers)) = three(12) else {
        return;
    };
    site.relayed(&managers[1], 2, false);
    site.relayed(&managers[2], 3, false);
    site.relays(&managers[0], None, &[(2, "plant/#"), (3, "other")]);
    joined(&managers[0]);
    joined(&managers[0]);
    let port = managers[0].addresses()[0].port();
    for qos in [1, 2, 0] {
        let topic = format!("plant/{qos}");
        let subscribers: Vec<Subscriber> = brokers
            .iter()
            .map(|broker| Subscriber::start(broker.port, &format!("s{qos}"), &topic, qos))
            .collect();
        let done = AtomicUsize::new(0);
        publish_all(&|| port, &format!("p{qos}"), &topic, qos, 500, &done);
        let all = numbers(500);
        if qos > 0 {
            soon("the other network has all", || {
                subscribers[1].found().len() >= 500
            });
            assert_eq!(subscribers[1].found(), all, "QoS {qos}");
        } else {
            soon("the other network has most", || {
                subscribers[1].found().len() >= 400
            });
            let (mut rest, found) = (all.iter(), subscribers[1].found());
            assert!(
                found.iter().all(|one| rest.any(|other| other == one)),
                "{found:?}"
            );
        }
        assert!(subscribers[2].found().is_empty());
    }
    let stats = managers[0].stats().peers;
    assert_eq!((stats.sent, stats.undelivered, stats.members_lost), (0, 0, 0));
    assert_eq!(
        stats.relayed.into_iter().collect::<Vec<_>>(),
        [("m2".to_owned(), 1_500)]
    );
    assert_eq!(managers[2].stats().peers.received, 0);
}

/// Whatever the table says, and in whatever order both ends see it: nothing is lost, nothing is there twice.
#[test]
fn a_group_that_comes_and_goes_costs_no_message_and_doubles_none() {
    let Some((site, brokers, managers)) = three(13) else {
        return;
    };
    let relays = [(2, "plant/#"), (3, "plant/#")];
    site.relayed(&managers[1], 2, false);
    site.relayed(&managers[2], 3, false);
    site.relays(&managers[0], None, &relays);
    joined(&managers[0]);
    joined(&managers[0]);
    let port = managers[0].addresses()[0].port();
    for qos in [2, 1] {
        let subscribers: Vec<Subscriber> = brokers
            .iter()
            .map(|broker| Subscriber::start(broker.port, &format!("s{qos}"), "plant/1", qos))
            .collect();
        let done = Arc::new(AtomicUsize::new(0));
        let publisher = std::thread::spawn({
            let done = Arc::clone(&done);
            move || publish_all(&|| port, &format!("p{qos}"), "plant/1", qos, 3_000, &done)
        });
        let mut round = 0;
        while !publisher.is_finished() {
            let is_member = round % 2 == 0;
            let origin = || site.relays(&managers[0], is_member.then_some(2), &relays);
            let member = || site.relayed(&managers[1], 2, is_member);
            if round % 4 < 2 {
                origin();
                member();
            } else {
                member();
                origin();
            }
            round += 1;
            std::thread::sleep(std::time::Duration::from_millis(20 + 17 * (round % 5)));
        }
        publisher.join().unwrap();
        for remote in &subscribers[1..] {
            soon("another network has all", || remote.found().len() >= 3_000);
            let mut found = remote.found();
            found.sort_by_key(|one| one.parse::<u32>().unwrap());
            let wrong = found
                .iter()
                .zip(numbers(3_000))
                .position(|(one, other)| *one != other);
            assert_eq!((wrong, found.len()), (None, 3_000), "QoS {qos}, {round} changes");
        }
        assert!(round >= 4, "{round}");
    }
    let stats = managers[0].stats().peers;
    assert_eq!((stats.undelivered, stats.members_lost), (0, 0));
    assert!(stats.sent > 100 && stats.relayed["m2"] > 100, "{stats:?}");
}

#[test]
fn what_is_guaranteed_does_not_wait_for_what_is_best_effort() {
    let Some((site, brokers, managers)) = three(14) else {
        return;
    };
    site.relayed(&managers[1], 2, true);
    site.relayed(&managers[2], 3, false);
    site.relays(&managers[0], Some(2), &[(2, "plant/#"), (3, "plant/#")]);
    (0..3).for_each(|_| joined(&managers[0]));
    let subscribers: Vec<Subscriber> = brokers
        .iter()
        .map(|broker| Subscriber::start(broker.port, "s", "plant/1", 2))
        .collect();
    brokers[2].pause(true);
    let (port, done) = (managers[0].addresses()[0].port(), AtomicUsize::new(0));
    let began = Instant::now();
    publish_all(&|| port, "p", "plant/1", 2, 300, &done);
    assert!(
        began.elapsed().as_millis() < 7_000,
        "the paused one is lost after 8 s"
    );
    soon("the member has all", || subscribers[1].found().len() >= 300);
    assert_eq!(subscribers[1].found(), numbers(300));
    brokers[2].pause(false);
    soon("the other one has all", || subscribers[2].found().len() >= 300);
    assert_eq!(subscribers[2].found(), numbers(300));
    assert_eq!(managers[0].stats().peers.undelivered, 0);
}

#[test]
fn what_clients_subscribe_to_is_told_as_it_changes() {
    let Some(broker) = Mosquitto::start("") else {
        return;
    };
    let site = Site::new(15);
    let manager = site.start(1, broker.port, None, None);
    let filters = || event(&manager, "interests")["filters"].clone();
    let mut client = dial(&manager);
    client.write_all(&connect("one")).unwrap();
    expect(&mut client, &[0x20]);
    let subscribe = |id: u8, filter: &str| packet(0x82, &[&[0, id, 0], &text(filter), &[1]]);
    client
        .write_all(
            &[
                subscribe(1, "plant/+"),
                subscribe(2, "$share/g/plant/1"),
                subscribe(3, "hall"),
            ]
            .concat(),
        )
        .unwrap();
    // They may be told one after the other.
    let mut told = filters();
    while told != json!(["hall", "plant/+"]) {
        told = filters();
    }
    client
        .write_all(&packet(0xa2, &[&[0, 4, 0], &text("plant/+")]))
        .unwrap();
    assert_eq!(filters(), json!(["hall", "plant/1"]));
    drop(client);
    assert_eq!(filters(), json!([]));
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
    each_quality_is_kept(&Site::new(1));
}

#[test]
fn each_quality_is_kept_when_everything_is_sealed() {
    each_quality_is_kept(&Site::secured(16));
}

fn each_quality_is_kept(site: &Site) {
    let brokers: Vec<Mosquitto> = (0..3).map_while(|_| Mosquitto::start("")).collect();
    let [a, b, c] = &brokers[..] else { return };
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

/// A site of two whose managers may be ended and started again; clients find `m1` at a port that may change.
struct Pair {
    site: Site,
    brokers: [Mosquitto; 2],
    managers: [Option<Manager>; 2],
    port: AtomicU16,
}

impl Pair {
    /// Both have their state on disk, and the group is open.
    fn start(test: u8) -> Option<Self> {
        Self::start_at(Site::new(test))
    }

    fn start_at(site: Site) -> Option<Self> {
        let brokers = [Mosquitto::start("")?, Mosquitto::start("")?];
        let mut pair = Self {
            site,
            brokers,
            managers: [None, None],
            port: AtomicU16::new(0),
        };
        pair.run(2);
        pair.run(1);
        joined(pair.managers[0].as_ref().unwrap());
        Some(pair)
    }

    fn run(&mut self, number: u8) {
        let at = usize::from(number) - 1;
        let broker = &self.brokers[at];
        let state = broker.path("state");
        let manager = self
            .site
            .start(number, broker.port, Some(&state), Some(tenth(number.into())));
        if number == 1 {
            self.site.first(&manager, &[2]);
            self.port.store(manager.addresses()[0].port(), Ordering::Relaxed);
        } else {
            self.site.other(&manager);
        }
        self.managers[at] = Some(manager);
    }

    /// Publishes `count` messages and does something when so many are acknowledged; what the subscriber at the other broker found.
    fn publish(&mut self, qos: u8, count: usize, at: usize, what: impl FnOnce(&mut Self)) -> Vec<String> {
        let name = format!("s{qos}");
        let subscriber = Subscriber::start(self.brokers[1].port, &name, "plant/1", qos);
        let done = Arc::new(AtomicUsize::new(0));
        let port = Arc::new(AtomicU16::new(self.port.load(Ordering::Relaxed)));
        let publisher = std::thread::spawn({
            let (done, port) = (Arc::clone(&done), Arc::clone(&port));
            move || {
                let port = || port.load(Ordering::Relaxed);
                publish_all(&port, &format!("p{qos}"), "plant/1", qos, count, &done);
            }
        });
        soon("some are through", || done.load(Ordering::Relaxed) >= at);
        what(self);
        port.store(self.port.load(Ordering::Relaxed), Ordering::Relaxed);
        publisher.join().unwrap();
        let last = (count - 1).to_string();
        soon("the last one is there", || subscriber.found().contains(&last));
        let found = subscriber.found();
        if qos == 2 {
            let expected = numbers(count);
            let wrong = found.iter().zip(&expected).position(|(one, other)| one != other);
            assert_eq!(
                (wrong, found.len()),
                (None, count),
                "once and in order: {:?}",
                self.stats(2)
            );
        } else {
            in_order_with_repetitions(&found, count);
        }
        found
    }

    fn stats(&self, number: usize) -> timebound_manager::contract::Peers {
        self.managers[number - 1].as_ref().unwrap().stats().peers
    }
}

/// All are there, and what comes again is what came a moment before.
fn in_order_with_repetitions(found: &[String], count: usize) {
    let (mut next, mut again) = (0, 0);
    for one in found {
        let number: usize = one.parse().unwrap();
        assert!(number <= next, "{number} before {next}");
        again += usize::from(number < next);
        next = next.max(number + 1);
    }
    assert_eq!(next, count);
    assert!(again <= count / 2, "{again} came again");
}

#[test]
fn a_member_that_is_killed_and_started_again_loses_nothing_and_doubles_nothing() {
    killed_and_started_again(Pair::start(2));
}

#[test]
fn a_sealed_member_that_is_killed_and_started_again_loses_nothing_and_doubles_nothing() {
    killed_and_started_again(Pair::start_at(Site::secured(17)));
}

fn killed_and_started_again(pair: Option<Pair>) {
    let Some(mut pair) = pair else { return };
    for qos in [2, 1] {
        pair.publish(qos, 600, 200, |pair| {
            // Without a word to anybody, as far as threads can: what is not on disk or at the broker is gone.
            drop(pair.managers[1].take());
            pair.run(2);
        });
    }
    assert_eq!((pair.stats(1).undelivered, pair.stats(1).members_lost), (0, 0));
}

#[test]
fn an_origin_that_is_killed_and_started_again_sends_what_its_publisher_repeats_once() {
    let Some(mut pair) = Pair::start(3) else { return };
    for qos in [2, 1] {
        pair.publish(qos, 600, 200, |pair| {
            drop(pair.managers[0].take());
            pair.run(1);
        });
    }
    assert_eq!(pair.stats(1).undelivered, 0);
}

#[test]
fn a_broker_that_is_ended_and_started_again_gets_everything_once() {
    let Some(mut pair) = Pair::start(4) else { return };
    for qos in [2, 1] {
        pair.publish(qos, 600, 200, |pair| {
            pair.brokers[1].end();
            std::thread::sleep(std::time::Duration::from_millis(300));
            pair.brokers[1].run();
        });
    }
    assert_eq!((pair.stats(1).undelivered, pair.stats(1).members_lost), (0, 0));
}

#[test]
fn everybody_is_killed_in_turn() {
    let Some(mut pair) = Pair::start(5) else { return };
    let found = pair.publish(2, 1_500, 100, |pair| {
        for round in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(150));
            drop(pair.managers[1].take());
            pair.run(2);
            std::thread::sleep(std::time::Duration::from_millis(150));
            if round == 1 {
                pair.brokers[1].end();
                pair.brokers[1].run();
            }
        }
    });
    assert_eq!(found.len(), 1_500);
}

#[test]
fn a_member_that_stays_away_is_told_with_what_it_did_not_get_and_may_come_back() {
    let Some(mut pair) = Pair::start(6) else { return };
    drop(pair.managers[1].take());
    let origin = pair.managers[0].as_ref().unwrap();
    let (port, done) = (origin.addresses()[0].port(), AtomicUsize::new(0));
    // Acknowledged after the loss is known, and not before.
    publish_all(&|| port, "p", "plant/1", 1, 5, &done);
    let stats = origin.stats().peers;
    assert_eq!((stats.undelivered, stats.members_lost), (5, 1));
    let told = event(origin, "undelivered");
    assert_eq!((&told["group"], &told["member"]), (&json!("g1"), &json!("m2")));
    pair.run(2);
    joined(pair.managers[0].as_ref().unwrap());
    let subscriber = Subscriber::start(pair.brokers[1].port, "s", "plant/1", 1);
    publish_all(&|| port, "q", "plant/1", 1, 5, &done);
    soon("it gets what is sent from then on", || {
        subscriber.found().len() == 5
    });
    assert_eq!(pair.stats(1).undelivered, 5);
}

#[test]
fn a_publisher_is_held_back_while_another_broker_takes_nothing_and_nobody_while_there_is_no_group() {
    let Some(pair) = Pair::start(7) else { return };
    let subscriber = Subscriber::start(pair.brokers[1].port, "s", "plant/#", 1);
    pair.brokers[1].pause(true);
    let origin = pair.managers[0].as_ref().unwrap();
    let mut client = dial(origin);
    client.write_all(&connect("large")).unwrap();
    expect(&mut client, &[0x20]);
    // Six of them are more than a window; nobody reads acknowledgements until they are counted.
    let mut writer = client.try_clone().unwrap();
    let large = vec![b'x'; 1_200_000];
    let writing = std::thread::spawn(move || {
        for id in 1..=12 {
            writer
                .write_all(&publish("plant/large", 1, id, &[], &large))
                .unwrap();
        }
    });
    soon("it is held back", || origin.stats().peers.waiting > 0);
    let mut read = 0;
    soon("nothing more is read from it", || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        std::mem::replace(&mut read, origin.stats().bytes.up) == origin.stats().bytes.up
    });
    let after = origin.stats();
    assert!(
        after.bytes.up < 9_000_000 && after.peers.sent < 12 && after.peers.waiting <= 2,
        "{after:?}"
    );
    // Others go on.
    let done = AtomicUsize::new(0);
    let port = origin.addresses()[0].port();
    publish_all(&|| port, "other", "elsewhere", 1, 20, &done);
    pair.brokers[1].pause(false);
    writing.join().unwrap();
    soon("all are there", || subscriber.found().len() == 12);
    assert_eq!((pair.stats(1).undelivered, pair.stats(1).sent), (0, 12));
}

/// Every eighth datagram is lost, so that some are sent again; and all are seen before.
#[test]
fn what_is_sent_to_a_group_keeps_to_its_reservation() {
    keeps_to_its_reservation(&Site::new(11));
}

#[test]
fn what_is_sealed_keeps_to_the_reservation_as_well() {
    keeps_to_its_reservation(&Site::secured(18));
}

fn keeps_to_its_reservation(site: &Site) {
    const RATE_BPS: u128 = 200_000;
    const BURST: u128 = 4_000;
    let brokers: Vec<Mosquitto> = (0..2).map_while(|_| Mosquitto::start("")).collect();
    let [a, b] = &brokers[..] else { return };
    let seen: Arc<Mutex<Vec<(Instant, u128)>>> = Arc::default();
    let loss: Loss = {
        let seen = Arc::clone(&seen);
        Arc::new(move |datagram| {
            let mut seen = seen.lock().unwrap();
            // Headers of UDP and IPv4; Ethernet with check sequence, preamble and gap.
            seen.push((Instant::now(), datagram.len() as u128 + 28 + 38));
            seen.len().is_multiple_of(8)
        })
    };
    let managers = [
        site.start(1, a.port, None, None),
        site.start(2, b.port, None, Some(loss)),
    ];
    let reservation = json!({"rate_bps": RATE_BPS as u64, "burst_bytes": BURST as u64});
    let began = Instant::now();
    site.first_reserved(&managers[0], &[2], &reservation);
    site.other(&managers[1]);
    joined(&managers[0]);
    let subscriber = Subscriber::start(b.port, "s", "plant/#", 1);
    let port = managers[0].addresses()[0].port();
    let done = AtomicUsize::new(0);
    publish_all(&|| port, "p", "plant/1", 1, 1_000, &done);
    soon("the other network has all", || subscriber.found().len() >= 1_000);
    assert_eq!(subscriber.found(), numbers(1_000));
    let again = managers[0].stats().peers.datagrams_again;
    let seen = seen.lock().unwrap();
    // A receiver that comes late sees less than had left by then, never more.
    let mut sum = 0;
    for (at, bytes) in &*seen {
        sum += bytes;
        let most = BURST * 8_000_000_000 + at.duration_since(began).as_nanos() * RATE_BPS;
        assert!(sum * 8_000_000_000 <= most, "{sum} bytes after {:?}", *at - began);
    }
    assert!(again >= 100, "what was lost was sent again: {again}");
    assert!(seen.len() < 1_400, "{} datagrams for 1,000", seen.len());
}

#[test]
fn a_group_that_is_no_more_holds_nobody() {
    let Some(mut pair) = Pair::start(8) else { return };
    pair.brokers[1].pause(true);
    let origin = pair.managers[0].take().unwrap();
    let (port, done) = (origin.addresses()[0].port(), Arc::new(AtomicUsize::new(0)));
    let publisher = std::thread::spawn({
        let done = Arc::clone(&done);
        move || publish_all(&|| port, "p", "plant/1", 2, 30, &done)
    });
    soon("some wait for their members", || origin.stats().peers.sent >= 10);
    assert_eq!(done.load(Ordering::Relaxed), 0);
    origin
        .groups(timebound_manager::contract::Groups::default())
        .unwrap();
    publisher.join().unwrap();
    assert!(origin.stats().peers.undelivered >= 10);
    pair.brokers[1].pause(false);
}

#[test]
fn strangers_are_not_heard() {
    let Some(broker) = Mosquitto::start("") else {
        return;
    };
    let site = Site::new(9);
    let manager = site.start(2, broker.port, None, None);
    site.other(&manager);
    let at = std::net::SocketAddr::from((site.address(2), site.port));
    // From an address that no peer has, who says that it is one.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut datagram = b"TB\x01\x07".to_vec();
    datagram.extend([0; 28]);
    datagram.extend(b"\x30\0\x01t\0x");
    socket.send_to(&datagram, at).unwrap();
    let mut stranger = std::net::TcpStream::connect(at).unwrap();
    stranger.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(rest(&mut stranger), b"", "it is told nothing");
    soon("both are counted", || manager.stats().peers.foreign >= 2);
    // From the address of a peer, who says that it is another one.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&std::net::SocketAddr::from((site.address(1), 0)).into())
        .unwrap();
    socket.connect(&at.into()).unwrap();
    let mut liar = std::net::TcpStream::from(socket);
    let hello = [&[0, 0, 0, 14, 1, 1][..], &[0; 8], &[0, 2], b"m7"].concat();
    liar.write_all(&hello).unwrap();
    liar.set_read_timeout(Some(LONG)).unwrap();
    assert!(rest(&mut liar).ends_with(b"m2"));
    soon("it is counted", || manager.stats().peers.foreign >= 3);
    assert_eq!(manager.stats().peers.received, 0);
    // Those of one address that say nothing are so many at most.
    let before = manager.stats().peers.foreign;
    let silent: Vec<_> = (0..100)
        .map(|_| std::net::TcpStream::connect(at).unwrap())
        .collect();
    soon("the rest are refused", || {
        manager.stats().peers.foreign >= before + 36
    });
    drop(silent);
}

/// Between `m1` and `m2`, who do not get on with each other: what the manager `who` says of that.
fn problem(first: &Site, second: &Site, who: usize) -> Option<String> {
    let brokers = [Mosquitto::start("")?, Mosquitto::start("")?];
    let managers = [
        first.start(1, brokers[0].port, None, None),
        second.start(2, brokers[1].port, None, None),
    ];
    first.other(&managers[1]);
    first.first(&managers[0], &[2]);
    let told = event(&managers[who - 1], "peering");
    assert_eq!(told["about"], format!("m{}", 3 - who));
    assert_eq!(managers[0].stats().peers.connections, 0);
    Some(told["problem"].as_str().unwrap().to_owned())
}

#[test]
fn who_cannot_show_who_it_is_is_no_peer() {
    let site = Site::secured(19);
    let mut stranger = Site::secured(20);
    (stranger.test, stranger.port) = (site.test, site.port);
    let theirs = stranger.authority.as_ref().unwrap();
    theirs.issue("m2", "a manager", &["127.1.19.2"]);
    let Some(why) = problem(&site, &stranger, 1) else {
        return;
    };
    assert!(why.contains("certificate"), "another authority: {why}");
    let mut plain = Site::new(19);
    plain.port = site.port;
    let why = problem(&site, &plain, 1).unwrap();
    assert!(why.contains("handshake"), "who has no TLS: {why}");
}

#[test]
fn a_certificate_is_for_one_address() {
    let Some(broker) = Mosquitto::start("") else {
        return;
    };
    let site = Site::secured(22);
    let manager = site.start(2, broker.port, None, None);
    site.other(&manager);
    let authority = site.authority.as_ref().unwrap();
    // From the address of `m1` with the certificate of `m3`.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&std::net::SocketAddr::from((site.address(1), 0)).into())
        .unwrap();
    let to = std::net::SocketAddr::from((site.address(2), site.port));
    socket.connect(&to.into()).unwrap();
    let address = site.address(2).to_string();
    let mut stream = authority::secure(authority, &address, Some((authority, "m3")), socket.into());
    let _ = stream.write_all(&[0]);
    let told = event(&manager, "peering");
    let why = told["problem"].as_str().unwrap();
    assert_eq!(told["about"], "m1");
    assert!(why.contains("its certificate is not for 127.1.22.1"), "{why}");
    // One's own is looked at before anybody else does.
    drop(manager);
    authority.issue("m2", "a manager", &["127.1.22.77"]);
    let config = site.config(2, broker.port, None);
    let Err(refused) = Manager::start(&config) else {
        panic!("it starts")
    };
    assert!(
        refused
            .to_string()
            .contains("m2.pem: certificate is not for 127.1.22.2"),
        "{refused}"
    );
}

#[test]
fn clear_datagrams_and_replays_are_not_heard_where_all_are_sealed() {
    let brokers: Vec<Mosquitto> = (0..2).map_while(|_| Mosquitto::start("")).collect();
    let [a, b] = &brokers[..] else { return };
    let site = Site::secured(21);
    let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let keep: Loss = {
        let seen = Arc::clone(&seen);
        Arc::new(move |datagram| {
            seen.lock().unwrap().push(datagram.to_vec());
            false
        })
    };
    let managers = [
        site.start(1, a.port, None, None),
        site.start(2, b.port, None, Some(keep)),
    ];
    site.first(&managers[0], &[2]);
    site.other(&managers[1]);
    joined(&managers[0]);
    let subscriber = Subscriber::start(b.port, "s", "plant/#", 0);
    let port = managers[0].addresses()[0].port();
    publish_all(&|| port, "p", "plant/1", 0, 20, &AtomicUsize::new(0));
    soon("the other network has all", || subscriber.found().len() >= 20);
    let before = managers[1].stats().peers.foreign;
    let sealed = seen.lock().unwrap().clone();
    assert!(sealed.iter().all(|datagram| datagram.starts_with(b"TS\x01\0")));
    assert!(
        sealed
            .iter()
            .all(|datagram| !datagram.windows(7).any(|part| part == b"plant/1"))
    );
    drop(managers);
    let manager = site.start(2, b.port, None, None);
    site.other(&manager);
    // From the address of the origin, which is gone.
    let socket = UdpSocket::bind((site.address(1), site.port)).unwrap();
    let at = (site.address(2), site.port);
    let mut clear = b"TB\x01\x03".to_vec();
    clear.extend([0; 28]);
    clear.extend(b"\x30\x0a\0\x07plant/1\0x");
    soon("they are counted", || {
        socket.send_to(&clear, at).unwrap();
        sealed
            .iter()
            .for_each(|datagram| drop(socket.send_to(datagram, at)));
        manager.stats().peers.foreign > before + 40
    });
    assert_eq!(
        (subscriber.found().len(), manager.stats().peers.received),
        (20, 0)
    );
}

#[test]
fn what_cannot_be_wanted_is_refused_and_changes_nothing() {
    let broker = Broker::new();
    let plain = start(broker.port(), |_| {});
    assert!(
        plain
            .groups(timebound_manager::contract::Groups::default())
            .is_err()
    );
    let site = Site::new(10);
    let manager = site.start(1, broker.port(), None, None);
    let send = |change: &dyn Fn(&mut Value)| {
        let mut send = json!({"id": "g1", "topic": "a", "priority": 5, "address": GROUP, "members": ["m2"]});
        change(&mut send);
        let groups = json!({"peers": [site.peer(2)], "sends": [send]});
        manager.groups(serde_json::from_value(groups).unwrap())
    };
    assert!(send(&|_| {}).is_ok());
    for (key, value) in [
        ("address", json!("10.0.0.1")),
        ("priority", json!(8)),
        ("topic", json!("a#")),
        ("id", json!("")),
        (
            "reservation",
            json!({"rate_bps": 1_000_000, "burst_bytes": 1_537}),
        ),
    ] {
        let error = send(&|send| send[key] = value.clone()).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}

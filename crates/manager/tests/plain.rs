//! A manager over TCP between a client and a broker that are sockets of the test.

mod common;

use common::*;
use serde_json::json;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const ASKS: &[(&str, &str)] = &[("rt-deadline", "20 ms"), ("rt-strict", "yes")];

#[test]
fn a_request_is_told_held_for_and_answered() {
    let broker = Broker::new();
    let manager = start(broker.port(), |config| config["hold_ms"] = json!(5_000));
    manager.control(true);
    let (mut client, mut end) = join(&manager, &broker, "press");
    let message = publish("plant/alarm", 1, 7, ASKS, b"on");
    client
        .write_all(&[message.clone(), vec![0xc0, 0]].concat())
        .unwrap();
    let request = event(&manager, "request");
    let connection = &request["connection"];
    assert_eq!(
        (&request["side"], &request["topic"], &request["revision"]),
        (&json!("publish"), &json!("plant/alarm"), &json!(1))
    );
    assert_eq!(request["requirements"]["deadline_ns"], json!(20_000_000));
    assert_eq!(
        (
            &request["requirements"]["size_bytes"],
            &request["requirements"]["strict"]
        ),
        (&json!(2), &json!(true))
    );
    assert_eq!(connection["client_id"], json!("press"));
    assert_eq!(
        connection["client_port"],
        json!(client.local_addr().unwrap().port())
    );
    assert_eq!(connection["manager_port"], json!(manager.addresses()[0].port()));
    assert_eq!(
        (
            &connection["broker_leg"],
            &connection["mqtt"],
            &connection["certificate"]
        ),
        (&json!(null), &json!(5), &json!(null))
    );
    is_silent(&mut end, Duration::from_millis(50));
    assert_eq!(manager.stats().holds.now, 1);
    decide(
        &manager,
        &request,
        &json!({"outcome": "granted", "priority": 5, "bound_ns": 3_000_000, "shared_with": ["b"]}),
    );
    expect(&mut end, &[message, vec![0xc0, 0]].concat());
    end.write_all(&puback(7)).unwrap();
    let expected = user(&[
        ("rt-granted", "yes"),
        ("rt-class", "5"),
        ("rt-bound", "3 ms"),
        ("rt-shared-with", "b"),
    ]);
    expect(&mut client, &packet(0x40, &[&[0, 7, 0], &expected]));
    let stats = manager.stats();
    assert_eq!(
        (
            stats.requests,
            stats.requests_now,
            stats.verdicts.granted,
            stats.holds.verdict
        ),
        (1, 1, 1, 1)
    );
    // A packet is counted when all that came with it has gone on.
    let packets = || (manager.stats().packets.up, manager.stats().packets.down);
    soon("packets are counted", || packets() == (3, 2));
    // Refused from now on: not sent on.
    decide(
        &manager,
        &request,
        &json!({"outcome": "refused", "reason": "no", "offer": {"deadline_ns": 40_000_000}}),
    );
    soon("the verdict counts", || manager.stats().verdicts.refused == 1);
    client
        .write_all(&publish("plant/alarm", 1, 8, ASKS, b"on"))
        .unwrap();
    let expected = user(&[
        ("rt-granted", "no"),
        ("rt-reason", "no"),
        ("rt-offer-deadline", "40 ms"),
    ]);
    expect(&mut client, &packet(0x40, &[&[0, 8, 0x97], &expected]));
    drop(client);
    assert_eq!(rest(&mut end), b"");
    assert_eq!(event(&manager, "withdrawn")["id"], request["id"]);
    assert_eq!(event(&manager, "closed")["connection"], connection["id"]);
    soon("it is gone", || manager.stats().connections == 0);
    assert_eq!(
        (manager.stats().requests_now, manager.stats().refusals.publish),
        (0, 1)
    );
}

#[test]
fn without_control_and_without_verdict_messages_go_on() {
    let broker = Broker::new();
    let manager = start(broker.port(), |config| config["hold_ms"] = json!(100));
    let (mut client, mut end) = join(&manager, &broker, "press");
    let message = publish("a", 0, 0, ASKS, b"on");
    client.write_all(&message).unwrap();
    expect(&mut end, &message);
    assert_eq!(manager.stats().holds.counts.iter().sum::<u64>(), 0);
    manager.control(true);
    let (begin, message) = (Instant::now(), publish("b", 0, 0, ASKS, b"on"));
    client.write_all(&message).unwrap();
    expect(&mut end, &message);
    assert!(begin.elapsed() >= Duration::from_millis(100));
    // Counted once the bytes are on their way.
    soon("it is counted", || manager.stats().holds.timeout == 1);
    // Control that goes away holds nobody up.
    client.write_all(&publish("c", 0, 0, ASKS, &[0; 70_000])).unwrap();
    soon("it is held", || manager.stats().holds.now == 1);
    manager.control(false);
    expect(&mut end, &publish("c", 0, 0, ASKS, &[0; 70_000]));
    soon("it is counted", || manager.stats().holds.unavailable == 1);
    assert!(!manager.stats().control);
}

#[test]
fn large_messages_pass_in_both_directions_at_once() {
    let broker = Broker::new();
    let manager = start(broker.port(), |_| {});
    let (client, end) = join(&manager, &broker, "press");
    let up = publish(
        "up",
        1,
        3,
        &[("colour", "red")],
        &(0..3_000_000u32).map(|at| at as u8).collect::<Vec<_>>(),
    );
    let down = publish("down", 0, 0, &[], &vec![9; 2_000_000]);
    std::thread::scope(|scope| {
        for (mut out, bytes) in [
            (client.try_clone().unwrap(), &up),
            (end.try_clone().unwrap(), &down),
        ] {
            scope.spawn(move || {
                for piece in bytes.chunks(70_001) {
                    out.write_all(piece).unwrap();
                }
            });
        }
        for (mut from, bytes) in [
            (end.try_clone().unwrap(), &up),
            (client.try_clone().unwrap(), &down),
        ] {
            scope.spawn(move || {
                // A reader that takes its time.
                let mut got: Vec<u8> = Vec::new();
                let mut piece = vec![0; 50_000];
                while got.len() < bytes.len() {
                    let count = from.read(&mut piece).unwrap();
                    got.extend(&piece[..count]);
                    std::thread::sleep(Duration::from_micros(300));
                }
                assert!(got == *bytes);
            });
        }
    });
    let stats = manager.stats();
    assert_eq!(stats.bytes.up as usize, up.len() + connect("press").len());
    assert_eq!(stats.bytes.down as usize, down.len() + CONNACK.len());
}

#[test]
fn a_reader_that_does_not_read_stops_its_own_broker_only() {
    let broker = Broker::new();
    let manager = start(broker.port(), |_| {});
    let (_slow, mut end) = join(&manager, &broker, "slow");
    end.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let piece = publish("a", 0, 0, &[], &vec![1; 60_000]);
    let written = (0..2_000).take_while(|_| end.write_all(&piece).is_ok()).count();
    assert!(written < 2_000, "nothing held the broker back");
    let (mut client, mut other) = join(&manager, &broker, "quick");
    other.write_all(&piece).unwrap();
    expect(&mut client, &piece);
}

#[test]
fn offenders_are_told_why_and_others_go_on() {
    let broker = Broker::new();
    let manager = start(broker.port(), |config| {
        config["limits"] = json!({"header_bytes": 262_144, "requests_per_second": 10})
    });
    let (mut other, mut other_end) = join(&manager, &broker, "other");
    let flood = vec![("k", "v"); 100_000];
    let asks: Vec<u8> = (0..50)
        .flat_map(|topic| publish(&format!("t/{topic}"), 0, 0, ASKS, b""))
        .collect();
    for (bad, reason, said) in [
        (vec![0x30, 0xff, 0xff, 0xff, 0xff], 0x81, "malformed packet"),
        (publish("a", 1, 1, &flood, b""), 0x95, "packet too large"),
        (asks, 0x96, "message rate too high"),
    ] {
        let (mut client, mut end) = join(&manager, &broker, "bad");
        let mut sender = client.try_clone().unwrap();
        // It is closed before it has said all.
        let sending = std::thread::spawn(move || drop(sender.write_all(&bad)));
        assert_eq!(rest(&mut client), [0xe0, 1, reason]);
        sending.join().unwrap();
        rest(&mut end);
        let told = event(&manager, "offence");
        assert_eq!(
            (&told["reason"], &told["client_id"], &told["client_address"]),
            (&json!(said), &json!("bad"), &json!("127.0.0.1"))
        );
    }
    let offences = manager.stats().offences;
    assert_eq!((offences.malformed, offences.too_large, offences.rate), (1, 1, 1));
    other.write_all(&publish("a", 1, 1, &[], b"x")).unwrap();
    expect(&mut other_end, &publish("a", 1, 1, &[], b"x"));
}

#[test]
fn a_broker_that_is_not_there_and_one_that_goes() {
    let broker = Broker::new();
    let port = broker.port();
    let manager = start(port, |_| {});
    let (mut client, end) = join(&manager, &broker, "press");
    drop(end);
    assert_eq!(rest(&mut client), b"", "it closed in order, and said nothing");
    // What it has not read makes its kernel break the connection off.
    let (mut client, end) = join(&manager, &broker, "press");
    client.write_all(&publish("a", 0, 0, &[], b"unread")).unwrap();
    let mut first = [0];
    assert_eq!(end.peek(&mut first).unwrap(), 1);
    drop(end);
    assert_eq!(rest(&mut client), [0xe0, 1, 0x8b]);
    drop(broker);
    let mut client = dial(&manager);
    client.write_all(&connect("press")).unwrap();
    assert_eq!(rest(&mut client), [0x20, 3, 0, 0x88, 0]);
    let mut client = dial(&manager);
    client
        .write_all(&packet(0x10, &[&text("MQTT"), &[4, 2, 0, 60], &text("old")]))
        .unwrap();
    assert_eq!(rest(&mut client), [0x20, 2, 0, 3]);
    soon("all are counted", || manager.stats().broker_failures == 4);
}

#[test]
fn ends_of_either_side_reach_the_other() {
    let broker = Broker::new();
    let manager = start(broker.port(), |_| {});
    // The client ends its side: what the broker still says arrives.
    let (mut client, mut end) = join(&manager, &broker, "press");
    client.write_all(&publish("a", 0, 0, &[], b"last")).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(rest(&mut end), publish("a", 0, 0, &[], b"last"));
    end.write_all(&puback(1)).unwrap();
    drop(end);
    assert_eq!(rest(&mut client)[..4], puback(1));
    // A good-bye passes as it is.
    let (mut client, mut end) = join(&manager, &broker, "press");
    client.write_all(&[0xe0, 0]).unwrap();
    expect(&mut end, &[0xe0, 0]);
    drop(end);
    assert_eq!(rest(&mut client), b"");
    soon("both are gone", || manager.stats().connections == 0);
}

#[test]
fn who_says_nothing_is_closed_and_so_are_more_than_can_be_held() {
    let broker = Broker::new();
    let manager = start(broker.port(), |config| {
        config["limits"] = json!({"handshake_ms": 100, "connections": 2})
    });
    let mut silent = dial(&manager);
    silent.write_all(&connect("slow")[..5]).unwrap();
    assert_eq!(rest(&mut silent), b"");
    soon("it is counted", || {
        manager.stats().handshake_timeouts == 1 && manager.stats().connections == 0
    });
    let _held = [join(&manager, &broker, "a"), join(&manager, &broker, "b")];
    assert_eq!(rest(&mut dial(&manager)), b"");
    assert_eq!(manager.stats().connections_refused, 1);
}

#[test]
fn requests_that_nobody_polls_are_answered_by_the_manager() {
    let broker = Broker::new();
    let manager = start(broker.port(), |config| {
        config["limits"] = json!({"events": 1});
        config["hold_ms"] = json!(5_000);
    });
    manager.control(true);
    let (mut client, mut end) = join(&manager, &broker, "press");
    let begin = Instant::now();
    client
        .write_all(&publish(
            "a",
            1,
            1,
            &[("rt-deadline", "1 ms"), ("rt-qos", "9")],
            b"x",
        ))
        .unwrap();
    client
        .write_all(&publish("b", 1, 2, &[("rt-deadline", "1 ms")], b"x"))
        .unwrap();
    expect(
        &mut end,
        &publish("a", 1, 1, &[("rt-deadline", "1 ms"), ("rt-qos", "9")], b"x"),
    );
    assert!(begin.elapsed() < Duration::from_secs(4));
    end.write_all(&puback(1)).unwrap();
    let mut head = [0; 2];
    client.read_exact(&mut head).unwrap();
    let mut answer = vec![0; usize::from(head[1])];
    client.read_exact(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("too many requests waiting"));
    assert!(manager.stats().events_lost >= 1);
}

#[test]
fn stopping_tells_clients_and_leaves_nothing() {
    let broker = Broker::new();
    let manager = start(broker.port(), |_| {});
    let (mut client, mut end) = join(&manager, &broker, "press");
    client.write_all(&publish("a", 0, 0, ASKS, b"x")).unwrap();
    expect(&mut end, &publish("a", 0, 0, ASKS, b"x"));
    manager.stop();
    assert_eq!(rest(&mut client), [0xe0, 1, 0x8b]);
    assert_eq!(rest(&mut end), b"");
    event(&manager, "withdrawn");
    event(&manager, "closed");
    assert!(std::net::TcpStream::connect(manager.addresses()[0]).is_err());
    manager.stop();
}

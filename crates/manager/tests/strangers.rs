//! Connections that the broker has not accepted: what they may hold, and that others come in all the same.

mod common;

use common::authority::Site;
use common::*;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn the_longest_connect_of_the_standard_gets_in() {
    let broker = Broker::new();
    let manager = start(broker.port(), |_| {});
    let mut client = dial(&manager);
    let connect = longest_connect();
    let mut sender = client.try_clone().unwrap();
    let bytes = connect.clone();
    let sending = std::thread::spawn(move || sender.write_all(&bytes).unwrap());
    let mut end = broker.accept();
    let mut got = vec![0; connect.len()];
    end.read_exact(&mut got).unwrap();
    assert!(got == connect);
    sending.join().unwrap();
    assert!(
        manager.stats().strangers.bytes >= 327_000,
        "it is not accepted yet"
    );
    end.write_all(&[0x20, 2, 0, 0]).unwrap();
    expect(&mut client, &[0x20, 2, 0, 0]);
    soon("it is known", || manager.stats().strangers.now == 0);
    assert_eq!(manager.stats().strangers.bytes, 0);
    client.write_all(&[0xc0, 0]).unwrap();
    expect(&mut end, &[0xc0, 0]);
}

#[test]
fn handshakes_that_never_end_count_as_well() {
    let (site, broker) = (Site::new("strangers-tls"), Broker::new());
    let manager = start(broker.port(), |config| {
        let web = json!({"address": "127.0.0.1", "port": 0, "kind": "ws"});
        config["listeners"] = json!([site.listener("tls"), web]);
        config["limits"] = json!({"strangers_bytes": 1 << 20, "handshake_ms": 60_000});
    });
    // A ClientHello of 60,000 bytes that never comes to its end, in records of 16,384 bytes (RFC 8446, sections 4 and 5.1).
    let mut hello = vec![1, 0, 0xea, 0x60];
    hello.extend([0; 49_000]);
    let records: Vec<u8> = hello
        .chunks(16_384)
        .flat_map(|piece| [&[22, 3, 1][..], &(piece.len() as u16).to_be_bytes(), piece].concat())
        .collect();
    let request = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(15_000));
    let mut held = Vec::new();
    for (place, bytes, least) in [(0, &records[..], 49_000), (1, request.as_bytes(), 15_000)] {
        let mut one = ready(TcpStream::connect(manager.addresses()[place]).unwrap());
        one.write_all(bytes).unwrap();
        soon("it counts", || manager.stats().strangers.bytes >= least);
        held.push(one);
        for _ in 0..80 {
            let mut another = ready(TcpStream::connect(manager.addresses()[place]).unwrap());
            let _ = another.write_all(bytes);
            held.push(another);
        }
        soon("some were crowded out", || {
            manager.stats().strangers.crowded_out > 0
        });
        assert!(manager.stats().strangers.bytes <= 1 << 20);
        held.clear();
        soon("all are gone", || manager.stats().strangers.now == 0);
    }
    assert_eq!(manager.stats().strangers.bytes, 0);
}

#[test]
fn an_address_has_so_many_connections_that_nobody_knows() {
    let broker = Broker::new();
    let manager = start(broker.port(), |config| {
        config["limits"] = json!({"strangers_per_address": 3});
    });
    let silent: Vec<TcpStream> = (0..3).map(|_| dial_from(&manager, 2)).collect();
    soon("they are there", || manager.stats().strangers.now == 3);
    assert_eq!(rest(&mut dial_from(&manager, 2)), b"");
    let stats = manager.stats();
    assert_eq!((stats.strangers.refused, stats.connections_refused), (1, 0));
    // Who was accepted does not count, nor does another address.
    let _known: Vec<_> = (0..4).map(|_| join(&manager, &broker, "press")).collect();
    drop(silent);
    soon("they are gone", || manager.stats().strangers.now == 0);
    is_silent(&mut dial_from(&manager, 2), Duration::from_millis(50));
}

/// A broker that is not there for a while: who waits for it can be crowded out.
#[test]
fn who_waits_for_the_broker_counts_with_its_connect() {
    let broker = Broker::new();
    let manager = start(broker.port(), |config| {
        config["limits"] = json!({"strangers_bytes": 1 << 20});
    });
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut client = dial(&manager);
        let _ = client.write_all(&longest_connect());
        held.push(client);
    }
    soon("some were crowded out", || {
        manager.stats().strangers.crowded_out >= 5
    });
    assert!(manager.stats().strangers.bytes <= 1 << 20);
    assert_eq!(manager.stats().broker_failures, 0);
}

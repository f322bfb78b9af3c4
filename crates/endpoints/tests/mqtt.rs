//! MQTT on loopback through the embedded broker.

#![cfg(feature = "broker")]

mod common;

use common::{BrokerProcess, publisher, run_plan, subscriber};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;
use timebound_endpoints::EndpointError;
use timebound_endpoints::plan::{Protocol, Qos};
use timebound_endpoints::record::{Kind, NO_RECEIVER};
use timebound_endpoints::summary::ConnectionEventKind;
use timebound_endpoints::wire::{Header, publish_frame_layout};

#[test]
#[ignore = "started by the other tests as a process of its own"]
fn broker_process() {
    common::be_the_broker();
}

fn open_broker() -> BrokerProcess {
    BrokerProcess::start(json!({"port": 0, "allow_anonymous": true}))
}

#[test]
fn the_largest_packet_is_announced_as_clients_accept_it() {
    let broker = open_broker();
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", broker.port)).unwrap();
    // CONNECT of MQTT 5: clean start, keep-alive 60 s, no properties, client identifier "a".
    stream
        .write_all(b"\x10\x0e\0\x04MQTT\x05\x02\0\x3c\0\0\x01a")
        .unwrap();
    let mut answer = [0; 128];
    let length = stream.read(&mut answer).unwrap();
    assert_eq!((answer[0], answer[3]), (0x20, 0), "CONNACK, success");
    let most = [0x27, 0x0f, 0xff, 0xff, 0xff];
    assert!(
        answer[..length].windows(5).any(|found| found == most),
        "{:x?}",
        &answer[..length]
    );
}

#[test]
fn every_message_arrives_once_in_order_and_intact() {
    let broker = open_broker();
    let (period_ns, jitter_ns, messages) = (8_000_000, 2_000_000, 50);
    let mut clients = Vec::new();
    for (flow, (protocol, qos)) in [(4, 0), (4, 1), (4, 2), (5, 0), (5, 1), (5, 2)]
        .into_iter()
        .enumerate()
    {
        let flow = flow as u32;
        clients.push(publisher(
            broker.port,
            &format!("p{flow}"),
            protocol,
            qos,
            flow,
            period_ns,
            jitter_ns,
        ));
        for receiver in [2 * flow, 2 * flow + 1] {
            clients.push(subscriber(
                broker.port,
                &format!("s{receiver}"),
                protocol,
                qos,
                flow,
                receiver,
            ));
        }
    }
    let outcome = run_plan(
        json!({"duration_ns": period_ns * messages, "clients": clients}),
        |_| (),
    );
    let summary = outcome.result.unwrap();
    assert_eq!(summary.senders.len(), 6);
    for sender in &summary.senders {
        let acknowledged = if sender.flow % 3 == 0 { 0 } else { messages };
        assert_eq!(
            (sender.sent, sender.acknowledged, sender.dropped),
            (messages, acknowledged, 0),
            "{sender:?}"
        );
    }
    assert_eq!(summary.receivers.len(), 12);
    for receiver in &summary.receivers {
        let counts = (
            receiver.received,
            receiver.duplicates,
            receiver.reordered,
            receiver.foreign,
        );
        assert_eq!(
            (counts, receiver.expected),
            ((messages, 0, 0, 0), true),
            "{receiver:?}"
        );
    }

    let sent: BTreeMap<(u32, u32), (i64, i64)> = (outcome.records.iter())
        .filter(|record| record.kind == Kind::Sent)
        .map(|record| {
            (
                (record.flow, record.sequence),
                (record.nominal_ns, record.time_ns),
            )
        })
        .collect();
    assert_eq!(sent.len() as u64, 6 * messages);
    for ((flow, sequence), (nominal_ns, time_ns)) in &sent {
        assert_eq!(
            *nominal_ns,
            summary.start_ns + i64::from(*sequence) * period_ns as i64,
            "flow {flow}"
        );
        let latest_ns = nominal_ns + jitter_ns as i64 + summary.lateness_ns.max as i64;
        assert!(
            (*nominal_ns..=latest_ns).contains(time_ns),
            "flow {flow}, message {sequence}"
        );
    }
    assert_eq!(summary.lateness_ns.count, 6 * messages);
    let mut next: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for record in &outcome.records {
        let (_, sent_ns) = sent[&(record.flow, record.sequence)];
        assert_eq!((record.size, u32::from(record.qos)), (200, record.flow % 3));
        match record.kind {
            Kind::Sent => assert_eq!(record.receiver, NO_RECEIVER),
            Kind::Acknowledged => assert!(record.time_ns > sent_ns),
            Kind::Received => {
                assert_eq!(record.nominal_ns, sent_ns, "the header carries the send time");
                assert!(record.time_ns > sent_ns);
                assert_eq!(record.receiver / 2, record.flow);
                let next = next.entry((record.flow, record.receiver)).or_default();
                assert_eq!(record.sequence, *next);
                *next += 1;
            }
        }
    }
    assert_eq!(next.len(), 12);
    assert!(
        outcome.took < Duration::from_secs(4),
        "an undisturbed run does not wait for the whole settle time"
    );
}

#[test]
fn a_broker_that_dies_ends_the_run_within_a_second_and_keeps_the_records() {
    let mut broker = open_broker();
    let clients = [
        publisher(broker.port, "pub", 5, 1, 0, 2_000_000, 0),
        subscriber(broker.port, "sub", 5, 1, 0, 0),
    ];
    let mut killed = None;
    let outcome = run_plan(
        json!({"duration_ns": 60_000_000_000u64, "clients": clients}),
        |_| {
            std::thread::sleep(Duration::from_millis(300));
            broker.child.kill().unwrap();
            killed = Some(std::time::Instant::now());
        },
    );
    assert!(killed.unwrap().elapsed() < Duration::from_secs(1));
    let error = outcome.result.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("lost the broker at 127.0.0.1") && (text.contains("pub") || text.contains("sub")),
        "{text}"
    );
    let summary = error.summary().unwrap();
    assert!(summary.senders[0].sent > 50);
    let received = outcome
        .records
        .iter()
        .filter(|record| record.kind == Kind::Received)
        .count() as u64;
    assert_eq!(received, summary.receivers[0].received);
    assert!(received > 50);
    assert_eq!(summary.events[0].kind, ConnectionEventKind::Lost);
}

#[test]
fn connections_come_back_where_the_plan_asks_for_it() {
    let mut broker = open_broker();
    let port = broker.port;
    let clients = [
        publisher(port, "pub", 4, 0, 0, 2_000_000, 0),
        subscriber(port, "sub", 4, 0, 0, 0),
    ];
    let plan = json!({"duration_ns": 1_500_000_000, "reconnect_after_ns": 20_000_000, "settle_ns": 100_000_000,
        "clients": clients});
    let outcome = run_plan(plan, |_| {
        std::thread::sleep(Duration::from_millis(300));
        broker.child.kill().unwrap();
        broker.child.wait().unwrap();
        broker = BrokerProcess::start(json!({"port": port, "allow_anonymous": true}));
    });
    let summary = outcome.result.unwrap();
    let kinds = |kind| summary.events.iter().filter(|event| event.kind == kind).count();
    assert_eq!(
        (
            kinds(ConnectionEventKind::Lost),
            kinds(ConnectionEventKind::Reconnected)
        ),
        (2, 2)
    );
    assert!(
        summary.senders[0].dropped > 0,
        "nothing is kept for later while the connection is down"
    );
    let last = outcome
        .records
        .iter()
        .filter(|record| record.kind == Kind::Received)
        .map(|record| record.sequence)
        .max();
    assert!(
        last.unwrap() > 700,
        "the end of the run was received again: {last:?}"
    );
}

#[test]
fn a_refused_client_is_told_why() {
    let nobody = common::scratch("passwords");
    std::fs::write(&nobody, "").unwrap();
    let broker = BrokerProcess::start(json!({"port": 0, "password_file": nobody}));
    std::fs::remove_file(&nobody).unwrap();
    let outcome = run_plan(
        json!({"duration_ns": 1, "clients": [subscriber(broker.port, "nobody", 5, 0, 0, 0)]}),
        |_| (),
    );
    let error = outcome.result.unwrap_err();
    assert!(
        matches!(&error, EndpointError::Connect { client, .. } if client == "nobody"),
        "{error}"
    );
    assert!(
        outcome.took < Duration::from_secs(5),
        "a refusal is not tried again: {:?}",
        outcome.took
    );
}

#[test]
fn a_broker_that_is_not_there_is_an_error_in_time() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let plan = json!({"duration_ns": 1, "connect_timeout_ns": 300_000_000,
        "clients": [subscriber(port, "early", 5, 0, 0, 0)]});
    let outcome = run_plan(plan, |_| ());
    assert!(outcome.result.unwrap_err().to_string().contains("refused"));
    assert!(
        outcome.took >= Duration::from_millis(200) && outcome.took < Duration::from_secs(2),
        "{:?}",
        outcome.took
    );
}

#[test]
fn fixed_ports_are_used_and_free_again_afterwards() {
    let broker = open_broker();
    let mut client = publisher(broker.port, "pub", 5, 1, 0, 1_000_000, 0);
    client["local_port"] = json!(29_417);
    for _ in 0..2 {
        let plan = json!({"duration_ns": 5_000_000, "settle_ns": 500_000_000, "clients": [client]});
        let summary = run_plan(plan, |_| ()).result.unwrap();
        assert_eq!(
            (summary.senders[0].local_port, summary.senders[0].acknowledged),
            (29_417, 5)
        );
    }
}

#[test]
fn a_run_can_be_stopped() {
    let broker = open_broker();
    let clients = [publisher(broker.port, "pub", 5, 0, 0, 1_000_000, 0)];
    let outcome = run_plan(
        json!({"duration_ns": 60_000_000_000u64, "clients": clients}),
        |control| {
            std::thread::sleep(Duration::from_millis(100));
            control.stop();
        },
    );
    let summary = outcome.result.unwrap();
    assert!(summary.stopped && summary.senders[0].sent > 10);
    assert_eq!(outcome.records.len() as u64, summary.senders[0].sent);
    assert!(outcome.took < Duration::from_secs(3));
}

/// A subscriber that keeps the very bytes: CONNECT with clean start, SUBSCRIBE to `plant/0` at QoS 0.
fn raw_subscriber(port: u16) -> std::net::TcpStream {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    stream
        .write_all(b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x03raw")
        .unwrap();
    assert!(stream.read(&mut [0; 100]).unwrap() > 4);
    stream
        .write_all(b"\x82\x0d\x00\x01\x00\x00\x07plant/0\x00")
        .unwrap();
    assert_eq!(stream.read(&mut [0; 100]).unwrap(), 6);
    stream
}

/// Segments with data that came in on this socket: `tcpi_data_segs_in` of `linux/tcp.h`, which `libc::tcp_info` ends before.
fn data_segments(stream: &std::net::TcpStream) -> u32 {
    const OFFSET: usize = 152;
    let mut info = [0u8; 256];
    let mut length: libc::socklen_t = 256;
    // SAFETY: the kernel writes at most `length` bytes, which is how many there are.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert!(
        done == 0 && length as usize >= OFFSET + 4,
        "TCP_INFO of {length} bytes"
    );
    u32::from_ne_bytes(info[OFFSET..OFFSET + 4].try_into().unwrap())
}

/// A frame with two of them would be larger than any that a plan declares.
#[test]
fn answers_to_messages_that_come_together_leave_in_segments_of_their_own() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let broker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert!(stream.read(&mut [0; 200]).unwrap() > 10);
        stream.write_all(b"\x20\x02\x00\x00").unwrap();
        assert!(stream.read(&mut [0; 200]).unwrap() > 10);
        let before = data_segments(&stream);
        let mut together = b"\x90\x03\x00\x01\x01".to_vec();
        for id in 1..=5u8 {
            together.extend_from_slice(b"\x32\x0e\x00\x07plant/0\x00");
            together.extend_from_slice(&[id, b'a', b'b', b'c']);
        }
        stream.write_all(&together).unwrap();
        let mut answers = [0; 20];
        stream.read_exact(&mut answers).unwrap();
        for (answer, id) in answers.chunks(4).zip(1..) {
            assert_eq!(answer, [0x40, 0x02, 0x00, id]);
        }
        // Open until the run is over.
        (data_segments(&stream) - before, stream)
    });
    let plan = json!({"duration_ns": 300_000_000, "clients": [subscriber(port, "sub", 4, 1, 0, 0)]});
    run_plan(plan, |_| ()).result.unwrap();
    assert_eq!(broker.join().unwrap().0, 5);
}

#[test]
fn measured_messages_are_forwarded_with_the_size_that_the_layout_states() {
    let broker = open_broker();
    let mut raw = raw_subscriber(broker.port);
    let clients = [publisher(
        broker.port,
        "a-name-that-must-not-show-up",
        5,
        1,
        0,
        1_000_000,
        0,
    )];
    let plan = json!({"duration_ns": 1_000_000, "settle_ns": 300_000_000, "clients": clients});
    run_plan(plan, |_| ()).result.unwrap();
    let mut bytes = [0; 1000];
    let count = raw.read(&mut bytes).unwrap();
    let layout = publish_frame_layout(Protocol::V5, "plant/0", Qos::AtMostOnce, 200);
    assert_eq!(count, layout.mqtt_bytes);
    assert_eq!(
        Header::read(&bytes[layout.payload_offset..count]).map(|header| header.flow),
        Some(0)
    );
}

#[test]
fn the_broker_ends_on_sigterm() {
    let mut broker = open_broker();
    let _idle = std::net::TcpStream::connect(("127.0.0.1", broker.port)).unwrap();
    // SAFETY: a plain system call on a process that this test started and has not yet waited for.
    unsafe { libc::kill(broker.child.id() as i32, libc::SIGTERM) };
    let begin = std::time::Instant::now();
    assert!(broker.child.wait().unwrap().success());
    assert!(begin.elapsed() < Duration::from_secs(2));
}

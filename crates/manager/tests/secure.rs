//! TLS and WebSocket in front of a manager, TLS behind it.

mod common;

use common::authority::{Site, chain, provider, secure};
use common::*;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;
use timebound_manager::Manager;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{self, Bytes, Message, WebSocket};

#[test]
fn a_certificate_names_the_user_of_a_connection_over_tls() {
    let (site, other) = (Site::new("user"), Site::new("other"));
    site.issue("press", "press-1", &[]);
    other.issue("press", "press-1", &[]);
    let broker = Broker::new();
    let manager = start(broker.port(), |config| {
        let mut listener = site.listener("tls");
        listener["client_authority"] = json!(site.path("authority.pem"));
        listener["certificate_as_user"] = json!(true);
        config["listeners"] = json!([listener]);
    });
    let mut client = secure(&site, "localhost", Some((&site, "press")), dial(&manager));
    client.write_all(&connect("press")).unwrap();
    let mut end = broker.accept();
    expect(
        &mut end,
        &packet(
            0x10,
            &[
                &text("MQTT"),
                &[5, 0x82, 0, 60, 0],
                &text("press"),
                &text("press-1"),
            ],
        ),
    );
    end.write_all(CONNACK).unwrap();
    expect(&mut client, CONNACK);
    let message = publish("a", 1, 1, &[("rt-deadline", "1 ms")], &vec![7; 200_000]);
    client.write_all(&message).unwrap();
    expect(&mut end, &message);
    let request = event(&manager, "request");
    assert_eq!(request["connection"]["certificate"], json!("press-1"));
    assert_eq!(request["connection"]["user"], json!("press-1"));
    // Without a certificate of this authority nobody gets in.
    for own in [None, Some((&other, "press"))] {
        let mut stranger = secure(&site, "localhost", own, dial(&manager));
        let _ = stranger.write_all(&connect("press"));
        assert!(stranger.read_exact(&mut [0]).is_err());
    }
    soon("failures are counted", || manager.stats().handshake_failures == 2);
    for _ in 0..2 {
        let told = event(&manager, "handshake");
        assert_eq!(told["client_address"], json!("127.0.0.1"));
        assert!(told["client_port"].as_u64().unwrap() > 0);
        assert!(
            told["reason"]
                .as_str()
                .unwrap()
                .to_lowercase()
                .contains("certificate"),
            "{told}"
        );
    }
}

#[test]
fn strangers_without_tls_do_not_fill_the_queue() {
    let site = Site::new("strangers");
    let broker = Broker::new();
    let manager = start(broker.port(), |config| {
        config["listeners"] = json!([site.listener("tls")]);
        config["threads"] = json!(1);
    });
    for _ in 0..40 {
        let mut stranger = dial(&manager);
        let _ = stranger.write_all(b"GET / HTTP/1.1\r\n\r\n");
        let _ = stranger.read_exact(&mut [0]);
    }
    soon("all are counted", || manager.stats().handshake_failures == 40);
    let told = manager.poll(Duration::from_millis(200)).len();
    assert!(
        (1..=10).contains(&told),
        "{told}: five in each of the two seconds that this may have met"
    );
}

#[test]
fn a_certificate_that_is_only_shown_is_told() {
    let site = Site::new("shown");
    site.issue("press", "press-1", &[]);
    let broker = Broker::new();
    let manager = start(broker.port(), |config| {
        let mut listener = site.listener("tls");
        listener["client_authority"] = json!(site.path("authority.pem"));
        config["listeners"] = json!([listener]);
    });
    for (own, name) in [(Some((&site, "press")), json!("press-1")), (None, json!(null))] {
        let mut client = secure(&site, "localhost", own, dial(&manager));
        client.write_all(&connect("c")).unwrap();
        let mut end = broker.accept();
        expect(&mut end, &connect("c"));
        client
            .write_all(&publish("a", 0, 0, &[("rt-deadline", "1 ms")], b""))
            .unwrap();
        let request = event(&manager, "request");
        assert_eq!(
            (
                &request["connection"]["certificate"],
                &request["connection"]["user"]
            ),
            (&name, &json!(null))
        );
    }
}

#[test]
fn the_way_to_the_broker_is_encrypted_and_its_name_checked() {
    let site = Site::new("broker");
    let broker = Broker::new();
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            chain(&site.path("server.pem")),
            PrivateKeyDer::from_pem_file(site.path("server.key")).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let manager_for = |name: &str| {
        start(broker.port(), |value| {
            value["broker"]["tls"] = json!({"authority": site.path("authority.pem"), "server_name": name});
        })
    };
    let manager = manager_for("localhost");
    let mut client = dial(&manager);
    client.write_all(&connect("press")).unwrap();
    let mut end = StreamOwned::new(
        ServerConnection::new(Arc::clone(&config)).unwrap(),
        broker.accept(),
    );
    expect(&mut end, &connect("press"));
    end.write_all(CONNACK).unwrap();
    expect(&mut client, CONNACK);
    let large = publish("down", 0, 0, &[], &vec![3; 500_000]);
    end.write_all(&large).unwrap();
    expect(&mut client, &large);
    // Another name: it is not the broker.
    let manager = manager_for("elsewhere");
    let mut client = dial(&manager);
    client.write_all(&connect("press")).unwrap();
    let mut end = StreamOwned::new(ServerConnection::new(config).unwrap(), broker.accept());
    assert!(end.read_exact(&mut [0]).is_err());
    assert_eq!(rest(&mut client), [0x20, 3, 0, 0x88, 0]);
}

fn websocket<S: Read + Write>(
    stream: S,
    protocol: Option<&'static str>,
) -> tungstenite::Result<WebSocket<S>> {
    let mut request = "ws://localhost/mqtt".into_client_request().unwrap();
    if let Some(protocol) = protocol {
        let headers = request.headers_mut();
        headers.insert("sec-websocket-protocol", HeaderValue::from_static(protocol));
    }
    match tungstenite::client(request, stream) {
        Ok((socket, response)) => {
            assert_eq!(response.headers()["sec-websocket-protocol"], "mqtt");
            Ok(socket)
        }
        Err(tungstenite::HandshakeError::Failure(error)) => Err(error),
        Err(tungstenite::HandshakeError::Interrupted(_)) => panic!("a blocking socket"),
    }
}

/// So many bytes of binary messages.
fn collect<S: Read + Write>(socket: &mut WebSocket<S>, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < count {
        if let Message::Binary(piece) = socket.read().unwrap() {
            bytes.extend(&piece);
        }
    }
    bytes
}

fn talk<S: Read + Write>(socket: &mut WebSocket<S>, broker: &Broker) {
    // Packets may begin and end anywhere in messages.
    let (connect, large) = (connect("web"), publish("a", 0, 0, &[], &vec![5; 300_000]));
    let all = [connect.clone(), large.clone()].concat();
    for piece in [
        &all[..3],
        &all[3..20],
        &all[20..20],
        &all[20..150_000],
        &all[150_000..],
    ] {
        socket
            .send(Message::Binary(Bytes::copy_from_slice(piece)))
            .unwrap();
    }
    socket.send(Message::Ping(Bytes::from_static(b"?"))).unwrap();
    let mut end = broker.accept();
    expect(&mut end, &all);
    end.write_all(&[CONNACK, &large].concat()).unwrap();
    assert!(collect(socket, CONNACK.len() + large.len()) == [CONNACK, &large].concat());
    socket.close(None).unwrap();
    assert_eq!(rest(&mut end), b"");
}

#[test]
fn mqtt_over_websocket() {
    let broker = Broker::new();
    let manager = start(broker.port(), |config| {
        config["listeners"][0]["kind"] = json!("ws");
        config["limits"] = json!({"websocket_bytes": 400_000});
    });
    talk(&mut websocket(dial(&manager), Some("mqtt")).unwrap(), &broker);
    talk(
        &mut websocket(dial(&manager), Some("chat, mqtt")).unwrap(),
        &broker,
    );
    for protocol in [None, Some("chat")] {
        assert!(websocket(dial(&manager), protocol).is_err());
    }
    soon("all are gone", || manager.stats().connections == 0);
    assert_eq!(manager.stats().handshake_failures, 2);
}

/// The answer to bytes at a port for WebSocket, to its end.
fn answered<S: Read + Write>(mut stream: S, bytes: &[u8]) -> String {
    stream.write_all(bytes).unwrap();
    String::from_utf8_lossy(&rest(&mut stream)).into_owned()
}

#[test]
fn who_speaks_plain_http_is_told_what_is_spoken_here() {
    let (site, broker) = (Site::new("http"), Broker::new());
    let manager = start(broker.port(), |config| {
        let plain = json!({"address": "127.0.0.1", "port": 0, "kind": "ws"});
        config["listeners"] = json!([plain, site.listener("wss")]);
    });
    let request = |first: &str, more: &str| format!("{first} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n");
    let upgrade =
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let long = format!("X: {}\r\n", "x".repeat(20_000));
    let mut failures = 0;
    for (asked, status, said) in [
        (
            request("GET /", ""),
            "426 Upgrade Required",
            "Upgrade: websocket\r\n",
        ),
        (
            request("GET /mqtt", &format!("{upgrade}Sec-WebSocket-Version: 8\r\n")),
            "426 Upgrade Required",
            "Sec-WebSocket-Version: 13\r\n",
        ),
        (request("POST /", ""), "405 Method Not Allowed", "Allow: GET\r\n"),
        (
            request("GET /mqtt", &format!("{upgrade}Sec-WebSocket-Version: 13\r\n")),
            "400 Bad Request",
            "subprotocol",
        ),
        (
            String::from_utf8(connect("no web at all")).unwrap(),
            "400 Bad Request",
            "MQTT over WebSocket",
        ),
        (
            request("GET /", &long),
            "431 Request Header Fields Too Large",
            "16 KiB",
        ),
    ] {
        let secured = ready(std::net::TcpStream::connect(manager.addresses()[1]).unwrap());
        for answer in [
            answered(dial(&manager), asked.as_bytes()),
            answered(secure(&site, "localhost", None, secured), asked.as_bytes()),
        ] {
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
            assert!(answer.contains(said), "{answer}");
            failures += 1;
        }
        // Five of each thread in a second are told.
        if failures <= 6 {
            for _ in 0..2 {
                let (told, code) = (event(&manager, "handshake"), &status[..3]);
                let reason = told["reason"].as_str().unwrap();
                assert!(reason.contains(&format!("(answered {code})")), "{told}");
            }
        }
    }
    soon("all are counted", || {
        manager.stats().handshake_failures == failures
    });
}

#[test]
fn what_breaks_websocket_is_closed_with_its_status_code() {
    let broker = Broker::new();
    let manager = start(broker.port(), |config| {
        config["listeners"][0]["kind"] = json!("ws");
        config["limits"] = json!({"websocket_bytes": 400_000});
    });
    let masked =
        |first: u8, payload: &[u8]| [&[first, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat();
    for (frames, code, said) in [
        (vec![0x82, 1, b'x'], 1002u16, "a frame without a mask"),
        (masked(0xc2, b"x"), 1002, "a frame with reserved bits"),
        (masked(0x81, b"hello"), 1003, "a text message"),
        (
            vec![0x82, 0xff, 0, 0, 0, 0, 0, 6, 0x1a, 0x81, 0, 0, 0, 0],
            1009,
            "a message that is too large",
        ),
    ] {
        for is_connected in [true, false] {
            let mut socket = websocket(dial(&manager), Some("mqttv3.1, mqtt")).unwrap();
            let mut end;
            if is_connected {
                socket.send(Message::Binary(connect("web").into())).unwrap();
                end = broker.accept();
                expect(&mut end, &connect("web"));
                end.write_all(CONNACK).unwrap();
                assert_eq!(collect(&mut socket, CONNACK.len()), CONNACK);
            }
            let stream = socket.get_mut();
            stream.write_all(&frames).unwrap();
            // What nobody reads must not take the answer back.
            drop(stream.write_all(&[0; 100_000]));
            assert_eq!(
                rest(stream),
                [&[0x88, 2][..], &code.to_be_bytes()].concat(),
                "{said}"
            );
            let told = event(&manager, "offence");
            assert_eq!(
                told["reason"],
                json!(format!("WebSocket: {said} (closed with {code})"))
            );
            assert_eq!(told["client_id"], json!(if is_connected { "web" } else { "" }));
        }
    }
    let violations = manager.stats().websocket_violations;
    assert_eq!(
        (violations.protocol, violations.text, violations.too_large),
        (4, 2, 2)
    );
    soon("all are gone", || manager.stats().connections == 0);
}

#[test]
fn a_websocket_ends_as_the_standard_says() {
    let broker = Broker::new();
    let manager = start(broker.port(), |config| {
        config["listeners"][0]["kind"] = json!("ws")
    });
    for by_client in [true, false] {
        let mut socket = websocket(dial(&manager), Some("mqtt")).unwrap();
        socket.send(Message::Binary(connect("web").into())).unwrap();
        let mut end = broker.accept();
        expect(&mut end, &connect("web"));
        if by_client {
            let close = tungstenite::protocol::CloseFrame {
                code: 1001.into(),
                reason: "".into(),
            };
            socket.close(Some(close)).unwrap();
        } else {
            drop(end);
        }
        let code = loop {
            if let Message::Close(close) = socket.read().unwrap() {
                break u16::from(close.unwrap().code);
            }
        };
        assert_eq!(code, if by_client { 1001 } else { 1000 });
        assert!(matches!(socket.read(), Err(tungstenite::Error::ConnectionClosed)));
    }
    soon("all are gone", || manager.stats().connections == 0);
}

#[test]
fn mqtt_over_websocket_over_tls() {
    let (site, broker) = (Site::new("wss"), Broker::new());
    let manager = start(broker.port(), |config| {
        config["listeners"] = json!([site.listener("wss")])
    });
    talk(
        &mut websocket(secure(&site, "localhost", None, dial(&manager)), Some("mqtt")).unwrap(),
        &broker,
    );
}

#[test]
fn configurations_that_cannot_be() {
    let site = Site::new("wrong");
    std::fs::write(site.path("empty.pem"), "nothing").unwrap();
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut config = json!({"name": "m", "listeners": [site.listener("tls")], "broker": {"address": "127.0.0.1", "port": 1}});
        change(&mut config);
        let config = serde_json::from_value(config).unwrap();
        Manager::start(&config)
            .err()
            .map(|error| error.to_string())
            .expect("refused")
    };
    for (text, said) in [
        (
            refused(&|config| config["name"] = json!("two words")),
            "name: it must be one word",
        ),
        (refused(&|config| config["listeners"] = json!([])), "at least one"),
        (
            refused(&|config| config["hold_ms"] = json!(6_000)),
            "hold_ms: at most 5000",
        ),
        (
            refused(&|config| config["listeners"][0]["key"] = json!(null)),
            "needs a key",
        ),
        (
            refused(&|config| config["listeners"][0]["key"] = json!(site.path("none.key"))),
            "none.key",
        ),
        (
            refused(&|config| config["listeners"][0]["certificate"] = json!(site.path("empty.pem"))),
            "no certificate in it",
        ),
        (
            refused(&|config| config["listeners"][0]["certificate_as_user"] = json!(true)),
            "client_authority",
        ),
        (
            refused(&|config| {
                config["broker"]["tls"] =
                    json!({"authority": site.path("authority.pem"), "server_name": "no name"})
            }),
            "no name",
        ),
        (
            refused(&|config| config["listeners"][0]["address"] = json!("192.0.2.1")),
            "cannot listen at 192.0.2.1:0",
        ),
    ] {
        assert!(text.contains(said), "{text}");
    }
}

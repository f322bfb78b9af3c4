//! Stock clients through a manager to a stock broker: mosquitto_pub, mosquitto_sub, mosquitto.

mod common;

use common::*;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use timebound_manager::Manager;

/// A broker of the test's own, killed when dropped.
struct Mosquitto {
    child: Child,
    port: u16,
    configuration: PathBuf,
}

impl Mosquitto {
    /// `None`, with the reason printed, where it is not installed and nobody insists.
    fn start() -> Option<Self> {
        if !need(&["mosquitto", "mosquitto_pub", "mosquitto_sub"]) {
            return None;
        }
        // Freed at once: nobody else takes it meanwhile, or the broker says so and the test fails.
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let configuration =
            std::env::temp_dir().join(format!("timebound-manager-{}-{port}.conf", std::process::id()));
        let lines = format!("listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n");
        std::fs::write(&configuration, lines).unwrap();
        let child = Command::new(find("mosquitto").unwrap())
            .arg("-c")
            .arg(&configuration)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let broker = Self {
            child,
            port,
            configuration,
        };
        soon("the broker listens", || TcpStream::connect(address(port)).is_ok());
        Some(broker)
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.configuration);
    }
}

/// Gives every request this verdict while something else is done.
fn with_verdict<R>(manager: &Manager, verdict: &Value, what: impl FnOnce() -> R) -> (R, Vec<Value>) {
    let is_over = AtomicBool::new(false);
    manager.control(true);
    std::thread::scope(|scope| {
        let deciding = scope.spawn(|| {
            let mut requests = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                for event in manager.poll(Duration::from_millis(20)) {
                    let event = serde_json::to_value(event).unwrap();
                    if event["kind"] == "request" {
                        decide(manager, &event, verdict);
                        requests.push(event);
                    }
                }
            }
            requests
        });
        let result = what();
        is_over.store(true, Ordering::Relaxed);
        (result, deciding.join().unwrap())
    })
}

fn run(name: &str, manager: &Manager, arguments: &[&str]) -> Output {
    let port = manager.addresses()[0].port().to_string();
    let command = Command::new(name)
        .args(["-h", "127.0.0.1", "-p", &port])
        .args(arguments)
        .output();
    command.unwrap()
}

/// A subscriber; its messages come as they are printed.
struct Subscriber(Child, Receiver<String>);

impl Subscriber {
    /// Returns once the broker has taken the subscription.
    fn start(manager: &Manager, arguments: &[&str]) -> Self {
        let port = manager.addresses()[0].port().to_string();
        let before = manager.stats().packets.down;
        let mut child = Command::new("mosquitto_sub")
            .args(["-h", "127.0.0.1", "-p", &port])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (lines, received) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| lines.send(line))
        });
        // CONNACK and SUBACK.
        soon("it is subscribed", || manager.stats().packets.down >= before + 2);
        Self(child, received)
    }

    fn line(&mut self) -> String {
        self.1.recv_timeout(LONG).expect("a message")
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const ASKS: [&str; 8] = [
    "-D",
    "publish",
    "user-property",
    "rt-deadline",
    "20 ms",
    "-D",
    "publish",
    "user-property",
];

#[test]
fn stock_clients_ask_and_are_answered() {
    let Some(broker) = Mosquitto::start() else { return };
    let manager = start(broker.port, |config| config["hold_ms"] = json!(5_000));
    let mut subscriber = Subscriber::start(&manager, &["-V", "5", "-q", "1", "-t", "plant/#"]);
    let publish = |more: &[&str]| {
        let asks = [&ASKS[..], &["rt-strict", "yes"], more].concat();
        run(
            "mosquitto_pub",
            &manager,
            &[&["-V", "5", "-q", "1", "-t", "plant/alarm"], &asks[..]].concat(),
        )
    };
    let granted = json!({"outcome": "granted", "priority": 5, "bound_ns": 1_000_000});
    let (output, requests) = with_verdict(&manager, &granted, || publish(&["-m", "granted"]));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0]["topic"], json!("plant/alarm"));
    let asked = &requests[0]["requirements"];
    assert_eq!(
        (&asked["deadline_ns"], &asked["size_bytes"], &asked["qos"]),
        (&json!(20_000_000), &json!(7), &json!(1))
    );
    let refused = json!({"outcome": "refused", "reason": "no way is free"});
    let (output, _) = with_verdict(&manager, &refused, || publish(&["-m", "refused"]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Quota exceeded"), "{output:?}");
    // MQTT 3.1.1 passes as it is.
    let output = run(
        "mosquitto_pub",
        &manager,
        &["-V", "311", "-q", "2", "-t", "plant/alarm", "-m", "old"],
    );
    assert!(output.status.success());
    assert_eq!([subscriber.line(), subscriber.line()], ["granted", "old"]);
    soon("the publishers are gone", || manager.stats().connections == 1);
    let stats = manager.stats();
    assert_eq!(
        (stats.requests, stats.requests_now, stats.refusals.publish),
        (2, 0, 1)
    );
}

#[test]
fn a_strict_subscription_that_is_refused_is_denied() {
    let Some(broker) = Mosquitto::start() else { return };
    let manager = start(broker.port, |config| config["hold_ms"] = json!(5_000));
    let asks = [
        "-D",
        "subscribe",
        "user-property",
        "rt-deadline",
        "20 ms",
        "-D",
        "subscribe",
        "user-property",
        "rt-strict",
        "yes",
    ];
    let arguments = [&["-V", "5", "-t", "a/#", "-t", "b"][..], &asks].concat();
    let refused = json!({"outcome": "refused", "reason": "no"});
    let (output, requests) = with_verdict(&manager, &refused, || run("mosquitto_sub", &manager, &arguments));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("All subscription requests were denied"),
        "{output:?}"
    );
    let topics: Vec<_> = requests.iter().map(|request| &request["topic"]).collect();
    assert_eq!(topics, [&json!("a/#"), &json!("b")]);
    let granted = json!({"outcome": "granted", "priority": 3});
    let (mut subscriber, _) = with_verdict(&manager, &granted, || Subscriber::start(&manager, &arguments));
    run("mosquitto_pub", &manager, &["-t", "a/1", "-m", "hello"]);
    assert_eq!(subscriber.line(), "hello");
}

#[test]
fn messages_of_each_quality_arrive_in_order() {
    let Some(broker) = Mosquitto::start() else { return };
    let manager = start(broker.port, |config| config["hold_ms"] = json!(20));
    // Nobody answers: each held packet goes on after its time, and nothing is overtaken.
    manager.control(true);
    // More than its window of QoS 2 messages at once is too much for mosquitto_sub 2.0.11, also without a manager.
    for (qos, count) in [("0", 1_000), ("1", 1_000), ("2", 15)] {
        let mut subscriber = Subscriber::start(&manager, &["-V", "5", "-q", qos, "-t", "count"]);
        let lines: String = (0..count).map(|number| format!("{number}\n")).collect();
        let file = std::env::temp_dir().join(format!("timebound-manager-{}-{qos}.txt", std::process::id()));
        std::fs::write(&file, lines).unwrap();
        let port = manager.addresses()[0].port().to_string();
        let mut publisher = Command::new("mosquitto_pub")
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &port,
                "-V",
                "5",
                "-q",
                qos,
                "-t",
                "count",
                "-l",
            ])
            .args(ASKS)
            .args(["rt-priority", "3"])
            .stdin(std::fs::File::open(&file).unwrap())
            .spawn()
            .unwrap();
        for number in 0..count {
            assert_eq!(subscriber.line(), number.to_string());
        }
        assert!(publisher.wait().unwrap().success());
        std::fs::remove_file(&file).unwrap();
    }
    assert!(manager.stats().holds.timeout >= 3);
}

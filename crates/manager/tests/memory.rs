//! What a manager takes of memory. One test: whatever else ran in its process would be counted.

mod common;

use common::*;
use serde_json::json;
use std::io::Write;

/// Bytes of memory that the process has (proc(5), statm).
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    4_096 * statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
}

/// Each held what it had sent: 20,000 of them 5 GB.
#[test]
fn connects_that_never_end_hold_no_more_than_all_may() {
    let broker = Broker::new();
    let manager = start(broker.port(), |config| {
        config["limits"] = json!({"strangers_bytes": 4 << 20, "handshake_ms": 60_000});
    });
    let begun = &longest_connect()[..256 * 1024];
    let before = resident();
    let mut held = Vec::new();
    for number in 0..800u32 {
        let mut client = dial_from(&manager, 1 + (number % 4) as u8);
        client.set_nonblocking(true).unwrap();
        // What is closed takes no more.
        let _ = client.write(begun);
        held.push(client);
        assert!(manager.stats().strangers.bytes <= 4 << 20);
    }
    soon("most were crowded out", || {
        manager.stats().strangers.crowded_out > 100
    });
    let stats = manager.stats().strangers;
    assert!(
        stats
            .last
            .is_some_and(|last| last.to_string().starts_with("127.0.0."))
    );
    // They would have held 200 MiB. Besides what they may hold there are buffers that are kept for the next connection.
    assert!(resident() - before < 48 << 20, "{}", resident() - before);
    // Whoever says what is usual gets in.
    join(&manager, &broker, "press");
    held.clear();
    soon("all are gone", || manager.stats().strangers.now == 0);
    assert_eq!(
        (manager.stats().strangers.bytes, manager.stats().connections),
        (0, 0)
    );
    soon("their memory is given back", || resident() - before < 24 << 20);
}

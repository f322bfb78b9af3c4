#![no_main]
//! Payloads without room for a measurement header, as anybody may send them to a flow's receiver.

use libfuzzer_sys::fuzz_target;
use timebound_wire::short::{Follower, sequence_bytes, write};

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let size = usize::from(*first) % 24;
    let mut follower = Follower::default();
    for payload in rest.chunks(size.max(1)) {
        let payload = &payload[..payload.len().min(size)];
        let sequence = follower.read(payload);
        let mut again = payload.to_vec();
        write(sequence, &mut again);
        // Whatever number it takes a message for, its low bytes are those that stood there.
        assert_eq!(again, payload, "{}", sequence_bytes(size));
    }
});

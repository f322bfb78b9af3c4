#![no_main]
//! Packets as a broker may send them.

use libfuzzer_sys::fuzz_target;
use timebound_endpoints::plan::Protocol;
use timebound_endpoints::wire;

fuzz_target!(|data: &[u8]| {
    for protocol in [Protocol::V4, Protocol::V5] {
        if let Ok(Some(framed)) = wire::next_packet(data) {
            let _ = wire::PublishView::read(&framed, protocol);
        }
    }
    let _ = wire::Header::read(data);
});

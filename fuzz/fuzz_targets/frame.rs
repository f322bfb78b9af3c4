#![no_main]
//! Ethernet frames as nodes may send them.

use libfuzzer_sys::fuzz_target;
use timebound_fabric::transit::fingerprint;
use timebound_fabric::{classify, l2};

fuzz_target!(|data: &[u8]| {
    let _ = l2::arp::parse(data);
    let _ = l2::group_route(data);
    if let Some(memberships) = l2::igmp::parse(data) {
        assert!(memberships.count() <= data.len());
    }
    let before = classify::class_of(data);
    let mut frame = data.to_vec();
    let _ = fingerprint(data);
    if classify::set_dscp(&mut frame, 46) {
        assert_eq!(classify::dscp_of(&frame), Some(46));
        assert_eq!(frame.len(), data.len());
    } else {
        assert_eq!(classify::class_of(&frame), before);
    }
});

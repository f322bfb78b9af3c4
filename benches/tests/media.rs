//! Weighted ports, half-duplex media, slots: a slice of what `make bench` holds against simulation and search.

use std::sync::Arc;
use timebound_benches::hold::{Held, hold_with};
use timebound_benches::media::{Dress, dressed};

#[test]
fn no_simulated_latency_exceeds_its_bound_however_ports_are_served() {
    for dress in Dress::ALL {
        let mut all = Held::default();
        for index in 0..60 {
            let network = Arc::new(dressed(11, index, dress));
            all.add(hold_with(&network, index, 6, index % 2 == 0));
        }
        assert!(all.broken.is_empty(), "{dress:?}: {:#?}", all.broken);
        assert!(
            all.bounded > 200 && all.tightness.len() > 200,
            "{dress:?}: too few bounds to mean anything: {}",
            all.bounded
        );
    }
}

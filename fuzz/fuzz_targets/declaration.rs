#![no_main]
//! Declarations: they compile and are analysed, or are refused; nothing panics, overflows or loops for ever.

use libfuzzer_sys::fuzz_target;
use timebound_bounds::{Options, holistic};
use timebound_model::{Declaration, compile};

fuzz_target!(|data: &[u8]| {
    let Ok(declaration) = serde_json::from_slice::<Declaration>(data) else { return };
    if declaration.nodes.len() > 40 || declaration.streams.len() > 60 {
        return;
    }
    if let Ok(network) = compile(&declaration) {
        let _ = holistic(&network, &Options::default());
    }
});

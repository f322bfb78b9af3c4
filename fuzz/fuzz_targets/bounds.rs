//! Bytes as a network (a decoder shared with the property tests of `timebound-bounds`): every method answers, no answer contradicts
//! another, every bound has an explanation that adds up; nothing panics, overflows or loops for ever.
#![no_main]

#[path = "../../crates/bounds/tests/support/decode.rs"]
mod decode;

use decode::{Bytes, declaration, distort, examine, network};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes(data);
    let beyond = bytes.byte() % 8 == 0;
    let Some(mut network) = network(declaration(&mut bytes)) else { return };
    if beyond {
        distort(&mut network, &mut bytes);
    }
    examine(&network, &mut bytes);
});

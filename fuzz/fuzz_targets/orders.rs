//! Lines of the control socket: whatever arrives is read or refused, and what was read reads back the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = timebound_live::control::orders::parse(bytes) {
        let line = serde_json::to_vec(&request).expect("a request is JSON");
        assert_eq!(timebound_live::control::orders::parse(&line), Ok(request));
    }
});

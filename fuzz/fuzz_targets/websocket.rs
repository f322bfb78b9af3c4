#![no_main]
//! Frames of WebSocket from a client that sends anything: however the bytes are cut, the same payload comes of them.

use libfuzzer_sys::fuzz_target;
use timebound_wire::websocket::{Reader, write_pong};

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let (mut whole, mut bytes) = (Reader::new(200), rest.to_vec());
    let count = whole.unwrap(&mut bytes);
    bytes.truncate(count);
    let (mut cut, mut found) = (Reader::new(200), Vec::new());
    for piece in rest.chunks(usize::from(*first) + 1) {
        let mut piece = piece.to_vec();
        let count = cut.unwrap(&mut piece);
        found.extend(&piece[..count]);
    }
    assert_eq!((found, cut.end()), (bytes, whole.end()));
    assert_eq!(cut.take_ping(), whole.take_ping().inspect(|ping| {
        let mut pong = Vec::new();
        write_pong(ping, &mut pong);
        assert_eq!(&pong[2..], ping);
    }));
});

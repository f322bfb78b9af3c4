use super::*;
use proptest::prelude::*;

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A client's frame; `first` is its first byte.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | length as u8),
        length @ 126..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    let masked = payload.iter().zip(MASK.iter().cycle());
    bytes.extend(masked.map(|(byte, mask)| byte ^ mask));
    bytes
}

/// Payload that comes of bytes in pieces of this size, and the end.
fn read(most: u64, bytes: &[u8], piece: usize) -> (Vec<u8>, Option<End>) {
    let mut reader = Reader::new(most);
    let mut found = Vec::new();
    for piece in bytes.chunks(piece) {
        let mut piece = piece.to_vec();
        let count = reader.unwrap(&mut piece);
        found.extend(&piece[..count]);
    }
    (found, reader.end())
}

/// Section 5.7: a masked Hello (as binary).
#[test]
fn the_example_of_the_standard() {
    let bytes = [0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(read(5, &bytes, 100), (b"Hello".to_vec(), None));
    assert_eq!(bytes, frame(0x82, b"Hello")[..]);
}

#[test]
fn every_violation_has_its_status_code() {
    let too_long_a_length = [0x82, 0xfe, 0, 5, 1, 2, 3, 4, 0, 0, 0, 0, 0];
    let negative = [0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    for (bytes, violation, code) in [
        (vec![0x82, 0x01, 0], Violation::Unmasked, 1002),
        (frame(0xc2, b"x"), Violation::ReservedBits, 1002),
        (frame(0xa2, b"x"), Violation::ReservedBits, 1002),
        (frame(0x92, b"x"), Violation::ReservedBits, 1002),
        (frame(0x83, b"x"), Violation::Opcode, 1002),
        (frame(0x8b, b"x"), Violation::Opcode, 1002),
        (frame(0x89, &[0; 126]), Violation::Control, 1002),
        (frame(0x09, b"x"), Violation::Control, 1002),
        (frame(0x80, b"x"), Violation::Fragments, 1002),
        (
            [frame(0x02, b"x"), frame(0x82, b"y")].concat(),
            Violation::Fragments,
            1002,
        ),
        (too_long_a_length.to_vec(), Violation::Length, 1002),
        (negative.to_vec(), Violation::Length, 1002),
        (frame(0x88, &[3]), Violation::Close, 1002),
        (frame(0x88, &[3, 0xed]), Violation::Close, 1002),
        (frame(0x88, &[3, 0xe8, 0xff]), Violation::Close, 1002),
        (frame(0x81, b"text"), Violation::Text, 1003),
        (frame(0x82, &[0; 1_001]), Violation::TooLarge, 1009),
        (
            [frame(0x02, &[0; 600]), frame(0x80, &[0; 401])].concat(),
            Violation::TooLarge,
            1009,
        ),
    ] {
        for piece in [1, 1_000] {
            let before = [frame(0x82, b"good"), bytes.clone(), frame(0x82, b"unread")].concat();
            let (found, end) = read(1_000, &before, piece);
            assert_eq!(end, Some(End::Violated(violation)), "{violation}");
            assert!(found.starts_with(b"good") && !found.ends_with(b"unread"));
        }
        assert_eq!(violation.code(), code);
    }
}

#[test]
fn a_length_is_judged_before_its_payload_comes() {
    let mut bytes = frame(0x82, &[0; 70_000]);
    bytes.truncate(10);
    assert_eq!(
        read(1_000, &bytes, 100).1,
        Some(End::Violated(Violation::TooLarge))
    );
}

#[test]
fn control_frames_come_between_fragments() {
    let bytes = [
        frame(0x02, b"ab"),
        frame(0x89, b"one"),
        frame(0x00, b""),
        frame(0x89, b"two"),
        frame(0x8a, b"?"),
        frame(0x80, b"c"),
        frame(0x88, &[3, 0xe8, b'!']),
        frame(0x82, b"late"),
    ]
    .concat();
    let mut reader = Reader::new(3);
    let mut copy = bytes.clone();
    let count = reader.unwrap(&mut copy);
    assert_eq!(&copy[..count], b"abc");
    assert_eq!(reader.take_ping(), Some(b"two".to_vec()));
    assert_eq!(reader.take_ping(), None);
    assert_eq!(reader.end(), Some(End::Closed(Some(1000))));
    assert_eq!(read(10, &frame(0x88, b""), 1), (vec![], Some(End::Closed(None))));
}

#[test]
fn what_a_server_writes() {
    let written = |payload: &[u8]| {
        let mut out = Vec::new();
        write_message(payload, &mut out);
        out
    };
    assert_eq!(written(b"ab"), [0x82, 2, b'a', b'b']);
    assert_eq!(written(&[0; 126])[..4], [0x82, 126, 0, 126]);
    assert_eq!(written(&[0; 65_536])[..10], [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    let mut out = Vec::new();
    write_pong(&[7; 130], &mut out);
    assert_eq!((out.len(), &out[..2]), (127, &[0x8a, 125][..]));
    out.clear();
    write_close(Some(1009), &mut out);
    write_close(None, &mut out);
    assert_eq!(out, [0x88, 2, 3, 0xf1, 0x88, 0]);
}

proptest! {
    #[test]
    fn payload_comes_through_however_it_is_cut(
        pieces in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..300), any::<bool>()), 0..8),
        piece in 1usize..400,
    ) {
        let (mut bytes, mut sent, mut open) = (Vec::new(), Vec::new(), false);
        for (payload, is_final) in &pieces {
            let opcode = if open { 0 } else { 2 };
            bytes.extend(frame(u8::from(*is_final) << 7 | opcode, payload));
            sent.extend(payload);
            open = !is_final;
        }
        prop_assert_eq!(read(10_000, &bytes, piece), (sent, None));
    }

    #[test]
    fn whatever_comes_means_the_same_however_it_is_cut(
        bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0x82), Just(0x80), Just(0)], 0..400),
        piece in 1usize..50,
    ) {
        let whole = read(200, &bytes, bytes.len().max(1));
        prop_assert!(whole.0.len() <= bytes.len());
        prop_assert_eq!(read(200, &bytes, piece), whole);
    }
}

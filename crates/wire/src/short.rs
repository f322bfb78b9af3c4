//! Measured messages without room for a measurement header.
//!
//! Their payload begins with the low bytes of their sequence number, little-endian: as many as fit, four at most, none in an empty
//! payload. Who reads them knows the flow by the connection (or 5-tuple, or topic) that brought them, and the rest of the number by
//! the messages before: of all numbers with these low bytes the one nearest to what would be next. An empty payload counts on.

/// Size of the measurement header; smaller payloads are short ones.
pub const HEADER_BYTES: usize = 24;

/// Bytes of the sequence number in a payload of `payload_bytes`.
#[must_use]
pub const fn sequence_bytes(payload_bytes: usize) -> usize {
    if payload_bytes < 4 { payload_bytes } else { 4 }
}

/// Writes what fits of `sequence` over the start of a short payload.
pub fn write(sequence: u32, payload: &mut [u8]) {
    let bytes = sequence_bytes(payload.len());
    payload[..bytes].copy_from_slice(&sequence.to_le_bytes()[..bytes]);
}

/// Follows the messages of one flow as they come by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Follower {
    next: u32,
}

impl Follower {
    /// The sequence number of the message with this payload.
    ///
    /// With `n` bytes in the payload it is right while fewer than half of `256^n` messages are missing in a row, and messages come late
    /// or twice by no more than that; of empty ones none may be missing.
    pub fn read(&mut self, payload: &[u8]) -> u32 {
        let bytes = sequence_bytes(payload.len());
        let mut low = [0; 4];
        low[..bytes].copy_from_slice(&payload[..bytes]);
        let low = u32::from_le_bytes(low);
        let sequence = match bytes {
            0 => self.next,
            4 => low,
            _ => {
                let span = 1u32 << (8 * bytes);
                let ahead = low.wrapping_sub(self.next) & (span - 1);
                let back = span - ahead;
                // A number below zero does not exist.
                if ahead >= span / 2 && self.next >= back {
                    self.next - back
                } else {
                    self.next.wrapping_add(ahead)
                }
            }
        };
        self.next = self.next.max(sequence.wrapping_add(1));
        sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn payload(sequence: u32, size: usize) -> Vec<u8> {
        let mut payload = vec![0x54; size];
        write(sequence, &mut payload);
        payload
    }

    proptest! {
        #[test]
        fn what_fits_of_a_number_is_written_and_the_rest_stays(sequence: u32, size in 0usize..HEADER_BYTES) {
            let payload = payload(sequence, size);
            let bytes = sequence_bytes(size);
            prop_assert_eq!(&payload[..bytes], &sequence.to_le_bytes()[..bytes]);
            prop_assert!(payload[bytes..].iter().all(|byte| *byte == 0x54));
        }

        /// Steps are drawn as (missing messages, how far back one comes late or again).
        #[test]
        fn numbers_come_back_over_losses_and_copies(
            size in 1usize..HEADER_BYTES, steps in proptest::collection::vec((0u32..120, 0u32..120), 1..400),
        ) {
            let (mut follower, mut sequence) = (Follower::default(), 0u32);
            for (missing, back) in steps {
                sequence += missing;
                prop_assert_eq!(follower.read(&payload(sequence, size)), sequence);
                let late = sequence.saturating_sub(back);
                prop_assert_eq!(follower.read(&payload(late, size)), late);
                sequence += 1;
            }
        }

        #[test]
        fn outside_bytes_never_panic(payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 0..50)) {
            let mut follower = Follower::default();
            for payload in payloads {
                follower.read(&payload);
            }
        }
    }

    #[test]
    fn empty_payloads_count_on() {
        let mut follower = Follower::default();
        assert_eq!([0; 3].map(|_| follower.read(&[])), [0, 1, 2]);
    }
}

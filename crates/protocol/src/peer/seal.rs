//! A datagram that only peers can read and write: what stands before it, and which ones have come already. The cipher itself is the caller's.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `TS` |
//! | 2 | version, 1 |
//! | 3 | 0 |
//! | 4..12 | number of the datagram among all that this key has sealed, from 0 |
//! | 12.. | the datagram (`datagram`), encrypted, and its tag of 16 bytes |
//!
//! ChaCha20-Poly1305 (RFC 8439): the nonce is four zeros and the number, the additional data the first 12 bytes. Each life of a manager's process draws a key of
//! its own ([`super::control::Control::Key`]), and its numbers never come twice, so no nonce does.

/// Bytes before what is encrypted.
pub const HEADER: usize = 12;
/// Bytes behind it.
pub const TAG: usize = 16;
/// By so much a sealed datagram is longer.
pub const OVERHEAD: usize = HEADER + TAG;
const BEGIN: [u8; 4] = [b'T', b'S', 1, 0];

/// What stands before datagram `number`.
#[must_use]
pub fn header(number: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&BEGIN);
    header[4..].copy_from_slice(&number.to_be_bytes());
    header
}

/// The number of a sealed datagram, unless it is none.
#[must_use]
pub fn number(sealed: &[u8]) -> Option<u64> {
    let (header, rest) = sealed.split_first_chunk::<HEADER>()?;
    let (begin, number) = header.split_first_chunk::<4>()?;
    if *begin != BEGIN || rest.len() < TAG {
        return None;
    }
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

/// The nonce of datagram `number`.
#[must_use]
pub fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

/// Datagrams that may overtake each other by so many: what is later than that is taken for a replay.
pub const WINDOW: u64 = 1_024;
const WORDS: usize = 16;

/// Which numbers have come, so that none is heard twice (RFC 6479): of the latest [`WINDOW`] each, of older ones all.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// All from here on are new.
    next: u64,
    /// Bit `n % WINDOW` of the latest numbers.
    bits: [u64; WORDS],
}

impl Seen {
    /// Is this number new? To be asked before the datagram is opened, [`Self::note`] after it has proven genuine.
    #[must_use]
    pub const fn is_new(&self, number: u64) -> bool {
        if number >= self.next {
            return number < u64::MAX;
        }
        self.next - number <= WINDOW && self.bits[Self::word(number)] & Self::bit(number) == 0
    }

    /// It has come.
    pub fn note(&mut self, number: u64) {
        if number >= self.next {
            // What lies between did not come; each number has the place of one that leaves the window.
            for passed in self.next.max(number.saturating_sub(WINDOW - 1))..number {
                self.bits[Self::word(passed)] &= !Self::bit(passed);
            }
            self.next = number.saturating_add(1);
        }
        self.bits[Self::word(number)] |= Self::bit(number);
    }

    #[allow(clippy::cast_possible_truncation)] // below 16
    const fn word(number: u64) -> usize {
        (number / 64 % WORDS as u64) as usize
    }

    const fn bit(number: u64) -> u64 {
        1 << (number % 64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Held against a set of all numbers that came.
        #[test]
        fn nothing_is_heard_twice_and_nothing_new_is_refused_within_the_window(
            steps in proptest::collection::vec((any::<bool>(), 0u64..3_000), 1..200),
            start in prop_oneof![Just(0u64), any::<u64>().prop_map(|n| n / 2)],
        ) {
            let (mut seen, mut all, mut latest) = (Seen::default(), BTreeSet::new(), None::<u64>);
            for (forward, by) in steps {
                let at = latest.unwrap_or(start);
                let number = if forward { at.saturating_add(by / 100) } else { at.saturating_sub(by) };
                let too_late = latest.is_some_and(|latest| latest >= number && latest - number >= WINDOW);
                prop_assert_eq!(seen.is_new(number), !too_late && !all.contains(&number), "{}", number);
                if seen.is_new(number) {
                    seen.note(number);
                    all.insert(number);
                    latest = latest.max(Some(number));
                }
            }
        }

        #[test]
        fn a_header_is_read_again(number in any::<u64>(), rest in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut sealed = header(number).to_vec();
            sealed.extend(&rest);
            prop_assert_eq!(super::number(&sealed), (rest.len() >= TAG).then_some(number));
        }

        #[test]
        fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(number) = super::number(&bytes) {
                prop_assert_eq!(&bytes[..HEADER], &header(number)[..]);
            }
        }
    }

    #[test]
    fn far_ahead_leaves_nothing_of_before() {
        let mut seen = Seen::default();
        for number in [5, 70, 5_000, 5_000 + WINDOW] {
            assert!(seen.is_new(number));
            seen.note(number);
        }
        assert!(!seen.is_new(5) && !seen.is_new(70) && !seen.is_new(5_000) && seen.is_new(5_001));
        assert!(!seen.is_new(u64::MAX), "its successor would be 0");
    }
}

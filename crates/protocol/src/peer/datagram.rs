//! The data of a stream on the wire: one UDP datagram, big-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `TB` |
//! | 2 | version, 1 |
//! | 3 | flags: 1 first part of a message, 2 last part, 4 reliable stream, 8 sent again |
//! | 4..12 | life of the sender |
//! | 12..16 | number of the stream |
//! | 16..24 | number of the datagram in its stream, from 0 |
//! | 24..32 | key of a QoS 2 message, 0: none |
//! | 32.. | part of the message: an MQTT 5 PUBLISH without packet identifier, first byte included |

use super::{MOST_DATAGRAMS, StreamId};
use thiserror::Error;

/// Bytes before the part.
pub const HEADER: usize = 32;
const MAGIC: [u8; 2] = *b"TB";
/// The version that this is.
pub const VERSION: u8 = 1;

const FIRST: u8 = 1;
const LAST: u8 = 2;
const RELIABLE: u8 = 4;
const AGAIN: u8 = 8;

/// One datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    pub stream: StreamId,
    pub sequence: u64,
    pub first: bool,
    pub last: bool,
    pub reliable: bool,
    /// Sent again, so that its way back is no measure of the round trip (RFC 6298, section 3).
    pub again: bool,
    /// 0: none.
    pub key: u64,
    pub part: &'a [u8],
}

/// Why bytes are no datagram of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Foreign {
    #[error("shorter than a header")]
    Short,
    #[error("it does not begin with TB")]
    Magic,
    #[error("version {0}; this side speaks 1")]
    Version(u8),
    #[error("unknown flags {0:#x}")]
    Flags(u8),
    #[error("a number that no stream reaches")]
    Number,
}

impl<'a> Datagram<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// It is none of this version.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Foreign> {
        let Some((header, part)) = bytes.split_first_chunk::<HEADER>() else {
            return Err(Foreign::Short);
        };
        if header[..2] != MAGIC {
            return Err(Foreign::Magic);
        }
        if header[2] != VERSION {
            return Err(Foreign::Version(header[2]));
        }
        let flags = header[3];
        if flags & !(FIRST | LAST | RELIABLE | AGAIN) != 0 {
            return Err(Foreign::Flags(flags));
        }
        let eight = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&header[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        let number = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
        let sequence = eight(16);
        if sequence >= MOST_DATAGRAMS {
            return Err(Foreign::Number);
        }
        Ok(Self {
            stream: StreamId {
                life: eight(4),
                number,
            },
            sequence,
            first: flags & FIRST != 0,
            last: flags & LAST != 0,
            reliable: flags & RELIABLE != 0,
            again: flags & AGAIN != 0,
            key: eight(24),
            part,
        })
    }

    /// Writes it behind what is in `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.first, FIRST)
            | flag(self.last, LAST)
            | flag(self.reliable, RELIABLE)
            | flag(self.again, AGAIN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, flags]);
        out.extend_from_slice(&self.stream.life.to_be_bytes());
        out.extend_from_slice(&self.stream.number.to_be_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&self.key.to_be_bytes());
        out.extend_from_slice(self.part);
    }
}

/// Marks a datagram that was written before as sent again.
pub(super) fn mark_again(bytes: &mut [u8]) {
    if let Some(flags) = bytes.get_mut(3) {
        *flags |= AGAIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            life in any::<u64>(), number in any::<u32>(), sequence in 0..MOST_DATAGRAMS, key in any::<u64>(), flags in 0u8..16,
            part in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let datagram = Datagram {
                stream: StreamId { life, number },
                sequence,
                first: flags & 1 != 0,
                last: flags & 2 != 0,
                reliable: flags & 4 != 0,
                again: flags & 8 != 0,
                key,
                part: &part,
            };
            let mut bytes = Vec::new();
            datagram.write(&mut bytes);
            prop_assert_eq!(bytes.len(), HEADER + part.len());
            prop_assert_eq!(Datagram::read(&bytes), Ok(datagram));
            for end in 0..HEADER {
                prop_assert_eq!(Datagram::read(&bytes[..end]), Err(Foreign::Short));
            }
        }

        #[test]
        fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(datagram) = Datagram::read(&bytes) {
                let mut again = Vec::new();
                datagram.write(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn what_is_not_ours_is_told_apart() {
        let mut bytes = vec![0; HEADER];
        assert_eq!(Datagram::read(&bytes), Err(Foreign::Magic));
        bytes[..2].copy_from_slice(b"TB");
        assert_eq!(Datagram::read(&bytes), Err(Foreign::Version(0)));
        bytes[2] = 1;
        bytes[3] = 16;
        assert_eq!(Datagram::read(&bytes), Err(Foreign::Flags(16)));
    }
}

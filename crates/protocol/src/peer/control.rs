//! What managers tell each other over their TCP connection: a length (four bytes, big-endian, of what follows), a kind (one byte), its fields.

use super::{MOST_DATAGRAMS, StreamId};
use std::net::Ipv4Addr;
use thiserror::Error;

/// Of one message; what is announced as longer ends the connection.
pub const LONGEST: usize = 70_000;
/// The version that this is.
pub const VERSION: u8 = 1;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// The first one in each direction: who speaks, and in which life of its process.
    Hello { version: u8, life: u64, name: String },
    /// Sender to receiver: this stream goes to that group; join it.
    Invite {
        stream: StreamId,
        group: Ipv4Addr,
        port: u16,
        class: u8,
        reliable: bool,
        topic: String,
    },
    /// Receiver to sender: the group is joined.
    Joined { stream: StreamId },
    /// Sender to receiver: from this datagram on the stream is for you.
    From { stream: StreamId, sequence: u64 },
    /// Receiver to sender, of a reliable stream.
    Arrived(Arrived),
    /// Either: this stream is over between us.
    Leave { stream: StreamId },
    /// Sender to receiver: the publisher has released the message with this key (PUBREL) that ends there; `end` 0: one of a former life of the
    /// sender.
    Release { stream: StreamId, end: u64, key: u64 },
    /// Sender to receiver, behind its `Hello` and over TLS alone: with this its datagrams are sealed (`super::seal`).
    Key(SealingKey),
}

/// The secret with which a manager's process seals its datagrams.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey(pub [u8; 32]);

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealingKey")
    }
}

/// What a receiver has of a reliable stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    pub stream: StreamId,
    /// All datagrams below have arrived.
    pub next: u64,
    /// Bit `i`: `next + 1 + i` has arrived as well.
    pub beyond: u64,
    /// Of all messages that end below, its broker has confirmed that it took them.
    pub taken: u64,
}

/// Why bytes are no control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    #[error("a message of {0} bytes; the longest has {LONGEST}")]
    Long(u32),
    #[error("unknown kind {0}")]
    Kind(u8),
    #[error("a message of kind {0} that is too short, or too long")]
    Length(u8),
    #[error("text that is no UTF-8")]
    Text,
    #[error("a value that cannot be")]
    Value,
}

struct Reader<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(Malformed::Length(self.kind))?;
        self.rest = rest;
        Ok(*taken)
    }
    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take::<1>()?[0])
    }
    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Value),
        }
    }
    fn eight(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.take()?))
    }
    fn number(&mut self) -> Result<u64, Malformed> {
        let number = self.eight()?;
        if number >= MOST_DATAGRAMS {
            return Err(Malformed::Value);
        }
        Ok(number)
    }
    fn stream(&mut self) -> Result<StreamId, Malformed> {
        Ok(StreamId {
            life: self.eight()?,
            number: u32::from_be_bytes(self.take()?),
        })
    }
    fn text(&mut self) -> Result<String, Malformed> {
        let length = usize::from(u16::from_be_bytes(self.take()?));
        let (text, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(Malformed::Length(self.kind))?;
        self.rest = rest;
        Ok(std::str::from_utf8(text).map_err(|_| Malformed::Text)?.to_owned())
    }
}

impl Control {
    /// The first message of a stream of bytes, and how many bytes it takes; `None` if it is not all there yet.
    ///
    /// # Errors
    /// It is none; the connection is of no use any more.
    pub fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let announced = u32::from_be_bytes(*length);
        let length = announced as usize;
        if length > LONGEST {
            return Err(Malformed::Long(announced));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let Some((&kind, body)) = body.split_first() else {
            return Err(Malformed::Length(0));
        };
        let mut reader = Reader { kind, rest: body };
        let message = Self::body(&mut reader)?;
        if !reader.rest.is_empty() {
            return Err(Malformed::Length(kind));
        }
        Ok(Some((message, 4 + length)))
    }

    fn body(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match reader.kind {
            1 => Self::Hello {
                version: reader.byte()?,
                life: reader.eight()?,
                name: reader.text()?,
            },
            2 => Self::Invite {
                stream: reader.stream()?,
                group: Ipv4Addr::from(reader.take::<4>()?),
                port: u16::from_be_bytes(reader.take()?),
                class: match reader.byte()? {
                    class @ 0..=7 => class,
                    _ => return Err(Malformed::Value),
                },
                reliable: reader.flag()?,
                topic: reader.text()?,
            },
            3 => Self::Joined {
                stream: reader.stream()?,
            },
            4 => Self::From {
                stream: reader.stream()?,
                sequence: reader.number()?,
            },
            5 => {
                let arrived = Arrived {
                    stream: reader.stream()?,
                    next: reader.number()?,
                    beyond: reader.eight()?,
                    taken: reader.number()?,
                };
                if arrived.taken > arrived.next {
                    return Err(Malformed::Value);
                }
                Self::Arrived(arrived)
            }
            6 => Self::Leave {
                stream: reader.stream()?,
            },
            7 => Self::Release {
                stream: reader.stream()?,
                end: reader.number()?,
                key: reader.eight()?,
            },
            8 => Self::Key(SealingKey(reader.take()?)),
            kind => return Err(Malformed::Kind(kind)),
        })
    }

    /// Writes it behind what is in `out`. Texts must be shorter than 65,536 bytes, as topics and names are.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        match self {
            Self::Hello { version, life, name } => {
                out.extend_from_slice(&[1, *version]);
                out.extend_from_slice(&life.to_be_bytes());
                text(name, out);
            }
            Self::Invite {
                stream,
                group,
                port,
                class,
                reliable,
                topic,
            } => {
                identified(2, *stream, out);
                out.extend_from_slice(&group.octets());
                out.extend_from_slice(&port.to_be_bytes());
                out.extend_from_slice(&[*class, u8::from(*reliable)]);
                text(topic, out);
            }
            Self::Joined { stream } => identified(3, *stream, out),
            Self::From { stream, sequence } => {
                identified(4, *stream, out);
                out.extend_from_slice(&sequence.to_be_bytes());
            }
            Self::Arrived(arrived) => {
                identified(5, arrived.stream, out);
                for value in [arrived.next, arrived.beyond, arrived.taken] {
                    out.extend_from_slice(&value.to_be_bytes());
                }
            }
            Self::Leave { stream } => identified(6, *stream, out),
            Self::Release { stream, end, key } => {
                identified(7, *stream, out);
                out.extend_from_slice(&end.to_be_bytes());
                out.extend_from_slice(&key.to_be_bytes());
            }
            Self::Key(key) => {
                out.push(8);
                out.extend_from_slice(&key.0);
            }
        }
        let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

fn identified(kind: u8, stream: StreamId, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&stream.life.to_be_bytes());
    out.extend_from_slice(&stream.number.to_be_bytes());
}

fn text(text: &str, out: &mut Vec<u8>) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&text.as_bytes()[..usize::from(length)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_stream() -> impl Strategy<Value = StreamId> {
        (any::<u64>(), any::<u32>()).prop_map(|(life, number)| StreamId { life, number })
    }

    fn any_control() -> impl Strategy<Value = Control> {
        prop_oneof![
            (any::<u8>(), any::<u64>(), ".{0,20}").prop_map(|(version, life, name)| Control::Hello {
                version,
                life,
                name
            }),
            (
                any_stream(),
                any::<u32>(),
                any::<u16>(),
                0u8..8,
                any::<bool>(),
                ".{0,20}"
            )
                .prop_map(|(stream, group, port, class, reliable, topic)| Control::Invite {
                    stream,
                    group: group.into(),
                    port,
                    class,
                    reliable,
                    topic
                }),
            any_stream().prop_map(|stream| Control::Joined { stream }),
            (any_stream(), 0..MOST_DATAGRAMS)
                .prop_map(|(stream, sequence)| Control::From { stream, sequence }),
            (any_stream(), 0..MOST_DATAGRAMS, any::<u64>(), 0..MOST_DATAGRAMS).prop_map(
                |(stream, next, beyond, taken)| Control::Arrived(Arrived {
                    stream,
                    next: next.max(taken),
                    beyond,
                    taken: next.min(taken)
                })
            ),
            any_stream().prop_map(|stream| Control::Leave { stream }),
            (any_stream(), 0..MOST_DATAGRAMS, any::<u64>()).prop_map(|(stream, end, key)| Control::Release {
                stream,
                end,
                key
            }),
            any::<[u8; 32]>().prop_map(|key| Control::Key(SealingKey(key))),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(messages in proptest::collection::vec(any_control(), 1..5)) {
            let mut bytes = Vec::new();
            messages.iter().for_each(|message| message.write(&mut bytes));
            let mut rest = &bytes[..];
            for message in &messages {
                let (found, taken) = Control::read(rest).unwrap().unwrap();
                prop_assert_eq!(&found, message);
                for end in 0..taken {
                    prop_assert_eq!(Control::read(&rest[..end]), Ok(None));
                }
                rest = &rest[taken..];
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn no_bytes_are_too_much(kind in 0u8..10, body in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = (body.len() as u32 + 1).to_be_bytes().to_vec();
            bytes.push(kind);
            bytes.extend(&body);
            if let Ok(Some((message, taken))) = Control::read(&bytes) {
                prop_assert_eq!(taken, bytes.len());
                let mut again = Vec::new();
                message.write(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(Control::read(&[0xff, 0, 0, 0]), Err(Malformed::Long(0xff00_0000)));
        assert_eq!(Control::read(&[0, 0, 0, 0]), Err(Malformed::Length(0)));
        assert_eq!(Control::read(&[0, 0, 0, 1, 99]), Err(Malformed::Kind(99)));
        assert_eq!(Control::read(&[0, 0, 0, 2, 7, 0]), Err(Malformed::Length(7)));
        let mut more_taken_than_arrived = Vec::new();
        Control::Arrived(Arrived {
            stream: StreamId { life: 1, number: 1 },
            next: 1,
            beyond: 0,
            taken: 2,
        })
        .write(&mut more_taken_than_arrived);
        assert_eq!(Control::read(&more_taken_than_arrived), Err(Malformed::Value));
        let secret = Control::Key(SealingKey([0xab; 32]));
        assert_eq!(format!("{secret:?}"), "Key(SealingKey)");
    }
}

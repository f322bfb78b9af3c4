//! Where packets begin and end in one direction of a connection.

use timebound_wire::mqtt::{Head, Malformed};

/// What has been decided about the packet in which a direction is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// Between two packets.
    #[default]
    Boundary,
    /// So many bytes of a packet are still to be sent on.
    Passing(usize),
    /// So many bytes of a packet are still to be passed over.
    Dropping(usize),
}

/// How a packet begins, as far as an intermediary must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Not all of its fixed header is there.
    Short,
    Packet(Head),
    /// Its end can be seen, but not what it is: the other side will judge it.
    Opaque(usize),
}

/// Reads a fixed header. Type 0, or flags that a type does not allow (2.1.2, 2.1.3), hide no end of a packet, and brokers differ in what they
/// make of them: some end the connection without a word, some with a DISCONNECT, some of 3.1 and 3.1.1 take them.
pub(crate) fn begin(bytes: &[u8]) -> Result<Begin, Malformed> {
    match Head::read(bytes) {
        Ok(None) => Ok(Begin::Short),
        Ok(Some(head)) => Ok(Begin::Packet(head)),
        Err(Malformed::Header) => {
            // The length as of a packet whose first byte is fine.
            let mut as_ping = [0xc0; 5];
            let taken = bytes.len().min(5);
            as_ping[1..taken].copy_from_slice(&bytes[1..taken]);
            let head = Head::read(&as_ping[..taken])?;
            Ok(head.map_or(Begin::Short, |head| Begin::Opaque(head.whole())))
        }
        Err(malformed) => Err(malformed),
    }
}

impl Place {
    /// So many bytes before the end of a packet that is sent on.
    pub(crate) const fn after(left: usize) -> Self {
        if left == 0 {
            Self::Boundary
        } else {
            Self::Passing(left)
        }
    }
}

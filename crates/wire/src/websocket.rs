//! Frames of WebSocket (RFC 6455, section 5) as a server reads and writes them. Payload is passed on as it comes, wherever frames and messages begin and
//! end: nothing is collected but a control frame.

use thiserror::Error;

/// Bytes of a control frame's payload at most (5.5).
const LONGEST_CONTROL: usize = 125;
const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Why a connection is failed (7.1.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    #[error("a frame without a mask")]
    Unmasked,
    #[error("a frame with reserved bits")]
    ReservedBits,
    #[error("a frame with an opcode that there is not")]
    Opcode,
    #[error("a control frame of more than 125 bytes, or in fragments")]
    Control,
    #[error("fragments of a message in the wrong order")]
    Fragments,
    #[error("a length that could be written shorter, or with its highest bit")]
    Length,
    #[error("a Close frame that says nothing")]
    Close,
    /// [MQTT-6.0.0-1].
    #[error("a text message")]
    Text,
    #[error("a message that is too large")]
    TooLarge,
}

impl Violation {
    /// Status code of the Close frame (7.4.1).
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Text => 1003,
            Self::TooLarge => 1009,
            _ => 1002,
        }
    }
}

/// After which nothing more is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The client's Close frame, with its status code.
    Closed(Option<u16>),
    Violated(Violation),
}

/// What a client sends.
#[derive(Debug, Clone)]
pub struct Reader {
    /// Bytes of a message at most.
    most: u64,
    head: [u8; 14],
    /// Bytes of `head` that are there.
    have: usize,
    /// The frame whose payload comes; `None`: its header does.
    frame: Option<Frame>,
    /// Bytes of the message that has begun and not ended.
    message: Option<u64>,
    /// Of the control frame that comes.
    control: Vec<u8>,
    ping: Option<Vec<u8>>,
    end: Option<End>,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    opcode: u8,
    mask: [u8; 4],
    /// Bytes of its payload that have come.
    at: u64,
    length: u64,
}

impl Reader {
    /// `most`: bytes of a message at most, all its fragments together.
    #[must_use]
    pub const fn new(most: u64) -> Self {
        Self {
            most,
            head: [0; 14],
            have: 0,
            frame: None,
            message: None,
            control: Vec::new(),
            ping: None,
            end: None,
        }
    }

    /// What has come behind which nothing is read.
    #[must_use]
    pub const fn end(&self) -> Option<End> {
        self.end
    }

    /// Payload of the last Ping that was not answered: an answer to it is one to those before (5.5.3).
    pub fn take_ping(&mut self) -> Option<Vec<u8>> {
        self.ping.take()
    }

    /// Takes the next bytes of the connection and leaves at their beginning the payload of binary messages: how many bytes it has.
    pub fn unwrap(&mut self, bytes: &mut [u8]) -> usize {
        let (mut from, mut to) = (0, 0);
        while self.end.is_none() {
            let Some(frame) = &mut self.frame else {
                let Some(&byte) = bytes.get(from) else { break };
                from += 1;
                self.head[self.have] = byte;
                self.have += 1;
                if let Err(violation) = self.look_at_head() {
                    self.end = Some(End::Violated(violation));
                }
                continue;
            };
            let left = usize::try_from(frame.length - frame.at).unwrap_or(usize::MAX);
            let count = left.min(bytes.len() - from);
            if count == 0 && left > 0 {
                break;
            }
            let mut mask = frame.mask;
            mask.rotate_left((frame.at & 3) as usize);
            for four in bytes[from..from + count].chunks_mut(4) {
                four.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
            }
            frame.at += count as u64;
            let (is_whole, opcode) = (frame.at == frame.length, frame.opcode);
            if opcode < CLOSE {
                bytes.copy_within(from..from + count, to);
                to += count;
            } else {
                self.control.extend_from_slice(&bytes[from..from + count]);
            }
            from += count;
            if is_whole {
                self.frame = None;
                self.have = 0;
                self.act(opcode);
            }
        }
        to
    }

    /// A header is judged as soon as what is wrong with it can be seen.
    fn look_at_head(&mut self) -> Result<(), Violation> {
        let (first, second) = (self.head[0], self.head[1]);
        let (opcode, is_final) = (first & 0xf, first & 0x80 != 0);
        let short = second & 0x7f;
        let size = match short {
            126 => 4,
            127 => 10,
            _ => 2,
        };
        match self.have {
            1 => return self.look_at_opcode(opcode, first),
            2 if second & 0x80 == 0 => return Err(Violation::Unmasked),
            2 if opcode >= CLOSE && (usize::from(short) > LONGEST_CONTROL || !is_final) => {
                return Err(Violation::Control);
            }
            have if have == size => {}
            have if have == size + 4 => return self.begin(opcode, size),
            _ => return Ok(()),
        }
        let length = self.length(short)?;
        if opcode >= CLOSE {
            return Ok(());
        }
        let whole = self.message.unwrap_or(0).saturating_add(length);
        if whole > self.most {
            return Err(Violation::TooLarge);
        }
        self.message = Some(whole);
        Ok(())
    }

    fn look_at_opcode(&self, opcode: u8, first: u8) -> Result<(), Violation> {
        if first & 0x70 != 0 {
            return Err(Violation::ReservedBits);
        }
        match (opcode, self.message) {
            (CONTINUATION, None) | (TEXT | BINARY, Some(_)) => Err(Violation::Fragments),
            (TEXT, None) => Err(Violation::Text),
            (CONTINUATION, Some(_)) | (BINARY, None) | (CLOSE | PING | PONG, _) => Ok(()),
            _ => Err(Violation::Opcode),
        }
    }

    /// Section 5.2: the minimal number of bytes must be used, and the most significant bit must be 0.
    fn length(&self, short: u8) -> Result<u64, Violation> {
        let head = &self.head;
        let length = match short {
            126 => u64::from(u16::from_be_bytes([head[2], head[3]])),
            127 => u64::from_be_bytes([
                head[2], head[3], head[4], head[5], head[6], head[7], head[8], head[9],
            ]),
            short => u64::from(short),
        };
        match short {
            126 if length < 126 => Err(Violation::Length),
            127 if !(1 << 16..1 << 63).contains(&length) => Err(Violation::Length),
            _ => Ok(length),
        }
    }

    /// The header is there.
    fn begin(&mut self, opcode: u8, size: usize) -> Result<(), Violation> {
        let mask = [
            self.head[size],
            self.head[size + 1],
            self.head[size + 2],
            self.head[size + 3],
        ];
        let length = self.length(self.head[1] & 0x7f)?;
        self.frame = Some(Frame {
            opcode,
            mask,
            at: 0,
            length,
        });
        Ok(())
    }

    /// A frame is there.
    fn act(&mut self, opcode: u8) {
        let control = std::mem::take(&mut self.control);
        match opcode {
            CLOSE => self.end = Some(closed(&control)),
            PING => self.ping = Some(control),
            PONG => {}
            _ if self.head[0] & 0x80 != 0 => self.message = None,
            _ => {}
        }
    }
}

/// Section 5.5.1: nothing, or a status code (7.4) and a reason in UTF-8.
fn closed(control: &[u8]) -> End {
    let Some((code, reason)) = control.split_first_chunk::<2>() else {
        return match control {
            [] => End::Closed(None),
            _ => End::Violated(Violation::Close),
        };
    };
    let code = u16::from_be_bytes(*code);
    let is_one = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
    if !is_one || std::str::from_utf8(reason).is_err() {
        return End::Violated(Violation::Close);
    }
    End::Closed(Some(code))
}

/// Appends a binary message in one frame; a server masks nothing (5.1).
pub fn write_message(payload: &[u8], out: &mut Vec<u8>) {
    out.push(0x80 | BINARY);
    match payload.len() {
        length @ 0..126 => out.push(length as u8),
        length @ 126..65_536 => {
            out.push(126);
            out.extend((length as u16).to_be_bytes());
        }
        length => {
            out.push(127);
            out.extend((length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

/// Appends the answer to a Ping with this payload, of which a Pong has room for 125 bytes.
pub fn write_pong(payload: &[u8], out: &mut Vec<u8>) {
    let payload = &payload[..payload.len().min(LONGEST_CONTROL)];
    out.extend([0x80 | PONG, payload.len() as u8]);
    out.extend_from_slice(payload);
}

/// Appends a Close frame; `None`: without a status code.
pub fn write_close(code: Option<u16>, out: &mut Vec<u8>) {
    let code = code.map(u16::to_be_bytes);
    let payload = code.as_ref().map_or(&[][..], |code| &code[..]);
    out.extend([0x80 | CLOSE, payload.len() as u8]);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests;

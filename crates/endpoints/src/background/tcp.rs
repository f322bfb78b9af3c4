//! One end of a background TCP connection: bytes to write, bytes that were read.

use crate::sockets::is_pause;
use crate::sys::{Epoll, Interest};
use std::io::{self, Read, Write};
use std::net::TcpStream;

static ZEROS: [u8; 65_536] = [0; 65_536];
/// Writes or reads before other sockets get their turn.
const ROUNDS: usize = 8;

pub(super) struct End {
    stream: TcpStream,
    token: u64,
    /// Bytes still to be written; `u64::MAX`: without end.
    pub(super) owed: u64,
    waits_to_write: bool,
}

/// What one call moved.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    pub(super) bytes: u64,
    pub(super) calls: u64,
    pub(super) closed: bool,
}

impl End {
    /// Watches the stream; one that is still connecting becomes writable when it is through.
    pub(super) fn new(stream: TcpStream, token: u64, epoll: &Epoll, connecting: bool) -> io::Result<Self> {
        epoll.add(
            &stream,
            if connecting {
                Interest::ReadWrite
            } else {
                Interest::Read
            },
            token,
        )?;
        Ok(Self {
            stream,
            token,
            owed: 0,
            waits_to_write: connecting,
        })
    }

    pub(super) fn connected(&self) -> io::Result<()> {
        match self.stream.take_error()? {
            Some(error) => Err(error),
            None => self.stream.peer_addr().map(|_| ()),
        }
    }

    pub(super) fn write(&mut self, epoll: &Epoll) -> io::Result<Moved> {
        let mut moved = Moved::default();
        for _ in 0..ROUNDS {
            let chunk = usize::try_from(self.owed).unwrap_or(usize::MAX).min(ZEROS.len());
            if chunk == 0 {
                break;
            }
            match self.stream.write(&ZEROS[..chunk]) {
                Ok(count) => {
                    moved.bytes += count as u64;
                    moved.calls += 1;
                    if self.owed != u64::MAX {
                        self.owed -= count as u64;
                    }
                }
                Err(error) if is_pause(&error) => break,
                Err(error) => return Err(error),
            }
        }
        let waits = self.owed > 0;
        if waits != self.waits_to_write {
            self.waits_to_write = waits;
            epoll.change(
                &self.stream,
                if waits {
                    Interest::ReadWrite
                } else {
                    Interest::Read
                },
                self.token,
            )?;
        }
        Ok(moved)
    }

    pub(super) fn read(&mut self, scratch: &mut [u8], epoll: &Epoll) -> io::Result<Moved> {
        let mut moved = Moved::default();
        for _ in 0..ROUNDS {
            match self.stream.read(scratch) {
                Ok(0) => {
                    moved.closed = true;
                    epoll.change(&self.stream, Interest::None, self.token)?;
                    break;
                }
                Ok(count) => {
                    moved.bytes += count as u64;
                    moved.calls += 1;
                    if count < scratch.len() {
                        break;
                    }
                }
                Err(error) if is_pause(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }
}

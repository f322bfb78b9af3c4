//! One direction of a connection: a buffer, of which a first part may go on and the rest has yet to be judged.

use crate::stream::Stream;
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a buffer.
const USUAL: usize = 64 * 1024;
/// Bytes of the first buffer of a connection that nobody knows.
const FIRST: usize = 4 * 1024;
/// Buffers that a thread keeps for the next connection that has something to say.
const KEPT: usize = 64;

thread_local! {
    static POOL: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

fn lend() -> Box<[u8]> {
    let kept = POOL.with_borrow_mut(Vec::pop);
    kept.unwrap_or_else(|| vec![0; USUAL].into_boxed_slice())
}

fn give_back(buffer: Box<[u8]>) {
    let size = buffer.len();
    let is_kept = size == USUAL
        && POOL.with_borrow_mut(|pool| {
            let has_room = pool.len() < KEPT;
            if has_room {
                pool.push(buffer);
            }
            has_room
        });
    if !is_kept {
        crate::memory::gone(size);
    }
}

/// How large a buffer may become.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Bytes at most.
    pub(crate) most: usize,
    /// Whose it is has been accepted: it begins with a buffer of the usual size.
    pub(crate) is_known: bool,
}

/// `..start` is gone, `start..approved` may go on, then `skip` bytes are passed over and `patch` goes on in their place, and
/// what is behind that up to `end` has yet to be judged.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    buffer: Option<Box<[u8]>>,
    start: usize,
    approved: usize,
    end: usize,
    skip: usize,
    patch: Vec<u8>,
    /// Of `patch`, this much has gone on.
    patched: usize,
    is_to_be_flushed: bool,
    /// The source has ended.
    pub(crate) at_end: bool,
    /// Nothing more goes on.
    pub(crate) is_over: bool,
}

impl Pipe {
    /// What is to be judged, as soon as nothing before it has to be put in.
    pub(crate) fn unjudged(&self) -> &[u8] {
        match &self.buffer {
            Some(buffer) => &buffer[self.approved..self.end],
            None => &[],
        }
    }
    pub(crate) const fn has_patch(&self) -> bool {
        self.skip > 0 || !self.patch.is_empty()
    }
    /// Has all that may go on been handed over?
    pub(crate) const fn is_drained(&self) -> bool {
        self.start == self.approved && !self.has_patch() && !self.is_to_be_flushed
    }
    pub(crate) fn approve(&mut self, count: usize) {
        self.approved += count;
    }
    pub(crate) fn replace(&mut self, take: usize, with: Vec<u8>) {
        (self.skip, self.patch, self.patched) = (take, with, 0);
        self.settle();
    }

    /// Passes over what is to be passed over, once all before it is gone.
    fn settle(&mut self) {
        if self.start != self.approved {
            return;
        }
        self.start += self.skip;
        self.approved = self.start;
        self.skip = 0;
        if self.start == self.end {
            (self.start, self.approved, self.end) = (0, 0, 0);
            if let Some(buffer) = self.buffer.take() {
                give_back(buffer);
            }
        }
    }

    /// Writes what may go on; ready when all of it has been handed over. Bytes written are added to `count`.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        target: &mut Stream,
        count: &mut u64,
    ) -> Poll<io::Result<()>> {
        loop {
            let bytes = match &self.buffer {
                Some(buffer) if self.start < self.approved => &buffer[self.start..self.approved],
                _ => &self.patch[self.patched..],
            };
            if bytes.is_empty() {
                break;
            }
            let written = ready!(Pin::new(&mut *target).poll_write(cx, bytes))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *count += written as u64;
            // TCP has nothing to flush.
            self.is_to_be_flushed = !matches!(target, Stream::Tcp(_));
            if self.start < self.approved {
                self.start += written;
                self.settle();
            } else {
                self.patched += written;
            }
        }
        (self.patch, self.patched) = (Vec::new(), 0);
        if self.is_to_be_flushed {
            ready!(Pin::new(target).poll_flush(cx))?;
            self.is_to_be_flushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Nothing of what is here goes on, and nothing more comes.
    pub(crate) fn abandon(&mut self) {
        (self.skip, self.patch, self.patched) = (0, Vec::new(), 0);
        (self.start, self.approved) = (self.end, self.end);
        (self.is_to_be_flushed, self.is_over) = (false, true);
        self.settle();
    }

    /// Bytes that it takes.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.len()) + self.patch.capacity()
    }

    /// Reads behind what is there, in a buffer of at most `most` bytes: how many.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Stream,
        room: Room,
    ) -> Poll<io::Result<usize>> {
        let mut buffer = self.room(room)?;
        let mut free = ReadBuf::new(&mut buffer[self.end..]);
        let result = Pin::new(source).poll_read(cx, &mut free);
        let read = free.filled().len();
        if self.end == 0 && read == 0 {
            give_back(buffer);
        } else {
            self.buffer = Some(buffer);
        }
        self.end += read;
        ready!(result)?;
        if read == 0 {
            self.at_end = true;
        }
        Poll::Ready(Ok(read))
    }

    /// The buffer with room behind `end`.
    fn room(&mut self, room: Room) -> io::Result<Box<[u8]>> {
        let Some(mut buffer) = self.buffer.take() else {
            return Ok(match room.is_known {
                true => lend(),
                false => vec![0; FIRST].into_boxed_slice(),
            });
        };
        if buffer.len() > USUAL && self.end - self.start <= USUAL / 2 {
            // It was large for something that has gone.
            let usual = self.moved(&buffer, lend());
            give_back(std::mem::replace(&mut buffer, usual));
        }
        if self.end < buffer.len() {
            return Ok(buffer);
        }
        if self.start > 0 {
            buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.approved -= self.start;
            self.start = 0;
            return Ok(buffer);
        }
        if buffer.len() >= room.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let larger = vec![0; (buffer.len() * 2).min(room.most)].into_boxed_slice();
        let larger = self.moved(&buffer, larger);
        give_back(buffer);
        Ok(larger)
    }

    /// What is there, at the beginning of another buffer.
    fn moved(&mut self, from: &[u8], mut to: Box<[u8]>) -> Box<[u8]> {
        let count = self.end - self.start;
        to[..count].copy_from_slice(&from[self.start..self.end]);
        self.approved -= self.start;
        (self.start, self.end) = (0, count);
        to
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            give_back(buffer);
        }
    }
}

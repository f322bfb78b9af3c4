//! MQTT over WebSocket as a stream of bytes (MQTT 5.0, section 6; RFC 6455).

use crate::http;
use crate::strangers::Stranger;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use timebound_wire::websocket::{self, End, Reader, Violation};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of one message that we send at most.
const MOST: usize = 64 * 1024;
/// Status code: the end of what there was to say (RFC 6455, section 7.4.1).
const NORMAL: u16 = 1000;

/// A WebSocket whose binary messages are one stream: packets may begin and end anywhere in them ([MQTT-6.0.0-2]).
#[derive(Debug)]
pub(crate) struct Socket<S> {
    inner: S,
    reader: Reader,
    /// What came with the request, behind it.
    early: Vec<u8>,
    /// Frames on their way.
    out: Vec<u8>,
    /// Of `out`, this much has gone.
    written: usize,
    is_to_be_flushed: bool,
    /// The last frame is on its way: Close.
    is_closing: bool,
    /// Its violation was told as an error; what still comes is passed over.
    was_told: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// Takes the request of a client that speaks MQTT; `most`: bytes of a message at most. Whoever asks for something else is answered, and told as an error.
    pub(crate) async fn accept(mut stream: S, most: usize, stranger: &Stranger) -> io::Result<Self> {
        let (request, early) = http::request(&mut stream, stranger).await?;
        match http::answer(request.as_ref()) {
            Ok(answer) => {
                http::write(&mut stream, &answer).await?;
            }
            Err(refusal) => {
                // It need not read it.
                drop(http::refuse(&mut stream, &refusal).await);
                return Err(io::Error::new(io::ErrorKind::InvalidData, refusal.to_string()));
            }
        }
        Ok(Self {
            inner: stream,
            reader: Reader::new(most as u64),
            early,
            out: Vec::new(),
            written: 0,
            is_to_be_flushed: false,
            is_closing: false,
            was_told: false,
        })
    }

    pub(crate) const fn below(&self) -> &S {
        &self.inner
    }

    /// What the client did against the standard, if that is its end.
    pub(crate) const fn violation(&self) -> Option<Violation> {
        match self.reader.end() {
            Some(End::Violated(violation)) => Some(violation),
            _ => None,
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.out[self.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        self.written = 0;
        self.out.clear();
        // Between two messages it costs nothing.
        self.out.shrink_to(0);
        Poll::Ready(Ok(()))
    }

    fn close(&mut self, code: Option<u16>) {
        if !self.is_closing {
            self.is_closing = true;
            websocket::write_close(code, &mut self.out);
        }
    }

    /// Says what is to be said about what was read.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let answered = match (self.reader.end(), self.is_closing) {
            (Some(_), true) => false,
            (Some(End::Closed(code)), false) => {
                self.close(code);
                true
            }
            (Some(End::Violated(violation)), false) => {
                self.close(Some(violation.code()));
                true
            }
            // Who does not read its answers gets one to its last question, when there is room.
            (None, false) if self.out.is_empty() => self.reader.take_ping().is_some_and(|ping| {
                websocket::write_pong(&ping, &mut self.out);
                true
            }),
            (None, _) => false,
        };
        self.is_to_be_flushed |= answered;
        if self.is_to_be_flushed {
            match self
                .poll_send(cx)?
                .map(|()| Pin::new(&mut self.inner).poll_flush(cx))
            {
                Poll::Ready(Poll::Ready(flushed)) => {
                    self.is_to_be_flushed = false;
                    flushed?;
                }
                // The task is woken when there is room.
                Poll::Ready(Poll::Pending) | Poll::Pending => {}
            }
        }
        Ok(())
    }

    /// Takes bytes, as they come, into the free part of `buffer`; what there is of them for others stays there.
    fn poll_take(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let before = buffer.filled().len();
        if self.early.is_empty() {
            ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        } else {
            let count = self.early.len().min(buffer.remaining());
            buffer.put_slice(&self.early[..count]);
            self.early = self.early.split_off(count);
        }
        let came = buffer.filled().len() > before;
        let payload = self.reader.unwrap(&mut buffer.filled_mut()[before..]);
        buffer.set_filled(before + payload);
        Poll::Ready(Ok(came))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        loop {
            // Also what had no room before.
            this.poll_answer(cx)?;
            match this.reader.end() {
                Some(End::Closed(_)) => return Poll::Ready(Ok(())),
                Some(End::Violated(violation)) if !this.was_told => {
                    this.was_told = true;
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, violation)));
                }
                // A reader passes over what still comes.
                Some(End::Violated(_)) | None => {}
            }
            let came = ready!(this.poll_take(cx, buffer))?;
            if !came || buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        if this.is_closing {
            // Section 5.5.1: nothing goes behind Close.
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = bytes.len().min(MOST);
        websocket::write_message(&bytes[..count], &mut this.out);
        // What does not go now goes with the next, or when it is flushed.
        if let Poll::Ready(sent) = this.poll_send(cx) {
            sent?;
        }
        Poll::Ready(Ok(count))
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.inner).poll_flush(cx)
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.close(Some(NORMAL));
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

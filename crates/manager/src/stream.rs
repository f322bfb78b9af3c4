//! One side of a connection: TCP, with TLS or WebSocket or both on it.

use crate::strangers::Stranger;
use crate::websocket::Socket;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use timebound_wire::websocket::Violation;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

/// What is read from and written to. The larger ones are boxed: most connections are plain.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    TlsFromClient(Box<server::TlsStream<Shaking>>),
    TlsToBroker(Box<client::TlsStream<TcpStream>>),
    WebSocket(Box<Socket<TcpStream>>),
    SecureWebSocket(Box<Socket<server::TlsStream<Shaking>>>),
}

impl Stream {
    /// The TCP connection below.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Tcp(socket) => socket,
            Self::TlsFromClient(inner) => inner.get_ref().0.socket(),
            Self::TlsToBroker(inner) => inner.get_ref().0,
            Self::WebSocket(inner) => inner.below(),
            Self::SecureWebSocket(inner) => inner.below().get_ref().0.socket(),
        }
    }

    /// What the client did against the standard of WebSocket, if that is its end.
    pub(crate) fn violation(&self) -> Option<Violation> {
        match self {
            Self::WebSocket(inner) => inner.violation(),
            Self::SecureWebSocket(inner) => inner.violation(),
            Self::Tcp(_) | Self::TlsFromClient(_) | Self::TlsToBroker(_) => None,
        }
    }
}

macro_rules! each {
    ($self:expr, $inner:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Tcp(inner) => {
                let $inner = Pin::new(inner);
                $call
            }
            Stream::TlsFromClient(inner) => {
                let $inner = Pin::new(&mut **inner);
                $call
            }
            Stream::TlsToBroker(inner) => {
                let $inner = Pin::new(&mut **inner);
                $call
            }
            Stream::WebSocket(inner) => {
                let $inner = Pin::new(&mut **inner);
                $call
            }
            Stream::SecureWebSocket(inner) => {
                let $inner = Pin::new(&mut **inner);
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, inner => inner.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, inner => inner.poll_write(cx, bytes))
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => inner.poll_flush(cx))
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => inner.poll_shutdown(cx))
    }
}

/// Reads to the end.
pub(crate) fn discard(cx: &mut Context<'_>, stream: &mut (impl AsyncRead + Unpin)) -> Poll<io::Result<()>> {
    let mut bytes = [0; 4096];
    loop {
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Poll::Ready(Ok(())),
            Poll::Ready(Ok(())) => {}
            other => return other,
        }
    }
}

/// A TCP connection below a handshake of TLS, whose bytes count until it is over: a ClientHello may be long, and in many records.
#[derive(Debug)]
pub(crate) struct Shaking {
    socket: TcpStream,
    stranger: Option<Rc<Stranger>>,
}

impl Shaking {
    pub(crate) const fn new(socket: TcpStream, stranger: Rc<Stranger>) -> Self {
        Self {
            socket,
            stranger: Some(stranger),
        }
    }
    pub(crate) const fn socket(&self) -> &TcpStream {
        &self.socket
    }
    /// The handshake is over.
    pub(crate) fn shaken(&mut self) {
        if let Some(stranger) = self.stranger.take() {
            // It may be told to go; whoever reads next hears of it.
            drop(stranger.asks(0));
        }
    }
}

impl AsyncRead for Shaking {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.socket).poll_read(cx, buffer);
        if let Some(stranger) = &self.stranger {
            stranger.asks(stranger.asking() + buffer.filled().len() - before)?;
        }
        result
    }
}

impl AsyncWrite for Shaking {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

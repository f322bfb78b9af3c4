//! One side of a connection: TCP, with TLS or WebSocket or both on it.

use crate::websocket::Socket;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

/// What is read from and written to. The larger ones are boxed: most connections are plain.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    TlsFromClient(Box<server::TlsStream<TcpStream>>),
    TlsToBroker(Box<client::TlsStream<TcpStream>>),
    WebSocket(Box<Socket<TcpStream>>),
    SecureWebSocket(Box<Socket<server::TlsStream<TcpStream>>>),
}

impl Stream {
    /// The TCP connection below.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Tcp(socket) => socket,
            Self::TlsFromClient(inner) => inner.get_ref().0,
            Self::TlsToBroker(inner) => inner.get_ref().0,
            Self::WebSocket(inner) => inner.below(),
            Self::SecureWebSocket(inner) => inner.below().get_ref().0,
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

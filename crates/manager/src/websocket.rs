//! MQTT over WebSocket as a stream of bytes (MQTT 5.0, section 6; RFC 6455).

use crate::contract::Limits;
use futures_core::Stream as _;
use futures_sink::Sink as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

const PROTOCOL: &str = "sec-websocket-protocol";
/// Bytes of one message that we send at most.
const MOST: usize = 64 * 1024;

/// A WebSocket whose binary messages are one stream: packets may begin and end anywhere in them ([MQTT-6.0.0-2]).
#[derive(Debug)]
pub(crate) struct Socket<S> {
    inner: WebSocketStream<S>,
    /// Of a message that has been read in part.
    left: Bytes,
}

/// Takes the handshake of a client that speaks MQTT ([MQTT-6.0.0-3], [MQTT-6.0.0-4]).
#[expect(clippy::result_large_err, reason = "the library's callback")]
fn subprotocol(request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    let offered = request.headers().get_all(PROTOCOL).iter();
    let mut names = offered
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim);
    // `mqttv3.1` is what clients said before 3.1.1.
    let chosen = names.find(|name| matches!(*name, "mqtt" | "mqttv3.1"));
    let Some(value) = chosen.and_then(|name| HeaderValue::from_str(name).ok()) else {
        let mut refusal = ErrorResponse::new(Some("the subprotocol must be mqtt".to_owned()));
        *refusal.status_mut() = StatusCode::BAD_REQUEST;
        return Err(refusal);
    };
    response.headers_mut().insert(PROTOCOL, value);
    Ok(response)
}

fn failure(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        error => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub(crate) async fn accept(stream: S, limits: &Limits) -> io::Result<Self> {
        let config = WebSocketConfig::default()
            .read_buffer_size(4 * 1024)
            .write_buffer_size(0)
            .max_message_size(Some(limits.websocket_bytes))
            .max_frame_size(Some(limits.websocket_bytes));
        let inner = tokio_tungstenite::accept_hdr_async_with_config(stream, subprotocol, Some(config))
            .await
            .map_err(failure)?;
        Ok(Self {
            inner,
            left: Bytes::new(),
        })
    }

    pub(crate) fn below(&self) -> &S {
        self.inner.get_ref()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.left.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) => self.left = bytes,
                // The library answers pings itself.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                // [MQTT-6.0.0-1].
                Some(Ok(Message::Text(_))) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "a text frame")));
                }
                Some(Err(Error::ConnectionClosed)) => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(failure(error))),
            }
        }
        let count = self.left.len().min(buffer.remaining());
        buffer.put_slice(&self.left.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(Pin::new(&mut self.inner).poll_ready(cx)).map_err(failure)?;
        let count = bytes.len().min(MOST);
        let message = Message::Binary(Bytes::copy_from_slice(&bytes[..count]));
        Pin::new(&mut self.inner).start_send(message).map_err(failure)?;
        Poll::Ready(Ok(count))
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx).map_err(failure)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(cx).map_err(failure)
    }
}

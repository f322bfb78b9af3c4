//! The request with which a WebSocket begins (RFC 6455, section 4.2), and answers to what is none: who looks with a browser, or probes a port, is told.

use crate::strangers::Stranger;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::ready;
use std::time::Duration;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::error::{Error, ProtocolError};
use tokio_tungstenite::tungstenite::handshake::machine::TryParse;
use tokio_tungstenite::tungstenite::handshake::server::{self, Request};
use tokio_tungstenite::tungstenite::http::HeaderValue;

/// Bytes of a request at most.
const LONGEST: usize = 16 * 1024;
const SUBPROTOCOL: &str = "sec-websocket-protocol";
/// Bytes that still come are read for that long, so that the kernel does not take the answer back with a reset.
pub(crate) const LINGER: Duration = Duration::from_millis(500);

/// Why a request is not one for MQTT over WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("what is no request of HTTP (answered 400)")]
    Malformed,
    #[error("a request of more than 16 KiB (answered 431)")]
    TooLong,
    #[error("a request that is no GET (answered 405)")]
    Method,
    #[error("a request of HTTP without an upgrade to WebSocket (answered 426)")]
    Plain,
    #[error("a version of WebSocket that is not 13 (answered 426)")]
    Version,
    #[error("a request without a key of WebSocket (answered 400)")]
    Key,
    #[error("a WebSocket without the subprotocol mqtt (answered 400)")]
    Subprotocol,
}

impl Refusal {
    /// Status line, and what else the head must say.
    const fn head(self) -> (&'static str, &'static str) {
        match self {
            Self::Malformed | Self::Key | Self::Subprotocol => ("400 Bad Request", ""),
            Self::TooLong => ("431 Request Header Fields Too Large", ""),
            Self::Method => ("405 Method Not Allowed", "Allow: GET\r\n"),
            // RFC 9110, section 15.5.22: it must say to what.
            Self::Plain => ("426 Upgrade Required", "Upgrade: websocket\r\n"),
            // RFC 6455, section 4.4.
            Self::Version => (
                "426 Upgrade Required",
                "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
            ),
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Malformed => "This is no request of HTTP. Here is MQTT over WebSocket.\n",
            Self::TooLong => "The request is longer than 16 KiB.\n",
            Self::Method => "A WebSocket begins with GET.\n",
            Self::Plain => "Here is MQTT over WebSocket alone: the request must ask for an upgrade to it.\n",
            Self::Version => "The version of WebSocket must be 13.\n",
            Self::Key => "The request has no Sec-WebSocket-Key as it must be.\n",
            Self::Subprotocol => "The subprotocol must be mqtt.\n",
        }
    }

    fn answer(self) -> Vec<u8> {
        let ((status, more), text) = (self.head(), self.text());
        let connection = if more.starts_with("Upgrade") {
            "Upgrade, close"
        } else {
            "close"
        };
        let length = text.len();
        format!(
            "HTTP/1.1 {status}\r\n{more}Connection: {connection}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{text}"
        )
        .into_bytes()
    }
}

/// What a client asks for, or what is wrong with it, and what has come behind it.
pub(crate) async fn request<S: AsyncRead + Unpin>(
    stream: &mut S,
    stranger: &Stranger,
) -> io::Result<(Result<Request, Refusal>, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 1_024];
        let count = poll_fn(|cx| {
            let mut free = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut free))?;
            std::task::Poll::Ready(io::Result::Ok(free.filled().len()))
        })
        .await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_first = bytes.is_empty();
        bytes.extend_from_slice(&piece[..count]);
        stranger.asks(bytes.capacity())?;
        // A request ends with a line; whether it is one at all shows at its beginning.
        if is_first || piece[..count].contains(&b'\n') {
            match Request::try_parse(&bytes) {
                Ok(Some((length, request))) => return Ok((Ok(request), bytes.split_off(length))),
                Ok(None) => {}
                Err(error) => return Ok((Err(refusal(&error)), Vec::new())),
            }
        }
        if bytes.len() > LONGEST {
            return Ok((Err(Refusal::TooLong), Vec::new()));
        }
    }
}

fn refusal(error: &Error) -> Refusal {
    let Error::Protocol(error) = error else {
        return Refusal::Malformed;
    };
    match error {
        ProtocolError::WrongHttpMethod => Refusal::Method,
        ProtocolError::WrongHttpVersion
        | ProtocolError::MissingConnectionUpgradeHeader
        | ProtocolError::MissingUpgradeWebSocketHeader => Refusal::Plain,
        ProtocolError::MissingSecWebSocketVersionHeader => Refusal::Version,
        ProtocolError::MissingSecWebSocketKey | ProtocolError::InvalidSecWebSocketKey => Refusal::Key,
        _ => Refusal::Malformed,
    }
}

/// The answer to a client that speaks MQTT ([MQTT-6.0.0-3], [MQTT-6.0.0-4]).
pub(crate) fn answer(request: Result<&Request, &Refusal>) -> Result<Vec<u8>, Refusal> {
    let request = request.map_err(|refusal| *refusal)?;
    let mut response = server::create_response(request).map_err(|error| refusal(&error))?;
    let offered: Vec<&str> = request
        .headers()
        .get_all(SUBPROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    // `mqttv3.1` is what clients said before 3.1.1, in whatever order those of today still offer it.
    let chosen = ["mqtt", "mqttv3.1"]
        .into_iter()
        .find(|name| offered.contains(name));
    let value = HeaderValue::from_static(chosen.ok_or(Refusal::Subprotocol)?);
    response.headers_mut().insert(SUBPROTOCOL, value);
    let mut bytes = Vec::new();
    server::write_response(&mut bytes, &response).map_err(|error| refusal(&error))?;
    Ok(bytes)
}

pub(crate) async fn write<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> io::Result<()> {
    let mut at = 0;
    poll_fn(|cx| {
        while at < bytes.len() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, &bytes[at..]))? {
                0 => return std::task::Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => at += count,
            }
        }
        Pin::new(&mut *stream).poll_flush(cx)
    })
    .await
}

/// Answers, and ends the connection so that the answer arrives.
pub(crate) async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    refusal: &Refusal,
) -> io::Result<()> {
    let farewell = async {
        write(stream, &refusal.answer()).await?;
        poll_fn(|cx| Pin::new(&mut *stream).poll_shutdown(cx)).await?;
        poll_fn(|cx| crate::stream::discard(cx, stream)).await
    };
    tokio::time::timeout(LINGER, farewell).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(lines: &str) -> Result<String, Refusal> {
        let bytes = format!("GET /mqtt HTTP/1.1\r\nHost: x\r\n{lines}\r\n");
        let (_, request) = Request::try_parse(bytes.as_bytes()).unwrap().unwrap();
        answer(Ok(&request)).map(|bytes| String::from_utf8(bytes).unwrap().to_lowercase())
    }

    const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

    #[test]
    fn mqtt_is_chosen_before_its_old_name() {
        for (offered, chosen) in [
            ("Sec-WebSocket-Protocol: mqttv3.1, mqtt\r\n", "mqtt"),
            (
                "Sec-WebSocket-Protocol: mqttv3.1\r\nSec-WebSocket-Protocol: chat ,mqtt\r\n",
                "mqtt",
            ),
            ("Sec-WebSocket-Protocol: mqttv3.1\r\n", "mqttv3.1"),
        ] {
            let answer = asked(&format!("{UPGRADE}{offered}")).unwrap();
            assert!(answer.contains(&format!("sec-websocket-protocol: {chosen}\r\n")));
            // RFC 6455, section 1.3.
            assert!(answer.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"));
        }
        assert_eq!(asked(UPGRADE), Err(Refusal::Subprotocol));
    }

    #[test]
    fn what_is_missing_is_told() {
        assert_eq!(asked(""), Err(Refusal::Plain));
        assert_eq!(
            asked(&UPGRADE.replace("Version: 13", "Version: 8")),
            Err(Refusal::Version)
        );
        assert_eq!(
            asked(&UPGRADE.replace("dGhlIHNhbXBsZSBub25jZQ==", "short")),
            Err(Refusal::Key)
        );
    }
}

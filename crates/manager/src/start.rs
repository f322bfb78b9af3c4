//! From a configuration to listeners that are bound.

use crate::contract::{Config, Kind, Listener};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 4_096;
const MOST_HOLD_MS: u64 = 5_000;
const LEAST_STRANGERS: usize = 1024 * 1024;

/// Why a manager does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration is no JSON of its kind.
    #[error("the configuration cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// A value that cannot be.
    #[error("{what}: {why}")]
    Value { what: &'static str, why: &'static str },
    /// A listener lacks a file that its kind needs.
    #[error("the listener {address} needs a {what}")]
    Missing { what: &'static str, address: SocketAddr },
    /// A file that cannot be used.
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    /// The name that the broker's certificate is to have is none.
    #[error("{0:?} is no name that a broker's certificate can have")]
    ServerName(String),
    #[error("cannot listen at {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot {action}: {source}")]
    System { action: &'static str, source: io::Error },
}

/// What a thread has to know of a listener.
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) acceptor: Option<TlsAcceptor>,
    pub(crate) certificate_as_user: bool,
}

/// Refuses what no manager can be.
pub(crate) fn check(config: &Config) -> Result<(), StartError> {
    let value = |what, why| Err(StartError::Value { what, why });
    if config.name.is_empty()
        || config
            .name
            .contains(|c: char| c.is_whitespace() || c.is_control())
    {
        return value("name", "it must be one word");
    }
    if config.listeners.is_empty() {
        return value("listeners", "there must be at least one");
    }
    if config.hold_ms > MOST_HOLD_MS {
        return value("hold_ms", "at most 5000, or clients take the connection for dead");
    }
    if config.limits.header_bytes < 1_024 {
        return value("limits.header_bytes", "at least 1024");
    }
    if config.limits.strangers_bytes < LEAST_STRANGERS {
        return value(
            "limits.strangers_bytes",
            "at least 1048576, or no long CONNECT gets in",
        );
    }
    if config.limits.strangers_per_address == 0 {
        return value("limits.strangers_per_address", "at least 1");
    }
    if config.limits.connections == 0 || config.limits.requests_per_second == 0 {
        return value("limits", "connections and requests_per_second must be at least 1");
    }
    if let Some(peer) = &config.peer {
        if peer.port == 0 || peer.address.is_unspecified() || peer.address.is_multicast() {
            return value(
                "peer",
                "an address of this host and the port that all managers of the site have",
            );
        }
        if peer.ttl == 0 || peer.join_ms == 0 || peer.silence_ms < 100 {
            return value("peer", "ttl and join_ms at least 1, silence_ms at least 100");
        }
        if peer.password.is_some() && peer.user.is_none() {
            return value("peer.password", "it belongs to a user");
        }
    }
    for listener in &config.listeners {
        if listener.certificate_as_user && (!listener.kind.is_secure() || listener.client_authority.is_none())
        {
            return value(
                "certificate_as_user",
                "the listener must be tls or wss, with a client_authority",
            );
        }
    }
    Ok(())
}

pub(crate) fn place(listener: &Listener) -> Result<Place, StartError> {
    let acceptor = listener.kind.is_secure().then(|| crate::tls::acceptor(listener));
    Ok(Place {
        kind: listener.kind,
        acceptor: acceptor.transpose()?,
        certificate_as_user: listener.certificate_as_user,
    })
}

pub(crate) fn listen(listener: &Listener) -> Result<std::net::TcpListener, StartError> {
    listen_at(SocketAddr::new(listener.address, listener.port))
}

pub(crate) fn listen_at(address: SocketAddr) -> Result<std::net::TcpListener, StartError> {
    let open = || -> io::Result<std::net::TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    open().map_err(|source| StartError::Listen { address, source })
}

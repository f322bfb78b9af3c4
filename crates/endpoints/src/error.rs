//! Why a run of endpoints failed.

use crate::summary::Summary;
use std::io;
use std::net::SocketAddrV4;
use std::path::PathBuf;

/// Why a run failed. What was recorded until then is in the file.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The plan makes no sense; nothing was started.
    #[error("{path}: {message}")]
    Plan {
        /// Where, as `clients[3].dscp`.
        path: String,
        message: String,
    },
    #[error("cannot enter the network namespace of node {node:?}: {source}")]
    Namespace { node: String, source: io::Error },
    /// A socket could not be opened, bound or set.
    #[error("{endpoint} at node {node:?}: cannot {action}: {source}")]
    Socket {
        endpoint: String,
        node: String,
        action: &'static str,
        source: io::Error,
    },
    /// A client did not get through to its broker before the start.
    #[error("client {client:?} at node {node:?} could not connect to the broker at {broker}: {reason}")]
    Connect {
        client: String,
        node: String,
        broker: SocketAddrV4,
        reason: String,
    },
    /// A connection broke during the run and the plan does not ask for another.
    #[error("client {client:?} at node {node:?} lost the broker at {broker} at {:.3} s: {reason}", *.time_ns as f64 / 1e9)]
    ConnectionLost {
        client: String,
        node: String,
        broker: SocketAddrV4,
        reason: String,
        time_ns: i64,
        /// Counts until then.
        summary: Box<Summary>,
    },
    #[error("cannot write {path:?}: {source}")]
    Output { path: PathBuf, source: io::Error },
    /// The kernel refused something that never fails on a sound system.
    #[error("cannot {action}: {source}")]
    System { action: &'static str, source: io::Error },
}

impl EndpointError {
    /// What had been counted when the run failed, where it had started.
    #[must_use]
    pub fn summary(&self) -> Option<&Summary> {
        match self {
            Self::ConnectionLost { summary, .. } => Some(summary),
            _ => None,
        }
    }
}

//! The embedded MQTT broker: crate `mqtt5` behind a small face.
//!
//! It accepts MQTT 5 and 3.1.1, sets TCP_NODELAY on the sockets it accepts, and keeps nothing on disk. Measured messages are
//! forwarded as they came; the crate adds the user property `x-mqtt-client-id` to every other MQTT 5 PUBLISH. It is meant to be a
//! process of its own in its node's namespace: [`broker`] blocks until SIGTERM or SIGINT.

use crate::wire::Header;
use mqtt5::broker::config::{AuthConfig, BrokerConfig as Settings, StorageBackend, StorageConfig};
use mqtt5::broker::{BrokerEventHandler, ClientPublishEvent, MqttBroker, PublishAction};
use mqtt5_protocol::packet::publish::PublishPacket;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// What the embedded broker is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerConfig {
    /// The one address to listen at.
    pub bind: IpAddr,
    /// The port; 0 lets the kernel choose (the ready file says which).
    pub port: u16,
    /// Written (`address:port` and a newline) once the broker listens.
    #[serde(default)]
    pub ready_file: Option<PathBuf>,
    /// Accept clients without user name. Without it, `password_file` says who may connect.
    #[serde(default)]
    pub allow_anonymous: bool,
    /// Lines of `user:argon2-hash`, as the crate's `mqttv5 passwd` writes them.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Where retained messages and sessions are kept on disk; nowhere if absent.
    #[serde(default)]
    pub storage_folder: Option<PathBuf>,
    /// Topics of measured messages without a header: what comes on them is forwarded as it came, too.
    #[serde(default)]
    pub short_topics: BTreeSet<String>,
    /// Threads that serve clients; 1 has the least jitter on a small machine, 2 the most throughput.
    #[serde(default = "one")]
    pub workers: usize,
}

fn one() -> usize {
    1
}

/// Why the broker ended.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error("the broker cannot listen at {address}: {reason}")]
    Listen { address: SocketAddr, reason: String },
    #[error("the broker's settings are of no use: {0}")]
    Settings(String),
    #[error("cannot write the ready file {path:?}: {source}")]
    ReadyFile { path: PathBuf, source: io::Error },
    #[error("the broker cannot {action}: {source}")]
    System { action: &'static str, source: io::Error },
    #[error("the broker stopped by itself: {0}")]
    Stopped(String),
}

/// Runs the broker until SIGTERM or SIGINT; blocks.
///
/// # Errors
/// See [`BrokerError`].
pub fn broker(config: &BrokerConfig) -> Result<(), BrokerError> {
    let mut builder = match config.workers {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        workers => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(workers);
            builder
        }
    };
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|source| BrokerError::System {
            action: "start its threads",
            source,
        })?;
    let result = runtime.block_on(serve(config));
    // Clients that still hang on must not hold up the end.
    runtime.shutdown_background();
    result
}

async fn serve(config: &BrokerConfig) -> Result<(), BrokerError> {
    let system = |action| move |source| BrokerError::System { action, source };
    let mut terminate = signal(SignalKind::terminate()).map_err(system("watch for SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("watch for SIGINT"))?;
    let address = SocketAddr::new(config.bind, config.port);
    let settings = settings(config, address);
    settings
        .validate()
        .map_err(|error| BrokerError::Settings(error.to_string()))?;
    let mut broker = MqttBroker::with_config(settings)
        .await
        .map_err(|error| BrokerError::Listen {
            address,
            reason: error.to_string(),
        })?;
    let shutdown = broker.shutdown_handle();
    if let Some(path) = &config.ready_file {
        let address = broker.local_addr().unwrap_or(address);
        std::fs::write(path, format!("{address}\n")).map_err(|source| BrokerError::ReadyFile {
            path: path.clone(),
            source,
        })?;
    }
    let run = broker.run();
    tokio::pin!(run);
    tokio::select! {
        result = &mut run => return result.map_err(|error| BrokerError::Stopped(error.to_string())),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    shutdown.shutdown();
    // Clients get their DISCONNECT; one that does not take it must not hold up the end.
    let _ = tokio::time::timeout(std::time::Duration::from_millis(500), run).await;
    Ok(())
}

/// The largest remaining length of a packet (MQTT 5.0, 2.1.4). The crate would announce one byte more, which paho's clients take for malformed.
const LARGEST_PACKET: usize = 268_435_455;

fn settings(config: &BrokerConfig, address: SocketAddr) -> Settings {
    let storage = match &config.storage_folder {
        Some(folder) => StorageConfig::new()
            .with_backend(StorageBackend::File)
            .with_base_dir(folder.clone()),
        None => StorageConfig::new()
            .with_backend(StorageBackend::Memory)
            .with_persistence(false),
    };
    let auth = AuthConfig {
        allow_anonymous: config.allow_anonymous,
        password_file: config.password_file.clone(),
        ..AuthConfig::default()
    };
    // $SYS topics would be traffic that nobody declared.
    Settings::default()
        .with_event_handler(Arc::new(ForwardAsSent {
            short_topics: config.short_topics.clone(),
        }))
        .with_bind_address(address)
        .with_storage(storage)
        .with_auth(auth)
        .with_sys_topics_enabled(false)
        .with_max_packet_size(LARGEST_PACKET)
}

/// The crate adds the publisher's identifiers as user properties before it forwards a message. No other broker does, and the
/// sizes on the wire would depend on names. Measured messages (they carry no properties) are forwarded without any, and so are those of
/// declared topics that say what to answer to nobody; other messages keep theirs, which the event does not hold.
struct ForwardAsSent {
    short_topics: BTreeSet<String>,
}

impl BrokerEventHandler for ForwardAsSent {
    fn on_client_publish<'a>(
        &'a self,
        event: ClientPublishEvent,
    ) -> Pin<Box<dyn Future<Output = PublishAction> + Send + 'a>> {
        let is_request = event.response_topic.is_some() || event.correlation_data.is_some();
        let is_measured = self.short_topics.contains(&*event.topic) && !is_request
            || Header::read(&event.payload).is_some();
        Box::pin(std::future::ready(if is_measured {
            let mut packet =
                PublishPacket::new(&*event.topic, event.payload, event.qos).with_retain(event.retain);
            packet.packet_id = event.packet_id;
            PublishAction::Transform(packet)
        } else {
            PublishAction::Continue
        }))
    }
}

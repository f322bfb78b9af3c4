//! TLS on both sides (rustls): the site's certificate towards clients, the broker's authority towards the broker.

use crate::contract::{BrokerTls, Listener, PeerTls};
use crate::start::StartError;
use crate::stream::Stream;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn of_no_use(path: &Path, reason: impl ToString) -> StartError {
    StartError::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| of_no_use(path, error))?;
    if found.is_empty() {
        return Err(of_no_use(path, "there is no certificate in it"));
    }
    Ok(found)
}

fn authorities(path: &Path) -> Result<Arc<RootCertStore>, StartError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| of_no_use(path, error))?;
    }
    Ok(Arc::new(roots))
}

/// What takes handshakes of clients.
pub(crate) fn acceptor(listener: &Listener) -> Result<TlsAcceptor, StartError> {
    let needs = |what, path: &Option<std::path::PathBuf>| {
        path.clone().ok_or(StartError::Missing {
            what,
            address: SocketAddr::new(listener.address, listener.port),
        })
    };
    let (chain_file, key_file) = (
        needs("certificate", &listener.certificate)?,
        needs("key", &listener.key)?,
    );
    let chain = certificates(&chain_file)?;
    let key = PrivateKeyDer::from_pem_file(&key_file).map_err(|error| of_no_use(&key_file, error))?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| of_no_use(&chain_file, error))?;
    let builder = match &listener.client_authority {
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities(path)?, provider());
            let verifier = if listener.certificate_as_user {
                verifier
            } else {
                verifier.allow_unauthenticated()
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| of_no_use(path, error))?)
        }
        None => builder.with_no_client_auth(),
    };
    let config = builder
        .with_single_cert(chain, key)
        .map_err(|error| of_no_use(&key_file, error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Common name of a certificate (RFC 5280, section 4.1.2.6; X.520).
pub(crate) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?;
    (!name.is_empty() && !name.contains('\0')).then(|| name.to_owned())
}

/// The broker, and how it is reached.
pub(crate) struct Broker {
    address: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Broker {
    pub(crate) fn new(broker: &crate::contract::Broker) -> Result<Self, StartError> {
        let tls = broker.tls.as_ref().map(|tls| connector(tls, &broker.address));
        Ok(Self {
            address: broker.address.clone(),
            port: broker.port,
            tls: tls.transpose()?,
        })
    }

    /// A connection of its own, with its local and remote address.
    pub(crate) async fn connect(&self) -> io::Result<(Stream, SocketAddr, SocketAddr)> {
        let socket = match self.address.parse::<IpAddr>() {
            Ok(address) => TcpStream::connect((address, self.port)).await?,
            Err(_) => TcpStream::connect((self.address.as_str(), self.port)).await?,
        };
        socket.set_nodelay(true)?;
        let (local, remote) = (socket.local_addr()?, socket.peer_addr()?);
        let stream = match &self.tls {
            None => Stream::Tcp(socket),
            Some((connector, name)) => {
                let secured = connector.connect(name.clone(), socket).await?;
                Stream::TlsToBroker(Box::new(secured))
            }
        };
        Ok((stream, local, remote))
    }
}

fn connector(tls: &BrokerTls, address: &str) -> Result<(TlsConnector, ServerName<'static>), StartError> {
    let name = tls.server_name.as_deref().unwrap_or(address).to_owned();
    let server = ServerName::try_from(name.clone()).map_err(|_| StartError::ServerName(name))?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| of_no_use(&tls.authority, error))?
        .with_root_certificates(authorities(&tls.authority)?)
        .with_no_client_auth();
    Ok((TlsConnector::from(Arc::new(config)), server))
}

/// Both ends of connections between managers: each shows its certificate, which must be for the address that it has.
#[derive(Clone)]
pub(crate) struct Mutual {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
}

impl Mutual {
    /// `own`: the address that others know.
    pub(crate) fn new(said: &PeerTls, own: IpAddr) -> Result<Self, StartError> {
        let chain = certificates(&said.certificate)?;
        if let Some(first) = chain.first() {
            is_for(first, own).map_err(|why| of_no_use(&said.certificate, why))?;
        }
        let key = || PrivateKeyDer::from_pem_file(&said.key).map_err(|error| of_no_use(&said.key, error));
        let roots = authorities(&said.authority)?;
        let of_ours = |error: rustls::Error| of_no_use(&said.key, error);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider())
            .build()
            .map_err(|error| of_no_use(&said.authority, error))?;
        // Both ends are managers, so there is nobody who speaks nothing newer than TLS 1.2.
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(of_ours)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key()?)
            .map_err(of_ours)?;
        let client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(of_ours)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key()?)
            .map_err(of_ours)?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(client)),
            acceptor: TlsAcceptor::from(Arc::new(server)),
        })
    }

    pub(crate) async fn connect(
        &self,
        socket: TcpStream,
        to: IpAddr,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        self.connector.connect(ServerName::from(to), socket).await
    }

    pub(crate) async fn accept(
        &self,
        socket: TcpStream,
        from: IpAddr,
    ) -> io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
        let stream = self.acceptor.accept(socket).await?;
        // The authority says that it is a manager; which one it says as well, and rustls looks at that in servers alone.
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
        let shown = shown.ok_or_else(|| refused("it shows no certificate".to_owned()))?;
        is_for(shown, from).map_err(|why| refused(format!("its {why}")))?;
        Ok(stream)
    }
}

/// Is it the certificate of whoever has this address? What is wrong otherwise.
fn is_for(certificate: &CertificateDer<'_>, address: IpAddr) -> Result<(), String> {
    webpki::EndEntityCert::try_from(certificate)
        .and_then(|certificate| certificate.verify_is_valid_for_subject_name(&ServerName::from(address)))
        .map_err(|error| format!("certificate is not for {address}: {error}"))
}

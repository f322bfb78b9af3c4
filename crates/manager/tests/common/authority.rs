//! Certificates.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An authority with certificates of a site, as files in a folder that goes with it.
pub(crate) struct Site {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Site {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("timebound-manager-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.join("authority.pem"), issuer.pem()).unwrap();
        let site = Self { folder, issuer };
        site.issue("server", "the server", &["localhost"]);
        site
    }

    /// Writes `FILE.pem` and `FILE.key`.
    pub(crate) fn issue(&self, file: &str, name: &str, hosts: &[&str]) {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.folder.join(format!("{file}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.folder.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    pub(crate) fn listener(&self, kind: &str) -> Value {
        json!({"address": "127.0.0.1", "port": 0, "kind": kind, "certificate": self.path("server.pem"), "key": self.path("server.key")})
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn chain(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path)
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

pub(crate) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) type Secured = StreamOwned<ClientConnection, TcpStream>;

/// A client that trusts the site, and expects its server to be `name`; `own`: the certificate that it shows.
pub(crate) fn secure(site: &Site, name: &str, own: Option<(&Site, &str)>, socket: TcpStream) -> Secured {
    let mut roots = RootCertStore::empty();
    roots.add(chain(&site.path("authority.pem")).remove(0)).unwrap();
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((of, file)) => {
            let key = PrivateKeyDer::from_pem_file(of.path(&format!("{file}.key"))).unwrap();
            builder
                .with_client_auth_cert(chain(&of.path(&format!("{file}.pem"))), key)
                .unwrap()
        }
    };
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(connection, socket)
}

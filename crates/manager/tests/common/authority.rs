//! Certificates.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};
use std::path::PathBuf;

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

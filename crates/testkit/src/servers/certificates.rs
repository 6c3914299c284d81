//! A certificate authority of our own, for servers and clients on loopback.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

use crate::servers::address::own_ip;

/// A certificate and its key, PEM files.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// An authority with a server's and a client's certificate; two of them do not trust each other.
#[derive(Debug)]
pub struct Certificates {
    /// What the other side must trust.
    pub ca: PathBuf,
    /// For the test's own address and localhost.
    pub server: Identity,
    /// For a client.
    pub client: Identity,
    _folder: TempDir,
}

impl Certificates {
    /// Makes all of them.
    pub fn new() -> Self {
        let folder =
            tempfile::Builder::new().prefix("quaymaster-tls-").tempdir().expect("a temporary folder");
        let mut params = CertificateParams::default();
        // Names must differ: OpenSSL takes a certificate with its issuer's name for a self-signed one.
        params.distinguished_name.push(DnType::CommonName, "Quaymaster test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, authority.pem()).expect("the authority can be written");
        let issue = |name: &str, names: &[&str], purpose| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut params = CertificateParams::new(names).expect("valid names");
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![purpose];
            let key = KeyPair::generate().expect("a key");
            let cert = params.signed_by(&key, &authority).expect("a certificate");
            write(folder.path(), name, &cert.pem(), &key.serialize_pem())
        };
        let server =
            issue("server", &[&own_ip().to_string(), "localhost"], ExtendedKeyUsagePurpose::ServerAuth);
        let client = issue("client", &["client"], ExtendedKeyUsagePurpose::ClientAuth);
        Self { ca, server, client, _folder: folder }
    }

    /// Lines for a Redis 7 server that speaks TLS on `port`, with or without asking clients for theirs.
    pub fn redis_lines(&self, port: u16, ask_clients: bool) -> Vec<String> {
        vec![
            format!("tls-port {port}"),
            format!("tls-ca-cert-file {}", self.ca.display()),
            format!("tls-cert-file {}", self.server.cert.display()),
            format!("tls-key-file {}", self.server.key.display()),
            format!("tls-auth-clients {}", if ask_clients { "yes" } else { "no" }),
        ]
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

fn write(folder: &Path, name: &str, cert: &str, key: &str) -> Identity {
    let identity =
        Identity { cert: folder.join(format!("{name}.pem")), key: folder.join(format!("{name}.key.pem")) };
    std::fs::write(&identity.cert, cert).expect("the certificate can be written");
    std::fs::write(&identity.key, key).expect("the key can be written");
    // Servers refuse a key that everybody may read.
    let owner = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&identity.key, owner).expect("the key can be kept to its owner");
    identity
}

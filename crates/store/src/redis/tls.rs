//! TLS for connections to the store: rustls on ring, the system's certificates or a CA file, and our own
//! certificate when the server asks for one.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::redis::options::TlsFiles;
use crate::{Code, Error, Result};

fn invalid(detail: String) -> Error {
    Error::new("store.connect", Code::ConfigInvalid, detail)
}

/// Reads the files once; a later change of them needs a new store.
pub(super) fn client_config(files: &TlsFiles) -> Result<Arc<ClientConfig>> {
    // The provider is named here and not taken from the process, so that whoever embeds the crate need not
    // have installed one, nor the same one.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots(files.ca_file.as_deref())?);
    let config = match (&files.client_cert_file, &files.client_key_file) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let key_der = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| invalid(format!("client_key_file {}: {error}", key.display())))?;
            builder
                .with_client_auth_cert(certificates(cert, "client_cert_file")?, key_der)
                .map_err(|error| invalid(format!("client_cert_file {}: {error}", cert.display())))?
        }
        _ => return Err(invalid("client_cert_file and client_key_file go together".into())),
    };
    Ok(Arc::new(config))
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            for certificate in certificates(path, "ca_file")? {
                roots
                    .add(certificate)
                    .map_err(|error| invalid(format!("ca_file {}: {error}", path.display())))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(found.certs);
            if added == 0 {
                return Err(invalid("the system has no trusted certificates; name a ca_file".into()));
            }
        }
    }
    Ok(roots)
}

fn certificates(path: &Path, setting: &str) -> Result<Vec<CertificateDer<'static>>> {
    let problem = |text: String| invalid(format!("{setting} {}: {text}", path.display()));
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| problem(error.to_string()))?;
    if found.is_empty() {
        return Err(problem("holds no certificate".into()));
    }
    Ok(found)
}

//! Certificates for `--server https://…`: whom the command trusts, and which one it shows.

use std::path::Path;

use reqwest::{Certificate, Client, ClientBuilder, Identity};

use crate::failure::{Cause, Unreadable};
use crate::remote::root;

/// The flags that name certificates.
const CA_FILE: &str = "--ca-file";
const CERT_FILE: &str = "--cert-file";

/// Builds a client that trusts the certificates of `ca_file`, or those of the system, and shows its own, with its key, if
/// it has one.
pub(crate) fn client(
    mut builder: ClientBuilder,
    ca_file: Option<&Path>,
    own: Option<(&Path, &Path)>,
) -> anyhow::Result<Client> {
    if let Some((certificate, key)) = own {
        builder = builder.identity(identity(certificate, key)?);
    }
    if let Some(path) = ca_file {
        let what = format!("--ca-file {}", path.display());
        let wrong = |cause: Cause| Unreadable::because(&what, cause).field(CA_FILE);
        let pem = std::fs::read(path).map_err(|error| wrong(error.into()))?;
        let found = Certificate::from_pem_bundle(&pem).map_err(|error| wrong(error.into()))?;
        if found.is_empty() {
            return Err(wrong("it has no certificate in PEM".into()).into());
        }
        // What is no certificate although it is PEM is found out here.
        return builder.tls_certs_only(found).build().map_err(|error| wrong(root(&error).into()).into());
    }
    Ok(builder.build()?)
}

/// A certificate and its key.
fn identity(certificate: &Path, key: &Path) -> anyhow::Result<Identity> {
    let what = format!("--cert-file {} and --key-file {}", certificate.display(), key.display());
    let wrong = |cause: Cause| Unreadable::because(&what, cause).field(CERT_FILE);
    let mut pem = std::fs::read(certificate).map_err(|error| wrong(error.into()))?;
    pem.push(b'\n');
    pem.extend(std::fs::read(key).map_err(|error| wrong(error.into()))?);
    let found = Identity::from_pem(&pem).map_err(|error| wrong(root(&error).into()))?;
    // Files that do not fit together are found out by a client that has nothing else to be wrong.
    let trial = Client::builder().tls_certs_only([]).identity(found.clone()).build();
    trial.map(|_| found).map_err(|error| wrong(root(&error).into()).into())
}

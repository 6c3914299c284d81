//! An HTTP client that keeps connections and follows no redirects.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::Uri;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::legacy::{self, Client as Pool};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use quaymaster::{Code, Error, Result};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::http::maybe_tls::MaybeTls;

/// Idle connections are closed before most services close them: a call on one just closed is a failed attempt.
const IDLE: Duration = Duration::from_secs(15);

/// A pool of connections to one service.
pub(super) type Client = Pool<Connector, Full<Bytes>>;

/// Why a call got no answer.
pub(super) type Fault = legacy::Error;

/// A pool for at most `concurrency` calls at once.
pub(super) fn client(
    uri: &Uri,
    concurrency: u32,
    timeout: Duration,
    ca_file: Option<&Path>,
) -> Result<Client> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(timeout));
    let tls = match uri.scheme_str() {
        Some("https") => Some(TlsConnector::from(Arc::new(tls(ca_file)?))),
        _ => None,
    };
    Ok(Pool::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(concurrency as usize)
        .build(Connector { http, tls }))
}

/// The system's certificate authorities and those of `ca_file`.
fn tls(ca_file: Option<&Path>) -> Result<ClientConfig> {
    let wrong = |detail: String| Error::new("worker", Code::ConfigInvalid, detail);
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = ca_file {
        let shown = file.display();
        let read =
            CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
        let certificates = read.map_err(|error| wrong(format!("worker.ca_file: {shown}: {error}")))?;
        if roots.add_parsable_certificates(certificates).0 == 0 {
            return Err(wrong(format!("worker.ca_file: {shown} holds no certificate")));
        }
    }
    // Named, because another crate may bring a second provider into the process.
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(format!("TLS: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// TCP, and TLS on it where the URL says so.
#[derive(Clone)]
pub(super) struct Connector {
    http: HttpConnector,
    tls: Option<TlsConnector>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        tower_service::Service::<Uri>::poll_ready(&mut self.http, cx).map_err(io::Error::other)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let (tcp, tls) = (tower_service::Service::call(&mut self.http, uri), self.tls.clone());
        async move {
            let tcp = tcp.await.map_err(io::Error::other)?.into_inner();
            let stream = match tls {
                None => Stream::Plain(tcp),
                Some(tls) => {
                    let name = ServerName::try_from(host).map_err(io::Error::other)?;
                    Stream::Tls(Box::new(tls.connect(name, tcp).await?))
                }
            };
            Ok(TokioIo::new(stream))
        }
        .boxed()
    }
}

/// A connection.
pub(super) type Stream = MaybeTls<TcpStream, TlsStream<TcpStream>>;

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

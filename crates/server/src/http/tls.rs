//! TLS on the server's connections: certificate, key and client authority, read from files and read again when these
//! change.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{Acceptor, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::maybe_tls::MaybeTls;
use super::presence::Stream;

/// Handshakes at once; a connection beyond them is closed.
const HANDSHAKES: usize = 512;
/// How long one may take.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// A file over this size is none of ours.
const FILE_MAX: u64 = 1 << 20;

/// `[server.tls]`: files in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority of clients' certificates. Where it is given, whoever has none is not served.
    pub client_ca: Option<PathBuf>,
}

/// Turns connections into TLS connections.
pub(crate) struct Tls {
    current: RwLock<Arc<ServerConfig>>,
    handshakes: Semaphore,
    watched: Mutex<Watched>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("watched", &self.watched).finish_non_exhaustive()
    }
}

/// The files as they were seen.
#[derive(Debug)]
struct Watched {
    files: TlsFiles,
    /// As they were when they were last read, with or without success.
    read: Vec<Option<Seen>>,
    /// As they were at the last look.
    last: Vec<Option<Seen>>,
}

/// What tells a file from itself before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What a look at the files has led to.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// There is nothing new, or it is still being written.
    Nothing,
    /// What is new is used from now on.
    Taken,
    /// It cannot be used: what there was stays.
    Broken(String),
}

/// Why a connection has no TLS.
#[derive(Debug)]
pub(crate) enum Unsecured {
    /// Too many shake hands.
    Busy,
    /// It took too long.
    Late,
    /// The other end does not trust us, is not trusted, or speaks something else.
    Failed(io::Error),
}

impl fmt::Display for Unsecured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("too many handshakes at once"),
            Self::Late => f.write_str("the handshake took too long"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Tls {
    /// Reads the files.
    pub(crate) fn new(files: TlsFiles) -> Result<Self, String> {
        let seen = seen(&files);
        let current = RwLock::new(Arc::new(load(&files)?));
        let watched = Mutex::new(Watched { files, last: seen.clone(), read: seen });
        Ok(Self { current, handshakes: Semaphore::new(HANDSHAKES), watched })
    }

    /// Looks at the files. They are read when they have changed and nothing has happened to them since the last look:
    /// one half of a pair is written before the other. Those that cannot be used are looked at once and not taken.
    fn look(&self) -> Look {
        let mut watched = self.watched.lock();
        let now = seen(&watched.files);
        let settled = now == watched.last;
        watched.last.clone_from(&now);
        if now == watched.read || !settled {
            return Look::Nothing;
        }
        watched.read = now;
        match load(&watched.files) {
            Ok(config) => {
                *self.current.write() = Arc::new(config);
                Look::Taken
            }
            Err(why) => Look::Broken(why),
        }
    }

    /// Shakes hands, within `deadline`.
    pub(crate) async fn accept(
        &self,
        stream: Stream,
        deadline: Duration,
    ) -> Result<TlsStream<Stream>, Unsecured> {
        let shaking = async {
            // Whoever says nothing, or not all of its first message, takes no place: connecting alone costs nothing.
            let hello =
                LazyConfigAcceptor::new(Acceptor::default(), stream).await.map_err(Unsecured::Failed)?;
            let _place = self.handshakes.try_acquire().map_err(|_| Unsecured::Busy)?;
            let config = self.current.read().clone();
            hello.into_stream(config).await.map_err(Unsecured::Failed)
        };
        tokio::time::timeout(deadline, shaking).await.unwrap_or(Err(Unsecured::Late))
    }
}

fn seen(files: &TlsFiles) -> Vec<Option<Seen>> {
    let of = |file: Metadata| Seen {
        inode: (file.dev(), file.ino()),
        size: file.size(),
        modified: (file.mtime(), file.mtime_nsec()),
        changed: (file.ctime(), file.ctime_nsec()),
    };
    let all = [Some(&files.certificate), Some(&files.key), files.client_ca.as_ref()];
    all.into_iter().flatten().map(|path| std::fs::metadata(path).ok().map(of)).collect()
}

fn load(files: &TlsFiles) -> Result<ServerConfig, String> {
    let certificates = certificates("certificate", &files.certificate)?;
    let key = key(&files.key)?;
    // Named, because another crate may bring a second provider into the process.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("server.tls: {error}"))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let wrong = |why: &dyn fmt::Display| format!("server.tls.client_ca: {}: {why}", path.display());
            let mut roots = RootCertStore::empty();
            for certificate in self::certificates("client_ca", path)? {
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|error| wrong(&error))?)
        }
    };
    let mut config = builder.with_single_cert(certificates, key).map_err(|error| {
        format!("server.tls: {} and {}: {error}", files.certificate.display(), files.key.display())
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(setting: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |why: &dyn fmt::Display| format!("server.tls.{setting}: {}: {why}", path.display());
    let (text, _) = read(path).map_err(|error| wrong(&error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| wrong(&error))?;
    if found.is_empty() { Err(wrong(&"it has no certificate in PEM")) } else { Ok(found) }
}

/// The key. Whoever can read it can be the server.
fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let wrong = |why: &dyn fmt::Display| format!("server.tls.key: {}: {why}", path.display());
    let (text, file) = read(path).map_err(|error| wrong(&error))?;
    if file.mode() & 0o007 != 0 {
        let why = format!(
            "every user of this machine may use it (mode {:03o}); chmod it to 600 or 640",
            file.mode() & 0o777
        );
        return Err(wrong(&why));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => wrong(&"it has no key in PEM"),
        error => wrong(&error),
    })
}

/// A file's bytes, and what it was when they were read.
fn read(path: &Path) -> io::Result<(Vec<u8>, Metadata)> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    let mut text = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut text)?;
    Ok((text, about))
}

/// Reads the files again whenever they have changed, until `stop`.
pub(crate) async fn watch(tls: Option<Arc<Tls>>, stop: &CancellationToken) {
    let Some(tls) = tls else { return };
    let mut look = tokio::time::interval(LOOK);
    while stop.run_until_cancelled(look.tick()).await.is_some() {
        let tls = tls.clone();
        // Another machine may hold the files.
        match tokio::task::spawn_blocking(move || tls.look()).await {
            Ok(Look::Taken) => tracing::info!("certificate and key of the server were read again"),
            Ok(Look::Broken(why)) => tracing::warn!("the server keeps the certificate it has: {why}"),
            Ok(Look::Nothing) | Err(_) => {}
        }
    }
}

/// A connection to a client, with or without TLS.
pub(crate) type Channel = MaybeTls<Stream, TlsStream<Stream>>;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::PermissionsExt as _;

    use futures_util::FutureExt as _;
    use quaymaster_testkit::servers::Certificates;
    use rustls::ClientConfig;
    use rustls::pki_types::ServerName;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsConnector;

    use super::*;

    /// Puts a copy of `by` in the place of a file at once.
    fn replace(path: &Path, by: &Path) {
        let beside = path.with_extension("new");
        std::fs::copy(by, &beside).unwrap();
        std::fs::rename(beside, path).unwrap();
    }

    #[test]
    fn files_are_read_again_once_they_are_whole_and_a_broken_pair_changes_nothing() {
        let (first, second) = (Certificates::new(), Certificates::new());
        let folder = tempfile::TempDir::new().unwrap();
        let (certificate, key) = (folder.path().join("server.pem"), folder.path().join("server.key"));
        replace(&certificate, &first.server.cert);
        replace(&key, &first.server.key);
        let files = TlsFiles { certificate: certificate.clone(), key: key.clone(), client_ca: None };
        let tls = Tls::new(files).unwrap();
        let used = || Arc::as_ptr(&tls.current.read());
        let before = used();
        assert_eq!((tls.look(), tls.look()), (Look::Nothing, Look::Nothing));

        replace(&certificate, &second.server.cert);
        assert_eq!(tls.look(), Look::Nothing, "it may still be written");
        let Look::Broken(why) = tls.look() else { panic!("half of a pair was taken") };
        assert!(why.contains("server.pem") && why.contains("server.key"), "{why}");
        assert_eq!((tls.look(), used()), (Look::Nothing, before), "told once, and kept");
        std::fs::remove_file(&key).unwrap();
        assert_eq!(tls.look(), Look::Nothing);
        assert!(matches!(tls.look(), Look::Broken(_)));

        replace(&key, &second.server.key);
        assert_eq!((tls.look(), tls.look()), (Look::Nothing, Look::Taken));
        let after = used();
        assert_ne!(after, before);

        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(tls.look(), Look::Nothing);
        assert!(matches!(tls.look(), Look::Broken(why) if why.contains("mode 644")));
        assert_eq!(used(), after);
    }

    /// A connection to a server, both ends of it.
    async fn line(listener: &TcpListener) -> (TcpStream, Stream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, Stream::new(listener.accept().await.unwrap().0.into()))
    }

    /// A client that trusts `ca` shakes hands with `tls`; what the server's end has of it.
    async fn shake(
        tls: &Tls,
        ca: &Path,
        (client, stream): (TcpStream, Stream),
    ) -> Result<TlsStream<Stream>, Unsecured> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::from(client.peer_addr().unwrap().ip());
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, client);
        futures_util::future::join(connecting, tls.accept(stream, HANDSHAKE)).await.1
    }

    #[tokio::test]
    async fn handshakes_have_a_deadline_and_a_bound_that_silence_does_not_use_up() {
        let ours = Certificates::new();
        let files =
            TlsFiles { certificate: ours.server.cert.clone(), key: ours.server.key.clone(), client_ca: None };
        let few = 2;
        let tls = Tls { handshakes: Semaphore::new(few), ..Tls::new(files).unwrap() };
        let listener = TcpListener::bind(quaymaster_testkit::servers::any_port()).await.unwrap();
        let (_mute, stream) = line(&listener).await;
        assert!(matches!(tls.accept(stream, Duration::from_millis(1)).await, Err(Unsecured::Late)));

        // More than there are places say nothing, or begin and say no more.
        let (mut clients, mut waiting) = (Vec::new(), Vec::new());
        for at in 0..4 * few {
            let (mut client, stream) = line(&listener).await;
            if at % 2 == 0 {
                client.write_all(&[22, 3, 1]).await.unwrap();
            }
            clients.push(client);
            waiting.push(Box::pin(tls.accept(stream, HANDSHAKE)));
        }
        assert!(waiting.iter_mut().all(|accepting| accepting.now_or_never().is_none()));
        assert!(shake(&tls, &ours.ca, line(&listener).await).await.is_ok(), "a client is served beside them");

        let places = tls.handshakes.try_acquire_many(few as u32).unwrap();
        let refused = shake(&tls, &ours.ca, line(&listener).await).await;
        assert!(matches!(refused, Err(Unsecured::Busy)));
        drop(places);
        assert!(shake(&tls, &ours.ca, line(&listener).await).await.is_ok(), "every place was given back");
    }
}

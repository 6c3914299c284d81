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
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::maybe_tls::MaybeTls;
use super::presence::Stream;

/// How long a handshake may take.
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
    /// As they were when they were last read, whole, usable or not.
    read: Vec<Option<Seen>>,
    /// As they were at the last look.
    last: Vec<Option<Seen>>,
    /// Somebody was told that they cannot be read as they are now.
    told: bool,
}

/// What tells a file from itself before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Why the files have no certificate and key for us.
#[derive(Debug)]
enum Unusable {
    /// One cannot be read, perhaps only now.
    Unreadable(String),
    /// What is in them is wrong until somebody changes it.
    Invalid(String),
}

/// Gives a file's bytes, and what it was when they were read.
type Reader<'a> = &'a dyn Fn(&Path) -> io::Result<(Vec<u8>, Metadata)>;

/// What a look at the files has led to.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// There is nothing new to use or to tell.
    Nothing,
    /// What is new is used from now on.
    Taken,
    /// It cannot be used: what there was stays.
    Broken(String),
}

/// Why a connection has no TLS.
#[derive(Debug)]
pub(crate) enum Unsecured {
    /// It took too long.
    Late,
    /// The other end does not trust us, is not trusted, or speaks something else.
    Failed(io::Error),
}

impl fmt::Display for Unsecured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("the handshake took too long"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Tls {
    /// Reads the files.
    pub(crate) fn new(files: TlsFiles) -> Result<Self, String> {
        let seen = seen(&files);
        let loaded =
            load(&files, &read).map_err(|(Unusable::Unreadable(why) | Unusable::Invalid(why))| why)?;
        let watched = Mutex::new(Watched { files, last: seen.clone(), read: seen, told: false });
        Ok(Self { current: RwLock::new(Arc::new(loaded)), watched })
    }

    /// Looks at the files. They are read when they have changed and nothing has happened to them since the last look:
    /// one half of a pair is written before the other. Those that are wrong wait for a change; those that cannot be read
    /// are tried again at each look. Either is told once.
    fn look(&self, read: Reader<'_>) -> Look {
        let mut watched = self.watched.lock();
        let now = seen(&watched.files);
        let settled = now == watched.last;
        watched.last.clone_from(&now);
        if now == watched.read {
            return Look::Nothing;
        }
        if !settled {
            watched.told = false;
            return Look::Nothing;
        }
        let loaded = load(&watched.files, read);
        if let Err(Unusable::Unreadable(why)) = loaded {
            return if std::mem::replace(&mut watched.told, true) {
                Look::Nothing
            } else {
                Look::Broken(why)
            };
        }
        watched.read = now;
        match loaded {
            Ok(config) => {
                *self.current.write() = Arc::new(config);
                Look::Taken
            }
            Err(Unusable::Unreadable(why) | Unusable::Invalid(why)) => Look::Broken(why),
        }
    }

    /// Shakes hands, within `deadline`. Any number of clients may be waited for: the deadline bounds each, and there are
    /// no more of them than connections.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        deadline: Duration,
    ) -> Result<TlsStream<S>, Unsecured> {
        let shaking = TlsAcceptor::from(self.current.read().clone()).accept(stream);
        match tokio::time::timeout(deadline, shaking).await {
            Ok(shaken) => shaken.map_err(Unsecured::Failed),
            Err(_) => Err(Unsecured::Late),
        }
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

fn load(files: &TlsFiles, read: Reader<'_>) -> Result<ServerConfig, Unusable> {
    let certificates = certificates("certificate", &files.certificate, read)?;
    let key = key(&files.key, read)?;
    // Named, because another crate may bring a second provider into the process.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Unusable::Invalid(format!("server.tls: {error}")))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let wrong = |why: &dyn fmt::Display| Unusable::Invalid(naming("client_ca", path, why));
            let mut roots = RootCertStore::empty();
            for certificate in self::certificates("client_ca", path, read)? {
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|error| wrong(&error))?)
        }
    };
    let mut config = builder.with_single_cert(certificates, key).map_err(|error| {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        Unusable::Invalid(format!("server.tls: {certificate} and {key}: {error}"))
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// What is to be told of the file of a setting.
fn naming(setting: &str, path: &Path, why: &dyn fmt::Display) -> String {
    format!("server.tls.{setting}: {}: {why}", path.display())
}

fn certificates(
    setting: &str,
    path: &Path,
    read: Reader<'_>,
) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let wrong = |why: &dyn fmt::Display| Unusable::Invalid(naming(setting, path, why));
    let (text, _) = read(path).map_err(|error| Unusable::Unreadable(naming(setting, path, &error)))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| wrong(&error))?;
    if found.is_empty() { Err(wrong(&"it has no certificate in PEM")) } else { Ok(found) }
}

/// The key. Whoever can read it can be the server.
fn key(path: &Path, read: Reader<'_>) -> Result<PrivateKeyDer<'static>, Unusable> {
    let wrong = |why: &dyn fmt::Display| Unusable::Invalid(naming("key", path, why));
    let (text, file) = read(path).map_err(|error| Unusable::Unreadable(naming("key", path, &error)))?;
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
    file.take(FILE_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 MiB"));
    }
    Ok((text, about))
}

/// Reads the files again whenever they have changed, until `stop`.
pub(crate) async fn watch(tls: Option<Arc<Tls>>, stop: &CancellationToken) {
    let Some(tls) = tls else { return };
    let mut look = tokio::time::interval(LOOK);
    while stop.run_until_cancelled(look.tick()).await.is_some() {
        let tls = tls.clone();
        // Another machine may hold the files and not answer, which no stop waits for.
        let looking = tokio::task::spawn_blocking(move || tls.look(&read));
        match stop.run_until_cancelled(looking).await {
            Some(Ok(Look::Taken)) => tracing::info!("certificate and key of the server were read again"),
            Some(Ok(Look::Broken(why))) => tracing::warn!("the server keeps the certificate it has: {why}"),
            Some(Ok(Look::Nothing) | Err(_)) | None => {}
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
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection};
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
        assert_eq!((tls.look(&read), tls.look(&read)), (Look::Nothing, Look::Nothing));

        replace(&certificate, &second.server.cert);
        assert_eq!(tls.look(&read), Look::Nothing, "it may still be written");
        let Look::Broken(why) = tls.look(&read) else { panic!("half of a pair was taken") };
        assert!(why.contains("server.pem") && why.contains("server.key"), "{why}");
        assert_eq!((tls.look(&read), used()), (Look::Nothing, before), "told once, and kept");
        std::fs::remove_file(&key).unwrap();
        assert_eq!(tls.look(&read), Look::Nothing);
        assert!(matches!(tls.look(&read), Look::Broken(_)));

        replace(&key, &second.server.key);
        assert_eq!((tls.look(&read), tls.look(&read)), (Look::Nothing, Look::Taken));
        let after = used();
        assert_ne!(after, before);

        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(tls.look(&read), Look::Nothing);
        assert!(matches!(tls.look(&read), Look::Broken(why) if why.contains("mode 644")));
        assert_eq!(used(), after);
    }

    /// A connection to a server, both ends of it.
    async fn line(listener: &TcpListener) -> (TcpStream, Stream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, Stream::new(listener.accept().await.unwrap().0.into()))
    }

    /// A client that trusts `ca`.
    fn client(ca: &Path) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        config.unwrap().with_root_certificates(roots).with_no_client_auth()
    }

    /// A client that trusts `ca` shakes hands with `tls`; what the server's end has of it.
    async fn shake(
        tls: &Tls,
        ca: &Path,
        (client, stream): (TcpStream, Stream),
    ) -> Result<TlsStream<Stream>, Unsecured> {
        let name = ServerName::from(client.peer_addr().unwrap().ip());
        let connecting = TlsConnector::from(Arc::new(self::client(ca))).connect(name, client);
        futures_util::future::join(connecting, tls.accept(stream, HANDSHAKE)).await.1
    }

    /// A server with a certificate of its own.
    fn ours(of: &Certificates) -> Tls {
        let (certificate, key) = (of.server.cert.clone(), of.server.key.clone());
        Tls::new(TlsFiles { certificate, key, client_ca: None }).unwrap()
    }

    #[tokio::test]
    async fn a_handshake_has_a_deadline() {
        let tls = ours(&Certificates::new());
        let listener = TcpListener::bind(quaymaster_testkit::servers::any_port()).await.unwrap();
        let (_mute, stream) = line(&listener).await;
        assert!(matches!(tls.accept(stream, Duration::from_millis(1)).await, Err(Unsecured::Late)));
    }

    #[tokio::test]
    async fn clients_that_fall_silent_at_any_step_shut_nobody_out() {
        let certificates = Certificates::new();
        let tls = ours(&certificates);
        let mut hello = Vec::new();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(client(&certificates.ca)), name).unwrap();
        client.write_tls(&mut hello).unwrap();
        let (mut clients, mut waiting) = (Vec::new(), Vec::new());
        for at in 0..600 {
            let (mut client, stream) = tokio::io::duplex(1 << 16);
            // Nothing, the beginning of a hello, or all of it.
            let says = &hello[..[0, 3, hello.len(), hello.len()][at % 4]];
            client.write_all(says).await.unwrap();
            clients.push(client);
            waiting.push(Box::pin(tls.accept(stream, HANDSHAKE)));
        }
        for accepting in &mut waiting {
            assert!(accepting.now_or_never().is_none());
        }
        let listener = TcpListener::bind(quaymaster_testkit::servers::any_port()).await.unwrap();
        let shaken = shake(&tls, &certificates.ca, line(&listener).await).await;
        assert!(shaken.is_ok(), "{:?}", shaken.err());
    }

    #[test]
    fn files_that_cannot_be_read_are_tried_until_they_can_and_told_of_once() {
        let (first, second) = (Certificates::new(), Certificates::new());
        let folder = tempfile::TempDir::new().unwrap();
        let (certificate, key) = (folder.path().join("server.pem"), folder.path().join("server.key"));
        replace(&certificate, &first.server.cert);
        replace(&key, &first.server.key);
        let files = TlsFiles { certificate: certificate.clone(), key: key.clone(), client_ca: None };
        let tls = Tls::new(files).unwrap();
        replace(&certificate, &second.server.cert);
        replace(&key, &second.server.key);
        let none_left = |_: &Path| Err(io::Error::other("too many open files"));
        assert_eq!(tls.look(&none_left), Look::Nothing, "they may still be written");
        assert!(matches!(tls.look(&none_left), Look::Broken(why) if why.contains("too many open files")));
        assert_eq!((tls.look(&none_left), tls.look(&read)), (Look::Nothing, Look::Taken));
        assert_eq!(tls.look(&read), Look::Nothing);
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_and_not_cut() {
        let ours = Certificates::new();
        let certificate = ours.server.cert.with_file_name("long.pem");
        let mut text = std::fs::read(&ours.server.cert).unwrap();
        text.resize(FILE_MAX as usize + 1, b'\n');
        std::fs::write(&certificate, &text).unwrap();
        let files =
            TlsFiles { certificate: certificate.clone(), key: ours.server.key.clone(), client_ca: None };
        let why = Tls::new(files.clone()).unwrap_err();
        assert!(why.ends_with("long.pem: it has more than 1 MiB"), "{why}");
        std::fs::write(&certificate, &text[..FILE_MAX as usize]).unwrap();
        assert!(Tls::new(files).is_ok());
    }

    #[tokio::test]
    async fn a_stop_does_not_wait_for_a_file_that_hangs() {
        let certificates = Certificates::new();
        let tls = ours(&certificates);
        let pipe = certificates.server.cert.with_extension("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::fs::rename(&pipe, &certificates.server.cert).unwrap();
        let stop = CancellationToken::new();
        let mut watching = Box::pin(watch(Some(Arc::new(tls)), &stop));
        // A pipe can be opened for writing as soon as somebody waits for what is written.
        let opened = async {
            loop {
                let opened =
                    open(&certificates.server.cert, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
                match opened {
                    Ok(pipe) => break pipe,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        let _never_written = tokio::select! {
            () = &mut watching => panic!("nobody has stopped it"),
            pipe = opened => pipe,
        };
        stop.cancel();
        assert!(watching.now_or_never().is_some());
    }
}

//! HTTPS: certificates, clients' certificates, files that change, and what else connections do under it.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use quaymaster_server::config::{Config, Overrides, RawConfig, ServerConfig};
use quaymaster_server::{Listening, TlsFiles};
use quaymaster_testkit::servers::{Certificates, Identity};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::{Answer, Connection, request};
use crate::fixture::{Fixture, settings};

fn files(of: &Certificates) -> TlsFiles {
    TlsFiles { certificate: of.server.cert.clone(), key: of.server.key.clone(), client_ca: None }
}

async fn server(toml: &str, tls: TlsFiles) -> Fixture {
    let config = settings(toml, &|_| None).server;
    Fixture::with(ServerConfig { tls: Some(tls), ..config }).await
}

/// A client that trusts `ca`, with a certificate of its own or without.
fn client(ca: &Path, own: Option<&Identity>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
            config
                .with_client_auth_cert(vec![CertificateDer::from_pem_file(&own.cert).unwrap()], key)
                .unwrap()
        }
    }
}

/// Connects as such a client.
pub(crate) async fn connect(
    address: SocketAddr,
    ca: &Path,
    own: Option<&Identity>,
) -> std::io::Result<Connection> {
    let tcp = TcpStream::connect(address).await?;
    let name = ServerName::from(address.ip());
    Ok(Connection::of(TlsConnector::from(Arc::new(client(ca, own))).connect(name, tcp).await?))
}

async fn ask(server: &Fixture, ca: &Path, bytes: &[u8]) -> Answer {
    let mut connection = connect(server.address, ca, None).await.unwrap();
    connection.send(bytes).await;
    connection.receive().await.expect("no answer")
}

fn health() -> Vec<u8> {
    request("GET", "/healthz", &[], b"")
}

#[tokio::test]
async fn a_server_with_a_certificate_speaks_https_and_nothing_else() {
    let ours = Certificates::new();
    let server = server("", files(&ours)).await;
    let take = request("POST", "/v1/limit/plain/take", &[], br#"{"key": {}}"#);
    assert_eq!(ask(&server, &ours.ca, &take).await.json()["used"], 1);
    let mut kept = connect(server.address, &ours.ca, None).await.unwrap();
    for _ in 0..3 {
        kept.send(&health()).await;
        assert_eq!(kept.receive().await.unwrap().status, 200);
    }
    let theirs = Certificates::new();
    assert!(
        connect(server.address, &theirs.ca, None).await.is_err(),
        "who does not trust it does not ask it"
    );
    let mut plain = Connection::open(server.address).await;
    plain.send(&health()).await;
    let told = plain.rest().await;
    assert!(!told.starts_with(b"HTTP/"), "{:?}", String::from_utf8_lossy(&told));
    let failed = "\nquaymaster_tls_handshakes_failed_total 2\n";
    while !ask(&server, &ours.ca, &request("GET", "/metrics", &[], b"")).await.text().contains(failed) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_that_offers_http_2_too_gets_http_1_1() {
    let ours = Certificates::new();
    let server = server("", files(&ours)).await;
    let mut config = client(&ours.ca, None);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tcp = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::from(server.address.ip());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let mut connection = Connection::of(stream);
    connection.send(&health()).await;
    let answer = connection.receive().await.unwrap();
    assert!(answer.head.starts_with("HTTP/1.1 200"), "{}", answer.head);
}

#[tokio::test]
async fn large_bodies_and_websockets_go_through_it() {
    let ours = Certificates::new();
    let server = server("", files(&ours)).await;
    let text = "x".repeat(900_000);
    let push = json!({"payload": text}).to_string();
    let push = request("POST", "/v1/queue/jobs/push", &[], push.as_bytes());
    assert_eq!(ask(&server, &ours.ca, &push).await.json()["accepted"], 1);
    let claim = request("POST", "/v1/queue/jobs/claim", &[], b"{}");
    assert_eq!(ask(&server, &ours.ca, &claim).await.json()["jobs"][0]["payload"], text.as_str());
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let mut socket = connect(server.address, &ours.ca, None).await.unwrap();
    socket.send(&request("GET", "/v1/event/news/ws", &upgrade, b"")).await;
    assert_eq!(socket.receive_head().await.unwrap().status, 101);
}

#[tokio::test]
async fn where_clients_need_a_certificate_nobody_else_is_served() {
    let (ours, theirs) = (Certificates::new(), Certificates::new());
    let tls = TlsFiles { client_ca: Some(ours.ca.clone()), ..files(&ours) };
    let server = server("", tls).await;
    let asked = async |own: Option<&Identity>| {
        // In TLS 1.3 a client learns only afterwards that it was not taken.
        let mut connection = connect(server.address, &ours.ca, own).await.ok()?;
        let sent = connection.try_send(&health()).await;
        if sent { connection.receive().await.map(|answer| answer.status) } else { None }
    };
    assert_eq!(asked(Some(&ours.client)).await, Some(200));
    assert_eq!(asked(Some(&theirs.client)).await, None, "of another authority");
    assert_eq!(asked(None).await, None);
    assert_eq!(asked(Some(&ours.server)).await, None, "not made for clients");
}

/// Puts a file in the place of another one at once.
fn replace(path: &Path, by: &Path) {
    let beside = path.with_extension("new");
    std::fs::copy(by, &beside).unwrap();
    std::fs::rename(beside, path).unwrap();
}

/// The server's own files, which a test may change.
struct Files {
    tls: TlsFiles,
    _folder: TempDir,
}

impl Files {
    fn of(first: &Certificates) -> Self {
        let folder = TempDir::new().unwrap();
        let (certificate, key) = (folder.path().join("server.pem"), folder.path().join("server.key"));
        let files = Self { tls: TlsFiles { certificate, key, client_ca: None }, _folder: folder };
        replace(&files.tls.certificate, &first.server.cert);
        replace(&files.tls.key, &first.server.key);
        files
    }
}

#[tokio::test]
async fn files_that_change_are_used_for_the_next_connection() {
    let (first, second) = (Certificates::new(), Certificates::new());
    let files = Files::of(&first);
    let server = server("", files.tls.clone()).await;
    let trusts = async |ca: &Path| connect(server.address, ca, None).await.is_ok();
    let mut kept = connect(server.address, &first.ca, None).await.unwrap();
    assert!(!trusts(&second.ca).await);
    replace(&files.tls.certificate, &second.server.cert);
    replace(&files.tls.key, &second.server.key);
    while !trusts(&second.ca).await {
        tokio::task::yield_now().await;
    }
    assert!(!trusts(&first.ca).await);
    kept.send(&health()).await;
    assert_eq!(kept.receive().await.unwrap().status, 200, "open connections stay");
}

#[tokio::test]
async fn an_authority_of_clients_that_changes_is_asked_of_the_next_connection() {
    let (ours, theirs) = (Certificates::new(), Certificates::new());
    let Files { mut tls, _folder: folder } = Files::of(&ours);
    let authority = folder.path().join("clients.pem");
    replace(&authority, &ours.ca);
    tls.client_ca = Some(authority.clone());
    let server = server("", tls).await;
    let served = async |own: &Identity| {
        let Ok(mut connection) = connect(server.address, &ours.ca, Some(own)).await else { return false };
        connection.try_send(&health()).await && connection.receive().await.is_some()
    };
    assert!(served(&ours.client).await && !served(&theirs.client).await);
    let mut kept = connect(server.address, &ours.ca, Some(&ours.client)).await.unwrap();
    kept.send(&health()).await;
    assert_eq!(kept.receive().await.unwrap().status, 200);
    replace(&authority, &theirs.ca);
    while !served(&theirs.client).await {
        tokio::task::yield_now().await;
    }
    assert!(!served(&ours.client).await);
    kept.send(&health()).await;
    assert_eq!(kept.receive().await.unwrap().status, 200, "open connections stay");
}

#[tokio::test]
async fn a_wait_ends_when_its_caller_takes_leave_over_tls() {
    let ours = Certificates::new();
    let server = server("", files(&ours)).await;
    let waiting = async |wanted: usize| {
        let line = format!("quaymaster_queue_waiting_claims{{queue=\"jobs\"}} {wanted}\n");
        while !ask(&server, &ours.ca, &request("GET", "/metrics", &[], b"")).await.text().contains(&line) {
            tokio::task::yield_now().await;
        }
    };
    let mut waiter = connect(server.address, &ours.ca, None).await.unwrap();
    waiter.send(&request("POST", "/v1/queue/jobs/claim", &[], br#"{"wait_ms": 3600000}"#)).await;
    waiting(1).await;
    waiter.close().await;
    waiting(0).await;
}

#[tokio::test]
async fn a_stop_drains_tls_connections_as_it_drains_others() {
    let ours = Certificates::new();
    let toml = "[server]\nshutdown_drain = \"10m\"\nshutdown_grace = \"10m\"";
    let mut server = server(toml, files(&ours)).await;
    let mut kept = connect(server.address, &ours.ca, None).await.unwrap();
    kept.send(&health()).await;
    assert_eq!(kept.receive().await.unwrap().status, 200);
    let mut silent = connect(server.address, &ours.ca, None).await.unwrap();
    server.ask_to_stop();
    let ready = request("GET", "/readyz", &[], b"");
    while ask(&server, &ours.ca, &ready).await.status != 503 {
        tokio::task::yield_now().await;
    }
    for connection in [&mut kept, &mut silent] {
        connection.send(&health()).await;
        let answer = connection.receive().await.expect("within the drain");
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    }
    assert!(kept.receive().await.is_none());
    server.stopped().await;
}

#[tokio::test]
async fn who_never_shakes_hands_holds_no_stop_up() {
    let ours = Certificates::new();
    let mut server =
        server("[server]\nshutdown_drain = \"20ms\"\nshutdown_grace = \"10m\"", files(&ours)).await;
    let mut mute = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(ask(&server, &ours.ca, &health()).await.status, 200);
    server.ask_to_stop();
    assert_eq!(mute.read(&mut [0; 16]).await.unwrap_or(0), 0);
    server.stopped().await;
}

async fn refused(config: ServerConfig) -> String {
    let error = Listening::bind(config).await.expect_err("it must not listen");
    assert_eq!(error.code.exit_code(), 2, "{error}");
    error.detail
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let (ours, theirs) = (Certificates::new(), Certificates::new());
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let (good, empty) = (files(&ours), file("empty.pem", ""));
    let open = file("open.key", &std::fs::read_to_string(&good.key).unwrap());
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o604)).unwrap();
    let missing = folder.path().join("missing.pem");
    for (tls, parts) in [
        (TlsFiles { key: open, ..good.clone() }, ["server.tls.key", "mode 604"]),
        (TlsFiles { key: missing.clone(), ..good.clone() }, ["server.tls.key", "missing.pem"]),
        (TlsFiles { key: empty.clone(), ..good.clone() }, ["server.tls.key", "no key"]),
        (TlsFiles { key: theirs.server.key.clone(), ..good.clone() }, ["server.tls: ", "server.key.pem"]),
        (
            TlsFiles { certificate: empty.clone(), ..good.clone() },
            ["server.tls.certificate", "no certificate"],
        ),
        (TlsFiles { certificate: missing, ..good.clone() }, ["server.tls.certificate", "missing.pem"]),
        (TlsFiles { client_ca: Some(empty), ..good.clone() }, ["server.tls.client_ca", "no certificate"]),
    ] {
        let config = settings("", &|_| None).server;
        let told = refused(ServerConfig { tls: Some(tls), ..config }).await;
        assert!(parts.iter().all(|part| told.contains(part)), "{parts:?}: {told}");
    }
    let config = settings("", &|_| None).server;
    let listen = quaymaster_server::Address::Unix(folder.path().join("socket"));
    let told = refused(ServerConfig { tls: Some(good), listen, ..config }).await;
    assert!(told.contains("socket file"), "{told}");
}

/// What the settings say of listening where others can reach it; nothing listens there.
fn beyond(toml: &str, overrides: Overrides) -> Result<Config, String> {
    let raw = RawConfig::parse("t.toml", toml, Path::new(""), &|_| Some("a-token-of-ours-0".into())).unwrap();
    let listen = Some("192.0.2.1:7420".to_owned());
    Config::resolve(raw, Overrides { listen, ..overrides }).map_err(|error| error.to_string())
}

#[tokio::test]
async fn tokens_do_not_cross_a_network_as_they_are_unless_told() {
    const TOKENS: &str = "[server]\ntokens = [{ env = \"T\" }]\n";
    const TLS: &str = "[server.tls]\ncertificate = \"c\"\nkey = \"k\"\n";
    let told = refused(beyond(TOKENS, Overrides::default()).unwrap().server).await;
    assert!(told.contains("[server.tls]") && told.contains("--insecure-http"), "{told}");
    // With them the address is taken, which is none of this machine: that is what fails.
    let flag = Overrides { insecure_http: true, ..Overrides::default() };
    let setting = format!("{TOKENS}insecure_http = true\n");
    for accepted in [beyond(TOKENS, flag), beyond(&setting, Overrides::default())] {
        let told = refused(accepted.unwrap().server).await;
        assert!(told.contains("cannot listen on 192.0.2.1"), "{told}");
    }
    let told = refused(beyond(&format!("{TOKENS}{TLS}"), Overrides::default()).unwrap().server).await;
    assert!(told.contains("server.tls.certificate"), "the files are looked at: {told}");
    assert!(beyond("", Overrides::default()).unwrap_err().contains("--insecure-listen"), "as before");
    assert!(
        beyond(TLS, Overrides::default()).unwrap_err().contains("--insecure-listen"),
        "TLS lets everybody in"
    );
    assert!(
        beyond(&format!("{TLS}client_ca = \"a\"\n"), Overrides::default()).is_ok(),
        "certificates are known"
    );
    let open = Overrides { insecure_listen: true, ..Overrides::default() };
    assert!(refused(beyond("", open).unwrap().server).await.contains("cannot listen"), "as before");
}

//! `--ca-file`: a server with TLS or behind it, whose certificate an authority of our own has signed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::certificates::{Certificates, Identity};
use crate::process::{Said, Served, any_port, command, folder, said};

const SCHEMA: &str =
    "[schema]\nname = \"shop\"\nowner = \"checkout\"\n[cache.page]\nkey = \"page:{id}\"\nttl = \"1h\"\n";
const SETTINGS: &str = "[server]\ntokens = [{ env = \"WRITER\", role = \"write\" }]\n";
const TOKEN: &str = "open-sesame-4711";

/// Ends TLS in front of a server that speaks none.
struct TlsProxy {
    address: SocketAddr,
    _running: Runtime,
}

impl TlsProxy {
    fn start(to: &str, identity: &Identity) -> Self {
        let certificate = CertificateDer::from_pem_file(&identity.cert).unwrap();
        let key = PrivateKeyDer::from_pem_file(&identity.key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key).unwrap()));
        let running = Runtime::new().unwrap();
        let listener = running.block_on(TcpListener::bind(any_port())).unwrap();
        let address = listener.local_addr().unwrap();
        let to = to.to_owned();
        running.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, to) = (acceptor.clone(), to.clone());
                tokio::spawn(async move {
                    // A client that does not trust us ends the handshake.
                    let Ok(mut client) = acceptor.accept(client).await else { return };
                    let mut server = TcpStream::connect(to).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, _running: running }
    }
}

/// A server that wants a token, behind TLS.
struct Shop {
    ours: Certificates,
    proxy: TlsProxy,
    here: TempDir,
    _served: Served,
}

impl Shop {
    fn open() -> Self {
        let here = folder(&[("shop.toml", SCHEMA), ("quaymaster.toml", SETTINGS)]);
        let mut serve = command(here.path());
        serve.args(["serve", "--store", "memory", "--schema", "shop.toml", "--listen", &any_port()]);
        let served = Served::spawn(serve.env("WRITER", TOKEN));
        let ours = Certificates::new();
        let proxy = TlsProxy::start(&served.address, &ours.server);
        Self { ours, proxy, here, _served: served }
    }

    /// Puts a page, with this token and these certificates.
    fn put(&self, token: Option<&str>, ca_file: Option<&Path>) -> Said {
        let mut put = command(self.here.path());
        put.args(["cache", "put", "page", "--key", "id=a", "--value", "v", "--json", "--log", "trace"]);
        put.args(["--server", &format!("https://{}", self.proxy.address)]);
        if let Some(file) = ca_file {
            put.arg("--ca-file").arg(file);
        }
        if let Some(token) = token {
            put.env("QUAYMASTER_TOKEN", token);
        }
        let told = said(&mut put);
        for token in [Some(TOKEN), token].into_iter().flatten() {
            assert!(!told.out.contains(token) && !told.err.contains(token), "the token is told: {told:?}");
        }
        told
    }
}

#[test]
fn a_server_behind_tls_answers_those_who_trust_its_authority() {
    let shop = Shop::open();
    let put = shop.put(Some(TOKEN), Some(&shop.ours.ca));
    assert_eq!((put.code, put.json()), (0, json!({"stored": true})), "{}", put.err);
    for wrong in [None, Some("another-token-0815")] {
        let refused = shop.put(wrong, Some(&shop.ours.ca));
        assert_eq!(refused.json()["code"], "auth.required", "{refused:?}");
        assert_eq!(refused.code, 2, "{refused:?}");
    }
}

#[test]
fn a_server_behind_tls_explains_keys_of_its_own_schema() {
    let shop = Shop::open();
    let explain = |key: &str, token: Option<&str>, ca_file: Option<&Path>| {
        let mut explain = command(shop.here.path());
        explain.args(["explain", key, "--json", "--server", &format!("https://{}", shop.proxy.address)]);
        if let Some(file) = ca_file {
            explain.arg("--ca-file").arg(file);
        }
        if let Some(token) = token {
            explain.env("QUAYMASTER_TOKEN", token);
        }
        said(&mut explain)
    };
    let ca = Some(shop.ours.ca.as_path());
    assert_eq!(shop.put(Some(TOKEN), ca).code, 0);
    let told = explain("page:a", Some(TOKEN), ca);
    let page = told.json();
    let actual = &page["actual"];
    assert_eq!((told.code, &page["pattern"], &page["owner"]), (0, &json!("page:{id}"), &json!("checkout")));
    assert_eq!((&page["values"], &actual["exists"]), (&json!({"id": "a"}), &json!(true)), "{page}");
    assert!(actual["ttl_ms"].is_u64(), "{page}");
    let unknown = explain("other:a&key=b", Some(TOKEN), ca);
    assert_eq!((unknown.code, &unknown.json()["pattern"]), (1, &json!(null)), "{unknown:?}");
    let refused = explain("page:a", None, ca);
    assert_eq!((refused.code, &refused.json()["code"]), (2, &json!("auth.required")), "{refused:?}");
    let refused = explain("page:a", Some(TOKEN), None);
    assert_eq!((refused.code, &refused.json()["code"]), (3, &json!("store.refused")), "{refused:?}");
}

#[test]
fn a_server_that_is_not_trusted_is_not_asked() {
    let shop = Shop::open();
    let theirs = Certificates::new();
    for ca_file in [None, Some(theirs.ca.as_path())] {
        let refused = shop.put(Some(TOKEN), ca_file);
        assert_eq!(
            (refused.code, refused.json()["code"].clone()),
            (3, json!("store.refused")),
            "{refused:?}"
        );
        let detail = refused.json()["detail"].to_string();
        assert!(detail.contains("certificate") && detail.contains("--ca-file"), "{detail}");
    }
}

#[test]
fn a_ca_file_that_cannot_be_used_is_named() {
    let shop = Shop::open();
    let file = |name: &str, text: &str| {
        let path = shop.here.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let block = |inside: &str| format!("-----BEGIN CERTIFICATE-----\n{inside}\n-----END CERTIFICATE-----\n");
    for ca_file in [
        shop.here.path().join("nowhere.pem"),
        shop.here.path().to_owned(),
        file("empty.pem", ""),
        file("text.pem", "no certificate"),
        file("half.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n"),
        file("letters.pem", &block("?!")),
        file("other.pem", &block("AAAA")),
        shop.ours.server.key.clone(),
    ] {
        let refused = shop.put(Some(TOKEN), Some(&ca_file));
        assert_eq!(
            (refused.code, refused.json()["code"].clone()),
            (2, json!("config.invalid")),
            "{refused:?}"
        );
        let named = format!("--ca-file {}", ca_file.display());
        assert!(refused.err.contains(&named), "{named}: {}", refused.err);
    }
}

#[test]
fn a_server_speaks_https_by_itself_and_the_command_line_talks_to_it() {
    let ours = Certificates::new();
    let (cert, key) = (ours.server.cert.display(), ours.server.key.display());
    let settings = format!("{SETTINGS}[server.tls]\ncertificate = \"{cert}\"\nkey = \"{key}\"\n");
    let here = folder(&[("shop.toml", SCHEMA), ("quaymaster.toml", &settings)]);
    let mut serve = command(here.path());
    serve.args(["serve", "--store", "memory", "--schema", "shop.toml", "--listen", &any_port()]);
    let served = Served::spawn(serve.env("WRITER", TOKEN));
    assert!(served.line.starts_with("quaymaster listening on https://"), "{}", served.line);
    let call = |verb: &[&str], ca_file: Option<&Path>| {
        let mut call = command(here.path());
        call.args(["cache"]).args(verb).args(["page", "--key", "id=a", "--json"]);
        call.args(["--server", &format!("https://{}", served.address)]).env("QUAYMASTER_TOKEN", TOKEN);
        if let Some(file) = ca_file {
            call.arg("--ca-file").arg(file);
        }
        call
    };
    let mut put = call(&["put"], Some(&ours.ca));
    let put = said(put.args(["--value", "v"]));
    assert_eq!((put.code, put.json()), (0, json!({"stored": true})), "{}", put.err);
    let hit = said(&mut call(&["get"], Some(&ours.ca)));
    assert_eq!((hit.code, &hit.json()["value"]), (0, &json!("v")), "{}", hit.err);
    let refused = said(&mut call(&["get"], None));
    assert_eq!((refused.code, refused.json()["code"].clone()), (3, json!("store.refused")), "{refused:?}");
    assert_eq!(served.stop().code, 0);
}

#[test]
fn a_server_that_wants_a_certificate_of_its_clients_is_shown_one() {
    let ours = Certificates::new();
    let (cert, key, ca) = (ours.server.cert.display(), ours.server.key.display(), ours.ca.display());
    let settings = format!("[server.tls]\ncertificate = \"{cert}\"\nkey = \"{key}\"\nclient_ca = \"{ca}\"\n");
    let here = folder(&[("shop.toml", SCHEMA), ("quaymaster.toml", &settings), ("empty.pem", "")]);
    let mut serve = command(here.path());
    serve.args(["serve", "--store", "memory", "--schema", "shop.toml", "--listen", &any_port()]);
    let served = Served::spawn(&mut serve);
    let get = |own: &[(&str, &Path)]| {
        let mut get = command(here.path());
        get.args(["cache", "get", "page", "--key", "id=a", "--json"]);
        get.args(["--server", &format!("https://{}", served.address)]).arg("--ca-file").arg(&ours.ca);
        for (flag, file) in own {
            get.arg(flag).arg(file);
        }
        said(&mut get)
    };
    let (certificate, key) = (ours.client.cert.as_path(), ours.client.key.as_path());
    let miss = get(&[("--cert-file", certificate), ("--key-file", key)]);
    assert_eq!((miss.code, miss.json()), (1, json!({"hit": false})), "{miss:?}");
    assert_eq!(get(&[]).code, 3, "without one it is not served");
    assert_eq!(get(&[("--cert-file", certificate)]).code, 2, "a certificate is of no use without its key");
    let mut plain = command(here.path());
    plain.args(["cache", "get", "page", "--key", "id=a", "--json", "--server", "http://127.0.0.1:1"]);
    let plain = said(plain.arg("--cert-file").arg(certificate).arg("--key-file").arg(key));
    assert_eq!((plain.code, &plain.json()["field"]), (2, &json!("--cert-file")), "{plain:?}");
    assert!(plain.err.contains("--cert-file needs https://"), "{plain:?}");
    let (theirs, empty) = (Certificates::new(), here.path().join("empty.pem"));
    for (certificate, key) in [
        (certificate, theirs.client.key.as_path()),
        (&empty, key),
        (certificate, &empty),
        (Path::new("nowhere.pem"), key),
        (certificate, Path::new("nowhere.pem")),
    ] {
        let refused = get(&[("--cert-file", certificate), ("--key-file", key)]);
        assert_eq!((refused.code, &refused.json()["code"]), (2, &json!("config.invalid")), "{refused:?}");
        let named = format!("--cert-file {} and --key-file {}", certificate.display(), key.display());
        assert!(refused.err.contains(&named), "{named}: {}", refused.err);
    }
    assert_eq!(served.stop().code, 0);
}

#[test]
fn settings_of_tls_that_are_wrong_are_told() {
    for (tls, part) in [
        ("key = \"k\"", "certificate is missing"),
        ("certificate = \"c\"", "key is missing"),
        ("certificate = \"c\"\nkey = \"k\"\nca = \"a\"", "has no setting \"ca\""),
        ("certificate = \"c\"\nkey = \"k\"", "server.tls.certificate: c:"),
    ] {
        let settings = format!("[server.tls]\n{tls}\n");
        let here = folder(&[("shop.toml", SCHEMA), ("quaymaster.toml", &settings)]);
        let mut serve = command(here.path());
        serve.args(["serve", "--store", "memory", "--schema", "shop.toml", "--listen", &any_port()]);
        let told = said(&mut serve);
        assert_eq!((told.code, told.err.contains(part)), (2, true), "{part}: {told:?}");
    }
}

use quaymaster_store::Code;
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::servers::{Certificates, RedisConfig, RedisServer, free_address, own_ip};

use crate::support::{counted, options};

struct Secured {
    _server: RedisServer,
    certificates: Certificates,
    port: u16,
}

fn start(ask_clients: bool, lines: &[&str]) -> Secured {
    let certificates = Certificates::new();
    let port = std::sync::Mutex::new(0);
    let mut config = RedisConfig::default();
    config.lines.extend(lines.iter().map(|line| (*line).to_owned()));
    let server = RedisServer::start_with(config, |_| {
        let tls_port = free_address().port();
        *port.lock().unwrap() = tls_port;
        let mut lines = certificates.redis_lines(tls_port, ask_clients);
        // `localhost` is not the test's own address.
        lines.push(format!("bind {} 127.0.0.1", own_ip()));
        lines
    });
    Secured { _server: server, certificates, port: port.into_inner().unwrap() }
}

impl Secured {
    fn options(&self) -> RedisOptions {
        let mut options = options(&format!("rediss://localhost:{}", self.port));
        options.tls_files.ca_file = Some(self.certificates.ca.clone());
        options
    }
}

async fn refusal(options: RedisOptions) -> Code {
    RedisStore::connect(options).await.map(|_| ()).unwrap_err().code
}

#[tokio::test]
async fn calls_travel_over_tls_with_the_ca_file() {
    let secured = start(false, &[]);
    let store = RedisStore::connect(secured.options()).await.unwrap();
    for expected in 1..=50 {
        assert_eq!(counted(&store, "k").await, expected);
    }
    let by_url =
        format!("rediss://{}:{}?ca_file={}", own_ip(), secured.port, secured.certificates.ca.display());
    let store = RedisStore::connect(options(&by_url)).await.unwrap();
    assert_eq!(counted(&store, "k").await, 51);
}

#[tokio::test]
async fn a_server_with_a_certificate_of_another_authority_is_not_spoken_to() {
    let secured = start(false, &[]);
    let stranger = Certificates::new();
    let mut options = secured.options();
    options.tls_files.ca_file = Some(stranger.ca.clone());
    assert_eq!(refusal(options).await, Code::StoreTls);
    let mut options = secured.options();
    options.tls_files.ca_file = None;
    let code = refusal(options).await;
    // A machine without any trusted certificates cannot even begin.
    assert!(matches!(code, Code::StoreTls | Code::ConfigInvalid), "{code}");
}

#[tokio::test]
async fn a_client_certificate_opens_a_server_that_asks_for_one() {
    let secured = start(true, &[]);
    assert_eq!(refusal(secured.options()).await, Code::StoreTls);
    let mut options = secured.options();
    options.tls_files.client_cert_file = Some(secured.certificates.client.cert.clone());
    options.tls_files.client_key_file = Some(secured.certificates.client.key.clone());
    let store = RedisStore::connect(options).await.unwrap();
    assert_eq!(counted(&store, "k").await, 1);
}

#[tokio::test]
async fn an_acl_user_and_tls_go_together() {
    let secured = start(false, &["user default off", "user worker on >pw ~* &* +@all"]);
    let mut options = secured.options();
    options.credentials.user = Some("worker".into());
    options.credentials.password = Some(quaymaster_store::redis::Secret("pw".into()));
    let store = RedisStore::connect(options).await.unwrap();
    assert_eq!(counted(&store, "k").await, 1);
}

#[tokio::test]
async fn tls_to_a_plain_port_and_plain_to_a_tls_port_are_told_apart() {
    let secured = start(false, &[]);
    let plain = RedisServer::start(RedisConfig::default());
    let mut wrong = secured.options();
    wrong.target = RedisOptions::from_url(&plain.url()).unwrap().target;
    wrong.deadline = std::time::Duration::from_secs(2);
    wrong.pools.default.connect_timeout = std::time::Duration::from_millis(500);
    let code = refusal(wrong).await;
    assert!(matches!(code, Code::StoreTls | Code::StoreRefused), "{code}");
    let code = refusal(options(&format!("redis://{}:{}", own_ip(), secured.port))).await;
    assert!(matches!(code, Code::StoreRefused | Code::StoreProtocol | Code::StoreLost), "{code}");
}

#[tokio::test]
async fn files_that_are_missing_or_empty_are_configuration_errors() {
    let secured = start(false, &[]);
    let empty = tempfile::NamedTempFile::new().unwrap();
    let mut options = secured.options();
    options.tls_files.ca_file = Some("/no/such/file".into());
    assert_eq!(refusal(options).await, Code::ConfigInvalid);
    let mut options = secured.options();
    options.tls_files.ca_file = Some(empty.path().to_owned());
    assert_eq!(refusal(options).await, Code::ConfigInvalid);
    let mut options = secured.options();
    options.tls_files.client_cert_file = Some(secured.certificates.client.cert.clone());
    assert_eq!(refusal(options).await, Code::ConfigInvalid);
}

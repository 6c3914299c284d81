//! The same over HTTP: 200 with the policy named, or 503; never 500, never silence.

use std::net::SocketAddr;
use std::sync::Arc;

use quaymaster::Quaymaster;
use quaymaster::schema::Outage;
use quaymaster::store::redis::RedisStore;
use quaymaster_server::config::{Config, Overrides, RawConfig};
use quaymaster_server::{Listening, Server};
use quaymaster_testkit::proxy::FaultProxy;
use quaymaster_testkit::servers::{RedisConfig, RedisServer, any_port};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::faults::{BOUND, FAULTS, SCHEMA};
use crate::scene::{bind, carried, counting_in, options, until};

pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) policy: Option<String>,
    pub(crate) body: Value,
}

pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> Told {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(BOUND, exchange).await.unwrap_or_else(|_| panic!("{path} hangs"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let policy = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("quaymaster-outage").then(|| value.to_owned())
    });
    Told { status, policy, body: serde_json::from_str(body).unwrap_or(Value::Null) }
}

/// Every call on resources whose policy answers, with what it answers; and one that is refused for each kind.
const ANSWERED: [(&str, &str, &str); 14] = [
    ("limit/open/take", r#"{"key":{"id":"h"}}"#, "allow"),
    ("limit/open/refund", r#"{"key":{"id":"h"}}"#, "allow"),
    ("limit/local/take", r#"{"key":{"id":"h"}}"#, "local"),
    ("limit/local/refund", r#"{"key":{"id":"h"}}"#, "local"),
    ("limit/shared/take", r#"{"key":{"id":"h"}}"#, "database"),
    ("limit/shared/refund", r#"{"key":{"id":"h"}}"#, "database"),
    ("lock/open/acquire", r#"{"key":{"id":"h"}}"#, "allow"),
    ("lock/open/renew", r#"{"key":{"id":"h"},"token":"t"}"#, "allow"),
    ("lock/open/release", r#"{"key":{"id":"h"},"token":"t"}"#, "allow"),
    ("idempotency/open/begin", r#"{"key":{"id":"h"}}"#, "allow"),
    ("idempotency/open/finish", r#"{"key":{"id":"h"},"token":"t","response":{"a":1}}"#, "allow"),
    ("idempotency/open/abandon", r#"{"key":{"id":"h"},"token":"t"}"#, "allow"),
    ("cache/soft/put", r#"{"key":{"id":"h"},"value":"v"}"#, "miss"),
    ("guard/open/enter", r#"{"key":{"id":"h"}}"#, "allow"),
];
const LOOKED: [(&str, &str); 5] = [
    ("limit/open/peek", "allow"),
    ("limit/local/peek", "local"),
    ("limit/shared/peek", "database"),
    ("cache/soft/get", "miss"),
    ("cache/soft/exists", "miss"),
];
const REFUSED: [(&str, &str); 21] = [
    ("limit/strict/take", r#"{"key":{"id":"h"}}"#),
    ("limit/open/reset", r#"{"key":{"id":"h"}}"#),
    ("lock/strict/acquire", r#"{"key":{"id":"h"}}"#),
    ("lock/strict/release", r#"{"key":{"id":"h"},"token":"t"}"#),
    ("idempotency/strict/begin", r#"{"key":{"id":"h"}}"#),
    ("cache/hard/put", r#"{"key":{"id":"h"},"value":"v"}"#),
    ("cache/soft/delete", r#"{"key":{"id":"h"}}"#),
    ("dedupe/once/first", r#"{"key":{"id":"h"}}"#),
    ("guard/strict/enter", r#"{"key":{"id":"h"}}"#),
    ("queue/jobs/push", r#"{"payload":1}"#),
    ("queue/jobs/claim", r"{}"),
    ("queue/jobs/claim", r#"{"wait_ms":600000}"#),
    ("queue/jobs/ack", r#"{"leases":["1.1.nobody"]}"#),
    ("queue/jobs/nack", r#"{"lease":"1.1.nobody","error":"no"}"#),
    ("queue/jobs/extend", r#"{"lease":"1.1.nobody"}"#),
    ("queue/jobs/pause", r"{}"),
    ("queue/jobs/resume", r"{}"),
    ("queue/jobs/redrive", r"{}"),
    ("queue/jobs/purge", r"{}"),
    ("batch/group/add", r#"{"key":{"by":"h"},"item":1}"#),
    ("batch/group/close", r#"{"key":{"by":"h"}}"#),
];
const UNSEEN: [&str; 4] = ["queue/jobs/pressure", "queue/jobs/peek", "queue/jobs/dead", "batch/group/list"];

/// A server over HTTP.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<quaymaster::Result<()>>,
}

impl Served {
    pub(crate) async fn start(quaymaster: &Quaymaster) -> Self {
        let overrides = Overrides { listen: Some(any_port().to_string()), ..Overrides::default() };
        let config = Config::resolve(RawConfig::default(), overrides).unwrap();
        let listening = Listening::bind(config.server).await.unwrap();
        let http = Server::new(listening, quaymaster.clone(), config.thresholds);
        let address = http.address().tcp().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(http.run(async move { drop(stopped.await) }));
        Self { address, stop, running }
    }

    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.running.await.unwrap().unwrap();
    }
}

pub(crate) async fn metric(address: SocketAddr, wanted: &str) -> u64 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let line = answer.lines().find_map(|line| line.strip_prefix(wanted));
    line.unwrap_or_else(|| panic!("no {wanted} in {answer}")).trim().parse().unwrap()
}

#[tokio::test]
async fn every_answer_given_by_a_policy_says_so_and_none_is_a_500() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("counts.db").display());
    let mut server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address()).await;
    let engine = Arc::new(RedisStore::connect(options(&proxy.url())).await.unwrap());
    let quaymaster = bind(SCHEMA, engine, counting_in(&url));
    let served = Served::start(&quaymaster).await;
    let address = served.address;

    for fault in FAULTS {
        until("the store answers without a policy", async || {
            let told = ask(address, "POST", "/v1/limit/open/take", r#"{"key":{"id":"h"}}"#).await;
            told.status == 200 && told.policy.is_none() && told.body.get("outage").is_none()
        })
        .await;
        fault.begin(&mut server, &proxy);
        let answered = ANSWERED.map(|(call, body, policy)| async move {
            let told = ask(address, "POST", &format!("/v1/{call}"), body).await;
            assert_eq!(told.status, 200, "{fault:?} {call}: {}", told.body);
            assert_eq!(told.policy.as_deref(), Some(policy), "{fault:?} {call}");
            assert_eq!(told.body["outage"], json!(policy), "{fault:?} {call}");
        });
        let looked = LOOKED.map(|(call, policy)| async move {
            let told = ask(address, "GET", &format!("/v1/{call}?key.id=h"), "").await;
            assert_eq!(
                (told.status, told.policy.as_deref()),
                (200, Some(policy)),
                "{fault:?} {call}: {}",
                told.body
            );
            assert_eq!(told.body["outage"], json!(policy), "{fault:?} {call}");
        });
        let refused = REFUSED.map(|(call, body)| async move {
            let told = ask(address, "POST", &format!("/v1/{call}"), body).await;
            assert_eq!((told.status, told.policy), (503, None), "{fault:?} {call}: {}", told.body);
            assert!(told.body["code"].as_str().unwrap().starts_with("store."), "{call}: {}", told.body);
        });
        let unseen = UNSEEN.map(|call| async move {
            let told = ask(address, "GET", &format!("/v1/{call}"), "").await;
            assert_eq!((told.status, told.policy), (503, None), "{fault:?} {call}: {}", told.body);
        });
        tokio::join!(
            futures_util::future::join_all(unseen),
            futures_util::future::join_all(answered),
            futures_util::future::join_all(looked),
            futures_util::future::join_all(refused),
        );
        let ready = ask(address, "GET", "/readyz", "").await;
        assert_eq!(ready.status, 503, "{fault:?}: not ready is said too");
        fault.end(&mut server, &proxy);
    }
    until("the server is ready", async || ask(address, "GET", "/readyz", "").await.status == 200).await;
    carried(&quaymaster).await;
    let status = ask(address, "GET", "/v1/status", "").await.body;
    assert_eq!(status["outages"]["uncarried_local_keys"], 0);
    assert_eq!(status["outages"]["database"], true);
    for (name, policy) in [("open", Outage::Allow), ("local", Outage::Local), ("strict", Outage::Deny)] {
        let line =
            format!("quaymaster_outage_answers_total{{kind=\"limit\",name=\"{name}\",policy=\"{policy}\"}}");
        assert!(metric(address, &line).await >= 5, "{line}");
    }
    served.stop().await;
}

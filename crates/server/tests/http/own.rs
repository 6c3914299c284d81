//! The server's own layers on itself: its requests recorded in a stats and limited by a limit of the schema.

use std::sync::Arc;

use quaymaster::stats::{Report, ReportAsk, UNMATCHED};
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::{self, StoreOptions};
use quaymaster::{Code, Engine, Quaymaster};
use quaymaster_server::config::{ConfigError, RawConfig, Thresholds};
use quaymaster_server::{Listening, Server};
use serde_json::json;

use crate::client::{Connection, request};
use crate::fixture::{Fixture, schema, settings};
use crate::manners::traced;

const SCHEMA: &str = r#"
[schema]
name = "own"
owner = "tests"

[stats.server]
key = "server:"
ignore_remote = []

[limit.callers]
key = "callers:{address}"
algorithm = "sliding_log"
limit = 3
window = "10m"

[limit.calls]
key = "calls:{id}"
algorithm = "fixed_window"
limit = 100
window = "1h"

[limit.pair]
key = "pair:{a}:{b}"
algorithm = "fixed_window"
limit = 1
window = "1h"
"#;

const TAKE: &str = r#"{"key":{"id":"a"}}"#;

async fn start(toml: &str) -> (Fixture, Quaymaster) {
    let engine: Arc<dyn Engine> = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    let server = Fixture::serving(SCHEMA, settings(toml, &|_| None).server, engine.clone()).await;
    (server, Quaymaster::new(schema(SCHEMA), engine))
}

/// What the store has when `total` requests are there: it is told once a second, not by the request.
async fn recorded(quaymaster: &Quaymaster, total: u64) -> Report {
    for _ in 0..3000 {
        let report = quaymaster.stats("server").unwrap().report(ReportAsk::default()).await.unwrap();
        if report.total >= total {
            assert_eq!(report.total, total, "{report:?}");
            return report;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{total} requests were never told to the store")
}

#[tokio::test]
async fn its_requests_are_recorded_by_route_under_its_name() {
    let (server, quaymaster) = start("[server]\nstats = \"server\"\ninstance = \"node-7\"\n").await;
    for _ in 0..3 {
        assert_eq!(server.post("/v1/limit/calls/take", TAKE).await.status, 200);
    }
    assert_eq!(server.post("/v1/limit/nobody/take", TAKE).await.status, 404);
    assert_eq!(server.get("/healthz").await.status, 200);
    for path in ["/wp-login.php", "/v1/limit", "/v1/nothing/a/b"] {
        assert_eq!(server.get(path).await.status, 404);
    }
    let report = recorded(&quaymaster, 8).await;
    let mut endpoints: Vec<_> =
        report.endpoints.iter().map(|one| (one.name.as_str(), one.count, one.errors)).collect();
    endpoints.sort_unstable();
    assert_eq!(endpoints, [("GET /healthz", 1, 0), ("POST /v1/limit/:name/take", 4, 1), (UNMATCHED, 3, 3)]);
    assert_eq!(report.instances, [("node-7".to_owned(), 8)]);
    assert_eq!((report.accepted, report.by_status), (8, vec![(404, 4)]));
}

#[tokio::test]
async fn its_connections_are_counted_while_they_are_open() {
    let (server, quaymaster) = start("[server]\nstats = \"server\"\n").await;
    let mut open = Connection::open(server.address).await;
    open.send(&request("GET", "/healthz", &[], b"")).await;
    assert_eq!(open.receive().await.unwrap().status, 200);
    assert_eq!(recorded(&quaymaster, 1).await.connections, 1);
    drop(open);
    for _ in 0..3000 {
        let report = recorded(&quaymaster, 1).await;
        if report.connections == 0 {
            assert_eq!(report.connections_max, 1);
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the connection is still counted")
}

#[tokio::test]
async fn connections_of_a_trusted_proxy_count_where_its_own_requests_do_not() {
    let text = SCHEMA.replace("ignore_remote = []", "ignore_remote = [\"127.0.0.1\"]");
    let engine: Arc<dyn Engine> = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    let toml = "[server]\nstats = \"server\"\n[server.proxies]\ntrusted = [\"127.0.0.1\"]\n";
    let server = Fixture::serving(&text, settings(toml, &|_| None).server, engine.clone()).await;
    let quaymaster = Quaymaster::new(schema(&text), engine);
    let mut open = Connection::open(server.address).await;
    for caller in ["192.0.2.1", "127.0.0.1"] {
        open.send(&request("GET", "/healthz", &[("x-forwarded-for", caller)], b"")).await;
        assert_eq!(open.receive().await.unwrap().status, 200);
    }
    assert_eq!(recorded(&quaymaster, 1).await.connections, 1);
}

#[tokio::test]
async fn a_stop_tells_the_store_what_was_recorded_last() {
    let folder = tempfile::tempdir().unwrap();
    let open =
        async || store::open(StoreOptions::from_url("embedded", folder.path()).unwrap()).await.unwrap();
    // Not within this test, by itself.
    let text = SCHEMA.replace("key = \"server:\"", "key = \"server:\"\nflush = \"60s\"");
    let config = settings("[server]\nstats = \"server\"\n", &|_| None).server;
    let mut server = Fixture::serving(&text, config, open().await).await;
    for _ in 0..6 {
        assert_eq!(server.get("/healthz").await.status, 200);
    }
    server.ask_to_stop();
    server.stopped().await;
    let quaymaster = Quaymaster::new(schema(&text), open().await);
    assert_eq!(recorded(&quaymaster, 6).await.accepted, 6);
}

#[tokio::test]
async fn a_caller_over_the_limit_is_told_so_and_probes_pass() {
    let toml = "[server.limit]\nname = \"callers\"\naddress = \"address\"\n[server]\nstats = \"server\"\n";
    let (server, quaymaster) = start(toml).await;
    for left in ["r=2", "r=1", "r=0"] {
        let answer = server.post("/v1/limit/calls/take", TAKE).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("ratelimit-policy"), Some("\"callers\";q=3;w=600"));
        assert!(answer.header("ratelimit").unwrap().contains(left), "{}", answer.head);
    }
    for path in ["/v1/limit/calls/take", "/nowhere"] {
        let refused = server.post(path, TAKE).await;
        assert_eq!((refused.status, &refused.json()["code"]), (429, &json!("limit.exceeded")));
        assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    }
    let (trace, parent) = traced();
    let headers = [("traceparent", &*parent), ("x-request-id", "edge-9")];
    let refused = server.raw(&request("GET", "/v1/limit/calls/peek", &headers, b"")).await;
    let problem = refused.json();
    assert_eq!((refused.status, &problem["violated-policies"]), (429, &json!(["callers"])));
    assert_eq!((&problem["trace_id"], &problem["x_request_id"]), (&json!(trace), &json!("edge-9")));
    for probe in ["/healthz", "/readyz", "/metrics"] {
        let answer = server.get(probe).await;
        assert_eq!((answer.status, answer.header("ratelimit")), (200, None), "{probe}");
    }
    // What was refused did not reach the call, and is in the server's own metrics all the same.
    let used = quaymaster.limit("calls").unwrap().peek(&[("id", "a")]).await.unwrap().quota().used;
    assert_eq!(used, 3);
    let metrics = server.get("/metrics").await.text();
    let line = "quaymaster_http_requests_total{route=\"/v1/limit/{name}/take\",status=\"429\"} 1";
    assert!(metrics.contains(line), "{metrics}");
    let report = recorded(&quaymaster, 10).await;
    assert_eq!((report.accepted, report.by_status), (7, vec![(429, 3)]));
}

#[tokio::test]
async fn behind_a_trusted_proxy_each_caller_has_a_limit_of_its_own() {
    let toml = "[server.limit]\nname = \"callers\"\n[server.proxies]\ntrusted = [\"127.0.0.0/8\"]\n";
    let (server, _) = start(toml).await;
    let ask = async |caller: &str| {
        let headers = [("content-type", "application/json"), ("x-forwarded-for", caller)];
        server.raw(&request("POST", "/v1/limit/calls/take", &headers, TAKE.as_bytes())).await.status
    };
    for caller in ["192.0.2.1", "192.0.2.2"] {
        for status in [200, 200, 200, 429] {
            assert_eq!(ask(caller).await, status, "{caller}");
        }
    }
}

#[tokio::test]
async fn without_settings_nothing_is_limited_or_recorded() {
    let (server, quaymaster) = start("").await;
    for _ in 0..5 {
        let answer = server.post("/v1/limit/calls/take", TAKE).await;
        assert_eq!((answer.status, answer.header("ratelimit-policy")), (200, None));
    }
    drop(server);
    assert_eq!(quaymaster.stats("server").unwrap().report(ReportAsk::default()).await.unwrap().total, 0);
}

#[tokio::test]
async fn settings_that_the_schema_has_not_are_refused_before_anything_is_served() {
    for (toml, said) in [
        ("[server]\nstats = \"serve\"\n", "did you mean \"server\"?"),
        ("[server.limit]\nname = \"caller\"\n", "did you mean \"callers\"?"),
        ("[server.limit]\nname = \"pair\"\n", "must have one placeholder"),
        ("[server.limit]\nname = \"callers\"\naddress = \"ip\"\n", "it has address"),
    ] {
        let config = settings(toml, &|_| None);
        let refused = config.check_own(&schema(SCHEMA)).unwrap_err();
        assert_eq!(refused.code, Code::ConfigInvalid);
        assert!(refused.detail.contains(said), "{}", refused.detail);
        // A server that was started all the same ends at once, instead of running without them.
        let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
        let listening = Listening::bind(config.server).await.unwrap();
        let server = Server::new(listening, Quaymaster::new(schema(SCHEMA), engine), Thresholds::default());
        let ended = server.run(std::future::pending()).await.unwrap_err();
        assert_eq!(ended.code, Code::ConfigInvalid);
    }
    for (toml, said) in [
        ("[server.limit]\naddress = \"ip\"\n", "which limit"),
        ("[server.limit]\nname = \"a\"\nroute = \"b\"\n", "no setting"),
        ("[server.proxies]\nheader = \"x-real-ip\"\ntrusted = []\n", "must be"),
        ("[server.proxies]\ntrusted = [\"proxy.example\"]\n", "is no address"),
    ] {
        let refused = RawConfig::parse("test.toml", toml, std::path::Path::new(""), &|_| None).unwrap_err();
        let ConfigError::File(problems) = refused else { panic!("{refused:?}") };
        assert!(problems.iter().any(|problem| problem.message.contains(said)), "{problems:?}");
    }
}

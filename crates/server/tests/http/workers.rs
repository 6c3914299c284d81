//! Jobs sent to an HTTP service that answers well, badly, late or not at all.

use std::sync::Arc;
use std::time::Duration;

use quaymaster::Quaymaster;
use quaymaster::queue::{Claim, Pressure, Push, Queue};
use quaymaster::schema::{Source, load};
use quaymaster::store::backoff::Backoff;
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_server::config::{Config, ConfigError, Overrides, RawConfig};
use quaymaster_server::{WorkerConfig, Workers};
use quaymaster_testkit::conformance::command;
use quaymaster_testkit::servers::{Certificates, any_port};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::service::{Act, Received, Service};

const SECRET: &str = "a secret of some length";

/// A queue `jobs` whose jobs go to `url`, with more settings of `push`.
async fn quaymaster(url: &str, push: &str) -> Quaymaster {
    let text = format!(
        r#"
[schema]
name = "test"

[queue.jobs]
max_size = 1000
lease = "30s"
retry = {{ max_attempts = 2, base = "1ms", max = "1ms", jitter = 0 }}
push = {{ url = "{url}", concurrency = 4{push} }}

[queue.plain]
max_size = 10

[queue.next]
max_size = 1000

[batch.camera]
key = "batch:{{camera_id}}:current"
by = "camera_id"
window = "90s"
idle = "30s"
to = "next"
ttl = "1h"

[event.seen]
"#
    );
    let env = |name: &str| (name == "SECRET").then(|| SECRET.to_owned());
    let loaded = load(&[Source { name: "test.toml", text: &text }], &env);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    Quaymaster::new(Arc::new(schema), Arc::new(store))
}

struct Scene {
    quaymaster: Quaymaster,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Scene {
    async fn start(url: &str, push: &str) -> Self {
        Self::with(quaymaster(url, push).await, WorkerConfig::default())
    }

    fn with(quaymaster: Quaymaster, config: WorkerConfig) -> Self {
        let workers = Workers::new(&quaymaster, &[], &config).unwrap();
        assert_eq!(workers.names().collect::<Vec<_>>(), ["jobs"]);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move { drop(workers.run(stopped).await.unwrap()) });
        Self { quaymaster, stop, running }
    }

    fn queue(&self, name: &str) -> &Queue {
        self.quaymaster.queue(name).unwrap()
    }

    async fn push(&self, payload: &Value) {
        assert_eq!(self.queue("jobs").push(Push::one(payload.to_string())).await.unwrap().accepted, 1);
    }

    async fn pressure(&self) -> Pressure {
        self.queue("jobs").pressure().await.unwrap()
    }

    async fn until(&self, what: &str, so: impl Fn(&Pressure) -> bool) {
        for _ in 0..10_000 {
            if so(&self.pressure().await) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("never: {what}: {:?}", self.pressure().await);
    }

    async fn acked(&self, count: u64) {
        self.until("acked", |told| told.totals.acked == count && told.leased == 0).await;
    }

    /// Waits for the one dead letter and answers its error and its attempts.
    async fn dead(&self) -> (String, u64) {
        self.until("dead", |told| told.dead == 1).await;
        let page = self.queue("jobs").dead(10, 0).await.unwrap();
        let letter: Value = serde_json::from_slice(page.items[0].bytes()).unwrap();
        (letter["error"].as_str().unwrap().to_owned(), letter["attempt_count"].as_u64().unwrap())
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(20), self.running).await.expect("it ends").unwrap();
    }
}

#[tokio::test]
async fn a_job_is_sent_with_its_headers_and_acked_by_a_2xx() {
    let service = Service::start(|_| Act::Answer(204, "", String::new())).await;
    let scene = Scene::start(&service.url(), "").await;
    let payload = r#"{"z": 1,  "a": 2.50}"#;
    let _ = scene.queue("jobs").push(Push::one(payload)).await.unwrap();
    scene.acked(1).await;
    let requests = service.requests();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(request.line, "POST /work?token=hidden HTTP/1.1");
    assert_eq!(request.body, payload.as_bytes(), "byte for byte");
    assert_eq!(request.header("content-type"), "application/json");
    assert_eq!((request.header("quaymaster-queue"), request.attempt()), ("jobs", 1));
    let id = request.header("quaymaster-job-id");
    assert!(!id.is_empty() && request.header("idempotency-key") == format!("jobs-{id}"));
    assert_eq!(request.header("quaymaster-signature"), "", "there is no secret");
    scene.end().await;
}

#[tokio::test]
async fn text_that_another_program_pushed_is_sent_as_a_json_string() {
    let service = Service::start(|_| Act::Answer(204, "", String::new())).await;
    let scene = Scene::start(&service.url(), "").await;
    let engine = scene.quaymaster.engine();
    command(&**engine, b"jobs", &[b"RPUSH", b"jobs", b"item_id"]).await.unwrap();
    scene.acked(1).await;
    let requests = service.requests();
    assert_eq!(requests[0].body, b"\"item_id\"");
    assert_eq!(requests[0].header("content-type"), "application/json");
    scene.end().await;
}

#[tokio::test]
async fn connections_are_kept_and_calls_are_made_at_once() {
    let service = Service::start(|_| Act::Wait).await;
    let scene = Scene::start(&service.url(), "").await;
    for number in 0..40 {
        scene.push(&json!(number)).await;
    }
    for _ in 0..10_000 {
        if service.requests().len() == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(service.requests().len(), 4, "as many as declared");
    service.go.add_permits(40);
    scene.acked(40).await;
    let requests = service.requests();
    let connections = requests.iter().map(|request| request.connection).max().unwrap() + 1;
    assert_eq!((requests.len(), connections <= 4), (40, true), "{connections} connections");
    scene.end().await;
}

#[tokio::test]
async fn the_signature_is_that_of_timestamp_and_body() {
    let service = Service::start(|_| Act::ok("{}")).await;
    let scene = Scene::start(&service.url(), ", secret = { env = \"SECRET\" }").await;
    scene.push(&json!({"a": "ü"})).await;
    scene.acked(1).await;
    let request = &service.requests()[0];
    let timestamp = request.header("quaymaster-timestamp");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(timestamp.parse().unwrap()) < 60);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET.as_bytes());
    let signed = [timestamp.as_bytes(), b".", &request.body].concat();
    let given = request.header("quaymaster-signature").strip_prefix("v1=").unwrap();
    let given: Vec<u8> =
        (0..given.len()).step_by(2).map(|at| u8::from_str_radix(&given[at..at + 2], 16).unwrap()).collect();
    ring::hmac::verify(&key, &signed, &given).expect("ours");
    scene.end().await;
}

#[tokio::test]
async fn a_failure_is_tried_again_under_the_same_idempotency_key() {
    let service = Service::start(|request: &Received| match request.attempt() {
        1 => Act::status(500),
        _ => Act::ok(""),
    })
    .await;
    let scene = Scene::start(&service.url(), "").await;
    scene.push(&json!(1)).await;
    scene.acked(1).await;
    let requests = service.requests();
    assert_eq!(requests.iter().map(Received::attempt).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(requests[0].header("idempotency-key"), requests[1].header("idempotency-key"));
    assert_eq!(scene.pressure().await.totals.retried, 1);
    scene.end().await;
}

/// What a service does, how often it is called, and what the dead letter says.
#[tokio::test]
async fn what_goes_wrong_is_tried_again_or_not_and_told_in_the_dead_letter() {
    for (act, attempts, part) in [
        (Act::status(500), 2, "answered 500: said the service"),
        (Act::status(408), 2, "answered 408"),
        (Act::status(429), 2, "answered 429"),
        (Act::status(404), 1, "answered 404: said the service"),
        (Act::status(422), 1, "answered 422"),
        (Act::status(101), 2, "answered 101"),
        (Act::Answer(302, "location: http://elsewhere/\r\n", String::new()), 2, "redirects are not followed"),
        (Act::Cut, 2, "gave no answer"),
        (Act::Hang, 2, "did not answer within 50 ms"),
    ] {
        let shown = format!("{act:?}");
        let service = Service::start(move |_| act.clone()).await;
        let scene = Scene::start(&service.url(), ", timeout = \"50ms\"").await;
        scene.push(&json!(1)).await;
        let (error, tried) = scene.dead().await;
        assert!(error.contains(part), "{shown}: {error}");
        assert!(!error.contains("hidden"), "{shown}: the query is nobody's business: {error}");
        assert_eq!((tried, service.requests().len()), (attempts, attempts as usize), "{shown}: {error}");
        scene.end().await;
    }
}

#[tokio::test]
async fn a_pause_that_the_service_asks_for_is_kept_for_every_job() {
    let service = Service::start(|request: &Received| match (request.json().as_u64(), request.attempt()) {
        (Some(0), 1) => Act::Answer(429, "retry-after: 1\r\n", String::new()),
        _ => Act::ok(""),
    })
    .await;
    let scene = Scene::start(&service.url(), "").await;
    scene.push(&json!(0)).await;
    scene.until("it was refused", |told| told.totals.retried == 1).await;
    scene.push(&json!(1)).await;
    scene.acked(2).await;
    let requests = service.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests[1..] {
        let waited = request.at.duration_since(requests[0].at);
        assert!(waited >= Duration::from_millis(950), "{} came after {waited:?}", request.json());
    }
    scene.end().await;
}

#[tokio::test]
async fn a_service_that_is_not_there_costs_few_attempts_and_is_found_when_it_comes() {
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let scene = Scene::start(&format!("http://{address}/work"), "").await;
    for number in 0..200 {
        scene.push(&json!(number)).await;
    }
    scene.until("one is dead", |told| told.dead > 0).await;
    // The outage goes on for as long as all of them would need to die, were they sent one after the other.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let listener = TcpListener::bind(address).await.unwrap();
    let _service = Service::on(listener, |_| Act::ok(""));
    scene.until("the rest is done", |told| told.totals.acked + told.dead == 200).await;
    let dead = scene.pressure().await.dead;
    assert!(dead < 50, "{dead} of 200 jobs died in a short outage");
    scene.end().await;
}

#[tokio::test]
async fn the_answer_goes_into_a_batch_in_the_acks_step() {
    let service = Service::start(|request: &Received| match request.json().as_u64() {
        Some(1) => Act::ok(r#"{"key": {"camera_id": "door"}, "item": {"id": 1}}"#),
        Some(2) => Act::ok(
            r#"[{"key": {"camera_id": "door"}, "item": 2}, {"key": {"camera_id": "gate"}, "item": 3}]"#,
        ),
        Some(3) => Act::ok("[]"),
        _ => Act::Answer(204, "", String::new()),
    })
    .await;
    let scene = Scene::start(&service.url(), ", result_to = \"batch.camera\"").await;
    for number in 1..5 {
        scene.push(&json!(number)).await;
    }
    scene.acked(4).await;
    let open = scene.quaymaster.batch("camera").unwrap().list(0, 10).await.unwrap();
    let mut sizes: Vec<u64> = open.iter().map(|batch| batch.size).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 2]);
    scene.end().await;
}

#[tokio::test]
async fn the_answer_is_a_job_of_the_next_queue_or_an_event() {
    let service = Service::start(|_| Act::ok("{\"b\": 1,  \"a\": 2}\n")).await;
    let scene = Scene::start(&service.url(), ", result_to = \"queue.next\"").await;
    scene.push(&json!(1)).await;
    scene.acked(1).await;
    let jobs = scene.queue("next").claim(Claim::default()).await.unwrap();
    assert_eq!(&jobs[0].payload[..], b"{\"b\": 1,  \"a\": 2}", "as it was written");
    scene.end().await;

    let scene = Scene::start(&service.url(), ", result_to = \"event.seen\"").await;
    let engine = scene.quaymaster.engine().clone();
    let mut messages = engine.subscribe(b"seen").await.unwrap();
    scene.push(&json!(1)).await;
    let message = futures_util::StreamExt::next(&mut messages).await.unwrap();
    assert_eq!(message, quaymaster::store::Message::Data("{\"b\": 1,  \"a\": 2}".into()));
    scene.acked(1).await;
    scene.end().await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_handed_on_is_a_failed_attempt_that_says_why() {
    for (act, part) in [
        (Act::ok("nonsense"), "not JSON"),
        (Act::ok(r#"{"item": 1, "camera": "door"}"#), "\"camera\" is unknown"),
        (Act::ok(r#"{"key": {"camera_id": "door"}}"#), "no \"item\""),
        (Act::ok(r#"{"key": {"camera": "door"}, "item": 1}"#), "camera"),
        (Act::Huge(2000), "larger than 1000 bytes, the bound that max_response_bytes in [worker] sets"),
        (Act::CutInBody, "broke off"),
    ] {
        let shown = format!("{act:?}");
        let service = Service::start(move |_| act.clone()).await;
        let quaymaster = quaymaster(&service.url(), ", result_to = \"batch.camera\"").await;
        let scene =
            Scene::with(quaymaster, WorkerConfig { max_response_bytes: 1000, ..WorkerConfig::default() });
        scene.push(&json!(1)).await;
        let (error, tried) = scene.dead().await;
        assert!(error.contains(part) && tried == 2, "{shown}: {error}");
        scene.end().await;
    }
}

/// Nobody wants the body: a 2xx is a 2xx, however large or broken what follows it is.
#[tokio::test]
async fn without_a_target_only_the_status_counts() {
    for act in [Act::Huge(3 << 20), Act::CutInBody, Act::ok("nonsense")] {
        let service = Service::start(move |_| act.clone()).await;
        let scene = Scene::start(&service.url(), "").await;
        scene.push(&json!(1)).await;
        scene.acked(1).await;
        assert_eq!(service.requests().len(), 1);
        scene.end().await;
    }
}

#[tokio::test]
async fn a_stop_lets_calls_end_and_gives_back_what_was_not_begun() {
    let service = Service::start(|_| Act::Wait).await;
    let scene = Scene::start(&service.url(), "").await;
    for number in 0..10 {
        scene.push(&json!(number)).await;
    }
    for _ in 0..10_000 {
        if service.requests().len() == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    scene.stop.cancel();
    tokio::time::sleep(Duration::from_millis(20)).await;
    service.go.add_permits(10);
    let queue = scene.queue("jobs").clone();
    scene.end().await;
    let told = queue.pressure().await.unwrap();
    assert_eq!((told.totals.acked, told.leased, told.current_length + told.delayed), (4, 0, 6));
    let jobs = queue.claim(Claim { count: 10, ..Claim::default() }).await.unwrap();
    assert!(jobs.len() == 6 && jobs.iter().all(|job| job.attempt == 1), "{jobs:?}");
    assert_eq!(service.requests().len(), 4);
}

#[tokio::test]
async fn calls_that_do_not_end_are_cut_off_and_come_again() {
    let service = Service::start(|_| Act::Hang).await;
    let quaymaster = quaymaster(&service.url(), ", timeout = \"20s\"").await;
    let scene =
        Scene::with(quaymaster, WorkerConfig { drain: Duration::from_millis(50), ..WorkerConfig::default() });
    scene.push(&json!(1)).await;
    scene.until("it is held", |told| told.leased == 1).await;
    let queue = scene.queue("jobs").clone();
    scene.end().await;
    let how = Claim { wait: Duration::from_secs(5), ..Claim::default() };
    assert_eq!(queue.claim(how).await.unwrap()[0].attempt, 2);
}

#[tokio::test]
async fn a_service_behind_tls_is_trusted_by_its_authority_and_by_no_other() {
    let certificates = Certificates::new();
    let chain = CertificateDer::pem_file_iter(&certificates.server.cert).unwrap().collect::<Result<_, _>>();
    let key = PrivateKeyDer::from_pem_file(&certificates.server.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.unwrap(), key)
        .unwrap();
    let service = Service::over_tls(TlsAcceptor::from(Arc::new(tls)), |_| Act::ok("")).await;
    let url = service.url().replace("http://", "https://");
    let trusting = WorkerConfig { ca_file: Some(certificates.ca.clone()), ..WorkerConfig::default() };
    let scene = Scene::with(quaymaster(&url, "").await, trusting);
    scene.push(&json!(1)).await;
    scene.acked(1).await;
    scene.end().await;
    let stranger = WorkerConfig { ca_file: Some(Certificates::new().ca.clone()), ..WorkerConfig::default() };
    let refused = Workers::new(&quaymaster(&url, "").await, &[], &stranger).map(drop);
    assert!(refused.is_err(), "its folder is gone, and that is said at the start: {refused:?}");
    let others = Certificates::new();
    let stranger = WorkerConfig { ca_file: Some(others.ca.clone()), ..WorkerConfig::default() };
    let scene = Scene::with(quaymaster(&url, "").await, stranger);
    scene.push(&json!(1)).await;
    let (error, _) = scene.dead().await;
    assert!(error.contains("certificate"), "{error}");
    assert_eq!(service.requests().len(), 1, "nothing was sent to somebody unknown");
    scene.end().await;
}

#[tokio::test]
async fn only_queues_with_a_url_can_be_worked_on() {
    let quaymaster = quaymaster("http://user:pass@127.0.0.1:1/", "").await;
    let refused = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Workers::new(&quaymaster, &names, &WorkerConfig::default()).unwrap_err().detail
    };
    assert!(refused(&["plain"]).contains("declares no `push"));
    assert!(refused(&["nobody"]).contains("nobody"));
    assert!(refused(&[]).contains("user and password") && !refused(&[]).contains("pass@"));
}

#[test]
fn the_waits_for_a_store_that_is_away_are_the_documented_ones_unless_told() {
    let read = |toml: &str| {
        let raw = RawConfig::parse("test.toml", toml, std::path::Path::new(""), &|_| None)?;
        let overrides = Overrides { listen: Some(any_port().to_string()), ..Overrides::default() };
        let config = Config::resolve(raw, overrides).unwrap();
        assert_eq!([config.worker.retry, config.uploads.retry], [config.retry; 2], "one for all of them");
        Ok::<_, ConfigError>(config.retry)
    };
    let retry = |base: u64, max: u64, jitter| Backoff {
        base: Duration::from_millis(base),
        max: Duration::from_millis(max),
        jitter,
    };
    for toml in ["", "[store]\ndeadline = \"1s\"", "[worker]\ndrain = \"1s\"", "[store.retry]"] {
        assert_eq!(read(toml).unwrap(), retry(1000, 30_000, 0.25), "{toml}");
    }
    let all = "[store.retry]\nbase = \"200ms\"\nmax = \"5s\"\njitter = 0.1";
    assert_eq!(read(all).unwrap(), retry(200, 5000, 0.1));
    assert_eq!(read("[store.retry]\nmax = \"500ms\"").unwrap(), retry(500, 500, 0.25));
    assert_eq!(read("[store.retry]\nbase = \"60s\"").unwrap(), retry(60_000, 60_000, 0.25));
    for (toml, field) in [
        ("[store.retry]\nbase = 1", "base"),
        ("[store.retry]\nbase = \"5s\"\nmax = \"1s\"", "max"),
        ("[store.retry]\njitter = 2", "jitter"),
        ("[store.retry]\nattempts = 3", "attempts"),
    ] {
        let Err(ConfigError::File(problems)) = read(toml) else { panic!("{toml} is taken") };
        assert!(problems.iter().any(|problem| problem.to_string().contains(field)), "{problems:?}");
    }
}

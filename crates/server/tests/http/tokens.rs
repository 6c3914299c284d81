//! Tokens: what each role may call, on which resources, and who tries others.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use quaymaster::Code;
use quaymaster::store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster_server::ChunkPlace;
use quaymaster_server::config::ServerConfig;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Answer, Connection, request};
use crate::engines::{Act, Stage};
use crate::fixture::{Fixture, NOW_US, SCHEMA, settings};
use crate::listening::Sse;
use crate::uploads::config_in;

const MORE: &str = r#"
[queue.results]
max_size = 10

[queue.sent]
max_size = 10
push = { url = "http://localhost:1/", result_to = "queue.results" }

[queue.secrets]
max_size = 10
order = "priority"
sensitive = true

[event.secrets]
channel = "secrets"
sensitive = true

[run.secrets]
key = "secrets:{run_id}"
task_key = "secrets_task:{run_id}:{task_id}"
failed_key = "secrets_failed:{hour}"
state_ttl = "25h"
hour_ttl = "2h"
sensitive = true

[upload.secrets]
key = "secrets:{upload_id}:state"
sensitive = true

[limit.calls]
key = "calls:{hour}"
algorithm = "fixed_window"
limit = 100
window = "1h"

[run.hourly]
key = "hourly:{run_id}"
task_key = "hourly_task:{run_id}:{task_id}"
failed_key = "hourly_failed:{hour}"
state_ttl = "25h"
hour_ttl = "2h"
limit = "calls"

[event.quick]
status = { every = "1s", queues = ["jobs"] }

[key.owned]
key = "owned:{id}"
type = "string"
ttl = "1h"
"#;

/// Every token's text is its variable's name with this behind it.
const SUFFIX: &str = "-is-long-enough";

async fn server(tokens: &str) -> Fixture {
    server_on(tokens, EmbeddedOptions::default()).await
}

async fn server_on(tokens: &str, store: EmbeddedOptions) -> Fixture {
    let engine = EmbeddedStore::memory(store).await.unwrap();
    Fixture::serving(&format!("{SCHEMA}{MORE}"), settings_of(tokens), Arc::new(engine)).await
}

fn settings_of(tokens: &str) -> ServerConfig {
    let toml = format!("[server]\ntokens = [{tokens}]\n");
    settings(&toml, &|name| Some(format!("{name}{SUFFIX}"))).server
}

/// A token of these resources.
fn of(resources: &[&str]) -> String {
    format!("{{ env = \"T\", name = \"ci\", resources = {resources:?} }}")
}

async fn ask(server: &Fixture, token: &str, method: &str, path: &str, body: &str) -> Answer {
    let token = format!("Bearer {token}{SUFFIX}");
    server.raw(&request(method, path, &[("authorization", &token)], body.as_bytes())).await
}

async fn post(server: &Fixture, path: &str, body: Value) -> Answer {
    ask(server, "T", "POST", path, &body.to_string()).await
}

/// The resource that the refusal names.
fn lacks(answer: &Answer) -> String {
    let problem = answer.json();
    assert_eq!((answer.status, &problem["code"]), (403, &json!("auth.resource")), "{problem}");
    assert_eq!(problem["field"], "authorization");
    let detail = problem["detail"].as_str().unwrap();
    detail.strip_prefix("the token \"ci\" does not reach ").unwrap_or(detail).to_owned()
}

#[tokio::test]
async fn a_role_opens_the_calls_that_need_it_and_those_before() {
    let roles = ["read", "operate", "write", "admin"];
    let tokens =
        roles.map(|role| format!("{{ env = \"{role}\", name = \"the {role}er\", role = \"{role}\" }}"));
    let server = server(&format!("{}, {{ env = \"old\" }}", tokens.join(", "))).await;
    let calls = [
        ("GET", "/v1/limit/plain/peek", "", "read"),
        ("GET", "/v1/status", "", "read"),
        ("POST", "/v1/run/pipeline/remaining", r#"{"run_id": "1", "items": ["a"]}"#, "read"),
        ("POST", "/v1/queue/jobs/pause", "{}", "operate"),
        ("POST", "/v1/queue/jobs/resume", "{}", "operate"),
        ("POST", "/v1/limit/plain/reset", r#"{"key": {}}"#, "operate"),
        ("DELETE", "/v1/upload/none/00000000-0000-0000-0000-000000000000", "", "operate"),
        ("PUT", "/v1/upload/none/00000000-0000-0000-0000-000000000000/chunk/0", "", "write"),
        ("POST", "/v1/limit/plain/take", r#"{"key": {}}"#, "write"),
        ("POST", "/v1/queue/jobs/push", r#"{"payload": 1}"#, "write"),
    ];
    for (method, path, body, needs) in calls {
        let least = roles.iter().position(|role| *role == needs).unwrap();
        for (at, has) in roles.into_iter().enumerate() {
            let answer = ask(&server, has, method, path, body).await;
            if at >= least {
                assert!(answer.status != 403, "{has} {path}: {}", answer.text());
                continue;
            }
            let problem = answer.json();
            assert_eq!((answer.status, &problem["code"]), (403, &json!("auth.forbidden")), "{has} {path}");
            let words =
                format!("this call needs the role \"{needs}\"; the token \"the {has}er\" has \"{has}\"");
            assert_eq!(problem["detail"], words);
        }
        assert!(
            ask(&server, "old", method, path, body).await.status != 403,
            "a token without a role is admin"
        );
    }
}

#[tokio::test]
async fn values_of_sensitive_resources_are_shown_to_those_who_may_write_them() {
    let roles = ["read", "operate", "write"];
    let tokens = roles.map(|role| format!("{{ env = \"{role}\", role = \"{role}\" }}")).join(", ");
    let server = server(&tokens).await;
    let put =
        ask(&server, "write", "POST", "/v1/cache/token/put", r#"{"key": {"id": "a"}, "value": "v"}"#).await;
    assert_eq!(put.json(), json!({"stored": true}));
    let secret = |kind: &str| if kind == "cache" { "token" } else { "secrets" };
    let mut gated = Vec::new();
    for (kind, verb) in reading() {
        let path = verb["path"].as_str().unwrap().replace("{name}", secret(&kind));
        let path = path.replace("{upload_id}", &"0".repeat(32));
        // Nobody has such a field: also a stream is refused by then.
        let asked = format!("{path}?no_such_field=1");
        let (method, path) = (verb["method"].as_str().unwrap(), asked.as_str());
        let shows_values = verb["sensitive_role"] == "write";
        if shows_values {
            gated.push(format!("{kind}.{}", verb["verb"].as_str().unwrap()));
        }
        for role in roles {
            let answer = ask(&server, role, method, path, "{}").await;
            if role == "write" || !shows_values {
                assert_ne!(answer.status, 403, "{role} {path}: {}", answer.text());
                continue;
            }
            let problem = answer.json();
            assert_eq!(
                (answer.status, &problem["code"]),
                (403, &json!("auth.forbidden")),
                "{role} {path}: {problem}"
            );
            let detail = problem["detail"].as_str().unwrap();
            let resource = format!("{kind}.{}", secret(&kind));
            assert!(detail.contains(&resource) && detail.contains("\"write\""), "{detail}");
        }
    }
    for id in [
        "cache.get",
        "event.stream",
        "event.ws",
        "queue.dead",
        "queue.peek",
        "queue.range",
        "run.failures",
        "upload.content",
    ] {
        assert!(gated.iter().any(|one| one == id), "{id} shows what programs stored");
    }
    for path in ["/v1/cache/token/get?key.id=a", "/v1/queue/secrets/range"] {
        assert_eq!(ask(&server, "write", "GET", path, "").await.status, 200, "{path}");
    }
    for path in [
        "/v1/cache/token/exists?key.id=a",
        "/v1/cache/page/get?key.id=a",
        "/v1/queue/secrets/pressure",
        "/v1/queue/ranked/range",
        "/v1/run/hourly/failures",
    ] {
        assert_eq!(ask(&server, "read", "GET", path, "").await.status, 200, "{path}");
    }
}

/// Every operation on a resource that needs only the role `read`, with its kind.
fn reading() -> Vec<(String, Value)> {
    let described = quaymaster_server::describe();
    let kinds = described["kinds"].as_array().unwrap();
    let verbs = kinds.iter().flat_map(|kind| {
        let name = kind["kind"].as_str().unwrap().to_owned();
        kind["verbs"].as_array().unwrap().iter().map(move |verb| (name.clone(), verb.clone()))
    });
    let on_resource = |verb: &Value| verb["path"].as_str().unwrap().contains("{name}");
    verbs.filter(|(_, verb)| verb["role"] == "read" && on_resource(verb)).collect()
}

#[tokio::test]
async fn a_run_shows_the_calls_of_its_limit_without_a_right_on_it() {
    let clock = Clock::Manual(Arc::new(AtomicI64::new(NOW_US)));
    let options = EmbeddedOptions { clock, ..EmbeddedOptions::default() };
    let server = server_on(&format!("{}, {{ env = \"A\" }}", of(&["run.hourly"])), options).await;
    assert_eq!(
        ask(&server, "A", "POST", "/v1/limit/calls/take", r#"{"key": {}, "cost": 2}"#).await.status,
        200
    );
    let run = post(&server, "/v1/run/hourly/start", json!({"run_id": "a"})).await.json();
    assert_eq!(run["calls_this_hour"], 2, "{run}");
    assert_eq!(lacks(&ask(&server, "T", "GET", "/v1/limit/calls/peek", "").await), "limit.calls");
}

#[tokio::test]
async fn a_status_shows_the_depths_of_its_queues_without_a_right_on_them() {
    let server = server(&format!("{}, {{ env = \"A\" }}", of(&["event.quick"]))).await;
    assert_eq!(ask(&server, "A", "POST", "/v1/queue/jobs/push", r#"{"payload": 1}"#).await.status, 200);
    let token = format!("Bearer T{SUFFIX}");
    let mut reader = Sse::open(server.address, "/v1/event/quick/stream", &[("authorization", &token)]).await;
    let event = reader.block().await.unwrap();
    assert!(event.contains(r#""queue_depths":{"jobs":1}"#), "{event}");
    assert_eq!(lacks(&ask(&server, "T", "GET", "/v1/queue/jobs/pressure", "").await), "queue.jobs");
}

#[tokio::test]
async fn a_call_needs_the_right_on_every_resource_it_writes() {
    let server = server(&of(&["queue.jobs", "guard.pay", "limit.psp", "batch.camera"])).await;
    let payload = json!({"payload": 1});
    assert_eq!(lacks(&post(&server, "/v1/limit/plain/take", json!({"key": {}})).await), "limit.plain");
    assert_eq!(lacks(&post(&server, "/v1/queue/none/push", payload.clone()).await), "queue.none");
    assert_eq!(lacks(&ask(&server, "T", "GET", "/v1/limit/plain/peek", "").await), "limit.plain");
    assert_eq!(lacks(&ask(&server, "T", "GET", "/v1/event/news/stream", "").await), "event.news");
    assert_eq!(lacks(&ask(&server, "T", "GET", "/v1/upload/any/some-id", "").await), "upload.any");
    let key = json!({"key": {"psp_id": "a", "id": "1"}});
    assert_eq!(lacks(&post(&server, "/v1/guard/pay/enter", key).await), "idempotency.pay");
    assert_eq!(post(&server, "/v1/limit/psp/take", json!({"key": {"psp_id": "a"}})).await.json()["used"], 1);
    let item = json!({"key": {"camera_id": "a"}, "item": 1});
    assert_eq!(post(&server, "/v1/batch/camera/add", item).await.status, 200, "with its queue");

    let dedupe = json!({"payload": 1, "dedupe": {"name": "image", "key": {"id": "1"}}});
    assert_eq!(lacks(&post(&server, "/v1/queue/jobs/push", dedupe).await), "dedupe.image");
    assert_eq!(
        post(&server, "/v1/queue/jobs/push", payload).await.json()["queue_length"],
        1,
        "nothing was pushed"
    );

    let jobs = post(&server, "/v1/queue/jobs/claim", json!({})).await.json();
    let ack = |then: Value| json!({"leases": [jobs["jobs"][0]["lease"]], "then": [then]});
    for (call, name, more) in
        [("event.publish", "news", "data"), ("queue.push", "tiny", "payload"), ("batch.add", "other", "item")]
    {
        let own = json!({"call": "queue.push", "name": "jobs", "payload": 2});
        let mut body = ack(own);
        let mut then = json!({"call": call, "name": name});
        then[more] = json!(1);
        body["then"].as_array_mut().unwrap().push(then);
        let kind = call.split('.').next().unwrap();
        assert_eq!(lacks(&post(&server, "/v1/queue/jobs/ack", body).await), format!("{kind}.{name}"));
    }
    let own = json!({"call": "batch.add", "name": "camera", "item": 1, "key": {"camera_id": "a"}});
    assert_eq!(
        post(&server, "/v1/queue/jobs/ack", ack(own)).await.json()["acked"],
        1,
        "the lease was still ours"
    );
}

#[tokio::test]
async fn who_pushes_needs_the_right_where_results_go() {
    let server = server(&of(&["queue.sent"])).await;
    let push = json!({"payload": 1});
    assert_eq!(lacks(&post(&server, "/v1/queue/sent/push", push.clone()).await), "queue.results");
    assert_eq!(lacks(&post(&server, "/v1/queue/sent/redrive", json!({})).await), "queue.results");
    assert_eq!(post(&server, "/v1/queue/sent/claim", json!({})).await.status, 200, "a claim sends nothing");
    let both = self::server(&of(&["queue.*"])).await;
    assert_eq!(post(&both, "/v1/queue/sent/push", push).await.status, 200);
    let batch = self::server(&of(&["batch.*"])).await;
    let item = json!({"key": {"camera_id": "a"}, "item": 1});
    assert_eq!(lacks(&post(&batch, "/v1/batch/camera/add", item).await), "queue.jobs");
}

#[tokio::test]
async fn what_is_shown_of_the_whole_server_is_what_the_token_reaches() {
    let server =
        server(&format!("{}, {{ env = \"A\" }}", of(&["queue.jobs", "limit.psp", "cache.page", "key.*"])))
            .await;
    for call in ["/v1/limit/psp/take", "/v1/limit/pair/take"] {
        let key = if call.contains("psp") {
            r#"{"key": {"psp_id": "a"}}"#
        } else {
            r#"{"key": {"a": "1", "b": "2"}}"#
        };
        assert_eq!(ask(&server, "A", "POST", call, key).await.status, 200);
    }
    let all = ask(&server, "A", "GET", "/v1/status", "").await.json();
    let some = ask(&server, "T", "GET", "/v1/status", "").await.json();
    assert_eq!(names(&some["limits"]), ["psp"]);
    assert_eq!(names(&some["queues"]), ["jobs"]);
    assert_eq!(names(&some["caches"]), ["page"]);
    assert_eq!(names(&some["resources"]), ["jobs", "owned", "page", "psp"]);
    assert!(names(&all["limits"]).len() == 4 && names(&all["resources"]).len() > 15);
    let unsealed = |status: &Value| status["warnings"].to_string().contains("cache.token");
    assert!(unsealed(&all) && !unsealed(&some), "{}", all["warnings"]);

    let all = ask(&server, "A", "GET", "/metrics", "").await.text();
    let some = ask(&server, "T", "GET", "/metrics", "").await.text();
    for shown in [
        "{limit=\"psp\"",
        "{queue=\"jobs\"",
        "{cache=\"page\"",
        "quaymaster_store_up 1",
        "route=\"/v1/limit/",
    ] {
        assert!(some.contains(shown), "{shown}: {some}");
    }
    let kinds = [
        "limit",
        "idempotency",
        "lock",
        "cache",
        "dedupe",
        "guard",
        "queue",
        "batch",
        "event",
        "run",
        "stats",
    ];
    for kind in kinds {
        assert!(all.contains(&format!("{{{kind}=\"")), "the schema has one: {kind}");
    }
    for name in [
        "pair", "plain", "pay", "status", "token", "image", "door", "tiny", "camera", "news", "pipeline",
        "web",
    ] {
        assert!(all.contains(&format!("=\"{name}\"")), "{name}");
        assert!(!some.contains(&format!("=\"{name}\"")), "{name}: {some}");
    }
    let families = |text: &str| text.lines().filter(|line| line.starts_with("# TYPE")).count();
    assert_eq!(families(&all), families(&some));
}

/// The names in a list of `/v1/status`, sorted.
fn names(list: &Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn what_was_done_on_the_whole_server_is_shown_as_far_as_the_token_reaches() {
    let reach = of(&["run.hourly", "stats.web", "upload.files", "cache.page"]);
    let tokens = settings_of(&format!("{reach}, {{ env = \"A\" }}"));
    let text = format!(
        "{SCHEMA}{MORE}[stats.other]\nkey = \"other\"\n[upload.files]\nkey = \"upload:{{upload_id}}:state\"\n"
    );
    let folder = TempDir::new().unwrap();
    let engine = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    let uploads = config_in(folder.path(), ChunkPlace::Spool);
    let server = Fixture::with_uploads(&text, tokens, Arc::new(engine), &uploads).await;
    let one =
        r#"{"requests": [{"instance": "0", "method": "GET", "path": "/", "status": 200, "duration_ms": 1}]}"#;
    for (call, body) in [
        ("run/hourly/start", r#"{"run_id": "a"}"#),
        ("run/pipeline/start", r#"{"run_id": "b"}"#),
        ("stats/web/record", one),
        ("stats/other/record", one),
        ("upload/files/create", r#"{"name": "a.txt"}"#),
        ("upload/secrets/create", r#"{"name": "b.txt"}"#),
    ] {
        let answer = ask(&server, "A", "POST", &format!("/v1/{call}"), body).await;
        assert_eq!(answer.status, 200, "{call}: {}", answer.text());
    }
    // As many misses as a hit rate needs to be judged.
    for cache in ["page", "doc"] {
        for _ in 0..100 {
            let path = format!("/v1/cache/{cache}/get?key.id=a");
            assert_eq!(ask(&server, "A", "GET", &path, "").await.json()["hit"], false);
        }
    }
    let all = ask(&server, "A", "GET", "/v1/status", "").await.json();
    let some = ask(&server, "T", "GET", "/v1/status", "").await.json();
    for (list, every, reached) in [
        ("runs", ["hourly", "pipeline"], "hourly"),
        ("stats", ["other", "web"], "web"),
        ("uploads", ["files", "secrets"], "files"),
    ] {
        assert_eq!(names(&all[list]), every, "{list}");
        assert_eq!(names(&some[list]), [reached], "{list}");
    }
    let caches = |status: &Value| -> Vec<String> {
        let exceeded = status["thresholds"].as_array().unwrap().iter();
        let subjects = exceeded.filter(|one| one["threshold"] == "hit_rate").map(|one| &one["subject"]);
        subjects.map(|subject| subject.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (caches(&all), caches(&some)),
        (vec!["cache.doc".into(), "cache.page".into()], vec!["cache.page".into()])
    );
    let warned = |status: &Value| status["warnings"].to_string().contains("cache.doc");
    assert!(warned(&all) && !warned(&some), "{}", some["warnings"]);
}

#[tokio::test]
async fn answers_by_policy_are_shown_as_far_as_the_token_reaches() {
    let tokens = settings_of(&format!("{}, {{ env = \"A\" }}", of(&["cache.page"])));
    let engine = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    let away = Stage::new(Arc::new(engine), Act::Away(Code::StoreRefused));
    let server = Fixture::on(tokens, away).await;
    for cache in ["page", "doc"] {
        let path = format!("/v1/cache/{cache}/get?key.id=a");
        assert_eq!(ask(&server, "A", "GET", &path, "").await.header("quaymaster-outage"), Some("miss"));
    }
    let answers = async |token: &str| {
        ask(&server, token, "GET", "/v1/status", "").await.json()["outages"]["answers"].clone()
    };
    assert_eq!(names(&answers("A").await), ["doc", "page"]);
    assert_eq!(names(&answers("T").await), ["page"]);
}

#[tokio::test]
async fn a_key_is_explained_to_who_reaches_its_resource() {
    let server = server(&format!("{}, {{ env = \"A\" }}", of(&["cache.page", "key.owned"]))).await;
    let explain = async |token: &str, key: &str| {
        ask(&server, token, "GET", &format!("/v1/key/explain?key={key}"), "").await
    };
    assert_eq!(explain("T", "page:1").await.json()["name"], "page");
    assert_eq!(explain("T", "owned:1").await.json()["name"], "owned");
    assert_eq!(lacks(&explain("T", "door:1").await), "lock.door");
    assert_eq!(lacks(&explain("T", "nobody:1").await), "a key that no resource has, which needs \"*\"");
    for key in ["page:1", "door:1", "nobody:1"] {
        assert_eq!(explain("A", key).await.status, 200, "{key}");
    }
    assert_eq!(server.get("/openapi.json").await.status, 200, "it says nothing of the schema");
}

/// A sample's value.
fn sample(metrics: &str, family: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{family} ")));
    line.unwrap_or_else(|| panic!("{family}: {metrics}")).parse().unwrap()
}

#[tokio::test]
async fn wrong_tokens_are_answered_ever_later_and_valid_ones_at_once() {
    let server = server("{ env = \"T\" }").await;
    let slowed = async || {
        let metrics = ask(&server, "T", "GET", "/metrics", "").await.text();
        let of = |family| sample(&metrics, family);
        (of("quaymaster_http_tokens_failed_total"), of("quaymaster_http_tokens_slowed_total"))
    };
    for _ in 0..5 {
        assert_eq!(ask(&server, "wrong", "GET", "/metrics", "").await.json()["code"], "auth.required");
    }
    assert_eq!(server.get("/metrics").await.status, 401, "none at all is no guess");
    assert_eq!(slowed().await, (5, 0));
    let mut guesser = Connection::open(server.address).await;
    let wrong = format!("Bearer wrong{SUFFIX}");
    guesser.send(&request("GET", "/v1/status", &[("authorization", &wrong)], b"")).await;
    while slowed().await != (6, 1) {
        tokio::task::yield_now().await;
    }
    assert_eq!(guesser.receive().await.unwrap().status, 401, "later");
}

#[tokio::test]
async fn a_stop_does_not_wait_for_who_is_held_back() {
    let mut server = server("{ env = \"T\" }").await;
    let wrong = format!("Bearer wrong{SUFFIX}");
    let guess = request("GET", "/v1/status", &[("authorization", &wrong)], b"");
    // Many at once: the last one would wait for the longest time there is.
    let mut guessers = Vec::new();
    for _ in 0..16 {
        let mut guesser = Connection::open(server.address).await;
        guesser.send(&guess).await;
        guessers.push(guesser);
    }
    while sample(
        &ask(&server, "T", "GET", "/metrics", "").await.text(),
        "quaymaster_http_tokens_failed_total",
    ) < 16
    {
        tokio::task::yield_now().await;
    }
    server.ask_to_stop();
    for mut guesser in guessers {
        assert_eq!(guesser.receive().await.unwrap().status, 401);
    }
    server.stopped().await;
}

#[tokio::test]
async fn callers_without_a_token_have_the_role_that_the_settings_give_them() {
    let server = Fixture::with(settings("[server]\nanonymous = \"operate\"", &|_| None).server).await;
    assert_eq!(server.get("/v1/limit/plain/peek").await.status, 200);
    assert_eq!(server.post("/v1/queue/jobs/pause", "{}").await.status, 200);
    let refused = server.post("/v1/limit/plain/take", "{\"key\": {}}").await;
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        refused.status == 403 && detail.contains("\"write\"") && detail.contains("anonymous"),
        "{detail}"
    );
}

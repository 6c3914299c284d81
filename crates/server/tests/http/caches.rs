//! `cache` and `dedupe` over HTTP.

use quaymaster_testkit::conformance::command;
use serde_json::{Value, json};

use crate::fixture::Fixture;

async fn post(server: &Fixture, path: &str, body: &str) -> Value {
    let answer = server.post(path, body).await;
    assert_eq!(answer.status, 200, "{path} {body}: {}", answer.json());
    answer.json()
}

async fn get(server: &Fixture, path: &str) -> Value {
    let answer = server.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.json());
    answer.json()
}

async fn page(server: &Fixture, path: &str) -> String {
    String::from_utf8(server.get(path).await.body.clone()).unwrap()
}

#[tokio::test]
async fn a_string_comes_back_as_it_was_and_other_json_as_its_text() {
    let server = Fixture::start().await;
    assert_eq!(get(&server, "/v1/cache/page/get?key.id=a").await, json!({"hit": false}));
    assert_eq!(get(&server, "/v1/cache/page/exists?key.id=a").await, json!({"exists": false}));
    for (value, back) in [
        (r#""text""#, "text"),
        (r#""""#, ""),
        (r#""a\"b\nü""#, "a\"b\nü"),
        ("5", "5"),
        ("null", "null"),
        ("1.50", "1.50"),
        (r#"{"b": [1, true]}"#, r#"{"b": [1, true]}"#),
    ] {
        let body = format!(r#"{{"key":{{"id":"a"}},"value":{value}}}"#);
        assert_eq!(post(&server, "/v1/cache/page/put", &body).await, json!({"stored": true}));
        assert_eq!(get(&server, "/v1/cache/page/get?key.id=a").await, json!({"hit": true, "value": back}));
    }
    assert_eq!(get(&server, "/v1/cache/page/exists?key.id=a").await, json!({"exists": true}));
    let absent = r#"{"key":{"id":"a"},"value":"new","if_absent":true}"#;
    assert_eq!(post(&server, "/v1/cache/page/put", absent).await, json!({"stored": false}));
    let key = r#"{"key":{"id":"a"}}"#;
    assert_eq!(post(&server, "/v1/cache/page/delete", key).await, json!({"deleted": true}));
    assert_eq!(post(&server, "/v1/cache/page/delete", key).await, json!({"deleted": false}));
    assert_eq!(post(&server, "/v1/cache/page/put", absent).await, json!({"stored": true}));
}

#[tokio::test]
async fn a_hash_is_an_object_whose_fields_come_back_as_strings() {
    let server = Fixture::start().await;
    let body = r#"{"key":{"id":7},"value":{"status":"SUCCESS","amount":100000,"paid":true}}"#;
    assert_eq!(post(&server, "/v1/cache/status/put", body).await, json!({"stored": true}));
    let wanted = json!({"hit": true, "value": {"status": "SUCCESS", "amount": "100000", "paid": "true"}});
    assert_eq!(get(&server, "/v1/cache/status/get?key.id=7").await, wanted);
    let body = r#"{"key":{"id":7},"value":{"status":"FAILED"}}"#;
    let _ = post(&server, "/v1/cache/status/put", body).await;
    let wanted = json!({"hit": true, "value": {"status": "FAILED"}});
    assert_eq!(get(&server, "/v1/cache/status/get?key.id=7").await, wanted, "replaced whole");
}

#[tokio::test]
async fn a_json_cache_gives_back_the_json_it_was_given() {
    let server = Fixture::start().await;
    for value in [
        r#"{"data": "value"}"#,
        "42",
        r#""42""#,
        "null",
        "1.50",
        r#"[1, {"b": []}]"#,
        r#""""#,
        "123456789012345678901234567890",
    ] {
        let body = format!(r#"{{"key":{{"id":"a"}},"value": {value} }}"#);
        assert_eq!(post(&server, "/v1/cache/doc/put", &body).await, json!({"stored": true}));
        let answer = page(&server, "/v1/cache/doc/get?key.id=a").await;
        assert_eq!(answer, format!(r#"{{"hit":true,"value":{value}}}"#));
    }
    for (foreign, wanted) in [
        (b"plain text".as_slice(), json!({"hit": true, "value": "plain text"})),
        (b"\xff", json!({"hit": true, "value_base64": "/w=="})),
    ] {
        command(&*server.engine, b"doc:a", &[b"SET", b"doc:a", foreign]).await.unwrap();
        assert_eq!(get(&server, "/v1/cache/doc/get?key.id=a").await, wanted);
    }
}

#[tokio::test]
async fn what_is_not_text_comes_back_in_base64() {
    let server = Fixture::start().await;
    let quaymaster =
        quaymaster::Quaymaster::new(crate::fixture::schema(crate::fixture::SCHEMA), server.engine.clone());
    let key: &[(&str, &str)] = &[("id", "a")];
    let put = quaymaster::cache::Put::default();
    let bytes = quaymaster::cache::Value::from(vec![0xff, 0x00]);
    let _ = quaymaster.cache("page").unwrap().put(key, &bytes, put).await.unwrap();
    let fields = quaymaster::cache::Value::fields([("raw", vec![0xff]), ("text", b"x".to_vec())]);
    let _ = quaymaster.cache("status").unwrap().put(key, &fields, put).await.unwrap();
    let wanted = json!({"hit": true, "value_base64": "/wA="});
    assert_eq!(get(&server, "/v1/cache/page/get?key.id=a").await, wanted);
    let wanted = json!({"hit": true, "value": {"text": "x"}, "value_base64": {"raw": "/w=="}});
    assert_eq!(get(&server, "/v1/cache/status/get?key.id=a").await, wanted);
}

#[tokio::test]
async fn the_first_is_told_so_and_the_others_what_it_left() {
    let server = Fixture::start().await;
    let first = |id: &str, more: &str| format!(r#"{{"key":{{"id":"{id}"}}{more}}}"#);
    let path = "/v1/dedupe/image/first";
    assert_eq!(post(&server, path, &first("a", r#","value":"/1.jpg""#)).await, json!({"first": true}));
    let told = json!({"first": false, "value": "/1.jpg"});
    assert_eq!(post(&server, path, &first("a", r#","value":"/2.jpg""#)).await, told);
    assert_eq!(post(&server, path, &first("b", r#","request_id":"r""#)).await, json!({"first": true}));
    assert_eq!(post(&server, path, &first("b", r#","request_id":"r""#)).await, json!({"first": true}));
    assert_eq!(
        post(&server, path, &first("b", r#","value":null"#)).await,
        json!({"first": false, "value": "1"})
    );
    let metrics = page(&server, "/metrics").await;
    for line in [
        "quaymaster_dedupe_calls_total{dedupe=\"image\",outcome=\"first\"} 3",
        "quaymaster_dedupe_calls_total{dedupe=\"image\",outcome=\"duplicate\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn bad_input_names_its_field() {
    let server = Fixture::start().await;
    let (put, first) = ("/v1/cache/page/put", "/v1/dedupe/image/first");
    let large = format!(r#"{{"key":{{"id":"a"}},"value":"{}"}}"#, "x".repeat(70_000));
    for (path, body, status, field) in [
        (put, r#"{"key":{"id":"a"}}"#, 400, "value"),
        (put, r#"{"key":{"id":"a"},"value":1,"ttl_ms":0}"#, 400, "ttl_ms"),
        (put, r#"{"key":{"id":"a"},"value":1,"ttl_ms":3600001}"#, 422, "ttl_ms"),
        (put, r#"{"key":{"id":"a"},"value":1,"ttl_ms":-1}"#, 400, "ttl_ms"),
        (put, r#"{"key":{"id":"a"},"value":1,"if_absent":1}"#, 400, "if_absent"),
        (put, r#"{"key":{"id":"a"},"value":1,"request_id":""}"#, 400, "request_id"),
        (put, r#"{"key":{"id":"a"},"valu":1}"#, 400, "valu"),
        (put, r#"{"value":1}"#, 400, "key.id"),
        (put, r#"{"key":{"id":"a*"},"value":1}"#, 400, "key.id"),
        ("/v1/cache/status/put", r#"{"key":{"id":"a"},"value":"text"}"#, 422, "value"),
        ("/v1/cache/status/put", r#"{"key":{"id":"a"},"value":{}}"#, 422, "value"),
        (first, &large, 413, "value"),
        (first, r#"{"key":{"id":"a"},"wait_ms":1}"#, 400, "wait_ms"),
    ] {
        let problem = server.post(path, body).await;
        assert_eq!(problem.status, status, "{path} {}: {}", &body[..body.len().min(80)], problem.json());
        assert_eq!(problem.json()["field"], field, "{path} {}", &body[..body.len().min(80)]);
    }
    assert_eq!(server.get("/v1/cache/page/get?key.id=a&value=1").await.status, 400);
    assert_eq!(server.get("/v1/cache/pag/get?key.id=a").await.status, 404);
    assert_eq!(get(&server, "/v1/cache/page/get?key.id=a").await["hit"], false, "nothing of it was stored");
}

#[tokio::test]
async fn the_hit_rate_is_told_and_warned_about_once_there_are_enough_reads() {
    let server = Fixture::start().await;
    let _ = post(&server, "/v1/cache/page/put", r#"{"key":{"id":"a"},"value":"v"}"#).await;
    for _ in 0..9 {
        let _ = get(&server, "/v1/cache/page/get?key.id=none").await;
    }
    let few = page(&server, "/metrics").await;
    assert!(few.contains("quaymaster_threshold_exceeded{threshold=\"hit_rate\"} 0"), "{few}");
    for _ in 0..91 {
        let _ = get(&server, "/v1/cache/page/get?key.id=a").await;
    }
    let metrics = page(&server, "/metrics").await;
    for line in [
        "quaymaster_cache_reads_total{cache=\"page\",outcome=\"hit\"} 91",
        "quaymaster_cache_reads_total{cache=\"page\",outcome=\"miss\"} 9",
        "quaymaster_cache_hit_ratio{cache=\"page\"} 0.91",
        "quaymaster_threshold_exceeded{threshold=\"hit_rate\"} 1",
        "quaymaster_threshold_action{threshold=\"hit_rate\",action=\"investigate\"} 1",
        "quaymaster_threshold_action{threshold=\"memory\",action=\"scale up\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(!metrics.contains("quaymaster_cache_hit_ratio{cache=\"status\"}"), "no reads, no ratio");
    let status = get(&server, "/v1/status").await;
    let warned = status["warnings"].as_array().unwrap().iter().filter_map(Value::as_str);
    let warned: Vec<&str> = warned.filter(|warning| warning.contains("cache.page")).collect();
    assert_eq!(
        warned,
        ["cache.page: 91.0 % of 100 reads of the last minutes hit, under 95.0 %; investigate"]
    );
    let told = json!([{
        "threshold": "hit_rate", "subject": "cache.page", "action": "investigate",
        "detail": "cache.page: 91.0 % of 100 reads of the last minutes hit, under 95.0 %",
    }]);
    assert_eq!(status["thresholds"], told);
    let cache = status["caches"].as_array().unwrap().iter().find(|cache| cache["name"] == "page").unwrap();
    assert_eq!(
        (&cache["hits"], &cache["misses"], &cache["hit_ratio"]),
        (&json!(91), &json!(9), &json!(0.91))
    );
}

#[tokio::test]
async fn secrets_stored_readable_are_told() {
    let server = Fixture::start().await;
    let status = get(&server, "/v1/status").await;
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("cache.token") && warnings.contains("QUAYMASTER_SEAL_KEY"), "{warnings}");
    assert!(!warnings.contains("cache.page"), "{warnings}");
}

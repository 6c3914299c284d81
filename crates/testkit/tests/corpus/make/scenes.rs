//! What limits, locks, idempotencies, caches, dedupes, guards and events do.

use super::{Act, Maker, bare};

pub(super) fn limit(maker: &mut Maker) {
    for (name, key) in [
        ("fixed", r#""id":"s""#),
        ("open_window", r#""id":"s""#),
        ("log", r#""id":"s","part":"p""#),
        ("sliding", r#""id":"s""#),
        ("bucket", r#""id":"s""#),
    ] {
        let body = |more: &str| format!("{{\"key\":{{{key}}}{more}}}");
        let query = if name == "log" { "key.id=s&key.part=p" } else { "key.id=s" };
        let call = |verb: &str| format!("{verb} {name}");
        maker.get(&call("peek"), query);
        maker.posts(4, &call("take"), &body(""));
        maker.get(&call("peek"), query);
        maker.post(&call("refund"), &body(""));
        maker.post(&call("refund"), &body(",\"cost\":9"));
        maker.get(&call("peek"), query);
        maker.post(&call("take"), &body(",\"cost\":2"));
        maker.post(&call("take"), &body(",\"cost\":2"));
        maker.post(&call("take"), &body(",\"cost\":4"));
        maker.post(&call("reset"), &body(""));
        maker.posts(2, &call("take"), &body(",\"request_id\":\"r-1\""));
        maker.posts(2, &call("refund"), &body(",\"request_id\":\"r-2\""));
        maker.posts(2, &call("reset"), &body(",\"request_id\":\"r-3\""));
        maker.post(&call("take"), &body(",\"cost\":3"));
        maker.pass(7_000);
        maker.post(&call("take"), &body(""));
        maker.pass(60_000);
        maker.post(&call("take"), &body(""));
    }
    maker.posts(7, "take buffered", r#"{"key":{}}"#);
    maker.get("peek buffered", "");
    maker.post("take buffered", "{}");
    for (name, key) in [
        ("psp", r#"{"psp_id":"PSP001"}"#),
        ("psp", r#"{"psp_id":"tx"}"#),
        ("psp", r#"{"psp_id":"a:b"}"#),
        ("transaction", r#"{"transaction_id":"T-1"}"#),
        ("endpoint", r#"{"endpoint":"/api","client_ip":"2001:db8::1"}"#),
        ("courtlistener", "{}"),
        ("courtlistener_counter", "{}"),
        ("ha", r#"{"identifier":"192.0.2.1"}"#),
        ("ha_sliding", r#"{"identifier":"192.0.2.1"}"#),
    ] {
        for verb in ["take", "refund", "reset"] {
            maker.post(&format!("{verb} {name}"), &format!("{{\"key\":{key}}}"));
        }
    }
    maker.get("peek endpoint", "key.endpoint=%2Fapi&key.client_ip=2001:db8::1");
    maker.get("peek courtlistener", "");
}

pub(super) fn lock(maker: &mut Maker) {
    let key = r#""key":{"id":"s"}"#;
    maker.post_as("a", "acquire door", &format!("{{{key},\"owner\":\"web-1\",\"request_id\":\"r-1\"}}"));
    maker.post("acquire door", &format!("{{{key},\"owner\":\"web-1\",\"request_id\":\"r-1\"}}"));
    maker.post("acquire door", &format!("{{{key}}}"));
    maker.post("acquire door", &format!("{{{key},\"owner\":\"web-2\",\"wait_ms\":20}}"));
    maker.post("renew door", &format!("{{{key},\"token\":\"${{a.token}}\",\"ttl_ms\":10000}}"));
    maker.post("renew door", &format!("{{{key},\"token\":\"${{a.token}}\",\"ttl_ms\":30001}}"));
    maker.post("renew door", &format!("{{{key},\"token\":\"stolen\"}}"));
    maker.post("release door", &format!("{{{key},\"token\":\"stolen\"}}"));
    maker.pass(5_000);
    maker.post("acquire door", &format!("{{{key}}}"));
    maker.post("release door", &format!("{{{key},\"token\":\"${{a.token}}\",\"request_id\":\"r-2\"}}"));
    maker.post("release door", &format!("{{{key},\"token\":\"${{a.token}}\",\"request_id\":\"r-2\"}}"));
    maker.post("release door", &format!("{{{key},\"token\":\"${{a.token}}\"}}"));
    maker.post("renew door", &format!("{{{key},\"token\":\"${{a.token}}\"}}"));
    maker.pass(4_000);
    maker.post_as("b", "acquire door", &format!("{{{key},\"ttl_ms\":2000}}"));
    maker.post("acquire door", &format!("{{{key}}}"));
    maker.pass(2_100);
    maker.post("renew door", &format!("{{{key},\"token\":\"${{b.token}}\"}}"));
    maker.pass(4_000);
    maker.post_as("c", "acquire door", &format!("{{{key}}}"));
    maker.post("release door", &format!("{{{key},\"token\":\"${{b.token}}\"}}"));
    maker.post("release door", &format!("{{{key},\"token\":\"${{c.token}}\"}}"));
    for (name, key) in [
        ("gate", r#"{"id":"s"}"#),
        ("update", r#"{"transaction_id":"T-1"}"#),
        ("process", r#"{"psp_transaction_id":"P-1"}"#),
    ] {
        let call = |verb: &str| format!("{verb} {name}");
        maker.post_as("d", &call("acquire"), &format!("{{\"key\":{key},\"owner\":\"{}\"}}", "o".repeat(64)));
        maker.post(&call("acquire"), &format!("{{\"key\":{key}}}"));
        maker.post(&call("renew"), &format!("{{\"key\":{key},\"token\":\"${{d.token}}\"}}"));
        maker.post(&call("release"), &format!("{{\"key\":{key},\"token\":\"${{d.token}}\"}}"));
    }
    for owner in ["", "a b", "ü", "a.b", "-"] {
        maker.post("acquire door", &format!("{{\"key\":{{\"id\":\"$N\"}},\"owner\":\"{owner}\"}}"));
    }
}

pub(super) fn idempotency(maker: &mut Maker) {
    for (name, key) in [
        ("once", r#""key":{"id":"s"}"#),
        ("compact", r#""key":{"id":"s"}"#),
        ("create", r#""key":{"psp_transaction_id":"P-1"}"#),
        ("execute", r#""key":{"transaction_id":"T-1"}"#),
        ("update", r#""key":{"transaction_id":"T-1","status":"paid"}"#),
        ("check", r#""key":{"psp_id":"P","merchant_provider":"M","qr_tx_id":"Q","amount":100}"#),
    ] {
        let call = |verb: &str| format!("{verb} {name}");
        let body = |more: &str| format!("{{{key}{more}}}");
        maker.post_as("a", &call("begin"), &body(",\"fingerprint\":\"f\",\"request_id\":\"r-1\""));
        maker.post(&call("begin"), &body(",\"fingerprint\":\"f\",\"request_id\":\"r-1\""));
        maker.post(&call("begin"), &body(",\"fingerprint\":\"f\""));
        maker.post(&call("begin"), &body(",\"fingerprint\":\"g\""));
        maker.post(&call("begin"), &body(""));
        maker.post(&call("begin"), &body(",\"fingerprint\":\"f\",\"wait_ms\":20"));
        maker.post(&call("finish"), &body(",\"token\":\"stolen\",\"response\":1"));
        maker.post(&call("abandon"), &body(",\"token\":\"stolen\""));
        maker.post(
            &call("finish"),
            &body(",\"token\":\"${a.token}\",\"response\":{\"b\": 1, \"a\":[1.0,1e2]}"),
        );
        maker.post(&call("finish"), &body(",\"token\":\"${a.token}\",\"response\":2"));
        maker.post(&call("abandon"), &body(",\"token\":\"${a.token}\""));
        maker.post(&call("begin"), &body(",\"fingerprint\":\"f\""));
        maker.post(&call("begin"), &body(",\"fingerprint\":\"g\""));
        maker.post(&call("begin"), &body(",\"fingerprint\":\"f\",\"wait_ms\":20"));
    }
    let key = r#""key":{"id":"t"}"#;
    maker.post_as("b", "begin once", &format!("{{{key}}}"));
    maker.post("abandon once", &format!("{{{key},\"token\":\"${{b.token}}\",\"request_id\":\"r-2\"}}"));
    maker.post("abandon once", &format!("{{{key},\"token\":\"${{b.token}}\",\"request_id\":\"r-2\"}}"));
    maker.post_as("c", "begin once", &format!("{{{key}}}"));
    maker.pass(19_000);
    maker.post("begin once", &format!("{{{key}}}"));
    maker.pass(2_000);
    maker.post_as("d", "begin once", &format!("{{{key}}}"));
    maker.post("finish once", &format!("{{{key},\"token\":\"${{c.token}}\",\"response\":1}}"));
    maker.post(
        "finish once",
        &format!("{{{key},\"token\":\"${{d.token}}\",\"response\":\"{}\"}}", "x".repeat(80)),
    );
    maker.post("begin once", &format!("{{{key}}}"));
    for response in ["null", "false", "\"text\"", "0.5", "[]", "{}"] {
        maker.post_as("e", "begin once", "{\"key\":{\"id\":\"$N\"}}");
        let id = maker.fresh;
        let key = format!("\"key\":{{\"id\":\"n{id}\"}}");
        maker.post("finish once", &format!("{{{key},\"token\":\"${{e.token}}\",\"response\":{response}}}"));
        maker.post("begin once", &format!("{{{key}}}"));
    }
    maker.post_as("f", "begin once", "{\"key\":{\"id\":\"u\"}}");
    maker.post("finish once", "{\"key\":{\"id\":\"u\"},\"token\":\"${f.token}\"}");
    maker.post("begin once", "{\"key\":{\"id\":\"u\"}}");
    maker.pass(3_600_000);
    maker.post("begin once", "{\"key\":{\"id\":\"u\"}}");
}

pub(super) fn cache(maker: &mut Maker) {
    for (name, values) in [
        ("text", &["\"v\"", "{\"kty\": \"RSA\"}", "[1, 2]", "1.50", "null", "true", "\"\"", "\"ü\\n\""][..]),
        (
            "table",
            &[
                "{\"a\":\"1\",\"b\":2}",
                "{\"a\":true}",
                "{\"a\":null}",
                "{\"a\":{\"b\":1}}",
                "{}",
                "\"x\"",
                "[]",
            ][..],
        ),
        ("secret", &["\"v\"", "{\"a\":1}"][..]),
    ] {
        for value in values {
            maker.post(&format!("put {name}"), &format!("{{\"key\":{{\"id\":\"s\"}},\"value\":{value}}}"));
            maker.get(&format!("get {name}"), "key.id=s");
        }
        maker.get(&format!("exists {name}"), "key.id=s");
        maker.get(&format!("exists {name}"), "key.id=other");
        maker.get(&format!("get {name}"), "key.id=other");
        maker.post(
            &format!("put {name}"),
            "{\"key\":{\"id\":\"s\"},\"value\":{\"c\":\"d\"},\"if_absent\":true}",
        );
        maker.get(&format!("get {name}"), "key.id=s");
        maker.posts(2, &format!("delete {name}"), "{\"key\":{\"id\":\"s\"}}");
        maker.post(
            &format!("put {name}"),
            "{\"key\":{\"id\":\"s\"},\"value\":{\"c\":\"d\"},\"if_absent\":true,\"ttl_ms\":5000}",
        );
        maker.get(&format!("get {name}"), "key.id=s");
        maker.pass(5_001);
        maker.get(&format!("get {name}"), "key.id=s");
        maker.post(
            &format!("put {name}"),
            "{\"key\":{\"id\":\"s\"},\"value\":{\"c\":\"d\"},\"ttl_ms\":3600001}",
        );
    }
    for (name, key, query) in [
        ("status", r#"{"transaction_id":"T"}"#, "key.transaction_id=T"),
        ("jwks", r#"{"kid":"K"}"#, "key.kid=K"),
        ("token", r#"{"psp_id":"P"}"#, "key.psp_id=P"),
        ("camera", r#"{"namespace":"n","key":"k:1"}"#, "key.namespace=n&key.key=k:1"),
        ("courtlistener_pause", r#"{"api":"v4"}"#, "key.api=v4"),
    ] {
        maker.post(&format!("put {name}"), &format!("{{\"key\":{key},\"value\":{{\"status\":\"OK\"}}}}"));
        maker.get(&format!("get {name}"), query);
        maker.get(&format!("exists {name}"), query);
        maker.post(&format!("delete {name}"), &format!("{{\"key\":{key}}}"));
        maker.get(&format!("get {name}"), query);
    }
}

pub(super) fn dedupe(maker: &mut Maker) {
    for value in ["\"v\"", "1", "null", "{\"a\": 1}", "[]", "true", "\"\""] {
        let body = format!("{{\"key\":{{\"id\":\"$N\"}},\"value\":{value}}}");
        maker.post("first seen", &body);
        let again = body.replace("$N", &format!("n{}", maker.fresh));
        maker.posts(2, "first seen", &again);
    }
    maker.posts(2, "first seen", r#"{"key":{"id":"s"}}"#);
    maker.post("first seen", r#"{"key":{"id":"s"},"value":"later"}"#);
    maker.posts(2, "first seen", r#"{"key":{"id":"t"},"request_id":"r-1"}"#);
    maker.posts(2, "first image", r#"{"key":{"sha256_hash":"abc"},"value":"/1.jpg"}"#);
    maker.pass(300_001);
    maker.post("first seen", r#"{"key":{"id":"s"}}"#);
}

pub(super) fn guard(maker: &mut Maker) {
    let key = r#""key":{"id":"s"}"#;
    maker.post_as("a", "enter all", &format!("{{{key},\"fingerprint\":\"f\",\"request_id\":\"r-1\"}}"));
    maker.post("enter all", &format!("{{{key},\"fingerprint\":\"f\",\"request_id\":\"r-1\"}}"));
    maker.post("enter all", &format!("{{{key},\"fingerprint\":\"f\"}}"));
    maker.post("enter all", &format!("{{{key},\"fingerprint\":\"g\"}}"));
    maker.post("leave all", &format!("{{{key},\"token\":\"stolen\",\"response\":1}}"));
    maker.post("leave all", &format!("{{{key},\"token\":\"${{a.token}}\",\"response\":{{\"z\": 1}}}}"));
    maker.post("leave all", &format!("{{{key},\"token\":\"${{a.token}}\",\"response\":{{\"z\": 1}}}}"));
    maker.post("enter all", &format!("{{{key},\"fingerprint\":\"f\"}}"));
    maker.post("enter all", &format!("{{{key},\"fingerprint\":\"g\"}}"));
    for _ in 0..4 {
        maker.post_as("b", "enter all", r#"{"key":{"id":"t"}}"#);
        maker.post("leave all", r#"{"key":{"id":"t"},"token":"${b.token}","abandon":true}"#);
    }
    maker.posts(4, "enter limited", r#"{"key":{"id":"u"}}"#);
    maker.post_as("c", "enter limited", r#"{"key":{"id":"v"}}"#);
    maker.post("leave limited", r#"{"key":{"id":"v"},"token":"${c.token}"}"#);
    maker.post_as("d", "enter locked", r#"{"key":{"id":"w"},"ttl_ms":5000}"#);
    maker.post("enter locked", r#"{"key":{"id":"w"}}"#);
    maker.post("enter locked", r#"{"key":{"id":"w"},"fingerprint":"f"}"#);
    maker.pass(1_000);
    maker.post("enter locked", r#"{"key":{"id":"w"}}"#);
    maker.post("leave locked", r#"{"key":{"id":"w"},"token":"${d.token}","response":1}"#);
    maker.post("leave locked", r#"{"key":{"id":"w"},"token":"${d.token}"}"#);
    maker.other("lock", "acquire gate", r#"{"key":{"id":"x"},"owner":"somebody"}"#);
    maker.post("enter all", r#"{"key":{"id":"x"}}"#);
    maker.post("enter all", r#"{"key":{"id":"y"},"ttl_ms":60001}"#);
    let key = r#""key":{"psp_id":"PSP001","psp_transaction_id":"P-1"}"#;
    maker.post_as("e", "enter create", &format!("{{{key},\"fingerprint\":\"10 EUR\"}}"));
    maker.post("enter create", &format!("{{{key},\"fingerprint\":\"10 EUR\"}}"));
    maker.post(
        "leave create",
        &format!("{{{key},\"token\":\"${{e.token}}\",\"response\":{{\"status\":\"created\"}}}}"),
    );
    maker.post("enter create", &format!("{{{key},\"fingerprint\":\"10 EUR\"}}"));
    let key = r#""key":{"psp_id":"PSP001","transaction_id":"T-1"}"#;
    maker.post_as("g", "enter execute", &format!("{{{key}}}"));
    maker.post("leave execute", &format!("{{{key},\"token\":\"${{g.token}}\",\"abandon\":true}}"));
    maker.post("enter execute", r#"{"key":{"psp_id":"PSP001"}}"#);
}

pub(super) fn event(maker: &mut Maker) {
    maker.post("publish news", r#"{"data":{"b": 1, "a":[1.0]}}"#);
    maker.stream("s", "/v1/event/news/stream");
    maker.hear("s", ": listening\n\n");
    for data in [r#"{"b": 1, "a":[1.0]}"#, "null", "\"text\\n\"", "1e2", "[]"] {
        maker.post("publish news", &format!("{{\"data\":{data}}}"));
        maker.hear("s", "\n\n");
    }
    maker.posts(2, "publish news", r#"{"data":1,"request_id":"r-1"}"#);
    maker.hear("s", "\n\n");
    maker.stream("r", "/v1/event/room/stream?key.id=a%20b");
    maker.hear("r", ": listening\n\n");
    maker.post("publish room", r#"{"key":{"id":"other"},"data":1}"#);
    maker.post("publish room", r#"{"key":{"id":"a b"},"data":2}"#);
    maker.hear("r", "\n\n");
    for name in ["security_events", "system_status"] {
        maker.post(&format!("publish {name}"), r#"{"data":{"type":"event"}}"#);
    }
    maker.post("publish news", r#"{"key":{"id":"a"},"data":1}"#);
    maker.post("report pulse", r#"{"data":{"gpu":0.5,"cameras":[1]}}"#);
    maker.post("report pulse", r#"{"data":{"gpu":null}}"#);
    maker.post("report news", r#"{"data":{"gpu":1}}"#);
    maker.post("report system_status", r#"{"data":{"gpu_utilization":1},"ttl_ms":1000}"#);
    for (what, path) in [
        ("a query nobody knows", "/v1/event/news/stream?zzz=1"),
        ("a key where there is none", "/v1/event/news/stream?key.id=a"),
        ("no key", "/v1/event/room/stream"),
        ("a key twice", "/v1/event/room/stream?key.id=a&key.id=b"),
        ("a bad key", "/v1/event/room/stream?key.id=%00"),
        ("no such event", "/v1/event/nosuch/stream"),
        ("a misspelt event", "/v1/event/new/stream"),
        ("a WebSocket without upgrade", "/v1/event/news/ws"),
        ("a WebSocket of no such event", "/v1/event/nosuch/ws"),
        ("a WebSocket with a query", "/v1/event/news/ws?zzz=1"),
    ] {
        maker.ask(what, bare("GET", path));
    }
    for verb in ["stream", "ws"] {
        for method in ["POST", "HEAD", "DELETE"] {
            maker.ask(&format!("{verb} by {method}"), bare(method, &format!("/v1/event/news/{verb}")));
        }
    }
    let upgrade = bare("GET", "/v1/event/news/ws").with("connection", "upgrade").with("upgrade", "websocket");
    maker.ask("an upgrade without a version", upgrade.clone());
    maker.ask("an upgrade of another version", upgrade.with("sec-websocket-version", "8"));
}

impl Maker {
    /// Opens a stream and keeps it under `label`.
    pub(super) fn stream(&mut self, label: &str, path: &str) {
        let ask = bare("GET", path).with("accept", "text/event-stream");
        self.add(format!("{}: a stream", self.kind), label, Act::Open(ask));
    }

    /// Hears what comes on a stream.
    pub(super) fn hear(&mut self, label: &str, until: &str) {
        self.add(format!("{}: what is heard", self.kind), "", Act::Hear(label.to_owned(), until.to_owned()));
    }
}

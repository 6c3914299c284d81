//! What is served at fixed paths, and paths that lead nowhere. Pages that tell of the process itself, its age and its
//! pace, are asked for their heads.

use super::{Maker, bare, json};

pub(super) fn pages(maker: &mut Maker) {
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/status", "/"] {
        for method in ["HEAD", "POST", "DELETE"] {
            maker.ask(&format!("{method} {path}"), bare(method, path));
        }
    }
    for path in [
        "/nowhere",
        "/healthzz",
        "/Healthz",
        "/v1",
        "/v1/",
        "/v1/limit",
        "/v1/limit/fixed",
        "/v1/limit/fixed/take/x",
        "/v1//fixed/take",
        "/v1/limit//take",
        "/v1/nosuch/fixed/take",
        "/v1/limt/fixed/take",
        "/v1/limit/fixed/tkae",
        "/v1/key/explain/x",
        "/v2/limit/fixed/take",
        "/v1/upload/files",
        "/v1/upload/files/",
        "/v1/%6cimit/fixed/take",
        "/openapi",
        "/metrics/",
        "/v1/statu",
    ] {
        maker.ask(&format!("GET {path}"), bare("GET", path));
        maker.ask(&format!("POST {path}"), json(path, "{}"));
    }
    for query in [
        "",
        "?",
        "?key=",
        "?key=c:door:s",
        "?key=rl:PSP001:2026-11-15-12-00",
        "?key=nobody:knows",
        "?key=c%3Adoor%3As",
        "?key=a&key=b",
        "?kye=a",
        "?key=%zz",
        "?key=%ff",
        "?key=c:door:s&x=1",
        "?key.id=a",
        "?key=courtlistener:pipeline:x",
        "?key=c:jobs",
        "?key=ha:stats",
        "?key=%00",
    ] {
        maker.ask(&format!("explain{query}"), bare("GET", &format!("/v1/key/explain{query}")));
    }
    for method in ["POST", "HEAD", "PUT"] {
        maker.ask(&format!("explain by {method}"), bare(method, "/v1/key/explain?key=c:door:s"));
    }
    maker.ask(
        "a preflight",
        bare("OPTIONS", "/v1/limit/fixed/take")
            .with("origin", "http://x")
            .with("access-control-request-method", "POST"),
    );
    maker.ask("options", bare("OPTIONS", "/v1/limit/fixed/take"));
    maker.ask("patch", bare("PATCH", "/v1/limit/fixed/take"));
    maker
        .ask("another origin", json("/v1/limit/fixed/take", "{}").with("origin", "http://elsewhere.example"));
    for kind in
        ["application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.x+json", "json", "+json", ""]
    {
        let ask = bare("POST", "/v1/limit/open_window/reset").with("content-type", kind);
        maker.ask(&format!("content-type {kind}"), ask.carrying(r#"{"key":{"id":"s"}}"#));
    }
    for packed in ["identity", "gzip, identity", "br"] {
        let ask =
            json("/v1/limit/open_window/reset", r#"{"key":{"id":"s"}}"#).with("content-encoding", packed);
        maker.ask(&format!("content-encoding {packed}"), ask);
    }
}

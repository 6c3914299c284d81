//! What uploads do: create, chunks, status, content, events, and calling off.

use quaymaster_testkit::stage::Ask;

use super::{Act, Maker, bare};

/// A chunk of the upload `label`.
fn chunk(label: &str, number: &str, body: &str) -> Ask {
    bare("PUT", &format!("/v1/upload/files/${{{label}.upload_id}}/chunk/{number}")).carrying(body)
}

pub(super) fn upload(maker: &mut Maker) {
    maker.post_as(
        "a",
        "create files",
        r#"{"name":"f.txt","size":10,"mime_type":"text/plain","custom_metadata":{"b": 1},"idempotency_key":"k-1"}"#,
    );
    maker.post("create files", r#"{"name":"f.txt","size":10,"mime_type":"text/plain","custom_metadata":{"b": 1},"idempotency_key":"k-1"}"#);
    maker.post("create files", r#"{"name":"g.txt","idempotency_key":"k-1"}"#);
    maker.get("status files", "upload_id=${a.upload_id}");
    let path = "/v1/upload/files/${a.upload_id}";
    maker.ask("show", bare("GET", path));
    maker.ask("show with a query", bare("GET", &format!("{path}?x=1")));
    maker.ask("content before its end", bare("GET", &format!("{path}/content")));
    for (what, number, body) in [
        ("too small", "0", "abc"),
        ("too large", "0", &*"x".repeat(65)),
        ("no number", "x", "abcde"),
        ("a negative number", "-1", "abcde"),
        ("a sign", "+1", "abcde"),
        ("a huge number", "99999999999", "abcde"),
        ("over the last number", "10000", "abcde"),
        ("a bad last", "0?last=maybe", "abcde"),
        ("last twice", "0?last=true&last=true", "abcde"),
        ("an unknown parameter", "0?lsat=true", "abcde"),
    ] {
        maker.ask(&format!("chunk: {what}"), chunk("a", number, body));
    }
    for (what, digest) in [
        ("no digest", "x"),
        ("a short digest", "sha-256=:AAAA:"),
        ("another digest", "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:"),
    ] {
        maker.ask(&format!("chunk: {what}"), chunk("a", "0", "abcde").with("content-digest", digest));
    }
    maker.ask("chunk: packed", chunk("a", "0", "abcde").with("content-encoding", "gzip"));
    for method in ["GET", "POST", "DELETE"] {
        maker.ask(&format!("chunk: by {method}"), bare(method, &format!("{path}/chunk/0")));
    }
    for (method, below) in
        [("PUT", ""), ("POST", "/content"), ("PUT", "/progress"), ("GET", "/chunks"), ("GET", "/chunk/0/x")]
    {
        maker.ask(&format!("{method} {below}"), bare(method, &format!("{path}{below}")));
    }
    let unknown = "/v1/upload/files/00000000000000000000000000000000";
    for (what, ask) in [
        ("show", bare("GET", unknown)),
        ("delete", bare("DELETE", unknown)),
        ("content", bare("GET", &format!("{unknown}/content"))),
        ("progress", bare("GET", &format!("{unknown}/progress"))),
        ("chunk", bare("PUT", &format!("{unknown}/chunk/0")).carrying("abcde")),
        ("a bad id", bare("GET", "/v1/upload/files/NOPE")),
        ("a bad escape", bare("GET", "/v1/upload/files/%zz")),
        ("another resource", bare("GET", "/v1/upload/documents/${a.upload_id}")),
        ("no such resource", bare("GET", "/v1/upload/nosuch/${a.upload_id}")),
        (
            "no such resource for a chunk",
            bare("PUT", "/v1/upload/file/${a.upload_id}/chunk/0").carrying("abcde"),
        ),
    ] {
        maker.ask(&format!("unknown: {what}"), ask);
    }
    // From here on the parts move by themselves: the answers to chunks say how far, which is timing.
    maker.ask("chunk 0 by HEAD", bare("HEAD", path));
    maker.wait("one chunk is durable", chunk("a", "0", "abcde"), "\"durable\":true");
    maker.ask("chunk: the same again", chunk("a", "0", "abcde"));
    maker.ask("chunk: other bytes", chunk("a", "0", "xxxxx"));
    maker.wait("show", bare("GET", path), "\"durable_chunks\":1");
    maker.wait("the last one", chunk("a", "1?last=true", "fghij"), "COMPLETED");
    maker.wait("show", bare("GET", path), "COMPLETED");
    maker.ask("content", bare("GET", &format!("{path}/content")));
    maker.ask("content by HEAD", bare("HEAD", &format!("{path}/content")));
    for range in ["bytes=0-3", "bytes=-3", "bytes=4-", "bytes=20-", "bytes=3-1", "lines=1-2", "bytes=0-1,3-4"]
    {
        maker.ask(&format!("content: {range}"), bare("GET", &format!("{path}/content")).with("range", range));
    }
    maker.ask("content: a query", bare("GET", &format!("{path}/content?x=1")));
    maker.stream("p", &format!("{path}/progress"));
    maker.hear("p", "END");
    maker.ask("delete what is completed", bare("DELETE", path));
    maker.post("abort files", r#"{"upload_id":"${a.upload_id}"}"#);
    maker.post("resume files", r#"{"upload_id":"${a.upload_id}"}"#);
    maker.ask("chunk: after the end", chunk("a", "2", "abcde"));
    maker.wait("events", bare("GET", "/v1/upload/files/events"), "upload_id");
    maker.get("events files", "after=0&count=1");
    maker.get("events files", "after=1000");
    maker.post_as("b", "create files", r#"{"name":"b"}"#);
    maker.post("abort files", r#"{"upload_id":"${b.upload_id}","request_id":"r-1"}"#);
    maker.post("abort files", r#"{"upload_id":"${b.upload_id}"}"#);
    maker.ask("delete again", bare("DELETE", "/v1/upload/files/${b.upload_id}"));
    maker.post("resume files", r#"{"upload_id":"${b.upload_id}"}"#);
    maker.ask("chunk: after calling off", chunk("b", "0", "abcde"));
    maker.post_as("c", "create documents", r#"{"name":"c","size":0}"#);
    maker.ask("delete", bare("DELETE", "/v1/upload/documents/${c.upload_id}"));
    maker.post_as("d", "create files", r#"{"name":"empty","size":0}"#);
    maker.wait("an empty file", chunk("d", "0?last=true", ""), "COMPLETED");
    maker.ask("its content", bare("GET", "/v1/upload/files/${d.upload_id}/content"));
}

impl Maker {
    /// Asks until the answer has `text`.
    pub(super) fn wait(&mut self, title: &str, ask: Ask, text: &str) {
        self.add(format!("{}: {title}", self.kind), "", Act::Until(ask, text.to_owned()));
    }
}

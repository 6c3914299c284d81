//! What is published: chunks that came, and progress; and what a program of the document publishes.

use quaymaster_testkit::stage::{Listener, Stage, Store};
use quaymaster_upload::objects::{About, Objects, ObjectsOptions};
use serde_json::{Value, json};

use super::{NODE, content, create, events, file, key, send, short};

fn next(listener: &Listener) -> Value {
    let told = listener.next();
    serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"))
}

fn l168_a_received_chunk_is_published(s: &Stage) {
    short(s);
    let id = file(s);
    let listener = s.listen("upload:chunk:received");
    for (n, last) in [(5, false), (6, true)] {
        send(s, &id, n, b"chunk", last);
        let told = next(&listener);
        let fields = (&told["upload_id"], &told["chunk_number"], &told["is_last"]);
        assert_eq!(fields, (&json!(id), &json!(n), &json!(last)), "{told}");
        let ago = s.clock().now_us() / 1000 - told["timestamp"].as_i64().unwrap();
        let most = if s.store() == Store::Redis { 0 } else { 30_000 };
        assert!((0..=most).contains(&ago), "{told} is of now, in milliseconds");
    }
}

/// The first message of which something holds.
fn first(listener: &Listener, so: impl Fn(&Value) -> bool) -> Value {
    loop {
        let told = next(listener);
        if so(&told) {
            return told;
        }
    }
}

fn l217_progress_is_published(s: &Stage) {
    short(s);
    let id = create(s, json!({"name": "a.pdf", "size": 10}));
    let listener = s.listen(&format!("upload:progress:{id}"));
    // The last one first, so that it is known that there are two.
    send(s, &id, 1, b"end", true);
    let told = first(&listener, |told| told["uploaded_chunks"] == 1);
    for (name, value) in [
        ("uploaded_chunks", json!(1)),
        ("total_chunks", json!(2)),
        ("bytes_uploaded", json!(3)),
        ("total_bytes", json!(10)),
        ("percent", json!(50.0)),
        ("status", json!("UPLOADING")),
    ] {
        assert_eq!(told[name], value, "{name}: {told}");
    }
}

fn l391_progress_ends_with_completed(s: &Stage) {
    short(s);
    let id = file(s);
    let listener = s.listen(&format!("upload:progress:{id}"));
    for n in 0..3 {
        send(s, &id, n, b"chunk", n == 2);
    }
    let uploaded = |told: &Value| told["uploaded_chunks"].as_u64().unwrap();
    let (mut most, mut last) = (0, Value::Null);
    while last["status"] != "COMPLETED" {
        last = next(&listener);
        let steps = uploaded(&last) - most;
        assert!(steps <= 1, "a message after each chunk: {last}");
        most += steps;
    }
    let told = (uploaded(&last), &last["total_chunks"], &last["percent"], &last["total_bytes"]);
    assert_eq!(told, (3, &json!(3), &json!(100.0), &json!(15)), "{last}");
}

/// As the document's service begins an upload: with a multipart upload of its own.
fn begin(s: &Stage, id: &str, object: &str) {
    let folder = s.folder().join("quaymaster-data/objects");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let multipart = runtime.block_on(async {
        let url = format!("file:{}", folder.display());
        let objects = Objects::open(&url, &ObjectsOptions::default()).await.unwrap();
        objects.begin(object, &About::default()).await.unwrap()
    });
    let fields = [
        ("node_id", NODE),
        ("s3_upload_id", multipart.as_str()),
        ("s3_key", object),
        ("drive", "documents"),
        ("status", "UPLOADING"),
        ("expected_size", "10"),
        ("received_chunks", "0"),
        ("uploaded_chunks", "0"),
        ("total_chunks", "0"),
        ("is_last_received", "false"),
        ("created_at", "1700000000000"),
        ("updated_at", "1700000010000"),
        ("mime_type", "application/pdf"),
    ];
    let state = key(id, "state");
    let words: Vec<&str> =
        ["HSET", &state].into_iter().chain(fields.iter().flat_map(|(k, v)| [*k, *v])).collect();
    s.raw::<()>(&words);
    s.raw::<()>(&["EXPIRE", &state, "86400"]);
    s.raw::<()>(&["HSET", &key(id, "metadata"), "name", "document.pdf", "connector_id", "my-connector"]);
}

fn l182_a_chunk_of_a_documented_service_is_shipped(s: &Stage) {
    short(s);
    s.address();
    let object = format!("connectors/my-connector/{NODE}.pb");
    begin(s, "abc123", &object);
    let state = key("abc123", "state");
    for (n, bytes, last) in [("0", "seven, ", false), ("1", "ten", true)] {
        s.raw::<()>(&["SETEX", &key("abc123", &format!("chunks:{n}")), "3600", bytes]);
        s.raw::<()>(&["HINCRBY", &state, "received_chunks", "1"]);
        if last {
            s.raw::<()>(&["HSET", &state, "is_last_received", "true", "total_chunks", "2"]);
        }
        let told = format!("{{\"upload_id\":\"abc123\",\"chunk_number\":{n},\"is_last\":{last}}}");
        s.raw::<()>(&["PUBLISH", "upload:chunk:received", &told]);
    }
    s.until("it is completed", || s.field(&state, "status").as_deref() == Some("COMPLETED"));
    assert_eq!(s.keys("upload:abc123:chunks:*"), [].into());
    assert_eq!(s.raw::<i64>(&["ZCARD", &key("abc123", "etags")]), 2);
    assert_eq!(content(s, "abc123"), b"seven, ten");
    let told = events(s, "abc123");
    let payload = &told[0]["payload"];
    assert_eq!((told.len(), &payload["node_id"], &payload["s3_key"]), (1, &json!(NODE), &json!(object)));
}

cases! {
    l168_a_received_chunk_is_published
    l182_a_chunk_of_a_documented_service_is_shipped
    l217_progress_is_published
    l391_progress_ends_with_completed
}

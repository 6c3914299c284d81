//! From the parts to the object, the row and the event; and what is over.

use std::process::{Child, Stdio};

use quaymaster_testkit::servers::PostgresServer;
use quaymaster_testkit::stage::{Ask, Stage, Store};
use serde_json::json;

use super::s3::S3;
use super::{
    FIRST, LONG, NODE, call_off, content, create, events, field, file, is, key, send, short, spooled, status,
    until, until_durable, waits, whole,
};

fn l329_completes_when_last_and_all_are_there(s: &Stage) {
    short(s);
    let id = file(s);
    for n in [0, 1] {
        send(s, &id, n, b"a", false);
    }
    until_durable(s, &id, 2);
    // All that came is there, and nobody knows whether more will come; then the last is there, and one is missing.
    is(s, &id, "status", "UPLOADING");
    send(s, &id, 3, b"d", true);
    until_durable(s, &id, 3);
    is(s, &id, "status", "UPLOADING");
    assert_eq!(events(s, &id).len(), 0);
    send(s, &id, 2, b"c", false);
    until(s, &id, "COMPLETED");
    assert_eq!(content(s, &id), b"aacd");
}

/// A second node; killed when dropped.
struct Node(Child);

impl Node {
    fn start(s: &Stage) -> Self {
        s.address();
        let mut command = s.command();
        command.args(["worker", "--upload", "documents"]).env("QUAYMASTER_STORE", s.url());
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn l348_one_node_completes(s: &Stage) {
    short(s);
    let _nodes = [Node::start(s), Node::start(s)];
    let ids: Vec<String> = (0..6).map(|_| file(s)).collect();
    for n in 0..2 {
        for id in &ids {
            send(s, id, n, b"chunk", n == 1);
        }
    }
    for id in &ids {
        until(s, id, "COMPLETED");
        assert_eq!(events(s, id).len(), 1);
        let told = s.cli(&["upload", "doctor", id, "--json"]).json();
        let history = told["uploads"][0]["history"].as_array().unwrap();
        let claims = history.iter().filter(|line| line["what"] == "completing").count();
        assert_eq!(claims, 1, "{told}");
        // The document's own gate sets nothing where a status is.
        assert_eq!(s.raw::<i64>(&["HSETNX", &key(id, "state"), "status", "COMPLETING"]), 0);
    }
}

fn l352_parts_are_completed_in_order(s: &Stage) {
    let s3 = S3::real(s);
    let id = file(s);
    let chunks = [vec![1; LONG], vec![2; LONG + 1], b"end".to_vec()];
    for n in [2, 1, 0] {
        send(s, &id, n, &chunks[n as usize], n == 2);
        until_durable(s, &id, 3 - n);
    }
    until(s, &id, "COMPLETED");
    assert_eq!(s3.parts(), [3, 2, 1]);
    let object = s3.read(&field(s, &id, "s3_key").unwrap());
    assert!(object == chunks.concat(), "{} bytes, in another order", object.len());
}

fn l361_object_row_event_state_in_this_order(s: &Stage) {
    let postgres = PostgresServer::start();
    s.var("UPLOAD_DATABASE", &postgres.url());
    let s3 = S3::real(s);
    s3.hide_completions();
    let id = file(s);
    send(s, &id, 0, b"whole", true);
    let object = field(s, &id, "s3_key").unwrap();
    s.until("the object is there", || s3.head(&object).is_some());
    // Nobody was told so: whoever completes it may as well have died.
    assert_eq!(postgres.ask("select status from nodes"), "PENDING");
    assert_eq!(events(s, &id).len(), 0);
    assert_ne!(field(s, &id, "status").as_deref(), Some("COMPLETED"));
    s.kill();
    s3.clear();
    // Whoever died has let go of it.
    s.pass(120_000);
    until(s, &id, "COMPLETED");
    // What is said last is said after all the others.
    assert_eq!(postgres.ask("select status, size from nodes"), "ACTIVE|5");
    assert_eq!(events(s, &id).len(), 1);
    assert_eq!(s3.read(&object), b"whole");
}

fn l377_the_row_becomes_active(s: &Stage) {
    let postgres = PostgresServer::start();
    let other = "11111111-2222-3333-4444-555555555555";
    postgres.ask(
        "create table nodes (node_id uuid primary key, status text not null, s3_etag text, size bigint, owner text)",
    );
    for node in [NODE, other] {
        postgres.ask(&format!("insert into nodes values ('{node}', 'PENDING', null, null, 'alice')"));
    }
    s.var("UPLOAD_DATABASE", &postgres.url());
    let id = create(s, json!({"name": "a.pdf", "node_id": NODE}));
    let row = |node: &str| postgres.ask(&format!("select * from nodes where node_id = '{node}'"));
    assert_eq!(row(NODE), format!("{NODE}|PENDING|||alice"));
    send(s, &id, 0, b"whole", true);
    until(s, &id, "COMPLETED");
    let etag = field(s, &id, "final_etag").unwrap();
    assert_eq!(row(NODE), format!("{NODE}|ACTIVE|{etag}|5|alice"));
    assert_eq!(row(other), format!("{other}|PENDING|||alice"), "nobody else's");
}

fn l379_the_recorded_size_is_the_objects(s: &Stage) {
    let postgres = PostgresServer::start();
    s.var("UPLOAD_DATABASE", &postgres.url());
    short(s);
    // A gigabyte is announced, and seven bytes come.
    let id = create(s, json!({"name": "a.pdf", "size": 1_073_741_824}));
    let cut = s.put(&format!("upload/documents/{id}/chunk/0?last=true"), b"cut off");
    assert_eq!(cut.expect(422)["code"], "upload.refused");
    assert_eq!(postgres.ask("select count(*) from nodes where status = 'ACTIVE'"), "0");
    call_off(s, &id);
    // Nothing is announced.
    let id = whole(s, &["cut ", "off"]);
    assert_eq!(postgres.ask("select size from nodes where status = 'ACTIVE'"), "7");
    assert_eq!(events(s, &id)[0]["payload"]["size"], 7);
    is(s, &id, "final_size", "7");
}

fn l383_completion_is_an_event(s: &Stage) {
    short(s);
    let made = s.ok("upload/documents/create", json!({"name": "a.pdf"}));
    let id = made["upload_id"].as_str().unwrap();
    send(s, id, 0, b"who", false);
    until_durable(s, id, 1);
    assert_eq!(events(s, id).len(), 0, "not before its end");
    send(s, id, 1, b"le", true);
    until(s, id, "COMPLETED");
    let told = events(s, id);
    assert_eq!((told.len(), &told[0]["topic"]), (1, &json!("repository.uploads.completed")));
    let payload = &told[0]["payload"];
    assert_eq!((&payload["node_id"], &payload["size"]), (&made["node_id"], &json!(5)), "{payload}");
    assert_eq!(payload["s3_key"], field(s, id, "s3_key").unwrap());
    assert_eq!(payload["etag"], field(s, id, "final_etag").unwrap());
    let ago = s.clock().now_us() / 1000 - payload["timestamp"].as_i64().unwrap();
    let most = if s.store() == Store::Redis { 0 } else { 30_000 };
    assert!((0..=most).contains(&ago), "milliseconds: {payload}");
}

fn l399_keys_leave_an_hour_after_the_end(s: &Stage) {
    short(s);
    let id = whole(s, &["who", "le"]);
    for last in ["state", "etags", "metadata"] {
        s.lives(&key(&id, last), 3600);
    }
    s.pass(3_000_000);
    assert_eq!(status(s, &id)["status"], "COMPLETED", "queries are answered for an hour");
    s.pass(600_001);
    s.until("they are gone", || s.keys(&key(&id, "*")).is_empty());
}

fn l445_every_key_has_the_documented_ttl(s: &Stage) {
    let s3 = S3::real(s);
    s3.refuse("partNumber=2", 1000);
    let id = file(s);
    send(s, &id, 0, &vec![7; LONG], false);
    until_durable(s, &id, 1);
    send(s, &id, 1, b"end", true);
    for last in ["state", "etags", "metadata"] {
        s.lives(&key(&id, last), 86_400);
    }
    if s.store() == Store::Redis {
        s.lives(&key(&id, "chunks:1"), 3600);
    }
    for key in s.keys(&key(&id, "*")) {
        assert!(s.raw::<i64>(&["TTL", &key]) > 0, "{key} would stay for ever");
    }
}

fn l457_an_upload_is_cleaned_by_names(s: &Stage) {
    let _s3 = S3::failing(s);
    let id = file(s);
    send(s, &id, 0, b"binary", true);
    waits(s, &id, FIRST);
    // Both are caught by `upload:{id}:chunks:*`, and neither is a chunk that came.
    let others = [key(&id, "chunks:9"), key(&id, "chunks:other")];
    for key in &others {
        s.raw::<()>(&["SET", key, "theirs"]);
    }
    call_off(s, &id);
    assert_eq!(s.text(&key(&id, "chunks:0")), None);
    assert_eq!(spooled(s, &id).len(), 0);
    if s.store() == Store::Redis {
        let walks: Option<String> = s.redis(|redis| redis.info("commandstats", "cmdstat_keys"));
        assert_eq!(walks, None, "nobody else waits for a walk over all keys");
    }
    s.pass(3_600_001);
    s.until("the rest is gone", || s.keys(&key(&id, "*")) == others.clone().into());
    let stars = s.ask(&Ask::new("DELETE", "/v1/upload/documents/*"));
    assert_eq!(stars.expect(400)["code"], "request.invalid");
}

cases! {
    l329_completes_when_last_and_all_are_there
    l348_one_node_completes
    l352_parts_are_completed_in_order
    l361_object_row_event_state_in_this_order
    l377_the_row_becomes_active
    l379_the_recorded_size_is_the_objects
    l383_completion_is_an_event
    l399_keys_leave_an_hour_after_the_end
    l445_every_key_has_the_documented_ttl
    l457_an_upload_is_cleaned_by_names
}

//! The documented hashes: state and metadata.

use std::collections::BTreeSet;

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::{Value, json};

use super::s3::S3;
use super::{
    NODE, content, create, events, field, file, is, key, kind, send, short, status, until, until_durable,
    whole,
};

fn l019_state_is_a_hash(s: &Stage) {
    let id = file(s);
    assert_eq!(kind(s, &key(&id, "state")), "hash");
    let one = s.keys(&format!("upload:{id}:state"));
    assert_eq!(one.len(), 1, "{one:?}");
}

fn l021_state_lives_a_day(s: &Stage) {
    let id = file(s);
    s.lives(&key(&id, "state"), 86_400);
    s.kill();
    s.amend("uploads", "state_ttl = \"24h\"", "state_ttl = \"12h\"");
    s.lives(&key(&file(s), "state"), 43_200);
}

fn l024_state_has_node_id(s: &Stage) {
    let made = s.ok("upload/documents/create", json!({"name": "a.pdf"}));
    let id = made["upload_id"].as_str().unwrap();
    let node = made["node_id"].as_str().unwrap();
    is(s, id, "node_id", node);
    assert!(node.len() == 36 && node.split('-').map(str::len).eq([8, 4, 4, 4, 12]), "{node} is no UUID");
    let id = create(s, json!({"name": "a.pdf", "node_id": NODE}));
    is(s, &id, "node_id", NODE);
}

fn l025_state_has_s3_upload_id(s: &Stage) {
    let s3 = S3::real(s);
    let id = file(s);
    let pending = s3.pending();
    assert_eq!(pending.len(), 1, "{pending:?}");
    assert_eq!(field(s, &id, "s3_upload_id"), Some(pending[0].1.clone()));
}

fn l026_state_has_the_whole_object_key(s: &Stage) {
    let s3 = S3::real(s);
    let id = create(s, json!({"name": "a.pdf", "node_id": NODE, "connector_id": "my-connector"}));
    let wanted = format!("repository/connectors/my-connector/{NODE}.pb");
    is(s, &id, "s3_key", &wanted);
    send(s, &id, 0, b"whole", true);
    until(s, &id, "COMPLETED");
    is(s, &id, "s3_key", &wanted);
    assert_eq!(s3.read(&wanted), b"whole", "the key in the bucket");
    assert_eq!(events(s, &id)[0]["payload"]["s3_key"], wanted);
}

fn l027_state_has_drive(s: &Stage) {
    let id = create(s, json!({"name": "a.pdf", "drive": "documents"}));
    is(s, &id, "drive", "documents");
    assert_eq!(status(s, &id)["drive"], "documents");
}

/// The statuses of an upload's progress, to the one that is waited for.
fn heard(listener: &quaymaster_testkit::stage::Listener, end: &str) -> BTreeSet<String> {
    let mut statuses = BTreeSet::new();
    while !statuses.contains(end) {
        let told: Value = serde_json::from_str(&listener.next()).unwrap();
        statuses.insert(told["status"].as_str().unwrap().to_owned());
    }
    statuses
}

fn l028_state_has_six_statuses(s: &Stage) {
    short(s);
    let id = file(s);
    is(s, &id, "status", "PENDING");
    let listener = s.listen(&format!("upload:progress:{id}"));
    send(s, &id, 0, b"a", false);
    is(s, &id, "status", "UPLOADING");
    send(s, &id, 1, b"b", true);
    let told = heard(&listener, "COMPLETED");
    assert_eq!(told, ["COMPLETED", "COMPLETING", "UPLOADING"].map(str::to_owned).into());
    until(s, &id, "COMPLETED");
    is(s, &id, "status", "COMPLETED");
    let given_up = file(s);
    super::call_off(s, &given_up);
    is(s, &given_up, "status", "FAILED");
    let forgotten = file(s);
    s.pass(23 * 3_600_000 + 1000);
    until(s, &forgotten, "EXPIRED");
    is(s, &forgotten, "status", "EXPIRED");
}

fn l029_state_has_expected_size(s: &Stage) {
    let id = create(s, json!({"name": "a.pdf", "size": 1_073_741_824}));
    is(s, &id, "expected_size", "1073741824");
    let id = create(s, json!({"name": "a.pdf", "size": 3}));
    let more = s.put(&format!("upload/documents/{id}/chunk/0?last=true"), b"four");
    assert_eq!(more.expect(422)["code"], "upload.refused");
    send(s, &id, 0, b"abc", true);
    until(s, &id, "COMPLETED");
    is(s, &id, "expected_size", "3");
}

fn l030_state_counts_received_chunks(s: &Stage) {
    short(s);
    let id = file(s);
    is(s, &id, "received_chunks", "0");
    for (received, n) in (1..).zip([2, 0]) {
        assert_eq!(send(s, &id, n, b"chunk", false)["received_chunks"], received);
        is(s, &id, "received_chunks", &received.to_string());
    }
}

fn l031_state_counts_uploaded_chunks(s: &Stage) {
    short(s);
    let id = file(s);
    is(s, &id, "uploaded_chunks", "0");
    for n in 0..2 {
        send(s, &id, n, b"chunk", false);
        s.until("it is uploaded", || field(s, &id, "uploaded_chunks") == Some((n + 1).to_string()));
    }
    // Where the object store takes none, none is counted.
    s.kill();
    let _s3 = S3::failing(s);
    s.var("UPLOAD_DATABASE", "sqlite:other.db");
    s.amend("uploads", "chunk_min = 1", "chunk_min = \"5MiB\"");
    let id = file(s);
    send(s, &id, 0, b"chunk", true);
    super::waits(s, &id, super::FIRST);
    is(s, &id, "received_chunks", "1");
    is(s, &id, "uploaded_chunks", "0");
}

fn l032_state_has_total_chunks(s: &Stage) {
    short(s);
    let id = file(s);
    send(s, &id, 0, b"a", false);
    is(s, &id, "total_chunks", "0");
    send(s, &id, 2, b"c", true);
    is(s, &id, "total_chunks", "3");
    let after = s.put(&format!("upload/documents/{id}/chunk/3"), b"d");
    assert_eq!(after.expect(422)["code"], "upload.refused");
}

fn l033_state_tells_the_last_chunk(s: &Stage) {
    short(s);
    let id = file(s);
    send(s, &id, 0, b"a", false);
    is(s, &id, "is_last_received", "false");
    send(s, &id, 2, b"c", true);
    is(s, &id, "is_last_received", "true");
    assert_eq!(status(s, &id)["is_last_received"], true);
}

/// A time in milliseconds, which is now: exactly where the clock stands still.
fn is_now(s: &Stage, id: &str, name: &str) -> i64 {
    let told: i64 = field(s, id, name).unwrap().parse().unwrap();
    let ago = s.clock().now_us() / 1000 - told;
    let most = if s.store() == Store::Redis { 0 } else { 30_000 };
    assert!((0..=most).contains(&ago), "{name} is {told}, {ago} ms ago");
    told
}

fn l034_state_has_created_at(s: &Stage) {
    short(s);
    let id = file(s);
    let created = is_now(s, &id, "created_at");
    s.pass(60_000);
    send(s, &id, 0, b"a", false);
    is(s, &id, "created_at", &created.to_string());
}

fn l035_state_has_updated_at(s: &Stage) {
    short(s);
    let id = file(s);
    let created = is_now(s, &id, "updated_at");
    s.pass(60_000);
    send(s, &id, 0, b"a", false);
    assert!(is_now(s, &id, "updated_at") >= created + 60_000);
    until_durable(s, &id, 1);
    s.pass(60_000);
    send(s, &id, 1, b"b", true);
    until(s, &id, "COMPLETED");
    assert!(is_now(s, &id, "updated_at") >= created + 120_000);
}

fn l036_state_has_mime_type(s: &Stage) {
    let id = create(s, json!({"name": "a.pdf", "mime_type": "application/pdf"}));
    is(s, &id, "mime_type", "application/pdf");
    send(s, &id, 0, b"%PDF", true);
    until(s, &id, "COMPLETED");
    let served = s.get(&format!("/v1/upload/documents/{id}/content"));
    assert_eq!(served.header("content-type"), Some("application/pdf"));
}

fn l037_state_has_final_etag(s: &Stage) {
    let id = file(s);
    assert_eq!(field(s, &id, "final_etag").unwrap_or_default(), "", "not before its end");
    send(s, &id, 0, b"whole", true);
    until(s, &id, "COMPLETED");
    let etag = field(s, &id, "final_etag").unwrap();
    let served = s.get(&format!("/v1/upload/documents/{id}/content"));
    assert_eq!(served.header("etag"), Some(&*etag));
    assert_eq!(events(s, &id)[0]["payload"]["etag"], etag);
}

fn l038_state_has_final_size(s: &Stage) {
    short(s);
    let id = whole(s, &["seven", "and", "three"]);
    is(s, &id, "final_size", "13");
    assert_eq!(content(s, &id), b"sevenandthree");
}

fn l039_state_has_error_message(s: &Stage) {
    s.settings("[uploads]\nattempts = 1");
    let _s3 = S3::failing(s);
    let id = file(s);
    assert_eq!(field(s, &id, "error_message").unwrap_or_default(), "");
    send(s, &id, 0, b"whole", true);
    let told = until(s, &id, "FAILED");
    let message = field(s, &id, "error_message").unwrap();
    assert!(message.starts_with("chunk 0, attempt 1") && message.contains("500"), "{message}");
    assert_eq!(told["error_message"], message);
}

fn metadata(s: &Stage, name: &str, value: Value) -> String {
    let mut body = json!({"name": "document.pdf"});
    body[name] = value;
    s.field(&key(&create(s, body), "metadata"), name).unwrap()
}

fn l136_metadata_is_a_hash_of_a_day(s: &Stage) {
    let metadata = key(&file(s), "metadata");
    assert_eq!(kind(s, &metadata), "hash");
    s.lives(&metadata, 86_400);
}

fn l141_metadata_has_name(s: &Stage) {
    assert_eq!(metadata(s, "name", json!("document.pdf")), "document.pdf");
    assert_eq!(metadata(s, "name", json!("Übersicht 2024.pdf")), "Übersicht 2024.pdf");
}

fn l142_metadata_has_connector_id(s: &Stage) {
    assert_eq!(metadata(s, "connector_id", json!("my-connector")), "my-connector");
    let unnamed = s.field(&key(&file(s), "metadata"), "connector_id");
    assert_eq!(unnamed.as_deref(), Some("default"), "the schema's");
}

fn l143_metadata_has_parent_id(s: &Stage) {
    assert_eq!(metadata(s, "parent_id", json!("parent-folder-uuid")), "parent-folder-uuid");
}

fn l144_metadata_has_path(s: &Stage) {
    assert_eq!(metadata(s, "path", json!("docs/2024/")), "docs/2024/");
}

fn l145_metadata_has_custom_metadata(s: &Stage) {
    let own = json!({"author": "John Doe", "tags": ["important"]});
    let text = metadata(s, "custom_metadata", own.clone());
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), own, "a JSON text");
}

fn l146_metadata_has_client_node_id(s: &Stage) {
    assert_eq!(metadata(s, "client_node_id", json!("their-own-17")), "their-own-17");
    let unsaid = s.field(&key(&file(s), "metadata"), "client_node_id");
    assert_eq!(unsaid.unwrap_or_default(), "");
}

cases! {
    l019_state_is_a_hash
    l021_state_lives_a_day
    l024_state_has_node_id
    l025_state_has_s3_upload_id
    l026_state_has_the_whole_object_key
    l027_state_has_drive
    l028_state_has_six_statuses
    l029_state_has_expected_size
    l030_state_counts_received_chunks
    l031_state_counts_uploaded_chunks
    l032_state_has_total_chunks
    l033_state_tells_the_last_chunk
    l034_state_has_created_at
    l035_state_has_updated_at
    l036_state_has_mime_type
    l037_state_has_final_etag
    l038_state_has_final_size
    l039_state_has_error_message
    l136_metadata_is_a_hash_of_a_day
    l141_metadata_has_name
    l142_metadata_has_connector_id
    l143_metadata_has_parent_id
    l144_metadata_has_path
    l145_metadata_has_custom_metadata
    l146_metadata_has_client_node_id
}

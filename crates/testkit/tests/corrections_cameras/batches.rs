//! From the detections of a camera to one batch in the queue.

use futures_util::future::join_all;
use quaymaster::batch::{Add, Closed};
use quaymaster::schema::{Source, load};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use serde_json::{Value, json};

use crate::support::{cameras, length, ours};

/// The documented keys of an open batch.
fn open(server: &RedisServer, camera: &str, batch: &str, detections: &str) {
    server.command::<()>(&["SET", &format!("batch:{camera}:current"), batch, "EX", "3600"]);
    for (field, value) in [
        ("camera_id", camera),
        ("detections", detections),
        ("started_at", "1769250600.0"),
        ("last_activity", "1769250600.0"),
    ] {
        server.command::<()>(&["SET", &format!("batch:{batch}:{field}"), value, "EX", "3600"]);
    }
}

fn read(server: &RedisServer, batch: &str) -> Option<Vec<i64>> {
    let text: Option<String> = server.command(&["GET", &format!("batch:{batch}:detections")]);
    text.map(|text| serde_json::from_str(&text).expect("a list"))
}

fn queue(server: &RedisServer, batch: &str, detections: &[i64]) {
    let item = json!({ "batch_id": batch, "camera_id": "front_door", "detection_ids": detections });
    server.command::<i64>(&["RPUSH", "analysis_queue", &item.to_string()]);
}

fn forget(server: &RedisServer, camera: &str, batch: &str) {
    server.command::<i64>(&["DEL", &format!("batch:{camera}:current")]);
    for field in ["camera_id", "detections", "started_at", "last_activity"] {
        server.command::<i64>(&["DEL", &format!("batch:{batch}:{field}")]);
    }
}

fn queued(server: &RedisServer) -> Vec<Value> {
    let items: Vec<String> = server.command(&["LRANGE", "analysis_queue", "0", "-1"]);
    items.iter().map(|item| serde_json::from_str(item).expect("a documented item")).collect()
}

fn add(item: &str) -> Add<'_> {
    Add { item: item.as_bytes(), ..Add::default() }
}

const FRONT: &[(&str, &str)] = &[("camera_id", "front_door")];

#[tokio::test]
async fn a_list_that_is_read_changed_and_written_back_loses_a_detection() {
    let server = RedisServer::start(RedisConfig::default());
    open(&server, "front_door", "abc123", "[1]");
    // Two detectors at once.
    let (mut one, mut two) = (read(&server, "abc123").expect("open"), read(&server, "abc123").expect("open"));
    one.push(2);
    two.push(3);
    for list in [one, two] {
        server.command::<()>(&["SET", "batch:abc123:detections", &json!(list).to_string(), "EX", "3600"]);
    }
    assert_eq!(read(&server, "abc123"), Some(vec![1, 3]), "detection 2 is gone");
    server.command::<()>(&["FLUSHALL"]);

    let quaymaster = ours(&server).await;
    let camera = quaymaster.batch("camera").expect("declared");
    let items: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    let added = join_all(items.iter().map(|item| camera.add(FRONT, add(item)))).await;
    let batch = added[0].as_ref().expect("an answer").batch_id.clone();
    assert!(added.iter().all(|one| one.as_ref().is_ok_and(|one| one.batch_id == batch)), "{added:?}");
    // What a program of the old scheme sees: the documented string, a JSON list.
    let mut list = read(&server, &batch).expect("open");
    list.sort_unstable();
    assert_eq!(list, (0..50).collect::<Vec<i64>>());
    assert_eq!(server.command::<String>(&["GET", "batch:front_door:current"]), batch);
    assert_eq!(server.command::<String>(&["GET", &format!("batch:{batch}:camera_id")]), "front_door");
}

#[tokio::test]
async fn a_batch_that_is_closed_and_then_queued_is_queued_twice_or_never() {
    let server = RedisServer::start(RedisConfig::default());
    open(&server, "front_door", "abc123", "[1,2]");
    // Two sweepers find the same batch due.
    let (one, two) = (read(&server, "abc123"), read(&server, "abc123"));
    for found in [one, two] {
        queue(&server, "abc123", &found.expect("open"));
        forget(&server, "front_door", "abc123");
    }
    assert_eq!(queued(&server).len(), 2, "analysed twice");
    server.command::<()>(&["FLUSHALL"]);
    // One that forgets before it queues, and dies between.
    open(&server, "front_door", "abc123", "[1,2]");
    let _ = read(&server, "abc123");
    forget(&server, "front_door", "abc123");
    assert_eq!(queued(&server).len(), 0, "analysed never");
    // A detection that comes while the batch is being closed.
    open(&server, "front_door", "abc123", "[1,2]");
    let found = read(&server, "abc123").expect("open");
    server.command::<()>(&["SET", "batch:abc123:detections", "[1,2,3]", "EX", "3600"]);
    queue(&server, "abc123", &found);
    forget(&server, "front_door", "abc123");
    assert_eq!(queued(&server)[0]["detection_ids"], json!([1, 2]), "detection 3 is in no batch");
    server.command::<()>(&["FLUSHALL"]);

    let quaymaster = ours(&server).await;
    let camera = quaymaster.batch("camera").expect("declared");
    // Closers and detections meet, again and again.
    let mut told = 0;
    for round in 0..20 {
        let items: Vec<String> = (0..10).map(|n| (round * 10 + n).to_string()).collect();
        let adds = join_all(items.iter().map(|item| camera.add(FRONT, add(item))));
        let closes = join_all((0..3).map(|_| camera.close(FRONT, None)));
        let (added, closed) = tokio::join!(adds, closes);
        assert!(added.iter().all(Result::is_ok), "{added:?}");
        told += closed.into_iter().filter(|one| matches!(one, Ok(Closed::Closed { .. }))).count();
    }
    told += usize::from(matches!(camera.close(FRONT, None).await, Ok(Closed::Closed { .. })));
    let items = queued(&server);
    assert_eq!(items.len(), told, "as many as were told that they closed one");
    let mut batches: Vec<&str> = items.iter().filter_map(|item| item["batch_id"].as_str()).collect();
    batches.sort_unstable();
    batches.dedup();
    assert_eq!(batches.len(), items.len(), "each batch once");
    let ids = items.iter().flat_map(|item| item["detection_ids"].as_array().expect("a list"));
    let mut ids: Vec<i64> = ids.map(|id| id.as_i64().expect("a number")).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..200).collect::<Vec<i64>>(), "each detection in one batch");
    assert_eq!(server.command::<Vec<String>>(&["KEYS", "batch:*"]), [""; 0], "and nothing left behind");
}

#[tokio::test]
async fn a_camera_called_like_a_batch_has_its_keys() {
    let server = RedisServer::start(RedisConfig::default());
    open(&server, "yard", "abc123", "[1]");
    open(&server, "abc123", "def456", "[2]");
    // Batch abc123 ends: what the naming convention calls its fields is removed, `batch:{batch_id}:{field}`.
    let fields: Vec<String> = server.command(&["KEYS", "batch:abc123:*"]);
    for field in &fields {
        server.command::<i64>(&["DEL", field]);
    }
    assert!(fields.contains(&"batch:abc123:current".to_owned()), "{fields:?}");
    assert_eq!(
        server.command::<Option<String>>(&["GET", "batch:abc123:current"]),
        None,
        "the camera's batch is lost"
    );
    server.command::<()>(&["FLUSHALL"]);

    let quaymaster = ours(&server).await;
    let batches = quaymaster.batch("camera").expect("declared");
    let yard = batches.add(&[("camera_id", "yard")], add("1")).await.expect("an answer").batch_id;
    // A camera with the very id of that batch.
    let namesake: &[(&str, &str)] = &[("camera_id", &yard)];
    let other = batches.add(namesake, add("2")).await.expect("an answer").batch_id;
    assert_ne!(other, yard);
    let closed = batches.close(&[("camera_id", "yard")], None).await.expect("an answer");
    assert!(matches!(closed, Closed::Closed { .. }), "{closed:?}");
    assert_eq!(queued(&server)[0]["detection_ids"], json!([1]));
    // Ended by its own keys, and by no pattern: the other one is untouched.
    assert_eq!(read(&server, &other), Some(vec![2]));
    let added = batches.add(namesake, add("3")).await.expect("an answer");
    assert_eq!((added.batch_id, added.size), (other.clone(), 2));
    let _ = batches.close(namesake, None).await.expect("an answer");
    assert_eq!(queued(&server)[1]["detection_ids"], json!([2, 3]));
    assert_eq!(
        (length(&server, "analysis_queue"), queued(&server)[1]["batch_id"].clone()),
        (2, json!(other))
    );
    // A schema whose batch would have a field of that name does not load.
    let same = cameras().replace("items = \"detections\"", "items = \"current\"");
    assert_ne!(same, cameras());
    assert!(load(&[Source { name: "cameras.toml", text: &same }], &|_| None).schema.is_none());
}

//! What every batch must do on every store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join, join_all};
use quaymaster::batch::{Add, Added, Closed, MAX_ITEM_BYTES, Swept};
use quaymaster::{Code, Quaymaster};
use quaymaster_schema::{Kind, Spelling};
use quaymaster_store::{Reply, Topology};
use serde_json::{Value, json};

use super::{Subject, command, command_int, command_text};

const FRONT: &[(&str, &str)] = &[("camera_id", "front")];
const BACK: &[(&str, &str)] = &[("camera_id", "back")];

/// `camera` never closes by itself within a test; the others say by their names when they do.
fn batches(subject: &Subject) -> Quaymaster {
    let batch = |name: &str, rest: &str| {
        format!(
            "[batch.{name}]\nkey = \"{name}:{{camera_id}}:current\"\nby = \"camera_id\"\nto = \"closed\"\n\
             items = \"detections\"\nitems_as = \"detection_ids\"\ncolocate = \"closed\"\n{rest}"
        )
    };
    subject.schema(
        &[
            "[queue.closed]\nmax_size = 100_000\ncolocate = \"closed\"\n",
            "[queue.small]\nmax_size = 1\ncolocate = \"closed\"\n",
            &batch("camera", "window = \"90s\"\nidle = \"30s\"\nttl = \"1h\"\n"),
            &batch("window", "window = \"300ms\"\nttl = \"1m\"\n"),
            &batch("idle", "window = \"60s\"\nidle = \"300ms\"\nttl = \"2m\"\n"),
            &batch("three", "window = \"60s\"\nmax_items = 3\nttl = \"2m\"\n"),
            &batch("mortal", "window = \"200ms\"\nttl = \"400ms\"\n"),
            &batch("stuck", "window = \"60s\"\nttl = \"2m\"\n")
                .replace("\"closed\"\nitems", "\"small\"\nitems"),
            &batch("jammed", "window = \"200ms\"\nttl = \"1m\"\n")
                .replace("\"closed\"\nitems", "\"small\"\nitems"),
        ]
        .concat(),
    )
}

fn item(text: &str) -> Add<'_> {
    Add { item: text.as_bytes(), ..Add::default() }
}

async fn add(quaymaster: &Quaymaster, name: &str, key: &[(&str, &str)], text: &str) -> Added {
    quaymaster.batch(name).expect("declared").add(key, item(text)).await.expect("add")
}

async fn sweep(quaymaster: &Quaymaster, name: &str) -> Swept {
    quaymaster.batch(name).expect("declared").sweep().await.expect("sweep")
}

/// A key as this store spells it.
fn spelled(quaymaster: &Quaymaster, kind: Kind, name: &str, role: &str, values: &[(&str, &str)]) -> String {
    let spelling = match quaymaster.engine().topology() {
        Topology::Single => Spelling::Single,
        Topology::Cluster => Spelling::Cluster,
    };
    let mut key = Vec::new();
    let resource = quaymaster.schema().resource(kind, name).expect("declared");
    resource.key(role).expect("a role").pattern.render(values, 0, spelling, &mut key).expect("a key");
    String::from_utf8(key).expect("text")
}

async fn queued(quaymaster: &Quaymaster, queue: &str) -> Vec<Value> {
    let key = spelled(quaymaster, Kind::Queue, queue, "items", &[]);
    let words: [&[u8]; 4] = [b"LRANGE", key.as_bytes(), b"0", b"-1"];
    match command(&**quaymaster.engine(), key.as_bytes(), &words).await.expect("a list") {
        Reply::Array(items) => items
            .into_iter()
            .map(|item| match item {
                Reply::Bytes(text) => serde_json::from_slice(&text).expect("JSON"),
                other => panic!("{other:?}"),
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

async fn add_many(quaymaster: &Quaymaster, node: usize, camera: &str, count: usize) {
    let batch = quaymaster.batch("three").expect("declared");
    for number in 0..count {
        let text = format!("\"{camera}/{node}/{number}\"");
        let added = batch.add(&[("camera_id", camera)], item(&text)).await.expect("add");
        assert!((1..=3).contains(&added.size), "{added:?}");
    }
}

/// Closes and sweeps for as long as somebody adds.
async fn disturb(quaymaster: &Quaymaster, node: usize, cameras: &[String], adding: &AtomicBool) {
    let batch = quaymaster.batch("three").expect("declared");
    let mut round = node;
    while adding.load(Relaxed) {
        let camera = cameras[round % cameras.len()].as_str();
        let _ = batch.close(&[("camera_id", camera)], None).await.expect("close");
        let _ = batch.sweep().await.expect("sweep");
        round += 1;
    }
}

crate::cases! {
    async fn a_batch_lies_under_the_documented_keys_and_becomes_the_documented_item(subject: &Subject) {
        let quaymaster = batches(subject);
        let engine = &*subject.engine;
        let first = add(&quaymaster, "camera", FRONT, "1").await;
        assert_eq!((first.size, first.duplicate, first.closed), (1, false, false));
        let id = first.batch_id.as_str();
        for (text, size) in [("\"two\"", 2), (" {\"n\": [3]} ", 3)] {
            let next = add(&quaymaster, "camera", FRONT, text).await;
            assert_eq!((next.batch_id.as_str(), next.size), (id, size));
        }
        let of = |role: &str| spelled(&quaymaster, Kind::Batch, "camera", role, &[("batch_id", id)]);
        let current = spelled(&quaymaster, Kind::Batch, "camera", "current", FRONT);
        if engine.topology() == Topology::Single {
            assert_eq!(current, format!("{}camera:front:current", subject.prefix));
            assert_eq!(of("items"), format!("{}camera:{id}:detections", subject.prefix));
            assert_eq!(of("by"), format!("{}camera:{id}:camera_id", subject.prefix));
        }
        for (key, held) in [
            (current.clone(), id),
            (of("by"), "front"),
            (of("items"), "[1,\"two\",{\"n\": [3]}]"),
            (of("size"), "3"),
        ] {
            assert_eq!(command_text(engine, &["GET", &key]).await.as_deref(), Some(held), "{key}");
            let ttl = command_int(engine, &["PTTL", &key]).await;
            assert!((1..=3_600_000).contains(&ttl), "{key} {ttl}");
        }
        for role in ["started_at", "last_activity"] {
            let seconds = command_text(engine, &["GET", &of(role)]).await.expect("a moment");
            let since = subject.time_us().await as f64 / 1e6 - seconds.parse::<f64>().expect("a float");
            assert!((0.0..60.0).contains(&since), "{role} {seconds}");
            assert_eq!(seconds.split_once('.').expect("a fraction").1.len(), 6);
        }
        let camera = quaymaster.batch("camera").expect("declared");
        assert_eq!(sweep(&quaymaster, "camera").await.closed, 0, "nothing is due");
        assert_eq!(
            camera.close(FRONT, None).await.expect("close"),
            Closed::Closed { batch_id: id.to_owned() }
        );
        let jobs = queued(&quaymaster, "closed").await;
        assert_eq!(jobs.len(), 1);
        let names: Vec<&String> = jobs[0].as_object().expect("an object").keys().collect();
        assert_eq!(names.len(), 5);
        assert_eq!(
            (&jobs[0]["batch_id"], &jobs[0]["camera_id"], &jobs[0]["detection_ids"]),
            (&json!(id), &json!("front"), &json!([1, "two", {"n": [3]}]))
        );
        for name in ["started_at", "ended_at"] {
            let text = jobs[0][name].as_str().expect("a moment");
            assert!(text.len() == 26 && &text[10..11] == "T" && &text[19..20] == ".", "{text}");
        }
        assert!(jobs[0]["started_at"].as_str() <= jobs[0]["ended_at"].as_str());
        for key in [&current, &of("by"), &of("items"), &of("started_at"), &of("last_activity"), &of("size")] {
            assert_eq!(command_int(engine, &["EXISTS", key]).await, 0, "{key}");
        }
        assert_eq!(camera.close(FRONT, None).await.expect("close"), Closed::None);
        assert_eq!(camera.list(0, 10).await.expect("list"), []);
    }

    async fn a_batch_closes_when_its_window_or_its_silence_ends_and_not_before(subject: &Subject) {
        let quaymaster = batches(subject);
        for name in ["window", "idle"] {
            let old = add(&quaymaster, name, FRONT, "1").await;
            if subject.clock.is_some() {
                subject.pass(299).await;
                assert_eq!(sweep(&quaymaster, name).await.closed, 0, "{name}");
                if name == "idle" {
                    assert_eq!(add(&quaymaster, name, FRONT, "2").await.batch_id, old.batch_id);
                    subject.pass(299).await;
                    assert_eq!(sweep(&quaymaster, name).await.closed, 0, "an item begins the silence anew");
                }
                subject.pass(1).await;
            } else {
                subject.pass(301).await;
            }
            let new = add(&quaymaster, name, FRONT, "3").await;
            assert_ne!(new.batch_id, old.batch_id, "what comes later begins the next batch, swept or not");
            assert_eq!(new.size, 1);
            subject.pass(301).await;
            assert_eq!(sweep(&quaymaster, name).await.closed, 2, "{name}");
            let ids: Vec<Value> =
                queued(&quaymaster, "closed").await.iter().map(|job| job["batch_id"].clone()).collect();
            assert!(ids.contains(&json!(old.batch_id)) && ids.contains(&json!(new.batch_id)), "{ids:?}");
        }
    }

    async fn the_last_item_closes_a_batch_at_once(subject: &Subject) {
        let quaymaster = batches(subject);
        let mut ids = BTreeSet::new();
        for number in 1..=7 {
            let added = add(&quaymaster, "three", FRONT, &number.to_string()).await;
            assert_eq!((added.size, added.closed), ((number - 1) % 3 + 1, number % 3 == 0), "{number}");
            ids.insert(added.batch_id);
        }
        assert_eq!(ids.len(), 3);
        let lists: Vec<Value> =
            queued(&quaymaster, "closed").await.iter().map(|job| job["detection_ids"].clone()).collect();
        assert_eq!(lists, [json!([1, 2, 3]), json!([4, 5, 6])]);
    }

    async fn an_id_is_added_once_to_a_batch_and_again_to_the_next(subject: &Subject) {
        let quaymaster = batches(subject);
        let camera = quaymaster.batch("camera").expect("declared");
        let named = Add { id: Some("d-1"), ..item("1") };
        let first = camera.add(FRONT, named).await.expect("add");
        let again = camera.add(FRONT, named).await.expect("add");
        assert_eq!((again.batch_id.as_str(), again.size, again.duplicate), (first.batch_id.as_str(), 1, true));
        assert!(!camera.add(BACK, named).await.expect("add").duplicate, "another camera");
        let ids = spelled(&quaymaster, Kind::Batch, "camera", "ids", &[("batch_id", &first.batch_id)]);
        assert!(command_int(&*subject.engine, &["PTTL", &ids]).await > 0);
        assert!(matches!(camera.close(FRONT, None).await.expect("close"), Closed::Closed { .. }));
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &ids]).await, 0);
        let next = camera.add(FRONT, named).await.expect("add");
        assert!(!next.duplicate && next.batch_id != first.batch_id);
    }

    async fn a_repeated_request_adds_and_closes_once(subject: &Subject) {
        let quaymaster = batches(subject);
        let camera = quaymaster.batch("camera").expect("declared");
        let named = Add { request_id: Some("r-1"), ..item("1") };
        let first = camera.add(FRONT, named).await.expect("add");
        for node in [&quaymaster, &batches(subject)] {
            assert_eq!(node.batch("camera").expect("declared").add(FRONT, named).await.expect("add"), first);
        }
        let closed = camera.close(FRONT, Some("c-1")).await.expect("close");
        assert_eq!(closed, Closed::Closed { batch_id: first.batch_id.clone() });
        assert_eq!(camera.add(FRONT, named).await.expect("add"), first, "also when the batch is gone");
        let next = add(&quaymaster, "camera", FRONT, "2").await;
        assert_eq!(camera.close(FRONT, Some("c-1")).await.expect("close"), closed);
        assert_eq!(camera.list(0, 10).await.expect("list").len(), 1, "the next one is still open");
        assert_ne!(next.batch_id, first.batch_id);
        assert_eq!(queued(&quaymaster, "closed").await.len(), 1);
        let conflict = camera.add(FRONT, Add { request_id: Some("c-1"), ..item("1") }).await;
        assert_eq!(conflict.expect_err("another verb's id").code, Code::RequestReused);
    }

    async fn racing_adders_closers_and_sweepers_put_every_item_into_exactly_one_batch(subject: &Subject) {
        const CAMERAS: usize = 3;
        const EACH: usize = 60;
        let nodes: Vec<Quaymaster> = (0..3).map(|_| batches(subject)).collect();
        let cameras: Vec<String> = (0..CAMERAS).map(|number| format!("camera-{number}")).collect();
        let adding = AtomicBool::new(true);
        let mut adders: Vec<BoxFuture<'_, ()>> = Vec::new();
        let mut disturbers: Vec<BoxFuture<'_, ()>> = Vec::new();
        for (node, quaymaster) in nodes.iter().enumerate() {
            adders.extend(cameras.iter().map(|camera| add_many(quaymaster, node, camera, EACH).boxed()));
            disturbers.push(disturb(quaymaster, node, &cameras, &adding).boxed());
        }
        let all = async {
            join_all(adders).await;
            adding.store(false, Relaxed);
        };
        join(all, join_all(disturbers)).await;
        for camera in &cameras {
            let batch = nodes[0].batch("three").expect("declared");
            // One more that nobody else closes or sweeps.
            let text = format!("\"{camera}/last\"");
            let _ = batch.add(&[("camera_id", camera)], item(&text)).await.expect("add");
            let _ = batch.close(&[("camera_id", camera)], None).await.expect("close");
        }
        assert_eq!(sweep(&nodes[0], "three").await.expired, 0, "nothing is left of what was queued");
        assert_eq!(nodes[0].batch("three").expect("declared").list(0, 10).await.expect("list"), []);
        let jobs = queued(&nodes[0], "closed").await;
        let ids: BTreeSet<&str> = jobs.iter().filter_map(|job| job["batch_id"].as_str()).collect();
        assert_eq!(ids.len(), jobs.len(), "no batch is queued twice");
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for job in &jobs {
            let camera = job["camera_id"].as_str().expect("a camera");
            let items = job["detection_ids"].as_array().expect("a list");
            assert!((1..=3).contains(&items.len()), "{job}");
            for item in items {
                let text = item.as_str().expect("an item");
                assert!(text.starts_with(&format!("{camera}/")), "{job}");
                *seen.entry(text.to_owned()).or_default() += 1;
            }
        }
        assert_eq!(seen.len(), nodes.len() * CAMERAS * EACH + CAMERAS, "nothing is lost");
        assert!(seen.values().all(|times| *times == 1), "nothing is in two batches");
    }

    async fn a_full_queue_keeps_its_batches_until_there_is_room(subject: &Subject) {
        let quaymaster = batches(subject);
        let engine = &*subject.engine;
        let stuck = quaymaster.batch("stuck").expect("declared");
        let queue = spelled(&quaymaster, Kind::Queue, "small", "items", &[]);
        command_int(engine, &["RPUSH", &queue, "{}"]).await;
        let old = add(&quaymaster, "stuck", FRONT, "1").await;
        let key = spelled(&quaymaster, Kind::Batch, "stuck", "items", &[("batch_id", &old.batch_id)]);
        command_int(engine, &["PEXPIRE", &key, "60000"]).await;
        assert_eq!(stuck.close(FRONT, None).await.expect_err("no room").code, Code::QueueFull);
        assert!(command_int(engine, &["PTTL", &key]).await > 60_000, "its keys do not expire meanwhile");
        let new = add(&quaymaster, "stuck", FRONT, "2").await;
        assert_ne!(new.batch_id, old.batch_id, "it takes no more");
        subject.pass(1001).await;
        let swept = sweep(&quaymaster, "stuck").await;
        assert_eq!((swept.closed, swept.waiting, swept.expired), (0, 1, 0));
        assert_eq!(stuck.list(0, 10).await.expect("list").len(), 2);
        command_text(engine, &["LPOP", &queue]).await;
        subject.pass(1001).await;
        assert_eq!(sweep(&quaymaster, "stuck").await.closed, 1);
        let jobs = queued(&quaymaster, "small").await;
        assert_eq!((jobs.len(), &jobs[0]["batch_id"], &jobs[0]["detection_ids"]), (1, &json!(old.batch_id), &json!([1])));
    }

    async fn a_batch_past_its_window_takes_no_more_though_its_queue_is_full(subject: &Subject) {
        let quaymaster = batches(subject);
        let queue = spelled(&quaymaster, Kind::Queue, "small", "items", &[]);
        command_int(&*subject.engine, &["RPUSH", &queue, "{}"]).await;
        let old = add(&quaymaster, "jammed", FRONT, "1").await;
        subject.pass(201).await;
        assert_eq!(sweep(&quaymaster, "jammed").await.waiting, 1);
        let new = add(&quaymaster, "jammed", FRONT, "2").await;
        assert_ne!(new.batch_id, old.batch_id, "its window is over");
    }

    async fn a_batch_whose_keys_expired_leaves_the_index(subject: &Subject) {
        let quaymaster = batches(subject);
        let lost = add(&quaymaster, "mortal", FRONT, "1").await;
        subject.pass(401).await;
        let swept = sweep(&quaymaster, "mortal").await;
        assert_eq!((swept.closed, swept.expired, swept.next), (0, 1, None));
        assert_eq!(quaymaster.batch("mortal").expect("declared").counts().expired(), 1);
        assert_ne!(add(&quaymaster, "mortal", FRONT, "2").await.batch_id, lost.batch_id);
    }

    async fn a_camera_named_like_a_batch_shares_no_key_with_it(subject: &Subject) {
        let quaymaster = batches(subject);
        let first = add(&quaymaster, "camera", FRONT, "1").await;
        let twin = [("camera_id", first.batch_id.as_str())];
        let second = add(&quaymaster, "camera", &twin, "\"of the twin\"").await;
        assert_ne!(second.batch_id, first.batch_id);
        assert_eq!(add(&quaymaster, "camera", FRONT, "2").await.size, 2);
        let camera = quaymaster.batch("camera").expect("declared");
        for key in [&twin[..], FRONT] {
            assert!(matches!(camera.close(key, None).await.expect("close"), Closed::Closed { .. }));
        }
        let jobs = queued(&quaymaster, "closed").await;
        assert_eq!((&jobs[0]["camera_id"], &jobs[0]["detection_ids"]), (&json!(first.batch_id), &json!(["of the twin"])));
        assert_eq!((&jobs[1]["camera_id"], &jobs[1]["detection_ids"]), (&json!("front"), &json!([1, 2])));
    }

    async fn a_batch_that_another_program_began_is_taken_over(subject: &Subject) {
        let quaymaster = batches(subject);
        let engine = &*subject.engine;
        let now_us = subject.time_us().await;
        let of = |role: &str| spelled(&quaymaster, Kind::Batch, "camera", role, &[("batch_id", "abc123")]);
        let current = spelled(&quaymaster, Kind::Batch, "camera", "current", FRONT);
        let seconds = format!("{}.{:06}", now_us / 1_000_000, now_us % 1_000_000);
        for (key, value) in [
            (&current, "abc123"),
            (&of("by"), "front"),
            (&of("items"), "[1, 2, \"a, b\"] "),
            (&of("started_at"), &seconds),
            (&of("last_activity"), &seconds),
        ] {
            command_text(engine, &["SET", key, value]).await;
        }
        let added = add(&quaymaster, "camera", FRONT, "4").await;
        assert_eq!((added.batch_id.as_str(), added.size), ("abc123", 4));
        assert!(command_int(engine, &["PTTL", &of("items")]).await > 0, "it gets an end");
        let camera = quaymaster.batch("camera").expect("declared");
        assert!(matches!(camera.close(FRONT, None).await.expect("close"), Closed::Closed { .. }));
        assert_eq!(queued(&quaymaster, "closed").await[0]["detection_ids"], json!([1, 2, "a, b", 4]));
        command_text(engine, &["SET", &current, "abc124"]).await;
        let spoiled = spelled(&quaymaster, Kind::Batch, "camera", "items", &[("batch_id", "abc124")]);
        command_text(engine, &["SET", &spoiled, "1, 2"]).await;
        assert_eq!(camera.add(FRONT, item("1")).await.expect_err("no list").code, Code::KeyMalformed);
        command_int(engine, &["DEL", &spoiled]).await;
        assert_eq!(add(&quaymaster, "camera", FRONT, "1").await.size, 1, "an id whose batch is gone");
    }

    async fn a_size_or_a_start_that_is_no_number_is_refused_before_anything_is_added(subject: &Subject) {
        let quaymaster = batches(subject);
        let (engine, camera) = (&*subject.engine, quaymaster.batch("camera").expect("declared"));
        let added = add(&quaymaster, "camera", FRONT, "1").await;
        let of = |role: &str| spelled(&quaymaster, Kind::Batch, "camera", role, &[("batch_id", &added.batch_id)]);
        let items = of("items");
        for (role, value) in [
            ("size", "9223372036854775807"),
            ("size", "9007199254740992"),
            ("size", "00"),
            ("started_at", "nan"),
            ("started_at", "99999999999999999999.5"),
        ] {
            let held = command_text(engine, &["GET", &of(role)]).await.expect("held");
            command_text(engine, &["SET", &of(role), value]).await;
            for _ in 0..2 {
                let error = camera.add(FRONT, item("2")).await.expect_err("no number");
                assert_eq!(error.code, Code::KeyMalformed, "{role} {value}: {error}");
                assert!(error.detail.contains(&of(role)), "{error}");
            }
            assert_eq!(command_text(engine, &["GET", &items]).await.as_deref(), Some("[1]"), "{role} {value}");
            command_text(engine, &["SET", &of(role), &held]).await;
        }
        // A deadline that nobody gave is past, and a list shows the batch.
        let open = spelled(&quaymaster, Kind::Batch, "camera", "open", &[]);
        command_int(engine, &["ZADD", &open, "inf", &added.batch_id]).await;
        assert_eq!(camera.list(0, 10).await.expect("list").len(), 1);
        assert_eq!(sweep(&quaymaster, "camera").await.closed, 1);
        let current = spelled(&quaymaster, Kind::Batch, "camera", "current", FRONT);
        command_text(engine, &["SET", &current, " "]).await;
        for error in [
            camera.add(FRONT, item("3")).await.expect_err("no id"),
            camera.close(FRONT, None).await.expect_err("no id"),
        ] {
            assert!(error.code == Code::KeyMalformed && error.detail.contains(&current), "{error}");
        }
    }

    async fn a_list_that_another_program_spoiled_is_queued_as_text(subject: &Subject) {
        let quaymaster = batches(subject);
        let camera = quaymaster.batch("camera").expect("declared");
        let added = add(&quaymaster, "camera", FRONT, "1").await;
        let key = spelled(&quaymaster, Kind::Batch, "camera", "items", &[("batch_id", &added.batch_id)]);
        command_text(&*subject.engine, &["SET", &key, "[1, oops"]).await;
        assert_eq!(camera.add(FRONT, item("2")).await.expect_err("no list").code, Code::KeyMalformed);
        assert!(matches!(camera.close(FRONT, None).await.expect("close"), Closed::Closed { .. }));
        assert_eq!(queued(&quaymaster, "closed").await[0]["detection_ids"], "[1, oops");
    }

    async fn a_list_is_bounded_and_what_does_not_fit_begins_the_next_batch(subject: &Subject) {
        let quaymaster = batches(subject);
        let large = format!("\"{}\"", "x".repeat(200 << 10));
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(add(&quaymaster, "camera", FRONT, &large).await.batch_id);
        }
        assert!(ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
        assert_eq!(sweep(&quaymaster, "camera").await.closed, 1, "the full one is due");
        let jobs = queued(&quaymaster, "closed").await;
        assert_eq!((jobs.len(), jobs[0]["detection_ids"].as_array().map(Vec::len)), (1, Some(2)));
        let camera = quaymaster.batch("camera").expect("declared");
        let longer = format!("\"{}\"", "x".repeat(MAX_ITEM_BYTES));
        assert_eq!(camera.add(FRONT, item(&longer)).await.expect_err("too long").code, Code::RequestTooLarge);
    }

    async fn what_no_batch_could_hold_is_refused(subject: &Subject) {
        let quaymaster = batches(subject);
        let camera = quaymaster.batch("camera").expect("declared");
        for bad in ["", "{", "1 2", "[1"] {
            assert_eq!(camera.add(FRONT, item(bad)).await.expect_err("no JSON").code, Code::RequestInvalid);
        }
        let named = Add { id: Some(""), ..item("1") };
        assert_eq!(camera.add(FRONT, named).await.expect_err("an empty id").code, Code::RequestInvalid);
        assert_eq!(camera.add(&[], item("1")).await.expect_err("no camera").code, Code::KeyMissing);
        assert_eq!(camera.close(&[], None).await.expect_err("no camera").code, Code::KeyMissing);
        let odd = [("camera_id", "a*")];
        assert_eq!(camera.add(&odd, item("1")).await.expect_err("a pattern").code, Code::KeyValue);
        assert_eq!(camera.list(0, 0).await.expect_err("no page").code, Code::RequestInvalid);
        assert_eq!(camera.list(0, 10).await.expect("list"), []);
        assert_eq!(quaymaster.batch("kamera").expect_err("no such batch").code, Code::ResourceUnknown);
    }

    async fn open_batches_are_listed_page_by_page(subject: &Subject) {
        let quaymaster = batches(subject);
        let mut ids = BTreeSet::new();
        for number in 0..5 {
            let name = format!("c:{number}");
            let key = [("camera_id", name.as_str())];
            ids.insert(add(&quaymaster, "camera", &key, "1").await.batch_id);
            let _ = add(&quaymaster, "camera", &key, "2").await;
        }
        let camera = quaymaster.batch("camera").expect("declared");
        let mut seen = BTreeSet::new();
        for offset in [0, 2, 4, 6] {
            let page = camera.list(offset, 2).await.expect("list");
            assert_eq!(page.len(), match offset { 4 => 1, 6 => 0, _ => 2 });
            for open in page {
                assert!(open.by.starts_with("c:") && open.size == 2, "{open:?}");
                assert!(open.started_us > 0 && open.last_us >= open.started_us, "{open:?}");
                assert!(open.closes_in > Duration::ZERO && open.closes_in <= Duration::from_secs(30), "{open:?}");
                seen.insert(open.batch_id);
            }
        }
        assert_eq!(seen, ids);
    }
}

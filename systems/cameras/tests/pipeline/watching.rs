//! From files to jobs: every image once, whole, whoever is killed and however full the queue is.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::scene::{Part, Scene, Store, eventually, image, job};

/// The jobs that wait, without their timestamps.
async fn waiting(server: &Part) -> Vec<Value> {
    let peeked = server.get("/v1/queue/detection_queue/peek?count=1000").await;
    let mut items = peeked["items"].as_array().unwrap().clone();
    for item in &mut items {
        let timestamp = item.as_object_mut().unwrap().remove("timestamp").unwrap();
        let text = timestamp.as_str().unwrap();
        assert!(text.len() == 26 && text.starts_with("20") && text.contains('.'), "{text}");
    }
    items
}

async fn wait_for(server: &Part, count: usize) -> Vec<Value> {
    eventually(&format!("{count} jobs wait"), async || {
        let items = waiting(server).await;
        assert!(items.len() <= count, "{items:#?}");
        (items.len() == count).then_some(items)
    })
    .await
}

/// Waits until the watcher has walked through all of its folder twice more: what would come again has come.
async fn two_walks(watcher: &Part) {
    let walks = || watcher.log().matches("walked through").count();
    let before = walks();
    eventually("two more walks", async || (walks() >= before + 2).then_some(())).await;
}

/// Waits until this content is not known any more.
async fn forgotten(server: &Part, content: &[u8]) {
    let path = format!("/v1/key/explain?key=dedupe:{}", sha256(content));
    eventually("the content is forgotten", async || {
        (server.get(&path).await["actual"]["exists"] == false).then_some(())
    })
    .await;
}

fn sha256(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
    let (high, low) = digest.as_ref().split_at(16);
    format!("{:032x}{:032x}", number(high), number(low))
}

fn put(folder: &Path, name: &str, bytes: &[u8]) -> std::path::PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let path = folder.canonicalize().unwrap().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_the_documented_ones_and_foreign_programs_read_them() {
    let scene = Scene::new(Store::redis());
    let before = put(&scene.images().join("Front Door"), "before.jpg", b"\xff\xd8\xff one");
    let _watcher = scene.start("watch", &[]).await;
    let server = scene.start("serve", &[]).await;
    wait_for(&server, 1).await;
    let after = put(&scene.images().join("garage"), "after.jpg", b"\xff\xd8\xff two");
    let items = wait_for(&server, 2).await;
    assert_eq!(items, [job("front_door", &before), job("garage", &after)]);

    let Store::Server(redis) = &scene.store else { unreachable!() };
    let raw: Vec<String> = redis.command(&["LRANGE", "detection_queue", "0", "-1"]);
    let parsed: Value = serde_json::from_str(&raw[0]).unwrap();
    assert_eq!(
        parsed.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["camera_id", "file_path", "timestamp"]
    );
    let hash = sha256(b"\xff\xd8\xff one");
    let first: String = redis.command(&["GET", &format!("dedupe:{hash}")]);
    assert_eq!(first, before.display().to_string());
    let ttl: i64 = redis.command(&["TTL", &format!("dedupe:{hash}")]);
    assert!((1..=300).contains(&ttl), "{ttl}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_is_waited_out_and_a_killed_watcher_loses_nothing() {
    let mut scene = Scene::new(Store::Embedded);
    scene.set("QUEUE_MAX_SIZE", "5");
    let server = scene.start("serve", &[]).await;
    let mut watcher = scene.start("watch", &[]).await;
    let mut expected: Vec<String> = (0..20)
        .map(|number| {
            put(&scene.images().join("door"), &format!("{number}.png"), &image(number)).display().to_string()
        })
        .collect();
    let mut claimed = Vec::new();
    eventually("the queue is full", async || {
        let pressure = server.pressure("detection_queue").await;
        pressure["is_full"].as_bool().unwrap().then_some(())
    })
    .await;
    eventually("the watcher says so", async || watcher.log().contains("queue.full").then_some(())).await;
    let mut round = 0;
    eventually("all have been claimed", async || {
        round += 1;
        // At whatever it is doing: reading, waiting, between a push and its note of it.
        if round % 3 == 0 {
            watcher.process.kill9();
            watcher = scene.start("watch", &[]).await;
        }
        let told =
            server.post("/v1/queue/detection_queue/claim", &json!({ "count": 2, "wait_ms": 200 })).await;
        let jobs = told["jobs"].as_array().unwrap().clone();
        for job in &jobs {
            claimed.push(job["payload"]["file_path"].as_str().unwrap().to_owned());
        }
        let leases: Vec<&Value> = jobs.iter().map(|job| &job["lease"]).collect();
        if !leases.is_empty() {
            let told = server.post("/v1/queue/detection_queue/ack", &json!({ "leases": leases })).await;
            assert_eq!(told["acked"], leases.len());
        }
        (claimed.len() >= 20).then_some(())
    })
    .await;
    two_walks(&watcher).await;
    assert_eq!(waiting(&server).await, [json!(null); 0]);
    claimed.sort();
    expected.sort();
    assert_eq!(claimed, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_queues_nothing_again_even_without_its_ledger() {
    let mut scene = Scene::new(Store::Embedded);
    scene.set("DEDUPE_TTL_SECONDS", "1");
    let server = scene.start("serve", &[]).await;
    let watcher = scene.start("watch", &[]).await;
    let folder = scene.images().join("door");
    for number in 0..3 {
        put(&folder, &format!("{number}.png"), &image(number));
    }
    wait_for(&server, 3).await;
    assert_eq!(watcher.stop().await, 0);
    forgotten(&server, &image(2)).await;
    let again = scene.start("watch", &[]).await;
    put(&folder, "3.png", &image(3));
    wait_for(&server, 4).await;
    assert_eq!(again.stop().await, 0);

    forgotten(&server, &image(3)).await;
    std::fs::remove_file(scene.folder.path().join("data/watch/watched")).unwrap();
    let without = scene.start("watch", &["--readers=1"]).await;
    put(&folder, "4.png", &image(4));
    let items = wait_for(&server, 5).await;
    assert!(items[4]["file_path"].as_str().unwrap().ends_with("4.png"), "{items:#?}");
    // The push's own id is known for a day.
    two_walks(&without).await;
    assert_eq!(waiting(&server).await.len(), 5);
}

/// The document: all data in Redis can be made again from what is elsewhere. Here from the images.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_handed_over_again_after_a_loss_when_told() {
    let mut scene = Scene::new(Store::redis());
    scene.set("DEDUPE_TTL_SECONDS", "1");
    let server = scene.start("serve", &[]).await;
    let watcher = scene.start("watch", &[]).await;
    for number in 0..3 {
        put(&scene.images().join("door"), &format!("{number}.png"), &image(number));
    }
    wait_for(&server, 3).await;
    assert_eq!(watcher.stop().await, 0);
    let Store::Server(redis) = &scene.store else { unreachable!() };
    redis.command::<()>(&["FLUSHALL"]);
    let plain = scene.start("watch", &[]).await;
    two_walks(&plain).await;
    assert_eq!(waiting(&server).await.len(), 0, "its ledger says that they were handed over");
    assert_eq!(plain.stop().await, 0);

    let again = scene.start("watch", &["--again"]).await;
    wait_for(&server, 3).await;
    assert_eq!(again.stop().await, 0);
    let plain = scene.start("watch", &[]).await;
    two_walks(&plain).await;
    assert_eq!(waiting(&server).await.len(), 3, "once, and not with every start");
    assert_eq!(plain.stop().await, 0);

    // The queue alone is lost: the ids of the pushes are still known. And of the images one is old.
    for number in 0..3 {
        forgotten(&server, &image(number)).await;
    }
    let old = scene.images().join("door/0.png");
    let day = Duration::from_secs(86_400);
    let file = std::fs::File::options().append(true).open(&old).unwrap();
    file.set_modified(std::time::SystemTime::now() - 2 * day).unwrap();
    let plain = scene.start("watch", &[]).await;
    wait_for(&server, 4).await;
    assert_eq!(plain.stop().await, 0);
    forgotten(&server, &image(0)).await;
    redis.command::<()>(&["DEL", "detection_queue"]);
    let again = scene.start("watch", &["--again=24h"]).await;
    let items = wait_for(&server, 2).await;
    two_walks(&again).await;
    assert_eq!(waiting(&server).await.len(), 2, "the old one is not among them: {items:#?}");
    assert_eq!(again.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_content_is_queued_once_and_again_when_it_was_forgotten() {
    let mut scene = Scene::new(Store::Embedded);
    scene.set("DEDUPE_TTL_SECONDS", "2");
    let server = scene.start("serve", &[]).await;
    let watcher = scene.start("watch", &[]).await;
    let first = put(&scene.images().join("door"), "1.png", &image(1));
    assert_eq!(wait_for(&server, 1).await, [job("door", &first)]);
    put(&scene.images().join("door"), "2.png", &image(1));
    put(&scene.images().join("garage"), "3.png", &image(1));
    eventually("both are seen before", async || {
        (watcher.log().matches("seen before").count() == 2).then_some(())
    })
    .await;
    assert_eq!(waiting(&server).await.len(), 1);
    forgotten(&server, &image(1)).await;
    let later = put(&scene.images().join("door"), "4.png", &image(1));
    assert_eq!(wait_for(&server, 2).await[1], job("door", &later));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_queued_when_it_is_whole_and_not_before() {
    let scene = Scene::new(Store::Embedded);
    let server = scene.start("serve", &[]).await;
    let _watcher = scene.start("watch", &[]).await;
    let folder = scene.images().join("door");
    put(&folder, "first.png", &image(0));
    wait_for(&server, 1).await;

    // A writer that pauses for longer than a file takes to settle.
    let path = folder.canonicalize().unwrap().join("slow.png");
    let mut file = std::fs::File::create(&path).unwrap();
    let bytes = image(4000);
    for piece in bytes.chunks(bytes.len() / 3 + 1) {
        file.write_all(piece).unwrap();
        file.sync_all().unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(waiting(&server).await.len(), 1, "half an image was queued");
    }
    drop(file);
    assert_eq!(wait_for(&server, 2).await[1], job("door", &path));

    // Written beside and renamed into place, alone and with its folder.
    put(&folder, ".three.png.part", &image(3));
    std::fs::rename(folder.join(".three.png.part"), folder.join("three.png")).unwrap();
    wait_for(&server, 3).await;
    let aside = scene.folder.path().join("aside");
    put(&aside, "four.png", &image(5));
    std::fs::rename(&aside, scene.images().join("hall")).unwrap();
    let items = wait_for(&server, 4).await;
    assert_eq!(items[3], job("hall", &scene.images().canonicalize().unwrap().join("hall/four.png")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_image_of_a_camera_is_passed_over_and_said_once() {
    let scene = Scene::new(Store::Embedded);
    let server = scene.start("serve", &[]).await;
    let root = scene.images();
    put(&root, "lost.png", &image(1));
    put(&root.join("a:b"), "1.png", &image(2));
    put(&root.join("door"), ".hidden.png", &image(3));
    put(&root.join("door"), "half.png.tmp", &image(4));
    put(&root.join("door"), "notes.txt", b"text");
    put(&root.join("door"), "page.jpg", b"<html>");
    put(&root.join("door"), "empty.jpg", b"");
    let watcher = scene.start("watch", &[]).await;
    let good = put(&root.join("door"), "good.png", &image(5));
    assert_eq!(wait_for(&server, 1).await, [job("door", &good)]);
    for (file, why) in [
        ("lost.png", "in no camera's folder"),
        ("a:b", "cannot have ':'"),
        ("page.jpg", "an image's name and is none"),
    ] {
        eventually(&format!("{file} is passed over"), async || {
            watcher.log().lines().any(|line| line.contains(file) && line.contains(why)).then_some(())
        })
        .await;
    }
    two_walks(&watcher).await;
    assert_eq!(watcher.log().matches("passed over").count(), 3, "{}", watcher.log());
    assert_eq!(waiting(&server).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_may_not_be_read_is_said_once_and_taken_as_soon_as_it_may() {
    let allow =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let mut scene = Scene::new(Store::redis());
    let server = scene.start("serve", &[]).await;
    let shut = put(&scene.images().join("door"), "shut.png", &image(1));
    let folder = scene.images().join("dark");
    put(&folder, "1.png", &image(2));
    allow(scene.folder.path(), 0o777);
    allow(&shut, 0);
    allow(&folder, 0);
    scene.unprivileged = true;
    let watcher = scene.start("watch", &[]).await;
    for file in ["door/shut.png", "images/dark"] {
        eventually(&format!("{file} is passed over"), async || {
            watcher
                .log()
                .lines()
                .any(|line| line.contains(file) && line.contains("Permission denied"))
                .then_some(())
        })
        .await;
    }
    assert_eq!(waiting(&server).await, [json!(null); 0]);
    assert_eq!(watcher.log().matches("passed over").count(), 2);
    allow(&shut, 0o644);
    allow(&folder, 0o755);
    wait_for(&server, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_is_replaced_is_watched_on() {
    let scene = Scene::new(Store::Embedded);
    let server = scene.start("serve", &[]).await;
    let _watcher = scene.start("watch", &[]).await;
    put(&scene.images().join("door"), "1.png", &image(1));
    wait_for(&server, 1).await;
    // No event tells of what happens in the new folder.
    std::fs::rename(scene.images(), scene.folder.path().join("old")).unwrap();
    put(&scene.images().join("door"), "2.png", &image(2));
    wait_for(&server, 2).await;
}

//! Images dropped into a folder come out as events, whoever dies on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::scene::{Part, Scene, Store, count, eventually, image};
use crate::socket::Socket;

const CAMERAS: [(&str, &str); 4] =
    [("Front Door", "front_door"), ("garage", "garage"), ("Back Yard", "back_yard"), ("hall-2", "hall-2")];
const WORKERS: usize = 3;

/// Puts an image there as cameras do: written in place, in two pieces, or renamed into place.
fn drop_image(root: &Path, number: usize) -> PathBuf {
    let folder = root.join(CAMERAS[number % CAMERAS.len()].0).join(format!("day-{}", number % 3));
    std::fs::create_dir_all(&folder).unwrap();
    let (path, bytes) = (folder.join(format!("{number}.png")), image(number));
    match number % 3 {
        0 => std::fs::write(&path, bytes).unwrap(),
        1 => {
            use std::io::Write as _;
            let mut file = std::fs::File::create(&path).unwrap();
            let (head, tail) = bytes.split_at(bytes.len() / 2);
            file.write_all(head).unwrap();
            file.sync_data().unwrap();
            file.write_all(tail).unwrap();
        }
        _ => {
            let hidden = folder.join(format!(".{number}.part"));
            std::fs::write(&hidden, bytes).unwrap();
            std::fs::rename(&hidden, &path).unwrap();
        }
    }
    path.canonicalize().unwrap()
}

/// Lists what died, and sends it on its way again.
async fn redrive(server: &Part, redriven: &mut u64) {
    for queue in ["detection_queue", "analysis_queue"] {
        for letter in server.dead(queue).await {
            assert_eq!(letter["queue_name"], queue, "{letter}");
            assert!(letter["original_job"]["camera_id"].is_string(), "{letter}");
            assert!(letter["error"].as_str().is_some_and(|error| !error.is_empty()), "{letter}");
        }
        *redriven +=
            server.post(&format!("/v1/queue/{queue}/redrive"), &json!({})).await["moved"].as_u64().unwrap();
    }
}

async fn images_become_events(store: Store, kills: usize, images: usize) {
    let mut scene = Scene::new(store);
    let _services = scene.services(&["--fail=0.2", "--seed=4", "--delay=100ms"]).await;
    let server = scene.start("serve", &[]).await;
    let mut socket = Socket::connect(&server.address, "/v1/event/security_events/ws").await;
    let watcher = scene.start("watch", &[]).await;
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(scene.start("work", &[]).await);
    }

    let (root, killing) = (scene.images(), CancellationToken::new());
    let killed = killing.clone();
    let dropping = tokio::spawn(async move {
        let mut paths = BTreeSet::new();
        // Images come for as long as workers die.
        while paths.len() < images || !killed.is_cancelled() {
            paths.insert(drop_image(&root, paths.len()).display().to_string());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        paths
    });
    let mut chance = fastrand::Rng::with_seed(11);
    for _ in 0..kills {
        // At a random moment, but never while nothing is being worked on.
        tokio::time::sleep(Duration::from_millis(chance.u64(0..200))).await;
        eventually("jobs are under way", async || {
            (server.pressure("detection_queue").await["leased"].as_u64().unwrap() > 2).then_some(())
        })
        .await;
        let at = chance.usize(0..WORKERS);
        workers[at].process.kill9();
        workers[at] = scene.start("work", &[]).await;
    }
    killing.cancel();
    let paths = dropping.await.unwrap();
    let images = paths.len();

    let mut redriven = 0;
    let mut announced: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    eventually("every image is analysed and every batch announced", async || {
        redrive(&server, &mut redriven).await;
        for event in socket.heard() {
            announced.entry(event["data"]["batch_id"].as_str().unwrap().to_owned()).or_default().push(event);
        }
        let (detections, analyses) = (scene.detections(), scene.analyses());
        let analysed: BTreeSet<u64> = analyses.values().flatten().copied().collect();
        let done = |path: &String| {
            let found = detections.get(path).and_then(|found| found.first());
            found.is_some_and(|ids| ids.iter().all(|id| analysed.contains(id)))
        };
        (paths.iter().all(done) && analyses.keys().all(|batch| announced.contains_key(batch))).then_some(())
    })
    .await;
    eventually("nothing is left over", async || {
        let mut left = server.get("/v1/batch/camera/list").await["batches"].as_array().unwrap().len() as u64;
        for queue in ["detection_queue", "analysis_queue"] {
            let pressure = server.pressure(queue).await;
            left += ["current_length", "leased", "delayed", "dead"]
                .iter()
                .map(|part| pressure[part].as_u64().unwrap())
                .sum::<u64>();
        }
        (left == 0).then_some(())
    })
    .await;
    for worker in workers {
        assert_eq!(worker.stop().await, 0);
    }
    assert_eq!(watcher.stop().await, 0);
    for event in socket.heard() {
        announced.entry(event["data"]["batch_id"].as_str().unwrap().to_owned()).or_default().push(event);
    }
    look_at_the_events(&scene, &announced);
    let detected: usize = scene.detections().values().map(Vec::len).sum();
    println!(
        "{images} images, {detected} detected, {} batches, {redriven} redriven, {kills} kills",
        announced.len()
    );
}

fn look_at_the_events(scene: &Scene, announced: &BTreeMap<String, Vec<Value>>) {
    let analyses = scene.analyses();
    assert_eq!(announced.keys().collect::<Vec<_>>(), analyses.keys().collect::<Vec<_>>());
    let (mut ids, analysed) = (BTreeSet::new(), scene.event_ids());
    for (batch, events) in announced {
        let data = &events[0]["data"];
        assert!(analysed[batch].iter().all(|id| data["event_id"] == *id), "{data}: {:?}", analysed[batch]);
        assert!(events.iter().all(|event| event["type"] == "event" && event["data"] == *data), "{events:#?}");
        assert_eq!(events.len(), 1, "the ack and the announcement are one step: {events:#?}");
        assert_eq!(data["id"], data["event_id"]);
        assert!(ids.insert(data["event_id"].as_u64().unwrap()), "two batches have one event id: {data}");
        assert!(CAMERAS.iter().any(|(_, camera)| data["camera_id"] == *camera), "{data}");
        assert_eq!(data["detection_count"], analyses[batch].len(), "{data}");
    }
    // What was added is in exactly one batch, though its image may have been detected more than once.
    let all: Vec<u64> = analyses.values().flatten().copied().collect();
    let different: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(all.len(), different.len());
    let found: BTreeSet<u64> = scene.detections().values().flatten().flatten().copied().collect();
    assert_eq!(different, found);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_become_events_on_the_embedded_store() {
    images_become_events(Store::Embedded, count(6, 60), count(60, 2000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_become_events_on_redis() {
    images_become_events(Store::redis(), count(6, 60), count(60, 2000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_become_events_on_valkey() {
    images_become_events(Store::valkey(), count(3, 30), count(30, 1000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_become_events_on_a_cluster() {
    images_become_events(Store::cluster(), count(3, 30), count(30, 1000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_runs_in_one_process_and_goes_on_after_a_restart() {
    let mut scene = Scene::new(Store::Embedded);
    scene.set("SYSTEM_STATUS_EVERY", "1s");
    scene.set("STAND_IN_DELAY", "1ms");
    let mut seen = BTreeSet::new();
    for (number, (_, camera)) in CAMERAS.iter().enumerate().take(2) {
        let pipeline = scene.start("up", &[]).await;
        let mut events = Socket::connect(&pipeline.address, "/v1/event/security_events/ws").await;
        let mut statuses = Socket::connect(&pipeline.address, "/v1/event/system_status/ws").await;
        drop_image(&scene.images(), number);
        let event = eventually("an event", async || events.heard().pop()).await;
        assert_eq!(event["data"]["camera_id"], *camera);
        assert!(seen.insert(event["data"]["event_id"].as_u64().unwrap()));
        let online = number + 1;
        let status = eventually("a status that knows the camera", async || {
            statuses.heard().into_iter().find(|status| status["data"]["cameras_online"] == online)
        })
        .await;
        assert_eq!(status["type"], "status");
        assert!(status["data"]["gpu_utilization"].is_number(), "{status}");
        assert_eq!(status["data"]["queue_depths"], json!({ "detection_queue": 0, "analysis_queue": 0 }));
        assert_eq!(status["data"]["timestamp"].as_str().unwrap().len(), 26);
        assert_eq!(events.heard(), [Value::Null; 0], "the first image was announced again");
        assert_eq!(pipeline.stop().await, 0);
    }
}

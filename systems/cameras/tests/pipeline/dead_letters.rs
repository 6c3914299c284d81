//! Jobs that cannot be done are listed with their reason, sent again, and thrown away.

use serde_json::json;

use crate::scene::{Scene, Store, eventually, image, job};

async fn dead_letters_are_listed_redriven_and_purged(store: Store) {
    let mut scene = Scene::new(store);
    let _services = scene.services(&[]).await;
    let server = scene.start("serve", &[]).await;
    let _watcher = scene.start("watch", &[]).await;
    server.post("/v1/queue/detection_queue/pause", &json!({})).await;
    let _worker = scene.start("work", &[]).await;

    // Two images that are gone before they are looked at: nothing but another image can help.
    let folder = scene.images().join("Front Door");
    std::fs::create_dir(&folder).unwrap();
    let paths = [folder.join("1.png"), folder.join("2.png")];
    for (number, path) in paths.iter().enumerate() {
        std::fs::write(path, image(number)).unwrap();
    }
    let length = |count: u64| {
        let server = &server;
        async move || (server.pressure("detection_queue").await["current_length"] == count).then_some(())
    };
    eventually("both wait", length(2)).await;
    for path in &paths {
        std::fs::remove_file(path).unwrap();
    }
    server.post("/v1/queue/detection_queue/resume", &json!({})).await;
    let dead = eventually("both are dead", async || {
        let mut dead = server.dead("detection_queue").await;
        dead.sort_by_key(|letter| letter["original_job"]["file_path"].to_string());
        (dead.len() == 2).then_some(dead)
    })
    .await;
    for (letter, path) in dead.iter().zip(&paths) {
        let mut original = letter["original_job"].clone();
        assert!(original.as_object_mut().unwrap().remove("timestamp").is_some());
        assert_eq!(original, job("front_door", &path.canonicalize().unwrap_or(path.clone())));
        assert!(letter["error"].as_str().unwrap().contains("404"), "{letter}");
        assert_eq!(letter["attempt_count"], 1, "a 404 is not worth another attempt");
        assert_eq!(letter["queue_name"], "detection_queue");
        assert_eq!(letter["first_failed_at"], letter["last_failed_at"]);
        assert_eq!(letter.as_object().unwrap().len(), 6);
    }

    // The second image comes back; redriven, one of them is detected and the other dies again.
    std::fs::write(&paths[1], image(1)).unwrap();
    assert_eq!(server.post("/v1/queue/detection_queue/redrive", &json!({})).await["moved"], 2);
    eventually("the second is analysed", async || (!scene.analyses().is_empty()).then_some(())).await;
    let dead = eventually("the first is dead again", async || {
        let dead = server.dead("detection_queue").await;
        (dead.len() == 1).then_some(dead)
    })
    .await;
    assert!(dead[0]["original_job"]["file_path"].as_str().unwrap().ends_with("1.png"), "{dead:?}");
    assert_eq!(server.post("/v1/queue/detection_queue/purge", &json!({})).await["removed"], 1);
    assert_eq!(server.dead("detection_queue").await, [json!(null); 0]);
    let pressure = server.pressure("detection_queue").await;
    assert_eq!((&pressure["current_length"], &pressure["dead"]), (&json!(0), &json!(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_on_the_embedded_store() {
    dead_letters_are_listed_redriven_and_purged(Store::Embedded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_on_redis() {
    dead_letters_are_listed_redriven_and_purged(Store::redis()).await;
}

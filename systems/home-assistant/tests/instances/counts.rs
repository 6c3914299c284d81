//! Three instances under load agree with a separate count to the last request, whatever happens to the store meanwhile.

use std::time::Duration;

use crate::scene::{Counted, Part, Scene, Store, count, eventually, reported};

/// Every number of the report, against what the callers counted.
fn assert_equal(report: &Counted, counted: &Counted) {
    for name in ["requests", "accepted", "errors"] {
        assert_eq!(report.number(name), counted.number(name), "{name}: {report:?} {counted:?}");
    }
    assert_eq!(report.by_status(), counted.by_status());
    assert_eq!(report.endpoints(), counted.endpoints());
    assert_eq!(report.instances(), counted.instances());
}

/// Waits until so many requests were answered, by an instance's own word.
async fn under_way(server: &Part, requests: u64) {
    server
        .report_when("the load is under way", |report| {
            report["requests"]["total"].as_u64().unwrap() >= requests
        })
        .await;
}

async fn agree(store: Store) {
    let requests = count(6_000, 100_000);
    let mut scene = Scene::new(store);
    let (mut server, instances) = scene.all(3).await;
    let all: Vec<&Part> = instances.iter().collect();
    let load = scene.load(&all, requests, &["--connections", "4"]);
    under_way(&server, requests / 10).await;
    // The store goes away in the middle of it and comes back with everything it acknowledged.
    match &mut scene.store {
        Store::Server(redis) => {
            redis.kill9();
            // From loopback, which is not counted.
            eventually("an instance has noticed", async || {
                (instances[0].get("/api/users").await.status == 503).then_some(())
            })
            .await;
            redis.restart();
        }
        Store::Cluster(cluster) => {
            let owner = cluster.first_owner("ha:requests:total");
            cluster.nodes[owner].restart();
        }
        // Its owner is the first process, which counts nothing itself.
        Store::Embedded => {
            server.process.kill9();
            server = scene.server().await;
        }
    }
    let counted = load.count().await;
    assert_eq!(counted.number("unanswered"), 0, "{counted:?}");
    assert_eq!(counted.number("requests"), requests);
    let report =
        server.report_when("all is reported", |report| report["requests"]["total"] == requests).await;
    assert_equal(&reported(&report), &counted);
    // Nothing comes later: what was sent again is known.
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_equal(&reported(&server.report().await), &counted);
    // Whoever reads the documented keys sees the same.
    if let Store::Server(redis) = &scene.store {
        let held = |key: &str| redis.command::<Option<u64>>(&["GET", key]).unwrap_or(0);
        assert_eq!(held("ha:requests:total"), requests);
        assert_eq!(held("ha:requests:accepted"), counted.number("accepted"));
        assert_eq!(held("ha:errors:total"), counted.number("errors"));
        for (endpoint, (count, errors)) in counted.endpoints() {
            assert_eq!(held(&format!("ha:requests:endpoint:{endpoint}")), count, "{endpoint}");
            assert_eq!(held(&format!("ha:errors:endpoint:{endpoint}")), errors, "{endpoint}");
            assert_eq!(held(&format!("ha:response_count:{endpoint}")), count, "{endpoint}");
        }
        for (instance, count) in counted.instances() {
            assert_eq!(held(&format!("ha:requests:instance:{instance}")), count, "{instance}");
        }
        for (status, count) in counted.by_status() {
            assert_eq!(held(&format!("ha:errors:status:{status}")), count, "{status}");
        }
        let hours: Vec<String> = redis.command(&["KEYS", "ha:requests:hourly:*"]);
        assert_eq!(hours.iter().map(|hour| held(hour)).sum::<u64>(), requests, "{hours:?}");
    }
    // What an instance counted and had not flushed when it was told to stop comes in with its end.
    for instance in instances {
        assert_eq!(instance.stop().await, 0);
    }
    eventually("nobody is connected", async || {
        (server.report().await["connections"]["current"] == 0).then_some(())
    })
    .await;
    assert_equal(&reported(&server.report().await), &counted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_agree_with_a_separate_count_on_redis() {
    agree(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_agree_with_a_separate_count_on_valkey() {
    agree(Store::valkey()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_agree_with_a_separate_count_on_a_cluster() {
    agree(Store::cluster()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_agree_with_a_separate_count_on_the_embedded_store() {
    agree(Store::Embedded).await;
}

/// What the program compares by itself, and that it would tell a difference.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_load_compares_by_itself_and_tells_a_difference() {
    let scene = Scene::new(Store::Embedded);
    let (server, instances) = scene.all(2).await;
    let url = server.url();
    let compared = ["--compare", url.as_str(), "--connections", "2"];
    let both: Vec<&Part> = instances.iter().collect();
    let (status, text, _) = scene.load(&both, 300, &compared).ends().await;
    assert!(status == 0 && text.contains("they agree"), "{text}");
    // An instance that counts somewhere else: nothing of what it answers is in this report.
    let mut elsewhere = Scene::new(Store::Embedded);
    elsewhere.set("HA_SCHEMA", &scene.folder.path().join("schema.toml").display().to_string());
    let stray = elsewhere.instance("stray").await;
    let (status, text, counted) =
        scene.load(&[&stray], 10, &["--compare", url.as_str(), "--patience", "1"]).ends().await;
    assert!(status == 1 && text.contains("differ"), "{status}: {text}");
    assert_eq!(counted.number("requests"), 10);
}

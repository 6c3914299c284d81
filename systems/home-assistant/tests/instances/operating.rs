//! What an operator relies on: a clean stop, a store that goes away, who is counted and who is not, Prometheus.

use std::path::Path;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::scene::{Scene, Store, ask, eventually, numbers, program, reported};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_what_runs_finish_and_brings_in_what_was_counted() {
    let mut scene = Scene::new(Store::redis());
    scene.set("REDIS_KEY_PREFIX", "shop:");
    // No flush but the last one.
    let schema = scene.folder.path().join("schema.toml");
    let text = std::fs::read_to_string(&schema).unwrap().replace("flush = \"200ms\"", "flush = \"60s\"");
    std::fs::write(&schema, text.replace("heartbeat = \"2s\"\n", "")).unwrap();
    let mut instance = scene.instance("0").await;
    for _ in 0..5 {
        assert_eq!(instance.get_as("203.0.113.7", "/api/users").await.status, 200);
    }
    let slow = tokio::spawn({
        let address = instance.address.clone();
        async move {
            let caller = "x-forwarded-for: 203.0.113.7\r\n";
            ask(&address, "GET", "/api/devices/1/state?wait_ms=1500", "", caller).await.unwrap()
        }
    });
    let redis = scene.store.server();
    eventually("it is being served", async || {
        // The limit has counted it.
        (redis.command::<u64>(&["ZCARD", "shop:rate_limit:203.0.113.7"]) == 6).then_some(())
    })
    .await;
    assert_eq!(redis.command::<Option<u64>>(&["GET", "shop:requests:total"]), None, "nothing is flushed yet");
    instance.process.signal(Signal::TERM);
    assert_eq!(slow.await.unwrap().status, 200);
    let ended = eventually("it ends", async || instance.process.ended()).await;
    assert_eq!(ended.code(), Some(0), "{}", instance.log());
    assert_eq!(redis.command::<Option<u64>>(&["GET", "shop:requests:total"]), Some(6));
}

/// Requests of a health checker or of the machine itself are no traffic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_the_schema_ignores_are_not_counted() {
    let scene = Scene::new(Store::Embedded);
    let (server, instances) = scene.all(1).await;
    assert_eq!(instances[0].get("/api/users").await.status, 200, "from loopback");
    assert_eq!(instances[0].get_as("::1", "/api/users").await.status, 200);
    assert_eq!(instances[0].get_as("203.0.113.7", "/api/users").await.status, 200);
    assert_eq!(instances[0].get_as("203.0.113.7", "/healthz").await.status, 200, "a page of the operator's");
    let report = server.report_when("one is counted", |report| report["requests"]["total"] == 1).await;
    assert_eq!(report["endpoints"].as_array().unwrap().len(), 1, "{report}");
}

/// Scanners ask for what is not there; each of their paths would be a key for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_that_nobody_serves_are_one_endpoint() {
    let scene = Scene::new(Store::redis());
    let (server, instances) = scene.all(1).await;
    let mut stream = TcpStream::connect(&instances[0].address).await.unwrap();
    const PATHS: usize = 2_000;
    let mut requests = String::new();
    for n in 0..PATHS {
        let end = if n + 1 == PATHS { "connection: close\r\n" } else { "" };
        let from = "x-forwarded-for: 203.0.113.7\r\n";
        requests.extend([&format!("GET /wp-{n}/setup.php HTTP/1.1\r\nhost: x\r\n"), from, end, "\r\n"]);
    }
    let (mut reader, mut writer) = stream.split();
    let mut answers = String::new();
    let (written, read) =
        tokio::join!(writer.write_all(requests.as_bytes()), reader.read_to_string(&mut answers));
    written.unwrap();
    read.unwrap();
    assert_eq!(answers.matches("HTTP/1.1 404").count(), PATHS);
    let report = server.report_when("all are counted", |report| report["requests"]["total"] == PATHS).await;
    assert_eq!(reported(&report).endpoints().len(), 1, "{report}");
    let Store::Server(redis) = &scene.store else { panic!("redis") };
    let keys: Vec<String> = redis.command(&["KEYS", "ha:requests:endpoint:*"]);
    assert_eq!(keys.len(), 1, "{keys:?}");
}

/// While the store is away the limit refuses (503, as the schema says), nothing hangs, and nothing that was counted
/// meanwhile is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_outlives_its_store() {
    let mut scene = Scene::new(Store::redis());
    let (server, instances) = scene.all(1).await;
    let instance = &instances[0];
    assert_eq!(instance.get_as("203.0.113.7", "/api/users").await.status, 200);
    assert_eq!(instance.get("/api/status").await.json()["store"], "here");
    scene.store.server().kill9();
    let refused = eventually("it is noticed", async || {
        let told = instance.get_as("203.0.113.7", "/api/users").await;
        (told.status == 503).then_some(told)
    })
    .await;
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(instance.get("/api/status").await.json()["store"], "away");
    let report = instance.get("/api/stats").await;
    assert_eq!(report.status, 503, "{report:?}");
    assert!(report.json()["code"].as_str().unwrap().starts_with("store."), "{report:?}");
    assert_eq!(instance.get("/healthz").await.status, 200);
    scene.store.server().restart();
    eventually("it goes on by itself", async || {
        (instance.get_as("203.0.113.7", "/api/users").await.status == 200).then_some(())
    })
    .await;
    let report = server
        .report_when("the refusals are counted too", |report| {
            report["errors"]["by_status"]["503"].as_u64().unwrap_or(0) >= 1
                && report["requests"]["accepted"].as_u64().unwrap() >= 2
        })
        .await;
    let told = reported(&report);
    assert_eq!(told.number("requests"), told.number("accepted") + told.by_status()["503"], "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_and_the_instances_say_the_same() {
    let scene = Scene::new(Store::Embedded);
    let (server, instances) = scene.all(2).await;
    let counted = scene.load(&[&instances[0], &instances[1]], 200, &["--connections", "2"]).count().await;
    server.report_when("all is reported", |report| reported(report).number("requests") == 200).await;
    let own = instances[1].get("/api/stats").await.json();
    assert_eq!(own["requests"]["total"], 200, "{own}");
    assert_eq!(numbers(&own["instances"]), counted.instances());
    let total = eventually("a scrape has it", async || {
        let page = server.get("/metrics").await.text;
        let line = page.lines().find(|line| line.starts_with("quaymaster_stats_requests_total{"))?.to_owned();
        line.ends_with(" 200").then_some(line)
    })
    .await;
    assert!(total.contains("ha"), "{total}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_started_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let run = async |args: &[&str]| {
        let output = tokio::process::Command::new(program())
            .args(args)
            .current_dir(folder.path())
            .output()
            .await
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, text) = run(&["run", "--proxies", "everybody", "--store", "memory"]).await;
    assert!(status == Some(1) && text.contains("everybody"), "{text}");
    let (status, text) = run(&["load", "--to", "127.0.0.1:1"]).await;
    assert!(status == Some(1) && text.contains("http://"), "{text}");
    let nobody = format!("http://{}", quaymaster_testkit::servers::free_address());
    let (status, text) = run(&["load", "--to", &nobody]).await;
    assert!(status == Some(1) && text.contains("cannot be reached"), "{text}");
    let (status, text) = run(&["run", "--schema", "nowhere.toml"]).await;
    assert!(status == Some(1) && text.contains("nowhere.toml"), "{text}");
    assert!(!Path::new(folder.path()).join("ha-data").exists(), "and leaves nothing behind");
}

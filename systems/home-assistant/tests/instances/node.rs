//! The example in Node: an instance in another language, in the same counts.

use std::path::Path;

use quaymaster_testkit::proxy::{Cut, FaultProxy, Way};
use quaymaster_testkit::servers::own_ip;
use serde_json::json;
use tokio::net::TcpStream;

use crate::scene::{Part, Scene, Store, reported};

async fn node(scene: &mut Scene, server: &str, instance: &str) -> Part {
    scene.set("HA_SERVER", server);
    scene.set("HA_INSTANCE", instance);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/node/server.mjs");
    scene.start(Path::new("node"), "node", &[&file.display().to_string(), "0", &own_ip().to_string()]).await
}

async fn together(store: Store) {
    let mut scene = Scene::new(store);
    let (server, instances) = scene.all(1).await;
    // Replies from Quaymaster to Node are lost again and again: what is sent again must not count again.
    let address = server.address.parse().unwrap();
    let proxy = FaultProxy::start(address).await;
    let node = node(&mut scene, &format!("http://{}", proxy.address()), "node").await;
    let mut expected = 0;
    for round in 0..6 {
        for _ in 0..20 {
            assert_eq!(node.get_as("203.0.113.7", "/api/users").await.status, 200);
        }
        let brahms = node.get_as("203.0.113.7", "/api/users/2").await;
        assert!(brahms.text.contains("brahms"), "{brahms:?}");
        assert_eq!(node.get_as("203.0.113.7", "/api/users/9").await.status, 404);
        assert_eq!(node.get_as("203.0.113.7", &format!("/wp-{round}.php")).await.status, 404);
        assert_eq!(instances[0].get_as("203.0.113.7", "/api/users").await.status, 200);
        // From loopback: not counted.
        assert_eq!(node.get("/api/users").await.status, 200);
        expected += 24;
        proxy.cut_after(Way::Reply, 0, Cut::Rst);
        let report = server
            .report_when("the round is counted", |report| {
                report["requests"]["total"].as_u64().unwrap() >= expected
            })
            .await;
        assert_eq!(report["requests"]["total"], expected, "no more than that");
    }
    let report = server.report().await;
    let told = reported(&report);
    assert_eq!(told.instances(), [("0".to_owned(), 6), ("node".to_owned(), 138)].into());
    let endpoints = told.endpoints();
    assert_eq!(endpoints["GET /api/users"], (126, 0), "of both: {report}");
    assert_eq!(endpoints["GET /api/users/:id"], (12, 6));
    assert_eq!(endpoints["unmatched"], (6, 6));
    // Its connections are in the gauge too, and leave it when it is killed.
    let open =
        [TcpStream::connect(&node.address).await.unwrap(), TcpStream::connect(&node.address).await.unwrap()];
    server.report_when("its connections are counted", |report| report["connections"]["current"] == 2).await;
    drop(node);
    server.report_when("they are gone", |report| report["connections"]["current"] == 0).await;
    drop(open);
    // The other instance goes on and tells that nobody calls any more.
    let quiet = |report: &serde_json::Value| report["requests"]["speed_per_second"] == 0;
    let report = server.report_when("it is quiet", quiet).await;
    assert_eq!((&report["requests"]["total"], &report["requests"]["accepted"]), (&json!(144), &json!(144)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_in_node_counts_into_the_same_store_on_redis() {
    together(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_in_node_counts_into_the_same_store_on_a_cluster() {
    together(Store::cluster()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_in_node_counts_into_the_same_store_on_the_embedded_store() {
    together(Store::Embedded).await;
}

/// The server that takes its records is away for a while; the rest goes on, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_in_node_keeps_what_it_counted_while_nobody_takes_it() {
    let mut scene = Scene::new(Store::redis());
    let mut server = scene.server().await;
    let address: std::net::SocketAddr = server.address.parse().unwrap();
    let node = node(&mut scene, &server.url(), "node").await;
    assert_eq!(node.get_as("203.0.113.7", "/api/users").await.status, 200);
    server.report_when("the first one", |report| report["requests"]["total"] == 1).await;
    server.process.kill9();
    for _ in 0..50 {
        assert_eq!(node.get_as("203.0.113.7", "/api/users").await.status, 200);
    }
    let listen = address.to_string();
    let server = scene.start(crate::scene::program(), "serve", &["serve", "--listen", &listen]).await;
    server.report_when("all of them", |report| report["requests"]["total"] == 51).await;
    // What is left comes in with its end.
    for _ in 0..7 {
        assert_eq!(node.get_as("203.0.113.7", "/api/users").await.status, 200);
    }
    assert_eq!(node.stop().await, 0);
    assert_eq!(server.report().await["requests"]["total"], 58);
}

//! An instance is killed: its connections leave the gauge, and what it had flushed stays.

use tokio::net::TcpStream;

use crate::scene::{Part, Scene, Store, count, eventually, reported};

/// Connections that stay open and say nothing.
async fn idle(instance: &Part, count: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for _ in 0..count {
        open.push(TcpStream::connect(&instance.address).await.unwrap());
    }
    open
}

async fn vanish(store: Store) {
    let scene = Scene::new(store);
    let (server, mut instances) = scene.all(3).await;
    let all: Vec<&Part> = instances.iter().collect();
    let counted = scene.load(&all, 300, &["--connections", "2"]).count().await;
    let (kept, lost) = (idle(&instances[0], 2).await, idle(&instances[2], 7).await);
    let both = |report: &serde_json::Value| report["connections"]["current"] == 9;
    let report = server.report_when("all nine are counted", both).await;
    assert!(report["connections"]["max_since_startup"].as_u64().unwrap() >= 9, "{report}");
    server.report_when("everything is flushed", |report| reported(report).number("requests") == 300).await;
    instances[2].process.kill9();
    // Within its heartbeat; nobody else has to notice anything.
    let report =
        server.report_when("its seven are gone", |report| report["connections"]["current"] == 2).await;
    assert!(report["connections"]["max_since_startup"].as_u64().unwrap() >= 9, "{report}");
    let told = reported(&report);
    assert_eq!(told.number("requests"), 300);
    assert_eq!(told.instances(), counted.instances(), "what the dead one counted stays counted");
    drop((kept, lost));
    server.report_when("the others hang up", |report| report["connections"]["current"] == 0).await;
    // The same name again is another life of it: its connections count, its requests go on from where they were.
    let again = scene.instance("2").await;
    let open = idle(&again, 3).await;
    server.report_when("three of the new one", |report| report["connections"]["current"] == 3).await;
    let more = scene.load(&[&again], 50, &["--connections", "1"]).count().await;
    let report =
        server.report_when("it counts on", |report| reported(report).number("requests") == 350).await;
    let before = counted.instances()["2"];
    assert_eq!(reported(&report).instances()["2"], before + more.instances()["2"]);
    drop(open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_a_killed_instance_vanish_on_redis() {
    vanish(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_a_killed_instance_vanish_on_valkey() {
    vanish(Store::valkey()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_a_killed_instance_vanish_on_a_cluster() {
    vanish(Store::cluster()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_a_killed_instance_vanish_on_the_embedded_store() {
    vanish(Store::Embedded).await;
}

/// Killed in the middle of its work, an instance takes with it what it had not flushed, and nothing of anybody else's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_killed_under_load_costs_nothing_but_what_it_had_not_flushed() {
    let scene = Scene::new(Store::redis());
    let (server, mut instances) = scene.all(3).await;
    let all: Vec<&Part> = instances.iter().collect();
    let load = scene.load(&all, count(6_000, 100_000), &["--connections", "4"]);
    let of_victim = |report: &serde_json::Value| report["instances"]["1"].as_u64().unwrap_or(0);
    let report = server.report_when("it is under way", |report| of_victim(report) > 200).await;
    let flushed = of_victim(&report);
    instances[1].process.kill9();
    let counted = load.count().await;
    let (answered, unanswered) = (counted.instances(), counted.number("unanswered"));
    // One on each of its connections, and one more where somebody connected again before its port was closed.
    assert!(unanswered <= 8, "no more than were in flight: {unanswered}");
    let survivors = |names: &std::collections::BTreeMap<String, u64>| (names["0"], names["2"]);
    server
        .report_when("the survivors' last flush", |report| {
            survivors(&reported(report).instances()) == survivors(&answered)
        })
        .await;
    // Once more: a report is read in several steps, and flushes may come between them.
    let report = server.report().await;
    let victim = of_victim(&report);
    assert!(
        (flushed..=answered["1"] + unanswered).contains(&victim),
        "{flushed} were flushed, {} answered, {victim} reported",
        answered["1"]
    );
    let told = reported(&report);
    assert_eq!(told.number("requests"), told.instances().values().sum::<u64>(), "the parts are the whole");
    assert_eq!(
        told.number("requests"),
        told.endpoints().values().map(|(count, _)| count).sum::<u64>(),
        "in every way of cutting it"
    );
    eventually("nobody but the report's reader is left", async || {
        (server.report().await["connections"]["current"] == 0).then_some(())
    })
    .await;
}

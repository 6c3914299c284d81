//! Four nodes, one quota: never more than it, and hardly less, whoever is killed.

use crate::scene::{HOUR_US, Part, RUN, Scene, Store, TEN_PAST_US, count, eventually};

/// Dockets that always fail: those divisible by it.
const BROKEN: usize = 50;
const NODES: usize = 4;
const CONCURRENCY: usize = 4;

async fn nodes_share_a_quota(mut scene: Scene) {
    // Calls the nodes may make in an hour: the limit less the safety buffer.
    let quota = count(300, 3_000);
    let last = quota * 4 / 3;
    let kills = count(2, 12);
    scene.set("CALL_LIMIT_PER_HOUR", &(quota + 30).to_string());
    scene.set("COURTLISTENER_SAFETY_BUFFER", "30");
    let ids = scene.dockets(1..=last);
    let (_api, url) =
        scene.api("calls", &["--delay=10ms", "--fail=0.1", &format!("--broken={BROKEN}")]).await;
    let (dockets, run) = (format!("--dockets={}", ids.display()), format!("--run={RUN}"));
    let concurrency = format!("--concurrency={CONCURRENCY}");
    let args = [dockets.as_str(), run.as_str(), concurrency.as_str(), "--attempts=4"];
    let mut nodes = Vec::new();
    for node in 0..NODES {
        nodes.push(scene.node(&format!("node-{node}"), &url, &args).await);
    }

    // While they work, nodes are killed and replaced, the first of them the owner of an embedded store, and the
    // store is killed and comes back.
    let mut lost = 0;
    let share = quota / (kills + 3);
    let made = async |calls: usize| {
        eventually("calls are made", async || (scene.calls("calls").total >= calls).then_some(())).await;
    };
    for kill in 0..kills {
        made(share * (kill + 1)).await;
        let dies = &mut nodes[kill % NODES];
        dies.process.kill9();
        lost += CONCURRENCY;
        *dies = scene.node(&format!("again-{kill}"), &url, &args).await;
    }
    made(share * (kills + 1)).await;
    if scene.restart_store() {
        lost += NODES * CONCURRENCY;
    }

    eventually("every node waits for the next hour", async || {
        nodes
            .iter()
            .all(|node: &Part| node.log().contains("is used up; waiting until=2026-11-16T07:00:00Z"))
            .then_some(())
    })
    .await;
    let status = eventually("the run says so", async || {
        Some(scene.status().await).filter(|status| status["run"]["status"] == "waiting_for_quota")
    })
    .await;
    // What was counted just before has reached the API by now.
    let first = scene.calls("calls").total;
    println!("{first} calls of {quota} in the first hour, {lost} may be missing");
    assert!(first <= quota, "{first} calls");
    assert!(first + lost >= quota, "{first} calls, and at most {lost} were in flight at a death");
    assert_eq!(status["quota"]["used"], quota);
    assert_eq!(status["run"]["api_calls_this_hour"], quota);
    assert_eq!(status["run"]["current_hour"], "2026-11-16_06");
    foreign_view(&scene, quota);

    // The next hour starts fresh, without anybody touching a node. An embedded store counts elapsed time, and follows a
    // clock that is set only slowly: there the nodes are started again, and the first one is told to take the date.
    scene.clock.run_from(TEN_PAST_US + HOUR_US);
    if matches!(scene.store, Store::Embedded) {
        for node in &mut nodes {
            node.stop().await;
        }
        std::fs::write(scene.path("store").join("take-date"), "").unwrap();
        for (number, node) in nodes.iter_mut().enumerate() {
            *node = scene.node(&format!("next-{number}"), &url, &args).await;
        }
    }
    for node in &mut nodes {
        assert_eq!(node.end().await, 1, "dockets have failed: {}", node.log());
    }
    let calls = scene.calls("calls");
    let second = calls.total - first;
    println!("{second} calls in the second hour, {} dockets were fetched again", calls.again());
    assert!((1..=quota).contains(&second), "{second} calls");
    assert!(calls.again() <= lost, "{} fetched again, {lost} were in flight at a death", calls.again());

    // Every docket is processed or listed, and none both. One may be kept and yet listed: its node died before it could
    // say so, and so did those after it.
    let status = scene.status().await;
    let failed: Vec<usize> = failures(&status);
    let unsaid = given_up(&status);
    let mut kept = scene.kept();
    kept.retain(|id| !unsaid.contains(id));
    assert!((1..=last).filter(|id| id % BROKEN == 0).all(|id| failed.contains(&id)), "{failed:?}");
    assert_eq!(status["run"]["processed_count"], kept.len());
    assert_eq!(status["run"]["failed_count"], failed.len());
    assert_eq!(status["run"]["status"], "incomplete");
    let mut all = [kept, failed].concat();
    all.sort_unstable();
    assert_eq!(all, (1..=last).collect::<Vec<_>>());

    // The API is well again: what failed is tried once more, and nothing else is fetched.
    let (_calm, url) = scene.api("calm", &["--delay=1ms"]).await;
    let before = scene.status().await["run"]["failed_count"].as_u64().unwrap() as usize;
    assert_eq!(scene.command("retry", &["--run", RUN]).await.status.code(), Some(0));
    assert_eq!(
        scene.command("retry", &["--run", RUN]).await.status.code(),
        Some(1),
        "they are in the queue already"
    );
    let mut node = scene.node("last", &url, &args).await;
    assert_eq!(node.end().await, 0, "{}", node.log());
    let calm = scene.calls("calm");
    assert_eq!((calm.total, calm.with(200)), (before, before));
    let status = scene.status().await;
    assert_eq!(status["run"]["failed_count"], 0);
    assert_eq!(status["run"]["status"], "completed");
    assert_eq!(scene.kept(), (1..=last).collect::<Vec<_>>());
}

fn failures(status: &serde_json::Value) -> Vec<usize> {
    let listed = status["failures"].as_array().unwrap();
    listed.iter().map(|failure| failure["item"].as_str().unwrap().parse().unwrap()).collect()
}

/// Of these, the ones whose nodes all died.
fn given_up(status: &serde_json::Value) -> Vec<usize> {
    let listed = status["failures"].as_array().unwrap().iter();
    let died = listed.filter(|failure| failure["error"].as_str().unwrap().starts_with("given up: "));
    died.map(|failure| failure["item"].as_str().unwrap().parse().unwrap()).collect()
}

/// What a program of the document reads with plain commands.
fn foreign_view(scene: &Scene, used: usize) {
    let Store::Server(server) = &scene.store else { return };
    let counter: usize = server.command(&["GET", "courtlistener:rate_limit:2026-11-16_06"]);
    assert_eq!(counter, used);
    assert!(server.command::<i64>(&["TTL", "courtlistener:rate_limit:2026-11-16_06"]) > 0);
    let state = format!("courtlistener:pipeline:{RUN}");
    let fields: std::collections::BTreeMap<String, String> = server.command(&["HGETALL", &state]);
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "api_calls_this_hour",
            "current_hour",
            "dag_run_id",
            "dockets_processed",
            "redis_keys",
            "start_time",
            "status"
        ]
    );
    assert_eq!(fields["api_calls_this_hour"], used.to_string());
    assert_eq!(fields["dag_run_id"], RUN);
    let listed: Vec<String> = serde_json::from_str(&fields["dockets_processed"]).unwrap();
    assert!(!listed.is_empty() && listed.len() <= used);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_nodes_share_a_quota_on_redis() {
    nodes_share_a_quota(Scene::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_nodes_share_a_quota_on_valkey() {
    nodes_share_a_quota(Scene::valkey()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_nodes_share_a_quota_on_a_cluster() {
    nodes_share_a_quota(Scene::cluster()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_nodes_share_a_quota_on_the_embedded_store() {
    nodes_share_a_quota(Scene::embedded()).await;
}

//! Stops, crashes and what goes on after them.

use crate::scene::{RUN, Scene, Store, eventually};

/// What every node of these tests is told.
fn args(scene: &Scene, dockets: usize) -> Vec<String> {
    let ids = scene.dockets(1..=dockets);
    vec![format!("--dockets={}", ids.display()), format!("--run={RUN}"), "--concurrency=4".to_owned()]
}

async fn a_stop_lets_calls_end(scene: Scene) {
    let (_api, url) = scene.api("calls", &["--delay=20ms"]).await;
    let args = args(&scene, 120);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut node = scene.node("one", &url, &args).await;
    eventually("it works", async || (scene.calls("calls").total >= 30).then_some(())).await;
    assert_eq!(node.stop().await, 1, "something is left: {}", node.log());
    let stopped = scene.calls("calls").total;
    assert!(stopped < 120, "{stopped}");
    let status = scene.status().await;
    assert_eq!(status["run"]["processed_count"], stopped, "what was called for is noted");
    assert_eq!(status["run"]["status"], "stopped");
    assert_eq!(status["queue"]["fetching"], 0, "and nothing is held");
    let mut node = scene.node("two", &url, &args).await;
    assert_eq!(node.end().await, 0, "{}", node.log());
    assert!(
        node.log().contains("dockets=120 pushed=0"),
        "what is in the queue is recognised: {}",
        node.log()
    );
    let calls = scene.calls("calls");
    assert_eq!((calls.total, calls.again()), (120, 0), "no docket was fetched twice");
    assert_eq!(scene.status().await["run"]["status"], "completed");
    // All of it once more, with the same file: nothing is left to do.
    let mut node = scene.node("three", &url, &args).await;
    assert_eq!(node.end().await, 0, "{}", node.log());
    assert_eq!(scene.calls("calls").total, 120);
    assert!(node.log().contains("pushed=0 done=120"), "{}", node.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_calls_end_and_nothing_is_fetched_twice_on_redis() {
    a_stop_lets_calls_end(Scene::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_calls_end_and_nothing_is_fetched_twice_on_the_embedded_store() {
    a_stop_lets_calls_end(Scene::embedded()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_died_alone_is_gone_on_for_by_the_next() {
    let scene = Scene::redis();
    let (_api, url) = scene.api("calls", &["--delay=20ms"]).await;
    let args = args(&scene, 120);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut node = scene.node("one", &url, &args).await;
    eventually("it works", async || (scene.calls("calls").total >= 30).then_some(())).await;
    node.process.kill9();
    let done = scene.status().await["run"]["processed_count"].as_u64().unwrap() as usize;
    // Without a name it finds the run that is not finished.
    let ids = args[0];
    let mut node = scene.node("two", &url, &[ids]).await;
    assert!(node.log().contains(RUN), "{}", node.log());
    assert_eq!(node.end().await, 0, "{}", node.log());
    let calls = scene.calls("calls");
    assert!(calls.again() <= 4, "{} fetched again, of {done} done", calls.again());
    assert_eq!(calls.by_docket.len(), 120);
    assert_eq!(scene.kept(), (1..=120).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_begin_together_without_a_name_share_one_run() {
    let scene = Scene::redis();
    let (_api, url) = scene.api("calls", &["--delay=10ms"]).await;
    let ids = format!("--dockets={}", scene.dockets(1..=60).display());
    for round in 1..=2 {
        let args = [ids.as_str()];
        let begin = |name| scene.node(name, &url, &args);
        let nodes = tokio::join!(begin("a"), begin("b"), begin("c"), begin("d"));
        for mut node in [nodes.0, nodes.1, nodes.2, nodes.3] {
            assert_eq!(node.end().await, 0, "{}", node.log());
        }
        let Store::Server(server) = &scene.store else { unreachable!("it is a server") };
        let runs: i64 = server.command(&["ZCARD", "courtlistener:{courtlistener:pipeline}:runs"]);
        assert_eq!(runs, round, "one run for all of them, and another when it is finished");
        assert_eq!(scene.calls("calls").total, 60 * round as usize, "every docket once in a run");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_finds_nothing_to_do_does_not_end_the_run_of_one_that_does() {
    let scene = Scene::redis();
    let (_api, url) = scene.api("calls", &["--delay=3s", "--missing=7"]).await;
    let mut stays = scene.node("stays", &url, &["--run", RUN, "--stay"]).await;
    assert_eq!(scene.node("idle", &url, &["--run", RUN]).await.end().await, 0);
    assert_eq!(scene.status().await["run"]["status"], "completed");
    let Store::Server(server) = &scene.store else { unreachable!("it is a server") };
    server.command::<()>(&["RPUSH", "courtlistener:dockets", "7"]);
    let status = async || scene.status().await["run"].clone();
    eventually("it runs again", async || (status().await["status"] == "running").then_some(())).await;
    eventually("it is listed", async || (status().await["failed_count"] == 1).then_some(())).await;
    assert_eq!(stays.stop().await, 1, "{}", stays.log());
    assert_eq!(status().await["status"], "stopped", "{}", stays.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_other_programs_fill_is_worked_on_and_nonsense_is_a_dead_letter() {
    let scene = Scene::redis();
    let (_api, url) = scene.api("calls", &["--delay=1ms", "--missing=7"]).await;
    let Store::Server(server) = &scene.store else { unreachable!("it is a server") };
    // The first once more at the end: it is done by then.
    for job in ["1", "\"2\"", "7", "{\"id\": 3}", "\"../4\"", "1"] {
        server.command::<()>(&["RPUSH", "courtlistener:dockets", job]);
    }
    let mut node = scene.node("one", &url, &["--run", RUN, "--concurrency=1"]).await;
    assert_eq!(node.end().await, 1, "one docket is not there: {}", node.log());
    assert_eq!(scene.kept(), [1, 2]);
    assert_eq!(scene.calls("calls").by_docket["1"], [200], "what is done is not fetched again");
    let status = scene.status().await;
    assert_eq!((&status["run"]["processed_count"], &status["run"]["failed_count"]), (&2.into(), &1.into()));
    assert_eq!(status["failures"][0]["item"], "7");
    assert!(status["failures"][0]["error"].as_str().unwrap().starts_with("answered 404"), "{status}");
    assert_eq!(status["queue"]["dead"], 2);
    // What a program of the document finds.
    let hour: Vec<String> = server.command(&["LRANGE", "courtlistener:failed:2026-11-16_06", "0", "-1"]);
    assert_eq!(hour, ["7"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_keys_are_shown_first_and_removed_when_told() {
    let scene = Scene::redis();
    let (_api, url) = scene.api("calls", &["--delay=1ms"]).await;
    let args = args(&scene, 3);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert_eq!(scene.node("one", &url, &args).await.end().await, 0);
    let Store::Server(server) = &scene.store else { unreachable!("it is a server") };
    let (old, theirs) = ("courtlistener:counter:2026-11-15_06", "courtlistener:notes");
    for key in [old, theirs] {
        server.command::<()>(&["SET", key, "1"]);
    }
    let state = format!("courtlistener:pipeline:{RUN}");
    server.command::<()>(&["PERSIST", &state]);
    let said = scene.command("clean", &[]).await;
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(
        text.contains(&format!("stale: {old}\n")) && text.contains(&format!("without an end: {state}\n")),
        "{text}"
    );
    assert_eq!(server.command::<i64>(&["EXISTS", old]), 1, "nothing was changed");
    let said = scene.command("clean", &["--apply"]).await;
    assert!(String::from_utf8(said.stdout).unwrap().contains("2 put right"));
    assert_eq!(server.command::<i64>(&["EXISTS", old]), 0);
    assert_eq!(server.command::<i64>(&["EXISTS", theirs]), 1, "nobody declared it");
    assert!(server.command::<i64>(&["TTL", &state]) > 0);
    assert_eq!(scene.status().await["run"]["processed_count"], 3);
}

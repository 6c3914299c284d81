//! An API with moods: "not now", a token it does not know, silence.

use crate::scene::{HOUR_US, RUN, Scene, Store, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_now_holds_every_node_and_costs_no_docket_an_attempt() {
    let scene = Scene::redis();
    let ids = scene.dockets(1..=60);
    // Its own quota is below ours: from then on it says when to come back.
    let (_api, url) = scene.api("calls", &["--delay=5ms", "--quota=25", "--retry-after=1"]).await;
    let (dockets, run) = (format!("--dockets={}", ids.display()), format!("--run={RUN}"));
    let args = [dockets.as_str(), run.as_str(), "--attempts=1"];
    let mut nodes = Vec::new();
    for node in ["one", "two"] {
        nodes.push(scene.node(node, &url, &args).await);
    }
    eventually("both nodes leave the API alone, more than once", async || {
        let waiting = |log: String| log.matches("the API asked to be left alone; waiting").count() >= 2;
        nodes.iter().all(|node| waiting(node.log())).then_some(())
    })
    .await;
    let status = scene.status().await;
    assert_eq!((&status["run"]["processed_count"], &status["run"]["failed_count"]), (&25.into(), &0.into()));
    // Every call was counted, those it refused too.
    let calls = scene.calls("calls");
    assert!(calls.with(429) > 0 && calls.with(200) == 25);
    for _ in 0..2 {
        scene.api_clock.run_from(scene.api_clock.now_us() + HOUR_US);
        let done = scene.calls("calls").with(200);
        eventually("it goes on", async || {
            let now = scene.calls("calls").with(200);
            (now >= (done + 25).min(60)).then_some(())
        })
        .await;
    }
    for node in &mut nodes {
        assert_eq!(node.end().await, 0, "one attempt each was enough: {}", node.log());
    }
    assert_eq!(scene.kept(), (1..=60).collect::<Vec<_>>());
    assert_eq!(scene.calls("calls").again(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_that_does_not_answer_fails_the_docket_and_not_the_node() {
    let scene = Scene::embedded();
    let ids = scene.dockets(1..=3);
    let (mut api, url) = scene.api("calls", &["--delay=1ms"]).await;
    api.process.kill9();
    let dockets = format!("--dockets={}", ids.display());
    let mut node = scene.node("one", &url, &[&dockets, "--run", RUN, "--attempts=2"]).await;
    assert_eq!(node.end().await, 1, "{}", node.log());
    let status = scene.status().await;
    assert_eq!(status["run"]["failed_count"], 3);
    let error = status["failures"][0]["error"].as_str().unwrap();
    assert!(error.starts_with("no connection: ") && error.ends_with("(2 attempts)"), "{error}");
    assert_eq!(status["quota"]["used"], 6, "a call that failed was a call");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_hold_no_id_are_told_and_the_rest_is_fetched() {
    let scene = Scene::embedded();
    std::fs::write(scene.path("ids"), "1\n\n# two\nnot an id\n2\r\n1\n").unwrap();
    let (_api, url) = scene.api("calls", &["--delay=1ms"]).await;
    let dockets = format!("--dockets={}", scene.path("ids").display());
    let mut node = scene.node("one", &url, &[&dockets, "--run", RUN]).await;
    assert_eq!(node.end().await, 1, "not all was done: {}", node.log());
    assert!(node.log().contains("line=4") && node.log().contains("1 bad lines"), "{}", node.log());
    assert_eq!(scene.kept(), [1, 2]);
    assert_eq!(scene.calls("calls").total, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_not_accepted_ends_the_node_and_fails_no_docket() {
    let scene = Scene::embedded();
    let ids = scene.dockets(1..=50);
    let (_api, url) = scene.api("calls", &["--delay=1ms", "--token=right"]).await;
    let dockets = format!("--dockets={}", ids.display());
    let mut node =
        scene.node("one", &url, &[&dockets, "--run", RUN, "--api-token=wrong", "--concurrency=4"]).await;
    assert_eq!(node.end().await, 1);
    assert!(node.log().contains("is COURTLISTENER_API_TOKEN right?"), "{}", node.log());
    let refused = scene.calls("calls");
    assert!(
        refused.total <= 4 && refused.with(401) == refused.total,
        "no more than were on their way: {refused:?}"
    );
    let mut node = scene.node("two", &url, &[&dockets, "--run", RUN, "--api-token=right"]).await;
    assert_eq!(node.end().await, 0, "{}", node.log());
    assert_eq!(scene.kept(), (1..=50).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_is_told_by_3_and_waited_for_by_a_node() {
    let mut scene = Scene::redis();
    let ids = scene.dockets(1..=40);
    let (_api, url) = scene.api("calls", &["--delay=20ms"]).await;
    let dockets = format!("--dockets={}", ids.display());
    let mut node = scene.node("one", &url, &[&dockets, "--run", RUN]).await;
    eventually("it works", async || (scene.calls("calls").total >= 10).then_some(())).await;
    let Store::Server(server) = &mut scene.store else { unreachable!("it is a server") };
    server.kill9();
    let away = scene.command("status", &[]).await;
    assert_eq!(away.status.code(), Some(3), "{away:?}");
    eventually("it waits", async || node.log().contains("waiting for it").then_some(())).await;
    let made = scene.calls("calls").total;
    assert!(made < 40, "nobody calls without the store: {made}");
    assert!(scene.restart_store());
    assert_eq!(node.end().await, 0, "{}", node.log());
    assert_eq!(scene.kept(), (1..=40).collect::<Vec<_>>());
    assert!(scene.calls("calls").total <= 44, "at most what was in flight is fetched again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_cannot_keep_a_docket_ends_and_fails_none() {
    let scene = Scene::embedded();
    let ids = scene.dockets(1..=5);
    let (_api, url) = scene.api("calls", &["--delay=1ms"]).await;
    // A file cannot take the place of a folder.
    std::fs::create_dir_all(scene.path("out").join("3.json")).unwrap();
    let dockets = format!("--dockets={}", ids.display());
    let mut node = scene.node("one", &url, &[&dockets, "--run", RUN]).await;
    assert_eq!(node.end().await, 1);
    assert!(node.log().contains("docket 3 cannot be kept"), "{}", node.log());
    let status = scene.status().await;
    assert_eq!((&status["run"]["failed_count"], &status["queue"]["dead"]), (&0.into(), &0.into()));
    std::fs::remove_dir(scene.path("out").join("3.json")).unwrap();
    let mut node = scene.node("two", &url, &[&dockets, "--run", RUN]).await;
    assert_eq!(node.end().await, 0, "{}", node.log());
    assert_eq!(scene.kept(), (1..=5).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_somebody_removed_is_begun_anew_by_those_at_work() {
    let scene = Scene::redis();
    let ids = scene.dockets(1..=40);
    let (_api, url) = scene.api("calls", &["--delay=20ms"]).await;
    let dockets = format!("--dockets={}", ids.display());
    let mut node = scene.node("one", &url, &[&dockets, "--run", RUN]).await;
    eventually("it works", async || (scene.calls("calls").total >= 10).then_some(())).await;
    let Store::Server(server) = &scene.store else { unreachable!("it is a server") };
    let keys: Vec<String> = server.command(&["KEYS", "*courtlistener:pipeline:*"]);
    let words: Vec<&str> = ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    server.command::<()>(&words);
    assert_eq!(node.end().await, 0, "{}", node.log());
    assert_eq!(scene.kept(), (1..=40).collect::<Vec<_>>());
}

//! An eviction policy that is changed while the server runs.

use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::scene::{Scene, until};

#[tokio::test]
async fn a_policy_changed_at_run_time_is_told_once_and_shown() {
    const LOSES: &str = "maxmemory-policy allkeys-lru destroys what the schema holds";
    const SAFE: &str = "maxmemory-policy was changed";
    let server = RedisServer::start(RedisConfig::default());
    let scene = Scene::on(&server.url()).await;
    scene.is_ready().await;
    let policy = |policy: &str| server.command::<()>(&["CONFIG", "SET", "maxmemory-policy", policy]);
    let sets = || {
        let stats = server.info("commandstats", "cmdstat_set").unwrap_or_default();
        let calls = stats.split(',').next().and_then(|calls| calls.strip_prefix("calls="));
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    assert!(scene.get("/metrics").await.1.contains("\nquaymaster_store_evicts 0\n"));

    policy("allkeys-lru");
    until("the change is told", async || !scene.logged(LOSES).is_empty()).await;
    let seen = sets();
    until("it was looked at again", async || sets() > seen + 2).await;
    assert_eq!(scene.logged(LOSES).len(), 1, "{:?}", scene.logged(""));
    until("it is shown", async || {
        scene.json("/v1/status").await["store"]["eviction_policy"] == "allkeys-lru"
    })
    .await;
    let status = scene.json("/v1/status").await;
    let warned =
        status["warnings"].as_array().unwrap().iter().any(|told| told.as_str().unwrap().contains(LOSES));
    assert!(warned, "{}", status["warnings"]);
    let metrics = scene.get("/metrics").await.1;
    assert!(metrics.contains("\nquaymaster_store_eviction_policy{policy=\"allkeys-lru\"} 1\n"), "{metrics}");
    assert!(metrics.contains("\nquaymaster_store_evicts 1\n"), "{metrics}");

    policy("noeviction");
    until("the change back is told", async || scene.logged(SAFE).len() == 1).await;
}

//! A server with nothing to do.

use std::sync::Arc;

use quaymaster::Engine;
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::scene::{Scene, until};

const SCHEMA: &str = "
[schema]
name = \"idle\"
owner = \"tests\"
[queue.jobs]
max_size = 10
[batch.boxes]
by = \"id\"
window = \"1m\"
to = \"jobs\"
";

#[tokio::test]
async fn a_server_with_nothing_to_do_leaves_the_store_alone() {
    let server = RedisServer::start(RedisConfig::default());
    let options = RedisOptions::from_url(&server.url()).unwrap();
    let connect = || async { Arc::new(RedisStore::connect(options).await.unwrap()) as Arc<dyn Engine> };
    let scene = Scene::serving(SCHEMA, connect).await;
    scene.is_ready().await;
    let calls = |command: &str| {
        let stats = server.info("commandstats", &format!("cmdstat_{command}")).unwrap_or_default();
        let calls = stats.split(',').next().and_then(|calls| calls.strip_prefix("calls="));
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    let now = || {
        let time: Vec<String> = server.command(&["TIME"]);
        time[0].parse::<f64>().unwrap() + time[1].parse::<f64>().unwrap() / 1e6
    };
    // By the store's clock, so that a slow machine only makes it less.
    let (began, sets, scripts) = (now(), calls("set"), calls("evalsha") + calls("eval"));
    until("a write was tried three times more", async || calls("set") >= sets + 3).await;
    let seconds = now() - began;
    let (sets, scripts) = (calls("set") - sets, calls("evalsha") + calls("eval") - scripts);
    assert!((sets as f64) < 0.5 * seconds, "{sets} writes tried in {seconds} s");
    assert!((scripts as f64) < seconds, "{scripts} scripts in {seconds} s");
}

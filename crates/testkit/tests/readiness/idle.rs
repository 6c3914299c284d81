//! A server with nothing to do.

use std::sync::Arc;
use std::time::Duration;

use quaymaster::Engine;
use quaymaster::schema::{BUNDLED, Source};
use quaymaster_server::{ChunkPlace, UploadConfig};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::scene::Scene;

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
async fn a_server_with_nothing_to_do_tries_a_write_a_second_and_no_more() {
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
    // Whatever holds this up holds the server up, too: both wait on one thread.
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (sets, scripts) = (calls("set") - sets, calls("evalsha") + calls("eval") - scripts);
    let seconds = now() - began;
    assert!(sets >= 4, "{sets} writes tried while eight seconds were waited for");
    assert!((sets as f64) < seconds + 1.0, "{sets} writes tried in {seconds} s");
    assert!((scripts as f64) < seconds, "{scripts} scripts in {seconds} s");
}

/// The status that a schema declares for every few seconds is work; here it is told once an hour.
#[tokio::test]
async fn the_five_systems_with_nothing_to_do_ask_a_redis_few_commands() {
    five_systems_with_nothing_to_do("1h", 6.0).await;
}

/// As `serve` does without a setting.
#[tokio::test]
async fn the_five_systems_with_nothing_to_do_and_a_status_to_tell_ask_a_redis_few_commands() {
    five_systems_with_nothing_to_do("5s", 8.0).await;
}

/// Nothing is claimed, pushed or uploaded: what a server asks by itself, the commands of its scripts with it. It was 14 a
/// second; three of the commands are the write that is tried every second.
async fn five_systems_with_nothing_to_do(status_every: &str, a_second: f64) {
    let server = RedisServer::start(RedisConfig::default());
    let options = RedisOptions::from_url(&server.url()).unwrap();
    let connect = || async { Arc::new(RedisStore::connect(options).await.unwrap()) as Arc<dyn Engine> };
    let folder = tempfile::tempdir().unwrap();
    let uploads =
        UploadConfig { folder: folder.path().into(), chunks: ChunkPlace::Store, ..UploadConfig::default() };
    let schemas = BUNDLED.map(|(name, text)| Source { name, text });
    let env = |name: &str| (name == "SYSTEM_STATUS_EVERY").then(|| status_every.to_owned());
    let scene = Scene::serving_all(&schemas, &env, &uploads, connect).await;
    scene.is_ready().await;
    // Every command with how often it ran, in scripts too; without what this test asks itself.
    let commands = || {
        let stats: String = server.command(&["INFO", "commandstats"]);
        let calls = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse::<u64>().ok()?))
        };
        stats.lines().filter_map(calls).collect::<std::collections::BTreeMap<_, _>>()
    };
    let seconds = || {
        let time: Vec<String> = server.command(&["TIME"]);
        time[0].parse::<f64>().unwrap() + time[1].parse::<f64>().unwrap() / 1e6
    };
    // The first round of every duty comes at once.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (began, before) = (seconds(), commands());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (after, took) = (commands(), seconds() - began);
    let ran: Vec<(String, u64)> = after
        .into_iter()
        .map(|(name, calls)| {
            let ran = calls - before.get(&name).unwrap_or(&0);
            (name, ran)
        })
        .filter(|(_, calls)| *calls > 0)
        .collect();
    let total: u64 = ran.iter().map(|(_, calls)| calls).sum();
    // By the store's clock, so that a slow machine only makes it less.
    println!("{total} commands in {took} s: {ran:?}");
    assert!((total as f64) < a_second * took, "{total} commands in {took} s: {ran:?}");
}

//! The Redis engine against real servers: replies, scripts, names, facts, scans.

use std::time::Duration;

use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_store::{Code, Effect, Engine, Invocation, Reply, Script, Topology, Workload};
use quaymaster_testkit::servers::{Binary, RedisConfig, RedisServer};

static COUNT: Script = Script {
    id: "test.count",
    source: "return { 'ok', redis.call('INCRBY', KEYS[1], ARGV[1]), false, { 'x', '' } }",
    sha: "d1e0f0a5a07e9ac7f9ce7ab1b9a4eff3b9bbb000",
    effect: Effect::Writes,
};

#[tokio::test]
async fn a_script_runs() {
    let server = RedisServer::start(RedisConfig::default());
    let store = RedisStore::connect(RedisOptions::from_url(&server.url()).unwrap()).await.unwrap();
    let mut call = Invocation::new(&COUNT, Workload::RateLimit);
    call.keys.push("k");
    call.args.push_int(2);
    println!("{:?}", store.run(call).await);
    println!("{:?}", store.health());
    println!("{:?}", store.deployment().await);
    println!("{:?}", server.client_names());
}

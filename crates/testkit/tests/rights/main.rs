//! Scripts of a user whose ACL lacks something: nothing is half-done, and what is missing is told.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation is a failed test")]

mod half;
mod publish;
mod start;

use std::sync::Arc;

use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::conformance::Subject;
use quaymaster_testkit::servers::{Binary, RedisConfig, RedisServer};

/// A server with a user `svc` of these rules beside the default user.
fn server(binary: Binary, rules: &[&str]) -> Arc<RedisServer> {
    let server = RedisServer::start(RedisConfig::of(binary));
    let mut words = vec!["ACL", "SETUSER", "svc", "on", ">pw"];
    words.extend(rules);
    server.command::<()>(&words);
    Arc::new(server)
}

/// The server as a store, by the user `svc`.
async fn subject(name: &'static str, server: &Arc<RedisServer>) -> Subject {
    let url = format!("redis://svc:pw@{}", server.address());
    let store = RedisStore::connect(RedisOptions::from_url(&url).unwrap()).await.unwrap();
    Subject { name, engine: Arc::new(store), clock: None, prefix: "case:".into(), keep: server.clone() }
}

//! The settings that the documents give their Redis, looked at before the first call.

use std::sync::Arc;

use quaymaster::schema::{BUNDLED, Schema, Source, load};
use quaymaster_server::doctor::{self, Eviction, Level};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

const QUIET: &str = "[schema]\nname = \"quiet\"\nowner = \"tests\"\n[queue.jobs]\nmax_size = 10\n";
const TELLS: &str = "[schema]\nname = \"tells\"\nowner = \"tests\"\n[event.news]\nchannel = \"news\"\n";

fn schema(texts: &[(&str, &str)]) -> Schema {
    let sources: Vec<Source<'_>> = texts.iter().map(|(name, text)| Source { name, text }).collect();
    let loaded = load(&sources, &|_| None);
    loaded.schema.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}

/// What is found of `pubsub` and `timeout`; none of it is a reason not to start.
async fn found(url: &str, schema: &Schema) -> Vec<(&'static str, String)> {
    let store = Arc::new(RedisStore::connect(RedisOptions::from_url(url).unwrap()).await.unwrap());
    let findings = doctor::examine(schema, &*store, Eviction::Refused).await.unwrap();
    let found = findings.into_iter().filter(|finding| matches!(finding.check, "pubsub" | "timeout"));
    found
        .map(|finding| {
            assert_eq!(finding.level, Level::Warn);
            (finding.check, finding.to_string())
        })
        .collect()
}

#[tokio::test]
async fn buffers_of_subscribers_and_a_timeout_below_the_documents_are_told_at_the_start() {
    let server = RedisServer::start(RedisConfig::default());
    let (tells, quiet) = (schema(&[("tells.toml", TELLS)]), schema(&[("quiet.toml", QUIET)]));
    let uploads = schema(&BUNDLED);
    let set = |name: &str, value: &str| server.command::<()>(&["CONFIG", "SET", name, value]);
    let checks = async |schema: &Schema| {
        found(&server.url(), schema).await.into_iter().map(|(check, _)| check).collect::<Vec<_>>()
    };
    for (buffer, timeout, expected) in [
        ("pubsub 33554432 8388608 60", "300", &[][..]),
        ("pubsub 0 0 0", "0", &[]),
        ("pubsub 67108864 0 0", "600", &[]),
        ("pubsub 33554431 8388608 60", "300", &["pubsub"]),
        ("pubsub 33554432 1048576 60", "300", &["pubsub"]),
        ("pubsub 33554432 8388608 59", "300", &["pubsub"]),
        ("pubsub 33554432 8388608 60", "299", &["timeout"]),
        ("pubsub 1024 0 0", "60", &["pubsub", "timeout"]),
    ] {
        set("client-output-buffer-limit", buffer);
        set("timeout", timeout);
        assert_eq!(checks(&tells).await, expected, "{buffer} {timeout}");
        assert_eq!(checks(&uploads).await, expected, "{buffer} {timeout}");
        assert_eq!(checks(&quiet).await, [""; 0], "nobody listens to this schema");
    }
    let told = found(&server.url(), &tells).await;
    assert!(told[0].1.contains("pubsub 1024 0 0") && told[0].1.contains("32mb 8mb 60"), "{told:?}");
    assert!(told[1].1.contains("timeout 60") && told[1].1.contains("set timeout 300"), "{told:?}");
}

#[tokio::test]
async fn a_store_that_does_not_tell_its_settings_is_not_accused() {
    let server = RedisServer::start(RedisConfig::default().line("timeout 1"));
    server.command::<()>(&["ACL", "SETUSER", "svc", "on", ">pw", "~*", "&*", "+@all", "-config"]);
    let url = format!("redis://svc:pw@{}", server.address());
    assert_eq!(found(&url, &schema(&[("tells.toml", TELLS)])).await, []);
}

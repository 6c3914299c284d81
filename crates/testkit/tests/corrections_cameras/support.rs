//! The bundled system on a server of its own, and the documented item.

use std::sync::Arc;
use std::time::Duration;

use quaymaster::Quaymaster;
use quaymaster::queue::{Claim, Job, Queue};
use quaymaster::schema::{BUNDLED, Source, load};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::servers::RedisServer;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const JOB: &str = r#"{"camera_id":"front_door","file_path":"/export/foscam/Front Door/image_001.jpg","timestamp":"2026-01-24T10:30:00.000000"}"#;

pub(crate) fn cameras() -> &'static str {
    let (_, text) = BUNDLED.iter().find(|(name, _)| name.contains("cameras")).expect("the system is bundled");
    text
}

pub(crate) async fn ours_with(server: &RedisServer, env: &[(&str, &str)]) -> Quaymaster {
    bind(&server.url(), cameras(), env).await
}

pub(crate) async fn ours(server: &RedisServer) -> Quaymaster {
    ours_with(server, &[]).await
}

/// A node on the store at `url`, which may be a proxy's.
pub(crate) async fn bind(url: &str, text: &str, env: &[(&str, &str)]) -> Quaymaster {
    let lookup =
        |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let loaded = load(&[Source { name: "cameras.toml", text }], &lookup);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    let options = RedisOptions::from_url(url).expect("the fixture's URL");
    let engine = RedisStore::connect(options).await.expect("the server is there");
    Quaymaster::new(Arc::new(schema), Arc::new(engine))
}

/// The next job, however long it takes.
pub(crate) async fn claimed(queue: &Queue, lease: Option<Duration>) -> Job {
    let how = Claim { count: 1, lease, wait: PATIENCE, ..Claim::default() };
    let mut jobs = queue.claim(how).await.expect("an answer");
    assert_eq!(jobs.len(), 1, "a job comes");
    jobs.remove(0)
}

pub(crate) fn length(server: &RedisServer, list: &str) -> i64 {
    server.command(&["LLEN", list])
}

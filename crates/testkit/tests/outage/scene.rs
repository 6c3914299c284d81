//! Nodes on one Redis that goes away and comes back.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quaymaster::limit::{Charge, Limit, Verdict};
use quaymaster::schema::{Outage, Source, load};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster::{DatabaseOptions, Engine, Quaymaster, Settings, Uncarried};

pub(crate) const ALGORITHMS: [&str; 4] = ["fixed_window", "sliding_log", "sliding_window", "token_bucket"];
pub(crate) const ID: &[(&str, &str)] = &[("id", "a")];
/// No call on the store takes longer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(3);
/// No call on the database does.
pub(crate) const DATABASE_DEADLINE: Duration = Duration::from_secs(2);

/// One limit of each algorithm, and a fixed window with a bucket, `limit` an hour, under `policy`.
pub(crate) fn limits(policy: &str, limit: u64) -> String {
    let mut text = "[schema]\nname = \"away\"\nowner = \"tests\"\n".to_owned();
    for algorithm in ALGORITHMS {
        let _ = write!(
            text,
            "[limit.{algorithm}]\nkey = \"{policy}:{algorithm}:{{id}}\"\nalgorithm = \"{algorithm}\"\n\
             limit = {limit}\nwindow = \"1h\"\non_outage = \"{policy}\"\n"
        );
    }
    text + &format!(
        "[limit.bucket]\nkey = \"{policy}:bucket:{{id}}:{{day}}\"\nalgorithm = \"fixed_window\"\n\
         limit = {limit}\nwindow = \"1d\"\non_outage = \"{policy}\"\n"
    )
}

/// All limits of [`limits`].
pub(crate) const NAMES: [&str; 5] =
    ["fixed_window", "sliding_log", "sliding_window", "token_bucket", "bucket"];

pub(crate) fn options(url: &str) -> RedisOptions {
    let mut options = RedisOptions::from_url(url).unwrap();
    options.backoff.base = Duration::from_millis(10);
    options.backoff.max = Duration::from_millis(100);
    options.breaker.cool_down = Duration::from_millis(50);
    options.deadline = DEADLINE;
    options.refresh = Duration::from_millis(200);
    for pool in [
        &mut options.pools.cache,
        &mut options.pools.queue,
        &mut options.pools.pubsub,
        &mut options.pools.ratelimit,
        &mut options.pools.default,
    ] {
        pool.response_timeout = Duration::from_millis(500);
        pool.connect_timeout = Duration::from_millis(500);
    }
    options
}

pub(crate) fn bind(schema: &str, engine: Arc<dyn Engine>, settings: Settings) -> Quaymaster {
    let loaded = load(&[Source { name: "away.toml", text: schema }], &|_| None);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    Quaymaster::with(Arc::new(schema), engine, settings)
}

/// A node on the store at `url`.
pub(crate) async fn node(schema: &str, url: &str, settings: Settings) -> Quaymaster {
    bind(schema, Arc::new(RedisStore::connect(options(url)).await.unwrap()), settings)
}

pub(crate) fn among(nodes: u32) -> Settings {
    Settings { nodes: NonZeroU32::new(nodes), ..Settings::default() }
}

pub(crate) fn counting_in(url: &str) -> Settings {
    Settings { database: Some(DatabaseOptions::from_url(url).unwrap()), ..Settings::default() }
}

/// Waits for what happens by itself.
pub(crate) async fn until(what: &str, mut ready: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !ready().await {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Takes one unit: whether it was let through, and by which policy.
pub(crate) async fn take(limit: &Limit) -> (bool, Option<Outage>) {
    let verdict = limit.take(ID, Charge::one()).await.unwrap();
    (verdict.is_allowed(), verdict.quota().outage)
}

/// Takes until refused; how many were let through under `policy`.
pub(crate) async fn take_all_there_is(limit: &Limit, policy: Outage) -> u64 {
    let mut allowed = 0;
    loop {
        match limit.take(ID, Charge::one()).await.unwrap() {
            Verdict::Allowed(quota) => {
                assert_eq!(quota.outage, Some(policy), "{}", limit.name());
                allowed += 1;
            }
            Verdict::Limited { quota, .. } => {
                assert_eq!(quota.outage, Some(policy), "{}", limit.name());
                return allowed;
            }
        }
    }
}

/// What the store itself has counted.
pub(crate) async fn used(limit: &Limit) -> u64 {
    let mut used = 0;
    // A store that is back may refuse the next connection once more: it was not there a moment ago.
    until("the store answers for the limit", async || {
        let verdict = limit.peek(ID).await.unwrap();
        used = verdict.quota().used;
        verdict.quota().outage.is_none()
    })
    .await;
    used
}

/// Waits until the store answers, without taking anything.
pub(crate) async fn back(quaymaster: &Quaymaster) {
    until("the store answers again", async || quaymaster.engine().time_us().await.is_ok()).await;
}

/// Waits until everything counted without the store is in it.
pub(crate) async fn carried(quaymaster: &Quaymaster) {
    until("everything is in the store", async || {
        quaymaster.outages().uncarried().await == Uncarried::default()
    })
    .await;
}

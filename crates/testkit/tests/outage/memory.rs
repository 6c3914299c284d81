//! A store at its bound of memory: a call that would be counted is an outage; one that is refused anyway is not.

use std::fmt::Write as _;
use std::sync::Arc;

use quaymaster::limit::Charge;
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::redis::RedisStore;
use quaymaster::{Engine, Settings};
use quaymaster_testkit::conformance::command_int;
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use serde_json::json;

use crate::http::{Served, ask, metric};
use crate::scene::{ALGORITHMS, ID, bind, options};

const POLICIES: [&str; 2] = ["allow", "deny"];
/// What a store may hold; a key larger than this fills it.
const BOUND: u64 = 100_000;

/// A limit of each algorithm under each policy.
fn schema() -> String {
    let mut text = "[schema]\nname = \"away\"\nowner = \"tests\"\n".to_owned();
    for policy in POLICIES {
        for algorithm in ALGORITHMS {
            let _ = write!(
                text,
                "[limit.{policy}_{algorithm}]\nkey = \"{policy}:{algorithm}:{{id}}\"\n\
                 algorithm = \"{algorithm}\"\nlimit = 2\nwindow = \"1h\"\non_outage = \"{policy}\"\n"
            );
        }
    }
    text
}

async fn answers_by_policy(
    engine: Arc<dyn Engine>,
    fill: impl AsyncFnOnce(&dyn Engine),
    empty: impl AsyncFnOnce(&dyn Engine),
) {
    let quaymaster = bind(&schema(), engine.clone(), Settings::default());
    let served = Served::start(&quaymaster).await;
    let take = async |name: &str, id: &str| {
        let body = json!({ "key": { "id": id } }).to_string();
        ask(served.address, "POST", &format!("/v1/limit/{name}/take"), &body).await
    };
    let limits = || {
        let of = |policy| ALGORITHMS.map(|algorithm| (policy, format!("{policy}_{algorithm}")));
        POLICIES.into_iter().flat_map(of)
    };
    for (_, name) in limits() {
        assert!(quaymaster.limit(&name).unwrap().take(ID, Charge::of(2)).await.unwrap().is_allowed());
    }
    fill(&*engine).await;
    for (policy, name) in limits() {
        let used_up = take(&name, "a").await;
        assert_eq!((used_up.status, used_up.policy), (200, None), "{name}: {}", used_up.body);
        assert_eq!(used_up.body["allowed"], false, "{name}: nothing is written: {}", used_up.body);
        assert_eq!(used_up.body.get("outage"), None, "{name}");
        for _ in 0..3 {
            let told = take(&name, "b").await;
            if policy == "deny" {
                assert_eq!((told.status, told.policy), (503, None), "{name}: {}", told.body);
                assert_eq!(told.body["code"], "store.out_of_memory", "{name}");
                assert_ne!(told.body["may_have_run"], true, "{name}: {}", told.body);
            } else {
                assert_eq!((told.status, told.policy.as_deref()), (200, Some("allow")), "{name}");
                assert_eq!(
                    (&told.body["allowed"], &told.body["outage"]),
                    (&json!(true), &json!("allow")),
                    "{name}"
                );
            }
        }
        let line =
            format!("quaymaster_outage_answers_total{{kind=\"limit\",name=\"{name}\",policy=\"{policy}\"}}");
        assert_eq!(
            metric(served.address, &line).await,
            3,
            "{name}: without those of the limit that is used up"
        );
    }
    empty(&*engine).await;
    for (_, name) in limits() {
        let told = take(&name, "b").await;
        assert_eq!((told.status, told.policy), (200, None), "{name}: {}", told.body);
        assert_eq!(told.body["used"], 1, "{name}: nothing was counted meanwhile");
        assert_eq!(take(&name, "a").await.body["allowed"], false, "{name}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_limit_answers_by_its_policy_on_an_embedded_store_at_its_bound() {
    let options = EmbeddedOptions { max_memory_bytes: BOUND, ..EmbeddedOptions::default() };
    let store = Arc::new(EmbeddedStore::memory(options).await.unwrap());
    let big = "x".repeat(BOUND as usize);
    answers_by_policy(
        store,
        async |engine| assert_eq!(command_int(engine, &["APPEND", "big", &big]).await, BOUND as i64),
        async |engine| assert_eq!(command_int(engine, &["DEL", "big"]).await, 1),
    )
    .await;
}

#[tokio::test]
async fn a_limit_answers_by_its_policy_on_a_redis_at_its_maxmemory() {
    let server = RedisServer::start(RedisConfig::default());
    let store = Arc::new(RedisStore::connect(options(&server.url())).await.unwrap());
    answers_by_policy(
        store,
        async |_| server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]),
        async |_| server.command::<()>(&["CONFIG", "SET", "maxmemory", "0"]),
    )
    .await;
}

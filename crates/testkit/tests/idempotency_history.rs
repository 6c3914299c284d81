//! Idempotencies under processes that are stopped past their claims and killed at any moment: thousands of random
//! histories, in none of which an operation finishes twice, a replay differs or a live claim is reclaimed.
//!
//! Fifty histories a store by default, three thousand under `QUAYMASTER_SOAK=1`; `QUAYMASTER_HISTORIES` and
//! `QUAYMASTER_SEED` choose others. A seed gives the same intentions, not the same interleaving.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::time::{Duration, Instant};

use quaymaster_testkit::crew::{Crew, PATIENCE, unwatched};
use quaymaster_testkit::differential::count;
use quaymaster_testkit::idempotency_history::{EPOCH_US, LANES, Log, Tally, check};
use quaymaster_testkit::servers::{Binary, Cluster, ClusterConfig, RedisConfig, RedisServer};

/// Workers on `store`, stopped and killed at random, until so many histories are made.
fn roam(store: &str, histories: u64, defect: &[&str]) -> Vec<Log> {
    let program = env!("CARGO_BIN_EXE_idempotency_worker");
    // A quarter more: what stands still when its turn comes makes none.
    let histories = histories + histories / 4;
    let epochs = u32::try_from(histories.div_ceil(LANES as u64)).expect("not as many") + 1;
    let (began, until) = (Instant::now(), Duration::from_micros(EPOCH_US as u64) * epochs);
    let crew = Crew { program, store, defect, past_lease_ms: 110..300, most: PATIENCE + until };
    crew.roam(&unwatched(), || began.elapsed().as_secs_f64() / until.as_secs_f64())
}

fn holds(store: &str, url: &str) {
    let histories = count(50, 3000);
    let logs = roam(url, histories, &[]);
    let tally = check(&logs).unwrap_or_else(|wrong| panic!("{store}: {wrong}"));
    println!("{store}: {} killed, {tally:?}", logs.iter().filter(|log| log.killed).count());
    meaningful(&tally, histories);
}

/// A run in which nothing happened proves nothing.
fn meaningful(tally: &Tally, histories: u64) {
    assert!(tally.records as u64 >= histories * 9 / 10, "{tally:?}");
    let seen = [
        tally.finished,
        tally.reclaimed,
        tally.replays / 4,
        tally.abandoned,
        tally.again * 4,
        tally.lost * 4,
    ];
    for seen in seen {
        assert!(seen as u64 >= histories / 10, "{tally:?}");
    }
}

#[test]
fn on_disk_every_history_holds_through_the_owners_death() {
    let folder = tempfile::tempdir().expect("a folder");
    holds("embedded", &format!("embedded:{}", folder.path().display()));
}

#[test]
fn on_redis_7_every_history_holds() {
    let server = RedisServer::start(RedisConfig::default());
    holds("redis7", &server.url());
}

#[test]
fn on_valkey_9_every_history_holds() {
    let server = RedisServer::start(RedisConfig::of(Binary::Valkey9));
    holds("valkey9", &server.url());
}

#[test]
fn on_a_cluster_every_history_holds() {
    let cluster = Cluster::start(ClusterConfig::default());
    holds("cluster", &cluster.url());
}

/// What is found when `new` stands in place of `old` in the scripts of `operation`.
fn found(operation: &str, old: &str, new: &str) -> String {
    let server = RedisServer::start(RedisConfig::default());
    let logs = roam(&server.url(), 100, &[operation, old, new]);
    let wrong = check(&logs).expect_err("the defect must be found");
    println!("{operation}: {wrong}");
    wrong
}

#[test]
fn a_finish_that_compares_no_token_is_found() {
    let _ = found("idempotency.finish", "holder ~= token or ", "");
}

#[test]
fn an_abandon_that_compares_no_token_is_found() {
    let _ = found("idempotency.abandon", "holder ~= token or ", "");
}

#[test]
fn a_begin_that_takes_a_live_claim_over_is_found() {
    let wrong = found("idempotency.begin", "x <= now_ms", "x - 50 <= now_ms");
    assert!(wrong.contains("reclaimed") || wrong.contains("told that it is lost"), "{wrong}");
}

#[test]
fn a_finish_that_writes_over_another_is_found() {
    let _ = found(
        "idempotency.finish",
        "if state == \"f\" and holder == tail then",
        "if state == \"f\" then state, holder, x = \"p\", token, now_ms + 1 end if false then",
    );
}

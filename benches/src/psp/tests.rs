//! The mix works on every way; nothing here is about time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use quaymaster_server::config::{Config, Overrides, RawConfig, Thresholds};
use quaymaster_server::{Listening, Server};
use tokio::runtime::{Builder, Runtime};

use super::arena::{Arena, Figures};
use super::direct::{Direct, SCHEMA};
use super::inside;
use super::mix::{Mix, Operation};
use super::over_http::OverHttp;
use super::pace::Plan;
use super::way::Way;
use super::witness::watch;
use crate::process::Redis;

/// A few hundred steps.
const PLAN: Plan = Plan {
    operations_per_s: 1_000.0,
    lasting: Duration::from_millis(500),
    // All of it: a busy machine fails no test.
    patience: Duration::from_secs(10),
};

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// The server in this process: a test must not lean on a binary somebody built some time ago.
async fn serve(redis: &Redis) -> Result<u16> {
    let raw = RawConfig::parse("test.toml", "", std::path::Path::new(""), &|_| None)
        .map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
    let overrides = Overrides { listen: Some("127.0.0.1:0".into()), ..Overrides::default() };
    let config = Config::resolve(raw, overrides).map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
    let psp = Direct::connect(redis, SCHEMA).await?.psp;
    let server = Server::new(Listening::bind(config.server).await?, psp, Thresholds::default());
    let port = server.address().tcp().map_or(0, |address| address.port());
    tokio::spawn(server.run(std::future::pending()));
    Ok(port)
}

fn counts(figures: &Figures) -> BTreeMap<&'static str, u64> {
    figures.by_operation.iter().map(|(operation, count, _)| (operation.name(), *count)).collect()
}

/// Every fifth step is of one kind, give or take the last round.
fn assert_equal_parts(figures: &Figures) {
    let (counts, fifth) = (counts(figures), figures.steps / 5);
    for operation in [Operation::Acquire, Operation::Release, Operation::Get] {
        assert!(counts[operation.name()].abs_diff(fifth) <= 1, "{operation:?}: {counts:?}");
    }
    for operation in [Operation::Enter, Operation::Leave, Operation::Begin] {
        assert!(counts[operation.name()].abs_diff(2 * fifth) <= 2, "{operation:?}: {counts:?}");
    }
    assert!(counts[Operation::Put.name()] >= 1, "{counts:?}");
}

fn assert_one_round_trip_an_operation(arena: &Arena, runtime: &Runtime) -> Result<()> {
    let seen = watch(arena, runtime, PLAN)?;
    let figures = &seen.figures;
    assert_equal_parts(figures);
    assert_eq!(counts(figures)[Operation::Finish.name()], counts(figures)[Operation::Begin.name()]);
    // A quota's minute that ends in between is asked for again.
    let spare = 5;
    let sent: u64 = seen.sent().map(|(_, count)| count).sum();
    assert!((figures.operations..=figures.operations + spare).contains(&sent), "{:?}", seen.commands);
    assert!((figures.operations..=figures.operations + spare).contains(&figures.round_trips));
    Ok(())
}

#[test]
fn through_the_crate_every_operation_is_one_round_trip() -> Result<()> {
    let (runtime, folder) = (runtime()?, tempfile::tempdir()?);
    assert_one_round_trip_an_operation(&Arena::direct(&runtime, folder.path())?, &runtime)
}

#[test]
fn through_http_every_operation_is_one_round_trip() -> Result<()> {
    let (runtime, folder) = (runtime()?, tempfile::tempdir()?);
    let redis = Redis::start(folder.path(), None::<&str>)?;
    let port = runtime.block_on(serve(&redis))?;
    let arena = Arena::new(Way::OverHttp(OverHttp::new(port)), redis);
    assert_one_round_trip_an_operation(&arena, &runtime)
}

#[test]
fn as_documented_a_guarded_step_takes_many_round_trips() -> Result<()> {
    let (runtime, folder) = (runtime()?, tempfile::tempdir()?);
    let arena = Arena::documented(folder.path())?;
    let seen = watch(&arena, &runtime, PLAN)?;
    assert_equal_parts(&seen.figures);
    assert_eq!(counts(&seen.figures)[Operation::Finish.name()], 0, "there is no command for it");
    let sent: u64 = seen.sent().map(|(_, count)| count).sum();
    assert_eq!(sent, seen.figures.round_trips);
    // A check 1, a create 5, an execute 9, an update 3, a status 1 or 3.
    let expected = seen.figures.steps as f64 / 5.0 * 19.0;
    assert!((expected - 10.0..expected * 1.2).contains(&(sent as f64)), "{sent} for {expected}");
    Ok(())
}

#[test]
fn redis_is_seen_inside_every_operation() -> Result<()> {
    let (runtime, folder) = (runtime()?, tempfile::tempdir()?);
    let inside = inside::watch(&Arena::direct(&runtime, folder.path())?, &runtime, PLAN)?;
    let known =
        Operation::ALL.iter().all(|operation| inside.keys().any(|name| name.starts_with(operation.name())));
    assert!(known, "{inside:?}");
    Ok(())
}

#[test]
fn both_ways_leave_their_records_under_the_documents_keys() -> Result<()> {
    let (runtime, ours, theirs) = (runtime()?, tempfile::tempdir()?, tempfile::tempdir()?);
    let (ours, theirs) = (Arena::direct(&runtime, ours.path())?, Arena::documented(theirs.path())?);
    for arena in [&ours, &theirs] {
        arena.run(&runtime, PLAN)?;
        let mut connection = arena.redis.connect()?;
        for (pattern, holds) in [
            ("idem:check:PSP0000:DEMO_MERCHANT:QR00000000:100000", "string"),
            ("idem:create:PSP-TX-000000001", "string"),
            ("idem:execute:*", "string"),
            ("idem:update:*:50", "string"),
            ("rl:PSP0000:*", "string"),
            ("rl:tx:*", "zset"),
            ("status:*", "hash"),
        ] {
            let found: Vec<String> = redis::cmd("KEYS").arg(pattern).query(&mut connection)?;
            let key = found.first().with_context(|| format!("{}: no {pattern}", arena.way.name()))?;
            let kind: String = redis::cmd("TYPE").arg(key).query(&mut connection)?;
            assert_eq!(kind, holds, "{key}");
        }
        let locks: Vec<String> = redis::cmd("KEYS").arg("lock:*").query(&mut connection)?;
        assert!(locks.is_empty(), "{} kept {locks:?}", arena.way.name());
    }
    Ok(())
}

#[test]
fn a_payment_that_ran_before_fails_the_run_instead_of_counting() -> Result<()> {
    let (runtime, ours, theirs) = (runtime()?, tempfile::tempdir()?, tempfile::tempdir()?);
    for mut arena in [Arena::direct(&runtime, ours.path())?, Arena::documented(theirs.path())?] {
        arena.run(&runtime, PLAN)?;
        arena.mix = Arc::new(Mix::new());
        let again = arena.run(&runtime, PLAN);
        assert!(again.is_err(), "{}: {again:?}", arena.way.name());
    }
    Ok(())
}

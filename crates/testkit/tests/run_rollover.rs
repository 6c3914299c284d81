//! The hour turns while workers take from a limit and tell a run what they did: no call is counted in two hours or in
//! none, the run's hour and its count belong together whenever anybody looks, and failures are listed in their hour.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use quaymaster::limit::Charge;
use quaymaster::run::{FailuresAsk, Items};
use quaymaster::schema::{Kind, Source, Spelling, load};
use quaymaster::store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster::store::{Reply, Topology};
use quaymaster::{Engine, Quaymaster};
use quaymaster_testkit::between::Between;
use quaymaster_testkit::conformance::{command, command_int, command_text};
use quaymaster_testkit::held_clock::HeldClock;
use quaymaster_testkit::liar::Liar;
use quaymaster_testkit::servers::{Binary, Cluster, ClusterConfig, RedisConfig, RedisServer};

const HOUR_US: i64 = 3_600_000_000;
/// The last second of an hour.
const BEFORE_US: i64 = 527_778 * HOUR_US - 1_000_000;
const TURNS: i64 = 3;
const LIES_MS: [i64; 4] = [0, 7_200_000, -7_200_000, 3_599_000];
/// Calls before and after every turn.
const LOAD: u64 = 200;
const ID: &str = "manual_2030-01-01T00:00:00+00:00";

const SCHEMA: &str = "[schema]\nname = \"turn\"\nowner = \"tests\"\n\
    [limit.calls]\nkey = \"calls:{hour}\"\nalgorithm = \"fixed_window\"\nlimit = 1_000_000\nwindow = \"1h\"\nttl = \"24h\"\n\
    [run.pipeline]\nkey = \"pipeline:{dag_run_id}\"\nfailed_key = \"failed:{hour}\"\nstate_ttl = \"25h\"\nhour_ttl = \"24h\"\n\
    limit = \"calls\"\n";

fn bind(engine: Arc<dyn Engine>) -> Quaymaster {
    let loaded = load(&[Source { name: "turn.toml", text: SCHEMA }], &|_| None);
    Quaymaster::new(Arc::new(loaded.schema.expect("the schema is right")), engine)
}

/// A key of the hour `number` hours after the first, as the store spells it.
fn key(quaymaster: &Quaymaster, kind: Kind, name: &str, role: &str, number: i64) -> String {
    let spelling = match quaymaster.engine().topology() {
        Topology::Single => Spelling::Single,
        Topology::Cluster => Spelling::Cluster,
    };
    let resource = quaymaster.schema().resource(kind, name).expect("declared");
    let values: &[(&str, &str)] = if role == "state" { &[("dag_run_id", ID)] } else { &[] };
    let mut key = Vec::new();
    let pattern = &resource.key(role).expect("a role").pattern;
    pattern.render(values, BEFORE_US + number * HOUR_US, spelling, &mut key).expect("a key");
    String::from_utf8(key).expect("text")
}

/// The hour `number` hours after the first, as the documents write it.
fn hour_text(number: i64) -> String {
    let moment = quaymaster::run::moment(BEFORE_US + number * HOUR_US);
    moment[..13].replace('T', "_")
}

async fn counter(quaymaster: &Quaymaster, hour: i64) -> u64 {
    let key = key(quaymaster, Kind::Limit, "calls", "limit", hour);
    command_text(&**quaymaster.engine(), &["GET", &key])
        .await
        .map_or(0, |count| count.parse().expect("a count"))
}

/// What a foreign program reads of the run in one command: the hour, and the calls in it.
async fn seen(quaymaster: &Quaymaster) -> (String, u64) {
    let key = key(quaymaster, Kind::Run, "pipeline", "state", 0);
    let words: [&[u8]; 4] = [b"HMGET", key.as_bytes(), b"current_hour", b"api_calls_this_hour"];
    let Reply::Array(told) = command(&**quaymaster.engine(), key.as_bytes(), &words).await.expect("a hash")
    else {
        panic!("no hash")
    };
    let text = |reply: &Reply| match reply {
        Reply::Bytes(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("{other:?}"),
    };
    (text(&told[0]), text(&told[1]).parse().expect("a count"))
}

/// What the workers were told.
#[derive(Default)]
struct Told {
    stop: AtomicBool,
    calls: AtomicU64,
    failed: AtomicU64,
}

async fn work(quaymaster: Quaymaster, worker: usize, told: Arc<Told>) {
    let (limit, run) =
        (quaymaster.limit("calls").expect("declared"), quaymaster.run("pipeline").expect("declared"));
    let mut number = 0;
    while !told.stop.load(SeqCst) {
        assert!(limit.take(&[], Charge::one()).await.expect("take").is_allowed());
        told.calls.fetch_add(1, SeqCst);
        let item = format!("{worker}-{number}");
        if number % 5 == 4 {
            assert!(run.failed(ID, &item, Some("HTTP 500"), None).await.expect("failed").listed);
            told.failed.fetch_add(1, SeqCst);
        } else {
            assert_eq!(run.processed(ID, &[&item], None).await.expect("processed").added, 1);
        }
        number += 1;
        // A store in memory never lets go by itself.
        tokio::task::yield_now().await;
    }
}

/// Looks at the run as other programs do, for as long as there is work.
async fn watch(quaymaster: Quaymaster, told: Arc<Told>, looks: Arc<AtomicU64>) {
    let run = quaymaster.run("pipeline").expect("declared");
    while !told.stop.load(SeqCst) {
        if looks.load(SeqCst).is_multiple_of(3) {
            run.show(ID, Items::Without).await.expect("show").expect("a run");
        }
        let (hour, calls) = seen(&quaymaster).await;
        // The hour's counter only grows: what was rendered of it cannot be more than it is now.
        let number = (0..=TURNS).find(|number| hour_text(*number) == hour).expect("an hour of the store's");
        let counted = counter(&quaymaster, number).await;
        assert!(calls <= counted, "{calls} calls in {hour}, where {counted} are counted");
        looks.fetch_add(1, SeqCst);
        tokio::task::yield_now().await;
    }
}

async fn turns(engine: Arc<dyn Engine>, set_time: impl Fn(i64)) {
    let quaymaster = bind(engine.clone());
    let run = quaymaster.run("pipeline").expect("declared");
    let _ = run.start(Some(ID), None).await.expect("start");
    let (told, looks) = (Arc::new(Told::default()), Arc::new(AtomicU64::new(0)));
    let mut tasks: Vec<_> = LIES_MS
        .iter()
        .enumerate()
        .map(|(worker, lie_ms)| {
            let node = bind(Arc::new(Liar::new(engine.clone(), *lie_ms)));
            tokio::spawn(work(node, worker, told.clone()))
        })
        .collect();
    tasks.push(tokio::spawn(watch(bind(engine.clone()), told.clone(), looks.clone())));
    let load = async || {
        let (calls, looked) = (told.calls.load(SeqCst) + LOAD, looks.load(SeqCst) + 10);
        while told.calls.load(SeqCst) < calls || looks.load(SeqCst) < looked {
            assert!(tasks.iter().all(|task| !task.is_finished()), "a worker has ended");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    load().await;
    let mut past = Vec::new();
    for hour in 0..TURNS {
        set_time(BEFORE_US + hour * HOUR_US + 1_000_000);
        // Asked after the turn: every later change of it would be a call in an hour that is over.
        // Valkey looks at the clock once for many calls: the hour has turned when a script says so.
        let turned = async || {
            let state = run.show(ID, Items::Without).await.expect("show").expect("a run");
            state.current_hour == hour_text(hour + 1)
        };
        let mut looks = 0;
        while !turned().await {
            looks += 1;
            assert!(looks < 10_000, "the hour does not turn");
        }
        past.push(counter(&quaymaster, hour).await);
        load().await;
        for (hour, count) in past.iter().enumerate() {
            assert_eq!(
                counter(&quaymaster, hour as i64).await,
                *count,
                "hour {hour} was counted in after its end"
            );
        }
        let state = run.show(ID, Items::Without).await.expect("show").expect("a run");
        assert_eq!(state.current_hour, hour_text(hour + 1), "the run is in the store's hour");
        if hour + 1 < TURNS {
            set_time(BEFORE_US + (hour + 1) * HOUR_US);
            load().await;
        }
    }
    told.stop.store(true, SeqCst);
    for task in tasks {
        task.await.expect("a worker ends well");
    }
    let (calls, failed) = (told.calls.load(SeqCst), told.failed.load(SeqCst));
    let mut counts = Vec::new();
    for hour in -1..=TURNS + 1 {
        counts.push(counter(&quaymaster, hour).await);
    }
    println!("{calls} calls, counted {counts:?}; {failed} failed; {} looks", looks.load(SeqCst));
    assert_eq!((counts[0], counts[counts.len() - 1]), (0, 0), "only the store's own hours are counted");
    assert!(counts[1..=TURNS as usize + 1].iter().all(|count| *count > 0), "{counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), calls, "each call in one hour: {counts:?}");
    let state = run.show(ID, Items::With).await.expect("show").expect("a run");
    assert_eq!(state.calls_this_hour, counts[TURNS as usize + 1], "the calls of the last hour");
    assert_eq!((state.processed_count, state.failed_count), (calls - failed, failed), "{state:?}");
    // Every failure stands in the list of the hour of its moment, once. On a cluster the list is a step of its own: the
    // hour may turn in between, for as many as are on their way.
    let late = if engine.topology() == Topology::Cluster { LIES_MS.len() as u64 } else { 0 };
    let mut views = BTreeMap::new();
    for hour in 0..=TURNS {
        let view = key(&quaymaster, Kind::Run, "pipeline", "failed", hour);
        views.insert(hour_text(hour), command_int(&*engine, &["LLEN", &view]).await as u64);
    }
    assert_eq!(views.values().sum::<u64>(), failed, "{views:?}");
    for (hour, listed) in &views {
        let (mut found, mut cursor) = (0, None::<String>);
        loop {
            let ask = FailuresAsk {
                hour: Some(hour),
                count: 1000,
                cursor: cursor.as_deref(),
                ..FailuresAsk::default()
            };
            let page = run.failures(ask).await.expect("failures");
            found += page.failures.len() as u64;
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert!(found.abs_diff(*listed) <= late, "{hour}: {found} failed, {listed} listed");
    }
}

async fn on_server(binary: Binary) {
    let clock = HeldClock::frozen(BEFORE_US);
    let server = RedisServer::start(RedisConfig { env: clock.environment(), ..RedisConfig::of(binary) });
    let options = RedisOptions::from_url(&server.url()).expect("the fixture's URL");
    let engine = RedisStore::connect(options).await.expect("the server is there");
    turns(Arc::new(engine), |us| clock.freeze(us)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runs_hour_turns_on_redis_7() {
    on_server(Binary::Redis7).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runs_hour_turns_on_redis_6_2() {
    on_server(Binary::Redis62).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runs_hour_turns_on_valkey_9() {
    on_server(Binary::Valkey9).await;
}

/// A cluster whose clock stands still in the last second of an hour.
async fn cluster() -> (HeldClock, Cluster, Arc<dyn Engine>) {
    // Nodes that meet need time that passes.
    let clock = HeldClock::running(BEFORE_US - 600_000_000);
    let cluster = Cluster::start(ClusterConfig { env: clock.environment(), ..ClusterConfig::default() });
    for node in &cluster.nodes {
        // An hour that passes at once is no silence of the others.
        node.command::<()>(&["CONFIG", "SET", "cluster-node-timeout", "100000000"]);
    }
    clock.freeze(BEFORE_US);
    let options = RedisOptions::from_url(&cluster.url()).expect("the fixture's URL");
    let engine = RedisStore::connect(options).await.expect("the cluster is there");
    (clock, cluster, Arc::new(engine))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runs_hour_turns_on_a_cluster() {
    let (clock, _cluster, engine) = cluster().await;
    turns(engine, |us| clock.freeze(us)).await;
}

/// A node half an hour ahead of the cluster, whose hour turns right before `operation`: the limit is asked in the old
/// hour, the run in the new one.
fn ahead(clock: HeldClock, engine: Arc<dyn Engine>, operation: &'static str) -> (Arc<Between>, Quaymaster) {
    let turn = async move { clock.freeze(BEFORE_US + 1_000_000) };
    let between = Between::new(engine, operation, Box::pin(turn));
    let told = Arc::new(AtomicI64::new(BEFORE_US + HOUR_US / 2));
    let node = bind(Arc::new(Liar::told(between.clone(), told)));
    (between, node)
}

async fn take(quaymaster: &Quaymaster, times: usize) {
    for _ in 0..times {
        let limit = quaymaster.limit("calls").expect("declared");
        assert!(limit.take(&[], Charge::one()).await.expect("take").is_allowed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hour_that_turns_between_limit_and_run_takes_no_count_along() {
    let (clock, _cluster, engine) = cluster().await;
    let quaymaster = bind(engine.clone());
    let _ = quaymaster.run("pipeline").expect("declared").start(Some(ID), None).await.expect("start");
    take(&quaymaster, 5).await;
    let (between, node) = ahead(clock, engine, "run.show");
    let run = node.run("pipeline").expect("declared");
    run.show(ID, Items::Without).await.expect("show").expect("a run");
    assert!(between.happened(), "the hour has turned");
    assert_eq!(seen(&quaymaster).await, (hour_text(0), 0), "as they were");
    run.show(ID, Items::Without).await.expect("show").expect("a run");
    assert_eq!(seen(&quaymaster).await, (hour_text(1), 0), "the next look is of the new hour");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_resumed_as_the_hour_turns_keeps_its_hour_and_count() {
    let (clock, _cluster, engine) = cluster().await;
    let quaymaster = bind(engine.clone());
    take(&quaymaster, 5).await;
    let _ = quaymaster.run("pipeline").expect("declared").start(Some(ID), None).await.expect("start");
    assert_eq!(seen(&quaymaster).await, (hour_text(0), 5));
    let (between, node) = ahead(clock, engine, "run.start");
    let _ = node.run("pipeline").expect("declared").start(Some(ID), None).await.expect("resume");
    assert!(between.happened(), "the hour has turned");
    assert_eq!(seen(&quaymaster).await, (hour_text(0), 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_begun_as_the_hour_turns_begins_with_no_count() {
    let (clock, _cluster, engine) = cluster().await;
    let quaymaster = bind(engine.clone());
    take(&quaymaster, 5).await;
    let (between, node) = ahead(clock, engine, "run.start");
    let _ = node.run("pipeline").expect("declared").start(Some(ID), None).await.expect("start");
    assert!(between.happened(), "the hour has turned");
    assert_eq!(seen(&quaymaster).await, (hour_text(1), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runs_hour_turns_in_memory() {
    let clock = Arc::new(AtomicI64::new(BEFORE_US));
    let options = EmbeddedOptions { clock: Clock::Manual(clock.clone()), ..EmbeddedOptions::default() };
    let engine = EmbeddedStore::memory(options).await.expect("memory");
    turns(Arc::new(engine), |us| clock.store(us, SeqCst)).await;
}

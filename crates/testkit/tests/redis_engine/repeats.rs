//! What happens to a call whose reply is lost.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_store::{Code, Engine, Reply};
use quaymaster_testkit::proxy::{Cut, FaultProxy, Way};
use quaymaster_testkit::servers::{Binary, RedisConfig, RedisServer};

use crate::support::{HANG_UP, code, connect, count, count_once, counted, fake_server, options};

/// Nothing but the calls themselves passes the proxy.
fn quiet(url: &str) -> RedisOptions {
    let mut options = options(url);
    options.refresh = Duration::from_secs(600);
    options
}

async fn behind_a_proxy() -> (RedisServer, FaultProxy) {
    let server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address()).await;
    (server, proxy)
}

#[tokio::test]
async fn a_call_that_may_have_run_is_reported_and_never_sent_again() {
    for cut in [Cut::Fin, Cut::Rst] {
        let (server, proxy) = behind_a_proxy().await;
        let store = RedisStore::connect(quiet(&proxy.url())).await.unwrap();
        counted(&store, "k").await;
        proxy.cut_after(Way::Reply, 0, cut);
        assert_eq!(code(store.run(count("k")).await), Code::StoreLost, "{cut:?}");
        assert_eq!(server.command::<i64>(&["GET", "k"]), 2, "{cut:?}: it ran once");
        assert_eq!(counted(&store, "k").await, 3, "{cut:?}: the store reconnected by itself");
    }
}

#[tokio::test]
async fn a_call_that_may_be_repeated_is_and_counts_once() {
    for cut in [Cut::Fin, Cut::Rst] {
        let (server, proxy) = behind_a_proxy().await;
        let store = RedisStore::connect(quiet(&proxy.url())).await.unwrap();
        store.run(count_once("k", "a")).await.unwrap();
        proxy.cut_after(Way::Reply, 0, cut);
        assert_eq!(store.run(count_once("k", "b")).await.unwrap(), Reply::Int(2), "{cut:?}");
        assert_eq!(server.command::<i64>(&["GET", "k"]), 2, "{cut:?}");
        assert!(store.health().retries >= 1);
    }
}

#[tokio::test]
async fn a_call_that_was_cut_off_on_its_way_there_never_counts_twice() {
    let (server, proxy) = behind_a_proxy().await;
    let store = RedisStore::connect(quiet(&proxy.url())).await.unwrap();
    counted(&store, "k").await;
    for bytes in [1, 20, 60] {
        counted(&store, "other").await;
        let before: i64 = server.command(&["GET", "k"]);
        proxy.cut_after(Way::Request, bytes, Cut::Rst);
        let lost = store.run(count("k")).await;
        let after: i64 = server.command(&["GET", "k"]);
        // The proxy's kernel had taken all bytes, so whether the server has them cannot be known here.
        assert_eq!(code(lost), Code::StoreLost);
        assert_eq!(after, before, "half a command does nothing");
    }
    assert_eq!(counted(&store, "k").await, 2);
}

#[tokio::test]
async fn a_silent_server_is_a_time_out_and_the_reply_that_comes_late_is_nobody_else_s() {
    let (server, proxy) = behind_a_proxy().await;
    let mut config = quiet(&proxy.url());
    config.pools.default.response_timeout = Duration::from_millis(100);
    config.deadline = Duration::from_millis(150);
    let store = RedisStore::connect(config).await.unwrap();
    counted(&store, "k").await;
    server.pause();
    assert_eq!(code(store.run(count("k")).await), Code::StoreTimedOut);
    server.resume();
    crate::support::until("the store answers again", async || store.run(count("other")).await.is_ok()).await;
    // The timed-out call had reached the server: it ran, once, when the server went on.
    assert_eq!(server.command::<i64>(&["GET", "k"]), 2);
    assert_eq!(counted(&store, "k").await, 3);
}

#[tokio::test]
async fn a_slow_call_times_out_alone_and_keeps_the_connection_of_the_others() {
    // Answers the first call only when the second has come, and the second only with the third.
    let mut calls = 0;
    let connections = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&connections);
    let server = fake_server(move |words| {
        calls += usize::from(words[0] == "EVALSHA");
        seen.fetch_add(usize::from(words[0] == "CLIENT"), Relaxed);
        match (words[0].as_str(), calls) {
            ("INFO", _) => "$-1\r\n",
            ("TIME", _) => "*2\r\n$1\r\n1\r\n$1\r\n2\r\n",
            ("EVALSHA", 1) => "",
            ("EVALSHA", 2) => ":1\r\n",
            ("EVALSHA", 3) => ":2\r\n:3\r\n",
            _ => "+OK\r\n",
        }
        .to_owned()
    })
    .await;
    let url = format!("redis://{server}");
    let mut config = quiet(&url);
    config.pools.default.response_timeout = Duration::from_millis(300);
    let store = RedisStore::connect(config).await.unwrap();
    let (first, second) = tokio::join!(biased; store.run(count("a")), store.run(count("b")));
    assert_eq!(first.unwrap(), Reply::Int(1));
    assert_eq!(code(second), Code::StoreTimedOut);
    // The late reply of the second is not taken for the third's.
    assert_eq!(store.run(count("c")).await.unwrap(), Reply::Int(3));
    assert_eq!(connections.load(Relaxed), 1, "the connection was kept");
}

/// A server that knows no script, and says so when nine tenths of `deadline` are over. It hangs up on the first
/// `lost` scripts instead.
async fn late_without_scripts(deadline: Duration, lost: usize) -> String {
    let scripts = Arc::new(AtomicUsize::new(0));
    let began = Arc::new(OnceLock::new());
    fake_server(move |words| {
        match words[0].as_str() {
            "INFO" => "$-1\r\n",
            "TIME" => "*2\r\n$1\r\n1\r\n$1\r\n2\r\n",
            "EVALSHA" => {
                let began = *began.get_or_init(Instant::now);
                if scripts.fetch_add(1, Relaxed) < lost {
                    return HANG_UP.to_owned();
                }
                std::thread::sleep(
                    (began + deadline.mul_f64(0.92)).saturating_duration_since(Instant::now()),
                );
                "-NOSCRIPT No matching script\r\n"
            }
            _ => "+OK\r\n",
        }
        .to_owned()
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_script_that_is_unknown_when_no_time_is_left_to_bring_it_did_not_run() {
    for (lost, expected) in [(0, (Code::StoreRefused, false)), (1, (Code::StoreLost, true))] {
        let deadline = Duration::from_secs(4);
        let server = late_without_scripts(deadline, lost).await;
        let mut config = quiet(&format!("redis://{server}"));
        config.deadline = deadline;
        config.pools.default.response_timeout = deadline * 2;
        let store = RedisStore::connect(config).await.unwrap();
        let error = store.run(count_once("k", "a")).await.unwrap_err();
        assert_eq!((error.code, error.may_have_run), expected, "{error}");
        assert!(error.detail.contains("NOSCRIPT"), "{error}");
    }
}

/// A user that may run scripts and not load them, on a server that has forgotten its scripts.
async fn a_script_that_cannot_be_loaded_runs_once_as_a_whole(binary: Binary) {
    let server = RedisServer::start(RedisConfig::of(binary));
    server.command::<()>(&["ACL", "SETUSER", "svc", "on", ">pw", "~*", "&*", "+@all", "-script|load"]);
    let store = RedisStore::connect(quiet(&format!("redis://svc:pw@{}", server.address()))).await.unwrap();
    for expected in 1..=2 {
        server.command::<()>(&["SCRIPT", "FLUSH"]);
        server.command::<()>(&["CONFIG", "RESETSTAT"]);
        assert_eq!(store.run(count("k")).await.unwrap(), Reply::Int(expected));
        assert_eq!(server.command::<i64>(&["GET", "k"]), expected);
        let calls = |command: &str| {
            let line = server.info("commandstats", &format!("cmdstat_{command}")).unwrap_or_default();
            line.split(',').find_map(|part| part.strip_prefix("calls=")?.parse::<i64>().ok()).unwrap_or(0)
        };
        assert_eq!((calls("evalsha"), calls("eval"), calls("incr")), (2, 1, 1), "by digest, loaded, whole");
    }
}

#[tokio::test]
async fn a_script_that_cannot_be_loaded_runs_once_as_a_whole_on_redis_7() {
    a_script_that_cannot_be_loaded_runs_once_as_a_whole(Binary::Redis7).await;
}

#[tokio::test]
async fn a_script_that_cannot_be_loaded_runs_once_as_a_whole_on_valkey() {
    a_script_that_cannot_be_loaded_runs_once_as_a_whole(Binary::Valkey9).await;
}

#[tokio::test]
async fn a_server_that_forgets_each_script_gets_it_whole_once() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    let server = fake_server(move |words| {
        if words[0].starts_with("EVAL") || words[0] == "SCRIPT" {
            hears.lock().unwrap().push(words[0].clone());
        }
        match words[0].as_str() {
            "INFO" => "$-1\r\n",
            "TIME" => "*2\r\n$1\r\n1\r\n$1\r\n2\r\n",
            "EVALSHA" => "-NOSCRIPT No matching script\r\n",
            "EVAL" => ":7\r\n",
            _ => "+OK\r\n",
        }
        .to_owned()
    })
    .await;
    let store = RedisStore::connect(quiet(&format!("redis://{server}"))).await.unwrap();
    assert_eq!(store.run(count("k")).await.unwrap(), Reply::Int(7));
    assert_eq!(*heard.lock().unwrap(), ["EVALSHA", "SCRIPT", "EVALSHA", "EVAL"]);
}

#[tokio::test]
async fn no_call_outlives_its_deadline_when_nothing_answers() {
    let (_server, proxy) = behind_a_proxy().await;
    let mut config = options(&proxy.url());
    config.deadline = Duration::from_millis(300);
    for pool in [&mut config.pools.default, &mut config.pools.ratelimit] {
        pool.response_timeout = Duration::from_millis(100);
        pool.connect_timeout = Duration::from_millis(100);
    }
    let store = RedisStore::connect(config).await.unwrap();
    counted(&store, "k").await;
    proxy.silence();
    // A safe call is tried again on a new connection, which is as silent, until its time is over.
    let bound = Duration::from_secs(10);
    for _ in 0..10 {
        let result =
            tokio::time::timeout(bound, store.run(count_once("k", "a"))).await.expect("within its deadline");
        let failed = code(result);
        assert!(matches!(failed, Code::StoreTimedOut | Code::StoreRefused | Code::StoreBreaker), "{failed}");
    }
    assert!(store.health().breaker_open, "a silent server is not asked by every call");
    proxy.heal();
    crate::support::until("calls resume by themselves", async || store.run(count("k")).await.is_ok()).await;
    assert!(!store.health().breaker_open);
}

#[tokio::test]
async fn latency_and_narrow_lines_only_make_it_slower() {
    let (_server, proxy) = behind_a_proxy().await;
    let store = connect(&proxy.url()).await;
    proxy.latency(Duration::from_millis(20));
    proxy.bandwidth(20_000);
    for expected in 1..=5 {
        assert_eq!(counted(&store, "k").await, expected);
    }
    assert_eq!(store.health().failures, 0);
}

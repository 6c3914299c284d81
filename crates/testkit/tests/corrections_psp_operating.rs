//! `docs/corrections.md`, how the payment gateway's document runs its Redis: what it does seen failing on a real one,
//! and ours, which does not.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use futures_util::future::join_all;
use quaymaster::cache::{Put, Value};
use quaymaster::clean::{Ask, Mode};
use quaymaster::limit::Charge;
use quaymaster::schema::{BUNDLED, Source, load};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster::{Quaymaster, Seal, Settings};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

/// 32 bytes in base64.
const SEAL_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const SECRET: &str = "hunter2-horse-staple";
const PSP: &[(&str, &str)] = &[("psp_id", "PSP001")];

async fn ours(server: &RedisServer) -> Quaymaster {
    let (_, text) = BUNDLED.iter().find(|(name, _)| name.contains("psp")).expect("the system is bundled");
    let schema = load(&[Source { name: "schema.toml", text }], &|_| None).schema.expect("it is right");
    let options = RedisOptions::from_url(&server.url()).expect("the fixture's URL");
    let engine = RedisStore::connect(options).await.expect("the server is there");
    let seal = Seal::from_text(SEAL_KEY).expect("a key");
    Quaymaster::with(Arc::new(schema), Arc::new(engine), Settings { seal, ..Settings::default() })
}

async fn put_token(quaymaster: &Quaymaster) {
    let token = quaymaster.cache("token").expect("declared");
    let stored = token.put(PSP, &Value::from(SECRET), Put::default()).await;
    assert!(stored.is_ok(), "{stored:?}");
}

#[tokio::test]
async fn a_log_of_all_operations_of_redis_prints_what_is_secret_and_names_nobody() {
    let server = RedisServer::start(RedisConfig::default());
    let mut monitor = TcpStream::connect(server.address()).expect("a connection");
    monitor.write_all(b"MONITOR\r\n").expect("it is sent");
    let mut lines = BufReader::new(monitor).lines().map(|line| line.expect("a line"));
    assert_eq!(lines.next().as_deref(), Some("+OK"));
    server.command::<String>(&["SET", "token:psp:PSP001", SECRET, "EX", "86400"]);
    let seen = lines.find(|line| line.contains("token:psp:PSP001")).expect("the only log of all operations");
    assert!(seen.contains(SECRET), "{seen}");
    assert!(seen.contains("[0 127."), "an address is all it says of the caller: {seen}");
    // Ours is sealed before it leaves the process; who asked stands in the access log of the server.
    put_token(&ours(&server).await).await;
    let seen = lines.find(|line| line.contains("token:psp:PSP001")).expect("ours");
    assert!(!seen.contains(SECRET), "{seen}");
}

#[tokio::test]
async fn redis_writes_what_it_holds_readable_to_its_disk() {
    let server = RedisServer::start(RedisConfig::default());
    let on_disk = || {
        server.command::<String>(&["SAVE"]);
        let bytes = std::fs::read(server.folder().join("dump.rdb")).expect("a snapshot");
        bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
    };
    server.command::<String>(&["SET", "token:psp:PSP001", SECRET, "EX", "86400"]);
    assert!(on_disk(), "there is no setting that would encrypt it");
    put_token(&ours(&server).await).await;
    assert!(!on_disk(), "a `sensitive` value is sealed");
}

#[tokio::test]
async fn three_hundred_calls_at_once_need_no_pool_of_two_hundred() {
    let server = RedisServer::start(RedisConfig::default());
    let quaymaster = ours(&server).await;
    let limit = quaymaster.limit("psp").expect("declared");
    let before = server.client_names().len();
    // Held still, the server has all of them waiting at once.
    server.pause();
    let calls = async { join_all((0..300).map(|_| limit.take(PSP, Charge::one()))).await };
    let resumed = async {
        tokio::task::yield_now().await;
        server.resume();
    };
    let (answers, ()) = tokio::join!(calls, resumed);
    assert!(answers.iter().all(Result::is_ok), "none had to wait for a connection");
    let after = server.client_names().len();
    assert!(after <= before.max(8), "{before} connections before, {after} after");
}

#[tokio::test]
async fn keys_counted_by_a_pattern_are_everybodys_and_ours_are_the_schemas() {
    let server = RedisServer::start(RedisConfig::default());
    let quaymaster = ours(&server).await;
    for id in ["TX-1", "TX-2"] {
        server.command::<String>(&["SET", &format!("idem:create:{id}"), "1", "EX", "86400"]);
    }
    server.command::<String>(&["SET", "idem:somebody-elses", "1", "EX", "86400"]);
    let keys: Vec<String> = server.command(&["EVAL", "return redis.call('keys', 'idem:*')", "0"]);
    assert_eq!(keys.len(), 3, "the documented count");
    let ask = Ask { mode: Mode::Look, ..Ask::default() };
    let report = quaymaster.clean(ask, |_| {}).await.expect("a walk in pages");
    assert_eq!((report.examined, report.declared), (3, 2));
}

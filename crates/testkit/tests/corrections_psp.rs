//! `docs/corrections.md`, the payment gateway: each scheme as its document has it, in plain commands on a real
//! Redis, seen failing; and ours, which does not.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use quaymaster::cache::{Fetched, Put, Stored, Value};
use quaymaster::guard::Enter;
use quaymaster::idempotency::{Begin, Begun, Finished};
use quaymaster::limit::Charge;
use quaymaster::lock::{Acquire, Acquired, Lease, Released};
use quaymaster::schema::{BUNDLED, Kind, Loaded, Severity, Source, load};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster::{Code, Outage, Quaymaster};
use quaymaster_testkit::held_clock::HeldClock;
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

const PAYMENT: &[(&str, &str)] = &[("psp_transaction_id", "PSP-TX-123456")];
const TRANSACTION: &[(&str, &str)] = &[("transaction_id", "fbded76a")];

fn psp() -> &'static str {
    let (_, text) = BUNDLED.iter().find(|(name, _)| name.contains("psp")).expect("the system is bundled");
    text
}

fn check(text: &str, env: &[(&str, &str)]) -> Loaded {
    let env: HashMap<&str, &str> = env.iter().copied().collect();
    load(&[Source { name: "schema.toml", text }], &|name| env.get(name).map(|value| (*value).to_owned()))
}

async fn ours_with(server: &RedisServer, text: &str, env: &[(&str, &str)]) -> Quaymaster {
    let schema = check(text, env).schema.expect("the schema is right");
    let options = RedisOptions::from_url(&server.url()).expect("the fixture's URL");
    let engine = RedisStore::connect(options).await.expect("the server is there");
    Quaymaster::new(Arc::new(schema), Arc::new(engine))
}

async fn ours(server: &RedisServer) -> Quaymaster {
    ours_with(server, psp(), &[]).await
}

/// The documented claim: `SET key "1" NX EX seconds`; whether it was the first.
fn set_nx(server: &RedisServer, key: &str, seconds: &str) -> redis::RedisResult<bool> {
    let reply: Option<String> = server.try_command(&["SET", key, "1", "NX", "EX", seconds])?;
    Ok(reply.is_some())
}

fn begin(fingerprint: &[u8]) -> Begin<'_> {
    Begin { fingerprint: Some(fingerprint), ..Begin::default() }
}

#[tokio::test]
async fn a_1_cannot_give_the_answer_again_nor_tell_another_request_apart() {
    let server = RedisServer::start(RedisConfig::default());
    let key = "idem:create:PSP-TX-123456";
    assert!(set_nx(&server, key, "86400").expect("a reply"));
    // The first caller's connection breaks before it reads its answer. It asks again, as it must:
    assert!(!set_nx(&server, key, "86400").expect("a reply"), "refused");
    assert_eq!(server.command::<String>(&["GET", key]), "1", "and the answer is nowhere");
    // So is what was asked: a request for another amount under this id looks exactly the same.

    let quaymaster = ours(&server).await;
    let create = quaymaster.idempotency("create").expect("declared");
    // A record of the old scheme is finished, without an answer.
    let Begun::Finished(replay) = create.begin(PAYMENT, begin(b"100000")).await.expect("an answer") else {
        panic!("an old record counts as finished")
    };
    assert_eq!(replay.response, None);
    server.command::<()>(&["DEL", key]);
    let Begun::Started(claim) = create.begin(PAYMENT, begin(b"100000")).await.expect("an answer") else {
        panic!("nothing is there")
    };
    let finished =
        create.finish(PAYMENT, &claim.token, Some(b"{\"id\":\"fbded76a\"}")).await.expect("an answer");
    assert!(matches!(finished, Finished::Finished { kept: true, .. }), "{finished:?}");
    let Begun::Finished(replay) = create.begin(PAYMENT, begin(b"100000")).await.expect("an answer") else {
        panic!("it is finished")
    };
    assert_eq!(replay.response.as_deref(), Some(&b"{\"id\":\"fbded76a\"}"[..]));
    assert_eq!(create.begin(PAYMENT, begin(b"1")).await.expect("an answer"), Begun::Mismatch);
    // What a program of the old scheme sees: the key is there, so its SET NX is refused.
    assert!(!set_nx(&server, key, "86400").expect("a reply"));
}

#[tokio::test]
async fn a_claim_whose_owner_died_refuses_its_payment_for_a_day() {
    let server = RedisServer::start(RedisConfig::default());
    let key = "idem:create:PSP-TX-123456";
    assert!(set_nx(&server, key, "86400").expect("a reply"));
    // The gateway dies here: nothing was paid.
    assert!(!set_nx(&server, key, "86400").expect("a reply"), "and nothing will be:");
    assert!(server.command::<i64>(&["TTL", key]) > 86_000, "for a day");
    server.command::<()>(&["DEL", key]);

    let pattern = "key = \"idem:create:{psp_transaction_id}\"";
    let text = psp().replace(pattern, &format!("{pattern}\nin_progress_ttl = \"100ms\""));
    let quaymaster = ours_with(&server, &text, &[]).await;
    let create = quaymaster.idempotency("create").expect("declared");
    let Begun::Started(dead) = create.begin(PAYMENT, begin(b"100000")).await.expect("an answer") else {
        panic!("nothing is there")
    };
    assert!(server.command::<i64>(&["PTTL", key]) < 5_000, "a claim lives as long as it may run, not a day");
    let waiting = Begin { wait: Duration::from_secs(30), ..begin(b"100000") };
    let next = create.begin(PAYMENT, waiting).await.expect("an answer");
    assert!(matches!(next, Begun::Started(_)), "the claim ended, the next one runs it: {next:?}");
    let late = create.finish(PAYMENT, &dead.token, None).await.expect("an answer");
    assert_eq!(late, Finished::Lost, "and whoever comes back from the dead changes nothing");
    // What a program of the old scheme sees: the key until soon after the claim's end, and then it can have it.
    while !set_nx(&server, key, "86400").expect("a reply") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_status_written_as_string_and_as_hash_breaks_both() {
    let server = RedisServer::start(RedisConfig::default());
    let key = "status:fbded76a";
    server.command::<()>(&["SET", key, "{\"status\":\"SUCCESS\"}", "EX", "60"]);
    let hash = server.try_command::<i64>(&["HSET", key, "status", "SUCCESS", "amount", "100000"]);
    assert_eq!(hash.expect_err("a string is there").code(), Some("WRONGTYPE"));
    server.command::<()>(&["DEL", key]);
    server.command::<i64>(&["HSET", key, "status", "SUCCESS"]);
    let text = server.try_command::<String>(&["GET", key]);
    assert_eq!(text.expect_err("a hash is there").code(), Some("WRONGTYPE"));
    // Between the document's HSET and its EXPIRE lies a crash that keeps the entry for ever.
    assert_eq!(server.command::<i64>(&["TTL", key]), -1);

    // One pattern with two types does not load.
    let twice =
        format!("{}\n[cache.status_text]\nkey = \"status:{{transaction_id}}\"\nttl = \"60s\"\n", psp());
    let refused = check(&twice, &[]);
    assert!(refused.schema.is_none(), "{:?}", refused.diagnostics);

    let quaymaster = ours(&server).await;
    let status = quaymaster.cache("status").expect("declared");
    server.command::<()>(&["SET", key, "{\"status\":\"OLD\"}", "EX", "60"]);
    let missed = status.get(TRANSACTION).await.expect("an answer");
    assert_eq!(missed, Fetched::Miss { outage: None }, "another program's string is not guessed at");
    let fields =
        Value::fields([("status", "SUCCESS"), ("amount", "100000"), ("timestamp", "2024-01-15T14:30:00Z")]);
    assert_eq!(status.put(TRANSACTION, &fields, Put::default()).await.expect("an answer"), Stored::Stored);
    assert_eq!(server.command::<String>(&["HGET", key, "status"]), "SUCCESS", "the documented hash");
    let text = server.try_command::<String>(&["GET", key]);
    assert_eq!(text.expect_err("a hash is there").code(), Some("WRONGTYPE"), "for who expects a string");
    assert!((1..=60).contains(&server.command::<i64>(&["TTL", key])), "born with its TTL");
    assert!(matches!(status.get(TRANSACTION).await.expect("an answer"), Fetched::Hit(_)));
}

/// The documented take: three commands on a key of the minute, with the caller's own timestamp in seconds.
fn documented_take(server: &RedisServer, minute: &str, at_s: &str, id: &str, limit: i64) -> bool {
    let key = format!("rl:PSP001:{minute}");
    server.command::<i64>(&["ZADD", &key, at_s, id]);
    let old = at_s.parse::<f64>().expect("a number") - 60.0;
    server.command::<i64>(&["ZREMRANGEBYSCORE", &key, "0", &old.to_string()]);
    server.command::<i64>(&["ZCARD", &key]) <= limit
}

#[tokio::test]
async fn a_sliding_log_in_a_key_of_the_minute_lets_twice_the_limit_through() {
    const LIMIT: i64 = 10;
    let server = RedisServer::start(RedisConfig::default());
    let burst = |minute: &str, at_s: &str, name: &str| {
        (0..20).filter(|n| documented_take(&server, minute, at_s, &format!("{name}{n}"), LIMIT)).count()
    };
    let before = burst("2024-01-15-14-30", "1705329059.9", "a");
    let after = burst("2024-01-15-14-31", "1705329060.1", "b");
    assert_eq!((before, after), (10, 10), "twenty in two tenths of a second");
    // Refused calls were counted with the others: whoever keeps asking is never let in again.
    assert_eq!(server.command::<i64>(&["ZCARD", "rl:PSP001:2024-01-15-14-30"]), 20);
    // Two requests under one id are one.
    documented_take(&server, "x", "1705329060", "same", LIMIT);
    documented_take(&server, "x", "1705329061", "same", LIMIT);
    assert_eq!(server.command::<i64>(&["ZCARD", "rl:PSP001:x"]), 1);
    // And no command of the three gives the key its TTL.
    assert_eq!(server.command::<i64>(&["TTL", "rl:PSP001:2024-01-15-14-30"]), -1);

    // Declared so, it does not load.
    let scheme = "algorithm = \"fixed_window\"\nlimit = { env = \"PSP_LIMIT\", default = 1000 }";
    assert!(psp().contains(scheme));
    let refused = check(&psp().replace(scheme, &scheme.replace("fixed_window", "sliding_log")), &[]);
    assert!(refused.diagnostics.iter().any(|problem| problem.code == "bucket-in-sliding"));
    assert!(refused.schema.is_none());

    // The same burst against ours: the minute turns, the window does not.
    let clock = HeldClock::frozen(1_705_329_059_900_000);
    let server = RedisServer::start(RedisConfig { env: clock.environment(), ..RedisConfig::default() });
    let quaymaster = ours_with(&server, psp(), &[("PSP_LIMIT", "10")]).await;
    let sliding = quaymaster.limit("transaction").expect("declared");
    let fixed = quaymaster.limit("psp").expect("declared");
    let mut allowed = (0, 0);
    for n in 0..40 {
        if n == 20 {
            clock.freeze(1_705_329_060_100_000);
        }
        allowed.0 +=
            i32::from(sliding.take(TRANSACTION, Charge::one()).await.expect("an answer").is_allowed());
        let psp = fixed.take(&[("psp_id", "PSP001")], Charge::one()).await.expect("an answer");
        allowed.1 += i32::from(psp.is_allowed());
    }
    assert_eq!(allowed.0, 10, "a sliding log is exact over every window");
    assert_eq!(allowed.1, 20, "a fixed window is what it says: ten a minute, minute by minute");
    let key = "rl:PSP001:2024-01-15-14-31";
    assert_eq!(server.command::<i64>(&["GET", key]), 10, "what was refused is not counted");
    assert!(server.command::<i64>(&["TTL", key]) > 0);
}

#[tokio::test]
async fn a_minute_that_an_old_gateway_wrote_is_refused_with_what_to_do() {
    let clock = HeldClock::frozen(1_705_329_059_900_000);
    let server = RedisServer::start(RedisConfig { env: clock.environment(), ..RedisConfig::default() });
    let quaymaster = ours_with(&server, psp(), &[("PSP_LIMIT", "10")]).await;
    let (limit, guard) =
        (quaymaster.limit("psp").expect("declared"), quaymaster.guard("create").expect("declared"));
    let (psp, key) = ([("psp_id", "PSP001")], "rl:PSP001:2024-01-15-14-30");
    documented_take(&server, "2024-01-15-14-30", "1705329059.9", "r1", 10);
    let payment = [("psp_id", "PSP001"), ("psp_transaction_id", "PSP-TX-1")];
    for error in [
        limit.take(&psp, Charge::one()).await.expect_err("a log is there"),
        guard.enter(&payment, Enter::default()).await.expect_err("a log is there"),
    ] {
        assert_eq!(error.code, Code::KeyWrongType, "{error}");
        for part in [
            &format!("{key} holds a zset, not a string"),
            "another program counts there, too; stop it or give it other keys",
            "the next minute counts anew, this one after `quaymaster limit reset psp`",
        ] {
            assert!(error.detail.contains(part), "{part}: {}", error.detail);
        }
    }
    assert_eq!(server.command::<i64>(&["ZCARD", key]), 1, "nothing was changed");
    assert_eq!(server.command::<i64>(&["EXISTS", "idem:create:PSP-TX-1", "lock:process:PSP-TX-1"]), 0);
    // Either of the two ways out.
    assert!(limit.reset(&psp, None).await.is_ok());
    assert!(limit.take(&psp, Charge::one()).await.expect("an answer").is_allowed());
    let theirs = server.try_command::<i64>(&["ZADD", key, "1705329059.9", "r2"]);
    assert!(theirs.expect_err("a string is there").to_string().contains("WRONGTYPE"));
    documented_take(&server, "2024-01-15-14-31", "1705329060", "r3", 10);
    clock.freeze(1_705_329_060_000_000);
    assert!(limit.take(&psp, Charge::one()).await.is_err(), "the old one goes on");
    clock.freeze(1_705_329_120_000_000);
    assert!(limit.take(&psp, Charge::one()).await.expect("an answer").is_allowed(), "it was stopped");
}

#[tokio::test]
async fn a_psp_called_tx_counts_in_a_transactions_key() {
    let server = RedisServer::start(RedisConfig::default());
    let (of_the_psp, of_the_transaction) =
        (format!("rl:{}:{}", "tx", "2024-01-15-14-30"), format!("rl:tx:{}", "2024-01-15-14-30"));
    assert_eq!(of_the_psp, of_the_transaction);
    for n in 0..10 {
        server.command::<i64>(&["ZADD", &of_the_psp, "1705329000", &format!("r{n}")]);
    }
    let used: i64 = server.command(&["ZCARD", &of_the_transaction]);
    assert_eq!(used, 10, "the transaction is at its limit and was never called");

    let warned = check(psp(), &[]);
    let overlap = warned.diagnostics.iter().find(|problem| problem.code == "key-overlap-literal");
    assert_eq!(overlap.map(|problem| problem.severity), Some(Severity::Warning), "{:?}", warned.diagnostics);
    let quaymaster = ours(&server).await;
    let limit = quaymaster.limit("psp").expect("declared");
    let error = limit.take(&[("psp_id", "tx")], Charge::one()).await.expect_err("a reserved name");
    assert_eq!(error.code, Code::KeyValue, "{error}");
    // What a program of the old scheme writes there is a transaction's to us.
    let told = quaymaster.schema().explain(of_the_psp.as_bytes()).expect("a key of the schema");
    assert_eq!(told.resource.name, "transaction");
}

/// What a lock protects: a row that takes any write, or only those with a fence it has not seen the next of.
#[derive(Default)]
struct Row {
    status: &'static str,
    fence: u64,
}

impl Row {
    fn write(&mut self, status: &'static str) {
        self.status = status;
    }

    fn write_fenced(&mut self, status: &'static str, fence: u64) -> bool {
        let current = fence >= self.fence;
        if current {
            (self.status, self.fence) = (status, fence);
        }
        current
    }
}

async fn acquired(quaymaster: &Quaymaster, how: Acquire<'_>) -> Lease {
    match quaymaster.lock("update").expect("declared").acquire(TRANSACTION, how).await.expect("an answer") {
        Acquired::Ours(lease) => lease,
        held @ Acquired::Held { .. } => panic!("{held:?}"),
    }
}

#[tokio::test]
async fn a_lock_without_a_fence_lets_a_stale_holder_write() {
    let server = RedisServer::start(RedisConfig::default());
    let key = "lock:update:fbded76a";
    let mut row = Row::default();
    server.command::<()>(&["SET", key, "first", "NX", "PX", "20"]);
    // The first holder is paused: a collection, a swapped page, a stopped machine. Its lease ends.
    while server.command::<i64>(&["EXISTS", key]) == 1 {
        tokio::task::yield_now().await;
    }
    let second: Option<String> = server.command(&["SET", key, "second", "NX", "PX", "30000"]);
    assert!(second.is_some());
    row.write("SUCCESS");
    // The first one wakes; nothing tells it.
    row.write("FAILED");
    assert_eq!(row.status, "FAILED", "what the holder of the lock wrote is gone");
    server.command::<i64>(&["DEL", key]);
    assert_eq!(server.command::<i64>(&["EXISTS", key]), 0, "and so is its lock");

    let quaymaster = ours(&server).await;
    let lock = quaymaster.lock("update").expect("declared");
    let mut row = Row::default();
    let first =
        acquired(&quaymaster, Acquire { ttl: Some(Duration::from_millis(20)), ..Acquire::default() }).await;
    let second = acquired(&quaymaster, Acquire { wait: Duration::from_secs(30), ..Acquire::default() }).await;
    assert!(second.fence > first.fence);
    assert!(row.write_fenced("SUCCESS", second.fence));
    assert!(!row.write_fenced("FAILED", first.fence), "the late write is refused");
    assert_eq!(row.status, "SUCCESS");
    let released = lock.release(TRANSACTION, &first.token, None).await.expect("an answer");
    assert_eq!(released, Released::Lost, "a lock is given back only by its holder");
    assert_eq!(server.command::<String>(&["GET", key]), second.token.as_str());
    // A counter for fences, lost by eviction or failover, would begin again at 1. Time does not.
    server.command::<()>(&["FLUSHALL"]);
    let third = acquired(&quaymaster, Acquire::default()).await;
    assert!(third.fence > second.fence, "{} after {}", third.fence, second.fence);
    // What a program of the old scheme sees: the lock is held, its SET NX is refused; its own lock holds us off.
    let foreign: Option<String> = server.command(&["SET", key, "foreign", "NX", "EX", "30"]);
    assert_eq!(foreign, None);
    server.command::<()>(&["SET", key, "foreign", "EX", "30"]);
    let held = lock.acquire(TRANSACTION, Acquire::default()).await.expect("an answer");
    assert!(matches!(held, Acquired::Held { .. }), "{held:?}");
}

#[tokio::test]
async fn going_on_without_redis_runs_payments_twice_and_says_nothing() {
    let mut server = RedisServer::start(RedisConfig::default());
    let denying = ours(&server).await;
    let allowing = ours_with(&server, psp(), &[("PSP_CREATE_ON_OUTAGE", "allow")]).await;
    server.kill9();
    // The documented fallback: without Redis, continue without idempotency.
    let mut paid = 0;
    for _ in 0..2 {
        if set_nx(&server, "idem:create:PSP-TX-123456", "86400").unwrap_or(true) {
            paid += 1;
        }
    }
    assert_eq!(paid, 2, "paid twice, and no caller can tell");

    let create = denying.idempotency("create").expect("declared");
    let error = create.begin(PAYMENT, begin(b"100000")).await.expect_err("the store is away");
    assert!(error.code.name().starts_with("store."), "by default nothing runs without its guard: {error}");
    // An operator may choose otherwise, for this operation; every answer says so and is counted.
    let create = allowing.idempotency("create").expect("declared");
    let Begun::Started(claim) = create.begin(PAYMENT, begin(b"100000")).await.expect("an answer") else {
        panic!("allowed")
    };
    assert_eq!(claim.outage, Some(Outage::Allow));
    let counted = allowing.outages().counts().any(|(kind, name, policy, answers)| {
        (kind, name, policy, answers) == (Kind::Idempotency, "create", Outage::Allow, 1)
    });
    assert!(counted);
}

#[tokio::test]
async fn allkeys_lru_forgets_claims_and_payments_run_twice() {
    let server = RedisServer::start(RedisConfig::default());
    let key = "idem:create:PSP-TX-123456";
    let used: u64 =
        server.info("memory", "used_memory").and_then(|text| text.parse().ok()).expect("a number");
    server.command::<()>(&["CONFIG", "SET", "maxmemory", &(used + 400_000).to_string()]);
    server.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert!(set_nx(&server, key, "86400").expect("a reply"));
    // Other keys come, as they do all day; the claim is old and nobody reads it.
    let kilobyte = "x".repeat(1000);
    let mut filled = 0;
    while server.command::<i64>(&["EXISTS", key]) == 1 {
        filled += 1;
        assert!(filled < 20_000, "nothing was evicted");
        for n in 0..50 {
            server.command::<()>(&["SET", &format!("status:{filled}-{n}"), &kilobyte, "EX", "60"]);
        }
    }
    assert!(set_nx(&server, key, "86400").expect("a reply"), "the same payment, first again: it runs twice");
    // Under `noeviction` the old program is told.
    server.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let full = set_nx(&server, "idem:create:PSP-TX-2", "86400").expect_err("memory is full");
    assert_eq!(full.code(), Some("OOM"));

    let schema = check(psp(), &[]).schema.expect("the schema is right");
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let losses = schema.eviction_losses(policy);
        let create = losses.iter().find(|loss| loss.kind == Kind::Idempotency && loss.name == "create");
        assert_eq!(create.map(|loss| loss.loss), Some("the operation runs a second time"), "{policy}");
        assert!(losses.iter().all(|loss| loss.kind != Kind::Cache), "caches may be forgotten");
    }
    assert!(schema.eviction_losses("noeviction").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_of_claims_takes_many_times_the_documented_memory() {
    const KEYS: u64 = 20_000;
    const A_DAY: u64 = 864_000_000;
    let server = RedisServer::start(RedisConfig::default());
    // All that the server takes: its tables of keys and of expiries hold an entry for each key too.
    let used = || -> u64 {
        let used = server.info("memory", "used_memory");
        used.and_then(|text| text.parse().ok()).expect("a number")
    };
    let mut client = server.client().await;
    let before = used();
    for chunk in 0..KEYS / 1000 {
        let mut pipe = redis::pipe();
        for n in 0..1000 {
            let id = format!("idem:create:PSP-TX-{:06}", chunk * 1000 + n);
            pipe.cmd("SET").arg(id).arg("1").arg("NX").arg("EX").arg(86_400).ignore();
        }
        pipe.exec_async(&mut client).await.expect("written");
    }
    let documented = (used() - before) / KEYS;
    println!("documented: {documented} bytes a key, {} GB a day", documented * A_DAY / 1_000_000_000);
    // Even at the document's own 50 bytes a key, a day is 43 GB and not 2 to 4.
    assert!(documented > 50, "{documented}");
    assert!(documented * A_DAY > 10 * 4_000_000_000, "{documented}");

    let pattern = "key = \"idem:create:{psp_transaction_id}\"";
    let compact = psp().replace(pattern, &format!("{pattern}\ncompact = true"));
    let mut bytes = Vec::new();
    for text in [compact.as_str(), psp()] {
        server.command::<()>(&["FLUSHALL"]);
        let quaymaster = ours_with(&server, text, &[]).await;
        let create = quaymaster.idempotency("create").expect("declared");
        let before = used();
        let paid = futures_util::stream::iter(0..KEYS).for_each_concurrent(64, |n| async move {
            let id = format!("PSP-TX-{n:06}");
            let key = [("psp_transaction_id", id.as_str())];
            let Begun::Started(claim) = create.begin(&key, begin(b"100000")).await.expect("an answer") else {
                panic!("new")
            };
            let answer = format!(
                "{{\"status\":201,\"body\":{{\"transaction_id\":\"fbded76a-9fc6-42d8-b0a0-e7e7110e0cc7\",\
                 \"psp_transaction_id\":\"{id}\",\"amount\":100000,\"status\":\"CREATED\"}}}}"
            );
            let finished =
                create.finish(&key, &claim.token, Some(answer.as_bytes())).await.expect("an answer");
            assert!(matches!(finished, Finished::Finished { .. }), "{finished:?}");
        });
        paid.await;
        bytes.push((used() - before) / KEYS);
    }
    println!("ours: {} bytes compact, {} with its answer", bytes[0], bytes[1]);
    // Redis keeps a `1` in the key's entry; a compact record, some 30 bytes, is a string of its own of 64 bytes and
    // no more than the next size. An answer, here of 150 bytes, comes on top of that.
    assert!((documented..documented + 80).contains(&bytes[0]), "{documented} {bytes:?}");
    assert!(bytes[0] + 100 < bytes[1], "{bytes:?}");
}

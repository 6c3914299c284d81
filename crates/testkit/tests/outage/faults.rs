//! Redis stopped, restarted, SIGSTOPped, behind a slow link, a silent one and a cut one: every call answers in time
//! and by its policy, and everything recovers by itself.

use std::time::Duration;

use quaymaster::cache::{Fetched, Load, Loaded, Presence, Put, Stored, Value};
use quaymaster::dedupe::First;
use quaymaster::guard::{Enter, Entered, Leave, Settled};
use quaymaster::idempotency::{Abandoned, Begin, Begun, Finished};
use quaymaster::limit::{Charge, Verdict};
use quaymaster::lock::{Acquire, Acquired, Released, Renewed};
use quaymaster::schema::Outage;
use quaymaster::{Quaymaster, Result, Settings};
use quaymaster_testkit::proxy::{Cut, FaultProxy};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::scene::{DATABASE_DEADLINE, DEADLINE, ID, counting_in, node, until};

/// A resource of every kind under every policy it may have. Leases are short: a call that the store got and could not
/// answer holds one until it ends.
pub(crate) const SCHEMA: &str = r#"
[schema]
name = "away"
owner = "tests"

[limit.strict]
key = "l:strict:{id}"
algorithm = "fixed_window"
limit = 100000
window = "1h"
[limit.open]
key = "l:open:{id}"
algorithm = "fixed_window"
limit = 100000
window = "1h"
on_outage = "allow"
[limit.local]
key = "l:local:{id}"
algorithm = "sliding_window"
limit = 100000
window = "1h"
on_outage = "local"
[limit.shared]
key = "l:shared:{id}"
algorithm = "fixed_window"
limit = 100000
window = "1h"
on_outage = "database"

[idempotency.strict]
key = "i:strict:{id}"
ttl = "1h"
in_progress_ttl = "2s"
[idempotency.open]
key = "i:open:{id}"
ttl = "1h"
in_progress_ttl = "2s"
on_outage = "allow"

[lock.strict]
key = "k:strict:{id}"
ttl = "2s"
[lock.open]
key = "k:open:{id}"
ttl = "2s"
on_outage = "allow"

[cache.soft]
key = "c:soft:{id}"
ttl = "1h"
[cache.hard]
key = "c:hard:{id}"
ttl = "1h"
on_outage = "error"

[dedupe.once]
key = "d:{id}"
ttl = "1h"

[queue.jobs]
[batch.group]
key = "batch:{by}:current"
by = "by"
window = "10s"
to = "jobs"
ttl = "1h"

[guard.open]
limits = ["open", "local", "shared"]
idempotency = "open"
lock = "open"
[guard.strict]
limits = ["open"]
idempotency = "open"
lock = "strict"
"#;

/// What can happen to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Killed,
    Paused,
    Silent,
    Cut,
    Slow,
}

pub(crate) const FAULTS: [Fault; 5] = [Fault::Killed, Fault::Paused, Fault::Silent, Fault::Cut, Fault::Slow];

impl Fault {
    pub(crate) fn begin(self, server: &mut RedisServer, proxy: &FaultProxy) {
        match self {
            Self::Killed => server.kill9(),
            Self::Paused => server.pause(),
            Self::Silent => proxy.silence(),
            Self::Cut => {
                proxy.refuse();
                proxy.cut(Cut::Rst);
            }
            Self::Slow => proxy.latency(DEADLINE),
        }
    }

    pub(crate) fn end(self, server: &mut RedisServer, proxy: &FaultProxy) {
        match self {
            Self::Killed => server.restart(),
            Self::Paused => server.resume(),
            Self::Silent | Self::Cut | Self::Slow => proxy.heal(),
        }
    }
}

/// Longer than any call may take. Machines are busy, and a call that hangs takes for ever.
pub(crate) const BOUND: Duration =
    Duration::from_secs(2 * (DEADLINE.as_secs() + DATABASE_DEADLINE.as_secs()));

pub(crate) async fn in_time<T>(what: &str, call: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, call).await.unwrap_or_else(|_| panic!("{what} hangs"))
}

pub(crate) fn is_away<T: std::fmt::Debug>(what: &str, answer: Result<T>) {
    let Err(error) = answer else { panic!("{what}: {answer:?}") };
    assert_eq!(error.code.http_status(), 503, "{what}: {error}");
}

async fn limits_answer_by_policy(node: &Quaymaster) {
    for (name, policy) in [("open", Outage::Allow), ("local", Outage::Local), ("shared", Outage::Database)] {
        let limit = node.limit(name).unwrap();
        for verdict in [
            in_time("take", limit.take(ID, Charge::of(2))).await,
            in_time("peek", limit.peek(ID)).await,
            in_time("refund", limit.refund(ID, Charge::one())).await,
        ] {
            let verdict = verdict.unwrap();
            assert!(verdict.is_allowed(), "{name}");
            assert_eq!(verdict.quota().outage, Some(policy), "{name}");
        }
        is_away("reset", in_time("reset", limit.reset(ID, None)).await);
        let over = in_time("take", limit.take(ID, Charge::of(100_001))).await.unwrap();
        assert!(matches!(over, Verdict::Limited { .. }), "{name}: what can never pass does not pass now");
    }
    let strict = node.limit("strict").unwrap();
    is_away("take", in_time("take", strict.take(ID, Charge::one())).await);
    is_away("peek", in_time("peek", strict.peek(ID)).await);
}

async fn leases_answer_by_policy(node: &Quaymaster) {
    let lock = node.lock("open").unwrap();
    let waiting = Acquire { wait: Duration::from_secs(1), ..Acquire::default() };
    for how in [Acquire::default(), waiting, Acquire { request_id: Some("r"), ..Acquire::default() }] {
        let Acquired::Ours(lease) = in_time("acquire", lock.acquire(ID, how)).await.unwrap() else {
            panic!("allowed")
        };
        assert_eq!(lease.outage, Some(Outage::Allow));
        assert!(lease.fence > 1_700_000_000_000_000, "a fence of the store's clock: {}", lease.fence);
        let Renewed::Ours(again) = in_time("renew", lock.renew(ID, &lease.token, None)).await.unwrap() else {
            panic!("allowed")
        };
        assert_eq!((again.fence, again.outage), (lease.fence, Some(Outage::Allow)));
        let released = in_time("release", lock.release(ID, &again.token, None)).await.unwrap();
        assert_eq!(released, Released::Away(Outage::Allow));
    }
    is_away(
        "acquire",
        in_time("acquire", node.lock("strict").unwrap().acquire(ID, Acquire::default())).await,
    );

    let pay = node.idempotency("open").unwrap();
    let Begun::Started(claim) = in_time("begin", pay.begin(ID, Begin::default())).await.unwrap() else {
        panic!("allowed")
    };
    assert_eq!(claim.outage, Some(Outage::Allow));
    let finished = in_time("finish", pay.finish(ID, &claim.token, Some(b"done"))).await.unwrap();
    assert_eq!(finished, Finished::Finished { kept: false, outage: Some(Outage::Allow) });
    let abandoned = in_time("abandon", pay.abandon(ID, &claim.token, None)).await.unwrap();
    assert_eq!(abandoned, Abandoned::Away(Outage::Allow));
    is_away("begin", in_time("begin", node.idempotency("strict").unwrap().begin(ID, Begin::default())).await);
}

async fn values_answer_by_policy(node: &Quaymaster) {
    let value = Value::Bytes("v".into());
    let soft = node.cache("soft").unwrap();
    let miss = in_time("get", soft.get(ID)).await.unwrap();
    assert_eq!(miss, Fetched::Miss { outage: Some(Outage::Miss) });
    let absent = in_time("exists", soft.exists(ID)).await.unwrap();
    assert_eq!(absent, Presence::Absent { outage: Some(Outage::Miss) });
    let stored = in_time("put", soft.put(ID, &value, Put::default())).await.unwrap();
    assert_eq!(stored, Stored::Away(Outage::Miss));
    is_away("delete", in_time("delete", soft.delete(ID, None)).await);
    let loaded =
        soft.get_or_load(ID, Load::default(), || async { Ok::<_, std::io::Error>(Value::Bytes("l".into())) });
    let loaded = in_time("get_or_load", loaded).await.unwrap();
    assert_eq!(loaded, Loaded { value: Value::Bytes("l".into()), outage: Some(Outage::Miss) });
    let hard = node.cache("hard").unwrap();
    is_away("get", in_time("get", hard.get(ID)).await);
    is_away("exists", in_time("exists", hard.exists(ID)).await);
    is_away("put", in_time("put", hard.put(ID, &value, Put::default())).await);
    is_away("delete", in_time("delete", hard.delete(ID, None)).await);
    is_away("first", in_time("first", node.dedupe("once").unwrap().first(ID, First::default())).await);
}

async fn guards_answer_by_policy(node: &Quaymaster) {
    let open = node.guard("open").unwrap();
    let Entered::Entered(pass) = in_time("enter", open.enter(ID, Enter::default())).await.unwrap() else {
        panic!("every part permits")
    };
    assert_eq!(pass.outage, Some(Outage::Allow));
    assert!(pass.fence.is_some() && pass.claim_expires_in.is_some());
    let policies: Vec<_> = pass.quotas.iter().map(|quota| quota.outage).collect();
    assert_eq!(policies, [Some(Outage::Allow), Some(Outage::Local), Some(Outage::Database)]);
    let left = in_time("leave", open.leave(ID, &pass.token, Leave::default())).await.unwrap();
    assert_eq!(left.outage, Some(Outage::Allow));
    assert_eq!(
        (left.idempotency, left.lock),
        (Some(Settled::Finished { kept: false }), Some(Released::Away(Outage::Allow)))
    );
    is_away("enter", in_time("enter", node.guard("strict").unwrap().enter(ID, Enter::default())).await);
}

async fn everything_recovers(node: &Quaymaster) {
    for name in ["strict", "open", "local", "shared"] {
        let limit = node.limit(name).unwrap();
        until("the limit is counted in the store", async || {
            in_time("take", limit.take(ID, Charge::one()))
                .await
                .is_ok_and(|verdict| verdict.quota().outage.is_none())
        })
        .await;
    }
    for name in ["strict", "open"] {
        let lock = node.lock(name).unwrap();
        until("the lock is taken in the store", async || {
            let taken = in_time("acquire", lock.acquire(ID, Acquire::default())).await;
            let Ok(Acquired::Ours(lease)) = taken else { return false };
            let released = in_time("release", lock.release(ID, &lease.token, None)).await;
            lease.outage.is_none() && released.unwrap() == Released::Released
        })
        .await;
        let pay = node.idempotency(name).unwrap();
        until("the claim is made in the store", async || {
            match in_time("begin", pay.begin(ID, Begin::default())).await {
                Ok(Begun::Started(claim)) if claim.outage.is_none() => {
                    let abandoned = pay.abandon(ID, &claim.token, None).await.unwrap();
                    assert_eq!(abandoned, Abandoned::Abandoned);
                    true
                }
                _ => false,
            }
        })
        .await;
    }
    for name in ["soft", "hard"] {
        let cache = node.cache(name).unwrap();
        until("the cache stores", async || {
            let stored = cache.put(ID, &Value::Bytes("v".into()), Put::default()).await;
            stored.is_ok_and(|stored| stored == Stored::Stored)
        })
        .await;
        assert_eq!(cache.get(ID).await.unwrap(), Fetched::Hit(Value::Bytes("v".into())), "{name}");
    }
    until("the guard enters in the store", async || {
        match in_time("enter", node.guard("open").unwrap().enter(ID, Enter::default())).await {
            Ok(Entered::Entered(pass)) => {
                let abandon = Leave { abandon: true, ..Leave::default() };
                let left = node.guard("open").unwrap().leave(ID, &pass.token, abandon).await.unwrap();
                pass.outage.is_none() && left.lock == Some(Released::Released)
            }
            _ => false,
        }
    })
    .await;
}

async fn survives(fault: Fault) {
    let folder = tempfile::tempdir().unwrap();
    let mut server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address()).await;
    let url = format!("sqlite:{}", folder.path().join("counts.db").display());
    let node = node(SCHEMA, &proxy.url(), counting_in(&url)).await;
    for _ in 0..2 {
        everything_recovers(&node).await;
        fault.begin(&mut server, &proxy);
        // All at once: also before anybody knows that the store is away.
        tokio::join!(
            limits_answer_by_policy(&node),
            leases_answer_by_policy(&node),
            values_answer_by_policy(&node),
            guards_answer_by_policy(&node),
        );
        fault.end(&mut server, &proxy);
    }
    everything_recovers(&node).await;
    crate::scene::carried(&node).await;
}

#[tokio::test]
async fn every_call_answers_by_its_policy_while_redis_is_killed() {
    survives(Fault::Killed).await;
}

#[tokio::test]
async fn every_call_answers_by_its_policy_while_redis_is_stopped_in_its_tracks() {
    survives(Fault::Paused).await;
}

#[tokio::test]
async fn every_call_answers_by_its_policy_on_a_silent_link() {
    survives(Fault::Silent).await;
}

#[tokio::test]
async fn every_call_answers_by_its_policy_on_a_cut_link() {
    survives(Fault::Cut).await;
}

#[tokio::test]
async fn every_call_answers_by_its_policy_on_a_slow_link() {
    survives(Fault::Slow).await;
}

#[tokio::test]
async fn what_a_policy_gave_out_becomes_real_when_the_store_is_back() {
    let mut server = RedisServer::start(RedisConfig::default());
    let node = node(SCHEMA, &server.url(), Settings::default()).await;
    server.kill9();
    let (lock, pay) = (node.lock("open").unwrap(), node.idempotency("open").unwrap());
    let Acquired::Ours(lease) = lock.acquire(ID, Acquire::default()).await.unwrap() else {
        panic!("allowed")
    };
    let Begun::Started(claim) = pay.begin(ID, Begin::default()).await.unwrap() else { panic!("allowed") };
    let Begun::Started(late) = pay.begin(ID, Begin::default()).await.unwrap() else {
        panic!("allowed, twice")
    };
    server.restart();
    crate::scene::back(&node).await;

    let Renewed::Ours(real) = lock.renew(ID, &lease.token, None).await.unwrap() else {
        panic!("nobody has it")
    };
    assert_eq!(real.outage, None);
    assert_eq!(real.fence, lease.fence, "what was fenced with it stays so");
    assert!(matches!(lock.acquire(ID, Acquire::default()).await.unwrap(), Acquired::Held { .. }));
    assert_eq!(lock.release(ID, &real.token, None).await.unwrap(), Released::Released);

    let finished = pay.finish(ID, &claim.token, Some(b"done")).await.unwrap();
    assert_eq!(finished, Finished::Finished { kept: true, outage: None });
    assert_eq!(
        pay.finish(ID, &late.token, Some(b"again")).await.unwrap(),
        Finished::Lost,
        "it has run twice, and is told"
    );
    let Begun::Finished(replay) = pay.begin(ID, Begin::default()).await.unwrap() else {
        panic!("it has run")
    };
    assert_eq!(replay.response.as_deref(), Some(&b"done"[..]));
}

#[tokio::test]
async fn a_guard_entered_by_policy_is_left_in_the_store_when_that_is_back() {
    let mut server = RedisServer::start(RedisConfig::default());
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("counts.db").display());
    let node = node(SCHEMA, &server.url(), counting_in(&url)).await;
    let guard = node.guard("open").unwrap();
    server.kill9();
    let Entered::Entered(pass) = guard.enter(ID, Enter::default()).await.unwrap() else { panic!("allowed") };
    server.restart();
    crate::scene::back(&node).await;
    let leave = Leave { response: Some(b"done"), ..Leave::default() };
    let left = guard.leave(ID, &pass.token, leave).await.unwrap();
    assert_eq!((left.idempotency, left.outage), (Some(Settled::Finished { kept: true }), None));
    let Entered::Finished(replay) = guard.enter(ID, Enter::default()).await.unwrap() else {
        panic!("it has run")
    };
    assert_eq!(replay.response.as_deref(), Some(&b"done"[..]));
    crate::scene::carried(&node).await;
    for name in ["local", "shared"] {
        assert_eq!(crate::scene::used(node.limit(name).unwrap()).await, 1, "{name}");
    }
}

#[tokio::test]
async fn a_waiter_who_knows_that_somebody_has_the_lock_is_not_let_past_it() {
    let mut server = RedisServer::start(RedisConfig::default());
    let node = node(SCHEMA, &server.url(), Settings::default()).await;
    let lock = node.lock("open").unwrap().clone();
    let Acquired::Ours(_) = lock.acquire(ID, Acquire::default()).await.unwrap() else { panic!("free") };
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire(ID, Acquire { wait: Duration::from_secs(60), ..Acquire::default() }).await }
    });
    until("it waits", async || lock.counts().waiting() == 1).await;
    server.kill9();
    let answer = in_time("the waiter", waiter).await.unwrap().unwrap();
    assert!(matches!(answer, Acquired::Held { .. }), "{answer:?}");
}

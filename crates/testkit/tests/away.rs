//! What a policy gave out while the store was away, once the store is back: whose it is, what becomes of it, and what
//! stays known when only a part of the store's answers is missing.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use quaymaster::guard::{Enter, Entered, Leave, Settled};
use quaymaster::idempotency::{Abandoned, Begin, Begun, Finished};
use quaymaster::lock::{Acquire, Acquired, Hold, Lease, Lock, Released, Renewed};
use quaymaster::schema::{Outage, Source, load};
use quaymaster::store::backoff::Backoff;
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::{
    Deployment, Health, Invocation, KeyFacts, Message, Reply, ScanCursor, ScanPage, Topology,
};
use quaymaster::{Code, Engine, Error, Quaymaster, Result, Seal, Settings, Token};
use quaymaster_upload::Uploads;
use tokio_util::sync::CancellationToken;

/// A store of which a part can be away: what is asked for, by the beginning of its name.
#[derive(Debug)]
struct Patchy {
    inner: EmbeddedStore,
    topology: Topology,
    away: Mutex<Vec<&'static str>>,
    silent: Mutex<Vec<&'static str>>,
    asked: Mutex<Vec<&'static str>>,
}

impl Patchy {
    async fn new(topology: Topology) -> Arc<Self> {
        let inner = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
        let (away, silent, asked) = <(Mutex<_>, Mutex<_>, Mutex<_>)>::default();
        Arc::new(Self { inner, topology, away, silent, asked })
    }

    /// From now on whatever begins with one of these fails.
    fn lack(&self, names: &[&'static str]) {
        *self.away.lock() = names.to_vec();
    }

    /// From now on whatever begins with one of these never answers.
    fn hush(&self, names: &[&'static str]) {
        *self.silent.lock() = names.to_vec();
    }

    fn asked(&self, name: &str) -> usize {
        self.asked.lock().iter().filter(|asked| **asked == name).count()
    }

    fn ask(&self, name: &'static str) -> Result<()> {
        self.asked.lock().push(name);
        if self.away.lock().iter().any(|away| name.starts_with(away)) {
            return Err(Error::new("store.test", Code::StorePermission, "not today"));
        }
        Ok(())
    }
}

impl Engine for Patchy {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        Box::pin(async move {
            let name = call.script.id;
            self.ask(name)?;
            if self.silent.lock().iter().any(|silent| name.starts_with(silent)) {
                std::future::pending::<()>().await;
            }
            self.inner.run(call).await
        })
    }
    fn time_us(&self) -> BoxFuture<'_, Result<i64>> {
        self.inner.time_us()
    }
    fn now_us(&self) -> i64 {
        self.inner.now_us()
    }
    fn topology(&self) -> Topology {
        self.topology
    }
    fn subscribe<'a>(&'a self, channel: &'a [u8]) -> BoxFuture<'a, Result<BoxStream<'static, Message>>> {
        match self.ask("subscribe") {
            Ok(()) => self.inner.subscribe(channel),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
    fn wait_for_item<'a>(&'a self, key: &'a [u8], limit: Duration) -> BoxFuture<'a, Result<bool>> {
        self.inner.wait_for_item(key, limit)
    }
    fn key_facts<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyFacts>>> {
        self.inner.key_facts(key)
    }
    fn scan<'a>(
        &'a self,
        pattern: &'a [u8],
        count: usize,
        cursor: Option<ScanCursor>,
    ) -> BoxFuture<'a, Result<ScanPage>> {
        self.inner.scan(pattern, count, cursor)
    }
    fn health(&self) -> Health {
        self.inner.health()
    }
    fn deployment(&self) -> BoxFuture<'_, Result<Deployment>> {
        self.inner.deployment()
    }
    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }
}

const ID: &[(&str, &str)] = &[("id", "a")];
const OTHER: &[(&str, &str)] = &[("id", "b")];
/// Everything.
const ALL: &[&str] = &[""];
const ONE: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const TWO: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

/// One of each kind under `policy`; the guard has all of them.
fn schema(policy: &str) -> String {
    format!(
        r#"
[schema]
name = "away"
owner = "tests"
[idempotency.pay]
key = "i:{{id}}"
ttl = "1h"
on_outage = "{policy}"
colocate = "x"
[lock.pay]
key = "k:{{id}}"
ttl = "3s"
on_outage = "{policy}"
[limit.pay]
key = "l:{{id}}"
algorithm = "fixed_window"
limit = 1
window = "1h"
on_outage = "{policy}"
colocate = "x"
[limit.strict]
key = "s:{{id}}"
algorithm = "fixed_window"
limit = 100
window = "1h"
[guard.pay]
idempotency = "pay"
lock = "pay"
[guard.full]
limits = ["pay"]
idempotency = "pay"
lock = "pay"
[guard.strict]
limits = ["pay", "strict"]
idempotency = "pay"
lock = "pay"
"#
    )
}

fn node(engine: &Arc<Patchy>, policy: &str, seal: Option<&str>) -> Quaymaster {
    let text = schema(policy);
    let loaded = load(&[Source { name: "away.toml", text: &text }], &|_| None);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    let seal = seal.map_or_else(Seal::none, |text| Seal::from_text(text).unwrap());
    Quaymaster::with(Arc::new(schema), engine.clone(), Settings { seal, ..Settings::default() })
}

async fn single(policy: &str) -> (Arc<Patchy>, Quaymaster) {
    let engine = Patchy::new(Topology::Single).await;
    let node = node(&engine, policy, None);
    (engine, node)
}

async fn claim(node: &Quaymaster, fingerprint: Option<&[u8]>) -> Token {
    let how = Begin { fingerprint, ..Begin::default() };
    match node.idempotency("pay").unwrap().begin(ID, how).await.unwrap() {
        Begun::Started(claim) => claim.token,
        other => panic!("{other:?}"),
    }
}

async fn lease(lock: &Lock) -> Lease {
    match lock.acquire(ID, Acquire::default()).await.unwrap() {
        Acquired::Ours(lease) => lease,
        other @ Acquired::Held { .. } => panic!("{other:?}"),
    }
}

async fn until(what: &str, mut ready: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !ready().await {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Nobody honours `token` on `key` of `node`, and nothing is written for it.
async fn is_lost_everywhere(node: &Quaymaster, key: &[(&str, &str)], token: &Token, why: &str) {
    let (pay, lock) = (node.idempotency("pay").unwrap(), node.lock("pay").unwrap());
    assert_eq!(pay.finish(key, token, Some(b"x")).await.unwrap(), Finished::Lost, "{why}");
    assert_eq!(pay.abandon(key, token, None).await.unwrap(), Abandoned::Lost, "{why}");
    assert_eq!(lock.renew(key, token, None).await.unwrap(), Renewed::Lost, "{why}");
    assert_eq!(lock.release(key, token, None).await.unwrap(), Released::Lost, "{why}");
    let left = node.guard("pay").unwrap().leave(key, token, Leave::default()).await.unwrap();
    assert_eq!((left.idempotency, left.lock), (Some(Settled::Lost), Some(Released::Lost)), "{why}");
}

#[tokio::test]
async fn a_made_up_token_is_lost_under_every_policy() {
    for policy in ["allow", "deny"] {
        let (engine, node) = single(policy).await;
        let old = Token::parse("test", &format!("away~{:x}~-~{}~x", 1u64 << 52, "m".repeat(22))).unwrap();
        is_lost_everywhere(&node, ID, &old, policy).await;
        let Begun::Started(_) = node.idempotency("pay").unwrap().begin(ID, Begin::default()).await.unwrap()
        else {
            panic!("{policy}: nothing was written")
        };
        let fence = lease(node.lock("pay").unwrap()).await.fence;
        assert!(fence < 1 << 52, "{policy}: no fence of the caller's is handed out");
        engine.lack(ALL);
        let renewed = node.lock("pay").unwrap().renew(ID, &old, None).await.unwrap();
        assert_eq!(renewed, Renewed::Lost, "{policy}: nor made a good one while the store is away");
    }
    assert!(Token::parse("test", "away~0~").is_err());
}

#[tokio::test]
async fn a_token_is_honoured_for_what_it_was_given_out_and_by_who_has_the_key() {
    let engine = Patchy::new(Topology::Single).await;
    let giver = node(&engine, "allow", Some(ONE));
    engine.lack(ALL);
    let guard = giver.guard("pay").unwrap();
    let Entered::Entered(pass) = guard.enter(ID, Enter::default()).await.unwrap() else { panic!("allowed") };
    let claim = claim(&giver, None).await;
    engine.lack(&[]);

    is_lost_everywhere(&giver, OTHER, &pass.token, "another key").await;
    is_lost_everywhere(&node(&engine, "allow", Some(TWO)), ID, &pass.token, "another seal key").await;
    is_lost_everywhere(&node(&engine, "allow", None), ID, &pass.token, "no seal key").await;
    is_lost_everywhere(&node(&engine, "deny", Some(ONE)), ID, &pass.token, "deny").await;
    let lock = giver.lock("pay").unwrap();
    assert_eq!(lock.renew(ID, &claim, None).await.unwrap(), Renewed::Lost, "a claim is no lease");

    // Any node with the key, also after a new one was put before it; the lease of a guard is renewed by its lock.
    let other = node(&engine, "allow", Some(&format!("{TWO},{ONE}")));
    let renewed = other.lock("pay").unwrap().renew(ID, &pass.token, None).await.unwrap();
    let Renewed::Ours(renewed) = renewed else { panic!("{renewed:?}") };
    assert_eq!((Some(renewed.fence), renewed.outage), (pass.fence, None));
    let leave = Leave { response: Some(b"done"), ..Leave::default() };
    let left = other.guard("pay").unwrap().leave(ID, &pass.token, leave).await.unwrap();
    assert!(matches!(left.idempotency, Some(Settled::Finished { .. })), "{left:?}");
    assert_eq!(left.lock, Some(Released::Released));
}

#[tokio::test]
async fn a_claim_of_a_policy_keeps_its_fingerprint() {
    let how = |print| Begin { fingerprint: Some(print), ..Begin::default() };
    let (engine, node) = single("allow").await;
    let pay = node.idempotency("pay").unwrap();
    engine.lack(ALL);
    let token = claim(&node, Some(b"100 EUR")).await;
    engine.lack(&[]);
    assert!(matches!(pay.finish(ID, &token, Some(b"paid")).await.unwrap(), Finished::Finished { .. }));
    assert_eq!(pay.begin(ID, how(b"900 EUR")).await.unwrap(), Begun::Mismatch);
    assert!(matches!(pay.begin(ID, how(b"100 EUR")).await.unwrap(), Begun::Finished(_)));

    let guard = node.guard("pay").unwrap();
    engine.lack(ALL);
    let enter = Enter { fingerprint: Some(b"100 EUR"), ..Enter::default() };
    let Entered::Entered(pass) = guard.enter(OTHER, enter).await.unwrap() else { panic!("allowed") };
    engine.lack(&[]);
    let left = guard.leave(OTHER, &pass.token, Leave::default()).await.unwrap();
    assert!(matches!(left.idempotency, Some(Settled::Finished { .. })), "{left:?}");
    assert_eq!(pay.begin(OTHER, how(b"900 EUR")).await.unwrap(), Begun::Mismatch);
}

#[tokio::test]
async fn finishing_a_claim_of_a_policy_twice_is_finishing_it_once() {
    let (engine, node) = single("allow").await;
    let pay = node.idempotency("pay").unwrap();
    engine.lack(ALL);
    let (token, late) = (claim(&node, None).await, claim(&node, None).await);
    engine.lack(&[]);
    for _ in 0..2 {
        let finished = pay.finish(ID, &token, Some(b"done")).await.unwrap();
        assert!(matches!(finished, Finished::Finished { .. }), "{finished:?}");
    }
    assert_eq!(pay.finish(ID, &late, Some(b"late")).await.unwrap(), Finished::Lost);
}

#[tokio::test]
async fn a_lease_of_a_policy_becomes_real_under_its_fence_and_only_if_nobody_held_it_since() {
    let (engine, node) = single("allow").await;
    let lock = node.lock("pay").unwrap();
    engine.lack(ALL);
    let away = lease(lock).await;
    engine.lack(&[]);
    for _ in 0..2 {
        let Renewed::Ours(real) = lock.renew(ID, &away.token, None).await.unwrap() else { panic!("free") };
        assert_eq!((real.fence, real.outage), (away.fence, None));
    }
    assert!(matches!(lock.acquire(ID, Acquire::default()).await.unwrap(), Acquired::Held { .. }));
    assert_eq!(lock.release(ID, &away.token, None).await.unwrap(), Released::Released);
    assert_eq!(lock.renew(ID, &away.token, None).await.unwrap(), Renewed::Lost, "it was given back");

    engine.lack(ALL);
    let away = lease(lock).await;
    engine.lack(&[]);
    let between = lease(lock).await;
    assert!(between.fence > away.fence);
    assert_eq!(lock.renew(ID, &away.token, None).await.unwrap(), Renewed::Lost, "held");
    assert_eq!(lock.release(ID, &between.token, None).await.unwrap(), Released::Released);
    assert_eq!(lock.renew(ID, &away.token, None).await.unwrap(), Renewed::Lost, "somebody had it since");
}

#[tokio::test]
async fn a_lease_of_the_store_that_a_policy_renewed_goes_on_in_the_store() {
    let (engine, node) = single("allow").await;
    let lock = node.lock("pay").unwrap();
    let real = lease(lock).await;
    engine.lack(ALL);
    let Renewed::Ours(away) = lock.renew(ID, &real.token, None).await.unwrap() else { panic!("allowed") };
    assert!(away.fence > real.fence);
    engine.lack(&[]);
    let Renewed::Ours(again) = lock.renew(ID, &away.token, None).await.unwrap() else { panic!("ours") };
    assert_eq!((again.fence, again.outage), (away.fence, None));
    assert_eq!(lock.release(ID, &again.token, None).await.unwrap(), Released::Released);
    assert!(lease(lock).await.fence > away.fence);
}

#[tokio::test]
async fn a_holding_begun_without_the_store_has_the_fence_that_the_store_has_later() {
    let (engine, node) = single("allow").await;
    let lock = node.lock("pay").unwrap();
    engine.lack(ALL);
    let how = Acquire { ttl: Some(Duration::from_millis(900)), ..Acquire::default() };
    let Hold::Ours(holding) = lock.hold(ID, how).await.unwrap() else { panic!("allowed") };
    engine.lack(&[]);
    let renewals = engine.asked("lock.renew");
    until("it was renewed in the store", async || engine.asked("lock.renew") > renewals + 1).await;
    assert!(!holding.is_lost());
    let Renewed::Ours(real) = lock.renew(ID, holding.token(), None).await.unwrap() else { panic!("ours") };
    assert_eq!((real.fence, real.outage), (holding.fence(), None));
    assert_eq!(holding.release().await.unwrap(), Released::Released);
}

#[tokio::test]
async fn who_may_not_listen_is_not_handed_a_lock_that_is_held() {
    let (engine, node) = single("allow").await;
    let lock = node.lock("pay").unwrap();
    let _held = lease(lock).await;
    engine.lack(&["subscribe"]);
    let how = Acquire { wait: Duration::from_secs(30), ..Acquire::default() };
    let answer = lock.acquire(ID, how).await.unwrap();
    assert!(matches!(answer, Acquired::Held { .. }), "{answer:?}");
}

/// Holds the lock until a waiter has waited for more than a third of the lease, then lets it go.
async fn after_a_long_wait(engine: &Arc<Patchy>, lock: &Lock, work: impl AsyncFnOnce(Acquire<'static>)) {
    let first = lease(lock).await;
    let letting_go = tokio::spawn({
        let lock = lock.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(1200)).await;
            lock.release(ID, &first.token, None).await
        }
    });
    work(Acquire { wait: Duration::from_secs(30), ..Acquire::default() }).await;
    assert_eq!(letting_go.await.unwrap().unwrap(), Released::Released);
    until("it is given back", async || engine.asked("lock.release") == 2).await;
    until("it is free", async || matches!(lock.acquire(ID, Acquire::default()).await, Ok(Acquired::Ours(_))))
        .await;
}

#[tokio::test]
async fn a_hold_that_fails_gives_back_what_it_was_granted() {
    let (engine, node) = single("deny").await;
    let lock = node.lock("pay").unwrap();
    engine.lack(&["lock.renew"]);
    after_a_long_wait(&engine, lock, async |how| {
        assert_eq!(lock.hold(ID, how).await.unwrap_err().code, Code::StorePermission);
    })
    .await;
}

#[tokio::test]
async fn a_hold_that_is_dropped_gives_back_what_it_was_granted() {
    let (engine, node) = single("deny").await;
    let lock = node.lock("pay").unwrap();
    engine.hush(&["lock.renew"]);
    after_a_long_wait(&engine, lock, async |how| {
        let renewed = until("it renews", async || engine.asked("lock.renew") == 1);
        tokio::select! {
            answer = lock.hold(ID, how) => panic!("{answer:?}"),
            () = renewed => {}
        }
    })
    .await;
}

#[tokio::test]
async fn a_refusal_that_is_known_stays_one_when_the_store_goes_away_after_it() {
    for (name, lacking) in [("full", "guard.look"), ("strict", "limit.peek")] {
        let engine = Patchy::new(Topology::Cluster).await;
        let node = node(&engine, "allow", None);
        let guard = node.guard(name).unwrap();
        let Entered::Entered(pass) = guard.enter(ID, Enter::default()).await.unwrap() else { panic!("free") };
        let _ = guard.leave(ID, &pass.token, Leave { abandon: true, ..Leave::default() }).await.unwrap();
        engine.lack(&[lacking]);
        let answer = guard.enter(ID, Enter::default()).await.unwrap();
        let Entered::Limited(verdicts) = answer else { panic!("{lacking}: {answer:?}") };
        assert!(!verdicts[0].is_allowed());
        if let Some(strict) = verdicts.get(1) {
            assert_eq!(strict.quota().outage, Some(Outage::Deny), "not asked, and said so");
        }
    }
}

#[tokio::test]
async fn a_wait_without_end_is_an_hour() {
    let (_engine, node) = single("allow").await;
    let how = Begin { wait: Duration::MAX, ..Begin::default() };
    assert!(matches!(node.idempotency("pay").unwrap().begin(ID, how).await.unwrap(), Begun::Started(_)));
}

#[tokio::test]
async fn a_shipper_asks_a_store_that_is_away_as_seldom_as_it_was_told() {
    const UPLOAD: &str = "[schema]\nname = \"u\"\nowner = \"tests\"\n[upload.documents]\n\
        key = \"upload:{upload_id}:state\"\nobjects = \"file:objects\"\ndatabase = \"sqlite:uploads.db\"\n";
    let schema = Arc::new(load(&[Source { name: "u.toml", text: UPLOAD }], &|_| None).schema.unwrap());
    let folder = tempfile::tempdir().unwrap();
    let asked_after = |store: Arc<Patchy>, pause| {
        let upload = Quaymaster::new(schema.clone(), store).upload("documents").unwrap().clone();
        let away = Backoff { base: pause, max: pause, jitter: 0.0 };
        let options = quaymaster_upload::Options { away, ..quaymaster_upload::Options::default() };
        let folder = folder.path().to_owned();
        let settings =
            quaymaster_upload::Settings { folder, options, ..quaymaster_upload::Settings::default() };
        Uploads::open(upload, settings)
    };
    let (seldom, often) = (Patchy::new(Topology::Single).await, Patchy::new(Topology::Single).await);
    let patient = asked_after(seldom.clone(), Duration::from_secs(3600)).await.unwrap();
    let eager = asked_after(often.clone(), Duration::from_millis(1)).await.unwrap();
    for store in [&seldom, &often] {
        store.lack(&["upload.pick"]);
    }
    let stop = CancellationToken::new();
    let both = [patient, eager].map(|uploads| {
        let stop = stop.clone();
        tokio::spawn(async move { uploads.ship(1, stop).await })
    });
    let until = Instant::now() + Duration::from_secs(60);
    while often.asked("upload.pick") < 50 || seldom.asked("upload.pick") == 0 {
        assert!(Instant::now() < until, "the store is not asked again");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(seldom.asked("upload.pick"), 1, "its next attempt is an hour away");
    stop.cancel();
    for shipping in both {
        shipping.await.unwrap();
    }
}

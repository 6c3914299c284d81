//! A reply that is not understood is no outage: no policy answers for it, and the error says that the call may have run.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::time::Duration;

use quaymaster::cache::{Put, Value};
use quaymaster::guard::{Enter, Entered, Leave};
use quaymaster::idempotency::{Begin, Begun};
use quaymaster::limit::{Charge, Part, take_all};
use quaymaster::lock::{Acquire, Acquired};
use quaymaster::schema::{Source, load};
use quaymaster::store::Reply;
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster::{Code, DatabaseOptions, Engine, Quaymaster, Result, Settings};
use quaymaster_testkit::conformance::command;
use quaymaster_testkit::forger::Forger;
use quaymaster_testkit::script_proxy::{ScriptProxy, Trick};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

const ALGORITHMS: [&str; 4] = ["fixed_window", "sliding_log", "sliding_window", "token_bucket"];
const POLICIES: [&str; 4] = ["deny", "allow", "local", "database"];
const ID: &[(&str, &str)] = &[("id", "a")];

/// As they go over the wire, and as a store in this process tells them.
fn replies() -> Vec<(&'static [u8], Reply)> {
    let text = |text: &'static str| Reply::Bytes(text.into());
    vec![
        (b"+OK\r\n", text("OK")),
        (b":1\r\n", Reply::Int(1)),
        (b"$-1\r\n", Reply::Nil),
        (b"*0\r\n", Reply::Array(vec![])),
        (b"*1\r\n$7\r\nunheard\r\n", Reply::Array(vec![text("unheard")])),
        (b"*2\r\n:7\r\n:7\r\n", Reply::Array(vec![Reply::Int(7), Reply::Int(7)])),
        (
            b"*4\r\n$7\r\nallowed\r\n$1\r\nx\r\n$1\r\ny\r\n$1\r\nz\r\n",
            Reply::Array(vec![text("allowed"), text("x"), text("y"), text("z")]),
        ),
        (
            b"*5\r\n$7\r\nallowed\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
            Reply::Array(std::iter::once(text("allowed")).chain((0..4).map(|_| Reply::Int(1))).collect()),
        ),
        (b"*1\r\n*1\r\n$-1\r\n", Reply::Array(vec![Reply::Array(vec![Reply::Nil])])),
    ]
}

/// A store whose replies can be changed.
enum Changed {
    Redis { proxy: ScriptProxy, _server: Box<RedisServer> },
    Embedded(Arc<Forger>),
}

impl Changed {
    async fn redis() -> (Self, Arc<dyn Engine>) {
        let server = RedisServer::start(RedisConfig::default());
        let proxy = ScriptProxy::start(server.address()).await;
        let options = RedisOptions::from_url(&proxy.url()).unwrap();
        let engine = Arc::new(RedisStore::connect(options).await.unwrap());
        (Self::Redis { proxy, _server: Box::new(server) }, engine)
    }

    async fn embedded() -> (Self, Arc<dyn Engine>) {
        let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
        let forger = Forger::new(Arc::new(store));
        (Self::Embedded(forger.clone()), forger)
    }

    fn tell(&self, wire: &'static [u8], reply: &Reply) {
        match self {
            Self::Redis { proxy, .. } => proxy.play_all(Trick::Say(wire)),
            Self::Embedded(forger) => forger.tell(Some(reply.clone())),
        }
    }

    fn heal(&self) {
        match self {
            Self::Redis { proxy, .. } => proxy.heal(),
            Self::Embedded(forger) => forger.tell(None),
        }
    }
}

/// Limits of every algorithm under every policy, and all else that has one, under the one that lets through.
fn schema() -> String {
    let mut text = "[schema]\nname = \"replies\"\nowner = \"tests\"\n".to_owned();
    for policy in POLICIES {
        for algorithm in ALGORITHMS {
            let _ = write!(
                text,
                "[limit.{policy}_{algorithm}]\nkey = \"{policy}:{algorithm}:{{id}}\"\nalgorithm = \"{algorithm}\"\n\
                 limit = 3\nwindow = \"1h\"\non_outage = \"{policy}\"\n"
            );
        }
    }
    text + r#"
[lock.lock]
key = "lock:{id}"
ttl = "1h"
on_outage = "allow"
[idempotency.once]
key = "once:{id}"
ttl = "1h"
on_outage = "allow"
[cache.cache]
key = "cache:{id}"
ttl = "1h"
[guard.guard]
limits = ["allow_fixed_window", "local_token_bucket"]
idempotency = "once"
lock = "lock"
"#
}

fn node(engine: Arc<dyn Engine>, folder: &std::path::Path) -> Quaymaster {
    let text = schema();
    let loaded = load(&[Source { name: "replies.toml", text: &text }], &|_| None);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    let database =
        DatabaseOptions::from_url(&format!("sqlite:{}", folder.join("counts.db").display())).unwrap();
    let settings = Settings { database: Some(database), ..Settings::default() };
    Quaymaster::with(Arc::new(schema), engine, settings)
}

fn refused<T: Debug>(what: &str, wire: &[u8], answer: Result<T>) {
    let wire = String::from_utf8_lossy(wire).into_owned();
    match answer {
        Err(error) => {
            assert!(error.code == Code::StoreReply && error.may_have_run, "{what} on {wire:?}: {error}");
        }
        Ok(answer) => panic!("{what} on {wire:?}: {answer:?}"),
    }
}

async fn no_policy_answers((changed, engine): (Changed, Arc<dyn Engine>)) {
    let folder = tempfile::tempdir().unwrap();
    let node = node(engine, folder.path());
    let (lock, once) = (node.lock("lock").unwrap(), node.idempotency("once").unwrap());
    let (cache, guard) = (node.cache("cache").unwrap(), node.guard("guard").unwrap());
    let value = Value::Bytes("x".into());
    // Sound tokens, so that only the replies are to blame.
    let Acquired::Ours(lease) = lock.acquire(&[("id", "l")], Acquire::default()).await.unwrap() else {
        panic!()
    };
    let Begun::Started(claim) = once.begin(&[("id", "o")], Begin::default()).await.unwrap() else { panic!() };
    let Entered::Entered(pass) = guard.enter(&[("id", "g")], Enter::default()).await.unwrap() else {
        panic!()
    };
    for (wire, reply) in replies() {
        changed.tell(wire, &reply);
        for policy in POLICIES {
            for algorithm in ALGORITHMS {
                let name = format!("{policy}_{algorithm}");
                let limit = node.limit(&name).unwrap();
                refused(&name, wire, limit.take(ID, Charge::one()).await);
                refused(&name, wire, limit.take(ID, Charge { request_id: Some("r"), ..Charge::one() }).await);
                refused(&name, wire, limit.peek(ID).await);
                refused(&name, wire, limit.refund(ID, Charge::one()).await);
                refused(&name, wire, limit.reset(ID, None).await);
                refused(&name, wire, take_all(&[Part { limit, key: ID, cost: 1 }], None).await);
            }
        }
        refused("acquire", wire, lock.acquire(ID, Acquire::default()).await);
        let waiting = Acquire { wait: Duration::from_millis(50), ..Acquire::default() };
        refused("acquire and wait", wire, lock.acquire(ID, waiting).await);
        refused("renew", wire, lock.renew(&[("id", "l")], &lease.token, None).await);
        refused("release", wire, lock.release(&[("id", "l")], &lease.token, None).await);
        refused("begin", wire, once.begin(ID, Begin::default()).await);
        refused("finish", wire, once.finish(&[("id", "o")], &claim.token, Some(b"{}")).await);
        refused("abandon", wire, once.abandon(&[("id", "o")], &claim.token, None).await);
        refused("enter", wire, guard.enter(ID, Enter::default()).await);
        refused("leave", wire, guard.leave(&[("id", "g")], &pass.token, Leave::default()).await);
        refused("put", wire, cache.put(ID, &value, Put::default()).await);
        refused("get", wire, cache.get(ID).await);
        refused("exists", wire, cache.exists(ID).await);
        refused("delete", wire, cache.delete(ID, None).await);
        changed.heal();
    }
    assert!(node.outages().counts().all(|(_, _, _, answers)| answers == 0), "nothing was answered by policy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_policy_answers_for_a_reply_that_is_not_understood_on_redis() {
    no_policy_answers(Changed::redis().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_policy_answers_for_a_reply_that_is_not_understood_on_the_embedded_store() {
    no_policy_answers(Changed::embedded().await).await;
}

/// A limit that is used up stays so, whatever lies under a request's id.
async fn a_forged_record_lets_nobody_through((_changed, engine): (Changed, Arc<dyn Engine>)) {
    let folder = tempfile::tempdir().unwrap();
    let node = node(engine.clone(), folder.path());
    for policy in POLICIES {
        for algorithm in ALGORITHMS {
            let name = format!("{policy}_{algorithm}");
            let limit = node.limit(&name).unwrap();
            while limit.take(ID, Charge::one()).await.unwrap().is_allowed() {}
            // A record of its own says where records lie: a refund that gives nothing back would not have one.
            let charge = Charge { request_id: Some("R8"), ..Charge::one() };
            assert!(!limit.take(ID, charge).await.unwrap().is_allowed());
            let pattern = format!("*{policy}:{algorithm}:a*");
            let _ = limit.refund(ID, charge).await.unwrap();
            assert!(limit.take(ID, Charge::one()).await.unwrap().is_allowed());
            let keys = engine.scan(pattern.as_bytes(), 1000, None).await.unwrap().keys;
            let record = keys.iter().map(|key| String::from_utf8_lossy(key)).find(|key| key.ends_with(":R8"));
            let record = record.unwrap().replace(":R8", ":R9");
            for text in ["take", "x", ""] {
                let set: [&[u8]; 3] = [b"SET", record.as_bytes(), text.as_bytes()];
                command(&*engine, record.as_bytes(), &set).await.unwrap();
                for _ in 0..3 {
                    let charge = Charge { request_id: Some("R9"), ..Charge::one() };
                    let error = limit.take(ID, charge).await.unwrap_err();
                    assert_eq!(
                        (error.code, error.may_have_run),
                        (Code::KeyMalformed, false),
                        "{name}: {error}"
                    );
                    assert!(error.detail.contains(&record), "{name}: {error}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_record_lets_nobody_through_a_limit_on_redis() {
    a_forged_record_lets_nobody_through(Changed::redis().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_record_lets_nobody_through_a_limit_on_the_embedded_store() {
    a_forged_record_lets_nobody_through(Changed::embedded().await).await;
}

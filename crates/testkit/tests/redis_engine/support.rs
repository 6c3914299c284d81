//! Scripts and shorthands for the tests beside this file.

use std::future::Future;
use std::time::{Duration, Instant};

use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_store::{Code, Effect, Engine, Invocation, Reply, Result, Script, Workload};
use quaymaster_testkit::servers::any_port;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

/// A script for the life of the test process.
pub(crate) fn script(source: &'static str, effect: Effect) -> &'static Script {
    let sha = sha1_smol::Sha1::from(source).digest().to_string();
    Box::leak(Box::new(Script { id: "test.script", source, sha: sha.leak(), effect }))
}

/// Adds one and answers the sum.
pub(crate) fn count(key: &str) -> Invocation {
    let mut call =
        Invocation::new(script("return redis.call('INCR', KEYS[1])", Effect::Writes), Workload::Default);
    call.keys.push(key);
    call
}

/// Adds one, unless this id was seen.
pub(crate) fn count_once(key: &str, id: &str) -> Invocation {
    let source = "if redis.call('SADD', KEYS[2], ARGV[1]) == 0 then return tonumber(redis.call('GET', KEYS[1])) end \
                  return redis.call('INCR', KEYS[1])";
    let mut call = Invocation::new(script(source, Effect::Writes), Workload::Default).repeat_safe();
    call.keys.push(key);
    call.keys.push(format!("{{{key}}}:seen"));
    call.args.push(id);
    call
}

/// A call of `source` on `key`.
pub(crate) fn call(source: &'static str, effect: Effect, key: &str) -> Invocation {
    let mut call = Invocation::new(script(source, effect), Workload::Default);
    call.keys.push(key);
    call
}

/// Options with short waits; the deadline is generous, because machines are busy.
pub(crate) fn options(url: &str) -> RedisOptions {
    let mut options = RedisOptions::from_url(url).unwrap();
    options.backoff.base = Duration::from_millis(10);
    options.backoff.max = Duration::from_millis(100);
    options.breaker.cool_down = Duration::from_millis(100);
    options.deadline = Duration::from_secs(20);
    options.refresh = Duration::from_millis(200);
    options
}

/// Connects with [`options`].
pub(crate) async fn connect(url: &str) -> RedisStore {
    RedisStore::connect(options(url)).await.unwrap()
}

/// The code of an error.
pub(crate) fn code(result: Result<Reply>) -> Code {
    match result {
        Ok(reply) => panic!("expected an error, got {reply:?}"),
        Err(error) => error.code,
    }
}

/// Calls until the store fails with `expected`. A busy machine may also let the deadline pass within an
/// attempt, which is a time-out; nothing else is accepted.
pub(crate) async fn fails_with(store: &dyn Engine, call: &Invocation, expected: Code) {
    for _ in 0..50 {
        match code(store.run(call.clone()).await) {
            found if found == expected => return,
            Code::StoreTimedOut => {}
            other => panic!("expected {expected}, got {other}"),
        }
    }
    panic!("never failed with {expected}");
}

/// Tries until `ready` answers true; for what happens on a server by itself.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut ready: impl FnMut() -> F) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !ready().await {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs `count` until it is answered, and says what it answered.
pub(crate) async fn counted(store: &dyn Engine, key: &str) -> i64 {
    match store.run(count(key)).await.unwrap() {
        Reply::Int(value) => value,
        other => panic!("{other:?}"),
    }
}

/// Instead of an answer: the fake server hangs up.
pub(crate) const HANG_UP: &str = "hang up";

/// A server that speaks the protocol and answers what it is told; gives its URL's authority.
pub(crate) async fn fake_server(answer: impl FnMut(&[String]) -> String + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            let mut answer = answer.clone();
            tokio::spawn(async move {
                while let Ok(Some(head)) = lines.next_line().await {
                    let mut words = Vec::new();
                    for _ in 0..head[1..].parse::<usize>().unwrap() {
                        lines.next_line().await.unwrap();
                        words.push(lines.next_line().await.unwrap().unwrap());
                    }
                    let said = answer(&words);
                    if said == HANG_UP {
                        return;
                    }
                    // Whoever asked may be gone.
                    let _ = write.write_all(said.as_bytes()).await;
                }
            });
        }
    });
    address
}

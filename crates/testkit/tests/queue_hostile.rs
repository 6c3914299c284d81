//! Queues and batches where something beside them is wrong: a full store, lost replies, foreign keys, blocked threads.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use quaymaster::batch::{Add, Closed};
use quaymaster::idempotency::{Begin, Begun, Finished};
use quaymaster::limit::Charge;
use quaymaster::lock::{Acquire, Acquired, Renewed};
use quaymaster::queue::{
    Ack, Claim, ClaimNext, Extended, Job, Lease, Nack, Nacked, Purge, Push, Queue, Then,
};
use quaymaster::schema::{Source, load};
use quaymaster::worker::{Failure, Lost, Worker};
use quaymaster::{Code, Engine, Quaymaster};
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::conformance::{command_int, command_text};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use quaymaster_testkit::toll::Toll;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const SCHEMA: &str = "
[schema]
name = \"hostile\"
owner = \"tests\"
[queue.work]
max_size = 100000
retry = { max_attempts = 2, base = \"1ms\", max = \"1ms\", jitter = 0 }
[lock.door]
key = \"door:{id}\"
ttl = \"30s\"
[idempotency.pay]
key = \"pay:{id}\"
ttl = \"1h\"
[limit.log]
key = \"log:{id}\"
algorithm = \"sliding_log\"
limit = 9
window = \"1m\"
[queue.once]
retry = { max_attempts = 1, base = \"1ms\", max = \"1ms\", jitter = 0 }
max_size = 1000
[queue.ranked]
order = \"priority\"
max_size = 1000
[queue.closed]
max_size = 1000
[batch.camera]
key = \"camera:{camera_id}:current\"
by = \"camera_id\"
to = \"closed\"
items = \"detections\"
window = \"50ms\"
ttl = \"1h\"
colocate = \"closed\"
[batch.pair]
key = \"pair:{camera_id}:current\"
by = \"camera_id\"
to = \"closed\"
window = \"60s\"
max_items = 2
ttl = \"1h\"
colocate = \"closed\"
";

const LONG: Duration = Duration::from_secs(60);

fn bind(engine: Arc<dyn Engine>) -> Quaymaster {
    let loaded = load(&[Source { name: "hostile.toml", text: SCHEMA }], &|_| None);
    Quaymaster::new(Arc::new(loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))), engine)
}

async fn memory() -> (Quaymaster, Arc<Toll>) {
    let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    let toll = Toll::new(Arc::new(store));
    (bind(toll.clone() as Arc<dyn Engine>), toll)
}

async fn push(queue: &Queue, payloads: &[&'static str]) {
    let payloads = payloads.iter().map(|payload| Bytes::from_static(payload.as_bytes())).collect();
    queue.push(Push::many(payloads)).await.unwrap();
}

async fn claim(queue: &Queue, count: usize, lease: Duration) -> Vec<Job> {
    queue.claim(Claim { count, lease: Some(lease), ..Claim::default() }).await.unwrap()
}

/// Waits until the leases have ended by the store's clock.
async fn until_ended(queue: &Queue, lease: &Lease) {
    while queue.extend(lease, Some(Duration::from_millis(1))).await.unwrap() != Extended::Lost {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn payloads(jobs: &[Job]) -> Vec<&str> {
    jobs.iter().map(|job| std::str::from_utf8(&job.payload).unwrap()).collect()
}

/// An embedded store with room for little, and how it is filled.
async fn bounded() -> Quaymaster {
    let options = EmbeddedOptions { max_memory_bytes: 256 << 10, ..EmbeddedOptions::default() };
    bind(Arc::new(EmbeddedStore::memory(options).await.unwrap()))
}

async fn fill(quaymaster: &Quaymaster) {
    let filler = format!("\"{}\"", "x".repeat(10_000));
    for _ in 0..100 {
        if let Err(refused) = quaymaster.queue("once").unwrap().push(Push::one(filler.clone())).await {
            assert_eq!(refused.code, Code::StoreOom, "{refused}");
            return;
        }
    }
    panic!("a store of 256 KiB takes more than a megabyte");
}

#[tokio::test]
async fn a_store_without_memory_takes_no_pushes_and_lets_queues_drain() {
    let server = RedisServer::start(RedisConfig::default());
    let options = RedisOptions::from_url(&server.url()).unwrap();
    let quaymaster = bind(Arc::new(RedisStore::connect(options).await.unwrap()));
    drains(&quaymaster, async || server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"])).await;
}

#[tokio::test]
async fn an_embedded_store_without_memory_takes_no_pushes_and_lets_queues_drain() {
    let quaymaster = bounded().await;
    drains(&quaymaster, async || fill(&quaymaster).await).await;
    let facts = quaymaster.engine().deployment().await.unwrap();
    assert_eq!(facts.max_memory_bytes, Some(256 << 10));
    assert!(facts.used_memory_bytes > facts.max_memory_bytes, "{facts:?}");
}

async fn drains(quaymaster: &Quaymaster, full: impl AsyncFnOnce()) {
    let queue = quaymaster.queue("work").unwrap();
    push(queue, &["1", "2", "3", "4", "5", "6", "7"]).await;
    let jobs = claim(queue, 4, LONG).await;
    let dying = claim(queue, 1, Duration::from_millis(1)).await;
    until_ended(queue, &dying[0].lease).await;
    full().await;

    let refused = queue.push(Push::one("8")).await.unwrap_err();
    assert_eq!(refused.code, Code::StoreOom);
    let told = queue.extend(&jobs[0].lease, None).await.expect("leases are renewed");
    assert!(matches!(told, Extended::Ours { .. }), "{told:?}");
    assert_eq!(queue.ack(Ack::of(vec![jobs[0].lease.clone()])).await.expect("acks are taken").acked, 1);
    let nack = Nack { dead: true, ..Nack::of(jobs[1].lease.clone(), "no") };
    assert_eq!(queue.nack(nack).await.expect("dead letters are written"), Nacked::Dead { attempt: 1 });
    let nacked = queue.nack(Nack::of(jobs[2].lease.clone(), "no")).await.expect("failures are taken");
    assert!(matches!(nacked, Nacked::Retry { .. }), "{nacked:?}");
    let ack = Ack {
        claim: Some(ClaimNext { count: 1, lease: None, worker: None }),
        ..Ack::of(vec![jobs[3].lease.clone()])
    };
    let acked = queue.ack(ack).await.expect("jobs are handed out with an ack");
    assert_eq!((acked.acked, payloads(&acked.jobs)), (1, vec!["5"]), "what has expired comes first");
    let last = queue.extend(&acked.jobs[0].lease, Some(Duration::from_millis(1))).await.unwrap();
    assert!(matches!(last, Extended::Ours { .. }), "{last:?}");
    until_ended(queue, &acked.jobs[0].lease).await;
    assert_eq!(queue.sweep().await.expect("a sweep buries").buried, 1);
    let rest = claim(queue, 10, LONG).await;
    assert_eq!(rest.len(), 3, "{:?}", payloads(&rest));
    assert_eq!(queue.ack(Ack::of(rest.into_iter().map(|job| job.lease).collect())).await.unwrap().acked, 3);
    let left = queue.pressure().await.unwrap();
    assert_eq!((left.current_length, left.leased, left.delayed, left.dead), (0, 0, 0, 2));
    queue.pause().await.expect("a queue can be paused");
    let old = Purge { older_than: Some(Duration::ZERO), request_id: Some("p".into()), ..Purge::default() };
    assert_eq!(queue.purge(old, |_| {}).await.expect("dead letters are removed"), 2);
}

#[tokio::test]
async fn a_store_without_memory_lets_a_batch_be_queued() {
    let server = RedisServer::start(RedisConfig::default());
    let options = RedisOptions::from_url(&server.url()).unwrap();
    let quaymaster = bind(Arc::new(RedisStore::connect(options).await.unwrap()));
    closes(&quaymaster, async || server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"])).await;
    let quaymaster = bounded().await;
    closes(&quaymaster, async || fill(&quaymaster).await).await;
}

#[tokio::test]
async fn a_store_without_memory_lets_what_was_begun_end() {
    let server = RedisServer::start(RedisConfig::default());
    let options = RedisOptions::from_url(&server.url()).unwrap();
    let quaymaster = bind(Arc::new(RedisStore::connect(options).await.unwrap()));
    ends(&quaymaster, async || server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"])).await;
    let quaymaster = bounded().await;
    ends(&quaymaster, async || fill(&quaymaster).await).await;
}

async fn ends(quaymaster: &Quaymaster, full: impl AsyncFnOnce()) {
    let (lock, pay) = (quaymaster.lock("door").unwrap(), quaymaster.idempotency("pay").unwrap());
    let key: &[(&str, &str)] = &[("id", "1")];
    let Acquired::Ours(lease) = lock.acquire(key, Acquire::default()).await.unwrap() else {
        panic!("nobody has it")
    };
    let Begun::Started(claim) = pay.begin(key, Begin::default()).await.unwrap() else {
        panic!("nobody runs it")
    };
    full().await;

    let refused = quaymaster.limit("log").unwrap().take(key, Charge::default()).await.unwrap_err();
    assert_eq!(refused.code, Code::StoreOom, "a call that is counted grows");
    let renewed = lock.renew(key, &lease.token, None).await.expect("a lease is renewed");
    assert!(matches!(renewed, Renewed::Ours(_)), "{renewed:?}");
    let finished = pay.finish(key, &claim.token, Some(b"paid")).await.expect("what has run is kept");
    assert!(matches!(finished, Finished::Finished { outage: None, .. }), "{finished:?}");
    let again = pay.begin(key, Begin::default()).await.expect("and told");
    assert!(matches!(again, Begun::Finished(_)), "{again:?}");
}

async fn closes(quaymaster: &Quaymaster, full: impl AsyncFnOnce()) {
    let batch = quaymaster.batch("pair").unwrap();
    let key: &[(&str, &str)] = &[("camera_id", "front")];
    assert_eq!(batch.add(key, Add { item: b"1", ..Add::default() }).await.unwrap().size, 1);
    full().await;
    let closed = batch.close(key, None).await.expect("a batch is closed");
    assert!(matches!(closed, Closed::Closed { .. }), "{closed:?}");
    assert_eq!(claim(quaymaster.queue("closed").unwrap(), 2, LONG).await.len(), 1);
}

#[tokio::test]
async fn a_worker_that_is_dropped_while_it_drains_leaves_no_handler_behind() {
    let (quaymaster, _) = memory().await;
    let queue = quaymaster.queue("work").unwrap();
    push(queue, &["1"]).await;
    let (stop, begun, gone) = (CancellationToken::new(), Arc::new(Notify::new()), CancellationToken::new());
    let handler = {
        let (begun, gone) = (begun.clone(), gone.clone());
        move |_: Job, _: Lost| {
            let (begun, gone) = (begun.clone(), gone.clone().drop_guard());
            async move {
                begun.notify_one();
                std::future::pending::<()>().await;
                drop(gone);
                Ok::<(), Failure>(())
            }
        }
    };
    let worker = Worker::new(queue.clone()).handlers_on(tokio::runtime::Handle::current());
    let mut running = Box::pin(worker.run(handler, stop.clone()));
    tokio::select! {
        _ = &mut running => panic!("it was not told to stop"),
        () = begun.notified() => {}
    }
    stop.cancel();
    let draining = tokio::time::timeout(Duration::from_millis(50), &mut running).await;
    assert!(draining.is_err(), "{draining:?}");
    drop(running);
    tokio::time::timeout(LONG, gone.cancelled()).await.expect("the handler ends with its worker");
}

#[tokio::test]
async fn a_repeated_claim_whose_jobs_are_settled_is_answered_at_once() {
    let (quaymaster, toll) = memory().await;
    let queue = quaymaster.queue("work").unwrap();
    push(queue, &["1", "2"]).await;
    let request =
        Claim { request_id: Some("r".into()), wait: Duration::from_millis(300), ..Claim::default() };
    let jobs = queue.claim(request.clone()).await.unwrap();
    assert_eq!(queue.ack(Ack::of(vec![jobs[0].lease.clone()])).await.unwrap().acked, 1);
    toll.runs();
    assert_eq!(queue.claim(request).await.unwrap(), [], "the request's job is done");
    let runs = toll.runs();
    assert!(runs <= 2, "{runs} scripts for one answer");
}

#[tokio::test]
async fn a_lease_that_was_lost_is_not_renewed_by_the_next_one_of_the_same_job() {
    let (quaymaster, _) = memory().await;
    let queue = quaymaster.queue("work").unwrap();
    push(queue, &["1"]).await;
    let first = claim(queue, 1, Duration::from_millis(1)).await.remove(0).lease;
    until_ended(queue, &first).await;
    let second = claim(queue, 1, LONG).await.remove(0).lease;
    assert_eq!(first.id(), second.id());
    let told = queue.extend_all(&[first, second], None).await.unwrap();
    assert!(matches!(told[..], [Extended::Lost, Extended::Ours { .. }]), "{told:?}");
}

#[tokio::test]
async fn a_job_without_attempts_is_not_handed_out_because_a_request_comes_again() {
    let (quaymaster, toll) = memory().await;
    let queue = quaymaster.queue("once").unwrap();
    push(queue, &["\"poison\""]).await;
    let first = claim(queue, 1, Duration::from_millis(1)).await.remove(0).lease;
    until_ended(queue, &first).await;
    let request = Claim { request_id: Some("r".into()), ..Claim::default() };
    toll.lose_next_reply();
    assert_eq!(queue.claim(request.clone()).await.unwrap_err().code, Code::StoreLost);
    assert_eq!(queue.claim(request).await.unwrap(), [], "its only attempt is over");
    assert_eq!(queue.pressure().await.unwrap().dead, 1);
}

#[tokio::test]
async fn an_ack_that_lost_its_lease_gets_the_same_next_jobs_when_it_comes_again() {
    let (quaymaster, toll) = memory().await;
    let queue = quaymaster.queue("work").unwrap();
    push(queue, &["1", "2", "3"]).await;
    let lease = claim(queue, 1, Duration::from_millis(1)).await.remove(0).lease;
    until_ended(queue, &lease).await;
    let push_on = Then::Push { name: "closed".into(), payload: "9".into(), priority: None, delay: None };
    let ack = Ack {
        then: vec![push_on],
        claim: Some(ClaimNext { count: 1, lease: None, worker: None }),
        request_id: Some("r".into()),
        ..Ack::of(vec![lease])
    };
    toll.lose_next_reply();
    assert_eq!(queue.ack(ack.clone()).await.unwrap_err().code, Code::StoreLost);
    let acked = queue.ack(ack).await.unwrap();
    assert_eq!((acked.acked, acked.lost, acked.jobs.len()), (0, 1, 1));
    assert_eq!(queue.pressure().await.unwrap().leased, 1, "one claim, however often it is sent");
}

#[tokio::test]
async fn one_batch_that_another_program_left_half_does_not_keep_the_others_from_their_queue() {
    let (quaymaster, _) = memory().await;
    let engine = &**quaymaster.engine();
    let batch = quaymaster.batch("camera").unwrap();
    let add = |camera: &'static str, item: &'static str| async move {
        batch.add(&[("camera_id", camera)], Add { item: item.as_bytes(), ..Add::default() }).await.unwrap()
    };
    // Begun without saying whose it is, as a program does that dies between two of its commands.
    command_text(engine, &["SET", "camera:theirs:detections", "[1]"]).await;
    command_text(engine, &["SET", "camera:gate:current", "theirs"]).await;
    assert_eq!(add("gate", "2").await.size, 2);
    // Nothing is known of this one but that it is due, and its name makes no key.
    command_int(engine, &["ZADD", "camera:open", "1", "no {key}"]).await;
    assert_eq!(add("yard", "3").await.size, 1);
    let mut closed = 0;
    for _ in 0..2000 {
        closed += batch.sweep().await.map_or(0, |swept| swept.closed);
        if closed >= 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let jobs = claim(quaymaster.queue("closed").unwrap(), 10, LONG).await;
    let mut lists: Vec<String> = jobs
        .iter()
        .map(|job| {
            let job: serde_json::Value = serde_json::from_slice(&job.payload).unwrap();
            format!("{} {}", job["camera_id"], job["detections"])
        })
        .collect();
    lists.sort();
    assert_eq!(lists, ["\"gate\" [1,2]", "\"yard\" [3]"]);
}

#[tokio::test]
async fn a_batch_that_is_queued_already_is_not_called_expired() {
    let (quaymaster, _) = memory().await;
    let batch = quaymaster.batch("pair").unwrap();
    let key: &[(&str, &str)] = &[("camera_id", "front")];
    let add = |request_id| Add { item: b"1", id: None, request_id: Some(request_id) };
    assert_eq!(batch.add(key, add("a")).await.unwrap().size, 1);
    assert!(batch.add(key, add("b")).await.unwrap().closed);
    assert!(batch.add(key, add("b")).await.unwrap().closed, "the same answer again");
    assert_eq!((batch.counts().closed(), batch.counts().expired()), (1, 0));
}

#[tokio::test]
async fn a_retry_of_high_priority_does_not_wait_behind_a_hundred_of_low() {
    let (quaymaster, _) = memory().await;
    let queue = quaymaster.queue("ranked").unwrap();
    let ranked = |priority, payload: &'static str| Push { priority: Some(priority), ..Push::one(payload) };
    let again = |lease: Lease| Nack { delay: Some(Duration::ZERO), ..Nack::of(lease, "no") };
    for _ in 0..150 {
        queue.push(ranked(1.0, "\"low\"")).await.unwrap();
    }
    for job in claim(queue, 150, LONG).await {
        assert!(matches!(queue.nack(again(job.lease)).await.unwrap(), Nacked::Retry { .. }));
    }
    queue.push(ranked(10.0, "\"high\"")).await.unwrap();
    let high = claim(queue, 1, LONG).await.remove(0);
    assert_eq!(&high.payload[..], b"\"high\"");
    assert!(matches!(queue.nack(again(high.lease)).await.unwrap(), Nacked::Retry { .. }));
    queue.push(ranked(5.0, "\"middle\"")).await.unwrap();
    assert_eq!(payloads(&claim(queue, 1, LONG).await), ["\"high\""]);
}

#[test]
fn a_handler_that_blocks_keeps_nobody_elses_push() {
    let threads = |count| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap()
    };
    let (main, handlers) = (threads(2), threads(1));
    let server = RedisServer::start(RedisConfig::default());
    let options = RedisOptions::from_url(&server.url()).unwrap();
    let toll = Toll::new(main.block_on(async { Arc::new(RedisStore::connect(options).await.unwrap()) }));
    let quaymaster = main.block_on(async { bind(toll.clone() as Arc<dyn Engine>) });
    let queue = quaymaster.queue("work").unwrap().clone();
    main.block_on(async { push(&queue, &["0"]).await });
    toll.runs();
    server.pause();
    let (done, until) = std::sync::mpsc::channel::<()>();
    let theirs = queue.clone();
    let handler = handlers.spawn(async move {
        let pushes = (1..5).map(|n: u32| theirs.push(Push::one(Bytes::from(n.to_string()))));
        let pushed = futures_util::future::join_all(pushes).await;
        // From here on nothing else runs on this thread.
        let _ = until.recv();
        assert!(pushed.iter().all(Result::is_ok), "{pushed:?}");
    });
    let mut under_way = 0;
    while under_way < 4 {
        under_way += toll.runs();
        std::thread::sleep(Duration::from_millis(1));
    }
    let pushed = main.block_on(async {
        let mut fifth = std::pin::pin!(queue.push(Push::one("5")));
        assert!(futures_util::poll!(&mut fifth).is_pending());
        server.resume();
        fifth.await
    });
    done.send(()).unwrap();
    main.block_on(handler).unwrap();
    assert_eq!(pushed.expect("the store is well").accepted, 1);
}

#[tokio::test]
async fn what_is_too_much_for_one_claim_goes_back_and_keeps_its_order() {
    let (quaymaster, _) = memory().await;
    let queue = quaymaster.queue("work").unwrap();
    let engine = &**quaymaster.engine();
    // Five that unfold to sixteen mebibytes each, which is more than one claim unfolds, and a small one behind them.
    let large = format!("\"{}\"", "a".repeat((16 << 20) - 2));
    let folded = STANDARD.encode(zstd::bulk::compress(large.as_bytes(), 1).unwrap());
    for _ in 0..5 {
        command_int(engine, &["RPUSH", "work", &format!("Z:{folded}")]).await;
    }
    command_int(engine, &["RPUSH", "work", "\"last\""]).await;
    let first = claim(queue, 10, LONG).await;
    assert!(first.iter().all(|job| job.payload.len() == 16 << 20), "the small one is not the next");
    let rest = claim(queue, 10, LONG).await;
    assert_eq!(first.len() + rest.len(), 6);
    assert_eq!(rest.last().map(|job| &job.payload[..]), Some(&b"\"last\""[..]));
    assert!(rest.iter().all(|job| job.attempt == 1), "nobody has tried them");
}

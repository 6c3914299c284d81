//! Queues while the store is away: every call says so in time, waiting claims end, workers go on by themselves when it
//! is back, and nothing is pushed twice or lost.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quaymaster::queue::{Ack, Claim, Job, Lease, Nack, Purge, Push, Queue, Redrive};
use quaymaster::worker::{Failure, Worker};
use quaymaster::{Quaymaster, Retry, Settings};
use quaymaster_testkit::proxy::{Cut, FaultProxy, Way};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use tokio_util::sync::CancellationToken;

use crate::faults::{BOUND, FAULTS, in_time, is_away};
use crate::scene::{back, node, until};

const SCHEMA: &str = r#"
[schema]
name = "away"
owner = "tests"
[queue.jobs]
lease = "60s"
retry = { max_attempts = 5, base = "10ms", max = "50ms", jitter = 0.0 }
[queue.brief]
lease = "500ms"
retry = { max_attempts = 50, base = "10ms", max = "50ms", jitter = 0.0 }
[queue.ranked]
order = "priority"
"#;

async fn durable() -> (RedisServer, FaultProxy, Quaymaster) {
    let server = RedisServer::start(RedisConfig::default().line("appendonly yes").line("appendfsync always"));
    let proxy = FaultProxy::start(server.address()).await;
    let node = node(SCHEMA, &proxy.url(), Settings::default()).await;
    (server, proxy, node)
}

async fn one(queue: &Queue) -> Job {
    let how = Claim { wait: BOUND, ..Claim::default() };
    queue.claim(how).await.unwrap().pop().unwrap()
}

/// Every call, none of which may hang or pretend.
async fn every_call_says_so(queue: &Queue, lease: &Lease) {
    is_away("push", in_time("push", queue.push(Push::one("1"))).await);
    is_away("claim", in_time("claim", queue.claim(Claim::default())).await);
    is_away("ack", in_time("ack", queue.ack(Ack::of(vec![lease.clone()]))).await);
    is_away("nack", in_time("nack", queue.nack(Nack::of(lease.clone(), "no"))).await);
    let last = Nack { dead: true, ..Nack::of(lease.clone(), "no") };
    is_away("nack for good", in_time("nack", queue.nack(last)).await);
    is_away("extend", in_time("extend", queue.extend(lease, None)).await);
    is_away("pressure", in_time("pressure", queue.pressure()).await);
    is_away("pause", in_time("pause", queue.pause()).await);
    is_away("resume", in_time("resume", queue.resume()).await);
    is_away("peek", in_time("peek", queue.peek(1)).await);
    is_away("dead", in_time("dead", queue.dead(1, 0)).await);
    is_away("redrive", in_time("redrive", queue.redrive(Redrive::default(), |_| ())).await);
    is_away("purge", in_time("purge", queue.purge(Purge::default(), |_| ())).await);
    is_away("sweep", in_time("sweep", queue.sweep()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_a_queue_says_in_time_that_the_store_is_away_and_goes_on_afterwards() {
    let (mut server, proxy, node) = durable().await;
    let queue = node.queue("jobs").unwrap();
    for fault in FAULTS {
        back(&node).await;
        queue.resume().await.unwrap();
        server.command::<()>(&["FLUSHALL"]);
        let _ = queue.push(Push::many(vec!["1".into(), "2".into()])).await.unwrap();
        let job = one(queue).await;
        fault.begin(&mut server, &proxy);
        every_call_says_so(queue, &job.lease).await;
        fault.end(&mut server, &proxy);
        back(&node).await;
        // Whatever of it the store got and could not answer, the lease is ours or was settled; nothing else is lost.
        queue.resume().await.unwrap();
        let _ = queue.push(Push::one("3")).await.unwrap();
        let (mut seen, mut left) = (HashSet::new(), 0);
        until("everything was seen", async || {
            for job in queue.claim(Claim { count: 10, ..Claim::default() }).await.unwrap_or_default() {
                seen.insert(job.payload.clone());
            }
            left = queue.pressure().await.map_or(1, |now| now.current_length + now.delayed);
            left == 0
        })
        .await;
        assert!(seen.contains(&b"3"[..]), "{fault:?}: {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_waits_ends_when_the_store_goes_away() {
    let (mut server, proxy, node) = durable().await;
    for name in ["jobs", "ranked"] {
        let queue = node.queue(name).unwrap();
        for fault in FAULTS {
            back(&node).await;
            let waiting = tokio::spawn({
                let queue = queue.clone();
                async move { queue.claim(Claim { wait: Duration::from_secs(25), ..Claim::default() }).await }
            });
            // Whether it has begun to wait or not, it must end.
            fault.begin(&mut server, &proxy);
            let answer = in_time("a waiting claim", waiting).await.unwrap();
            is_away(&format!("{name} {fault:?}"), answer);
            fault.end(&mut server, &proxy);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_whose_reply_was_lost_is_there_once_when_it_comes_again_under_its_id() {
    let (mut server, proxy, node) = durable().await;
    let queue = node.queue("jobs").unwrap();
    for (round, fault) in FAULTS.into_iter().enumerate() {
        back(&node).await;
        let before: i64 = server.command(&["LLEN", "jobs"]);
        let ids: Vec<String> = (0..8).map(|n| format!("{round}-{n}")).collect();
        let push =
            |id: &String| queue.push(Push { request_id: Some(id.clone()), ..Push::one(format!("\"{id}\"")) });
        // Under way while the fault begins: some have run, some not, and nobody can tell.
        let ((), first) = tokio::join!(
            async { fault.begin(&mut server, &proxy) },
            futures_util::future::join_all(ids.iter().map(push))
        );
        fault.end(&mut server, &proxy);
        back(&node).await;
        for (id, told) in ids.iter().zip(first) {
            if let Err(error) = told {
                assert_ne!(error.code.retry(), Retry::Useless, "{fault:?}: {error}");
            }
            until("the push is answered", async || push(id).await.is_ok()).await;
        }
        let after: i64 = server.command(&["LLEN", "jobs"]);
        assert_eq!(after - before, 8, "{fault:?}: each once");
    }
    // Without an id nobody sends it again by itself.
    back(&node).await;
    let before: i64 = server.command(&["LLEN", "jobs"]);
    proxy.cut_after(Way::Reply, 0, Cut::Rst);
    let error = queue.push(Push::one("\"once\"")).await.unwrap_err();
    assert_eq!(error.code.retry(), Retry::MayHaveRun, "{error}");
    assert_eq!(server.command::<i64>(&["LLEN", "jobs"]), before + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_goes_on_by_itself_after_every_outage_and_no_job_is_lost() {
    let (mut server, proxy, node) = durable().await;
    let producer = crate::scene::node(SCHEMA, &server.url(), Settings::default()).await;
    let (queue, direct) = (node.queue("brief").unwrap().clone(), producer.queue("brief").unwrap().clone());
    let done: Arc<Mutex<HashSet<String>>> = Arc::default();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (done, stop) = (done.clone(), stop.clone());
        let handler = move |job: Job, _| {
            let done = done.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                done.lock().insert(String::from_utf8_lossy(&job.payload).into_owned());
                Ok::<(), Failure>(())
            }
        };
        Worker::new(queue).concurrency(8).run(handler, stop)
    });
    let mut pushed = 0;
    for fault in FAULTS {
        // Some in hand when it begins, some pushed while the worker's link is down, some afterwards.
        for phase in 0..3 {
            if phase == 1 {
                fault.begin(&mut server, &proxy);
            }
            for _ in 0..20 {
                let payload = pushed.to_string();
                // A store that is stopped takes none: these come when it is back.
                if phase != 1 || !matches!(fault, crate::faults::Fault::Killed | crate::faults::Fault::Paused)
                {
                    until("it is pushed", async || {
                        let push =
                            Push { request_id: Some(format!("p{payload}")), ..Push::one(payload.clone()) };
                        direct.push(push).await.is_ok()
                    })
                    .await;
                    pushed += 1;
                }
            }
            if phase == 1 {
                fault.end(&mut server, &proxy);
            }
        }
        until("the worker has done everything", async || done.lock().len() == pushed).await;
    }
    until("everything is acked", async || {
        direct.pressure().await.is_ok_and(|now| now.current_length + now.delayed + now.leased == 0)
    })
    .await;
    assert_eq!(direct.pressure().await.unwrap().dead, 0);
    stop.cancel();
    let _ = in_time("the worker's end", running).await.unwrap().unwrap();
}

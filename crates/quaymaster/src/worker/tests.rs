#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use quaymaster_schema::{Source, load};
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_store::{
    Deployment, Health, Invocation, KeyFacts, Message, Reply, ScanCursor, ScanPage, Topology,
};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::queue::{Ack, Claim, Pressure, Push, Then};
use crate::{Engine, Quaymaster};

const SCHEMA: &str = r#"
[schema]
name = "test"

[queue.jobs]
max_size = 100000
lease = "600ms"
retry = { max_attempts = 2, base = "1ms", max = "1ms", jitter = 0 }

[queue.next]
max_size = 1
"#;

/// A store that can go away, and counts what it is asked.
#[derive(Debug)]
struct Flaky {
    inner: Arc<dyn Engine>,
    away: AtomicBool,
    asked: AtomicU64,
    /// What is given back gets no answer.
    keeps: AtomicBool,
    /// How often that was asked, and leases to be renewed after it.
    kept: AtomicU64,
    renewed: AtomicU64,
    /// The next claim's reply waits until it is let go.
    late: AtomicBool,
    let_go: Semaphore,
}

impl Flaky {
    fn refusal(&self) -> Option<Error> {
        self.asked.fetch_add(1, SeqCst);
        let away = self.away.load(SeqCst);
        away.then(|| Error::new("store.test", Code::StoreRefused, "nobody is there"))
    }
}

impl Engine for Flaky {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        if call.script.id == "queue.release" && self.keeps.load(SeqCst) {
            self.kept.fetch_add(1, SeqCst);
            return std::future::pending().boxed();
        }
        if call.script.id == "queue.extend" && self.kept.load(SeqCst) > 0 {
            self.renewed.fetch_add(1, SeqCst);
        }
        if call.script.id == "queue.claim" && self.late.swap(false, SeqCst) {
            return Box::pin(async {
                let reply = self.inner.run(call).await;
                self.let_go.acquire().await.unwrap().forget();
                reply
            });
        }
        match self.refusal() {
            Some(error) => ready(Err(error)).boxed(),
            None => self.inner.run(call),
        }
    }
    fn time_us(&self) -> BoxFuture<'_, Result<i64>> {
        self.inner.time_us()
    }
    fn now_us(&self) -> i64 {
        self.inner.now_us()
    }
    fn topology(&self) -> Topology {
        self.inner.topology()
    }
    fn subscribe<'a>(&'a self, channel: &'a [u8]) -> BoxFuture<'a, Result<BoxStream<'static, Message>>> {
        self.inner.subscribe(channel)
    }
    fn wait_for_item<'a>(&'a self, key: &'a [u8], limit: Duration) -> BoxFuture<'a, Result<bool>> {
        match self.refusal() {
            Some(error) => ready(Err(error)).boxed(),
            None => self.inner.wait_for_item(key, limit),
        }
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

struct Scene {
    quaymaster: Quaymaster,
    store: Arc<Flaky>,
    stop: CancellationToken,
}

impl Scene {
    async fn new() -> Self {
        let inner = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
        let store = Arc::new(Flaky {
            inner,
            away: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            keeps: AtomicBool::new(false),
            kept: AtomicU64::new(0),
            renewed: AtomicU64::new(0),
            late: AtomicBool::new(false),
            let_go: Semaphore::new(0),
        });
        let schema = load(&[Source { name: "test.toml", text: SCHEMA }], &|_| None).schema.unwrap();
        let quaymaster = Quaymaster::new(Arc::new(schema), store.clone());
        Self { quaymaster, store, stop: CancellationToken::new() }
    }

    fn queue(&self) -> &Queue {
        self.quaymaster.queue("jobs").unwrap()
    }

    async fn push(&self, count: usize) {
        let payloads = (0..count).map(|number| Bytes::from(number.to_string())).collect();
        assert_eq!(self.queue().push(Push::many(payloads)).await.unwrap().accepted, count as u64);
    }

    fn worker(&self) -> Worker {
        let soon = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(5), jitter: 0.25 };
        Worker::new(self.queue().clone()).concurrency(4).retry(soon)
    }

    fn start<F, D>(
        &self,
        worker: Worker,
        handler: impl Fn(Job, Lost) -> F + Send + Sync + 'static,
    ) -> JoinHandle<Result<Ended>>
    where
        F: Future<Output = std::result::Result<D, Failure>> + Send + 'static,
        D: Into<Done> + 'static,
    {
        tokio::spawn(worker.run(handler, self.stop.clone()))
    }

    async fn end(&self, running: JoinHandle<Result<Ended>>) -> Ended {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(20), running).await.unwrap().unwrap().unwrap()
    }

    async fn pressure(&self) -> Pressure {
        self.queue().pressure().await.unwrap()
    }
}

/// Looks until it is so.
async fn until(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn every_job_is_handled_once_and_acked() {
    let scene = Scene::new().await;
    scene.push(5000).await;
    let worker = scene.worker().concurrency(50);
    let counts = worker.counts().clone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handled = seen.clone();
    let running = scene.start(worker, move |job, _| {
        handled.lock().push(String::from_utf8(job.payload.to_vec()).unwrap().parse::<usize>().unwrap());
        async { Ok::<_, Failure>(()) }
    });
    until("all acked", || counts.acked() == 5000).await;
    assert_eq!(scene.end(running).await, Ended { given_back: 0, cut: 0 });
    let mut seen = seen.lock().clone();
    seen.sort_unstable();
    assert_eq!(seen, (0..5000).collect::<Vec<_>>());
    let left = scene.pressure().await;
    assert_eq!((left.current_length, left.leased, left.delayed, left.dead), (0, 0, 0, 0));
    assert_eq!((counts.running(), counts.busy(), counts.lost()), (0, 0, 0));
}

#[tokio::test]
async fn a_failure_comes_again_and_then_is_a_dead_letter_with_its_words() {
    let scene = Scene::new().await;
    scene.push(1).await;
    let worker = scene.worker();
    let counts = worker.counts().clone();
    let running = scene.start(worker, |job, _| async move {
        let attempt = job.attempt;
        if attempt == 1 {
            return Err(std::io::Error::other("the disk is full").into());
        }
        assert_ne!(attempt, 2, "a panic is a failure too");
        Ok(())
    });
    until("dead", || counts.dead() == 1).await;
    let _ = scene.end(running).await;
    assert_eq!((counts.retried(), counts.panicked()), (1, 1));
    let letters = scene.queue().dead(10, 0).await.unwrap();
    let text = String::from_utf8(letters.items[0].bytes().to_vec()).unwrap();
    assert!(text.contains("a panic is a failure too") && text.contains("\"attempt_count\":2"), "{text}");
}

#[tokio::test]
async fn what_no_attempt_can_help_is_dead_at_once() {
    let scene = Scene::new().await;
    scene.push(1).await;
    let worker = scene.worker();
    let counts = worker.counts().clone();
    let running = scene.start(worker, |_, _| async { Err::<(), _>(Failure::new("no such file").dead()) });
    until("dead", || counts.dead() == 1).await;
    let _ = scene.end(running).await;
    assert_eq!((counts.claimed(), counts.retried()), (1, 0));
}

/// The test's own runtime has one thread, and every thread for handlers is blocked for several leases.
#[tokio::test]
async fn handlers_that_block_keep_their_leases() {
    let scene = Scene::new().await;
    scene.push(2).await;
    let worker = scene.worker().concurrency(2).threads(2).lease(Duration::from_millis(400));
    let counts = worker.counts().clone();
    let lost = Arc::new(AtomicU64::new(0));
    let told = lost.clone();
    let running = scene.start(worker, move |_, lost| {
        let told = told.clone();
        async move {
            std::thread::sleep(Duration::from_millis(1600));
            if lost.is_lost() {
                told.fetch_add(1, SeqCst);
            }
            Ok::<_, Failure>(())
        }
    });
    until("both acked", || counts.acked() == 2).await;
    let _ = scene.end(running).await;
    assert_eq!((counts.claimed(), counts.lost(), lost.load(SeqCst)), (2, 0, 0), "delivered once each");
}

#[tokio::test]
async fn a_handler_is_told_when_its_lease_is_lost() {
    let scene = Scene::new().await;
    scene.push(1).await;
    let worker = scene.worker().lease(Duration::from_millis(300));
    let counts = worker.counts().clone();
    let (begun, mut leases) = mpsc::channel(8);
    let running = scene.start(worker, move |job: Job, lost: Lost| {
        let begun = begun.clone();
        async move {
            begun.send(job.lease).await.unwrap();
            if job.attempt == 1 {
                lost.lost().await;
                assert!(lost.is_lost());
            }
            Ok::<_, Failure>(())
        }
    });
    let lease = leases.recv().await.unwrap();
    // Somebody takes it away, as a lease that ended in a long pause would be.
    assert_eq!(scene.queue().nack(crate::queue::Nack::of(lease, "taken")).await.unwrap(), {
        crate::queue::Nacked::Retry { attempt: 1, retry_in: Duration::from_millis(1) }
    });
    leases.recv().await.unwrap();
    until("settled", || counts.acked() == 1 && counts.lost() == 1).await;
    let _ = scene.end(running).await;
}

#[tokio::test]
async fn a_store_that_is_away_longer_than_the_lease_loses_it() {
    let scene = Scene::new().await;
    scene.push(1).await;
    let worker = scene.worker().lease(Duration::from_millis(200));
    let (begun, mut told) = mpsc::channel(8);
    let running = scene.start(worker, move |job: Job, lost: Lost| {
        let begun = begun.clone();
        async move {
            begun.send(job.attempt).await.unwrap();
            if job.attempt == 1 {
                lost.lost().await;
                begun.send(0).await.unwrap();
            }
            Ok::<_, Failure>(())
        }
    });
    assert_eq!(told.recv().await, Some(1));
    scene.store.away.store(true, SeqCst);
    assert_eq!(told.recv().await, Some(0), "by our own clock, with nobody to ask");
    scene.store.away.store(false, SeqCst);
    let _ = scene.end(running).await;
}

/// As when a server writes its log to a disk that stands still, and answers only then.
#[tokio::test]
async fn a_job_whose_lease_ended_before_the_claims_reply_came_is_not_begun() {
    let scene = Scene::new().await;
    scene.push(1).await;
    scene.store.late.store(true, SeqCst);
    let worker = scene.worker().lease(Duration::from_millis(300));
    let counts = worker.counts().clone();
    let begun = Arc::new(AtomicU64::new(0));
    let seen = begun.clone();
    let running = scene.start(worker, move |_, _| {
        seen.fetch_add(1, SeqCst);
        async { Ok::<_, Failure>(()) }
    });
    until("claimed", || !scene.store.late.load(SeqCst)).await;
    let claim =
        Claim { lease: Some(Duration::from_secs(60)), wait: Duration::from_secs(20), ..Claim::default() };
    let others = scene.queue().claim(claim).await.unwrap();
    assert_eq!(others.iter().map(|job| job.attempt).collect::<Vec<_>>(), [2], "the lease has ended");
    scene.store.let_go.add_permits(1);
    until("found lost", || counts.lost() == 1).await;
    assert_eq!((begun.load(SeqCst), counts.given_back()), (0, 0), "somebody else has it");
    let acked =
        scene.queue().ack(Ack { leases: vec![others[0].lease.clone()], ..Ack::default() }).await.unwrap();
    assert_eq!((acked.acked, acked.lost), (1, 0), "the other's lease is untouched");
    let _ = scene.end(running).await;
}

#[tokio::test]
async fn jobs_that_come_late_and_are_still_ours_are_begun_with_a_new_lease() {
    const LEASE: Duration = Duration::from_secs(6);
    const JOBS: u64 = 9;
    let scene = Scene::new().await;
    scene.push(JOBS as usize).await;
    scene.store.late.store(true, SeqCst);
    let worker = scene.worker().concurrency(2).lease(LEASE);
    let counts = worker.counts().clone();
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = attempts.clone();
    let running = scene.start(worker, move |job: Job, lost: Lost| {
        seen.lock().push((job.attempt, lost.is_lost(), lost.lost().now_or_never()));
        async { Ok::<_, Failure>(()) }
    });
    until("claimed", || !scene.store.late.load(SeqCst)).await;
    // The test's subject: less than a third of the lease is left.
    tokio::time::sleep(LEASE * 7 / 10).await;
    scene.store.let_go.add_permits(1);
    until("all acked", || counts.acked() == JOBS).await;
    assert_eq!(
        *attempts.lock(),
        vec![(1, false, None); JOBS as usize],
        "each once, and none told that it is lost"
    );
    assert_eq!((counts.lost(), counts.given_back()), (0, 0));
    assert_eq!(scene.end(running).await, Ended { given_back: 0, cut: 0 });
    assert_eq!((counts.busy(), counts.running()), (0, 0));
}

#[tokio::test]
async fn a_stop_lets_handlers_finish_and_claims_no_more() {
    let scene = Scene::new().await;
    scene.push(10).await;
    let worker = scene.worker().concurrency(2);
    let counts = worker.counts().clone();
    let go = Arc::new(Semaphore::new(0));
    let gate = go.clone();
    let running = scene.start(worker, move |_, _| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok::<_, Failure>(())
        }
    });
    until("both lanes are at work", || counts.busy() == 2).await;
    scene.stop.cancel();
    tokio::task::yield_now().await;
    go.add_permits(2);
    let ended = scene.end(running).await;
    assert_eq!((ended.cut, counts.acked()), (0, 2));
    let left = scene.pressure().await;
    assert_eq!((left.current_length + left.delayed, left.leased), (8, 0));
    let jobs = scene.queue().claim(Claim { count: 10, ..Claim::default() }).await.unwrap();
    assert!(jobs.len() == 8 && jobs.iter().all(|job| job.attempt == 1), "{jobs:?}");
}

/// Quick handlers make it claim ahead; what was claimed ahead and not begun is not lost by a stop.
#[tokio::test]
async fn what_was_claimed_ahead_goes_back_when_it_stops() {
    let scene = Scene::new().await;
    scene.push(2000).await;
    let worker = scene.worker().lease(Duration::from_secs(60));
    let counts = worker.counts().clone();
    let go = Arc::new(Semaphore::new(0));
    let gate = go.clone();
    let running = scene.start(worker, move |job: Job, _| {
        let quick = String::from_utf8_lossy(&job.payload).parse::<u32>().unwrap() < 1500;
        let gate = gate.clone();
        async move {
            if !quick {
                gate.acquire().await.unwrap().forget();
            }
            Ok::<_, Failure>(())
        }
    });
    until("it has claimed more than it can begin", || {
        counts.busy() == 4 && counts.claimed() > counts.acked() + counts.given_back() + 4
    })
    .await;
    scene.stop.cancel();
    go.add_permits(4);
    let ended = scene.end(running).await;
    assert!(ended.given_back > 0 && ended.cut == 0, "{ended:?}");
    let left = scene.pressure().await;
    assert_eq!((left.leased, left.current_length + left.delayed), (0, 2000 - counts.acked()));
    let jobs = scene.queue().claim(Claim { count: 1000, ..Claim::default() }).await.unwrap();
    assert!(jobs.iter().all(|job| job.attempt == 1), "{jobs:?}");
}

/// A call that nobody answers takes no time from the leases of the jobs at work.
#[tokio::test]
async fn leases_are_renewed_while_what_goes_back_gets_no_answer() {
    let scene = Scene::new().await;
    scene.push(2000).await;
    let worker = scene.worker().lease(Duration::from_secs(3));
    let counts = worker.counts().clone();
    scene.store.keeps.store(true, SeqCst);
    let go = Arc::new(Semaphore::new(0));
    let gate = go.clone();
    let running = scene.start(worker, move |job: Job, _| {
        let quick = String::from_utf8_lossy(&job.payload).parse::<u32>().unwrap() < 1500;
        let gate = gate.clone();
        async move {
            if !quick {
                gate.acquire().await.unwrap().forget();
            }
            Ok::<_, Failure>(())
        }
    });
    until("it gives back what it cannot begin", || scene.store.kept.load(SeqCst) > 0).await;
    until("leases are renewed after that", || scene.store.renewed.load(SeqCst) > 1).await;
    assert_eq!(counts.busy(), 4);
    scene.store.keeps.store(false, SeqCst);
    scene.stop.cancel();
    go.add_permits(4);
    let _ = scene.end(running).await;
    assert_eq!(counts.lost(), 0, "the handlers at work kept their leases");
}

/// The store's word counts at once, whatever our clock says.
#[test]
fn a_lease_that_the_store_calls_lost_is_lost_at_once() {
    let held = held::Held::default();
    let lease = crate::queue::Lease::parse("test", "7.1.token").unwrap();
    let day = Duration::from_secs(86_400);
    let added = held.add(vec![(lease.clone(), day), (lease, day)], std::time::Instant::now());
    let [(first, lost), (second, kept)] = &added[..] else { panic!("{added:?}") };
    assert!(!lost.is_lost() && !kept.is_lost());
    let now = std::time::Instant::now();
    assert!(!held.confirm(*first, &crate::queue::Extended::Lost, now));
    assert!(held.confirm(*second, &crate::queue::Extended::Ours { expires_in: day }, now));
    assert!(lost.is_lost() && lost.lost().now_or_never().is_some());
    assert!(!kept.is_lost() && kept.lost().now_or_never().is_none());
}

#[tokio::test]
async fn a_handler_that_does_not_end_is_cut_off_and_its_job_comes_again() {
    let scene = Scene::new().await;
    scene.push(1).await;
    let worker = scene.worker().drain(Duration::from_millis(20));
    let counts = worker.counts().clone();
    let running = scene.start(worker, |_, _| std::future::pending::<std::result::Result<(), Failure>>());
    until("it is at work", || counts.busy() == 1).await;
    assert_eq!(scene.end(running).await, Ended { given_back: 0, cut: 1 });
    let jobs = scene.queue().claim(Claim { wait: Duration::from_secs(5), ..Claim::default() }).await.unwrap();
    assert_eq!(jobs[0].attempt, 2);
}

#[tokio::test]
async fn a_worker_goes_on_by_itself_after_an_outage_and_does_not_spin_in_it() {
    let scene = Scene::new().await;
    scene.push(100).await;
    let worker = scene.worker().concurrency(10).lease(Duration::from_secs(30));
    let counts = worker.counts().clone();
    let go = Arc::new(Semaphore::new(0));
    let gate = go.clone();
    let running = scene.start(worker, move |_, _| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok::<_, Failure>(())
        }
    });
    until("all lanes are at work", || counts.busy() == 10).await;
    scene.store.away.store(true, SeqCst);
    go.add_permits(1000);
    until("it has noticed", || counts.errors() >= 2).await;
    let before = scene.store.asked.load(SeqCst);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = scene.store.asked.load(SeqCst) - before;
    assert!(asked < 20, "{asked} calls in half a second to a store that is away");
    scene.store.away.store(false, SeqCst);
    until("all acked", || counts.acked() == 100).await;
    assert_eq!((counts.claimed(), counts.lost()), (100, 0));
    let _ = scene.end(running).await;
}

#[tokio::test]
async fn what_follows_is_one_step_with_the_ack_and_waits_for_room() {
    let scene = Scene::new().await;
    scene.push(2).await;
    let worker = scene.worker();
    let counts = worker.counts().clone();
    let running = scene.start(worker, |job: Job, _| async move {
        let then = Then::Push { name: "next".to_owned(), payload: job.payload, priority: None, delay: None };
        Ok::<_, Failure>(Done::then(vec![then]))
    });
    let next = scene.quaymaster.queue("next").unwrap();
    // One of them has to wait until there is room.
    until("one acked, one refused", || counts.acked() == 1 && counts.errors() > 0).await;
    assert_eq!(scene.pressure().await.leased, 1, "it is still held");
    assert_eq!(next.claim(Claim::default()).await.unwrap().len(), 1);
    until("both acked", || counts.acked() == 2).await;
    let _ = scene.end(running).await;
    assert_eq!(next.pressure().await.unwrap().current_length, 1);
}

#[tokio::test]
async fn a_result_that_is_refused_is_a_failed_attempt() {
    let scene = Scene::new().await;
    scene.push(1).await;
    let worker = scene.worker();
    let counts = worker.counts().clone();
    let running = scene.start(worker, |job: Job, _| async move {
        let then =
            Then::Push { name: "elsewhere".to_owned(), payload: job.payload, priority: None, delay: None };
        Ok::<_, Failure>(Done::then(vec![then]))
    });
    until("dead", || counts.dead() == 1).await;
    let _ = scene.end(running).await;
    let letters = scene.queue().dead(10, 0).await.unwrap();
    let text = String::from_utf8(letters.items[0].bytes().to_vec()).unwrap();
    assert!(text.contains("elsewhere"), "{text}");
}

#[tokio::test]
async fn what_was_not_begun_costs_no_attempt() {
    let scene = Scene::new().await;
    scene.push(1).await;
    let worker = scene.worker();
    let counts = worker.counts().clone();
    let tries = Arc::new(AtomicU64::new(0));
    let running = scene.start(worker, move |job: Job, _| {
        let first = tries.fetch_add(1, SeqCst) < 5;
        async move {
            assert_eq!(job.attempt, 1);
            if first { Err(Failure::not_begun()) } else { Ok(()) }
        }
    });
    until("acked", || counts.acked() == 1).await;
    let _ = scene.end(running).await;
    assert_eq!((counts.given_back(), counts.panicked()), (5, 0));
}

#[tokio::test]
async fn wrong_settings_are_refused() {
    let scene = Scene::new().await;
    for (worker, part) in [
        (scene.worker().concurrency(0), "concurrency"),
        (scene.worker().concurrency(10_001), "concurrency"),
        (scene.worker().threads(0), "threads"),
        (scene.worker().lease(Duration::ZERO), "lease"),
        (scene.worker().name("two words"), "worker"),
    ] {
        let told = worker.run(|_, _| async { Ok::<_, Failure>(()) }, CancellationToken::new()).await;
        assert!(told.unwrap_err().detail.starts_with(part), "{part}");
    }
}

#[tokio::test]
async fn a_worker_asks_a_store_that_is_away_as_seldom_as_it_was_told() {
    let scene = Scene::new().await;
    assert_eq!(Worker::new(scene.queue().clone()).away, Backoff::default(), "the documented 1 s to 30 s");
    let every = |base: u64, max: u64| {
        let away =
            Backoff { base: Duration::from_millis(base), max: Duration::from_millis(max), jitter: 0.0 };
        scene.worker().retry(away)
    };
    let (seldom, often) = (every(3_600_000, 3_600_000), every(1, 1));
    let (few, many) = (seldom.counts().clone(), often.counts().clone());
    scene.store.away.store(true, SeqCst);
    let handler = |_, _| async { Ok::<_, Failure>(()) };
    let running = [scene.start(seldom, handler), scene.start(often, handler)];
    until("both have failed", || few.errors() > 0 && many.errors() > 50).await;
    assert_eq!(few.errors(), 1, "its next attempt is an hour away");
    scene.store.away.store(false, SeqCst);
    scene.push(1).await;
    until("the other one goes on", || many.acked() == 1).await;
    // A stop does not wait for the next attempt.
    for running in running {
        let _ = scene.end(running).await;
    }
}

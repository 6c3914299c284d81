//! A dead-letter list of a million items pages, redrives and purges without stalling anybody.
//!
//! What is compared is the server's own time per script and the words that one script moves, on a long list and on a
//! short one: work per call must not grow with the list. A hundred thousand letters by default, a million under
//! `QUAYMASTER_SOAK=1`.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quaymaster::queue::{Purge, Queue, Redrive};
use quaymaster::schema::{Source, load};
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster::{Engine, Quaymaster};
use quaymaster_testkit::conformance::command;
use quaymaster_testkit::differential::count;
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use quaymaster_testkit::toll::Toll;

const SHORT: u64 = 5_000;
const PAGE: usize = 500;
/// How many letters one script may touch.
const MOST: u64 = 10_000;
/// How much dearer a call may be on the long list: it is a thousand times longer, and reaching its middle takes longer
/// than reaching its head.
const DEARER: f64 = 8.0;

const SCHEMA: &str = r#"
[schema]
name = "dead"
owner = "tests"
[queue.long]
[queue.short]
[queue.other]
"#;

fn letter(queue: &str, n: u64) -> String {
    // The first half failed long ago.
    let day = if n.is_multiple_of(2) { "2026-01-24" } else { "2026-01-25" };
    format!(
        r#"{{"original_job":{{"n":{n},"file_path":"/export/foscam/Front Door/image_{n}.jpg"}},"error":"Connection refused","attempt_count":3,"first_failed_at":"{day}T10:30:05.000000","last_failed_at":"{day}T10:30:15.000000","queue_name":"{queue}"}}"#
    )
}

async fn fill(engine: &dyn Engine, queue: &str, letters: u64) {
    let list = format!("dlq:{queue}");
    for first in (0..letters).step_by(1000) {
        let some: Vec<String> = (first..letters.min(first + 1000)).map(|n| letter(queue, n)).collect();
        let mut words: Vec<&[u8]> = vec![b"RPUSH", list.as_bytes()];
        words.extend(some.iter().map(String::as_bytes));
        command(engine, list.as_bytes(), &words).await.expect("the letters are written");
    }
}

struct Scene {
    quaymaster: Quaymaster,
    toll: Arc<Toll>,
    letters: u64,
    /// Microseconds the store has spent in scripts so far, and how many there were; the caller's where it cannot say.
    server: Option<RedisServer>,
}

impl Scene {
    async fn on(engine: Arc<dyn Engine>, server: Option<RedisServer>) -> Self {
        let letters = count(100_000, 1_000_000);
        fill(&*engine, "long", letters).await;
        fill(&*engine, "short", SHORT).await;
        let toll = Toll::new(engine);
        let loaded = load(&[Source { name: "dead.toml", text: SCHEMA }], &|_| None);
        let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
        Self { quaymaster: Quaymaster::new(Arc::new(schema), toll.clone()), toll, letters, server }
    }

    fn queue(&self, name: &str) -> &Queue {
        self.quaymaster.queue(name).expect("declared")
    }

    /// What `work` costs per script: on a server what it says itself, else by the clock.
    async fn cost(&self, work: impl Future<Output = ()>) -> f64 {
        if let Some(server) = &self.server {
            server.command::<()>(&["CONFIG", "RESETSTAT"]);
        }
        self.toll.runs();
        let began = Instant::now();
        work.await;
        let (took, runs) = (began.elapsed(), self.toll.runs());
        assert!(runs > 0, "nothing was asked");
        let Some(server) = &self.server else { return took.as_micros() as f64 / runs as f64 };
        let stats = ["cmdstat_evalsha", "cmdstat_eval"].map(|name| server.info("commandstats", name));
        let micros = stats.into_iter().flatten().filter_map(|line| {
            line.split(',').find_map(|part| part.strip_prefix("usec=")?.parse::<f64>().ok())
        });
        micros.sum::<f64>() / runs as f64
    }
}

/// Pages through a list from `first`; every letter comes, in order.
async fn page(queue: &Queue, first: u64, pages: u64, length: u64) {
    let mut offset = first;
    for _ in 0..pages {
        let page = queue.dead(PAGE, offset).await.expect("a page");
        assert_eq!(page.length, length);
        assert_eq!(page.items.len() as u64, (PAGE as u64).min(length - offset));
        for (at, item) in page.items.iter().enumerate() {
            assert_eq!(item.bytes(), letter(queue.name(), offset + at as u64).as_bytes());
        }
        offset += page.items.len() as u64;
        // The embedded store answers at once, and others must have their turn.
        tokio::task::yield_now().await;
    }
}

/// Calls of somebody else while `work` is done; how long the median and the slowest took.
async fn bystander(queue: &Queue, work: impl Future<Output = ()>) -> (Duration, Duration) {
    let stop = AtomicBool::new(false);
    let calls = async {
        let mut took = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            let began = Instant::now();
            let _ = queue.pressure().await.expect("an answer");
            took.push(began.elapsed());
            tokio::task::yield_now().await;
        }
        took.sort_unstable();
        (took[took.len() / 2], took[took.len() - 1])
    };
    let work = async {
        work.await;
        stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(calls, work).0
}

async fn pages_without_stalling(scene: &Scene) {
    let (long, short) = (scene.queue("long"), scene.queue("short"));
    let pages = SHORT / PAGE as u64;
    let near = scene.cost(page(short, 0, pages, SHORT)).await;
    scene.toll.most_words();
    let places = [0, scene.letters / 2, scene.letters - SHORT];
    let mut dearest: f64 = 0.0;
    for first in places {
        dearest = dearest.max(scene.cost(page(long, first, pages, scene.letters)).await);
    }
    println!("a page: {near:.0} µs on {SHORT} letters, {dearest:.0} µs at most on {}", scene.letters);
    assert!(dearest < near * DEARER, "{dearest:.0} µs a page on the long list, {near:.0} on the short one");
    assert!(scene.toll.most_words() <= PAGE as u64 + 10, "a page is what was asked for");
    let other = scene.queue("other");
    let alone = bystander(other, async { tokio::time::sleep(Duration::from_millis(300)).await }).await;
    let beside = bystander(other, page(long, 0, scene.letters / PAGE as u64, scene.letters)).await;
    println!("another's call, median and slowest: alone {alone:?}, while all is paged {beside:?}");
}

/// Every step's share of `all`, as the progress tells it.
fn steps(told: &[u64], all: u64) -> u64 {
    assert!(told.windows(2).all(|pair| pair[0] <= pair[1]), "progress goes forward");
    assert_eq!(told.last(), Some(&all), "and ends with the whole");
    let first = told.first().copied().unwrap_or(0);
    told.windows(2).map(|pair| pair[1] - pair[0]).fold(first, u64::max)
}

async fn moves_in_bounded_steps(scene: &Scene) {
    let (long, short) = (scene.queue("long"), scene.queue("short"));
    let part = scene.letters / 10;
    // A tenth of the long list becomes jobs again, from its head.
    let near = scene
        .cost(async {
            let redriven =
                short.redrive(Redrive { count: Some(SHORT / 2), ..Redrive::default() }, |_| ()).await;
            assert_eq!(redriven.expect("an answer").moved, SHORT / 2);
        })
        .await;
    scene.toll.most_words();
    let mut told = Vec::new();
    let far = scene
        .cost(async {
            let redrive = Redrive { count: Some(part), ..Redrive::default() };
            let redriven = long.redrive(redrive, |moved| told.push(moved)).await.expect("an answer");
            assert_eq!(redriven.moved, part);
        })
        .await;
    println!("redrive: {near:.0} µs a script on the short list, {far:.0} on the long one");
    assert!(far < near * DEARER, "{far:.0} µs a script on the long list, {near:.0} on the short one");
    assert!(steps(&told, part) <= MOST && scene.toll.most_words() <= 4 * MOST);
    let pressure = long.pressure().await.expect("an answer");
    assert_eq!((pressure.dead, pressure.current_length), (scene.letters - part, part));
    // The rest goes, counted.
    let rest = scene.letters - part;
    let near = scene
        .cost(async {
            let removed = short.purge(Purge { count: Some(SHORT / 4), ..Purge::default() }, |_| ()).await;
            assert_eq!(removed.expect("an answer"), SHORT / 4);
        })
        .await;
    scene.toll.most_words();
    let mut told = Vec::new();
    let far = scene
        .cost(async {
            let removed = long.purge(Purge::default(), |removed| told.push(removed)).await;
            assert_eq!(removed.expect("an answer"), rest);
        })
        .await;
    println!("purge: {near:.0} µs a script on the short list, {far:.0} on the long one");
    assert!(steps(&told, rest) <= MOST && scene.toll.most_words() <= 4 * MOST);
    assert_eq!(long.pressure().await.expect("an answer").dead, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_list_on_redis_is_paged_redriven_and_purged_without_a_long_script() {
    let server = RedisServer::start(RedisConfig::default());
    let options = RedisOptions::from_url(&server.url()).expect("the fixture's URL");
    let engine = Arc::new(RedisStore::connect(options).await.expect("the server is there"));
    let scene = Scene::on(engine, Some(server)).await;
    pages_without_stalling(&scene).await;
    moves_in_bounded_steps(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_list_in_the_embedded_store_is_paged_redriven_and_purged_without_a_long_script() {
    let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.expect("a store"));
    let scene = Scene::on(engine, None).await;
    pages_without_stalling(&scene).await;
    moves_in_bounded_steps(&scene).await;
}

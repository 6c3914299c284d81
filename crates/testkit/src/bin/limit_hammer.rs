//! Takes from one limit with many tasks until its standard input closes, and tells what became of every call.
//!
//! One line per event, written before anything else happens, so that whoever reads them knows what a
//! process that is killed in between had begun and what it had been told:
//!
//! | line | the call |
//! |---|---|
//! | `? task call` | is about to be made, or made again |
//! | `+ task call` | was allowed |
//! | `- task call` | was refused |
//! | `! task call code` | may have run: its reply was lost |
//! | `~ task call code` | did not run |
//!
//! With `--request-ids` a call that failed is made again under its id until it is answered.

#![expect(clippy::expect_used, reason = "a worker that cannot do its work ends, and the test with it")]

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quaymaster::limit::{Charge, Limit, Verdict};
use quaymaster::schema::{Source, load};
use quaymaster::store::{Engine, StoreOptions, open};
use quaymaster::{DatabaseOptions, Quaymaster, Retry, Settings};
use quaymaster_testkit::liar::Liar;

/// Between two calls that were not allowed: the limit is full, or the store away.
const PAUSE: Duration = Duration::from_millis(2);

struct Orders {
    store: String,
    schema: PathBuf,
    limit: String,
    key: Vec<(String, String)>,
    tasks: usize,
    deadline: Option<Duration>,
    response_timeout: Option<Duration>,
    request_ids: Option<String>,
    lie_ms: i64,
    database: Option<DatabaseOptions>,
    hold: bool,
}

fn orders() -> Orders {
    let mut orders = Orders {
        store: String::new(),
        schema: PathBuf::new(),
        limit: String::new(),
        key: Vec::new(),
        tasks: 16,
        deadline: None,
        response_timeout: None,
        request_ids: None,
        lie_ms: 0,
        database: None,
        hold: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(flag) = words.next() {
        let value = words.next().unwrap_or_else(|| panic!("{flag} wants a value"));
        let number = || value.parse::<i64>().unwrap_or_else(|_| panic!("{flag} wants a number"));
        match flag.as_str() {
            "--store" => orders.store = value,
            "--schema" => orders.schema = value.into(),
            "--limit" => orders.limit = value,
            "--tasks" => orders.tasks = number() as usize,
            "--deadline-ms" => orders.deadline = Some(Duration::from_millis(number() as u64)),
            "--response-timeout-ms" => {
                orders.response_timeout = Some(Duration::from_millis(number() as u64));
            }
            "--request-ids" => orders.request_ids = Some(value),
            "--database" => orders.database = Some(DatabaseOptions::from_url(&value).expect("a database")),
            "--hold" => orders.hold = true,
            "--lie-ms" => orders.lie_ms = number(),
            "--key" => {
                let (name, value) = value.split_once('=').expect("--key name=value");
                orders.key.push((name.to_owned(), value.to_owned()));
            }
            other => panic!("unknown flag {other}"),
        }
    }
    orders
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that is gone has no use for the rest either.
    if out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

#[tokio::main]
async fn main() {
    let orders = orders();
    let text = std::fs::read_to_string(&orders.schema).expect("the schema can be read");
    let loaded = load(&[Source { name: "hammer.toml", text: &text }], &|_| None);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    let mut options = StoreOptions::from_url(&orders.store, &PathBuf::from(".")).expect("a store");
    if let Some(deadline) = orders.deadline {
        match &mut options {
            StoreOptions::Redis(redis) => redis.deadline = deadline,
            StoreOptions::Embedded(_, embedded) | StoreOptions::Memory(embedded) => {
                embedded.deadline = deadline;
            }
        }
    }
    if let (Some(timeout), StoreOptions::Redis(redis)) = (orders.response_timeout, &mut options) {
        redis.pools.ratelimit.response_timeout = timeout;
        // A breaker would hold second attempts back, and hide one that must not be made.
        redis.breaker.failures = u32::MAX;
    }
    let store: Arc<dyn Engine> = open(options).await.expect("the store opens");
    let lying: Arc<dyn Engine> = Arc::new(Liar::new(store.clone(), orders.lie_ms));
    let settings = Settings { database: orders.database.clone(), ..Settings::default() };
    let quaymaster = Quaymaster::with(Arc::new(schema), lying, settings);
    let limit = quaymaster.limit(&orders.limit).expect("the limit is declared").clone();
    tell("ready");
    if orders.hold {
        std::io::stdin().read_line(&mut String::new()).expect("a word to begin");
    }

    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stopped.store(true, Ordering::SeqCst);
    });
    let orders = Arc::new(orders);
    let tasks: Vec<_> = (0..orders.tasks)
        .map(|task| tokio::spawn(hammer(limit.clone(), Arc::clone(&orders), task, Arc::clone(&stop))))
        .collect();
    for task in tasks {
        task.await.expect("a task ends");
    }
    store.close().await.expect("the store closes");
    tell("done");
}

async fn hammer(limit: Limit, orders: Arc<Orders>, task: usize, stop: Arc<AtomicBool>) {
    let key: Vec<(&str, &str)> =
        orders.key.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut call = 0u64;
    while !stop.load(Ordering::SeqCst) {
        call += 1;
        let id = orders.request_ids.as_ref().map(|prefix| format!("{prefix}-{task}-{call}"));
        let charge = Charge { cost: 1, request_id: id.as_deref() };
        loop {
            tell(&format!("? {task} {call}"));
            match limit.take(&key, charge).await {
                Ok(Verdict::Allowed(_)) => tell(&format!("+ {task} {call}")),
                Ok(Verdict::Limited { .. }) => {
                    tell(&format!("- {task} {call}"));
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    assert!(error.code.retry() != Retry::Useless, "{error}");
                    let sign = if error.code.retry() == Retry::MayHaveRun { '!' } else { '~' };
                    tell(&format!("{sign} {task} {call} {}", error.code));
                    tokio::time::sleep(PAUSE).await;
                    if id.is_some() {
                        continue;
                    }
                }
            }
            break;
        }
    }
}

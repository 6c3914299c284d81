//! Asks one entry of a cache with many callers at once, and tells what became of each.
//!
//! | told | what happened |
//! |---|---|
//! | `ready` | the store is open |
//! | `missed` | every caller has found nothing and is on its way |
//! | `loading` | a loader of this process runs, and waits for a word |
//! | `got VALUE` | a caller has its value |
//! | `failed WHY` | a caller has none |
//! | `done` | every caller was answered |
//!
//! It is told `start`, and while a loader runs `go VALUE` or `fail`, a line each.

#![expect(clippy::expect_used, reason = "a worker that cannot do its work ends, and the test with it")]

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quaymaster::Quaymaster;
use quaymaster::cache::{Load, Value};
use quaymaster::schema::{Source, load};
use quaymaster::store::{Engine, StoreOptions, open};
use tokio::sync::{Mutex, mpsc};

const SCHEMA: &str =
    "[schema]\nname = \"s\"\nowner = \"tests\"\n[cache.page]\nkey = \"page:{id}\"\nttl = \"1h\"\n";

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

async fn loader(words: Arc<Mutex<mpsc::Receiver<String>>>) -> Result<Value, String> {
    tell("loading");
    match words.lock().await.recv().await.as_deref().map(|word| word.split_once(' ').unwrap_or((word, ""))) {
        Some(("go", value)) => Ok(Value::from(value)),
        other => Err(format!("told {other:?}")),
    }
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [store, callers, lease_ms] = &words[..] else { panic!("cache_loader STORE CALLERS LEASE_MS") };
    let (callers, lease_ms): (u64, u64) =
        (callers.parse().expect("a number"), lease_ms.parse().expect("a number"));
    let schema = load(&[Source { name: "s.toml", text: SCHEMA }], &|_| None).schema.expect("a schema");
    let options = StoreOptions::from_url(store, &PathBuf::from(".")).expect("a store");
    let engine: Arc<dyn Engine> = open(options).await.expect("the store opens");
    let quaymaster = Quaymaster::new(Arc::new(schema), engine.clone());
    let cache = quaymaster.cache("page").expect("declared").clone();

    let (told, heard) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if told.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let heard = Arc::new(Mutex::new(heard));
    tell("ready");
    assert_eq!(heard.lock().await.recv().await.as_deref(), Some("start"));
    let asking: Vec<_> = (0..callers)
        .map(|_| {
            let (cache, heard) = (cache.clone(), heard.clone());
            tokio::spawn(async move {
                let load = Load { lease: Duration::from_millis(lease_ms), ..Load::default() };
                match cache.get_or_load(&[("id", "a")], load, || loader(heard)).await {
                    Ok(loaded) => tell(&format!("got {}", loaded.value.text().expect("text"))),
                    Err(error) => tell(&format!("failed {error}")),
                }
            })
        })
        .collect();
    while cache.counts().reads().misses < callers {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tell("missed");
    for caller in asking {
        caller.await.expect("a caller ends");
    }
    engine.close().await.expect("the store closes");
    tell("done");
}

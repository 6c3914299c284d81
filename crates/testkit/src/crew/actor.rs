//! A worker's own side: its store, its schema, its lines, and when to stop.

use std::fmt::Display;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quaymaster::Quaymaster;
use quaymaster::schema::{Source, load};
use quaymaster::store::{Engine, StoreOptions, open};

use crate::saboteur::Saboteur;

/// A worker process on its store.
#[derive(Debug, Clone)]
pub struct Actor {
    /// Its number, from which its choices follow.
    pub seed: u64,
    /// The store as it is: for the time and for commands of other programs.
    pub engine: Arc<dyn Engine>,
    /// The schema on the store, with the defect that was asked for.
    pub quaymaster: Quaymaster,
    stop: Arc<AtomicBool>,
}

impl Actor {
    /// From the command line: `store seed [operation old new]`. Says that it is ready.
    pub async fn enter(schema: &str) -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let [store, seed, defect @ ..] = &words[..] else { panic!("store seed [operation old new]") };
        let loaded = load(&[Source { name: "history.toml", text: schema }], &|_| None);
        let schema = Arc::new(loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics)));
        let options = StoreOptions::from_url(store, Path::new(".")).expect("a store");
        let engine: Arc<dyn Engine> = open(options).await.expect("the store opens");
        let used: Arc<dyn Engine> = match defect {
            [operation, old, new] => Arc::new(Saboteur::new(engine.clone(), operation, old, new)),
            _ => engine.clone(),
        };
        let quaymaster = Quaymaster::new(schema, used);
        println!("ready");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            stopped.store(true, Ordering::SeqCst);
        });
        Self { seed: seed.parse().expect("the seed is a number"), engine, quaymaster, stop }
    }

    /// Whether to begin nothing more.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// The store's time.
    pub async fn now_us(&self) -> quaymaster::Result<i64> {
        self.engine.time_us().await
    }

    /// Closes the store and says that everything is done.
    pub async fn leave(self) {
        self.engine.close().await.expect("the store closes");
        println!("done");
    }
}

/// One line, written before anything else happens.
pub fn tell(line: impl Display) {
    let mut out = std::io::stdout().lock();
    let line = format!("{line}\n");
    // A reader that is gone has no use for the rest either.
    if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

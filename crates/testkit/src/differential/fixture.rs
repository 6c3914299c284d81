//! The embedded store and a real server, both with held clocks.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use quaymaster_store::Engine;
use quaymaster_store::embedded::{Clock, Durability, EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::{RedisOptions, RedisStore};

use super::{DAY_US, Dialect, FIRST_DAY, Hand, Pair, Side, Tolerance};
use crate::held_clock::HeldClock;
use crate::servers::{Binary, RedisConfig, RedisServer};

/// A pair and what must live as long as it does.
#[derive(Debug)]
pub struct Fixture {
    /// The two stores.
    pub pair: Pair,
    /// The embedded one again, by its own type.
    pub embedded: Arc<EmbeddedStore>,
    _keep: Arc<dyn Any + Send + Sync>,
}

impl std::ops::Deref for Fixture {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        &self.pair
    }
}

impl Fixture {
    /// The embedded store in memory beside a server of this kind.
    pub async fn start(binary: Binary) -> Self {
        Self::start_in(binary, None).await
    }

    /// The embedded store in this folder beside a server of this kind.
    pub async fn start_on_disk(binary: Binary, folder: &Path) -> Self {
        Self::start_in(binary, Some(folder)).await
    }

    /// Closes the store in `folder` and reads it again from its journal.
    pub async fn reopen(&mut self, folder: &Path) {
        let Hand::Manual(clock) = self.pair.ours.hand.clone() else {
            unreachable!("ours is in this process")
        };
        self.embedded.close().await.expect("the store closes");
        self.embedded = open(clock, Some(folder)).await;
        self.pair.ours.engine = self.embedded.clone();
    }

    async fn start_in(binary: Binary, folder: Option<&Path>) -> Self {
        let start_us = (FIRST_DAY - 1) * DAY_US;
        let held = HeldClock::frozen(start_us);
        let server = RedisServer::start(RedisConfig { env: held.environment(), ..RedisConfig::of(binary) });
        let options = RedisOptions::from_url(&server.url()).expect("the fixture's URL");
        let redis = RedisStore::connect(options).await.expect("the fixture's server is there");
        let (name, dialect) = match binary {
            Binary::Redis7 => ("redis 7", Dialect::Redis7),
            Binary::Valkey9 => ("valkey 9", Dialect::Valkey9),
            Binary::Redis62 => ("redis 6.2", Dialect::Redis62),
        };
        let theirs = Side { name, engine: Arc::new(redis), hand: Hand::Held(held) };

        let clock = Arc::new(AtomicI64::new(start_us));
        let embedded = open(Arc::clone(&clock), folder).await;
        let ours = Side { name: "embedded", engine: embedded.clone(), hand: Hand::Manual(clock) };

        // Valkey tells the time with microseconds of its own on top of a clock that stands still.
        let ttl_ms = if binary == Binary::Valkey9 { 2000 } else { 0 };
        let tolerance = Tolerance { error_texts: binary == Binary::Redis7, ttl_ms };
        let pair = Pair::new(ours, theirs, dialect, tolerance);
        Self { pair, embedded, _keep: Arc::new(server) }
    }
}

async fn open(clock: Arc<AtomicI64>, folder: Option<&Path>) -> Arc<EmbeddedStore> {
    // What is compared is what was written, not how soon: no need to wait for the disk at every step.
    let options = EmbeddedOptions {
        clock: Clock::Manual(clock),
        durability: Durability::EverySec,
        ..EmbeddedOptions::default()
    };
    let store = match folder {
        Some(folder) => EmbeddedStore::open(folder, options).await,
        None => EmbeddedStore::memory(options).await,
    };
    Arc::new(store.expect("the embedded store opens"))
}

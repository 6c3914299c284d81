//! A store that was not there yet: refuses calls with the reason until it is, then passes them through.
//!
//! A deployment must not crash and restart in circles because Redis restarts: the server starts, says that it
//! is not ready, and recovers by itself.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::BoxStream;
use quaymaster::store::backoff::Backoff;
use quaymaster::store::{
    Deployment, Health, Invocation, KeyFacts, Message, Readiness, Reply, ScanCursor, ScanPage, Topology,
};
use quaymaster::{Code, Engine, Error, Result};
use tokio::task::AbortHandle;

/// Opens the store and looks whether it may be used.
pub(crate) type Connect = Box<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Engine>>> + Send + Sync>;

#[derive(Debug)]
pub(crate) struct LateStore {
    state: Arc<State>,
    topology: Topology,
    connecting: AbortHandle,
}

#[derive(Debug)]
struct State {
    found: OnceLock<Arc<dyn Engine>>,
    /// Why it is not there: code, detail, and how many attempts failed.
    missing: Mutex<(Code, String, u64)>,
}

impl LateStore {
    /// Keeps trying `connect` in the background, `retry` apart; `first` is why it failed so far.
    pub(crate) fn new(topology: Topology, first: &Error, retry: Backoff, connect: Connect) -> Self {
        let missing = Mutex::new((first.code, first.detail.clone(), 1));
        let state = Arc::new(State { found: OnceLock::new(), missing });
        let connecting = tokio::spawn(keep_trying(state.clone(), retry, connect)).abort_handle();
        Self { state, topology, connecting }
    }

    fn engine(&self) -> Result<&Arc<dyn Engine>> {
        self.state.found.get().ok_or_else(|| {
            let missing = self.state.missing.lock().unwrap_or_else(PoisonError::into_inner);
            Error::new("store.connect", missing.0, missing.1.clone()).ran(false)
        })
    }

    fn ask<'a, T: Send + 'a>(
        &'a self,
        question: impl FnOnce(&'a Arc<dyn Engine>) -> BoxFuture<'a, Result<T>>,
    ) -> BoxFuture<'a, Result<T>> {
        match self.engine() {
            Ok(engine) => question(engine),
            Err(error) => ready(Err(error)).boxed(),
        }
    }
}

async fn keep_trying(state: Arc<State>, retry: Backoff, connect: Connect) {
    for attempt in 1.. {
        tokio::time::sleep(retry.delay(attempt)).await;
        match connect().await {
            Ok(engine) => {
                tracing::debug!("the store is there");
                let _ = state.found.set(engine);
                return;
            }
            Err(error) => {
                let mut missing = state.missing.lock().unwrap_or_else(PoisonError::into_inner);
                // Told when it changes, not at every attempt.
                if missing.0 != error.code {
                    tracing::warn!(code = %error.code, detail = error.detail, "the store is still not usable");
                }
                *missing = (error.code, error.detail, missing.2 + 1);
            }
        }
    }
}

impl Drop for LateStore {
    fn drop(&mut self) {
        self.connecting.abort();
    }
}

impl Engine for LateStore {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        self.ask(|engine| engine.run(call))
    }

    fn time_us(&self) -> BoxFuture<'_, Result<i64>> {
        self.ask(|engine| engine.time_us())
    }

    fn now_us(&self) -> i64 {
        match self.state.found.get() {
            Some(engine) => engine.now_us(),
            None => SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as i64),
        }
    }

    fn deadline(&self) -> Duration {
        // Until it is there every call is refused at once.
        self.state.found.get().map_or(Duration::from_secs(5), |engine| engine.deadline())
    }

    fn topology(&self) -> Topology {
        self.topology
    }

    fn subscribe<'a>(&'a self, channel: &'a [u8]) -> BoxFuture<'a, Result<BoxStream<'static, Message>>> {
        self.ask(|engine| engine.subscribe(channel))
    }

    fn wait_for_item<'a>(&'a self, key: &'a [u8], limit: Duration) -> BoxFuture<'a, Result<bool>> {
        self.ask(|engine| engine.wait_for_item(key, limit))
    }

    fn key_facts<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyFacts>>> {
        self.ask(|engine| engine.key_facts(key))
    }

    fn write_piece<'a>(
        &'a self,
        key: &'a [u8],
        offset: u64,
        piece: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<u64>> {
        self.ask(move |engine| engine.write_piece(key, offset, piece, ttl))
    }

    fn read_piece<'a>(&'a self, key: &'a [u8], offset: u64, length: usize) -> BoxFuture<'a, Result<Bytes>> {
        self.ask(move |engine| engine.read_piece(key, offset, length))
    }

    fn scan<'a>(
        &'a self,
        pattern: &'a [u8],
        count: usize,
        cursor: Option<ScanCursor>,
    ) -> BoxFuture<'a, Result<ScanPage>> {
        self.ask(move |engine| engine.scan(pattern, count, cursor))
    }

    fn health(&self) -> Health {
        if let Some(engine) = self.state.found.get() {
            return engine.health();
        }
        let attempts = self.state.missing.lock().unwrap_or_else(PoisonError::into_inner).2;
        Health {
            connect_attempts: attempts,
            connect_failures: attempts,
            consecutive_failures: attempts,
            ..Health::default()
        }
    }

    fn ready(&self, patience: Duration) -> BoxFuture<'_, Result<Readiness>> {
        self.ask(move |engine| engine.ready(patience))
    }

    fn deployment(&self) -> BoxFuture<'_, Result<Deployment>> {
        self.ask(|engine| engine.deployment())
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.connecting.abort();
        match self.state.found.get() {
            Some(engine) => engine.close(),
            None => ready(Ok(())).boxed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_that_is_not_there_is_looked_for_as_seldom_as_told() {
        let away = || Error::new("store.connect", Code::StoreRefused, "away");
        let every = |pause| {
            let retry = Backoff { base: pause, max: pause, jitter: 0.0 };
            let connect: Connect = Box::new(move || ready(Err(away())).boxed());
            LateStore::new(Topology::Single, &away(), retry, connect)
        };
        let (seldom, often) = (every(Duration::from_secs(3600)), every(Duration::from_millis(1)));
        while often.health().connect_attempts < 50 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(seldom.health().connect_attempts, 1, "its next attempt is an hour away");
    }
}

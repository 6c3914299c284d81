//! Waiting for a list to have an item, without taking it.
//!
//! `BLMOVE key key LEFT LEFT` puts the first item back where it was: the list does not change, and the wait
//! ends the moment an item is there. It counts as a write, so a replica refuses it, as it should. A blocking
//! call holds up everything behind it on a connection, so each wait has a connection of its own for as long
//! as it lasts.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::redis::Inner;
use crate::redis::dial::{Dial, Live, Place};
use crate::redis::fault::{Fault, Then};
use crate::redis::resp::words;
use crate::{Code, Error, Reply, Result, Words, Workload};

const OP: &str = "store.wait_for_item";
/// How often the list is looked at when all connections for waits are taken.
const POLL: Duration = Duration::from_millis(100);
/// Idle connections kept for the next wait.
const IDLE: usize = 16;

/// The connections of blocking waits.
#[derive(Debug)]
pub(super) struct Waiters {
    idle: Mutex<Vec<Live>>,
    permits: Semaphore,
}

impl Waiters {
    pub(super) fn new(limit: usize) -> Self {
        Self { idle: Mutex::new(Vec::new()), permits: Semaphore::new(limit.min(Semaphore::MAX_PERMITS)) }
    }

    pub(super) fn clear(&self) {
        self.idle.lock().clear();
    }

    fn take(&self, place: &Place) -> Option<Live> {
        let mut idle = self.idle.lock();
        idle.retain(|live| !live.wire.is_closed());
        let index = idle.iter().position(|live| live.place == *place)?;
        Some(idle.swap_remove(index))
    }

    fn put(&self, live: Live) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE {
            idle.push(live);
        }
    }
}

impl Inner {
    pub(super) async fn wait_for_item(&self, key: &[u8], limit: Duration) -> Result<bool> {
        let until = Instant::now() + limit;
        if self.has_item(key).await? {
            return Ok(true);
        }
        let Ok(_permit) = self.waiters.permits.try_acquire() else {
            return self.poll(key, until).await;
        };
        let options = &self.shared.options;
        let mut attempt = 0;
        let mut redirect = None;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left < Duration::from_millis(1) {
                return Ok(false);
            }
            // Short turns: a server that died without a word is noticed within one of them.
            let turn = left.min(options.refresh.max(Duration::from_millis(100)));
            let fault = match self.turn(key, turn, redirect.take()).await {
                Ok(true) => return Ok(true),
                Ok(false) => continue,
                Err(fault) => fault,
            };
            match (&fault.then, &self.route) {
                (Then::Report, _) => return Err(fault.into_error(OP)),
                (Then::Moved(to), crate::redis::call::Route::Cluster(cluster)) => {
                    cluster.suspect();
                    redirect = Some(Place::Tcp(to.clone())).filter(|_| !to.host.is_empty());
                }
                (_, crate::redis::call::Route::Cluster(cluster)) => cluster.suspect(),
                _ => {}
            }
            attempt += 1;
            self.shared.counters.retry();
            let pause = options.backoff.delay(attempt);
            if Instant::now() + pause >= until {
                return Err(fault.into_error(OP));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// One blocking call on a connection of its own. The connection is kept only when its reply came.
    async fn turn(&self, key: &[u8], turn: Duration, redirect: Option<Place>) -> Result<bool, Fault> {
        let options = &self.shared.options;
        let place = match redirect {
            Some(place) => place,
            None => self.place_for(key).await?,
        };
        let live = match self.waiters.take(&place) {
            Some(live) => live,
            None => {
                self.shared.counters.connect_attempt();
                let name = self.shared.client_name(Workload::Queue);
                let dial = Dial {
                    place: &place,
                    name: &name,
                    timeout: options.pools.queue.connect_timeout,
                    pushes: None,
                };
                self.shared
                    .dialer
                    .dial(dial, || ())
                    .await
                    .inspect_err(|_| self.shared.counters.connect_failure())?
            }
        };
        let limit = Instant::now() + turn + options.pools.queue.response_timeout;
        let result = live.send(&blmove(key, turn), limit).await.map(|reply| reply != Reply::Nil);
        if !result.as_ref().is_err_and(|fault| fault.then == Then::Redial) {
            self.waiters.put(live);
        }
        result
    }

    /// Where a call on this key is answered now, from the connections that already lead there.
    async fn place_for(&self, key: &[u8]) -> Result<Place, Fault> {
        let node = self.route.node(Some(key))?;
        match node.live_now(Workload::Queue).or_else(|| node.live_now(Workload::Default)) {
            Some(live) => Ok(live.place.clone()),
            None => node.place().await,
        }
    }

    async fn has_item(&self, key: &[u8]) -> Result<bool> {
        let mut command = words(["LLEN"]);
        command.push(key);
        match self.ask(OP, &command, Some(key)).await? {
            Reply::Int(length) => Ok(length > 0),
            other => Err(Error::new(OP, Code::StoreReply, format!("LLEN answered {other:?}"))),
        }
    }

    async fn poll(&self, key: &[u8], until: Instant) -> Result<bool> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            tokio::time::sleep(left.min(POLL)).await;
            if self.has_item(key).await? {
                return Ok(true);
            }
        }
    }
}

fn blmove(key: &[u8], turn: Duration) -> Words {
    // Zero would wait for ever.
    let seconds = format!("{:.3}", turn.as_secs_f64().max(0.001));
    words([b"BLMOVE", key, key, b"LEFT", b"LEFT", seconds.as_bytes()])
}

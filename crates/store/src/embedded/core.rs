//! Model, Lua and clock behind one lock: what the embedded store executes scripts on.
//!
//! A script runs in its caller's thread, under the lock, from the first command to the recording of its
//! changes: the order of execution is the order of the journal. Messages are handed out under the lock too,
//! so that every subscriber sees them in that order; waiters are woken after it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;

use super::change::{Change, Generation};
use super::clock::{Clock, Ticker};
use super::model::{Effects, Model};
use super::pubsub::Hub;
use super::vm::{self, ScriptRef, Vm, VmLimits};
use super::waiters::Waiters;
use crate::{Code, Error, KeyFacts, Message, Reply, Result, ScanCursor, ScanPage, Words};

/// The embedded engine without its disk.
#[derive(Debug)]
pub(crate) struct Core {
    inner: Mutex<Inner>,
    hub: Arc<Hub>,
    waiters: Arc<Waiters>,
    ticker: Ticker,
}

#[derive(Debug)]
struct Inner {
    vm: Vm,
    model: Model,
    /// A command panicked half-way: the model may be inconsistent and serves nobody any more.
    broken: bool,
}

impl Core {
    pub(crate) fn new(clock: Clock, limits: VmLimits) -> Result<Self> {
        let hub = Arc::<Hub>::default();
        let model = Model::with_hub(Arc::clone(&hub));
        Ok(Self {
            inner: Mutex::new(Inner { vm: Vm::new(limits)?, model, broken: false }),
            hub,
            waiters: Arc::default(),
            ticker: Ticker::new(clock),
        })
    }

    /// Runs one script atomically. `record` gets its changes, even when there are none, while the lock is
    /// still held; what it returns comes back with the reply. A script that fails changes nothing,
    /// publishes nothing and is not recorded.
    pub(crate) fn execute<T>(
        &self,
        script: ScriptRef<'_>,
        keys: &Words,
        args: &Words,
        record: impl FnOnce(Vec<Change>) -> T,
    ) -> Result<(Reply, T)> {
        let (reply, recorded, pushed) = {
            let mut inner = self.inner.lock();
            let Inner { vm, model, broken } = &mut *inner;
            if *broken {
                return Err(Error::new(
                    vm::OP,
                    Code::Internal,
                    "an earlier command failed half-way; the data in memory is not trusted any more: restart",
                ));
            }
            model.begin(self.ticker.now_us());
            let reply = match vm.run(script, keys, args, model) {
                Ok(reply) => reply,
                Err(error) => {
                    *broken = vm.is_broken();
                    if !*broken {
                        model.rollback();
                    }
                    return Err(error);
                }
            };
            let Effects { changes, published, pushed } = model.commit();
            let recorded = record(changes);
            for (channel, message) in &published {
                self.hub.publish(channel, message);
            }
            (reply, recorded, pushed)
        };
        for key in &pushed {
            self.waiters.wake(key);
        }
        Ok((reply, recorded))
    }

    /// Loads changes from the journal, before the first script runs.
    pub(crate) fn restore(&self, changes: impl Iterator<Item = Change>) {
        let mut inner = self.inner.lock();
        for change in changes {
            inner.model.restore(change);
        }
    }

    /// Removes keys whose time has passed, looking at no more than `max` of them: how many went, and what
    /// `record` returned for their changes, under the lock like a script's.
    pub(crate) fn expire_some<T>(&self, max: usize, record: impl FnOnce(Vec<Change>) -> T) -> (usize, T) {
        let mut inner = self.inner.lock();
        let changes = if inner.broken {
            Vec::new()
        } else {
            let now_ms = self.ticker.now_ms();
            inner.model.expire_some(now_ms, max).changes
        };
        let removed = changes.len();
        (removed, record(changes))
    }

    /// Messages on `channel` from now on.
    pub(crate) fn subscribe(&self, channel: &[u8]) -> BoxStream<'static, Message> {
        self.hub.subscribe(channel).boxed()
    }

    /// Waits until the list at `key` has an item, without removing it; false when `limit` passed first.
    pub(crate) async fn wait_for_item(&self, key: &[u8], limit: Duration) -> bool {
        if self.has_item(key) {
            return true;
        }
        let waiting = self.waiters.register(key);
        let arrival = async {
            loop {
                let mut notified = std::pin::pin!(waiting.notify.notified());
                // Registered before looking: a push in between wakes us.
                notified.as_mut().enable();
                if self.has_item(key) {
                    return;
                }
                notified.await;
            }
        };
        tokio::time::timeout(limit, arrival).await.is_ok()
    }

    fn has_item(&self, key: &[u8]) -> bool {
        let now_ms = self.ticker.now_ms();
        self.inner.lock().model.has_item(key, now_ms)
    }

    /// The store's clock.
    pub(crate) fn now_us(&self) -> i64 {
        self.ticker.now_us()
    }

    /// What is at `key`.
    pub(crate) fn facts(&self, key: &[u8]) -> Option<KeyFacts> {
        let now_ms = self.ticker.now_ms();
        self.inner.lock().model.facts(key, now_ms)
    }

    /// A page of keys that match `pattern`; looks at about `count` keys, so a page may be empty before the end.
    pub(crate) fn scan(&self, pattern: &[u8], count: usize, cursor: Option<&ScanCursor>) -> ScanPage {
        let now_ms = self.ticker.now_ms();
        self.inner.lock().model.scan(pattern, count, cursor, now_ms)
    }

    /// Keys, expired ones that nobody has removed yet included.
    pub(crate) fn len(&self) -> usize {
        self.inner.lock().model.len()
    }

    /// Estimated bytes of all keys and values.
    pub(crate) fn used_bytes(&self) -> usize {
        self.inner.lock().model.used_bytes()
    }

    /// The generation the next new collection gets; everything at or above it was never handed out.
    pub(crate) fn next_generation(&self) -> Generation {
        self.inner.lock().model.next_generation()
    }

    #[cfg(feature = "seeded-bugs")]
    pub(crate) fn seed_bug(&self, bug: Option<super::model::Bug>) {
        self.inner.lock().model.seed_bug(bug);
    }
}

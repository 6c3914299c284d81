//! Model, Lua and clock behind one lock: what the embedded store executes scripts on.
//!
//! A script runs in its caller's thread, under the lock, from the first command to the recording of its
//! changes: the order of execution is the order of the journal. Messages are handed out under the lock too,
//! so that every subscriber sees them in that order; waiters are woken after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;

use super::change::Change;
use super::clock::{Clock, Ticker};
use super::model::{Effects, Fault, Model};
use super::pubsub::Hub;
use super::vm::{self, ScriptRef, Vm, VmLimits};
use super::waiters::Waiters;
use crate::{Code, Error, KeyFacts, Message, Reply, Result, ScanCursor, ScanPage, Words};

/// The embedded engine without its disk.
#[derive(Debug)]
pub(crate) struct Core {
    inner: Mutex<Inner>,
    /// A command panicked half-way: the model may be inconsistent and serves nobody any more. Written under the lock.
    broken: AtomicBool,
    hub: Arc<Hub>,
    waiters: Arc<Waiters>,
    ticker: Arc<Ticker>,
    /// Tells this keyspace from every other one that was ever in memory: a scan's cursor means nothing to those.
    id: [u8; 16],
}

#[derive(Debug)]
struct Inner {
    vm: Vm,
    model: Model,
}

impl Core {
    pub(crate) fn new(clock: Clock, limits: VmLimits) -> Result<Self> {
        let ticker = Ticker::new(clock);
        ticker.usable_us()?;
        let hub = Arc::<Hub>::default();
        let model = Model::with_hub(Arc::clone(&hub));
        Ok(Self {
            inner: Mutex::new(Inner { vm: Vm::new(limits)?, model }),
            broken: AtomicBool::new(false),
            hub,
            waiters: Arc::default(),
            ticker: Arc::new(ticker),
            id: fastrand::u128(..).to_be_bytes(),
        })
    }

    /// Whether scripts run at all.
    pub(crate) fn check(&self) -> Result<()> {
        if self.broken.load(Relaxed) {
            let detail =
                "an earlier command failed half-way; the data in memory is not trusted any more: restart";
            return Err(Error::new(vm::OP, Code::Internal, detail));
        }
        Ok(())
    }

    /// Whether a script that grows the data would run now.
    pub(crate) fn room(&self) -> Result<()> {
        self.check()?;
        self.ticker.usable_us()?;
        if self.inner.lock().model.is_full() {
            return Err(Error::new("store.ready", Code::StoreOom, Fault::FULL.text));
        }
        Ok(())
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
            let Inner { vm, model } = &mut *inner;
            self.check()?;
            model.begin(self.ticker.usable_us()?);
            let reply = match vm.run(script, keys, args, model) {
                Ok(reply) => reply,
                Err(error) => {
                    if vm.is_broken() {
                        self.broken.store(true, Relaxed);
                    } else {
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
        let changes = if self.broken.load(Relaxed) {
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
        self.wait_until(key, limit, || self.has_item(key)).await
    }

    /// Waits for pushes on `key` until `look` is content.
    async fn wait_until(&self, key: &[u8], limit: Duration, look: impl Fn() -> bool) -> bool {
        if look() {
            return true;
        }
        let waiting = self.waiters.register(key);
        let arrival = async {
            loop {
                let mut notified = std::pin::pin!(waiting.notify.notified());
                // Registered before looking: a push in between wakes us.
                notified.as_mut().enable();
                if look() {
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

    pub(crate) fn ticker(&self) -> &Arc<Ticker> {
        &self.ticker
    }

    /// What is at `key`.
    pub(crate) fn facts(&self, key: &[u8]) -> Option<KeyFacts> {
        let now_ms = self.ticker.now_ms();
        self.inner.lock().model.facts(key, now_ms)
    }

    /// A page of keys that match `pattern`; looks at about `count` keys, so a page may be empty before the end.
    /// A page of keys. A place in the keyspace changes with every start, so the cursor says whose it is.
    pub(crate) fn scan(&self, pattern: &[u8], count: usize, cursor: Option<&ScanCursor>) -> Result<ScanPage> {
        let own = match cursor.map(|cursor| cursor.0.split_first_chunk::<16>()) {
            None => None,
            Some(Some((id, own))) if *id == self.id => Some(ScanCursor(own.to_vec())),
            Some(_) => {
                let detail = "the cursor belongs to the store as it was before a restart: going on would pass keys \
                              over; begin again without it";
                return Err(Error::new("store.scan", Code::RequestInvalid, detail).field("cursor"));
            }
        };
        let now_ms = self.ticker.now_ms();
        let mut page = self.inner.lock().model.scan(pattern, count, own.as_ref(), now_ms);
        page.next = page.next.map(|next| ScanCursor([&self.id[..], &next.0].concat()));
        Ok(page)
    }

    /// Keys, expired ones that nobody has removed yet included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.inner.lock().model.len()
    }

    /// Estimated bytes of all keys and values.
    pub(crate) fn used_bytes(&self) -> usize {
        self.inner.lock().model.used_bytes()
    }

    /// Refuses what could grow the data while it has more than `max_bytes`.
    pub(crate) fn bound(&self, max_bytes: usize) {
        self.inner.lock().model.bound(max_bytes);
    }

    /// That bound; none unless there is one.
    pub(crate) fn max_bytes(&self) -> Option<u64> {
        Some(self.inner.lock().model.max_bytes()).filter(|max| *max < usize::MAX).map(|max| max as u64)
    }

    #[cfg(any(test, feature = "seeded-bugs"))]
    pub(crate) fn seed_bug(&self, bug: Option<super::model::Bug>) {
        self.inner.lock().model.seed_bug(bug);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use futures_util::FutureExt as _;

    use super::*;
    use crate::embedded::model::Bug;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);

    fn core() -> Arc<Core> {
        let clock = Clock::Manual(Arc::new(AtomicI64::new(1_700_000_000_000_000)));
        Arc::new(Core::new(clock, VmLimits::default()).unwrap())
    }

    fn run<T>(core: &Core, source: &str, record: impl FnOnce(Vec<Change>) -> T) -> Result<(Reply, T)> {
        let script = ScriptRef { id: "test.core", sha: source, source };
        core.execute(script, &Words::default(), &Words::default(), record)
    }

    fn text(value: &Change) -> i64 {
        let Change::PutString { value, .. } = value else { return -1 };
        std::str::from_utf8(value).unwrap().parse().unwrap()
    }

    #[test]
    fn changes_are_recorded_and_messages_seen_in_the_order_of_execution() {
        let (core, recorded) = (core(), Mutex::new(Vec::new()));
        let mut messages = core.subscribe(b"c");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let source = "redis.call('PUBLISH', 'c', redis.call('INCR', 'n'))";
                        run(&core, source, |changes| recorded.lock().extend(changes)).unwrap();
                    }
                });
            }
        });
        let order: Vec<i64> = recorded.lock().iter().map(text).collect();
        assert_eq!(order, (1..=800).collect::<Vec<_>>());
        for number in 1..=800 {
            let message = messages.next().now_or_never().flatten();
            assert_eq!(message, Some(Message::Data(number.to_string().into())));
        }
    }

    #[test]
    fn a_script_without_changes_is_recorded_too() {
        let (_, changes) = run(&core(), "return redis.call('GET', 'k')", |changes| changes).unwrap();
        assert!(changes.is_empty());
    }

    #[tokio::test]
    async fn waiting_ends_at_once_where_an_item_is_and_with_the_limit_where_none_comes() {
        let core = core();
        run(&core, "redis.call('RPUSH', 'l', 'a') redis.call('SET', 'k', 'v')", drop).unwrap();
        assert_eq!(core.wait_for_item(b"l", LONG).now_or_never(), Some(true));
        assert!(!core.wait_for_item(b"k", SHORT).await, "a string has no items");
        assert!(!core.wait_for_item(b"absent", SHORT).await);
    }

    #[tokio::test]
    async fn every_way_to_fill_a_list_wakes_everybody_who_waits() {
        for source in [
            "redis.call('RPUSH', 'l', 'a')",
            "redis.call('LPUSH', 'l', 'a')",
            "redis.call('RPUSH', 'm', 'a') redis.call('LMOVE', 'm', 'l', 'LEFT', 'LEFT')",
            "redis.call('RPUSH', 'm', 'a') redis.call('RENAME', 'm', 'l')",
        ] {
            let core = core();
            let push = async { run(&core, source, drop).unwrap() };
            let (one, two, _) =
                tokio::join!(core.wait_for_item(b"l", LONG), core.wait_for_item(b"l", LONG), push);
            assert!(one && two, "{source}");
        }
    }

    #[tokio::test]
    async fn an_item_that_is_gone_again_or_never_came_wakes_nobody_for_good() {
        for source in [
            "redis.call('RPUSH', 'l', 'a') redis.call('LPOP', 'l')",
            "redis.call('RPUSH', 'l', 'a') error('no')",
        ] {
            let core = core();
            let push = async { run(&core, source, drop).is_ok() };
            let (woken, _) = tokio::join!(core.wait_for_item(b"l", SHORT), push);
            assert!(!woken, "{source}");
        }
    }

    #[tokio::test]
    async fn no_wake_up_is_lost_between_looking_and_waiting() {
        let core = core();
        for push_after in 1..=2 {
            run(&core, "redis.call('DEL', 'l')", drop).unwrap();
            let looks = AtomicI64::new(0);
            // The item comes right after a look that did not find it, before the waiter can sleep.
            let look = || {
                let found = core.has_item(b"l");
                if looks.fetch_add(1, Ordering::SeqCst) + 1 == push_after {
                    run(&core, "redis.call('RPUSH', 'l', 'a')", drop).unwrap();
                }
                found
            };
            assert!(core.wait_until(b"l", Duration::from_secs(5), look).await, "{push_after}");
        }
    }

    #[test]
    fn after_a_panic_in_a_command_nothing_is_served_any_more() {
        let core = core();
        core.seed_bug(Some(Bug::PersistPanics));
        run(&core, "redis.call('SET', 'k', 'v')", drop).unwrap();
        let source = "pcall(redis.call, 'PERSIST', 'k') return 1";
        assert_eq!(run(&core, source, drop).unwrap_err().code, Code::Internal);
        let refused = run(&core, "return 1", drop).unwrap_err();
        assert_eq!(refused.code, Code::Internal);
        assert!(refused.detail.contains("restart"), "{}", refused.detail);
        assert_eq!(core.expire_some(10, |changes| changes.len()), (0, 0));
    }

    #[test]
    fn at_the_bound_nothing_grows_and_what_frees_memory_goes_on() {
        let core = core();
        run(&core, "redis.call('RPUSH', 'l', 'a', 'b') redis.call('SET', 'k', 'v')", drop).unwrap();
        core.bound(core.used_bytes());
        run(&core, "redis.call('SET', 'one', 'more')", drop).unwrap();
        let before = core.used_bytes();
        for source in [
            "redis.call('SET', 'k', 'w')",
            "redis.call('GET', 'k') redis.call('RPUSH', 'l', 'c')",
            "redis.pcall('HSET', 'h', 'f', 'v') redis.call('ZADD', 'z', 1, 'm')",
        ] {
            let refused = run(&core, source, drop).unwrap_err();
            assert_eq!(refused.code, Code::StoreOom, "{source}: {refused}");
            assert!(refused.detail.contains("max_memory"), "{refused}");
        }
        assert_eq!(core.used_bytes(), before);
        // As on Redis: what frees memory may note where it put things.
        for source in [
            "redis.call('LPOP', 'l') redis.call('HSET', 'h', 'f', 'a')",
            "return redis.call('GET', 'k')",
            "redis.call('PEXPIRE', 'k', 1000)",
            "redis.call('DEL', 'one', 'l', 'h')",
            "redis.call('SET', 'k', 'w')",
        ] {
            run(&core, source, drop).unwrap();
        }
    }

    #[test]
    fn expiry_is_recorded_like_a_script() {
        let clock = Arc::new(AtomicI64::new(1_700_000_000_000_000));
        let core = Core::new(Clock::Manual(Arc::clone(&clock)), VmLimits::default()).unwrap();
        run(&core, "redis.call('SET', 'k', 'v', 'PX', 10)", drop).unwrap();
        clock.fetch_add(5_000_000, Ordering::SeqCst);
        let (removed, changes) = core.expire_some(10, |changes| changes);
        assert_eq!(removed, 1);
        assert_eq!(changes, [Change::Remove { key: "k".into(), generation: None }]);
        assert_eq!(core.len(), 0);
        assert_eq!(core.used_bytes(), 0);
    }
}

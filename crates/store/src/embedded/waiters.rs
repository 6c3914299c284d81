//! Who waits for an item in which list. Everybody who waits for a key is woken by a push and looks again.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The keys that somebody waits for.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    keys: Mutex<HashMap<Bytes, Arc<Notify>>>,
}

impl Waiters {
    /// Registers a waiter. It misses no [`Waiters::wake`] from now on, provided that it enables its
    /// `notified()` before it looks whether the item is there.
    pub(crate) fn register(self: &Arc<Self>, key: &[u8]) -> Waiting {
        let key = Bytes::copy_from_slice(key);
        let notify = Arc::clone(self.keys.lock().entry(key.clone()).or_default());
        Waiting { waiters: Arc::clone(self), key, notify }
    }

    pub(crate) fn wake(&self, key: &[u8]) {
        if let Some(notify) = self.keys.lock().get(key) {
            notify.notify_waiters();
        }
    }
}

/// One registration; ends when dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    waiters: Arc<Waiters>,
    key: Bytes,
    pub(crate) notify: Arc<Notify>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut keys = self.waiters.keys.lock();
        // The map's and ours: nobody else waits, and nobody can begin to while the map is locked.
        if Arc::strong_count(&self.notify) == 2 {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_forgotten_with_their_last_waiter() {
        let waiters = Arc::<Waiters>::default();
        let (one, two) = (waiters.register(b"k"), waiters.register(b"k"));
        drop(one);
        assert_eq!(waiters.keys.lock().len(), 1);
        drop(two);
        assert!(waiters.keys.lock().is_empty());
    }
}

//! Writes by the thread that has the bytes.
//!
//! A write to a file ends in the system's memory, and to hand a piece to another thread and hear of it again costs as
//! much. But when there is too much that the disk has not got yet, it waits for the disk, and so does a thread of the
//! runtime, with everybody it serves. So one of them is always left out; and when a write took long, all are, for a while.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Of the whole process: so are disks, and mostly the runtime.
pub(super) static HERE: Here = Here::new(Duration::from_millis(20), Duration::from_secs(10));

#[derive(Debug)]
pub(super) struct Here {
    writing: AtomicUsize,
    /// A write that takes so long has waited for the disk.
    long: Duration,
    /// For how long nobody writes here then.
    pause: Duration,
    waited: Mutex<Option<Instant>>,
}

/// A thread that may write.
struct Turn<'a>(&'a AtomicUsize);

impl Here {
    pub(super) const fn new(long: Duration, pause: Duration) -> Self {
        Self { writing: AtomicUsize::new(0), long, pause, waited: Mutex::new(None) }
    }

    /// Whether there is a turn sooner or later.
    pub(super) fn is_open(&self) -> bool {
        self.waited.lock().is_none_or(|at| at.elapsed() >= self.pause)
    }

    /// What came of it, if this thread may do it now.
    pub(super) fn write<T>(&self, write: impl FnOnce() -> T) -> Option<T> {
        let turn = self.turn()?;
        let began = Instant::now();
        let done = write();
        if began.elapsed() >= self.long {
            *self.waited.lock() = Some(Instant::now());
        }
        drop(turn);
        Some(done)
    }

    fn turn(&self) -> Option<Turn<'_>> {
        let runtime = Handle::try_current().ok()?;
        let threads = match runtime.runtime_flavor() {
            RuntimeFlavor::MultiThread => runtime.metrics().num_workers(),
            _ => 1,
        };
        let another = |now| (now + 1 < threads).then_some(now + 1);
        self.writing.fetch_update(Relaxed, Relaxed, another).ok().map(|_| Turn(&self.writing))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    const NEVER: Duration = Duration::MAX;

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn one_thread_of_the_runtime_writes_nothing() {
        let here = Here::new(NEVER, NEVER);
        let all = here.write(|| here.write(|| here.write(|| "a third")));
        assert_eq!(all, Some(Some(None)));
        assert_eq!(here.write(|| 7), Some(7), "each gave its turn back");
    }

    #[tokio::test]
    async fn nobody_writes_where_there_is_but_one() {
        assert_eq!(Here::new(NEVER, NEVER).write(|| 7), None);
    }

    #[test]
    fn nobody_writes_outside_of_a_runtime() {
        assert_eq!(Here::new(NEVER, NEVER).write(|| 7), None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_fails_gives_its_turn_back() {
        let here = Here::new(NEVER, NEVER);
        let failed =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| here.write(|| assert_eq!(1, 2))));
        failed.unwrap_err();
        assert_eq!(here.write(|| 7), Some(7));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn after_a_long_write_there_is_a_pause() {
        let long = Here::new(Duration::ZERO, NEVER);
        assert!(long.is_open());
        assert_eq!(long.write(|| 7), Some(7));
        assert!(!long.is_open());
        let over = Here::new(Duration::ZERO, Duration::ZERO);
        over.write(|| 7).unwrap();
        assert!(over.is_open());
        let short = Here::new(NEVER, NEVER);
        short.write(|| 7).unwrap();
        assert!(short.is_open());
    }
}

//! Work that waits for a disk, on threads of its own. A thread that waits has memory, so there are a few for each core:
//! what comes while all are at work waits its turn, and with it the client whose bytes it has. Pieces that come in, syncs,
//! what goes out in pieces, and whole files have theirs each, so that nobody who wants little waits for those who want
//! much.
//!
//! They belong to no runtime that anybody drives: work must not spawn, sleep or wait for anything but the disk.

use std::num::NonZero;
use std::sync::LazyLock;
use std::thread;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, spawn_blocking};

/// For each core: some of them compute digests, the others wait.
const A_CORE: usize = 4;
const LEAST: usize = 8;
const MOST: usize = 24;

/// Of the whole process, whatever runtimes it has: nothing but its threads is used of it, and they are there as long as
/// there is work.
pub(crate) struct Threads(LazyLock<Option<Runtime>>);

/// For pieces of chunks on their way in, and for names of files.
pub(crate) static IN: Threads = Threads(LazyLock::new(|| some("quaymaster-in")));

/// For what must outlive the power: chunks that are whole, and folders.
pub(crate) static SYNC: Threads = Threads(LazyLock::new(|| some("quaymaster-sync")));

/// For pieces of parts.
pub(crate) static OUT: Threads = Threads(LazyLock::new(|| some("quaymaster-out")));

/// For files from their beginning to their end.
pub(crate) static WHOLE: Threads = Threads(LazyLock::new(|| some("quaymaster-whole")));

fn some(name: &str) -> Option<Runtime> {
    Builder::new_current_thread().max_blocking_threads(most()).thread_name(name).build().ok()
}

fn most() -> usize {
    (thread::available_parallelism().map_or(1, NonZero::get) * A_CORE).clamp(LEAST, MOST)
}

impl Threads {
    /// Begins as soon as there is a thread, and goes on to its end whether or not anybody waits for it.
    pub(crate) fn off<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        match &*self.0 {
            Some(threads) => threads.spawn_blocking(work),
            None => spawn_blocking(work),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Of its own: other tests of the process need theirs.
    static HELD: Threads = Threads(LazyLock::new(|| some("quaymaster-held")));

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn so_many_wait_for_the_disk_and_the_rest_for_them() {
        let (most, at_work) = (most(), Arc::new(AtomicUsize::new(0)));
        let (began, begun) = mpsc::channel();
        let (release, held): (Vec<_>, Vec<_>) = (0..4 * most).map(|_| mpsc::channel::<()>()).unzip();
        let works: Vec<_> = held
            .into_iter()
            .map(|held| {
                let (at_work, began) = (at_work.clone(), began.clone());
                HELD.off(move || {
                    let now = at_work.fetch_add(1, SeqCst) + 1;
                    began.send(now).unwrap();
                    // Until its sender is dropped.
                    let _ = held.recv();
                    at_work.fetch_sub(1, SeqCst);
                })
            })
            .collect();
        let all: Vec<usize> = (0..most).map(|_| begun.recv_timeout(PATIENCE).unwrap()).collect();
        assert_eq!(all.iter().max(), Some(&most), "they wait beside each other");
        // One more would have begun by now, or a little later: it is seen then.
        assert_eq!(begun.recv_timeout(Duration::from_millis(100)).ok(), None);
        OUT.off(|| ()).await.unwrap();
        drop(release);
        for work in works {
            work.await.unwrap();
        }
        assert!(begun.try_iter().all(|now| now <= most));
    }

    #[test]
    fn whoever_fails_tells_only_those_who_wait_for_it() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let failed = runtime.block_on(IN.off(|| assert_eq!(most(), 0)));
        assert!(failed.unwrap_err().is_panic());
        assert_eq!(runtime.block_on(IN.off(|| 7)).unwrap(), 7);
        drop(runtime);
        let another = Builder::new_current_thread().build().unwrap();
        assert_eq!(another.block_on(IN.off(|| 8)).unwrap(), 8, "of no runtime");
    }
}
